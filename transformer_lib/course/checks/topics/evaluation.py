"""Exercises on BLEU, chrF, the paired bootstrap and agreement."""

import math
from collections import Counter
from collections.abc import Callable
from functools import wraps

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
        "marks within words": Case(
            [["Kino.", "ist", "heute", "ab", "3,5", "Uhr"]],
            [["Kino", "ist", "heute", "ab", "3,5", "Uhr"]],
        ),
        "the same letters in other words": Case(
            [["ab", "c", "d", "e", "f", "g"]], [["a", "bc", "d", "e", "f", "g"]]
        ),
        "nothing in common": Case([["a", "b", "c", "d", "e"]], [["f", "g", "h", "i"]]),
        "no common run of four": Case([["a", "b", "c", "d", "e"]], [["a", "b", "c", "e", "d"]]),
        "no run of four at all": Case(
            [["a", "b", "c"], ["ein", "Haus"]], [["a", "b", "c"], ["ein", "Haus", "rot"]]
        ),
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


def _counts(words: Tensor, share: float, random: torch.Generator) -> Int[Tensor, "sentences 10"]:
    """What BLEU is made of, of sentences with so many words; longer ones have a larger share."""
    lengths = words + torch.randint(-1, 2, words.shape, generator=random)
    totals = torch.stack([lengths - n for n in range(4)], dim=-1)
    rate = (
        share + 0.3 * (words / words.max() - 0.5) + 0.1 * torch.rand(words.shape, generator=random)
    )
    matches = (rate[:, None] * torch.tensor([1.0, 0.8, 0.6, 0.5]) * totals).ceil().long()
    return torch.cat([matches, totals, lengths[:, None], words[:, None]], dim=-1)


def _count_cases(random: torch.Generator) -> dict[str, Case]:
    def draws(samples: int, sentences: int) -> Int[Tensor, "samples sentences"]:
        return torch.randint(sentences, (samples, sentences), generator=random)

    words = torch.randint(6, 40, (17,), generator=random)
    a, b = (_counts(words, share, random) for share in (0.6, 0.5))
    short, long = (_counts(words, 0.6, random) for _ in range(2))
    short[:, 8], long[:, 8] = words - 2, words + 3
    unmatched = b.clone()
    unmatched[:, 3] = 0
    once = unmatched.clone()
    once[0, 3] = 2  # a draw has a common run of four if it has the first sentence
    with_and_without = draws(20, 17)
    with_and_without[:10] = with_and_without[:10].clamp(min=1)
    with_and_without[10:, 0] = 0
    return {
        "values": Case(a, b, draws(40, 17)),
        "short output": Case(short, b, draws(20, 17)),
        "long output": Case(a, long, draws(20, 17)),
        "as many samples as sentences": Case(a, b, draws(17, 17)),
        "no common run of four": Case(a, unmatched, draws(10, 17)),
        "in some draws none": Case(a, once, with_and_without),
    }


def _in_doubles(answer: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Whole numbers have no precision that would have to be kept."""

    @wraps(answer)
    def use(*arguments: Tensor) -> Tensor:
        found = answer(*arguments)
        return found.double() if isinstance(found, Tensor) else found

    return use


@exercise("evaluation", _count_cases, outputs=("the differences",), tolerance=1e-5, use=_in_doubles)
def bootstrap_bleu(
    counts_a: Int[Tensor, "sentences 10"],
    counts_b: Int[Tensor, "sentences 10"],
    indices: Int[Tensor, "samples sentences"],
) -> Float[Tensor, " samples"]:
    """BLEU of A minus BLEU of B on each sample, from the sums of what was counted in its sentences.

    A row of counts: matches of 1 to 4 words, runs of 1 to 4 words, length of output and reference.
    """

    def bleu(counts: Tensor) -> Tensor:
        total = counts[indices].sum(dim=1).double()
        log_precision = (total[:, :4] / total[:, 4:8]).log().mean(dim=1)
        brevity = (1 - total[:, 9] / total[:, 8]).clamp(max=0)
        return 100 * (log_precision + brevity).exp()

    return bleu(counts_a) - bleu(counts_b)


def _chrf_cases(random: torch.Generator) -> dict[str, Case]:
    def draw(count: int) -> list[str]:
        return [WORDS[i] for i in torch.randint(len(WORDS), (count,), generator=random).tolist()]

    def pairs(sentences: int, dropped: int, added: int) -> tuple[list[str], list[str]]:
        references = [draw(6 + 2 * i) for i in range(sentences)]
        hypotheses = [r[: len(r) - dropped] + draw(added) for r in references]
        for hypothesis in hypotheses:
            hypothesis[1] = hypothesis[1][:-1] + "t"
        return [" ".join(h) for h in hypotheses], [" ".join(r) for r in references]

    return {
        "values": Case(*pairs(4, 1, 1)),
        "short output": Case(*pairs(3, 3, 0)),
        "long output": Case(*pairs(3, 0, 5)),
        "one sentence": Case(*pairs(1, 2, 1)),
        "a word again and again": Case(["das das das das Haus"], ["das Haus ist das rote Haus"]),
        "other spaces": Case(["der  Hund", "ein rotesHaus"], ["derHund", "ein rotes Haus"]),
        "short references": Case(["Ja, das Haus", "Haus"], ["Ja", "das Haus"]),
        "nothing said": Case(["", "der Hund"], ["die", "der rote Hund"]),
        "nothing in common": Case(["abcdefg"], ["tuvwxyz"]),
        "only single characters": Case(["a", "b"], ["a", "c"]),
    }


@exercise("evaluation", _chrf_cases, outputs=("chrF",), tolerance=1e-5)
def chrf(hypotheses: list[str], references: list[str]) -> float:
    """chrF2 from 0 to 100 (Popović 2015), one reference each, as sacreBLEU counts it.

    Runs of 1 to 6 characters, without spaces, counted over all sentences; of a length that is too
    long for a reference, those of its hypothesis do not count. The mean precision and the mean
    recall of the lengths that both sides have make F₂.
    """
    precisions, recalls = [], []
    for n in range(1, 7):
        matches, said, wanted = 0, 0, 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            ours, theirs = _characters(hypothesis, n), _characters(reference, n)
            matches += (ours & theirs).total()
            said += ours.total() if theirs else 0
            wanted += theirs.total()
        if said and wanted:
            precisions.append(matches / said)
            recalls.append(matches / wanted)
    if not sum(precisions):
        return 0.0
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    return 100 * 5 * precision * recall / (4 * precision + recall)


def _characters(text: str, n: int) -> Counter[tuple[str, ...]]:
    return ngram_counts("".join(text.split()), n)


def _judgment_cases(random: torch.Generator) -> dict[str, Case]:
    def two(length: int, kinds: str, same: float) -> tuple[str, str]:
        first = [kinds[i] for i in torch.randint(len(kinds), (length,), generator=random)]
        other = [kinds[i] for i in (torch.randint(3, (length,), generator=random) % len(kinds))]
        keep = torch.rand(length, generator=random) < same
        second = [a if k else b for a, b, k in zip(first, other, keep, strict=True)]
        return "".join(["A", "B", *first]), "".join(["B", "B", *second])

    return {
        "values": Case(*two(40, "AAB=", 0.6)),
        "hardly any agreement": Case(*two(30, "AB=", 0.05)),
        "the same": Case("AAB=B=A", "AAB=B=A"),
        "never the same": Case("AABB", "BBAA"),
        "a kind that one never says": Case("AA==BBA=", "AAAABBAB"),
        "two kinds": Case(*two(25, "AB", 0.5)),
        "other letters": Case("NEENCNECNN", "NECNCNEENE"),
    }


@exercise("evaluation", _judgment_cases, outputs=("kappa",), tolerance=1e-6)
def kappa(first: str, second: str) -> float:
    """Cohen's kappa (1960) of two judges' judgments, a letter each: agreement beyond chance."""
    n = len(first)
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / n
    one, two = Counter(first), Counter(second)
    chance = sum(one[kind] * two[kind] for kind in one) / n**2
    return (observed - chance) / (1 - chance)
