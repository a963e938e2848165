"""Experiments of students: is the table whole, and does the conclusion follow from its numbers?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformer_lib.course.checks.compare import listed, quoted
from transformer_lib.course.checks.verdict import Finding, Verdict
from transformer_lib.errors import did_you_mean

if TYPE_CHECKING:
    import pandas

LEAST_SEEDS = 3
TOLD_APART = 2.0  # standard errors, by the rule of thumb that the chapters give
CERTAIN = 2.8  # the limit of Student's t at 5% for two times three seeds, which is right as well
CONCLUSIONS = ("more", "less", "not told apart")
PARTS = ("table", "cases", "seeds", "numbers", "conclusion", "as elsewhere")


@dataclass(frozen=True)
class Experiment:
    """A comparison of two cases by one measure, each with several seeds.

    The conclusion says whether the first case gives more of it than the second one. The two are
    told apart where their means differ by more than twice the standard error of the difference;
    up to the limit of Student's t for three seeds, both answers are right.
    """

    name: str
    cases: tuple[str, str]
    measure: str
    usual: tuple[tuple[float, float], tuple[float, float]]
    """Between what the mean of each case lies if the experiment is the one that is described."""
    suspect: str
    """What to look at where it does not."""
    between: tuple[float, float] = (0.0, 1.0)


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "reading_backwards",
            ("backwards", "forwards"),
            "accuracy",
            usual=((0.6, 0.8), (0.45, 0.7)),
            suspect="Does each model read in its test as it read in training? Do the rows have "
            "the right names? Strings of 16, 400 steps?",
        ),
        Experiment(
            "rotary_beyond",
            ("rotary", "sinusoids"),
            "accuracy",
            usual=((0.8, 1.0), (0.0, 0.3)),
            suspect="Are these the positions from 16 on? Do the rows have the right names? Is "
            "`NoPositions()` given with the rotary layer?",
        ),
        Experiment(
            "deep_norm",
            ("DeepNorm", "post-norm"),
            "loss",
            usual=((0.0, 1.0), (2.6, 3.3)),
            suspect="Are these 32 layers, 150 steps, a rate of 0.004 from the first step on? Does "
            "each layer have its α? Have the matrices that the text names become smaller, and no "
            "others?",
            between=(0.0, 20.0),
        ),
    )
}


def check_experiment(name: str, runs: "pandas.DataFrame", conclusion: str) -> Verdict:
    """Check the table of an experiment and the conclusion that was drawn from it.

    Args:
        runs: a row for each run, with the columns ``case``, ``seed`` and that of the measure.
        conclusion: "more", "less" or "not told apart".

    Raises:
        ValueError: there is no such experiment.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"no experiment is called {name!r}; {did_you_mean(name, EXPERIMENTS)}")
    if runs is None or runs is ...:
        return Verdict(name, attempted=False)
    return Verdict(name, tuple(_findings(EXPERIMENTS[name], runs, conclusion)))


def _findings(experiment: Experiment, runs: Any, conclusion: Any) -> Iterator[Finding]:
    """Part after part, up to the first that is wrong: the later ones need it."""
    parts = iter(PARTS)
    for part, said in zip(parts, _complaints(experiment, runs, conclusion), strict=False):
        yield Finding(part, "failed" if said else "passed", said)
        if said:
            break
    yield from (Finding(part, "not reached") for part in parts)


def _complaints(experiment: Experiment, runs: Any, conclusion: Any) -> Iterator[str]:
    """What is wrong with each of the parts, in their order; nothing where all is well."""
    measure = experiment.measure
    if isinstance(runs, type) or not hasattr(runs, "columns"):
        yield f"a table is expected, pd.DataFrame(rows); this is a {type(runs).__name__}"
    missing = [name for name in ("case", "seed", measure) if name not in runs.columns]
    if missing:
        yield f"there is no column {listed(missing)}"
    yield "" if len(runs) else "there are no runs in it"

    found, wanted = set(map(str, runs["case"])), set(experiment.cases)
    yield "" if found == wanted else f"the cases are {_names(wanted)}, not {_names(found)}"

    groups = dict(iter(runs.groupby("case")))
    few = [
        case for case, rows in groups.items() if rows["seed"].astype(str).nunique() < LEAST_SEEDS
    ]
    yield f"at least {LEAST_SEEDS} seeds are needed for {listed(few)}" if few else ""

    yield _wrong_numbers(experiment, groups)
    yield _wrong_conclusion(experiment, groups, conclusion)
    yield _unusual(experiment, groups)


def _wrong_numbers(experiment: Experiment, groups: dict[Any, Any]) -> str:
    measure, (low, high) = experiment.measure, experiment.between
    try:
        values = {case: [float(x) for x in rows[measure]] for case, rows in groups.items()}
    except (TypeError, ValueError) as error:
        return f"{measure} must be numbers: {error}"
    if not all(low <= x <= high for numbers in values.values() for x in numbers):  # nor is NaN
        return f"{measure} lies between {low:g} and {high:g}"
    same = [  # unless all are as good, or as bad, as can be
        case
        for case, numbers in values.items()
        if len(set(numbers)) == 1 and numbers[0] not in experiment.between
    ]
    if not same or (len(same) < len(values) and _are_rounded(values)):
        return ""
    return f"all seeds of {listed(same)} give the same number: does the seed reach the program?"


def _are_rounded(values: dict[Any, list[float]]) -> bool:
    """Whether all have at most three decimals: near numbers may then be equal."""
    return all(x == round(x, 3) for numbers in values.values() for x in numbers)


def _unusual(experiment: Experiment, groups: dict[Any, Any]) -> str:
    for case, (low, high) in zip(experiment.cases, experiment.usual, strict=True):
        mean = groups[case][experiment.measure].astype(float).mean()
        if not low <= mean <= high:
            return (
                f"the mean of {case} is {mean:.2f}, and {low:g} to {high:g} with other people. "
                f"{experiment.suspect}"
            )
    return ""


def _wrong_conclusion(experiment: Experiment, groups: dict[Any, Any], conclusion: Any) -> str:
    if not isinstance(conclusion, str) or conclusion not in CONCLUSIONS:
        return f"choose one of {_names(CONCLUSIONS)}"
    first, second = (groups[case][experiment.measure].astype(float) for case in experiment.cases)
    difference, error = difference_of_means(first, second)
    right: set[str] = set()
    if abs(difference) <= CERTAIN * error:
        right.add("not told apart")
    if abs(difference) > TOLD_APART * error:
        right.add("more" if difference > 0 else "less")
    if conclusion in right:
        return ""
    return (
        f"{experiment.cases[0]} {first.mean():.3g}, {experiment.cases[1]} {second.mean():.3g}: the "
        f"difference is {difference:.3g}, its standard error {error:.2g}. What do these numbers "
        "allow, with twice the error as the limit?"
    )


def difference_of_means(first: Any, second: Any) -> tuple[Any, Any]:
    """m₁ − m₂ and its standard error √(s₁²/n₁ + s₂²/n₂), of two series or of each column."""
    error = (first.var() / len(first) + second.var() / len(second)) ** 0.5
    return first.mean() - second.mean(), error


def _names(names: Any) -> str:
    return quoted(sorted(map(str, names)))
