"""Exercises of assignment 6: a text cut with overlap, many adapters at once, a rolling cache."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.vocabulary import PAD


def _overlapping_cases(random: torch.Generator) -> dict[str, Case]:
    def text(length: int) -> Tensor:
        return 4 + torch.randperm(96, generator=random)[:length]

    with_a_word_again = text(18)
    with_a_word_again[5] = with_a_word_again[2]
    return {
        "values": Case(with_a_word_again, 6, 4),
        "the last row is not full": Case(text(17), 6, 3),
        "one label more than two rows hold": Case(text(12), 6, 4),
        "no overlap": Case(text(13), 4, 4),
        "one token farther each time": Case(text(9), 4, 1),
        "one row": Case(text(8), 7, 2),
        "a text shorter than a row": Case(text(6), 8, 5),
        "a text much shorter than a row": Case(text(3), 9, 3),
        "a special token in the text": Case(text(11).index_fill(0, torch.tensor([2, 6]), 2), 5, 2),
    }


@exercise("language models", _overlapping_cases, outputs=("the inputs", "the labels"))
def overlapping_blocks(
    tokens: Int[Tensor, " tokens"], length: int, stride: int
) -> tuple[Int[Tensor, "rows length"], Int[Tensor, "rows length"]]:
    """Rows that begin ``stride`` tokens apart; each label counts in the first row that has it."""
    num_labels = len(tokens) - 1
    rows = 1 + max(0, math.ceil((num_labels - length) / stride))
    inputs, labels = tokens.new_full((2, rows, length), PAD)
    for row in range(rows):
        read = tokens[row * stride :][: length + 1]
        known = length - stride if row > 0 else 0
        inputs[row, : len(read) - 1] = read[:-1]
        labels[row, known : len(read) - 1] = read[1 + known :]
    return inputs, labels


def _adapter_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(
        adapter: list[int], length: int, d_in: int, d_out: int, rank: int = 2, adapters: int = 3
    ) -> tuple:
        shapes = (
            (len(adapter), length, d_in),
            (d_out, d_in),
            (adapters, rank, d_in),
            (adapters, d_out, rank),
        )
        tensors = (torch.randn(shape, generator=random) for shape in shapes)
        return *tensors, torch.tensor(adapter), 0.7

    return {
        "values": Case(*arguments([2, 0, 1, 0], 3, 5, 4), gradient=True),
        "some without an adapter": Case(*arguments([-1, 2, -1, 1], 2, 4, 6)),
        "all without an adapter": Case(*arguments([-1, -1], 3, 5, 4)),
        "a square matrix": Case(*arguments([1, 0, 2], 4, 4, 4)),
        "a batch of one": Case(*arguments([1], 3, 6, 5)),
        "one adapter": Case(*arguments([0, -1, 0], 2, 4, 3, adapters=1)),
        "rank one": Case(*arguments([1, 0], 2, 4, 5, rank=1)),
        "as many positions as rows": Case(*arguments([2, 0, 1], 3, 5, 4)),
    }


@exercise("language models", _adapter_cases)
def adapt_each(
    x: Float[Tensor, "batch length d_in"],
    weight: Float[Tensor, "d_out d_in"],
    down: Float[Tensor, "adapters rank d_in"],
    up: Float[Tensor, "adapters d_out rank"],
    adapter: Int[Tensor, " batch"],
    scale: float,
) -> Float[Tensor, "batch length d_out"]:
    """W·x + scale·Bₐ·Aₐ·x with the matrices of each row's adapter a; W·x alone where it is −1."""
    change = scale * x @ down[adapter].mT @ up[adapter].mT
    return x @ weight.mT + change * (adapter >= 0)[:, None, None]


def _rolling_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(old: int, new: int, window: int, batch: int = 2, scale: float = 1.0) -> tuple:
        shapes = ((batch, 2, length, 3) for length in (new, new, new, old, old))
        return *(scale * torch.randn(shape, generator=random) for shape in shapes), window

    return {
        "values": Case(*arguments(3, 2, 4)),
        "one new token": Case(*arguments(3, 1, 4)),
        "nothing kept yet": Case(*arguments(0, 5, 3)),
        "the first tokens of a text": Case(*arguments(0, 2, 5)),
        "fewer tokens than the window": Case(*arguments(1, 2, 6)),
        "the cache is just full": Case(*arguments(2, 2, 5)),
        "more new tokens than the window": Case(*arguments(2, 6, 3)),
        "a window of one": Case(*arguments(0, 3, 1)),
        "a window of two": Case(*arguments(1, 2, 2)),
        "a batch of one": Case(*arguments(2, 2, 3, batch=1)),
        "large scores": Case(*arguments(3, 2, 4, scale=30.0)),
    }


@exercise(
    "language models",
    _rolling_cases,
    outputs=("the output", "the keys to keep", "the values to keep"),
)
def rolling_attention(
    query: Float[Tensor, "batch heads new d_k"],
    key: Float[Tensor, "batch heads new d_k"],
    value: Float[Tensor, "batch heads new d_k"],
    old_key: Float[Tensor, "batch heads old d_k"],
    old_value: Float[Tensor, "batch heads old d_k"],
    window: int,
) -> tuple[
    Float[Tensor, "batch heads new d_k"],
    Float[Tensor, "batch heads kept d_k"],
    Float[Tensor, "batch heads kept d_k"],
]:
    """Attention to oneself and the ``window`` − 1 before, and what of them the next ones need."""
    key, value = torch.cat([old_key, key], dim=2), torch.cat([old_value, value], dim=2)
    position = torch.arange(key.size(2))
    own = position[old_key.size(2) :, None]
    mask = (position <= own) & (position > own - window)
    scores = query @ key.mT / math.sqrt(query.size(-1))
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    first = max(0, key.size(2) - (window - 1))
    return weights @ value, key[:, :, first:], value[:, :, first:]
