"""Exercises on masks."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.model.masks import causal_mask, padding_mask
from transformer_lib.vocabulary import EOS, PAD


def _tokens(batch: int, length: int, random: torch.Generator) -> Int[Tensor, "batch length"]:
    """Sentences with an ``<unk>`` here and there; all but the first are padded."""
    tokens = torch.randint(4, 20, (batch, length), generator=random)
    tokens[:, 1] = 1
    for row in range(batch):
        end = length - 1 - row % (length - 3)
        tokens[row, end], tokens[row, end + 1 :] = EOS, PAD
    return tokens


def _token_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(_tokens(3, 7, random)),
        "a batch of one": Case(_tokens(1, 5, random)),
        "as many sentences as tokens": Case(_tokens(6, 6, random)),
        "padding in front": Case(_tokens(3, 6, random).flip(1)),
    }


def _length_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(int(torch.randint(4, 9, (), generator=random))),
        "one position": Case(1),
        "a long text": Case(300),
    }


exercise("masks", _token_cases)(padding_mask)
exercise("masks", _length_cases)(causal_mask)


@exercise("masks", _token_cases)
def decoder_mask(tokens: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch 1 queries keys"]:
    """What a decoder's self-attention may see: no padding, and nothing of the future."""
    return padding_mask(tokens) & causal_mask(tokens.size(1))


def _segment_cases(random: torch.Generator) -> dict[str, Case]:
    def segments(batch: int, *lengths: int) -> Tensor:
        """Sentences of these lengths, one after another, with padding at the end of each row."""
        rows = []
        for row in range(batch):
            shift = int(torch.randint(0, 2, (), generator=random)) + row
            sizes = [max(1, n + (shift + k) % 2 - (shift % 2)) for k, n in enumerate(lengths)]
            numbers = [k for k, size in enumerate(sizes, start=1) for _ in range(size)]
            rows.append(numbers)
        width = max(map(len, rows)) + 2
        return torch.tensor([row + [0] * (width - len(row)) for row in rows])

    return {
        "values": Case(segments(3, 3, 2, 4)),
        "one sentence per row": Case(segments(2, 4)),
        "a batch of one": Case(segments(1, 2, 3)),
        "sentences of one token": Case(torch.tensor([[1, 2, 3, 0]])),
        "another number in each row": Case(
            torch.tensor([[1, 1, 1, 1, 2, 2, 0], [1, 1, 2, 3, 4, 5, 5], [1, 2, 2, 2, 3, 0, 0]])
        ),
        "no padding": Case(torch.tensor([[1, 1, 2, 2, 2, 3]])),
    }


@exercise("masks", _segment_cases)
def packed_mask(segments: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch 1 queries keys"]:
    """Causal within each sentence of a row; 0 in ``segments`` is padding, which nobody may see."""
    same = segments[:, None, :, None] == segments[:, None, None, :]
    return same & (segments != PAD)[:, None, None, :] & causal_mask(segments.size(1))


class _Reader:
    """Outputs of every position from the tokens that a matrix of weights lets it see.

    Args:
        channels: how many of the six see with these weights; the first ones are honest.
        normed: whether a layer norm follows, so that changes add up to zero.
        alike: whether tokens 0 and 1 have the same row.
        rounding: what all tokens together change in each output, as another order of a sum would.
    """

    def __init__(
        self,
        weights: Callable[[int], Tensor],
        random: torch.Generator,
        size: float = 1.0,
        channels: int = 6,
        normed: bool = False,
        alike: bool = False,
        rounding: float = 0.0,
    ):
        self.weights, self.channels, self.normed = weights, channels, normed
        self.table = size * torch.randn(20, 6, generator=random)
        if alike:
            self.table[1] = self.table[0]
        if rounding:  # one channel is so small that a tolerance relative to it hides nothing
            self.table[:, 0] *= 0.001
        self.rounding = rounding

    def __call__(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d"]:
        length, x = tokens.size(1), self.table[tokens]
        honest, seen = _causal(length) @ x, self.weights(length) @ x
        mixed = torch.cat([honest[..., : 6 - self.channels], seen[..., 6 - self.channels :]], -1)
        outputs = F.layer_norm(mixed, (6,)) if self.normed else torch.tanh(mixed)
        return outputs + self.rounding * tokens.sum(dim=1).cos()[:, None, None]


def _causal(length: int) -> Tensor:
    return torch.ones(length, length).tril()


def _one_ahead(length: int) -> Tensor:
    return torch.ones(length, length).tril(1)


def _everything(length: int) -> Tensor:
    return torch.ones(length, length)


def _upper(length: int) -> Tensor:
    return torch.ones(length, length).triu()


def _third_sees_fifth(length: int) -> Tensor:
    weights = _causal(length)
    weights[2:3, 4:5] = 1.0
    return weights


def _a_little_of_the_mean(length: int) -> Tensor:
    return _causal(length) + 1e-3


def _a_trace_of_the_mean(length: int) -> Tensor:
    return _causal(length) + 5e-5


def _leak_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(_Reader(_one_ahead, random), 7),
        "nothing leaks": Case(_Reader(_causal, random), 7),
        "no mask": Case(_Reader(_everything, random), 6),
        "the upper triangle": Case(_Reader(_upper, random), 6),
        "position 2 sees position 4": Case(_Reader(_third_sees_fifth, random), 8),
        "a thousandth of the mean": Case(_Reader(_a_little_of_the_mean, random, size=0.1), 6),
        "a trace of the mean": Case(_Reader(_a_trace_of_the_mean, random, size=0.3), 6),
        "one channel leaks": Case(_Reader(_one_ahead, random, size=0.3, channels=1), 6),
        "a layer norm at the end": Case(_Reader(_one_ahead, random, normed=True), 6),
        "two tokens alike": Case(_Reader(_one_ahead, random, alike=True), 6),
        "nothing but rounding": Case(_Reader(_causal, random, rounding=2e-7), 7),
    }


@exercise("masks", _leak_cases, outputs=("the positions that see something later",))
def leaks(model: Callable[[Tensor], Tensor], length: int) -> list[int]:
    """Change one token after another, and see which positions before it change."""
    tokens = torch.randint(19, (4, length))
    before = model(tokens)
    found = set()
    for place in range(1, length):
        changed = tokens.clone()
        changed[:, place] += 1
        difference = (model(changed) - before).abs().amax(dim=(0, 2))
        found |= {position for position in range(place) if difference[position] > 1e-6}
    return sorted(found)
