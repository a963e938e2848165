"""Blind rating: simulated raters with known answers, what they may see, and bad files."""

import itertools
import json
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_lib.errors import UserError
from transformer_lib.instructor.rating import (
    Ratings,
    make_sheet,
    read_key,
    read_ratings,
    read_sheet,
    report,
    write_task,
)
from transformer_lib.instructor.rating.form import rating_form
from transformer_lib.instructor.rating.sheet import DAMAGED

SOURCES = [f"Sentence number {i} with a few words in it." for i in range(60)]
OUTPUTS = {
    "good": [f"Satz Nummer {i} mit ein paar guten Wörtern darin." for i in range(60)],
    "bad": [f"Satz Nummer {i} mit ein paar schlechten Wörtern darin." for i in range(60)],
}
KINDS = pytest.mark.parametrize("kind", ["pairwise", "direct"])


def simulate(sheet, key, name, quality, noise=0.0, seed=0):
    """A rater to whom a text of a system is worth ``quality[system]``, plus noise."""
    random = np.random.default_rng(seed)
    answers = {}
    for item in sheet.items:
        entry = key.entries[item.id]
        worth = []
        for system in entry.systems:
            value = quality.get(system, 0.0)
            if system == DAMAGED or (entry.control == "degraded" and sheet.kind == "direct"):
                value = -1.0
            worth.append(value + noise * random.normal())
        if sheet.kind == "direct":
            answers[item.id] = int(np.clip(50 + 20 * worth[0], 0, 100))
        else:
            gap = worth[0] - worth[1]
            answers[item.id] = "=" if abs(gap) < 0.1 else "A" if gap > 0 else "B"
    return Ratings(sheet.digest, name, answers)


@KINDS
def test_a_sure_rater_finds_the_better_system(kind):
    sheet, key = make_sheet(SOURCES, OUTPUTS, kind, seed=3)
    raters = [simulate(sheet, key, name, {"good": 1.0, "bad": 0.0}) for name in ("x", "y")]
    found = report(sheet, key, raters)
    assert found.systems == ("good", "bad")
    assert found.difference > 0
    assert found.p_value < 1e-3
    assert found.interval[0] > 0
    assert found.alpha == pytest.approx(1.0)
    assert found.sentences == 30
    for rater in found.raters:
        assert rater.degraded_found == rater.degraded == 3
        assert rater.consistent == rater.repeated == 3
    if kind == "pairwise":
        assert found.means == (1.0, 0.0)


@KINDS
def test_a_difference_that_is_not_there_is_seldom_found(kind):
    significant = 0
    for seed in range(40):
        sheet, key = make_sheet(SOURCES, OUTPUTS, kind, seed=seed)
        rater = simulate(sheet, key, "x", {"good": 0.0, "bad": 0.0}, noise=1.0, seed=seed)
        significant += report(sheet, key, [rater]).p_value < 0.05
    assert significant <= 6  # 2 expected; 7 or more have a chance of 0.3%


def test_generosity_does_not_count():
    """Standardized scores are the same for a rater who gives twenty points less to everything."""
    sheet, key = make_sheet(SOURCES, OUTPUTS, "direct", seed=1)
    rater = simulate(sheet, key, "x", {"good": 1.0, "bad": 0.0}, noise=0.1)
    assert min(rater.answers.values()) >= 20
    strict = Ratings(sheet.digest, "x", {id: a - 20 for id, a in rater.answers.items()})
    assert report(sheet, key, [strict]).means == pytest.approx(report(sheet, key, [rater]).means)
    other = Ratings(sheet.digest, "y", strict.answers)
    assert report(sheet, key, [rater, other]).alpha == pytest.approx(1.0)


@KINDS
def test_the_difference_is_that_of_the_means(kind):
    """Also where not everybody has rated every sentence, and an item counts as one of its kind."""
    sheet, key = make_sheet(SOURCES, OUTPUTS, kind, seed=2)
    some = simulate(sheet, key, "x", {"good": 1.0, "bad": 0.0}, noise=1.0)
    other = simulate(sheet, key, "y", {"good": 0.0, "bad": 0.5}, noise=1.0, seed=1)
    few = dict(list(other.answers.items())[:20])
    found = report(sheet, key, [some, Ratings(sheet.digest, "y", few)])
    assert found.difference == pytest.approx(found.means[0] - found.means[1])


def test_what_is_printed_claims_no_more_than_was_counted():
    sheet, key = make_sheet(SOURCES, OUTPUTS, "direct", seed=3)
    rater = simulate(sheet, key, "x", {"good": 1.0, "bad": 0.0})
    text = report(sheet, key, [rater]).as_text()
    assert "p < 0.001" in text, "20,000 samples cannot show that it is zero"
    assert "within 10 points twice 3/3" in text
    pairs, key = make_sheet(SOURCES, OUTPUTS, "pairwise", seed=3)
    text = report(pairs, key, [simulate(pairs, key, "x", {"good": 0.0, "bad": 0.0})]).as_text()
    assert "p = 1.000" in text
    assert "the same twice 3/3" in text


def test_the_p_value_of_few_sentences_is_exact():
    """Against all 2^5 sign patterns, written out."""
    sheet, key = make_sheet(SOURCES, OUTPUTS, "pairwise", sentences=5, repeated=0, degraded=0)
    preferred = ["good", "good", "good", "bad", "good"]
    regular = sorted(sheet.items, key=lambda item: key.entries[item.id].sentence)
    answers = {
        item.id: "AB"[key.entries[item.id].systems.index(system)]
        for item, system in zip(regular, preferred, strict=True)
    }
    found = report(sheet, key, [Ratings(sheet.digest, "x", answers)])
    patterns = list(itertools.product((1, -1), repeat=5))
    extreme = sum(abs(sum(signs)) >= 3 for signs in patterns)
    assert found.p_value == extreme / len(patterns)
    assert found.difference == pytest.approx(0.6)
    assert found.alpha is None


def by_sentence(sheet, key):
    return sorted(sheet.items, key=lambda item: key.entries[item.id].sentence)


def test_agreement_on_pairs_is_nominal():
    """By hand: three of four alike; with distances between A, = and B it would be 0.82."""
    sheet, key = make_sheet(
        SOURCES, OUTPUTS, "pairwise", sentences=4, repeated=0, degraded=0, seed=1
    )
    raters = [
        Ratings(
            sheet.digest,
            name,
            {item.id: a for item, a in zip(by_sentence(sheet, key), said, strict=True)},
        )
        for name, said in (("x", "AAB="), ("y", "A=B="))
    ]
    assert report(sheet, key, raters).alpha == pytest.approx(2 / 3)


@KINDS
def test_control_items_do_not_count_for_agreement(kind):
    sheet, key = make_sheet(SOURCES, OUTPUTS, kind, seed=1)
    rater = simulate(sheet, key, "x", {"good": 1.0, "bad": 0.0})
    odd = "=" if kind == "pairwise" else 7
    other = {
        id: answer if key.entries[id].control == "none" else odd
        for id, answer in rater.answers.items()
    }
    found = report(sheet, key, [rater, Ratings(sheet.digest, "y", other)])
    assert found.alpha == pytest.approx(1.0)


@pytest.mark.parametrize(("more", "consistent"), [(10, 3), (11, 0)])
def test_who_does_not_see_the_damaged_ones_or_is_not_constant_is_seen(more, consistent):
    sheet, key = make_sheet(SOURCES, OUTPUTS, "direct", sentences=10, seed=1)
    answers = {id: 50 + more * (e.control == "repeated") for id, e in key.entries.items()}
    (rater,) = report(sheet, key, [Ratings(sheet.digest, "x", answers)]).raters
    assert (rater.degraded_found, rater.degraded) == (0, 3)
    assert (rater.consistent, rater.repeated) == (consistent, 3)


def test_the_interval_holds_95_percent():
    sheet, key = make_sheet(
        SOURCES, OUTPUTS, "pairwise", sentences=40, repeated=0, degraded=0, seed=1
    )
    answers = {
        item.id: "AB"[key.entries[item.id].systems.index("good" if n % 4 else "bad")]
        for n, item in enumerate(by_sentence(sheet, key))
    }
    found = report(sheet, key, [Ratings(sheet.digest, "x", answers)])
    half = 1.96 * np.sqrt((1 - 0.5**2) / 40)  # thirty times +1, ten times −1
    assert found.interval == pytest.approx((0.5 - half, 0.5 + half), abs=0.06)


def test_repeated_pairs_are_turned_and_damaged_ones_are_on_both_sides():
    places = set()
    for seed in range(10):
        sheet, key = make_sheet(SOURCES, OUTPUTS, "pairwise", seed=seed)
        regular = {
            key.entries[item.id].sentence: (key.entries[item.id].systems, item.texts)
            for item in sheet.items
            if key.entries[item.id].control == "none"
        }
        for item in sheet.items:
            entry = key.entries[item.id]
            if entry.control == "repeated":
                systems, texts = regular[entry.sentence]
                assert (entry.systems, item.texts) == (systems[::-1], texts[::-1])
            if entry.control == "degraded":
                places.add(entry.systems.index(DAMAGED))
    assert places == {0, 1}


def test_a_raters_name_is_made_safe(tmp_path):
    sheet, _ = make_sheet(SOURCES, OUTPUTS, "pairwise", seed=1)
    path = tmp_path / "ratings.json"
    content = {"digest": sheet.digest, "rater": "x\u202e\n\x1b[31m", "answers": {}}
    path.write_text(json.dumps(content))
    assert read_ratings(path, sheet).rater == "x\\u202e \\x1b[31m"


def test_disagreement_is_seen():
    sheet, key = make_sheet(SOURCES, OUTPUTS, "pairwise", seed=1)
    one = simulate(sheet, key, "x", {"good": 1.0, "bad": 0.0})
    other = simulate(sheet, key, "y", {"good": 0.0, "bad": 1.0})
    found = report(sheet, key, [one, other])
    assert found.alpha < 0
    assert found.difference == 0


def test_agreement_with_bleu():
    references = [[text] for text in OUTPUTS["good"]]
    outputs = {"good": OUTPUTS["good"], "bad": ["x" * (1 + i % 7) for i in range(60)]}
    outputs["bad"][::2] = [text.replace("guten", "netten") for text in outputs["good"][::2]]
    sheet, key = make_sheet(SOURCES, outputs, "direct", sentences=40, references=references)
    answers = {}
    for item in sheet.items:
        answers[item.id] = 90 if "Satz" in item.texts[0] else 10
    found = report(sheet, key, [Ratings(sheet.digest, "x", answers)])
    assert found.bleu_correlation > 0.9


@KINDS
@given(seed=st.integers(0, 10**6))
def test_sheets_are_blind_and_complete(kind, seed):
    sheet, key = make_sheet(SOURCES, OUTPUTS, kind, sentences=12, seed=seed)
    assert (sheet, key) == make_sheet(SOURCES, OUTPUTS, kind, sentences=12, seed=seed)
    (one, _), (other, _) = (make_sheet(SOURCES, OUTPUTS, kind, sentences=12) for _ in range(2))
    assert one != other, "who is A is not to be known from the program"
    assert {item.id for item in sheet.items} == key.entries.keys()
    controls = [entry.control for entry in key.entries.values()]
    assert controls.count("repeated") == controls.count("degraded") == 3
    assert controls.count("none") == 12 * (1 if kind == "pairwise" else 2)
    for item in sheet.items:
        entry = key.entries[item.id]
        assert item.source == SOURCES[entry.sentence]
        for text, system in zip(item.texts, entry.systems, strict=True):
            undamaged = system in OUTPUTS and text == OUTPUTS[system][entry.sentence]
            assert undamaged != (
                system == DAMAGED or (entry.control == "degraded" and kind == "direct")
            )


def test_both_sides_are_used_equally_often():
    sides = []
    for seed in range(20):
        _, key = make_sheet(SOURCES, OUTPUTS, "pairwise", seed=seed)
        sides += [e.systems[0] == "good" for e in key.entries.values() if e.control == "none"]
    assert 0.4 < np.mean(sides) < 0.6


@KINDS
def test_a_task_survives_the_disk_and_names_no_system(tmp_path, kind):
    hostile = ["</script><b>" + text for text in SOURCES]
    outputs = {"first-model": OUTPUTS["good"], "second-model": hostile}
    sheet, key = make_sheet(SOURCES, outputs, kind)
    write_task(tmp_path, sheet, key)
    assert read_sheet(tmp_path / "sheet.json") == sheet
    assert read_key(tmp_path / "key.json") == key
    for name in ("sheet.json", "rate.html"):
        assert "-model" not in (tmp_path / name).read_text(encoding="utf-8")
    page = (tmp_path / "rate.html").read_text(encoding="utf-8")
    assert page.count("</script>") == 1
    assert "http" not in page.replace("http-equiv", "")
    rater = simulate(sheet, key, "Zoë", {})
    path = tmp_path / "ratings.json"
    path.write_text(json.dumps({"digest": sheet.digest, "rater": "Zoë", "answers": rater.answers}))
    assert read_ratings(path, sheet) == rater
    path.write_text("\ufeff" + path.read_text())  # as some editors of Windows write it
    assert read_ratings(path, sheet) == rater


def test_a_task_is_written_whole_or_not_at_all(tmp_path):
    sheet, key = make_sheet(SOURCES, OUTPUTS, "pairwise")
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "key.json").write_text("another task's")
    with pytest.raises(UserError, match=r"cannot write .*task"):
        write_task(tmp_path / "task", sheet, key)
    assert [path.name for path in tmp_path.rglob("*.*")] == ["key.json"]
    with pytest.raises(UserError, match=r"key\.json is no folder"):
        write_task(tmp_path / "task" / "key.json" / "deeper", sheet, key)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "does not hold ratings"),
        ("[]", "does not hold ratings"),
        ('{"digest": "0", "rater": "x", "answers": {}}', "another sheet"),
        ('{"digest": DIGEST, "rater": "x", "answers": {"999": "A"}}', "not in the sheet: 999"),
        ('{"digest": DIGEST, "rater": "x", "answers": {"001": 50}}', "item 001 has the answer 50"),
        ('{"digest": DIGEST, "rater": "x", "answers": {"001": 101}}', "does not hold ratings"),
        ('{"digest": DIGEST, "rater": "x", "answers": {"001": true}}', "does not hold ratings"),
        ('{"digest": DIGEST, "rater": "x", "answers": {"001": "C"}}', "should be 'A', 'B' or '='"),
        ('{"digest": DIGEST, "rater": "x", "answers": {}, "more": 1}', "does not hold ratings"),
    ],
)
def test_bad_ratings_get_one_clear_line(tmp_path, content, message):
    sheet, _ = make_sheet(SOURCES, OUTPUTS, "pairwise")
    path = tmp_path / "ratings.json"
    path.write_text(content.replace("DIGEST", f'"{sheet.digest}"'))
    with pytest.raises(UserError, match=message) as error:
        read_ratings(path, sheet)
    assert "\n" not in str(error.value)


def test_what_cannot_be_rated_is_refused():
    with pytest.raises(UserError, match="only 0 sentences differently"):
        make_sheet(SOURCES, {"a": OUTPUTS["good"], "b": OUTPUTS["good"]}, "pairwise")
    with pytest.raises(UserError, match="two systems"):
        make_sheet(SOURCES, {"a": OUTPUTS["good"]}, "pairwise")
    with pytest.raises(UserError, match="1 translations of 60 sources"):
        make_sheet(SOURCES, {"a": ["x"], "b": OUTPUTS["good"]}, "pairwise")
    sheet, key = make_sheet(SOURCES, OUTPUTS, "pairwise")
    with pytest.raises(UserError, match="no ratings"):
        report(sheet, key, [])
    _, other = make_sheet(SOURCES, OUTPUTS, "pairwise")
    rater = simulate(sheet, key, "x", {})
    with pytest.raises(UserError, match="the key belongs to another sheet"):
        report(sheet, other, [rater])
    with pytest.raises(UserError, match="two files of the rater x"):
        report(sheet, key, [rater, rater])


def buttons(widget):
    """All buttons of a form by their label."""
    found = {}
    for child in getattr(widget, "children", ()):
        found |= buttons(child)
    return found | ({widget.description: widget} if hasattr(widget, "on_click") else {})


def test_a_form_keeps_every_answer_and_goes_on_where_it_stopped(tmp_path):
    sheet, _ = make_sheet(SOURCES, OUTPUTS, "pairwise", sentences=3, repeated=0, degraded=0)
    path = tmp_path / "ratings.json"
    form = rating_form(sheet, "x", path)
    for label in ("A is better", "neither"):
        buttons(form)[label].click()
    first, second, third = (item.id for item in sheet.items)
    assert read_ratings(path, sheet) == Ratings(sheet.digest, "x", {first: "A", second: "="})
    with pytest.raises(UserError, match="has the ratings of x, not those of y"):
        rating_form(sheet, "y", path)
    again = rating_form(sheet, "x", path)
    assert again.children[1].value == "3 of 3, 2 answered"
    buttons(again)["B is better"].click()
    buttons(again)["Back"].click()
    buttons(again)["B is better"].click()
    assert read_ratings(path, sheet).answers == {first: "A", second: "B", third: "B"}


def test_a_form_for_single_translations_escapes_what_systems_say(tmp_path):
    outputs = {"a": ["<script>x</script>"] * 60, "b": OUTPUTS["bad"]}
    sheet, _ = make_sheet(SOURCES, outputs, "direct", sentences=2, repeated=0, degraded=0)
    path = tmp_path / "ratings.json"
    form = rating_form(sheet, "x", path)
    slider = form.children[3].children[0]
    for score, item in enumerate(sheet.items):
        assert "<script>" not in form.children[2].value
        slider.value = score
        buttons(form)["Rate"].click()
        assert read_ratings(path, sheet).answers[item.id] == score


@pytest.mark.parametrize("kind", ["pairwise", "direct"])
def test_a_damaged_translation_always_holds_strange_words(kind):
    """600 damaged items: none equals the undamaged one, none was damaged with its own words."""
    sources = [f"source {n}" for n in range(60)]
    words = [
        "the",
        "a",
        "dog",
        "cat",
        "sees",
        "hears",
        "old",
        "new",
        "house",
        "tree",
        "runs",
        "sits",
    ]
    random = Random(1)
    same = [" ".join(random.choices(words, k=random.randint(1, 6))) for _ in sources]
    outputs = {"one": [f"{t} eins" for t in same], "two": [f"{t} zwei" for t in same]}
    damaged = 0
    for seed in range(100):
        sheet, key = make_sheet(sources, outputs, kind, 20, repeated=0, degraded=6, seed=seed)
        for item in sheet.items:
            entry = key.entries[item.id]
            if entry.control != "degraded":
                continue
            damaged += 1
            right = {outputs[name][entry.sentence] for name in outputs}
            (wrong,) = [text for text in item.texts if text not in right]
            strange = [word for word in wrong.split() if word not in " ".join(right).split()]
            assert len(strange) >= max(1, len(wrong.split()) // 2), (wrong, right)
    assert damaged == 600


def test_too_few_sentences_are_refused_at_the_command_line():
    from typer.testing import CliRunner

    from transformer_lib.instructor.rating.commands import app

    result = CliRunner().invoke(app, ["make", "a", "b", "--sentences", "0"])
    assert result.exit_code == 2
    assert "sentences" in result.output
