"""Multi-head attention (section 3.2.2), and how to see its weights."""

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import Float
from torch import Tensor, nn

from transformer_lib.model.cache import KeyValueCache
from transformer_lib.model.linear import Linear, linear
from transformer_lib.model.masks import Mask
from transformer_lib.model.scaled_dot_product import (
    AttentionFunction,
    attention,
    fused_attention,
    whole_mask,
)


def split_heads(
    x: Float[Tensor, "batch length d_model"], num_heads: int
) -> Float[Tensor, "batch heads length d_k"]:
    """Head h gets the channels h·d_k … (h+1)·d_k − 1 of each position."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge_heads(
    heads: Float[Tensor, "batch heads length d_k"],
) -> Float[Tensor, "batch length d_model"]:
    """The heads of each position side by side: what :func:`split_heads` came from."""
    return heads.transpose(1, 2).flatten(2)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head₁, …, head_h)·W^O (section 3.2.2).

    The projections W^Q, W^K and W^V are one matrix, in this order, so that self-attention
    multiplies once. Each head has d_k = d_v = d_model / num_heads channels.

    Args:
        d_model: width of the model.
        num_heads: number of heads; must divide d_model.
        attention_function: what a head computes, called as :func:`fused_attention` is. In a search
            hypotheses share a cache, so the index of a key is not its position: rotary positions
            must be applied to keys before these are cached.
        dropout: of the attention weights, which the paper does not drop.

    Raises:
        ValueError: d_model is not divisible by num_heads.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        attention_function: AttentionFunction = fused_attention,
        dropout: float = 0.0,
    ):
        super().__init__()
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(
                f"d_model={d_model} is not divisible by num_heads={num_heads}; "
                "choose d_model as a multiple of num_heads"
            )
        self.d_model = d_model
        self.num_heads = num_heads
        self.attention_function = attention_function
        self.dropout = dropout
        self.qkv_proj = Linear(d_model, 3 * d_model)
        self.out_proj: nn.Module = Linear(d_model, d_model)

    def forward(
        self,
        x: Float[Tensor, "batch queries d_model"],
        memory: Float[Tensor, "batch keys d_model"] | None = None,
        mask: Mask | None = None,
        is_causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch queries d_model"]:
        """Self-attention of ``x``, or cross-attention from ``x`` to ``memory``.

        With a ``cache``, keys and values of earlier calls are kept: self-attention appends those of
        ``x`` to them, cross-attention computes those of ``memory`` once.
        """
        if cache is None:
            # Split into matrices first, and into heads after that: so their gradients are joined in
            # the order in which the product of the backward pass wants them.
            if memory is None:
                projected = self._project(x, 0, 3).chunk(3, dim=-1)
            else:
                projected = self._project(x, 0, 1), *self._project(memory, 1, 3).chunk(2, dim=-1)
            query, key, value = (split_heads(part, self.num_heads) for part in projected)
        else:
            query, key, value = self._cached(x, memory, cache)
        drops = {"dropout": self.dropout} if self.training and self.dropout else {}
        heads = self.attention_function(query, key, value, mask=mask, is_causal=is_causal, **drops)
        return self.out_proj(merge_heads(heads))

    def _cached(
        self,
        x: Float[Tensor, "batch queries d_model"],
        memory: Float[Tensor, "batch keys d_model"] | None,
        cache: KeyValueCache,
    ) -> tuple[Float[Tensor, "batch heads length d_k"], ...]:
        """Query, keys and values, the latter two from the cache; one copy adds what is new."""
        if memory is None:
            projected = split_heads(self._project(x, 0, 3), 3 * self.num_heads)
            query, new = projected.split((self.num_heads, 2 * self.num_heads), dim=1)
            cache.append(new)
        else:
            query = split_heads(self._project(x, 0, 1), self.num_heads)
            if cache.is_empty:
                cache.append(split_heads(self._project(memory, 1, 3), 2 * self.num_heads))
        return query, *cache.key_and_value

    def _project(
        self, x: Float[Tensor, "batch length d_model"], first: int, end: int
    ) -> Float[Tensor, "batch length several_d_model"]:
        """x by (W^Q, W^K, W^V) from number ``first`` to before ``end``, side by side."""
        rows = slice(first * self.d_model, end * self.d_model)
        return linear(x, self.qkv_proj.weight[rows], self.qkv_proj.bias[rows])


@contextmanager
def recorded_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Within this context, every multi-head attention of ``model`` keeps its latest weights.

    They are those of equation (1), before dropout and without a gradient, also where a module has
    another function. What the model computes does not change.

    Yields a dictionary from the module's name to its weights (batch, heads, queries, keys):

    >>> with recorded_attention(model) as weights:
    ...     model(src, tgt_input)
    >>> weights["decoder.layers.0.cross_attention"].shape
    """
    recorded: dict[str, Tensor] = {}

    def record_as(name: str, computed: AttentionFunction) -> AttentionFunction:
        def record(
            query: Float[Tensor, "batch heads queries d_k"],
            key: Float[Tensor, "batch heads keys d_k"],
            value: Float[Tensor, "batch heads keys d_v"],
            mask: Mask | None = None,
            is_causal: bool = False,
            **drops: float,
        ) -> Float[Tensor, "batch heads queries d_v"]:
            whole = whole_mask(query, mask, is_causal)
            recorded[name] = attention(query.detach(), key.detach(), value.detach(), whole)[1]
            return computed(query, key, value, mask=mask, is_causal=is_causal, **drops)

        return record

    modules = {n: m for n, m in model.named_modules() if isinstance(m, MultiHeadAttention)}
    functions = {name: module.attention_function for name, module in modules.items()}
    for name, module in modules.items():
        module.attention_function = record_as(name, functions[name])
    try:
        yield recorded
    finally:
        for name, module in modules.items():
            module.attention_function = functions[name]
