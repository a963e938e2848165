"""The encoder: N layers of self-attention and feed-forward (section 3.1)."""

from collections.abc import Callable, Iterable

from jaxtyping import Float
from torch import Tensor, nn

from transformer_lib.model.masks import Mask


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside a residual connection.

    The parts come from outside; ``residual()`` makes a new connection for each sublayer.
    """

    def __init__(
        self, self_attention: nn.Module, feed_forward: nn.Module, residual: Callable[[], nn.Module]
    ):
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_residual = residual()
        self.feed_forward = feed_forward
        self.feed_forward_residual = residual()

    def forward(
        self, x: Float[Tensor, "batch src_len d_model"], mask: Mask | None
    ) -> Float[Tensor, "batch src_len d_model"]:
        x = self.self_attention_residual(x, lambda x: self.self_attention(x, mask=mask))
        return self.feed_forward_residual(x, self.feed_forward)


class Encoder(nn.Module):
    """Layers one after the other, then the final norm (``nn.Identity()`` for none)."""

    def __init__(self, layers: Iterable[EncoderLayer], final_norm: nn.Module):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm

    def forward(
        self, x: Float[Tensor, "batch src_len d_model"], mask: Mask | None
    ) -> Float[Tensor, "batch src_len d_model"]:
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_norm(x)
