"""Exercises on what attention looks at, what a head adds, and where a model keeps what it knows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.model.scaled_dot_product import attention


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


def _silent_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, heads: int, queries: int, keys: int) -> list[Tensor]:
        shapes = (queries, 6), (keys, 6), (keys, 6)
        return [torch.randn(batch, heads, *shape, generator=random) for shape in shapes]

    mask = torch.rand(2, 1, 3, 5, generator=random) < 0.6
    mask[..., 0] = True
    return {
        "values": Case(*arguments(2, 4, 3, 5), mask, [2, 4], gradient=True),
        "one of three heads": Case(*arguments(3, 3, 4, 4), None, [1]),
        "the last one": Case(*arguments(1, 5, 2, 6), None, [5]),
        "none of them": Case(*arguments(2, 4, 3, 3), None, []),
        "all of them": Case(*arguments(2, 2, 3, 3), None, [1, 2]),
        "double precision": Case(*(x.double() for x in arguments(1, 3, 2, 4)), None, [2]),
    }


@exercise("interpretation", _silent_cases)
def attention_without(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    mask: Bool[Tensor, "batch 1 queries keys"] | None,
    switched_off: list[int],
) -> Float[Tensor, "batch heads queries d_v"]:
    """The output of attention, zero for the heads of these numbers, which begin with 1."""
    output, _ = attention(query, key, value, mask)
    kept = torch.ones(query.size(1), dtype=output.dtype)
    kept[[number - 1 for number in switched_off]] = 0.0
    return output * kept[:, None, None]


def _contribution_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(heads: int, queries: int, keys: int, d_k: int) -> tuple[Tensor, Tensor, Tensor]:
        value = torch.randn(heads, keys, d_k, generator=random)
        projection = torch.randn(heads * d_k, heads * d_k, generator=random) / d_k**0.5
        return _weights(random, heads, queries, keys), value, projection

    return {
        "values": Case(*arguments(4, 3, 5, 6)),
        "as many queries as keys": Case(*arguments(2, 4, 4, 3)),
        "one head": Case(*arguments(1, 3, 4, 5)),
        "one query": Case(*arguments(3, 1, 6, 4)),
    }


@exercise("interpretation", _contribution_cases)
def contribution_norms(
    weights: Float[Tensor, "heads queries keys"],
    value: Float[Tensor, "heads keys d_k"],
    output_weight: Float[Tensor, "d_model d_model"],
) -> Float[Tensor, "queries keys"]:
    """Lengths of what each key adds to each query's output, all heads together.

    The norm of Σ_h w_h(q, k) · v_h(k) W_h^O, as Kobayashi et al. (2020) measure it, with
    ``output_weight`` in PyTorch's form, (d_out, d_in).
    """
    heads, _, d_k = value.shape
    per_head = output_weight.view(-1, heads, d_k)
    return torch.einsum("hqk,hkd,ohd->qko", weights, value, per_head).norm(dim=-1)


@dataclass
class _Lookup:
    """Tokens become vectors."""

    table: Tensor

    def __call__(self, tokens: Int[Tensor, " length"]) -> Float[Tensor, "length d_model"]:
        return self.table[tokens]


@dataclass
class _Mix:
    """A layer: each position gets something of the others."""

    mixing: Tensor
    matrix: Tensor

    def __call__(self, x: Float[Tensor, "length d_model"]) -> Float[Tensor, "length d_model"]:
        return x + (self.mixing @ x @ self.matrix).tanh()


@dataclass
class _Read:
    """From the last states to the logits of the next token."""

    weights: Tensor
    table: Tensor

    def __call__(self, x: Float[Tensor, "length d_model"]) -> Float[Tensor, " vocab_size"]:
        return (self.weights @ x).tanh() @ self.table.T


def _patch_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(length: int, layers: int, changed: list[int], d: int = 5) -> tuple:
        table = torch.randn(12, d, generator=random)
        mixes = [
            _Mix(_weights(random, length, length), torch.randn(d, d, generator=random))
            for _ in range(layers)
        ]
        read = _Read(_weights(random, length), torch.randn(12, d, generator=random))
        clean = torch.randperm(12, generator=random)[:length]
        other = clean.clone()
        other[changed] = torch.tensor([t for t in range(12) if t not in clean])[: len(changed)]
        logits = [_run(mixes, read, table[tokens]) for tokens in (clean, other)]
        apart = logits[0].log_softmax(dim=-1) - logits[1].log_softmax(dim=-1)
        return _Lookup(table), mixes, read, clean, other, int(apart.argmax()), int(apart.argmin())

    return {
        "values": Case(*arguments(5, 2, [1])),
        "three layers": Case(*arguments(4, 3, [0])),
        "two tokens differ": Case(*arguments(6, 2, [2, 3])),
        "no layers": Case(*arguments(4, 0, [2])),
    }


def _run(layers: Sequence[Callable], read: Callable, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return read(x)


@exercise("interpretation", _patch_cases, outputs=("the effects",), tolerance=1e-3)
def patch_effects(
    embed: Callable[[Tensor], Tensor],
    layers: list[Callable[[Tensor], Tensor]],
    read: Callable[[Tensor], Tensor],
    clean: Int[Tensor, " length"],
    other: Int[Tensor, " length"],
    token: int,
    rival: int,
) -> Float[Tensor, "states length"]:
    """Activation patching: how much of the other sentence's answer one of its states brings.

    Row 0 are the embeddings, row l the states after l layers. In each field the state of ``other``
    takes the place of that of ``clean``, and what comes after it is computed anew. 0: the answer
    stays; 1: it is that of ``other``. The answer is ln p of ``token`` minus ln p of ``rival``.
    """

    def states(tokens: Tensor) -> list[Tensor]:
        found = [embed(tokens)]
        for layer in layers:
            found.append(layer(found[-1]))
        return found

    def answer(x: Tensor, done: int) -> Tensor:
        log_p = _run(layers[done:], read, x).log_softmax(dim=-1)
        return log_p[token] - log_p[rival]

    ours, theirs = states(clean), states(other)
    before, after = answer(ours[0], 0), answer(theirs[0], 0)
    effects = torch.empty(len(ours), len(clean))
    for done, (own, foreign) in enumerate(zip(ours, theirs, strict=True)):
        for position in range(len(clean)):
            patched = own.clone()
            patched[position] = foreign[position]
            effects[done, position] = (answer(patched, done) - before) / (after - before)
    return effects
