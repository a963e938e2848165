"""Scores against sacreBLEU's own command, and the comparison report."""

import html.parser
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from sacrebleu.metrics import CHRF

from transformer_lib.course.checks import EXERCISES
from transformer_lib.data import prepare
from transformer_lib.data.config import DataConfig
from transformer_lib.data.corpora import TestSet, load_corpus
from transformer_lib.errors import UserError
from transformer_lib.evaluation.comparison import compare_runs
from transformer_lib.evaluation.evaluate import evaluate_run, find_test_set
from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import load_run, train
from transformer_lib.experiment.validation import validate
from transformer_lib.metrics.bleu import bleu, chrf, paired_bootstrap
from transformer_lib.vocabulary import BOS, EOS

HYPOTHESES = ["Der Hund läuft schnell.", "Eine Katze schläft auf dem Sofa", "Guten Morgen!", "Ja."]
REFERENCES = [
    ["Der Hund rennt schnell.", "Der Hund läuft sehr schnell."],
    ["Eine Katze schläft auf dem Sofa."],
    ["Guten Morgen!", "Morgen!", "Einen guten Morgen!"],
    ["Ja."],
]


def sacrebleu_command(tmp_path, hypotheses, references, *options):
    """sacreBLEU's own command line on files, one per reference number."""
    (tmp_path / "hyp").write_text("\n".join(hypotheses) + "\n", encoding="utf-8")
    files = []
    for number in range(max(len(r) for r in references)):
        path = tmp_path / f"ref{number}"
        lines = [r[number] if number < len(r) else "" for r in references]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        files.append(str(path))
    command = [sys.executable, "-m", "sacrebleu", *files, "-i", str(tmp_path / "hyp"), *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_bleu_and_chrf_are_those_of_sacrebleus_command(tmp_path):
    one = [r[:1] for r in REFERENCES]
    result = sacrebleu_command(tmp_path, HYPOTHESES, one, "-m", "bleu", "chrf", "-w", "6")
    scores = {entry["name"]: entry for entry in result}
    assert bleu(HYPOTHESES, one).score == pytest.approx(scores["BLEU"]["score"], abs=1e-5)
    assert chrf(HYPOTHESES, one).score == pytest.approx(scores["chrF2"]["score"], abs=1e-5)
    assert bleu(HYPOTHESES, one).signature == scores["BLEU"]["signature"]


def test_several_references_are_those_of_sacrebleus_command(tmp_path):
    three = [[*r, *[""] * (3 - len(r))] for r in REFERENCES]
    result = sacrebleu_command(tmp_path, HYPOTHESES, three, "-w", "6")
    assert bleu(HYPOTHESES, REFERENCES).score == pytest.approx(result["score"], abs=1e-5)
    assert bleu(HYPOTHESES, REFERENCES).score > bleu(HYPOTHESES, [r[:1] for r in REFERENCES]).score
    assert "nrefs:var" in bleu(HYPOTHESES, REFERENCES).signature


def test_lower_case_is_in_the_signature():
    assert "case:lc" in bleu(HYPOTHESES, REFERENCES, lowercase=True).signature


def test_different_numbers_of_sentences_are_refused():
    with pytest.raises(ValueError, match="there is nothing to score"):
        bleu([], [])
    with pytest.raises(ValueError, match="1 hypotheses, but 4 references"):
        paired_bootstrap(["a"], ["a"] * 4, [["a"]] * 4)
    with pytest.raises(ValueError, match="1 hypotheses, but 4 references"):
        bleu(["Ja."], REFERENCES)
    with pytest.raises(ValueError, match=r"sentence 1 .* has no reference"):
        bleu(["Ja.", "Nein."], [["Ja."], []])
    with pytest.raises(ValueError, match="samples=0 is below 1"):
        paired_bootstrap(["a"], ["a"], [["a"]], samples=0)


def test_references_without_a_list_around_them_are_refused():
    """Their letters would count as several references, and the score be near zero."""
    for measure in (bleu, chrf):
        with pytest.raises(ValueError, match="a list of references"):
            measure(["Das ist gut so."], ["Das ist gut so."])


def test_the_bootstraps_p_value_has_both_sides():
    """Two equally good systems differ at the 5% level about once in twenty times."""
    random = np.random.default_rng(0)
    references = [[f"Das ist der {i}. Satz von allen hier im Text."] for i in range(60)]
    wrong = [r[0].replace("Satz von", "Wort aus") for r in references]
    found = 0
    for _ in range(200):
        sides = random.integers(0, 2, (2, len(references)))
        a, b = ([(r[0], w)[x] for r, w, x in zip(references, wrong, s, strict=True)] for s in sides)
        found += paired_bootstrap(a, b, references, samples=100).p_value < 0.05
    assert found <= 14  # with one side only it is 20


def test_bootstrap_finds_a_real_difference_and_no_difference():
    references = [[f"Das ist der Satz Nummer {i} von allen."] for i in range(100)]
    right = [r[0] for r in references]
    wrong = [text.replace("der Satz", "ein Wort") for text in right]
    real = paired_bootstrap(right, wrong, references, samples=200)
    assert real.score_a == pytest.approx(100.0)
    assert real.p_value < 0.05
    mixed = [w if i % 2 else r for i, (r, w) in enumerate(zip(right, wrong, strict=True))]
    other = [r if i % 2 else w for i, (r, w) in enumerate(zip(right, wrong, strict=True))]
    chance = paired_bootstrap(mixed, other, references, samples=200)
    assert chance.p_value > 0.05
    assert paired_bootstrap(mixed, mixed, references, samples=200).p_value == 1.0
    spaced = [text.replace(".", " .") for text in mixed]  # other texts with the same score
    assert paired_bootstrap(mixed, spaced, references, samples=200).p_value == 1.0


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory, toy_files):
    from conftest import TOY_CONFIG

    folder = tmp_path_factory.mktemp("runs")
    text = TOY_CONFIG
    for name in ("train", "valid", "test"):
        for side in ("en", "de"):
            text = text.replace(f'"{name}.{side}"', f"'{toy_files / f'{name}.{side}'}'")
    path = folder / "toy.toml"
    path.write_text(text, encoding="utf-8")
    train(load_config(str(path), ["name=long", "training.steps=120"]), folder / "long")
    train(load_config(str(path), ["name=short", "training.steps=10"]), folder / "short")
    return load_run(folder / "long"), load_run(folder / "short")


def test_evaluation_says_score_signature_and_cost(two_runs):
    result = evaluate_run(two_runs[0])
    assert result.bleu.score > 80
    text = result.as_text()
    for part in ("long on test (20 sentences)", "tok:13a", "chrF2", "sentences/s", "6·N·tokens"):
        assert part in text
    assert json.loads(json.dumps(result.as_dict()))["cost"]["tokens"] > 0


def test_one_reference_is_the_first_of_several(two_runs):
    run = two_runs[0]
    sources = find_test_set(run, "test").sources
    right, other = run.translate(sources), ["etwas ganz anderes als das hier"] * len(sources)
    for first, second, score in ((right, other, 100), (other, right, 0)):
        references = [[one, two] for one, two in zip(first, second, strict=True)]
        result = evaluate_run(run, TestSet("two", sources, references))
        assert result.bleu.score == pytest.approx(100)
        assert result.bleu_one_reference.score == pytest.approx(score, abs=1)
        assert result.bleu_as_in_paper.score == pytest.approx(score, abs=1)


def test_a_validation_is_of_its_first_sentences_and_all_their_references(two_runs):
    """The loss is that of each sentence alone, of the first reference."""
    run = two_runs[0]
    data = prepare(run.experiment.data)
    sources = data.valid.sources
    right = run.translate(sources, replace(run.experiment.decoding, beam_size=1))
    references = [["die Katze", text] for text in right[:7]]
    references += [["die Katze", "eine Maus"]] * (len(sources) - 7)
    data = replace(data, valid=TestSet("valid", sources, references))
    found = validate(run.model, data, replace(run.experiment.training, validation_sentences=7))
    assert found["bleu"] == pytest.approx(100)
    target = [*run.tokenizer.encode(["die Katze"])[0], EOS]
    total = 0.0
    for source in run.tokenizer.encode(sources[:7]):
        with torch.no_grad():
            inputs = torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target[:-1]]])
            log_p = run.model(*inputs)[0].log_softmax(dim=-1)
        total -= sum(float(log_p[i, token]) for i, token in enumerate(target))
    assert found["loss"] == pytest.approx(total / (7 * len(target)), rel=1e-4)


def test_evaluation_on_two_files_and_on_no_such_set(two_runs, toy_files):
    files = f"{toy_files / 'valid.en'},{toy_files / 'valid.de'}"
    assert evaluate_run(two_runs[0], files).bleu.score == pytest.approx(
        evaluate_run(two_runs[0], "valid").bleu.score
    )
    with pytest.raises(UserError, match="no test set 'dev'; give test, valid, or SOURCE,TARGET"):
        evaluate_run(two_runs[0], "dev")


def test_evaluation_does_not_need_the_text_of_training(toy_files, tmp_path):
    from conftest import TOY_CONFIG

    text = tmp_path / "text"
    shutil.copytree(toy_files, text)
    (tmp_path / "toy.toml").write_text(TOY_CONFIG, encoding="utf-8")
    experiment = load_config(str(tmp_path / "toy.toml"), ["training.steps=2"])
    train(experiment, tmp_path / "run", text)
    for side in ("en", "de"):
        (text / f"train.{side}").unlink()
    run = load_run(tmp_path / "run")
    assert len(evaluate_run(run).hypotheses) == 20
    assert len(evaluate_run(run, "valid").hypotheses) == 20


class _Checker(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.images, self.open, self.outside = [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "img":
            self.images.append(values)
        self.outside += [v for k, v in values.items() if k in ("src", "href") and "data:" not in v]
        if tag not in ("img", "meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_comparison_names_the_better_one_and_writes_one_file(two_runs, tmp_path):
    comparison = compare_runs(*two_runs)
    assert comparison.verdict().startswith("long is better than short by ")
    assert "significantly" in comparison.verdict()
    comparison.write_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    checker = _Checker()
    checker.feed(page)
    assert not checker.open
    assert checker.outside == []  # nothing is loaded from elsewhere
    assert len(checker.images) == 4
    assert all(len(image["alt"]) > 20 for image in checker.images)
    assert comparison.test_set.sources[0] in page
    assert comparison.evaluations[0].bleu.signature in page


def test_the_report_gives_each_system_its_own(two_runs, tmp_path):
    """Whichever comes first: the winner, translations, intervals, costs, scores by length."""
    runs = two_runs[::-1]
    comparison = compare_runs(*runs)
    assert comparison.verdict().startswith("long is better than short by ")
    first, second = comparison.evaluations
    assert (first.run, second.run) == ("short", "long")
    example = comparison._examples()[0]
    assert (example["a"], example["b"]) == (first.hypotheses[0], second.hypotheses[0])
    for row, evaluation in zip(comparison.table()[-2:], comparison.evaluations, strict=True):
        assert row.system == evaluation.run
        assert row.bleu_as_in_paper == evaluation.bleu_as_in_paper.score
        assert row.flops_by_time == evaluation.cost.flops_by_time
        assert row.flops_by_parameters == evaluation.cost.flops_by_parameters
    comparison.write_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    d = comparison.difference
    ours, theirs = (
        f"{score:.2f} ± {interval:.2f}"
        for score, interval in ((d.score_a, d.interval_a), (d.score_b, d.interval_b))
    )
    assert -1 < page.find(ours) < page.find(theirs)
    assert "What their training took: short " in comparison.budgets()


def test_scores_by_length_are_those_of_sentences_of_that_length(two_runs):
    sources = [" ".join(["Wort"] * length) for length in range(1, 11)]
    references = [[f"{source} eins zwei drei vier."] for source in sources]
    right = [one for (one,) in references]
    comparison = compare_runs(*two_runs)
    short_ones = replace(comparison.evaluations[0], hypotheses=[*right[:2], *["x"] * 8])
    others = replace(comparison.evaluations[1], hypotheses=["x", "x", *right[2:]])
    scores = replace(
        comparison,
        test_set=TestSet("ten", sources, references),
        evaluations=(short_ones, others),
    )._by_length()
    buckets = list(scores["long"])
    assert buckets[0] == "1–3"
    assert scores["long"][buckets[0]] > 50 > scores["short"][buckets[0]]
    assert scores["long"][buckets[-1]] < 1
    assert scores["short"][buckets[-1]] == pytest.approx(100)


def test_speed_is_sentences_per_second(two_runs):
    evaluation = replace(evaluate_run(two_runs[1]), hypotheses=["Ja."] * 20, decoding_seconds=4.0)
    assert "4.0 s, 5 sentences/s" in evaluation.as_text()


def test_a_run_is_not_better_than_itself(two_runs):
    assert "every sentence alike" in compare_runs(two_runs[0], two_runs[0]).verdict()


def test_the_students_chrf_is_that_of_sacrebleu():
    test = load_corpus(DataConfig()).test
    first = [several[0] for several in test.references]
    last = [several[-1] for several in test.references]
    shifted = first[1:] + first[:1]  # with shorter and longer references than hypotheses
    for hypotheses in (last, shifted, test.sources):
        ours = EXERCISES["chrf"].reference(hypotheses, first)
        assert ours == pytest.approx(CHRF().corpus_score(hypotheses, [first]).score, abs=1e-9)
