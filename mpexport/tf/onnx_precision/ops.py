"""Kinds of ONNX ops, as far as float16 is concerned. What may be float16 says the schema."""

from __future__ import annotations

PRODUCTS = frozenset(
    ["MatMul", "Gemm", "Conv", "ConvTranspose", "DeformConv", "Einsum", "LSTM", "GRU", "RNN"]
)
KEPT = frozenset(
    [
        "BatchNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "GroupNormalization",
        "RMSNormalization",
        "LpNormalization",
        "MeanVarianceNormalization",
        "LRN",
        "Softmax",
        "LogSoftmax",
        "Hardmax",
        "ReduceMean",
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceSumSquare",
        "GlobalAveragePool",
        "GlobalLpPool",
        "CumSum",
        "CumProd",
        "Resize",
        "Upsample",
        "GridSample",
        "AffineGrid",
        "Det",
    ]
)
SUMS = frozenset(op for op in KEPT if op.startswith(("Reduce", "Global", "Cum"))) - {
    "ReduceMax",
    "ReduceMin",
}
MOVES = frozenset(
    [
        "Shape",
        "Size",
        "Reshape",
        "Transpose",
        "Concat",
        "Slice",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Split",
        "Squeeze",
        "Unsqueeze",
        "Expand",
        "Tile",
        "Flatten",
        "Pad",
        "Where",
        "DepthToSpace",
        "SpaceToDepth",
        "ReverseSequence",
        "ScatterND",
        "ScatterElements",
        "Scatter",
        "Compress",
        "Trilu",
        "Dropout",
        "MaxPool",
        "CenterCropPad",
    ]
)
# Results stay within a few times 1 whatever goes in, so that a mask ends here.
BOUNDED = frozenset(
    [
        "Softmax",
        "Sigmoid",
        "HardSigmoid",
        "Tanh",
        "Erf",
        "Softsign",
        "Sign",
        "Sin",
        "Cos",
        "Hardmax",
    ]
)
# The element type comes from an attribute or from a body.
TYPED_OTHERWISE = frozenset(
    [
        "Cast",
        "CastLike",
        "Constant",
        "ConstantOfShape",
        "EyeLike",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
        "Loop",
        "If",
        "Scan",
    ]
)
# Results can be far beyond the inputs.
GROWING = frozenset(["Mul", "Pow", "Exp", "Div"])
