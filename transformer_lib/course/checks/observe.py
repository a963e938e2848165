"""What a function does when it is called: its result, and all else that can be seen of it."""

import copy
import io
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from transformer_lib.course.checks.same import same
from transformer_lib.course.sandboxed.explain import explain_error
from transformer_lib.course.sandboxed.wire import is_data

ROUNDING = 1e-6  # two calls may add the same numbers in another order
SECONDS = 10  # for a call that takes milliseconds when it is right
BUILTIN = "(?:dict|float|function|int|list|str|tuple|NoneType)"


class NoEndError(BaseException):
    """A call was still running after :data:`SECONDS`. An ``except Exception`` lets it through."""


class Case:
    """Arguments for one call; ``gradient`` asks also for the gradients of the float tensors."""

    def __init__(self, *args: Any, gradient: bool = False):
        self.args = args
        self.gradient = gradient

    @property
    def float_tensors(self) -> list[int]:
        """Which arguments are tensors that can have a gradient."""
        return [n for n, x in enumerate(self.args) if _is_float_tensor(x)]

    def copied_args(self) -> list[Any]:
        """Copies for one call, whatever it does to them; of plain tensors ten times as fast."""
        plain = {id(x): x.clone() for x in self.args if _is_plain(x)}
        return copy.deepcopy(list(self.args), plain)


@dataclass
class Outcome:
    """What came of a call.

    ``changed`` are the numbers of the arguments that the call altered; ``repeatable`` is whether a
    second call gave the same; ``gradients`` are those that reach the float tensors among the
    arguments; ``after`` is what the arguments have become, and of parts, from another process, the
    logs; ``printed`` is what the first call printed.
    """

    value: Any = None
    error: BaseException | None = None
    changed: list[int] = field(default_factory=list)
    repeatable: bool = True
    gradients: list[Tensor | None] = field(default_factory=list)
    after: Sequence[Any] = ()
    printed: str = ""


Outcomes = Mapping[str, Outcome]  # by the case


def observe(function: Callable[..., Any], case: Case, limited: bool = False) -> Outcome:
    """Call ``function`` on copies of the arguments and look at what happened.

    ``limited`` ends it after :data:`SECONDS`.
    """
    args: Sequence[Any] = case.copied_args()
    watched = getattr(function, "watched", None)  # a function of another process tells, if asked
    printed = io.StringIO()
    try:
        with ends_after(SECONDS) if limited else nullcontext():
            with redirect_stdout(printed):
                value, args = watched(*args) if watched else (function(*args), args)
            value = _as_it_is(value)  # the next call may go on with the same one
            again = function(*case.copied_args())
            gradients = _gradients(function, case.copied_args()) if case.gradient else []
        changed = [
            number
            for number, (before, after) in enumerate(zip(case.args, args, strict=True))
            if _is_changed(before, after)
        ]
        # Objects that are no data are never equal, and yet nothing was drawn.
        known = value is None or is_data(_without_names(value))
        repeatable = not known or same(value, again, ROUNDING)
    except (Exception, NoEndError, SystemExit) as error:
        # From the comparison, too: a list that contains itself has no end.
        return Outcome(error=error, printed=printed.getvalue())
    return Outcome(value, None, changed, repeatable, gradients, args, printed.getvalue())


def time_left(seconds: float) -> Callable[[], float]:
    """Begins to count; returns a function that says how many of the seconds are left.

    They are CPU time of this thread, so that a busy machine decides nothing; for what only waits,
    nothing is left after three times as many seconds by the clock.
    """
    of_its_own, by_the_clock = time.thread_time() + seconds, time.monotonic() + 3 * seconds

    def left() -> float:
        return of_its_own - time.thread_time() if time.monotonic() < by_the_clock else 0.0

    return left


@contextmanager
def ends_after(seconds: float) -> Iterator[None]:
    """Ends what does not end by itself, where that is possible: in the main thread, not on Windows.

    The seconds are those of :func:`time_left`.

    Raises:
        NoEndError: once, in the code that is running.
    """
    possible = hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    if not possible or threading.current_thread() is not threading.main_thread():
        yield
        return

    left = time_left(seconds)

    def stop(number: int, frame: Any) -> None:
        if (more := left()) > 0:
            signal.setitimer(signal.ITIMER_REAL, more)
            return
        raise NoEndError(
            f"still running after {seconds} seconds; does every pass through a loop bring it "
            "closer to its end?"
        )

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def alike(a: Outcome, b: Outcome, tolerance: float) -> bool:
    """Whether nothing tells the two apart. Errors are alike if they say the same, numbers aside."""
    if a.error or b.error:
        return _said(a.error) == _said(b.error)
    if not (a.repeatable and b.repeatable):
        return a.repeatable == b.repeatable
    return (
        a.changed == b.changed
        # Either way round: a tensor of one number passes for a number.
        and (same(a.value, b.value, tolerance) or same(b.value, a.value, tolerance))
        and same(a.gradients, b.gradients, tolerance)
    )


def _said(error: BaseException | None) -> tuple[str, str]:
    """The kind of an error and its words, without numbers and names; those of types stay."""
    if error is None:
        return "", ""
    kind = getattr(error, "kind", type(error).__name__)
    _, has_words, words = explain_error(error).rpartition(f"{kind}: ")
    words = words if has_words else ""
    return kind, re.sub(rf"'(?!{BUILTIN}')[^']*'|[\d.]+", "#", words)


def _as_it_is(value: Any) -> Any:
    """A copy of a result, so far as it consists of tensors and of Python's own containers."""
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) is dict:
        return {name: _as_it_is(part) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_as_it_is, value))
    return copy.copy(value) if isinstance(value, list | dict | set) else value


def _without_names(value: Any) -> Any:
    """A result, with lists of their values for dictionaries: itself or among its parts."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, tuple):
        return [list(x.values()) if isinstance(x, dict) else x for x in value]
    return value


def _is_changed(before: Any, after: Any) -> bool:
    if is_data(before) or isinstance(before, dict):
        return not same(before, after, 0.0)
    if isinstance(before, set):
        return before != after
    return isinstance(before, list) and len(before) != len(after)  # a list of parts


def _is_plain(x: Any) -> bool:
    return type(x) is Tensor and x.is_contiguous() and not x.requires_grad


def _is_float_tensor(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _gradients(function: Callable[..., Any], args: Sequence[Any]) -> list[Tensor | None]:
    leaves = {
        number: x.clone().requires_grad_() for number, x in enumerate(args) if _is_float_tensor(x)
    }
    # Copies of the leaves, so that a function that writes into its arguments can still be watched.
    value = function(*(leaves[n].clone() if n in leaves else x for n, x in enumerate(args)))
    outputs = value if isinstance(value, tuple | list) else [value]
    total = torch.zeros(())
    for output in outputs:
        if isinstance(output, Tensor) and output.requires_grad and not output.is_complex():
            total = total + _one_number(output)
    if not total.requires_grad:
        return [None] * len(leaves)
    return list(torch.autograd.grad(total, list(leaves.values()), allow_unused=True))


def gradients_of(output: Any, leaves: Sequence[Tensor]) -> list[Tensor]:
    """What reaches each of the leaves; zeros where nothing does."""
    if not (leaves and isinstance(output, Tensor) and output.requires_grad):
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(_one_number(output), leaves, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]


def _one_number(output: Tensor) -> Tensor:
    """A sum with unequal weights: those of a softmax, say, would otherwise be a constant."""
    weights = torch.arange(output.numel(), dtype=output.dtype).cos().view_as(output)
    return (output * weights).sum()
