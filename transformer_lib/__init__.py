"""A small, readable library for the Transformer: model, data, training, decoding, evaluation."""

__version__ = "0.1.0"
