"""Recurrent encoders and decoders, unrolled: where the context enters."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_lib.course.figures.boxes import arrow, box
from transformer_lib.plots.style import COLORS, new_figure, styled

BLUE, ORANGE, GREEN, PINK, *_ = COLORS
SIZE = (0.95, 0.55)


@styled
def seq2seq_wirings() -> Figure:
    """The bottleneck, Bahdanau's attention and Luong's, for three words read and two written."""
    figure = new_figure(10.2, 3.9, 3)
    titles = (
        "Sutskever et al. 2014:\nthe last state is all",
        "Bahdanau et al. 2015: the old\nstate asks, the step reads c",
        "Luong et al. 2015: the new state\nasks, c joins it afterwards",
    )
    for axes, title, wiring in zip(figure.axes, titles, (None, "before", "after"), strict=True):
        axes.set(xlim=(0, 7.0), ylim=(-0.3, 5.6))
        axes.axis("off")
        axes.set_title(title, fontsize=9)
        _unrolled(axes, wiring)
    return figure


def _unrolled(axes: Axes, wiring: str | None) -> None:
    reads, writes = (0.7, 1.9, 3.1), (4.8, 6.1)
    for number, x in enumerate(reads):
        box(axes, (x, 1.4), SIZE, f"$s_{number + 1}$", BLUE)
        axes.text(x, 0.3, f"$x_{number + 1}$", ha="center", va="center")
        arrow(axes, (x, 0.5), (x, 1.1))
        if number:
            two_ways = "<|-|>" if wiring == "before" else "-|>"
            arrow(axes, (reads[number - 1] + 0.48, 1.4), (x - 0.48, 1.4), style=two_ways)
    arrow(axes, (reads[-1] + 0.48, 1.4), (writes[0] - 0.48, 1.4))
    for number, x in enumerate(writes):
        box(axes, (x, 1.4), SIZE, f"$h_{number + 1}$", ORANGE)
        axes.text(x, 0.3, ("<s>", "$y_1$")[number], ha="center", va="center")
        arrow(axes, (x, 0.5), (x, 1.1))
    arrow(axes, (writes[0] + 0.48, 1.4), (writes[1] - 0.48, 1.4))
    last = writes[1]
    top = 5.0
    axes.text(last, top + 0.15, "$y_2$", ha="center", va="bottom")
    if wiring is None:
        arrow(axes, (last, 1.7), (last, top))
        return
    box(axes, (1.9, 3.4), (2.6, 0.6), "scores, softmax", GREEN)
    context = (4.3, 3.4)
    box(axes, context, (0.9, 0.55), "$c_2$", PINK)
    for x in reads:
        arrow(axes, (x, 1.7), (x + (1.9 - x) * 0.5, 3.1), color="#888888")
    arrow(axes, (3.2, 3.4), (3.85, 3.4))
    if wiring == "before":  # h₁ asks, and c₂ goes into the step that makes h₂
        arrow(axes, (writes[0] - 0.2, 1.7), (2.7, 3.1), color=ORANGE)
        arrow(axes, (4.5, 3.1), (last - 0.35, 1.7), color=PINK)
        arrow(axes, (last, 1.7), (last, top))
    else:  # h₂ asks, and c₂ meets h₂ after the step
        arrow(axes, (last - 0.3, 1.7), (2.8, 3.1), color=ORANGE)
        box(axes, (last - 0.3, 4.2), (2.0, 0.55), "tanh(W[c; h])", GREEN)
        arrow(axes, (4.75, 3.5), (last - 0.8, 3.9), color=PINK)
        arrow(axes, (last, 1.7), (last, 3.9))
        arrow(axes, (last, 4.5), (last, top))
