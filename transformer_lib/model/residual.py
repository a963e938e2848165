"""The residual connection around a sublayer f, and the three places where its norm can go."""

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from transformer_lib.model.dropout import Dropout

States = Float[Tensor, "batch length d_model"]
Sublayer = Callable[[States], States]
NormPlacement = Literal["post", "pre", "branch"]


class _Residual(nn.Module):
    def __init__(self, norm: nn.Module, dropout: float):
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)


class PostNorm(_Residual):
    """LN(x + dropout(f(x))): the paper's (sections 3.1 and 5.4). The sum is normalized."""

    def forward(self, x: States, sublayer: Sublayer) -> States:
        return self.norm(x + self.dropout(sublayer(x)))


class PreNorm(_Residual):
    """x + dropout(f(LN(x))): an untouched path from input to output; needs a final norm."""

    def forward(self, x: States, sublayer: Sublayer) -> States:
        return x + self.dropout(sublayer(self.norm(x)))


class BranchNorm(_Residual):
    """x + LN(dropout(f(x))): the branch is normalized, the sum is not ("res-post-norm")."""

    def forward(self, x: States, sublayer: Sublayer) -> States:
        return x + self.norm(self.dropout(sublayer(x)))


RESIDUALS: dict[NormPlacement, type[_Residual]] = {
    "post": PostNorm,
    "pre": PreNorm,
    "branch": BranchNorm,
}
