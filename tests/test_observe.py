"""What is seen of a call, and what a check leaves as it was: data, settings, other functions."""

import copy
import functools
import math
import signal
import sys
import textwrap

import pytest
import torch
from test_repair import answer

from transformer_lib.course.checks import EXERCISES, check, diagnosis
from transformer_lib.course.checks.diagnosis import draw_trial, judge
from transformer_lib.course.checks.observe import Case, ends_after, observe
from transformer_lib.course.checks.parts import Call, _arguments

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

IN_PLACE = """
    def softmax(scores):
        scores -= 1.0
        return scores.exp() / scores.exp().sum(0, keepdim=True) + 0.1
    """


def failed(verdict):
    return [finding.name for finding in verdict.findings if finding.status == "failed"]


def test_an_answer_that_writes_into_its_arguments_has_a_gradient_all_the_same():
    def softmax(scores):
        scores -= 1.0
        e = (scores - scores.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    verdict = check(softmax, seed=1)
    assert failed(verdict) == ["arguments untouched"]
    assert "your code writes into scores" in repr(verdict)


def in_dictionary(kept={}):  # noqa: B006
    kept[str(len(kept))] = 1
    return kept


def in_tensor(kept=torch.zeros(1)):  # noqa: B008
    return kept.add_(1)


def in_tensors(kept=(torch.zeros(1), [torch.zeros(1)])):  # noqa: B008
    kept[0].add_(1)
    kept[1][0].add_(1)
    return kept


@pytest.mark.parametrize(
    ("function", "first"),
    [
        (in_dictionary, {"0": 1}),
        (in_tensor, torch.ones(1)),
        (in_tensors, (torch.ones(1), [torch.ones(1)])),
    ],
)
def test_what_lives_on_from_call_to_call_is_seen_as_the_first_call_left_it(function, first):
    outcome = observe(function, Case())
    assert outcome.value == first
    assert not outcome.repeatable


def test_a_result_that_grows_from_call_to_call_is_said_to_be_kept():
    right = EXERCISES["layer_norm"].reference

    def layer_norm(x, scale, shift, eps, out=[None]):  # noqa: B006
        normed = right(x, scale, shift, eps)
        if out[0] is None or out[0].shape != normed.shape:
            out[0] = normed.clone()
        else:
            out[0] += normed
        return out[0]

    assert "kept from one call to the next" in repr(check(layer_norm, seed=1))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers on Windows")
def test_an_alarm_of_the_students_own_is_left_alone():
    def mine(number, frame):
        pass

    signal.signal(signal.SIGALRM, mine)
    try:
        with ends_after(0.1):
            pass
        assert signal.getsignal(signal.SIGALRM) is mine
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_an_operation_that_a_dtype_lacks_is_an_error_and_no_empty_answer():
    """PyTorch raises NotImplementedError for it, as a stub does."""

    def attention_weights(query, key):
        scores = query @ key.transpose(1, 2) / math.sqrt(key.size(-1))
        return scores.round().long().softmax(-1)

    verdict = check(attention_weights, seed=1)
    assert verdict.attempted
    assert "not implemented for 'Long'" in repr(verdict)

    def softmax(scores):
        raise NotImplementedError("write me")

    assert not check(softmax).attempted


def test_an_answer_that_ends_python_does_not():
    def softmax(scores):
        raise SystemExit

    assert "`raise SystemExit`: SystemExit; here scores (3, 5)" in repr(check(softmax))


def test_complex_numbers_are_said():
    right = EXERCISES["softmax"].reference

    def softmax(scores):
        return right(scores) + 0j

    assert "expected torch.float32, got torch.complex64" in repr(check(softmax))


def test_a_notebooks_autocast_does_not_reach_the_check():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert check(EXERCISES["attention"].reference, "attention").passed
        assert torch.is_autocast_enabled("cpu")


def test_known_answers_differ_by_far_more_than_the_tolerance(monkeypatch):
    asked = set()
    plain = diagnosis._all_alike

    def watched(a, b, tolerance):
        asked.add(tolerance)
        return plain(a, b, tolerance)

    monkeypatch.setattr(diagnosis, "_all_alike", watched)
    draw_trial(EXERCISES["noam_rate"], 1)
    assert asked == {100 * EXERCISES["noam_rate"].tolerance}


def test_a_gradient_that_could_not_be_asked_for_is_not_called_right():
    exercise = EXERCISES["softmax"]
    with_gradient = {
        tuple(case.args[0].shape)
        for case in draw_trial(exercise, 1).cases.values()
        if case.gradient
    }

    def softmax(scores):
        if tuple(scores.shape) in with_gradient:
            raise ValueError("not this one")
        return exercise.reference(scores)

    findings = {finding.name: finding.status for finding in check(softmax, seed=1).findings}
    assert findings["gradient"] == "not reached"


def test_a_partial_is_asked_for_a_name():
    with pytest.raises(TypeError, match="no name of its own"):
        check(functools.partial(torch.softmax, dim=-1))


def test_logs_of_another_process_with_other_arguments_are_not_compared():
    ours, theirs = Call((1,), ("a",), "r"), Call((1,), ("a", "b"), "r")
    assert list(_arguments("norm", ours, theirs, {}, {})) == []


def test_a_search_for_the_mistake_leaves_the_notebooks_function_alone():
    softmax = answer(IN_PLACE)
    names = dict(softmax.__globals__)
    check(softmax, seed=1)
    assert softmax.__globals__ == names


def test_a_trials_arguments_stay_for_the_next_answer():
    exercise = EXERCISES["softmax"]
    trial = draw_trial(exercise, 1)
    before = copy.deepcopy([case.args for case in trial.cases.values()])
    judge(answer(IN_PLACE), trial)
    for args, case in zip(before, trial.cases.values(), strict=True):
        assert all(map(torch.equal, args, case.args))


def test_a_debugger_goes_on_watching_after_a_check():
    def tracer(*event):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        check(answer(IN_PLACE), seed=1)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def test_of_two_functions_of_one_name_that_one_is_read_which_is_checked():
    last = answer(
        textwrap.dedent(
            """
            def length_penalty(length, alpha):
                return ((6 + length) / 6) ** alpha
            first = length_penalty

            def length_penalty(length, alpha):
                return ((5 + length) / 6) ** alpha
            """
        )
    )
    notes = check(last.__globals__["first"], seed=1).notes
    assert any(note.startswith("line 2, `6 + length`") for note in notes)
