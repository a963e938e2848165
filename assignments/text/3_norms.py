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
# # Assignment 3 · Normalisation and residuals
#
# Two small things without which no deep Transformer learns: a norm, and a way around each sublayer.
# You write three norms and two ways to combine them, and measure what the difference does to a
# gradient. Chapters 8 and 9 are what you need. Plan two hours.
#
# | task | what | points |
# |---|---|---|
# | 1 | layer norm | 5 |
# | 2 | RMS norm | 4 |
# | 3 | batch norm as a module, with a memory | 7 |
# | 4 | post-norm and pre-norm | 6 |
# | 5 | what reaches the first layer | 6 |
# | 6 | a question | 4 |
#
# **How it works.** Write your code where it says `# your code`. Run the cell below it: `check(…)`
# tries your function on new numbers each time and tells you what is wrong, if something is. The
# grader does the same and tries a few things more. A task that builds on an earlier one is graded
# with a right answer to the earlier one, so a mistake costs you only once.
#
# Use `torch`'s basic operations, not its ready-made norms. Hand in this one notebook under its own
# name; `transformer-lib verify-submission norms.ipynb` says whether it can be graded.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

from transformer_lib.checks import check, run_test

# %% [markdown]
# ## 1 · Layer norm (5 points)
#
# `layer_norm(x, scale, shift, eps)` takes each vector of `x` (batch, length, d_model) by itself:
# minus its mean, divided by √(variance + eps), times `scale`, plus `shift`. The variance is the
# biased one, divided by d_model.

# %% answer="layer_norm"
def layer_norm(x, scale, shift, eps):
    ### BEGIN SOLUTION
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, correction=0, keepdim=True)
    return scale * (x - mean) / torch.sqrt(variance + eps) + shift
    ### END SOLUTION

# %% test="test_layer_norm" points=5
verdict = check(layer_norm)
verdict
### BEGIN HIDDEN TESTS
x, scale, shift = torch.randn(2, 3, 9), torch.randn(9), torch.randn(9)
expected = nn.functional.layer_norm(x, (9,), scale, shift, 1e-5)
torch.testing.assert_close(layer_norm(x, scale, shift, 1e-5), expected)
5 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · RMS norm (4 points)
#
# `rms_norm(x, scale, eps)` leaves out two things: `scale` · x / √(mean of x² + eps).

# %% answer="rms_norm"
def rms_norm(x, scale, eps):
    ### BEGIN SOLUTION
    return scale * x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    ### END SOLUTION

# %% test="test_rms_norm" points=4
verdict = check(rms_norm)
verdict
### BEGIN HIDDEN TESTS
x = torch.randn(2, 3, 9)
expected = nn.functional.rms_norm(x, (9,), eps=1e-6)
torch.testing.assert_close(rms_norm(x, torch.ones(9), 1e-6), expected)
4 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Batch norm as a module, with a memory (7 points)
#
# `BatchNorm(d_model)` normalises each *channel* over all sentences and positions of a batch, with biased
# variance and `eps` = 1e-5, then scales and shifts it by the parameters `scale` and `shift`. In training
# it keeps running averages: `running = 0.9 · running + 0.1 · batch`, of the mean (from 0) and of the
# *unbiased* variance (from 1). In evaluation it uses these and does not change them.

# %% answer="BatchNorm"
class BatchNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_variance", torch.ones(d_model))

    def forward(self, x):
        ### BEGIN SOLUTION
        if self.training:
            flat = x.flatten(0, 1)
            mean, variance = flat.mean(dim=0), flat.var(dim=0, correction=0)
            with torch.no_grad():
                self.running_mean.lerp_(mean, 0.1)
                self.running_variance.lerp_(flat.var(dim=0), 0.1)
        else:
            mean, variance = self.running_mean, self.running_variance
        return self.scale * (x - mean) / torch.sqrt(variance + 1e-5) + self.shift
        ### END SOLUTION

# %% test="test_batch_norm_training" points=3
def test_batch_norm():
    output = BatchNorm(4)(5 + 3 * torch.randn(6, 7, 4))
    assert output is not None, "not attempted yet"
    assert output.shape == (6, 7, 4), f"the shape is {tuple(output.shape)}"
    assert output.mean(dim=(0, 1)).abs().max() < 1e-4, "each channel has a mean of 0"


verdict = run_test(test_batch_norm)
verdict
### BEGIN HIDDEN TESTS
assert verdict.passed
mine, right = BatchNorm(5), nn.BatchNorm1d(5)
for parameter, other in zip(mine.parameters(), right.parameters()):
    parameter.data.copy_(other.data.normal_())
x = 2 + 3 * torch.randn(4, 6, 5)
expected = right(x.transpose(1, 2)).transpose(1, 2)
assert torch.allclose(mine(x), expected, atol=1e-5), "as PyTorch's, in training"
### END HIDDEN TESTS

# %% [markdown]
# Now the memory. PyTorch's `nn.BatchNorm1d` wants the channels in the middle: `x.transpose(1, 2)`.

# %% test="test_batch_norm_evaluation" points=4
def test_memory():
    norm = BatchNorm(4)
    norm.eval()
    x = torch.randn(2, 3, 4)
    assert norm(x) is not None, "not attempted yet"
    assert torch.allclose(norm(x), x, atol=1e-4), "fresh, in evaluation, it changes next to nothing"


verdict = run_test(test_memory)
verdict
### BEGIN HIDDEN TESTS
assert verdict.passed
mine, right = BatchNorm(5), nn.BatchNorm1d(5)
for _ in range(4):
    x = 2 + 3 * torch.randn(4, 6, 5)
    mine(x), right(x.transpose(1, 2))
mine.eval(), right.eval()
x = torch.randn(2, 3, 5)
expected = right(x.transpose(1, 2)).transpose(1, 2)
assert torch.allclose(mine(x), expected, atol=1e-4), "as PyTorch's, after four batches"
assert torch.equal(mine(x), mine(x)), "evaluation changes nothing"
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Post-norm and pre-norm (6 points)
#
# `x` goes through a `sublayer` (a function), with a `norm` and `dropout` (functions too). The paper
# puts the norm after the sum, LayerNorm(x + dropout(Sublayer(x))); nearly everybody since puts it
# before the sublayer, so that the way around stays free.

# %% answer="post_norm"
def post_norm(x, sublayer, norm, dropout):
    ### BEGIN SOLUTION
    return norm(x + dropout(sublayer(x)))
    ### END SOLUTION

# %% test="test_post_norm" points=3
verdict = check(post_norm)
verdict
### BEGIN HIDDEN TESTS
3 * verdict.share
### END HIDDEN TESTS

# %% answer="pre_norm"
def pre_norm(x, sublayer, norm, dropout):
    ### BEGIN SOLUTION
    return x + dropout(sublayer(norm(x)))
    ### END SOLUTION

# %% test="test_pre_norm" points=3
verdict = check(pre_norm)
verdict
### BEGIN HIDDEN TESTS
3 * verdict.share
### END HIDDEN TESTS

# %% [markdown] question="q_gradient"
# ## 5 · What reaches the first layer (6 points, graded by hand)
#
# Build stacks of 2, 4, 8, 16 and 32 sublayers, each a linear layer of width 64 (weights by
# `nn.init.xavier_uniform_`) and a ReLU. Combine them in three ways: one after the other without any
# way around, with your `post_norm`, and with your `pre_norm` (and `nn.LayerNorm`, no dropout). Send
# one random batch through, take the mean square of the distance to random targets as the loss, go
# backward, and note the norm of the gradient at the **first** sublayer's weights divided by that at
# the **last** one's. Draw the three lines over the depth, both axes logarithmic. Write below what
# one sees and why it is so, and whether it is what you had expected of post-norm against pre-norm.
# Same seed for all.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 2 | the measurement is right: same input and weights, first over last, three forms |
# | 1 | three lines, labelled, logarithmic axes |
# | 1 | without a way around the share that reaches the first sublayer goes to nearly nothing |
# | 1 | why: a product of many factors below one, against a sum in which 1 is a term |
# | 1 | an honest sentence on post-norm and pre-norm: both keep the gradient here, and by how much |
# ### END MARK SCHEME

# %% manual="gradient_figure" points=3
### BEGIN SOLUTION
def plain(x, sublayer, norm, dropout):
    return dropout(sublayer(x))


def first_over_last(form, depth):
    torch.manual_seed(0)
    x, target = torch.randn(2, 8, 32, 64).unbind(0)
    sublayers = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(depth)]
    for sublayer in sublayers:
        nn.init.xavier_uniform_(sublayer[0].weight)
    for sublayer in sublayers:
        x = form(x, sublayer, nn.LayerNorm(64), lambda y: y)
    (x - target).square().mean().backward()
    first, last = (s[0].weight.grad.norm().item() for s in (sublayers[0], sublayers[-1]))
    return first / last


depths = [2, 4, 8, 16, 32]
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, form in {"no way around": plain, "post-norm": post_norm, "pre-norm": pre_norm}.items():
    axes.plot(depths, [first_over_last(form, depth) for depth in depths], "o-", label=name)
axes.set(xlabel="sublayers", ylabel="gradient, first / last", yscale="log")
axes.legend()
axes.set_xscale("log", base=2)
### END SOLUTION

# %% [markdown] manual="gradient_words" points=3
# Without a way around, hardly a ten-thousandth of the last sublayer's gradient is left at the first
# one of 32: going back, it is multiplied by each sublayer's derivative, and these factors, below
# one in the mean, multiply. With x + Sublayer(x) the derivative is 1 plus something, so there is
# always a path on which nothing is lost. I had expected post-norm to lose some of it at each norm.
# With these random weights it does not: the first sublayer gets about six times the gradient of the
# last with post-norm and twice with pre-norm. What makes deep post-norm hard to train is not to be
# seen in this one number at the start.

# %% [markdown] question="q_batch"
# ## 6 · A question (4 points, graded by hand)
#
# Why do Transformers not use batch norm? Give two reasons that have to do with sentences, and one
# that has to do with how a translation is made word by word.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 1 | lengths differ: padding gets into the statistics, or positions have few samples |
# | 1 | a sentence's result depends on which other sentences are in its batch; small batches are noisy |
# | 2 | decoding: one sentence and one position at a time, so training and use differ |
# ### END MARK SCHEME

# %% [markdown] manual="batch_words" points=4
# Sentences have different lengths, so the statistics of a batch contain padding, or must leave it
# out and then rest on few words at late positions. What a sentence becomes depends on its
# neighbours in the batch, which is noise, and more of it the smaller the batch. And in decoding
# there is one position at a time, often of one sentence: there is no batch to take a mean of, so
# the running averages must do, and they are of another distribution. Layer norm needs nothing but
# the vector itself.

# %% [markdown]
# Done? Run everything once from the top (*Restart Kernel and Run All Cells*), save, and let
# `transformer-lib verify-submission norms.ipynb` look at the file before you hand it in.
