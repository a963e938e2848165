"""What a check says beyond right and wrong: patterns in numbers, calls of parts, near matches."""

import dataclasses
import functools
import math
import re

import numpy as np
import pytest
import torch
from torch import Tensor

from transformer_lib.course.checks import EXERCISES, check
from transformer_lib.course.checks.compare import compare
from transformer_lib.course.checks.diagnosis import _nearly, draw_trial, find_exercise, judge
from transformer_lib.course.checks.observe import Case, Outcome
from transformer_lib.course.checks.parts import calls_of
from transformer_lib.course.checks.patterns import pattern
from transformer_lib.course.sandboxed.given import FixedDropout
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.model import attention, merge_heads, split_heads
from transformer_lib.vocabulary import BOS, EOS

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

X = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0))
AXES = ("batch", "query", "key")
SIZES = {"d_k": 6, "query": 5}

SAID = {
    "a factor with a name": (X / math.sqrt(6), "times the right ones; 0.408 = 1/√6, and 6 is d_k"),
    "a factor": (3.7 * X, "all of yours are 3.7 times the right ones"),
    "a sign": (-X, "opposite sign"),
    "a constant": (X + 1, "all of yours are 1 too large"),
    "zeros": (0 * X, "all of yours are 0"),
    "NaN": (X * math.nan, "all of yours are NaN"),
    "a transposition": (X[:, :, :5].transpose(1, 2), "axis query and the axis key transposed"),
    "backwards": (X.flip(1), "backwards along the axis query"),
    "a shift": (X.roll(1, 2), "shifted by one along the axis key"),
    "other places": (X.flatten().flip(0).view_as(X), "the right numbers in other places"),
    "slices taken twice": (
        X[:, :, [0, 0, 1, 1, 2, 2]],
        "along the axis key yours are the right ones of the places 0, 0, 1, 1, 2, 2",
    ),
    "a function": (X.tanh(), "the tanh of the right ones"),
    "one slice": (
        torch.cat([X[:, :4], 9 * X[:, 4:].square()], dim=1),
        "along the axis query only the last of 5 is wrong",
    ),
    "all but one slice": (
        torch.cat([9 * X[:, :4].square(), X[:, 4:]], dim=1),
        "along the axis query only the last of 5 is right",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_the_numbers_say_what_is_wrong(what):
    got, said = SAID[what]
    right = X[:, :, : got.size(2)]
    assert said in pattern(right, got, AXES, SIZES, 1e-4)


@pytest.mark.parametrize(
    ("right", "got", "sizes", "not_said"),
    [
        (X, X / math.sqrt(6), {"d_k": 6, "heads": 6}, "is d_k"),  # either of them could be
        (X, X / 2, {"d_k": 4}, "d_k"),  # a half has many causes
        (X, X * 1.001, SIZES, "1 times"),
        (X, X[:, :, [0, 0, 0, 0, 0, 1]], SIZES, "of the places"),
        (X.softmax(-1), (1.0005 * X).softmax(-1), SIZES, "before the softmax"),
    ],
)
def test_no_cause_is_named_that_could_be_chance(right, got, sizes, not_said):
    assert not_said not in pattern(right, got, AXES, sizes, 1e-6)


def test_a_constant_beside_equal_numbers_is_no_other_scale():
    assert pattern(torch.ones(4), 2 * torch.ones(4), (), {}, 1e-4) == "all of yours are 1 too large"


def test_weights_say_which_axis_and_which_scale():
    weights = X.softmax(-1)
    assert "along the axis query" in pattern(weights, X.softmax(1), AXES, SIZES, 1e-4)
    sharp = (X * math.sqrt(6)).softmax(-1)
    said = pattern(weights, sharp, AXES, SIZES, 1e-4)
    assert "before the softmax your scores were 2.45 times the right ones" in said
    assert "2.45 = √6" in said


def test_numbers_without_a_pattern_say_nothing():
    other = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(1))
    assert pattern(X, other, AXES, SIZES, 1e-4) == ""


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        (X, None, "is a return missing?"),
        (X, X.numpy(), "a NumPy array"),
        (X, (X, 1), "return the one alone"),
        (X, torch.tanh, "the function tanh itself"),
        (X, X[None], "one axis of length 1 in front too many"),
        (X, X[:, :4], "the axis query has length 4, not 5"),
        (X, torch.cat([X.repeat(1, 1, 2)] * 2, 1), "query and key are each 2 times as long"),
        (X, X.permute(0, 2, 1), "are query and key in the wrong order?"),
        (X, X.permute(0, 2, 1).flip(2), "putting them in order does not give the right numbers"),
        ([9, 4], [9, 4, 3], "3 at the end is too much"),
        ([9, 4], [2, 9, 4], "2 at the beginning is too much"),
        ([9, 4, 7], [9, 4], "7 at the end is missing"),
        ([9, 4], np.array([9, 4]), "got a NumPy array: tolist() makes a list of it"),
        (np.ones(3), np.zeros(3), "the result: this is another array"),
        ((X,), (X, X), "expected 1 result, got 2"),
        (X.sum(1, True), X.sum(1), "is the axis query missing?"),
        (X, X.to("meta"), "expected a tensor on cpu, got one on meta"),
        ([1], [10**5000], "got a number of more than 300 digits"),
        ([1, 2], [1, 2, 10**5000], "a number of more than 300 digits at the end is too much"),
        pytest.param(1, 10**5000, "got a number of more than 300 digits", id="a giant number"),
    ],
)
def test_results_of_another_kind_have_a_sentence(expected, got, said):
    mismatch = compare(expected, got, axes=(AXES,), tolerance=1e-4, sizes={})
    assert said in mismatch.message


def test_an_axis_of_length_one_that_is_missing_is_called_so():
    axes = (("batch", "1", "key"),)
    mismatch = compare(X.sum(1, True), X.sum(1), axes=axes, tolerance=1e-4, sizes={})
    assert mismatch.message.endswith("is the axis of length 1 missing?")


def test_of_several_results_the_one_that_says_most_comes_first():
    names = ("a", "b")
    shape = compare((X, X), (3 * X, X[:, :4]), names, tolerance=1e-4, sizes={})
    assert (shape.aspect, shape.message[0]) == ("shape", "b")
    flat = compare((X, X + 1), (0 * X, 3 * (X + 1)), names, tolerance=1e-4, sizes={})
    assert flat.message.startswith("b"), "that all are one number has many causes"


def test_results_are_in_another_order_only_if_two_are_wrong():
    twice = compare((X, X[:, :4]), (X[:, :4], X[:, :4]), ("a", "b"), tolerance=1e-4, sizes={})
    assert "order" not in twice.message
    other = compare((X, X[:, :4]), (X[:, :4], 2 * X), ("a", "b"), tolerance=1e-4, sizes={})
    assert "a has the shape of b: is the order right?" in other.message


def test_two_numbers_have_as_many_digits_as_tell_them_apart():
    assert compare(1.0, 1.0002, tolerance=1e-5).message.endswith("expected 1, got 1.0002")


def test_a_number_may_be_in_an_array_of_one():
    for one in (np.array(1.0), np.array([1.0]), np.float32(1.0), torch.ones(1)):
        assert compare(1.0, one, tolerance=1e-6) is None


def test_dictionaries_are_compared_by_name():
    right = {"a.weight": X, "b.weight": X + 1, "c": X - 1}
    assert compare(right, dict(reversed(right.items())), tolerance=0.0) is None
    exchanged = right | {"a.weight": X + 1, "b.weight": X}
    mismatch = compare(right, exchanged, tolerance=1e-4, sizes={})
    assert mismatch.message.startswith("the result['a.weight'][0, 0, 0]: expected")
    assert "2 of 3 entries are wrong" in mismatch.message
    assert "yours is the entry that belongs under 'b.weight'" in mismatch.message
    renamed = {name.replace("weight", "W"): x for name, x in right.items()}
    assert compare(right, renamed, tolerance=0.0).message == (
        "the result: wrong names; missing: 'a.weight', 'b.weight'; too much: 'a.W', 'b.W'"
    )
    many = {str(n): X for n in range(9)}
    assert "'0', '1', '2' and 6 more" in compare(many, {}, tolerance=0.0).message
    assert "got a tensor" in compare(right, X, tolerance=0.0).message


def test_arrays_can_be_compared():
    assert compare(np.ones(3), np.ones(3), tolerance=0.0) is None
    assert compare(np.ones(3), np.zeros(3), tolerance=0.0) is not None


def never_called(x, sublayer, norm, dropout):
    return norm(x + sublayer(x))


def called_twice(x, sublayer, norm, dropout):
    return norm(norm(x) + dropout(sublayer(x)))


def no_residual(x, sublayer, norm, dropout):
    return norm(dropout(sublayer(x)))


def dropout_last(x, sublayer, norm, dropout):
    return dropout(norm(x + sublayer(x)))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (never_called, "dropout is never called"),
        (called_twice, "norm is called twice, not once"),
        (no_residual, "norm gets just what dropout gives"),
        (dropout_last, "dropout gets what norm gives"),
    ],
)
def test_the_parts_say_how_they_were_called(answer, said):
    verdict = check(answer, "post_norm", seed=1)
    assert not verdict.passed
    assert said in " / ".join(verdict.notes)
    assert said in repr(verdict)
    assert said in verdict._repr_html_()


def test_a_sum_has_the_names_of_its_terms():
    def encoder_layer(x, mask, self_attention, feed_forward, norm1, norm2):
        y = norm1(x + self_attention(x, x, mask))
        return norm2(x + feed_forward(y))

    (note,) = check(encoder_layer, seed=1).notes
    assert note == (
        "norm2 gets x + what feed_forward gives, not what norm1 gives + what feed_forward gives"
    )


def test_the_parts_of_a_right_answer_say_nothing():
    def post_norm(x, sublayer, norm, dropout):
        return norm(dropout(sublayer(x)) + x)

    verdict = check(post_norm, seed=1)
    assert verdict.passed
    assert verdict.notes == ()


def test_of_two_mistakes_at_once_both_are_said():
    def attention(query, key, value, mask):
        scores = query @ key.transpose(-2, -1)
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9)
        weights = scores.softmax(-1)
        return weights @ value, weights

    verdict = check(attention, seed=1)
    assert verdict.mistakes == ("M7", "M33")


def test_a_known_mistake_and_another_argument_are_both_said():
    def attention_weights(query, key):
        return (query @ key.transpose(1, 2) / math.sqrt(key.size(1))).softmax(-1)

    verdict = check(attention_weights, seed=1)
    assert verdict.mistakes == ("M33",)
    (note,) = verdict.notes
    assert note.startswith("and besides, yours is what comes out if key is divided by the root of")


def test_a_result_without_a_gradient_is_told_from_one_that_is_wrong():
    def softmax(scores):
        return torch.exp(scores - scores.logsumexp(-1, keepdim=True)).detach()

    said = repr(check(softmax, seed=1))
    assert "no gradient reaches scores: does something leave PyTorch on the way" in said


def test_a_mistake_that_matches_nearly_everywhere_is_named():
    def attention(query, key, value, mask):
        scores = query @ key.transpose(-2, -1)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        weights = scores.softmax(-1)
        weights = torch.where(weights.isnan(), 0.25, weights)
        return weights @ value, weights

    verdict = check(attention, seed=1)
    assert verdict.mistakes == ("M33",)
    assert "does not explain “" in verdict.hints[0]


def test_a_mistake_that_would_show_in_more_places_says_in_which():
    trial = draw_trial(EXERCISES["bootstrap_wins"], 1)
    outcomes = {**trial.wrong["M575"], "draws": trial.right["draws"]}
    mistake, said = _nearly(trial, outcomes)
    assert (mistake.id, said) == ("M575", "with which “draws” would fail, too")
    other = next(id for id in trial.wrong if id != "M575")
    two = dataclasses.replace(trial, wrong={**trial.wrong, other: trial.wrong["M575"]})
    assert _nearly(two, outcomes) is None, "two mistakes fit equally well"
    wrong = trial.wrong["M575"]
    first = next(x for x in wrong if compare(trial.right[x].value, wrong[x].value, tolerance=0.0))
    begins_right = {**wrong, first: trial.right[first]}
    assert _nearly(trial, begins_right) is None, "the first case does not show it"


def test_a_small_call_is_shown():
    def length_penalty(length, alpha):
        return ((5 + length) / 6) ** -alpha

    verdict = check(length_penalty, seed=1)
    assert "length_penalty(" in repr(verdict)
    assert "1 divided by the right one" in repr(verdict)


def test_a_part_called_with_too_many_arguments_says_how_it_is_called():
    def encoder_layer(x, mask, self_attention, feed_forward, norm1, norm2):
        return norm2(feed_forward(norm1(self_attention(x, x, x, mask))))

    said = repr(check(encoder_layer, seed=1))
    assert "this Attention is called with (x, memory, mask), and got 4 arguments" in said


def test_what_comes_out_for_other_arguments_is_said():
    def self_attention(x, w_q, w_k, w_v):
        scores = (x @ w_k) @ (x @ w_q).transpose(1, 2) / math.sqrt(w_q.size(1))
        return scores.softmax(-1) @ (x @ w_v)

    said = check(self_attention, seed=1).notes
    assert said == ("yours is what comes out if w_q and w_k change places",)

    def rms_norm(x, scale, eps):
        return x + scale * x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)

    assert check(rms_norm, seed=1).notes == ("yours is the right one plus x",)

    def noam_rate(step, d_model, warmup_steps):
        return 2 * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)

    assert check(noam_rate, seed=1).notes == ("yours is always 2 times the right one",)


def test_a_sign_that_is_dropped_is_said_and_no_other_try_is_heard(recwarn):
    """A root of what is negative would be complex."""

    def shift_matrix(k, d_model):
        angles = abs(k) * 10_000 ** (-torch.arange(0, d_model, 2) / d_model)
        pairs = [torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]]) for a in angles]
        return torch.block_diag(*pairs)

    notes = check(shift_matrix, seed=1).notes
    assert notes[0] == "yours is what comes out if k is taken without its sign"
    assert not recwarn.list


def test_a_formula_that_only_precision_spoils_is_said_to_be_right():
    def layer_norm(x, scale, shift, eps):
        mean = x.mean(-1, keepdim=True)
        variance = x.square().mean(-1, keepdim=True) - mean.square()
        return scale * (x - mean) / torch.sqrt(variance + eps) + shift

    def attention_weights(query, key):
        scores = query @ key.mT / math.sqrt(key.size(-1))
        exponentials = (scores - scores.max()).exp()  # the largest one of the batch
        return exponentials / exponentials.sum(-1, keepdim=True)

    for answer in (layer_norm, attention_weights):
        (note,) = check(answer, seed=1).notes
        assert note.startswith("in double precision yours is right")
    assert torch.get_default_dtype() == torch.float32

    def batch_norm(x, scale, shift, eps):  # of each vector: wrong in any precision
        return layer_norm(x, scale, shift, eps)

    assert "double precision" not in repr(check(batch_norm, seed=1).notes)


def test_what_no_change_explains_is_left_alone():
    def feed_forward(x, w1, b1, w2, b2):
        return torch.relu(x @ w1) @ w2 + b1.sum() * b2.cos()

    assert check(feed_forward, seed=1).notes == ()


def test_a_trial_can_be_used_again():
    """What is tried on the parts while explaining one answer must not count for the next."""

    def wrong(tokens, table, positions, dropout):
        return dropout(3.0 * table[tokens] + positions[: tokens.size(1)].cos())

    exercise = find_exercise("embed_with_positions")
    trial = draw_trial(exercise, seed=1)
    first, second = (judge(wrong, trial) for _ in range(2))
    assert repr(first) == repr(second)
    assert not any("is called" in note for note in first.notes)


@pytest.mark.parametrize("log", [5, "text", [3], [["now", [], ""]], [[1, [2], ""]], None])
def test_a_log_of_another_form_is_not_believed(log):
    case = Case(torch.ones(2, 3), FixedDropout())
    assert calls_of(case, Outcome(after=(torch.ones(2, 3), log))) == []


def distorted(value, how):
    if isinstance(value, tuple):
        return tuple(distorted(x, how) for x in value)
    if isinstance(value, list):
        return list(distorted(torch.tensor(value, dtype=torch.float), how))
    if isinstance(value, bool | str) or value is None:
        return how
    return how(value) if isinstance(value, Tensor) else how(torch.tensor(value)).item()


@pytest.fixture(scope="module")
def trials():
    return {exercise.name: draw_trial(exercise, seed=1) for exercise in EXERCISES.values()}


DISTORTIONS = {
    "four times": lambda x: 4 * x,
    "negative and moved": lambda x: -x - 0.5,
    "a million": lambda x: 1e6 * x,
    "infinite": lambda x: x / torch.zeros(()),
    "backwards": lambda x: x.flip(0) if x.ndim else x,
}


PLACES = range(len(DISTORTIONS))


@pytest.mark.parametrize(
    ("number", "turns"),
    [
        *((n, (0,)) for n in PLACES),
        *(pytest.param(n, (1, 2, 3, 4), marks=pytest.mark.long) for n in PLACES),
    ],
)
def test_any_wrong_numbers_can_be_explained(trials, number, turns):
    """Of every exercise, the right answer with its results distorted: never an error of ours.

    Each exercise meets one of the distortions, with ``--all`` each of them.
    """
    wrong = list(DISTORTIONS.values())[number]
    for place, exercise in enumerate(EXERCISES.values()):
        if (place + number) % len(DISTORTIONS) not in turns:
            continue
        right = exercise.use(exercise.reference)

        def use(answer, plain=right):
            return functools.wraps(plain)(lambda *args: distorted(plain(*args), wrong))

        changed = dataclasses.replace(exercise, use=use)
        trial = dataclasses.replace(trials[exercise.name], exercise=changed)
        verdict = judge(len, trial)  # whatever it is: use ignores it
        assert verdict.passed or repr(verdict)


def test_exchanged_arguments_are_said_where_another_case_ends_in_an_error():
    def self_attention(x, w_q, w_k, w_v):
        if x.size(0) == 1:
            raise ValueError("a batch of one")
        scores = (x @ w_k) @ (x @ w_q).transpose(1, 2) / math.sqrt(w_q.size(1))
        return scores.softmax(-1) @ (x @ w_v)

    notes = check(self_attention, seed=1).notes
    assert any("w_q and w_k change places" in note for note in notes)


def test_a_factor_near_one_is_not_said_to_be_always_there():
    right = EXERCISES["noam_rate"].reference

    def noam_rate(step, d_model, warmup_steps):
        return 1.002 * right(step, d_model, warmup_steps)

    assert "always" not in repr(check(noam_rate, seed=1).notes)


def test_a_part_that_is_called_too_seldom_is_counted():
    def greedy_decode(next_logits, max_len):
        tokens = [BOS]
        for _ in range(2):
            tokens.append(int(torch.as_tensor(next_logits(tokens)).argmax()))
        return tokens[1:]

    notes = check(greedy_decode, seed=1).notes
    assert any("next_logits is called twice, not" in note for note in notes)


def test_two_changes_of_arguments_are_said_together():
    def multi_head_attention(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
        mask = None if mask is None else ~mask
        heads = (split_heads(y @ w, num_heads) for y, w in ((x, w_q), (memory, w_k), (memory, w_v)))
        return merge_heads(attention(*heads, mask)[0]) @ w_o.T

    notes = check(multi_head_attention, seed=1).notes
    assert notes == (
        "yours is what comes out if w_o is transposed and mask is turned round (True and False)",
    )


def test_two_known_mistakes_that_add_up_are_both_named():
    def encoder_layer_flops(length, d_model, d_ff):
        return 8 * length * d_model**2 + 2 * length**2 * d_model + 2 * length * d_model * d_ff

    assert check(encoder_layer_flops, seed=1).mistakes == ("M203", "M204")


def test_results_in_another_order_are_said():
    def teacher_forcing(targets):
        read = pad_sequences([[BOS, *target] for target in targets])
        return pad_sequences([[*target, EOS] for target in targets]), read

    said = repr(check(teacher_forcing, seed=1))
    assert "yours are the right ones in another order: labels, tgt_input" in said

    def attention_and_weights(query, memory, weight, mask):
        scores = (query @ weight @ memory.mT).masked_fill(mask[:, None], -math.inf)
        return scores.softmax(-1), scores.softmax(-1) @ memory

    swapped = repr(check(attention_and_weights, "luong_attention", seed=1))
    assert "context has the shape of weights: is the order right?" in swapped
    assert re.search(r"tgt_input\[0\]: expected \[2, .*\], got \[.*3.*\]", said)
