"""Exercises on language models: what they are compared with, how they are built, run and tuned."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.course.assembled import LanguageModel
from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.checks.same import same
from transformer_lib.course.checks.topics.modules import VOCAB_SIZE, fill, table_starts_well
from transformer_lib.model.masks import causal_mask
from transformer_lib.model.multi_head import merge_heads, split_heads
from transformer_lib.model.positional_encoding import sinusoidal_positions
from transformer_lib.model.scaled_dot_product import attention
from transformer_lib.vocabulary import BOS, EOS, PAD, UNK

Cache = list[tuple[Tensor, Tensor]]

# ---- Bits per character ----


def _bits_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, sharp: float = 2.0) -> tuple[Tensor, Tensor]:
        logits = sharp * torch.randn(batch, length, VOCAB_SIZE, generator=random)
        return logits, torch.randint(4, VOCAB_SIZE, (batch, length), generator=random)

    logits, labels = arguments(3, 5)
    labels[1, 3:], labels[2, 2:] = PAD, PAD
    uniform = torch.zeros(2, 4, VOCAB_SIZE)
    return {
        "values": Case(*arguments(2, 6), 41),
        "padding": Case(logits, labels, 30),
        "one character for each token": Case(*arguments(2, 4), 8),
        "all alike": Case(uniform, arguments(2, 4)[1], 20),
        "large logits": Case(*arguments(1, 3, sharp=200.0), 10),
        "nothing but padding": Case(arguments(1, 3)[0], torch.full((1, 3), PAD), 5),
    }


@exercise("language models", _bits_cases, outputs=("the bits per character",))
def bits_per_character(
    logits: Float[Tensor, "batch length vocab_size"],
    labels: Int[Tensor, "batch length"],
    characters: int,
) -> float:
    """−Σ log₂ p(label) over all labels that are no padding, divided by the characters."""
    flat = logits.flatten(0, 1), labels.flatten()
    nats = F.cross_entropy(*flat, ignore_index=PAD, reduction="sum")
    return nats.item() / math.log(2) / characters


# ---- Counting ----


def _counted_cases(random: torch.Generator) -> dict[str, Case]:
    def text(length: int, vocab_size: int) -> Tensor:
        frequency = 1.0 / torch.arange(1, vocab_size + 1)
        return torch.multinomial(frequency, length, replacement=True, generator=random)

    favorite = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 4, 3, 5, 3, 6, 3, 0])
    return {
        "values": Case(text(60, 7), 7, 0.75),
        "a token that is never read": Case(text(30, 4), 6, 0.5),
        "a token that follows only one other": Case(favorite, 7, 0.75),
        "the last token occurs only there": Case(torch.tensor([0, 1, 2, 1, 0, 1, 3]), 4, 0.5),
        "another discount": Case(text(50, 5), 5, 0.1),
        "two tokens": Case(torch.tensor([0, 1]), 2, 0.75),
    }


def _use_counted(answer: Callable[..., Any]) -> Callable[..., Any]:
    """A table in double precision is as good."""

    def use(
        tokens: Int[Tensor, " length"], vocab_size: int, discount: float
    ) -> Float[Tensor, "token next_token"]:
        found = answer(tokens, vocab_size, discount)
        return found.float() if isinstance(found, Tensor) and found.is_floating_point() else found

    return use


@exercise(
    "language models",
    _counted_cases,
    tolerance=1e-5,
    outputs=("the probabilities",),
    use=_use_counted,
)
def kneser_ney(
    tokens: Int[Tensor, " length"], vocab_size: int, discount: float
) -> Float[Tensor, "token next_token"]:
    """Interpolated Kneser–Ney with pairs (Chen and Goodman 1999), above it the uniform one."""
    counts = torch.zeros(vocab_size, vocab_size)
    counts.index_put_((tokens[:-1], tokens[1:]), torch.ones(len(tokens) - 1), accumulate=True)

    def discounted(counts: Tensor, lower: Tensor) -> Tensor:
        total = counts.sum(dim=-1, keepdim=True)
        kinds = (counts > 0).sum(dim=-1, keepdim=True)
        kept = (counts - discount).clamp(min=0.0)
        return torch.where(total > 0, (kept + discount * kinds * lower) / total, lower)

    before = (counts > 0).sum(dim=0).float()
    uniform = torch.full((vocab_size,), 1 / vocab_size)
    return discounted(counts, discounted(before, uniform))


# ---- The model ----


def _model_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, *sizes: int) -> tuple[Any, ...]:
        tokens = torch.randint(4, VOCAB_SIZE, (batch, length), generator=random)
        tokens[:, 0] = BOS
        return tokens, VOCAB_SIZE, *sizes

    return {
        "values": Case(*arguments(3, 6, 8, 12, 2, 2)),
        "a batch of one": Case(*arguments(1, 5, 6, 10, 3, 3)),
        "one layer": Case(*arguments(2, 5, 12, 8, 4, 1)),
        "one token": Case(*arguments(2, 1, 8, 12, 2, 2)),
        "a long text": Case(*arguments(1, 300, 8, 12, 2, 1)),
    }


def _use_model(module: Callable[..., nn.Module]) -> Callable[..., Any]:
    def use(
        tokens: Int[Tensor, "batch length"],
        vocab_size: int,
        d_model: int,
        d_ff: int,
        num_heads: int,
        num_layers: int,
    ) -> tuple[
        Float[Tensor, "batch length vocab_size"],
        bool,
        Float[Tensor, "batch length vocab_size"],
        Float[Tensor, "token d_model"],
    ]:
        sizes = vocab_size, d_model, d_ff, num_heads, num_layers
        new = module(*sizes, 1.0)  # all is dropped that can be, in training
        starts_well = table_starts_well(module, d_model, d_ff, num_heads, 1)
        model = fill(new, LanguageModel(*sizes, 1.0))
        dropped = model.train()(tokens)
        logits = model.eval()(tokens)
        table = model.get_parameter("embed_tokens.weight")
        if not logits.requires_grad:
            return logits, starts_well, dropped, torch.zeros_like(table)
        (gradient,) = torch.autograd.grad(logits.square().mean(), table)
        return logits, starts_well, dropped, gradient

    return use


exercise(
    "language models",
    _model_cases,
    outputs=(
        "the logits",
        "whether the table starts at a standard deviation of 1/√d_model",
        "the logits if dropout drops everything",
        "the gradient of the table",
    ),
    use=_use_model,
)(LanguageModel)


# ---- Its text ----


def _block_cases(random: torch.Generator) -> dict[str, Case]:
    def text(length: int) -> Tensor:
        return torch.randint(2, 100, (length,), generator=random)

    return {
        "values": Case(text(23), 5),
        "a block too short at the end": Case(text(20), 6),
        "no token too many": Case(text(13), 4),
        "one token short of a block": Case(text(12), 4),
        "one block": Case(text(8), 7),
        "blocks of one": Case(text(5), 1),
    }


@exercise("language models", _block_cases, outputs=("the inputs", "the labels"))
def blocks(
    tokens: Int[Tensor, " tokens"], length: int
) -> tuple[Int[Tensor, "blocks length"], Int[Tensor, "blocks length"]]:
    """The text in rows one after the other, and for each of their tokens the one that follows."""
    whole = (len(tokens) - 1) // length * length
    return tokens[:whole].view(-1, length), tokens[1 : whole + 1].view(-1, length)


# ---- With a cache ----


def _cached_cases(random: torch.Generator) -> dict[str, Case]:
    def case(lengths: tuple[int, ...], batch: int = 2, heads: int = 2, layers: int = 2) -> Case:
        chunks = [torch.randint(4, VOCAB_SIZE, (batch, n), generator=random) for n in lengths]
        return Case(chunks, 4 * heads, heads, layers)

    return {
        "values": case((4, 1, 1)),
        "a prompt alone": case((5,)),
        "one token at a time": case((1, 1, 1, 1)),
        "several tokens after the prompt": case((3, 4)),
        "a batch of one": case((2, 1), batch=1),
        "one layer, three heads": case((3, 2, 1), heads=3, layers=1),
        "three layers": case((2, 1), layers=3),
    }


def _use_cached(answer: Callable[..., Any]) -> Callable[..., Any]:
    def use(
        chunks: list[Tensor], d_model: int, num_heads: int, num_layers: int
    ) -> tuple[
        Float[Tensor, "batch length vocab_size"],
        Float[Tensor, "layer batch heads keys d_k"],
        Float[Tensor, "layer batch heads keys d_k"],
        bool,
        Float[Tensor, "batch last vocab_size"],
    ]:
        sizes = VOCAB_SIZE, d_model, 12, num_heads, num_layers
        model = fill(LanguageModel(*sizes, 0.0), LanguageModel(*sizes, 0.0)).eval()
        cache: Any = []
        found, is_left = [], True
        with torch.no_grad():
            for chunk in chunks:
                before, as_it_was = cache, copy.deepcopy(cache)
                result = answer(model, chunk, cache)
                if result is None or result is ...:
                    return result  # type: ignore[return-value]
                if not isinstance(result, tuple) or len(result) != 2:
                    raise TypeError("return two things: the logits, and the new cache")
                logits, cache = result
                found.append(logits)
                is_left = is_left and same(as_it_was, before, 0.0)
            others = VOCAB_SIZE + 3 - chunks[-1]
            again, _ = answer(model, others, before)
        if not isinstance(cache, list | tuple) or any(len(layer) != 2 for layer in cache):
            raise TypeError("the cache is a list with a pair for each layer: keys, values")
        keys, values = (torch.stack(list(parts)) for parts in zip(*cache, strict=True))
        return torch.cat(found, dim=1), keys, values, is_left, again

    return use


@exercise(
    "language models",
    _cached_cases,
    outputs=(
        "the logits",
        "the keys in the cache",
        "the values in the cache",
        "whether the given cache is left as it was",
        "the logits of other tokens after the same cache",
    ),
    use=_use_cached,
)
def cached_logits(
    model: LanguageModel, tokens: Int[Tensor, "batch length"], cache: Cache
) -> tuple[Float[Tensor, "batch length vocab_size"], Cache]:
    """The logits of these tokens after those of the cache, and a cache with all of them."""
    start = cache[0][0].size(2) if cache else 0
    end = start + tokens.size(1)
    d_model = model.embed_tokens.embedding_dim
    x = model.embed_tokens(tokens) * math.sqrt(d_model)
    x = x + sinusoidal_positions(end, d_model)[start:]
    mask = causal_mask(end)[:, :, start:]
    new = []
    layer: Any
    for number, layer in enumerate(model.layers):
        part, y = layer.self_attention, layer.norm1(x)
        projections = (part.q_proj(y), part.k_proj(y), part.v_proj(y))
        query, key, value = (split_heads(p, part.num_heads) for p in projections)
        if cache:
            key, value = (
                torch.cat(pair, dim=2) for pair in zip(cache[number], (key, value), strict=True)
            )
        new.append((key, value))
        attended, _ = attention(query, key, value, mask)
        x = x + part.out_proj(merge_heads(attended))
        x = x + layer.feed_forward(layer.norm2(x))
    return model.norm(x) @ model.embed_tokens.weight.T, new


# ---- Only the answer counts ----


def _answer_cases(random: torch.Generator) -> dict[str, Case]:
    def rows(*lengths: tuple[int, int]) -> Tensor:
        """Each row: </s>, a prompt of so many tokens, <s>, an answer of so many, </s>, padding."""
        table = torch.full((len(lengths), 3 + max(map(sum, lengths))), PAD)
        for row, (prompt, answer) in zip(table, lengths, strict=True):
            words = torch.randint(4, VOCAB_SIZE, (prompt + answer,), generator=random).tolist()
            whole = [EOS, *words[:prompt], BOS, *words[prompt:], EOS]
            row[: len(whole)] = torch.tensor(whole)
        return table

    return {
        "values": Case(rows((3, 2), (2, 4), (1, 1))),
        "one row": Case(rows((4, 3))),
        "prompts of one length": Case(rows((2, 3), (2, 3))),
        "an empty answer": Case(rows((3, 0), (1, 2))),
        "an empty prompt": Case(rows((0, 2), (2, 2))),
        "an unknown word in the answer": Case(
            rows((2, 3), (1, 3)).index_fill(1, torch.tensor([5]), UNK)
        ),
    }


@exercise("language models", _answer_cases, outputs=("the inputs", "the labels"))
def answer_labels(
    rows: Int[Tensor, "batch length"],
) -> tuple[Int[Tensor, "batch length-1"], Int[Tensor, "batch length-1"]]:
    """All tokens but the last, and as labels the ones that follow, ``PAD`` up to and with <s>."""
    inputs, labels = rows[:, :-1], rows[:, 1:]
    in_answer = (inputs == BOS).cumsum(dim=1) > 0
    return inputs, labels.masked_fill(~in_answer, PAD)


# ---- Few parameters ----


class LoRA(nn.Module):
    """W·x + b + scale·B·A·x with W and b as they were, and B = 0 at first (Hu et al. 2021)."""

    def __init__(self, linear: nn.Linear, rank: int, scale: float):
        super().__init__()
        self.linear: nn.Linear = linear.requires_grad_(False)
        self.scale = scale
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: Float[Tensor, "... d_in"]) -> Float[Tensor, "... d_out"]:
        return self.linear(x) + self.scale * (x @ self.down.T @ self.up.T)


def _low_rank_cases(random: torch.Generator) -> dict[str, Case]:
    def x(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    return {
        "values": Case(x(2, 4, 6), 8, 2, 0.5, True, gradient=True),
        "a square matrix": Case(x(3, 5), 5, 2, 2.0, True),
        "rank one": Case(x(1, 3, 4), 7, 1, 1.0, True),
        "a batch of one": Case(x(1, 6), 4, 3, 4.0, True),
        "a layer without a bias": Case(x(2, 6), 5, 2, 2.0, False),
    }


def _size(down: Tensor) -> str:
    """How the standard deviation of its many numbers compares with what it should be."""
    right = down.std().item() * down.size(1) ** 0.5
    return "1/√d_in" if 0.8 < right < 1.25 else "larger" if right > 1 else "smaller"


def _use_low_rank(module: Callable[..., nn.Module]) -> Callable[..., Any]:
    def use(
        x: Float[Tensor, "... d_in"], d_out: int, rank: int, scale: float, bias: bool
    ) -> tuple[
        Float[Tensor, "... d_out"], list[str], list[str], bool, bool, Float[Tensor, "... d_out"]
    ]:
        def linear() -> nn.Linear:
            layer = nn.Linear(x.size(-1), d_out, bias)
            fill(layer, nn.Linear(x.size(-1), d_out, bias))
            return layer

        filled = fill(module(linear(), rank, scale), LoRA(linear(), rank, scale))(x)
        new = module(linear(), rank, scale)
        at_first = new(x)
        learned = sorted(name for name, p in new.named_parameters() if p.requires_grad)
        is_zero = [bool((new.get_parameter(name) == 0).all()) for name in ("down", "up")]
        sizes = [
            _size(module(nn.Linear(100, outputs), 50, scale).get_parameter("down"))
            for outputs in (4, 100)
        ]
        return at_first, learned, sizes, *is_zero, filled

    return use


exercise(
    "language models",
    _low_rank_cases,
    outputs=(
        "what it gives before any step",
        "the names of what is trained",
        "the standard deviation of down at first, with 100 inputs and 4 or 100 outputs",
        "whether all of down is 0 at first",
        "whether all of up is 0 at first",
        "what it gives with other numbers in it",
    ),
    use=_use_low_rank,
)(LoRA)
