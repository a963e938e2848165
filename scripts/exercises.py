"""Read exercises, marks and times out of the chapters: for the package and as a page.

Run it after a change of a mark: ``make docs``.
"""

import json
import re
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import jupytext

from transformer_lib.course.chapters import MARKS, Task
from transformer_lib.course.own.record import solutions
from transformer_lib.files import write_text

ROOT = Path(__file__).parent.parent
TEXT = ROOT / "chapters" / "text"
STORED = ROOT / "transformer_lib" / "course" / "chapters.json"
PAGE = ROOT / "docs" / "exercises.md"
CHECK = re.compile(r"^check(?:_experiment)?\(\"?(\w+)[\")]", re.MULTILINE)
MARK = re.compile(r"^### (.+)\n\n(●[●○]{2}) · (\d+) minutes · (.+)$", re.MULTILINE)
TITLE = re.compile(r"^# (\d+ · .+)$", re.MULTILINE)
READING = re.compile(r"^Reading takes about ([a-z -]+?)(?: minutes)?,", re.MULTILINE)
MINUTES = {"twenty": 20, "half an hour": 30, "thirty": 30, "forty": 40, "fifty": 50, "an hour": 60}
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)  # in a solution
DIFFICULTY = {mark: number for number, mark in MARKS.items()}


def tasks_of(twin: Path) -> list[Task]:
    """The exercises of a chapter: a heading with its mark, and the check that belongs to it."""
    found, marks = [], []
    for cell in jupytext.read(twin).cells:
        if cell.cell_type == "markdown":
            marks += MARK.findall(cell.source)
        elif checked := CHECK.search(cell.source):
            if not marks:
                raise SystemExit(f"{twin.name}: {checked[1]} has no line like ●○○ · 10 minutes · …")
            heading, difficulty, minutes, purpose = marks.pop(0)
            task = Task(
                twin.stem, heading, checked[1], DIFFICULTY[difficulty], int(minutes), purpose
            )
            found.append(task)
    if marks:
        raise SystemExit(f"{twin.name}: no check belongs to “{marks[0][0]}”")
    return found


def all_tasks() -> list[Task]:
    return [task for twin in sorted(TEXT.glob("*.py")) for task in tasks_of(twin)]


def titles() -> dict[str, str]:
    found = {
        twin.stem: TITLE.search(jupytext.read(twin).cells[0].source) for twin in TEXT.glob("*.py")
    }
    return {chapter: match[1] for chapter, match in sorted(found.items()) if match}


def lines_of(name: str) -> int:
    """Lines of the written solution, without the ``def`` and its docstring."""
    code = "\n".join(CODE.findall(solutions()[name]))
    lines = [line for line in code.splitlines() if line.strip()]
    return sum(not line.lstrip().startswith(('"""', "def ", "class ", "#")) for line in lines)


def reading() -> dict[str, int]:
    """Minutes of each chapter that says how long it takes to read."""
    found = {
        twin.stem: READING.search("\n\n".join(cell.source for cell in jupytext.read(twin).cells))
        for twin in sorted(TEXT.glob("*.py"))
    }
    return {chapter: MINUTES[match[1]] for chapter, match in found.items() if match}


def as_json(tasks: list[Task]) -> str:
    stored = {
        "titles": titles(),
        "reading": reading(),
        "exercises": [asdict(task) for task in tasks],
    }
    return json.dumps(stored, ensure_ascii=False, indent=1) + "\n"


def as_markdown(tasks: list[Task]) -> str:
    hours = sum(task.minutes for task in tasks) / 60
    lines = [
        "# The exercises",
        "",
        f"{len(tasks)} exercises, about {hours:.0f} hours of work besides the reading. ●○○ is one",
        "idea, ●●○ takes several steps, ●●● is an experiment or a part of a real system. The lines",
        "are those of one solution.",
        "",
        "| chapter | exercise | how hard | minutes | lines | what for |",
        "|---|---|---|---|---|---|",
    ]
    for chapter, group in groupby(tasks, key=lambda task: task.chapter):
        rows = list(group)
        first = f"[{int(chapter[:2])}](../chapters/{chapter}.ipynb)"
        for row in rows:
            cells = [first, f"{row.heading}: `{row.name}`", MARKS[row.difficulty]]
            cells += [row.minutes, lines_of(row.name), row.purpose]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
            first = ""
        lines.append(f"| | *together* | | *{sum(row.minutes for row in rows)}* | | |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    tasks = all_tasks()
    write_text(STORED, as_json(tasks))
    write_text(PAGE, as_markdown(tasks))
    print(f"{STORED}\n{PAGE}")
