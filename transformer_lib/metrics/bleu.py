"""BLEU and chrF by sacreBLEU, with signatures, and whether a difference is significant."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest


@dataclass(frozen=True)
class MetricScore:
    """A corpus score from 0 to 100 and the signature that says how it was computed.

    Args:
        details: sacreBLEU's own line, of BLEU with each precision and the lengths.
    """

    score: float
    signature: str
    details: str


def ngram_counts(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each run of n tokens occurs: what BLEU is counted from."""
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def _reference_streams(references: Sequence[Sequence[str]]) -> list[Any]:
    """sacreBLEU's form: one list per reference number; None where a sentence has no more."""
    most = max(len(r) for r in references)
    return [[r[i] if i < len(r) else None for r in references] for i in range(most)]


def _check_lengths(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if not hypotheses:
        raise ValueError("there is nothing to score")
    if any(isinstance(several, str) for several in references):  # its letters would be several
        raise ValueError("give each sentence a list of references: [['…'], ['…', '…'], …]")
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, but {len(references)} references")
    if without := [number for number, several in enumerate(references) if not several]:
        raise ValueError(f"sentence {without[0]} (from 0 on) has no reference")


def score(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> MetricScore:
    """Any of sacreBLEU's metrics on the whole corpus.

    Raises:
        ValueError: there is none, or there are not as many hypotheses as (lists of) references.
    """
    _check_lengths(hypotheses, references)
    result = metric.corpus_score(list(hypotheses), _reference_streams(references))
    return MetricScore(result.score, str(metric.get_signature()), str(result))


def bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool = False
) -> MetricScore:
    """sacreBLEU's corpus BLEU (Post 2018): detokenized text, 13a tokens, any number of references.

    Raises:
        ValueError: there are not as many hypotheses as (lists of) references.
    """
    return score(BLEU(lowercase=lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> MetricScore:
    """chrF2 (Popović 2015): F-score of character n-grams.

    Raises:
        ValueError: there are not as many hypotheses as (lists of) references.
    """
    return score(CHRF(), hypotheses, references)


@dataclass(frozen=True)
class PairedDifference:
    """Two systems on one test set.

    Args:
        interval_a, interval_b: half the width of a 95% interval of the resampled scores.
        p_value: how often two equally good systems would be as far apart, in either direction.
    """

    score_a: float
    interval_a: float
    score_b: float
    interval_b: float
    p_value: float
    signature: str


def paired_bootstrap(
    hypotheses_a: Sequence[str],
    hypotheses_b: Sequence[str],
    references: Sequence[Sequence[str]],
    samples: int = 1000,
) -> PairedDifference:
    """Paired bootstrap resampling of BLEU (Koehn 2004), as sacreBLEU does it, with its fixed seed.

    Its p is the share of samples whose absolute difference exceeds the mean of all of them by more
    than the measured one. Of a clear lead that counts one direction, and either system may be
    ahead: ours is twice that. Of a lead of half a standard error it is 0.43 where a two-sided test
    has 0.62; near 0.05 the two agree.

    Raises:
        ValueError: there is none, or there are not as many hypotheses as (lists of) references, or
            no sample is to be drawn.
    """
    if samples < 1:
        raise ValueError(f"samples={samples} is below 1")
    for hypotheses in (hypotheses_a, hypotheses_b):
        _check_lengths(hypotheses, references)
    test = PairedTest(
        [("A", list(hypotheses_a)), ("B", list(hypotheses_b))],
        {"BLEU": BLEU(references=_reference_streams(references))},
        references=None,
        test_type="bs",
        n_samples=samples,
    )
    signatures, scores = test()
    pair: Any = scores["BLEU"]  # its declared type is too wide
    a, b = pair
    # sacreBLEU counts samples that are strictly further apart: none, if there is no difference.
    p_value = 1.0 if a.score == b.score else min(1.0, 2 * b.p_value)
    return PairedDifference(a.score, a.ci, b.score, b.ci, p_value, str(signatures["BLEU"]))
