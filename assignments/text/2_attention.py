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
# # Assignment 2 · Attention and masks
#
# You build multi-head attention from nothing but matrix products and a softmax, and you decide who
# may look at whom. Chapters 5 to 7 are what you need. Plan two to three hours.
#
# | task | what | points |
# |---|---|---|
# | 1 | the mask of a decoder | 4 |
# | 2 | scaled dot-product attention | 6 |
# | 3 | a window that moves along | 4 |
# | 4 | multi-head attention as a module | 8 |
# | 5 | three masks in one figure | 4 |
# | 6 | two questions | 6 |
#
# **How it works.** Write your code where it says `# your code`. Run the cell below it: `check(…)`
# tries your function on new numbers each time and tells you what is wrong, if something is. The
# grader does the same and tries a few things more. A task that builds on an earlier one is graded
# with a right answer to the earlier one, so a mistake costs you only once.
#
# Use `torch`'s basic operations, not its ready-made attention. Hand in this one notebook under its
# own name; `transformer-lib verify-submission attention.ipynb` says whether it can be graded.

# %%
import math

import matplotlib.pyplot as plt
import torch
from torch import nn

from transformer_lib.checks import check, run_test
from transformer_lib.plots.measurements import heat_map

# %% [markdown]
# ## 1 · The mask of a decoder (4 points)
#
# A decoder reads sentences of token numbers, padded at the end with `0`. Position *q* may look at
# position *k* if *k* is not padding and not later than *q*. Write `decoder_mask(tokens)`: from
# tokens of shape (batch, length) make a mask of shape (batch, 1, queries, keys), `True` where a
# query may look.

# %% answer="decoder_mask"
def decoder_mask(tokens):
    ### BEGIN SOLUTION
    causal = torch.ones(tokens.size(1), tokens.size(1), dtype=torch.bool).tril()
    return (tokens != 0)[:, None, None, :] & causal
    ### END SOLUTION

# %% test="test_decoder_mask" points=4
verdict = check(decoder_mask)
verdict
### BEGIN HIDDEN TESTS
tokens = torch.randint(1, 20, (3, 6))
assert decoder_mask(tokens).diagonal(dim1=-2, dim2=-1).all(), "a token may look at itself"
assert decoder_mask(tokens).sum() == 3 * 21, "without padding, 1 + 2 + … + n pairs may look"
4 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · Scaled dot-product attention (6 points)
#
# Equation (1) of the paper: softmax(QKᵀ/√d_k)·V. Return the output and the weights. `mask` is
# `None` or a boolean tensor that can be broadcast to (batch, heads, queries, keys), `True` where a
# query may look. One thing the paper does not say: a query that may look at no key at all gets
# weights of zero and an output of zero.

# %% answer="attention"
def attention(query, key, value, mask):
    ### BEGIN SOLUTION
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value, weights
    ### END SOLUTION

# %% test="test_attention" points=6
verdict = check(attention)
verdict
### BEGIN HIDDEN TESTS
query, key, value = torch.randn(3, 2, 4, 9, 16).unbind(0)
mask = torch.ones(9, 9, dtype=torch.bool).tril()
expected = nn.functional.scaled_dot_product_attention(query, key, value, mask)
torch.testing.assert_close(attention(query, key, value, mask)[0], expected)
output, weights = attention(1000 * query, key, value, mask)
assert not output.isnan().any(), "large scores must not overflow"
6 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · A window that moves along (4 points)
#
# Long texts make attention expensive: every position looks at all earlier ones. One remedy is a
# window: a position looks at itself and at the `width` − 1 positions before it, and at nothing
# else. Write `window_mask(length, width)` with the shape (1, 1, length, length).

# %% answer="window_mask"
def window_mask(length, width):
    ### BEGIN SOLUTION
    distance = torch.arange(length)[:, None] - torch.arange(length)
    return ((distance >= 0) & (distance < width))[None, None]
    ### END SOLUTION

# %% [markdown]
# There is no `check` for this one: write down what you expect, and compare. Here is a start.

# %% test="test_window_mask" points=4
def test_window_mask():
    mask = window_mask(4, 2)
    assert mask is not None, "not attempted yet"
    assert mask.shape == (1, 1, 4, 4), f"the shape is {tuple(mask.shape)}"
    assert mask.dtype == torch.bool, f"the dtype is {mask.dtype}"
    assert mask[0, 0, 3].tolist() == [False, False, True, True]


verdict = run_test(test_window_mask)
verdict
### BEGIN HIDDEN TESTS
assert verdict.passed
whole = torch.ones(7, 7, dtype=torch.bool)
assert torch.equal(window_mask(7, 7)[0, 0], whole.tril()), "a window as wide as the text"
assert torch.equal(window_mask(7, 20)[0, 0], whole.tril()), "a window wider than the text"
assert torch.equal(window_mask(7, 1)[0, 0], torch.eye(7, dtype=torch.bool)), "a window of one"
for width in (2, 3, 5):
    expected = whole.tril() & whole.triu(1 - width)
    assert torch.equal(window_mask(7, width)[0, 0], expected), "a window in between"
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Multi-head attention as a module (8 points)
#
# Write `MultiHeadAttention(d_model, num_heads)` with four `nn.Linear` layers, with bias, called
# `query`, `key`, `value` and `output`. Calling it as `module(x, memory, mask)` projects `x` (batch,
# queries, d_model) to queries and `memory` (batch, keys, d_model) to keys and values, splits each
# into heads of d_model / num_heads channels that lie side by side, attends with your `attention`,
# puts the heads together and projects the result. It returns a tensor of the shape of `x`.

# %% answer="MultiHeadAttention"
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        ### BEGIN SOLUTION
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)
        ### END SOLUTION

    def forward(self, x, memory, mask):
        ### BEGIN SOLUTION
        def split(states):
            return states.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

        query, key, value = self.query(x), self.key(memory), self.value(memory)
        heads, _ = attention(split(query), split(key), split(value), mask)
        return self.output(heads.transpose(1, 2).flatten(2))
        ### END SOLUTION

# %% test="test_parameters" points=2
def test_parameters():
    names = {name for name, _ in MultiHeadAttention(8, 2).named_parameters()}
    wanted = {
        f"{part}.{kind}"
        for part in ("query", "key", "value", "output")
        for kind in ("weight", "bias")
    }
    assert names == wanted, f"your parameters are {sorted(names)}"


verdict = run_test(test_parameters)
verdict
### BEGIN HIDDEN TESTS
assert verdict.passed
sizes = {tuple(p.shape) for p in MultiHeadAttention(12, 3).parameters()}
assert sizes == {(12, 12), (12,)}, "each layer is as wide as the model"
### END HIDDEN TESTS

# %% [markdown]
# The grader loads weights into your module and into PyTorch's own `nn.MultiheadAttention` and
# compares. You can do the same: the rows of its `in_proj_weight` are those of `query`, `key` and
# `value`, one after the other.

# %% test="test_multi_head_attention" points=6
def test_shape():
    module = MultiHeadAttention(8, 2)
    output = module(torch.randn(3, 5, 8), torch.randn(3, 4, 8), None)
    assert output is not None, "not attempted yet"
    assert output.shape == (3, 5, 8), f"the shape is {tuple(output.shape)}"


verdict = run_test(test_shape)
verdict
### BEGIN HIDDEN TESTS
assert verdict.passed
mine, right = MultiHeadAttention(12, 3), nn.MultiheadAttention(12, 3, batch_first=True)
with torch.no_grad():
    for number, part in enumerate((mine.query, mine.key, mine.value)):
        part.weight.copy_(right.in_proj_weight[12 * number : 12 * number + 12])
        part.bias.copy_(right.in_proj_bias[12 * number : 12 * number + 12].normal_())
    mine.output.weight.copy_(right.out_proj.weight)
    mine.output.bias.copy_(right.out_proj.bias)
x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
expected = right(x, memory, memory)[0]
assert torch.allclose(mine(x, memory, None), expected, atol=1e-5), "attention to another sequence"
causal = torch.ones(5, 5, dtype=torch.bool).tril()
expected = right(x, x, x, attn_mask=~causal)[0]
assert torch.allclose(mine(x, x, causal[None, None]), expected, atol=1e-5), "with a causal mask"
mine(x, memory, None).square().sum().backward()
named = {name: p.grad for name, p in mine.named_parameters() if name != "key.bias"}
assert all(g is not None and g.abs().max() > 0 for g in named.values()), "a gradient for all"
### END HIDDEN TESTS

# %% [markdown] question="q_masks"
# ## 5 · Three masks in one figure (4 points, graded by hand)
#
# Draw random queries and keys for 12 positions, and take the weights that your `attention` gives
# with no mask, with the mask of a decoder, and with a window of four. Show the three as heat maps
# side by side (`heat_map(axes, weights, "weight")` helps), label the axes, and write below what one
# sees: who looks at whom, and how the size of the weights changes from row to row.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 1 | three maps of the same scores, queries down, keys across, axes labelled |
# | 1 | the triangle and the band are right, and described |
# | 1 | in each row the weights add up to one, so the first rows of the masked maps are brighter |
# | 1 | the same colour scale for the three, or a remark that they differ |
# ### END MARK SCHEME

# %% manual="masks_figure" points=2
### BEGIN SOLUTION
query, key = torch.randn(2, 1, 1, 12, 16, generator=torch.Generator().manual_seed(0)).unbind(0)
masks = {
    "no mask": None,
    "decoder": decoder_mask(torch.ones(1, 12, dtype=torch.long)),
    "window of 4": window_mask(12, 4),
}
figure, panels = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
for axes, (name, mask) in zip(panels, masks.items(), strict=True):
    weights = attention(query, key, key, mask)[1][0, 0]
    heat_map(axes, weights, "weight", vmin=0, vmax=1)
    axes.set(title=name, xlabel="key", ylabel="query")
### END SOLUTION

# %% [markdown] manual="masks_words" points=2
# In the first map every query looks at every key, at some more, at some less, as the lot had it.
# The decoder's mask leaves a triangle, the window a band of four along the diagonal, everything
# else is exactly zero. Each row adds up to one, so the fewer keys a row has, the more each gets:
# the first rows of both masked maps are the brightest, and the very first gives its only key all
# the weight.

# %% [markdown] question="q_questions"
# ## 6 · Two questions (6 points, graded by hand)
#
# **a.** Why are the scores divided by √d_k? Say what happens to the softmax without it when d_k
# grows, and what that does to the gradients.
#
# **b.** A friend puts the padding mask on the *queries* instead of on the keys. What is wrong then,
# and why may the loss hardly show it?
#
# A few sentences each are enough.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 1 | a: a product of d_k independent terms of variance 1 has variance d_k |
# | 1 | a: the softmax of large scores is nearly one-hot |
# | 1 | a: its gradients are nearly zero there |
# | 2 | b: real tokens still look at padding, and outputs depend on how much of it there is |
# | 1 | b: the outputs at padded queries are thrown away; the model learns to live with the rest |
# ### END MARK SCHEME

# %% [markdown] manual="scaling" points=3
# **a.** With entries of mean 0 and variance 1, q·k is a sum of d_k terms and has variance d_k.
# Without the division the scores grow like √d_k, the softmax puts almost all weight on the largest,
# and there its derivative p(1 − p) is nearly zero: hardly any gradient gets through. Divided by
# √d_k, the variance is 1, whatever d_k.

# %% [markdown] manual="padding" points=3
# **b.** What padded queries find is thrown away anyway. The real queries, however, go on looking at
# padded keys, so a sentence's result depends on how long the longest one in its batch is. In
# training that is a little noise to which the model adapts, so the loss is hardly worse; it shows
# when the same sentence is translated alone and in a batch.

# %% [markdown]
# Done? Run everything once from the top (*Restart Kernel and Run All Cells*), save, and let
# `transformer-lib verify-submission attention.ipynb` look at the file before you hand it in.
