"""The places of the norm beside a residual connection, drawn side by side."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_lib.course.figures.boxes import arrow, box
from transformer_lib.plots.style import COLORS, new_figure, styled

BLUE, ORANGE, GREEN, *_ = COLORS
DARK = "#333333"
FORMS: dict[str, tuple[list[str], list[str], list[str]]] = {
    # before the fork, on the branch, after the sum
    "post-norm\nLN(x + f(x))": ([], ["f"], ["norm"]),
    "pre-norm\nx + f(LN(x))": ([], ["norm", "f"], []),
    "norm on the branch\nx + LN(f(x))": ([], ["f", "norm"], []),
    "sandwich\nx + LN(f(LN(x)))": ([], ["norm", "f", "norm"], []),
    "a bug, “added back”\nLN(x) + f(LN(x))": (["norm"], ["f"], []),
}
BRANCH, AROUND, PLUS = 0.9, 2.4, 4.5  # x of the branch and of the path around it; y of the sum
ALTERNATIVE = (
    "Five ways from x up. Post-norm: x goes to f and around it, both are added, then the norm. "
    "Pre-norm: the norm is on the branch before f, x goes around both. Norm on the branch: the "
    "norm is on the branch after f. Sandwich: one before f and one after it. The bug: the norm is "
    "before the fork, so that the path around f passes through it as well."
)


@styled
def residual_forms() -> Figure:
    """What is normalized, and which path stays free, in the forms found in practice."""
    figure = new_figure(11.0, 3.9, len(FORMS))
    for axes, (title, (before, on_branch, after)) in zip(figure.axes, FORMS.items(), strict=True):
        axes.set_axis_off()
        axes.set(xlim=(0, 3), ylim=(0, 6.2))
        axes.set_title(title, fontsize=10)
        axes.text(BRANCH, 0.05, "x", ha="center")
        fork = _climb(axes, 0.4, before) + 0.4
        axes.plot([BRANCH, BRANCH], [fork - 0.4, fork], color=DARK, linewidth=1)
        top = _climb(axes, fork, on_branch)
        arrow(axes, (BRANCH, top), (BRANCH, PLUS - 0.2))
        axes.text(BRANCH, PLUS, "+", ha="center", va="center", fontsize=14)
        _go_around(axes, fork, free=not before and not after)
        top = _climb(axes, PLUS + 0.25, after)
        arrow(axes, (BRANCH, top), (BRANCH, 6.1))
    return figure


def _climb(axes: Axes, y: float, parts: list[str]) -> float:
    """Boxes on the branch from ``y`` upwards, an arrow into each; where the last one ends."""
    for part in parts:
        middle = y + 0.8
        arrow(axes, (BRANCH, y), (BRANCH, middle - 0.25))
        box(axes, (BRANCH, middle), (1.3, 0.5), part, ORANGE if part == "norm" else BLUE)
        y = middle + 0.25
    return y


def _go_around(axes: Axes, fork: float, free: bool) -> None:
    """The residual connection; green where no norm stands on the way from bottom to top."""
    color = GREEN if free else DARK
    x, y = [BRANCH, AROUND, AROUND], [fork, fork, PLUS]
    axes.plot(x, y, color=color, linewidth=3 if free else 1)
    arrow(axes, (AROUND, PLUS), (BRANCH + 0.2, PLUS), color)
