"""Exercises on what training costs, and on spreading it over devices."""

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
