"""Whether a wrong result comes of a right formula, which too few digits have spoiled."""

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor

from transformer_lib.course.checks.compare import compare
from transformer_lib.course.checks.observe import Case, Outcomes
from transformer_lib.course.checks.same import same
from transformer_lib.device import double_precision


def spoiled_by_precision(
    candidate: Callable[..., Any],
    cases: dict[str, Case],
    right: Outcomes,
    got: Outcomes,
    tolerance: float,
) -> str:
    """A sentence if every wrong result, one at least, comes out right in double precision."""
    for label, case in cases.items():
        if got[label].error or got[label].changed:
            return ""
        mismatch = compare(right[label].value, got[label].value, tolerance=tolerance)
        if mismatch is None:
            continue
        if mismatch.aspect != "values":
            return ""
        try:
            with double_precision():
                value = candidate(*_in_double(case.args))
        except Exception:  # it may insist on a type
            return ""
        if not same(_in_double(right[label].value), _in_double(value), tolerance):
            return ""
    return (
        "in double precision yours is right: the formula holds, and the precision of numbers "
        "spoils it. Where do large numbers nearly cancel, or exponentials overflow or vanish?"
    )


def _in_double(value: Any) -> Any:
    """A copy in which every tensor of real numbers is one of double precision."""
    if isinstance(value, Tensor):
        return value.detach().double() if value.is_floating_point() else value.clone()
    if type(value) in (tuple, list):
        return type(value)(map(_in_double, value))
    if type(value) is dict:
        return {name: _in_double(part) for name, part in value.items()}
    return copy.deepcopy(value)
