"""What the right answer would give for other arguments: “yours is what comes out if …”."""

import dis
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from transformer_lib.course.checks.observe import Case, Outcome, Outcomes
from transformer_lib.course.checks.same import as_float, same

Change = Callable[[list[Any]], None]  # of the arguments, in place
Explanation = Callable[[Case, Outcome], Any]  # a case and what is right for it -> another result


def what_if(
    reference: Callable[..., Any],
    names: Sequence[str],
    cases: dict[str, Case],
    right: Outcomes,
    got: Outcomes,
    wrong: str,
    tolerance: float,
    tensors_only: bool = False,
) -> str:
    """The change of the arguments that turns the right answer into the student's, as a sentence.

    It must explain every case without an error. ``wrong`` names one in which the result is wrong.
    ``reference`` may be a known wrong answer instead; then only tensors can be varied, for with
    another number a wrong loop may never end.
    """
    worked = [wrong, *(x for x in cases if x != wrong and got[x].error is None)]

    def explains(explanation: Explanation) -> bool:
        def fits(label: str) -> bool:
            try:
                value = explanation(cases[label], right[label])
            except Exception:  # other arguments may not even fit
                return False
            return same(value, got[label].value, tolerance)

        return all(map(fits, worked))

    case = _whole([cases[label] for label in worked])
    explanations = _explanations(reference, names, case, right[wrong].value, tensors_only)
    found = (said for said, explanation in explanations if explains(explanation))
    return next(found, "") or _always([(right[x].value, got[x].value) for x in cases])


def without_influence(
    candidate: Callable[..., Any],
    reference: Callable[..., Any],
    names: Sequence[str],
    cases: list[Case],
    tolerance: float,
) -> list[str]:
    """Numbers and masks among the arguments that change what is right, but not the candidate's."""

    def changes(function: Callable[..., Any], case: Case, place: int) -> bool:
        before = function(*case.copied_args())
        for other in _moved(case.args[place]):
            arguments = case.copied_args()
            arguments[place] = other
            if not same(before, function(*arguments), tolerance):
                return True
        return False

    found = []
    for place, name in enumerate(names[: len(cases[0].args)]):
        try:
            if not any(changes(reference, case, place) for case in cases):
                continue
            if not any(changes(candidate, case, place) for case in cases):
                found.append(name)
        except Exception:  # whatever the candidate may do
            continue
    return found


def never_read(function: Callable[..., Any]) -> dict[int, str]:
    """The arguments, by their places, that a function's code does not look at."""
    code = getattr(function, "__code__", None)
    if code is None or inspect.ismethod(function) or "locals" in code.co_names:
        return {}
    steps = [step for step in dis.get_instructions(code) if "LOAD" in step.opname]
    read = {x for s in steps for x in (s.argval if isinstance(s.argval, tuple) else [s.argval])}
    names = enumerate(code.co_varnames[: code.co_argcount])
    return {place: x for place, x in names if x not in read and x not in code.co_cellvars}


def _moved(value: Any) -> list[Any]:
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        return [torch.ones_like(value)]
    return [0.0, 1.5 * value + 0.1, 4.0 * value] if isinstance(value, float) else []


def _whole(cases: list[Case]) -> Case:
    """The first case, with what it leaves out (None) taken from the others."""
    columns = zip(*(case.args for case in cases), strict=False)
    return Case(*(next((x for x in column if x is not None), None) for column in columns))


def _explanations(
    reference: Callable[..., Any],
    names: Sequence[str],
    case: Case,
    value: Any,
    tensors_only: bool,
) -> Iterator[tuple[str, Explanation]]:
    """What may have been done instead, each with the words for it."""

    def with_change(change: Change) -> Explanation:
        def explanation(case: Case, right: Outcome) -> Any:
            arguments = case.copied_args()  # parts keep a log, and it must stay empty
            change(arguments)
            return reference(*arguments)

        return explanation

    def with_argument(place: int, operation: Callable[[Any, Any], Any]) -> Explanation:
        return lambda case, right: operation(right.value, case.args[place])

    changes = list(_changes(names, case, tensors_only))
    for said, change in changes:
        yield f"yours is what comes out if {said}", with_change(change)
    for place, (name, x) in enumerate(zip(names, case.args, strict=False)):
        alike = isinstance(x, Tensor) and isinstance(value, Tensor)
        if alike and x.is_floating_point() and x.shape == value.shape:
            yield f"yours is the right one plus {name}", with_argument(place, operator.add)
            yield f"yours is the right one minus {name}", with_argument(place, operator.sub)
            yield f"yours is the right one times {name}", with_argument(place, operator.mul)
    for (one, first), (other, second) in combinations(filter(_is_common, changes), 2):
        if one.split()[0] != other.split()[0]:  # of two arguments
            said = f"yours is what comes out if {one} and {other}"
            yield said, with_change(_one_after_the_other(first, second))


def _is_common(said_and_change: tuple[str, Change]) -> bool:
    """What is done wrong often enough to be done together with something else."""
    ends = (
        "is transposed",
        "(True and False)",
        "is not used",
        "(zeros)",
        "change places",
        "to length 1",
    )
    return said_and_change[0].endswith(ends)


def _one_after_the_other(first: Change, second: Change) -> Change:
    def change(arguments: list[Any]) -> None:
        first(arguments)
        second(arguments)

    return change


def _changes(names: Sequence[str], case: Case, tensors_only: bool) -> Iterator[tuple[str, Change]]:
    """Each change with the words for it."""

    def one(place: int, function: Callable[[Any], Any]) -> Change:
        def change(arguments: list[Any]) -> None:
            if arguments[place] is not None:  # a mask that may be left out
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
            if tensors_only and not isinstance(value, Tensor):
                continue
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
            ("is taken without its sign", abs),
            ("is replaced by its root", math.sqrt),
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
            ("is normalized to length 1", lambda x: x / x.norm(dim=-1, keepdim=True)),
        ]
        for axis in range(1, value.ndim + 1):
            found.append((f"is divided by the root of its {_size(axis)}", _by_root(axis, -0.5)))
            found.append((f"is multiplied by the root of its {_size(axis)}", _by_root(axis, 0.5)))
    return found


def _by_root(axis: int, exponent: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x * x.size(-axis) ** exponent


def _size(axis: int) -> str:
    return {1: "last size", 2: "last size but one", 3: "third size from the end"}.get(
        axis, f"{axis}th size from the end"
    )


def _always(pairs: list[tuple[Any, Any]]) -> str:
    """Single numbers that are the same number of times the right ones, case for case."""
    numbers = [(_number(right), _number(got)) for right, got in pairs]
    ratios = [b / a for a, b in numbers if a and b is not None]
    if len(ratios) < len(pairs) or len({a for a, _ in numbers}) < 2:
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
    return as_float(value) if isinstance(value, int | float) and value is not True else None
