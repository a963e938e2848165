"""The checks: right answers pass, wrong ones fail and hear why."""

import importlib.util
import itertools
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from transformer_lib.course.assembled import Transformer
from transformer_lib.course.checks import EXERCISES, catalogue, check
from transformer_lib.course.checks.compare import compare
from transformer_lib.course.checks.diagnosis import draw_trial, judge
from transformer_lib.course.checks.observe import NoEndError, ends_after
from transformer_lib.course.misconceptions.bank import bank, wrong_answers
from transformer_lib.vocabulary import BOS, EOS

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

ANSWERS = [(mistake.id, exercise) for mistake in bank() for exercise in mistake.answers]


@pytest.mark.parametrize("name", EXERCISES)
def test_the_right_answer_passes_whatever_the_numbers(name):
    for seed in (1, 2, None):
        verdict = check(EXERCISES[name].reference, name, seed)
        assert verdict.passed, verdict
        assert not verdict.mistakes


def without_what_is_seen(page):
    """The lines of the page of known mistakes but for their last column, and that column."""
    parts = [line.rpartition("| `") for line in page.splitlines()]
    return [before or after for before, _, after in parts], {
        before.split()[1]: f"`{after}".removesuffix(" |").split("<br>")
        for before, _, after in parts
        if before
    }


PAGE = (Path(__file__).parent.parent / "docs" / "misconceptions.md").read_text(encoding="utf-8")
LINES, SEEN = without_what_is_seen(PAGE)


@pytest.mark.parametrize(("id", "name"), ANSWERS)
def test_each_known_mistake_gets_its_own_diagnosis(id, name):
    """So every pair of the exercise's answers, right and wrong, is told apart."""
    (mistake,) = [mistake for mistake in wrong_answers(name) if mistake.id == id]
    verdict = judge(mistake.answers[name], catalogue.trial(name))
    assert not verdict.passed
    assert verdict.mistakes == (id,)
    assert verdict.hints == (f"{id}: {mistake.hint}",)
    assert catalogue.seen_in(verdict) in SEEN[id], "run `make docs`"


@pytest.mark.long
@pytest.mark.parametrize("name", EXERCISES)
def test_known_mistakes_are_named_whatever_the_numbers(name):
    """With another draw than the page's."""
    trial = draw_trial(EXERCISES[name], seed=2)
    for mistake in wrong_answers(name):
        verdict = judge(mistake.answers[name], trial)
        assert not verdict.passed
        assert verdict.mistakes == (mistake.id,)


def test_the_page_of_known_mistakes_is_current(monkeypatch):
    """The rest of it: what the checks see is compared above."""
    monkeypatch.setattr(catalogue, "judge", lambda *_: None)
    monkeypatch.setattr(catalogue, "seen_in", lambda _: "`")
    assert without_what_is_seen(catalogue.as_markdown())[0] == LINES, "run `make docs`"
    assert {id: len(seen) for id, seen in SEEN.items()} == {m.id: len(m.answers) for m in bank()}


def test_the_bank_is_complete():
    ids = {mistake.id for mistake in bank()}
    assert len(ids) >= 60
    assert ids >= {f"M{number}" for number in range(1, 33)}
    for mistake in bank():
        assert mistake.answers, f"{mistake.id} answers no exercise"
        assert set(mistake.answers) <= set(EXERCISES), mistake.id


def load(tmp_path, source):
    """The function ``attention`` of a student's file."""
    path = tmp_path / "student.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("student", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.attention


def by_autograd(x, upstream, scale, eps):
    x, scale = (t.clone().requires_grad_() for t in (x, scale))
    y = torch.nn.functional.rms_norm(x, (x.size(-1),), scale, eps)
    return torch.autograd.grad(y, (x, scale), upstream)


def test_a_gradient_by_hand_is_not_autograds():
    verdict = check(by_autograd, "rms_norm_backward")
    assert not verdict.passed
    assert "autograd is off here: write the gradient as a formula" in str(verdict)


def test_a_softmax_by_hand_is_not_pytorchs():
    def softmax(scores):
        return torch.nn.functional.softmax(scores, dim=-1)

    verdict = check(softmax)
    assert not verdict.passed
    assert "softmax is off here: write it with exp and a sum" in str(verdict)


@pytest.mark.parametrize("body", ["pass", "...", "return ...", "raise NotImplementedError"])
def test_a_stub_is_not_attempted_yet(tmp_path, body):
    verdict = check(load(tmp_path, f"def attention(query, key, value, mask):\n    {body}\n"))
    assert not verdict.attempted
    assert not verdict.passed
    assert repr(verdict) == "– attention: not attempted yet"


def test_an_exception_shows_the_students_line(tmp_path):
    student = load(
        tmp_path,
        "def attention(query, key, value, mask):\n"
        "    scores = query @ key\n"
        "    return scores @ value, scores\n",
    )
    text = repr(check(student))
    assert "line 2, `scores = query @ key`: RuntimeError" in text
    assert "transformer_lib" not in text


def test_a_wrong_shape_names_the_axes(tmp_path):
    student = load(
        tmp_path,
        "from transformer_lib.model.scaled_dot_product import attention as right\n"
        "def attention(query, key, value, mask):\n"
        "    output, weights = right(query, key, value, mask)\n"
        "    return output, weights.transpose(-2, -1)\n",
    )
    text = repr(check(student))
    assert "that is (batch, head, key, query)" in text
    assert "are query and key in the wrong order?" in text


def test_rounding_of_a_single_number_decides_nothing():
    """These two lie on both sides of the middle between two numbers of single precision."""
    assert compare(340749999.99999994, 340750000.0, tolerance=1e-9) is None
    assert compare(340749999.99999994, 340750001.0, tolerance=1e-9) is not None


def test_the_first_wrong_number_is_shown():
    expected = torch.zeros(2, 3)
    got = expected.clone()
    got[1, 2] = 0.5
    mismatch = compare(expected, got, ("weights",), (("query", "key"),), tolerance=1e-6)
    assert mismatch.aspect == "values"
    assert mismatch.message == (
        "weights[1, 2] (query 1, key 2): expected 0, got 0.5; 1 of 6 numbers differ"
    )


def test_the_numbers_are_new_each_time_unless_seeded():
    verdicts = {repr(check(lambda length, alpha: 1.0, "length_penalty")) for _ in range(5)}
    assert len(verdicts) > 1
    seeded = {repr(check(lambda length, alpha: 1.0, "length_penalty", seed=4)) for _ in range(3)}
    assert len(seeded) == 1


def test_an_unknown_exercise_suggests_the_one_meant():
    with pytest.raises(ValueError, match="did you mean attention"):
        check(lambda: None, "atention")


def test_the_html_says_it_without_color_and_shows_no_code(tmp_path):
    student = load(tmp_path, "def attention(query, key, value, mask):\n    return 1 < 2, '<b>'\n")
    html = check(student)._repr_html_()
    assert "✗" in html
    assert "failed" in html
    assert "<b>" not in html.replace("<strong>", "")


def test_a_class_without_a_body_is_not_attempted_yet():
    class LayerNorm(torch.nn.Module):
        def __init__(self, d_model):
            super().__init__()

        def forward(self, x): ...

    assert repr(check(LayerNorm)) == "– LayerNorm: not attempted yet"


def test_a_check_leaves_the_random_numbers_of_the_student_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    check(EXERCISES["attention"].reference)
    check(EXERCISES["layer_norm"].reference)
    assert torch.equal(torch.rand(3), expected)


def test_the_result_for_the_function_is_noticed():
    with pytest.raises(TypeError, match=r"the function itself, not its result"):
        check(torch.ones(2))


def test_a_long_text_does_not_fill_the_verdict():
    verdict = check(lambda *_: "x" * 1_000_000, name="attention")
    assert not verdict.passed
    assert len(repr(verdict)) < 5_000


@pytest.mark.parametrize("catches", [False, True])
def test_what_does_not_end_is_ended_and_said_once(catches):
    """In a process of its own, since alarms reach only a main thread."""
    step = "if symbols[i] == pair:\n                i += 1"
    if catches:
        step = step.replace("if symbols[i] == pair:", "with contextlib.suppress(Exception):")
        step = step.replace("i += 1", "symbols[i] + 1")
    program = f"""
import contextlib
from transformer_lib.course.checks import check, observe
observe.SECONDS = 1

def merge_pair(symbols, pair):
    i = 0
    while i < len(symbols):
        for _ in range(9):
            {step}

print(check(merge_pair))
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    ).stdout
    assert said.count("still running after 1 seconds") == 1


def test_what_calls_itself_without_end_is_said_at_once():
    def merge_pair(symbols, pair):
        return merge_pair(symbols, pair)

    assert "RecursionError: maximum recursion depth exceeded" in repr(check(merge_pair))


def test_code_without_line_numbers_is_checked():
    def attention(query, key, value, mask):
        return query @ key

    code = attention.__code__
    nowhere = [min(8, len(code.co_code) // 2 - n) for n in range(0, len(code.co_code) // 2, 8)]
    code = code.replace(co_linetable=bytes(0xF8 | length - 1 for length in nowhere))
    assert {line for _, _, line in code.co_lines()} == {None}
    text = repr(check(types.FunctionType(code, globals(), "attention")))
    assert "RuntimeError" in text


def test_the_sum_may_be_made_in_place():
    def encoder_layer(x, mask, self_attention, feed_forward, norm1, norm2):
        states = self_attention(x, x, mask)
        states += x
        states = norm1(states)
        change = feed_forward(states)
        change += states
        return norm2(change)

    assert check(encoder_layer).passed


def test_changed_dictionaries_are_noticed():
    right = EXERCISES["learn_merges"].reference

    def learn_merges(counts, number):
        merges = right(counts, number)
        counts.clear()
        return merges

    assert "arguments" in repr(check(learn_merges))
    assert not check(learn_merges).passed


def test_settings_of_the_notebook_do_not_change_a_check():
    right = EXERCISES["attention"].reference
    with torch.no_grad(), torch.device("meta"):
        assert check(right).passed


def test_numbers_beyond_all_floats_are_judged():
    def encoder_layer_flops(length, d_model, d_ff):
        return 4 * length * d_model**2 * 2 * length**2 * d_model * 2 * length * d_model * d_ff

    assert not check(encoder_layer_flops).passed
    assert not check(lambda *sizes: 10**400, "encoder_layer_flops").passed


def test_numpys_numbers_are_numbers():
    right = EXERCISES["ignores_order"].reference
    assert check(lambda attend: np.bool_(right(attend)), "ignores_order").passed


def test_a_list_that_grows_from_call_to_call_is_shown_as_it_was():
    right = EXERCISES["learn_merges"].reference

    def learn_merges(counts, number, merges=[]):  # noqa: B006
        merges += right(counts, number)
        return merges

    assert "kept from one call to the next" in repr(check(learn_merges))


def test_of_what_an_answer_prints_the_first_wrong_case_is_shown(capsys):
    def wrong(length):
        print("length", length)
        if length == 1:
            print("\n".join(map(str, range(100))))
        return torch.ones(1, 1, length, length, dtype=torch.bool).tril(-(length == 1))

    said = str(check(wrong, "causal_mask", seed=1))
    assert said.count("length 1\n") == 1
    assert "length 4" not in said
    assert "your code printed in “one position”:\n  length 1\n  0\n  1\n" in said
    assert said.endswith("  38\n  … and 61 lines more")

    def right(length):
        print("length", length)
        return torch.ones(1, 1, length, length, dtype=torch.bool).tril()

    verdict = check(right, "causal_mask", seed=1)
    assert verdict.passed
    assert str(verdict).endswith("\n  your code printed:\n  length 4")
    assert "<pre style=" in verdict._repr_html_()
    assert capsys.readouterr().out == ""


def test_a_known_mistake_is_known_by_a_tensor_of_one_number(monkeypatch):
    (mistake,) = (m for m in bank() if m.id == "M114")
    known = mistake.answers["noam_rate"]
    verdict = check(
        lambda *given: torch.tensor(known(*given), dtype=torch.double), "noam_rate", seed=1
    )
    assert verdict.mistakes == ("M114",)


def test_a_result_of_another_kind_is_not_called_random():
    def ignores_order(attend):
        q, k, v = torch.randn(3, 2, 7, 8)
        return attend(q, k, v) == attend(q, k.roll(1, 1), v.roll(1, 1))

    verdict = check(ignores_order, seed=1)
    assert "expected a bool, got a tensor" in str(verdict)
    assert not verdict.notes


def test_what_the_function_is_called_with_is_not_given_to_check():
    with pytest.raises(TypeError, match="no name of its own: write it with def"):
        check(lambda scores: scores.softmax(-1))
    with pytest.raises(TypeError, match="takes the function alone"):
        check(torch.relu, torch.zeros(1), 20)


def test_the_model_of_a_search_wants_a_list():
    def greedy_decode(next_logits, max_len):
        tokens = torch.tensor([BOS])
        for _ in range(max_len):
            token = next_logits(tokens).argmax()
            if token == EOS:
                break
            tokens = torch.cat([tokens, token[None]])
        return tokens[1:].tolist()

    assert "takes the list of all tokens so far, and got a Tensor" in str(check(greedy_decode))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no alarms")
def test_a_busy_machine_ends_nothing():
    with ends_after(1.0):  # of its own time, of which it takes nearly none
        time.sleep(1.2)
    with pytest.raises(NoEndError), ends_after(0.2):
        time.sleep(60)

    def endless():
        return all(n >= 0 for n in itertools.count())

    with pytest.raises(NoEndError), ends_after(0.2):
        endless()


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        ([5, 1], [5, True], "r[1]: expected 1, got True"),
        (
            [5, 1],
            [1, 5],
            "r[0]: expected 5, got 1; the whole list has the right items, in another order",
        ),
        ([[4, 5], []], [[], []], "r[0]: expected [4, 5], got []"),
        ([[4], [5], [6]], [[5], [7], [6]], "r[0]: expected [4], got [5]; this belongs at [1]"),
        (["a", "aa"], ["aa", "a"], "r: expected ['a', 'aa'], got ['aa', 'a']; the whole list"),
    ],
)
def test_lists_that_differ(expected, got, said):
    mismatch = compare(expected, got, ("r",), tolerance=1e-6, sizes={})
    assert mismatch.message.startswith(said)


def test_a_model_has_no_more_names_than_published_weights():
    class Twice(Transformer):
        def __init__(self, vocab_size, d_model, *sizes):
            super().__init__(vocab_size, d_model, *sizes)
            self.output = nn.Linear(d_model, vocab_size, bias=False)
            self.output.weight = self.embed_tokens.weight

    class Kept(Transformer):
        def __init__(self, vocab_size, d_model, *sizes, persistent=True):
            super().__init__(vocab_size, d_model, *sizes)
            self.register_buffer("table", torch.zeros(2, d_model), persistent)

    class KeptAside(Kept):
        def __init__(self, *sizes):
            super().__init__(*sizes, persistent=False)

    said = "your output.weight is your embed_tokens.weight once more: state_dict() has both names"
    assert said in repr(check(Twice, name="Transformer", diagnose=False))
    assert "your buffer table is in state_dict()" in repr(
        check(Kept, name="Transformer", diagnose=False)
    )
    assert check(KeptAside, name="Transformer").passed


def test_autograd_in_another_process_is_said_to_be_off():
    class Elsewhere:
        def __call__(self, *arguments):
            error = RuntimeError("element 0 of tensors does not require grad")
            error.explanation = f"line 3: {error}"
            raise error

    verdict = repr(judge(Elsewhere(), catalogue.trial("rms_norm_backward")))
    assert "autograd is off here: write the gradient as a formula" in verdict
    assert "not attempted" not in verdict


def test_an_argument_that_the_code_never_looks_at_is_named():
    """As where a name of the notebook was used for it."""

    def encode_text(text, pieces):
        return [len(word) for word in text.split()]

    assert "your code never looks at pieces" in repr(check(encode_text, seed=1))

    def looks(text, pieces):
        return [number for number, _ in enumerate(text) if [x for x in [0] if number in pieces]]

    assert "never looks" not in repr(check(looks, "encode_text", seed=1))


def test_a_test_that_is_right_by_luck_does_not_pass():
    """One order drawn by chance leaves the key that matters in its place one time in seven."""

    def ignores_order(attend):
        query, key, value = torch.randn(3, 2, 7, 8)
        order = torch.randperm(7)
        moved = attend(query, key[:, order], value[:, order])
        return torch.allclose(attend(query, key, value), moved, atol=1e-5)

    for seed in range(10):
        verdict = check(ignores_order, seed=seed)
        assert not verdict.passed
        assert "of 30 calls" in str(verdict)
