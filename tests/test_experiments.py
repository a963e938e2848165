"""What is said of a student's experiment: whether its table is whole and its conclusion follows."""

import numpy as np
import pandas as pd
import pytest

from transformer_lib.course.checks import check_experiment

NAME = "reading_backwards"


def table(backwards, forwards, seeds=4, spread=0.02):
    random = np.random.default_rng(0)
    means = {"backwards": backwards, "forwards": forwards}
    return pd.DataFrame(
        {"case": case, "seed": seed, "accuracy": mean + spread * random.standard_normal()}
        for case, mean in means.items()
        for seed in range(seeds)
    )


@pytest.mark.parametrize(
    ("runs", "conclusion"),
    [
        (table(0.6, 0.4), "more"),
        (table(0.4, 0.6), "less"),
        (table(0.5, 0.5), "not told apart"),
        (table(0.55, 0.5, spread=0.2), "not told apart"),
        (table(1.0, 0.0, spread=0.0), "more"),
    ],
)
def test_the_conclusion_that_the_numbers_allow_passes_and_no_other(runs, conclusion):
    for said in ("more", "less", "not told apart"):
        verdict = check_experiment(NAME, runs, said)
        (found,) = [finding for finding in verdict.findings if finding.name == "conclusion"]
        assert (found.status == "passed") == (said == conclusion), verdict
    assert "standard error" in repr(check_experiment(NAME, table(0.6, 0.4), "less"))


def test_between_the_rule_of_thumb_and_certainty_both_answers_are_right():
    """Three seeds each, 2.4 standard errors apart: by Student's t, p = 0.07."""
    numbers = {"backwards": (0.64, 0.66, 0.68), "forwards": (0.60, 0.62, 0.64)}
    runs = pd.DataFrame(
        {"case": case, "seed": seed, "accuracy": number}
        for case, several in numbers.items()
        for seed, number in enumerate(several)
    )
    said = {
        word: check_experiment(NAME, runs, word).passed
        for word in ("more", "less", "not told apart")
    }
    assert said == {"more": True, "less": False, "not told apart": True}


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([0.5, 0.6], "a table is expected"),
        (table(0.6, 0.4).drop(columns="seed"), "there is no column seed"),
        (table(0.6, 0.4, seeds=0).reindex(columns=["case", "seed", "accuracy"]), "no runs in it"),
        (table(0.6, 0.4).assign(accuracy="60 %"), "accuracy must be numbers: could not convert"),
        (table(0.6, 0.4).assign(accuracy=None), "accuracy must be numbers: float() argument"),
        (table(0.6, 0.4).replace("forwards", "as is"), "the cases are “backwards” and “forwards”"),
        (pd.DataFrame, "a table is expected, pd.DataFrame(rows); this is a type"),
        (table(0.6, 0.4, seeds=2), "at least 3 seeds"),
        (table(0.6, 0.4).assign(seed=1), "at least 3 seeds"),
        (table(0.6, 0.4).assign(seed=[[1]] * 8), "at least 3 seeds"),
        (table(0.6, 0.4).assign(case=[["backwards"]] * 8), "not “['backwards']”"),
        (table(60, 40), "accuracy lies between 0 and 1"),
        (table(0.6, float("nan")), "accuracy lies between 0 and 1"),
        (table(0.6, 0.4, spread=0.0), "does the seed reach the program"),
    ],
)
def test_what_is_missing_is_said(runs, said):
    assert said in repr(check_experiment(NAME, runs, "more"))


@pytest.mark.parametrize(
    ("runs", "conclusion"),
    [
        (table(0.24, 0.55), "less"),  # trained backwards, tested forwards
        (table(0.55, 0.7), "less"),  # the names exchanged
        (table(0.09, 0.09), "not told apart"),  # not trained
        (table(0.95, 0.56), "more"),  # better than anybody's
    ],
)
def test_another_experiment_than_the_one_described_does_not_pass(runs, conclusion):
    verdict = check_experiment(NAME, runs, conclusion)
    assert not verdict.passed
    assert "with other people" in repr(verdict)
    assert check_experiment(NAME, table(0.69, 0.56), "more").passed


def test_rounded_numbers_may_be_equal():
    runs = table(0.6, 0.4).round(2)
    runs.loc[runs["case"] == runs["case"].iloc[0], "accuracy"] = 0.6
    assert "does the seed reach" not in repr(check_experiment(NAME, runs, "more"))
    runs["accuracy"] += 1e-5
    assert "does the seed reach" in repr(check_experiment(NAME, runs, "more"))


def test_nothing_is_not_attempted():
    assert not check_experiment(NAME, ..., "more").attempted


def test_names_and_conclusions_are_given():
    with pytest.raises(ValueError, match="did you mean reading_backwards"):
        check_experiment("reading_backward", table(0.6, 0.4), "more")
    for odd in ("better", None, np.array(["more", "less"]), table(0.6, 0.4)):
        assert "choose one of" in repr(check_experiment(NAME, table(0.6, 0.4), odd))
