"""A course on the Transformer: a toolkit, the course that is taught with it, the instructor's side.

The toolkit (``model``, ``data``, ``training``, ``decoding``, ``metrics``, ``evaluation``,
``export``, ``experiment``, ``leaderboard``, ``plots``) knows nothing of the course, and ``course``
knows nothing of ``instructor``. The names used most are here: ``from transformer_lib import
Transformer, load_run``.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# oneDNN, which multiplies bfloat16 matrices on CPUs, makes a kernel for every shape that it meets
# and forgets the least recent ones. Its 1,024 places are too few for batches of sentences: making
# kernels again took 40% of the time of training. oneDNN reads it before its first product.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096")

if TYPE_CHECKING:
    from transformer_lib.data import Tokenizer, prepare
    from transformer_lib.decoding import DecodingConfig, beam_search, greedy_search, translate
    from transformer_lib.experiment.config import Experiment, load_config
    from transformer_lib.experiment.run import Run, load_run, train
    from transformer_lib.model import (
        RNN,
        RNNConfig,
        Transformer,
        TransformerConfig,
        build_rnn,
        build_transformer,
    )

_PLACES = {
    "errors": ("UserError",),
    "data": ("Tokenizer", "prepare"),
    "decoding": ("DecodingConfig", "beam_search", "greedy_search", "translate"),
    "experiment.config": ("Experiment", "load_config"),
    "experiment.run": ("Run", "load_run", "train"),
    "model": (
        "RNN", "RNNConfig", "Transformer", "TransformerConfig", "build_rnn", "build_transformer"
    ),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "RNN",
    "DecodingConfig",
    "Experiment",
    "RNNConfig",
    "Run",
    "Tokenizer",
    "Transformer",
    "TransformerConfig",
    "UserError",
    "beam_search",
    "build_rnn",
    "build_transformer",
    "greedy_search",
    "load_config",
    "load_run",
    "prepare",
    "train",
    "translate",
]


def __getattr__(name: str) -> Any:
    """Import a part when it is asked for, so that importing the package itself takes no time."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
