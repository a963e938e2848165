"""Two small models that come trained with the course, for chapters that look into one.

``make trained`` trains them anew from the bundled text (configs ``course_transformer`` and
``course_rnn``) and stores their weights in half precision.
"""

from importlib import resources
from typing import Literal, get_args

from transformer_lib.experiment.run import Run, load_run

Name = Literal["transformer", "rnn"]


def load_trained(name: Name = "transformer") -> Run:
    """The trained Transformer or RNN, English to German, with its tokenizer.

    Raises:
        ValueError: there is no such model.
    """
    if name not in get_args(Name):
        raise ValueError(f"no trained model is called {name!r}; there are transformer and rnn")
    with resources.as_file(resources.files("transformer_lib.course.trained") / name) as folder:
        return load_run(folder)
