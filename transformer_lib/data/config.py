"""The settings of the text."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

Corpus = Literal["tatoeba", "multi30k", "wmt14", "wmt14_mirror", "files"]
BUNDLED: Corpus = "tatoeba"  # a part of this package
Paths = Annotated[
    tuple[str, str] | None,
    Field(description='needed for `"files"`: source and target, line by line'),
]


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
class DataConfig:
    """Which text, and how it is cleaned and cut into tokens.

    Raises:
        ValueError: a value out of its range, or paths that do not go with the corpus.
    """

    corpus: Annotated[
        Corpus, Field(description='the text; `"files"` is your own, in the six files below')
    ] = "tatoeba"
    vocab_size: Annotated[
        int, Field(ge=8, le=1_000_000, description="pieces of the vocabulary of both languages")
    ] = 4000
    max_len: Annotated[
        int, Field(ge=1, description="longer sentences, in tokens with `</s>`, are not trained on")
    ] = 128
    max_words: Annotated[
        int, Field(ge=1, description="longer sentences, in words, are dropped before that")
    ] = 100
    max_ratio: Annotated[
        float,
        Field(
            ge=1,
            description="pairs are dropped whose longer side has more than this factor times the "
            "characters of the shorter one, plus 20",
        ),
    ] = 3.0
    max_word_ratio: Annotated[
        float | None,
        Field(
            ge=1,
            description="pairs are dropped whose numbers of words differ by more than this factor "
            "(Moses takes 1.5); by default not looked at",
        ),
    ] = None
    drop_copies: Annotated[bool, Field(description="drop pairs whose two sides are the same")] = (
        False
    )
    check_languages: Annotated[
        bool,
        Field(
            description="from English to German: drop pairs in which a side is in the other side's "
            "language, by the commonest words of both"
        ),
    ] = False
    byte_fallback: Annotated[
        bool,
        Field(
            description="spell rare characters in bytes, instead of a piece for each character of "
            "the text; 256 of the pieces are then bytes"
        ),
    ] = False
    train: Paths = None
    valid: Paths = None
    test: Paths = None

    def __post_init__(self) -> None:
        paths = (self.train, self.valid, self.test)
        if self.corpus == "files" and None in paths:
            raise ValueError(
                "corpus='files' needs train, valid and test, each [source path, target path]"
            )
        if self.corpus != "files" and any(paths):
            raise ValueError(
                f"train, valid and test belong to corpus='files', not to '{self.corpus}'"
            )
