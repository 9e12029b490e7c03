"""Ops that reach out of the graph: found in every function, and before loading runs them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.trackable.resource import CapturableResource

from mpexport.errors import UnsafeModelError
from mpexport.tf.host_ops import is_host_op, refuse_host_ops, refuse_on_load
from tests.tf.support import saved, spec, traced

pytestmark = pytest.mark.tf

v1 = tf.compat.v1


def named(op: str, **strings: str) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name="n", op=op)
    for key, value in strings.items():
        node.attr[key].s = value.encode()
    return node


@pytest.mark.parametrize(
    "op",
    [
        "CacheDatasetV2",
        "DebugIdentity",  # debug_urls: file:// and grpc://
        "DebugNumericSummary",
        "EagerPyFunc",
        "FileSystemSetConfiguration",
        "GenerateVocabRemapping",
        "ImmutableConst",  # maps any file
        "InitializeTableFromTextFileV2",
        "IteratorV2",
        "LoadAndRemapMatrix",
        "MatchingFiles",
        "PyFunc",
        "PyFuncStateless",
        "ReadFile",
        "RemoteCall",
        "RestoreV2",
        "SaveV2",
        "SnapshotDatasetV2",
        "TFRecordDataset",
        "WriteFile",
        "WriteSummary",
        "_Send",
    ],
)
def test_host_ops(op):
    assert is_host_op(named(op))


@pytest.mark.parametrize(
    ("op", "attributes", "outside"),
    [
        ("PrintV2", {"output_stream": "file:///tmp/x"}, True),
        ("PrintV2", {"output_stream": "stderr"}, False),
        ("PrintV2", {}, False),
        ("DecodeProtoV2", {"descriptor_source": "/tmp/x"}, True),
        ("DecodeProtoV2", {"descriptor_source": "bytes://x"}, False),
        ("DecodeProtoV2", {}, False),
    ],
)
def test_where_it_depends_on_an_attribute(op, attributes, outside):
    node = named(op, **attributes)
    assert is_host_op(node) == outside
    assert set(node.attr) == set(attributes), "reading an attribute must not add it"


MODEL_OPS = """
AddV2 Assert AssignVariableOp AvgPool BatchMatMulV3 Case Cast Const Conv2D Einsum FusedBatchNormV3
GatherV2 HashTableV2 Identity If LookupTableFindV2 MatMul MutableDenseHashTableV2
MutableHashTableV2 NoOp PartitionedCall Placeholder RandomUniform ReadVariableOp ResizeBilinear
ResourceGather RngReadAndSkip Shape Softmax StatefulPartitionedCall StatelessRandomNormalV2
StatelessWhile StringSplitV2 TensorArrayV3 TensorListReserve TopKV2 VarHandleOp VarIsInitializedOp
While
"""


@pytest.mark.parametrize("op", MODEL_OPS.split())
def test_ops_of_ordinary_models(op):
    assert not is_host_op(named(op))


def test_an_op_that_tensorflow_does_not_know_is_left_to_tensorflow():
    assert not is_host_op(named("MyOwnOp"))


def outside(x):
    return tf.numpy_function(np.abs, [x], tf.float32, stateful=False)


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: tf.strings.to_number(tf.io.read_file("/etc/hostname")) + x, "ReadFile"),
        (outside, "PyFuncStateless"),
        (lambda x: tf.py_function(abs, [x], tf.float32), "EagerPyFunc"),
        (lambda x: tf.cast(tf.size(tf.io.matching_files("/*")), tf.float32) + x, "MatchingFiles"),
    ],
)
def test_a_nested_function_is_no_hiding_place(function, op):
    @tf.function
    def deeper(x):
        return tf.cond(x[0] > 0, lambda: function(x), lambda: x)

    program = traced(lambda x: {"y": deeper(x)}, spec("x", [1]))
    with pytest.raises(UnsafeModelError, match=f"^m: the graph holds {op}, ") as caught:
        refuse_host_ops("m", program.library.values(), False)
    function_name, _, node = caught.value.where.partition("/")
    assert function_name in program.library
    assert op.removesuffix("Stateless") in node
    assert "--allow-code" in caught.value.hint
    refuse_host_ops("m", program.library.values(), True)


# --- what loading itself runs -------------------------------------------------------------------


def meta_graph(path):
    content = (path / "saved_model.pb").read_bytes()
    return saved_model_pb2.SavedModel.FromString(content).meta_graphs[0]


class Resource(CapturableResource):
    """A table that does something else beside making itself."""

    def __init__(self, file, when):
        self.file, self.when = file, when
        super().__init__()

    def _create_resource(self):
        return tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)

    def _initialize(self):
        @tf.function
        def hidden():
            tf.io.write_file(str(self.file), "x")

        if self.when == "load":
            hidden()


class Model(tf.Module):
    def __init__(self, table):
        super().__init__()
        self.table, self.w = table, tf.Variable([2.0])

    @tf.function(input_signature=[spec("x", [None])])
    def serve(self, x):
        return {"y": x * self.w}

    @tf.function(input_signature=[])
    def unused(self):
        tf.io.write_file("/nonexistent/file", "x")


def test_a_table_that_writes_a_file_when_it_is_loaded(tmp_path):
    model = Model(Resource(tmp_path / "written", "load"))
    path = saved(model, tmp_path / "m", {"serving_default": model.serve})
    with pytest.raises(UnsafeModelError, match="the graph holds WriteFile") as caught:
        refuse_on_load("m", meta_graph(path), False)
    assert "hidden" in caught.value.where
    # TensorFlow calls the object's own function, whatever the graph says of it.
    graph = meta_graph(path)
    del graph.signature_def["__saved_model_init_op"]
    graph.ClearField("collection_def")
    with pytest.raises(UnsafeModelError, match="the graph holds WriteFile"):
        refuse_on_load("m", graph, False)
    refuse_on_load("m", meta_graph(path), True)
    assert not (tmp_path / "written").exists()


def test_what_loading_does_not_run_is_not_judged(tmp_path):
    """The saver's own ops, and an endpoint nobody asked for."""
    model = Model(Resource(tmp_path / "written", "never"))
    path = saved(model, tmp_path / "m", {"serving_default": model.serve})
    graph = meta_graph(path)
    held = {n.op for f in graph.graph_def.library.function for n in f.node_def}
    assert {"SaveV2", "RestoreV2", "WriteFile"} <= held
    refuse_on_load("m", graph, False)


def test_ordinary_tables_pass(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("a\nb\n")
    lines = tf.lookup.TextFileInitializer(
        str(words), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
        tf.lookup.TextFileIndex.LINE_NUMBER,
    )  # fmt: skip
    model = Model(tf.lookup.StaticVocabularyTable(lines, 2))
    model.mutable = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)
    model.dense = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.float32, 0.0, empty_key=-1, deleted_key=-2
    )
    path = saved(model, tmp_path / "m", {"serving_default": model.serve})
    refuse_on_load("m", meta_graph(path), False)


@pytest.mark.parametrize("evil", [False, True])
@pytest.mark.parametrize("place", ["main_op", "table_initializer", "local_variables"])
def test_initializers_of_tf1(tmp_path, place, evil):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], "x")
        w = v1.get_variable("w", initializer=2.0, use_resource=True)
        write = tf.io.write_file(str(tmp_path / "written"), "x")
        main_op = None
        with tf.control_dependencies([write] if evil else []):
            if place == "main_op":
                main_op = tf.no_op()
            elif place == "table_initializer":
                v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, tf.no_op())
            else:
                v1.Variable(tf.identity(1.0), collections=[v1.GraphKeys.LOCAL_VARIABLES])
        session.run(v1.variables_initializer([w]))
        builder = v1.saved_model.Builder(str(tmp_path / "m"))
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": x * w})
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, main_op=main_op
        )
        builder.save()
    graph = meta_graph(tmp_path / "m")
    assert "WriteFile" in {n.op for n in graph.graph_def.node}
    if evil:
        with pytest.raises(UnsafeModelError, match="the graph holds WriteFile"):
            refuse_on_load("m", graph, False)
    else:
        refuse_on_load("m", graph, False)
