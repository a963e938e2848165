"""The places of the norm beside a residual connection, drawn side by side."""

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_lib.plots.boxes import arrow, box
from transformer_lib.plots.style import COLOURS, RC, new_figure

BLUE, ORANGE, GREEN = COLOURS[0], COLOURS[1], COLOURS[2]
FORMS = {
    "post-norm\nLN(x + f(x))": "post",
    "pre-norm\nx + f(LN(x))": "pre",
    "norm on the branch\nx + LN(f(x))": "branch",
    "a bug\nLN(x) + f(LN(x))": "added back",
}
ALTERNATIVE = (
    "Four ways from x up. Post-norm: x goes to f and around it, both are added, then the norm. "
    "Pre-norm: the norm stands on the branch before f, x goes around both. Norm on the branch: the "
    "norm stands on the branch behind f. The bug: the norm stands before the fork, so that the way "
    "around f passes through it as well."
)


def residual_forms() -> Figure:
    """What is normalized, and which way stays free, in the forms found in practice."""
    with matplotlib.rc_context(RC):
        figure = new_figure(9.0, 3.9, len(FORMS))
        for axes, (title, form) in zip(figure.axes, FORMS.items(), strict=True):
            axes.set_axis_off()
            axes.set(xlim=(0, 3), ylim=(0, 6.2))
            axes.set_title(title, fontsize=10)
            _draw(axes, form)
    return figure


def _draw(axes: Axes, form: str) -> None:
    branch, around = 0.9, 2.4
    fork = 1.9 if form == "added back" else 0.9
    axes.text(branch, 0.05, "x", ha="center")
    if form == "added back":
        arrow(axes, (branch, 0.4), (branch, 0.95))
        box(axes, (branch, 1.2), (1.3, 0.5), "norm", ORANGE)
        axes.plot([branch, branch], [1.45, fork], color="#333333", linewidth=1)
    else:
        axes.plot([branch, branch], [0.4, fork], color="#333333", linewidth=1)
    parts = {"pre": ["norm", "f"], "branch": ["f", "norm"]}.get(form, ["f"])
    below = fork
    for number, part in enumerate(parts):
        middle = fork + 0.9 + 1.1 * number
        arrow(axes, (branch, below), (branch, middle - 0.27))
        box(axes, (branch, middle), (1.3, 0.5), part, ORANGE if part == "norm" else BLUE)
        below = middle + 0.25
    plus = 4.3
    arrow(axes, (branch, below), (branch, plus - 0.2))
    axes.text(branch, plus, "+", ha="center", va="center", fontsize=14)
    free = form in ("pre", "branch")
    axes.plot(
        [branch, around, around], [fork, fork, plus],
        color=GREEN if free else "#333333", linewidth=3 if free else 1,
    )  # fmt: skip
    arrow(axes, (around, plus), (branch + 0.2, plus), GREEN if free else "#333333")
    top = plus + 0.25
    if form == "post":
        arrow(axes, (branch, top), (branch, 4.93))
        box(axes, (branch, 5.2), (1.3, 0.5), "norm", ORANGE)
        top = 5.45
    arrow(axes, (branch, top), (branch, 6.1))
