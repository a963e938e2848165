"""Write docs/likeness.md: how well copied hand-ins are told from independent ones."""

import ast
import itertools
import json
import random
from collections import defaultdict
from pathlib import Path

import nbformat

from transformer_lib.files import write_text
from transformer_lib.instructor.likeness.comparison import STANDS_OUT, Pair, compare
from transformer_lib.instructor.likeness.report import given_in
from transformer_lib.instructor.likeness.traits import Work

ROOT = Path(__file__).parent.parent
HAND_INS = ROOT / "tests" / "likeness.jsonl"
TARGET = ROOT / "docs" / "likeness.md"
ASSIGNMENTS = ("2_attention", "3_norms")
LEVELS = ("renamed", "light", "medium", "heavy")
BARS = (5.0, STANDS_OUT, 20.0)

INTRODUCTION = """\
# How well copying is recognized

`transformer-lib likeness` lists pairs of hand-ins that are more alike than pairs of their class
usually are. The likeness of a pair is measured for several kinds of traits (tokens, syntax trees,
words, numbers). The score of a pair is the number of robust standard deviations by which its
likeness exceeds what is usual in the class, summed over the kinds (tokens and trees, two views of
the same code, count half each), and
the pairs above a **bar** are listed.

It was tried on made-up classes, whose hand-ins are in `tests/likeness.jsonl`. Language models
wrote them, in seven separate conversations, four or five students each, told to be different
people: 20 hand-ins of assignment 2 and 12 of assignment 3, with the mistakes that students make.
Another model, which did not know the method, then made copies like those of a student who has a
friend's notebook and does not want to be noticed:

- **light**: names, comments and some words are changed;
- **medium**: all names and the order of statements are changed as well, equivalent calls are
  swapped, sentences are reworded; the numbers that the friend had found stay;
- **heavy**: every answer is written anew, following the friend's approach and repeating its
  mistakes; figures
  use the copier's own seed.

**Renamed** copies were made by a program: all names of variables and parameters are changed,
comments are removed, and independent assignments and paragraphs change places.

Every pair but those of a copy and its original counts as **independent**: two originals, and also
a copy and the hand-in of somebody else.

The method was developed on assignment 2; assignment 3 was written afterwards and tried once, with
a bar of 20. The bar was then lowered to {bar:g}, with both in view.

Text is compared as it looks: characters without width are left out, letters that look like Latin
letters count as Latin, and code within a text, which `exec` could run, counts as code. Two
hand-ins that
are the same, in words as well, are listed whatever their score: where half a class has copied,
such likeness is usual in the class.
"""


def read_class(assignment: str) -> tuple[list[Work], dict[str, tuple[str, str]]]:
    """The hand-ins, and of each copy its original and level."""
    kinds = {name: cell.cell_type for name, cell in _answers(assignment).items()}
    works, copies = [], {}
    for line in HAND_INS.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if one["assignment"] != assignment:
            continue
        parts = {kind: {n: s for n, s in one["answers"].items() if kinds[n] == kind}
                 for kind in ("code", "markdown")}  # fmt: skip
        works.append(Work(one["student"], parts["code"], parts["markdown"]))
        if one["of"]:
            copies[one["student"]] = (one["of"], one["level"])
    return works, copies


def _notebook(assignment: str) -> nbformat.NotebookNode:
    (path,) = (ROOT / "assignments" / "release" / assignment).glob("*.ipynb")
    return nbformat.read(path, 4)


def _answers(assignment: str) -> dict[str, nbformat.NotebookNode]:
    cells = _notebook(assignment).cells
    named = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell for cell in cells}
    return {n: c for n, c in named.items() if n and c.metadata.nbgrader.solution}


def released(assignment: str) -> Work:
    """What everybody got."""
    return given_in([_notebook(assignment)])


def renamed(work: Work, seed: int) -> Work:
    """A copy as a program makes it; code that is no Python stays as it is."""
    draw = random.Random(seed)
    words = {}
    for name, text in work.words.items():
        paragraphs = text.split("\n\n")
        draw.shuffle(paragraphs)
        words[name] = "\n\n".join(paragraphs)
    return Work(f"renamed {work.student}", {n: _renamed(s) for n, s in work.code.items()}, words)


def _renamed(source: str) -> str:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    bound = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)} - {"self"}
    names = {name: f"w{number}" for number, name in enumerate(sorted(bound))}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in names:
                node.id = names[name]
            case ast.arg(arg=name) if name in names:
                node.arg = names[name]
            case ast.FunctionDef(body=body):
                node.body = _swapped(body)
    return ast.unparse(tree)


def _swapped(body: list[ast.stmt]) -> list[ast.stmt]:
    """The first two neighboring assignments change places if neither uses what the other sets."""
    for n, (one, other) in enumerate(itertools.pairwise(body)):
        if (
            isinstance(one, ast.Assign)
            and isinstance(other, ast.Assign)
            and not (
                _names(one, ast.Store) & _names(other) or _names(other, ast.Store) & _names(one)
            )
        ):
            return [*body[:n], other, one, *body[n + 2 :]]
    return body


def _names(node: ast.AST, context: type = ast.expr_context) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def measured(assignment: str) -> tuple[dict[str, list[float]], list[Pair]]:
    """By level, how far copies and their originals stand out; and all pairs that are independent.

    Each renamed copy is tried in a class of its own, with all originals; the written copies are in
    one class, with all originals.
    """
    works, copies = read_class(assignment)
    originals = [work for work in works if work.student not in copies]
    given = released(assignment)
    pairs = compare(works, given)
    found: dict[str, list[float]] = defaultdict(list)
    independent = []
    for pair in pairs:
        a, b = pair.a.student, pair.b.student
        of = {copies.get(a, (None,))[0], copies.get(b, (None,))[0]}
        if copies.get(b, ("",))[0] == a:
            found[copies[b][1]].append(pair.total)
        elif not of & {a, b}:
            independent.append(pair)
    for seed, work in enumerate(originals):
        copy = renamed(work, seed)
        for pair in compare([*originals, copy], given):
            if pair.b is copy and pair.a is work:
                found["renamed"].append(pair.total)
    return found, independent


def as_markdown() -> str:
    lines = [INTRODUCTION.format(bar=STANDS_OUT)]
    heavy: list[float] = []
    for assignment in ASSIGNMENTS:
        found, independent = measured(assignment)
        head = " | ".join(f"bar {bar:g}" for bar in BARS)
        lines += [f"\n## {assignment}\n", f"| | pairs | {head} |", "|---|--:|" + "--:|" * len(BARS)]
        for level in LEVELS:
            lines.append(_row(f"copies, {level}: found", found[level]))
        heavy += found["heavy"]
        lines.append(_row("independent: listed wrongly", [pair.total for pair in independent]))
        worst = independent[0]
        lines.append(f"\nThe independent pair that stands out most scores {worst.total:.0f}, "
                     f"mostly for {max(worst.evidence, key=worst.evidence.get)}.")  # fmt: skip
    listed = sum(total >= STANDS_OUT for total in heavy)
    lines.append(CONCLUSION.format(listed=listed, heavy=len(heavy)))
    return "\n".join(lines)


def _row(name: str, totals: list[float]) -> str:
    cells = " | ".join(str(sum(total >= bar for total in totals)) for bar in BARS)
    return f"| {name} | {len(totals)} | {cells} |"


CONCLUSION = """
So a student who renames and rewords is found, mostly by what seemed not worth changing, such as
the numbers and the three-word runs that only two hand-ins have in common. Of the copies in which
everything was written anew, {listed} of {heavy} were found: what is left is the approach, which
others have as well. Independent hand-ins of people who write alike are listed, too. That is why
the page shows both texts, and passes no verdict. In a larger class there are more pairs, so more
of them stand out by chance: of 200
hand-ins there are 19,900 pairs. The page shows the forty that are most alike side by side, and
lists the others by name. These classes are small, and their authors were language models: real
students may be more alike, or less.
"""


if __name__ == "__main__":
    write_text(TARGET, as_markdown())
