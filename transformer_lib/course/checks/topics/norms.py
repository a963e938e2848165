"""Exercises on layer norm and batch norm."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.model.normalization import LayerNorm, layer_norm


def _cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(*shape: int, dtype: torch.dtype = torch.float32):
        x = 2 + 3 * torch.randn(shape, generator=random, dtype=dtype)
        scale, shift = torch.randn(2, shape[-1], generator=random, dtype=dtype)
        return x, scale, shift

    x, scale, shift = arguments(2, 3, 6)
    x[0, 1] = x[0, 1, 0]
    return {
        "values": Case(*arguments(3, 4, 6), 1e-5, gradient=True),
        "a vector of equal numbers": Case(x, scale, shift, 1e-5),
        "a small deviation": Case(0.01 * x, scale, shift, 1e-3),
        "a batch of one": Case(*arguments(1, 5, 8), 1e-5),
        "double precision": Case(*arguments(2, 3, 4, dtype=torch.float64), 1e-5),
    }


exercise("norms", _cases)(layer_norm)


@exercise("norms", _cases)
def batch_norm(
    x: Float[Tensor, "batch length d_model"],
    scale: Float[Tensor, " d_model"],
    shift: Float[Tensor, " d_model"],
    eps: float,
) -> Float[Tensor, "batch length d_model"]:
    """scale·(x − μ)/√(σ² + eps) + shift, mean and biased variance of each channel of the batch."""
    mean, variance = x.mean(dim=(0, 1)), x.var(dim=(0, 1), correction=0)
    return scale * (x - mean) / torch.sqrt(variance + eps) + shift


def _rms_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(*shape: int, dtype: torch.dtype = torch.float32):
        x = 1 + torch.randn(shape, generator=random, dtype=dtype)
        return x, torch.randn(shape[-1], generator=random, dtype=dtype)

    x, scale = arguments(2, 3, 6)
    x[0, 1] = 0.0
    return {
        "values": Case(*arguments(3, 4, 6), 1e-6, gradient=True),
        "a vector of zeros": Case(x, scale, 1e-6),
        "small numbers": Case(0.01 * x, scale, 1e-3),
        "a batch of one": Case(*arguments(1, 5, 8), 1e-6),
        "double precision": Case(*arguments(2, 3, 4, dtype=torch.float64), 1e-6),
    }


@exercise("norms", _rms_cases)
def rms_norm(
    x: Float[Tensor, "batch length d_model"], scale: Float[Tensor, " d_model"], eps: float
) -> Float[Tensor, "batch length d_model"]:
    """scale·x/√(mean of x² + eps) (Zhang and Sennrich 2019): no mean is taken off, no shift."""
    return scale * x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)


def _module_cases(random: torch.Generator) -> dict[str, Case]:
    def x(*shape: int) -> Tensor:
        return 2 + 3 * torch.randn(shape, generator=random)

    return {
        "values": Case(x(3, 4, 6), gradient=True),
        "a batch of one": Case(x(1, 5, 8)),
        "two axes": Case(x(4, 5)),
    }


def _use_norm(norm: Callable[[int], nn.Module]):
    """Makes a new norm, which scales by 1 and shifts by 0, and applies it."""

    def use(x: Tensor) -> tuple[Any, int]:
        module = norm(x.size(-1))
        return module(x), sum(parameter.numel() for parameter in module.parameters())

    return use


exercise("norms", _module_cases, outputs=("output", "trained numbers"), use=_use_norm)(LayerNorm)
