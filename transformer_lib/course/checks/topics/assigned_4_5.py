"""Exercises of assignments 4 and 5, which no chapter has: a loss, a search, a score and a test."""

import math
from collections import Counter
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.sandboxed.given import Speakers
from transformer_lib.metrics.bleu import ngram_counts
from transformer_lib.vocabulary import BOS, EOS, PAD, UNK

WORDS = [
    "sie", "er", "es", "ein", "eine", "geht", "läuft", "sieht", "Haus", "haus", "Baum", "schnell",
    "nicht", "und",
]  # fmt: skip


def _among_others_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(tokens: int, vocab_size: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        logits = torch.randn(tokens, vocab_size, generator=random)
        logits[:, PAD] -= 5
        logits[0, PAD] += 15  # likely, though never right: p is over all pieces
        logits *= scale
        labels = torch.randint(1, vocab_size, (tokens,), generator=random)
        labels[-tokens // 4 :] = PAD
        return logits, labels

    logits, labels = arguments(9, 8)
    return {
        "values": Case(*arguments(12, 7), 0.1, gradient=True),
        "no smoothing": Case(*arguments(12, 7), 0.0),
        "large logits": Case(*arguments(9, 6, scale=200.0), 0.1),
        "three pieces": Case(*arguments(8, 3), 0.2),
        "double precision": Case(logits.double(), labels, 0.1),
    }


@exercise("loss", _among_others_cases, tolerance=1e-5)
def smooth_among_others(
    logits: Float[Tensor, "tokens vocab_size"], labels: Int[Tensor, " tokens"], smoothing: float
) -> Float[Tensor, ""]:
    """Mean over real tokens of −Σᵥ q(v)·log p(v): q is 1 − ε, or ε/(V − 2), and 0 for padding."""
    real = labels != PAD
    log_p = logits[real].log_softmax(dim=-1)
    right = log_p.gather(1, labels[real, None])[:, 0]
    others = (log_p.sum(dim=-1) - right - log_p[:, PAD]) / (logits.size(1) - 2)
    return -((1.0 - smoothing) * right + smoothing * others).mean()


def _batch_speaker_cases(random: torch.Generator) -> dict[str, Case]:
    def model(*lengths: int, ends: bool = True) -> Speakers:
        sentences = [
            [*torch.randint(4, 15, (length,), generator=random).tolist(), *[EOS] * ends]
            for length in lengths
        ]
        return Speakers.saying(sentences, torch.randn(15, generator=random))

    special = Speakers.saying([[5, UNK, PAD, 7, EOS], [9, EOS]], torch.randn(15, generator=random))
    return {
        "values": Case(model(6, 2, 4), 3, 20),
        "an empty translation": Case(model(3, 0), 2, 20),
        "a batch of one": Case(model(5), 1, 20),
        "a model that does not stop": Case(model(60, 60, ends=False), 2, 12),
        "one of them does not stop": Case(model(4, 30), 2, 9),
        "special pieces": Case(special, 2, 20),
    }


@exercise("decoding", _batch_speaker_cases, outputs=("the translations",))
def greedy_decode_batch(
    next_logits: Callable[[Int[Tensor, "batch length"]], Float[Tensor, "batch vocab_size"]],
    batch_size: int,
    max_len: int,
) -> list[list[int]]:
    """Greedy search for several sentences at once; each ends at its ``</s>`` or ``max_len``."""
    tokens = torch.full((batch_size, 1), BOS)
    ended = torch.zeros(batch_size, dtype=torch.bool)
    while tokens.size(1) <= max_len and not ended.all():
        best = next_logits(tokens).argmax(dim=-1)
        ended |= best == EOS
        tokens = torch.cat([tokens, best[:, None]], dim=1)
    rows = [[*row, EOS] for row in tokens[:, 1:].tolist()]
    return [row[: row.index(EOS)] for row in rows]


def _several_references_cases(random: torch.Generator) -> dict[str, Case]:
    def draw(count: int) -> list[str]:
        return [WORDS[i] for i in torch.randint(len(WORDS), (count,), generator=random).tolist()]

    def corpus(sentences: int, dropped: int, added: int) -> tuple[list, list]:
        hypotheses, references = [], []
        for number in range(sentences):
            first, second = draw(9 + number), draw(10 + number)
            # One half of each reference; a third one is far off.
            hypothesis = [*first[:6], *second[4 : len(second) - dropped], *draw(added)]
            hypothesis[0] = hypothesis[0].swapcase()
            hypotheses.append([*hypothesis, *hypothesis[1:3]])
            references.append([first, second, draw(4)][: 2 + number % 2])
        return hypotheses, references

    line = draw(12)
    return {
        "values": Case(*corpus(5, 2, 1)),
        "short output": Case([line[:6], line[3:9]], [[line, line[:9]], [line[2:], line[:1]]]),
        "long output": Case(*corpus(4, 0, 5)),
        "a tie of lengths": Case(
            [line[:8], line[:6]], [[line[:10], line[:6]], [line[:8], line[:4]]]
        ),
        "one too short, one too long": Case([line[:6], line[:9]], [[line[:11]], [line[:5]]]),
        "one reference": Case([line[:9]], [[line[:5] + line[6:]]]),
        "short sentences": Case([["ein"], line[:7]], [[["ein"], ["das"]], [line[:6], line[1:7]]]),
        "nothing but short sentences": Case([["ein", "Haus"]], [[["ein", "Haus"], ["Haus"]]]),
        "words that run together": Case(
            [["a", "ba", "c", "d", "e", "f"]], [[["ab", "a", "c", "d", "e", "f"]]]
        ),
        "no common run of four": Case([["a", "b", "c", "d", "e"]], [[["a", "b", "c", "e"], ["e"]]]),
    }


@exercise("evaluation", _several_references_cases, outputs=("BLEU",), tolerance=1e-5)
def multi_bleu(hypotheses: list[list[str]], references: list[list[list[str]]]) -> float:
    """BLEU with one or more references for each sentence (Papineni et al. 2002), from 0 to 100."""
    matches, totals, length, wanted = [0] * 4, [0] * 4, 0, 0
    for hypothesis, several in zip(hypotheses, references, strict=True):
        length += len(hypothesis)
        wanted += min((abs(len(one) - len(hypothesis)), len(one)) for one in several)[1]
        for n in range(1, 5):
            counts, most = ngram_counts(hypothesis, n), Counter[tuple[str, ...]]()
            for one in several:
                most |= ngram_counts(one, n)
            matches[n - 1] += (counts & most).total()
            totals[n - 1] += counts.total()
    if min(matches) == 0:
        return 0.0
    log_precision = sum(math.log(m / t) for m, t in zip(matches, totals, strict=True)) / 4
    return 100.0 * math.exp(log_precision + min(0.0, 1.0 - wanted / length))


def _randomization_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(sentences: int, draws: int, ahead: float) -> tuple[Tensor, Tensor, Tensor]:
        scores_b = torch.rand(sentences, generator=random)
        difference = torch.randn(sentences, generator=random)
        scores_a = scores_b + difference - difference.mean() + ahead
        swapped = torch.rand(draws, sentences, generator=random) < 0.5
        # A third of the draws is one and the same, in which the two are as good as equal; whose
        # exchanges pile up has as many draws without any exchange in its place.
        apart = torch.where(swapped, scores_b - scores_a, scores_a - scores_b).mean(dim=1).abs()
        swapped[: draws // 3] = swapped[apart.argmin()].clone()
        return scores_a, scores_b, swapped

    # Quarters, of which sums are exact: many draws are as far apart as the systems are.
    quarters = torch.tensor([0.5, 0.25, 0.0, 0.75, 0.5, 0.25]), torch.tensor([0.0, 0.25] * 3)
    return {
        "values": Case(*arguments(23, 1000, 0.25)),
        "B is ahead": Case(*arguments(31, 500, -0.2)),
        "never so far apart": Case(*arguments(16, 40, 6.0)),
        "many are as far apart": Case(*quarters, arguments(6, 60, 0.0)[2]),
    }


@exercise("evaluation", _randomization_cases, outputs=("the p-value",), tolerance=1e-6)
def randomization_p_value(
    scores_a: Float[Tensor, " sentences"],
    scores_b: Float[Tensor, " sentences"],
    swapped: Bool[Tensor, "draws sentences"],
) -> float:
    """(c + 1)/(draws + 1): c draws, with some pairs swapped, are as far apart as A and B are."""
    difference = scores_a - scores_b
    apart = torch.where(swapped, -difference, difference).mean(dim=1).abs()
    as_far = (apart >= difference.mean().abs()).sum().item()
    return (as_far + 1) / (len(swapped) + 1)
