"""Exercises on the Transformer as modules with parameters, assembled from the parts before."""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer_lib.course.assembled import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Transformer,
)
from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.checks.topics.attention import mask_of_heads, random_mask
from transformer_lib.course.checks.topics.layers import attention_of, norm_of, sublayer_of
from transformer_lib.course.sandboxed.given import FixedDropout
from transformer_lib.model.masks import Mask, causal_mask, padding_mask
from transformer_lib.model.transformer import TransformerConfig, build_transformer
from transformer_lib.vocabulary import BOS, EOS, PAD

States = Float[Tensor, "batch length d_model"]
Weights = Mapping[str, Tensor]


def fill(module: nn.Module, like: nn.Module) -> nn.Module:
    """Give a module numbers that depend only on the names of its parameters.

    Raises:
        ValueError: its parameters are not called, or not shaped, like those of ``like``, or its
            ``state_dict()`` has more than these.
    """
    expected = {name: tuple(p.shape) for name, p in like.named_parameters()}
    found = dict(module.named_parameters(remove_duplicate=False))
    owners: dict[Tensor, str] = {}
    for name in sorted(found, key=lambda name: name not in expected):  # the right names first
        first = owners.setdefault(found[name], name)
        if first != name and first in expected:
            why = "each layer needs its own" if name in expected else "state_dict() has both names"
            raise ValueError(f"your {name} is your {first} once more: {why}")
    missing = [name for name in expected if name not in found]
    unknown = [name for name in found if name not in expected]
    if missing:
        said = f"your module has no parameter {missing[0]}"
        raise ValueError(said + (f", but one called {unknown[0]}" if unknown else ""))
    if unknown:
        raise ValueError(f"your module has a parameter too many: {unknown[0]}")
    for name, shape in expected.items():
        if tuple(found[name].shape) != shape:
            raise ValueError(f"the shape of your {name} is {tuple(found[name].shape)}, not {shape}")
    for name in module.state_dict():
        if name not in expected:
            raise ValueError(
                f"your buffer {name} is in state_dict(), and in nobody else's weights: register it "
                "with persistent=False"
            )
    for name, parameter in module.named_parameters():
        random = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        numbers = torch.randn(parameter.shape, generator=random)
        scale = parameter.size(-1) ** -0.5 if parameter.dim() > 1 else 0.3
        with torch.no_grad():
            parameter.copy_(numbers * scale + (1.0 if "norm" in name and "weight" in name else 0.0))
    return module


# ---- The feed-forward network ----


def _network_cases(random: torch.Generator) -> dict[str, Case]:
    def x(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    return {
        "values": Case(x(2, 4, 6), 10, gradient=True),
        "a batch of one": Case(x(1, 3, 4), 4),
        "two axes": Case(x(5, 6), 8),
        "large numbers": Case(20 * x(2, 3, 4), 6),
    }


def _use_network(network: Callable[[int, int], nn.Module]) -> Callable[..., Any]:
    def use(x: Float[Tensor, "... d_model"], d_ff: int) -> Float[Tensor, "... d_model"]:
        sizes = x.size(-1), d_ff
        return fill(network(*sizes), FeedForward(*sizes))(x)

    return use


exercise("modules", _network_cases, use=_use_network)(FeedForward)


# ---- Multi-head attention ----


def _heads_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, queries: int, keys: int, d_model: int) -> list[Tensor]:
        shapes = (batch, queries, d_model), (batch, keys, d_model)
        return [torch.randn(shape, generator=random) for shape in shapes]

    return {
        "values": Case(*arguments(2, 4, 5, 12), None, 3, gradient=True),
        "mask": Case(*arguments(2, 4, 5, 12), random_mask((2, 1, 1, 5), random), 3),
        "a batch of one": Case(*arguments(1, 3, 6, 8), random_mask((1, 1, 3, 6), random), 2),
        "as many queries as keys": Case(*arguments(3, 5, 5, 8), None, 2),
        "a mask for each head": Case(*arguments(2, 2, 4, 6), mask_of_heads(3, 2, 4, random), 3),
    }


def _use_heads(module: Callable[[int, int], nn.Module]) -> Callable[..., Any]:
    def use(
        x: Float[Tensor, "batch queries d_model"],
        memory: Float[Tensor, "batch keys d_model"],
        mask: Mask | None,
        num_heads: int,
    ) -> Float[Tensor, "batch queries d_model"]:
        sizes = x.size(-1), num_heads
        return fill(module(*sizes), MultiHeadAttention(*sizes))(x, memory, mask)

    return use


exercise("modules", _heads_cases, use=_use_heads)(MultiHeadAttention)


# ---- The layers ----

LAYER = ("the output", "the names of the parts it was given")


def _encoder_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int) -> tuple[Any, ...]:
        x = torch.randn(batch, length, d_model, generator=random)
        mask = random_mask((batch, 1, 1, length), random)
        parts = attention_of(d_model, random), sublayer_of(d_model, random)
        return x, mask, *parts, *(norm_of(d_model, random) for _ in range(2)), FixedDropout()

    return {
        "values": Case(*arguments(2, 5, 6), gradient=True),
        "a batch of one": Case(*arguments(1, 4, 8)),
    }


def _use_encoder_layer(layer: Callable[..., nn.Module]) -> Callable[..., Any]:
    def use(
        x: States,
        mask: Mask,
        self_attention: nn.Module,
        feed_forward: nn.Module,
        norm1: nn.Module,
        norm2: nn.Module,
        dropout: nn.Module,
    ) -> tuple[States, list[str]]:
        parts = self_attention, feed_forward, norm1, norm2, dropout
        made = layer(*parts)
        return made(x, mask), _names_of(parts, made)

    return use


def _names_of(parts: Iterable[nn.Module], layer: nn.Module) -> list[str]:
    """What a layer calls the parts that it was given; ``other`` is something else."""
    children = dict(layer.named_children())
    given = [name for name, child in children.items() if any(child is part for part in parts)]
    return sorted(given) + ["other"] * (len(children) - len(given))


exercise("modules", _encoder_cases, outputs=LAYER, use=_use_encoder_layer)(EncoderLayer)


def _decoder_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, src_len: int, tgt_len: int, d_model: int) -> tuple[Any, ...]:
        return (
            torch.randn(batch, tgt_len, d_model, generator=random),
            torch.randn(batch, src_len, d_model, generator=random),
            causal_mask(tgt_len),
            random_mask((batch, 1, 1, src_len), random),
            attention_of(d_model, random),
            attention_of(d_model, random),
            sublayer_of(d_model, random),
            *(norm_of(d_model, random) for _ in range(3)),
            FixedDropout(),
        )

    return {
        "values": Case(*arguments(2, 4, 5, 6), gradient=True),
        "a batch of one": Case(*arguments(1, 3, 2, 8)),
        "as long as its source": Case(*arguments(2, 5, 5, 6)),
    }


def _use_decoder_layer(layer: Callable[..., nn.Module]) -> Callable[..., Any]:
    def use(
        x: States,
        memory: Float[Tensor, "batch src_len d_model"],
        tgt_mask: Mask,
        memory_mask: Bool[Tensor, "batch 1 1 src_len"],
        self_attention: nn.Module,
        cross_attention: nn.Module,
        feed_forward: nn.Module,
        norm1: nn.Module,
        norm2: nn.Module,
        norm3: nn.Module,
        dropout: nn.Module,
    ) -> tuple[States, list[str], States]:
        parts = self_attention, cross_attention, feed_forward, norm1, norm2, norm3, dropout
        made = layer(*parts)
        output = made(x, memory, tgt_mask, memory_mask)
        names = _names_of(parts, made)
        return output, names, made(x, 0.5 - memory, tgt_mask, memory_mask)

    return use


exercise(
    "modules",
    _decoder_cases,
    outputs=(*LAYER, "the output for another memory"),
    use=_use_decoder_layer,
)(DecoderLayer)


# ---- The whole model ----

VOCAB_SIZE = 11


def _model_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, src_len: int, tgt_len: int, *sizes: int) -> tuple[Any, ...]:
        src = torch.randint(4, VOCAB_SIZE, (batch, src_len), generator=random)
        src[:, -1] = EOS
        src[1:, -2:] = torch.tensor([EOS, PAD])
        # Without padding: whether a mask hides that of the target too must not matter.
        tgt_input = torch.randint(4, VOCAB_SIZE, (batch, tgt_len), generator=random)
        tgt_input[:, 0] = BOS
        return src, tgt_input, VOCAB_SIZE, *sizes

    return {
        "values": Case(*arguments(3, 6, 4, 8, 12, 2, 2)),
        "a batch of one": Case(*arguments(1, 3, 5, 6, 10, 3, 3)),
        "one layer": Case(*arguments(2, 5, 5, 12, 8, 4, 1)),
    }


def table_starts_well(module: Callable[..., nn.Module], d_model: int, *sizes: int) -> bool:
    """Whether the table of a new model has a standard deviation of about 1/√d_model."""
    table = getattr(module(2000, d_model, *sizes, 1.0), "embed_tokens", None)
    return table is not None and 0.4 < table.weight.square().mean().item() * d_model < 2.0


def _use_transformer(module: Callable[..., nn.Module]) -> Callable[..., Any]:
    def use(
        src: Int[Tensor, "batch src_len"],
        tgt_input: Int[Tensor, "batch tgt_len"],
        vocab_size: int,
        d_model: int,
        d_ff: int,
        num_heads: int,
        num_layers: int,
    ) -> tuple[
        Float[Tensor, "batch tgt_len vocab_size"],
        Float[Tensor, "batch src_len d_model"],
        Float[Tensor, "batch tgt_len vocab_size"],
        bool,
        Float[Tensor, "batch tgt_len vocab_size"],
        Float[Tensor, "batch src_len d_model"],
    ]:
        sizes = vocab_size, d_model, d_ff, num_heads, num_layers
        new = module(*sizes, 1.0)  # all is dropped that can be, in training
        starts_well = table_starts_well(module, d_model, d_ff, num_heads, 1)
        model = fill(new, Transformer(*sizes, 1.0))
        dropped = model.train()(src, tgt_input)
        memory_dropped = model.encode(src)  # type: ignore[operator]
        logits, memory = model.eval()(src, tgt_input), model.encode(src)  # type: ignore[operator]
        model.encode(src.flip(0))  # type: ignore[operator]
        decoded = model.decode(tgt_input, memory, padding_mask(src))  # type: ignore[operator]
        of_words = memory * (src != PAD)[..., None]  # the padding is nobody's business
        return logits, of_words, decoded, starts_well, dropped, memory_dropped

    return use


exercise(
    "modules",
    _model_cases,
    outputs=(
        "the logits",
        "what encode returns",
        "what decode returns",
        "whether the table starts at a standard deviation of 1/√d_model",
        "the logits if dropout drops everything",
        "the memory if dropout drops everything",
    ),
    use=_use_transformer,
)(Transformer)


# ---- Weights of another program ----


def _convert_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(4, 6, 2),
        "three layers": Case(6, 5, 3),
        "one layer": Case(8, 4, 1),
        "eleven": Case(4, 4, 11),
    }


def _use_convert(answer: Callable[[Weights], Weights]) -> Callable[..., Any]:
    def use(d_model: int, d_ff: int, num_layers: int) -> tuple[Weights, bool]:
        sizes = d_model, d_ff, 2, num_layers, num_layers
        config = TransformerConfig("transformer", *sizes, norm="pre")
        state = build_transformer(config, VOCAB_SIZE).state_dict()
        for name, numbers in state.items():
            once = name.replace("src_", "tgt_").replace("output_weight", TABLE)  # one table
            random = torch.Generator().manual_seed(zlib.crc32(once.encode()))
            state[name] = torch.randn(numbers.shape, generator=random)
        before = sorted(state)
        found = answer(state)
        if found is None or found is ...:
            return found
        if not isinstance(found, dict):
            raise TypeError(f"a dictionary is expected, not a {type(found).__name__}")
        return found, sorted(state) == before

    return use


TABLE = "tgt_embedding.embed_tokens.weight"


@exercise(
    "modules",
    _convert_cases,
    outputs=("your dictionary", "whether the given one is left as it was"),
    use=_use_convert,
)
def convert(state: Weights) -> dict[str, Tensor]:
    """The state dictionary of the course's Transformer with the names of the one above."""
    names = {
        "encoder.layers": "encoder_layers",
        "decoder.layers": "decoder_layers",
        "encoder.final_norm": "encoder_norm",
        "decoder.final_norm": "decoder_norm",
        "self_attention_residual.norm": "norm1",
        "cross_attention_residual.norm": "norm2",
    }
    found = {"embed_tokens.weight": state[TABLE]}
    for name, tensor in state.items():
        if not name.startswith(("encoder.", "decoder.")):
            continue
        last = "norm2" if name.startswith("encoder") else "norm3"
        for old, new in {**names, "feed_forward_residual.norm": last}.items():
            name = name.replace(old, new)
        if "qkv_proj" in name:
            for which, part in zip("qkv", tensor.chunk(3), strict=True):
                found[name.replace("qkv", which)] = part
        else:
            found[name] = tensor
    return found


# ---- How many parameters ----


def _count_cases(random: torch.Generator) -> dict[str, Case]:
    layers = int(torch.randint(2, 7, (), generator=random))
    return {
        "values": Case(1000, 64, 200, layers),
        "the paper's base model": Case(37_000, 512, 2048, 6),
        "d_ff as wide as d_model": Case(500, 96, 96, 3),
        "one layer": Case(100, 8, 20, 1),
        "large and odd": Case(150_001, 251, 1003, 7),
    }


@exercise("modules", _count_cases, outputs=("the number of parameters",))
def count_parameters(vocab_size: int, d_model: int, d_ff: int, num_layers: int) -> int:
    """Of :class:`Transformer`: matrices, biases and norms of all layers, one table, two norms."""
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return vocab_size * d_model + num_layers * (encoder_layer + decoder_layer) + 2 * norm
