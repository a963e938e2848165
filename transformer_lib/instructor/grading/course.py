"""A course: a folder as nbgrader lays it out, its settings and its gradebook.

The folders are nbgrader's: ``source``, ``submitted/STUDENT/ASSIGNMENT``, ``autograded``,
``feedback``; in ``results`` lies what is ours.
"""

import hashlib
import logging
import os
import re
import sys
import unicodedata
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from transformer_lib.errors import UserError

UNSAFE = "*?[]%/\\"  # of patterns, paths, and of the escape itself
MAX_NAME = 120  # bytes; a file's name has an end of its own


class Course:
    """A folder with an ``nbgrader_config.py``.

    Raises:
        UserError: it is not a course.
    """

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        if not (self.folder / "nbgrader_config.py").exists():
            raise UserError(
                f"{self.folder} is not a course: it has no nbgrader_config.py (see --course)"
            )
        if set("*?[") & set(str(self.folder)):
            raise UserError(
                f"{self.folder} has a *, ? or [ in its name, which nbgrader takes for a pattern: "
                "rename it"
            )
        loader = PyFileConfigLoader("nbgrader_config.py", path=str(self.folder))
        try:
            self.config: Config = loader.load_config()
            self.results = Path(self.config.JudgeOutside.results)
        except Exception as error:  # it is a program, which may say anything
            raise UserError(f"nbgrader_config.py: {type(error).__name__}: {error}") from error
        self.log = self.results / "nbgrader.log"
        self.taken_in = self.results / "taken-in"

    def directory(self, **settings: Any) -> CourseDirectory:
        return CourseDirectory(config=self.config, **settings)

    @contextmanager
    def gradebook(self) -> Iterator[Gradebook]:
        directory = self.directory()
        with nbgrader_steps(self.log):  # to make a new one, it calls alembic
            made = Gradebook(directory.db_url, directory.course_id)
        with made as gradebook:
            yield gradebook

    def masters(self, assignment: str) -> dict[str, Path]:
        """The master notebooks of an assignment, by name.

        Raises:
            UserError: there is no such assignment.
        """
        source = self.folder / "source"
        known = sorted(p.name for p in source.iterdir()) if source.is_dir() else []
        notebooks = sorted((source / assignment).glob("*.ipynb")) if assignment in known else []
        if not notebooks:
            there = ", ".join(known)
            raise UserError(f"there is no assignment {assignment} in {source}; there are: {there}")
        return {path.stem: path for path in notebooks}

    def register(self, assignment: str) -> None:
        """Make the assignment known to the gradebook, as ``generate_assignment`` does."""
        directory = self.directory(
            assignment_id=assignment, release_directory=str(self.results / ".registered")
        )
        with nbgrader_steps(self.log):
            GenerateAssignment(coursedir=directory, config=self.config, force=True).start()

    def hand_ins(self, assignment: str) -> dict[str, Path]:
        """The folder of everybody who has one for this assignment, by the student's name."""
        above = self.folder / "submitted"
        folders = [path / assignment for path in above.iterdir()] if above.is_dir() else []
        named = {safe_name(folder.parent.name): folder for folder in folders if folder.is_dir()}
        return dict(sorted(named.items()))


def known_name(typed: str, known: Collection[str]) -> str:
    """The student of that name, which may be typed as our tables have it or as a folder has it."""
    return typed if typed in known else safe_name(typed)


def safe_name(name: str) -> str:
    """A student's name in a form that paths, patterns and tables can bear; most stay as they are.

    A folder's name may be anything. Patterns, ends of lines, control characters, marks of
    direction, halves of characters and blanks at an end are written as ``%2A``, and so is ``%``: no
    two become the same, except for two ways to write one letter (a Mac's folders take NFD).
    """

    def encoded(text: str) -> str:
        raw = text.encode("utf-8", "surrogateescape")
        return "".join(f"%{byte:02X}" for byte in raw)

    composed = unicodedata.normalize("NFC", name)
    safe = "".join(encoded(c) if c in UNSAFE or not c.isprintable() else c for c in composed)
    # A dot would hide a folder, and nbgrader would drop blanks at an end:
    safe = re.sub(r"^\.|^ +| +$", lambda odd: encoded(odd[0]), safe)
    if len(safe.encode()) > MAX_NAME:
        digest = hashlib.sha256(safe.encode()).hexdigest()[:8]
        safe = safe.encode()[: MAX_NAME - 9].decode(errors="ignore") + "-" + digest
    return safe


@contextmanager
def nbgrader_steps(log: Path) -> Iterator[None]:
    """Run nbgrader's own steps: what they report goes into a file, and they find their programs."""
    log.parent.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger("traitlets")
    handler = logging.FileHandler(log, encoding="utf-8")
    propagated, logger.propagate = logger.propagate, False
    others, logger.handlers = logger.handlers, [handler]
    path = os.environ.get("PATH", "")
    # It calls alembic, which lies beside Python even where no environment is activated.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its database library, about the order of its steps
            yield
    finally:
        os.environ["PATH"] = path
        logger.handlers, logger.propagate = others, propagated
        handler.close()
