"""What a decoder reads and what it must predict: the same target, one place apart."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from transformer_lib.course.figures.boxes import arrow, box
from transformer_lib.plots.style import COLORS, new_figure, styled

ALTERNATIVE = (
    "Two rows of words. The decoder reads <s> and the target, and must predict the target and "
    "</s>: above each word that it reads is the next one. Each label is what it reads one place "
    "later."
)
BLUE, ORANGE = COLORS[0], COLORS[1]
READ, DECODER, SAID = 0.0, 1.1, 2.2  # heights


@styled
def shift_drawn(words: Sequence[str] = ("Wo", "ist", "mein", "Auto", "?")) -> Figure:
    """The input of each place below, its label above; dashed, where the input comes from."""
    figure = new_figure(7.2, 2.9)
    axes = figure.axes[0]
    axes.set(xlim=(-2.2, 1.4 * len(words) + 0.8), ylim=(-0.5, 2.7))
    axes.axis("off")
    for height, name in ((READ, "it reads"), (DECODER, "decoder"), (SAID, "it must predict")):
        axes.text(-2.1, height, name, va="center", fontsize=9)
    middle = 0.7 * len(words)
    box(axes, (middle, DECODER), (1.4 * len(words) + 1.1, 0.5), "", "#888888")
    pairs = zip(("<s>", *words), (*words, "</s>"), strict=True)
    for place, (reads, says) in enumerate(pairs):
        x = 1.4 * place
        box(axes, (x, READ), (1.1, 0.5), reads, BLUE)
        box(axes, (x, SAID), (1.1, 0.5), says, ORANGE)
        arrow(axes, (x, READ + 0.25), (x, DECODER - 0.25))
        arrow(axes, (x, DECODER + 0.25), (x, SAID - 0.25))
        if place < len(words):
            axes.plot(
                [x + 0.35, x + 1.05], [SAID - 0.25, READ + 0.25],
                linestyle="--", linewidth=1, color=ORANGE, zorder=0,
            )  # fmt: skip
    return figure
