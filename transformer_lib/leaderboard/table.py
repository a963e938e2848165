"""The table of a leaderboard, made from the entries' translations."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from transformer_lib.data.corpora import TestSet
from transformer_lib.errors import UserError
from transformer_lib.leaderboard.entries import SEEDS, TRACKS, Entry
from transformer_lib.metrics.bleu import bleu, paired_bootstrap
from transformer_lib.shown import one_line


@dataclass(frozen=True)
class Row:
    """An entry and its scores, one for each seed; ``p``, against the row above, is the largest of
    the seeds' own."""

    entry: Entry
    scores: list[float]
    p: float | None


def rows_of(entries: Sequence[Entry], test: TestSet) -> list[Row]:
    """The best first. All translations are scored here; what an entry says of itself is not used.

    Raises:
        UserError: an entry lacks translations.
    """
    references = [several[:1] for several in test.references]
    outputs = {}
    for entry in entries:
        outputs[entry.folder] = [entry.output(seed) for seed in SEEDS]
        if any(len(lines) != len(test) for lines in outputs[entry.folder]):
            raise UserError(f"{entry.name} has not {len(test)} translations of each seed")
    scored = [
        (entry, [bleu(lines, references).score for lines in outputs[entry.folder]])
        for entry in entries
    ]
    scored.sort(key=lambda pair: -mean(pair[1]))
    rows: list[Row] = []
    for entry, scores in scored:
        p = None
        if rows:
            above, this = outputs[rows[-1].entry.folder], outputs[entry.folder]
            # Not all lines at once: three translations of a sentence are not three sentences.
            seeds = zip(above, this, strict=True)
            p = max(paired_bootstrap(*pair, references).p_value for pair in seeds)
        rows.append(Row(entry, scores, p))
    return rows


def tables(entries: Sequence[Entry], files: Path | None = None) -> Iterator[str]:
    """For each track that has entries its table, in Markdown.

    Raises:
        UserError: the text of a track cannot be had, or an entry lacks translations.
    """
    for name, track in TRACKS.items():
        own = [entry for entry in entries if entry.about.track == name]
        if not own:
            continue
        test = track.splits(files).test
        lines = [
            f"## {name}",
            "",
            f"{track.corpus.capitalize()}, {len(test):,} test sentences, one reference, "
            f"{track.reference_steps:,} reference steps.",
            "",
            "| | entry | BLEU, mean of three seeds | each | p against the row above | about | by |",
            "|---|---|---|---|---|---|---|",
        ]
        for place, row in enumerate(rows_of(own, test), start=1):
            each = ", ".join(f"{score:.1f}" for score in row.scores)
            p = "–" if row.p is None else f"{row.p:.3f}"
            about = row.entry.about
            lines.append(
                f"| {place} | `{_name(row.entry.name)}` | **{mean(row.scores):.1f}** | {each} | "
                f"{p} | {_cell(about.about)} | {_cell(about.author)} |"
            )
        yield "\n".join(lines)


def _name(text: str) -> str:
    return one_line(text, 80).replace("`", "'").replace("|", r"\|")


def _cell(text: str) -> str:
    """What others wrote, as text: without HTML, Markdown's links and the end of the cell."""
    return re.sub(r"[|\[\]\\]", r"\\\g<0>", html.escape(one_line(text, 200), quote=False))
