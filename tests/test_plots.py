"""Charts show everything that they are given."""

import math

import torch
from matplotlib.text import Text

from transformer_lib.course.figures.lstm import lstm_step_drawn
from transformer_lib.course.figures.positions import accuracy_by_position
from transformer_lib.course.figures.wirings import seq2seq_wirings
from transformer_lib.plots.attention import attention_explorer, attention_heads, attention_heatmap
from transformer_lib.plots.curves import learning_curves, length_histogram, scores_by_length
from transformer_lib.plots.measurements import bars, counts, lines, points
from transformer_lib.plots.notebook import as_data_uri

NAMES = ["_system", "a$\\foo$", *(f"system {n}" for n in range(7))]


def named(axes):
    """What the legend lists, as text."""
    return [text.get_text().replace("\\$", "$") for text in axes.get_legend().get_texts()]


def test_lines_draw_every_series():
    axes = lines(
        {name: ([1.0, 2.0, 4.0], [float(n)] * 3) for n, name in enumerate(NAMES)}, ("x", "y")
    ).axes[0]
    assert named(axes) == NAMES
    looks = {(line.get_marker(), line.get_color()) for line in axes.lines}
    assert len(looks) == len(NAMES)


def test_a_label_with_dollars_is_text(tmp_path):
    pieces = ["▁$x_$", "$5$"], ["$$", "b"]
    record = {"kind": "validation", "seconds": 60.0, "tokens": 1e6, "flops": 1e12, "bleu": 3.0}
    for figure in (
        attention_heatmap(torch.eye(2), *pieces),
        attention_heads(torch.eye(2).expand(2, 2, 2), *pieces),
        learning_curves({"$\\alpha_$": [record]}),
        scores_by_length({"a$\\foo$": {"$<$ 5": 1.0}, "b": {"$<$ 5": 2.0}}),
        lines({"a$\\foo$": ([1.0, 2.0], [1.0, 2.0]), "b": ([1.0], [1.0])}, ("x", "y")),
        points({"a$\\foo$": (1.0, 2.0)}, ("x", "y")),
        counts({"a$\\foo$": 2}, "x"),
    ):
        assert as_data_uri(figure).startswith("data:image")
    for figure in (seq2seq_wirings(), lstm_step_drawn()):
        assert as_data_uri(figure).startswith("data:image")
        assert all(text.get_parse_math() for text in figure.findobj(Text)), "formulas are drawn"


def test_a_page_has_the_same_picture_each_time():
    records = {"a": [{"kind": "validation", "seconds": 60.0, "tokens": 1, "flops": 1, "bleu": 3.0}]}
    assert as_data_uri(learning_curves(records)) == as_data_uri(learning_curves(records))


def test_bars_draw_every_series():
    axes = bars({name: [1.0, 2.0] for name in NAMES}, ["a", "b"], ("group", "value")).axes[0]
    assert named(axes) == NAMES


def test_learning_curves_draw_every_run_one_without_validations_too():
    record = {"kind": "validation", "seconds": 60.0, "tokens": 1e6, "flops": 1e12, "bleu": 3.0}
    runs = {name: [record] for name in NAMES} | {"stopped early": []}
    figure = learning_curves(runs)
    assert named(figure.axes[0]) == list(runs)
    assert all(len(axes.lines) == len(runs) for axes in figure.axes)


def test_length_histograms_draw_every_language():
    axes = length_histogram({name: [n + 1, n + 2] for n, name in enumerate(NAMES[2:])}).axes[0]
    assert sorted(named(axes)) == sorted(NAMES[2:])


def test_a_heat_map_shows_every_piece():
    figure = attention_heatmap(torch.rand(3, 4), ["a", "b", "c"], ["w", "x", "y", "z"])
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["w", "x", "y", "z"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]


def test_what_is_not_a_number_is_said_to_be_none():
    from transformer_lib.course.lineages.plot import difference_map

    figure = difference_map({"part": {"one": 0.0, "two": 1.0, "three": math.nan}})
    assert [text.get_text() for text in figure.axes[0].texts] == ["same", "1", "NaN"]


def test_drawings_of_the_course_drop_nothing_either():
    figure = accuracy_by_position({name: torch.rand(2) for name in NAMES}, 1, 1, 0.1)
    labels = [line.get_label() for line in figure.axes[0].lines]
    assert [label for label in labels if label in NAMES] == NAMES


def test_the_explorer_keeps_the_order_of_more_than_a_hundred_pieces():
    pieces = [f"t{n}" for n in range(120)]
    chart = attention_explorer(torch.rand(1, 1, 120, 120), pieces, pieces)
    names = list(dict.fromkeys(chart.data["source"]))
    assert sorted(names) == names, "as Vega-Lite orders what it draws"
    assert [name.split(" ")[1] for name in names] == pieces
