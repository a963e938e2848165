"""A small, readable library for the Transformer: model, data, training, decoding, evaluation."""

import os

__version__ = "0.1.0"

# oneDNN, which multiplies bfloat16 matrices on CPUs, makes a kernel for every shape that it meets
# and forgets the least recent ones. Its 1,024 places are too few for batches of sentences: to make
# kernels again took 40% of the time of training. It reads this before its first product.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096")
