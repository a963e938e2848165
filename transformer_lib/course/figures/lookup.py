"""Attention as a soft look-up, drawn with numbers: one to move, one to read."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from torch import Tensor

from transformer_lib.course.figures.boxes import Point, arrow, grid
from transformer_lib.plots.style import COLORS, new_figure, styled

if TYPE_CHECKING:
    import altair

BLUE, ORANGE, GREEN, *_ = COLORS
CELL = 0.62  # the side of a matrix entry in the drawing


def lookup_explorer(
    words: Sequence[str],
    keys: Float[Tensor, "keys 4"],
    values: Float[Tensor, "keys 2"],
    start: tuple[float, float],
) -> "altair.HConcatChart":
    """Move two channels of a query: scores, weights and the mixture of the values follow."""
    import altair as alt

    def channel(name: str, value: float) -> alt.Parameter:
        slider = alt.binding_range(min=-3, max=3, step=0.5, name=f"query, {name} channel ")
        return alt.param(f"{name}_channel", value=value, bind=slider)

    first, third = channel("first", start[0]), channel("third", start[1])
    scaled = alt.param("scaled", value=True, bind=alt.binding_checkbox(name="divide by √4 "))
    rows = [
        {"word": word, "k1": key[0], "k3": key[2], "x": value[0], "y": value[1]}
        for word, key, value in zip(words, keys.tolist(), values.tolist(), strict=True)
    ]
    base = (
        alt.Chart(alt.Data(values=rows))
        .transform_calculate(product="first_channel * datum.k1 + third_channel * datum.k3")
        .transform_calculate(score="datum.product / (scaled ? 2 : 1)")
        .transform_calculate(exponential="exp(datum.score)")
        .transform_joinaggregate(total="sum(exponential)")
        .transform_calculate(weight="datum.exponential / datum.total")
        .transform_calculate(from_x="datum.weight * datum.x", from_y="datum.weight * datum.y")
    )
    word = alt.X("word:N", sort=list(words), title=None, axis=alt.Axis(labelAngle=0))

    def bars(field: str, title: str, domain: tuple[float, float], color: str) -> alt.LayerChart:
        y = alt.Y(f"{field}:Q", title=title, scale=alt.Scale(domain=domain))
        number = alt.Text(f"{field}:Q", format=".2f")
        return (
            base.mark_bar(color=color).encode(x=word, y=y)
            + base.mark_text(dy=-6, color="black").encode(x=word, y=y, text=number)
        ).properties(width=150, height=190)

    wide, high = (alt.Scale(domain=(-3, end), nice=False) for end in (24, 27))
    plane = {
        "x": alt.X("x:Q", title="value, first channel", scale=wide),
        "y": alt.Y("y:Q", title="value, second channel", scale=high),
    }
    points = base.mark_circle(color=BLUE, opacity=0.7).encode(
        **plane,
        size=alt.Size("weight:Q", scale=alt.Scale(domain=(0, 1), range=(30, 900)), legend=None),
    )
    names = base.mark_text(dy=-24, color="black").encode(**plane, text="word:N")
    mixture = (
        base.transform_aggregate(x="sum(from_x)", y="sum(from_y)")
        .mark_point(shape="cross", size=180, color=ORANGE, filled=True)
        .encode(x="x:Q", y="y:Q")
    )
    title = alt.Title(
        alt.expr(
            "'query (' + first_channel + ', 0, ' + third_channel + ', 0)' "
            "+ (scaled ? ', scores divided by √4' : ', scores not divided')"
        )
    )
    return alt.hconcat(
        bars("score", "score", (-6.5, 6.5), BLUE),
        bars("weight", "weight", (0, 1.08), GREEN),
        (points + names + mixture).properties(width=210, height=190),
        title=title,
        description="Scores and weights of three words for a query whose first and third "
        f"channel can be moved, at first {start[0]:g} and {start[1]:g}; beside them the words' "
        "values as points and, as a cross, their mixture.",
    ).add_params(first, third, scaled)


@styled
def self_attention_flow(
    x: Float[Tensor, "length d_model"],
    projected: Mapping[str, Float[Tensor, "length d_k"]],
    scores: Float[Tensor, "length length"],
    weights: Float[Tensor, "length length"],
    output: Float[Tensor, "length d_k"],
    words: Sequence[str],
) -> Figure:
    """From x to Q, K and V, to scores, weights and output: each matrix with numbers and shape."""
    figure = new_figure(9.6, 5.3)
    axes = figure.axes[0]
    axes.set(xlim=(0, 16.2), ylim=(-4.9, 4.7), aspect="equal")
    axes.axis("off")
    ends = {"x": _matrix(axes, (1.6, 0), x, "x", GREEN, words)}
    for (name, matrix), height in zip(projected.items(), (3.0, 0, -3.0), strict=True):
        ends[name] = _matrix(axes, (5.6, height), matrix, name, BLUE)
        arrow(axes, (ends["x"], 0.75 * height / 3.0), (5.6 - 0.25, height))
        axes.text(
            4.5 - 0.25 * (height < 0),
            0.72 * height + 0.22,
            f"$W^{name}$",
            ha="center",
            fontsize=9,
        )
    ends["scores"] = _matrix(axes, (8.9, 1.35), scores, "Q Kᵀ / √d_k", ORANGE)
    ends["weights"] = _matrix(axes, (12.0, 1.35), weights, "softmax of each row", ORANGE)
    last = _matrix(axes, (13.4, -3.0), output, "output = weights · V", GREEN, words)
    arrow(axes, (ends["Q"], 3.0), (8.9 - 0.2, 1.7))
    arrow(axes, (ends["K"], 0.0), (8.9 - 0.2, 1.0))
    arrow(axes, (ends["scores"], 1.35), (12.0 - 0.2, 1.35))
    arrow(axes, (ends["V"], -3.0), (12.4, -3.0))
    arrow(axes, ((12.0 + ends["weights"]) / 2, 0.0), (last - CELL, -3.0 + 1.55))
    return figure


def _matrix(
    axes: Axes,
    left: Point,
    matrix: Tensor,
    name: str,
    color: str,
    words: Sequence[str] = (),
) -> float:
    """A matrix with its numbers, the larger the darker; returns where an arrow may start."""
    largest = max(1e-9, float(matrix.abs().max()))
    cells = [
        [
            (to_rgba(color, 0.08 + 0.4 * abs(value) / largest), f"{value:z.1f}".replace("-", "−"))
            for value in row
        ]
        for row in matrix.tolist()
    ]
    right = grid(axes, left, cells, CELL, name, str(tuple(matrix.shape)))
    top = left[1] + len(cells) * CELL / 2
    for row, word in enumerate(words):
        y = top - (row + 0.5) * CELL
        axes.text(left[0] - 0.12, y, word, ha="right", va="center", fontsize=8)
    return right + 0.1
