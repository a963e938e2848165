"""Exercises on what training and translating cost, and on spreading them over devices."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case


def _flops_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(scale: int) -> tuple[int, int, int]:
        length, d_model, ratio = (torch.randint(2, 9, (3,), generator=random) * scale).tolist()
        return length, 8 * d_model, 8 * d_model * ratio

    return {
        "values": Case(*arguments(3)),
        "one token": Case(1, 64, 256),
        "a long sentence": Case(4096, 64, 256),
    }


@exercise("scaling", _flops_cases, tolerance=1e-9, outputs=("FLOPs",))
def encoder_layer_flops(length: int, d_model: int, d_ff: int) -> int:
    """Multiplications and additions of all matrix products of one encoder layer, one sentence."""
    projections = 4 * length * d_model * d_model  # queries, keys, values, output
    mixing = 2 * length * length * d_model  # scores, weighted values
    feed_forward = 2 * length * d_model * d_ff
    return 2 * (projections + mixing + feed_forward)


def _gradient_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(devices: int, size: int) -> tuple[Tensor, Tensor]:
        gradients = torch.randn(devices, size, generator=random)
        return gradients, torch.randperm(20 * devices, generator=random)[:devices] + 5

    return {
        "values": Case(*arguments(4, 6)),
        "two devices": Case(*arguments(2, 3)),
        "one device": Case(*arguments(1, 5)),
    }


@exercise("scaling", _gradient_cases)
def average_gradients(
    gradients: Float[Tensor, "devices parameters"], tokens: Int[Tensor, " devices"]
) -> Float[Tensor, " parameters"]:
    """The gradient of the mean over all tokens, from each device's mean and number of tokens."""
    weights = tokens / tokens.sum()
    return (weights[:, None] * gradients).sum(dim=0)


def _generation_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(cached: bool) -> tuple[int, int, int, int, bool]:
        src_len, tgt_len, d_model, ratio = torch.randint(3, 12, (4,), generator=random).tolist()
        return src_len, tgt_len + 12, 8 * d_model, 8 * d_model * ratio, cached

    return {
        "values": Case(*arguments(cached=True)),
        "without a cache": Case(*arguments(cached=False)),
        "one token": Case(7, 1, 64, 256, True),
        "one token without a cache": Case(7, 1, 64, 256, False),
        "a long source": Case(4000, 20, 64, 256, True),
        "a long translation": Case(5, 4000, 64, 256, True),
    }


@exercise("scaling", _generation_cases, tolerance=1e-9, outputs=("FLOPs",))
def generation_flops(src_len: int, tgt_len: int, d_model: int, d_ff: int, cached: bool) -> int:
    """Of all products of one decoder layer that writes ``tgt_len`` tokens, one after the other."""

    def step(new: int, seen: int) -> int:
        """What is computed for the last ``new`` of ``seen`` tokens, but for the memory's part."""
        projections = new * (4 + 2) * d_model**2  # self-attention; queries and output of the other
        mixing = 2 * new * (seen + src_len) * d_model
        return projections + mixing + 2 * new * d_model * d_ff

    memory = 2 * src_len * d_model**2  # its keys and values
    steps = range(1, tgt_len + 1)
    if cached:
        return 2 * (memory + sum(step(1, seen) for seen in steps))
    return 2 * sum(memory + step(seen, seen) for seen in steps)


def _memory_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(stage: int) -> tuple[int, int, int]:
        millions = int(torch.randint(20, 900, (1,), generator=random))
        return millions * 10**6, int(torch.randint(3, 65, (1,), generator=random)), stage

    return {
        "values": Case(*arguments(1)),
        "stage 0": Case(*arguments(0)),
        "stage 2": Case(*arguments(2)),
        "stage 3": Case(*arguments(3)),
        "one device": Case(63_000_000, 1, 2),
    }


@exercise("scaling", _memory_cases, tolerance=1e-6, outputs=("bytes",))
def bytes_per_device(parameters: int, devices: int, stage: int) -> float:
    """Of weights, gradients and Adam's states in mixed precision (ZeRO, Rajbhandari et al. 2020).

    Stage 1 shares out the optimizer's states, 2 the gradients as well, 3 the weights as well.
    """
    weights, gradients, states = 2.0, 2.0, 12.0  # of states: weights, mean, square, 4 bytes each
    shares = [devices if stage >= shared_from else 1 for shared_from in (3, 2, 1)]
    sizes = (weights, gradients, states)
    return parameters * sum(size / share for size, share in zip(sizes, shares, strict=True))


def _ring_cases(random: torch.Generator) -> dict[str, Case]:
    def parts(devices: int, size: int) -> Tensor:
        return torch.randn(devices, devices, size, generator=random)

    return {
        "values": Case(parts(4, 3)),
        "two devices": Case(parts(2, 4)),
        "five devices": Case(parts(5, 2)),
        "one device": Case(parts(1, 3)),
    }


@exercise("scaling", _ring_cases)
def ring_all_reduce(
    parts: Float[Tensor, "devices chunks size"],
) -> Float[Tensor, "states devices chunks size"]:
    """What all devices hold at first, and after each step of an all-reduce in a ring.

    There are as many chunks as devices (d). In step s of the first half device i sends chunk i − s
    to device i + 1, which adds it to its own; in the second half it sends chunk i + 1 − s, which
    replaces that of the receiver. All numbers are modulo d, and each half has d − 1 steps.
    """
    devices = len(parts)
    states = [parts]
    for first, is_sum in ((0, True), (1, False)):
        for step in range(devices - 1):
            before, after = states[-1], states[-1].clone()
            for sender in range(devices):
                receiver, chunk = (sender + 1) % devices, (sender + first - step) % devices
                sent = before[sender, chunk]
                after[receiver, chunk] = before[receiver, chunk] + sent if is_sum else sent
            states.append(after)
    return torch.stack(states)
