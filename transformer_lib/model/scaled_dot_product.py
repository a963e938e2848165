"""Scaled dot-product attention (section 3.2.1): the form to read, and the form to run."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_lib.model.masks import Mask, causal_mask, combine_masks

AttentionFunction = Callable[..., Tensor]


def attention(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    mask: Mask | None = None,
) -> tuple[Float[Tensor, "batch heads queries d_v"], Float[Tensor, "batch heads queries keys"]]:
    """softmax(QKᵀ/√d_k)·V, equation (1), and the attention weights. The form to read.

    A query whose mask allows no key at all gets weights of zero and an output of zero.

    Raises:
        TypeError: the mask is not a Boolean one.
    """
    _check_is_boolean(mask)
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
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads queries d_v"]:
    """The same as :func:`attention` without the weights. The form to run.

    One kernel, but for training on a CPU in bfloat16: there two plain products are faster.

    ``is_causal`` stands for a causal mask that need not exist in memory; ``dropout`` is the
    probability with which a weight is set to zero (and the others are scaled up).

    Raises:
        TypeError: the mask is not a Boolean one.
        ValueError: ``is_causal`` with other numbers of queries and keys.
    """
    _check_is_boolean(mask)
    if is_causal and query.size(-2) != key.size(-2):
        raise ValueError(
            f"is_causal wants as many queries as keys, not {query.size(-2)} and {key.size(-2)}; "
            "give a mask instead"
        )
    if _matmuls_are_faster(query) and not dropout:
        return attention(query, key, value, whole_mask(query, mask, is_causal))[0]
    if is_causal and mask is not None:
        mask, is_causal = whole_mask(query, mask, is_causal), False
    with _kernels_for_any_shape(query.device):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=is_causal
        )


def whole_mask(
    query: Float[Tensor, "batch heads queries d_k"], mask: Mask | None, is_causal: bool
) -> Mask | None:
    """``mask``, and the causal one if it is asked for."""
    return combine_masks(mask, causal_mask(query.size(-2), query.device)) if is_causal else mask


def _matmuls_are_faster(query: Tensor) -> bool:
    # Training on a CPU in bfloat16, PyTorch's fused kernel takes 4.5 to 12 times as long as two
    # plain matrix products at 64 to 10 tokens (benchmarks/attention.py).
    return query.device.type == "cpu" and query.dtype == torch.bfloat16 and query.requires_grad


def _kernels_for_any_shape(device: torch.device) -> AbstractContextManager[None]:
    # cuDNN's kernel, PyTorch's first choice on an H100 since 2.11, is planned anew for each shape,
    # which takes about a second; here every batch, and every step of a search, has another shape.
    if device.type != "cuda":
        return nullcontext()
    return sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    )


def _check_is_boolean(mask: Mask | None) -> None:
    """PyTorch's kernel would add numbers to the scores, which here mean something else."""
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"the mask is of {mask.dtype}; give torch.bool, True where one may look")
