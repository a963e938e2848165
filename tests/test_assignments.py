"""The assignments: solved they have full marks, released none; and they keep the rules."""

import re
import sys
from collections import defaultdict
from dataclasses import asdict, replace
from itertools import product, zip_longest
from pathlib import Path

import nbformat
import pytest
import torch

from transformer_lib.course.checks import EXERCISES, diagnosis
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.instructor.grading.intake import known, mend, verify
from transformer_lib.instructor.grading.judge import Judge, Result, TestResult
from transformer_lib.instructor.grading.master import as_handed_in, load_master, parse, read_cell
from transformer_lib.instructor.grading.nbgrader_plugin import fill_in, released

ASSIGNMENTS = Path(__file__).parent.parent / "assignments"
sys.path.insert(0, str(ASSIGNMENTS.parent / "scripts"))
from made_up_class import misled  # noqa: E402

from assignments import from_twin  # noqa: E402

MASTERS = sorted((ASSIGNMENTS / "source").glob("*/*.ipynb"))


@pytest.fixture(scope="module", params=MASTERS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def master(path):
    return load_master(path)


@pytest.fixture(scope="module")
def judge(master):
    judge = Judge(master)
    yield judge
    judge.close()


@pytest.fixture
def release(path):
    return ASSIGNMENTS / "release" / path.parent.name / path.name


def content(notebook):
    return [(c.cell_type, c.source, c.metadata) for c in notebook.cells]


def test_no_graded_task_is_an_exercise_of_a_chapter():
    def checked(folder):
        texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.py")]
        return {name for text in texts for name in re.findall(r"\bcheck\((\w+)\)", text)}

    chapters = checked(ASSIGNMENTS.parent / "chapters" / "text")
    tasks = checked(ASSIGNMENTS / "text")
    assert len(chapters) > 60
    assert len(tasks) > 15
    assert not tasks & chapters


def test_there_are_six():
    assert len(MASTERS) == 6
    assert {p.stem for p in (ASSIGNMENTS / "text").glob("*.py")} == {p.parent.name for p in MASTERS}


def test_text_twin_master_and_release_agree(path, release):
    twin = from_twin(ASSIGNMENTS / "text" / f"{path.parent.name}.py")
    assert content(nbformat.read(path, 4)) == content(twin), "run `make assignments`"
    assert content(nbformat.read(release, 4)) == content(released(twin, path.stem))


def test_the_release_holds_no_solution_no_hidden_test_and_no_marking_scheme(
    release, master, tmp_path
):
    text = nbformat.writes(nbformat.read(release, 4))
    for mark in ("SOLUTION", "HIDDEN", "MARK SCHEME"):
        assert mark not in text
    for cell in master.cells:
        for line in cell.hidden.splitlines():
            assert len(line) < 12 or line not in text, line
    text, well_formed = verify(release)
    assert well_formed
    personal = any('STUDENT = "..."' in cell.source for cell in nbformat.read(release, 4).cells)
    assert ("write your user name" in text) == personal
    blank = tmp_path / release.name
    blank.write_text(release.read_text("utf-8").replace('"...\\"', '"  \\"'), encoding="utf-8")
    assert ("write your user name" in verify(blank)[0]) == personal


def test_the_release_runs_to_its_end_with_nothing_attempted(release):
    notebook = nbformat.read(release, 4)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error", cell.source


@pytest.mark.sandbox
def test_the_solution_has_full_marks_and_an_empty_answer_none(judge, master, release):
    result = judge.judge(master.cells)
    shown = [output for outputs in result.outputs.values() for output in outputs]
    assert not [output for output in shown if output["output_type"] == "error"]
    solved = result.tests
    untouched = [read_cell(cell) for cell in nbformat.read(release, 4).cells]
    empty = judge.judge(untouched).tests
    points = {cell.grade_id: cell.points for cell in master.cells if cell.is_test}
    assert {name: test.points for name, test in solved.items()} == points
    assert {name: test.points for name, test in empty.items()} == dict.fromkeys(points, 0)
    assert all(test.reason for test in empty.values())


@pytest.mark.sandbox
def test_a_wrong_answer_to_one_task_costs_no_other_task_a_point(judge, master, path):
    """Each task in turn is answered with nothing; all others are solved."""
    # The translator's last task trains a model each time it is answered: there, only it is not.
    tasks = master.tasks[-1:] if path.stem == "translator" else master.tasks
    for task in tasks:
        wrong = {cell.grade_id for cell in master.answers_of(task)}
        tests = {master.cells[n].grade_id for n in task if master.cells[n].is_test}
        cells = [
            replace(cell, source="") if cell.grade_id in wrong or cell.is_manual else cell
            for cell in master.cells
        ]
        for name, test in judge.judge(cells).tests.items():
            assert (test.points == test.max_points) == (name not in tests), (wrong, name, test)


@pytest.mark.long
@pytest.mark.sandbox
def test_known_mistakes_are_named_and_cost_points(judge, master):
    """The first mistakes of all checked tasks are handed in together, then the second ones …

    Tasks without a check, one of which trains a model, are not answered.
    """
    checked, unchecked = {}, {}
    for task in master.tasks:
        tests = [master.cells[n] for n in task if master.cells[n].is_test]
        named = [(test, x) for test in tests for x in re.findall(r"check\((\w+)\)", test.visible)]
        for test, name in named:
            checked[test.grade_id] = master.answers_of(task)[0].grade_id, misled(name)
        if not named:
            unchecked |= {answer.grade_id: "" for answer in master.answers_of(task)}
    hand_ins = zip_longest(*(mistakes.items() for _, mistakes in checked.values()))
    for mistakes in hand_ins:
        made = {test: mistake for test, mistake in zip(checked, mistakes, strict=True) if mistake}
        source = unchecked | {checked[test][0]: code for test, (_, code) in made.items()}
        cells = [
            replace(cell, source=source.get(cell.grade_id, cell.source)) for cell in master.cells
        ]
        results = judge.judge(cells).tests
        for test, (id, _) in made.items():
            assert results[test].points < results[test].max_points, (id, test)
            assert results[test].mistakes == [id], (id, test)
    assert checked


def test_points_add_up_and_every_question_has_a_marking_scheme(master):
    first = master.cells[0].source
    said = [int(n) for n in re.findall(r"^\| \d \|.*\| (\d+) \|$", first, re.MULTILINE)]
    assert sum(said) == sum(cell.points for cell in master.cells)
    schemes = [
        sum(map(int, re.findall(r"^\| (\d+) \|", cell.source.partition("MARK SCHEME")[2], re.M)))
        for cell in master.cells
        if "BEGIN MARK SCHEME" in cell.source
    ]
    by_hand = sum(cell.points for cell in master.cells if cell.is_manual)
    assert sum(schemes) == by_hand
    assert 2 <= len(schemes) <= 3 or by_hand <= 10


def test_cells_are_short_and_ignored_outputs_are_asserted(path):
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code":
            lines = cell.source.splitlines()
            assert all(len(line) <= 100 for line in lines), cell.source
            parse(cell.source)
            if "nbval-ignore-output" in cell.metadata.get("tags", []):
                assert "assert " in cell.source


def test_visible_checks_are_exercises_of_the_course(master):
    for cell in master.cells:
        for name in re.findall(r"check\((\w+)\)", cell.visible if cell.is_test else ""):
            assert name in EXERCISES


def test_a_cell_is_plain_data(master):
    assert all(type(v) in (str, bool, float) for c in master.cells for v in asdict(c).values())


def checked_in_assignments():
    """The exercises whose checks give points."""
    texts = "\n".join(path.read_text(encoding="utf-8") for path in (ASSIGNMENTS / "text").iterdir())
    return sorted(set(re.findall(r"^verdict = check\((\w+)\)", texts, re.MULTILINE)))


@pytest.mark.parametrize("draws", [range(10), pytest.param(range(10, 50), marks=pytest.mark.long)])
@pytest.mark.parametrize("name", checked_in_assignments())
def test_points_of_unchanged_work_never_change_with_the_draw(name, draws):
    """Right answers, every known wrong one, and constants: many draws, one share of the points."""
    exercise = EXERCISES[name]
    answers = {mistake.id: mistake.answers[name] for mistake in wrong_answers(name)}
    answers |= {"right": exercise.reference, "0": lambda *a, **k: 0, "1.0": lambda *a, **k: 1.0}
    shares = defaultdict(set)
    for seed in draws:
        trial = diagnosis.draw_trial(exercise, seed)
        for what, answer in answers.items():
            verdict = diagnosis.judge(answer, trial, diagnose=False)
            shares[what].add(verdict.share)
    assert shares.pop("right") == {1.0}
    assert shares["0"] == shares["1.0"] == {0.0}
    assert not {what: found for what, found in shares.items() if len(found) > 1}


LOOKED_UP = """
def learn(sources, targets, steps, new_sources):
    def translated(sentence):
        order = range(len(sentence))
        return [of.get(sentence[i]) for i in ORDER]

    for first in (0, 1, 2, -1):
        of = {}
        for a, b in zip(sources, targets):
            order = range(len(a))
            of |= {a[i]: token for i, token in zip(ORDER, b)}
        if all(translated(a) == b for a, b in zip(sources, targets)):
            break
    return [translated(sentence) for sentence in new_sources]
"""


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("order", "reason"),
    [("order[::-1]", "fewer than ten"), ("[*order[first:], *order[:first]]", "after 20 steps")],
)
def test_a_table_of_words_is_no_translator(order, reason):
    result = judged_alone("4_translator", "learn", LOOKED_UP.replace("ORDER", order))
    assert result.points == 0
    assert reason in result.reason


def judged_alone(assignment, answer, source, test=None):
    """What a test says of one answer, with all others left out."""
    (path,) = (ASSIGNMENTS / "source" / assignment).glob("*.ipynb")
    master = load_master(path)
    cells = [
        replace(cell, source=source if cell.grade_id == answer else "")
        if cell.is_answer or cell.is_manual
        else cell
        for cell in master.cells
    ]
    judge = Judge(master)
    judge.seed = 1  # with other numbers an answer may be found wrong by an earlier test already
    try:
        return judge.judge(cells).tests[test or f"test_{answer}"]
    finally:
        judge.close()


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("right", "wrong", "where"),
    [
        ("~mask, torch", "~mask[:1], torch", "mask of its own"),  # the first sentence's for all
        ("weights = weights.masked_fill(~mask, 0.0)", "weights *= mask.any()", "mask of its own"),
        ("torch.finfo(scores.dtype).min", "-20.0", "far below zero"),
        ("torch.finfo(scores.dtype).min", "-100.0", "far below zero"),
    ],
)
def test_masks_that_tell_decide_on_grouped_attention(right, wrong, where):
    text = (ASSIGNMENTS / "text" / "2_attention.py").read_text(encoding="utf-8")
    solution = text[text.index("class GroupedQueryAttention") :].partition("# %%")[0]
    assert solution.count(right) == 1
    given = "GroupedQueryAttention", solution.replace(right, wrong), "test_grouped_attention"
    result = judged_alone("2_attention", *given)
    assert result.points == 0
    assert where in result.reason


@pytest.mark.parametrize("has_output", [False, True])
def test_what_is_graded_as_handed_in_must_have_been_run(has_output, tmp_path):
    notebook = nbformat.read(ASSIGNMENTS / "release" / "4_translator" / "translator.ipynb", 4)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "german":
            cell.source = "print('gut')"
            cell.outputs = [nbformat.v4.new_output("stream", text="gut")] if has_output else []
    nbformat.write(notebook, tmp_path / "translator.ipynb")
    text, well_formed = verify(tmp_path / "translator.ipynb")
    assert well_formed
    assert ("no output: german" in text) != has_output


def test_a_student_s_own_cells_below_all_tests_keep_what_they_showed():
    released = nbformat.read(ASSIGNMENTS / "release" / "4_translator" / "translator.ipynb", 4)
    shown = nbformat.v4.new_output("stream", text="my curves")
    own = [nbformat.v4.new_code_cell("1 / 0", outputs=[shown]) for _ in range(2)]
    submission = known(
        {**released, "cells": [*released.cells[:2], own[0], *released.cells[2:], own[1]]}
    )
    notebook = mend(submission, released).notebook
    fill_in(notebook, Result({}, defaultdict(lambda: TestResult(0, 0))), keeps_outputs=True)
    above, below = (cell for cell in notebook.cells if cell.source == "1 / 0")
    assert not above.outputs  # it is run: tests may need it
    assert [output.text for output in below.outputs] == ["my curves"]
    assert as_handed_in([read_cell(c) for c in notebook.cells], keeps_outputs=False) == set()


def test_what_is_taken_of_a_draft_has_the_large_models_distribution():
    """Summed over all drafts of two tokens, accepted or not, with the solution of assignment 6."""
    master = load_master(next(path for path in MASTERS if path.stem == "language_model"))
    names = {"torch": torch}
    exec(next(cell.source for cell in master.cells if cell.grade_id == "accept_draft"), names)
    p_draft, p_model = torch.rand(2, 4).softmax(dim=-1), (3 * torch.rand(3, 4)).softmax(dim=-1)
    written = torch.zeros(4, 4)  # the probability of each pair of first tokens
    for first, second in product(range(4), repeat=2):
        drafted = torch.tensor([first, second])
        accepted_with = (p_model[:2] / p_draft).clamp(max=1.0)[range(2), drafted]
        for taken in product((True, False), repeat=2):
            chosen = torch.where(torch.tensor(taken), accepted_with, 1 - accepted_with)
            chance = p_draft[range(2), drafted].prod() * chosen.prod()
            uniform = torch.where(torch.tensor(taken), accepted_with - 1e-4, accepted_with + 1e-4)
            number, following = names["accept_draft"](drafted, p_draft, p_model, uniform)
            if number == 0:  # what comes after a second draw is the large model's own
                written += chance * following[:, None] * p_model[1]
            elif number == 1:
                written[first] += chance * following
            else:
                written[first, second] += chance
    torch.testing.assert_close(written, p_model[0][:, None] * p_model[1])
