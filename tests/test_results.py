"""Trainings over seeds: what is measured, and when a stored result is believed."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from transformer_lib.course import results
from transformer_lib.course.results import (
    budgets,
    mean_and_spread,
    over_seeds,
    standard_errors_apart,
    variants,
)

CHAPTERS = Path(__file__).parent.parent / "chapters"
STORED = sorted(Path(results.__file__).parent.glob("[0-9]*.json"))
CASES = {"a": (1.0, "x"), "b": (2.0, "y")}
SCALE = 1.0


def noise(size):
    return SCALE * size * torch.randn(()).item()


def measure(size, name, seed):
    torch.manual_seed(seed)
    return {"loss": noise(size), "seed squared": seed**2}


@pytest.fixture
def storing(monkeypatch, tmp_path):
    """The folder of results, and a switch to store into it."""
    monkeypatch.setattr(results, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setenv(results.MEASURE_ANEW, "1")
    yield tmp_path
    monkeypatch.delenv(results.MEASURE_ANEW, raising=False)


def test_each_case_is_measured_with_each_seed(capsys):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    runs = over_seeds(measure, CASES, "not stored", seeds=3)
    assert torch.equal(before, torch.get_rng_state())
    assert list(runs.columns) == ["case", "seed", "loss", "seed squared"]
    assert runs["case"].tolist() == ["a", "a", "a", "b", "b", "b"]
    assert runs["seed"].tolist() == [0, 1, 2] * 2
    torch.manual_seed(2)
    assert runs["loss"].iloc[5] == 2.0 * torch.randn(()).item()
    assert "3 seeds each, measured just now" in capsys.readouterr().out


def test_the_mean_and_the_spread_are_numpys():
    runs = over_seeds(measure, CASES, "not stored")
    values = runs.loc[runs["case"] == "b", "loss"].to_numpy()
    expected = f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
    table = mean_and_spread(runs, digits=3)
    assert table.loc["b", "loss"] == expected
    assert list(table.index) == ["a", "b"]


def test_how_far_apart_two_cases_are_is_numpys():
    runs = over_seeds(measure, CASES, "not stored", seeds=4).iloc[:-1]  # four seeds and three
    a, b = (runs.loc[runs["case"] == case, "loss"].to_numpy() for case in "ab")
    expected = (b.mean() - a.mean()) / np.sqrt(a.var(ddof=1) / 4 + b.var(ddof=1) / 3)
    assert standard_errors_apart(runs, "b", "a")["loss"] == pytest.approx(expected)
    assert standard_errors_apart(runs, "a", "b")["loss"] == pytest.approx(-expected)


def test_a_stored_result_is_believed_for_the_same_program_only(storing, monkeypatch, capsys):
    first = over_seeds(measure, CASES, "noise")
    monkeypatch.delenv(results.MEASURE_ANEW)
    stored = json.loads((storing / "noise.json").read_text())
    stored["runs"][0]["loss"] = 7.0
    (storing / "noise.json").write_text(json.dumps(stored))
    assert over_seeds(measure, CASES, "noise")["loss"][0] == 7.0
    assert "measured before, with PyTorch" in capsys.readouterr().out
    assert over_seeds(measure, CASES, "noise", seeds=2)["loss"][0] == first["loss"][0]
    assert over_seeds(measure, CASES | {"c": (3.0, "z")}, "noise")["loss"][0] == first["loss"][0]
    monkeypatch.setitem(globals(), "item", 2.0)  # a loop of the notebook's: no variable of measure
    assert over_seeds(measure, CASES, "noise")["loss"][0] == 7.0
    monkeypatch.setitem(globals(), "SCALE", 2.0)  # used by what measure uses
    assert over_seeds(measure, CASES, "noise")["loss"][0] == 2 * first["loss"][0]
    assert "measured just now" in capsys.readouterr().out
    assert json.loads((storing / "noise.json").read_text()) == stored


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_chapter_shows_each_stored_result(path):
    (text,) = CHAPTERS.glob(f"{path.stem[:2]}_*.ipynb")
    cells = [c for c in json.loads(text.read_text())["cells"] if c["cell_type"] == "code"]
    (cell,) = (c for c in cells if f'"{path.stem}"' in "".join(c["source"]))
    shown = "".join(line for o in cell["outputs"] for line in o.get("text", []))
    assert re.search(r"\b[3-9] seeds each, measured before", shown), "run `make results`"


def test_every_chapter_measures_what_it_stores():
    texts = "".join(path.read_text(encoding="utf-8") for path in (CHAPTERS / "text").glob("*.py"))
    assert texts.count("over_seeds(") == len(STORED)


def test_each_form_of_the_transformer_has_three_seeds(capsys):
    runs = variants("1 head", "as it is", "8 heads", "without W^O")
    assert runs.groupby("case")["seed"].nunique().min() == 3
    assert runs["BLEU"].min() > 40  # none that was interrupted
    assert "3 seeds each, by `make variants`" in capsys.readouterr().out


def test_both_systems_have_three_seeds_for_each_length_of_training(capsys):
    runs = budgets()
    assert runs.groupby(["case", "steps"])["seed"].nunique().eq(3).all()
    per_step = (runs["tokens"] / runs["steps"]).groupby(runs["steps"]).mean()
    assert per_step.max() < 1.01 * per_step.min()  # none that was interrupted
    assert "3 seeds each, by `make variants`" in capsys.readouterr().out
