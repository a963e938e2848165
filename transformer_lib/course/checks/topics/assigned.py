"""Exercises of assignments 1 to 3, which no chapter has: variants of what the chapters build."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise, without_autograd
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.checks.topics.attention import in_steps, random_mask
from transformer_lib.course.checks.topics.layers import Function, States, norm_of, sublayer_of
from transformer_lib.course.sandboxed.given import FixedDropout, Same
from transformer_lib.vocabulary import PAD


def _relative_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, heads: int, length: int, d_k: int, reach: int) -> list[Tensor]:
        shapes = (batch, heads, length, d_k), (batch, heads, length, d_k), (2 * reach + 1, d_k)
        return [torch.randn(shape, generator=random) for shape in shapes]

    query, key, table = arguments(2, 5, 3, 4, 2)  # heads and places still to be exchanged
    return {
        "values": Case(*arguments(2, 3, 6, 4, 2), gradient=True),
        "a reach beyond the sentence": Case(*arguments(2, 2, 4, 5, 6)),
        "a reach of one": Case(*arguments(1, 2, 5, 8, 1)),
        "one token": Case(*arguments(2, 1, 1, 4, 3)),
        "as split_heads leaves them": Case(query.transpose(1, 2), key.transpose(1, 2), table),
    }


@exercise("relative positions", _relative_cases)
def relative_scores(
    query: Float[Tensor, "batch heads length d_k"],
    key: Float[Tensor, "batch heads length d_k"],
    table: Float[Tensor, "offsets d_k"],
) -> Float[Tensor, "batch heads queries keys"]:
    """q_i·(k_j + a_{j−i})/√d_k, a looked up by the clipped offset (Shaw et al. 2018, eq. 5)."""
    length, reach = query.size(2), table.size(0) // 2
    place = torch.arange(length)
    offset = (place[None, :] - place[:, None]).clamp(-reach, reach) + reach
    relative = torch.einsum("bhqd,qkd->bhqk", query, table[offset])
    return (query @ key.mT + relative) / math.sqrt(query.size(-1))


def _segment_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int) -> tuple[Tensor, ...]:
        tokens = torch.randint(0, 11, (batch, length), generator=random)
        tokens[:, 0].clamp_(min=1)  # no sentence begins with padding
        tokens[0, -1] = PAD
        segments = (torch.arange(length) >= length // 2).long().expand(batch, -1).clone()
        segments[0, :-1] = 0
        tables = (torch.randn(rows, d_model, generator=random) for rows in (11, 9, 2))
        return tokens, segments, *tables

    tokens, _, *tables = arguments(3, 4, 6)
    return {
        "values": Case(*arguments(3, 5, 6), gradient=True),
        "a batch of one": Case(*arguments(1, 4, 8)),
        "as many sentences as tokens": Case(*arguments(4, 4, 6)),
        "segments in another order": Case(
            tokens, torch.tensor([[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0]]), *tables
        ),
    }


@exercise("embeddings", _segment_cases)
def embed_with_segments(
    tokens: Int[Tensor, "batch length"],
    segments: Int[Tensor, "batch length"],
    table: Float[Tensor, "vocab_size d_model"],
    positions: Float[Tensor, "max_len d_model"],
    segment_table: Float[Tensor, "two d_model"],
) -> Float[Tensor, "batch length d_model"]:
    """Token + position + segment, as BERT adds them (Devlin et al. 2019): without √d_model."""
    return table[tokens] + positions[: tokens.size(1)] + segment_table[segments]


def _window_cases(random: torch.Generator) -> dict[str, Case]:
    length = int(torch.randint(7, 11, (), generator=random))
    return {
        "values": Case(length, 3, 2),
        "no global token": Case(6, 2, 0),
        "a window of one": Case(6, 1, 1),
        "a window wider than the text": Case(5, 9, 1),
        "more global tokens than the window is wide": Case(8, 2, 4),
        "more global tokens than there are": Case(3, 2, 5),
    }


@exercise("masks", _window_cases)
def global_window_mask(
    length: int, width: int, num_global: int
) -> Bool[Tensor, "1 1 {length} {length}"]:
    """Causal: a query sees itself, the width − 1 before it, and the first num_global tokens."""
    place = torch.arange(length)
    distance = place[:, None] - place[None, :]
    near, first = distance < width, place[None, :] < num_global
    return ((distance >= 0) & (near | first))[None, None]


def _capped_cases(random: torch.Generator) -> dict[str, Case]:
    def qkv(batch: int, heads: int, queries: int, keys: int) -> list[Tensor]:
        shapes = (batch, heads, queries, 5), (batch, heads, keys, 5), (batch, heads, keys, 7)
        return [torch.randn(shape, generator=random) for shape in shapes]

    nothing_to_see = random_mask((2, 1, 4, 6), random)
    nothing_to_see[1, 0, 2] = False
    query, key, value = qkv(2, 2, 4, 5)
    ahead = torch.cat([key[..., :-1, :], 200 * query.sign()[..., :1, :]], dim=2)
    return {
        "values": Case(*qkv(2, 3, 4, 6), None, 1.5, gradient=True),
        "mask": Case(*qkv(2, 3, 4, 6), random_mask((2, 1, 4, 6), random), 2.0),
        "a query that may see nothing": Case(*qkv(2, 3, 4, 6), nothing_to_see, 2.0),
        "a mask of two axes": Case(*qkv(2, 3, 4, 6), random_mask((4, 6), random), 2.0),
        "large scores": Case(in_steps(60 * query), in_steps(key), value, None, 5.0),
        "a hidden key far ahead": Case(query, ahead, value, random_mask((4, 5), random), 1000.0),
        "a batch of one, other lengths": Case(*qkv(1, 2, 7, 3), None, 1.0),
    }


@exercise("attention", _capped_cases, outputs=("output", "weights"))
def capped_attention(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    mask: Bool[Tensor, "..."] | None,
    cap: float,
) -> tuple[Float[Tensor, "batch heads queries d_v"], Float[Tensor, "batch heads queries keys"]]:
    """Attention whose scores, after the scaling, are cap·tanh(score/cap), as in Gemma 2."""
    scores = cap * torch.tanh(query @ key.mT / math.sqrt(query.size(-1)) / cap)
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        blocked = ~mask
        scores = scores.masked_fill(blocked, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).masked_fill(blocked, 0.0)
    return weights @ value, weights


def _group_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int) -> tuple[Tensor, ...]:
        x = 2 + 3 * torch.randn(batch, length, d_model, generator=random)
        return x, *torch.randn(2, d_model, generator=random)

    x, scale, shift = arguments(2, 3, 8)
    apart = torch.tensor([-1.0, 1.0]).repeat(4)  # or by chance only rounding were left of a group
    return {
        # Epsilon is so small that it matters in one case alone, that of a small deviation.
        "values": Case(*arguments(3, 4, 6), 2, 1e-12, gradient=True),
        "one group": Case(*arguments(2, 3, 6), 1, 1e-12),
        "a small deviation": Case(0.01 * x, scale, shift, 4, 1e-3),
        "far from zero": Case(0.1 * x + apart + 100.0, scale, shift, 2, 1e-12),
        "a batch of one": Case(*arguments(1, 5, 12), 3, 1e-12),
    }


@exercise("norms", _group_cases)
def group_norm(
    x: Float[Tensor, "batch length d_model"],
    scale: Float[Tensor, " d_model"],
    shift: Float[Tensor, " d_model"],
    num_groups: int,
    eps: float,
) -> Float[Tensor, "batch length d_model"]:
    """Layer norm within each of some groups of neighboring channels of a position."""
    groups = x.unflatten(-1, (num_groups, -1))
    mean = groups.mean(dim=-1, keepdim=True)
    variance = groups.var(dim=-1, correction=0, keepdim=True)
    normed = (groups - mean) / torch.sqrt(variance + eps)
    return scale * normed.flatten(-2) + shift


def _backward_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(*shape: int) -> tuple[Tensor, Tensor, Tensor, float]:
        x = 1 + 2 * torch.randn(shape, generator=random)
        upstream = torch.randn(shape, generator=random)
        return x, upstream, torch.randn(shape[-1], generator=random), 1e-6

    x, upstream, scale, _ = arguments(2, 3, 5)
    zeros = x.index_fill(1, torch.tensor([1]), 0.0)
    some_zero = scale.abs().index_fill(0, torch.tensor([1, 3]), 0.0)
    return {
        "values": Case(*arguments(3, 4, 6)),
        "a batch of one": Case(*arguments(1, 2, 8)),
        "small numbers": Case(0.01 * x, upstream, scale, 1e-3),
        "vectors of zeros, and a scale of zero": Case(zeros, upstream, some_zero, 1e-3),
    }


@exercise(
    "norms",
    _backward_cases,
    outputs=("the gradient of x", "the gradient of scale"),
    use=without_autograd,
)
def rms_norm_backward(
    x: Float[Tensor, "batch length d_model"],
    upstream: Float[Tensor, "batch length d_model"],
    scale: Float[Tensor, " d_model"],
    eps: float,
) -> tuple[Float[Tensor, "batch length d_model"], Float[Tensor, " d_model"]]:
    """∂L/∂x = (g − x̂·mean(g·x̂))/r, with g = scale·∂L/∂y, r = √(mean of x² + eps), x̂ = x/r."""
    root = torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    normed, g = x / root, upstream * scale
    of_x = (g - normed * (g * normed).mean(dim=-1, keepdim=True)) / root
    return of_x, (upstream * normed).sum(dim=(0, 1))


def _scaled_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int) -> tuple:
        x = torch.randn(batch, length, d_model, generator=random)
        return x, sublayer_of(d_model, random), norm_of(d_model, random), FixedDropout()

    x, sublayer, *_ = arguments(2, 4, 6)
    return {
        "values": Case(*arguments(2, 4, 6), 2.5, gradient=True),
        "α is 1": Case(*arguments(1, 3, 9), 1.0),
        "a norm that sees the size": Case(x, sublayer, sublayer_of(6, random), FixedDropout(), 3.0),
        "a branch that returns x itself": Case(x, Same(), norm_of(6, random), Same(), 2.0),
    }


@exercise("residual connections", _scaled_cases)
def scaled_post_norm(
    x: States, sublayer: Function, norm: Function, dropout: Function, alpha: float
) -> States:
    """LayerNorm(α·x + dropout(Sublayer(x))): post-norm as in DeepNorm (Wang et al. 2022)."""
    return norm(alpha * x + dropout(sublayer(x)))


def _sandwich_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int) -> tuple:
        x = torch.randn(batch, length, d_model, generator=random)
        norms = (norm_of(d_model, random) for _ in range(2))
        return x, sublayer_of(d_model, random), *norms, FixedDropout()

    return {
        "values": Case(*arguments(2, 4, 6), gradient=True),
        "a batch of one": Case(*arguments(1, 3, 9)),
    }


@exercise("residual connections", _sandwich_cases)
def sandwich(
    x: States, sublayer: Function, norm_in: Function, norm_out: Function, dropout: Function
) -> States:
    """x + dropout(norm_out(Sublayer(norm_in(x)))): a norm before and behind, as in Gemma 2."""
    return x + dropout(norm_out(sublayer(norm_in(x))))
