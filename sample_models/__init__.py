"""Small, trainable models that show mpexport at work and serve its tests.

A plain package of the checkout: it is not part of the installed distribution. Nothing here
imports ``mpexport``, so that a fault in the product cannot hide behind the same fault in its
test data.
"""
