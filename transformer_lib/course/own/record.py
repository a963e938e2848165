"""What a student has done, what comes next and how long it takes; solutions on demand."""

import html
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path

from transformer_lib.course.chapters import MARKS, Task, order, tasks, title
from transformer_lib.course.checks import EXPERIMENTS, find_exercise
from transformer_lib.course.own import module
from transformer_lib.errors import UserError
from transformer_lib.files import write_text

RECORD = "my_progress.json"


@dataclass
class Done:
    """What is known of one exercise."""

    tries: int = 0
    passed: bool = False
    solution_seen: bool = False


def read_record(folder: Path) -> dict[str, Done]:
    """The record of a folder; what cannot be read of it counts as none."""
    return _read(folder) or {}


def _read(folder: Path) -> dict[str, Done] | None:
    """The same; ``None`` where there is no record, or a damaged one."""
    empty = asdict(Done())
    with suppress(OSError, ValueError, TypeError, AttributeError):
        entries = json.loads((folder / RECORD).read_text(encoding="utf-8-sig"))
        found = {}
        for name, entry in entries.items():
            known = {key: value for key, value in entry.items() if key in empty}
            if any(type(value) is not type(empty[key]) for key, value in known.items()):
                return None
            found[name] = Done(**known)
        return found
    return None


@contextmanager
def _changing(folder: Path, name: str) -> Iterator[Done]:
    """What is known of one exercise, to be changed; a damaged record is set aside, not lost."""
    path = folder / RECORD
    with module.one_at_a_time(path):
        record = _read(folder)
        if record is None and path.exists():
            path.replace(module.free_name(path))
        record = record or {}
        yield record.setdefault(name, Done())
        entries = {name: asdict(done) for name, done in record.items()}
        write_text(path, json.dumps(entries, indent=1) + "\n")


def note_try(folder: Path, name: str, passed: bool) -> None:
    """Count a try at an exercise."""
    with _changing(folder, name) as done:
        done.tries += 1
        done.passed |= passed


@dataclass(frozen=True)
class Progress:
    """The table of what is done, in a notebook as HTML and elsewhere as text."""

    record: dict[str, Done]
    own: frozenset[str]  # the parts in the student's module

    def sign(self, task: Task) -> str:
        done = self.record.get(task.name, Done())
        if not (done.passed or task.name in self.own):
            return "…" if done.tries else " "
        return "✓ (solution seen)" if done.solution_seen else "✓"

    @property
    def open(self) -> list[Task]:
        return [task for task in tasks() if not self.sign(task).startswith("✓")]

    @property
    def summary(self) -> str:
        """One line: how much is done, and what comes next."""
        done, hours = len(tasks()) - len(self.open), sum(t.minutes for t in self.open) / 60
        line = f"{done} of {len(tasks())} exercises done"
        if not self.open:
            return f"{line}: the whole course"
        task = self.open[0]
        return (
            f"{line}, about {hours:.0f} hours to go; next: {task.heading} "
            f"({task.name}, chapter {int(task.chapter[:2])}, {task.minutes} minutes)"
        )

    def share(self, chapter: str) -> tuple[int, int]:
        """How many exercises of a chapter are done, and how many there are."""
        here = [task for task in tasks() if task.chapter == chapter]
        return sum(self.sign(task).startswith("✓") for task in here), len(here)

    def __repr__(self) -> str:
        lines = []
        for chapter, group in _by_chapter(tasks()):
            lines += [chapter]
            lines += [
                f"{self.sign(task)[:1]} {MARKS[task.difficulty]} {task.minutes:3} min "
                f"{task.name:23} {task.heading}{self.sign(task)[1:]}"
                for task in group
            ]
            lines += [""]
        # What matters is last, where a terminal shows it.
        return "\n".join([*lines, "✓ done, … tried", *self.summary.split("; ")])

    def _repr_html_(self) -> str:
        chapters = ""
        for chapter, group in _by_chapter(tasks()):
            link = f'<a href="{chapter}.ipynb">{html.escape(title(chapter))}</a>'
            done, count = self.share(chapter)
            is_next = any(task.chapter == chapter for task in self.open[:1])
            rows = "".join(
                f"<tr><td>{html.escape(self.sign(task))}</td><td>{MARKS[task.difficulty]}</td>"
                f'<td style="text-align:right">{task.minutes} min</td>'
                f'<td style="text-align:left"><code>{task.name}</code></td>'
                f'<td style="text-align:left">{html.escape(task.heading)}</td></tr>'
                for task in group
            )
            chapters += (
                f"<details{' open' * is_next}><summary>{link}: {done} of {count}</summary>"
                f"<table>{rows}</table></details>"
            )
        return f"<div><p>{html.escape(self.summary)}</p>{chapters}</div>"


def _by_chapter(of: Iterable[Task]) -> Iterable[tuple[str, Iterable[Task]]]:
    return groupby(of, key=lambda task: task.chapter)


def progress(folder: str | Path = ".") -> Progress:
    """What has been done in the notebooks of a folder."""
    folder = Path(folder)
    own: frozenset[str] = frozenset()
    with suppress(SyntaxError, UserError):
        own = frozenset(module.read(folder / f"{module.NAME}.py").parts)
    return Progress(read_record(folder), own)


@dataclass(frozen=True)
class Solution:
    """The solution of one exercise, or a line on why it is not shown yet."""

    markdown: str

    def __repr__(self) -> str:
        return self.markdown

    def _repr_markdown_(self) -> str:
        return self.markdown


def solution(name: str) -> Solution:
    """Show how an exercise can be solved, and why so, after a first try of one's own.

    Raises:
        ValueError: there is no such exercise.
    """
    is_experiment = name in EXPERIMENTS
    if not is_experiment:
        find_exercise(name)
    if name not in order():
        return Solution(f"`{name}` is not an exercise of a chapter: its solution is not shown.")
    folder = Path.cwd()
    if name not in read_record(folder):
        check = (
            f'check_experiment("{name}", runs, conclusion)' if is_experiment else f"check({name})"
        )
        return Solution(
            f"Try it first, if only in part, and run `{check}`: then `solution({name!r})` shows "
            "one way."
        )
    with _changing(folder, name) as done:
        done.solution_seen |= not done.passed
    return Solution(solutions()[name])


def solutions() -> dict[str, str]:
    """The written solutions, in Markdown, by the name of their exercise."""
    found: dict[str, str] = {}
    for file in sorted(resources.files(__package__).joinpath("solutions").iterdir(), key=str):
        _, *sections = re.split(r"^## (\w+)$", file.read_text(encoding="utf-8"), flags=re.M)
        found |= dict(zip(sections[::2], (text.strip() for text in sections[1::2]), strict=True))
    return found
