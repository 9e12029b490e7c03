"""Shards, and what they give together."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from mpexport.errors import InconclusiveError, InputError, UsageError
from mpexport.parity.gate import Gate
from mpexport.parity.partial import Partial, Shard, load_parts, merge, merge_all
from mpexport.parity.tolerance import default_for
from mpexport.parity.verdict import FileVerdict, ModelRuns

RNG = np.random.default_rng(3)
CASES = [RNG.standard_normal((2, 3)) for _ in range(7)]
LEFT_OUT = {2: "inputs left out: c", 3: "inputs left out: d"}


def part(index, count, candidate="a.onnx", gate=None):
    shard = Shard(index, count)
    verdict = FileVerdict("float32", default_for("float32"))
    taken = [n for n in range(len(CASES)) if shard.takes(n) and n not in LEFT_OUT]
    for n in taken:
        verdict.add([n], ModelRuns([{"y": CASES[n]}]), [{"y": CASES[n]}])
    return Partial(
        reference="model",
        candidate=candidate,
        environment={"runtime": "r"},
        seed=0,
        notes=("a note",),
        gate=gate or Gate(),
        shard=shard,
        verdict=verdict.to_json(),
        samples=2 * len(taken),
        digests={n: str(n) for n in taken},
        cases={n: f"case {n}" for n in taken},
        left_out={n: why for n, why in LEFT_OUT.items() if shard.takes(n)},
        run_to_run={"y": 1e-9} if 0 in taken else {},
    )


def text(partial):
    return json.dumps(partial.report().to_json())


@pytest.mark.parametrize("count", [2, 3])
def test_in_any_order_they_give_the_bytes_of_one_run(count):
    stored = [json.loads(json.dumps(part(i, count).to_json())) for i in range(1, count + 1)]
    for order in itertools.permutations(stored):
        assert text(merge(map(Partial.from_json, order))) == text(part(1, 1))
    assert part(1, 1).report().notes == ("a note", *LEFT_OUT.values())


def test_all_must_be_there_once_and_belong_together():
    with pytest.raises(InconclusiveError, match="of 3 shards, missing: 2"):
        merge([part(1, 3), part(3, 3)])
    with pytest.raises(UsageError, match="shard 1/2 is given twice"):
        merge([part(1, 2), part(2, 2), part(1, 2)])
    with pytest.raises(UsageError, match="different gates"):
        merge([part(1, 2), part(2, 2, gate=Gate(min_samples=9))])
    with pytest.raises(UsageError, match="nothing to merge"):
        merge_all([])
    merged = merge_all([part(1, 2), part(1, 2, "b"), part(2, 2, "b"), part(2, 2)])
    assert [p.candidate for p in merged] == ["a.onnx", "b"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"result": null}', '{"result": {}}'])
def test_other_files_are_no_shards(tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match=r"x\.json: is no result of one shard"):
        load_parts([tmp_path / "x.json"])
    with pytest.raises(InputError):
        load_parts([tmp_path / "none.json"])


@pytest.mark.parametrize("given", ["", "1", "1/2/3", "a/b", "0/2", "3/2", "-1/2"])
def test_what_is_no_shard_is_refused(given):
    with pytest.raises(UsageError, match="shard"):
        Shard.parse(given)
