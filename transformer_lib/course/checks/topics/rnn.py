"""Exercises on attention as an LSTM asks for it, with the matrices as they stand in the papers."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.checks.topics.attention import in_steps, random_mask


def _luong_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, queries: int, keys: int, d_model: int) -> tuple[Tensor, ...]:
        shapes = (batch, queries, d_model), (batch, keys, d_model), (d_model, d_model)
        query, memory, weight = (torch.randn(shape, generator=random) for shape in shapes)
        return query, memory, 0.5 * weight, random_mask((batch, keys), random)

    query, memory, weight, mask = arguments(2, 3, 4, 5)
    memory[:, -1] = 4 * memory[:, 0]  # padding that is far ahead of all words
    return {
        "values": Case(*arguments(2, 3, 5, 4), gradient=True),
        "large scores": Case(*map(in_steps, (30 * query, memory, weight)), mask),
        "a batch of one": Case(*arguments(1, 2, 4, 6)),
        "one query": Case(*arguments(3, 1, 4, 5)),
        "as many queries as keys": Case(*arguments(3, 4, 4, 5)),
    }


@exercise("LSTM attention", _luong_cases, outputs=("context", "weights"))
def luong_attention(
    query: Float[Tensor, "batch queries d_model"],
    memory: Float[Tensor, "batch keys d_model"],
    weight: Float[Tensor, "d_model d_model"],
    mask: Bool[Tensor, "batch keys"],
) -> tuple[Float[Tensor, "batch queries d_model"], Float[Tensor, "batch queries keys"]]:
    """softmax(hᵀ·W·s)·s over the keys that are real (Luong et al. 2015, "general")."""
    scores = query @ weight @ memory.transpose(1, 2)
    weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
    return weights @ memory, weights


def _bahdanau_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, queries: int, keys: int, d_model: int, hidden: int):
        shapes = (
            (batch, queries, d_model),
            (batch, keys, d_model),
            (d_model, hidden),
            (d_model, hidden),
            (hidden,),
        )
        tensors = [torch.randn(shape, generator=random) for shape in shapes]
        return *tensors, random_mask((batch, keys), random)

    query, memory, w_query, w_memory, v, mask = arguments(2, 3, 4, 5, 6)
    return {
        "values": Case(*arguments(2, 3, 5, 4, 6), gradient=True),
        "large scores": Case(query, memory, w_query, w_memory, 120 * v, mask),
        "a batch of one": Case(*arguments(1, 2, 4, 6, 6)),
        "one query": Case(*arguments(3, 1, 4, 5, 6)),
        "as many queries as keys": Case(*arguments(3, 4, 4, 5, 7)),
    }


@exercise("LSTM attention", _bahdanau_cases, outputs=("context", "weights"))
def bahdanau_attention(
    query: Float[Tensor, "batch queries d_model"],
    memory: Float[Tensor, "batch keys d_model"],
    w_query: Float[Tensor, "d_model hidden"],
    w_memory: Float[Tensor, "d_model hidden"],
    v: Float[Tensor, " hidden"],
    mask: Bool[Tensor, "batch keys"],
) -> tuple[Float[Tensor, "batch queries d_model"], Float[Tensor, "batch queries keys"]]:
    """softmax(vᵀ·tanh(W₁·h + W₂·s))·s over the keys that are real (Bahdanau et al. 2015)."""
    hidden = torch.tanh((query @ w_query)[:, :, None] + (memory @ w_memory)[:, None])
    weights = (hidden @ v).masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
    return weights @ memory, weights


def _state_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, queries: int, d_model: int) -> list[Tensor]:
        shapes = (batch, queries, d_model), (batch, queries, d_model), (d_model, 2 * d_model)
        return [torch.randn(shape, generator=random) for shape in shapes]

    state, context, weight = arguments(2, 3, 5)
    return {
        "values": Case(*arguments(2, 3, 4), gradient=True),
        "a batch of one": Case(*arguments(1, 1, 6)),
        "large values": Case(40 * state, 40 * context, weight),
    }


@exercise("LSTM attention", _state_cases)
def attentional_state(
    state: Float[Tensor, "batch queries d_model"],
    context: Float[Tensor, "batch queries d_model"],
    weight: Float[Tensor, "d_model both"],
) -> Float[Tensor, "batch queries d_model"]:
    """tanh(W·[context; h]) (Luong et al. 2015, equation 5)."""
    return torch.tanh(torch.cat([context, state], dim=-1) @ weight.T)
