"""Where two results differ first, said in words."""

from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import torch
from torch import Tensor

Aspect = Literal["shape", "dtype", "values"]
ASPECTS: tuple[Aspect, ...] = ("shape", "dtype", "values")  # in the order of looking


@dataclass(frozen=True)
class Mismatch:
    """The first aspect in which a result is not the expected one, and a sentence about it."""

    aspect: Aspect
    message: str


def compare(
    expected: Any,
    got: Any,
    names: tuple[str, ...] = ("the result",),
    axes: tuple[tuple[str, ...], ...] = (),
    *,
    tolerance: float,
) -> Mismatch | None:
    """What is different, or None.

    Args:
        names: of the results, if there are several.
        axes: of each result, the names of its axes.
        tolerance: relative, and absolute for numbers below 1; ``NaN`` equals ``NaN``.
    """
    if isinstance(expected, tuple | list):
        if not isinstance(got, tuple | list):
            return Mismatch("shape", f"expected {_describe(expected)}, got {_describe(got)}")
        if len(got) != len(expected):
            what = "items" if isinstance(expected, list) else "results"
            return Mismatch("shape", f"expected {len(expected)} {what}, got {len(got)}")
        mismatches = [
            compare(
                one,
                other,
                names[i : i + 1] if len(names) == len(expected) else (f"{names[0]}[{i}]",),
                axes[i : i + 1] if len(axes) == len(expected) else (),
                tolerance=tolerance,
            )
            for i, (one, other) in enumerate(zip(expected, got, strict=True))
        ]
        found = [mismatch for mismatch in mismatches if mismatch]
        return min(found, key=lambda m: ASPECTS.index(m.aspect), default=None)
    if isinstance(expected, Tensor):
        if not isinstance(got, Tensor):
            return Mismatch("shape", f"{names[0]}: expected a tensor, got {_describe(got)}")
        return _compare_tensors(expected, got, names[0], axes[0] if axes else (), tolerance)
    if isinstance(got, Tensor):
        if got.numel() != 1:
            return Mismatch("shape", f"{names[0]}: expected {_describe(expected)}, got a tensor")
        got = got.item()
    if isinstance(expected, float) and isinstance(got, int | float):
        if _close(torch.tensor(float(expected)), torch.tensor(float(got)), tolerance).all():
            return None
    elif expected == got and isinstance(expected, bool) == isinstance(got, bool):
        return None
    return Mismatch("values", f"{names[0]}: expected {_number(expected)}, got {_number(got)}")


def _compare_tensors(
    expected: Tensor, got: Tensor, name: str, axes: tuple[str, ...], tolerance: float
) -> Mismatch | None:
    if expected.shape != got.shape:
        return Mismatch("shape", f"{name}: {_explain_shape(expected, got, axes)}")
    if expected.dtype != got.dtype:
        return Mismatch("dtype", f"{name}: expected {expected.dtype}, got {got.dtype}")
    wrong = ~_close(expected, got, tolerance)
    if not wrong.any():
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    named = zip(axes, index, strict=False)
    place = ", ".join(f"{axis} {i}" for axis, i in named if not axis.isdigit())
    at = f"{name}{list(index)}" if index else name
    return Mismatch(
        "values",
        f"{at}{f' ({place})' if place else ''}: expected {_number(expected[index].item())}, "
        f"got {_number(got[index].item())}; {int(wrong.sum())} of {wrong.numel()} numbers differ",
    )


def _close(expected: Tensor, got: Tensor, tolerance: float) -> Tensor:
    if not expected.dtype.is_floating_point:
        return expected == got
    return torch.isclose(
        got.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def _explain_shape(expected: Tensor, got: Tensor, axes: tuple[str, ...]) -> str:
    shapes = f"expected the shape {tuple(expected.shape)}, got {tuple(got.shape)}"
    if len(axes) != expected.ndim:
        return shapes
    shapes = f"expected ({', '.join(axes)}) = {tuple(expected.shape)}, got {tuple(got.shape)}"
    for order in permutations(range(expected.ndim)):
        if tuple(expected.shape[i] for i in order) == tuple(got.shape):
            moved = [axis for i, axis in enumerate(axes) if order[i] != i]
            named = ", ".join(axes[i] for i in order)
            return f"{shapes}: that is ({named}); are {_and(moved)} in the wrong order?"
    missing = [
        axis for i, axis in enumerate(axes)
        if expected.shape[:i] + expected.shape[i + 1 :] == got.shape
    ]  # fmt: skip
    if missing:
        return f"{shapes}: is the axis {missing[0]} missing?"
    return shapes


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]])


def _describe(x: Any) -> str:
    if isinstance(x, tuple | list):
        return f"{len(x)} results"
    return "nothing (None)" if x is None else f"a {type(x).__name__}"


def _number(x: Any) -> str:
    text = f"{x:.4g}" if isinstance(x, float) else repr(x)
    return text if len(text) <= 300 else f"{text[:300]} …"
