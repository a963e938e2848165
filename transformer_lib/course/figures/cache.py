"""What a decoder computes in each step, without and with a cache of keys and values."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from transformer_lib.plots.style import COLORS, new_figure, styled

BLUE, ORANGE = COLORS[0], COLORS[1]
ALTERNATIVE = (
    "Four steps of a decoder. Without a cache step n computes keys and values of all n tokens, and "
    "n rows of attention; with one it computes those of the new token and one row, and reads the "
    "others, which are kept."
)


@styled
def cache_growth(words: tuple[str, ...] = ("<s>", "Wo", "ist", "mein")) -> Figure:
    """A column per step: what is computed is orange, what is read from the cache is blue."""
    figure = new_figure(8.4, 4.4, columns=len(words), rows=2)
    for row, cached in enumerate((False, True)):
        for step in range(1, len(words) + 1):
            axes = figure.axes[row * len(words) + step - 1]
            _step(axes, words[:step], cached, len(words))
            if step == 1:
                axes.text(
                    -1.3, 1.0, "with a cache" if cached else "without", rotation=90, va="center"
                )
            if row == 0:
                axes.set_title(f"step {step}", fontsize=10)
    colors = {"computed in this step": ORANGE, "read from the cache": BLUE}
    patches = [Rectangle((0, 0), 1, 1, facecolor=color) for color in colors.values()]
    figure.legend(patches, list(colors), loc="outside upper center", ncols=2, fontsize=8)
    return figure


def _step(axes: Axes, words: tuple[str, ...], cached: bool, most: int) -> None:
    count = len(words)
    axes.set(xlim=(-1.4, most + 0.6), ylim=(most + 0.4, -1.9))
    axes.axis("off")
    axes.text(0, -1.65, "keys and values", fontsize=8)
    if count == 1:
        axes.text(0, 1.6, "rows of attention", fontsize=8)
    for place, word in enumerate(words):
        new = place == count - 1
        _cell(axes, place, -1.2, ORANGE if new or not cached else BLUE)
        axes.text(place + 0.5, -0.25, word, ha="center", fontsize=7.5)
    for query in range(count):
        computed = query == count - 1 or not cached
        for key in range(query + 1):
            if computed:
                _cell(axes, key, query, ORANGE)
        if query == count - 1:
            axes.text(count + 0.1, query + 0.6, "→ next word", fontsize=7.5)


def _cell(axes: Axes, x: float, y: float, color: str) -> None:
    height = 0.7 if y < 0 else 1.0
    axes.add_patch(Rectangle((x, y), 1.0, height, facecolor=color, edgecolor="white", linewidth=2))
