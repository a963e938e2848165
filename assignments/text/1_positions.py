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
#     preload:
#     - seaborn
# ---

# %% [markdown]
# # Assignment 1 · Positions and embeddings
#
# Attention does not know where a word stands. You give it positions, in the paper's way and in two
# others, and find out why the waves of the paper are more than a numbering. Chapters 3 and 4 are
# what you need. Plan two hours.
#
# | task | what | points |
# |---|---|---|
# | 1 | tokens to vectors | 3 |
# | 2 | the paper's positional encoding | 5 |
# | 3 | both together | 4 |
# | 4 | a step is a rotation | 5 |
# | 5 | positions that are learned | 4 |
# | 6 | how similar are two positions? | 5 |
# | 7 | two questions | 6 |
#
# **How it works.** Write your code where it says `# your code`. Run the cell below it: `check(…)`
# tries your function on new numbers each time and tells you what is wrong, if something is. The
# grader does the same and tries a few things more. A task that builds on an earlier one is graded
# with a right answer to the earlier one, so a mistake costs you only once.
#
# Hand in this one notebook under its own name; `transformer-lib verify-submission positions.ipynb`
# says whether it can be graded.

# %%
import math

import matplotlib.pyplot as plt
import torch

from transformer_lib.checks import check, run_test
from transformer_lib.plots.measurements import heat_map

# %% [markdown]
# ## 1 · Tokens to vectors (3 points)
#
# `embed(tokens, table)` looks up the row of `table` (vocab_size, d_model) for each number in
# `tokens` (batch, length), and multiplies by √d_model, as section 3.4 of the paper says.

# %% answer="embed"
def embed(tokens, table):
    ### BEGIN SOLUTION
    return table[tokens] * math.sqrt(table.size(1))
    ### END SOLUTION

# %% test="test_embed" points=3
verdict = check(embed)
verdict
### BEGIN HIDDEN TESTS
table = torch.eye(16)
assert torch.equal(embed(torch.tensor([[3, 3]]), table)[0, 0], 4 * table[3]), "√16 is 4"
3 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · The paper's positional encoding (5 points)
#
# `positional_encoding(length, d_model)` has the shape (length, d_model). With *p* the position and
# *i* from 0 to d_model/2 − 1:
#
# $$PE_{p,\,2i} = \sin\left(p / 10000^{2i/d_{model}}\right) \qquad
# PE_{p,\,2i+1} = \cos\left(p / 10000^{2i/d_{model}}\right)$$

# %% answer="positional_encoding"
def positional_encoding(length, d_model):
    ### BEGIN SOLUTION
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = position * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()
    ### END SOLUTION

# %% test="test_positional_encoding" points=5
verdict = check(positional_encoding)
verdict
### BEGIN HIDDEN TESTS
encoding = positional_encoding(2000, 32)
norms = encoding.norm(dim=1)
assert torch.allclose(norms, torch.full((2000,), 4.0), atol=1e-4), "sin² + cos² = 1, 16 times"
expected = torch.tensor([math.sin(1999.0), math.cos(1999.0)])
assert torch.allclose(encoding[1999, :2], expected, atol=1e-3), "precision at large positions"
5 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Both together (4 points)
#
# `embed_with_positions(tokens, table, positions, dropout)`: the embedding of task 1 plus the first
# rows of `positions` (max_len, d_model), and on the sum the function `dropout` (section 5.4).

# %% answer="embed_with_positions"
def embed_with_positions(tokens, table, positions, dropout):
    ### BEGIN SOLUTION
    return dropout(embed(tokens, table) + positions[: tokens.size(1)])
    ### END SOLUTION

# %% test="test_embed_with_positions" points=4
verdict = check(embed_with_positions)
verdict
### BEGIN HIDDEN TESTS
4 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · A step is a rotation (5 points)
#
# The authors chose waves because a step to the right should be easy to express: for every step *k*
# there is one matrix *M* with PE(p)·M = PE(p + k) **for all** positions *p*. Write
# `step_matrix(k, d_model)`, of shape (d_model, d_model). Two formulas from school are enough:
#
# sin(a + b) = sin a · cos b + cos a · sin b and cos(a + b) = cos a · cos b − sin a · sin b.
#
# Each pair of channels needs a block of two by two.

# %% answer="step_matrix"
def step_matrix(k, d_model):
    ### BEGIN SOLUTION
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    sin, cos = (k * frequency).sin(), (k * frequency).cos()
    even = torch.arange(0, d_model, 2)
    matrix = torch.zeros(d_model, d_model, dtype=torch.float64)
    matrix[even, even], matrix[even + 1, even] = cos, sin
    matrix[even, even + 1], matrix[even + 1, even + 1] = -sin, cos
    return matrix.float()
    ### END SOLUTION

# %% test="test_step_matrix" points=5
def test_step_matrix():
    matrix = step_matrix(1, 4)
    assert matrix is not None, "not attempted yet"
    assert matrix.shape == (4, 4), f"the shape is {tuple(matrix.shape)}"
    encoding = positional_encoding(3, 4)
    assert torch.allclose(encoding[1] @ matrix, encoding[2], atol=1e-5), "from position 1 to 2"


verdict = run_test(test_step_matrix)
verdict
### BEGIN HIDDEN TESTS
assert verdict.passed
encoding = positional_encoding(120, 16)
for k in (0, 3, 50):
    moved = encoding[: 120 - k] @ step_matrix(k, 16)
    assert torch.allclose(moved, encoding[k:], atol=1e-4), "every position, other steps"
product = step_matrix(5, 16) @ step_matrix(-5, 16)
assert torch.allclose(product, torch.eye(16), atol=1e-5), "there and back again"
### END HIDDEN TESTS

# %% [markdown]
# ## 5 · Positions that are learned (4 points)
#
# BERT and GPT learn a table of positions instead. `add_learned_positions(x, table, start)` adds to
# `x` (batch, length, d_model) the rows of `table` (max_len, d_model) from `start` on: when a
# decoder makes its sixth word, `x` is one position long and `start` is 5. Past the end of the
# table, use its last row.

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

# %% [markdown] question="q_similarity"
# ## 6 · How similar are two positions? (5 points, graded by hand)
#
# Take 60 positions of 64 channels, and all their scalar products with one another. Draw them as a
# heat map (`heat_map(axes, values, "scalar product")`), and beside it the row of position 30 as a
# line. Describe what one sees, and say why the picture has this shape: the formulas of task 4 tell.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 1 | the map of 60 by 60, axes labelled |
# | 1 | the line of position 30 |
# | 1 | stripes along the diagonal: only the distance counts |
# | 1 | the sum of cos(distance · frequency) over all frequencies |
# | 1 | neighbours are similar, and the similarity falls off, with ripples |
# ### END MARK SCHEME

# %% manual="similarity_figure" points=2
### BEGIN SOLUTION
encoding = positional_encoding(60, 64)
products = encoding @ encoding.T
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
heat_map(left, products, "scalar product")
left.set(xlabel="position", ylabel="position")
right.plot(products[30])
right.set(xlabel="position", ylabel="scalar product with position 30")
### END SOLUTION

# %% [markdown] manual="similarity_words" points=3
# The map is made of stripes along the diagonal: the product depends only on how far two positions
# are apart. That must be so: sin(pω)·sin(qω) + cos(pω)·cos(qω) = cos((p − q)ω), and the product is
# the sum of this over all frequencies ω. At distance 0 every term is 1, so it is 32 there. A few
# steps away the fast waves are out of step and cancel, the slow ones still agree: the line falls,
# with ripples.

# %% [markdown] question="q_questions"
# ## 7 · Two questions (6 points, graded by hand)
#
# **a.** Why is the embedding multiplied by √d_model before the positions are added? Say how large
# the numbers in both are, if the table is initialised with a standard deviation of 1/√d_model.
#
# **b.** A model is trained on sentences of up to 40 tokens and gets one of 80. What happens with a
# learned table of 40 rows, and what with the waves? Is the second one safe?
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 1 | a: embeddings of size 1/√d_model, sines and cosines of size about 0.7 |
# | 1 | a: without the factor the positions would drown the words |
# | 1 | a: with it, both have about the same size |
# | 1 | b: the table has no row, or the last row for all of them: no order among them |
# | 1 | b: the waves go on, every position gets its own vector |
# | 1 | b: but the model has never seen these; being computable is not being understood |
# ### END MARK SCHEME

# %% [markdown] manual="factor" points=3
# **a.** With a standard deviation of 1/√d_model, a number in the table is about 0.04 for d_model = 512. A
# sine or cosine has a root mean square of 0.71, nearly twenty times as much: the sum would say where a
# word stands, and hardly which word it is. Multiplied by √d_model, the embeddings are of size 1, and
# both can be read off the sum.

# %% [markdown] manual="longer" points=3
# **b.** The table has nothing for positions 41 to 80; one must stop, or give all of them the last
# row, and then their order is lost. The waves can be computed for any position and are different
# for all. But the model was never trained on them: the slow channels take values there that it has
# not seen. Often it gets worse all the same, only not with an error message.

# %% [markdown]
# Done? Run everything once from the top (*Restart Kernel and Run All Cells*), save, and let
# `transformer-lib verify-submission positions.ipynb` look at the file before you hand it in.
