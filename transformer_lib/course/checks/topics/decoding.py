"""Exercises on greedy and beam search and on the key-value cache."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.sandboxed.given import Speaker
from transformer_lib.decoding.search import length_penalty
from transformer_lib.vocabulary import BOS, EOS, PAD, UNK


def _greedy_cases(random: torch.Generator) -> dict[str, Case]:
    def model(length: int, ends: bool = True) -> Speaker:
        sentence = torch.randint(4, 15, (length,), generator=random).tolist()
        return Speaker([*sentence, EOS] if ends else sentence, torch.randn(15, generator=random))

    return {
        "values": Case(model(6), 20),
        "an empty translation": Case(model(0), 20),
        "a model that does not stop": Case(model(60, ends=False), 12),
        "special pieces": Case(
            Speaker([5, UNK, PAD, 7, EOS], torch.randn(15, generator=random)), 20
        ),
    }


@exercise("decoding", _greedy_cases, outputs=("the translation",))
def greedy_decode(
    next_logits: Callable[[list[int]], Float[Tensor, " vocab_size"]], max_len: int
) -> list[int]:
    """The likeliest token again and again, after ``<s>`` until ``</s>`` or ``max_len`` tokens."""
    tokens = [BOS]
    for _ in range(max_len):
        token = int(next_logits(tokens).argmax())
        if token == EOS:
            break
        tokens.append(token)
    return tokens[1:]


def _penalty_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        # 5 + length is no multiple of 6: a division that rounds down shows.
        "values": Case(6 * int(torch.randint(1, 5, (), generator=random)) + 3, 0.6),
        "no penalty": Case(12, 0.0),
    }


exercise("decoding", _penalty_cases, tolerance=1e-6)(length_penalty)


def _choice_cases(random: torch.Generator) -> dict[str, Case]:
    def draw(count: int) -> tuple[Tensor, Tensor]:
        lengths = torch.randperm(2 * count, generator=random)[:count] + 3
        return lengths, torch.rand(count, generator=random)

    def any_quality(count: int, alpha: float) -> Case:
        lengths, quality = draw(count)
        return Case((-(lengths + 1) * (0.25 + quality / 2)).tolist(), lengths.tolist(), alpha)

    def close_call(count: int, alpha: float) -> Case:
        """One of middle length is best by a little; with another penalty a long or a short one."""
        lengths, quality = draw(count)
        rank = lengths.argsort().argsort()
        quality += ((rank < count // 4) | (rank >= count - count // 4)).float()
        penalty = ((5.0 + lengths) / 6.0) ** alpha
        return Case((-penalty * (2.0 + quality / 20)).tolist(), lengths.tolist(), alpha)

    return {
        "values": any_quality(8, 0.6),
        "a close call": close_call(12, 0.6),
        "another α": close_call(15, 1.5),
        "one hypothesis": any_quality(1, 0.6),
    }


@exercise("decoding", _choice_cases, outputs=("the number of the best",))
def best_hypothesis(log_p: list[float], lengths: list[int], alpha: float) -> int:
    """The number of the hypothesis with the highest log-probability / length penalty."""
    return max(range(len(log_p)), key=lambda i: log_p[i] / length_penalty(lengths[i], alpha))


def _continuation_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(hypotheses: int, vocab_size: int) -> tuple[Tensor, Tensor]:
        scores = -3 * torch.rand(hypotheses, generator=random)
        return scores, torch.randn(hypotheses, vocab_size, generator=random).log_softmax(dim=-1)

    return {
        "values": Case(*arguments(3, 9), 3),
        "the first step": Case(*arguments(1, 9), 4),
    }


@exercise("decoding", _continuation_cases, outputs=("scores", "hypotheses", "tokens"))
def best_continuations(
    scores: Float[Tensor, " hypotheses"],
    log_p: Float[Tensor, "hypotheses vocab_size"],
    beam_size: int,
) -> tuple[Float[Tensor, " beam"], Int[Tensor, " beam"], Int[Tensor, " beam"]]:
    """The best ``beam_size`` of all hypotheses, each with one more token; the best one first."""
    best, index = (scores[:, None] + log_p).flatten().topk(beam_size)
    return best, index // log_p.size(1), index % log_p.size(1)


def _cache_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, cached: int, new: int) -> tuple[Tensor, Tensor]:
        return (
            torch.randn(batch, 2, cached, 3, generator=random),
            torch.randn(batch, 2, new, 3, generator=random),
        )

    return {
        "values": Case(*arguments(2, 4, 1)),
        "several at once": Case(*arguments(2, 3, 3)),
        "a batch of one": Case(*arguments(1, 1, 1)),
    }


@exercise("decoding", _cache_cases)
def append_to_cache(
    cached: Float[Tensor, "batch heads length d_k"], new: Float[Tensor, "batch heads new d_k"]
) -> Float[Tensor, "batch heads all d_k"]:
    """The keys (or values) of all positions so far, the new ones last."""
    return torch.cat([cached, new], dim=2)
