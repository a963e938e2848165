"""Exercises on layer norm and batch norm."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lib.course.checks.exercise import exercise, without_autograd
from transformer_lib.course.checks.observe import Case, gradients_of
from transformer_lib.model.normalization import LayerNorm
from transformer_lib.model.normalization import layer_norm as norm_of_the_library


def _far_from_zero(x: Tensor) -> Tensor:
    # By ±1 apart in turn, along both axes, or by chance only rounding were left of some numbers.
    apart = 1 - 2 * (torch.arange(6)[:, None] + torch.arange(6) + 1).fmod(2).view(2, 3, 6)
    return 0.1 * x + apart + 100.0


def _cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
        x = 2 + 3 * torch.randn(shape, generator=random, dtype=dtype)
        scale, shift = torch.randn(2, shape[-1], generator=random, dtype=dtype)
        return x, scale, shift

    x, scale, shift = arguments(2, 3, 6)
    small, far = 0.01 * x, _far_from_zero(x)
    x[0, 1] = 3.0  # its mean is 3 to the last bit, in whatever order one adds
    x[1, 0] = 0.0
    return {
        "values": Case(*arguments(3, 4, 6), 1e-5, gradient=True),
        "a vector of equal numbers": Case(x, scale, shift, 1e-5),
        "a small deviation": Case(small, scale, shift, 1e-3),
        "far from zero": Case(far, scale, shift, 1e-5),
        "a batch of one": Case(*arguments(1, 5, 8), 1e-5),
        "double precision": Case(*arguments(2, 3, 4, dtype=torch.float64), 1e-5),
    }


@exercise("norms", _cases)
def layer_norm(
    x: Float[Tensor, "batch length d_model"],
    scale: Float[Tensor, " d_model"],
    shift: Float[Tensor, " d_model"],
    eps: float,
) -> Float[Tensor, "batch length d_model"]:
    """scale·(x − μ)/√(σ² + eps) + shift, mean and biased variance of each vector."""
    return norm_of_the_library(x, scale, shift, eps)


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
    def arguments(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
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
        "a small deviation": Case(0.002 * x(2, 3, 6)),
        "far from zero": Case(_far_from_zero(x(2, 3, 6))),
        "a vector of equal numbers": Case(torch.full((2, 3, 4), 3.0)),
    }


def _as_after_training(norm: nn.Module) -> nn.Module:
    """With other parameters, whatever their names are: what is 1 scales, what is 0 shifts."""
    for parameter in norm.parameters():
        if parameter.requires_grad:
            moved = torch.linspace(0.5, 1.5, parameter.numel()).view_as(parameter)
            parameter.data += moved if parameter.any() else -moved
    return norm


def _use_norm(norm: Callable[[int], nn.Module]) -> Callable[..., Any]:
    """Makes a norm and applies it: new, scaling by 1 and shifting by 0, and as after training."""

    def use(x: Tensor) -> tuple[Any, Any, int, list[str], list[Tensor]]:
        new, used = norm(x.size(-1)), _as_after_training(norm(x.size(-1)))
        trained = sum(p.numel() for p in new.parameters() if p.requires_grad)
        # What shifts comes first, whatever it is called.
        parameters = sorted(new.named_parameters(), key=lambda one: (bool(one[1].any()), one[0]))
        names = [name for name, _ in parameters]
        usual = ("weight", "bias")
        known = [name if name in usual else "a name of your own" for name in names]
        return new(x), used(x), trained, known, _gradients(used, names, x)

    return use


def _gradients(norm: nn.Module, names: list[str], x: Tensor) -> list[Tensor]:
    """Those that reach the parameters of these names; zeros where none does."""
    parameters = [p for p in map(norm.get_parameter, names) if p.requires_grad]
    with torch.enable_grad():
        return gradients_of(norm(x.detach()), parameters)


exercise(
    "norms",
    _module_cases,
    outputs=(
        "a new norm's output",
        "output with other parameters",
        "trained numbers",
        "names of the parameters",
        "gradients of the parameters",
    ),
    use=_use_norm,
)(LayerNorm)


def _running_cases(random: torch.Generator) -> dict[str, Case]:
    def batches(batch: int, length: int, d_model: int) -> Tensor:
        return 2 + 3 * torch.randn(3, batch, length, d_model, generator=random)

    return {
        "values": Case(batches(3, 4, 6)),
        "a batch of one": Case(batches(1, 5, 4)),
        "small numbers": Case(0.003 * batches(2, 3, 5)),
    }


def _use_running(norm: Callable[[int], nn.Module]) -> Callable[..., Any]:
    """Two batches in training mode, then a third in evaluation mode, twice; and what is kept."""

    def use(
        batches: Float[Tensor, "three batch length d_model"],
    ) -> tuple[Any, Any, Any, Any, Any, Any, Tensor, Tensor]:
        first, second, third = batches
        module = _as_after_training(norm(first.size(-1))).train()
        leaf = first.clone().requires_grad_()
        trained = module(leaf), module(second)
        module.eval()
        in_use = module(third), module(third)
        loaded = norm(first.size(-1)).eval()
        loaded.load_state_dict(module.state_dict())
        flowing = [gradients_of(output, [leaf])[0] for output in (trained[0], in_use[0])]
        kept = loaded(third)
        module.train()
        with torch.no_grad():  # what is kept has nothing to do with gradients
            for _ in range(80):
                module(torch.full_like(first, 2.0))
        return *trained, *in_use, kept, module.eval()(third), *flowing

    return use


@exercise(
    "norms",
    _running_cases,
    outputs=(
        "the first batch, in training",
        "the second batch, in training",
        "the third batch, in use",
        "the third batch once more",
        "the third batch, with the state loaded into a new one",
        "the third batch, after eighty without spread",
        "the gradient that reaches the first batch",
        "the gradient that reaches the first batch from use",
    ),
    use=_use_running,
)
class BatchNorm(nn.Module):
    """Batch norm with running mean and variance (Ioffe and Szegedy 2015), as nn.BatchNorm1d."""

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_variance", torch.ones(d_model))

    def forward(
        self, x: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch length d_model"]:
        if self.training:
            mean, variance = x.mean(dim=(0, 1)), x.var(dim=(0, 1), correction=0)
            with torch.no_grad():
                unbiased = x.var(dim=(0, 1), correction=1)
                self.running_mean += 0.1 * (mean - self.running_mean)
                self.running_variance += 0.1 * (unbiased - self.running_variance)
        else:
            mean, variance = self.running_mean, self.running_variance
        return self.weight * (x - mean) / torch.sqrt(variance + 1e-5) + self.bias


def _backward_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(*shape: int) -> tuple[Tensor, Tensor, Tensor, float]:
        x = 1 + 2 * torch.randn(shape, generator=random)
        upstream = torch.randn(shape, generator=random)
        return x, upstream, torch.randn(shape[-1], generator=random), 1e-5

    x, upstream, scale, _ = arguments(2, 3, 5)
    equal = x.index_fill(1, torch.tensor([1]), 3.0)
    some_zero = scale.abs().index_fill(0, torch.tensor([1, 3]), 0.0)
    return {
        "values": Case(*arguments(3, 4, 6)),
        "a batch of one": Case(*arguments(1, 2, 8)),
        "a small deviation": Case(0.01 * x, upstream, scale, 1e-3),
        "vectors of equal numbers, and a scale of zero": Case(equal, upstream, some_zero, 1e-3),
    }


@exercise(
    "norms",
    _backward_cases,
    outputs=("the gradient of x", "the gradient of scale", "the gradient of shift"),
    use=without_autograd,
)
def layer_norm_backward(
    x: Float[Tensor, "batch length d_model"],
    upstream: Float[Tensor, "batch length d_model"],
    scale: Float[Tensor, " d_model"],
    eps: float,
) -> tuple[
    Float[Tensor, "batch length d_model"], Float[Tensor, " d_model"], Float[Tensor, " d_model"]
]:
    """∂L/∂x = (g − mean(g) − x̂·mean(g·x̂))/√(σ² + eps), with g = scale·∂L/∂y."""
    centered = x - x.mean(dim=-1, keepdim=True)
    root = torch.sqrt(centered.square().mean(dim=-1, keepdim=True) + eps)
    normed, g = centered / root, upstream * scale
    along = normed * (g * normed).mean(dim=-1, keepdim=True)
    of_x = (g - g.mean(dim=-1, keepdim=True) - along) / root
    return of_x, (upstream * normed).sum(dim=(0, 1)), upstream.sum(dim=(0, 1))
