"""What raters see (the sheet), what they must not see (the key), and what they send back.

A sheet holds either pairs of translations (``pairwise``: which one is better?) or single ones
(``direct``: how well does it say what the source says, 0–100?). Which system said what is in
the key only. Two kinds of items watch the raters: **repeated** ones come twice, with the sides
changed; **degraded** ones hold a translation of which half the words were replaced, which must lose
against the undamaged one.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import numpy as np
import pydantic
from pydantic.dataclasses import dataclass

from transformer_lib.errors import UserError, first_problem
from transformer_lib.files import new_folder, read_text, write_text
from transformer_lib.pages import write_page
from transformer_lib.shown import one_line

Kind = Literal["pairwise", "direct"]
Control = Literal["none", "repeated", "degraded"]
DAMAGED = "(damaged)"
"""Stands in the key for the degraded side of a pair."""

_STRICT = pydantic.ConfigDict(extra="forbid", strict=True)
Content = TypeVar("Content")
Score = Annotated[int, pydantic.Field(ge=0, le=100)]


@dataclass(frozen=True, config=_STRICT)
class Item:
    """One question: a source and its two translations, A and B, or its only one."""

    id: str
    source: str
    texts: tuple[str, ...]


@dataclass(frozen=True, config=_STRICT)
class Sheet:
    """All questions, in the order in which they are asked."""

    kind: Kind
    items: tuple[Item, ...]

    @property
    def digest(self) -> str:
        """What ratings name, so that they cannot be taken for those of another sheet."""
        return hashlib.sha256(_to_json(Sheet, self).encode()).hexdigest()[:16]


@dataclass(frozen=True, config=_STRICT)
class Entry:
    """What an item really is: the sentence's number, the system of each text, why it is there.

    ``references`` are the sentence's, if they are known.
    """

    sentence: int
    systems: tuple[str, ...]
    control: Control
    references: tuple[str, ...] = ()


@dataclass(frozen=True, config=_STRICT)
class Key:
    """The answer to “who said what”, by the items' ids."""

    digest: str
    systems: tuple[str, str]
    seed: int
    entries: dict[str, Entry]


@dataclass(frozen=True, config=_STRICT)
class Ratings:
    """One rater's answers by item: ``A``, ``B`` or ``=`` for pairs, 0 to 100 for single ones."""

    digest: str
    rater: str
    answers: dict[str, Literal["A", "B", "="] | Score]


def rater_name(text: str) -> str:
    """What a rater is called wherever it is shown."""
    return one_line(text, 60)


Question = tuple[Entry, tuple[str, ...]]
"""What an item really is, and its texts."""


def make_sheet(
    sources: Sequence[str],
    outputs: Mapping[str, Sequence[str]],
    kind: Kind,
    sentences: int = 30,
    repeated: int = 3,
    degraded: int = 3,
    seed: int | None = None,
    references: Sequence[Sequence[str]] | None = None,
) -> tuple[Sheet, Key]:
    """Draw sentences by lot, put the systems' outputs in random order, add control items.

    Only sentences that the two systems translate differently are drawn. With ``references``, those
    of each source, the report can say how people agree with BLEU.

    Raises:
        UserError: not two systems, outputs of another number than sources, or too few different
            translations.
    """
    if len(outputs) != 2:
        given = f"not {len(outputs)}" if len(outputs) > 1 else "not one against itself"
        raise UserError(f"two systems are rated against one another, {given}")
    for name, texts in outputs.items():
        if len(texts) != len(sources):
            raise UserError(f"{name} has {len(texts)} translations of {len(sources)} sources")
    first, second = outputs
    different = [i for i in range(len(sources)) if outputs[first][i] != outputs[second][i]]
    if len(different) < sentences:
        raise UserError(
            f"the systems translate only {len(different)} sentences differently, "
            f"{sentences} were asked for"
        )
    seed = secrets.randbits(63) if seed is None else seed
    random = np.random.default_rng(seed)
    chosen = sorted(random.choice(different, sentences, replace=False).tolist())
    regular = [
        question
        for sentence in chosen
        for question in _regular(sentence, outputs, kind, references, random)
    ]

    def some(count: int) -> list[Question]:
        return [regular[place] for place in random.permutation(len(regular))[:count].tolist()]

    again = [
        (Entry(entry.sentence, entry.systems[::-1], "repeated"), texts[::-1])
        for entry, texts in some(repeated)
    ]
    damaged = [_damaged(question, regular, outputs, random) for question in some(degraded)]
    questions = [*regular, *again, *damaged]
    order = random.permutation(len(questions)).tolist()
    named = {f"{n:03d}": questions[place] for n, place in enumerate(order, start=1)}
    items = [Item(id, sources[entry.sentence], texts) for id, (entry, texts) in named.items()]
    sheet = Sheet(kind, tuple(items))
    entries = {id: entry for id, (entry, _) in named.items()}
    return sheet, Key(sheet.digest, (first, second), seed, entries)


def _regular(
    sentence: int,
    outputs: Mapping[str, Sequence[str]],
    kind: Kind,
    references: Sequence[Sequence[str]] | None,
    random: np.random.Generator,
) -> list[Question]:
    """What is asked about a sentence: one pair, the sides drawn by lot, or two single texts."""
    right = tuple(references[sentence]) if references else ()
    systems = tuple(outputs)
    if kind == "pairwise":
        sides = [systems if random.random() < 0.5 else systems[::-1]]
    else:
        sides = [(system,) for system in systems]
    return [
        (Entry(sentence, side, "none", right), tuple(outputs[system][sentence] for system in side))
        for side in sides
    ]


def _damaged(
    question: Question,
    regular: Sequence[Question],
    outputs: Mapping[str, Sequence[str]],
    random: np.random.Generator,
) -> Question:
    """Its first text damaged: alone, or beside the undamaged one on a side that is drawn by lot."""
    entry, texts = question
    here = [each[entry.sentence] for each in outputs.values()]
    others = [text for other, given in regular for text in given
              if other.sentence != entry.sentence]  # fmt: skip
    damaged = _damage(texts[0], _words(others) - _words(here), random)
    if len(texts) == 1:
        return Entry(entry.sentence, entry.systems, "degraded"), (damaged,)
    pair, systems = (texts[0], damaged), (entry.systems[0], DAMAGED)
    if random.random() < 0.5:
        pair, systems = pair[::-1], systems[::-1]
    return Entry(entry.sentence, systems, "degraded"), pair


def _words(texts: Sequence[str]) -> set[str]:
    return {word for text in texts for word in text.split()}


def _damage(text: str, strange: set[str], random: np.random.Generator) -> str:
    """Half of the words, in one run, replaced by as many strange ones."""
    words = text.split()
    count = max(1, len(words) // 2)
    start = int(random.integers(0, len(words) - count + 1)) if words else 0
    drawn = [str(word) for word in random.choice(sorted(strange), count)] if strange else ["…"]
    return " ".join([*words[:start], *drawn, *words[start + count :]])


def write_task(folder: Path, sheet: Sheet, key: Key) -> None:
    """``sheet.json`` and ``rate.html`` for raters, ``key.json`` for nobody but the organizer.

    All of them or none.

    Raises:
        UserError: the folder cannot be written or is not empty.
    """
    # Inside a script element no text may end it: < is written as an escape.
    data = _to_json(Sheet, sheet).replace("<", "\\u003c")
    content = {"sheet": data, "digest": sheet.digest}
    with new_folder(folder) as new:
        write_page(new / "rate.html", "transformer_lib.instructor.rating", "rate.html", content)
        write_text(new / "sheet.json", _to_json(Sheet, sheet))
        write_text(new / "key.json", _to_json(Key, key))


def read_sheet(path: Path) -> Sheet:
    """Raises UserError: the file cannot be read or is not a sheet."""
    return _read(Sheet, path)


def read_key(path: Path) -> Key:
    """Raises UserError: the file cannot be read or is not a key."""
    return _read(Key, path)


def read_ratings(path: Path, sheet: Sheet) -> Ratings:
    """One rater's file.

    Raises:
        UserError: it cannot be read, belongs to another sheet, or answers what was not asked.
    """
    ratings = _read(Ratings, path)
    if ratings.digest != sheet.digest:
        raise UserError(f"{path} has ratings of another sheet")
    unknown = ratings.answers.keys() - {item.id for item in sheet.items}
    if unknown:
        raise UserError(
            f"{path} rates items that are not in the sheet: {', '.join(sorted(unknown))}"
        )
    wanted = str if sheet.kind == "pairwise" else int
    for id, answer in ratings.answers.items():
        if not isinstance(answer, wanted):
            form = "A, B or =" if sheet.kind == "pairwise" else "a number from 0 to 100"
            raise UserError(f"{path}: item {id} has the answer {answer!r}; it should be {form}")
    return replace(ratings, rater=rater_name(ratings.rater))


NAMES: dict[type, str] = {Sheet: "a sheet", Key: "a key", Ratings: "ratings"}


def _to_json(kind: type[Content], value: Content) -> str:
    return pydantic.TypeAdapter(kind).dump_json(value, indent=1).decode()


def _read(kind: type[Content], path: Path) -> Content:
    try:
        return pydantic.TypeAdapter(kind).validate_json(read_text(path))
    except pydantic.ValidationError as error:
        raise UserError(f"{path} does not hold {NAMES[kind]}: {first_problem(error)}") from error
