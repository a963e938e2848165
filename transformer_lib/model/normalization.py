"""Layer normalization (Ba et al. 2016), used around every sublayer (section 3.1)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def layer_norm(
    x: Float[Tensor, "... d_model"],
    weight: Float[Tensor, " d_model"],
    bias: Float[Tensor, " d_model"],
    eps: float = 1e-5,
) -> Float[Tensor, "... d_model"]:
    """weight·(x − μ)/√(σ² + eps) + bias, with mean μ and biased variance σ² of each position.

    The form to read; :class:`LayerNorm` computes the same in one kernel.
    """
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return weight * (x - mean) / torch.sqrt(variance + eps) + bias


class LayerNorm(nn.Module):
    """:func:`layer_norm` with a learned weight (from 1) and bias (from 0)."""

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
