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
# # 8 · Layer norm and batch norm
#
# A norm takes some numbers and brings their mean to 0 and their standard deviation to 1. *Which*
# numbers makes all the difference. By the end you can
#
# - compute layer norm and batch norm by hand, and find the mistakes in a published example,
# - say what each averages over, and what follows from that for sentences of different lengths,
# - show why batch norm sees the future,
# - tell apart the variants that look alike: biased or unbiased, where ε goes, RMSNorm.
#
# Reading takes about thirty minutes, computing less than one.
#
# **Predict first.** Three small translators are trained alike, with layer norm, with batch norm and
# without any norm. Then each is measured three times on the same held-out sentences: in training
# mode, in evaluation mode, and in training mode on batches in which short and long sentences are
# mixed. Which of the nine losses will stand out?

# %%
from functools import partial
from itertools import islice

import numpy as np
import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, solution
from transformer_lib.course.results import mean_and_spread, over_seeds
from transformer_lib.data import prepare
from transformer_lib.data.batching import make_batch, plan_batches
from transformer_lib.data.corpora import DataConfig
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.model import Embedding, FeedForward, LayerNorm, MultiHeadAttention, PostNorm
from transformer_lib.model import SinusoidalPositions, Transformer, layer_norm
from transformer_lib.model.transformer import build_stacks
from transformer_lib.course.figures.norms import norm_blocks
from transformer_lib.plots.notebook import show
from transformer_lib.training.loss import output_loss
from transformer_lib.vocabulary import PAD

# %% [markdown]
# ## By hand
#
# A lecture from which this course grew explains both norms with one table: six features (rows) of
# three examples (columns).

# %%
table = torch.tensor(
    [[1, 3, 6], [2, 2, 2], [0, 1, 5], [4, 6, 1], [5, 2, 3], [1, 0, 1]], dtype=torch.float32
)
lecture = pd.DataFrame(table.int().numpy(), columns=["example 1", "example 2", "example 3"])
lecture.index = [f"feature {i}" for i in range(1, 7)]
lecture

# %% [markdown]
# **Batch norm** takes one feature across all examples: a row. Each row gets its own mean and
# standard deviation. **Layer norm** takes one example with all its features: a column. Take a
# pencil and compute the six means of the rows and the three means of the columns before you read
# on.
#
# According to the slide, rounded to whole numbers, the mean of feature 3 (0, 1 and 5) is **3**, and
# the mean of example 2 (3, 2, 1, 6, 2 and 0) is **3**. Do you agree?

# %%
print("batch norm, means of the rows:   ", table.mean(dim=1).numpy().round(2))
print("layer norm, means of the columns:", table.mean(dim=0).numpy().round(2))
print("standard deviations of the columns:", table.std(dim=0, correction=0).numpy().round(2))
print("                 dividing by n − 1:", table.std(dim=0).numpy().round(2))

# %% [markdown]
# The mean of 0, 1 and 5 is 2. The mean of example 2 is 14/6 = 2.33. Both entries of the slide are
# wrong, and its standard deviations are those obtained by dividing by $n - 1$, rounded. If you
# recompute an example and get other numbers, the mistake need not be yours.
#
# Normalized by hand, the first column: subtract 2.17, divide by 1.77.

# %%
x = table.T  # (examples, features): in code, examples are rows
by_hand = (x - x.mean(dim=1, keepdim=True)) / x.std(dim=1, correction=0, keepdim=True)
print(by_hand[0].numpy().round(2))
library = layer_norm(x, torch.ones(6), torch.zeros(6))
torch.testing.assert_close(by_hand, library, rtol=1e-4, atol=1e-4)
torch.testing.assert_close(library, nn.functional.layer_norm(x, (6,)))
torch.testing.assert_close(LayerNorm(6)(x), library)

# %% [markdown]
# And the formula, with a learned scale γ and shift β for each feature, so that the network can undo
# what does not suit it ([Ba et al. 2016](https://arxiv.org/abs/1607.06450)):
#
# $$\text{LN}(x) = \gamma\,\frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} + \beta \qquad
# \mu = \frac1d\sum_i x_i \quad \sigma^2 = \frac1d\sum_i (x_i - \mu)^2$$
#
# ## What each averages over
#
# The states of a layer are a block: (batch, length, d_model). In orange, the numbers that share one
# mean and one standard deviation:

# %%
show(
    norm_blocks(
        {
            "layer norm": {"channel"},
            "batch norm": {"sentence", "position"},
            "(instance norm)": {"position"},
        }
    ),
    "Three blocks of sentences, positions and channels. Layer norm: one position with all its "
    "channels. Batch norm: one channel of all positions of all sentences. Instance norm: one "
    "channel of all positions of one sentence.",
)

# %% [markdown]
# Layer norm looks at one token alone. Whatever else is in the sentence or in the batch, the token's
# result is the same. Batch norm looks at one channel across all tokens of all sentences. In image
# recognition that works well: images are all the same size, and each mean is taken over many
# numbers. In translation three things go wrong.
#
# **First: padding counts.** Sentences are padded, and padding is part of the block. The same
# sentence with more or less padding beside it:

# %%
class BatchNorm(nn.Module):
    """Batch norm of (batch, length, d_model): each channel over all positions."""

    def __init__(self, d_model):
        super().__init__()
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, x):
        return self.norm(x.flatten(0, 1)).view_as(x)


torch.manual_seed(0)
sentence = torch.randn(1, 5, 8)
for padding in (0, 5, 45):
    padded = torch.cat([sentence, torch.zeros(1, padding, 8)], dim=1)
    first = [norm(padded)[0, 0, 0].item() for norm in (LayerNorm(8), BatchNorm(8))]
    print(f"{padding:2} positions of padding: layer norm {first[0]:.2f}, batch norm {first[1]:.2f}")

# %% [markdown]
# **Second: training and use differ.** In use there may be only one sentence, and what would the
# mean of a batch be then? So batch norm keeps running means while it is trained, and uses those in
# evaluation mode. They are a moving average over the last ten or twenty batches; no batch is
# average.
#
# **Third: it sees the future.** In the decoder no position may depend on later ones (chapter 7).
# The mean of a channel runs over all positions, the later ones included:

# %%
torch.manual_seed(0)
states = torch.randn(2, 6, 8)
changed = states.clone()
changed[:, -1] += 3.0
for name, norm in {"layer norm": LayerNorm(8), "batch norm": BatchNorm(8)}.items():
    difference = (norm(states) - norm(changed)).abs().amax(dim=(0, 2))
    print(f"{name}: change at positions 0 to 5:", *[f"{d:.2f}" for d in difference.tolist()])

# %% [markdown]
# The last position was changed, and with batch norm all the others noticed. In training such a
# decoder can learn from the statistics a little of what it should predict. In use, that little is
# missing.
#
# ## Trained with each
#
# One layer each of encoder and decoder, 150 steps on the bundled text, all alike but for the norm,
# five times each from different random weights:

# %% tags=["nbval-ignore-output"]
data = prepare(DataConfig())
LENGTHS = data.train.src.lengths, data.train.tgt.lengths
assert len(data.train) > 40_000, "the bundled text is not whole: install the course again"

# %%
def build(make_norm, d_model=128):
    """A small Transformer with any norm."""
    stacks = build_stacks(
        attention=partial(MultiHeadAttention, d_model, 4),
        feed_forward=partial(FeedForward, d_model, 256),
        residual=lambda: PostNorm(make_norm(d_model), dropout=0.0),
        final_norm=nn.Identity,
        num_encoder_layers=1,
        num_decoder_layers=1,
    )
    embedding = Embedding(len(data.tokenizer), d_model, SinusoidalPositions(d_model), dropout=0.0)
    output = nn.Parameter(torch.randn(len(data.tokenizer), d_model) * d_model**-0.5)
    return Transformer(embedding, embedding, *stacks, output)


def loss_of(model, sentences):
    batch = make_batch(data.train, sentences)
    states = model.decode(batch.tgt_input, model.encode(batch.src))
    sums = output_loss(states, model.output_weight, batch.labels)
    return sums.smoothed / sums.tokens

# %% [markdown]
# The held-out sentences come in two kinds of batches: as in training, where sentences of similar
# length are together, and at random, where they are not.

# %%
def train(model, seed, steps=150):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), fused=True)
    for sentences in islice(plan_batches(*LENGTHS, 512, seed=(seed,)), steps):
        loss = loss_of(model, sentences)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


held_out = plan_batches(*LENGTHS, 512, seed=(0,))[500:540]
mixed = np.array_split(np.random.default_rng(0).permutation(np.concatenate(held_out)), 40)


@torch.no_grad()
def measure(model, batches, training):
    model.train(training)
    return sum(loss_of(model, sentences).item() for sentences in batches) / len(batches)

# %%
NORMS = {"layer norm": LayerNorm, "batch norm": BatchNorm, "none": lambda d_model: nn.Identity()}


def losses_with(norm, seed):
    torch.manual_seed(seed)
    model = build(NORMS[norm])
    train(model, seed)
    return {
        "training mode": measure(model, held_out, True),
        "evaluation mode": measure(model, held_out, False),
        "training mode, lengths mixed": measure(model, mixed, True),
    }


runs = over_seeds(losses_with, {norm: (norm,) for norm in NORMS}, "08_norms")
means = runs.drop(columns="seed").groupby("case").mean()
spread = means.max(axis=1) - means.min(axis=1)
assert spread["batch norm"] > 0.3 > spread["layer norm"], (
    "not as on our machines: restart the kernel and run all cells"
)
modes = means.loc["batch norm"]
for mode in ("evaluation mode", "training mode, lengths mixed"):
    print(f"batch norm, {mode}: {modes[mode] - modes['training mode']:+.1f} nats")
mean_and_spread(runs)

# %% [markdown]
# Two of the nine stand out, both with batch norm. In training mode it does as well as the others.
# The same weights on the same sentences in evaluation mode cost 0.4 nats more, because the running
# means are not those of the batch; and where short and long sentences share a batch, a good third
# of the block is padding (counted below), and it costs a whole nat more. With layer norm the loss
# is the same in every mode and in any batch. And part of what batch norm has in training mode may
# be forbidden: in the decoder its means contain the future (the third point above).

# %%
for name, batches in {"lengths alike": held_out, "lengths mixed": mixed}.items():
    made = [make_batch(data.train, sentences) for sentences in batches]
    for side in ("src", "labels"):
        blocks = [getattr(batch, side) for batch in made]
        padding = sum((block == PAD).sum() for block in blocks)
        print(f"{name}, {side:6}: {padding / sum(block.numel() for block in blocks):.0%} padding")

# %% [markdown]
#
# And no norm at all? It does no worse than the others here. A model of one layer needs none;
# chapter 9 shows where depth makes it necessary, and where to put it.
#
# ## Variants that look alike
#
# **Biased or unbiased.** The formula divides by $d$. `torch.std` divides by $d - 1$ unless told
# otherwise, and so do the lecture and The Annotated Transformer, whose classes a well-known
# illustrated description uses; they also add ε to the standard deviation, and not to the variance
# inside the root. How far is that from `nn.LayerNorm`?

# %%
def unbiased(x, eps=1e-6):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps)


torch.manual_seed(0)
for d_model in (4, 64, 512):
    x = torch.randn(1000, d_model)
    ratio = (unbiased(x) / nn.functional.layer_norm(x, (d_model,))).median()
    root = (1 - 1 / d_model) ** 0.5
    print(f"d_model {d_model:3}: {ratio:.4f} of the right value, √((d − 1)/d) = {root:.4f}")

# %% [markdown]
# At 512 channels it is a thousandth, and γ makes up for it in training. It matters on the day you
# load weights from elsewhere, or when your test compares with PyTorch and fails in the fourth
# digit.
#
# **Where ε goes, and whether.** ε is for vectors without spread: a position whose numbers are
# all equal. One of the sources has none:

# %%
constant = torch.full((1, 4), 2.0)
nearly = 2.0 + torch.tensor([[1e-4, -1e-4, 1e-4, -1e-4]])
for name, x in {"constant": constant, "nearly constant": nearly}.items():
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    print(f"{name:16} no ε: {(centred / variance.sqrt())[0, 0]:5.2f}", end="   ")
    print(f"inside the root: {(centred / (variance + 1e-5).sqrt())[0, 0]:.2f}", end="   ")
    print(f"outside: {(centred / (variance.sqrt() + 1e-5))[0, 0]:.2f}")

# %% [markdown]
# Without ε a constant row is 0/0. With it, tiny differences stay tiny: inside the root, standard
# deviations below $\sqrt\varepsilon = 0.003$ are damped, outside of it only those below 0.00001.
#
# ## Common mistakes
#
# The shape is right in each of these, and the numbers have a mean near 0 and a size near 1. The
# thing to test is what must *not* influence what:

# %%
torch.manual_seed(0)
x = torch.randn(2, 3, 8)
other = x.clone()
other[1] += torch.randn(3, 8)  # another second sentence
loud = x.clone()
loud[0, 2] *= 10  # another last position
for mistake in wrong_answers("layer_norm"):
    norm = mistake.answers["layer_norm"]
    a, b, c = (norm(t, torch.ones(8), torch.zeros(8), 1e-5) for t in (x, other, loud))
    seen = {"sentences": (a[0] - b[0]).abs().max(), "positions": (a[0, 0] - c[0, 0]).abs().max()}
    mixes = " and ".join(what for what, change in seen.items() if change > 1e-3) or "nothing"
    print(f"{mistake.id:5}{mistake.title:52} mixes {mixes}")

# %% [markdown]
# Those that mix nothing are harder to find. They need a reference, such as `nn.LayerNorm`, and
# inputs on which it matters: few channels, a constant row, a scale that is not 1.
#
# ## Your turn
#
# What passes its `check` is kept in `my_transformer.py` beside this notebook. After a first try,
# `solution("layer_norm")` in a cell of its own shows one way.
#
# ### Layer norm
#
# ●○○ · 10 minutes · the norm of the paper
#
# The layer norm of `x`, (batch, length, d_model); `scale` and `shift`, of d_model numbers each, are
# the formula's γ and β; `eps` is added to the variance.

# %%
def layer_norm(x, scale, shift, eps):
    ...  # your code


check(layer_norm)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `keepdim=True` keeps the axis, so that a mean of shape (batch, length, 1) can be subtracted.
# Divide the sum of squares by d, not by d − 1.
#
# </details>
#
# ### Batch norm
#
# ●○○ · 10 minutes · what the other one does differently
#
# The same tensor, and the same formula, with mean and variance of each channel over all positions
# of all sentences, as in training. As in layer norm, divide by the count itself for the variance.

# %%
def batch_norm(x, scale, shift, eps):
    ...  # your code


check(batch_norm)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `mean(dim=(0, 1))` averages over two axes at once.
#
# </details>
#
# ### RMSNorm
#
# ●○○ · 5 minutes · the norm of most models since 2020
#
# Many language models leave the mean alone and divide by the root of the mean square:
# $\gamma\,x/\sqrt{\frac1d\sum_i x_i^2 + \varepsilon}$ ([Zhang and Sennrich
# 2019](https://arxiv.org/abs/1910.07467)).

# %%
def rms_norm(x, scale, eps):
    ...  # your code


check(rms_norm)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Square, then mean, then root: the name read backwards. There is no shift.
#
# </details>
#
# ### The module
#
# ●○○ · 10 minutes · a module with parameters of its own
#
# As part of a model: a scale that starts at 1 and a shift that starts at 0, d_model numbers each,
# both trained (name them as you like), and ε = 10⁻⁵. The last axis of `x` is d_model; there may be
# any number of axes before it.

# %%
class LayerNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        ...  # your code

    def forward(self, x):
        ...  # your code


check(LayerNorm)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `nn.Parameter(torch.ones(d_model))` is trained; a plain tensor is not.
#
# </details>
#
# ## Summary
#
# 1. Layer norm: one token, all its channels. Batch norm: one channel, all tokens of the batch.
# 2. With batch norm a token's result depends on padding, on the other sentences, on the mode, and
#    on the future.
# 3. When measured, batch norm has a different loss in each situation; layer norm has one.
# 4. The variance divides by d, and ε goes inside the root; other variants differ by a factor of
#    √((d−1)/d), or on constant rows.
# 5. The lecture's table has two wrong means. Recompute what you teach.
#
# **In the paper:** sections 3.1 and 5.4 (which say only “LayerNorm”). **Read on:** Ba et al. 2016;
# Shen et al. 2020 (PowerNorm) on what batch norm would need in language.
#
# **Next:** [9 · Residuals, and where the norm goes](09_residuals.ipynb)
