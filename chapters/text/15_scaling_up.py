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
# # 15 · Scaling up, and Transformer against RNN
#
# The paper's claim was not only that its model translates better. It said: *at a fraction of the
# training cost*. What is a cost, and what makes a comparison fair? And how do you get from a laptop
# to the paper's experiment? By the end you can
#
# - count what training costs, in three ways, and read the paper's table,
# - say what a translation costs, and what a cache saves,
# - compare two systems under equal budgets, and say equal in what,
# - spread a batch over several devices and get the same gradient, and add gradients up in a ring,
# - set up the WMT14 experiment.
#
# Reading takes about forty minutes, running the cells less than one. Assignment 5 follows this chapter.
#
# **Predict first.** A Transformer and an RNN of the same width are trained on the same text. Which
# is ahead after the same number of tokens? After the same time? After the same number of
# floating-point operations? And does the answer depend on how long they train?

# %%
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.checks import check, mine, solution
from transformer_lib.experiment.config import load_config
from transformer_lib.course.figures.ring import ring_steps
from transformer_lib.course.misconceptions.bank import bank
from transformer_lib.course.results import budgets
from transformer_lib.model import SIZES, build_transformer, num_parameters, recorded_attention
from transformer_lib.plots.measurements import lines, points
from transformer_lib.plots.notebook import show
from transformer_lib.experiment.run import build_model
from transformer_lib.course.trained import load_trained
from transformer_lib.timing import fastest
from transformer_lib.training import cost

# %% [markdown]
# ## What is a cost?
#
# Time depends on the machine. Tokens do not say how much is done with each of them. **FLOPs**,
# floating-point operations, can be counted on paper: here these are multiplications and additions.
# A product of (n × a) by (a × b) takes n·a·b multiplications and as many additions.
#
# ### The cost of a layer
#
# ●○○ · 15 minutes · what training will cost
#
# Count the multiplications and additions of all matrix products in one encoder layer's forward
# pass, for one sentence of `length` tokens. All heads together are as wide as the model, `d_model`.
# Return a whole number. What passes its `check` is kept in `my_transformer.py` beside this
# notebook. After a first try, `solution("encoder_layer_flops")` in a cell of its own shows one way.

# %%
def encoder_layer_flops(length, d_model, d_ff):
    ...  # your code


check(encoder_layer_flops)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Eight products: which? Six have a matrix of parameters in them, two do not.
#
# </details>

# %% [markdown]
# PyTorch can count, too: each product, at the moment it is computed. Do you agree with it? And what
# does a token cost in sentences of different lengths?

# %%
encoder_layer_flops = mine("encoder_layer_flops")
base = build_transformer(SIZES["base"], src_vocab_size=100).eval()
with FlopCounterMode(display=False) as counter, recorded_attention(base):  # in single products
    base.encoder.layers[0](torch.randn(1, 30, 512), None)
ours = encoder_layer_flops(30, 512, 2048)
print(f"30 tokens: yours {ours:,}, counted by PyTorch {counter.get_total_flops():,}\n")
assert counter.get_total_flops() == ours, (
    "not as on our machines: restart the kernel and run all cells"
)
for length in (3, 30, 300, 3_072, 30_000):
    each = encoder_layer_flops(length, 512, 2048) / length
    print(f"{length:6,} tokens: {each / 1e6:5.1f} million FLOPs for each of them")

# %% [markdown]
# A token costs about the same in a short sentence and in a long one. Only the products of queries
# with keys and of weights with values grow with the square of the length $n$. With $d$ for
# `d_model` and $4d$ for `d_ff`, the other products cost $8nd^2 + 16nd^2$. Attention's two products
# catch up with the others when $4n^2d = 24nd^2$, at n = 6d. For the base model this is at 3,072
# tokens, where a token costs twice as much. For sentences, attention's products are negligible; for
# books, they dominate.
#
# For the products with matrices of parameters there is a short formula. In the forward pass, each
# parameter of a matrix is used once per token, for one multiplication and one addition; in the
# backward pass, twice. So training costs about $6 \cdot \text{parameters} \cdot \text{tokens}$
# FLOPs. Here are our two small models, both passes together:

# %%
src, tgt = torch.randint(4, 4000, (8, 12)), torch.randint(4, 4000, (8, 12))
tokens = src.numel() + tgt.numel()
trained = {name: load_trained(name) for name in ("transformer", "rnn")}
rows = []
for name, run in trained.items():
    by_parameters = cost.flops_by_parameters(run.model, src.numel(), tgt.numel())
    rows.append([name, f"{num_parameters(run.model):,}", f"{by_parameters / tokens / 1e6:.1f}"])
pd.DataFrame(rows, columns=["model", "parameters", "million FLOPs per token"]).set_index("model")

# %% [markdown]
# A token costs the Transformer more than one and a half times as much as the RNN. (That is about
# half of 6 · parameters, since a source token passes through the encoder only and a target token
# through the decoder only. And embeddings are looked up, not multiplied; only their second use, as
# the output projection, counts.)
#
# ### The cost of a translation
#
# ●●○ · 25 minutes · what a cache saves, counted
#
# A decoder of one layer writes `tgt_len` tokens, one after another, for a source of `src_len`
# tokens. Count the multiplications and additions of all its matrix products, without the model's
# output projection.
#
# - With a cache (`cached` is true), only what is new is computed: the keys and values of the memory
#   once, before the first step; then, in step n, everything for one token, whose self-attention
#   sees n tokens, itself included.
# - Without a cache, step n computes everything anew for n tokens, each with scores for all n (a
#   mask makes no product smaller), and the keys and values of the memory as well.
#
# Return a whole number.

# %%
def generation_flops(src_len, tgt_len, d_model, d_ff, cached):
    ...  # your code


check(generation_flops)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Of the eight projections of a decoder layer, six are applied to the decoder's tokens and two to
# the memory. First write a function for the cost of one step. It needs two numbers: how many tokens
# are new, and how many tokens each of them sees.
#
# </details>

# %% [markdown]
# The base model's decoder has six of these layers. Does PyTorch count the same?

# %%
generation_flops = mine("generation_flops")
source, written = torch.randint(4, 100, (1, 30)), torch.randint(4, 100, (20,))
with torch.no_grad():
    memory = base.encode(source)
    with FlopCounterMode(display=False) as without_cache, recorded_attention(base):
        for n in range(1, 21):
            base.decode(written[None, :n], memory)
    with FlopCounterMode(display=False) as with_cache, recorded_attention(base):
        state = base.init_state(memory)
        for token in written:
            base.decode_step(token[None], state)
projection = 2 * 20 * base.output_weight.numel()  # only decode_step makes logits
counted = {True: with_cache.get_total_flops() - projection, False: without_cache.get_total_flops()}
for cached, flops in counted.items():
    ours = 6 * generation_flops(30, 20, 512, 2048, cached)
    print(f"{'with' if cached else 'without':8}a cache: yours {ours:,}, counted {flops:,}")
    assert ours == flops, "not as on our machines: restart the kernel and run all cells"
for length in (5, 20, 100, 500):
    both = [generation_flops(length, length, 512, 2048, cached) for cached in (False, True)]
    print(f"{length:4} tokens: without a cache {both[0] / both[1]:6.1f} times as much")

# %% [markdown]
# What is saved grows with the length: without a cache, the work of a translation grows at least
# with its square. Chapter 12 measured a smaller saving in time, presumably because there the
# overhead of calling functions took as long as the computing itself. And a beam of four costs four
# times as much, except for the memory's keys and values, which all four share.
#
# ## The paper's table
#
# The authors did not count operations. They estimated them, for their own models and for the other
# systems: training time × number of GPUs × what one GPU sustains. A footnote of section 6.1 gives
# 9.5 TFLOPS (one TFLOPS is 10¹² operations per second) for a P100; the base model took 12 hours on
# eight of them, the big one 3.5 days:

# %%
for name, hours in {"base": 12, "big": 3.5 * 24}.items():
    print(f"{name:5} by time: {cost.flops_by_time(hours * 3600, 8, 9.5e12):.1e} FLOPs")
with torch.device("meta"):
    paper = build_transformer(SIZES["base"], 37_000)
counted = cost.flops_by_parameters(paper, 100_000 * 25_000, 100_000 * 25_000)
print(f"base  by count, 100,000 steps of 25,000 + 25,000 tokens: {counted:.1e} FLOPs")

# %% [markdown]
# The two estimates by time are the numbers in the paper's table. The last number is counted like
# ours (each token passes through one half of the model), and it is less than a third of the base
# model's estimate: of the operations that a GPU was assumed to sustain, less than a third went into
# the model's products. The two ways of counting must not be mixed. Here is the table, newstest2014
# English→German:

# %%
PAPER = {
    "GNMT + RL": (2.3e19, 24.6),
    "ConvS2S": (9.6e18, 25.16),
    "MoE": (2.0e19, 26.03),
    "GNMT + RL, ensemble": (1.8e20, 26.30),
    "ConvS2S, ensemble": (7.7e19, 26.36),
    "Transformer, base": (3.3e18, 27.3),
    "Transformer, big": (2.3e19, 28.4),
}
show(
    points(PAPER, ("training cost (FLOPs, by time)", "BLEU"), logarithmic=True),
    "BLEU over training cost of seven systems: the base Transformer is the cheapest and better "
    "than all earlier ones, the big one better still at about the cost of two single systems.",
)

# %% [markdown]
# The base model lies to the left of all others and above all but the big one: it is better than
# every ensemble, for less than a twentieth of their cost. This picture is the paper's claim.
#
# ## Transformer against RNN, under equal budgets
#
# Now our two models, which you know. Both are 192 wide, with the same embeddings, pieces and
# batches of the bundled text. This is how they were trained:
#
# - Each was trained anew for every budget, with a learning rate that falls to zero at the end (a
#   long training stopped halfway would not be fair), and with three seeds.
# - The RNN was also trained for 10,000 steps, which take it less time than the Transformer's
#   longest training.
# - Each training ran on one core of an Intel Xeon. Minutes are steps times the median time of a
#   step (two of the three longest Transformer runs took nearly twice as long as that).
#
# `make variants` does all this; it calls `transformer-lib train course_transformer --set
# training.steps=400 --set seed=0`, and so on. The table has BLEU on the test set with all
# references, the mean and the range over the seeds:

# %%
runs = budgets()
SYSTEMS = ("Transformer", "RNN")
scores = runs.groupby(["steps", "case"])["BLEU"].agg(["mean", "min", "max"]).round(1)
as_text = [f"{mean:.1f} ({low:.1f} to {high:.1f})" for mean, low, high in scores.to_numpy()]
pd.Series(as_text, scores.index).unstack(fill_value="")[list(SYSTEMS)].rename_axis(columns=None)

# %% [markdown]
# Luck is visible in this table: two runs of the same system can be two points apart. A difference
# of a point between two single runs proves nothing. And what does a step cost?

# %%
COSTS = {"tokens": "million tokens", "seconds": "minutes on one core", "FLOPs": "10¹² FLOPs"}
UNITS = {"tokens": 1e6, "seconds": 60.0, "FLOPs": 1e12}
per_step = runs[list(COSTS)].div(runs["steps"], axis=0).groupby(runs["case"]).median()
for name in SYSTEMS:
    tokens, seconds, flops = per_step.loc[name]
    print(f"{name:12} {tokens:,.0f} tokens, {seconds:.3f} s, {flops / 1e9:.1f} · 10⁹ FLOPs")
ratios = per_step.loc["Transformer"] / per_step.loc["RNN"]
print(f"Transformer / RNN: {ratios['seconds']:.1f} in time, {ratios['FLOPs']:.1f} in FLOPs")

# %% [markdown]
# So here are the same runs, drawn over three kinds of budget, as means over the seeds:

# %%
def curve(name, kind, seeds=(0, 1, 2)):
    """The budgets of a system, and the mean BLEU of these seeds at each of them."""
    own = runs[runs["case"].eq(name) & runs["seed"].isin(seeds)]
    means = own.groupby("steps")["BLEU"].mean()
    return means.index.to_numpy() * per_step.loc[name, kind] / UNITS[kind], means.to_numpy()


SEEN = {
    "tokens": "the RNN is ahead at 0.7 million, level at 1.4, then the Transformer is ahead.",
    "seconds": "the RNN is ahead for about eight minutes, then the Transformer.",
    "FLOPs": "the RNN is ahead up to about 40, then the Transformer.",
}
for kind, label in COSTS.items():
    curves = {name: curve(name, kind) for name in SYSTEMS}
    show(lines(curves, (label, "BLEU"), "x"), f"BLEU of both systems over {label}: {SEEN[kind]}")

# %% [markdown]
# How far is the Transformer ahead, then? Between two measured budgets, we interpolate BLEU linearly
# in the logarithm of the budget. The table has the mean and the range of the lead over the nine
# pairs of a Transformer run and an RNN run:

# %%
def lead(kind, budget, *seeds):
    """BLEU of the Transformer minus that of the RNN at a budget, of one run each."""
    curves = (curve(name, kind, [seed]) for name, seed in zip(SYSTEMS, seeds, strict=True))
    ours, theirs = (np.interp(np.log(budget), np.log(x), y) for x, y in curves)
    return ours - theirs


AT = {
    "tokens": (0.71, 1.4, 2.8, 5.7, 11.3),
    "seconds": (1, 2, 4, 8, 12),
    "FLOPs": (6, 12, 24, 48, 76),
}
for kind, label in COSTS.items():
    print(f"{label}:")
    for budget in AT[kind]:
        leads = [lead(kind, budget, a, b) for a in range(3) for b in range(3)]
        print(f"{budget:8g}  {np.mean(leads):+5.1f}  ({min(leads):+.1f} to {max(leads):+.1f})")

# %% [markdown]
# The answer depends on the budget, and on what is equal:
#
# - **Equal tokens.** At 0.7 million the RNN is ahead by seven points. At 1.4 million its
#   lead is less than one, and from 2.8 million on the Transformer is ahead, by three to four points:
#   it gets more out of the same text.
# - **Equal time.** A step of the RNN took little more than half as long as one of the Transformer.
#   So the RNN is ahead at first,
#   by nine points after two minutes. After eight the two are level, and after twelve all three
#   Transformers are ahead of all three RNNs, if only by about a point.
# - **Equal FLOPs.** The picture is the same; the two are level somewhat below $5 \cdot 10^{13}$.
#
# With two minutes and short sentences, take the RNN; with a quarter of an hour, the Transformer.
# The two are equally wide, but not equally large: 2.5 million parameters against 1.5. `make
# train-demo` compares two of nearly equal size, for three minutes on two cores: a Transformer of
# 4.0 million parameters, pre-norm and with separate tables, and a wider and slower RNN of 4.3
# million. The result depended on the processor:
#
# - On an Intel processor with matrix units (AMX, instructions that multiply small matrices), the
#   Transformer was ahead in all of three runs, by 1.4 to 1.6 points.
# - Without such units, it was ahead by 1.0 and by 1.7 in two single runs and, when the library was
#   slower, behind by 1.2.
# - On an older processor, which trains on less than half as many tokens, it was behind by 0.8.
#
# Each of these differences, taken alone, may be chance: two runs of one system can be two points
# apart. That three of three point the same way is a hint. Where curves cross depends on sizes and
# machines.
#
# ### How fast is yours?
#
# The times above are those of one machine and of the library's training step. Here is a bare step
# of each model on your own machine, without sixteen-bit products and without the optimizer, so the
# ratio need not be the one above:

# %% tags=["nbval-ignore-output"]
def seconds_per_step(run):
    def step():
        run.model.zero_grad()
        run.model(batch_src, batch_tgt).logsumexp(dim=-1).mean().backward()

    run.model.train()
    seconds = fastest(step, seconds=1.0)
    run.model.eval()
    return seconds


batch_src, batch_tgt = torch.randint(4, 4000, (80, 10)), torch.randint(4, 4000, (80, 10))
speed = {name: seconds_per_step(run) for name, run in trained.items()}
for name, seconds in speed.items():
    print(f"{name:12} {seconds * 1e3:4.0f} ms, {batch_src.numel() * 2 / seconds:,.0f} tokens/s")
assert min(speed.values()) > 0, "nothing was measured: run this cell again"

# %% [markdown]
# In the runs plotted above, a step of the Transformer took 1.8 times as long as one of the RNN.
# Where the ratio is larger, the curves over time cross later. On a GPU the ratio should be reversed
# (which we have not measured): there the RNN waits for its own steps (chapter 2), while the
# Transformer computes all positions at once.
#
# ## From this laptop to several GPUs
#
# What changes on the way to the paper's experiment, and what it is called in the library:
#
# | | laptop | one GPU | several GPUs |
# |---|---|---|---|
# | device | `cpu` | found automatically (`training.device`) | one process for each |
# | products | bfloat16 where the processor has it | bfloat16 (`training.precision`) | the same |
# | batch | `batch_tokens=1024` | `batch_tokens=25000` | the same, shared by all |
# | if that does not fit | `batch_tokens=256`, `accumulate=4` (chapter 11) | `batch_tokens=6250`, `accumulate=4` | the same |
# | compilation | no | `training.compile=true`, after a minute's wait | the same |
# | starting it | `transformer-lib train …` | the same | `torchrun --nproc-per-node 8 …` |
#
# With several devices, each has the whole model and a part of the batch. Gradients are averaged
# over all devices (**all-reduce**), and each device takes the same step. `torchrun` starts one
# process for each device and tells it its number. Two processes on this CPU are enough to see how
# that works. The script below has all the essentials of training on several GPUs. The question is
# whether it gives the gradient of the whole batch:

# %%
SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # "nccl" between GPUs
rank, devices = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # the same weights everywhere
model = torch.nn.Linear(8, 5)
x, labels = torch.randn(30, 8), torch.randint(5, (30,))
part = slice(0, 20) if rank == 0 else slice(20, 30)  # batches of tokens are never quite equal

def gradient(x, labels, tokens):
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(x), labels, reduction="sum").div(tokens).backward()
    return model.weight.grad.clone()

whole = gradient(x, labels, 30)
for name, tokens in {"mean of the means": len(labels[part]) * devices, "all tokens": 30}.items():
    mine = gradient(x[part], labels[part], tokens)
    dist.all_reduce(mine)  # the sum over all processes
    if rank == 0:
        print(f"{name:18} differs by {(mine - whole).norm() / whole.norm():.1%}")
dist.destroy_process_group()
"""

# %% tags=["nbval-ignore-output"]
script = Path(tempfile.mkdtemp()) / "two_processes.py"
script.write_text(SCRIPT)
command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
finished = subprocess.run(
    [*command, str(script)],
    capture_output=True,
    text=True,
    env=os.environ | {"OMP_NUM_THREADS": "1"},
)
print(finished.stdout)
assert "all tokens         differs by 0.0%" in finished.stdout, finished.stderr

# %% [markdown]
# It is exactly the gradient of the whole batch if each process divides by the number of tokens of
# *all* processes. PyTorch's `DistributedDataParallel` takes the mean of the means, which is right
# if all have equally many tokens, and wrong otherwise. 20 tokens against 10 is an extreme case; in
# real batches the error is a percent or two (chapter 11).
#
# ### One gradient from several
#
# ●○○ · 10 minutes · the heart of training on several GPUs
#
# `gradients` is (devices, parameters): each device's gradient of the mean loss of *its* tokens.
# `tokens`, (devices,), is how many it had. Return the gradient of the mean over all tokens,
# (parameters,).

# %%
def average_gradients(gradients, tokens):
    ...  # your code


check(average_gradients)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Make sums out of means, add them up, and divide once.
#
# </details>

# %% [markdown]
# Your function, on the gradients of 20 tokens and of 10:

# %%
average_gradients = mine("average_gradients")
torch.manual_seed(0)
model = torch.nn.Linear(8, 5)
x, labels = torch.randn(30, 8), torch.randint(5, (30,))


def mean_gradient(part):
    loss = torch.nn.functional.cross_entropy(model(x[part]), labels[part])
    return torch.autograd.grad(loss, model.weight)[0].flatten()


each = torch.stack([mean_gradient(slice(0, 20)), mean_gradient(slice(20, 30))])
whole = mean_gradient(slice(0, 30))
joined = {
    "mean of the means": each.mean(dim=0),
    "yours": average_gradients(each, torch.tensor([20, 10])),
}
for name, gradient in joined.items():
    print(f"{name:18} differs by {(gradient - whole).norm() / whole.norm():.1%}")
assert torch.allclose(joined["yours"], whole), (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# ### Gradients meet in a ring
#
# ●●● · 40 minutes · all-reduce, without anybody in the middle
#
# How do eight GPUs add up their gradients? If all the others send theirs to one GPU, it receives
# seven gradients while they wait. In a **ring** each device sends only to its neighbor, and all of
# them send at once ([Patarasuk and Yuan 2009](https://doi.org/10.1016/j.jpdc.2008.09.002)). The
# gradient is cut into as many chunks as there are devices, $d$ of them. The indices of devices and
# of chunks are taken modulo $d$:
#
# - *First half*, steps $s = 0, …, d - 2$: device $i$ sends its chunk $i - s$ to device $i + 1$,
#   which **adds** it to its own. At the end device $i$ holds the whole sum of chunk $i + 1$.
# - *Second half*, steps $s = 0, …, d - 2$: device $i$ sends its chunk $i + 1 - s$ to device $i +
#   1$, where it **replaces** the one that was there.
#
# `parts` is (devices, chunks, size): what each device has computed. Return what all devices hold at
# first and after each step: (2d − 1, devices, chunks, size).

# %%
def ring_all_reduce(parts):
    ...  # your code


check(ring_all_reduce)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A step reads the state before it and writes into a copy of it; keep all of them in a list, and
# `torch.stack` the list. In Python, `-1 % 4` is 3.
#
# </details>

# %% [markdown]
# Take four devices. If each of them starts with ones, the sums show how many gradients have been
# added into a chunk:

# %%
ring_all_reduce = mine("ring_all_reduce")
held = ring_all_reduce(torch.ones(4, 4, 1))
show(
    ring_steps(held[..., 0]),
    "What four devices hold of four chunks, at first and after each of six steps: ones at first, "
    "then in each step one chunk of each device has one gradient more, until each device has one "
    "chunk with all four; then these travel on, until all have all.",
)
random_parts = torch.randn(4, 4, 100)
torch.testing.assert_close(ring_all_reduce(random_parts)[-1, 2], random_parts.sum(dim=0))
print("in the end every device holds the sum")
for devices in (2, 8, 64):
    sent = 2 * (devices - 1) / devices
    print(f"{devices:2} devices: each sends {sent:.2f}", end=" gradients; ")
    print(f"one that adds up alone gets {devices - 1}")

# %% [markdown]
# In each of the $2(d - 1)$ steps a device sends one chunk, a $d$-th of the gradient. In total that
# is less than twice the gradient, for any number of devices, and every connection is in use all
# the time. This is what `dist.all_reduce` does between GPUs, or a variant that suits their wiring
# better. And it need not wait for the end of the backward pass: the last layer's gradients can set
# out while the first layer's are still being computed.
#
# ### What a device must hold
#
# ●○○ · 10 minutes · whether the model fits
#
# For each parameter, mixed precision with Adam needs 2 bytes for the weight and 2 for the gradient,
# both in 16 bits, and 12 for the optimizer: a copy of the weight in 32 bits, in which small steps
# add up, and two moments, mean and mean square. If all devices hold all of this (stage 0), that is
# a waste. **ZeRO** ([Rajbhandari et al. 2020](https://arxiv.org/abs/1910.02054)) divides it among
# them:
#
# - in stage 1, each device holds only its part of the optimizer's states;
# - in stage 2, only its part of the gradients as well;
# - in stage 3, only its part of the weights as well (PyTorch calls this
#   `FullyShardedDataParallel`).
#
# Return the bytes that one device holds.

# %%
def bytes_per_device(parameters, devices, stage):
    ...  # your code


check(bytes_per_device)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Three terms. From which stage on is each of them divided by the number of devices?
#
# </details>

# %%
bytes_per_device = mine("bytes_per_device")
with torch.device("meta"):
    big = build_transformer(SIZES["big"], 37_000)
models = {"the paper's base": num_parameters(paper), "the paper's big": num_parameters(big)}
models["one of 7 billion"] = 7_000_000_000
gigabytes = {
    name: [f"{bytes_per_device(n, 8, stage) / 1e9:.2f}" for stage in range(4)]
    for name, n in models.items()
}
assert len(gigabytes) == 3, "not as on this page: restart the kernel and run all cells"
pd.DataFrame(gigabytes, index=[f"stage {stage}" for stage in range(4)]).T

# %% [markdown]
# (Gigabytes for each of eight devices, without the activations, which come on top.) The paper's
# models need none of this. A model of seven billion parameters does not fit into the 80 GB of a
# large GPU at stage 0, but does at stage 1. Stages 1 and 2 send no more than an all-reduce does;
# stage 3 sends one and a half times as much, since the weights have to be collected for each pass.
#
# ## WMT14
#
# The paper's experiment comes with the library as one small configuration file. The text is the
# WMT14 English–German training data, about 4.5 million sentence pairs (Europarl, Common Crawl, News
# Commentary); newstest2013 is for watching the training, newstest2014 for judging the result:

# %%
configs = resources.files("transformer_lib.experiment.configs")
print((configs / "wmt14_base.toml").read_text())

# %% [markdown]
# Whatever the file leaves out defaults to the paper's base model. There are more such files:
# `wmt14_big`; `wmt14_rnn`, the RNN to compare with; and `wmt14_base_fast` and `wmt14_big_fast`,
# which depart from the paper's settings to get there sooner on one modern GPU, and say why. The
# library builds the model from the file:

# %%
experiment = load_config("wmt14_base")
with torch.device("meta"):
    model = build_model(experiment, experiment.data.vocab_size)
total = cost.flops_by_parameters(model, 100_000 * 25_000, 100_000 * 25_000)
print(f"{num_parameters(model) / 1e6:.1f} million parameters, {total:.1e} FLOPs")

# %% [markdown]
# 63.1 million, as in chapter 10: it is the paper's base model. How long would training take? Divide
# the FLOPs by what a device sustains. For this machine we take its speed in one large product,
# which training does not reach. For two kinds of GPU we take four tenths of the maker's figure for
# bfloat16, which large models reach, but one of this width hardly will:

# %% tags=["nbval-ignore-output"]
rates = {
    "this machine": cost.measured_flops_per_second(torch.device("cpu"), torch.float32),
    "an A100": 0.4 * 312e12,
    "an H200": 0.4 * 989e12,
}
for name, rate in rates.items():
    hours = total / rate / 3600
    print(f"{name:13} {hours:10,.1f} hours" + (f" = {hours / 24:,.0f} days" if hours > 100 else ""))
assert min(rates.values()) > 0, "nothing was measured: run this cell again"

# %% [markdown]
# It would take weeks or months here, and hours there, if a GPU reaches that share. These are
# estimates: we have prepared this training and rehearsed all of it at a small size, but have not
# run it, since no GPU was at hand (the file `benchmarks/RESULTS.md` says what has been measured and
# what has not). This is how to do it, step by step:
#
# 1. **Rehearse here.** Run the same commands with `cpu_tatoeba_transformer` instead of
#    `wmt14_base`.
#    Any mistake in paths, folders or memory shows up now, at no cost.
# 2. **Prepare the text** on the GPU machine: `transformer-lib data prepare wmt14` fetches the
#    archives, verifies them, cleans the text, learns the pieces and stores the tokens.
# 3. **Find the largest batch that fits**: `training.batch_tokens`, and `training.accumulate` so
#    that their product stays 25,000.
# 4. **Train.** `transformer-lib train wmt14_base`; on several GPUs `torchrun --nproc-per-node 8 -m
#    transformer_lib train wmt14_base`, with the same result but for rounding and dropout. Ctrl-C
#    saves; a power cut or a full disk loses only what came after the last checkpoint; `--resume`
#    goes on from there.
# 5. **Check after the warm-up.** Is the loss still falling, and well below its start? Are the
#    tokens per second steady? If not, stop.
# 6. **Judge**: `transformer-lib evaluate`, beam 4, α = 0.6, mean of the last five checkpoints, with
#    the signature (chapter 13). Less than you hoped for? `--explain` scores the same output in
#    every usual way, tries other searches, and compares the training with the recipe.
# 7. **The RNN**: `wmt14_rnn`, with equal time, tokens or FLOPs; say which.
#    `transformer-lib compare` writes the report, with the paper's table and your two rows in it.
#
# [Run it on your GPU](../docs/gpu.md) has the commands, the hours and the disk to expect.
#
# ## Common mistakes
#
# **6 · parameters · tokens, with all parameters and all tokens.** In a translator each token passes
# through half of the model, and embeddings are looked up. How far off is this formula? And how far
# off are **multiply–adds** (MACs, M200 of the [list of mistakes](../docs/misconceptions.md)), which
# some programs call FLOPs?

# %%
separate = replace(SIZES["base"], tied_embeddings="none")
with torch.device("meta"):
    translators = {
        "one table": build_transformer(SIZES["base"], 37_000),
        "three tables": build_transformer(separate, 37_000, 37_000),
    }
for name, translator in translators.items():
    right_count = cost.flops_by_parameters(translator, 1000, 1000)
    naive = 6 * num_parameters(translator) * 2000
    print(f"base, {name:13} all parameters, all tokens: {naive / right_count:.1f} times")
(macs,) = [m.answers["encoder_layer_flops"] for m in bank() if m.id == "M200"]
layer = encoder_layer_flops(30, 512, 2048)
print(f"a layer, multiply–adds: {macs(30, 512, 2048) / layer:.1f} times")
assert 1.5 < naive / right_count, "not as on this page: restart the kernel and run all cells"

# %% [markdown]
# You would notice this when your model seems to reach 80% of what the GPU can do, or when a
# published number is twice or half of yours. First find out what was counted.
#
# **A long training, stopped early, is taken for a short one**: its learning rate has not come down.
# Other mistakes:
#
# - budgets that are equal in one sense, and a claim in another;
# - one seed per system;
# - the baseline with its first settings, your own system after twenty rounds of tuning.
#
# ## Summary
#
# 1. Time, tokens, FLOPs: say what is equal. 6 · parameters · tokens is a good estimate if you count
#    only the parameters that a token passes through, about half of a translator's. Counting by time
#    and
#    counting operations are different measures.
# 2. With little training the RNN wins, with more the Transformer; where the curves cross depends on
#    whether tokens, time or FLOPs are equal.
# 3. What grows with the square of the length is negligible for sentences and dominates for books. A
#    cache saves what would be computed anew for each token.
# 4. Several devices give the gradient of one large batch, if every token counts the same. In a ring
#    each device sends less than twice the gradient, however many there are.
# 5. A large experiment is a small one with another configuration file. Rehearse it at a small size.
#
# Now you can do **assignment 5**, an experiment of your own.
#
# **In the paper:** sections 5.1, 5.2 and 6.1, table 2. **Read on:** Kaplan et al. 2020 and Hoffmann
# et al. 2022 on how loss falls with size, text and compute; Ott et al. 2018, “Scaling Neural
# Machine Translation”.
#
# **Next:** [16 · Reading Transformers in the wild](16_transformers_in_the_wild.ipynb)
