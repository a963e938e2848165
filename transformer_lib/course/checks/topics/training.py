"""Exercises on targets, the loss, the learning rate, batches, and a training of one's own."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.sandboxed.given import FixedDropout
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
        "many sentences of one length": Case([3 + k % 2 for k in range(60)], 20),
        "no sentence": Case([], 10),
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


# ---- A training of one's own ----

Example = tuple[Tensor, Tensor, Tensor]
"""src, tgt_input, labels"""


class _Toy(nn.Module):
    """Two matrices, called like a Transformer, whose dropout is not random."""

    def __init__(self, table: Tensor, output: Tensor):
        super().__init__()
        self.table, self.output = nn.Parameter(table.clone()), nn.Parameter(output.clone())
        self.unused = nn.Parameter(torch.zeros(2))  # has no gradient
        self.dropout = FixedDropout()

    def forward(
        self, src: Int[Tensor, "batch src_len"], tgt_input: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab_size"]:
        states = self.table[tgt_input] + self.table[src].mean(dim=1, keepdim=True)
        if self.dropout.training:
            states = self.dropout(states)
        return torch.tanh(states) @ self.output

    def weights(self) -> list[Tensor]:
        return [p.detach().clone() for p in (self.table, self.output)]


def _matrices(random: torch.Generator, d: int = 6) -> tuple[Tensor, Tensor]:
    return torch.randn(9, d, generator=random), torch.randn(d, 9, generator=random)


def _examples(count: int, random: torch.Generator) -> list[Example]:
    """Batches of different sizes, padded to different degrees."""
    made = []
    for number in range(count):
        labels = _labels(2 + number % 3, 3 + number % 4, 9, random)
        src = torch.randint(4, 9, (len(labels), 4), generator=random)
        made.append((src, shift_right(labels), labels))
    return made


def _step_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(*_matrices(random), _examples(2, random), 0.1, 100.0),
        "three batches of unequal size": Case(*_matrices(random), _examples(3, random), 0.0, 100.0),
        "one batch": Case(*_matrices(random), _examples(1, random), 0.1, 100.0),
        "a gradient that is clipped": Case(*_matrices(random), _examples(3, random), 0.1, 0.02),
    }


def _leave_gradients(model: _Toy) -> None:
    """What an earlier step has left."""
    for parameter in (model.table, model.output):
        parameter.grad = torch.ones_like(parameter)


def _use_step(answer: Callable[..., Any]) -> Callable[..., Any]:
    def use(
        table: Float[Tensor, "vocab_size d_model"],
        output: Float[Tensor, "d_model vocab_size"],
        batches: list[Example],
        smoothing: float,
        max_norm: float,
    ) -> tuple[float, list[Tensor]]:
        model = _Toy(table, output).train(max_norm > 1.0)  # the mode is the caller's business
        optimizer = torch.optim.SGD([{"params": [p]} for p in model.parameters()], lr=0.5)
        _leave_gradients(model)
        loss = answer(model, optimizer, batches, smoothing, max_norm)
        if isinstance(loss, Tensor):  # it keeps all that it was computed from
            raise TypeError("the loss is a tensor: item() makes a number of it")
        return loss, model.weights()

    return use


@exercise(
    "training",
    _step_cases,
    outputs=("the loss", "the weights after the step"),
    tolerance=1e-5,
    use=_use_step,
)
def training_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: list[Example],
    smoothing: float,
    max_norm: float,
) -> float:
    """One step with the gradient of all batches together; returns their loss per token."""
    tokens = sum(int((labels != PAD).sum()) for _, _, labels in batches)
    optimizer.zero_grad()
    total = 0.0
    for src, tgt_input, labels in batches:
        logits = model(src, tgt_input).flatten(0, 1)
        loss = label_smoothed_cross_entropy(logits, labels.flatten(), smoothing) / tokens
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total


def _loop_cases(random: torch.Generator) -> dict[str, Case]:
    steep = [5.0 * matrix for matrix in _matrices(random)]  # gradients longer than 1
    return {
        "values": Case(*_matrices(random), _examples(8, random), 4, 2, 0.3, 2),
        "no accumulation": Case(*_matrices(random), _examples(6, random), 6, 1, 0.2, 3),
        "gradients that are clipped": Case(*steep, _examples(6, random), 3, 2, 0.2, 2),
        "the first step": Case(*_matrices(random), _examples(1, random), 1, 1, 0.5, 4),
    }


def _use_loop(answer: Callable[..., Any]) -> Callable[..., Any]:
    def use(
        table: Float[Tensor, "vocab_size d_model"],
        output: Float[Tensor, "d_model vocab_size"],
        batches: list[Example],
        steps: int,
        accumulate: int,
        peak: float,
        warmup: int,
    ) -> tuple[list[float], list[float], list[float], list[Tensor]]:
        model = _Toy(table, output)
        model.dropout.eval()  # a part that an evaluation has left so
        settings: list[float] = []
        rates: list[float] = []
        drawn = iter(batches)

        def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            group = optimizer.param_groups[0]
            eps = group.get("eps", 0.0)  # its logarithm, or 1e-8 and 1e-9 would count as the same
            settings[:] = [*group.get("betas", ()), math.log10(eps) if eps > 0 else 0.0]
            rates.append(float(group["lr"]))

        hook = register_optimizer_step_pre_hook(note)
        try:
            losses = answer(model, lambda: next(drawn), steps, accumulate, peak, warmup)
        finally:
            hook.remove()
        if losses is None or losses is ...:
            return losses  # type: ignore[return-value]
        return losses, rates, settings, model.weights()

    return use


@exercise(
    "training",
    _loop_cases,
    outputs=("the losses", "the learning rates", "β₁, β₂ and log₁₀ ε", "the weights at the end"),
    tolerance=1e-5,
    use=_use_loop,
)
def train_model(
    model: nn.Module,
    draw: Callable[[], Example],
    steps: int,
    accumulate: int,
    peak: float,
    warmup: int,
) -> list[float]:
    """Adam with the paper's betas and ε; a rate that rises to the peak and falls with the root."""
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    model.train()
    losses = []
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = peak * min(step / warmup, (warmup / step) ** 0.5)
        batches = [draw() for _ in range(accumulate)]
        losses.append(training_step(model, optimizer, batches, 0.1, 1.0))
    return losses


def _mended_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(count: int) -> list[Any]:
        return [*_matrices(random), _examples(count, random), _examples(2, random)]

    return {
        "values": Case(*arguments(5), 2),
        "measured after each step": Case(*arguments(3), 1),
        "never measured": Case(*arguments(2), 4),
    }


def _use_mended(answer: Callable[..., Any]) -> Callable[..., Any]:
    def use(
        table: Float[Tensor, "vocab_size d_model"],
        output: Float[Tensor, "d_model vocab_size"],
        batches: list[Example],
        held_out: list[Example],
        every: int,
    ) -> tuple[list[float], list[float], list[Tensor]]:
        model = _Toy(table, 4.0 * output).train()  # so that the gradient has to be clipped
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        _leave_gradients(model)
        found = answer(model, optimizer, batches, held_out, every)
        if found is None or found is ...:
            return found  # type: ignore[return-value]
        if not isinstance(found, tuple) or len(found) != 2:
            raise TypeError("two lists are expected: the losses, and those on held-out batches")
        return *found, model.weights()

    return use


@exercise(
    "training",
    _mended_cases,
    outputs=("the losses", "the held-out losses", "the weights at the end"),
    tolerance=1e-5,
    use=_use_mended,
)
def mended_training(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: list[Example],
    held_out: list[Example],
    every: int,
) -> tuple[list[float], list[float]]:
    """The program of the chapter without its faults."""
    losses, measured = [], []
    for number, batch in enumerate(batches, start=1):
        losses.append(training_step(model, optimizer, [batch], 0.0, 1.0))
        if number % every == 0:
            model.eval()
            with torch.no_grad():
                means = [_mean_nll(model, *other) for other in held_out]
            model.train()
            measured.append(sum(means) / len(means))
    return losses, measured


def _mean_nll(model: nn.Module, src: Tensor, tgt_input: Tensor, labels: Tensor) -> float:
    logits = model(src, tgt_input).flatten(0, 1)
    return F.cross_entropy(logits, labels.flatten(), ignore_index=PAD).item()


def _average_cases(random: torch.Generator) -> dict[str, Case]:
    def checkpoints(count: int) -> Case:
        return Case([list(_matrices(random, 3)) for _ in range(count)])

    tied = [[table] * 2 for table in torch.randn(3, 4, 5, generator=random)]
    return {
        "values": checkpoints(4),
        "one checkpoint": checkpoints(1),
        "two": checkpoints(2),
        "seven": checkpoints(7),
        "two names of one tensor": Case(tied),
    }


def _use_average(answer: Callable[..., Any]) -> Callable[..., Any]:
    def use(checkpoints: list[list[Tensor]]) -> tuple[dict[str, Tensor], bool]:
        names = ("table", "output")
        found = answer([dict(zip(names, tensors, strict=True)) for tensors in checkpoints])
        if found is None or found is ...:
            return found  # type: ignore[return-value]
        if not isinstance(found, dict):
            raise TypeError(f"a dictionary is expected, not a {type(found).__name__}")
        given = {x.data_ptr() for tensors in checkpoints for x in tensors}
        shared = any(isinstance(x, Tensor) and x.data_ptr() in given for x in found.values())
        return found, shared

    return use


@exercise(
    "training",
    _average_cases,
    outputs=("your dictionary", "whether memory is shared with a checkpoint"),
    tolerance=1e-5,
    use=_use_average,
)
def average_checkpoints(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each parameter over some state dictionaries (section 6.1)."""
    return {name: torch.stack([state[name] for state in states]).mean(dim=0) for name in states[0]}
