"""``check``: try a student's function, say what holds, and which known mistake it looks like."""

import contextlib
import dis
import functools
import inspect
import io
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch

from transformer_lib.course.checks.compare import ASPECTS, compare, listed, quoted
from transformer_lib.course.checks.exercise import EXERCISES, Exercise
from transformer_lib.course.checks.leaving import where_autograd_is_left
from transformer_lib.course.checks.observe import (
    Case,
    NoEndError,
    Outcome,
    Outcomes,
    alike,
    observe,
)
from transformer_lib.course.checks.parts import parts_say
from transformer_lib.course.checks.precision import spoiled_by_precision
from transformer_lib.course.checks.repair import Repair, Workshop
from transformer_lib.course.checks.same import close, same
from transformer_lib.course.checks.verdict import Finding, Verdict
from transformer_lib.course.checks.whatif import never_read, what_if, without_influence
from transformer_lib.course.misconceptions.bank import Misconception, wrong_answers
from transformer_lib.course.sandboxed.explain import explain_error, innermost, shapes_there
from transformer_lib.errors import did_you_mean
from transformer_lib.randomness import seeded

NO_REALS = (torch.bool, torch.complex64, torch.complex128)
SHOWN = 40  # lines of what an answer printed
IDLE = {"RESUME", "NOP", "LOAD_CONST", "POP_TOP", "RETURN_CONST", "RETURN_VALUE"}
"""What a function of which only ``...`` is written consists of."""


@dataclass(frozen=True)
class Trial:
    """Cases that tell the right answer and every known wrong one apart, and what each gives."""

    exercise: Exercise
    cases: dict[str, Case]
    right: Outcomes
    wrong: Mapping[str, Outcomes]  # by the mistake's id
    seed: int


def check(
    candidate: Any, name: str | None = None, seed: int | None = None, diagnose: bool = True
) -> Verdict:
    """Try ``candidate`` as the answer to the exercise of its own name, or of ``name``.

    The numbers are new in every call, unless a ``seed`` is given.

    Args:
        diagnose: as :func:`judge` has it.

    Raises:
        ValueError: there is no such exercise.
        TypeError: this is not a function.
    """
    if name is not None and not isinstance(name, str):
        raise TypeError("check takes the function alone, not what it is to be called with")
    is_partial = isinstance(candidate, functools.partial)
    if name is None and (is_partial or getattr(candidate, "__name__", "") == "<lambda>"):
        raise TypeError("this function has no name of its own: write it with def")
    if name is None and not hasattr(candidate, "__name__"):
        raise TypeError(
            f"check takes the function itself, not its result: check(attention), not "
            f"check(attention(…)); this is a {type(candidate).__name__}"
        )
    exercise = find_exercise(name or candidate.__name__)
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    # The student's random numbers and settings go on as they were. Of what is printed in all the
    # calls, the verdict shows what helps.
    unseen = contextlib.redirect_stdout(io.StringIO())
    precise = torch.autocast("cpu", enabled=False)
    with seeded(seed), torch.enable_grad(), precise, _on_the_cpu(), unseen:
        return judge(candidate, draw_trial(exercise, seed), diagnose)


def _on_the_cpu() -> contextlib.AbstractContextManager[Any]:
    """For a notebook with another default device; else small operations took half as long again."""
    is_there = torch.get_default_device().type == "cpu"
    return contextlib.nullcontext() if is_there else torch.device("cpu")


def run_test(test: Callable[[], None]) -> Verdict:
    """Run a function full of assertions, and say which one does not hold, if one does not."""
    name = test.__name__.removeprefix("test_")
    try:
        test()
    except Exception as error:
        said = str(error) if isinstance(error, AssertionError) else ""
        return Verdict(name, (Finding("tests", "failed", said or explain_error(error)),))
    return Verdict(name, (Finding("tests", "passed"),))


def judge(candidate: Callable[..., Any], trial: Trial, diagnose: bool = True) -> Verdict:
    """Try ``candidate`` on the cases of a trial.

    Args:
        diagnose: say also what the mistake is, which takes many times longer.
    """
    exercise = trial.exercise
    outcomes = dict(_Observed(exercise, candidate, trial.cases))
    if _is_not_attempted(candidate, outcomes):
        return Verdict(exercise.name, attempted=False)
    findings = tuple(_findings(trial, outcomes))
    diagnosis = Diagnosis()
    wrong = [finding.name for finding in findings if finding.status == "failed"]
    if diagnose and wrong:
        diagnosis = _diagnosis(candidate, trial, outcomes)
        left = where_autograd_is_left(candidate) if wrong == ["gradient"] else ""
        if left and not diagnosis.known:
            diagnosis = replace(diagnosis, notes=(*diagnosis.notes, left))
    return Verdict(
        exercise.name,
        findings,
        hints=diagnosis.hints,
        mistakes=tuple(mistake.id for mistake in diagnosis.known),
        notes=diagnosis.notes,
        seed=trial.seed,
        printed=_printed(trial, outcomes),
    )


def _printed(trial: Trial, outcomes: Outcomes) -> str:
    """What the answer printed in the first case that went wrong; if none did, in the first one."""
    if not any(outcome.printed for outcome in outcomes.values()):
        return ""
    right = (alike(o, trial.right[x], trial.exercise.tolerance) for x, o in outcomes.items())
    label = min(zip(right, outcomes, strict=True), key=lambda pair: pair[0])[1]
    lines = outcomes[label].printed.rstrip().splitlines()
    if (more := len(lines) - SHOWN) > 0:
        lines[SHOWN:] = [f"… and {more:,} lines more"]
    where = "" if label == next(iter(outcomes)) else f" in “{label}”"
    return "\n".join([f"your code printed{where}:", *lines]) if lines else ""


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong: known mistakes, what is to be said of them, and what else was seen."""

    known: tuple[Misconception, ...] = ()
    hints: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _diagnosis(candidate: Callable[..., Any], trial: Trial, outcomes: Outcomes) -> Diagnosis:
    """One after another: the bank, what the numbers say, the code, two things at once."""
    mistakes = wrong_answers(trial.exercise.name)
    known = _known(trial, outcomes)
    if not known:  # what it does to its arguments is said elsewhere
        unchanged = {label: replace(outcome, changed=[]) for label, outcome in outcomes.items()}
        known = _known(trial, unchanged)
    notes = tuple(_notes(candidate, trial, outcomes, bool(known)))
    if known:
        return Diagnosis(known, _hints(known), notes)
    repair = _repaired(candidate, trial, outcomes)
    if repair and repair.is_whole:
        return Diagnosis(notes=(*notes, repair.said))
    if notes:
        return Diagnosis(notes=notes)
    if two := _two_together(trial, outcomes):
        return Diagnosis(two, _hints(two))
    if both := _and_another(trial, outcomes):
        mistake, besides = both
        return Diagnosis((mistake,), _hints([mistake]), (f"and besides, {besides}",))
    if repair:
        then = tuple(mistake for mistake in mistakes if mistake.id == repair.left)
        left = (f"what is left then is {hint}" for hint in _hints(then))
        return Diagnosis(then, notes=(repair.said, *left))
    if likely := _nearly(trial, outcomes):
        mistake, but = likely
        return Diagnosis((mistake,), (f"{mistake.id}: {mistake.hint} ({but})",))
    return Diagnosis()


def _known(trial: Trial, outcomes: Outcomes) -> tuple[Misconception, ...]:
    exercise = trial.exercise
    return tuple(
        mistake
        for mistake in wrong_answers(exercise.name)
        if _all_alike(outcomes, trial.wrong[mistake.id], exercise.tolerance)
    )


def _hints(known: Iterable[Misconception]) -> tuple[str, ...]:
    return tuple(f"{mistake.id}: {mistake.hint}" for mistake in known)


def _nearly(trial: Trial, outcomes: Outcomes) -> tuple[Misconception, str] | None:
    """The mistake that matches in most cases in which it shows, errors apart; where it does not."""
    exercise = trial.exercise

    def but(differs: list[str]) -> str:
        are_right = [x for x in differs if alike(outcomes[x], trial.right[x], exercise.tolerance)]
        are_wrong = [x for x in differs if x not in are_right]
        said = [f"which does not explain {_first_of(are_wrong)}"] if are_wrong else []
        said += [f"with which {_first_of(are_right)} would fail, too"] if are_right else []
        return ", and ".join(said)

    found = []
    rich = _is_rich(trial.right)  # or else a case that matches beside errors could be chance
    for mistake in wrong_answers(exercise.name):
        wrong = trial.wrong[mistake.id]
        all_shows = [
            label
            for label, right in trial.right.items()
            if not alike(right, wrong[label], exercise.tolerance)
            and wrong[label].error is None
            and wrong[label].repeatable
        ]
        shows = [label for label in all_shows if outcomes[label].error is None]
        differs = [x for x in outcomes if not alike(outcomes[x], wrong[x], exercise.tolerance)]
        matches = [x for x in shows if x not in differs]
        if len(matches) > len(shows) / 2 and shows[0] in matches and (rich or shows == all_shows):
            found.append((len(matches), mistake, but(differs)))
    most = max((count for count, _, _ in found), default=0)
    best = [(mistake, said) for count, mistake, said in found if count == most]
    return best[0] if len(best) == 1 else None


def _first_of(names: list[str], most: int = 3) -> str:
    more = len(names) - most
    return f"{quoted(names[:most])} and {more} more" if more > 1 else quoted(names)


def _and_another(trial: Trial, outcomes: Outcomes) -> tuple[Misconception, str] | None:
    """A known mistake and one more thing that together explain every number."""
    exercise, label = trial.exercise, _first_wrong(trial, outcomes)
    if label is None or not _is_rich(trial.right):
        return None
    names = exercise.arguments
    worked = [(label, outcome) for label, outcome in outcomes.items() if not outcome.error]
    for mistake in wrong_answers(exercise.name):
        if all(alike(o, trial.wrong[mistake.id][x], exercise.tolerance) for x, o in worked):
            continue  # what is different are errors
        answer = exercise.use(mistake.answers[exercise.name])
        cases = trial.cases, trial.wrong[mistake.id], outcomes
        if besides := what_if(answer, names, *cases, label, exercise.tolerance, tensors_only=True):
            return mistake, besides
    return None


def _repaired(candidate: Callable[..., Any], trial: Trial, outcomes: Outcomes) -> Repair | None:
    endless = RecursionError | NoEndError
    if any(isinstance(o.error, endless) or not o.repeatable for o in outcomes.values()):
        return None  # no change of one place tells anything then
    exercise, first = trial.exercise, _first_wrong(trial, outcomes)
    failed = [x for x in outcomes if not alike(outcomes[x], trial.right[x], exercise.tolerance)]
    failed.sort(key=lambda label: label != first)
    if not failed:
        return None
    says_much = not all(
        isinstance(o.value, int) or getattr(o.value, "dtype", None) == torch.bool
        for o in trial.right.values()
    )  # or else a wrong change could fit by chance
    workshop = Workshop(candidate, exercise, trial.cases, failed)
    # All of them now, before changed programs run.
    wrong = {of: dict(outcomes) for of, outcomes in trial.wrong.items() if says_much}
    return workshop.repaired(trial.right, wrong)


def _two_together(trial: Trial, outcomes: Outcomes) -> tuple[Misconception, ...]:
    """Two known mistakes, each of which adds something of its own, or multiplies by it.

    An error must be one that either of them has there, too.
    """
    if _first_wrong(trial, outcomes) is None or not _is_rich(trial.right):
        return ()
    ended = [label for label, outcome in outcomes.items() if outcome.error]

    def numbers(of: Outcomes) -> list[torch.Tensor]:
        return [_real(of[label].value) for label in of if label not in ended]

    right, got = numbers(trial.right), numbers(outcomes)
    for one, other in combinations(wrong_answers(trial.exercise.name), 2):
        each = trial.wrong[one.id], trial.wrong[other.id]
        if not all(any(alike(outcomes[x], wrong[x], 0.0) for wrong in each) for x in ended):
            continue
        wrong = numbers(each[0]), numbers(each[1])
        four = list(zip(right, *wrong, got, strict=True))
        if any(x.shape != row[0].shape for row in four for x in row):
            continue
        for joined in (lambda r, a, b: a + b - r, lambda r, a, b: a * b / r):
            if all(
                close(joined(r, a, b), x, trial.exercise.tolerance).all() for r, a, b, x in four
            ):
                return one, other
    return ()


def _real(value: Any) -> torch.Tensor:
    """All real numbers of a result in a row; none at all if it holds something else."""
    values = value if isinstance(value, tuple) else (value,)
    if any(isinstance(x, int) and abs(x) >= 2**63 for x in values):
        return torch.empty(0)
    tensors = [torch.as_tensor(x) for x in values if isinstance(x, torch.Tensor | int | float)]
    if len(tensors) < len(values) or any(x.dtype in NO_REALS for x in tensors):
        return torch.empty(0)
    return torch.cat([x.detach().double().flatten() for x in tensors])


def _is_rich(right: Outcomes, enough: int = 3) -> bool:
    """Whether there are so many numbers that two things explain them only if they are true."""
    return len(torch.cat([_real(outcome.value) for outcome in right.values()]).unique()) >= enough


def _first_wrong(trial: Trial, outcomes: Outcomes) -> str | None:
    """The first case in which the result is wrong, errors apart."""
    for label, outcome in outcomes.items():
        right = trial.right[label].value
        if not (outcome.error or same(right, outcome.value, trial.exercise.tolerance)):
            return label
    return None


def _notes(
    candidate: Callable[..., Any], trial: Trial, outcomes: Outcomes, known: bool
) -> list[str]:
    """What the parts tell of the first case that went wrong; else, what explains the numbers."""
    exercise = trial.exercise
    reference, names = exercise.use(exercise.reference), exercise.arguments
    if not all(outcome.repeatable for outcome in outcomes.values()):
        pairs = zip(trial.right.values(), outcomes.values(), strict=True)
        if any(isinstance(o.value, torch.Tensor) and type(r.value) is bool for r, o in pairs):
            return []  # it compares number by number, and that comes first
        return [
            "two calls with the same arguments give different results: what is drawn at random, "
            "or kept from one call to the next, as in a default argument?"
        ]
    label = _first_wrong(trial, outcomes)
    if label is None:
        return []
    said = parts_say(names, trial.cases[label], trial.right[label], outcomes[label])
    if label != next(iter(outcomes)):
        said = [f"in “{label}”, {line}" for line in said]
    if said or known:
        return said
    theirs, cases = exercise.use(candidate), (trial.cases, trial.right, outcomes)
    if spoiled := spoiled_by_precision(theirs, *cases, exercise.tolerance):
        return [spoiled]
    if explained := what_if(reference, names, *cases, label, exercise.tolerance):
        return [explained]
    every = list(trial.cases.values())
    if unused := without_influence(theirs, reference, names, every, exercise.tolerance):
        return [f"{name} does not influence your result" for name in unused]
    needed = never_read(exercise.reference)
    unread = never_read(candidate).items()
    return [f"your code never looks at {x}" for place, x in unread if place not in needed]


def find_exercise(name: str) -> Exercise:
    """The exercise of this name.

    Raises:
        ValueError: there is none.
    """
    if name not in EXERCISES:
        raise ValueError(f"no exercise is called {name!r}; {did_you_mean(name, EXERCISES)}")
    return EXERCISES[name]


def draw_trial(exercise: Exercise, seed: int, attempts: int = 100) -> Trial:
    """Draw cases until all known answers, right and wrong, can be told from one another.

    They must differ a hundred times more than the tolerance, so that rounding decides nothing.
    """
    mistakes = wrong_answers(exercise.name)
    for attempt in range(attempts):
        cases = exercise.cases(torch.Generator().manual_seed(seed + attempt))
        right = dict(_Observed(exercise, exercise.reference, cases))
        wrong = {m.id: _Observed(exercise, m.answers[exercise.name], cases) for m in mistakes}
        answers = [right, *wrong.values()]
        if not any(
            _all_alike(a, b, 100 * exercise.tolerance)
            for i, a in enumerate(answers)
            for b in answers[:i]
        ):
            return Trial(exercise, cases, right, wrong, seed)
    raise AssertionError(f"the cases of {exercise.name} cannot tell its known answers apart")


class _Observed(Outcomes):
    """What an answer gives in each case; it is called when that is asked for, and not before.

    One case is mostly enough to tell two answers apart.
    """

    def __init__(self, exercise: Exercise, answer: Callable[..., Any], cases: dict[str, Case]):
        self.function, self.cases = exercise.use(answer), cases
        here = inspect.isfunction(answer) or inspect.isclass(answer)  # else it has its own limits
        self.limited = here and answer is not exercise.reference
        self.seen: dict[str, Outcome] = {}
        self.endless: Outcome | None = None  # one wait is enough

    def __getitem__(self, label: str) -> Outcome:
        if label not in self.seen:
            outcome = self.endless or observe(self.function, self.cases[label], self.limited)
            if isinstance(outcome.error, NoEndError):
                self.endless = outcome
            self.seen[label] = outcome
        return self.seen[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)


def _all_alike(a: Outcomes, b: Outcomes, tolerance: float) -> bool:
    """Whether nothing tells two answers apart. Where both are random, they are alike."""
    return all(alike(a[label], b[label], tolerance) for label in a)


def _is_not_attempted(candidate: Callable[..., Any], outcomes: Outcomes) -> bool:
    if all(_is_raised_by_a_stub(o.error) for o in outcomes.values()):
        return True
    if any(hasattr(o.error, "explanation") for o in outcomes.values()):
        return False  # code that is not at hand, in another process, has raised
    # What makes a function of an answer may fail on nothing.
    nothing = all(o.error is not None or _is_nothing(o.value) for o in outcomes.values())
    return nothing and not _does_something(candidate)


def _is_raised_by_a_stub(error: BaseException | None) -> bool:
    """Whether a ``raise`` made it. PyTorch has the same error for operations that a dtype lacks."""
    if not isinstance(error, NotImplementedError):
        return False
    trace = innermost(error)
    if trace is None:
        return True
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


def _does_something(candidate: Callable[..., Any]) -> bool:
    """Whether there is code of which a result could come, as far as the code is at hand."""
    code = getattr(getattr(candidate, "forward", candidate), "__code__", None)
    return code is not None and any(x.opname not in IDLE for x in dis.get_instructions(code))


def _is_nothing(value: Any) -> bool:
    if isinstance(value, tuple):  # of a class, the output of its forward comes first
        return bool(value) and _is_nothing(value[0])
    return value is None or value is ...


def _findings(trial: Trial, outcomes: Outcomes) -> Iterator[Finding]:
    """One finding per property, in the order in which a student should read them."""
    exercise = trial.exercise
    errors: set[str] = set()
    for number, (label, outcome) in enumerate(outcomes.items()):
        right = trial.right[label]
        names = ASPECTS if number == 0 else (label,)
        if outcome.error:
            said = explain_error(outcome.error)
            shown = said if errors else said + _shapes(exercise, trial.cases[label], outcome.error)
            yield Finding(names[0], "failed", "the same" if said in errors else shown)
            errors.add(said)
            yield from (Finding(name, "not reached") for name in names[1:])
            continue
        mismatch = compare(
            right.value,
            outcome.value,
            exercise.outputs,
            tuple(exercise.axes),
            tolerance=exercise.tolerance,
            sizes=exercise.sizes(trial.cases[label]),
        )
        if mismatch is not None and (call := _call(exercise.name, trial.cases[label])):
            mismatch = replace(mismatch, message=f"{call}: {mismatch.message}")
        elif mismatch is not None and (row := _row(exercise, trial.cases[label], mismatch.index)):
            mismatch = replace(mismatch, message=f"{mismatch.message}; {row}")
        if mismatch is None:
            yield from (Finding(name, "passed") for name in names)
        elif number > 0:
            yield Finding(label, "failed", mismatch.message)
        else:
            place = ASPECTS.index(mismatch.aspect)
            yield from (Finding(name, "passed") for name in names[:place])
            yield Finding(mismatch.aspect, "failed", mismatch.message)
            yield from (Finding(name, "not reached") for name in names[place + 1 :])
    yield from _side_effects(trial, outcomes)


def _shapes(exercise: Exercise, case: Case, error: BaseException) -> str:
    """What the tensors were like in the line that failed, or else those of the call."""
    shapes = shapes_there(error) or {
        name: tuple(x.shape)
        for name, x in zip(exercise.arguments, case.args, strict=False)
        if isinstance(x, torch.Tensor)
    }
    return (
        f"; here {listed([f'{name} {shape}' for name, shape in shapes.items()])}" if shapes else ""
    )


def _row(exercise: Exercise, case: Case, index: tuple[int, ...], most: int = 12) -> str:
    """The tokens, or other whole numbers, of the sentence in which a number is wrong."""
    if not index or exercise.axes[0][:1] != ("batch",):
        return ""
    return next(
        (
            f"{name}[{index[0]}] is {x[index[0]].tolist()}"
            for name, x in zip(exercise.arguments, case.args, strict=False)
            if isinstance(x, torch.Tensor) and x.dtype == torch.long
            if x.ndim == 2 and x.size(0) > index[0] and x.size(1) <= most
        ),
        "",
    )


def _call(name: str, case: Case, width: int = 80) -> str:
    """The call as one would write it, if that is short and shows all."""
    if not case.args or not all(_is_small(x) for x in case.args):
        return ""
    text = f"{name}({', '.join(map(_written, case.args))})"
    return text if len(text) <= width else ""


def _is_small(x: Any) -> bool:
    if isinstance(x, dict):
        return all(map(_is_small, [*x, *x.values()]))
    if isinstance(x, list | tuple | set):
        return all(map(_is_small, x))
    return x is None or isinstance(x, str | int | float)


def _written(x: Any) -> str:
    return "{" + ", ".join(sorted(map(repr, x))) + "}" if isinstance(x, set) and x else repr(x)


def _side_effects(trial: Trial, outcomes: Outcomes) -> Iterator[Finding]:
    worked = {label: outcome for label, outcome in outcomes.items() if outcome.error is None}
    if not worked:
        return
    if any(case.gradient for case in trial.cases.values()):
        yield _gradient(trial, worked)
    changed = {n for outcome in worked.values() for n in outcome.changed}
    message = f"your code writes into {trial.exercise.arguments[min(changed)]}" if changed else ""
    yield Finding("arguments untouched", "failed" if changed else "passed", message)
    same = all(outcome.repeatable for outcome in worked.values())
    message = "" if same else "a second call with the same arguments gave something else"
    yield Finding("repeatable", "passed" if same else "failed", message)


def _is_nothing_beside(gradient: torch.Tensor | None, right: torch.Tensor) -> bool:
    if gradient is None:
        return True
    return bool(gradient.abs().max() < 1e-6 * right.abs().max()) if right.numel() else False


def _gradient(trial: Trial, worked: Outcomes) -> Finding:
    exercise = trial.exercise
    labels = [label for label in worked if trial.cases[label].gradient]
    for label in labels:
        names = [exercise.arguments[n] for n in trial.cases[label].float_tensors]
        expected, got = trial.right[label].gradients, worked[label].gradients
        for name, right, theirs in zip(names, expected, got, strict=True):
            if right is not None and _is_nothing_beside(theirs, right):
                value = trial.right[label].value
                if same(value, worked[label].value, exercise.tolerance):
                    said = f"no gradient reaches {name}: does something leave PyTorch on the way "
                    said += "(item, tolist, numpy, detach, no_grad, a new nn.Parameter)?"
                else:
                    said = f"a small change of {name} changes nothing in your result"
                return Finding("gradient", "failed", said)
        named = tuple(f"gradient of {name}" for name in names)
        if wrong := compare(expected, got, named, tolerance=10 * exercise.tolerance):
            return Finding("gradient", "failed", wrong.message)
    return Finding("gradient", "passed" if labels else "not reached")
