"""Why is my BLEU not the paper's? What explains how many points, and what cannot be known.

Four things move the number: how it is counted, how the model is searched, how much of the test the
training text knows, and how the model was trained. The first three are measured on the run itself,
the fourth is compared with the recipe.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from pathlib import Path

from tqdm.auto import tqdm

from transformer_lib.data import wmt14
from transformer_lib.data.cleaning import Pair, normalize
from transformer_lib.data.corpora import TestSet
from transformer_lib.data.preparation import clean_pairs, describe
from transformer_lib.errors import UserError
from transformer_lib.evaluation.evaluate import find_test_set
from transformer_lib.experiment.config import Experiment, load_config
from transformer_lib.experiment.run import (
    Run,
    averaged_checkpoints,
    last_weights,
    training_progress,
)
from transformer_lib.metrics.bleu import bleu
from transformer_lib.metrics.conventions import PAPER, every_bleu, paper_bleu
from transformer_lib.model.rnn import RNNConfig
from transformer_lib.progress import progress_is_shown
from transformer_lib.training.metrics import Record, read_metrics

PUBLISHED = {"wmt14_base": 27.3, "wmt14_big": 28.4, "wmt14_rnn": 24.6}
"""BLEU on newstest2014 in the paper's table 2; the RNN is GNMT's single model."""


@dataclass(frozen=True)
class Line:
    """A way to count, or to search, and what it gives."""

    name: str
    score: float | None  # None where it cannot be told
    note: str = ""


@dataclass(frozen=True)
class Difference:
    """A setting in which the run differs from the recipe."""

    setting: str
    here: str
    recipe: str


@dataclass(frozen=True)
class Explanation:
    """Everything that :func:`explain` found out."""

    run: str
    test_set: TestSet
    recipe: str
    counted: list[Line]
    searched: list[Line]
    met: list[Line]
    differences: list[Difference]
    agreeing: list[str]
    cleaning: str
    still_rising: float | None

    def as_text(self) -> str:
        """For people; each score with its distance from the first of its block."""
        name, count = self.test_set.name, len(self.test_set)
        lines = [
            f"Why is my BLEU not the paper's? {self.run} on {name} ({count:,} sentences).",
            f"The paper's way of counting gives {self._paper:.2f} here; {self.recipe} has "
            f"{PUBLISHED[self.recipe]} on newstest2014 in the paper's table 2.",
            *self._block("The same output, counted in every way", self.counted),
            *self._block("The same weights, searched in other ways (13a)", self.searched),
            *self._block("The same output, by what the training text has (13a)", self.met),
            "",
            f"The training, held against {self.recipe}: what one run cannot tell in points",
            *(f"  differs   {d.setting:<30} {d.here}, not {d.recipe}" for d in self.differences),
        ]
        if self.agreeing:
            lines.append("  as there  " + ", ".join(self.agreeing))
        lines.append(f"  cleaning  {self.cleaning}")
        if self.still_rising is not None:
            lines.append(
                f"  BLEU on the validation set changed by {self.still_rising:+.1f} in the last "
                "fifth of training" + ("; it was still rising" if self.still_rising > 0.3 else "")
            )
        if not _is_newstest2014(self.test_set):
            lines.append(f"  {name} is another text: its BLEU says nothing about newstest2014")
        return "\n".join(lines)

    @property
    def _paper(self) -> float:
        return next(line.score or 0.0 for line in self.counted if line.name == PAPER)

    @staticmethod
    def _block(title: str, lines: Sequence[Line]) -> list[str]:
        first, width = lines[0].score or 0.0, max(len(line.name) for line in lines)
        rows = []
        for line in lines:
            row = f"  {line.name:<{width}} "
            if line.score is not None:
                gap = round(line.score - first, 2) + 0.0  # no negative zero
                row += f"{line.score:6.2f}  {gap:+6.2f}   "
            rows.append((row + line.note).rstrip())
        return ["", title, *rows]


def explain(run: Run, test: str = "test", files: Path | None = None) -> Explanation:
    """Score one run's output in every way, search in other ways, compare the training's settings.

    Raises:
        UserError: there is no such test set.
    """
    test_set = find_test_set(run, test, files)
    references = [r[0] for r in test_set.references]
    decoding = run.experiment.decoding
    hypotheses = run.translate(test_set.sources)
    counted = [Line(name, s.score) for name, s in every_bleu(hypotheses, references).items()]
    if _is_newstest2014(test_set):
        counted.append(_filtered(test_set, hypotheses, files))

    def searched(name: str, outputs: list[str]) -> Line:
        return Line(name, bleu(outputs, [[r] for r in references]).score)

    lines = [searched(f"beam {decoding.beam_size}, α = {decoding.alpha:g}", hypotheses)]
    if decoding.beam_size > 1:
        unpenalized = run.translate(test_set.sources, replace(decoding, alpha=0.0))
        lines.append(searched("without a length penalty", unpenalized))
        greedy = run.translate(test_set.sources, replace(decoding, beam_size=1))
        lines.append(searched("greedy", greedy))
    averaged = averaged_checkpoints(run)
    if averaged > 1 and (last := last_weights(run)) is not None:
        lines.append(
            searched("last checkpoint alone, not averaged", last.translate(test_set.sources))
        )

    try:
        pairs = tqdm(
            clean_pairs(run.experiment.data, files), desc="reading what was trained on",
            unit=" pairs", unit_scale=True, disable=not progress_is_shown(),
        )  # fmt: skip
        met = _by_what_was_met(hypotheses, test_set, met_in_training(test_set, pairs))
    except UserError as error:
        met = [Line("the training text", None, f"not at hand: {error}")]

    recipe = _recipe(run.experiment)
    differences, agreeing = _compare(
        run.experiment, load_config(recipe), training_progress(run), averaged
    )
    return Explanation(
        run.experiment.name,
        test_set,
        recipe,
        counted,
        lines,
        met,
        differences,
        agreeing,
        describe(run.info.data_report),
        _change_at_the_end(read_metrics(run.folder)),
    )


def met_in_training(test_set: TestSet, pairs: Iterable[Pair]) -> list[bool]:
    """For each test sentence, whether ``pairs`` have its source, or one of its references.

    A corpus's own test sources are kept out of training. Their references are not, if they also
    translate another sentence; and of a test set in files nothing is.
    """
    sources = [normalize(source) for source in test_set.sources]
    references = [[normalize(r) for r in each] for each in test_set.references]
    wanted_sources, wanted_references = set(sources), set(chain.from_iterable(references))
    met_sources, met_references = set(), set()
    for source, target in pairs:
        if source in wanted_sources:
            met_sources.add(source)
        if target in wanted_references:
            met_references.add(target)
    return [
        source in met_sources or not met_references.isdisjoint(each)
        for source, each in zip(sources, references, strict=True)
    ]


def _by_what_was_met(hypotheses: list[str], test_set: TestSet, met: list[bool]) -> list[Line]:
    lines = []
    for name, rows in (
        ("all sentences", [True] * len(met)),
        ("with a source or a reference that was trained on", met),
        ("with neither", [not each for each in met]),
    ):
        outputs = list(compress(hypotheses, rows))
        right = [r[:1] for r in compress(test_set.references, rows)]
        score = bleu(outputs, right).score if outputs else None
        lines.append(Line(name, score, f"{len(outputs):,} sentences"))
    return lines


def _is_newstest2014(test_set: TestSet) -> bool:
    """By its name, which for files of one's own is that of the first, such as newstest2014.en."""
    return test_set.name.partition(".")[0] == "newstest2014"


def _recipe(experiment: Experiment) -> str:
    if isinstance(experiment.model, RNNConfig):
        return "wmt14_rnn"
    return "wmt14_big" if experiment.model.d_model >= 1024 else "wmt14_base"


def _compare(
    mine: Experiment, recipe: Experiment, last: Record, averaged: int
) -> tuple[list[Difference], list[str]]:
    """Settings that matter for BLEU: as the run turned out, not as it was planned."""
    steps = last["step"]

    def settings(
        experiment: Experiment, steps: int, tokens: int, averaged: int
    ) -> dict[str, object]:
        training, model = experiment.training, experiment.model
        values: dict[str, object] = {
            "training text": experiment.data.corpus,
            "pieces": experiment.data.vocab_size,
            "source tokens a step, at most": training.batch_tokens * training.accumulate,
            "steps": steps,
            "tokens in all (millions)": round(tokens / 1e6),
            "learning-rate schedule": training.schedule,
            "label smoothing": training.label_smoothing,
            "averaged checkpoints": averaged,
            "width": model.d_model,
            "layers": (model.num_encoder_layers, model.num_decoder_layers),
            "dropout": model.dropout,
            "tied embeddings": model.tied_embeddings,
            "beam": experiment.decoding.beam_size,
            "length penalty α": experiment.decoding.alpha,
        }
        if not isinstance(model, RNNConfig):
            values |= {"heads": model.num_heads, "inner width": model.d_ff, "norm": model.norm}
        return values

    assert recipe.training.steps is not None
    full = 2 * recipe.training.steps * recipe.training.batch_tokens * recipe.training.accumulate
    here = settings(mine, steps, last["tokens"], averaged)
    there = settings(recipe, recipe.training.steps, full, recipe.training.average_last)
    agreeing, differences = [], []
    for name, value in here.items():
        same = value == there[name]
        if name.startswith("tokens in all"):  # batches are never quite full
            same = last["tokens"] > 0.8 * full
        if same:
            agreeing.append(name)
        else:
            differences.append(Difference(name, _text(value), _text(there[name])))
    return differences, agreeing


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return " + ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _filtered(test_set: TestSet, hypotheses: list[str], files: Path | None) -> Line:
    """The paper's way on the 2,737 sentences of the shared task, of which older scores are."""
    name = "the paper's way, the 2,737 sentences of 2014"
    try:
        kept = {normalize(s) for s, _ in wmt14.read_archive(wmt14.FILTERED_TEST, files)}
    except UserError as error:
        return Line(name, None, f"not at hand: {error}")
    rows = [i for i, source in enumerate(test_set.sources) if source in kept]
    if not rows:
        return Line(name, None, "no sentence of it is in this test set")
    outputs = [hypotheses[i] for i in rows]
    scores = paper_bleu(outputs, [test_set.references[i][0] for i in rows])
    return Line(name, scores.score, f"{len(rows):,} sentences")


def _change_at_the_end(records: list[Record]) -> float | None:
    """How much validation BLEU changed in the last fifth of the training."""
    validations = [r for r in records if r["kind"] == "validation"]
    if len(validations) < 5:
        return None
    return validations[-1]["bleu"] - validations[-1 - len(validations) // 5]["bleu"]
