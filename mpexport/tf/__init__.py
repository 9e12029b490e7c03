"""The heavy room: the only folder that imports TensorFlow and Keras at module level."""
