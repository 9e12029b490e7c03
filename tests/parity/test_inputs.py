"""Sample inputs: reproducible, as declared, and never guessed."""

from __future__ import annotations

import numpy as np
import pytest

from mpexport.errors import UsageError
from mpexport.parity import inputs
from mpexport.signature import Signature, TensorSpec


def signature(*specs):
    return Signature("serving_default", tuple(TensorSpec(*s) for s in specs), ())


IMAGE = ("image", (None, 4, 4, 3), "float32")
IDS = ("ids", (None, None), "int32")
MASK = ("mask", (None, None), "bool")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ids:0..30521", ("ids", 0, 30521)),
        ("serving_default_x:0:-1..1", ("serving_default_x:0", -1, 1)),
        ("a b:-1.5..2e3", ("a b", -1.5, 2000.0)),
        (f"big:0..{2**63 - 1}", ("big", 0, 2**63 - 1)),
    ],
)
def test_parse_range(text, expected):
    assert inputs.parse_range(text) == expected


@pytest.mark.parametrize(
    "text", ["ids", "ids:1", ":0..1", "ids:2..1", "ids:a..b", "ids:0..inf", "ids:nan..1", "0..1"]
)
def test_parse_range_refuses(text):
    with pytest.raises(UsageError) as caught:
        inputs.parse_range(text)
    assert "\n" not in str(caught.value)


def test_inputs_depend_on_seed_and_name_only():
    both = inputs.make_inputs(signature(IMAGE, MASK), batch=3, seed=7)
    swapped = inputs.make_inputs(signature(MASK, IMAGE), batch=3, seed=7)
    alone = inputs.make_inputs(signature(IMAGE), batch=3, seed=7)
    for name in both:
        np.testing.assert_array_equal(both[name], swapped[name])
    np.testing.assert_array_equal(both["image"], alone["image"])
    other = inputs.make_inputs(signature(IMAGE), batch=3, seed=8)
    renamed = inputs.make_inputs(signature(("img", *IMAGE[1:])), batch=3, seed=7)
    assert not np.array_equal(alone["image"], other["image"])
    assert not np.array_equal(alone["image"], renamed["img"])


X_OF_SEED_0 = [0.35786357522010803, -0.6485270857810974]
IDS_OF_SEED_0 = [5, 1, 5, 2, 2, 6, 9, 4]


def test_values_are_the_same_on_every_machine():
    made = inputs.make_inputs(signature(("x", (None, 2), "float32"), IDS), 1, 0, {"ids": (0, 9)})
    assert made["x"].ravel().tolist() == X_OF_SEED_0
    assert made["ids"].tolist() == [IDS_OF_SEED_0]


def test_shapes():
    specs = [IMAGE, IDS, MASK, ("scalar", (), "float32"), ("fixed", (2, 5), "float32")]
    made = inputs.make_inputs(signature(*specs), batch=3, ranges={"ids": (0, 9)})
    shapes = {name: array.shape for name, array in made.items()}
    assert shapes == {
        "image": (3, 4, 4, 3),
        "ids": (3, inputs.DEFAULT_SIZE),
        "mask": (3, inputs.DEFAULT_SIZE),
        "scalar": (),
        "fixed": (2, 5),
    }
    sized = inputs.make_inputs(signature(IDS, MASK), 1, 0, {"ids": (0, 9)}, {"ids": [5]})
    assert sized["ids"].shape == (1, 5)


@pytest.mark.parametrize(("dtype", "digits"), [("float16", np.float16), ("float32", np.float32)])
def test_floats_are_what_the_declared_type_holds(dtype, digits):
    made = inputs.make_inputs(signature(("x", (None, 500), dtype)), 2)["x"]
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, made.astype(digits).astype(np.float32))
    assert abs(made.mean()) < 0.2
    assert 0.9 < made.std() < 1.1


def test_ranges_are_kept_and_reached():
    sig = signature(("x", (None, 2000), "float32"), ("i", (None, 2000), "int8"), MASK)
    made = inputs.make_inputs(sig, 1, 0, {"x": (2.0, 3.0), "i": (-3, 3)})
    assert 2 <= made["x"].min() < 2.05
    assert 2.95 < made["x"].max() <= 3
    assert set(made["i"].ravel().tolist()) == set(range(-3, 4))
    assert made["i"].dtype == np.int8
    assert set(made["mask"].ravel().tolist()) == {False, True}


@pytest.mark.parametrize(
    ("spec", "kwargs", "message"),
    [
        (IDS, {}, "never guessed"),
        (IDS, {"ranges": {"ids": (0.5, 3)}}, "no range of int32"),
        (IDS, {"ranges": {"ids": (0, 2**31)}}, "no range of int32"),
        (IDS, {"ranges": {"idz": (0, 1)}}, "did you mean 'ids'"),
        (MASK, {"ranges": {"mask": (0, 1)}}, "only numbers"),
        (MASK, {"dims": {"mask": [4, 4]}}, "1 unknown axes"),
        (MASK, {"dims": {"mask": [0]}}, "unknown axes"),
        (MASK, {"batch": 0}, "batch >= 1"),
        (MASK, {"seed": -1}, "seed >= 0"),
        (("s", (None,), "string"), {}, "cannot be made up"),
        (("r", None, "float32"), {}, "rank is unknown"),
        (("h", (None,), "float16"), {"ranges": {"h": (0, 1e5)}}, "beyond float16"),
    ],
)
def test_what_cannot_be_made_up_is_asked_for(spec, kwargs, message):
    with pytest.raises(UsageError, match=message) as caught:
        inputs.make_inputs(signature(spec), **kwargs)
    if message == "never guessed":
        assert caught.value.hint == "--input-range ids:LO..HI"


def test_digest_sees_everything():
    base = {"x": np.ones((2, 3), np.float32), "s": np.array([b"ab", b"c"], object)}

    def digest(cases):
        return inputs.digest(map(inputs.case_digest, cases))

    expected = digest([base])
    assert expected == digest([dict(reversed(base.items()))])
    assert expected == digest([{**base, "s": np.array([b"ab", b"c"])}])
    changed = [
        [{**base, "x": base["x"].reshape(3, 2)}],
        [{**base, "x": base["x"].astype(np.float64)}],
        [{**base, "x": base["x"] + np.float32(1e-6)}],
        [{**base, "s": np.array([b"a", b"bc"], object)}],
        [{"y" if n == "x" else n: a for n, a in base.items()}],
        [base, base],
    ]
    assert len({expected, *map(digest, changed)}) == len(changed) + 1
