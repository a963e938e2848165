# ---
# jupyter:
#   jupytext:
#     notebook_metadata_filter: transformer_lib
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   transformer_lib:
#     library:
#     - data
#     - decoding
#     - device.py
#     - evaluation
#     - experiment
#     - files.py
#     - instructor/__init__.py
#     - instructor/rating
#     - metrics
#     - model
#     - pages.py
#     - plots
#     - progress.py
#     - randomness.py
#     - shown.py
#     - timing.py
#     - training
#     keeps_outputs: true
#     limits:
#       seconds: 60
# ---

# %% [markdown]
# # Assignment 5 · Transformer against RNN, English to German
#
# This is the final assignment. You train the model of 2017 and the one it replaced on the same text
# under the same budget, ask whether the difference in BLEU means anything, let people judge
# blindly, and explain what came out, whichever wins. You need chapters 13 and 15. Allow
# five hours of work, spread over a day because the machine trains in between.
#
# | task | what | points |
# |---|---|---|
# | 1 | BLEU with several references | 5 |
# | 2 | is it luck? | 4 |
# | 3 | where two curves cross | 5 |
# | 4 | the experiment | 10 |
# | 5 | what people say | 8 |
# | 6 | the explanation | 12 |
#
# **How it works.** Tasks 1 to 3 are functions, as in the other assignments: write your code where
# it says `# your code`. In tasks 1 and 2 `check(…)` tells you what is wrong, and gives points for
# the share of its properties that hold (none if shape, type or the ordinary values are wrong or a
# hidden test fails); there you may not call ready-made scores or significance tests, such as
# sacreBLEU's; the grader notes any such call. Task 3 has no `check`, and all of its points or none.
# Tasks 4 to 6 are graded by hand. They are not run again: what you see when you hand in is what is
# graded.
#
# **Without a GPU** you use the bundled corpus and a few minutes for each model; that is enough for
# a real result. **With a GPU**, take WMT14 and more time: write `wmt14_base_fast` and `wmt14_rnn`
# into `CONFIGS` in task 4. A step of `wmt14_base_fast` has 100,000 source tokens and a step of
# `wmt14_rnn` has 25,000, so hold tokens or minutes equal, not steps. (The page “Run it on your
# GPU”, `docs/gpu.md` of the course, says what this takes.) `transformer-lib train --help` lists the
# configurations; to make one of your own, write a small file.
#
# Hand in this one notebook, and do not rename it; `transformer-lib verify-submission
# experiment.ipynb` says whether it can be graded.

# %%
import math
import tempfile
from collections import Counter
from pathlib import Path

import torch

from transformer_lib.checks import check, run_test
from transformer_lib.experiment.config import load_config
from transformer_lib.evaluation.comparison import compare_runs
from transformer_lib.plots.curves import learning_curves
from transformer_lib.plots.notebook import show
from transformer_lib.instructor.rating import Ratings, make_sheet, read_ratings, report
from transformer_lib.instructor.rating.form import rating_form
from transformer_lib.experiment.run import load_run, train
from transformer_lib.training.metrics import read_metrics

# %% [markdown]
# ## 1 · BLEU with several references (5 points)
#
# A reference is one right translation of many. Where there are several references, BLEU can be
# fairer. Write `multi_bleu(hypotheses, references)`. It gets a list of sentences, each a list of
# tokens, and for each sentence a list of one or more references, which are lists of tokens as well.
#
# BLEU is defined as in chapter 13: 100 times the geometric mean of the four n-gram precisions,
# counted over the whole corpus, times exp(1 − r/h) if the output of length *h* is shorter than *r*.
# If there is not a single match for some *n*, it is 0. Two things are different:
#
# - An n-gram of the output counts as right at most as often as it occurs in the one reference that
#   has it most often.
# - *r* is a sum over the sentences: for each, the length of the reference that is closest in length
#   to the output (of two that are equally close, the shorter one).
#
# Return a number, not a tensor.

# %% answer="multi_bleu" ready_made="sacrebleu nltk torchmetrics evaluate"
def multi_bleu(hypotheses, references):
    ### BEGIN SOLUTION
    def grams(tokens, n):
        return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))

    log_precision = 0.0
    for n in range(1, 5):
        matches = total = 0
        for hypothesis, several in zip(hypotheses, references, strict=True):
            counts, allowed = grams(hypothesis, n), Counter()
            for reference in several:
                allowed |= grams(reference, n)
            matches += (counts & allowed).total()
            total += counts.total()
        if matches == 0:
            return 0.0
        log_precision += math.log(matches / total) / 4
    length, wanted = sum(map(len, hypotheses)), 0
    for hypothesis, several in zip(hypotheses, references, strict=True):
        wanted += min((abs(len(r) - len(hypothesis)), len(r)) for r in several)[1]
    return 100.0 * math.exp(log_precision + min(0.0, 1.0 - wanted / length))
    ### END SOLUTION

# %% test="test_multi_bleu" points=5
verdict = check(multi_bleu)
verdict
### BEGIN HIDDEN TESTS
from sacrebleu.metrics import BLEU

from transformer_lib.instructor.grading.values import expect

hypotheses = ["der Hund läuft in das rote Haus", "ein Haus ist rot", "ein Hund und ein Hund"]
references = [
    ["der Hund läuft in ein rotes Haus", "ein rotes Haus ist rot", "ein Hund, ein Haus"],
    ["in das rote Haus läuft der Hund", "das Haus ist rot und groß", "ein Hund und noch ein Hund"],
]
expected = BLEU(tokenize="none").corpus_score(hypotheses, references).score
several = [[one.split() for one in both] for both in zip(*references, strict=True)]
got = multi_bleu([h.split() for h in hypotheses], several)
expect(got, expected, "not what sacreBLEU gives")
5 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · Is it luck? (4 points)
#
# The bootstrap of chapter 13 draws sentences anew. Here is another test, **approximate
# randomization**: if the two systems were equally good, it would not matter which of them wrote
# which translation. So let them exchange their scores in about half of the sentences, drawn at
# random, and see how far apart their means are then.
#
# Write `randomization_p_value(scores_a, scores_b, swapped)`. It gets two tensors with a score for
# each sentence, and a boolean tensor with a row for each draw and a column for each sentence, True
# where the two scores are exchanged. Let c be the number of
# draws in which the means are at least as far apart as they are without any exchange, whichever
# system is ahead. Return the p-value, (c + 1) / (draws + 1), as a number.

# %% answer="randomization_p_value" ready_made="scipy sacrebleu"
def randomization_p_value(scores_a, scores_b, swapped):
    ### BEGIN SOLUTION
    difference = scores_a - scores_b
    apart = torch.where(swapped, -difference, difference).mean(dim=1).abs()
    as_far = (apart >= difference.mean().abs()).sum().item()
    return (as_far + 1) / (len(swapped) + 1)
    ### END SOLUTION

# %% test="test_randomization_p_value" points=4
verdict = check(randomization_p_value)
verdict
### BEGIN HIDDEN TESTS
4 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Where two curves cross (5 points)
#
# “Under the same budget” hides a question: how large a budget? Often one system is ahead early and
# the other one late. Write `crossing(budgets, scores_a, scores_b)`. It gets a list of rising
# budgets, and the scores of both systems at each of them, as lists. It returns the budget from
# which A is ahead of B **for good**:
#
# - between two measured points, by linear interpolation of both curves;
# - the first budget, if A is ahead at all of them;
# - `None`, if A is not ahead at the end.
#
# Ahead means strictly above; at the crossing itself the two are equal. Return a number, not a
# tensor (or `None`). There is no `check` for this one: write tests of your own; the visible one is
# only a start.

# %% answer="crossing"
def crossing(budgets, scores_a, scores_b):
    ### BEGIN SOLUTION
    gaps = [a - b for a, b in zip(scores_a, scores_b, strict=True)]
    if gaps[-1] <= 0:
        return None
    behind = [i for i, gap in enumerate(gaps) if gap <= 0]
    if not behind:
        return budgets[0]
    i = behind[-1]
    share = -gaps[i] / (gaps[i + 1] - gaps[i])
    return budgets[i] + share * (budgets[i + 1] - budgets[i])
    ### END SOLUTION

# %% test="test_crossing" points=5
def test_crossing():
    found = crossing([1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [15.0, 21.0, 25.0])
    assert found is not None, "not attempted yet, or a return is missing"
    assert not isinstance(found, torch.Tensor), "a number, not a tensor"
    assert 2 < found < 3, f"between the second and the third point, not at {found}"


verdict = run_test(test_crossing)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

assert verdict.passed
for budgets, ours, theirs, expected, says in (
    ([2, 6, 8], [1, 4, 9], [3, 5, 6], 6.5, "by linear interpolation of both"),
    ([1, 2], [5, 6], [4, 5], 1.0, "ahead from the start"),
    ([1, 2], [5, 4], [4, 5], None, "behind at the end"),
    ([1, 2], [5, 5], [4, 5], None, "equal at the end is not ahead"),
    ([1, 2, 3], [2, 1, 2], [1, 1, 1], 2.0, "equal on the way is not ahead"),
    ([1, 2, 3, 4], [2, 0, 0, 3], [1, 1, 1, 1], 10 / 3, "not ahead from the start for good"),
    ([1, 2, 3, 4], [0, 2, 0, 3], [1, 1, 1, 1], 10 / 3, "for good: the last crossing counts"),
):
    start, step, level, size = (1 + torch.rand(4, dtype=torch.double)).tolist()
    budgets = [start + step * budget for budget in budgets]
    curves = [[level + size * score for score in scores] for scores in (ours, theirs)]
    right = None if expected is None else start + step * expected
    expect(crossing(budgets, *curves), right, says)
### END HIDDEN TESTS

# %% [markdown] question="q_experiment"
# ## 4 · The experiment (10 points, graded by hand)
#
# Train a Transformer and an RNN with attention under the same budget. Say which kind of budget you
# hold equal (minutes, tokens or FLOPs), and make it equal. Then show
#
# 1. the learning curves of both;
# 2. their BLEU on the test set, with the signature;
# 3. whether the difference is significant;
# 4. where they cross: use your `crossing` on the validation scores, at budgets that both have (with
#    equal minutes, at the same shares of the budget).
#
# Name the budget and say what the p-value means in the cells, as printed sentences or comments.
#
# Keep the folders of the runs: `transformer-lib compare` writes a full report on them.
#
# These functions do the work:
#
# - `train(load_config(name, ["training.steps=2000"]), folder)` trains into a folder.
# - `read_metrics(folder)` returns the records of the training, with `step`, `seconds`, `tokens` and
#   `flops`, and with `bleu` where the model was validated.
# - `learning_curves({name: records, …})` draws them.
# - `compare_runs(run_a, run_b)` compares two runs that `load_run(folder)` has loaded. Of its
#   result, `as_text()` has scores, signatures and p-value, `test_set` the sources and references,
#   and `evaluations[0].hypotheses` the translations of the first run.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 3 | cell 1: both trained on the same data and vocabulary, one budget held equal and named |
# | 2 | cell 1: learning curves over the budget |
# | 2 | cell 2: BLEU of both with signature |
# | 2 | cell 2: significance, interpreted correctly |
# | 1 | cell 2: where they cross, or that they do not |
# ### END MARK SCHEME

# %%
CONFIGS = {"Transformer": "cpu_tatoeba_transformer", "RNN": "cpu_tatoeba_rnn"}

# %% manual="experiment_training" points=5 tags=["nbval-ignore-output"]
### BEGIN SOLUTION
# Equal tokens: these two draw the same batches, so equal steps are equal tokens.
STEPS = 20  # so that the notebook runs in a test; 2,000 and more give a translator

folder = Path(tempfile.mkdtemp())  # choose a folder of your own, so that you find the runs again
for name, config in CONFIGS.items():
    settings = [f"training.steps={STEPS}", "training.validations=2"]
    assert train(load_config(config, settings), folder / name), "interrupted: run this cell again"
metrics = {name: read_metrics(folder / name) for name in CONFIGS}
show(learning_curves(metrics), "Validation BLEU of both systems over time, tokens and FLOPs.")
### END SOLUTION

# %% manual="experiment_scores" points=5 tags=["nbval-ignore-output"]
### BEGIN SOLUTION
comparison = compare_runs(*(load_run(folder / name) for name in CONFIGS))
print(comparison.as_text())
of_each = [[r for r in metrics[name] if "bleu" in r] for name in CONFIGS]
tokens = [record["tokens"] for record in of_each[0]]
assert tokens == [record["tokens"] for record in of_each[1]], "not validated at the same tokens"
scores = ([record["bleu"] for record in records] for records in of_each)
print("tokens from which the Transformer is ahead:", crossing(tokens, *scores))
assert len(comparison.evaluations[0].hypotheses) == 1000
### END SOLUTION

# %% [markdown] question="q_people"
# ## 5 · What people say (8 points, graded by hand)
#
# 1. Draw twenty sentences or more with `make_sheet`.
# 2. Have at least one person judge them blindly, with `rating_form` here or on the page that
#    `transformer-lib rate make` writes.
# 3. Show the report.
# 4. In the text cell below, say how well the rater did on the control items (items that are
#    repeated or damaged on purpose), whether the judgment agrees with BLEU, and how many more
#    judgments would be needed for a certain answer.
#
# These functions do the work:
#
# - `make_sheet(sources, {name: translations, …}, "pairwise", sentences=20, references=references,
#   seed=1)` returns a sheet and its key; with a seed they are the same when you run the cell again.
# - `rating_form(sheet, rater, path)`, as the last line of a cell, asks the questions and keeps the
#   answers in a file.
# - `read_ratings(path, sheet)` reads that file.
# - `report(sheet, key, [ratings, …])` sums up; print its `as_text()`.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 4 | cell 1: a blind judgment of twenty sentences or more, with its report |
# | 1 | the control items: what the rater did with repeated and damaged ones |
# | 1 | the p-value or interval is interpreted correctly; agreement with BLEU |
# | 2 | how many more: the interval shrinks with the square root of the number |
# ### END MARK SCHEME

# %% manual="people_report" points=4 tags=["nbval-ignore-output"]
### BEGIN SOLUTION
outputs = {name: e.hypotheses for name, e in zip(CONFIGS, comparison.evaluations, strict=True)}
test = comparison.test_set
settings = {"sentences": 20, "references": test.references, "seed": 1}
sheet, key = make_sheet(test.sources, outputs, "pairwise", **settings)
form = rating_form(sheet, "me", folder / "ratings.json")  # display(form), and answer


# So that this notebook runs without a human, a stand-in prefers what has more letters in common
# with the reference. You are asked for a human.
def stand_in(item):
    reference = dict(zip(test.sources, test.references, strict=True))
    letters = Counter(reference[item.source][0])
    a, b = ((Counter(text) & letters).total() - len(text) / 2 for text in item.texts)
    return "=" if a == b else "A" if a > b else "B"


ratings = Ratings(sheet.digest, "stand-in", {item.id: stand_in(item) for item in sheet.items})
judged = report(sheet, key, [ratings])
print(judged.as_text())
assert judged.sentences == 20
### END SOLUTION

# %% [markdown] manual="people_words" points=4
# The stand-in answers repeated items alike, as a program must, but may overlook a damaged one: it
# only counts letters. A human who did so should not be counted, and this judgment is worth no more
# than its rater. Twenty sentences give an interval of about ± 0.3 around the difference in
# preference, so only a large difference could be certain. The interval shrinks with the square root
# of the number: half the width takes four times as many judgments. For a difference of 0.1 to be
# certain, ± 0.3 must become ± 0.1: nine times as many, 180 sentences. The correlation with sentence
# BLEU is weak: on single sentences BLEU says little, above all where the reference says the same
# thing differently.

# %% [markdown] question="q_explanation"
# ## 6 · The explanation (12 points, graded by hand)
#
# Write one page:
#
# 1. What did you do, what came out, and **why**? Consider how many tokens, minutes and FLOPs each
#    model used, the shape of the curves, how long the sentences are, and what the machine is good
#    at.
# 2. Argue against yourself: name at least three things that could be wrong with your result
#    (threats to validity: seeds, tuning, test set, metric), and what each could change.
# 3. Say what you would expect on the 4.5 million pairs of WMT14 (or, if you trained on them,
#    compare your result), where the paper reports 27.3 BLEU for the base model against 24.6 for
#    GNMT, a deep RNN, and 26.0 for an RNN with a mixture of experts.
#
# `explain(run)` of `transformer_lib.evaluation.explain`, or `transformer-lib evaluate RUN
# --explain`, helps with the first: it measures how much the way of counting and the search change
# your BLEU, and says where the training departs from the paper.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 2 | what was done and what came out, so that somebody else could do it again |
# | 4 | reasons, 1 each, that fit numbers of the student's own run: tokens seen, parallel work, length of the sentences, size of the data, … |
# | 3 | at least three threats to validity, 1 each, with what it could change |
# | 3 | an expectation for WMT14 with reasons: scale, length, training time on GPUs |
# ### END MARK SCHEME

# %% [markdown] manual="explanation" points=12
# Both models were trained on the same sentences and pieces for three minutes each, on two cores of
# an AMD EPYC (`make train-demo`; the cells above train twenty steps only). The Transformer reaches
# 54.0 BLEU and the RNN 53.0, with all references; the difference of 1.0 points is within what
# chance gives with 1,000 sentences (p = 0.22). In this time the RNN sees 6.7 million tokens and the
# Transformer 5.0. Only a part of that is because the RNN needs a tenth fewer operations per token
# (6.8 million against 7.5); the rest must be in how fast this machine runs the operations of each.
# And the RNN needs less to begin: the order of words is built into it, and short sentences are easy
# for it. After half a minute it is ahead, 34 to 30 on the validation sentences. The Transformer
# must first learn from its positions what word order is, but gains more from each token: attention
# reaches any word in one step. With a quarter of an hour I expect it ahead by a point or so, as
# in chapter 15.
#
# What could be wrong: one seed each, and single runs differ by a point or two; the learning rates
# were tuned by the course, more for one than for the other, perhaps; the test sentences come from
# the same source as the training data and are short; most sentences have one reference only, and a
# good paraphrase counts as an error; and minutes on this machine are not minutes on another.
#
# On WMT14 I expect the Transformer ahead, as in the paper. The sentences are several times as long,
# so the path between distant words matters; there is enough text to learn an order from; and on a
# GPU all positions are worked on at once, while an RNN has to wait for each one before the next.

# %% [markdown]
# ## If you want to go on: the best translator in three minutes
#
# For no points, but for a place in a table: the leaderboard (`leaderboard/README.md` of the course)
# gives every entry the time of 2,000 reference steps on its machine, three seeds, and the same test
# set. `cpu_tatoeba_transformer` is in the table. Above it is `cpu_tatoeba_fast`, with the same
# sizes, but with matrices trained by Muon, and with word tables that start from counts of the words
# that occur together in sentence pairs and are kept small by weight decay. In first place is a
# program that changes nothing in this training, but looks things up in the training text while it
# translates. What else helps? Change one thing, run three seeds, and keep it only if they say so.

# %% [markdown]
# Done? Save, and run `transformer-lib verify-submission experiment.ipynb` before you hand in the
# file.
