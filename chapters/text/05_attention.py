# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5 · Attention
#
# One formula carries the whole model: $\text{softmax}(QK^\top/\sqrt{d_k})\,V$. In this chapter you
# compute it by hand, then as matrices, find out what the root is for, what it all costs, and how
# far a picture of attention can be trusted. Afterwards you can
#
# - compute attention on paper and in code,
# - say why the scores are divided by $\sqrt{d_k}$, with the numbers that show it,
# - tell which part of a layer gets expensive when sentences get long,
# - read an attention picture without reading too much into it.
#
# Reading takes about forty minutes, computing less than one.
#
# **Predict first.** Draw 16 random keys and a random query with 512 channels each, all numbers with
# mean 0 and standard deviation 1. Without any scaling, which share of the attention does the
# winning key get, on average: about 20%, 50%, or more than 90%? And with the scaling?

# %%
import math

import pandas as pd
import torch

from transformer_lib.checks import check, solution
from transformer_lib.evaluation.alignment import encoder_attention
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.model import attention
from transformer_lib.plots.attention import SELF, attention_explorer
from transformer_lib.plots.measurements import lines
from transformer_lib.plots.notebook import show, show_chart
from transformer_lib.course.trained import load_trained
from transformer_lib.timing import fastest

# %% [markdown]
# ## By hand
#
# Attention is a look-up that need not decide. You come with a **query**; every place has a **key**,
# which says what is to be found there, and a **value**, which is what you get. In a dictionary
# exactly one key fits and you get its value. Here every key fits more or less, and you get a
# mixture of all values, in which those of the best fitting keys prevail.
#
# Take the sentence *she eats fish*, with vectors of four channels that we choose ourselves. The
# word *eats* asks for what is eaten, say, and its query is
#
# $$q = (2, 0, 2, 0)$$
#
# | word | key | value |
# |---|---|---|
# | she | (0, 1, 0, 1) | (10, 0) |
# | eats | (1, 0, 0, 1) | (0, 10) |
# | fish | (1, 0, 1, 1) | (20, 20) |
#
# **Step 1: how well does each key fit?** The dot product of query and key: multiply channel by
# channel, add up. *she*: 2·0 + 0·1 + 2·0 + 0·1 = 0. *eats*: 2. *fish*: 2 + 2 = 4.
#
# **Step 2: scale** by $\sqrt{d_k} = \sqrt 4 = 2$: 0, 1, 2.
#
# **Step 3: softmax.** $e^0 = 1$, $e^1 = 2.718$, $e^2 = 7.389$; together 11.107. As shares: 0.090,
# 0.245, 0.665. These are the **attention weights**.
#
# **Step 4: mix the values.** 0.090·(10, 0) + 0.245·(0, 10) + 0.665·(20, 20) = (14.2, 15.8).
#
# Let us see whether that is right:

# %%
query = torch.tensor([2.0, 0.0, 2.0, 0.0])
keys = torch.tensor([[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0]])
values = torch.tensor([[10.0, 0.0], [0.0, 10.0], [20.0, 20.0]])

scores = [sum(q * k for q, k in zip(query, key)) for key in keys]
scaled = [score / math.sqrt(4) for score in scores]
total = sum(math.exp(score) for score in scaled)
weights = [math.exp(score) / total for score in scaled]
output = sum(weight * value for weight, value in zip(weights, values))
print("scores ", [int(score) for score in scores])
print("weights", [round(weight, 3) for weight in weights])
print("output ", [round(number, 1) for number in output.tolist()])

# %% [markdown]
# ## As matrices
#
# Every word asks. Write the queries of all words as rows of a matrix $Q$, keys and values as rows
# of $K$ and $V$. Then $QK^\top$ has in row *i* and column *j* the score of query *i* with key *j*:
# all dot products at once.

# %%
Q = torch.tensor([[0.0, 2.0, 0.0, 0.0], [2.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 4.0]])
scores = Q @ keys.T
print("QKᵀ =", scores.tolist())
weights = (scores / math.sqrt(4)).softmax(dim=-1)
print("weights:")
print(weights.numpy().round(3))
print("outputs:")
print((weights @ values).numpy().round(1))

# %% [markdown]
# The second row is what we computed by hand. Each row of the weights adds up to 1, because softmax
# runs along the keys: each *query* distributes its attention. Columns need not add up to anything.
# A key can be looked at by all or by none.
#
# The third query is the same for every key, and so it gets the mean of all values. And nothing
# needed the words to stand in any order, nor queries and keys to be equally many: the rows of $Q$
# may come from another sentence. That is **cross-attention**; when queries, keys and values come
# from one sentence, it is **self-attention**.
#
# In the library the same stands with two more axes in front, batch and heads:

# %%
def four_axes(x):
    return x[None, None]  # (batch, heads, …)


output, library_weights = attention(four_axes(Q), four_axes(keys), four_axes(values))
torch.testing.assert_close(library_weights[0, 0], weights)
torch.testing.assert_close(output[0, 0], weights @ values)
print("transformer_lib.model.attention gives the same")

# %% [markdown]
# ## Why the root?
#
# Suppose the channels of a query and a key are independent, with mean 0 and variance 1. Their dot
# product is a sum of $d_k$ products, each of mean 0 and variance 1. Variances of independent
# numbers add up: the dot product has variance $d_k$. Its typical size is $\sqrt{d_k}$: 8 for 64
# channels, 23 for 512. The paper says so in a footnote; let us measure it.

# %%
torch.manual_seed(1)
rows = []
for d_k in (4, 16, 64, 256, 512):
    q, k = torch.randn(2, 20_000, d_k)
    dots = (q * k).sum(dim=1)
    scaled = dots / math.sqrt(d_k)
    rows.append([d_k, round(dots.var().item()), f"{scaled.var():.2f}"])
pd.DataFrame(rows, columns=["d_k", "variance", "variance after scaling"])

# %% [markdown]
# The variance is $d_k$, and division by $\sqrt{d_k}$ brings it back to 1, whatever the width. And
# what do large scores do? Softmax exponentiates. A score that is ahead by 10 gets 22,000 times the
# weight. Here is the answer to the opening question, the winner's share among 16 keys:

# %%
WIDTHS = (4, 16, 64, 256, 512)


def winners_share(d_k, scale):
    q, k = torch.randn(2000, 1, d_k), torch.randn(2000, 16, d_k)
    weights = (scale * (q * k).sum(dim=-1)).softmax(dim=-1)
    return weights.max(dim=-1).values.mean().item()


unscaled = [winners_share(d_k, 1.0) for d_k in WIDTHS]
scaled = [winners_share(d_k, d_k**-0.5) for d_k in WIDTHS]
for d_k, without, with_root in zip(WIDTHS, unscaled, scaled):
    print(f"d_k = {d_k:3}: without the root {without:.0%}, with it {with_root:.0%}")

# %% [markdown]
# With 512 channels and no scaling, one key takes nearly everything, and which one is pure chance,
# for these are random vectors. The model has decided before it has learnt anything.
#
# Worse, it cannot easily change its mind. The derivative of softmax is
# $\partial w_i / \partial s_j = w_i(\delta_{ij} - w_j)$: when one weight is 1 and the others are 0,
# every entry is 0. How much gradient is left?

# %%
def gradient_left(d_k, scale):
    """Mean over many queries of the largest |∂wᵢ/∂sⱼ|; at most 1/4."""
    q, k = torch.randn(2000, 1, d_k), torch.randn(2000, 16, d_k)
    weights = (scale * (q * k).sum(dim=-1)).softmax(dim=-1)
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    return jacobian.abs().amax(dim=(1, 2)).mean().item()


without = [gradient_left(d_k, 1.0) for d_k in WIDTHS]
with_root = [gradient_left(d_k, d_k**-0.5) for d_k in WIDTHS]
show(
    lines(
        {"not scaled": (WIDTHS, without), "scaled by 1/√d_k": (WIDTHS, with_root)},
        ("width of queries and keys, d_k", "largest gradient of a weight"),
        logarithmic="x",
    ),
    "The largest gradient of a weight: without scaling it falls as d_k grows, with it it stays.",
)
print(f"at d_k = 512: {without[-1]:.3f} without the root, {with_root[-1]:.3f} with it")
assert without[-1] < 0.6 * with_root[-1], (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# A model whose scores are not scaled starts with attention that is nearly all-or-nothing, decided
# by chance, and with a fifth of the gradient that it needs to change that. The root costs nothing.
#
# (Why not divide by $d_k$? Then the scores would be *too* equal: their standard deviation would be
# $1/\sqrt{d_k}$, and the start would be an average over all words. That is how some models are
# trained on purpose; see *read on*.)
#
# ## What does it cost?
#
# A layer of self-attention on a sentence of $n$ words does two kinds of work:
#
# - the projections to Q, K and V and the one at the end: four products of an $n \times d$ with a
#   $d \times d$ matrix, $8nd^2$ floating-point operations;
# - the attention itself, $QK^\top$ and the mixture of the values: $4n^2d$.
#
# The first grows with the length, the second with its square. They are equal at $n = 2d$: with the
# paper's 512 channels, for a text of 1024 tokens. So in translation, where sentences have 30
# tokens, the famous quadratic term is a rounding error, and for whole books it is everything. Let
# us measure both parts for $d = 256$:

# %%
def measure(length, d=256, heads=4):
    """Seconds for the four projections, and for the attention between them."""
    x, W = torch.randn(length, d), torch.randn(4, d, d)
    q = torch.randn(1, heads, length, d // heads)
    projections = fastest(lambda: [x @ matrix for matrix in W], seconds=0.2)
    return projections, fastest(lambda: attention(q, q, q), seconds=0.2)

# %% tags=["nbval-ignore-output"]
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
with torch.no_grad():
    measured = [measure(length) for length in LENGTHS]
projections, mixing = ([1000 * times[part] for times in measured] for part in (0, 1))
longer = next((n for n, p, m in zip(LENGTHS, projections, mixing) if m > p), LENGTHS[-1])
assert min(projections + mixing) > 0, "nothing was measured: run this cell again"
show(
    lines(
        {"projections, 8nd²": (LENGTHS, projections), "attention, 4n²d": (LENGTHS, mixing)},
        ("tokens, n", "time on this machine (milliseconds)"),
        logarithmic="xy",
    ),
    "Time of the projections and of the attention over the length: the attention is the cheaper "
    f"part for short texts and the dearer one from {longer} tokens on.",
)
print(f"counted, the lines cross at n = 2d = 512; on this machine before n = {longer}")

# %% [markdown]
# When this page was written the lines crossed between 256 and 512: a little earlier than counted,
# because the softmax, which the count leaves out, has to carry $n^2$ numbers to memory and back.
# (Kernels that never write them down, as PyTorch's `scaled_dot_product_attention` on a GPU, move
# the crossing to the right. They do not change the $n^2$.)
#
# ## What does “it” mean?
#
# A well-known picture shows a trained Transformer's attention in the sentence
#
# > The animal didn't cross the street because it was too tired.
#
# From *it*, a strong line leads to *animal*, and the text beside it says that the model has
# understood what *it* refers to. Let us look at such a picture of our own. The small model that
# comes with the course was trained on 48,000 sentence pairs; here is its encoder. Choose layer and
# head, and look along the row of *it*:

# %%
trained = load_trained("transformer")
TIRED = "The animal didn't cross the street because it was too tired."
weights, pieces = encoder_attention(trained.model, trained.tokenizer, TIRED)
show_chart(attention_explorer(weights, pieces, pieces, SELF))

# %% [markdown]
# And the row of *it* alone, in all heads. *animal* is three pieces, *street* three as well; we add
# their weights up.

# %%
def looks_of_it(sentence):
    """What each head of each layer gives from "it" to the animal and to the street."""
    weights, pieces = encoder_attention(trained.model, trained.tokenizer, sentence)
    it = pieces.index("▁it")
    animal, street = slice(1, 4), slice(pieces.index("▁st"), pieces.index("▁st") + 3)
    return {
        (layer + 1, head + 1): (row[animal].sum().item(), row[street].sum().item())
        for layer in range(weights.size(0))
        for head, row in enumerate(weights[layer, :, it])
    }


tired = looks_of_it(TIRED)
table = pd.DataFrame(tired, index=["at the animal", "at the street"]).T
table.index.names = ["layer", "head"]
table.map("{:.0%}".format)

# %% [markdown]
# Layer 1 has a head for either taste: the first one looks from *it* at the animal, the fourth one
# at the street. So choose the right head, and you have a picture that tells a story. To know
# whether the story is true, change what it depends on. In the same sentence with *wide* instead of
# *tired*, *it* is the street. If these heads know what *it* is, they must look elsewhere now:

# %%
WIDE = "The animal didn't cross the street because it was too wide."
wide = looks_of_it(WIDE)
for place in tired:
    (a, b), (c, d) = tired[place], wide[place]
    looks = f"animal {a:4.0%} → {c:4.0%}   street {b:4.0%} → {d:4.0%}"
    print(f"layer {place[0]}, head {place[1]}:  {looks}")
for sentence in (TIRED, WIDE):
    print(sentence, "→", trained.translate([sentence])[0])

# %% [markdown]
# Nothing moves by more than four points of a hundred. Head 1 looks at the animal, and head 4 at the
# street, whether the sentence is about being tired or about being wide: they look at kinds of
# words, not at what *it* is. And the translations show that the model has understood neither
# sentence. Long sentences with *because* are rare in what it has read.
#
# In a larger model such a head may well exist. The picture alone would not tell: ours would have
# looked just as convincing. What tells is the comparison. (In German the pronoun itself would: *das
# Tier* would become *es*, *die Straße* *sie*.)
#
# ## Common mistakes
#
# **The softmax along the wrong axis.** In code it is one character: `dim=-2` for `dim=-1`. With as
# many queries as keys, no shape complains. Look at the sums:

# %%
right = (Q @ keys.T / 2).softmax(dim=-1)
wrong = (Q @ keys.T / 2).softmax(dim=-2)
for name, weights in {"right": right, "wrong": wrong}.items():
    rows, columns = (weights.sum(dim=dim).numpy().round(2) for dim in (-1, -2))
    print(f"{name}: rows add up to {rows}, columns to {columns}")

# %% [markdown]
# In the wrong one each *key* distributes itself over those who ask. A query whose keys are all
# claimed by others gets next to nothing.
#
# **The root of what?** A published explanation calls the divisor “the square root of 8 divided by
# 64” and means √64 = 8. Taken at its word it is $\sqrt{8}/64 = 0.04$, and scores that should be
# divided by 8 are multiplied by 23. And in code with heads it is easy to take the wrong width, that
# of the model instead of that of a head. What each divisor makes of the winner's share of 16 random
# keys, for $d_k = 64$ and 8 heads:

# %%
divisors = {
    "√d_k = 8": 8,
    "nothing": 1,
    "“√8 / 64”": math.sqrt(8) / 64,
    "√d_model = √512": math.sqrt(512),
    "d_k = 64": 64,
}
for name, divisor in divisors.items():
    print(f"{name:16} {winners_share(64, 1 / divisor):.0%}")

# %% [markdown]
# Too small a divisor decides at random, too large a one hardly decides at all (16 equal shares
# would be 6%). None of it raises an error, and a model can learn its way around the last two. All
# known mistakes about attention:

# %%
for mistake in wrong_answers("attention"):
    print(f"{mistake.id:5}{mistake.title}")

# %% [markdown]
# ## Your turn
#
# What passes its `check` is kept in `my_transformer.py` beside this notebook. After a first try,
# `solution("softmax")` in a cell of its own shows one way.
#
# ### Softmax
#
# ●○○ · 10 minutes · scores become shares, also where they are large
#
# Of each row of `scores`, without `torch.softmax`. Scores can be large, and gradients have to get
# through, so compute with tensors.

# %%
def softmax(scores):
    ...  # your code


check(softmax)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `torch.exp(torch.tensor(100.0))` is infinite. Softmax does not change when the same number is
# taken off all scores of a row. Which one makes every exponent at most 0?
#
# </details>
#
# ### Attention weights
#
# ●○○ · 10 minutes · who looks at whom
#
# `query` is (batch, queries, d_k), `key` is (batch, keys, d_k). Return the weights of scaled
# dot-product attention, (batch, queries, keys).

# %%
def attention_weights(query, key):
    ...  # your code


check(attention_weights)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `key.transpose(-2, -1)` swaps the last two axes. Along which axis must the result add up to 1?
#
# </details>
#
# ### Self-attention
#
# ●●○ · 15 minutes · the formula of the paper
#
# Queries, keys and values all come from `x`, (batch, length, d_model), by the matrices `w_q`, `w_k`
# and `w_v`, each (d_model, d_k). Return the output of scaled dot-product attention without a mask,
# (batch, length, d_k).

# %%
def self_attention(x, w_q, w_k, w_v):
    ...  # your code


check(self_attention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Three products first. Which width does the root mean: d_model or d_k?
#
# </details>
#
# ## Summary
#
# 1. Attention is a soft look-up: each query gets a mixture of all values, weighted by how well
#    their keys fit. Rows of the weights add up to 1.
# 2. Dot products of random vectors have variance d_k. Divided by √d_k they stay around 1; otherwise
#    softmax picks one key by chance and leaves little gradient.
# 3. Projections cost 8nd², attention 4n²d: the square matters only for texts longer than 2d tokens.
# 4. A head's picture is a measurement, not an explanation. Change what it should depend on, and see
#    whether it changes.
# 5. A wrong axis or a wrong divisor raises no error; sums and shares show it.
#
# **In the paper:** section 3.2.1, its footnote 4, and table 1. **Read on:** Jain and Wallace 2019,
# “Attention is not Explanation”, and the answer by Wiegreffe and Pinter; Yang et al. 2022 (μP) on
# dividing by d_k; Dao et al. 2022 (FlashAttention) on never writing the weights down.
#
# **Next:** [6 · Multi-head attention](06_multi_head_attention.ipynb)
