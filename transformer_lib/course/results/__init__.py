"""Trainings over several seeds, so that a difference can be told from luck.

What takes minutes comes measured with the course: ``make results`` runs the chapters, measures all
of it anew and stores it beside this file. A stored result is used only for the very program that
it was measured with. Change the program, and your machine measures yours. What takes hours,
``make variants`` measures.
"""

import dis
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

import pandas as pd
import torch
from tqdm.auto import tqdm

from transformer_lib.course.checks.experiments import difference_of_means
from transformer_lib.files import write_text
from transformer_lib.randomness import seeded

Plain: TypeAlias = str | int | float | bool | None
VARIANTS = "variants_of_the_transformer"  # both are stored by `make variants`
BUDGETS = "lengths_of_training"
MEASURE_ANEW = "TRANSFORMER_LIB_MEASURE"  # set by `make results`


def over_seeds(
    measure: Callable[..., Mapping[str, float]],
    cases: Mapping[str, Sequence[Plain]],
    stored: str,
    seeds: int = 5,
) -> pd.DataFrame:
    """Measure each case with the seeds 0, 1, …: one row per case and seed.

    The random numbers outside are left as they are.

    Args:
        measure: called with the values of a case and ``seed=``; returns numbers by their names.
        cases: the values to call it with, by the name of the case.
        stored: name of the result that comes with the course, if it is of the same program.

    Returns:
        A table with the columns ``case``, ``seed`` and those that ``measure`` returns.
    """
    program = _digest(measure, cases, seeds)
    made = read_runs(stored)
    anew = MEASURE_ANEW in os.environ
    known = made.get("program") == program and not anew
    if not known:
        rows = [(name, values, seed) for name, values in cases.items() for seed in range(seeds)]
        runs = [
            {"case": name, "seed": seed, **_run(measure, values, seed)}
            for name, values, seed in tqdm(rows, unit="run")
        ]
        made = {"program": program, "torch": _version(), "runs": runs}
    if anew:
        _write_runs(stored, made)
    when = f"before, with PyTorch {made['torch']}" if known or anew else "just now"
    print(f"{seeds} seeds each, measured {when}")
    return pd.DataFrame(made["runs"])


def read_runs(stored: str) -> dict[str, Any]:
    """A stored result: its ``runs``, and the version of PyTorch that they were made with."""
    path = Path(__file__).parent / f"{stored}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"runs": []}


def add_run(stored: str, run: Mapping[str, Plain]) -> None:
    """Store one more run of a measurement that is too long for a notebook."""
    made = read_runs(stored)
    _write_runs(stored, {"torch": _version(), "runs": [*made["runs"], run]})


def variants(*cases: str) -> pd.DataFrame:
    """What ``make variants`` measured of the course's Transformer in some of its forms.

    Returns:
        As :func:`over_seeds`: the loss on the validation set and BLEU on the test set.
    """
    runs = _by_make_variants(VARIANTS)
    order = pd.CategoricalDtype(cases, ordered=True)
    runs = runs[runs["case"].isin(cases)].astype({"case": order}).sort_values(["case", "seed"])
    return runs.astype({"case": str})


def budgets() -> pd.DataFrame:
    """What ``make variants`` measured of the Transformer and the RNN over the length of training.

    Returns:
        One row per case, ``steps`` and seed: the tokens, seconds (on one core) and FLOPs that
        training took, and BLEU on the test set.
    """
    return _by_make_variants(BUDGETS).sort_values(["case", "steps", "seed"], ignore_index=True)


def _by_make_variants(stored: str) -> pd.DataFrame:
    made = read_runs(stored)
    runs = pd.DataFrame(made["runs"])
    print(f"{runs['seed'].nunique()} seeds each, by `make variants` with PyTorch {made['torch']}")
    return runs


def mean_and_spread(runs: pd.DataFrame, digits: int = 2) -> pd.DataFrame:
    """For each case the mean over the seeds ± the standard deviation, as text."""
    groups = runs.drop(columns="seed").groupby("case", sort=False)
    means, spreads = groups.mean().rename_axis(None), groups.std()
    columns = {
        name: [f"{m:.{digits}f} ± {s:.{digits}f}" for m, s in zip(mean, spreads[name], strict=True)]
        for name, mean in means.items()
    }
    return pd.DataFrame(columns, index=means.index)


def standard_errors_apart(runs: pd.DataFrame, one: str, other: str) -> pd.Series:
    """How far apart the means of two cases are, in standard errors of their difference.

    For each measure the t of Welch's test, as experiments are judged by ``check_experiment``.
    """
    measures = runs.set_index("case").drop(columns="seed")
    difference, error = difference_of_means(measures.loc[one], measures.loc[other])
    return difference / error


def _version() -> str:
    return torch.__version__.partition("+")[0]


def _write_runs(stored: str, made: Mapping[str, Any]) -> None:
    path = Path(__file__).parent / f"{stored}.json"
    write_text(path, json.dumps(made, indent=1, ensure_ascii=False) + "\n")


def _run(measure: Callable, values: Sequence[Plain], seed: int) -> dict[str, float]:
    with seeded(seed):
        return {name: float(number) for name, number in measure(*values, seed=seed).items()}


def _digest(measure: Callable, cases: Mapping[str, Sequence[Plain]], seeds: int) -> str:
    plain = {name: list(values) for name, values in cases.items()}
    program = json.dumps([list(_sources(measure, set())), plain, seeds])
    return hashlib.sha256(program.encode()).hexdigest()[:16]


def _sources(thing: Any, seen: set[int]) -> Iterator[str]:
    """The source of a function or class, and of all of its own module that it uses."""
    thing = inspect.unwrap(thing)
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if inspect.isclass(thing):
        for member in vars(thing).values():
            if inspect.isfunction(member):
                yield from _sources(member, seen)
        return
    yield "".join(inspect.getsource(thing).split())  # wrapped otherwise, it is the same program
    for name in sorted(_names(thing.__code__)):
        used = thing.__globals__.get(name)
        if isinstance(used, str | int | float | tuple):
            yield f"{name} = {used!r}"
        elif _is_program(used) and used.__module__ == thing.__module__:
            yield from _sources(used, seen)


def _is_program(thing: Any) -> bool:
    return inspect.isroutine(thing) or inspect.isclass(thing)


def _names(code: CodeType) -> set[str]:
    """Of the global variables that the code reads; ``co_names`` has names of attributes, too."""
    inner = (_names(c) for c in code.co_consts if isinstance(c, CodeType))
    read = {
        i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return read.union(*inner)
