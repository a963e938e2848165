"""What the ratings say: who is better, how sure that is, and whether the raters can be trusted."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import krippendorff
import numpy as np
import scipy.stats
from sacrebleu.metrics import BLEU

from transformer_lib.errors import UserError
from transformer_lib.instructor.rating.sheet import DAMAGED, Entry, Key, Kind, Ratings, Sheet

SAMPLES = 2000
ALIKE = 10  # points by which two scores of the same translation may differ
PREFERENCE = {"A": 1.0, "=": 0.0, "B": -1.0}


@dataclass(frozen=True)
class RaterReport:
    """How a rater did on the control items: how many of how many were answered as they should."""

    name: str
    rated: int
    degraded_found: int
    degraded: int
    consistent: int
    repeated: int


@dataclass(frozen=True)
class RatingReport:
    """The first system against the second one, over all raters.

    ``means`` are over sentences: of the share of raters who prefer a system (pairs), or of their
    mean standardized score (single ones). ``difference`` is that of the first minus the second.
    """

    kind: Kind
    systems: tuple[str, str]
    means: tuple[float, float]
    difference: float
    interval: tuple[float, float]
    p_value: float
    alpha: float | None
    bleu_correlation: float | None
    sentences: int
    raters: tuple[RaterReport, ...]

    def as_text(self) -> str:
        """For people."""
        first, second = self.systems
        what = "preferred" if self.kind == "pairwise" else "mean z-score"
        p = f"p = {self.p_value:.3f}" if self.p_value >= 0.001 else "p < 0.001"
        shown = "{:.0%}" if self.kind == "pairwise" else "{:+.2f}"
        lines = [
            f"{self.sentences} sentences, {len(self.raters)} raters",
            f"  {first}: {what} {shown.format(self.means[0])}",
            f"  {second}: {what} {shown.format(self.means[1])}",
            f"  difference {self.difference:+.2f}, 95% from {self.interval[0]:+.2f} to "
            f"{self.interval[1]:+.2f}, {p}",
        ]
        if self.alpha is not None:
            lines.append(f"  agreement (Krippendorff's alpha) {self.alpha:.2f}")
        if self.bleu_correlation is not None:
            lines.append(f"  correlation with sentence BLEU {self.bleu_correlation:+.2f}")
        twice = "the same" if self.kind == "pairwise" else f"within {ALIKE} points"
        for r in self.raters:
            lines.append(
                f"  {r.name}: {r.rated} rated, damaged ones found {r.degraded_found}/{r.degraded}, "
                f"{twice} twice {r.consistent}/{r.repeated}"
            )
        return "\n".join(lines)


def report(
    sheet: Sheet,
    key: Key,
    ratings: Sequence[Ratings],
    seed: int = 1,
) -> RatingReport:
    """Merge the raters.

    The p-value is that of a paired permutation test over sentences: the signs of the sentences'
    differences are drawn by lot. The interval is a bootstrap over sentences.

    Raises:
        UserError: no ratings, two of one rater, or key and sheet do not belong together.
    """
    if not ratings:
        raise UserError("there are no ratings")
    twice = [name for name, n in Counter(r.rater for r in ratings).items() if n > 1]
    if twice:
        raise UserError(f"there are two files of the rater {twice[0]}")
    if key.digest != sheet.digest:
        raise UserError("the key belongs to another sheet")
    values = {r.rater: _values(sheet.kind, key, r) for r in ratings}
    by_sentence: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for judgments in values.values():
        for sentence, both in _by_sentence(sheet.kind, key, judgments).items():
            by_sentence[sentence].append(both)
    if not by_sentence:
        raise UserError("nobody has rated a sentence of both systems")
    sentences = sorted(by_sentence)
    means = np.array([np.mean(by_sentence[sentence], axis=0) for sentence in sentences])
    differences = means[:, 0] - means[:, 1]
    first, second = means.mean(axis=0).tolist()
    return RatingReport(
        kind=sheet.kind,
        systems=key.systems,
        means=(first, second),
        difference=float(differences.mean()),
        interval=_interval(differences, seed),
        p_value=_p_value(differences, seed),
        alpha=_alpha(sheet.kind, list(values.values())),
        bleu_correlation=_with_bleu(sheet, key, sentences, differences),
        sentences=len(sentences),
        raters=tuple(_rater(sheet.kind, key, r) for r in ratings),
    )


def _values(kind: Kind, key: Key, ratings: Ratings) -> dict[str, float]:
    """A number for each regular item: for pairs that of A over B, for single ones its z-score."""
    regular = {
        id: answer for id, answer in ratings.answers.items() if key.entries[id].control == "none"
    }
    if kind == "pairwise":
        return {id: PREFERENCE[str(answer)] for id, answer in regular.items()}
    scores = np.array([float(answer) for answer in regular.values()])
    spread = scores.std(ddof=1) if len(scores) > 1 else 0.0
    if spread == 0.0:
        return dict.fromkeys(regular, 0.0)
    return dict(zip(regular, ((scores - scores.mean()) / spread).tolist(), strict=True))


def _by_sentence(
    kind: Kind, key: Key, values: Mapping[str, float]
) -> dict[int, tuple[float, float]]:
    """What each system gets of one rater, by sentence; only sentences with both."""
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for id, value in values.items():
        entry = key.entries[id]
        if kind == "pairwise":
            a, b = entry.systems
            found[entry.sentence] = {a: float(value > 0), b: float(value < 0)}
        else:
            found[entry.sentence][entry.systems[0]] = value
    first, second = key.systems
    return {s: (got[first], got[second]) for s, got in found.items() if len(got) == 2}


def _p_value(differences: np.ndarray, seed: int) -> float:
    """How often signs drawn by lot give a mean at least as far from zero; exact up to 14 of them.

    Where there is no difference at all it is 1.
    """
    if not differences.any():
        return 1.0
    test = scipy.stats.permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        n_resamples=10 * SAMPLES,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return float(test.pvalue)


def _interval(differences: np.ndarray, seed: int) -> tuple[float, float]:
    """95% of the means of sentences drawn with replacement."""
    if len(differences) < 2:
        return float(differences[0]), float(differences[0])
    found = scipy.stats.bootstrap(
        (differences,),
        np.mean,
        n_resamples=SAMPLES,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def _alpha(kind: Kind, values: Sequence[Mapping[str, float]]) -> float | None:
    """Krippendorff's alpha of the values by item, a mapping for each rater.

    ``None`` where no item has two of them, or all are the same.
    """
    ids = sorted({id for of_rater in values for id in of_rater})
    table = np.array([[of_rater.get(id, math.nan) for id in ids] for of_rater in values])
    both = (~np.isnan(table)).sum(axis=0) > 1
    if not both.any() or len(np.unique(table[:, both][~np.isnan(table[:, both])])) < 2:
        return None
    level: Literal["nominal", "interval"] = "nominal" if kind == "pairwise" else "interval"
    return float(krippendorff.alpha(reliability_data=table, level_of_measurement=level))


def _with_bleu(
    sheet: Sheet,
    key: Key,
    sentences: Sequence[int],
    differences: np.ndarray,
) -> float | None:
    """Correlation of the raters' differences with those of sentence BLEU, if that can be had."""
    text: dict[tuple[int, str], str] = {}
    references: dict[int, list[str]] = {}
    for item in sheet.items:
        entry = key.entries[item.id]
        if entry.control == "none":
            references[entry.sentence] = list(entry.references)
            for system, said in zip(entry.systems, item.texts, strict=True):
                text[entry.sentence, system] = said
    if len(sentences) < 3 or not all(references.values()):
        return None
    metric = BLEU(effective_order=True)

    def score(sentence: int, system: str) -> float:
        return metric.sentence_score(text[sentence, system], references[sentence]).score

    first, second = key.systems
    bleu = np.array([score(s, first) - score(s, second) for s in sentences])
    if bleu.std() == 0.0 or differences.std() == 0.0:
        return None
    return float(np.corrcoef(bleu, differences)[0, 1])


def _rater(kind: Kind, key: Key, ratings: Ratings) -> RaterReport:
    regular: dict[tuple[int, str], str | int] = {}
    for id, answer in ratings.answers.items():
        entry = key.entries[id]
        if entry.control == "none":
            regular[_question(kind, entry)] = _turned(kind, entry, answer)
    found = consistent = degraded = repeated = 0
    for id, answer in ratings.answers.items():
        entry = key.entries[id]
        before = regular.get(_question(kind, entry))
        if entry.control == "degraded":
            if kind == "pairwise":
                degraded += 1
                found += answer == ("A" if entry.systems[1] == DAMAGED else "B")
            elif isinstance(before, int) and isinstance(answer, int):
                degraded += 1
                found += answer < before
        elif entry.control == "repeated" and before is not None:
            repeated += 1
            again = _turned(kind, entry, answer)
            if isinstance(again, int) and isinstance(before, int):
                consistent += abs(again - before) <= ALIKE
            else:
                consistent += again == before
    return RaterReport(
        ratings.rater, len(ratings.answers), int(found), degraded, int(consistent), repeated
    )


def _question(kind: Kind, entry: Entry) -> tuple[int, str]:
    """What was asked, whichever side the systems were on."""
    return entry.sentence, "" if kind == "pairwise" else entry.systems[0]


def _turned(kind: Kind, entry: Entry, answer: str | int) -> str | int:
    """A pair's answer as the system that was preferred."""
    if kind == "direct" or answer == "=":
        return answer
    return entry.systems["AB".index(str(answer))]
