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
# Attention as today's models use it: a window, with a few tokens that every position sees; scores
# that cannot grow without limit; prefixes; keys and values that heads share. You build these from
# matrix products and a softmax, and count what they save. You need chapters 5 to 7. Allow about
# three hours.
#
# | task | what | points |
# |---|---|---|
# | 1 | a window with global tokens | 5 |
# | 2 | attention with a cap | 6 |
# | 3 | prefixes of different lengths | 4 |
# | 4 | grouped-query attention as a module | 8 |
# | 5 | three masks on scores of your own | 4 |
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
# each, and with no more of `transformer_lib` than what the cell at the top imports from.
#
# Use `torch`'s basic operations, not its ready-made attention. The grader notes any call of a
# ready-made function. Hand in this one notebook, and do not rename it; `transformer-lib
# verify-submission attention.ipynb` says whether it can be graded.

# %%
import math

import matplotlib.pyplot as plt
import torch
from torch import nn

from transformer_lib.checks import check, run_test
from transformer_lib.personal import personal_number
from transformer_lib.plots.measurements import heat_map

# %% [markdown]
# Some tasks use numbers of your own, which are computed from your user name: the one under which
# you hand in. Put it between the quotes. (If you work by yourself, any name will do.)

# %% personal=true
COHORT = "self-study"
STUDENT = "..."  # your user name
NUMBER = personal_number(STUDENT, COHORT)
NUMBER

# %% [markdown]
# ## 1 · A window with global tokens (5 points)
#
# Long texts make attention expensive: every position looks at all earlier ones. A window lets a
# position look at itself and at the `width` − 1 positions before it. Models that write long texts
# turned out to break down once the very first tokens leave the window, so these stay visible to
# every position (Xiao et al. 2024).
#
# Write `global_window_mask(length, width, num_global)`. It returns a mask of shape (1, 1, length,
# length), True where a query may look: within the window, or at one of the first `num_global`
# positions, and never into the future.

# %% answer="global_window_mask"
def global_window_mask(length, width, num_global):
    ### BEGIN SOLUTION
    place = torch.arange(length)
    distance = place[:, None] - place[None, :]
    near, first = distance < width, place[None, :] < num_global
    return ((distance >= 0) & (near | first))[None, None]
    ### END SOLUTION

# %% test="test_global_window_mask" points=5
verdict = check(global_window_mask)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

causal = torch.ones(1, 1, 7, 7, dtype=torch.bool).tril()
expect(global_window_mask(7, 1, 7), causal, "all tokens are global")
expect(global_window_mask(7, 7, 0), causal, "a window as wide as the text")
band = causal.triu(-2)
band[..., :2] = causal[..., :2]
expect(global_window_mask(7, 3, 2), band, "the last query sees 3 + 2")
5 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · Attention with a cap (6 points)
#
# Scores that grow during training make a softmax that is nearly one-hot. Gemma 2 caps them
# smoothly: after the division by √d_k each score *s* becomes cap · tanh(s / cap), and then the
# softmax is taken.
#
# Return the output and the weights. `mask` is `None` or a boolean tensor that can be broadcast to
# (batch, heads, queries, keys), True where a query may look. A query that may look at no key at all
# gets weights of zero and an output of zero.

# %% answer="capped_attention" ready_made="scaled_dot_product_attention multi_head_attention_forward"
def capped_attention(query, key, value, mask, cap):
    ### BEGIN SOLUTION
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    scores = cap * torch.tanh(scores / cap)
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value, weights
    ### END SOLUTION

# %% test="test_capped_attention" points=6
verdict = check(capped_attention)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

query, key, value = torch.randn(3, 2, 4, 9, 16).unbind(0)
mask = torch.ones(9, 9, dtype=torch.bool).tril()
for factor, cap, says in ((1, 1e4, "without an effect"), (1000, 30.0, "of large scores")):
    scores = cap * torch.tanh(factor * query @ key.mT / 4.0 / cap)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    got = capped_attention(factor * query, key, value, mask, cap)
    expect(got, (weights @ value, weights), f"a cap {says}", atol=1e-4)
6 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Prefixes of different lengths (4 points)
#
# A decoder-only model can read a question in both directions and writes its answer from left to
# right. Write `prefix_mask(prefix_lengths, length)`: `prefix_lengths`, (batch,), says how many of
# the `length` positions of each row are the question. Return a mask of shape (batch, 1, length,
# length), True where a query may look. Every position may look at the whole question; apart from
# that, no position may look into the future.

# %% answer="prefix_mask"
def prefix_mask(prefix_lengths, length):
    ### BEGIN SOLUTION
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    question = torch.arange(length)[None, :] < prefix_lengths[:, None]  # (batch, keys)
    return causal | question[:, None, None, :]
    ### END SOLUTION

# %% [markdown]
# There is no `check` for this one: write tests of your own; these are only a start.

# %% test="test_prefix_mask" points=4
def test_prefix_mask():
    mask = prefix_mask(torch.tensor([2, 0]), 3)
    assert mask is not None, "not attempted yet, or a return is missing"
    assert mask.shape == (2, 1, 3, 3), f"the shape is {tuple(mask.shape)}"
    assert mask.dtype == torch.bool, f"the dtype is {mask.dtype}"
    assert mask[0, 0, 0].tolist() == [True, True, False], "the first position sees both of its two"


verdict = run_test(test_prefix_mask)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

assert verdict.passed
lengths = {0: "no question: causal", 6: "nothing but a question", 4: "a question of four"}
masks = []
for length, says in lengths.items():
    expected = torch.ones(1, 1, 6, 6, dtype=torch.bool).tril()
    expected[..., :length] = True
    expect(prefix_mask(torch.tensor([length]), 6), expected, says)
    masks.append(expected)
expect(prefix_mask(torch.tensor([*lengths]), 6), torch.cat(masks), "three in one batch")
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Grouped-query attention as a module (8 points)
#
# Write `GroupedQueryAttention(d_model, num_heads, num_groups)` with four `nn.Linear` layers, with
# bias, called `query`, `key`, `value` and `output`. Each head has d_k = d_model / num_heads
# channels. `query` makes `num_heads` heads, `key` and `value` make only `num_groups` heads each,
# and adjacent query heads share a key head and a value head.
#
# A call `module(x, memory, mask)` projects `x` (batch, queries, d_model) to queries and `memory`
# (batch, keys, d_model) to keys and values, attends (without a cap), puts the heads together and
# projects the result to the shape of `x`. The mask is (batch, 1, queries, keys), True where a key
# may be attended to, or None; the heads of a query that may see nothing give zero. (2 points are
# for the parameters and for what they do without a mask, 6 for the rest.)

# %% answer="GroupedQueryAttention" ready_made="scaled_dot_product_attention multi_head_attention_forward"
class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, num_heads, num_groups):
        super().__init__()
        self.num_heads, self.num_groups = num_heads, num_groups
        ### BEGIN SOLUTION
        shared = d_model // num_heads * num_groups
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, shared)
        self.value = nn.Linear(d_model, shared)
        self.output = nn.Linear(d_model, d_model)
        ### END SOLUTION

    def forward(self, x, memory, mask):
        ### BEGIN SOLUTION
        def split(states, heads):
            return states.unflatten(-1, (heads, -1)).transpose(1, 2)

        members = self.num_heads // self.num_groups
        query = split(self.query(x), self.num_heads)
        key, value = (
            split(part(memory), self.num_groups).repeat_interleave(members, dim=1)
            for part in (self.key, self.value)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0.0)
        return self.output((weights @ value).transpose(1, 2).flatten(2))
        ### END SOLUTION

# %% test="test_parameters" points=2
def test_parameters():
    names = {name for name, _ in GroupedQueryAttention(8, 4, 2).named_parameters()}
    wanted = {
        f"{part}.{kind}"
        for part in ("query", "key", "value", "output")
        for kind in ("weight", "bias")
    }
    missing, more = sorted(wanted - names), len(names - wanted)
    assert names == wanted, f"parameters that are missing: {missing}; others: {more}"


verdict = run_test(test_parameters)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

assert verdict.passed
module = GroupedQueryAttention(12, 6, 2)
rows = {"query": 12, "key": 4, "value": 4, "output": 12}  # two groups of two channels
shapes = {f"{part}.weight": (n, 12) for part, n in rows.items()}
shapes |= {f"{part}.bias": (n,) for part, n in rows.items()}
got = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
expect(got, shapes, "the shapes of the parameters")
bias, weight, last = torch.randn(2), torch.randn(12, 12), torch.randn(12)
with torch.no_grad():
    for parameter in module.parameters():
        parameter.zero_()
    module.value.bias.copy_(bias.repeat(2))
    module.output.weight.copy_(weight)
    module.output.bias.copy_(last)
expected = (weight @ bias.repeat(6) + last).expand(2, 5, 12)
expect(
    module(torch.randn(2, 5, 12), torch.randn(2, 4, 12), None),
    expected,
    "with all other weights zero, each head is the bias of `value`, whatever x and memory are",
)
### END HIDDEN TESTS

# %% [markdown]
# With as many groups as heads, this is ordinary multi-head attention. So the grader loads the same
# weights into your module and into PyTorch's own `nn.MultiheadAttention`, and compares the outputs.
# You can do the same: the rows of its `in_proj_weight` are those of `query`, `key` and `value`, one
# after the other. There is no `check` for this task, and the test below cannot tell which heads
# share which keys, nor what the mask does.

# %% test="test_grouped_attention" points=6
def test_shape():
    module = GroupedQueryAttention(8, 4, 2)
    output = module(torch.randn(3, 5, 8), torch.randn(3, 4, 8), None)
    assert output is not None, "not attempted yet, or a return is missing"
    assert output.shape == (3, 5, 8), f"the shape is {tuple(output.shape)}"
    other = module(torch.randn(3, 5, 8), torch.randn(3, 4, 8), None)
    assert not torch.allclose(output, other), "it depends on neither x nor memory"
    blind = torch.ones(3, 1, 5, 4, dtype=torch.bool)
    blind[0, 0, 2] = False
    assert module(*torch.randn(2, 3, 4, 8).unbind(), blind[:, :, :4]).isfinite().all(), "NaN"


verdict = run_test(test_shape)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

assert verdict.passed


def give_weights(mine, right, heads, groups):
    """The same ones to both: PyTorch's has a row for each head, shared or not."""
    for number, (part, shared) in enumerate(zip((mine.query, mine.key, mine.value), groups)):
        rows = torch.randn(shared, 12 // heads, 13) / 2  # weights, and a bias at the end
        part.weight.copy_(rows.flatten(0, 1)[:, :12])
        part.bias.copy_(rows.flatten(0, 1)[:, 12])
        rows = rows.repeat_interleave(heads // shared, dim=0).flatten(0, 1)
        right.in_proj_weight[12 * number : 12 * number + 12] = rows[:, :12]
        right.in_proj_bias[12 * number : 12 * number + 12] = rows[:, 12]
    mine.output.weight.copy_(right.out_proj.weight)
    mine.output.bias.copy_(right.out_proj.bias.normal_())


x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
says = {3: "where x attends to another sequence", 6: "where adjacent query heads share a head"}
for heads, groups in ((3, 3), (6, 2)):
    mine = GroupedQueryAttention(12, heads, groups)
    right = nn.MultiheadAttention(12, heads, batch_first=True)
    with torch.no_grad():
        give_weights(mine, right, heads, (heads, groups, groups))
        expected = right(x, memory, memory)[0]
    expect(mine(x, memory, None), expected, f"not what nn.MultiheadAttention gives {says[heads]}")
causal = torch.ones(5, 5, dtype=torch.bool).tril()
expect(
    mine(x, x, causal[None, None].expand(2, 1, 5, 5)),
    right(x, x, x, attn_mask=~causal)[0],
    "not what nn.MultiheadAttention gives with a causal mask",
)
masks = causal.repeat(2, 1, 1, 1)  # another one for the second sentence, and a blind query
masks[1, ..., 3:] = False
masks[1, 0, 0] = False
says = {0.0: "each sentence has a mask of its own", 8.0: "all scores are far below zero"}
for distance in (0.0, 8.0):
    with torch.no_grad():
        for sign, part, rows in ((1, mine.query, slice(12)), (-1, mine.key, slice(12, 24))):
            part.bias += sign * distance
            right.in_proj_bias[rows] += sign * distance
        expected = right(x, x, x, attn_mask=~masks.repeat(1, 6, 1, 1).flatten(0, 1))[0]
        expected[1, 0] = right.out_proj.bias
    where = f"not nn.MultiheadAttention's where {says[distance]}"
    expect(mine(x, x, masks), expected, where, atol=1e-4)  # large scores have larger errors
expect(
    mine(x, x, torch.zeros(2, 1, 5, 5, dtype=torch.bool)),
    right.out_proj.bias.expand(2, 5, 12),
    "where nothing may be seen, the heads give zero, and the output is the bias of `output`",
)
### END HIDDEN TESTS

# %% [markdown] question="q_masks"
# ## 5 · Three masks on scores of your own (4 points, graded by hand)
#
# 1. With your `NUMBER` as the seed, draw random queries and keys for 12 positions of 16 channels,
#    the queries three times as large as `torch.randn` gives them, and values of any kind.
# 2. Compute the weights with your `capped_attention`: without a mask, with a prefix of 5, and with
#    a window of 3 and one global token, each with a cap of 50 and with a cap of 1.
# 3. Show the three with cap 50 as heat maps side by side, axes labeled (`heat_map(axes, weights,
#    "weight", vmin=0, vmax=1)` helps, in `plt.subplots(1, 3, layout="constrained")`).
# 4. For all six, print the mean over the rows of the entropy −Σ w ln w, where 0 · ln 0 counts as 0.
#    For the window with cap 50, also print for each row its entropy, ln n (n is the number of keys
#    that the row can see) and the scores of these keys; and the largest score in size.
#
# In the text cell below, give your seed and the six entropies. Explain the order of the masks (or
# why yours differs) by how many keys a row can see, and the effect of the cap by what it does to
# the score that is largest in size. With the window and cap 50, for which row is the entropy
# furthest below ln n, and which scores make it so?
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 1 | cell 1: three maps of the same scores, with the student's own seed ({{ NUMBER }}), labeled, one color scale; the window's band and first column, and the prefix's block and triangle, are right |
# | 1 | cell 1: the six entropies are those of the student's own weights, and 0 · ln 0 counts as 0 |
# | 1 | at most ln n for n visible keys, hence the order; a cap of 50 hardly changes the largest score, a cap of 1 leaves scores between −1 and 1, so weights differ by less than e² and entropies are near ln n |
# | 1 | the row with the largest gap, and its scores, are right for the student's seed |
# ### END MARK SCHEME

# %% manual="masks_figure" points=2
### BEGIN SOLUTION
random = torch.Generator().manual_seed(NUMBER)
query, key, value = torch.randn(3, 1, 1, 12, 16, generator=random).unbind(0)
query = 3.0 * query
masks = {
    "no mask": None,
    "prefix of 5": prefix_mask(torch.tensor([5]), 12),
    "window of 3, one global": global_window_mask(12, 3, 1),
}
figure, panels = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
for axes, (name, mask) in zip(panels, masks.items(), strict=True):
    weights, flat = (
        capped_attention(query, key, value, mask, cap)[1][0, 0] for cap in (50.0, 1.0)
    )  # those of the window with cap 50 are looked at below
    heat_map(axes, weights, "weight", vmin=0, vmax=1)
    axes.set(title=name, xlabel="key", ylabel="query")
    high, low = (torch.special.entr(w).sum(dim=-1).mean() for w in (weights, flat))
    print(f"{name:24} mean entropy {high:.2f} with cap 50, {low:.2f} with cap 1")
scores = (query @ key.mT)[0, 0] / 4.0
print(f"largest score in size {scores.abs().max():.1f}")
seen = masks["window of 3, one global"].view(12, 12)
for row in range(12):
    entropy, limit = torch.special.entr(weights[row]).sum(), seen[row].sum().log()
    its = " ".join(f"{score:.1f}" for score in scores[row][seen[row]])
    print(f"row {row:2}: {entropy:.2f}, {limit - entropy:.2f} below {limit:.2f}; scores {its}")
### END SOLUTION

# %% [markdown] manual="masks_words" points=2
# My seed is 275989. The entropies are 0.74, 0.46 and 0.36 with cap 50 and 2.18, 1.63 and 0.91 with
# cap 1, for no mask, the prefix and the window. A row that sees n keys has an entropy of at most ln
# n, reached if all weights are equal. Without a mask all rows see 12 keys (ln 12 = 2.48). With the
# prefix the first five rows see 5 and the others 6 to 12, so the mean is lower. In the window no
# row sees more than 4, the first ones fewer (the very first sees only itself, and has an entropy of
# 0), so the window's mean is the lowest. With cap 50 my scores hardly change (the largest in size,
# −10.6, becomes −10.4), and a few large ones take most of the weight. With cap 1 it becomes −1.0,
# and no score is larger than 1 in size, so within a row no weight is more than e² times another:
# all rows come close to ln n. The row furthest below its limit is row 6, 1.38 below ln 4: one of
# its scores, 7.2, is far above the others (−1.0, −3.6 and −10.6), so it takes nearly everything.

# %% [markdown] question="q_questions"
# ## 6 · Two questions (6 points, graded by hand)
#
# **a.** Let *n* be 1,000 plus the last three digits of your `NUMBER`. How many pairs (query, key)
# does a causal mask allow for *n* tokens, and how many does a window of 64 with 4 global tokens
# allow? Give the formulas and both numbers. The mask of task 1, applied to all scores as in task 2,
# saves none of this work: why, and what would a program have to do instead?
#
# **b.** A colleague replaces cap · tanh(s / cap) by `clamp(-cap, cap)`, “because it is the same and
# cheaper”. Compare the two, and their gradients, at s = 0, at s = cap (with clamp: just below it
# and just above) and at s = 3 · cap. What could go wrong in training with the colleague's version,
# and what experiment would show it?
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 1 | a: n(n + 1)/2, with the student's own n, {{ 1000 + NUMBER % 1000 }}: {{ f"{(n := 1000 + NUMBER % 1000) * (n + 1) // 2:,}" }} |
# | 1 | a: the window's number, with the first rows and the global tokens right: {{ f"{2080 + (936 + NUMBER % 1000) * 68 - 6:,}" }} |
# | 1 | a: all products are computed and then thrown away; only products within the window may be computed |
# | 1 | b: values: equal at 0; 0.76 cap and cap at s = cap; both near cap at 3 cap |
# | 1 | b: gradients: 1 and 1; 0.42 and 1 (or 0); 0.01 and exactly 0 beyond the cap |
# | 1 | b: a score beyond the cap gets no gradient of its own any more; an experiment with a case, a measure, seeds |
# ### END MARK SCHEME

# %% [markdown] manual="cost" points=3
# **a.** My n is 1,989. Causal: n(n + 1)/2 = 1,979,055 pairs. Window: row i (from 0) sees min(i + 1,
# 64) keys of its window, and those of the first 4 that lie outside: none up to row 63, then i − 63,
# at most 4. The first 64 rows have 2,080, the other 1,925 have 64 each and 4 more, except the first
# three of them, which have 1, 2 and 3 more: 1,925 · 68 − 6 = 130,894. Together 132,974, a
# fifteenth. The mask saves nothing, because `query @ key.T` computes all pairs first, and then most
# are overwritten. A program would have to compute only the products within the window, block by
# block along the diagonal, and those with the four first keys.

# %% [markdown] manual="cap" points=3
# **b.** At 0 both are 0 with a gradient of 1. At s = cap, tanh gives 0.76 cap with a gradient of
# 1 − 0.76² = 0.42; clamp gives cap, and its gradient is 1 below and 0 above. At 3 cap, tanh is at
# 0.995 cap with a gradient of 0.01, clamp at cap with exactly 0. So with clamp a score that has
# once gone beyond the cap no longer gets a gradient and cannot come back by itself; with tanh it
# gets a small one. I would train a small model with both, with a cap so low that many scores meet
# it, five seeds each, and count at each step the share of scores beyond the cap, beside the loss.

# %% [markdown]
# Done? Run everything once from the top (*Restart Kernel and Run All Cells*), save, and run
# `transformer-lib verify-submission attention.ipynb` before you hand in the file.
