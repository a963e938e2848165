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
#     - plots
# ---

# %% [markdown]
# # Assignment 1 · Positions and embeddings
#
# In the chapters you built the paper's positional encoding. Other models encode positions in other
# ways: by relative offsets, by tables that are learned, by positions between the whole numbers. You
# build three such encodings, draw the sinusoids with a base of your own, and answer two questions.
# You need chapters 3 and 4. Allow about three hours.
#
# | task | what | points |
# |---|---|---|
# | 1 | scores with relative positions | 7 |
# | 2 | three tables in one sum | 2 |
# | 3 | positions that are learned | 4 |
# | 4 | positions in between | 5 |
# | 5 | a base of your own | 8 |
# | 6 | two questions | 6 |
#
# **How it works.** Write your code where it says `# your code`. Then run the cell below it:
# `check(…)` tries your function on new numbers each time and tells you what is wrong, if anything
# is. Where there is no `check`, the visible test looks at a few things only, so add tests of your
# own. The grader runs the same tests and more. A `check` gives points for the share of its
# properties that hold, and none if shape, type or the ordinary values are wrong or a hidden test
# fails; a test without `check` gives all of its points or none.
#
# The grader also runs the cells again that are graded by hand: without a network, for 30 seconds
# each, and with no more of `transformer_lib` than `personal` and `plots`.
#
# Hand in this one notebook, and do not rename it; `transformer-lib verify-submission
# positions.ipynb` says whether it can be graded.

# %%
import math

import matplotlib.pyplot as plt
import torch

from transformer_lib.checks import check, run_test
from transformer_lib.personal import personal_number

# %% [markdown]
# Some tasks use numbers of your own, which are computed from your user name: the one under which
# you hand in. Put it between the quotes. (If you work by yourself, any name will do.)

# %% personal=true
COHORT = "self-study"
STUDENT = "..."  # your user name
NUMBER = personal_number(STUDENT, COHORT)
NUMBER

# %% [markdown]
# ## 1 · Scores with relative positions (7 points)
#
# Instead of adding positions to the words, you can tell attention *how far apart* two words are
# (Shaw et al. 2018, equation 4). A table has a row for each offset of the key from the query, from
# −r to r, where r is the *reach* of the table; larger offsets share the outermost rows. The score
# of query *i* and key
# *j* is
#
# $$s_{ij} = \frac{q_i \cdot \left(k_j + a_{\text{clip}(j - i,\,-r,\,r)}\right)}{\sqrt{d_k}}$$
#
# `query` and `key` are (batch, heads, length, d_k), `table` is (2r + 1, d_k), and its row 0 belongs
# to the offset −r. Return the scores, (batch, heads, length, length), before the softmax.

# %% answer="relative_scores"
def relative_scores(query, key, table):
    ### BEGIN SOLUTION
    length, reach = query.size(2), table.size(0) // 2
    place = torch.arange(length)
    offset = (place[None, :] - place[:, None]).clamp(-reach, reach) + reach
    relative = torch.einsum("bhqd,qkd->bhqk", query, table[offset])
    return (query @ key.transpose(-2, -1) + relative) / math.sqrt(query.size(-1))
    ### END SOLUTION

# %% test="test_relative_scores" points=7
verdict = check(relative_scores)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

query, key = torch.randn(2, 1, 2, 6, 4)
plain = query @ key.transpose(-2, -1) / 2
expect(relative_scores(query, key, torch.zeros(5, 4)), plain, "without a table, plain scores")
one = torch.zeros(1, 1, 6, 4)
one[:, :, 2] = torch.tensor([2.0, 0, 0, 0])
table = torch.randn(5, 4)
rows = torch.zeros(1, 1, 6, 6)
rows[0, 0, 2] = table[[0, 1, 2, 3, 4, 4], 0]
expect(relative_scores(one, torch.zeros_like(one), table), rows, "only the offset counts")
7 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · Three tables in one sum (2 points)
#
# BERT reads two sentences at once and has to tell them apart. Its first layer adds three rows for
# each token: one from a table of words, one from a table of positions, and one from a table of two
# *segments*, the first and the second sentence.
#
# `tokens` and `segments` are (batch, length). `table` is (vocab_size, d_model); `positions` is
# (max_len, d_model), and a sentence uses its first rows; `segment_table` is (2, d_model). Return
# the sum, (batch, length, d_model). BERT has no factor √d_model. (Its norm and dropout come after
# the sum and are left out here.)

# %% answer="embed_with_segments"
def embed_with_segments(tokens, segments, table, positions, segment_table):
    ### BEGIN SOLUTION
    return table[tokens] + positions[: tokens.size(1)] + segment_table[segments]
    ### END SOLUTION

# %% test="test_embed_with_segments" points=2
verdict = check(embed_with_segments)
verdict
### BEGIN HIDDEN TESTS
2 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Positions that are learned (4 points)
#
# Write `add_learned_positions(x, table, start)`. It returns `x`, (batch, length, d_model), plus the
# rows of `table`, (max_len, d_model), from row `start` on. For example, when a decoder writes its
# sixth word, `x` is one position long and `start` is 5. Past the end of the table, use its last
# row.

# %% answer="add_learned_positions"
def add_learned_positions(x, table, start):
    ### BEGIN SOLUTION
    position = torch.arange(start, start + x.size(1)).clamp(max=table.size(0) - 1)
    return x + table[position]
    ### END SOLUTION

# %% test="test_add_learned_positions" points=4
verdict = check(add_learned_positions)
verdict
### BEGIN HIDDEN TESTS
4 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Positions in between (5 points)
#
# A model has been trained on texts of up to `trained` tokens and is then given a longer one.
# **Position interpolation** (Chen et al. 2023, for rotary positions) keeps all positions within the
# range seen in training: they are multiplied by trained / length, so that the last one stays below
# `trained`. A text of at most `trained` tokens keeps its positions.
#
# Write `interpolated_encoding(length, d_model, trained)`. It returns a table, (length, d_model) in
# single precision (float32), with the paper's sines and cosines at those positions:
#
# $$PE_{p,\,2i} = \sin\left(p / 10000^{2i/d_{model}}\right) \qquad
# PE_{p,\,2i+1} = \cos\left(p / 10000^{2i/d_{model}}\right)$$

# %% answer="interpolated_encoding"
def interpolated_encoding(length, d_model, trained):
    ### BEGIN SOLUTION
    position = torch.arange(length, dtype=torch.float64) * min(1.0, trained / length)
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = position[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()
    ### END SOLUTION

# %% [markdown]
# There is no `check` for this one: write tests of your own; these are only a start.

# %% test="test_interpolated_encoding" points=5
def test_interpolated_encoding():
    encoding = interpolated_encoding(4, 6, 10)
    assert encoding is not None, "not attempted yet, or a return is missing"
    assert encoding.shape == (4, 6), f"the shape is {tuple(encoding.shape)}"
    assert encoding.dtype == torch.float32, f"its type is {encoding.dtype}"
    first = torch.tensor([math.sin(1), math.cos(1)])
    assert torch.allclose(encoding[0, 1::2], torch.ones(3), atol=1e-6), "odd places are cosines"
    assert torch.allclose(encoding[1, :2], first, atol=1e-5), "a short text keeps its positions"
    twice = interpolated_encoding(8, 6, 4)
    assert torch.allclose(twice[2, :2], first, atol=1e-5), "in twice the length, 2 is in place 1"


verdict = run_test(test_interpolated_encoding)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

assert verdict.passed
cases = {
    (20, 8, 20): "a text of the trained length keeps its positions",
    (7, 6, 20): "a short text keeps its positions",
    (40, 8, 20): "in twice the trained length, position 2n has the encoding of position n",
    (30, 8, 10): "the last position of 30, trained on 10, is 29/3",
}
for (length, width, trained), says in cases.items():
    place = torch.arange(length) * min(1.0, trained / length)
    angle = place[:, None] / 10000.0 ** (torch.arange(0, width, 2) / width)
    expected = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
    expect(interpolated_encoding(length, width, trained), expected, says, atol=1e-4)
### END HIDDEN TESTS

# %% [markdown] question="q_base"
# ## 5 · A base of your own (8 points, graded by hand)
#
# Let *B* be 1,000 plus ten times the last four digits of your `NUMBER`. Take 400 positions of 256
# channels.
#
# 1. For each of the bases 10², 10³, 10⁴, 10⁵ and *B*, compute the dot products of position 0 with
#    all positions, and find and print the first distance at which the product is below half of its
#    value at distance 0.
# 2. Draw two panels. One shows the products over the distance, with a line for 10⁴ and a line for
#    *B*; the other shows the five distances over the base, both axes logarithmic, with your *B*
#    marked.
# 3. In the text cell below, give your *B* and its distance, and explain with the formula why the
#    lines have their shape. Say how the distance grows with the base: roughly as what power, as far
#    as five points can tell, and why.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 2 | cell 1: both panels, axes labeled, with the student's own base, {{ f"{1000 + 10 * (NUMBER % 10_000):,}" }} |
# | 2 | cell 1: the five distances are right for these bases, the first ones below half: 5, 17, 53, 122, and for *B* {{ next(k for k in range(400) if sum(math.cos(k * (1000 + 10 * (NUMBER % 10_000)) ** (-i / 128)) for i in range(128)) < 64) }} |
# | 1 | the distance for *B* in the text agrees with the student's own figure |
# | 1 | the product is the sum of cos(distance · frequency): only the distance counts; fast waves cancel |
# | 2 | about the square root: tenfold base, about threefold distance (5, 17, 53; then 122, the line ripples); frequencies lie evenly on a logarithmic scale, so half of them have turned when distance² is of the size of the base |
# ### END MARK SCHEME

# %% manual="base_figure" points=4
### BEGIN SOLUTION
def products(base, length=400, d_model=256):
    frequency = base ** (-torch.arange(0, d_model, 2) / d_model)
    angle = torch.arange(length)[:, None] * frequency
    encoding = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
    return encoding @ encoding[0]


B = 1000.0 + 10 * (NUMBER % 10_000)
bases = [1e2, 1e3, 1e4, 1e5, B]
distances = [(products(base) < 64).nonzero()[0].item() for base in bases]  # 128 at distance 0
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
for base in (1e4, B):
    left.plot(products(base), label=f"base {base:,.0f}")
left.axhline(64, linestyle=":", color="gray")
left.set(xlabel="distance", ylabel="dot product")
left.legend()
right.loglog(bases[:4], distances[:4], "o-")
right.loglog(B, distances[4], "s", label=f"B = {B:,.0f}")
right.set(xlabel="base", ylabel="first distance below half")
right.legend()
print({f"{base:,.0f}": distance for base, distance in zip(bases, distances, strict=True)})
### END SOLUTION

# %% [markdown] manual="base_words" points=4
# My B is 60,890 and its distance 109. The product of two positions p and q is the sum of
# sin(pω)·sin(qω) + cos(pω)·cos(qω) = cos((p − q)ω) over all frequencies ω, so it depends on the
# distance alone. At distance 0 all 128 terms are 1. The fast waves are out of step after a few
# positions and cancel; the slow ones still agree, so the line falls quickly at first and then
# slowly, with ripples. From 10² to 10⁴ each tenfold base makes the distance about three times as
# large, which is a power of one half: √10 is 3.2. The frequencies are spaced evenly on a
# logarithmic scale from 1 to 1/base, and a wave is out of step when distance · ω is about 1. Half
# of the waves are out of step when the distance is the square root of the base, up to a factor. The
# step to 10⁵ is smaller: there the line falls below half early, in one of its ripples, so I would
# not trust the first crossing to better than that.

# %% [markdown] question="q_questions"
# ## 6 · Two questions (6 points, graded by hand)
#
# **a.** A friend multiplies the *sum* of embedding and position by √d_model instead of the
# embedding alone. The embedding table starts with a standard deviation of 1/√d_model, and d_model
# is 16 times the sum of the digits of your `NUMBER`. Give the sizes (root mean squares) of the word
# and of the position in both sums, as numbers, and say which of the two is hard to recover from
# your friend's sum.
#
# **b.** You have a translator with relative positions of reach 16 (task 1), one with a learned
# table of 64 rows (task 3) and one with sinusoids, all trained on sentences of up to 40 tokens. A
# sentence of 80 arrives. For each of the three: what happens technically, and what quality do you
# expect of the translation? Which of your three expectations are you least sure of, and how would
# you test it?
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 1 | a: right: word 1, position about 0.7; with the student's own d_model, {{ 16 * sum(map(int, str(NUMBER))) }} |
# | 1 | a: friend: word (1/√d_model)·√d_model = 1 as well, position 0.7·√d_model, as a number: {{ round(math.sqrt(8 * sum(map(int, str(NUMBER)))), 1) }} |
# | 1 | a: the word drowns in the position |
# | 1 | b: relative: all offsets beyond 16 share a row, nothing new appears |
# | 1 | b: table (½): rows 41 to 64 were never trained, beyond that one row for all; sinusoids (½): computable, never seen |
# | 1 | b: an expectation of the quality for each, an honest doubt, and a test that could refute the expectation |
# ### END MARK SCHEME

# %% [markdown] manual="factor" points=3
# **a.** With a sum of 40, d_model is 640. A number of the table has size 1/√640 = 0.040; times √640
# it is 1, beside a position of 0.71: both can be read. My friend's sum has the word at 1, too, but
# the position at 0.71 · √640 = 17.9. The word is a nineteenth of the whole, and the model has to
# find out which word it is from the last digits, so to speak.

# %% [markdown] manual="longer" points=3
# **b.** With relative positions every offset beyond 16 has a row that was trained, so nothing new
# is seen at all; I expect it to hold up best. The learned table has rows 41 to 64, but they are as
# random as on the first day, and beyond row 64 all share the last one: order is lost there. The
# sinusoids can be computed for all positions, but the slow channels have values that never
# occurred. I am least sure of the first: the model has never seen a word with so many others at the
# far end, and the softmax is spread over twice as many keys. I would translate the same sentences
# alone and after forty tokens of another sentence, with three seeds, and compare.

# %% [markdown]
# Done? Run everything once from the top (*Restart Kernel and Run All Cells*), save, and run
# `transformer-lib verify-submission positions.ipynb` before you hand in the file.
