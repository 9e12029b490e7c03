"""Whether loading a Keras config would run code of its author: told from data, before any loader.

Everything in a config that names something importable must be on the allow-list: the public homes
of Keras' own layers, activations, initializers and so on. Anything else is refused with the name
of the layer, unless the user allows it or registers it by importing its module.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mpexport.errors import UnsafeModelError

_ROOTS = ("keras", "keras.src", "tf_keras", "tf_keras.src")
_HOMES = (
    "activations",
    "constraints",
    "dtype_policies",
    "engine",  # the home of Keras 2's Functional
    "initializers",
    "layers",
    "losses",
    "metrics",
    "mixed_precision",
    "models",
    "ops",
    "optimizers",
    "quantizers",
    "random.seed_generator",
    "regularizers",
)
# Layers that Keras' own applications bring along; the functions beside them fetch weights.
_APPLICATION_LAYERS = {
    "applications.convnext": ("LayerScale", "StochasticDepth"),
    "applications.inception_resnet_v2": ("CustomScaleLayer",),
}
# Where functions may come from: calling one of keras.models' is loading another file.
_FUNCTION_HOMES = ("activations", "constraints", "initializers", "ops", "regularizers")
# Layers of Keras that run code or files named in their config.
_UNSAFE_CLASSES = frozenset({"Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"})
# Layers that look words up, and that read the file when the config names one.
_VOCABULARY_CLASSES = frozenset({"IntegerLookup", "StringLookup", "TextVectorization"})
# Not read when a model is loaded for inference; those of inner models are.
_UNREAD = frozenset({"compile_config", "training_config"})

# tf-keras makes a layer of every TensorFlow function that a functional model calls, and calls it
# again when it is loaded, at once if all its arguments are constants. The public functions of
# TensorFlow include io.gfile.rmtree, io.write_file and load_library: only those that compute may be
# named.
_TF_HOMES = (
    "__operators__.",
    "bitwise.",
    "debugging.assert_",
    "dtypes.",
    "image.",
    "keras.activations.",
    "keras.backend.",
    "keras.losses.",
    "keras.metrics.",
    "linalg.",
    "math.",
    "nn.",
    "quantization.",
    "ragged.",
    "random.",
    "sets.",
    "signal.",
    "sparse.",
    "strings.",
)
_TF_READS_FILE = "fixed_unigram_candidate_sampler"
_TF_FUNCTION_NAMES = """
    abs acos acosh add add_n argmax argmin argsort as_string asin asinh atan atan2 atanh
    batch_to_space bitcast boolean_mask broadcast_dynamic_shape broadcast_static_shape broadcast_to
    cast ceil clip_by_global_norm clip_by_norm clip_by_value complex concat constant
    convert_to_tensor cos cosh cumsum divide dynamic_partition dynamic_stitch edit_distance eig
    eigvals einsum ensure_shape equal exp expand_dims extract_volume_patches eye fill fingerprint
    floor gather gather_nd greater greater_equal histogram_fixed_width histogram_fixed_width_bins
    identity identity_n less less_equal linspace log log1p logical_and logical_not logical_or matmul
    matrix_square_root maximum meshgrid minimum multiply negative norm not_equal one_hot ones
    ones_like pad parallel_stack pow range rank realdiv reduce_all reduce_any reduce_logsumexp
    reduce_max reduce_mean reduce_min reduce_prod reduce_sum repeat reshape reverse reverse_sequence
    roll round rsqrt saturate_cast scalar_mul scatter_nd searchsorted sequence_mask shape shape_n
    sigmoid sign sin sinh size slice sort space_to_batch space_to_batch_nd split sqrt square squeeze
    stack stop_gradient strided_slice subtract tan tanh tensor_scatter_nd_add tensor_scatter_nd_max
    tensor_scatter_nd_min tensor_scatter_nd_sub tensor_scatter_nd_update tensordot tile to_float
    to_int32 transpose truediv truncatediv truncatemod tuple unique unique_with_counts unravel_index
    unstack where zeros zeros_like
"""
_TF_FUNCTIONS = frozenset(_TF_FUNCTION_NAMES.split())
# The same, as ops: TensorFlow 2.0 to 2.3 wrote those.
_TF_OP_NAMES = """
    Abs Add AddN AddV2 All Any ArgMax ArgMin AvgPool BatchMatMul BatchMatMulV2 BiasAdd BroadcastTo
    Cast Ceil ClipByValue Concat ConcatV2 Const Conv2D Cos Cumsum DepthToSpace Div DivNoNan Einsum
    Elu Equal Erf Exp ExpandDims Fill Floor FloorDiv FloorMod Gather GatherNd GatherV2 Greater
    GreaterEqual Identity LeakyRelu Less LessEqual Log Log1p LogSoftmax LogicalAnd LogicalNot
    LogicalOr MatMul Max MaxPool Maximum Mean Min Minimum MirrorPad Mul Neg NotEqual OneHot OnesLike
    Pack Pad PadV2 Pow Prod Range Rank RealDiv Reciprocal Relu Relu6 Reshape ResizeBilinear
    ResizeNearestNeighbor ReverseV2 Round Rsqrt Select SelectV2 Selu Shape Sigmoid Sign Sin Size
    Slice Softmax Softplus SpaceToDepth Split SplitV Sqrt Square SquaredDifference Squeeze
    StopGradient StridedSlice Sub Sum Tanh Tile TopKV2 Transpose Unpack Where ZerosLike
"""
_TF_OPS = frozenset(_TF_OP_NAMES.split())


@dataclass(frozen=True)
class UnsafeItem:
    """Something in a config that would run the author's code, or needs a class we don't know."""

    layer: str
    what: str
    custom_class: str = ""


def _is_at_home(module: str, homes: Iterable[str]) -> bool:
    places = [f"{root}.{home}" for root in _ROOTS for home in homes]
    return any(module == place or module.startswith(f"{place}.") for place in places)


def scan_config(config: Any) -> Iterator[UnsafeItem]:
    """All items of a Keras config that need the user's consent.

    Args:
        config: The parsed JSON of a model, Keras 2 or 3.
    """
    if isinstance(config, dict):
        config = {k: v for k, v in config.items() if k not in _UNREAD}
    todo: list[tuple[Any, str]] = [(config, "model")]
    while todo:
        item, layer = todo.pop()
        if isinstance(item, list):
            todo.extend((x, layer) for x in item)
        if not isinstance(item, dict):
            continue
        inner = item.get("config")
        class_name = item.get("class_name")
        if isinstance(class_name, str):
            if isinstance(inner, dict) and isinstance(inner.get("name"), str):
                layer = inner["name"]
            yield from _judge(item, class_name, layer)
        todo.extend((v, layer) for v in item.values())


def _judge(item: dict[str, Any], class_name: str, layer: str) -> Iterator[UnsafeItem]:
    registered = str(item.get("registered_name") or "")
    # tf-keras looks the registered name up where it does not find the class name.
    unsafe = _UNSAFE_CLASSES & {class_name, registered}
    if unsafe:
        what = f"a {min(unsafe)} layer, which runs what its author put in the file"
        yield UnsafeItem(layer, what)
    elif class_name == "__lambda__":
        yield UnsafeItem(layer, "a Python lambda")
    elif class_name == "function":
        yield from _judge_function(item, layer)
    elif class_name == "__typespec__":
        yield from _judge_typespec(item, layer)
    elif ">" in class_name or ">" in registered:
        name = class_name if ">" in class_name else registered
        yield UnsafeItem(layer, f"the custom class {name}", name)
    elif "." in class_name:
        yield UnsafeItem(layer, f"{class_name}, which is no class of Keras")
    else:
        yield from _judge_layer(item, class_name, layer)
        yield from _judge_module(item, class_name, registered, layer)


def _judge_module(
    item: dict[str, Any], class_name: str, registered: str, layer: str
) -> Iterator[UnsafeItem]:
    module = item.get("module")
    if isinstance(module, str):
        homes = [*_HOMES, *(m for m, names in _APPLICATION_LAYERS.items() if class_name in names)]
        if module not in _ROOTS and not _is_at_home(module, homes):
            what = f"the custom class {module}.{class_name}"
            yield UnsafeItem(layer, what, registered or class_name)
    elif module is None and "module" in item and registered and class_name != registered:
        yield UnsafeItem(layer, f"the custom class {registered}", registered)


def _judge_function(item: dict[str, Any], layer: str) -> Iterator[UnsafeItem]:
    """A function by name: one of Keras' own, found by its module or among ``builtins``."""
    module, name = str(item.get("module")), str(item.get("config"))
    if ">" in name:
        yield UnsafeItem(layer, f"the custom function {name}", name)
    elif module == "builtins":
        # Keras means its own functions by that; tf-keras then looks among Python's.
        if not name.isidentifier() or hasattr(builtins, name):
            yield UnsafeItem(layer, f"a call of Python's {name}")
    elif not name.isidentifier() or not _is_at_home(module, _FUNCTION_HOMES):
        known = str(item.get("registered_name") or name)
        yield UnsafeItem(layer, f"the custom function {module}.{name}", known)


def _judge_typespec(item: dict[str, Any], layer: str) -> Iterator[UnsafeItem]:
    spec, module = str(item.get("spec_name")), str(item.get("module"))
    known = ("TensorSpec", "RaggedTensorSpec", "SparseTensorSpec")
    if spec not in known or not module.startswith("tensorflow.python."):
        yield UnsafeItem(layer, f"an input of type {module}.{spec}")


def _judge_layer(item: dict[str, Any], class_name: str, layer: str) -> Iterator[UnsafeItem]:
    """Layers that call what their config names, and layers that read files."""
    config = item.get("config")
    inner = config if isinstance(config, dict) else {}
    if class_name in ("TFOpLambda", "SlicingOpLambda"):
        symbol = str(inner.get("function"))
        if not _computes(symbol):
            yield UnsafeItem(layer, f"a call of TensorFlow's {symbol}")
    elif class_name == "ClassMethod":
        symbol = str(inner.get("cls_symbol"))
        if symbol not in ("RaggedTensor", "SparseTensor"):
            yield UnsafeItem(layer, f"a call of {symbol}.{inner.get('method_name')}")
    elif class_name == "TensorFlowOpLayer":
        node = inner.get("node_def")
        op = node.get("op") if isinstance(node, dict) else None
        if op not in _TF_OPS:
            yield UnsafeItem(layer, f"the TensorFlow op {op or 'of a serialized node'}")
    elif class_name in _VOCABULARY_CLASSES and isinstance(inner.get("vocabulary"), str):
        what = f"a {class_name} layer that reads the file {inner['vocabulary']}"
        yield UnsafeItem(layer, what)


def _computes(symbol: str) -> bool:
    name = symbol.removeprefix("compat.v1.")
    if name.endswith(_TF_READS_FILE):
        return False
    return name in _TF_FUNCTIONS or name.startswith(_TF_HOMES)


def refuse_unsafe(path: str, items: list[UnsafeItem], known: frozenset[str]) -> None:
    """Raises for the first item that is not registered by the user.

    Args:
        path: The source, for the message.
        items: What `scan_config` found.
        known: Registered names of the custom classes the user's imports provide.

    Raises:
        UnsafeModelError: Exit code 4; nothing of the model has run.
    """
    for item in items:
        if item.custom_class:
            if item.custom_class in known or item.custom_class.partition(">")[2] in known:
                continue
            raise UnsafeModelError(
                f"{path}: layer {item.layer!r} needs {item.what}",
                hint="name the module that registers it: --import my_package.layers",
                where=item.layer,
            )
        raise UnsafeModelError(
            f"{path}: layer {item.layer!r} is {item.what}",
            hint="replace it by a layer; --allow-code runs it, if you trust who wrote the file",
            where=item.layer,
        )
