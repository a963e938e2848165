"""Exercises on residual connections, the feed-forward network, and the layers made of them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.checks.topics.attention import random_mask
from transformer_lib.course.sandboxed import given
from transformer_lib.course.sandboxed.given import FixedDropout, Norm, Sublayer
from transformer_lib.model.masks import Mask, causal_mask

States = Float[Tensor, "batch length d_model"]
Function = Callable[[Tensor], Tensor]
Attention = Callable[[Tensor, Tensor, Mask | None], Tensor]


def norm_of(d_model: int, random: torch.Generator) -> Norm:
    return Norm(*torch.randn(2, d_model, generator=random))


def sublayer_of(d_model: int, random: torch.Generator) -> Sublayer:
    return Sublayer(torch.randn(d_model, d_model, generator=random))


def attention_of(d_model: int, random: torch.Generator) -> given.Attention:
    return given.Attention(torch.randn(d_model, d_model, generator=random))


def _residual_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int) -> tuple:
        x = torch.randn(batch, length, d_model, generator=random)
        return x, sublayer_of(d_model, random), norm_of(d_model, random), FixedDropout()

    return {
        "values": Case(*arguments(2, 4, 6), gradient=True),
        "a batch of one": Case(*arguments(1, 3, 9)),
    }


@exercise("residual connections", _residual_cases)
def post_norm(x: States, sublayer: Function, norm: Function, dropout: Function) -> States:
    """LayerNorm(x + dropout(Sublayer(x))) (sections 3.1 and 5.4)."""
    return norm(x + dropout(sublayer(x)))


@exercise("residual connections", _residual_cases)
def pre_norm(x: States, sublayer: Function, norm: Function, dropout: Function) -> States:
    """x + dropout(Sublayer(LayerNorm(x)))."""
    return x + dropout(sublayer(norm(x)))


@exercise("residual connections", _residual_cases)
def branch_norm(x: States, sublayer: Function, norm: Function, dropout: Function) -> States:
    """x + LayerNorm(dropout(Sublayer(x))): the norm on the branch."""
    return x + norm(dropout(sublayer(x)))


def _feed_forward_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int, d_ff: int) -> list[Tensor]:
        shapes = [(batch, length, d_model), (d_model, d_ff), (d_ff,), (d_ff, d_model), (d_model,)]
        return [torch.randn(shape, generator=random) for shape in shapes]

    return {
        "values": Case(*arguments(2, 4, 6, 10), gradient=True),
        "a batch of one": Case(*arguments(1, 3, 4, 4)),
        "double precision": Case(*(x.double() for x in arguments(2, 3, 4, 5))),
    }


@exercise("feed-forward", _feed_forward_cases)
def feed_forward(
    x: States,
    w1: Float[Tensor, "d_model d_ff"],
    b1: Float[Tensor, " d_ff"],
    w2: Float[Tensor, "d_ff d_model"],
    b2: Float[Tensor, " d_model"],
) -> States:
    """max(0, x·W₁ + b₁)·W₂ + b₂, equation (2)."""
    return F.relu(x @ w1 + b1) @ w2 + b2


def _encoder_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int) -> tuple:
        x = torch.randn(batch, length, d_model, generator=random)
        mask = random_mask((batch, 1, 1, length), random)
        parts = attention_of(d_model, random), sublayer_of(d_model, random)
        return x, mask, *parts, norm_of(d_model, random), norm_of(d_model, random)

    return {
        "values": Case(*arguments(2, 5, 6), gradient=True),
        "a batch of one": Case(*arguments(1, 4, 8)),
    }


@exercise("layers", _encoder_cases)
def encoder_layer(
    x: States,
    mask: Mask,
    self_attention: Attention,
    feed_forward: Function,
    norm1: Function,
    norm2: Function,
) -> States:
    """Self-attention, then feed-forward, each inside a post-norm residual (section 3.1)."""
    x = norm1(x + self_attention(x, x, mask))
    return norm2(x + feed_forward(x))


def _decoder_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, src_len: int, d_model: int) -> tuple:
        return (
            torch.randn(batch, length, d_model, generator=random),
            torch.randn(batch, src_len, d_model, generator=random),
            causal_mask(length),
            random_mask((batch, 1, 1, src_len), random),
            attention_of(d_model, random),
            attention_of(d_model, random),
            sublayer_of(d_model, random),
            [norm_of(d_model, random) for _ in range(3)],
        )

    return {
        "values": Case(*arguments(2, 4, 5, 6), gradient=True),
        "a batch of one": Case(*arguments(1, 3, 2, 8)),
        "as long as its source": Case(*arguments(2, 5, 5, 6)),
    }


@exercise("layers", _decoder_cases)
def decoder_layer(
    x: States,
    memory: Float[Tensor, "batch src_len d_model"],
    tgt_mask: Mask,
    memory_mask: Bool[Tensor, "batch 1 1 src_len"],
    attention: Attention,
    cross: Attention,
    feed_forward: Function,
    norms: list,
) -> States:
    """Self-attention, attention to the memory, feed-forward, each with post-norm (section 3.1)."""
    x = norms[0](x + attention(x, x, tgt_mask))
    x = norms[1](x + cross(x, memory, memory_mask))
    return norms[2](x + feed_forward(x))


# ---- Which form is it? ----

FORMS: dict[str, Callable[[Tensor, Function, Function], Tensor]] = {
    "post-norm": lambda x, f, norm: norm(x + f(x)),
    "pre-norm": lambda x, f, norm: x + f(norm(x)),
    "norm on the branch": lambda x, f, norm: x + norm(f(x)),
    "sandwich": lambda x, f, norm: x + norm(f(norm(x))),
    "added back": lambda x, f, norm: norm(x) + f(norm(x)),
}


class _Block:
    """One of the forms, called as ``block(x, sublayer)``; its norms are new ones."""

    def __init__(self, form: str, d_model: int):
        self.form, self.d_model = form, d_model

    def __call__(self, x: States, sublayer: Function) -> States:
        return FORMS[self.form](x, sublayer, lambda y: F.layer_norm(y, (self.d_model,)))


def _block_cases(random: torch.Generator) -> dict[str, Case]:
    names = ("norm on the branch", "post-norm", "pre-norm", "sandwich", "added back")
    labels = ("values", "another one", "a third one", "a fourth one", "a fifth one")
    return {
        label: Case(_Block(name, 8 + 2 * k), 8 + 2 * k)
        for k, (label, name) in enumerate(zip(labels, names, strict=True))
    } | {"a wide one": Case(_Block("sandwich", 4097), 4097)}


@exercise("residual connections", _block_cases, outputs=("the form",))
def which_form(block: Callable[[Tensor, Function], Tensor], d_model: int) -> str:
    """Three experiments: a sublayer that gives nothing, what it is given, and one twice as loud."""
    x, loud = torch.randn(2, 1, 4, d_model)
    given: list[Tensor] = []

    def nothing(y: Tensor) -> Tensor:
        given.append(y)
        return torch.zeros_like(y)

    free = torch.equal(block(x, nothing), x)
    normalized = not torch.equal(given[0], x)
    once, twice = block(x, lambda y: loud), block(x, lambda y: 2.0 * loud)
    same = torch.allclose(once, twice, atol=1e-3)
    if not free:
        return "added back" if normalized else "post-norm"
    if not normalized:
        return "norm on the branch"
    return "sandwich" if same else "pre-norm"
