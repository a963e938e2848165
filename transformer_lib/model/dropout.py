"""Dropout that is as cheap on a CPU as it is on a GPU."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 2**16  # a random 16-bit integer per element decides


class _CpuDropout(torch.autograd.Function):
    """Dropout from raw random bits.

    ``F.dropout`` draws one Bernoulli variable per element; on a CPU that takes longer than the
    matrix product before it. Four 16-bit integers out of every 64 random bits take a fifth of it.
    The probability is rounded to a multiple of 2⁻¹⁶, and the scale is exact for the rounded one.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        dropped = min(round(probability * _LEVELS), _LEVELS - 1)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        # A mask of zeros and ones in the type of x: with one of Booleans, torch.where takes four
        # times as long as this product.
        keep = torch.ge(bits, dropped - _LEVELS // 2, out=torch.empty_like(x))
        ctx.save_for_backward(keep)
        ctx.scale = _LEVELS / (_LEVELS - dropped)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (gradients[0] * keep).mul_(ctx.scale), None


class Dropout(nn.Module):
    """While training, each element is zero with this probability, the others are scaled up.

    Raises:
        ValueError: the probability is not in [0, 1).
    """

    def __init__(self, probability: float):
        super().__init__()
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"dropout={probability} is not a probability; choose 0 ≤ dropout < 1")
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0.0:
            return x
        if x.device.type == "cpu":
            return _CpuDropout.apply(x, self.probability)
        return F.dropout(x, self.probability)

    def extra_repr(self) -> str:
        return str(self.probability)
