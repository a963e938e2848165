"""The checks are themselves checked: do they notice what is wrong, and do they say so?"""

from pathlib import Path

import pytest

from transformer_lib.course.checks import EXERCISES
from transformer_lib.course.checks.mutation import (
    BAR,
    EQUIVALENT,
    mutants,
    passes,
    reason,
    report,
    score,
    tried_mutants,
)
from transformer_lib.course.misconceptions.bank import wrong_answers

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.long
def test_mutants_are_caught():
    """The known mistakes of the page are judged by tests/test_checks.py, with the same numbers."""
    scores = [tried_mutants(exercise) for exercise in EXERCISES.values()]
    for s in scores:
        s.bank = s.diagnosed = len(wrong_answers(s.exercise))
    unexplained = [x for s in scores for x in s.survivors if reason(x) is None]
    assert not unexplained
    assert sum(s.caught for s in scores) >= BAR * sum(s.mutants for s in scores)
    assert passes(scores)
    assert report(scores) == (DOCS / "mutation.md").read_text(encoding="utf-8"), "run `make docs`"


def test_known_mistakes_count_as_well():
    result = score(EXERCISES["softmax"])
    assert result.bank == result.diagnosed == len(wrong_answers("softmax"))
    assert result.mutants == tried_mutants(EXERCISES["softmax"]).mutants > 0


def test_every_reason_is_needed():
    """One that explains no survivor of the page could hide a new one."""
    lines = (DOCS / "mutation.md").read_text(encoding="utf-8").splitlines()
    survivors = [line.partition(" → ")[2] for line in lines if " → " in line]
    assert not [part for part, _ in EQUIVALENT if not any(part in one for one in survivors)]


def test_a_mutant_differs_in_one_place_and_works():
    def double(x):
        """Twice x."""
        if x < 0:
            raise ValueError
        return x * 2

    found = dict(mutants(double))
    assert set(found) == {
        "line 5: `return x * 2 → return x / 2`",
        "line 5: `return x * 2 → return x * 3`",
        "line 5: `return x * 2 → return x * 1`",
    }
    assert [mutant(6) for mutant in found.values()] == [3, 18, 6]


def test_what_is_in_a_function_in_a_function_is_changed_once():
    def outer(x):
        def inner(y):
            return y + 1

        return inner(x)

    descriptions = [description for description, _ in mutants(outer)]
    assert len(descriptions) == len(set(descriptions)) == 3, descriptions
