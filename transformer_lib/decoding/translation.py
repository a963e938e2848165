"""Sentences in, translations out: any number, any length, empty ones too."""

import copy
import warnings
from collections.abc import Sequence
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import nn
from tqdm.auto import tqdm

from transformer_lib.data.cleaning import normalize
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.decoding.search import beam_search, greedy_search, pad_sequences
from transformer_lib.device import Precision, choose_dtype, is_out_of_memory
from transformer_lib.errors import UserError
from transformer_lib.model.rnn import lstm_dtype
from transformer_lib.model.seq2seq import Seq2Seq, evaluating
from transformer_lib.progress import progress_is_shown
from transformer_lib.vocabulary import EOS, UNK

CPU_TOKENS, GPU_TOKENS = 4096, 65_536


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class DecodingConfig:
    """How to search. The defaults are the paper's (section 6.1).

    Raises:
        ValueError: a value out of its range.
    """

    beam_size: Annotated[int, Field(ge=1, description="1 is greedy search")] = 4
    alpha: Annotated[float, Field(ge=0, le=10, description="strength of the length penalty")] = 0.6
    max_extra: Annotated[
        int,
        Field(ge=0, description="a translation has at most this many tokens more than its source"),
    ] = 50
    batch_tokens: Annotated[
        int | None,
        Field(
            ge=1,
            description="source tokens translated at once, times the beam size; by default 4,096 "
            "on a CPU and 65,536 on a GPU",
        ),
    ] = None
    precision: Annotated[
        Precision,
        Field(
            description="of the numbers that are computed with; `auto` is bfloat16 on a GPU that "
            "multiplies it faster, and the model's own elsewhere"
        ),
    ] = "auto"


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

    Raises:
        TypeError: a single text is given instead of a list.
        ValueError: max_len is below 1.
        UserError: the model's numbers are not finite.
    """
    if isinstance(sentences, str):
        raise TypeError(f"translate takes a list of sentences: [{sentences!r}]")
    sentences = list(sentences)
    if max_len is not None and max_len < 1:
        raise ValueError(f"max_len={max_len} is below 1")
    config = config or DecodingConfig()
    pieces = tokenizer.encode([normalize(sentence) for sentence in sentences])
    parts: list[list[int]] = []  # what is translated
    owners: list[int] = []  # the sentence that each part is of
    for number, tokens in enumerate(pieces):
        if UNK in tokens and not tokenizer.decode([[t for t in tokens if t != UNK]])[0]:
            warnings.warn(
                f"{_named(sentences[number])} has no character that the model knows; what it says "
                "about it means nothing",
                stacklevel=2,
            )
        split = _split(tokens, tokenizer, max_len)
        if len(split) > 1:
            warnings.warn(
                f"{_named(sentences[number])} has {len(tokens)} tokens, more than the {max_len} "
                f"that the model was trained on; translating it in {len(split)} parts",
                stacklevel=2,
            )
        parts += split
        owners += [number] * len(split)

    outputs: list[list[int]] = [[] for _ in parts]
    if not model.output_weight.isfinite().all():
        raise UserError("the model's weights are not finite (NaN); its training has failed")
    on_cpu = model.output_weight.device.type == "cpu"
    batch_tokens = config.batch_tokens or (CPU_TOKENS if on_cpu else GPU_TOKENS)
    model = _in_precision(model, config.precision)
    with evaluating(model):
        for rows in tqdm(
            _batches(parts, batch_tokens // config.beam_size),
            desc="translating",
            unit=" batches",
            leave=False,
            disable=not progress_is_shown() or len(parts) < 500,
        ):
            found = _search(model, [[*parts[row], EOS] for row in rows], config)
            for row, tokens in zip(rows, found, strict=True):
                outputs[row] = tokens

    translations: list[list[str]] = [[] for _ in sentences]
    for owner, text in zip(owners, tokenizer.decode(outputs), strict=True):
        translations[owner].append(" ".join(text.split()))  # bytes may make an end of line
    return [" ".join(filter(None, texts)) for texts in translations]


def _named(sentence: str) -> str:
    """By its text: where sentences come one by one, or from a pipe, a number would say nothing."""
    return f"“{sentence}”" if len(sentence) <= 40 else f"“{sentence[:40]}…”"


def _in_precision(model: Seq2Seq, precision: Precision) -> Seq2Seq:
    """The model itself, or a copy of it in a narrower type: rounded once, and not at every step."""
    device = model.output_weight.device
    lstms = [module for module in model.modules() if isinstance(module, nn.LSTM)]
    if precision == "auto" and (device.type == "cpu" or lstms):
        return model
    dtype = choose_dtype(device, precision)
    if device.type == "cuda" and any(lstm_dtype("cuda", m.hidden_size) != dtype for m in lstms):
        return model
    return model if dtype == model.output_weight.dtype else copy.deepcopy(model).to(dtype)


def _search(model: Seq2Seq, sentences: list[list[int]], config: DecodingConfig) -> list[list[int]]:
    """The best translation of each; in halves if the memory is too small for all at once."""
    try:
        return _search_at_once(model, sentences, config)
    except RuntimeError as error:
        if not is_out_of_memory(error) or len(sentences) == 1:
            raise
    # Not inside the except: an error that is being handled keeps the memory of what failed.
    half = len(sentences) // 2
    return [
        tokens
        for part in (sentences[:half], sentences[half:])
        for tokens in _search(model, part, config)
    ]


def _search_at_once(
    model: Seq2Seq, sentences: list[list[int]], config: DecodingConfig
) -> list[list[int]]:
    src = pad_sequences(sentences).to(model.output_weight.device)
    if config.beam_size == 1:
        return greedy_search(model, src, config.max_extra)
    beams = beam_search(model, src, config.beam_size, config.alpha, config.max_extra)
    return [beam[0].tokens for beam in beams]


def _split(tokens: list[int], tokenizer: Tokenizer, max_len: int | None) -> list[list[int]]:
    """Parts of at most ``max_len`` tokens, cut before a word where there is one."""
    parts: list[list[int]] = []
    begin = 0
    while max_len is not None and len(tokens) - begin > max_len:
        pieces = tokenizer.pieces(tokens[begin : begin + max_len + 1])
        words = [i for i, piece in enumerate(pieces) if piece[0] == "▁"]
        end = begin + (words[-1] if words and words[-1] > 0 else max_len)
        parts.append(tokens[begin:end])
        begin = end
    return [*parts, tokens[begin:]] if begin < len(tokens) else parts


def _batches(parts: list[list[int]], batch_tokens: int) -> list[list[int]]:
    """Row numbers by falling length, ``batch_tokens`` padded tokens at most together."""
    batches: list[list[int]] = []
    for row in sorted(range(len(parts)), key=lambda row: -len(parts[row])):
        longest = len(parts[batches[-1][0]]) + 1 if batches else 0
        if not batches or longest * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(row)
    return batches
