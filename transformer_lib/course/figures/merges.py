"""How letters grow together into pieces, one merge after the other."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair

Cut = Callable[[str, int], list[str]]


def merge_explorer(
    cut: Cut, sentences: Sequence[str], merges: Sequence[tuple[str, str]], shown: int
) -> "altair.LayerChart":
    """The pieces of a sentence after as many merges as a slider says, at first ``shown``.

    Args:
        cut: the pieces of a sentence after a number of merges.
        merges: the pairs that were merged, in order.
    """
    import altair as alt
    import pandas as pd

    number = alt.param(
        name="merges_done",
        value=shown,
        bind=alt.binding_range(min=0, max=len(merges), step=1, name="merges "),
    )
    sentence = alt.param(
        name="chosen_sentence",
        value=sentences[0],
        bind=alt.binding_select(options=list(sentences), name="sentence "),
    )
    rows = [row for text in sentences for row in _lives(text, cut, len(merges))]
    last = ["".join(pair) for pair in merges]
    pieces = (
        alt.Chart(pd.DataFrame(rows))
        .transform_filter(
            (alt.datum.sentence == sentence)
            & (alt.datum.born <= number)
            & (alt.datum.merged > number)
        )
        .encode(
            x=alt.X("start:Q", axis=None, scale=alt.Scale(domain=[0, max(r["end"] for r in rows)]))
        )
    )
    boxes = pieces.mark_rect(stroke="white", strokeWidth=3).encode(
        x2="end:Q",
        y=alt.value(4),
        y2=alt.value(40),
        color=alt.Color("letters:Q", legend=None, scale=alt.Scale(scheme="blues", domain=[-2, 10])),
        tooltip=["piece", "born"],
    )
    names = pieces.transform_calculate(middle="(datum.start + datum.end) / 2").mark_text(
        fontSize=13, color="black"
    ).encode(x="middle:Q", y=alt.value(22), text="piece:N")  # fmt: skip
    title = alt.Title(
        alt.expr(
            f"merges_done + ' merges' + (merges_done > 0 ? '; the last one made ' + "
            f"{json.dumps(last)}[merges_done - 1] : ': nothing but letters')"
        )
    )
    return (
        alt.layer(boxes, names)
        .properties(
            width=640,
            height=44,
            title=title,
            description=f"The pieces of a sentence after {shown} merges: "
            + " ".join(cut(sentences[0], shown)),
        )
        .add_params(number, sentence)
        .configure_view(stroke=None)
    )


def _lives(text: str, cut: Cut, merges: int) -> Iterator[dict[str, Any]]:
    """Each piece that ever is in a sentence: from where to where, and from which merge to which."""
    alive: dict[tuple[int, int], dict[str, Any]] = {}
    for number in range(merges + 1):
        places, start = {}, 0
        for piece in cut(text, number):
            places[start, start + len(piece)] = piece
            start += len(piece)
        for place in alive.keys() - places.keys():
            yield {**alive.pop(place), "merged": number}
        for (start, end), piece in places.items():
            born = {"sentence": text, "piece": piece, "start": start, "end": end, "born": number}
            alive.setdefault((start, end), {**born, "letters": len(piece)})
    for life in alive.values():
        yield {**life, "merged": merges + 1}
