"""Tokens to vectors (section 3.4), with their positions (section 3.5)."""

import math

from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.model.dropout import Dropout
from transformer_lib.model.positional_encoding import Start


class Embedding(nn.Module):
    """dropout(table[token]·√d_model + position).

    The table starts at a standard deviation of 1/√d_model, so that it can serve as output
    projection as well; the factor √d_model brings its rows to the scale of the positions. Some
    models have another factor: ``scale``.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        positions: nn.Module,
        dropout: float,
        scale: float | None = None,
    ):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.embed_tokens.weight, std=d_model**-0.5)
        self.scale = math.sqrt(d_model) if scale is None else scale
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(
        self, tokens: Int[Tensor, "batch length"], start: Start = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """``start`` is the position of the first token, or a tensor with the position of each."""
        return self.dropout(self.positions(self.embed_tokens(tokens) * self.scale, start))
