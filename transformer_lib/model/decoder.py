"""The decoder: layers of causal self-attention, cross-attention and feed-forward (section 3.1)."""

from collections.abc import Callable, Iterable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer_lib.model.cache import KeyValueCache
from transformer_lib.model.masks import Mask

TgtMask = Bool[Tensor, "batch 1 tgt_queries tgt_keys"]
LayerCache = tuple[KeyValueCache, KeyValueCache]  # of the self-attention, of the cross-attention


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's memory, feed-forward; each residual.

    The parts come from outside; ``residual()`` makes a new connection for each sublayer.

    In a search, ``x`` may hold several hypotheses for each sentence of ``memory``: the same number
    for every sentence, in consecutive rows. The hypotheses of a sentence share one cache, to which
    each call appends a position per hypothesis; ``tgt_mask`` says which positions belong to which
    hypothesis. So one hypothesis can continue in two ways without a copy of its keys and values.

    Raises:
        ValueError: several positions at once continue a cache, and no ``tgt_mask`` says what each
            of them may see.
    """

    def __init__(
        self,
        self_attention: nn.Module,
        cross_attention: nn.Module,
        feed_forward: nn.Module,
        residual: Callable[[], nn.Module],
    ):
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_residual = residual()
        self.cross_attention = cross_attention
        self.cross_attention_residual = residual()
        self.feed_forward = feed_forward
        self.feed_forward_residual = residual()

    def forward(
        self,
        x: Float[Tensor, "hypotheses tgt_len d_model"],
        memory: Float[Tensor, "batch src_len d_model"],
        memory_mask: Mask | None,
        cache: LayerCache | None = None,
        tgt_mask: TgtMask | None = None,
    ) -> Float[Tensor, "hypotheses tgt_len d_model"]:
        own, cross = cache or (None, None)
        # A step that continues a cache is one position, which may see all that came before.
        is_causal = own is None or own.is_empty
        if not is_causal and tgt_mask is None and x.size(1) > 1:
            raise ValueError("a cache is continued by one position at a time, or with a tgt_mask")

        def attend_to_target(x: Tensor) -> Tensor:
            queries = x if own is None else _by_sentence(x, memory)
            seen = self.self_attention(queries, mask=tgt_mask, is_causal=is_causal, cache=own)
            return seen.view_as(x)

        def attend_to_memory(x: Tensor) -> Tensor:
            queries = _by_sentence(x, memory)
            return self.cross_attention(queries, memory, mask=memory_mask, cache=cross).view_as(x)

        x = self.self_attention_residual(x, attend_to_target)
        x = self.cross_attention_residual(x, attend_to_memory)
        return self.feed_forward_residual(x, self.feed_forward)


def _by_sentence(
    x: Float[Tensor, "hypotheses tgt_len d_model"], memory: Float[Tensor, "batch src_len d_model"]
) -> Float[Tensor, "batch queries d_model"]:
    """The positions of all hypotheses of a sentence in one row."""
    return x.reshape(memory.size(0), -1, x.size(-1))


class Decoder(nn.Module):
    """Layers one after the other, then the final norm (``nn.Identity()`` for none).

    The causal mask alone is enough for a batch of padded targets: padding comes last, so no real
    position sees it, and what the padded positions compute is never used.
    """

    def __init__(self, layers: Iterable[DecoderLayer], final_norm: nn.Module):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm

    def forward(
        self,
        x: Float[Tensor, "hypotheses tgt_len d_model"],
        memory: Float[Tensor, "batch src_len d_model"],
        memory_mask: Mask | None,
        caches: list[LayerCache] | None = None,
        tgt_mask: TgtMask | None = None,
    ) -> Float[Tensor, "hypotheses tgt_len d_model"]:
        for index, layer in enumerate(self.layers):
            x = layer(x, memory, memory_mask, caches[index] if caches else None, tgt_mask)
        return self.final_norm(x)
