"""Every number in the prose is printed by a cell beside it, or its source is listed.

What counts as a number here: percentages, numbers with a decimal point and those from 100 on, but
no years. A number may be rounded. It holds if a cell of the same section (or of the one before)
shows it, if the paragraph names the chapter whose cells show it, or if ``docs/sources.md`` says
where it comes from. The opening and the summary may take from the whole chapter. A percentage is
a result: it must be in what a cell prints, not in its code alone, and there it has a decimal point
or a percent sign.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = {path.stem[:2]: path for path in sorted((ROOT / "chapters").glob("*.ipynb"))}
NO_PROSE = re.compile(
    r"```.*?```|\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|\]\([^)]*\)|<[^>]+>|[Ss]ections? [\d., and]+\d",
    re.DOTALL,
)
NUMBER = re.compile(r"(?<![\w.,/^])(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|\d+)(?![\d.,]*\w)( ?%)?")
SHOWN = re.compile(r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:e[+-]?\d+)?)( ?%)?")
SOURCE = re.compile(r"^\| ([\d, ]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Claim:
    """A number of the prose."""

    text: str
    paragraph: str

    @property
    def is_share(self):
        return self.text.endswith("%")

    @property
    def digits(self):
        return self.text.rstrip(" %").replace(",", "")

    @property
    def needs_a_source(self):
        year = re.fullmatch(r"(19|20)\d\d", self.text)
        return self.is_share or "." in self.digits or (float(self.digits) >= 100 and not year)

    def is_shown_by(self, numbers):
        possible = [number for number, is_share in numbers if is_share or not self.is_share]
        tolerance = 0.5 * 10 ** -len(self.digits.partition(".")[2]) + 1e-9
        scales = (1, 100) if self.is_share else (1,)
        claimed = float(self.digits)
        return any(
            abs(scale * number - claimed) <= tolerance for number in possible for scale in scales
        )


def claims(prose):
    """The numbers of a Markdown cell."""
    for paragraph in re.split(r"\n\s*\n", prose):
        for found in NUMBER.finditer(NO_PROSE.sub(" ", paragraph)):
            claim = Claim(found[0].strip(), paragraph)
            if claim.needs_a_source:
                yield claim


def shown(cell):
    """The numbers that a code cell and its outputs have."""
    texts = []
    for output in cell.outputs:
        data = output.get("data", {})
        texts += [output.get("text", ""), data.get("text/plain", "")]
        texts.append(re.sub(r"<[^>]+>", " ", data.get("text/html", "")))
    return numbers_in(" ".join(texts)) | {(number, False) for number, _ in numbers_in(cell.source)}


def numbers_in(text):
    """Each with whether it may be a share: it has a decimal point or a percent sign."""
    return {
        (float(number.replace(",", "")), bool(sign or re.search(r"\.\d", number)))
        for number, sign in SHOWN.findall(text)
    }


def sections(notebook):
    """For each cell the number of its section."""
    number, found = 0, []
    for cell in notebook.cells:
        number += bool(cell.cell_type == "markdown" and re.search("^## ", cell.source, re.M))
        found.append(number)
    return found


def numbers_of(chapter):
    notebook = nbformat.read(NOTEBOOKS[chapter], as_version=4)
    return set().union(*(shown(cell) for cell in notebook.cells if cell.cell_type == "code"))


def listed(chapter):
    """The numbers that ``docs/sources.md`` has for a chapter."""
    text = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    rows = [row for row in SOURCE.findall(text) if int(chapter) in map(int, row[0].split(","))]
    return {(number, True) for row in rows for number, _ in numbers_in(row[1])}


def unsupported(chapter):
    notebook = nbformat.read(NOTEBOOKS[chapter], as_version=4)
    section = sections(notebook)
    by_cell = [shown(cell) if cell.cell_type == "code" else set() for cell in notebook.cells]
    for here, cell in zip(section, notebook.cells, strict=True):
        if cell.cell_type != "markdown":
            continue
        near = set(section) if here in (0, section[-1]) else {here, here - 1}
        beside = set().union(*(n for n, s in zip(by_cell, section, strict=True) if s in near))
        for claim in claims(cell.source):
            others = re.findall(r"\bchapters? (\d+)", claim.paragraph)
            elsewhere = set().union(*(numbers_of(f"{int(other):02}") for other in others))
            if not claim.is_shown_by(beside | elsewhere | listed(chapter)):
                yield claim


@pytest.mark.parametrize("chapter", NOTEBOOKS)
def test_every_number_in_the_prose_is_shown_by_a_cell_or_has_a_source(chapter):
    missing = [f"{claim.text}: {claim.paragraph}" for claim in unsupported(chapter)]
    assert not missing, "\n\n".join(missing)


@pytest.mark.parametrize(
    ("prose", "numbers", "holds"),
    [
        ("about 35% of them", {0.347}, True),
        ("about 35% of them", {34.7}, True),
        ("about 36% of them", {0.347}, False),
        ("a loss of 2.6 nats", {2.6371}, True),
        ("a loss of 2.7 nats", {2.6371}, False),
        ("48,022 pairs", {48022.0}, True),
        ("48,000 pairs", {48022.0}, False),
    ],
)
def test_a_number_may_be_rounded_and_not_be_another_one(prose, numbers, holds):
    (claim,) = claims(prose)
    assert claim.is_shown_by({(number, True) for number in numbers}) == holds


def test_a_percentage_must_be_printed():
    (share,), (count,) = claims("about 35%"), claims("of 150")
    printed = nbformat.v4.new_output("stream", text="35")
    cell = nbformat.v4.new_code_cell("35, 0.35, 150", outputs=[printed])
    assert count.is_shown_by(shown(cell))
    assert not share.is_shown_by(shown(cell))
    assert share.is_shown_by(numbers_in("35 of 100, 35 %"))


def test_what_is_no_claim():
    assert not list(claims("In 2017, section 5.4 of chapter 12, `0.35` and $x = 0.35$: 8 heads."))
