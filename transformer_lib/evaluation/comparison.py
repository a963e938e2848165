"""Two systems side by side: scores, significance, cost, curves, examples; as text and as HTML."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from transformer_lib.data.corpora import TestSet
from transformer_lib.evaluation.alignment import cross_attention
from transformer_lib.evaluation.evaluate import Evaluation, evaluate_run, find_common_test_set
from transformer_lib.experiment.run import Run
from transformer_lib.metrics.bleu import PairedDifference, bleu, paired_bootstrap
from transformer_lib.pages import write_page
from transformer_lib.plots.attention import attention_heatmap
from transformer_lib.plots.curves import learning_curves, scores_by_length
from transformer_lib.plots.notebook import as_data_uri
from transformer_lib.training.metrics import read_metrics

NUM_EXAMPLES = 12


@dataclass(frozen=True)
class TableRow:
    """A system in the manner of the paper's table 2; costs in floating-point operations."""

    system: str
    test: str
    bleu_as_in_paper: float
    sacrebleu: float | None = None
    flops_by_time: float | None = None
    flops_by_parameters: float | None = None


# Vaswani et al. 2017, table 2, English to German.
PUBLISHED = tuple(
    TableRow(system, "newstest2014", bleu, flops_by_time=flops)
    for system, bleu, flops in (
        ("ByteNet (Kalchbrenner et al. 2016)", 23.75, None),
        ("GNMT + RL, an RNN (Wu et al. 2016)", 24.6, 2.3e19),
        ("ConvS2S (Gehring et al. 2017)", 25.16, 9.6e18),
        ("MoE (Shazeer et al. 2017)", 26.03, 2.0e19),
        ("GNMT + RL, ensemble", 26.30, 1.8e20),
        ("ConvS2S, ensemble", 26.36, 7.7e19),
        ("Transformer, base", 27.3, 3.3e18),
        ("Transformer, big", 28.4, 2.3e19),
    )
)


@dataclass(frozen=True)
class Comparison:
    """Everything the report shows."""

    runs: tuple[Run, Run]
    test_set: TestSet
    evaluations: tuple[Evaluation, Evaluation]
    difference: PairedDifference
    human: str | None = None

    @property
    def names(self) -> tuple[str, str]:
        a, b = (run.experiment.name for run in self.runs)
        return (a, b) if a != b else (str(self.runs[0].folder), str(self.runs[1].folder))

    def verdict(self) -> str:
        """The answer in one sentence."""
        d = self.difference
        better, worse = self.names if d.score_a >= d.score_b else self.names[::-1]
        gap = f"{abs(d.score_a - d.score_b):.2f} BLEU"
        if self.evaluations[0].hypotheses == self.evaluations[1].hypotheses:
            return "Both translate every sentence alike."
        if d.p_value < 0.05:
            return f"{better} is better than {worse} by {gap}, significantly (p = {d.p_value:.3f})."
        return f"The difference of {gap} is not significant (p = {d.p_value:.3f})."

    def headline(self) -> str:
        """The answer, and its caveats."""
        return f"{self.verdict()} {self.budgets()}".rstrip()

    def budgets(self) -> str:
        """How long each was trained; empty if their minutes and tokens are within a tenth."""
        a, b = (evaluation.cost for evaluation in self.evaluations)
        if all(
            0.9 * max(x, y) <= min(x, y) for x, y in ((a.seconds, b.seconds), (a.tokens, b.tokens))
        ):
            return ""
        first, second = (
            f"{name} {cost.seconds / 60:.1f} min and {cost.tokens / 1e6:.2f} M tokens"
            for name, cost in zip(self.names, (a, b), strict=True)
        )
        return f"What their training took: {first}, {second}."

    def as_text(self) -> str:
        d = self.difference
        lines = [evaluation.as_text() for evaluation in self.evaluations]
        lines.append(
            f"BLEU {d.score_a:.2f} ± {d.interval_a:.2f} against {d.score_b:.2f} ± "
            f"{d.interval_b:.2f} (95%, paired bootstrap). {self.headline()}"
        )
        return "\n".join(lines)

    def table(self) -> list[TableRow]:
        """The paper's table with these two systems below it."""
        mine = [
            TableRow(
                name,
                self.test_set.name,
                e.bleu_as_in_paper.score,
                e.bleu_one_reference.score,
                e.cost.flops_by_time,
                e.cost.flops_by_parameters,
            )
            for name, e in zip(self.names, self.evaluations, strict=True)
        ]
        return [*PUBLISHED, *mine]

    def write_html(self, path: Path) -> None:
        """One self-contained file: figures are inside, nothing is loaded from elsewhere."""
        write_page(path, "transformer_lib.evaluation", "comparison.html", self._content())

    def _content(self) -> dict[str, Any]:
        figures = {
            "Learning curves": (
                learning_curves(
                    {
                        name: read_metrics(run.folder)
                        for name, run in zip(self.names, self.runs, strict=True)
                    }
                ),
                "Validation BLEU of both systems over training time, tokens and FLOPs.",
            ),
            "BLEU by sentence length": (
                scores_by_length(self._by_length()),
                "BLEU of both systems for short to long source sentences.",
            ),
        }
        sentence = self._attention_example()
        for name, run in zip(self.names, self.runs, strict=True):
            target = run.translate([sentence])[0]
            weights, tgt, src = cross_attention(run.model, run.tokenizer, sentence, target)
            figures[f"Attention of {name}"] = (
                attention_heatmap(weights.mean(dim=(0, 1)), tgt, src),
                f"Attention from “{target}” to “{sentence}”, mean over layers and heads.",
            )
        return {
            "names": self.names,
            "verdict": self.headline(),
            "difference": self.difference,
            "evaluations": self.evaluations,
            "test": self.test_set.name,
            "figures": [
                {"title": title, "image": as_data_uri(figure), "text": text}
                for title, (figure, text) in figures.items()
            ],
            "examples": self._examples(),
            "table": self.table(),
            "human": self.human,
        }

    def _by_length(self) -> dict[str, dict[str, float]]:
        """BLEU in up to five buckets with about equally many sentences."""
        lengths = [len(source.split()) for source in self.test_set.sources]
        ranked = sorted(lengths)
        cuts = sorted({ranked[len(ranked) * i // 5] for i in range(1, 5)})
        edges = [1, *(cut + 1 for cut in cuts if cut + 1 <= ranked[-1]), ranked[-1] + 1]
        scores: dict[str, dict[str, float]] = {name: {} for name in self.names}
        for low, high in pairwise(edges):
            rows = [i for i, n in enumerate(lengths) if low <= n < high]
            if not rows:
                continue
            bucket = f"{low}" if high == low + 1 else f"{low}–{high - 1}"
            for name, evaluation in zip(self.names, self.evaluations, strict=True):
                hypotheses = [evaluation.hypotheses[i] for i in rows]
                references = [self.test_set.references[i] for i in rows]
                scores[name][bucket] = bleu(hypotheses, references).score
        return scores

    def _attention_example(self) -> str:
        """A sentence of middling length (a long one would not be readable)."""
        return min(self.test_set.sources, key=lambda source: abs(len(source.split()) - 8))

    def _examples(self) -> list[dict[str, str]]:
        """Sentences at regular distances, not picked by hand."""
        step = max(1, len(self.test_set) // NUM_EXAMPLES)
        a, b = self.evaluations
        return [
            {
                "source": self.test_set.sources[i],
                "reference": self.test_set.references[i][0],
                "a": a.hypotheses[i],
                "b": b.hypotheses[i],
            }
            for i in range(0, len(self.test_set), step)
        ][:NUM_EXAMPLES]


def compare_runs(
    run_a: Run,
    run_b: Run,
    test: str = "test",
    files: Path | None = None,
    human: str | None = None,
) -> Comparison:
    """Evaluate both runs on one test set and compare them.

    Args:
        human: the report on ratings by people, if there is one; it is included as it is.

    Raises:
        UserError: they were trained on different data, so that ``test`` means two things.
    """
    test_set = find_common_test_set(run_a, run_b, test, files)
    a, b = (evaluate_run(run, test_set) for run in (run_a, run_b))
    difference = paired_bootstrap(a.hypotheses, b.hypotheses, test_set.references)
    return Comparison((run_a, run_b), test_set, (a, b), difference, human)
