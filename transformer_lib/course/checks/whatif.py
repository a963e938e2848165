"""What the right answer would give for other arguments: “yours is what comes out if …”."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from transformer_lib.course.checks.compare import compare
from transformer_lib.course.checks.observe import Case, Outcome

Change = Callable[[list[Any]], None]  # of the arguments, in place


def what_if(
    reference: Callable[..., Any],
    names: Sequence[str],
    cases: dict[str, Case],
    right: dict[str, Outcome],
    got: dict[str, Outcome],
    tolerance: float,
) -> str:
    """The change of the arguments that turns the right answer into the student's, as a sentence.

    It must explain every case without an error, and change the result in one of them at least.
    """
    cases = {label: case for label, case in cases.items() if got[label].error is None}
    if not cases:
        return ""
    for label in cases:
        if compare(right[label].value, got[label].value, tolerance=tolerance):
            wrong = label
            break
    else:
        return ""
    for said, change in _changes(names, cases[wrong]):
        if _explains(reference, change, cases[wrong], got[wrong], tolerance) and all(
            _explains(reference, change, case, got[label], tolerance)
            for label, case in cases.items()
        ):
            return f"yours is what comes out if {said}"
    return _with_an_argument(names, cases, right, got, tolerance)


def _explains(
    reference: Callable[..., Any], change: Change, case: Case, got: Outcome, tolerance: float
) -> bool:
    arguments = copy.deepcopy(list(case.args))  # parts keep a log, and it must stay empty
    try:
        change(arguments)
        value = reference(*arguments)
    except Exception:
        return False
    return compare(value, got.value, tolerance=tolerance) is None


def _changes(names: Sequence[str], case: Case) -> Iterator[tuple[str, Change]]:
    """Each change with the words for it."""

    def one(place: int, function: Callable[[Any], Any]) -> Change:
        def change(arguments: list[Any]) -> None:
            arguments[place] = function(arguments[place])

        return change

    def swap(i: int, j: int) -> Change:
        def change(arguments: list[Any]) -> None:
            arguments[i], arguments[j] = arguments[j], arguments[i]

        return change

    def product(i: int, j: int) -> Change:
        def change(arguments: list[Any]) -> None:
            arguments[i] = arguments[i] * arguments[j]

        return change

    for place, (name, value) in enumerate(zip(names, case.args, strict=False)):
        for said, function in _other_values(value):
            yield f"{name} {said}", one(place, function)
    tensors = [n for n, x in enumerate(case.args) if isinstance(x, Tensor)]
    for i, j in combinations(tensors, 2):
        if case.args[i].shape == case.args[j].shape and case.args[i].dtype == case.args[j].dtype:
            yield f"{names[i]} and {names[j]} change places", swap(i, j)
            if case.args[i].is_floating_point():
                yield f"{names[i]} is multiplied by {names[j]}", product(i, j)
                yield f"{names[j]} is multiplied by {names[i]}", product(j, i)


def _other_values(value: Any) -> list[tuple[str, Callable[[Any], Any]]]:
    if isinstance(value, bool):
        return [("is the opposite", lambda x: not x)]
    if isinstance(value, int | float):
        return [
            ("is one more", lambda x: x + 1),
            ("is one less", lambda x: x - 1),
            ("is twice as large", lambda x: 2 * x),
            ("is half as large", lambda x: x / 2),
            ("has the opposite sign", lambda x: -x),
            ("is squared", lambda x: x * x),
            ("is replaced by its root", lambda x: x**0.5),
            ("is left out (0)", lambda x: 0 * x),
        ]
    if not isinstance(value, Tensor):
        return []
    if value.dtype == torch.bool:
        return [
            ("is turned round (True and False)", torch.logical_not),
            ("is not used", torch.ones_like),
        ]
    found: list[tuple[str, Callable[[Any], Any]]] = []
    if value.ndim >= 2:
        found += [
            ("is transposed", lambda x: x.transpose(-2, -1)),
            (
                "is reshaped where it should be transposed",
                lambda x: x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2]).transpose(-2, -1),
            ),
            ("begins one row later", lambda x: x.roll(-1, -2)),
            ("begins one row earlier", lambda x: x.roll(1, -2)),
        ]
    if value.is_floating_point():
        found += [
            ("is left out (zeros)", torch.zeros_like),
            ("is replaced by ones", torch.ones_like),
            ("is replaced by 1 + itself", lambda x: 1 + x),
            ("has the opposite sign", torch.neg),
            ("is squared", torch.square),
            ("goes through a ReLU first", torch.relu),
            ("goes through a softmax first", lambda x: x.softmax(-1)),
        ]
        for axis in range(1, value.ndim + 1):
            found.append((f"is divided by the root of its {_size(axis)}", _by_root(axis, -0.5)))
            found.append((f"is multiplied by the root of its {_size(axis)}", _by_root(axis, 0.5)))
    return found


def _by_root(axis: int, exponent: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x * x.size(-axis) ** exponent


def _size(axis: int) -> str:
    return {1: "last size", 2: "last size but one"}.get(axis, f"{axis}th size from the end")


def _with_an_argument(
    names: Sequence[str],
    cases: dict[str, Case],
    right: dict[str, Outcome],
    got: dict[str, Outcome],
    tolerance: float,
) -> str:
    """The right result, and one argument beside it: plus, minus or times."""
    operations: dict[str, Callable[[Any, Any], Any]] = {
        "the right one plus {}": lambda y, x: y + x,
        "the right one minus {}": lambda y, x: y - x,
        "the right one times {}": lambda y, x: y * x,
    }
    if said := _always(list(right.values()), [got[label] for label in right]):
        return said
    given = min(len(case.args) for case in cases.values())
    for place, name in enumerate(names[:given]):
        for said, operation in operations.items():
            if all(
                _is(operation, right[label].value, case.args[place], got[label].value, tolerance)
                for label, case in cases.items()
            ):
                return "yours is " + said.format(name)
    return ""


def _always(right: list[Outcome], got: list[Outcome]) -> str:
    """Single numbers that are the same number of times the right ones, case for case."""
    pairs = [(_number(a.value), _number(b.value)) for a, b in zip(right, got, strict=True)]
    ratios = [b / a for a, b in pairs if a and b is not None]
    if len(ratios) < 2 or len(ratios) < len(pairs) or len({a for a, _ in pairs}) < 2:
        return ""
    first = ratios[0]
    if not all(map(math.isfinite, ratios)) or abs(first) < 1e-6 or abs(first - 1) < 0.01:
        return ""
    if max(ratios) - min(ratios) > 1e-4 * abs(first):
        return ""
    return f"yours is always {first:.3g} times the right one"


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        return float(value.item())
    return float(value) if isinstance(value, int | float) and value is not True else None


def _is(operation: Callable, y: Any, x: Any, theirs: Any, tolerance: float) -> bool:
    if not all(isinstance(v, Tensor) and v.is_floating_point() for v in (x, y, theirs)):
        return False
    return x.shape == y.shape and compare(operation(y, x), theirs, tolerance=tolerance) is None
