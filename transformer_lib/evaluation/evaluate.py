"""Translate a test set and score it."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformer_lib.data.corpora import TestSet, load_corpus, read_test_set
from transformer_lib.decoding.translation import DecodingConfig
from transformer_lib.errors import UserError
from transformer_lib.experiment.run import Hardware, Run, training_progress
from transformer_lib.metrics.bleu import MetricScore, bleu, chrf
from transformer_lib.metrics.conventions import paper_bleu
from transformer_lib.training.cost import flops_by_time


@dataclass(frozen=True)
class Cost:
    """What training took, on all devices. ``transformer_lib.training.cost`` explains the FLOPs."""

    parameters: int
    seconds: float
    tokens: int
    flops_by_parameters: float
    flops_by_time: float


@dataclass(frozen=True)
class Evaluation:
    """One run on one test set."""

    run: str
    test: str
    decoding: DecodingConfig
    hypotheses: list[str]
    bleu: MetricScore
    bleu_one_reference: MetricScore
    bleu_as_in_paper: MetricScore
    chrf: MetricScore
    decoding_seconds: float
    cost: Cost

    def as_dict(self) -> dict[str, Any]:
        """For JSON; without the hypotheses."""
        values = asdict(self)
        del values["hypotheses"]
        return values

    def as_text(self) -> str:
        """For people."""
        several = self.bleu.signature != self.bleu_one_reference.signature
        scores = [("BLEU as in the paper", self.bleu_as_in_paper), ("chrF2", self.chrf)]
        if several:
            scores.insert(0, ("BLEU, all references", self.bleu))
        scores.insert(0, ("BLEU, one reference" if several else "BLEU", self.bleu_one_reference))
        speed = len(self.hypotheses) / self.decoding_seconds
        lines = [f"{self.run} on {self.test} ({len(self.hypotheses):,} sentences)"]
        lines += [f"  {name:<22}{s.score:6.2f}   {s.signature}" for name, s in scores]
        lines += [
            f"  decoding              beam {self.decoding.beam_size}, "
            f"{self.decoding_seconds:.1f} s, {speed:,.0f} sentences/s",
            describe_cost(self.cost),
        ]
        return "\n".join(lines)


def describe_cost(cost: Cost) -> str:
    """What training took, in two lines."""
    return (
        f"  training              {cost.parameters / 1e6:.1f} M parameters, "
        f"{cost.seconds / 60:.1f} min, {cost.tokens / 1e6:.1f} M tokens\n"
        f"  FLOPs                 {cost.flops_by_parameters:.1e} by 6·N·tokens, half by "
        f"half; {cost.flops_by_time:.1e} by time × the device's rate"
    )


def evaluate_run(
    run: Run,
    test: str | TestSet = "test",
    decoding: DecodingConfig | None = None,
    files: Path | None = None,
) -> Evaluation:
    """Translate ``test`` (by its name, see :func:`find_test_set`) and score it."""
    test_set = find_test_set(run, test, files) if isinstance(test, str) else test
    cost = training_cost(run)  # before the work: what cannot be read shows at once
    decoding = decoding or run.experiment.decoding
    started = time.perf_counter()
    hypotheses = run.translate(test_set.sources, decoding)
    seconds = time.perf_counter() - started
    return Evaluation(
        run=run.experiment.name,
        test=test_set.name,
        decoding=decoding,
        hypotheses=hypotheses,
        bleu=bleu(hypotheses, test_set.references),
        bleu_one_reference=bleu(hypotheses, [r[:1] for r in test_set.references]),
        bleu_as_in_paper=paper_bleu(hypotheses, [r[0] for r in test_set.references]),
        chrf=chrf(hypotheses, test_set.references),
        decoding_seconds=seconds,
        cost=cost,
    )


def find_test_set(run: Run, test: str, files: Path | None = None) -> TestSet:
    """The corpus's own ``test`` or ``valid`` set, or two files ``SOURCE,TARGET``.

    Raises:
        UserError: there is no such set.
    """
    source, comma, target = test.partition(",")
    if comma:
        return read_test_set(Path(source).name, Path(source), Path(target))
    if test not in ("test", "valid"):
        raise UserError(f"no test set {test!r}; give test, valid, or SOURCE,TARGET (two files)")
    splits = load_corpus(run.experiment.data, files)  # no need to prepare what is trained on
    return splits.test if test == "test" else splits.valid


def find_common_test_set(run_a: Run, run_b: Run, test: str, files: Path | None = None) -> TestSet:
    """The test set of two runs.

    Raises:
        UserError: there is no such set, or the two have different ones.
    """
    test_set = find_test_set(run_a, test, files)
    if find_test_set(run_b, test, files) != test_set:
        raise UserError(
            f"{run_a.folder} and {run_b.folder} have different {test} sets; "
            "give one for both with --test SOURCE,TARGET"
        )
    return test_set


def training_cost(run: Run) -> Cost:
    """Read from the run's records."""
    last = training_progress(run)
    return Cost(
        parameters=run.info.parameters,
        seconds=last["seconds"],
        tokens=last["tokens"],
        flops_by_parameters=last["flops"],
        flops_by_time=_flops_by_time(last["seconds"], run.info.hardware),
    )


def _flops_by_time(seconds: float, hardware: list[Hardware]) -> float:
    """Of all that a run was trained on, each until the next one took over."""
    used = [part for part in hardware if part.since <= seconds]
    ends = [*(part.since for part in used[1:]), seconds]
    return sum(
        flops_by_time(end - part.since, part.devices, part.flops_per_second)
        for part, end in zip(used, ends, strict=True)
    )
