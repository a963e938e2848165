"""Sentences in, translations out: any number, any length, empty ones too."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm.auto import tqdm

from transformer_lib.data.cleaning import normalize
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.decoding.search import beam_search, greedy_search, pad_sequences
from transformer_lib.model.seq2seq import Seq2Seq
from transformer_lib.progress import progress_is_shown
from transformer_lib.vocabulary import EOS


@dataclass(frozen=True)
class DecodingConfig:
    """How to search. The defaults are the paper's (section 6.1); ``beam_size = 1`` is greedy."""

    beam_size: int = 4
    alpha: float = 0.6
    max_extra: int = 50
    batch_tokens: int = 4096

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise ValueError(f"beam_size={self.beam_size} is below 1; choose 1 (greedy) or more")


def translate(
    model: Seq2Seq,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    config: DecodingConfig | None = None,
    max_len: int | None = None,
) -> list[str]:
    """Translate each sentence; an empty one stays empty.

    A sentence of more than ``max_len`` tokens, which the model was not trained for, is translated
    in parts, with a warning.
    """
    config = config or DecodingConfig()
    pieces = tokenizer.encode([normalize(sentence) for sentence in sentences])
    parts: list[list[int]] = []  # what is translated
    owners: list[int] = []  # the sentence that each part is of
    for number, tokens in enumerate(pieces):
        split = _split(tokens, tokenizer, max_len)
        if len(split) > 1:
            warnings.warn(
                f"sentence {number + 1} has {len(tokens)} tokens, more than the {max_len} that the "
                f"model was trained on; translating it in {len(split)} parts",
                stacklevel=2,
            )
        parts += split
        owners += [number] * len(split)

    was_training = model.training
    model.eval()
    outputs: list[list[int]] = [[] for _ in parts]
    device = model.output_weight.device
    for rows in tqdm(
        _batches(parts, config.batch_tokens // config.beam_size),
        desc="translating",
        unit=" batches",
        leave=False,
        disable=not progress_is_shown() or len(parts) < 500,
    ):
        src = pad_sequences([[*parts[row], EOS] for row in rows]).to(device)
        if config.beam_size == 1:
            found = greedy_search(model, src, config.max_extra)
        else:
            beams = beam_search(model, src, config.beam_size, config.alpha, config.max_extra)
            found = [beam[0].tokens for beam in beams]
        for row, tokens in zip(rows, found, strict=True):
            outputs[row] = tokens
    model.train(was_training)

    translations: list[list[str]] = [[] for _ in sentences]
    for owner, text in zip(owners, tokenizer.decode(outputs), strict=True):
        translations[owner].append(text)
    return [" ".join(texts) for texts in translations]


def _split(tokens: list[int], tokenizer: Tokenizer, max_len: int | None) -> list[list[int]]:
    """Parts of at most ``max_len`` tokens, cut before a word where there is one."""
    parts = []
    while max_len is not None and len(tokens) > max_len:
        words = [i for i, p in enumerate(tokenizer.pieces(tokens[: max_len + 1])) if p[0] == "▁"]
        cut = words[-1] if words and words[-1] > 0 else max_len
        parts.append(tokens[:cut])
        tokens = tokens[cut:]
    return [*parts, tokens] if tokens else parts


def _batches(parts: list[list[int]], batch_tokens: int) -> list[list[int]]:
    """Row numbers by falling length, ``batch_tokens`` padded tokens at most together."""
    batches: list[list[int]] = []
    for row in sorted(range(len(parts)), key=lambda row: -len(parts[row])):
        longest = len(parts[batches[-1][0]]) + 1 if batches else 0
        if not batches or longest * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(row)
    return batches
