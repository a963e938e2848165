"""Exercises on BLEU and on the paired bootstrap. Sentences come as lists of tokens."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.metrics.bleu import ngram_counts

WORDS = ["der", "die", "das", "Haus", "haus", "Hund", "hund", "Ein", "ein", "rot", "läuft", "in"]


def _bleu_cases(random: torch.Generator) -> dict[str, Case]:
    def draw(count: int) -> list[str]:
        return [WORDS[i] for i in torch.randint(len(WORDS), (count,), generator=random).tolist()]

    def pairs(sentences: int, dropped: int, added: int) -> tuple[list[list[str]], list[list[str]]]:
        references = [draw(8 + i) for i in range(sentences)]
        hypotheses = []
        for reference in references:
            hypothesis = reference[: len(reference) - dropped] + draw(added)
            hypothesis[0] = hypothesis[0].swapcase()
            hypotheses.append([*hypothesis, *hypothesis[1:3]])
        return hypotheses, references

    return {
        "values": Case(*pairs(5, 1, 1)),
        "short output": Case(*pairs(4, 4, 0)),
        "long output": Case(*pairs(4, 0, 4)),
        "short sentences": Case(
            [["ein"], ["der", "Hund"], ["a", "b", "c", "d", "e"]],
            [["ein", "Haus"], ["der", "rot", "Hund"], ["a", "b", "c", "d"]],
        ),
        "nothing in common": Case([["a", "b", "c", "d", "e"]], [["f", "g", "h", "i"]]),
        "no common run of four": Case([["a", "b", "c", "d", "e"]], [["a", "b", "c", "e", "d"]]),
    }


@exercise("evaluation", _bleu_cases, outputs=("BLEU",), tolerance=1e-5)
def corpus_bleu(hypotheses: list[list[str]], references: list[list[str]]) -> float:
    """BLEU from 0 to 100 (Papineni et al. 2002), one reference each, counts summed over all."""
    matches, totals = [0] * 4, [0] * 4
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(1, 5):
            counts = ngram_counts(hypothesis, n)
            matches[n - 1] += (counts & ngram_counts(reference, n)).total()
            totals[n - 1] += counts.total()
    if min(matches) == 0:
        return 0.0
    log_precision = sum(math.log(m / t) for m, t in zip(matches, totals, strict=True)) / 4
    length, reference_length = sum(map(len, hypotheses)), sum(map(len, references))
    return 100.0 * math.exp(log_precision + min(0.0, 1.0 - reference_length / length))


def _bootstrap_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(sentences: int, samples: int) -> tuple[Tensor, Tensor, Tensor]:
        difficulty = torch.rand(sentences, generator=random)
        scores_a, scores_b = difficulty + 0.3 * torch.rand(2, sentences, generator=random)
        # Nearly equal in the mean, or one of them would win all samples in some draws.
        scores_b += scores_a.mean() - scores_b.mean() + 0.02 * torch.rand(1, generator=random)
        indices = torch.randint(sentences, (2 * samples, sentences), generator=random)
        # In a near draw, rounding decides, and sums may be rounded otherwise than means.
        clear = (scores_a - scores_b).double()[indices].mean(dim=1).abs() > 1e-5
        return scores_a, scores_b, indices[clear][:samples]

    def few(won: int, by: float, lost: int, by_less: float, rest: float) -> Case:
        """Samples of the first sentence, which A wins, or of the second, which A loses."""
        apart = torch.tensor([by, -by_less, rest, rest])
        indices = torch.cat([torch.zeros(won, 4), torch.ones(lost, 4)]).long()
        return Case(apart.clamp(min=0.0), (-apart).clamp(min=0.0), indices)

    won_and_lost = torch.tensor([1.0, 0.0, 1.0, 0.0])  # half of the samples are a draw
    return {
        "values": Case(*arguments(23, 1000)),
        "other sizes": Case(*arguments(31, 1200)),
        "draws": Case(won_and_lost, won_and_lost.flip(0), arguments(4, 50)[2]),
        "few samples won": few(20, 0.5, 30, 0.6, rest=0.4),
        "most samples won": few(30, 0.6, 20, 0.5, rest=-0.4),
        "most samples won by little": few(30, 0.1, 20, 0.6, rest=0.4),
    }


@exercise("evaluation", _bootstrap_cases, outputs=("the share",), tolerance=1e-6)
def bootstrap_wins(
    scores_a: Float[Tensor, " sentences"],
    scores_b: Float[Tensor, " sentences"],
    indices: Int[Tensor, "samples sentences"],
) -> float:
    """In what share of the samples, each drawn with replacement, A's mean is above B's."""
    wins = scores_a[indices].mean(dim=1) > scores_b[indices].mean(dim=1)
    return wins.double().mean().item()
