"""Products with a matrix of weights, by the fastest of PyTorch's ways on this processor."""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula


class Linear(nn.Linear):
    """x·Wᵀ + b, computed by :func:`linear`."""

    def forward(self, input: Float[Tensor, "*shape inputs"]) -> Float[Tensor, "*shape outputs"]:
        return linear(input, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*shape inputs"],
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"] | None = None,
) -> Float[Tensor, "*shape outputs"]:
    """x·Wᵀ + b, as ``F.linear``, and in float32 on an AMD processor with AVX-512 twice as fast."""
    if not (_by_onednn(x, weight) and _fit(x, weight, bias)):
        return F.linear(x, weight, bias)
    multiply = _OneDNNLinear.apply if torch.is_grad_enabled() else _onednn_linear
    rows = multiply(x.reshape(-1, x.size(-1)), weight, bias)
    return rows.view(*x.shape[:-1], weight.size(0))


def product_over_rows(
    left: Float[Tensor, "rows m"], right: Float[Tensor, "rows n"]
) -> Float[Tensor, "m n"]:
    """leftᵀ·right: from a gradient and the inputs, the gradient of the weights."""
    if not _by_onednn(left, right):
        return left.t() @ right
    # oneDNN wants its first factor in one piece: the narrower one is the cheaper to copy.
    if left.size(1) < right.size(1):
        return linear(left.t(), right.t())
    return linear(right.t(), left.t()).t()


def _by_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and not torch.compiler.is_compiling()  # it makes kernels of its own, and cannot follow
        and x.dtype == weight.dtype == torch.float32
        and x.numel() > 0
        and _onednn_is_faster()
        and not torch.is_autocast_enabled("cpu")
        and not _is_transformed()
    )


def _fit(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the shapes are those of a layer; PyTorch has better messages for all others."""
    return (
        weight.dim() == 2
        and x.shape[-1:] == weight.shape[1:]
        and (bias is None or bias.shape == weight.shape[:1])
    )


def _is_transformed() -> bool:
    """Whether ``torch.func``, forward-mode differentiation or a trace is at work."""
    return (
        torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()
    )


@cache
def _onednn_is_faster() -> bool:
    # PyTorch multiplies float32 by Intel's MKL, which on an AMD processor goes no further than
    # AVX2. oneDNN, which it keeps for other types, uses AVX-512 there.
    has = torch.cpu.get_capabilities()
    is_amd = "AMD" in str(has.get("cpu_name"))
    return is_amd and bool(has.get("avx512_f")) and torch.backends.mkldnn.is_available()


def _onednn_linear(
    x: Float[Tensor, "rows inputs"],
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"] | None,
) -> Float[Tensor, "rows outputs"]:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "rows inputs"],
        weight: Float[Tensor, "outputs inputs"],
        bias: Float[Tensor, " outputs"] | None,
    ) -> Float[Tensor, "rows outputs"]:
        ctx.save_for_backward(x, weight)
        return _onednn_linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Float[Tensor, "rows outputs"]) -> tuple[Tensor | None, ...]:
        (gradient,), (x, weight) = gradients, ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            linear(gradient, weight.t()) if of_x else None,
            product_over_rows(gradient, x) if of_weight else None,
            gradient.sum(dim=0) if of_bias else None,
        )


if torch.backends.mkldnn.is_available():  # for PyTorch's FlopCounterMode

    @register_flop_formula(torch.ops.mkldnn._linear_pointwise)
    def _flops(x_shape: torch.Size, weight_shape: torch.Size, *_: Any, **__: Any) -> int:
        return 2 * x_shape.numel() * weight_shape[0]
