"""docs/grading.md, typed as it is written: every command gives what is shown below it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_lib.instructor.grading.course import Course

ROOT = Path(__file__).parent.parent
ASSIGNMENT = "2_attention"


def commands(text):
    """(command, what is shown below it) of the blocks for the console."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        command, shown = None, []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    yield command, shown
                command, shown = line[2:], []
            elif command and "<<'END'" in command and not command.endswith("\nEND"):
                command += "\n" + line  # what goes into a file, as it can be pasted
            else:
                shown.append(line)
        yield command, shown


def fits(said, shown):
    """Whether the lines are those that are shown, where ``…`` is anything up to the end."""
    for number, line in enumerate(shown):
        if line == "…":
            return True
        start, dots, _ = line.partition("…")
        if number >= len(said) or not (said[number].startswith(start) if dots
                                       else said[number] == line):  # fmt: skip
            return False
    return len(said) == len(shown)


def grade_by_hand(folder):
    """What somebody does in the form grader: here, a point for everything that waits."""
    with Course(folder).gradebook() as gradebook:
        for submission in gradebook.assignment_submissions(ASSIGNMENT):
            for notebook in submission.notebooks:
                for grade in notebook.grades:
                    if grade.needs_manual_grade:
                        grade.manual_score, grade.needs_manual_grade = 1.0, False
        gradebook.db.commit()


@pytest.mark.sandbox
def test_a_term_as_the_documentation_has_it(tmp_path):
    text = (ROOT / "docs" / "grading.md").read_text(encoding="utf-8")
    section = text.partition("## A term, command by command")[2].partition("### What else")[0]
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("assignments", "scripts", "tests"):
        (folder / name).symlink_to(ROOT / name)
    programs = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    typed = list(commands(section))
    assert len(typed) > 15
    for command, shown in typed:
        if "jupyter lab" in command:
            grade_by_hand(folder / "second" if "second" in command else folder)
            continue
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, text=True, capture_output=True
        )
        assert done.returncode == 0, (command, done.stderr)
        assert fits(done.stdout.splitlines(), shown), f"$ {command}\n{done.stdout}"
        if command.startswith("cd "):
            folder = (folder / command[3:]).resolve()
