"""What wrong numbers say by themselves: a factor, a transposition, a shift, one wrong slice."""

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from transformer_lib.course.checks.same import close

Sizes = Mapping[str, int]


def pattern(
    expected: Tensor, got: Tensor, axes: tuple[str, ...], sizes: Sizes, tolerance: float
) -> str:
    """One sentence about all the numbers of a wrong result, or nothing if none fits.

    Args:
        expected: what it should be, of the same shape and dtype as ``got``.
        axes: their names.
        sizes: lengths of the axes of the arguments, by name: where a factor may come from.
        tolerance: as in :func:`same`.
    """
    if expected.numel() < 3:
        return _one_number(expected, got, sizes, tolerance)
    if expected.dtype == torch.bool:
        if torch.equal(got, ~expected) and expected.any() and not expected.all():
            return "True and False have changed places"
    elif got.is_floating_point():
        if got.isnan().all():
            return "all of yours are NaN"
        if found := _linear(expected.double(), got.double(), sizes, tolerance):
            return found
    return next(_places(expected, got, axes, tolerance), "")


def _one_number(expected: Tensor, got: Tensor, sizes: Sizes, tolerance: float) -> str:
    if not expected.is_floating_point() or expected.numel() == 0:
        return ""
    both = expected.double(), got.double()
    return _factor(*both, sizes, tolerance, named_only=True) or _reciprocal(*both, tolerance)


def _all_close(expected: Tensor, got: Tensor, tolerance: float) -> bool:
    return got.shape == expected.shape and bool(close(expected, got, tolerance).all())


def _linear(expected: Tensor, got: Tensor, sizes: Sizes, tolerance: float) -> str:
    if not got.isfinite().all() or not expected.isfinite().all():
        return ""
    if not got.any():
        return "all of yours are 0"
    if expected.std() > tolerance and got.max() - got.min() < tolerance:
        return f"all of yours are {_short(got.flatten()[0].item())}"
    difference = (got - expected).mean()
    if _all_close(expected + difference, got, tolerance):
        return f"all of yours are {_short(abs(difference.item()))} too " + (
            "large" if difference > 0 else "small"
        )
    return (
        _factor(expected, got, sizes, tolerance)
        or _reciprocal(expected, got, tolerance)
        or _function(expected, got, tolerance)
        or _scores(expected, got, sizes)
    )


def _function(expected: Tensor, got: Tensor, tolerance: float) -> str:
    """A known function of the right numbers: one step too many."""
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "the softmax": lambda x: x.softmax(-1),
        "the log-softmax": lambda x: x.log_softmax(-1),
        "the exponentials": torch.exp,
        "the logarithms": torch.log,
        "the tanh": torch.tanh,
        "the ReLU": torch.relu,
        "the absolute values": torch.abs,
        "the squares": torch.square,
        "the square roots": torch.sqrt,
    }
    for name, function in functions.items():
        changed = function(expected)
        if not _all_close(expected, changed, tolerance) and _all_close(changed, got, tolerance):
            return f"yours are {name} of the right ones"
    return ""


def _reciprocal(expected: Tensor, got: Tensor, tolerance: float) -> str:
    if (expected.abs() > 1e-3).all() and _all_close(
        torch.ones_like(got), got * expected, tolerance
    ):
        return "yours is 1 divided by the right one"
    return ""


def _scores(expected: Tensor, got: Tensor, sizes: Sizes) -> str:
    """Two tables of weights, rows that add up to 1: are the scores behind them multiples?"""
    if expected.ndim < 2 or min(expected.min(), got.min()) < 0 or expected.size(-1) < 2:
        return ""
    one = torch.ones((), dtype=expected.dtype)
    if not all(_all_close(one.expand(x.shape[:-1]), x.sum(-1), 1e-3) for x in (expected, got)):
        return ""
    seen = (expected > 1e-12) & (got > 1e-12)
    if not seen.all():
        return ""
    ours, theirs = (x.log() - x.log().mean(-1, keepdim=True) for x in (expected, got))
    factor = ((ours * theirs).sum() / ours.square().sum()).item()
    if abs(factor - 1) < 1e-3 or not _all_close(factor * ours, theirs, 2e-3):
        return ""
    name = _name_of(factor, sizes)
    return f"before the softmax your scores were {_short(factor)} times the right ones{name}"


def _factor(
    expected: Tensor, got: Tensor, sizes: Sizes, tolerance: float, named_only: bool = False
) -> str:
    scale = expected.square().sum()
    if scale == 0 or not scale.isfinite() or not got.isfinite().all():
        return ""
    factor = ((expected * got).sum() / scale).item()
    if abs(factor) < 1e-6 or not _all_close(
        factor * expected, got, tolerance * max(1.0, abs(factor))
    ):
        return ""
    if _short(factor) == "1":  # nearly right, which has other causes
        return ""
    if abs(factor + 1) < tolerance:
        return "yours have the opposite sign"
    name = _name_of(factor, sizes)
    if named_only and not name:
        return ""
    what = "all of yours are" if expected.numel() > 1 else "yours is"
    return f"{what} {_short(factor)} times the right one{'s' * (expected.numel() > 1)}{name}"


def _name_of(factor: float, sizes: Sizes) -> str:
    """Where a factor may come from: ' (0.408 = 1/√6, and 6 is d_k)'."""
    sign, size = ("−" if factor < 0 else ""), abs(factor)
    found = []
    if any(math.isclose(size, common, rel_tol=1e-3) for common in (0.5, 1.0, 2.0)):
        return ""  # such a factor has other causes, also where some size happens to be 4
    for name, n in sizes.items():
        if n <= 2:  # an offset may be 0
            continue
        forms = {f"√{n}": n**0.5, f"1/√{n}": n**-0.5, f"{n}": n, f"1/{n}": 1 / n}
        for form, value in forms.items():
            if math.isclose(size, value, rel_tol=1e-3):
                equals = "" if form == f"{n}" else f"{_short(factor)} = {sign}{form}, and "
                found.append(f"; {equals}{n} is {name}")
    return found[0] if len(found) == 1 else ""  # several could be it: then none is named


def _places(
    expected: Tensor, got: Tensor, axes: tuple[str, ...], tolerance: float
) -> Iterator[str]:
    names = axes if len(axes) == expected.ndim else ()

    def axis(number: int) -> str:
        return f"the axis {names[number]}" if names else f"axis {number}"

    for i in range(expected.ndim):
        for j in range(i):
            if _all_close(expected.transpose(i, j), got, tolerance):
                if names and names[i] == names[j]:
                    yield f"yours is the right one, transposed: rows for columns ({names[i]})"
                else:
                    yield f"yours is the right one with {axis(j)} and {axis(i)} transposed"
    for i in range(expected.ndim):
        if expected.size(i) > 1 and _all_close(expected.flip(i), got, tolerance):
            yield f"yours is the right one, backwards along {axis(i)}"
        for shift in (1, -1):
            length = expected.size(i) - 1
            ours = expected.narrow(i, 0 if shift == 1 else 1, length)
            theirs = got.narrow(i, 1 if shift == 1 else 0, length)
            enough = 2 if expected.is_floating_point() else 3
            if length >= enough and _varies(ours, i) and _all_close(ours, theirs, tolerance):
                yield f"yours is the right one, shifted by one along {axis(i)}"
    for i in range(expected.ndim):
        if sums := _sums(expected, got, i, tolerance, axis):
            yield sums
    if expected.is_floating_point() and _all_close(
        expected.flatten().sort().values, got.flatten().sort().values, tolerance
    ):
        yield "they are the right numbers in other places"
    for i in range(expected.ndim):
        if chosen := _chosen(expected, got, i, tolerance):
            yield f"along {axis(i)} yours are the right ones of the places {chosen}"
    yield from _slices(expected, got, axis, tolerance)


def _chosen(expected: Tensor, got: Tensor, i: int, tolerance: float, most: int = 64) -> str:
    """Where each slice along an axis should stand, if all are right but in other places."""
    ours, theirs = (x.movedim(i, 0).reshape(x.size(i), -1) for x in (expected, got))
    if not 4 <= len(ours) <= most or ours.size(1) < 3 or not expected.is_floating_point():
        return ""
    places = []
    for row in theirs:
        same = close(ours, row.expand_as(ours), tolerance).all(dim=1).nonzero().flatten().tolist()
        if len(same) != 1:
            return ""
        places += same
    if len(set(places)) < len(places) / 2:
        return ""
    return ", ".join(map(str, places[:8])) + ", …" * (len(places) > 8)


def _varies(x: Tensor, dim: int) -> bool:
    return not torch.equal(x, x.narrow(dim, 0, 1).expand_as(x))


def _sums(
    expected: Tensor, got: Tensor, i: int, tolerance: float, axis: Callable[[int], str]
) -> str:
    """Weights that add up to 1 along another axis than they should."""
    if not expected.is_floating_point() or expected.min() < 0 or expected.size(i) < 2:
        return ""
    one = torch.ones((), dtype=expected.dtype)
    for j in range(expected.ndim):
        right, theirs = expected.sum(j), got.sum(i)
        if (
            i != j
            and expected.size(j) > 1
            and _all_close(one.expand_as(right), right, tolerance)
            and _all_close(one.expand_as(theirs), theirs, tolerance)
        ):
            return f"yours add up to 1 along {axis(i)}, the right ones along {axis(j)}"
    return ""


def _slices(
    expected: Tensor, got: Tensor, axis: Callable[[int], str], tolerance: float
) -> Iterator[str]:
    """All right but for some places along one axis, or but one at an end."""
    wrong = ~close(expected, got, tolerance)
    for i in range(expected.ndim):
        size = expected.size(i)
        bad = wrong.movedim(i, 0).reshape(size, -1).any(dim=1).nonzero().flatten().tolist()
        if size < 3:
            continue
        if len(bad) == size - 1 and (0 not in bad or size - 1 not in bad):
            yield f"along {axis(i)} only the {'last' if 0 in bad else 'first'} of {size} is right"
        if len(bad) > size / 2:
            continue
        if bad == list(range(len(bad))):
            which = "the first" if len(bad) == 1 else f"the first {len(bad)}"
        elif bad == list(range(size - len(bad), size)):
            which = "the last" if len(bad) == 1 else f"the last {len(bad)}"
        elif len(bad) > 2 and bad == list(range(1, size, 2)):
            which = "the odd ones"
        elif len(bad) > 2 and bad == list(range(0, size, 2)):
            which = "the even ones"
        else:
            continue
        yield f"along {axis(i)} only {which} of {size} {'is' if len(bad) == 1 else 'are'} wrong"


def _short(x: float) -> str:
    return f"{x:.3g}"
