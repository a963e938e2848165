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
# A norm, short for normalization, takes some numbers and brings their mean to 0 and their standard
# deviation to 1. *Which* numbers it takes together makes all the difference. By the end you can
#
# - say what a norm is good for in a deep network,
# - write layer norm and batch norm with its running statistics, and layer norm's gradient,
# - say what each averages over, and what follows from that for sentences of different lengths,
# - show why batch norm sees the future,
# - tell apart the variants that look alike: biased or unbiased, where ε goes, RMSNorm.
#
# Reading takes about thirty minutes, running the cells less than one.
#
# **Predict first.** Three small translators are trained in the same way: one with layer norm, one
# with batch norm and one without any norm. Then the loss of each is measured three times on the
# same held-out sentences: in training mode, in evaluation mode, and in training mode on batches in
# which short and long sentences are mixed. Which of the nine losses will stand out?

# %%
from collections import defaultdict
from functools import partial
from itertools import islice

import numpy as np
import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, mine, solution
from transformer_lib.course.results import mean_and_spread, over_seeds
from transformer_lib.course.trained import load_trained
from transformer_lib.data import prepare
from transformer_lib.data.batching import make_batch, plan_batches
from transformer_lib.data.corpora import DataConfig
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.model import Embedding, FeedForward, MultiHeadAttention, PostNorm
from transformer_lib.model import SinusoidalPositions, Transformer
from transformer_lib.model.transformer import build_stacks
from transformer_lib.course.figures.norms import norm_blocks
from transformer_lib.plots.measurements import lines
from transformer_lib.plots.notebook import show
from transformer_lib.training.loss import output_loss
from transformer_lib.vocabulary import EOS, PAD

# %% [markdown]
# ## Why normalize at all?
#
# Each layer multiplies its input by a matrix. If each makes the numbers a little larger or smaller,
# a deep network makes them huge or tiny. Here are thirty random layers of 64 ReLU units, with
# weights scaled so that each layer changes the size of the numbers by a factor of about 0.8, 1.0 or
# 1.25; first without a norm, then, for 1.25, with a norm after each layer:

# %%
def sizes(factor, norm, layers=30, d=64):
    """Root mean square of the numbers after each layer."""
    torch.manual_seed(0)
    x = torch.randn(100, d)
    found = [x.square().mean().sqrt().item()]
    for _ in range(layers):
        x = (x @ torch.randn(d, d) * factor * (2 / d) ** 0.5).relu()
        x = nn.functional.layer_norm(x, (d,)) if norm else x
        found.append(x.square().mean().sqrt().item())
    return found


depth = range(31)
curves = {f"factor {f}": (depth, sizes(f, norm=False)) for f in (0.8, 1.0, 1.25)}
curves["1.25, with a norm"] = (depth, sizes(1.25, norm=True))
show(
    lines(curves, ("layers", "root mean square"), logarithmic="y"),
    "Size of the numbers over thirty layers: without a norm they shrink or grow exponentially, or "
    "stay about the same if the factor is 1; with a norm they stay the same even with the largest "
    "factor.",
)
for name, (_, values) in curves.items():
    print(f"{name:18} after 30 layers {values[-1]:.3g}")

# %% [markdown]
# With a factor of 1 you can do without a norm, and random weights can be chosen to give about that
# factor at the start (chapter 10). But the weights change in training, and the factor changes with
# them. With a norm after each layer, the next layer does not notice the factor. (Batch norm, the
# first such norm, was introduced with a different explanation, “internal covariate shift” ([Ioffe
# and Szegedy 2015](https://arxiv.org/abs/1502.03167)), which later measurements did not bear out
# ([Santurkar et al. 2018](https://arxiv.org/abs/1805.11604)).) Where in a Transformer the norm
# goes, and what goes wrong at depth, is the subject of chapter 9. Here we ask what it should
# average over.
#
# ## By hand
#
# One of the five descriptions in chapter 16, a lecture, explains both norms with one table: six
# features (rows) of three examples (columns). In a network, a feature is called a **channel**.

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
# The lecture's slide rounds to whole numbers. According to it, the mean of feature 3 (0, 1 and 5)
# is **3**, and the mean of example 2 (3, 2, 1, 6, 2 and 0) is **3**. Do you agree?

# %%
print("batch norm, means of the rows:   ", table.mean(dim=1).numpy().round(2))
print("layer norm, means of the columns:", table.mean(dim=0).numpy().round(2))
for dim, what in {1: "rows", 0: "columns"}.items():
    by_n, by_less = table.std(dim, correction=0).numpy(), table.std(dim).numpy()
    print(f"standard deviations of the {what}: {by_n.round(2)}, by n − 1: {by_less.round(2)}")

# %% [markdown]
# The mean of 0, 1 and 5 is 2. The mean of example 2 is 14/6 = 2.33, which rounds to 2. Both entries
# of the slide are wrong, and its standard deviations are those obtained by dividing by $n - 1$,
# rounded: 3 for feature 1, where dividing by $n$ gives 2. If you recompute a published example and
# get other numbers, the mistake need not be yours.
#
# Here is layer norm as a formula ([Ba et al. 2016](https://arxiv.org/abs/1607.06450)). A learned
# scale γ and shift β for each feature let the next layer get every channel with the mean and the
# spread that suit it:
#
# $$\text{LN}(x) = \gamma\,\frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} + \beta \qquad
# \mu = \frac1d\sum_i x_i \quad \sigma^2 = \frac1d\sum_i (x_i - \mu)^2$$
#
# ### Layer norm
#
# ●○○ · 10 minutes · the norm of the paper
#
# Return the layer norm of `x`, (batch, length, d_model); `scale` and `shift`, of d_model numbers
# each, are the formula's γ and β; `eps` is added to the variance. What passes its `check` is kept
# in `my_transformer.py` beside this notebook. After a first try, `solution("layer_norm")` in a cell
# of its own shows one way.

# %%
def layer_norm(x, scale, shift, eps):
    ...  # your code


check(layer_norm)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `keepdim=True` keeps the axis, so that a mean of shape (batch, length, 1) can be subtracted.
# Divide the sum of the squared deviations by d, not by d − 1. (Subtract the mean before you square:
# for numbers far from 0, the mean of the squares minus the square of the mean loses most of its
# digits.)
#
# </details>

# %% [markdown]
# ### Batch norm
#
# ●○○ · 10 minutes · what the other one does differently
#
# The same tensor and the same formula, but the mean and the variance of each channel are taken over
# all positions of all sentences, as batch norm does in training. As in layer norm, for the variance
# divide by the count itself, not by one less.

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

# %% [markdown]
# Here are your norms on the lecture's table (in the code, each example is a row), checked against
# PyTorch's:

# %%
layer_norm, batch_norm = mine("layer_norm"), mine("batch_norm")
x, ones, zeros = table.T[None], torch.ones(6), torch.zeros(6)
print("layer norm, example 1:", layer_norm(x, ones, zeros, 1e-5)[0, 0].numpy().round(2))
print("batch norm, feature 1:", batch_norm(x, ones, zeros, 1e-5)[0, :, 0].numpy().round(2))
torch.testing.assert_close(layer_norm(x, ones, zeros, 1e-5), nn.functional.layer_norm(x, (6,)))
torch.testing.assert_close(batch_norm(x, ones, zeros, 1e-5)[0], nn.BatchNorm1d(6)(x[0]))

# %% [markdown]
# ### The module
#
# ●○○ · 10 minutes · a norm with parameters of its own
#
# The same norm as a part of a model: it has a scale that starts at 1 and a shift that starts at 0,
# d_model numbers each, both trained, and ε = 10⁻⁵. Call scale and shift `weight` and `bias`, as
# PyTorch does: in chapter 10 you will load the weights of another program into them. The last axis
# of `x` is d_model; there may be any number of axes before it.

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

# %% [markdown]
# ## What each averages over
#
# The states that a layer returns form a block, (batch, length, d_model). The numbers that share one
# mean and one standard deviation are orange:

# %%
show(
    norm_blocks(
        {
            "layer norm": {"channel"},
            "batch norm": {"sentence", "position"},
            "instance norm": {"position"},
        }
    ),
    "Three blocks of sentences, positions and channels. Layer norm: one position with all its "
    "channels. Batch norm: one channel of all positions of all sentences. Instance norm: one "
    "channel of all positions of one sentence.",
)

# %% [markdown]
# Layer norm looks at one token alone. Whatever else is in the sentence or in the batch, the token's
# result is the same. Batch norm looks at one channel across all tokens of all sentences. (Between
# them are two that are used for images: **instance norm**, one channel of one example, and **group
# norm**, several channels of one example.)
#
# In image recognition batch norm works well: images are all the same size, and each mean is taken
# over many numbers. In translation three things go wrong.
#
# **First: training and use differ.** In use there may be only one sentence, and one sentence cannot
# give the mean of a batch. So during training batch norm also keeps running means and variances,
# and it uses those in evaluation mode. Each batch moves them a tenth of the way toward its own
# values: a moving average over the last ten or twenty batches.
#
# ### Batch norm, with what it keeps
#
# ●●○ · 25 minutes · why training mode and evaluation mode are two programs
#
# A module for (batch, length, d_model). In training mode it normalizes as `batch_norm` does, with ε
# = 10⁻⁵, and moves a running mean (at first 0) and a running variance (at first 1) a tenth of the
# way toward the batch's. Both are saved with the module (`state_dict`), and no gradient flows into
# them. For the running variance it divides by n − 1, as `nn.BatchNorm1d` does; n is batch · length.
# In evaluation mode it uses the running mean and variance and changes nothing. Scale and shift are
# as in your `LayerNorm`.

# %%
class BatchNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        ...  # your code

    def forward(self, x):
        ...  # your code


check(BatchNorm)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `self.training` says which mode the module is in. `self.register_buffer(name, tensor)` stores a
# tensor that belongs to the module but is not trained. No gradient should flow into what is kept
# for later.
#
# </details>

# %% [markdown]
# **Second: padding counts.** Sentences are padded, and padding is part of the block. Here is the
# same sentence with more and more padding after it:

# %%
LayerNorm, BatchNorm = mine("LayerNorm"), mine("BatchNorm")
torch.manual_seed(0)
sentence = torch.randn(1, 5, 8)
for padding in (0, 5, 45):
    padded = torch.cat([sentence, torch.zeros(1, padding, 8)], dim=1)
    first = [norm(padded)[0, 0, 0].item() for norm in (LayerNorm(8), BatchNorm(8))]
    print(f"{padding:2} positions of padding: layer norm {first[0]:.2f}, batch norm {first[1]:.2f}")

# %% [markdown]
# **Third: it sees the future.** In the decoder no position may depend on later ones (chapter 7).
# But the mean of a channel runs over all positions, the later ones included:

# %%
torch.manual_seed(0)
states = torch.randn(2, 6, 8)
changed = states.clone()
changed[:, -1] += torch.randn(2, 8)
for name, norm in {"layer norm": LayerNorm(8), "batch norm": BatchNorm(8)}.items():
    difference = (norm(states) - norm(changed)).abs().amax(dim=(0, 2))
    print(f"{name}: change at positions 0 to 5:", *[f"{d:.2f}" for d in difference.tolist()])

# %% [markdown]
# We changed only the last position, and with batch norm all the others noticed. In training, the
# statistics tell such a decoder a little about what it should predict. In use, that information is
# missing.
#
# ## Trained with each norm
#
# Now for the opening question. Each model has one encoder layer and one decoder layer and is
# trained for 150 steps on the bundled text. The models differ only in the norm. Each is trained
# five times, with different random weights and the sentences in a different order. Two more kinds
# have batch norm in one stack and layer norm in the other: one has it in the encoder, where there
# is no future to see, and one in the decoder. As in the paper, the norm comes after the residual
# sum (chapter 9):

# %% tags=["nbval-ignore-output"]
data = prepare(DataConfig())
LENGTHS = data.train.src.lengths, data.train.tgt.lengths
assert len(data.train) > 40_000, "the bundled text is not whole: install the course again"

# %%
def stacks(make_norm, d_model):
    """An encoder and a decoder of one layer with any norm."""
    return build_stacks(
        attention=partial(MultiHeadAttention, d_model, 4),
        feed_forward=partial(FeedForward, d_model, 256),
        residual=lambda: PostNorm(make_norm(d_model), dropout=0.0),
        final_norm=nn.Identity,
        num_encoder_layers=1,
        num_decoder_layers=1,
    )


def build(encoder_norm, decoder_norm, d_model=128):
    """A small Transformer with these norms."""
    encoder, _ = stacks(encoder_norm, d_model)
    _, decoder = stacks(decoder_norm, d_model)
    embedding = Embedding(len(data.tokenizer), d_model, SinusoidalPositions(d_model), dropout=0.0)
    output = nn.Parameter(torch.randn(len(data.tokenizer), d_model) * d_model**-0.5)
    return Transformer(embedding, embedding, encoder, decoder, output)

# %% [markdown]
# Forty batches are held out. (They are taken from the training text, and some of their English
# sentences also occur in the rest, with another translation. That is good enough to compare norms,
# but not to say how well a model translates.) They come in two forms: with sentences of similar
# length together, as in training, and mixed at random.

# %%
held_out = plan_batches(*LENGTHS, 512, seed=(0,))[500:540]
mixed = np.array_split(np.random.default_rng(0).permutation(np.concatenate(held_out)), 40)
rest = np.setdiff1d(np.arange(len(data.train)), np.concatenate(held_out))

# %%
def loss_of(model, sentences):
    """The sum of −ln p, and the number of tokens."""
    batch = make_batch(data.train, sentences)
    states = model.decode(batch.tgt_input, model.encode(batch.src))
    sums = output_loss(states, model.output_weight, batch.labels)
    return sums.smoothed, sums.tokens


def train(model, seed, steps=150):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), fused=True)
    plan = plan_batches(*(lengths[rest] for lengths in LENGTHS), 512, seed=(seed,))
    for numbers in islice(plan, steps):
        loss, tokens = loss_of(model, rest[numbers])
        optimizer.zero_grad()
        (loss / tokens).backward()
        optimizer.step()


@torch.no_grad()
def measure(model, batches, training):
    model.train(training)
    losses, tokens = zip(*(loss_of(model, sentences) for sentences in batches))
    return sum(losses).item() / sum(tokens)

# %% [markdown]
# How much of such batches is padding?

# %%
for name, batches in {"lengths alike": held_out, "lengths mixed": mixed}.items():
    made = [make_batch(data.train, sentences) for sentences in batches]
    for side in ("src", "labels"):
        blocks = [getattr(batch, side) for batch in made]
        padding = sum((block == PAD).sum() for block in blocks)
        print(f"{name}, {side:6}: {padding / sum(block.numel() for block in blocks):.0%} padding")

# %%
KINDS = {"layer": LayerNorm, "batch": BatchNorm, "none": lambda d_model: nn.Identity()}
CASES = {
    "layer norm": ("layer", "layer"),
    "batch norm": ("batch", "batch"),
    "batch norm in the encoder only": ("batch", "layer"),
    "batch norm in the decoder only": ("layer", "batch"),
    "none": ("none", "none"),
}


def losses_with(encoder_norm, decoder_norm, seed):
    torch.manual_seed(seed)
    model = build(KINDS[encoder_norm], KINDS[decoder_norm])
    train(model, seed)
    return {
        "training mode": measure(model, held_out, True),
        "evaluation mode": measure(model, held_out, False),
        "training mode, mixed": measure(model, mixed, True),
    }

# %% [markdown]
# In training mode the running means move even while we measure. Training mode comes first, so that
# evaluation mode then uses the means of these very sentences, which is the best case for it; the
# mixed batches come last.

# %%
runs = over_seeds(losses_with, CASES, "08_norms")
means = runs.drop(columns="seed").groupby("case").mean()
spread = means.max(axis=1) - means.min(axis=1)
assert spread["batch norm"] > 0.3 > spread["layer norm"], (
    "not as on our machines: restart the kernel and run all cells"
)
for case in [case for case in CASES if "batch" in case]:
    modes = means.loc[case]
    for mode in ("evaluation mode", "training mode, mixed"):
        print(f"{case}, {mode}: {modes[mode] - modes['training mode']:z.2f} nats more")
mean_and_spread(runs)

# %% [markdown]
# Of the nine losses of the opening question, two stand out, both with batch norm. In training mode,
# batch norm does better than layer norm. In evaluation mode, the same weights on the same sentences
# cost 0.36 nats more; in training mode with short and long sentences in one batch, a whole nat
# more. With layer norm the loss is the same in every mode and in any batch.
#
# The next two rows show where the trouble is. With batch norm in the encoder only, it is gone; with
# batch norm in the decoder only, all of it is there. What is special about the decoder? Its means
# contain the future, which is not available in use. Where lengths are mixed, padding enters these
# means, too; but it enters the encoder's means almost as much and does little harm there. This
# experiment cannot tell whether the future or the padding does the harm, nor in which mode; in
# assignment 3 you plan one that can.
#
# And the model without any norm? In evaluation mode, the mode that counts in use, it does best of
# all here. This model, with one layer on each side, needs none.
#
# ## Variants that look alike
#
# **Biased or unbiased.** The formula divides by $d$, which gives the biased variance. `torch.std`
# divides by $d - 1$ unless told otherwise (unbiased), and so do The Annotated Transformer and two
# of the five descriptions in chapter 16, the lecture among them; they also add ε to the standard
# deviation, and not to the variance inside the root. How far are their results from those of
# `nn.LayerNorm`?

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
# At 512 channels the difference is a thousandth, and γ can make up for it in training. It matters
# when you load weights from elsewhere, or when a test compares your norm with PyTorch's and fails
# in the fourth digit.
#
# **Where ε goes, and whether it is there.** ε is needed for vectors without spread, that is, for
# positions whose numbers are all equal. One of the five descriptions has no ε:

# %%
constant = torch.full((1, 4), 2.0)
nearly = 2.0 + torch.tensor([[1e-4, -1e-4, 1e-4, -1e-4]])
for name, x in {"constant": constant, "nearly constant": nearly}.items():
    centered = x - x.mean(-1, keepdim=True)
    variance = centered.square().mean(-1, keepdim=True)
    print(f"{name:16} no ε: {(centered / variance.sqrt())[0, 0]:5.2f}", end="   ")
    print(f"inside the root: {(centered / (variance + 1e-5).sqrt())[0, 0]:.2f}", end="   ")
    print(f"outside: {(centered / (variance.sqrt() + 1e-5))[0, 0]:.2f}")

# %% [markdown]
# Without ε a constant row is 0/0. With it, tiny differences stay tiny: inside the root, standard
# deviations below $\sqrt\varepsilon = 0.003$ are damped; outside it, only those below 0.00001.
#
# **Without the mean.** Many language models leave the mean alone and divide by the root of the mean
# square: $\gamma\,x/\sqrt{\frac1d\sum_i x_i^2 + \varepsilon}$, **RMSNorm** ([Zhang and Sennrich
# 2019](https://arxiv.org/abs/1910.07467)). It is cheaper, and hardly anything is lost if the mean
# is close to 0, for then subtracting it makes no difference. Is it close to 0? In the encoder of
# our trained translator, what share of the mean square of each norm's input is due to its mean?
#
# (We measure it with a **hook**: a function that a module calls before its `forward`, with the
# inputs, or after it. With hooks you can look into a model without changing it.)

# %%
trained = load_trained("transformer")
shares = defaultdict(list)


def note(name):
    def hook(module, inputs):
        x = inputs[0].flatten(0, -2)  # one row per token
        shares[name] += (x.mean(dim=-1).square() / x.square().mean(dim=-1)).tolist()

    return hook


norms = {n: m for n, m in trained.model.encoder.named_modules() if type(m).__name__ == "LayerNorm"}
hooks = [module.register_forward_pre_hook(note(name)) for name, module in norms.items()]
sources = data.test.sources[:200]
rows = [[*tokens, EOS] for tokens in trained.tokenizer.encode(sources)]
with torch.no_grad():
    for row in rows:
        trained.model.encode(torch.tensor([row]))
for hook in hooks:
    hook.remove()
for name, of_tokens in shares.items():
    print(f"{name:40}{sum(of_tokens) / len(of_tokens):.1%}")
print(f"{'random numbers of 192 channels':40}{1 / 192:.1%}")

# %% [markdown]
# Next to nothing: 1.4% at most, in the first layer, and afterwards less than random numbers have.
# (This model was trained with layer norms, for which the mean of the input makes no difference.)
#
# ### RMSNorm
#
# ●○○ · 5 minutes · the norm of T5, Llama and most open language models since
#
# Return the formula above for `x`, (batch, length, d_model), with the mean over the channels and
# `scale` for γ, (d_model,); there is no shift.

# %%
def rms_norm(x, scale, eps):
    ...  # your code


check(rms_norm)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Square, then mean, then root: the name read backwards.
#
# </details>

# %% [markdown]
# ## The way back
#
# A norm is a curious function: adding a constant to its input changes nothing, and neither does
# scaling the input around its mean (apart from ε). So the gradient with respect to the input has no
# component in either of these two directions: the mean of its components is 0, and its inner
# product with x − μ would be 0, too, without ε.
#
# ### The gradient by hand
#
# ●●● · 40 minutes · what autograd does for you
#
# $y = \gamma\,\hat x + \beta$ with $\hat x = (x - \mu)/\sqrt{\sigma^2 + \varepsilon}$. `x` is
# (batch, length, d_model), and `upstream` is $\partial L/\partial y$, with the same shape. Return
# the gradients with respect to `x`, `scale` and `shift`, without autograd, which is switched off
# during the check. Remember that μ and σ depend on every x of the row.

# %%
def layer_norm_backward(x, upstream, scale, eps):
    ...  # your code


check(layer_norm_backward)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Begin with $g = \gamma \cdot \partial L/\partial y$, the gradient with respect to $\hat x$. Then
# go back through $\hat x = (x - \mu)/s$, with $s = \sqrt{\sigma^2 + \varepsilon}$, in three pieces:
# what reaches $x_i$ directly, through $\mu$, and through $s$. The last two become means over the
# row; no Jacobian is needed.
#
# </details>

# %%
layer_norm_backward = mine("layer_norm_backward")
torch.manual_seed(0)
x = torch.randn(2, 3, 8, requires_grad=True)
upstream, scale = torch.randn(2, 3, 8), torch.rand(8)
(expected,) = torch.autograd.grad(layer_norm(x, scale, torch.zeros(8), 1e-5), x, upstream)
of_x, _, _ = layer_norm_backward(x.detach(), upstream, scale, 1e-5)
torch.testing.assert_close(of_x, expected, atol=1e-5, rtol=1e-4)
print("equal to autograd's")
print(f"largest mean of a row: {of_x.mean(dim=-1).abs().max():.0e}")
product = (of_x * (x - x.mean(dim=-1, keepdim=True))).sum(dim=-1)
print(f"largest product with x − μ: {product.abs().max():.0e}")

# %% [markdown]
# ## Common mistakes
#
# Each of these mistakes returns the right shape, and most return numbers that look right, too. What
# you need to test is what must *not* influence what. So change another sentence, then another
# position, and see whether the result notices:

# %%
torch.manual_seed(0)
x = torch.randn(2, 3, 8)
other = x.clone()
other[1] += torch.randn(3, 8)  # another second sentence
loud = x.clone()
loud[0, 2] *= 10  # another last position
for mistake in wrong_answers("layer_norm"):
    norm = mistake.answers["layer_norm"]
    inputs = (t.clone() for t in (x, other, loud))  # one of them changes what it is given
    a, b, c = (norm(t, torch.ones(8), torch.zeros(8), 1e-5) for t in inputs)
    seen = {"sentences": (a[0] - b[0]).abs().max(), "positions": (a[0, 0] - c[0, 0]).abs().max()}
    mixes = " and ".join(what for what, change in seen.items() if change > 1e-3) or "nothing"
    print(f"{mistake.title + ':':65} mixes {mixes}")

# %% [markdown]
# Those that mix nothing are harder to find. Most need a reference, such as `nn.LayerNorm`, and
# inputs on which the mistake shows: few channels, a constant row, a scale that is not 1. Two even
# return the right numbers: to find these, compare the input before and after, and the gradients.
# Each of them is in the [list of mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. A norm gives the next layer numbers of the same size, at any depth.
# 2. Layer norm: one token, all its channels. Batch norm: one channel, all tokens of the batch.
# 3. With batch norm in training mode a token's result depends on padding, on the other sentences
#    and on the future; in evaluation mode it depends on running means that belong to no actual
#    batch.
# 4. For the variance, the sum of the squared deviations is divided by d, and ε goes inside the
#    root; other variants differ by a factor of √((d−1)/d), or on constant rows. RMSNorm leaves the
#    mean alone.
# 5. The gradient with respect to a norm's input has no mean and no component along x̂.
#
# Assignment 3, after the next chapter, has two more norms, and a question that the present chapter
# leaves open.
#
# **In the paper:** sections 3.1 and 5.4. **Read on:** Ba et al. 2016; Shen et al. 2020 (PowerNorm)
# on what batch norm would need in language.
#
# **Next:** [9 · Residuals, and where the norm goes](09_residuals.ipynb)
