"""Scaled dot-product attention and multi-head attention (sections 3.2.1 and 3.2.2)."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_lib.model.cache import KeyValueCache
from transformer_lib.model.masks import Mask, causal_mask, combine_masks


def attention(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    mask: Mask | None = None,
) -> tuple[Float[Tensor, "batch heads queries d_v"], Float[Tensor, "batch heads queries keys"]]:
    """softmax(QKᵀ/√d_k)·V, equation (1), and the attention weights. The form to read.

    A query whose mask allows no key at all gets weights of zero and an output of zero.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        # The smallest finite number instead of −∞: a row of −∞ alone would make softmax NaN.
        blocked = ~mask
        scores = scores.masked_fill(blocked, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).masked_fill(blocked, 0.0)
    return weights @ value, weights


def fused_attention(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    mask: Mask | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "batch heads queries d_v"]:
    """The same as :func:`attention` in one kernel, without the weights. The form to run.

    ``is_causal`` stands for a causal mask that need not exist in memory.
    """
    if _matmuls_are_faster(query):
        return attention(query, key, value, whole_mask(query, mask, is_causal))[0]
    if is_causal and mask is not None:
        mask, is_causal = whole_mask(query, mask, is_causal), False
    with _kernels_for_any_shape(query.device):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=is_causal
        )


def whole_mask(
    query: Float[Tensor, "batch heads queries d_k"], mask: Mask | None, is_causal: bool
) -> Mask | None:
    """``mask``, and the causal one if it is asked for."""
    return combine_masks(mask, causal_mask(query.size(-2), query.device)) if is_causal else mask


def _matmuls_are_faster(query: Tensor) -> bool:
    # Training on a CPU in bfloat16, PyTorch's fused kernel takes 5 to 14 times as long as two plain
    # matrix products at 64 to 10 tokens (benchmarks/attention.py).
    return query.device.type == "cpu" and query.dtype == torch.bfloat16 and query.requires_grad


def _kernels_for_any_shape(device: torch.device) -> AbstractContextManager[None]:
    # cuDNN's kernel, PyTorch's first choice on an H100 since 2.11, is planned anew for each shape,
    # which takes about a second; here every batch, and every step of a search, has another shape.
    if device.type != "cuda":
        return nullcontext()
    return sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
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


AttentionFunction = Callable[..., Tensor]


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head₁, …, head_h)·W^O (section 3.2.2).

    The projections W^Q, W^K and W^V are one matrix, in this order, so that self-attention
    multiplies once. Each head has d_k = d_v = d_model / num_heads channels.

    Args:
        d_model: width of the model.
        num_heads: number of heads; must divide d_model.
        attention_function: what a head computes, called as :func:`fused_attention` is.

    Raises:
        ValueError: d_model is not divisible by num_heads.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        attention_function: AttentionFunction = fused_attention,
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
        self.query_key_value = nn.Linear(d_model, 3 * d_model)
        self.output: nn.Module = nn.Linear(d_model, d_model)

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
        if memory is None:
            projected = self._project(x, 0, 3)
            query, key, value = projected.chunk(3, dim=1)
            if cache is not None:
                cache.append(projected[:, self.num_heads :])
                key, value = cache.key_and_value
        else:
            query = self._project(x, 0, 1)
            if cache is None:
                key, value = self._project(memory, 1, 3).chunk(2, dim=1)
            else:
                if cache.is_empty:
                    cache.append(self._project(memory, 1, 3))
                key, value = cache.key_and_value
        heads = self.attention_function(query, key, value, mask=mask, is_causal=is_causal)
        return self.output(merge_heads(heads))

    def _project(
        self, x: Float[Tensor, "batch length d_model"], first: int, end: int
    ) -> Float[Tensor, "batch several_heads length d_k"]:
        """x by (W^Q, W^K, W^V) from number ``first`` to before ``end``; all heads side by side."""
        rows = slice(first * self.d_model, end * self.d_model)
        weight, bias = self.query_key_value.weight[rows], self.query_key_value.bias[rows]
        return split_heads(F.linear(x, weight, bias), (end - first) * self.num_heads)


@contextmanager
def recorded_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Within this context, every multi-head attention of ``model`` keeps its latest weights.

    Yields a dictionary from the module's name to its weights (batch, heads, queries, keys):

    >>> with recorded_attention(model) as weights:
    ...     model(src, tgt_input)
    >>> weights["decoder.layers.0.cross_attention"].shape
    """
    recorded: dict[str, Tensor] = {}

    def record_as(name: str) -> AttentionFunction:
        def record(query, key, value, mask=None, is_causal=False):
            mask = whole_mask(query, mask, is_causal)
            output, recorded[name] = attention(query, key, value, mask)
            return output

        return record

    modules = {n: m for n, m in model.named_modules() if isinstance(m, MultiHeadAttention)}
    functions = {name: module.attention_function for name, module in modules.items()}
    for name, module in modules.items():
        module.attention_function = record_as(name)
    try:
        yield recorded
    finally:
        for name, module in modules.items():
            module.attention_function = functions[name]
