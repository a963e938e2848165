"""What comes from a student, held against what is expected: strictly, and in one place.

Hidden tests compare with :func:`expect` alone. ``torch.allclose`` and ``==`` broadcast: an empty
tensor is close to every other one, and a single number equals a whole table of them.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.course.sandboxed import kept
from transformer_lib.instructor.grading.remote import RemoteModule

ATOL, RTOL = 1e-5, 1e-4


class UnexpectedError(AssertionError):
    """A value is not the expected one; the message is only what the test's author wrote."""


def expect(
    got: Any, expected: Any, says: str = "", *, atol: float = ATOL, where: Tensor | None = None
) -> None:
    """Go on only if a value is the expected one: its type, shape and dtype, then its numbers.

    A tensor must have the same shape and dtype, and must be finite; nothing is broadcast. A number
    where ``expected`` is a float may be an int. A list and a tuple are the same if their parts are.

    Args:
        says: what the student is told if it is not, without the numbers.
        atol: how far numbers may be off, beside ``RTOL`` times their size.
        where: which positions count, a boolean tensor over the first axes of a tensor.

    Raises:
        UnexpectedError: it is not; with ``says`` and whether type, shape, dtype or values differ.
    """
    if aspect := _difference(got, expected, atol, where):
        raise UnexpectedError(f"{says} ({aspect})" if says else aspect)


def agreeing(got: Any, expected: list[Any]) -> int:
    """How many parts of a list are as expected, in their places; none in a list of other length."""
    if type(got) not in (list, tuple) or len(got) != len(expected):
        return 0
    return sum(not _difference(a, b, ATOL, None) for a, b in zip(got, expected, strict=True))


def keeps_graph(module: nn.Module) -> Any:
    """Whether a gradient would flow through what a module keeps, back into an earlier call.

    Of a student's module in the sandbox the answer is the student's: compare it with ``expect``.
    """
    if isinstance(module, RemoteModule):
        return module.keeps_graph()
    return bool(kept.kept_graphs(module))


def _difference(got: Any, expected: Any, atol: float, where: Tensor | None) -> str:
    """The first aspect in which they differ, in words; nothing if they do not."""
    if isinstance(expected, Tensor):
        return _difference_of_tensors(got, expected.detach(), atol, where)
    if type(expected) in (list, tuple):
        if type(got) not in (list, tuple):
            return "another type"
        if len(got) != len(expected):
            return "another length"
        pairs = zip(got, expected, strict=True)
        return next((d for a, b in pairs if (d := _difference(a, b, atol, where))), "")
    if type(expected) is dict:
        if type(got) is not dict:
            return "another type"
        if got.keys() != expected.keys():
            return "other names"
        return _difference([got[name] for name in expected], [*expected.values()], atol, where)
    if type(expected) is float:
        if type(got) not in (int, float):
            return "another type"
        right = math.isfinite(got) and math.isclose(got, expected, rel_tol=RTOL, abs_tol=atol)
        return "" if right else "other values"
    if type(got) is not type(expected):
        return "another type"
    return "" if got == expected else "other values"


def _difference_of_tensors(got: Any, expected: Tensor, atol: float, where: Tensor | None) -> str:
    if type(got) is not Tensor:
        return "another type"
    if got.shape != expected.shape:
        return "another shape"
    if got.dtype != expected.dtype:
        return "another dtype"
    got = got.detach()
    if where is not None:
        got, expected = got[where], expected[where]
    if not got.is_floating_point():
        return "" if torch.equal(got, expected) else "other values"
    if not got.isfinite().all():
        return "not finite"
    right = torch.allclose(got.double(), expected.double(), rtol=RTOL, atol=atol)
    return "" if right else "other values"
