"""Answers of strangers: right ones pass, wrong ones do not."""

import functools
import json
import linecache
import math
import sys
from pathlib import Path

import numpy
import pytest
import torch
from torch import Tensor, nn

from transformer_lib.course.checks import EXERCISES
from transformer_lib.course.checks.diagnosis import draw_trial, judge
from transformer_lib.course.checks.topics.tokens import split_words
from transformer_lib.vocabulary import BOS, EOS, PAD, UNK

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from answers import ANSWERS, TARGET, as_markdown

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

# What a notebook has imported or asked for with `mine` where an answer is written.
GIVEN = {
    **{name: exercise.reference for name, exercise in EXERCISES.items()},
    **{"PAD": PAD, "UNK": UNK, "BOS": BOS, "EOS": EOS, "math": math, "np": numpy, "torch": torch},
    **{"nn": nn, "F": nn.functional, "Tensor": Tensor, "split_words": split_words},
}


@functools.cache
def answers():
    lines = ANSWERS.read_text(encoding="utf-8").splitlines()
    return [{"place": n, **json.loads(line)} for n, line in enumerate(lines)]


def defined(answer):
    """What the student's cell defines, with the text of it at hand."""
    file, code = f"<answer {answer['place']}>", answer["code"]
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    names = {name: value for name, value in GIVEN.items() if name != answer["exercise"]}
    exec(compile(code, file, "exec"), names)
    return names[answer["exercise"]]


@pytest.mark.long
@pytest.mark.parametrize("name", EXERCISES)
def test_wrong_answers_fail_and_right_ones_pass(name):
    for seed in range(3):
        trial = draw_trial(EXERCISES[name], seed)
        for answer in answers():
            if answer["exercise"] == name:
                verdict = judge(defined(answer), trial, diagnose=False)
                right = answer["kind"] == "right"
                assert verdict.passed == right, (seed, answer["code"], repr(verdict))


def test_the_page_about_them_is_current():
    assert as_markdown() == TARGET.read_text(encoding="utf-8"), "run `make docs`"
