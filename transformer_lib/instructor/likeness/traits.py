"""What of a hand-in can be compared: its code without names, its words and its numbers.

References:
    S. Schleimer, D. Wilkerson, A. Aiken: Winnowing: Local Algorithms for Document Fingerprinting.
    SIGMOD 2003. https://theory.stanford.edu/~aiken/publications/papers/sigmod03.pdf
"""

import ast
import contextlib
import functools
import hashlib
import math
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from copydetect.utils import filter_code, winnow

from transformer_lib.instructor.grading.master import parse_any

KINDS = ("tokens", "trees", "words", "numbers")
K_GRAM, WINDOW = 24, 5  # characters of code whose names are replaced by one letter each
MIN_NODES = 6  # of a syntax tree that is compared
SHINGLE = 3  # words
LEAST_LINE = 8  # characters of a line without names
MODULES = frozenset({"torch", "math", "nn", "np", "F", "self"})
SAME_CALL = {"logical_and": "BitAnd", "logical_or": "BitOr", "logical_not": "Invert",
             "matmul": "MatMult", "bmm": "MatMult",
             "reshape": "view", "masked_fill_": "masked_fill"}  # fmt: skip
OPERATIONS = {"BitAnd", "BitOr", "Invert", "MatMult"}  # for which there are calls as well
FLIPPED = {"Gt": "Lt", "GtE": "LtE"}
WORD = re.compile(r"[^\W\d_]{2,}|\d+(?:[.,]\d+)*")
NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w])")
TWINS = str.maketrans(
    "АВЕКМНОРСТХІЅЈаеорсхіѕјΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEKMHOPCTXISJaeopcxisjABEZHIKMNOPTXo"
)
"""Cyrillic and Greek letters that look like Latin ones."""


@dataclass(frozen=True)
class Work:
    """What one student wrote: code and words, cell by cell."""

    student: str
    code: dict[str, str]
    words: dict[str, str]

    @functools.cached_property  # each is compared with everybody else's
    def bare(self) -> dict[str, str]:
        """Cell by cell, without blanks."""
        cells = (self.code | self.words).items()
        return {name: "".join(as_seen(text).split()) for name, text in cells}


Traits = dict[str, dict[object, float]]
"""By kind: what was found, and its weight before rarity."""


def traits(work: Work) -> Traits:
    """What can be compared of a hand-in."""
    found: Traits = {kind: {} for kind in KINDS}
    for source in (part for whole in work.code.values() for part in _with_texts(as_seen(whole))):
        found["tokens"] |= dict.fromkeys(_fingerprints(source), 1.0)
        with contextlib.suppress(RecursionError):  # its tokens are compared
            found["trees"] |= dict(_trees(parse_any(source)))
    for text in map(as_seen, work.words.values()):
        words = [word.casefold() for word in WORD.findall(text)]
        found["words"] |= dict.fromkeys(_shingles(words), 1.0)
        found["words"] |= dict.fromkeys(words, 1.0)
        found["numbers"] |= dict.fromkeys(_numbers(text), 1.0)
    return found


def as_seen(text: str) -> str:
    """Without what has no width, and with one letter for those that look alike."""
    return "".join(c for c in text if unicodedata.category(c) != "Cf").translate(TWINS)


def _with_texts(source: str) -> Iterator[str]:
    """The code, and that in its texts, which ``exec`` may run."""
    yield source
    for node in ast.walk(parse_any(source)):
        match node:
            case ast.Constant(value=str(text)):
                if any(not isinstance(part, ast.Expr) for part in parse_any(text).body):
                    yield from _with_texts(text)


def _shingles(words: list[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[n:] for n in range(SHINGLE)), strict=False)


def _fingerprints(source: str) -> set[int]:
    """Of the code without comments, each name a letter."""
    text, _ = filter_code(source, "answer.py", "python")
    grams = [text[n : n + K_GRAM].encode() for n in range(len(text) - K_GRAM + 1)]
    if len(grams) < WINDOW:
        return set()
    return {int(value) for value in winnow(np.array([zlib.crc32(g) for g in grams]), WINDOW)[0]}


def _numbers(text: str) -> Iterator[str]:
    """Numbers of at least three digits, in one form."""
    for number in NUMBER.findall(text):
        plain = number.replace(",", "") if re.fullmatch(r"\d{1,3}(,\d{3})+", number) else number
        plain = plain.replace(",", ".").lstrip("0")
        if sum(map(str.isdigit, plain)) >= 3:
            yield f"0{plain}" if plain.startswith(".") else plain


Visit = Callable[[ast.AST], tuple[str, int]]
"""Gives a node's normalized form and how many nodes it has."""


def _trees(tree: ast.AST) -> Iterator[tuple[str, float]]:
    """The normalized subtrees, with their sizes."""
    sizes: dict[str, float] = {}

    def visit(node: ast.AST) -> tuple[str, int]:
        text, size = _normalised(node, visit)
        if size >= MIN_NODES:
            sizes[hashlib.blake2b(text.encode(), digest_size=8).hexdigest()] = math.sqrt(size)
        return text, size

    visit(tree)
    yield from sizes.items()


def _normalised(node: ast.AST, visit: Visit) -> tuple[str, int]:
    """A form that renaming, the order of operands and the way to call a function do not change."""
    if isinstance(node, ast.Name):
        return (node.id if node.id in MODULES else "v"), 1
    if isinstance(node, ast.arg):
        return "v", 1
    if isinstance(node, ast.Constant):
        value = node.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return (repr(value) if is_number else type(value).__name__), 1
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return "", 0  # documentation
    if isinstance(node, ast.BinOp):
        return _operation(type(node.op).__name__, [visit(node.left), visit(node.right)])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return _operation("Invert", [visit(node.operand)])
    if isinstance(node, ast.Call):
        return _call(node, visit)
    parts = [visit(child) for child in ast.iter_child_nodes(node)]
    name = type(node).__name__
    if isinstance(node, ast.Attribute):
        name = f".{SAME_CALL.get(node.attr, node.attr)}"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        (left, _, right), operator = parts, type(node.ops[0]).__name__
        if operator in FLIPPED:
            left, right, operator = right, left, FLIPPED[operator]
        return f"Compare({left[0]} {operator} {right[0]})", 2 + left[1] + right[1]
    return f"{name}({' '.join(text for text, _ in parts)})", 1 + sum(size for _, size in parts)


def _operation(name: str, parts: list[tuple[str, int]]) -> tuple[str, int]:
    if name in ("Add", "Mult", "BitAnd", "BitOr"):
        parts = sorted(parts)
    return f"{name}({' '.join(text for text, _ in parts)})", 1 + sum(size for _, size in parts)


def _call(node: ast.Call, visit: Visit) -> tuple[str, int]:
    """``torch.f(x, …)``, ``F.f(x, …)`` and ``x.f(…)`` are the same; keywords have no order."""
    arguments = [visit(argument) for argument in node.args]
    keywords = sorted(visit(keyword.value) for keyword in node.keywords)
    if not isinstance(node.func, ast.Attribute):
        parts = [visit(node.func), *arguments, *keywords]
        return f"Call({' '.join(t for t, _ in parts)})", 1 + sum(size for _, size in parts)
    owner = visit(node.func.value)
    if owner[0] not in ("torch", "F", "np", "math"):
        arguments = [owner, *arguments]
    name = SAME_CALL.get(node.func.attr, node.func.attr)
    if name in OPERATIONS:
        return _operation(name, arguments)
    parts = [*arguments, *keywords]
    return f".{name}({' '.join(text for text, _ in parts)})", 1 + sum(size for _, size in parts)


def marked_code(source: str, other: str, given: str = "") -> list[tuple[str, bool]]:
    """The lines, and of each whether the other has one that differs in names alone.

    Args:
        given: code that everybody got; its lines are not marked.
    """
    theirs = {_form(line) for line in other.splitlines()}
    theirs -= {_form(line) for line in given.splitlines()}
    return [
        (f"{line}\n", len(form := _form(line)) >= LEAST_LINE and form in theirs)
        for line in source.splitlines()
    ]


@functools.lru_cache(maxsize=10_000)  # what was released is compared with in every pair
def _form(line: str) -> str:
    return str(filter_code(line, "answer.py", "python")[0]).strip()


def marked_words(text: str, other: str) -> list[tuple[str, bool]]:
    """The text in pieces, and of each whether it is of three words that the other has in a row."""
    theirs = set(_shingles([word.casefold() for word in WORD.findall(other)]))
    places = list(WORD.finditer(text))
    shared = [False] * len(places)
    for number, shingle in enumerate(_shingles([place[0].casefold() for place in places])):
        if shingle in theirs:
            shared[number : number + SHINGLE] = [True] * SHINGLE
    pieces, end = [], 0
    for place, is_shared in zip(places, shared, strict=True):
        pieces += [(text[end : place.start()], False), (place[0], is_shared)]
        end = place.end()
    return [*pieces, (text[end:], False)]
