"""Exercises on models that came after the paper: GPT-2 and Llama, with their published names."""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.checks.topics.norms import rms_norm
from transformer_lib.course.checks.topics.positions import rotary

Weights = dict[str, Tensor]
EPS = 1e-5  # of the norms of both
OPPOSED = 25.0  # keys against queries: a token's own score is far below zero, where −100 is not −∞
LATER = 100  # where the positions of a sequence begin that is the rest of a longer one


def _matrix(random: torch.Generator, out: int, into: int) -> Float[Tensor, "out into"]:
    return torch.randn(out, into, generator=random) / math.sqrt(into)


def _gated_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(*shape: int, d_ff: int) -> tuple[Tensor, ...]:
        d_model = shape[-1]
        x = 2 * torch.randn(shape, generator=random)
        wide = (_matrix(random, d_ff, d_model) for _ in range(2))
        return x, *wide, _matrix(random, d_model, d_ff)

    x, *rest = arguments(2, 3, 4, d_ff=6)
    return {
        "values": Case(*arguments(2, 4, 6, d_ff=10), gradient=True),
        "as wide inside as outside": Case(*arguments(3, 2, 5, d_ff=5)),
        "one token": Case(*arguments(1, 1, 8, d_ff=12)),
        "gates shut fast": Case(100 * x, *rest, gradient=True),
    }


@exercise("feed-forward", _gated_cases)
def swiglu(
    x: Float[Tensor, "batch length d_model"],
    gate: Float[Tensor, "d_ff d_model"],
    up: Float[Tensor, "d_ff d_model"],
    down: Float[Tensor, "d_model d_ff"],
) -> Float[Tensor, "batch length d_model"]:
    """(SiLU(x·gateᵀ) ⊙ x·upᵀ)·downᵀ, with SiLU(z) = z·σ(z) (Shazeer 2020)."""
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


def _mixed_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(
        *shape: int, experts: int, k: int, d_ff: int = 6, sure: float = 1.0
    ) -> tuple[Any, ...]:
        d_model = shape[-1]
        x = torch.randn(shape, generator=random)
        router = sure * _matrix(random, experts, d_model)
        gate, up = (
            torch.stack([2 * _matrix(random, d_ff, d_model) for _ in range(experts)])
            for _ in range(2)
        )
        down = torch.stack([_matrix(random, d_model, d_ff) for _ in range(experts)])
        return x, router, gate, up, down, k

    return {
        "values": Case(*arguments(2, 5, 4, experts=6, k=2), gradient=True),
        "one expert for each token": Case(*arguments(2, 4, 6, experts=4, k=1)),
        "all experts": Case(*arguments(2, 3, 4, experts=3, k=3)),
        "three of eight": Case(*arguments(1, 7, 5, experts=8, k=3)),
        "one token": Case(*arguments(1, 1, 4, experts=4, k=2)),
        "a router that is sure": Case(*arguments(2, 4, 4, experts=4, k=2, sure=60.0)),
    }


@exercise("feed-forward", _mixed_cases)
def mixture_of_experts(
    x: Float[Tensor, "batch length d_model"],
    router: Float[Tensor, "experts d_model"],
    gate: Float[Tensor, "experts d_ff d_model"],
    up: Float[Tensor, "experts d_ff d_model"],
    down: Float[Tensor, "experts d_model d_ff"],
    k: int,
) -> Float[Tensor, "batch length d_model"]:
    """Σ over the k best experts e of a token: softmax of their k scores, times SwiGLUₑ(x)."""
    scores, chosen = (x @ router.T).topk(k, dim=-1)
    weights = scores.softmax(dim=-1)
    out = torch.zeros_like(x)
    for expert in range(router.size(0)):
        weight = (weights * (chosen == expert)).sum(dim=-1, keepdim=True)
        out = out + weight * swiglu(x, gate[expert], up[expert], down[expert])
    return out


def _block_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(
        length: int, heads: int, groups: int, first: int = 0, batch: int = 2
    ) -> tuple[Tensor, Weights, Tensor, int]:
        d_model, d_k, d_ff = 4 * heads, 4, 14
        weights = {
            "attention_norm": 1 + 0.3 * torch.randn(d_model, generator=random),
            "wq": 2 * _matrix(random, d_model, d_model),
            "wk": 2 * _matrix(random, groups * d_k, d_model),
            "wv": _matrix(random, groups * d_k, d_model),
            "wo": _matrix(random, d_model, d_model),
            "ffn_norm": 1 + 0.3 * torch.randn(d_model, generator=random),
            "w1": _matrix(random, d_ff, d_model),
            "w3": _matrix(random, d_ff, d_model),
            "w2": _matrix(random, d_model, d_ff),
        }
        x = torch.randn(batch, length, d_model, generator=random)
        return x, weights, torch.arange(first, first + length), heads

    x, weights, _, num_heads = arguments(6, heads=4, groups=2)
    opposed = arguments(2, heads=2, groups=2, batch=8)
    small, *others = arguments(4, heads=4, groups=2)
    opposed[1]["wk"] = -OPPOSED * opposed[1]["wq"]
    return {
        "values": Case(*arguments(5, heads=4, groups=2)),
        "a text with gaps": Case(x, weights, torch.tensor([0, 1, 2, 10, 11, 12]), num_heads),
        "numbers near zero": Case(0.005 * small, *others),
        "scores far below zero": Case(*opposed),
        "as many groups as heads": Case(*arguments(4, heads=3, groups=3)),
        "one group": Case(*arguments(4, heads=4, groups=1)),
        "six heads in two groups": Case(*arguments(3, heads=6, groups=2)),
        "the rest of a text": Case(*arguments(4, heads=4, groups=2, first=LATER)),
        "one token": Case(*arguments(1, heads=2, groups=1, batch=1)),
    }


@exercise("layers", _block_cases)
def mended_block(
    x: Float[Tensor, "batch length d_model"],
    weights: Weights,
    position: Int[Tensor, " length"],
    num_heads: int,
) -> Float[Tensor, "batch length d_model"]:
    """A layer of Llama: pre-norm with RMSNorm, rotary, grouped queries, SwiGLU, and no biases."""
    d_k = x.size(-1) // num_heads

    def heads(y: Tensor, name: str) -> Tensor:
        return (y @ weights[name].T).unflatten(-1, (-1, d_k)).transpose(1, 2)

    y = rms_norm(x, weights["attention_norm"], EPS)
    query, key = (rotary(heads(y, name), position) for name in ("wq", "wk"))
    attended = F.scaled_dot_product_attention(
        query, key, heads(y, "wv"), is_causal=True, enable_gqa=True
    )
    x = x + attended.transpose(1, 2).flatten(2) @ weights["wo"].T
    y = rms_norm(x, weights["ffn_norm"], EPS)
    return x + swiglu(y, weights["w1"], weights["w3"], weights["w2"])


def _gpt2(random: torch.Generator, layers: int, d_model: int) -> Weights:
    """Random weights under GPT-2's names, matrices stored as (d_in, d_out)."""

    def vector(size: int, mean: float = 0.0) -> Tensor:
        return mean + 0.3 * torch.randn(size, generator=random)

    weights = {
        "wte.weight": _matrix(random, 17, d_model),
        "wpe.weight": _matrix(random, 9, d_model),
    }
    sizes = {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4), "mlp.c_proj": (4, 1)}
    for layer in range(layers):
        for norm in ("ln_1", "ln_2"):
            weights[f"h.{layer}.{norm}.weight"] = vector(d_model, mean=1.0)
            weights[f"h.{layer}.{norm}.bias"] = vector(d_model)
        for name, (into, out) in sizes.items():
            stored = 1.5 * _matrix(random, out * d_model, into * d_model).T.contiguous()
            weights[f"h.{layer}.{name}.weight"] = stored
            weights[f"h.{layer}.{name}.bias"] = vector(out * d_model)
    weights["ln_f.weight"], weights["ln_f.bias"] = vector(d_model, mean=1.0), vector(d_model)
    return weights


def _gpt2_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, layers: int, heads: int) -> tuple[Tensor, Weights, int]:
        tokens = torch.randint(17, (batch, length), generator=random)
        return tokens, _gpt2(random, layers, 8 * heads), heads

    # Where both forms of GELU are nearly 0, they differ by a percent.
    tokens, weights, heads = arguments(1, 4, layers=1, heads=2)
    weights["h.0.mlp.c_fc.weight"] *= 0.2
    weights["h.0.mlp.c_fc.bias"] -= 2.4
    weights["h.0.mlp.c_proj.weight"] *= 50.0
    opposed = arguments(8, 2, layers=1, heads=2)
    for name in ("weight", "bias"):
        query, key, _ = opposed[1][f"h.0.attn.c_attn.{name}"].chunk(3, dim=-1)
        key.copy_(-OPPOSED * query)
    opposed[1]["h.0.attn.c_proj.weight"] *= 0.1  # as much less rounding of nearly equal scores
    return {
        "values": Case(*arguments(2, 5, layers=2, heads=3)),
        "one layer": Case(*arguments(2, 4, layers=1, heads=2)),
        "one head": Case(*arguments(1, 6, layers=2, heads=1)),
        "one token": Case(*arguments(2, 1, layers=1, heads=2)),
        "as long as the table": Case(*arguments(1, 9, layers=1, heads=2)),
        "hidden units near zero": Case(tokens, weights, heads),
        "scores far below zero": Case(*opposed),
        "eleven layers": Case(*arguments(1, 3, layers=11, heads=1)),
    }


@exercise("the whole model", _gpt2_cases, outputs=("the logits",))
def gpt2_logits(
    tokens: Int[Tensor, "batch length"], weights: Weights, num_heads: int
) -> Float[Tensor, "batch length vocab_size"]:
    """GPT-2 (Radford et al. 2019) from its published weights, without dropout."""

    def norm(x: Tensor, name: str) -> Tensor:
        scale, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return F.layer_norm(x, scale.shape, scale, shift, EPS)

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    x = weights["wte.weight"][tokens] + weights["wpe.weight"][: tokens.size(1)]
    layers = sum(name.endswith("ln_1.weight") for name in weights)
    for layer in (f"h.{number}" for number in range(layers)):
        parts = linear(norm(x, f"{layer}.ln_1"), f"{layer}.attn.c_attn").chunk(3, dim=-1)
        query, key, value = (p.unflatten(-1, (num_heads, -1)).transpose(1, 2) for p in parts)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + linear(attended.transpose(1, 2).flatten(2), f"{layer}.attn.c_proj")
        inner = linear(norm(x, f"{layer}.ln_2"), f"{layer}.mlp.c_fc")
        x = x + linear(F.gelu(inner, approximate="tanh"), f"{layer}.mlp.c_proj")
    return norm(x, "ln_f") @ weights["wte.weight"].T
