"""BLEU in the paper's way and in others, and the explanation of what separates them."""

import pytest
from sacrebleu.metrics import BLEU

from transformer_lib.data import wmt14
from transformer_lib.data.corpora import TestSet
from transformer_lib.evaluation.comparison import compare_runs
from transformer_lib.evaluation.explain import _change_at_the_end, explain, met_in_training
from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import load_run, train
from transformer_lib.metrics.conventions import (
    PAPER,
    every_bleu,
    moses_tokens,
    paper_bleu,
    split_compounds,
)

HYPOTHESES = [
    "Die Vater-Sohn-Reise kostet 3.000 Euro.",
    "Er sagte: „Das ist gut.“",
    "Wir fahren nach Berlin, nicht wahr?",
]
REFERENCES = [
    "Die Vater-Tochter-Reise kostet 3.000 Euro!",
    "Er sagte: „das ist sehr gut“.",
    "Wir fahren nach Köln, nicht wahr?",
]


def test_moses_tokens_are_those_of_the_script():
    assert (
        moses_tokens("Das z.B. kostet 3.000 Euro, oder?") == "Das z.B. kostet 3.000 Euro , oder ?"
    )


def test_compounds_are_split_like_the_papers_one_liner():
    assert split_compounds("Nord-Süd-Achse - x") == "Nord ##AT##-##AT## Süd ##AT##-##AT## Achse - x"
    assert split_compounds("a-b-c") == "a ##AT##-##AT## b-c"  # its pattern eats the b


def test_splitting_compounds_gives_points_for_halves():
    scores = {name: s.score for name, s in every_bleu(HYPOTHESES, REFERENCES).items()}
    assert scores[PAPER] == paper_bleu(HYPOTHESES, REFERENCES).score > scores["Moses tokens"]
    assert scores["sacreBLEU, 13a, lower-cased"] > scores["sacreBLEU, 13a"]


def test_the_papers_way_is_bleu_on_those_tokens():
    tokens = [
        [split_compounds(moses_tokens(s.replace("„", '"').replace("“", '"'))) for s in side]
        for side in (HYPOTHESES, REFERENCES)
    ]
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    expected = metric.corpus_score(tokens[0], [tokens[1]]).score
    result = paper_bleu(HYPOTHESES, REFERENCES)
    assert result.score == pytest.approx(expected)
    assert "tok:moses, quotes straight, compounds split" in result.signature


def test_the_kind_of_a_quotation_mark_costs_nothing_in_the_papers_way():
    references = ["Er nannte sie „die einzige Wahl“ und ‚einen Anfang‘, sagte er."]
    hypotheses = ["Er nannte sie \"die einzige Wahl\" und 'einen Anfang', sagte er."]
    assert paper_bleu(hypotheses, references).score == pytest.approx(100.0)
    assert every_bleu(hypotheses, references)["sacreBLEU, 13a"].score < 80


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from conftest import TOY_CONFIG

    def make(files):
        folder = tmp_path_factory.mktemp("runs")
        path = folder / "toy.toml"
        path.write_text(TOY_CONFIG + "keep_checkpoints = 3\naverage_last = 2\n")
        experiment = load_config(str(path), ["training.validations=6"])
        train(experiment, folder / "run", files)
        return load_run(folder / "run")

    return make


def test_the_explanation_measures_what_it_can_and_names_the_rest(trained, toy_files):
    run = trained(toy_files)
    found = explain(run, files=toy_files)
    assert [line.name for line in found.searched] == [
        "beam 4, α = 0.6",
        "without a length penalty",
        "greedy",
        "last checkpoint alone, not averaged",
    ]
    read, asked = (set((toy_files / f"{x}.de").read_text().splitlines()) for x in ("train", "test"))
    assert [line.note for line in found.met] == [
        f"{n} sentences" for n in (20, len(asked & read), len(asked - read))
    ]
    assert found.met[0].score == found.searched[0].score
    differing = {d.setting: (d.here, d.recipe) for d in found.differences}
    assert differing["source tokens a step, at most"] == ("256", "25,000")
    assert differing["steps"] == ("40", "100,000")
    assert differing["layers"] == ("1 + 1", "6 + 6")
    assert "label smoothing" in found.agreeing
    text = found.as_text()
    assert "test is another text" in text
    assert "2,737" not in text  # only newstest2014 has that part
    names = [line.name for line in found.counted]
    rows = [row for row in text.splitlines() if any(row.startswith(f"  {name} ") for name in names)]
    points = {row.index(".", 3 + max(map(len, names))) for row in rows}
    assert (len(rows), len(points)) == (len(names), 1), "scores are below one another"
    assert "-0.00" not in text


def test_a_test_sentence_was_met_as_a_source_or_as_an_answer():
    test_set = TestSet(
        "test", ["A  cat.", "A dog.", "A cow.", "Tom?"], [["x"], ["y", "Ein  Hund."], ["z"], ["w"]]
    )
    pairs = [("A cat.", "Eine Katze."), ("The dog.", "Ein Hund."), ("Tom!", "Tom?")]
    assert met_in_training(test_set, iter(pairs)) == [True, True, False, False]


def test_the_change_at_the_end_is_that_of_the_last_fifth():
    records = [{"kind": "validation", "bleu": bleu} for bleu in (0.0, 10.0, 20.0, 30.0, 31.0)]
    assert _change_at_the_end([*records[:2], {"kind": "train"}, *records[2:]]) == 1.0
    assert _change_at_the_end(records[:4]) is None


def test_the_papers_test_set_is_known_by_its_name(trained, toy_files, tmp_path):
    """Also where it is given as files, whose names end in the language."""
    for language in ("en", "de"):
        text = (toy_files / f"test.{language}").read_text()
        (tmp_path / f"newstest2014.{language}").write_text(text)
    run = trained(toy_files)
    pair = ",".join(str(tmp_path / f"newstest2014.{language}") for language in ("en", "de"))
    text = explain(run, pair, tmp_path / "nowhere").as_text()
    assert "  the training text not at hand: there is no folder" in text
    assert "on newstest2014.en (" in text
    assert "is another text" not in text
    assert "2,737 sentences of 2014" in text


def test_the_filtered_test_set_is_a_part_of_the_full_one(trained, toy_files, monkeypatch):
    from transformer_lib.evaluation import explain as module

    run = trained(toy_files)
    test_set = module.find_test_set(run, "test", toy_files)
    monkeypatch.setattr(
        wmt14, "read_archive", lambda archive, folder: [(s, "") for s in test_set.sources[:7]]
    )
    references = [r[0] for r in test_set.references]
    line = module._filtered(test_set, references, None)
    assert (line.score, line.note) == (pytest.approx(100.0), "7 sentences")


def test_the_report_has_the_papers_table(trained, toy_files, tmp_path):
    run = trained(toy_files)
    comparison = compare_runs(run, run, files=toy_files, human="A is preferred")
    rows = comparison.table()
    assert [row.bleu_as_in_paper for row in rows[-4:-2]] == [27.3, 28.4]
    assert rows[-1].test == "test"
    comparison.write_html(tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert "Transformer, big" in html
    assert "A is preferred" in html
