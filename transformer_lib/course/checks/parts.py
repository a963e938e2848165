"""What the calls of the given parts say: which was called, how often, and with what."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from transformer_lib.course.checks.compare import listed
from transformer_lib.course.checks.observe import Case, Outcome
from transformer_lib.course.sandboxed.given import Part, fingerprint, logs

TIMES = {1: "once", 2: "twice"}
ORDINALS = ("first", "second", "third", "fourth")


@dataclass(frozen=True)
class Call:
    """A call of a part that was given: fingerprints of what it got and of what it gave.

    ``part`` is the place of the part among the arguments: (2,) or, in a list of parts, (2, 0).
    """

    part: tuple[int, ...]
    arguments: tuple[str, ...]
    result: str


def calls_of(case: Case, outcome: Outcome) -> list[Call]:
    """The calls of the parts of a case, in their order."""
    plain = logs(outcome.after)
    if not any(isinstance(x, Part) for x in _leaves(outcome.after)):
        plain = outcome.after  # from another process the logs come in the places of the parts
    return [call for _, call in sorted(_calls(case.args, plain), key=lambda timed: timed[0])]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _calls(parts: Any, plain: Any, place: tuple[int, ...] = ()) -> Iterator[tuple[int, Call]]:
    """When and how each part was called; an entry of another form is not believed."""
    if isinstance(parts, list | tuple) and isinstance(plain, list | tuple):
        for number, (part, log) in enumerate(zip(parts, plain, strict=False)):
            yield from _calls(part, log, (*place, number))
    elif isinstance(parts, Part) and isinstance(plain, list):
        for entry in plain:
            match entry:
                case [int(when), list(arguments), str(result)] if all(
                    isinstance(argument, str) for argument in arguments
                ):
                    yield when, Call(place, tuple(arguments), result)


def parts_say(names: Sequence[str], case: Case, right: Outcome, got: Outcome) -> list[str]:
    """How the calls of the parts differ from those of the right answer, in sentences.

    Args:
        names: of the arguments of the exercise; a part among them has the name of its argument.
    """
    ours, theirs = calls_of(case, right), calls_of(case, got)
    parts = list(dict.fromkeys(call.part for call in ours))
    expected, counted = Counter(c.part for c in ours), Counter(c.part for c in theirs)
    never = [_name(part, names) for part in parts if not counted[part]]
    often = [
        f"{_name(part, names)} is called {_times(counted[part])}, not {_times(expected[part])}"
        for part in parts
        if counted[part] not in (0, expected[part])
    ]
    if never:
        return [f"{listed(never)} {'is' if len(never) == 1 else 'are'} never called", *often][:2]
    if often:
        return often
    known = _known(names, case, ours), _known(names, case, theirs)
    said: list[str] = []
    for part in parts:
        pairs = zip(
            *([c for c in calls if c.part == part] for calls in (ours, theirs)), strict=True
        )
        for expected_call, call in pairs:
            found = _arguments(_name(part, names), expected_call, call, *known)
            said += [line for line in found if line not in said]
    wanted, given = (
        k.get(fingerprint(o.value), "") for k, o in zip(known, (right, got), strict=True)
    )
    if wanted != given:
        said.append(f"you return just {given}" if given else f"you do not return {wanted}")
    return said[:2]


def _arguments(
    name: str, right: Call, got: Call, ours: dict[str, str], theirs: dict[str, str]
) -> Iterator[str]:
    """Where one call of a part gets something else than in the right answer."""
    if len(right.arguments) != len(got.arguments):
        return
    for place, (a, b) in enumerate(zip(right.arguments, got.arguments, strict=True)):
        wanted, given = _what(a, ours), _what(b, theirs)
        where = f" as its {ORDINALS[place]} argument" if len(got.arguments) > 1 else ""
        if given and given != wanted:
            just = "just " if given.startswith("what ") and "+" in wanted else ""
            rather = f", not {wanted}" if wanted else ""
            yield f"{name} gets {just}{given}{where}{rather}"
        elif given != wanted:
            yield f"{name} does not get {wanted}{where}"


def _what(print_: str, known: dict[str, str]) -> str:
    """An argument or a result, or the sum of two, by its fingerprint; empty if it is neither."""
    terms = [known.get(term, "") for term in print_.split("+")]
    return " + ".join(sorted(terms, key=len)) if all(terms) else ""


def _known(names: Sequence[str], case: Case, calls: list[Call]) -> dict[str, str]:
    """What each fingerprint is of: an argument, or the result of a part."""
    known = {call.result: f"what {_name(call.part, names)} gives" for call in calls}
    tensors = [
        (name, x) for name, x in zip(names, case.args, strict=False) if isinstance(x, Tensor)
    ]
    return known | {fingerprint(x): name for name, x in tensors}


def _name(part: tuple[int, ...], names: Sequence[str]) -> str:
    return names[part[0]] + "".join(f"[{index}]" for index in part[1:])


def _times(count: int) -> str:
    return TIMES.get(count, f"{count} times")
