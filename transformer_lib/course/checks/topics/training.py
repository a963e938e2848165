"""Exercises on targets, the loss, the learning rate and batches."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.data.batching import shift_right
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.training.loss import label_smoothed_cross_entropy
from transformer_lib.training.schedule import noam_rate
from transformer_lib.vocabulary import EOS, PAD, UNK


def _target_cases(random: torch.Generator) -> dict[str, Case]:
    def targets(*lengths: int) -> list[list[int]]:
        return [torch.randint(4, 20, (n,), generator=random).tolist() for n in lengths]

    return {
        "values": Case(targets(4, 6, 2)),
        "one sentence": Case(targets(3)),
    }


@exercise("targets", _target_cases, outputs=("tgt_input", "labels"))
def teacher_forcing(
    targets: list[list[int]],
) -> tuple[Int[Tensor, "batch length"], Int[Tensor, "batch length"]]:
    """What the decoder reads, ``<s> y₁ … yₙ``, and must predict, ``y₁ … yₙ </s>``; padded."""
    labels = pad_sequences([[*target, EOS] for target in targets])
    return shift_right(labels), labels


def _labels(batch: int, length: int, vocab_size: int, random: torch.Generator) -> Tensor:
    labels = torch.randint(1, vocab_size, (batch, length), generator=random)
    for row in range(1, batch):
        labels[row, length - row :] = PAD
    return labels


def _smoothing_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(tokens: int, vocab_size: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        logits = scale * torch.randn(tokens, vocab_size, generator=random)
        return logits, _labels(3, tokens // 3, vocab_size, random).flatten()

    logits, labels = torch.randn(6, 9, generator=random), torch.tensor([4, 5, 6, 5, 4, PAD])
    return {
        "values": Case(*arguments(12, 7), 0.1, gradient=True),
        "no smoothing": Case(*arguments(12, 7), 0.0),
        "large logits": Case(*arguments(9, 6, scale=200.0), 0.1),
        "pieces that are no label": Case(logits, labels, 0.1),
    }


@exercise("loss", _smoothing_cases, tolerance=1e-5)
def label_smoothing(
    logits: Float[Tensor, "tokens vocab_size"], labels: Int[Tensor, " tokens"], smoothing: float
) -> Float[Tensor, ""]:
    """Mean over real tokens of −Σᵥ q(v)·log p(v), q = (1 − ε)·onehot + ε/V (section 5.4)."""
    return label_smoothed_cross_entropy(logits, labels, smoothing) / (labels != PAD).sum()


def _loss_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int) -> tuple[Tensor, Tensor]:
        nll = 0.5 + torch.rand(batch, length, generator=random)
        labels = _labels(batch, length, 20, random)
        labels[0, :2] = torch.tensor([UNK, EOS])  # of the special pieces only padding is left out
        return nll, labels

    return {
        "values": Case(*arguments(3, 5), gradient=True),
        "no padding": Case(*arguments(1, 4)),
    }


@exercise("loss", _loss_cases)
def mean_loss(
    nll: Float[Tensor, "batch length"], labels: Int[Tensor, "batch length"]
) -> Float[Tensor, ""]:
    """The mean over real tokens."""
    return nll[labels != PAD].mean()


def _rate_cases(random: torch.Generator) -> dict[str, Case]:
    warmup = int(torch.randint(50, 500, (), generator=random))
    return {
        "values": Case(warmup // 3, 64, warmup),
        "the first step": Case(1, 128, warmup),
        "the peak": Case(warmup, 32, warmup),
        "after the warm-up": Case(5 * warmup, 512, warmup),
    }


exercise("learning rate", _rate_cases, tolerance=1e-9)(noam_rate)


def _batch_cases(random: torch.Generator) -> dict[str, Case]:
    def lengths(count: int) -> list[int]:
        return (torch.randperm(3 * count, generator=random)[:count] + 2).tolist()

    return {
        "values": Case(lengths(12), 80),
        "a small budget": Case(lengths(8), 30),
        "one sentence": Case([7], 10),
        "sentences of one length": Case([4, 3, 4, 3, 4, 3], 8),
        "a batch that is just full": Case([6, 5, 4, 9], 10),
        "sentences longer than a batch": Case([15, 12], 10),
    }


@exercise("batches", _batch_cases)
def plan_batches(lengths: list[int], batch_tokens: int) -> list[list[int]]:
    """Sentence numbers from short to long, as many in a batch as fit, padding included."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        # The newest is the longest, so the batch is padded to its length.
        if not batches or lengths[index] * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches
