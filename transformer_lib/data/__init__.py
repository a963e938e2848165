"""Text to batches: corpora, cleaning, tokenizer, token store, batching."""

from transformer_lib.data.batching import Batch, make_batch, plan_batches
from transformer_lib.data.config import DataConfig
from transformer_lib.data.corpora import CORPORA, TestSet
from transformer_lib.data.preparation import PreparedData, prepare, training_pairs
from transformer_lib.data.store import PairStore
from transformer_lib.data.tokenizer import Tokenizer

__all__ = [
    "CORPORA",
    "Batch",
    "DataConfig",
    "PairStore",
    "PreparedData",
    "TestSet",
    "Tokenizer",
    "make_batch",
    "plan_batches",
    "prepare",
    "training_pairs",
]
