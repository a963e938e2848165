"""One step of an LSTM, as the formulas of chapter 2 have it."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_lib.course.figures.boxes import arrow, box
from transformer_lib.plots.style import COLORS, new_figure, styled

ALTERNATIVE = (
    "A step of an LSTM. Above, the cell runs from left to right: it is multiplied by the forget "
    "gate f, then i times g is added. Below, the word and the old state go into the four of them, "
    "f, i, g and o. The tanh of the new cell times o is the new state."
)
BLUE, ORANGE, GREEN = COLORS[0], COLORS[1], COLORS[2]
CELL, JOINED, GATES, INPUT, STATE = 4.6, 3.5, 2.1, 0.9, 0.0  # heights


@styled
def lstm_step_drawn() -> Figure:
    """Gates are orange, the candidate green, what goes from step to step blue."""
    figure = new_figure(7.6, 4.0)
    axes = figure.axes[0]
    axes.set(xlim=(-0.9, 9.9), ylim=(-0.5, 5.2))
    axes.axis("off")

    _cell(axes)
    _what_decides(axes)
    _state(axes)
    return figure


def _cell(axes: Axes) -> None:
    """The upper line: c is kept in part, and something is added."""
    axes.text(-0.8, CELL, r"$c_{t-1}$", va="center")
    for start, end in ((-0.1, 1.25), (1.75, 4.25), (4.75, 9.1)):
        arrow(axes, (start, CELL), (end, CELL), BLUE)
    _operation(axes, (1.5, CELL), "⊙")
    _operation(axes, (4.5, CELL), "+")
    axes.text(9.2, CELL, r"$c_t$", va="center")


def _what_decides(axes: Axes) -> None:
    """The three gates and the candidate, all from the word and the old state."""
    boxes = {1.5: ("f", "keep?"), 3.5: ("i", "let in?"), 5.5: ("g", "what?"), 7.2: ("o", "show?")}
    for x, (name, question) in boxes.items():
        function, color = ("tanh", GREEN) if name == "g" else ("σ", ORANGE)
        box(axes, (x, GATES), (1.3, 0.7), f"{function}   {name}", color)
        axes.text(x + 0.2, GATES - 0.62, question, fontsize=8, color="#555555")
        arrow(axes, (x, INPUT), (x, GATES - 0.35))
    axes.plot([-0.1, 7.2], [INPUT, INPUT], color="#333333", linewidth=1)
    axes.text(-0.8, INPUT, r"$x_t$", va="center")
    axes.text(-0.8, STATE, r"$h_{t-1}$", va="center")
    axes.plot([-0.1, 0.4, 0.4], [STATE, STATE, INPUT], color=BLUE, linewidth=1.2)

    arrow(axes, (1.5, GATES + 0.35), (1.5, CELL - 0.25))
    _operation(axes, (4.5, JOINED), "⊙")
    arrow(axes, (3.5, GATES + 0.35), (4.3, JOINED - 0.18))
    arrow(axes, (5.5, GATES + 0.35), (4.7, JOINED - 0.18))
    arrow(axes, (4.5, JOINED + 0.25), (4.5, CELL - 0.25))


def _state(axes: Axes) -> None:
    """The part of the new cell that is shown is the new state."""
    box(axes, (8.5, 3.6), (1.0, 0.6), "tanh", BLUE)
    arrow(axes, (8.5, CELL), (8.5, 3.9), BLUE)
    _operation(axes, (8.5, GATES), "⊙")
    arrow(axes, (8.5, 3.3), (8.5, GATES + 0.25), BLUE)
    arrow(axes, (7.85, GATES), (8.25, GATES))
    axes.plot([8.5, 8.5], [GATES - 0.25, STATE], color=BLUE, linewidth=1.2)
    arrow(axes, (8.5, STATE), (9.1, STATE), BLUE)
    axes.text(9.2, STATE, r"$h_t$", va="center")


def _operation(axes: Axes, middle: tuple[float, float], sign: str) -> None:
    axes.text(
        *middle, sign, ha="center", va="center", fontsize=11,
        bbox={"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": "#333333"},
    )  # fmt: skip
