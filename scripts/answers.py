"""Write docs/answers.md: what the checks said to answers that their authors had not seen."""

import json
from collections import Counter
from pathlib import Path

from transformer_lib.course.checks import EXERCISES
from transformer_lib.files import write_text

ROOT = Path(__file__).parent.parent
ANSWERS = ROOT / "tests" / "answers.jsonl"
TARGET = ROOT / "docs" / "answers.md"
VERDICTS = ("named", "leads there", "misleads", "no help", "accepted")

INTRODUCTION = """\
# What the checks say to answers that nobody had seen before

The bank of known mistakes is recognized by construction: `docs/mutation.md` shows that. What counts
for a student is an answer that no author of the checks has thought of. So answers were written by
language models that saw an exercise only as a student sees it, its text and its empty function, and
that were told to make the mistakes that students make, one or at times two in an answer, and to
write right answers in unusual ways. Every answer went through `check` once. Other language models,
who knew the mistake and saw what the student would see, put each verdict on a wrong answer into one
of five classes:

- **named**: the mistake is named, or said in so many words, or the line with it is;
- **leads there**: what is shown leads a student who thinks to the mistake;
- **misleads**: it points at something else;
- **no help**: numbers differ, and nothing more;
- **accepted**, though it is wrong.

The classes are those of the first verdict. What a round revealed was mended before the next, so
that a later round met better checks.

- Rounds 1 to 3 were about the exercises of the first edition, rounds 4 to 6 about {young} that
  came later, among them the assignments' own. No stranger had met their checks before.
- Round 6 tried {again} of these again, after all those repairs, and round 7 did so with {older}
  of the others.
- In round 8 four authors wrote, for {eighth} exercises old and new, as four kinds of students:
  one who comes from another framework, one who adapts published code, a careful beginner, and an
  engineer who likes tricks.
- Round 9 was about the {largest} largest exercises and round 10 about {smaller} others; the
  authors were also shown the whole section of the chapter before each.
- Round 11 was about {newest} exercises of chapters 13 to 16 that had just been written, five wrong
  answers and two right ones to each, by authors who were shown as much. (One right answer was
  refused, and two wrong ones for the same reason: the check demanded double precision.)
- Round 12 tried {latest} exercises once more, with two wrong answers and a right one to each, by
  authors who were shown the section, or where it was long the part of it with the exercise. (The
  answers to three more were set aside: their text needs cells from further above.)
- Round 13 was about a new exercise, `mixture_of_experts`, and one whose check had been extended,
  `mended_block`. One author wrote, and its verdicts were put into classes by whoever wrote the
  check.
- Round 14 was about the seven exercises of chapter 17, five wrong answers and two right ones to
  each by two authors, who were shown the chapter without its results. Its verdicts, too, were put
  into classes by whoever wrote the checks. (In seven answers of one author a part was made a
  module, as chapter 10 has it, before they were judged.)
- Round 15 was about the three tasks of assignment 6 that have a check, five wrong answers and two
  right ones to each by each of two authors, who were shown the tasks as students get them. Its
  verdicts, too, were put into classes by whoever wrote the checks.
- Round 16 tried {few} exercises that had met the fewest strangers, with four wrong answers, one of
  them hard to see, and a right one to each, by one author who was shown the chapter or the
  assignment.

In rounds 3 and 5 mistakes were asked for that a check is likely to miss: right in ordinary cases,
or not the first that comes to mind. The same was asked of every third mistake in round 8 and of
every fifth in round 9. (The authors of the answers to one more exercise in round 7, to five in
round 8 and to one in round 9 had been given only half of the text, and these answers were set
aside. In four answers of round 8 the call of `self_attention`, which the text should have
described, was corrected before they were judged.)

In rounds 8 to 16, {named} of {late} wrong answers ({share:.0%}) were named and {leads} led there;
{misleads} misled, {nothing} were of no help, and {accepted} were accepted. The sums below include
round 5, whose mistakes were chosen to be missed.

One answer of round 4 ended the kernel that its check ran in, since one of the changes with which
a check looks for the faulty place made it crash. It is counted as no help; on Linux without a
GPU, changed programs now run in a process of their own.

Eight answers that their authors meant to be wrong are right by the wording of the exercise, and
two that were meant to be right are wrong; they are counted as what they are. The classes were given
by language models alone. The answers with their classes are in `tests/answers.jsonl`; a test
tries all of them with today's checks and demands that every right one passes and no wrong one
does. All {checks} checks of functions and classes were tried in this way; those of the three
experiments, which judge measurements, were not.
"""


def as_markdown() -> str:
    """The page."""
    answers = [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]
    rounds = sorted({answer["round"] for answer in answers})
    exercises = sorted({answer["exercise"] for answer in answers})
    assert set(exercises) == set(EXERCISES), "an exercise that no stranger has met"

    def tried(*numbers: int) -> int:
        return len({answer["exercise"] for answer in answers if answer["round"] in numbers})

    late = Counter(answer["verdict"] for answer in answers if answer["round"] >= 8)
    wrong = sum(late[verdict] for verdict in VERDICTS)
    introduction = INTRODUCTION.format(
        checks=len(EXERCISES),
        young=tried(4, 5, 6),
        again=tried(6),
        older=tried(7),
        eighth=tried(8),
        largest=tried(9),
        smaller=tried(10),
        newest=tried(11),
        latest=tried(12),
        few=tried(16),
        late=wrong,
        named=late["named"],
        share=late["named"] / wrong,
        leads=late["leads there"],
        misleads=late["misleads"],
        nothing=late["no help"],
        accepted=late["accepted"],
    )
    lines = [introduction, *_table("round", "round", rounds, answers)]
    lines += ["", *_table("exercise", "exercise", exercises, answers), ""]
    return "\n".join(lines)


def _table(title: str, field: str, values: list, answers: list[dict]) -> list[str]:
    lines = [f"| {title} | wrong answers | {' | '.join(VERDICTS)} | right answers | refused |"]
    lines += ["|" + "---|" * (len(VERDICTS) + 4)]
    for value in values:
        name = f"`{value}`" if field == "exercise" else str(value)
        lines.append(_row(name, [answer for answer in answers if answer[field] == value]))
    return [*lines, _row("**all**", answers)]


def _row(name: str, answers: list[dict]) -> str:
    counts = Counter(answer["verdict"] for answer in answers)
    wrong = sum(counts[verdict] for verdict in VERDICTS)
    numbers = [wrong, *(counts[verdict] for verdict in VERDICTS)]
    numbers += [counts["passed"] + counts["refused"], counts["refused"]]
    return f"| {name} | {' | '.join(map(str, numbers))} |"


if __name__ == "__main__":
    write_text(TARGET, as_markdown())
