"""Layer normalization (Ba et al. 2016), used around every sublayer (section 3.1)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def layer_norm(
    x: Float[Tensor, "... d_model"],
    scale: Float[Tensor, " d_model"],
    shift: Float[Tensor, " d_model"],
    eps: float = 1e-5,
) -> Float[Tensor, "... d_model"]:
    """scale·(x − μ)/√(σ² + eps) + shift, with mean μ and biased variance σ² of each position.

    The form to read; :class:`LayerNorm` computes the same in one kernel.
    """
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return scale * (x - mean) / torch.sqrt(variance + eps) + shift


class LayerNorm(nn.Module):
    """:func:`layer_norm` with a learned scale (from 1) and shift (from 0)."""

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return F.layer_norm(x, self.scale.shape, self.scale, self.shift, self.eps)
