"""Exercises on measuring what attention looks at."""

import torch
from jaxtyping import Float
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case


def _weights(random: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (2 * torch.randn(shape, generator=random, dtype=dtype)).softmax(dim=-1)


def _share_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(_weights(random, 3, 6, 6), -1),
        "the token after": Case(_weights(random, 2, 5, 5), 1),
        "itself": Case(_weights(random, 2, 4, 4), 0),
        "two before": Case(_weights(random, 4, 7, 7), -2),
    }


@exercise("interpretation", _share_cases)
def offset_share(
    weights: Float[Tensor, "heads length length"], offset: int
) -> Float[Tensor, " heads"]:
    """Mean weight of the key ``offset`` places after its query, over the queries that have one."""
    return weights.diagonal(offset, dim1=-2, dim2=-1).mean(dim=-1)


def _rollout_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(_weights(random, 3, 2, 5, 5)),
        "one layer": Case(_weights(random, 1, 4, 6, 6)),
        "one head": Case(_weights(random, 4, 1, 3, 3)),
        "double precision": Case(_weights(random, 2, 2, 4, 4, dtype=torch.float64)),
    }


@exercise("interpretation", _rollout_cases)
def attention_rollout(
    weights: Float[Tensor, "layers heads length length"],
) -> Float[Tensor, "length length"]:
    """Product over the layers of (A + I)/2, A the mean of the heads (Abnar and Zuidema 2020)."""
    identity = torch.eye(weights.size(-1), dtype=weights.dtype)
    rollout = identity
    for layer in weights:
        rollout = (0.5 * layer.mean(dim=0) + 0.5 * identity) @ rollout
    return rollout
