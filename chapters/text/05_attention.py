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
# compute it by hand, write it as code, and find out where Q, K and V come from, what the root is
# for, what it all costs, and how far a picture of attention can be trusted. By the end you can
#
# - compute attention on paper and in code,
# - say why there are three projections, and construct two of them so that a head looks where you
#   want,
# - say why the scores are divided by $\sqrt{d_k}$, with the numbers that show it,
# - tell which part of a layer gets expensive when sentences get long,
# - read an attention picture without reading too much into it.
#
# Reading takes about forty minutes, running the cells less than one.
#
# **Predict first.** Draw 16 random keys and a random query with 64 channels each, the paper's width
# of a head, all numbers with mean 0 and standard deviation 1. Without any scaling, what share of
# the attention does the winning key (the one with the highest score) get, on average: about a
# quarter, a half, or more than four fifths? And with the scaling?

# %%
import math

import pandas as pd
import torch

from transformer_lib import model as library
from transformer_lib.checks import check, mine, solution
from transformer_lib.course.figures.lookup import lookup_explorer, self_attention_flow
from transformer_lib.course.trained import load_trained
from transformer_lib.data import DataConfig, training_pairs
from transformer_lib.evaluation.alignment import encoder_attention
from transformer_lib.plots.attention import SELF, attention_explorer
from transformer_lib.plots.measurements import lines
from transformer_lib.plots.notebook import show, show_chart
from transformer_lib.timing import fastest

# %% [markdown]
# ## By hand
#
# Attention is a soft lookup: it does not have to pick one entry. You come with a **query**; every
# word has a **key**, which says what can be found there, and a **value**, which is what you get. In
# a Python dictionary exactly one key fits and you get its value. Here every key fits more or less,
# and you get a mixture of all values, in which those of the best-fitting keys dominate.
#
# Take the sentence *she eats fish*, with vectors of four channels that we choose ourselves. Suppose
# that the word *eats* asks for what is eaten. Its query is
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
# channel and add up. *she*: 2·0 + 0·1 + 2·0 + 0·1 = 0. *eats*: 2. *fish*: 2 + 2 = 4.
#
# **Step 2: scale** by $\sqrt{d_k} = \sqrt 4 = 2$: 0, 1, 2.
#
# **Step 3: softmax.** $e^0 = 1$, $e^1 = 2.718$, $e^2 = 7.389$; in total 11.107. As shares: 0.090,
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
# Now move the query. Its first channel fits the keys of *eats* and *fish*, its third channel only
# the key of *fish*; the other two stay at 0. The cross is the mixture. Can you move the cross onto
# the value of *eats*? And what happens to the weights when you switch the division off?

# %%
WORDS = ("she", "eats", "fish")
show_chart(lookup_explorer(WORDS, keys, values, start=(2, 2)))

# %% [markdown]
# The cross gets close to a value only where one score is far ahead of the others, since no softmax
# weight is ever zero. That is the price of being soft, and also the point of it: everything in this
# picture has a gradient.
#
# ### Softmax
#
# ●○○ · 10 minutes · scores become shares, even where they are large
#
# Return the softmax of each row of `scores`, (queries, keys), without using `torch.softmax`. Scores
# can be large, and gradients have to get through, so compute with tensors.

# %%
def softmax(scores):
    ...  # your code


check(softmax)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `torch.exp(torch.tensor(100.0))` is infinite. Softmax does not change when the same number is
# subtracted from all scores of a row. Which one makes every exponent at most 0?
#
# </details>

# %% [markdown]
# ### Attention weights
#
# ●○○ · 10 minutes · which word looks at which, for all words at once
#
# Every word has a query. Write the queries as rows of a matrix $Q$, the keys and values as rows of
# $K$ and $V$. Then $QK^\top$ holds the score of query *i* with key *j* in row *i* and column *j*. `query`
# is (batch, queries, d_k), `key` is (batch, keys, d_k). Return the weights of scaled dot-product
# attention, (batch, queries, keys). Use PyTorch's `softmax`, or yours if it takes a batch, too.

# %%
softmax = mine("softmax")


def attention_weights(query, key):
    ...  # your code


check(attention_weights)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `key.transpose(-2, -1)` swaps the last two axes. Along which axis must the result add up to 1?
#
# </details>

# %% [markdown]
# ## As matrices
#
# Here are three queries at once; the second is the one from above:

# %%
attention_weights = mine("attention_weights")
Q = torch.tensor([[[0.0, 2.0, 0.0, 0.0], [2.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 4.0]]])
weights = attention_weights(Q, keys[None])
print("weights:")
print(weights[0].numpy().round(3))
print("outputs:")
print((weights @ values)[0].numpy().round(1))

# %% [markdown]
# The second row is what we computed by hand. Each row of the weights adds up to 1, because softmax
# runs along the keys: each *query* distributes its attention. Columns need not add up to 1: a key
# can be looked at by all queries or by none.
#
# There need not be as many queries as keys. The rows of $Q$ may come from another sentence: for
# example, two words of a German translation ask the three English words. That is
# **cross-attention**; when queries, keys and values come from one sentence, it is
# **self-attention**.

# %%
asked_by_two = attention_weights(Q[:, :2], keys[None])
print("queries", tuple(Q[:, :2].shape), "and keys", tuple(keys[None].shape))
print("weights", tuple(asked_by_two.shape))

# %% [markdown]
# The library's function has one more axis, for heads, and takes an optional mask; on the same
# numbers it gives the same result:

# %%
output, library_weights = library.attention(Q[:, None], keys[None, None], values[None, None])
torch.testing.assert_close(library_weights[:, 0], weights)
torch.testing.assert_close(output[:, 0], weights @ values)
print("transformer_lib.model.attention gives the same")

# %% [markdown]
# ### Does the order matter?
#
# ●●○ · 20 minutes · design a test that catches a wrong program
#
# A sum has no order, so attention knows nothing of the order of the words: reorder keys and values
# in the same way, and each query gets the same output as before. (This is why chapter 4 exists.) A
# program for which this does not hold has a bug, or a position hidden somewhere.
#
# Write a test for this. The check hands your test several programs, right and wrong ones, as
# `attend`. `attend(query, key, value)` takes tensors of (batch, queries, 8), (batch, keys, 8) and
# (batch, keys, 8), which you make up, and returns the outputs, (batch, queries, 8). Return `True`
# if the order of the keys does not matter to `attend`.

# %%
def ignores_order(attend):
    ...  # your code


check(ignores_order)

# %% [markdown]
# <details><summary>Hint</summary>
#
# You need random queries, keys and values, an order in which every key moves, such as
# `torch.arange(keys).roll(1)` (`torch.randperm` may leave the key that matters in place), and two
# calls. What has to be moved along with the keys? Sums in a different order differ in the last
# digit: how do you compare?
#
# </details>

# %% [markdown]
# ## Where do Q, K and V come from?
#
# So far we have chosen them ourselves. In a Transformer each word has one vector, a row of $x$, and
# three learned matrices turn it into a query, a key and a value:
#
# $$Q = xW^Q, \qquad K = xW^K, \qquad V = xW^V$$
#
# ### Self-attention
#
# ●●○ · 15 minutes · the paper's formula, starting from x
#
# Queries, keys and values are all computed from `x`, (batch, length, d_model), with the matrices
# `w_q`, `w_k` and `w_v`, each (d_model, d_k). Return the output of scaled dot-product attention
# without a mask, (batch, length, d_k).

# %%
def self_attention(x, w_q, w_k, w_v):
    ...  # your code


check(self_attention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Three products first. Which width goes under the root: d_model or d_k?
#
# </details>

# %% [markdown]
# Here is the path that your function takes, with the shape at each step:

# %%
torch.manual_seed(5)
x = torch.tensor([[1.0, 0, 0, 1], [0, 1, 1, 0], [1, 1, 0, 0]])
w_q, w_k, w_v = torch.randn(3, 4, 2)
parts = {"Q": x @ w_q, "K": x @ w_k, "V": x @ w_v}
scores = parts["Q"] @ parts["K"].T / math.sqrt(2)
shown = attention_weights(parts["Q"][None], parts["K"][None])[0]
show(
    self_attention_flow(x, parts, scores, shown, shown @ parts["V"], WORDS),
    "x of shape (3, 4) is projected to Q, K and V of shape (3, 2) each; Q times K transposed, "
    "divided by the root of 2, gives (3, 3) scores, softmax of each row the weights, and weights "
    "times V the output of shape (3, 2).",
)

# %% [markdown]
# Why three? Because a word plays three roles. What it *asks for* is not what it *is found under*: a
# verb looks for its object, and is looked up by its subject. And what it is found under is not what
# it *passes on*: a key has to be easy to match, a value has to be useful to the word that receives
# it.
#
# What would be lost with $W^Q = W^K$? The scores $xW W^\top x^\top$ would be symmetric: *eats*
# could score *fish* only as high as *fish* scores *eats*. And in most rows no word would match as
# well as the word itself. How large is the effect for random words and matrices?

# %%
def share_on_itself(same, length=10, d_model=64, d_k=16, draws=500):
    """The mean weight of a random word on itself; mean |s_ij − s_ji| over mean |s_ij|."""
    x = torch.randn(draws, length, d_model)
    w_q, w_k = torch.randn(2, draws, d_model, d_k) / math.sqrt(d_model)
    query, key = x @ w_q, x @ (w_q if same else w_k)
    weights = attention_weights(query, key)
    scores = query @ key.mT
    asymmetry = (scores - scores.mT).abs().mean() / scores.abs().mean()
    return weights.diagonal(dim1=1, dim2=2).mean().item(), asymmetry.item()


torch.manual_seed(2)
for same in (False, True):
    itself, asymmetry = share_on_itself(same)
    name = "W^Q = W^K" if same else "two matrices"
    print(f"{name:12}  on itself {itself:.0%} (uniform: 10%), asymmetry of scores {asymmetry:.2f}")

# %% [markdown]
# With one matrix for both, a word starts out looking at itself, and the scores cannot be anything
# but symmetric. With two, it starts out with no preference and can learn one. (Without $W^V$ the
# output of a head would be a mixture of the words themselves. It can be left out all the same: [He
# and Hofmann 2023](https://arxiv.org/abs/2311.01906) train Transformers without it, and without the
# $W^O$ of chapter 6, but change other parts to make up for it.)
#
# ### A head that looks back
#
# ●●● · 45 minutes · build the matrices that training would have to find
#
# In chapter 4 a rotation took the encoding of one position to the encoding of another. Use this
# rotation here. The words are now nothing but their positions, `x = positional_encoding(length,
# d_model)` in the paper's layout. Return `w_q` and `w_k`, (d_model, d_model) each, such that every
# word gives more than nine tenths of its attention to the word `offset` places before it (for a
# negative `offset`, after it); a word that has no such word may look anywhere. The check computes
# the weights for 20 words and looks at where they fall.

# %%
def look_back(d_model, offset):
    ...  # your code


check(look_back)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The score of positions *p* and *s* is $PE(p)\,W^Q\,(PE(s)\,W^K)^\top$. If both matrices are the
# identity, the score is largest for *s* = *p*: each word looks at itself. Which matrix turns the
# row $PE(p)$ into $PE(p - \text{offset})$? It has a 2 × 2 block for each pair of channels. (In
# chapter 4 the vector was a column, to the right of the matrix; here it is a row, to the left of
# it.) And if the right place wins by too little: softmax decides more sharply when all scores are
# multiplied by a number above 1.
#
# </details>

# %% [markdown]
# That is one head, constructed by hand. Whether training finds such heads is a question that
# chapters 6 and 14 put to a trained model.
#
# ## Why the root?
#
# Suppose the channels of a query and a key are independent, with mean 0 and variance 1. Their dot
# product is a sum of $d_k$ products, each of mean 0 and variance 1. Variances of independent
# numbers add up: the dot product has variance $d_k$. Its typical size is $\sqrt{d_k}$: 8 for the
# paper's 64 channels, 23 for 512. The paper says so in a footnote; let us measure it.

# %%
torch.manual_seed(1)
rows = []
for d_k in (4, 16, 64, 256, 512):
    q, k = torch.randn(2, 20_000, d_k)
    dots = (q * k).sum(dim=1)
    scaled = dots / math.sqrt(d_k)
    rows.append([d_k, round(dots.var().item()), f"{scaled.var():.2f}"])
pd.DataFrame(rows, columns=["d_k", "variance", "variance after scaling"]).set_index("d_k")

# %% [markdown]
# The variance is $d_k$, and division by $\sqrt{d_k}$ brings it back to 1, whatever the width. And
# what do large scores do? Softmax exponentiates. A score that is ahead by 10 gets 22,000 times the
# weight. Here is the answer to the opening question, the winner's share among 16 keys:

# %%
WIDTHS = (4, 16, 64, 256, 512)


def random_weights(d_k, scale):
    q, k = torch.randn(2000, 1, d_k), torch.randn(2000, 16, d_k)
    scores = scale * (q @ k.mT)[:, 0]  # a row for each query
    return softmax(scores)[:, None]


for d_k in WIDTHS:
    shares = [random_weights(d_k, s).amax(dim=-1).mean().item() for s in (1.0, d_k**-0.5)]
    print(f"d_k = {d_k:3}: without the root {shares[0]:.0%}, with it {shares[1]:.0%}")

# %% [markdown]
# With the paper's 64 channels and no scaling, one key takes more than four fifths, and which one is
# pure chance, since these are random vectors. The model has decided before it has learned anything.
# Can it change its mind? That is a question about gradients.
#
# ### The gradient of softmax
#
# ●●○ · 25 minutes · how a loss reaches the scores
#
# Backpropagation hands your layer $\partial L/\partial w$, the gradient of the loss with respect to
# the attention weights, as `upstream`; return $\partial L/\partial s$, the gradient with respect to
# the scores. Both are (…,
# queries, keys). Derive it first, on paper: how does $w_i = e^{s_i} / \sum_k e^{s_k}$ change with
# $s_i$, and how with another $s_j$? Apart from `upstream`, the attention weights are all you need;
# no `autograd`.

# %%
def softmax_backward(weights, upstream):
    ...  # your code


check(softmax_backward)

# %% [markdown]
# <details><summary>Hint</summary>
#
# $\partial w_i / \partial s_j = w_i(\delta_{ij} - w_j)$, where $\delta_{ij}$ is 1 for *i* = *j* and
# 0 otherwise. Then $\partial L/\partial s_j = \sum_i \partial L/\partial w_i \cdot \partial
# w_i/\partial s_j$: substitute the first into the second and take $w_j$ out of the sum.
#
# </details>

# %% [markdown]
# When one weight is 1 and the others are 0, all these derivatives are 0: nothing that the loss says
# reaches the scores. How much gets through for random queries and keys? With row *i* of the
# identity as `upstream`, your function returns the derivatives of weight *i* with respect to all
# scores. With all rows at once it returns the derivatives of all weights, and we take the largest.

# %%
softmax_backward = mine("softmax_backward")


def gradient_left(d_k, scale):
    """Mean over many queries of the largest |∂wᵢ/∂sⱼ|; at most 1/4."""
    weights = random_weights(d_k, scale).expand(-1, 16, -1)
    derivatives = softmax_backward(weights, torch.eye(16).expand_as(weights))
    return derivatives.abs().amax(dim=(1, 2)).mean().item()


without = [gradient_left(d_k, 1.0) for d_k in WIDTHS]
with_root = [gradient_left(d_k, d_k**-0.5) for d_k in WIDTHS]
show(
    lines(
        {"not scaled": (WIDTHS, without), "scaled by 1/√d_k": (WIDTHS, with_root)},
        ("width of queries and keys, d_k", "largest derivative of a weight"), logarithmic="x",
    ),
    "The largest derivative of a weight: without scaling it falls as d_k grows, with scaling it "
    "stays constant.",
)
for d_k, a, b in zip(WIDTHS, without, with_root):
    print(f"d_k = {d_k:3}: {a:.2f} without the root, {b:.2f} with it")
assert without[-1] < 0.6 * with_root[-1], (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# Without the root the gradient shrinks as the width grows. (For 4 channels it is larger without the
# root than with it: a derivative
# $w(1 - w)$ is largest at $w = 1/2$, and scores of size 2 bring the winner nearer to that than
# scores of size 1.) At the paper's 64 channels the difference is moderate; in wider heads most of
# the signal is gone. The root costs nothing and makes the start independent of the width.
#
# (Why not divide by $d_k$? Then the scores would be *too* similar: their standard deviation would
# be $1/\sqrt{d_k}$, and every word would start with an average over all words. Some models are
# trained that way on purpose; see *read on*.)
#
# ## What does it cost?
#
# A layer of self-attention on a sentence of $n$ words does two kinds of work:
#
# - the projections to Q, K and V and the one at the end: four products of an $n \times d$ matrix
#   and a $d \times d$ matrix, $8nd^2$ floating-point operations;
# - the attention itself, $QK^\top$ and the mixture of the values: $4n^2d$.
#
# The first grows with the length, the second with its square. They are equal at $n = 2d$: with the
# paper's 512 channels, for a text of 1024 tokens. So in translation, where sentences have about 30
# tokens, the famous quadratic term is three percent of the other term, and for whole books it is
# everything. Let us measure both parts for $d = 256$, on one core (two cores that wait for each
# other would spoil the picture):

# %%
def measure(length, d=256, heads=4):
    """Seconds for the four projections, for attention, and for attention without its softmax."""
    x, W = torch.randn(length, d), torch.randn(4, d, d)
    q = torch.randn(1, heads, length, d // heads)
    works = (
        lambda: [x @ matrix for matrix in W],
        lambda: library.attention(q, q, q),
        lambda: (q @ q.mT) @ q,
    )
    return [fastest(work, seconds=0.2, threads=1) for work in works]

# %% tags=["nbval-ignore-output"]
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
with torch.no_grad():
    measured = [measure(length) for length in LENGTHS]
projections, mixing, products = (
    [1000 * times[part] for times in measured] for part in range(3)
)
longer = next((n for n, p, m in zip(LENGTHS, projections, mixing) if m > p), LENGTHS[-1])
assert min(projections + mixing) > 0, "nothing was measured: run this cell again"
show(
    lines(
        {
            "projections, 8nd²": (LENGTHS, projections),
            "attention, 4n²d": (LENGTHS, mixing),
            "the same without the softmax": (LENGTHS, products),
        },
        ("tokens, n", "time on this machine (milliseconds)"),
        logarithmic="xy",
    ),
    "Time of the projections and of the attention over the length: the attention is the cheaper "
    f"part for short texts and the more expensive one from {longer} tokens on. Without the softmax "
    "it is cheaper at every length.",
)
print(f"counted, the lines cross at n = 2d = 512; on this machine before n = {longer}")

# %% [markdown]
# When this page was written the lines crossed between 256 and 512, a little earlier than the count
# predicts. The count leaves out the softmax, which carries $n^2$ numbers to memory and back; the
# third line shows how long the two products alone take. Between the last two lengths the time grew
# by more than the square of the length predicts, in the products as well as in the softmax: perhaps
# the numbers no longer fit into the cache. (Programs that never write these $n^2$ numbers to
# memory, such as PyTorch's `scaled_dot_product_attention` on a GPU, move the crossing to the right.
# The products remain.)
#
# ## What does “it” mean?
#
# When the Transformer was presented in 2017, its authors' announcement (J. Uszkoreit on Google's
# research blog, 31 August 2017) showed the attention of one head in two sentences:
#
# > The animal didn't cross the street because it was too **tired**.
# >
# > The animal didn't cross the street because it was too **wide**.
#
# In the first sentence *it* is the animal, in the second the street, and in the pictures the
# attention of *it* moved from one noun to the
# other. Later explanations, such as J. Alammar's “The Illustrated
# Transformer” (2018), show the first picture alone: a strong line from *it* to *animal*, and beside
# it the statement that the model associates the two. Let us look at such a picture of our own. The
# small model that comes with the course was trained on 48,000 sentence pairs; here is its encoder.
# Choose a layer and a head, and look along the row of *it*:

# %%
trained = load_trained("transformer")
TIRED = "The animal didn't cross the street because it was too tired."
tired, pieces = encoder_attention(trained.model, trained.tokenizer, TIRED)
show_chart(attention_explorer(tired, pieces, pieces, SELF))

# %% [markdown]
# Here is the row of *it* alone, in all heads. *animal* and *street* are three pieces each; we add
# up the weights of the pieces.

# %%
def looks_of_it(sentence):
    """What each head of each layer gives from "it" to the pieces of two nouns."""
    weights, pieces = encoder_attention(trained.model, trained.tokenizer, sentence)
    it = pieces.index("▁it")
    animal, street = (slice(pieces.index(x), pieces.index(x) + 3) for x in ("▁an", "▁st"))
    return {
        (layer + 1, head + 1): (row[animal].sum().item(), row[street].sum().item())
        for layer in range(weights.size(0))
        for head, row in enumerate(weights[layer, :, it])
    }


tired = looks_of_it(TIRED)
table = pd.DataFrame(tired, index=["at the animal", "at the street"]).T
table.index.names = ["layer", "head"]
uniform = 3 / len(pieces)
print(f"three of {len(pieces)} pieces, if all were alike: {uniform:.0%}")
table.map("{:.0%}".format)

# %% [markdown]
# Layer 1 has a head for either reading: head 1 looks from *it* at the animal, head 4 at the street.
# So choose the right head, and you have a picture that tells a story.
#
# To know whether the story is true, change what it depends on. In the same sentence with *wide*
# instead of *tired*, *it* is the street. If these heads know what *it* is, they must now look
# elsewhere. And if they look at a *place* and not at a word, they must look at the other noun when
# the two nouns change places, as they do in the third sentence:

# %%
WIDE = "The animal didn't cross the street because it was too wide."
SWAPPED = "The street didn't cross the animal because it was too tired."
wide, swapped = looks_of_it(WIDE), looks_of_it(SWAPPED)
for (layer, head), shares in tired.items():
    animal, street = zip(shares, wide[layer, head], swapped[layer, head])
    looks = "   ".join(
        f"{noun} " + " → ".join(f"{share:4.0%}" for share in shares)
        for noun, shares in {"animal": animal, "street": street}.items()
    )
    print(f"layer {layer}, head {head}:  {looks}")
for sentence in (TIRED, WIDE):
    print(sentence, "→", trained.translate([sentence])[0])
read = [english.split() for english, _ in training_pairs(DataConfig())]
print("longest sentence in training:", max(map(len, read)), "words; with because:", end=" ")
print(sum("because" in words for words in read), "of", f"{len(read):,}")

# %% [markdown]
# From *tired* to *wide* nothing moves by more than about four percentage points: in this pair, what *it*
# is does not matter to the heads. Nor does the place of the nouns: head 1 of layer 1 looks at the
# pieces of *animal*, and head 4 at those of *street*, wherever they are. And the translations show
# that the model has understood neither sentence. It could hardly have: no sentence that it was
# trained on has more than seven words, and only one has *because*.
#
# So the first picture alone would have looked just as convincing with our model, which understood
# neither sentence. What counts is the comparison. In the announcement's model, which has six layers
# and was trained on far more text, English and French, the attention did move. (A translation would
# tell, too: in German, *it* becomes *es* if it is *das Tier*, and *sie* if it is *die Straße*.)
#
# ## Common mistakes
#
# **The softmax along the wrong axis.** In code the difference is one character: `dim=-2` instead of
# `dim=-1`. No shape gives it away. Look at the sums:

# %%
right = (Q[0] @ keys.T / 2).softmax(dim=-1)
wrong = (Q[0] @ keys.T / 2).softmax(dim=-2)
for name, found in {"right": right, "wrong": wrong}.items():
    rows, columns = (found.sum(dim=dim).numpy().round(2) for dim in (-1, -2))
    print(f"{name}: rows add up to {rows}, columns to {columns}")

# %% [markdown]
# In the wrong version each *key* distributes itself over the queries. A query whose keys are
# claimed by others gets less than its share: look at the smallest sum.
#
# **The root of what?** One published explanation calls the divisor “the square root of 8 divided by
# 64” and means √64 = 8. Read as $\sqrt{8}/64 = 0.04$, it multiplies the scores by 23 where they
# should be divided by 8. (Read as $\sqrt{8/64} = 0.35$, it is wrong as well.) And in code with
# heads it is easy to take the wrong width, the model's instead of the head's. Here is what each
# divisor does to the winner's share among 16 random keys, for $d_k = 64$ and 8 heads:

# %%
divisors = {
    "√d_k = 8": 8,
    "nothing": 1,
    "“√8 / 64”": math.sqrt(8) / 64,
    "√d_model = √512": math.sqrt(512),
    "d_k = 64": 64,
}
for name, divisor in divisors.items():
    share = random_weights(64, 1 / divisor).amax(dim=-1).mean()
    print(f"{name:16} {share:.0%}")

# %% [markdown]
# With too small a divisor the softmax decides at random, with too large a divisor it hardly decides
# at all (16 equal shares would be 6%). None of this raises an error. All known mistakes with
# attention, and their effects, are in the [list of mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. Attention is a soft lookup: each query gets a mixture of all values, weighted by how well
#    their keys fit. Rows of the weights add up to 1, and the order of the keys does not matter.
# 2. Q, K and V are three projections of the words: what a word asks for, what it is found under,
#    and what it passes on. One matrix for queries and keys would make most words look at
#    themselves first.
# 3. Dot products of random vectors have variance d_k. Divided by √d_k they stay around 1; otherwise
#    softmax picks one key by chance, and the wider the head, the less gradient is left.
# 4. Projections cost 8nd², attention 4n²d: the quadratic part is the larger one from 2d tokens on
#    (and from 6d, if a feed-forward network of width 4d is counted as well: chapter 15).
# 5. A head's picture is a measurement, not an explanation. Change what it should depend on, and see
#    whether it changes.
# 6. A wrong axis or a wrong divisor raises no error; sums and shares show it.
#
# **Assignment 2**, after chapter 7, asks for attention with a window.
#
# **In the paper:** section 3.2.1, its footnote 4, and table 1. **Read on:** Jain and Wallace 2019,
# “Attention is not Explanation”, and the answer by Wiegreffe and Pinter; Yang et al. 2022 (μP) on
# dividing by d_k; Dao et al. 2022 (FlashAttention) on never writing the weights down.
#
# **Next:** [6 · Multi-head attention](06_multi_head_attention.ipynb)
