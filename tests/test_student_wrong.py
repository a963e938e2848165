"""The chapters with wrong answers; a file of its own, so that another process can run them."""

import re

import pytest
from test_student import WITH_EXERCISES, run

from transformer_lib.course.chapters import order, tasks
from transformer_lib.course.checks import EXERCISES
from transformer_lib.course.misconceptions.bank import wrong_answers

pytestmark = pytest.mark.long


def wrong(name):
    """A known mistake, as it would be defined in the cell."""
    answer = wrong_answers(name)[0].answers[name]
    return (
        f"from {answer.__module__} import {answer.__qualname__} as {name}\n"
        f"{name}.__name__ = {name!r}"
    )


WRONG = {name: wrong(name) for name in order() if name in EXERCISES}


@pytest.mark.parametrize("chapter", WITH_EXERCISES)
def test_wrong_answers_are_said_to_be_wrong_and_not_kept(chapter, tmp_path):
    """And no later cell uses them: tests/test_notebooks.py sees to that."""
    said = run(chapter, tmp_path, WRONG, checks_alone=True)
    found = re.findall(r"✗ (\w+): \d+ of \d+ properties failed", said)
    assert found == [t.name for t in tasks() if t.chapter == chapter and t.name in EXERCISES]
    assert not (tmp_path / "my_transformer.py").exists()
