"""Tiny files for the runtimes: flatbuffers and ONNX built here, and one model from TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest

RELU, ADD, CUSTOM = 19, 0, 32  # BuiltinOperator numbers of the TFLite schema
WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


@pytest.fixture(scope="session")
def tflite_bytes():
    """Builds a ``.tflite`` without signatures: one op over float32[2, 3] tensors."""
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    flatbuffers = pytest.importorskip("flatbuffers")

    def build(builtin=RELU, version=1, custom=None, names=("in put", "out")):
        model, graph = schema.ModelT(), schema.SubGraphT()
        code, op = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode, code.version, code.customCode = builtin, version, custom
        code.deprecatedBuiltinCode = min(builtin, 127)
        last = len(names) - 1
        graph.tensors = []
        for name in names:
            tensor = schema.TensorT()
            tensor.shape, tensor.name, tensor.type, tensor.buffer = [2, 3], name, 0, 0
            graph.tensors.append(tensor)
        op.opcodeIndex, op.inputs, op.outputs = 0, list(range(last)), [last]
        graph.inputs, graph.outputs, graph.operators = list(range(last)), [last], [op]
        model.version, model.operatorCodes = 3, [code]
        model.subgraphs, model.buffers = [graph], [schema.BufferT()]
        builder = flatbuffers.Builder(256)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())

    return build


@pytest.fixture(scope="session")
def onnx_bytes():
    """Builds an ``.onnx`` from nodes, inputs, outputs and initializers."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper

    def info(name, dtype, shape):
        return helper.make_tensor_value_info(name, getattr(onnx.TensorProto, dtype), shape)

    def build(nodes, inputs, outputs, initializers=(), domains=()):
        graph = helper.make_graph(
            [helper.make_node(op, ins, outs, domain=dom) for op, ins, outs, dom in nodes],
            "g",
            [info(*i) for i in inputs],
            [info(*o) for o in outputs],
            [onnx.numpy_helper.from_array(array, name) for name, array in initializers],
        )
        opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in domains)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 8
        return model.SerializeToString()

    return build


@pytest.fixture(scope="session")
def tf_model(tmp_path_factory):
    """A directory with ``saved_model`` (two signatures), ``both.tflite`` and ``one.tflite``.

    ``serving_default``: zeta = x·W + y, alpha = softmax(zeta); ``lookup``: out = W[ids];
    ``one.tflite`` has ``serving_default`` only, with a batch fixed to 2.
    """
    tf = pytest.importorskip("tensorflow")
    root = tmp_path_factory.mktemp("tf_model")

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable(WEIGHTS)

        def call(self, x, y):
            zeta = tf.matmul(x, self.weights) + y
            return {"zeta": zeta, "alpha": tf.nn.softmax(zeta)}

        def lookup(self, ids):
            return {"out": tf.gather(self.weights, ids)}

    def specs(batch):
        return (
            tf.TensorSpec([batch, 4], tf.float32, name="x"),
            tf.TensorSpec([batch, 1], tf.float32, name="y"),
        )

    model = Model()
    call = tf.function(model.call, input_signature=specs(None))
    lookup = tf.function(
        model.lookup, input_signature=[tf.TensorSpec([None], tf.int32, name="ids")]
    )
    signatures = {
        "serving_default": call.get_concrete_function(),
        "lookup": lookup.get_concrete_function(),
    }
    saved_model = str(root / "saved_model")
    tf.saved_model.save(model, saved_model, signatures=signatures)
    convert = tf.lite.TFLiteConverter
    both = convert.from_saved_model(saved_model, signature_keys=list(signatures))
    (root / "both.tflite").write_bytes(both.convert())
    fixed = tf.function(model.call, input_signature=specs(2)).get_concrete_function()
    one = convert.from_concrete_functions([fixed], model)
    (root / "one.tflite").write_bytes(one.convert())
    return root
