"""Exercises on attention."""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.overrides import TorchFunctionMode

from transformer_lib.course.checks.exercise import exercise, without_autograd
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.checks.topics.positions import shift_matrix
from transformer_lib.model.masks import Mask
from transformer_lib.model.positional_encoding import sinusoidal_positions
from transformer_lib.model.scaled_dot_product import attention


def random_mask(shape: tuple[int, ...], random: torch.Generator) -> Bool[Tensor, "..."]:
    """Blocks about half, but leaves every query its first key, and blocks something for each.

    No two along the first axis are equal, or a program that uses one sentence's mask for all of
    them would be right by chance.
    """
    while True:
        mask = torch.rand(shape, generator=random) < 0.5
        mask[..., 0], mask[..., -1] = True, False
        if len(mask.unique(dim=0)) == len(mask):
            return mask


def mask_of_heads(heads: int, queries: int, keys: int, random: torch.Generator) -> Mask:
    """A mask that differs from head to head and is the same for all sentences."""
    return random_mask((heads, 1, queries, keys), random).transpose(0, 1)


def in_steps(x: Tensor) -> Tensor:
    """Rounded to multiples of ¼, a power of two, so that sums of products are exact.

    Large scores would else differ between two right answers by what rounding makes of them.
    """
    return (4 * x).round() / 4


def _attention_cases(random: torch.Generator) -> dict[str, Case]:
    def qkv(
        batch: int, heads: int, queries: int, keys: int, d_k: int = 5, d_v: int = 7
    ) -> list[Tensor]:
        shapes = (batch, heads, queries, d_k), (batch, heads, keys, d_k), (batch, heads, keys, d_v)
        return [torch.randn(shape, generator=random) for shape in shapes]

    nothing_to_see = random_mask((2, 1, 4, 6), random)
    nothing_to_see[1, 0, 2] = False
    query, key, value = qkv(2, 2, 4, 5)
    # Allowed scores far below zero: what is blocked must be smaller still.
    low = [in_steps(x) for x in qkv(2, 2, 4, 6, d_k=4)]
    low[0][..., 0], low[1][..., 0] = 24.0, -24.0
    return {
        "values": Case(*qkv(2, 3, 4, 6), None, gradient=True),
        "mask": Case(*qkv(2, 3, 4, 6), random_mask((2, 1, 4, 6), random), gradient=True),
        "a query that may see nothing": Case(*qkv(2, 3, 4, 6), nothing_to_see, gradient=True),
        "scores far below zero": Case(*low, random_mask((2, 1, 4, 6), random)),
        "a mask per head": Case(*qkv(2, 3, 4, 6), random_mask((2, 3, 4, 6), random)),
        "large scores": Case(
            in_steps(60 * query), in_steps(key), value, random_mask((2, 1, 1, 5), random)
        ),
        "a batch of one, other lengths": Case(*qkv(1, 2, 7, 3), random_mask((1, 1, 1, 3), random)),
        "double precision": Case(*(x.double() for x in qkv(2, 3, 4, 6)), None),
        "half precision": Case(*_in_halves(random)),
    }


def _in_halves(random: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All scores are 0 and each query may see one key, so that nothing is rounded."""
    key, value = torch.randint(-4, 5, (2, 2, 3, 4, 8), generator=random).half()
    seen = torch.eye(4).bool()[torch.randperm(4, generator=random)]
    return torch.zeros_like(key), key, value, seen[None, None]


exercise("attention", _attention_cases, outputs=("output", "weights"))(attention)


def _softmax_cases(random: torch.Generator) -> dict[str, Case]:
    def scores(rows: int, columns: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(rows, columns, generator=random)

    return {
        "values": Case(scores(3, 5), gradient=True),
        "large scores": Case(scores(4, 6, scale=300.0) + 500.0, gradient=True),
        "very negative scores": Case(scores(4, 4) - 500.0),
        "one column": Case(scores(3, 1)),
        "double precision": Case(scores(3, 4).double()),
    }


class _NoSoftmax(TorchFunctionMode):
    """PyTorch without its own softmax."""

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if "softmax" in function.__name__:
            raise RuntimeError(f"{function.__name__} is off here: write it with exp and a sum")
        return function(*args, **(kwargs or {}))


def _by_hand(answer: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    @wraps(answer)
    def use(scores: Tensor) -> Tensor:
        with _NoSoftmax():
            return answer(scores)

    return use


@exercise("attention", _softmax_cases, use=_by_hand)
def softmax(scores: Float[Tensor, "... queries keys"]) -> Float[Tensor, "... queries keys"]:
    """Each row's exponentials, divided by their sum."""
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def _weight_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, queries: int, keys: int, d_k: int) -> list[Tensor]:
        shapes = (batch, queries, d_k), (batch, keys, d_k)
        return [torch.randn(shape, generator=random) for shape in shapes]

    query, key = (in_steps(x * 12.0) for x in arguments(2, 3, 4, 6))
    query[0, 0], query[1, 2] = 0.0, 2.0 * key[1, 0]  # a row far below the largest score
    return {
        "values": Case(*arguments(2, 3, 5, 6), gradient=True),
        "as many queries as keys": Case(*arguments(2, 4, 4, 3)),
        "one key": Case(*arguments(1, 3, 1, 5)),
        "wide vectors": Case(*(x * 0.4 for x in arguments(3, 2, 4, 80))),
        "large scores": Case(query, key),
    }


@exercise("attention", _weight_cases)
def attention_weights(
    query: Float[Tensor, "batch queries d_k"], key: Float[Tensor, "batch keys d_k"]
) -> Float[Tensor, "batch queries keys"]:
    """softmax(QKᵀ/√d_k), the weights of equation (1)."""
    return (query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))).softmax(dim=-1)


def _self_attention_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int, d_k: int) -> tuple[Tensor, ...]:
        x = torch.randn(batch, length, d_model, generator=random)
        return x, *(0.5 * torch.randn(d_model, d_k, generator=random) for _ in range(3))

    x, *weights = arguments(2, 4, 8, 4)
    return {
        "values": Case(*arguments(2, 5, 8, 4), gradient=True),
        "large scores": Case(in_steps(6 * x), *map(in_steps, weights)),
        "a batch of one": Case(*arguments(1, 3, 6, 3)),
        "as long as it is wide": Case(*arguments(2, 6, 6, 5)),
    }


@exercise("attention", _self_attention_cases)
def self_attention(
    x: Float[Tensor, "batch length d_model"],
    w_q: Float[Tensor, "d_model d_k"],
    w_k: Float[Tensor, "d_model d_k"],
    w_v: Float[Tensor, "d_model d_v"],
) -> Float[Tensor, "batch length d_v"]:
    """Attention(x·W^Q, x·W^K, x·W^V): one head, without the output projection."""
    return attention_weights(x @ w_q, x @ w_k) @ (x @ w_v)


def _gradient_cases(random: torch.Generator) -> dict[str, Case]:
    def weights_and_gradient(*shape: int, scale: float = 1.0) -> list[Tensor]:
        scores, upstream = torch.randn(2, *shape, generator=random)
        return [(scale * scores).softmax(dim=-1), upstream]

    turned = torch.randn(2, 5, 3, generator=random)
    one_takes_all = torch.eye(5)[torch.randperm(5, generator=random)]
    return {
        "values": Case(*weights_and_gradient(3, 5)),
        "as many queries as keys": Case(*weights_and_gradient(4, 4)),
        "one key has all the weight": Case(one_takes_all, torch.randn(5, 5, generator=random)),
        "a batch": Case(*weights_and_gradient(2, 3, 6, scale=2.0)),
        "one query of one sentence": Case(*weights_and_gradient(1, 1, 5)),
        "transposed in memory": Case(turned.softmax(dim=-2).mT, turned.mT),
    }


@exercise("attention", _gradient_cases, tolerance=1e-5, use=without_autograd)
def softmax_backward(
    weights: Float[Tensor, "... queries keys"], upstream: Float[Tensor, "... queries keys"]
) -> Float[Tensor, "... queries keys"]:
    """∂L/∂s_j = w_j · (∂L/∂w_j − Σ_i w_i · ∂L/∂w_i): the Jacobian w_i(δ_ij − w_j), times ∂L/∂w."""
    return weights * (upstream - (weights * upstream).sum(dim=-1, keepdim=True))


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attention_weights(query, key) @ value


def _mean(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return value.mean(dim=-2, keepdim=True).expand(*query.shape[:-1], value.size(-1))


def _largest(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return value.amax(dim=-2, keepdim=True).expand(*query.shape[:-1], value.size(-1))


def _later_counts_more(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    return (scores + 0.02 * torch.arange(key.size(-2))).softmax(dim=-1) @ value


def _later_for_later(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    places = torch.outer(torch.arange(query.size(-2)), torch.arange(key.size(-2)))
    return (scores + 0.02 * places).softmax(dim=-1) @ value


def _own_place_counts_more(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    return (scores + 0.5 * torch.eye(*scores.shape[-2:])).softmax(dim=-1) @ value


def _last_is_lost(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attention_weights(query, key[..., :-1, :]) @ value[..., :-1, :]


def _causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    seen = torch.ones(scores.shape[-2:]).tril().bool()
    return scores.masked_fill(~seen, -torch.inf).softmax(dim=-1) @ value


def _values_backwards(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attention_weights(query, key) @ value.flip(-2)


def _order_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(_attend),
        "the mean of all values": Case(_mean),
        "the largest of all values": Case(_largest),
        "later keys count more": Case(_later_counts_more),
        "the last key is lost": Case(_last_is_lost),
        "a query sees no later key": Case(_causal),
        "the values stand backwards": Case(_values_backwards),
        "later keys count more for later queries": Case(_later_for_later),
        "a query prefers the key at its own place": Case(_own_place_counts_more),
    }


def _each_time(answer: Callable) -> Callable:
    """A test that draws an order by chance may be right by luck: it must say the same each time."""

    def verdict(attend: Callable) -> object:
        said = [answer(attend) for _ in range(30)]
        true = sum(one is True for one in said)
        if 0 < true < 30:
            raise ValueError(f"of 30 calls {true} returned True, the others False")
        return said[0]

    return verdict


@exercise("attention", _order_cases, outputs=("whether the order does not matter",), use=_each_time)
def ignores_order(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> bool:
    """Whether keys and values, moved together, leave the output of every query as it was."""
    query, key, value = torch.randn(3, 2, 7, 8)
    moved = attend(query, key.roll(3, dims=-2), value.roll(3, dims=-2))
    difference = attend(query, key, value) - moved
    return difference.abs().max().item() < 1e-5


def _look_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(16, 1),
        "three places back": Case(32, 3),
        "two places ahead": Case(16, -2),
        "the paper's width of a head": Case(64, 5),
        "few channels": Case(8, 2),
    }


def _looking(answer: Callable) -> Callable:
    """Where queries look, for which the place exists, in a text of 20 positions."""

    def places(d_model: int, offset: int) -> tuple[Int[Tensor, " query"], Bool[Tensor, " query"]]:
        x = sinusoidal_positions(20, d_model)
        matrices = answer(d_model, offset)
        if not isinstance(matrices, tuple | list) or len(matrices) != 2:
            raise TypeError("two matrices are expected, w_q and w_k")
        weights = attention_weights(*((x @ w)[None] for w in matrices))[0]
        share, place = weights[max(offset, 0) : 20 + min(offset, 0)].max(dim=-1)
        return place, share > 0.9

    return places


@exercise(
    "attention",
    _look_cases,
    outputs=("the place that gets most", "whether it gets more than nine tenths"),
    use=_looking,
)
def look_back(
    d_model: int, offset: int
) -> tuple[Float[Tensor, "d_model d_model"], Float[Tensor, "d_model d_model"]]:
    """W^Q takes a row PE(p) to PE(p − offset): the shift's matrix, which is meant for columns."""
    return 1000.0 * shift_matrix(offset, d_model), torch.eye(d_model)
