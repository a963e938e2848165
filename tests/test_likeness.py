"""Likeness: what changes nothing is seen through, copies stand out, and the page is safe."""

import sys
from pathlib import Path

import nbformat
import pytest
from grading_help import SOLVED, hand_in, submission

from transformer_lib.errors import UserError
from transformer_lib.instructor.likeness.comparison import STANDS_OUT, compare
from transformer_lib.instructor.likeness.report import write_likeness
from transformer_lib.instructor.likeness.traits import (
    Work,
    marked_code,
    marked_words,
    traits,
)

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from likeness import ASSIGNMENTS, LEVELS, measured, read_class, released, renamed


def of_code(source):
    return traits(Work("x", {"answer": source}, {}))


SAME = [
    ("w = q @ k.mT / 8", "scores = torch.matmul(query, key.mT) / 8"),
    ("m = a & (b | c)", "keep = (near | first) & old"),
    ("m = ~a & (b | c)", "keep = torch.logical_not(x).logical_and(near | first)"),
    ("y = x.softmax(dim=-1) * 2 + z", "out = z + 2 * torch.softmax(t, dim=-1)"),
    ("ok = place[:, None] >= place[None, :]", "allowed = i[None, :] <= i[:, None]"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_names_order_of_operands_and_ways_to_call_make_no_difference(one, other):
    assert of_code(one)["trees"] == of_code(other)["trees"] != {}


def test_comments_and_names_are_no_traits_of_tokens():
    plain = "def f(x, y):\n    total = x * y + 3\n    return total.sum(dim=-1)\n"
    other = "# mine\ndef f(a, b):\n    s = a * b + 3  # product\n    return s.sum(dim=-1)\n"
    assert of_code(plain)["tokens"] == of_code(other)["tokens"] != {}
    assert of_code("def f(:")["trees"] == {}, "what is no Python has tokens alone"


def test_what_is_not_seen_makes_no_difference():
    """Characters without a width, letters that look like others, and code in a text."""
    code = "def f(x, y):\n    total = x * y + 3\n    return total.sum(dim=-1)\n"
    hidden = of_code(f"exec({code!r})")
    assert all(of_code(code)[kind].items() <= hidden[kind].items() for kind in ("tokens", "trees"))
    said = "The mask hides 4,096 scores, which would be peeked at otherwise."
    odd = said.replace("a", "а").replace("o", "ο").replace("s", "s\u200c").replace("4", "\u20664")
    assert odd != said
    assert traits(Work("x", {}, {"a": said})) == traits(Work("x", {}, {"a": odd}))
    assert of_code('x = "first\\nsecond line: of words"')["trees"] == {}


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_copies_stand_out_and_independent_work_hardly_ever(assignment):
    """The figures of docs/likeness.md, with room for changes of the method."""
    found, independent = measured(assignment)
    share = {level: sum(t >= STANDS_OUT for t in found[level]) / len(found[level])
             for level in LEVELS}  # fmt: skip
    assert share["renamed"] == share["light"] == 1
    assert share["medium"] >= 0.6
    wrongly = sum(pair.total >= STANDS_OUT for pair in independent)
    assert wrongly <= 0.02 * len(independent)


def test_an_earlier_cohort_is_compared_with_the_class_and_not_with_itself():
    works, _ = read_class("3_norms")
    now, before = works[:8], [renamed(works[0], 0), renamed(works[1], 1), works[9]]
    pairs = compare(now, released("3_norms"), before)
    assert len(pairs) == 8 * 7 // 2 + 8 * 3
    assert {(p.a.student, p.b.student) for p in pairs[:2]} == {
        (works[n].student, f"renamed {works[n].student}") for n in (0, 1)
    }
    assert not {p.a.student for p in pairs} & {work.student for work in before}


def test_what_half_of_a_class_has_copied_word_for_word_is_listed():
    """What many share is usual in their class; to be the same is not."""
    works, _ = read_class("2_attention")
    ring = [Work(f"copy {n}", dict(works[1].code), dict(works[1].words)) for n in range(7)]
    ring[0].words.update({name: f"{text}\n " for name, text in ring[0].words.items()})
    pairs = compare([*works[:6], *ring], released("2_attention"))
    names = {works[1].student, *(work.student for work in ring)}
    same = [{pair.a.student, pair.b.student} for pair in pairs if pair.is_same]
    assert len(same) == 8 * 7 // 2
    assert set().union(*same) == names
    assert all(pair.stands_out for pair in pairs[: len(same)])


def test_what_everybody_was_given_counts_for_nothing():
    given = Work("released", {"a": "import torch\nx = torch.arange(12).view(3, 4) + 7"},
                 {"t": "Explain what a mask of 1234 positions does to the softmax."})  # fmt: skip
    works = [Work(str(n), dict(given.code), dict(given.words)) for n in range(4)]
    assert all(pair.total == 0 for pair in compare(works, given))


def test_rare_numbers_that_two_share_are_named_with_how_many_have_them():
    given = Work("released", {}, {"t": "n is 1711"})
    answers = ["72,308 of 1711", "It is 72308.", "109718", "100878 and 3.14", "100878", "nothing"]
    pairs = compare([Work(str(n), {}, {"t": a}) for n, a in enumerate(answers)], given)
    shared = {(p.a.student, p.b.student): p.numbers for p in pairs if p.numbers}
    assert shared == {("0", "1"): {"72308": 2}, ("3", "4"): {"100878": 2}}


def test_lines_and_words_that_are_alike_are_marked():
    mine, theirs = "a = q @ k\nprint(a)\nreturn a.sum(dim=1)", "def f():\n    return b.sum(dim=1)"
    lines = marked_code(mine, theirs)
    assert [same for _, same in lines] == [False, False, True]
    assert "".join(text for text, _ in lines).splitlines()[0] == "a = q @ k"
    assert not any(same for _, same in marked_code(mine, theirs, "    return c.sum(dim=1)"))
    words = marked_words("So, a large score takes it all.", "Because A LARGE SCORE takes over")
    assert "".join(text for text, _ in words) == "So, a large score takes it all."
    assert [text for text, same in words if same] == ["large", "score", "takes"]


def test_the_page_shows_pairs_and_runs_nothing(course, template, tmp_path):
    evil = "<script>alert(1)</script> a very particular sentence about 987654 masks \u202e"
    texts = {"ada": evil, "ben": evil, "cy": "Other words.", "dee": "Why not?", "hal": "My guess."}
    for student, why in texts.items():
        hand_in(course, student, submission(template, **SOLVED | {"why": why}))
    hand_in(course, "eli", "{not json")
    hand_in(course, "fay", template)
    pairs = write_likeness(course, "small", tmp_path / "page.html")
    assert (pairs[0].a.student, pairs[0].b.student) == ("ada", "ben")
    page = (tmp_path / "page.html").read_text()
    assert "5 hand-ins" in page, "who answered nothing is not compared"
    assert "987654 (2)" in page
    assert "<script>alert" not in page
    assert "\u202e" not in page
    other = tmp_path / "2025" / "zoe" / "small"
    other.mkdir(parents=True)
    other.joinpath("small.ipynb").write_text(
        nbformat.writes(submission(template, **SOLVED | {"why": evil})))  # fmt: skip
    pairs = write_likeness(course, "small", tmp_path / "page.html", [tmp_path / "2025"])
    assert "cohort 1: zoe" in {pair.b.student for pair in pairs}
    with pytest.raises(UserError, match="has no hand-ins STUDENT/small"):
        write_likeness(course, "small", tmp_path / "page.html", [tmp_path / "none"])


def test_no_pair_that_stands_out_is_left_out(course, template, tmp_path):
    """A ring of eleven has 55 pairs, and another two are still named."""
    evil = "a very particular sentence about 987654 masks and their own odd words"
    other = "something wholly different, 12345, that nobody else would ever write like that"
    texts = {f"ring{n:02d}": evil for n in range(11)} | {"ada": other, "ben": other}
    texts |= {f"own{n:02d}": f"{n} plain words {n * 37}." for n in range(30)}
    for student, why in texts.items():
        hand_in(course, student, submission(template, **SOLVED | {"why": why}))
    pairs = write_likeness(course, "small", tmp_path / "page.html")
    assert len(pairs) == 56
    page = (tmp_path / "page.html").read_text()
    assert "Standing out: 56, of which the 40 most alike are shown" in page
    assert page.count("<h2>") == 41
    for pair in pairs:
        assert f"{pair.a.student} and {pair.b.student}" in page


def test_code_that_is_too_deep_is_compared_by_its_tokens():
    assert of_code("x = " + "-" * 3000 + "1")["tokens"]
    assert of_code("x = " + "+".join("1" * 9000))["tokens"]


def test_odd_code_of_a_student_is_not_talked_about(recwarn):
    assert of_code("x = '\\d' + \"\\w\" + y.view(-1, 3).sum(dim=1)")["trees"]
    assert not recwarn.list


def test_two_hand_ins_are_no_class(course, template, tmp_path):
    for student in ("ada", "ben"):
        hand_in(course, student, submission(template, **SOLVED))
    with pytest.raises(UserError, match="2 hand-ins of small have answers: too few"):
        write_likeness(course, "small", tmp_path / "page.html")
