"""The precision of an ONNX file: float16 weights, or float16 computation.

Why not one of the known converters: ``onnxruntime.transformers.float16`` and onnxconverter-common
leave the bodies of Loop, If and Scan as they are, take the ops that may be float16 from a list
written by hand, write graphs that are not sorted, and cast one tensor as often as it is read. They
clamp weights without a word, and what they did cannot be told from their result. Here the decision
(`plan`) is apart from the rewriting (`rewrite`), comes from the schemas of the ops, and is what the
written file is held against (`contract`); `emulate` shows what the rounding does to the outputs.

Nothing here but `trained` needs TensorFlow.
"""
