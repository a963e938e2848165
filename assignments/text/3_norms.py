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
# # Assignment 3 · Norms and residual connections
#
# Here you write variants of what you built in chapters 8 and 9: layer norm in groups of channels,
# the backward pass of RMSNorm, batch norm adapted to sentences, and two more places for a norm.
# Then you measure what reaches the first layer, and plan an experiment. Allow about three hours.
#
# | task | what | points |
# |---|---|---|
# | 1 | group norm | 5 |
# | 2 | the backward pass of RMSNorm | 6 |
# | 3 | batch norm that leaves padding out | 9 |
# | 4 | scaled post-norm, and a sandwich | 4 |
# | 5 | what reaches the first layer | 6 |
# | 6 | plan an experiment | 4 |
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
# Use `torch`'s basic operations, not its ready-made norms. The grader notes any call of a
# ready-made one. Hand in this one notebook, and do not rename it; `transformer-lib
# verify-submission norms.ipynb` says whether it can be graded.

# %%
import torch
from torch import nn

from transformer_lib.checks import check, run_test
from transformer_lib.personal import personal_number
from transformer_lib.plots.measurements import lines
from transformer_lib.plots.notebook import show

# %% [markdown]
# Some tasks use numbers of your own, which are computed from your user name: the one under which
# you hand in. Put it between the quotes. (If you work by yourself, any name will do.)

# %% personal=true
COHORT = "self-study"
STUDENT = "..."  # your user name
NUMBER = personal_number(STUDENT, COHORT)
NUMBER

# %% [markdown]
# ## 1 · Group norm (5 points)
#
# The channels of each position are divided into `num_groups` groups of neighbors, and each group is
# normalized by its own mean and biased variance. `scale` and `shift` have one number per channel,
# as in layer norm; `x` is (batch, length, d_model), and `eps` is added to the variance. (The group
# norm of images, which chapter 8 mentions, also averages over the positions. Here each position is
# normalized by itself, as in layer norm, so that none sees another.)

# %% answer="group_norm" ready_made="group_norm layer_norm batch_norm rms_norm"
def group_norm(x, scale, shift, num_groups, eps):
    ### BEGIN SOLUTION
    groups = x.unflatten(-1, (num_groups, -1))
    mean = groups.mean(dim=-1, keepdim=True)
    variance = groups.var(dim=-1, correction=0, keepdim=True)
    normed = (groups - mean) / torch.sqrt(variance + eps)
    return scale * normed.flatten(-2) + shift
    ### END SOLUTION

# %% test="test_group_norm" points=5
verdict = check(group_norm)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

x, scale, shift = torch.randn(2, 3, 12), torch.randn(12), torch.randn(12)
expected = nn.functional.group_norm(x.flatten(0, 1), 2, scale, shift, 1e-5).view_as(x)
got = group_norm(x, scale, shift, 2, 1e-5)
# So wide that a missing ε costs its property, and not all points.
expect(got, expected, "not what PyTorch's group_norm gives", atol=1e-2)
5 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · The backward pass of RMSNorm (6 points)
#
# RMSNorm computes $y = \gamma\, x / r$ with $r = \sqrt{\frac1d \sum_i x_i^2 + \varepsilon}$.
# `scale` is $\gamma$, and `upstream` is $\partial L/\partial y$, which is (batch, length, d_model)
# like `x`.
#
# Return two gradients: with respect to `x`, of the shape of `x`, and with respect to `scale`,
# (d_model,). Do not use autograd: it is off while your function runs, and must stay off.

# %% answer="rms_norm_backward" ready_made="rms_norm layer_norm grad backward run_backward"
def rms_norm_backward(x, upstream, scale, eps):
    ### BEGIN SOLUTION
    root = torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    normed, of_normed = x / root, upstream * scale
    along = normed * (of_normed * normed).mean(dim=-1, keepdim=True)
    return (of_normed - along) / root, (upstream * normed).sum(dim=(0, 1))
    ### END SOLUTION

# %% test="test_rms_norm_backward" points=6
verdict = check(rms_norm_backward)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

x, scale = torch.randn(2, 3, 7, requires_grad=True), torch.randn(7, requires_grad=True)
upstream = torch.randn(2, 3, 7)
y = nn.functional.rms_norm(x, (7,), scale, 1e-6)
expected = torch.autograd.grad(y, (x, scale), upstream)
got = rms_norm_backward(x.detach(), upstream, scale.detach(), 1e-6)
expect(got, expected, "not the gradients of PyTorch's rms_norm", atol=1e-4)
6 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Batch norm that leaves padding out (9 points)
#
# `MaskedBatchNorm(d_model)` is called as `norm(x, real)`: `x` is (batch, length, d_model), and
# `real`, (batch, length), is True where a position is not padding. Each channel is normalized by
# the mean and the biased variance over the *real* positions of the batch, ε = 10⁻⁵, then scaled and
# shifted by the parameters `scale` and `shift`. The output has the shape and the type of `x`; what
# it is at padding is ignored. Gradients flow through mean and variance, as in every batch norm.
#
# In training, the module keeps running averages, `running = 0.9 · running + 0.1 · batch`, of the
# mean (starting at 0) and of the *unbiased* variance (starting at 1), again over real positions. In
# evaluation it uses these averages and does not change them. Keep their values alone, detached: if
# gradients could flow back through them to earlier batches, every batch so far would stay in
# memory.

# %% answer="MaskedBatchNorm" ready_made="batch_norm layer_norm instance_norm"
class MaskedBatchNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model))
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_variance", torch.ones(d_model))

    def forward(self, x, real):
        ### BEGIN SOLUTION
        if self.training:
            words = x[real]
            mean, variance = words.mean(dim=0), words.var(dim=0, correction=0)
            with torch.no_grad():
                self.running_mean.lerp_(mean, 0.1)
                self.running_variance.lerp_(words.var(dim=0), 0.1)
        else:
            mean, variance = self.running_mean, self.running_variance
        return self.scale * (x - mean) / torch.sqrt(variance + 1e-5) + self.shift
        ### END SOLUTION

# %% [markdown]
# There is no `check` for this one: write tests of your own; these are only a start.

# %% test="test_masked_training" points=5
def test_masked_training():
    x, real = 5 + 3 * torch.randn(6, 7, 4), torch.ones(6, 7, dtype=torch.bool)
    real[:, 5:] = False
    output = MaskedBatchNorm(4)(x, real)
    assert output is not None, "not attempted yet, or a return is missing"
    assert output.shape == (6, 7, 4), f"the shape is {tuple(output.shape)}"
    assert output.dtype == x.dtype, f"the type is {output.dtype}"
    assert output[real].mean(dim=0).abs().max() < 1e-4, "real positions have a mean of 0"
    spread = output[real].std(dim=0, correction=0)
    assert (spread - 1).abs().max() < 1e-3, "real positions have a standard deviation of 1"


verdict = run_test(test_masked_training)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

assert verdict.passed
mine, right = MaskedBatchNorm(5), nn.BatchNorm1d(5)
with torch.no_grad():
    mine.scale.copy_(right.weight.normal_())
    mine.shift.copy_(right.bias.normal_())
x, real = 2 + 3 * torch.randn(4, 6, 5), torch.rand(4, 6) < 0.7
x[~real] = 100.0
expected = torch.zeros(4, 6, 5)
expected[real] = right(x[real])
says = "on real positions, not what nn.BatchNorm1d gives for them alone"
expect(mine(x, real), expected, says, atol=1e-4, where=real)
x.requires_grad_()
upstream = torch.randn(4, 6, 5) * real[:, :, None]
got = torch.autograd.grad(mine(x, real), x, upstream)[0]
wanted = torch.autograd.grad(right(x[real]), x, upstream[real])[0]
says = "not the gradient of nn.BatchNorm1d: does it flow through mean and variance?"
expect(got, wanted, says, atol=1e-4, where=real)
other = x.detach().masked_fill(~real[:, :, None], -7.0)
says = "other numbers at padding change the output at real positions"
expect(mine(other, real), expected, says, atol=1e-4, where=real)
### END HIDDEN TESTS

# %% test="test_masked_evaluation" points=4
def test_masked_evaluation():
    norm = MaskedBatchNorm(4)
    norm.eval()
    x, real = torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    assert norm(x, real) is not None, "not attempted yet, or a return is missing"
    assert torch.allclose(norm(x, real), x, atol=1e-4), "a new one changes next to nothing in use"
    norm.train()
    earlier = (x + 100).requires_grad_()
    norm(earlier, real)
    norm.eval()
    assert norm(x, real).max() < 0, "after a batch around 100, 0 is far below the running mean"
    back = torch.autograd.grad(norm(x, real).sum(), earlier, allow_unused=True)[0]
    assert back is None, "a gradient flows back to an earlier batch: keep numbers, not a graph"


verdict = run_test(test_masked_evaluation)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect, keeps_graph

assert verdict.passed
mine, right = MaskedBatchNorm(5), nn.BatchNorm1d(5)
for _ in range(4):
    x, real = 2 + 3 * torch.randn(4, 6, 5), torch.rand(4, 6) < 0.7
    mine(x.requires_grad_(), real), right(x[real])
expect(keeps_graph(mine), False, "a gradient flows back to an earlier batch: keep numbers")
mine.eval(), right.eval()
x, real = torch.randn(2, 3, 5), torch.ones(2, 3, dtype=torch.bool)
for says in (
    "after four batches of training, not what nn.BatchNorm1d gives in evaluation",
    "evaluation changes the running numbers",
):
    expect(mine(x, real), right(x.flatten(0, 1)).view_as(x), says, atol=1e-4)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Scaled post-norm, and a sandwich (4 points)
#
# `sublayer`, `norm` and `dropout` are functions of one tensor. DeepNorm (Wang et al. 2022) is a
# post-norm in which the residual path counts more: LayerNorm(α·x + dropout(Sublayer(x))).

# %% answer="scaled_post_norm"
def scaled_post_norm(x, sublayer, norm, dropout, alpha):
    ### BEGIN SOLUTION
    return norm(alpha * x + dropout(sublayer(x)))
    ### END SOLUTION

# %% test="test_scaled_post_norm" points=2
verdict = check(scaled_post_norm)
verdict
### BEGIN HIDDEN TESTS
2 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# Gemma 2 has two norms per sublayer, both on the branch: `norm_in` before the sublayer and
# `norm_out` on its output. Dropout comes last on the branch. There is no norm on the residual path.

# %% answer="sandwich"
def sandwich(x, sublayer, norm_in, norm_out, dropout):
    ### BEGIN SOLUTION
    return x + dropout(norm_out(sublayer(norm_in(x))))
    ### END SOLUTION

# %% test="test_sandwich" points=2
verdict = check(sandwich)
verdict
### BEGIN HIDDEN TESTS
2 * verdict.share
### END HIDDEN TESTS

# %% [markdown] question="q_gradient"
# ## 5 · What reaches the first layer (6 points, graded by hand)
#
# **Measure.** Build stacks of N = 2, 4, 8, 16 and 32 sublayers, each a linear layer of width 64
# without bias (weights by `nn.init.xavier_uniform_`) and a ReLU. Combine them in three ways:
#
# - one after the other, without a residual connection;
# - with your `scaled_post_norm` and α = 1;
# - with your `scaled_post_norm` and α = N^¼, which is DeepNorm's α for N sublayers (DeepNorm's
#   smaller weights are left out here).
#
# Use `nn.LayerNorm` and no dropout. Send one random batch of 32 vectors through the stack, and take
# as the loss the mean squared difference between the output and random targets (batch, targets and
# weights are the same for the three ways). Run the backward pass, and note the norms of the
# gradients at the **first** sublayer's weights and at the **last** one's. Repeat this with three
# seeds, the first of which is your `NUMBER`, and print both norms at 32 sublayers for each of them.
#
# **Draw** the mean of the first sublayer's norm over the depth, one line for each way of combining,
# both axes logarithmic (`show(lines(series, labels, "xy"), "…")` helps, where `series` is `{name:
# (xs, ys)}`, and `"…"` is a sentence that describes the picture).
#
# **Report** in the text cell below your seed and, for the three ways at 32 sublayers, both norms as
# means over the seeds. Then answer:
#
# - What does the figure show, and why?
# - Without a residual connection, is the gradient small at the first sublayer only?
# - In chapter 9 post-norm gave the *top* layer more; here it is the other way around. What do these
#   sublayers do that those did not? (What do their outputs have in common, and what becomes of it
#   in the norm?)
# - The authors say that α and the smaller weights together bound how much a training step changes
#   what the stack returns. What does α alone do to the gradients here, and why can your numbers not
#   say whether it would be enough for training?
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 2 | cell 1: the measurement is right: same input, targets and weights for the three ways, first and last, three seeds |
# | 1 | cell 1: three lines, labeled, logarithmic axes, with the student's own seed, {{ NUMBER }} |
# | 1 | the norms of the text are those of the student's own run; 100 runs with other seeds had 2 to 6 · 10⁻⁶ at the first and 1 to 9 · 10⁻⁶ at the last one without a residual connection, 1.2 to 1.4 and 0.21 to 0.22 with post-norm, 0.14 to 0.16 and 0.10 with α |
# | 1 | without a residual connection: a factor of about 1/√2 per sublayer, forward (states shrink) and backward (gradients shrink); so it is small at the last one, too |
# | 1 | ½ post-norm: the first one's grows with the depth, since the norm removes the ReLU's mean (the sum has variance 1.34, the gradient's square grows by 1.5); ½ with α it hardly changes, and an untrained stack with the weights as they are says nothing about training |
# ### END MARK SCHEME

# %% manual="gradient_figure" points=3
### BEGIN SOLUTION
def plain(x, sublayer, norm, dropout):
    return dropout(sublayer(x))


def post(alpha):
    return lambda *parts: scaled_post_norm(*parts, alpha)


def first_and_last(form, depth, seed):
    torch.manual_seed(seed)
    x, target = torch.randn(2, 32, 64)
    linear = [nn.Linear(64, 64, bias=False) for _ in range(depth)]
    for layer in linear:
        nn.init.xavier_uniform_(layer.weight)
        x = form(x, nn.Sequential(layer, nn.ReLU()), nn.LayerNorm(64), lambda y: y)
    (x - target).square().mean().backward()
    return [layer.weight.grad.norm().item() for layer in (linear[0], linear[-1])]


depths, seeds = [2, 4, 8, 16, 32], [NUMBER, 1, 2]
forms = {
    "no residual": lambda depth: plain,
    "post-norm": lambda depth: post(1.0),
    "post-norm, α": lambda depth: post(depth**0.25),
}
series = {}
for name, form in forms.items():
    norms = torch.tensor([[first_and_last(form(n), n, seed) for seed in seeds] for n in depths])
    series[name] = depths, norms[:, :, 0].mean(dim=1).tolist()
    for which, three in zip(("first", "last"), norms[-1].T):
        each = " ".join(f"{norm:.2g}" for norm in three)
        print(f"{name:14} at 32, {which:5}: mean {three.mean():.2g}, each {each}")
show(
    lines(series, ("sublayers", "norm of the gradient at the first one"), "xy"),
    "Gradient at the first sublayer over the depth: it falls without a residual connection, rises "
    "with post-norm and stays with α.",
)
### END SOLUTION

# %% [markdown] manual="gradient_words" points=3
# My seed is 275989. At 32 sublayers the norms at the first and at the last one are, as means over
# the seeds, 4.0e-06 and 1.6e-06 without a residual connection, 1.2 and 0.21 with post-norm, and
# 0.15 and 0.10 with α. Without a residual connection the gradient at the first of 32 sublayers is a
# few millionths, but it is as small at the last one. A linear layer with these weights and a ReLU
# makes a vector smaller by a factor of about 1/√2, forward and backward: at the last sublayer the
# *state* that
# its weights are multiplied by is tiny, at the first one the *gradient* that comes back is. The
# product of both has 31 such factors everywhere.
#
# With a residual connection and a norm, states keep their size. Plain post-norm gives the first
# sublayer more the deeper the stack is, five to seven times what the last one gets at 32. Each
# sublayer adds a ReLU's output, of mean square ½, to a vector of size 1. On the way back the square
# of the gradient grows by 1.5; the norm divides by the variance of the sum, and since the ReLU's
# outputs have a mean of 0.4, which the norm removes, that is only 1.34. So the gradient grows by
# √(1.5/1.34) = 1.06 per sublayer, 5.7 times in 31. In chapter 9 the sublayers ended in a linear
# layer, whose outputs have no mean. With α, what a sublayer adds is a small part of the sum, so
# this factor is near 1: the norm stays near 0.1 from 2 to 32 sublayers, and both ends get about the
# same. My figure cannot say whether that would be enough for training: nothing was trained here, a
# step changes all sublayers at once, and how much that changes the output depends on the size of
# their weights, too, which DeepNorm makes smaller.

# %% [markdown] question="q_plan"
# ## 6 · Plan an experiment (4 points, graded by hand)
#
# In chapter 8 batch norm hurt the decoder and hardly affected the encoder: in evaluation mode on
# batches of similar lengths, and even more in training mode on mixed ones. Two explanations suggest
# themselves: in the decoder the statistics contain the *future*; or *padding* is to blame after
# all. Plan an experiment that tells them apart, both for the damage in evaluation mode and for that
# in training mode. Say
#
# - which cases you compare, and on which batches;
# - how many seeds you run, and what you measure;
# - what each explanation predicts for each case;
# - which result would convince you that both explanations are wrong.
#
# Your task 3 may be of use.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 1 | cases that differ in one thing, such as statistics without padding, or of one position over the batch |
# | 1 | a prediction of each explanation for each case, as more, less or the same; that padding can do nothing where there is none (similar lengths) counts as one |
# | 1 | seeds (three or more), a measure, and a rule for what counts as a difference |
# | 1 | a result that would speak against both |
# | | (What came out with three seeds: mixed lengths cost 1.10, 1.07 and 0.76 nats in training mode, and 0.30, 0.30 and 0.28 without padding in the statistics. Evaluation mode on similar lengths costs 0.33, 0.38 and 0.35, without padding 0.33, 0.35 and 0.30, and position by position 0.28, 0.59 and 0.78: so neither explanation is enough. On mixed lengths, without padding, the two modes agree within 0.01. What batches of one length give away is the length: the loss of the last token before the end is 0.49 in training mode and 1.56 in evaluation mode, that of the first one is the same.) |
# ### END MARK SCHEME

# %% [markdown] manual="plan_words" points=4
# Three decoders with batch norm: as it is; with statistics over real positions only
# (`MaskedBatchNorm`); and with statistics of each position by itself, over the real tokens of the
# batch there, which cannot contain the future. Five seeds each, and two differences: the loss in
# evaluation mode minus that in training mode on batches of similar lengths, and in training mode
# that on mixed batches minus that on similar ones. In batches of similar lengths there is hardly
# any padding, so it cannot explain the first difference, whatever the case. If it explains the
# second, the second case has (nearly) none of it; if the future explains either, the third case has
# none of it. I call two cases different if their means differ by more than twice the standard error
# of the difference. If the first difference stays in the third case, too, neither explanation is
# enough. Then I would look at the loss by the place in the sentence: perhaps sentences of one
# length in a batch let its statistics tell when the sentence ends.

# %% [markdown]
# Done? Run everything once from the top (*Restart Kernel and Run All Cells*), save, and run
# `transformer-lib verify-submission norms.ipynb` before you hand in the file.
