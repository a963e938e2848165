"""Exercises on multi-head attention, with the projections as plain matrices: x·W."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.checks.topics.attention import mask_of_heads, random_mask
from transformer_lib.model.masks import Mask
from transformer_lib.model.multi_head import merge_heads, split_heads
from transformer_lib.model.scaled_dot_product import attention


def _split_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(torch.randn(2, 5, 12, generator=random), 3, gradient=True),
        "one head": Case(torch.randn(2, 4, 6, generator=random), 1),
        "a batch of one": Case(torch.randn(1, 3, 8, generator=random), 4),
        "double precision": Case(torch.randn(2, 5, 8, generator=random).double(), 2),
    }


exercise("multi-head attention", _split_cases)(split_heads)


def _merge_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(torch.randn(2, 3, 5, 4, generator=random), gradient=True),
        "one head": Case(torch.randn(2, 1, 4, 6, generator=random)),
        "a batch of one": Case(torch.randn(1, 4, 3, 2, generator=random)),
        "double precision": Case(torch.randn(2, 3, 5, 4, generator=random).double()),
    }


exercise("multi-head attention", _merge_cases)(merge_heads)


def _projection_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(batch, length, d_model, generator=random)
        return x, torch.randn(3 * d_model, d_model, generator=random)

    return {
        "values": Case(*arguments(2, 6, 4), gradient=True),
        "a batch of one": Case(*arguments(1, 3, 6)),
    }


@exercise("multi-head attention", _projection_cases, outputs=("query", "key", "value"))
def query_key_value(
    x: Float[Tensor, "batch length d_model"], weight: Float[Tensor, "rows d_model"]
) -> tuple[
    Float[Tensor, "batch length d_model"],
    Float[Tensor, "batch length d_model"],
    Float[Tensor, "batch length d_model"],
]:
    """All three projections in one product; the rows of ``weight`` are W^Q, then W^K, then W^V."""
    query, key, value = (x @ weight.T).chunk(3, dim=-1)
    return query, key, value


def _attention_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, queries: int, keys: int, d_model: int) -> list[Tensor]:
        shapes = [(batch, queries, d_model), (batch, keys, d_model), *[(d_model, d_model)] * 4]
        tensors = [torch.randn(shape, generator=random) for shape in shapes]
        return [*tensors[:2], *(0.5 * weight for weight in tensors[2:])]

    return {
        "values": Case(*arguments(2, 4, 5, 12), 3, None, gradient=True),
        "mask": Case(*arguments(2, 4, 5, 12), 3, random_mask((2, 1, 1, 5), random)),
        "a batch of one": Case(*arguments(1, 3, 6, 8), 2, random_mask((1, 1, 3, 6), random)),
        "as many queries as keys": Case(*arguments(3, 5, 5, 8), 2, None),
        "a mask for each head": Case(*arguments(2, 2, 4, 6), 3, mask_of_heads(3, 2, 4, random)),
    }


@exercise("multi-head attention", _attention_cases)
def multi_head_attention(
    x: Float[Tensor, "batch queries d_model"],
    memory: Float[Tensor, "batch keys d_model"],
    w_q: Float[Tensor, "d_model d_model"],
    w_k: Float[Tensor, "d_model d_model"],
    w_v: Float[Tensor, "d_model d_model"],
    w_o: Float[Tensor, "d_model d_model"],
    num_heads: int,
    mask: Mask | None,
) -> Float[Tensor, "batch queries d_model"]:
    """Concat(head₁, …, head_h)·W^O (section 3.2.2), from the positions of x to those of memory."""
    query, key, value = (split_heads(x, num_heads) for x in (x @ w_q, memory @ w_k, memory @ w_v))
    return merge_heads(attention(query, key, value, mask)[0]) @ w_o


def _grouped_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, heads: int, groups: int, queries: int, keys: int) -> list[Tensor]:
        shapes = (batch, heads, queries, 4), (batch, groups, keys, 4), (batch, groups, keys, 6)
        return [torch.randn(shape, generator=random) for shape in shapes]

    return {
        "values": Case(*arguments(2, 6, 2, 3, 5), gradient=True),
        "one key and value head for all": Case(*arguments(2, 4, 1, 3, 3)),
        "as many as query heads": Case(*arguments(2, 3, 3, 4, 5)),
        "a batch of one": Case(*arguments(1, 8, 4, 2, 7)),
    }


@exercise("multi-head attention", _grouped_cases)
def grouped_query_attention(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch groups keys d_k"],
    value: Float[Tensor, "batch groups keys d_v"],
) -> Float[Tensor, "batch heads queries d_v"]:
    """Each head of keys and values serves several query heads that stand side by side."""
    members = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(members, dim=1) for x in (key, value))
    return (query @ key.mT / math.sqrt(query.size(-1))).softmax(dim=-1) @ value


def _unfuse_cases(random: torch.Generator) -> dict[str, Case]:
    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=random)

    return {
        "values": Case(matrix(18, 6), 3, "rows"),
        "columns, as in GPT-2": Case(matrix(6, 18), 3, "columns"),
        "head by head, as in GPT-NeoX": Case(matrix(24, 8), 2, "heads"),
        "one head": Case(matrix(12, 4), 1, "heads"),
    }


@exercise("multi-head attention", _unfuse_cases, outputs=("w_q", "w_k", "w_v"))
def unfuse(
    weight: Float[Tensor, "rows columns"], num_heads: int, layout: str
) -> tuple[
    Float[Tensor, "d_model d_model"],
    Float[Tensor, "d_model d_model"],
    Float[Tensor, "d_model d_model"],
]:
    """W^Q, W^K and W^V, for x @ W, from one matrix as three well-known programs store it."""
    if layout == "columns":
        weight = weight.T
    if layout == "heads":
        by_head = weight.unflatten(0, (num_heads, 3, -1))
        weight = by_head.transpose(0, 1).flatten(0, 2)
    w_q, w_k, w_v = weight.chunk(3)
    return w_q.T, w_k.T, w_v.T
