"""What the calls of the given parts say: which was called, how often, and with what."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from transformer_lib.course.checks.compare import listed
from transformer_lib.course.checks.observe import Case, Outcome
from transformer_lib.course.sandboxed.given import fingerprint

TIMES = {1: "once", 2: "twice"}
ORDINALS = ("first", "second", "third", "fourth")


def parts_say(names: Sequence[str], case: Case, right: Outcome, got: Outcome) -> list[str]:
    """How the calls of the parts differ from those of the right answer, in sentences.

    Args:
        names: of the arguments of the exercise; a part among them has the name of its argument.
    """
    parts = list(dict.fromkeys(call.part for call in right.calls))
    expected, counted = (Counter(call.part for call in o.calls) for o in (right, got))
    never = [part for part in parts if not counted[part]]
    if never:
        return [f"{listed([_name(part, names) for part in never])} {_is(never)} never called"]
    often = [part for part in parts if counted[part] != expected[part]]
    if often:
        return [
            f"{_name(part, names)} is called {_times(counted[part])}, not {_times(expected[part])}"
            for part in often
        ]
    said = [*_arguments(parts, names, case, right, got), *_returned(names, case, right, got)]
    return said[:2]


def _arguments(
    parts: list[tuple[int, ...]], names: Sequence[str], case: Case, right: Outcome, got: Outcome
) -> Iterator[str]:
    ours, theirs = (_known(names, case, outcome) for outcome in (right, got))
    for part in parts:
        calls = ([c for c in o.calls if c.part == part] for o in (right, got))
        for expected, actual in zip(*calls, strict=True):
            if len(expected.arguments) != len(actual.arguments):
                continue
            for place, (a, b) in enumerate(zip(expected.arguments, actual.arguments, strict=True)):
                wanted, given = _what(a, ours), _what(b, theirs)
                if wanted == given:
                    continue
                where = f" as its {ORDINALS[place]} argument" if len(actual.arguments) > 1 else ""
                if given:
                    alone = given.startswith("what ") and "+" in wanted
                    just = "just " if alone else ""
                    yield f"{_name(part, names)} gets {just}{given}{where}"
                else:
                    yield f"{_name(part, names)} does not get {wanted}{where}"


def _returned(names: Sequence[str], case: Case, right: Outcome, got: Outcome) -> Iterator[str]:
    ours = _known(names, case, right).get(fingerprint(right.value), "")
    theirs = _known(names, case, got).get(fingerprint(got.value), "")
    if ours != theirs and theirs:
        yield f"you return just {theirs}"
    elif ours != theirs:
        yield f"you do not return {ours}"


def _what(print_: str, known: dict[str, str]) -> str:
    """An argument or a result, or the sum of two, by its fingerprint; empty if it is neither."""
    terms = [known.get(term, "") for term in print_.split("+")]
    return " + ".join(sorted(terms, key=len)) if all(terms) else ""


def _known(names: Sequence[str], case: Case, outcome: Outcome) -> dict[str, str]:
    """What each fingerprint is of: an argument, or the result of a part."""
    known = {call.result: f"what {_name(call.part, names)} gives" for call in outcome.calls}
    tensors = [
        (name, x) for name, x in zip(names, case.args, strict=False) if isinstance(x, Tensor)
    ]
    return known | {fingerprint(x): name for name, x in tensors}


def _name(part: tuple[int, ...], names: Sequence[str]) -> str:
    return names[part[0]] + "".join(f"[{index}]" for index in part[1:])


def _times(count: int) -> str:
    return TIMES.get(count, f"{count} times")


def _is(many: list[Any]) -> str:
    return "is" if len(many) == 1 else "are"
