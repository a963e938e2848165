"""Three small models that come trained with the course, for chapters that look into one.

``make trained`` trains them anew from the bundled text (configs ``course_transformer`` and
``course_rnn``, and ``scripts/language_model.py``) and stores their weights in half precision.
"""

from importlib import resources
from typing import Literal, get_args

from transformer_lib.course.assembled import LanguageModel
from transformer_lib.experiment.run import Run, load_run
from transformer_lib.training.checkpoint import load_model

Name = Literal["transformer", "rnn"]
LANGUAGE_MODEL = (4000, 128, 640, 4, 4)
"""The sizes of the language model: vocab_size, d_model, d_ff, num_heads, num_layers."""


def load_trained(name: Name = "transformer") -> Run:
    """The trained Transformer or RNN, English to German, with its tokenizer.

    Raises:
        ValueError: there is no such model.
    """
    if name not in get_args(Name):
        raise ValueError(f"no trained model is called {name!r}; there are transformer and rnn")
    with resources.as_file(resources.files(__package__) / name) as folder:
        return load_run(folder)


def load_language_model() -> LanguageModel:
    """The trained language model, of English and German sentences, with dropout off.

    It reads the pieces of the Transformer's tokenizer; each sentence ends with ``</s>``.
    """
    model = LanguageModel(*LANGUAGE_MODEL, dropout=0.0)
    path = resources.files(__package__) / "language_model" / "model.safetensors"
    with resources.as_file(path) as file:
        load_model(file, model)
    return model.eval()
