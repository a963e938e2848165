"""Where two results differ first, said in words."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from transformer_lib.course.checks.patterns import Sizes, pattern
from transformer_lib.course.checks.same import (
    as_float,
    close,
    is_tensor_for_number,
    number_of,
    same,
)

Aspect = Literal["shape", "dtype", "values"]
ASPECTS: tuple[Aspect, ...] = ("shape", "dtype", "values")  # in the order of looking
GIANT = "a number of more than 300 digits"
MOST_EXCHANGED = 5  # of more results nobody mixes up the order, and trying all orders takes long


@dataclass(frozen=True)
class Mismatch:
    """The first aspect in which a result is not the expected one, and a sentence about it."""

    aspect: Aspect
    message: str
    telling: bool = False  # whether the numbers say something by themselves
    index: tuple[int, ...] = ()  # of the first wrong number of a tensor


def compare(
    expected: Any,
    got: Any,
    names: tuple[str, ...] = ("the result",),
    axes: tuple[tuple[str, ...], ...] = (),
    *,
    tolerance: float,
    sizes: Sizes | None = None,
) -> Mismatch | None:
    """What is different, or None if the two are the :func:`same`.

    Args:
        names: of the results, if there are several.
        axes: of each result, the names of its axes.
        tolerance: as in :func:`same`.
        sizes: of the arguments' axes, by name; what the numbers say of themselves is said only if
            these are given.
    """
    if same(expected, got, tolerance):
        return None
    for kind in (dict, tuple | list, Tensor):
        if isinstance(expected, kind) and not isinstance(got, kind):
            return Mismatch("shape", _other_kind(names[0], expected, got))
    if isinstance(expected, dict):
        return _compare_named(expected, got, names[0], tolerance, sizes)
    if isinstance(expected, tuple | list):
        if len(got) != len(expected):
            return _other_length(expected, got, names[0])
        return _compare_several(expected, got, names, axes, tolerance, sizes)
    if isinstance(expected, Tensor):
        named = axes[0] if axes else ()
        return _compare_tensors(expected, got, names[0], named, tolerance, sizes)
    got = number_of(expected, got)
    if isinstance(expected, np.ndarray) and isinstance(got, np.ndarray):
        return Mismatch("values", f"{names[0]}: this is another array")
    if isinstance(expected, np.ndarray) or isinstance(got, np.ndarray):
        return Mismatch("shape", _other_kind(names[0], expected, got))
    return _compare_values(expected, got, names[0], tolerance, sizes)


def _compare_several(
    expected: Any,
    got: Any,
    names: tuple[str, ...],
    axes: tuple[tuple[str, ...], ...],
    tolerance: float,
    sizes: Sizes | None,
) -> Mismatch:
    """Two tuples or lists of one length, part by part; ``names`` are the parts' or the whole's."""
    if isinstance(expected, list) and isinstance(got, list):
        for i, (one, other) in enumerate(zip(expected, got, strict=True)):
            if is_tensor_for_number(one, other):
                said = f"{names[0]}[{i}]: expected a number, got a tensor"
                return Mismatch("dtype", f"{said}: item() makes a number of it", telling=True)
    are_named = len(names) == len(expected)
    mismatches = [
        compare(
            one,
            other,
            names[i : i + 1] if are_named else (f"{names[0]}[{i}]",),
            axes[i : i + 1] if len(axes) == len(expected) else (),
            tolerance=tolerance,
            sizes=sizes,
        )
        for i, (one, other) in enumerate(zip(expected, got, strict=True))
    ]
    found = [mismatch for mismatch in mismatches if mismatch]
    if sizes is not None and are_named:
        if yours := _order_of(expected, list(got), names, tolerance):
            says = f"{found[0].message}; yours are the right ones in another order: {yours}"
            return Mismatch(found[0].aspect, says, telling=True)
        if other := _shape_of_another(expected, got, names):
            return Mismatch("shape", f"{found[0].message}; {other}", telling=True)
    first = min(found, key=lambda m: (ASPECTS.index(m.aspect), not m.telling))
    wrong = next(i for i, mismatch in enumerate(mismatches) if mismatch)
    is_list = sizes is not None and isinstance(expected, list)
    moved = _moved(expected, got, wrong) if is_list else ""
    if _is_short_text(expected) and _is_short_text(got):
        said = f"{names[0]}: expected {expected!r}, got {got!r}"
        return replace(first, message=f"{said}; {moved}" if moved else said)
    if moved:
        ours, theirs = _number(expected[wrong]), _number(got[wrong])
        said = f"{names[0]}[{wrong}]: expected {ours}, got {theirs}"
        return Mismatch("values", f"{said}; {moved}", telling=True)
    if sizes is not None and are_named and len(found) < len(expected):
        right = [name for name, m in zip(names, mismatches, strict=True) if m is None]
        return replace(first, message=f"{first.message}; right, though: {listed(right)}")
    return first


def _order_of(expected: Any, got: list[Any], names: tuple[str, ...], tolerance: float) -> str:
    """The names of several results in the order in which they were given, if they are right."""
    if len(expected) > MOST_EXCHANGED:
        return ""
    fits = [[same([one], [other], tolerance) for one in expected] for other in got]
    for order in permutations(range(len(expected))):
        if all(row[i] for row, i in zip(fits, order, strict=True)):
            return ", ".join(names[i] for i in order)
    return ""


def _other_length(expected: Any, got: Any, name: str) -> Mismatch:
    if not isinstance(expected, list):
        results = "result" if len(expected) == 1 else "results"
        return Mismatch("shape", f"expected {len(expected)} {results}, got {len(got)}")
    says = f"{name}: expected {_number(expected)}, got {_number(got)}"
    if more := _more_or_less(expected, list(got)):
        return Mismatch("shape", f"{says}: {more}", telling=True)
    return Mismatch("shape", says)


def _compare_values(
    expected: Any, got: Any, name: str, tolerance: float, sizes: Sizes | None
) -> Mismatch:
    """Numbers, and all else that can only be equal."""
    if isinstance(got, Tensor):
        return Mismatch("shape", f"{name}: expected {_describe(expected)}, got a tensor")
    says = ""
    if isinstance(expected, float) and isinstance(got, int | float) and sizes is not None:
        a, b = (torch.tensor([as_float(x)], dtype=torch.double) for x in (expected, got))
        says = pattern(a, b, (), sizes, tolerance)
    ours, theirs = _numbers(expected, got)
    message = f"{name}: expected {ours}, got {theirs}" + (f"; {says}" if says else "")
    return Mismatch("values", message)


def _compare_named(
    expected: dict[str, Any],
    got: dict[str, Any],
    name: str,
    tolerance: float,
    sizes: Sizes | None,
) -> Mismatch:
    """Two dictionaries, which may be in any order: the names first, then what they stand for."""
    missing = [key for key in expected if key not in got]
    surplus = [key for key in got if key not in expected]
    wrong = [f"missing: {_few(missing)}"] * bool(missing)
    wrong += [f"too much: {_few(surplus)}"] * bool(surplus)
    if wrong:
        return Mismatch("shape", f"{name}: wrong names; {'; '.join(wrong)}", telling=True)
    found: dict[str, Mismatch] = {}
    for key, one in expected.items():
        at = (f"{name}[{key!r}]",)
        if mismatch := compare(one, got[key], at, tolerance=tolerance, sizes=sizes):
            found[key] = mismatch
    key, first = min(found.items(), key=lambda item: ASPECTS.index(item[1].aspect))
    message = f"{first.message}; {len(found)} of {len(expected)} entries are wrong"
    if sizes is None:
        return replace(first, message=message)
    owner = next((k for k, x in expected.items() if same(x, got[key], tolerance)), None)
    if owner is not None:
        message += f"; yours is the entry that belongs under {owner!r}"
    return replace(first, message=message, telling=first.telling or owner is not None)


def _few(keys: list[str], most: int = 3) -> str:
    names = ", ".join(map(repr, keys[:most]))
    return f"{names} and {len(keys) - most} more" if len(keys) > most else names


def _is_short_text(x: Any, width: int = 80) -> bool:
    """Whether it is a list of words, or of lists of them, that one can take in at a glance."""

    def is_text(x: Any) -> bool:
        return isinstance(x, str) or (isinstance(x, list | tuple) and all(map(is_text, x)))

    return isinstance(x, list) and is_text(x) and len(repr(x)) <= width


def _shape_of_another(expected: Any, got: Any, names: tuple[str, ...]) -> str:
    """Which of several results has the shape that another one should have."""
    if not all(isinstance(x, Tensor) for x in [*expected, *got]):
        return ""
    wrong = [i for i, (x, y) in enumerate(zip(expected, got, strict=True)) if x.shape != y.shape]
    for i, j in permutations(wrong, 2):
        if got[i].shape == expected[j].shape:
            return f"{names[i]} has the shape of {names[j]}: is the order right?"
    return ""


def _items(values: list[Any]) -> str:
    return listed([_written(x) for x in values])


def _more_or_less(expected: list[Any], got: list[Any]) -> str:
    """Lists of different lengths that are the same but at an end."""
    if not all(isinstance(x, int | float | str | list) for x in [*expected, *got]):
        return ""
    extra = len(got) - len(expected)
    be = "are" if abs(extra) > 1 else "is"
    if extra > 0 and got[:-extra] == expected:
        return f"{_items(got[-extra:])} at the end {be} too much"
    if extra > 0 and got[extra:] == expected:
        return f"{_items(got[:extra])} at the beginning {be} too much"
    if extra < 0 and got == expected[:extra]:
        return f"{_items(expected[extra:])} at the end {be} missing"
    if extra < 0 and got == expected[-extra:]:
        return f"{_items(expected[:-extra])} at the beginning {be} missing"
    return ""


def _moved(expected: list[Any], got: Any, wrong: int) -> str:
    """Whether two lists hold the same items in another order, or one that is wrong is exchanged.

    Args:
        wrong: the place of the first item that is wrong.
    """

    def is_plain(x: Any) -> bool:
        number_or_word = isinstance(x, int | str) and not isinstance(x, bool)
        return number_or_word or (isinstance(x, list) and all(map(is_plain, x)))

    if not (is_plain(expected) and is_plain(got)):
        return ""
    if sorted(map(_written, expected)) == sorted(map(_written, got)):
        return "the whole list has the right items, in another order"
    if isinstance(got[wrong], list) and got[wrong] in expected:
        home = expected.index(got[wrong])
        return f"this belongs at [{home}]" if got[home] != expected[home] else ""
    return ""


def _compare_tensors(
    expected: Tensor,
    got: Tensor,
    name: str,
    axes: tuple[str, ...],
    tolerance: float,
    sizes: Sizes | None,
) -> Mismatch:
    if expected.shape != got.shape:
        return Mismatch("shape", f"{name}: {_explain_shape(expected, got, axes)}")
    if expected.device != got.device:
        said = f"expected a tensor on {expected.device}, got one on {got.device}"
        return Mismatch("dtype", f"{name}: {said}")
    if expected.dtype != got.dtype:
        return Mismatch("dtype", f"{name}: expected {expected.dtype}, got {got.dtype}")
    wrong = ~close(expected, got, tolerance)
    index = tuple(wrong.nonzero()[0].tolist())
    named = zip(axes, index, strict=False)
    place = ", ".join(f"{axis} {i}" for axis, i in named if not axis.isdigit())
    at = f"{name}{list(index)}" if index else name
    ours, theirs = _numbers(expected[index].item(), got[index].item())
    message = f"{at}{f' ({place})' if place else ''}: expected {ours}, got {theirs}"
    if sizes is not None and _is_short(expected):
        row = index[:-1]
        message = f"{name}{list(row) if row else ''}: expected {_row(expected[row])}, "
        message += f"got {_row(got[row])}"
        if expected.dtype == torch.bool:
            message += " (1 is True)"
    if wrong.numel() > 1:
        message += f"; {int(wrong.sum())} of {wrong.numel()} numbers differ"
    says = pattern(expected, got, axes, sizes, tolerance) if sizes is not None else ""
    # That all are one number can have many causes: a wrong part before it says more.
    flat = _is_one_number(got, tolerance) and not _is_one_number(expected, tolerance)
    telling = bool(says) and not flat
    return Mismatch("values", f"{message}; {says}" if says else message, telling, index)


def _is_one_number(x: Tensor, tolerance: float) -> bool:
    return bool(close(x.flatten()[:1].expand(x.numel()), x.flatten(), tolerance).all())


def _is_short(x: Tensor, length: int = 12) -> bool:
    """Whole numbers or truth values in rows that can be shown whole."""
    whole = not x.is_floating_point() and not x.is_complex()
    return whole and x.ndim >= 1 and x.size(-1) <= length


def _row(x: Tensor) -> str:
    return "".join(str(int(y)) for y in x) if x.dtype == torch.bool else str(x.tolist())


def _explain_shape(expected: Tensor, got: Tensor, axes: tuple[str, ...]) -> str:
    shapes = f"expected the shape {tuple(expected.shape)}, got {tuple(got.shape)}"
    if len(axes) != expected.ndim:
        return shapes
    shapes = f"expected ({', '.join(axes)}) = {tuple(expected.shape)}, got {tuple(got.shape)}"
    for order in permutations(range(expected.ndim)):
        if tuple(expected.shape[i] for i in order) == tuple(got.shape):
            moved = [axis for i, axis in enumerate(axes) if order[i] != i]
            named = ", ".join(axes[i] for i in order)
            if close(expected.permute(order), got, 1e-3).all():
                return f"{shapes}: that is ({named}); are {listed(moved)} in the wrong order?"
            order_alone = "putting them in order does not give the right numbers"
            return f"{shapes}: the lengths are those of ({named}), but {order_alone}"
    missing = [
        axis for i, axis in enumerate(axes)
        if expected.shape[:i] + expected.shape[i + 1 :] == got.shape
    ]  # fmt: skip
    if missing:
        axis = "axis of length 1" if missing[0] == "1" else f"axis {missing[0]}"
        return f"{shapes}: is the {axis} missing?"
    if extra := got.ndim - expected.ndim:
        ones = (1,) * abs(extra)
        count = "one axis" if len(ones) == 1 else f"{len(ones)} axes"
        if tuple(got.shape) == (*ones, *expected.shape):
            return f"{shapes}: {count} of length 1 in front too many"
        if tuple(expected.shape) == (*ones, *got.shape):
            return f"{shapes}: {count} of length 1 in front missing"
        yours = "one axis" if got.ndim == 1 else f"{got.ndim} axes"
        return f"{shapes}: {yours}, not {expected.ndim}"
    wrong = [i for i, (a, b) in enumerate(zip(expected.shape, got.shape, strict=True)) if a != b]
    if len(wrong) == 1:
        place, axis = wrong[0], axes[wrong[0]]
        name = "an axis that should have length 1" if axis == "1" else f"the axis {axis}"
        return f"{shapes}: {name} has length {got.size(place)}, not {expected.size(place)}"
    ratios = {got.size(i) / expected.size(i) for i in wrong if expected.size(i)}
    if len(ratios) == 1 and (ratio := ratios.pop()) == int(ratio) > 1:
        return f"{shapes}: {listed([axes[i] for i in wrong])} are each {int(ratio)} times as long"
    return shapes


def listed(words: list[str]) -> str:
    """One, two and three."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def quoted(names: Iterable[str]) -> str:
    """“One”, “two” and “three”."""
    return listed([f"“{name}”" for name in names])


def _other_kind(name: str, expected: Any, got: Any) -> str:
    """A sentence about a result that is not even of the right kind."""
    wanted = _describe(expected)
    if got is None:
        return f"{name}: expected {wanted}, got nothing (None): is a return missing?"
    if isinstance(got, np.ndarray):
        makes = "torch.from_numpy makes a tensor" if isinstance(expected, Tensor) else ""
        makes = "tolist() makes a list" if isinstance(expected, list) else makes
        return f"{name}: expected {wanted}, got a NumPy array" + f": {makes} of it" * bool(makes)
    if isinstance(expected, Tensor) and isinstance(got, tuple | list):
        if len(got) > 1 and any(isinstance(x, Tensor) and x.shape == expected.shape for x in got):
            return f"{name}: expected one tensor, got {_describe(got)}: return the one alone"
        return f"{name}: expected one tensor, got {_describe(got)}"
    if callable(got):
        return f"{name}: expected {wanted}, got the function {getattr(got, '__name__', got)} itself"
    return f"{name}: expected {wanted}, got {_describe(got)}"


def _describe(x: Any) -> str:
    if isinstance(x, tuple):
        return f"{len(x)} results"
    if isinstance(x, list):
        return f"a list of {len(x)}"
    if isinstance(x, Tensor):
        return "a tensor"
    return "nothing (None)" if x is None else f"a {type(x).__name__}"


def _numbers(expected: Any, got: Any) -> tuple[str, str]:
    """Both, with as many digits as it takes to tell them apart."""
    for digits in (4, 6, 9):
        texts = _number(expected, digits), _number(got, digits)
        if texts[0] != texts[1]:
            break
    return texts


def _number(x: Any, digits: int = 4) -> str:
    if isinstance(x, float):
        return f"{x + 0.0:.{digits}g}"  # + 0.0 makes 0 of −0
    if isinstance(x, int) and abs(x) >= 10**300:
        return GIANT
    text = _written(x)
    return text if len(text) <= 300 else f"{text[:300]} …"


def _written(x: Any) -> str:
    """As Python writes it, which refuses to write giant numbers."""
    try:
        return repr(x)
    except ValueError:
        return GIANT
