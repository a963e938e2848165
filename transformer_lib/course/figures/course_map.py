"""The map of the course: which chapter leads to which."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_lib.course.figures.boxes import Point, arrow, box
from transformer_lib.plots.style import COLORS, new_figure, styled

BLUE, ORANGE, GREEN, PINK, *_ = COLORS
WIDTH, HEIGHT = 2.3, 0.95
CHAPTERS: dict[int, tuple[str, str, float, float]] = {  # title, color, place
    1: ("A translator\nin minutes", GREEN, 0, 3),
    2: ("From the RNN\nto attention", BLUE, 1, 3.5),
    3: ("Tokens and\nembeddings", BLUE, 1, 2.5),
    4: ("Positional\nencoding", BLUE, 2, 2.5),
    5: ("Attention", BLUE, 2, 3.5),
    6: ("Multi-head\nattention", BLUE, 3, 3),
    7: ("Masks", ORANGE, 4, 3),
    8: ("Layer norm,\nbatch norm", ORANGE, 4, 1.5),
    9: ("Residuals: where\nthe norm goes", ORANGE, 3, 1.5),
    10: ("The whole\nmodel", ORANGE, 2, 1.5),
    11: ("Training", PINK, 1, 1.5),
    12: ("Decoding", PINK, 0, 1.5),
    13: ("Is it better?", PINK, 0, 0),
    14: ("What did\nit learn?", PINK, 2, 0),
    15: ("Scaling up,\nTransformer or RNN", PINK, 1, 0),
    16: ("Transformers\nin the wild", PINK, 3, 0),
    17: ("A language\nmodel", PINK, 4, 0),
}
NOTEBOOKS = {
    1: "01_a_translator_in_minutes.ipynb",
    2: "02_from_rnn_to_attention.ipynb",
    3: "03_tokens_and_embeddings.ipynb",
    4: "04_positional_encoding.ipynb",
    5: "05_attention.ipynb",
    6: "06_multi_head_attention.ipynb",
    7: "07_masks.ipynb",
    8: "08_layer_norm_and_batch_norm.ipynb",
    9: "09_residuals.ipynb",
    10: "10_the_whole_model.ipynb",
    11: "11_training.ipynb",
    12: "12_decoding.ipynb",
    13: "13_is_it_better.ipynb",
    14: "14_what_did_it_learn.ipynb",
    15: "15_scaling_up.ipynb",
    16: "16_transformers_in_the_wild.ipynb",
    17: "17_a_language_model.ipynb",
}
NEXT = (
    (1, 2), (1, 3), (2, 5), (3, 4), (4, 6), (5, 6), (6, 7), (7, 8), (8, 9), (9, 10), (10, 11),
    (11, 12), (12, 13), (13, 15), (10, 14), (14, 16), (11, 15), (16, 17),
)  # fmt: skip
ALTERNATIVE = (
    "Map of the course. Chapter 1 leads to 2 (RNN to attention) and 3 (tokens); 3 leads to 4 "
    "(positions), 2 to 5 (attention), both to 6 (multi-head), then 7 (masks), 8 (norms), 9 "
    "(residuals) and 10 (the whole model). From there 11 (training), 12 (decoding), 13 "
    "(evaluation) and 15 (scaling); 14 (what it learned) needs only 10; 16 (others' "
    "code) and 17 (a language model) are the last two."
)


@styled
def course_map(done: Mapping[int, tuple[int, int]] | None = None) -> Figure:
    """Every chapter as a box; an arrow leads to what it prepares.

    Args:
        done: for each chapter, how many of its exercises are done and how many there are.
    """
    figure = new_figure(8.4, 4.4)
    axes = figure.axes[0]
    axes.set(xlim=(-1.4, 12.6), ylim=(-0.8, 5.6))
    axes.axis("off")
    middles = {}
    for number, (title, color, column, row) in CHAPTERS.items():
        x, y = 2.8 * column, 1.25 * row
        middles[number] = (x, y)
        box(axes, (x, y), (WIDTH, HEIGHT), f"{number} · {title}", color)
        if done and done.get(number, (0, 0))[1]:
            _mark(axes, (x, y), *done[number], color)
    for start, end in NEXT:
        edges = _edge(middles[start], middles[end]), _edge(middles[end], middles[start])
        arrow(axes, *edges)
    return figure


def _mark(axes: Axes, middle: Point, done: int, all_of_it: int, color: str) -> None:
    """A dot for each exercise on the lower edge of a box, filled where it is done."""
    gap = 0.19
    for number in range(all_of_it):
        x = middle[0] + (number - (all_of_it - 1) / 2) * gap
        face = color if number < done else "white"
        axes.plot(x, middle[1] - HEIGHT / 2, "o", color=color, markerfacecolor=face, markersize=5)


def _edge(middle: Point, towards: Point) -> Point:
    """Where the line from this box's middle to another one's leaves the box."""
    dx, dy = towards[0] - middle[0], towards[1] - middle[1]
    sides = [side / abs(d) for side, d in ((WIDTH / 2, dx), (HEIGHT / 2, dy)) if d]
    share = min(sides)
    return middle[0] + share * dx, middle[1] + share * dy
