"""The position-wise feed-forward network (section 3.3)."""

from jaxtyping import Float
from torch import Tensor, nn

from transformer_lib.model.dropout import Dropout
from transformer_lib.model.linear import Linear


class FeedForward(nn.Module):
    """max(0, x·W₁ + b₁)·W₂ + b₂, equation (2), on each position alone; d_ff hidden channels.

    Args:
        dropout: of the hidden channels, which the paper does not drop.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0):
        super().__init__()
        self.hidden = Linear(d_model, d_ff)
        self.output = Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch length d_model"]:
        # Not in place: autograd would copy all of the view that a linear layer returns, twice.
        return self.output(self.dropout(self.hidden(x).relu()))
