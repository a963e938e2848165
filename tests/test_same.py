"""When two results are the same: where PyTorch and NumPy say so, and where nothing else is said."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_lib.course.checks.compare import compare
from transformer_lib.course.checks.same import close, same

TOLERANCES = st.sampled_from([0.0, 1e-6, 1e-4, 1e-2])
NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 1.00005, -1.0, float("inf"), -float("inf"), float("nan")]),
    st.floats(width=32),
)
DTYPES = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6), DTYPES, TOLERANCES)
def test_numbers_are_close_where_torch_says_so(pairs, dtype, tolerance):
    expected, got = torch.tensor(pairs).double().view(-1, 2).to(dtype).unbind(1)
    right = torch.isclose(
        got.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True
    )
    assert torch.equal(close(expected, got, tolerance), right)
    assert same(expected, got, tolerance) == bool(right.all())


@given(NUMBERS, NUMBERS, TOLERANCES)
def test_a_number_is_the_same_where_numpy_says_so(expected, got, tolerance):
    right = np.isclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert same(expected, got, tolerance) == bool(right)


tensors = st.builds(
    lambda shape, dtype, number: torch.full(shape, number).to(dtype),
    st.lists(st.integers(0, 2), max_size=2),
    st.sampled_from([torch.float32, torch.int64, torch.bool]),
    st.sampled_from([0.0, 1.0, float("nan")]),
)
leaves = st.one_of(
    tensors,
    st.sampled_from([None, True, False, 0, 1, 0.0, 1.0, float("nan"), "", "1", 10**400]),
    st.builds(lambda x: x.numpy(), tensors),
    st.sampled_from([np.float32(1), np.int64(1), np.bool_(True)]),
)
values = st.recursive(
    leaves,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.lists(parts, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("ab"), parts, max_size=2),
    ),
    max_leaves=4,
)


@given(values, values)
def test_what_is_said_of_two_results_is_that_they_differ(expected, got):
    for one, other in ((expected, got), (expected, expected)):
        mismatch = compare(one, other, tolerance=1e-4)
        assert (mismatch is None) == same(one, other, 1e-4)
        assert mismatch is None or mismatch.message


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ([1.0], [torch.tensor(1.0)]),
        ({"a": 1}, {"a": 1, "b": 2}),
        (torch.ones(2), torch.ones(2).double()),
        (torch.ones(1, 2), torch.ones(2)),
        (1, True),
        (None, 0),
    ],
)
def test_what_is_not_the_same(expected, got):
    assert not same(expected, got, 1e-4)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1.0, torch.tensor([1.0])),
        (2, np.int64(2)),
        ([1, (2.0, None)], (1, [2, None])),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (float("nan"), float("nan")),
    ],
)
def test_what_is_the_same(expected, got):
    assert same(expected, got, 1e-4)
