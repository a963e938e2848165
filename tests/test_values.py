"""What comes from a student is compared strictly: no empty, lying or broadcast value has points."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import dedent

import nbformat
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_lib.course.checks import check
from transformer_lib.instructor.grading.judge import Judge, _Test
from transformer_lib.instructor.grading.lint import lint
from transformer_lib.instructor.grading.master import load_master, make_master
from transformer_lib.instructor.grading.remote import remote
from transformer_lib.instructor.grading.sandbox import Sandbox
from transformer_lib.instructor.grading.values import UnexpectedError, agreeing, expect

MASTERS = sorted((Path(__file__).parent.parent / "assignments" / "source").glob("*/*.ipynb"))


def is_expected(got, expected, **settings):
    try:
        expect(got, expected, **settings)
    except UnexpectedError:
        return False
    return True


shapes = st.lists(st.integers(0, 3), max_size=3)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool])
tensors = st.builds(lambda shape, dtype: torch.ones(shape, dtype=dtype), shapes, dtypes)


@given(tensors, tensors)
def test_a_tensor_is_expected_where_torch_testing_says_so(got, expected):
    try:
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        right = True
    except AssertionError:
        right = False
    assert is_expected(got, expected) == right


DIFFERENT = {
    "an empty tensor": (torch.zeros(0, 3), torch.ones(2, 3)),
    "what would be broadcast": (torch.ones(1), torch.ones(2, 3)),
    "a number in place of a tensor": (1.0, torch.ones(())),
    "a tensor in place of a number": (torch.ones(()), 1.0),
    "another dtype": (torch.ones(2).double(), torch.ones(2)),
    "0 and 1 in place of a mask": (torch.ones(2), torch.ones(2, dtype=torch.bool)),
    "NaN where NaN is expected": (torch.tensor([torch.nan]), torch.tensor([torch.nan])),
    "infinity where it is expected": (torch.tensor([torch.inf]), torch.tensor([torch.inf])),
    "a number that is none": (float("nan"), float("nan")),
    "a truth value in place of a number": (True, 1),
    "a number in place of a truth value": (1, True),
    "a truth value in place of a float": (True, 1.0),
    "a shorter list": ([1], [1, 2]),
    "an empty list": ([], [1]),
    "a text in place of a list": ("12", ["1", "2"]),
    "an empty tensor in a list": ([torch.zeros(0)], [torch.ones(3)]),
    "other names": ({"a": 1}, {"a": 1, "b": 2}),
    "nothing": (None, 0),
    "zero in place of nothing": (0, None),
    "wrong numbers": (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.001])),
}


@pytest.mark.parametrize(("got", "expected"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_is_not_expected(got, expected):
    assert not is_expected(got, expected)


def test_a_subclass_is_another_type():
    class Liar(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return True

    assert not is_expected(torch.ones(2).as_subclass(Liar), torch.ones(2))
    assert not is_expected(type("Sly", (float,), {"__eq__": lambda *_: True})(1), 2.0)


def test_what_is_expected():
    assert is_expected([1, (2.0, None)], (1, [2.0, None]))
    assert is_expected(3, 3.0)
    assert is_expected({"a": (2, 3)}, {"a": (2, 3)})
    where = torch.tensor([True, False])
    assert is_expected(torch.tensor([1.0, torch.nan]), torch.ones(2), where=where)
    assert not is_expected(torch.tensor([2.0, 1.0]), torch.ones(2), where=where)
    assert agreeing([[1], [2], 3], [[1], [3], 3]) == 2
    assert agreeing([[1]], [[1], [2]]) == agreeing(None, [1]) == 0


def test_the_message_has_no_numbers():
    with pytest.raises(UnexpectedError, match=r"^the output \(other values\)$"):
        expect(torch.ones(2), torch.zeros(2), "the output")


# The masters


def hidden(code, answer="def f(x):\n    return x\n\nclass M(nn.Module): ..."):
    source = f"verdict = check(f)\n### BEGIN HIDDEN TESTS\n{code}\n### END HIDDEN TESTS"
    cells = [
        nbformat.v4.new_code_cell(answer, metadata={"nbgrader": {"grade_id": "a", "solution": 1}}),
        nbformat.v4.new_code_cell(
            source, metadata={"nbgrader": {"grade_id": "t", "grade": 1, "points": 1}}
        ),
    ]
    return make_master(nbformat.v4.new_notebook(cells=cells))


FORBIDDEN = [
    "assert torch.allclose(f(x), x)",
    "assert f(x) == 1",
    "assert not f(x).isnan().any()",
    "torch.testing.assert_close(f(x), x)",
    "if f(x).numel() == 1: pass",
    "y = f(x)\nz = y[0]\nassert z.item() > 0",
    "for y in f(x):\n    assert y",
    "points = 2 if f(x) else 0",
    "sum(a == b for a, b in zip(f(x), [1, 2]))",
    "def g(): return f(x)\nmin(g(), 3)",
    "expect(f(x), f(y))",
    "m = M()\nassert m.weight.shape == (2, 3)",
    "len(f(x))",
    "f(x)",
    "4 * f(x)",
    "while f(x): pass",
    "[y for y in f(x) if y]",
    "x and f(x)",
    "y = f(x) or x\nexpect(y, x)",
    "expect((y := f(x)), x)\nlen(y)",
    "y = 0\ny += f(x)\nlen(y)",
    "def g(): return h()\ndef h(): return f(x)\nlen(g())",
    "match f(x):\n    case 1: pass",
    "expect(f(x), x, where=f(y))",
    "expect(f(x), x, atol=f(y))",
]


@pytest.mark.parametrize("code", FORBIDDEN)
def test_hidden_tests_decide_with_nothing_else(code):
    assert lint(hidden(code))


ALLOWED = [
    "expect(f(x), x + 1, 'plus one')\n4 * verdict.share",
    "assert verdict.passed\nm = M()\nm.weight.data.copy_(w)\nexpect(m(x), w @ x)",
    "got = torch.autograd.grad(f(x), x, up)[0]\nexpect(got, 3 * up)",
    "right = agreeing([f(x) for x in xs], ys)\nright / 2 if right > 3 else 0",
    "for x, y in ((1, 2), (3, 4)):\n    expect(f(x), y)",
    "a, b = f(x), g(x)\nassert verdict.passed\nexpect(a, b)",
]


@pytest.mark.parametrize("code", ALLOWED)
def test_what_hidden_tests_may_do(code):
    assert lint(hidden(code)) == []


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: path.stem)
def test_our_own_masters(path):
    assert lint(load_master(path)) == []


# Adversaries: what they return knows the right answer's shape, and is not the right answer.

RUN = """
def _spoil(value, change):
    if isinstance(value, (list, tuple)):
        return type(value)(_spoil(part, change) for part in value)
    return change(value) if isinstance(value, torch.Tensor) else value

def _spoiling(right, change):
    return lambda *arguments: _spoil(right(*arguments), change)
"""
CHANGES = {
    "empty": "lambda y: y[:0] if y.ndim else torch.zeros(0)",
    "empty in all axes": "lambda y: y.new_zeros([0] * y.ndim)",
    "an axis more": "lambda y: y[None]",
    "an empty axis more": "lambda y: y[None][:0]",
    "one number": "lambda y: y.flatten()[:1]",
    "not a number": "lambda y: y * torch.nan if y.is_floating_point() else y.double() * torch.nan",
    "infinite": "lambda y: torch.full_like(y, torch.inf) if y.is_floating_point() else y[:0]",
    "zeros": "lambda y: torch.zeros_like(y)",
    "another dtype": "lambda y: y.half() if y.is_floating_point() else y.double()",
    "sparse": "lambda y: y.to_sparse()",
    "meta": "lambda y: y.to('meta')",
    "a list": "lambda y: y.tolist()",
}
VALUES = ["None", "[]", "()", "''", "True", "0", "float('nan')", "torch.zeros(0)", "'x' * 10"]


LIES_IN_WORDS = """
class {name}(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.__dict__["it"] = _right(*arguments)

    def named_parameters(self, *a, **k): return self.it.named_parameters()
    def parameters(self, *a, **k): return self.it.parameters()
    def forward(self, *arguments): return self.it(*arguments) * 0
"""
PLAIN = ("multi_bleu", "crossing", "randomization_p_value", "greedy_decode_batch", "learn")
"""They return numbers and lists of numbers: nothing in them could be spoiled as a tensor can."""


def lies_about(name, is_class):
    """Answers that are not right, as code; ``_right`` is the right one."""
    if is_class:
        spoiled = (
            f"class {name}(_right):\n    def forward(self, *arguments):\n"
            "        return _spoil(super().forward(*arguments), {})"
        )
        return {what: spoiled.format(change) for what, change in CHANGES.items()} | {
            "parameters that it only names": LIES_IN_WORDS.format(name=name)
        }
    lies = {value: f"{name} = lambda *_: {value}" for value in VALUES}
    if name not in PLAIN:
        lies |= {what: f"{name} = _spoiling(_right, {code})" for what, code in CHANGES.items()}
    return lies


def run_answers(connection, master):
    """All cells but the tests and those that are graded by hand."""
    for cell in master.cells:
        if cell.kind == "code" and not cell.is_test and not cell.is_manual:
            connection.ask("run", cell.source)


@pytest.mark.sandbox
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("path", MASTERS, ids=lambda path: path.stem)
def test_no_adversary_has_points(path):
    """Every test of every assignment, with answers that are not right, some of them nearly so."""
    master = load_master(path)
    judge = Judge(replace(master, limits=replace(master.limits, total_seconds=3600)))
    # What a mistake is called has no points, and takes many times longer.
    judge.check = partial(check, seed=judge.seed, diagnose=False)
    with judge.sandbox, judge.sandbox.open() as connection:
        run_answers(connection, master)
        connection.ask("run", RUN)
        for task in master.tasks:
            answer = master.answers_of(task)[0]
            tests = [master.cells[n] for n in task if master.cells[n].is_test]
            name = answer.grade_id
            connection.ask("run", f"_right = {name}")
            for what, code in lies_about(name, answer.source.startswith("class")).items():
                connection.ask("run", code)
                for test in tests:
                    result = _Test(judge, test).run(connection)
                    assert result.points == 0, (test.grade_id, what)
            connection.ask("run", f"{name} = _right")
            for test in tests if name != "learn" else []:  # it would train a model
                assert _Test(judge, test).run(connection).points == test.points


WITH_A_GRAPH = """
class MaskedBatchNorm(MaskedBatchNorm):
    def forward(self, x, real):
        mean, variance = self.running_mean, self.running_variance
        if self.training:
            words = x[real]
            mean, variance = words.mean(dim=0), words.var(dim=0, correction=0)
            self.latest = mean  # to look at: of one batch alone, and nothing is computed with it
            self.running_mean = 0.9 * self.running_mean + 0.1 * mean{detached}
            self.running_variance = 0.9 * self.running_variance + 0.1 * words.var(dim=0){detached}
        return self.scale * (x - mean) / torch.sqrt(variance + 1e-5) + self.shift
"""


@pytest.mark.sandbox
@pytest.mark.parametrize(("detached", "points"), [("", 0), (".detach()", 4)])
def test_running_numbers_through_which_gradients_flow_have_no_points(detached, points):
    judge = Judge(load_master(next(path for path in MASTERS if path.stem == "norms")))
    with judge.sandbox, judge.sandbox.open() as connection:
        run_answers(connection, judge.master)
        connection.ask("run", WITH_A_GRAPH.format(detached=detached))
        (test,) = (c for c in judge.master.cells if c.grade_id == "test_masked_evaluation")
        assert _Test(judge, test).run(connection).points == points


@pytest.mark.sandbox
def test_a_module_may_keep_its_parameters_in_other_ways_besides():
    """They are used with the grader's numbers all the same, and have gradients."""
    source = """
    from functools import partial
    class Affine(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.shift = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
            self.both = self.scale, self.shift
            self.scaled = partial(torch.mul, self.scale)
        def forward(self, x): return self.scaled(x) + self.both[1]
    """
    with Sandbox() as sandbox, sandbox.open() as connection:
        connection.ask("run", "import torch\nfrom torch import nn\n" + dedent(source))
        affine, x = remote(connection, "Affine")(), torch.randn(2, 3)
        for _ in range(2):
            with torch.no_grad():
                affine.scale.normal_()
                affine.shift.normal_()
            found = affine(x)
            torch.testing.assert_close(found, affine.scale * x + affine.shift)
            gradients = torch.autograd.grad(found.sum(), [affine.scale, affine.shift])
            torch.testing.assert_close(gradients, (x.sum(dim=0), torch.full((3,), 2.0)))
