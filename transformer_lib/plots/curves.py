"""Learning curves and scores by sentence length."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Literal

from matplotlib.figure import Figure

from transformer_lib.plots.measurements import bars
from transformer_lib.plots.style import DASHES, MARKERS, literal, new_figure, styled

Against = Literal["seconds", "tokens", "flops"]
AXES: dict[Against, tuple[str, float]] = {
    "seconds": ("training time (minutes)", 60.0),
    "tokens": ("training tokens, source and target (millions)", 1e6),
    "flops": ("training cost, 6·N·tokens (10¹² FLOPs)", 1e12),
}


@styled
def learning_curves(
    records: Mapping[str, Sequence[Mapping[str, Any]]],
    against: Sequence[Against] = ("seconds", "tokens", "flops"),
) -> Figure:
    """Validation BLEU of each run over what it cost; ``records`` by the run's name."""
    figure = new_figure(3.6 * len(against), 3.2, len(against))
    for axes, quantity in zip(figure.axes, against, strict=True):
        name, unit = AXES[quantity]
        for lines, marker in zip(records.values(), cycle(MARKERS), strict=False):
            points = [line for line in lines if line["kind"] == "validation"]
            x = [point[quantity] / unit for point in points]
            axes.plot(x, [point["bleu"] for point in points], marker=marker)
        axes.set_xlabel(name)
        axes.set_xlim(left=0)
    figure.axes[0].set_ylabel("validation BLEU (greedy)")
    figure.axes[0].legend(figure.axes[0].lines, literal(records), loc="best")
    return figure


def scores_by_length(scores: Mapping[str, Mapping[str, float]]) -> Figure:
    """BLEU of each run in buckets of source length; ``scores[run][bucket]``."""
    buckets = list(next(iter(scores.values())))
    series = {run: [values[bucket] for bucket in buckets] for run, values in scores.items()}
    return bars(series, buckets, ("source length (words)", "BLEU"))


@styled
def length_histogram(lengths: Mapping[str, Sequence[int]]) -> Figure:
    """How many sentences have how many tokens, one outline per language."""
    figure = new_figure(6.0, 3.0)
    axes = figure.axes[0]
    longest = max(int(max(values)) for values in lengths.values())
    edges = [edge - 0.5 for edge in range(1, longest + 2)]
    for (language, values), dashes in zip(lengths.items(), cycle(DASHES), strict=False):
        axes.hist(values, edges, histtype="step", linewidth=1.8, linestyle=dashes, label=language)
    axes.set_xlabel("sentence length (tokens)")
    axes.set_ylabel("sentence pairs")
    axes.legend()
    return figure
