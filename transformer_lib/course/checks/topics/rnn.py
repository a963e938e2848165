"""Exercises on attention as an LSTM asks for it, with the matrices as they are in the papers."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case, gradients_of
from transformer_lib.course.checks.topics.attention import in_steps, random_mask
from transformer_lib.course.sandboxed.given import Embed, Step
from transformer_lib.vocabulary import BOS


def _lstm_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, d_x: int, d_h: int, scale: float = 1.0) -> tuple[Tensor, ...]:
        shapes = [(batch, d_x), (batch, d_h), (batch, d_h)]
        weights = [(4 * d_h, d_x), (4 * d_h, d_h), (4 * d_h,)]
        x, h, c = (scale * torch.randn(shape, generator=random) for shape in shapes)
        return x, h.tanh(), c, *(torch.randn(shape, generator=random) for shape in weights)

    return {
        "values": Case(*arguments(3, 5, 4), gradient=True),
        "x as wide as h": Case(*arguments(2, 4, 4)),
        "a batch of one": Case(*arguments(1, 3, 6)),
        "large inputs": Case(*arguments(2, 4, 3, scale=90.0)),  # an exponential is too large
    }


@exercise("LSTM", _lstm_cases, outputs=("h", "c"))
def lstm_step(
    x: Float[Tensor, "batch d_x"],
    h: Float[Tensor, "batch d_h"],
    c: Float[Tensor, "batch d_h"],
    w: Float[Tensor, "gates d_x"],
    u: Float[Tensor, "gates d_h"],
    b: Float[Tensor, " gates"],
) -> tuple[Float[Tensor, "batch d_h"], Float[Tensor, "batch d_h"]]:
    """The gates i, f, g, o from W·x + U·h + b; c′ = f·c + i·g and h′ = o·tanh(c′)."""
    i, f, g, o = (x @ w.T + h @ u.T + b).chunk(4, dim=1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _seq2seq_cases(random: torch.Generator) -> dict[str, Case]:
    def matrix(*shape: int) -> Tensor:
        return 0.7 * torch.randn(shape, generator=random)

    def arguments(
        batch: int, src_len: int, tgt_len: int, d: int, vocab_size: int = 9
    ) -> tuple[Any, ...]:
        src = torch.randint(4, vocab_size, (batch, src_len), generator=random)
        tgt_input = torch.randint(4, vocab_size, (batch, tgt_len), generator=random)
        tgt_input[:, 0] = BOS
        encoder, decoder = Step(matrix(d, d), matrix(d, d)), Step(matrix(d, d), matrix(d, d))
        return src, tgt_input, Embed(matrix(vocab_size, d)), encoder, decoder, matrix(d, vocab_size)

    return {
        "values": Case(*arguments(2, 4, 3, 5)),
        "one token on each side": Case(*arguments(2, 1, 1, 4)),
        "a longer target": Case(*arguments(1, 3, 6, 4)),
        "as long as each other": Case(*arguments(3, 4, 4, 6)),
    }


def _use_seq2seq(answer: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(answer)
    def use(
        src: Int[Tensor, "batch src_len"],
        tgt_input: Int[Tensor, "batch tgt_len"],
        embed: Embed,
        encoder_step: Step,
        decoder_step: Step,
        w_out: Float[Tensor, "d_model vocab_size"],
    ) -> tuple[Float[Tensor, "batch tgt_len vocab_size"], Float[Tensor, "vocab_size d_model"]]:
        (table,) = embed.fields
        embed.fields = (table.clone().requires_grad_(),)
        logits = answer(src, tgt_input, embed, encoder_step, decoder_step, w_out)
        return logits, *gradients_of(logits, embed.fields)

    return use


@exercise(
    "LSTM",
    _seq2seq_cases,
    outputs=("logits", "the gradient of the embeddings"),
    use=_use_seq2seq,
)
def seq2seq(
    src: Int[Tensor, "batch src_len"],
    tgt_input: Int[Tensor, "batch tgt_len"],
    embed: Callable[[Tensor], Tensor],
    encoder_step: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    decoder_step: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    w_out: Float[Tensor, "d_model vocab_size"],
) -> Float[Tensor, "batch tgt_len vocab_size"]:
    """The encoder leaves h and c to the decoder, whose every step gives a row of logits."""
    h = c = torch.zeros(len(src), w_out.size(0))
    for x in embed(src).unbind(dim=1):
        h, c = encoder_step(x, h, c)
    states = []
    for y in embed(tgt_input).unbind(dim=1):
        h, c = decoder_step(y, h, c)
        states.append(h)
    return torch.stack(states, dim=1) @ w_out


def _luong_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, queries: int, keys: int, d_model: int) -> tuple[Tensor, ...]:
        shapes = (batch, queries, d_model), (batch, keys, d_model), (d_model, d_model)
        query, memory, weight = (torch.randn(shape, generator=random) for shape in shapes)
        return query, memory, 0.5 * weight, random_mask((batch, keys), random)

    query, memory, weight, mask = arguments(2, 3, 4, 5)
    memory[:, -1] = 4 * memory[:, 0]  # padding that is far ahead of all words
    # Queries opposite to all keys: what is to hide padding has to lie below such scores, too.
    against, keys = (0.5 + x.abs() for x in arguments(2, 3, 4, 5)[:2])
    return {
        "values": Case(*arguments(2, 3, 5, 4), gradient=True),
        "large scores": Case(*map(in_steps, (30 * query, memory, weight)), mask),
        "very negative scores": Case(-40 * against, keys, torch.eye(5), mask),
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
    def arguments(
        batch: int, queries: int, keys: int, d_model: int, hidden: int
    ) -> tuple[Tensor, ...]:
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
