"""Search for the best translation under a model."""

from transformer_lib.decoding.search import Hypothesis, beam_search, greedy_search, length_penalty
from transformer_lib.decoding.translation import DecodingConfig, translate

__all__ = [
    "DecodingConfig",
    "Hypothesis",
    "beam_search",
    "greedy_search",
    "length_penalty",
    "translate",
]
