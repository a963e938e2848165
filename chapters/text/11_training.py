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
# # 11 · Training
#
# The model is built; now it has to learn. In this chapter you write its training: the loss, the
# step, the loop. It learns a toy task to perfection, then German. Most of what goes wrong in
# practice goes wrong here, and most of it without an error message. By the end you can
#
# - read a loss: nats, perplexity, and what label smoothing does to both,
# - write a training step with accumulation and clipping, and the loop around it,
# - find out within seconds whether a training program works at all,
# - choose a learning rate, its warm-up and Adam's betas, and say what each is for,
# - recognize overfitting, and say what dropout and averaged checkpoints do about it,
# - make batches that waste little, and compute in bfloat16.
#
# Reading takes about an hour, running the cells about a minute.
#
# **Predict first.** Five programs are each wrong in one place: the target is not shifted; the
# decoder sees the future; there are no positions; the decoder cannot look at the source; the
# learning rate is a hundred times too high. All of them run. Which of the five reach a loss near
# zero?

# %%
import math
from itertools import count, islice

import numpy as np
import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, mine, solution
from transformer_lib.course.results import mean_and_spread, over_seeds, variants
from transformer_lib.data import batching, prepare
from transformer_lib.data.batching import make_batch, shift_right
from transformer_lib.data.corpora import DataConfig
from transformer_lib.decoding.search import greedy_search, pad_sequences
from transformer_lib.model import NoPositions, TransformerConfig, build_transformer, fused_attention
from transformer_lib.plots.measurements import bars, lines
from transformer_lib.plots.notebook import show
from transformer_lib.course.trained import load_trained
from transformer_lib.timing import fastest
from transformer_lib.training.loss import output_loss
from transformer_lib.training.schedule import budget_rate
from transformer_lib.vocabulary import EOS, PAD

# %% [markdown]
# ## The loss
#
# For each position the model gives every piece a probability. The loss of the position is $-\ln p$
# of the right piece, the **cross-entropy** against a one-hot target. Let us look at this loss piece
# by piece, for the small trained Transformer of the course:

# %%
trained = load_trained("transformer")
model, tokenizer = trained.model.eval(), trained.tokenizer


def log_probabilities(source, target):
    """The target's pieces (and </s>), ln p of each, given all before it, and the likeliest one."""
    src, tgt = tokenizer.encode([source, target])
    labels = torch.tensor([*tgt, EOS])
    with torch.no_grad():
        logits = model(torch.tensor([[*src, EOS]]), shift_right(labels[None]))[0]
    log_p = logits.log_softmax(dim=-1)
    pieces, likeliest = (tokenizer.pieces(row.tolist()) for row in (labels, log_p.argmax(dim=-1)))
    return pieces, log_p.gather(1, labels[:, None])[:, 0], likeliest


pieces, log_p, likeliest = log_probabilities("He bought a new car.", "Er kaufte ein neues Auto.")
table = pd.DataFrame({"p": log_p.exp(), "−ln p": -log_p, "likeliest": likeliest}, index=pieces)
print(f"mean {-log_p.mean():.2f} nats, perplexity {math.exp(-log_p.mean()):.1f}")
print("the model itself says:", trained.translate(["He bought a new car."])[0])
table.round(2).T

# %% [markdown]
# The unit is the **nat**; dividing by ln 2 gives bits. $e^{\text{mean}}$ is the **perplexity**: the
# number of equally likely pieces among which the model seems to choose. The pieces that cost most
# here are not wrong. German has a choice of past tenses, and the model prefers the present perfect,
# *hat … gekauft*, with a *sich* (“for himself”); and after *kaufte* it finds *sich* likelier than
# *ein*. Even the best possible model pays for such choices. The sum of the losses is $-\ln p$ of
# the whole sentence, since $p(y \mid x) = \prod_t p(y_t \mid y_{<t}, x)$, where $x$ is the source.
#
# The mean runs over real pieces only: padding has no right answer.
#
# ### Label smoothing
#
# ●○○ · 15 minutes · the paper's loss
#
# Cross-entropy is never satisfied: from p = 0.99 it still wants to go to 0.999. The paper smooths
# its targets with $\varepsilon = 0.1$ (section 5.4) but prints no formula. Here, as in PyTorch,
# $\varepsilon$ is spread over the whole vocabulary: $q = (1 - \varepsilon)\,\text{onehot} +
# \varepsilon / V$, and the loss is $-\sum_v q_v \ln p_v$.
#
# `logits` are (tokens, vocab_size), `labels` (tokens). Return the mean over the tokens whose label
# is not `PAD`, as a tensor. What passes its `check` is kept in `my_transformer.py` beside this
# notebook. After a first try, `solution("label_smoothing")` in a cell of its own shows one way.

# %%
def label_smoothing(logits, labels, smoothing):
    ...  # your code


check(label_smoothing)

# %% [markdown]
# <details><summary>Hint</summary>
#
# $-\sum_v q_v \ln p_v$ has two terms: $(1 - \varepsilon)$ times $-\ln p$ of the right piece, and
# $\varepsilon$ times the mean of $-\ln p_v$ over all pieces. `log_softmax` is safe with large
# logits, the log of a softmax is not.
#
# </details>

# %% [markdown]
# (Tensor2Tensor, in which the paper's models were trained, shares $\varepsilon$ among the $V - 1$
# other pieces: that is the formula above with $\varepsilon V / (V - 1)$ in place of $\varepsilon$.
# It also subtracts the smallest possible loss. The Annotated Transformer leaves `<pad>` out of the
# sharing as well, so that $V - 2$ pieces get a share.)
#
# What does smoothing do? Let p be the probability of the right piece, with the rest shared evenly
# among the others:

# %%
label_smoothing = mine("label_smoothing")
V, losses = 4000, {}
p = torch.linspace(0.3, 0.9999, 200)
logits = torch.cat([p[:, None], ((1 - p) / (V - 1))[:, None].expand(-1, V - 1)], dim=1).log()
right = torch.full((1,), 4)
logits[:, [0, 4]] = logits[:, [4, 0]]  # the right piece is number 4: number 0 is padding
for epsilon in (0.0, 0.1, 0.2):
    loss = torch.stack([label_smoothing(row[None], right, epsilon) for row in logits])
    losses[f"ε = {epsilon}"] = (p.tolist(), loss.tolist())
    print(f"ε = {epsilon}: smallest loss {loss.min():.2f}, at p = {p[loss.argmin()]:.2f}")
show(
    lines(losses, ("p of the right piece", "loss (nats)")),
    "Loss over the probability of the right piece: without smoothing it falls to zero at 1; with "
    "0.1 and 0.2 it has its minimum at 0.9 and 0.8 and rises again, steeply only close to 1.",
)

# %% [markdown]
# With smoothing, certainty is no longer the best answer: with ε = 0.1, the best answer is p = 0.9.
# And the loss can no longer reach zero: 1.15 is perfect. Losses with different ε cannot be
# compared, so the library always records the plain −ln p on validation sentences.
#
# With smoothing or without, the gradient with respect to the logits is simple, $p - q$:

# %%
torch.manual_seed(0)
logits, labels = torch.randn(5, 12, requires_grad=True), torch.tensor([4, 7, 11, PAD, 5])
label_smoothing(logits, labels, 0.1).backward()
q = 0.9 * nn.functional.one_hot(labels, 12) + 0.1 / 12
expected = (logits.detach().softmax(dim=-1) - q) * (labels != PAD)[:, None] / 4
torch.testing.assert_close(logits.grad, expected)
print("gradient = (p − q) / 4 for each of four tokens, and zero at padding")

# %% [markdown]
# ## A training step
#
# A training step is a forward pass, the loss, a backward pass, and a step of the optimizer. In
# practice two things are added. The gradients of several small batches can be added up before the
# optimizer's step (**accumulation**), so that a small computer gets the gradient of a large batch.
# And a gradient that is suddenly large is scaled down (**clipping**), because no single strange
# batch should throw the model off course.
#
# ### The step
#
# ●●○ · 30 minutes · the program that everything else repeats
#
# `batches` is a list of (src, tgt_input, labels), and `model(src, tgt_input)` returns logits. Make
# one step of `optimizer` with the gradient of all batches together, as if they were one large
# batch: every real token counts the same, whichever batch it is in. Use `label_smoothing`. A
# gradient whose norm, over all parameters, is above `max_norm` is scaled down to that norm
# (`nn.utils.clip_grad_norm_`). The mode of the model, training or evaluation, is the caller's
# business. Return the loss per token, as a number.

# %%
def training_step(model, optimizer, batches, smoothing, max_norm):
    ...  # your code


check(training_step)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Your `label_smoothing` returns a mean over a batch's own tokens. By what must it be multiplied,
# and by what divided, so that the sum over the batches is the mean over all tokens? Gradients add
# up in `.grad` by themselves; what was there before must go. And `.item()` turns a tensor into a
# number.
#
# </details>

# %% [markdown]
# Does accumulation give the large batch's gradient? We take three batches of unequal size, once one
# after another and once as one large batch, with the library's loss. For comparison we also take
# the mean of the three means, which is what many programs compute:

# %% tags=["nbval-ignore-output"]
data = prepare(DataConfig())
assert len(data.train) > 40_000, "the bundled text is not whole: install the course again"

# %%
torch.manual_seed(0)
fresh = build_transformer(TransformerConfig("transformer", 64, 128, 4, 2, 2), len(data.tokenizer))
fresh.eval()  # without dropout, or no two runs would agree
lengths = data.train.src.lengths, data.train.tgt.lengths
plan = batching.plan_batches(*lengths, 512, seed=(0,))


def gradient(parts, weight):
    """Accumulated over the parts; ``weight(tokens)`` multiplies the summed loss of each."""
    fresh.zero_grad()
    for part in parts:
        states = fresh.decode(part.tgt_input, fresh.encode(part.src))
        sums = output_loss(states, fresh.output_weight, part.labels)
        (sums.smoothed * weight(sums.tokens)).backward()
    return torch.cat([parameter.grad.flatten() for parameter in fresh.parameters()])

# %% [markdown]
# Sums that are divided once, and the mean of the means:

# %%
NUMBERS = (3, 5, 7)
parts = [make_batch(data.train, plan[number]) for number in NUMBERS]
together = make_batch(data.train, np.concatenate([plan[number] for number in NUMBERS]))
tokens = together.num_tgt_tokens
large = gradient([together], lambda n: 1 / n)
print("tokens of the three batches:", [part.num_tgt_tokens for part in parts])
for name, weight in {
    "sums, divided once": lambda n: 1 / tokens,
    "mean of the means": lambda n: 1 / n / len(parts),
}.items():
    difference = (gradient(parts, weight) - large).norm() / large.norm()
    print(f"{name:20} differs by {difference:.1%}")

# %% [markdown]
# If you add up the sums and divide once by the number of all tokens, you get the gradient of the
# large batch. The mean of the batches' means is something else: in it, a token of a small batch
# counts more. In 2024 it turned out that a widely used training library had computed this mean of
# means for years ([Hugging Face](https://huggingface.co/blog/gradient_accumulation)). The same
# mistake lurks with several GPUs, each of which has its own batch (chapter 15).
#
# ## Smoke tests
#
# Before anything is trained on real text: does it work at all? Two tests take seconds and find most
# mistakes.
#
# **Overfit one batch.** Train on the same few sentences again and again. Any working program
# memorizes them. If yours cannot, there is no point in giving it a million sentences.
#
# **Copy.** Random tokens in, the same tokens out, new ones in every step. There is nothing to
# memorize, so the model has to do what a translator does: look at the source, in order.
#
# In both cases we look not only at the loss. We let the model *say* what it has learned.

# %%
VOCABULARY = 20


def sources(number, length=6):
    """Random tokens; each row ends with </s>."""
    tokens = torch.randint(4, VOCABULARY, (number, length + 1))
    tokens[:, -1] = EOS
    return tokens


def share_said(model, src):
    """The share of rows that the model, going on by itself, copies without a fault."""
    said = greedy_search(model.eval(), src, max_extra=3)
    return sum(row[:-1] == out for row, out in zip(src.tolist(), said)) / len(src)

# %% [markdown]
# Here are the five wrong programs, beside a right one, each trained by your step. (Source and
# target share one embedding here, so a model without positions in the source has none in the target
# either.)

# %%
training_step = mine("training_step")


def small_model(mistake):
    config = TransformerConfig("transformer", 64, 128, 4, 1, 1, dropout=0.0, norm="pre")
    model = build_transformer(config, VOCABULARY)
    layer = model.decoder.layers[0]
    if mistake == "the future is seen":
        layer.self_attention.attention_function = lambda q, k, v, **_: fused_attention(q, k, v)
    if mistake == "no positions":
        model.src_embedding.positions = NoPositions()
    if mistake == "source not looked at":
        layer.cross_attention.out_proj.weight.requires_grad_(False).zero_()
    return model


def train_small(mistake, next_batch, steps):
    model = small_model(mistake)
    rate = 0.2 if mistake == "rate × 100" else 2e-3
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98), fused=True)
    for _ in range(steps):
        src = next_batch()
        tgt_input = src if mistake == "not shifted" else shift_right(src)
        loss = training_step(model, optimizer, [(src, tgt_input, src)], 0.0, 1e9)
    return model, loss

# %%
MISTAKES = [
    "none",
    "not shifted",
    "the future is seen",
    "no positions",
    "source not looked at",
    "rate × 100",
]


def smoke_tests(mistake, seed):
    one_batch, unseen = sources(16), sources(200)
    by_heart, loss = train_small(mistake, lambda: one_batch, steps=100)
    copier, copy_loss = train_small(mistake, lambda: sources(48), steps=300)
    heart = {"one batch: loss": loss, "said right": share_said(by_heart, one_batch)}
    return heart | {"copy: loss": copy_loss, "copied right": share_said(copier, unseen)}


runs = over_seeds(smoke_tests, {mistake: [mistake] for mistake in MISTAKES}, "11_smoke_tests")
copied = runs.groupby("case")["copied right"]
assert copied.min()["none"] > 0.85, "not as on our machines: restart the kernel and run all cells"
assert copied.max().drop("none").max() < 0.2, (
    "not as on our machines: restart the kernel and run all cells"
)
mean_and_spread(runs)

# %% [markdown]
# Two of the five reach a loss near zero in both tests, nearly as low as the right program's or
# lower, and yet they cannot copy a single row. Without the shift, or with the future in sight, the
# model copies what it must predict from its own input; when it has to continue on its own, that
# input is missing. **A loss that is lower than it should be is a warning.** The other mistakes show
# in the loss, but look at “no positions”: that model nearly memorizes one batch all the same, since
# the set of its tokens is enough to tell each of sixteen sentences from the others. Only the copy
# task finds this mistake.
#
# So do both tests, and let the model's output decide.
#
# Two more numbers cost nothing. Before the first step a model knows nothing, so its loss cannot be
# far *below* that of a uniform guess, $\ln V$; how far above is it? And a model that has learned
# how frequent each piece is, and nothing else, has a loss equal to the **unigram entropy** of the
# text (chapter 10). On real text, with 4,000 pieces, for the model from above and for one that is
# as wide as the course's translator:

# %%
batch = make_batch(data.train, plan[0])
torch.manual_seed(0)
wider = build_transformer(TransformerConfig("transformer", 192, 512, 4, 2, 2), len(data.tokenizer))
print(f"ln 4000 = {math.log(4000):.1f}")
for width, untrained in {64: fresh, 192: wider.eval()}.items():
    with torch.no_grad():
        states = untrained.decode(batch.tgt_input, untrained.encode(batch.src))
        sums = output_loss(states, untrained.output_weight, batch.labels)
    nats = sums.nll.item() / sums.tokens
    print(f"d_model = {width}: {nats:.1f} before training, {nats - math.log(4000):.1f} above that")
labels = torch.cat([make_batch(data.train, indices).labels.flatten() for indices in plan])
counts = labels[labels != PAD].bincount().double()
frequency = counts[counts > 0] / counts.sum()
unigram = -(frequency * frequency.log()).sum().item()
print(f"unigram entropy = {unigram:.1f}")

# %% [markdown]
# Both start above the uniform guess, because their random logits already prefer some pieces. With
# one table for input and output and with embeddings scaled by √d_model, as here, they prefer above
# all the piece that has just been read (chapter 3), the more so the wider the model is. So in a
# model like ours a start far above $\ln V$ is no sign of a fault.
#
# ## The learning rate
#
# ### The schedule
#
# ●○○ · 5 minutes · the paper's schedule
#
# The paper's equation (3): $\text{rate} = d^{-0.5} \cdot \min(\text{step}^{-0.5},\; \text{step}
# \cdot \text{warmup}^{-1.5})$. Steps are counted from 1.

# %%
def noam_rate(step, d_model, warmup_steps):
    ...  # your code


check(noam_rate)

# %% [markdown]
# <details><summary>Hint</summary>
#
# At `step == warmup_steps` both sides of the minimum are equal. Are yours?
#
# </details>

# %% [markdown]
# The rate rises linearly for `warmup` steps, then falls in proportion to 1/√step. The figure has
# three schedules of this kind and the library's other one, `budget`, for a run of 20,000 steps.
# `budget` warms up over a given share of the run and then follows a cosine down to zero at its end.

# %%
noam_rate = mine("noam_rate")
plotted = range(100, 20_001, 100)
schedules = {
    f"d = {d}, warm-up {warmup:,}": (plotted, [noam_rate(n, d, warmup) for n in plotted])
    for d, warmup in ((512, 4000), (512, 8000), (256, 4000))
}
budget = [budget_rate(step / 20_000, 7e-4, 0.2) for step in plotted]
schedules["budget, peak 7e-4"] = (plotted, budget)
show(
    lines(schedules, ("step", "learning rate")),
    "Four learning rate schedules: three rise linearly to a peak and fall slowly; the fourth falls "
    "along a cosine to zero at step 20,000.",
)
print(f"the paper's peak: {noam_rate(4000, 512, 4000):.1e}")

# %% [markdown]
# A longer warm-up lowers the peak, and so does a wider model. There is one thing that the paper's
# schedule does not know: when training will end.
#
# ## Batches
#
# A batch is a rectangle, but sentences differ in length. How should the size of a batch be
# measured? A fixed number of *sentences* gives batches with very different amounts of work. A fixed
# number of *tokens*, padding included, gives batches that all fit into the same memory and take
# about the same time.
#
# ### Plan the batches
#
# ●●○ · 20 minutes · little padding, all sentences once
#
# `lengths` are the lengths of the sentences. Return lists of sentence numbers: from the shortest
# sentence to the longest, as many in each batch as fit into `batch_tokens`, padding included. Of
# two sentences of the same length, the one with the lower number comes first. A sentence that is
# longer than `batch_tokens` gets a batch of its own. For an empty list, return an empty list.

# %%
def plan_batches(lengths, batch_tokens):
    ...  # your code


check(plan_batches)

# %% [markdown]
# <details><summary>Hint</summary>
#
# In sorted order the sentence that you add is the longest of its batch. How large would the
# rectangle be with it?
#
# </details>

# %% [markdown]
# Your plan for the bundled text, beside two others:

# %%
plan_batches = mine("plan_batches")
src_lengths, tgt_lengths = lengths
longest = np.maximum(src_lengths, tgt_lengths)


def describe(batches):
    """How many; the smallest, median and largest in tokens with padding; the share of padding."""
    batches = [np.array(batch) for batch in batches]
    computed = np.array([len(b) * (src_lengths[b].max() + tgt_lengths[b].max()) for b in batches])
    real = sum((src_lengths[b] + tgt_lengths[b]).sum() for b in batches)
    sizes = [len(batches), computed.min(), int(np.median(computed)), computed.max()]
    return [*sizes, f"{1 - real / computed.sum():.0%}"]


at_random = np.random.default_rng(0).permutation(len(data.train))
by_length = np.argsort(longest, kind="stable")
plans = {
    "128 sentences, at random": np.array_split(at_random, len(data.train) // 128),
    "128 sentences, sorted by length": np.array_split(by_length, len(data.train) // 128),
    "1,024 tokens per side": plan_batches(longest.tolist(), 1024),
}
columns = ["batches", "smallest", "median", "largest", "padding"]
pd.DataFrame([describe(plan) for plan in plans.values()], columns=columns, index=plans)

# %% [markdown]
# Batches of random sentences waste more than four tenths of the work on padding. Batches of sorted
# sentences waste little, but then the largest batch is five times the smallest, and there must be
# memory for the largest. Batches by tokens have neither fault. (The smallest is what was left
# over.) In training, the order of the batches is shuffled, so that short and long sentences
# alternate.
#
# ## A training run of your own
#
# Now the loop. The rate rises linearly to `peak` at step `warmup` and falls in proportion to
# 1/√step after it, which is equation (3) with a peak of your choice. Adam has the paper's settings:
# $\beta_1 = 0.9$, $\beta_2 = 0.98$, $\varepsilon = 10^{-9}$ (section 5.3).
#
# ### The loop
#
# ●●● · 45 minutes · your Transformer learns
#
# Train `model`, with dropout on (it sets some numbers, chosen at random, to zero; more on it
# below), for `steps` steps. `draw()` returns the next batch, (src, tgt_input, labels); each step
# uses `accumulate` of them. The loss is smoothed with 0.1, and the gradient clipped to a norm of 1.
# Return the list of the losses. Use `training_step`.

# %%
def train_model(model, draw, steps, accumulate, peak, warmup):
    ...  # your code


check(train_model)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `optimizer.param_groups[0]["lr"]` can be set before each step. Which of `peak · step / warmup` and
# `peak · √(warmup / step)` is the smaller one, before the warm-up's end and after it? And in which
# mode is the model when it arrives?
#
# </details>

# %% [markdown]
# First the toy task: your Transformer, starting from random weights, has to learn to copy. It is
# judged by what it says, with your loop from chapter 1:

# %%
train_model, Transformer = mine("train_model"), mine("Transformer")
greedy_decode, padding_mask = mine("greedy_decode"), mine("padding_mask")


@torch.no_grad()
def says(model, src, limit=40):
    """What a model of yours says to one source, (1, length)."""
    memory, mask = model.eval().encode(src), padding_mask(src)

    def next_logits(said):
        return model.decode(torch.tensor([said]), memory, mask)[0, -1]

    return greedy_decode(next_logits, limit)


def random_copies():
    src = sources(48)
    return src, shift_right(src), src

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
copier = Transformer(VOCABULARY, d_model=64, d_ff=128, num_heads=4, num_layers=1, dropout=0.0)
losses = train_model(copier, random_copies, steps=500, accumulate=1, peak=3e-3, warmup=100)
q = torch.full((VOCABULARY,), 0.1 / VOCABULARY)  # the smoothed target of any one piece
q[0] += 0.9
unseen = sources(100)
right = sum(says(copier, row[None], 10) == row[:-1].tolist() for row in unseen)
print(f"loss {losses[0]:.2f} → {losses[-1]:.2f}, and {torch.special.entr(q).sum():.2f} is perfect")
print(f"{right} of 100 unseen rows copied without a fault")
assert right >= 97, "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# That is a Transformer that learns, in a training program that is yours. (A smoothed loss cannot
# reach zero. It also starts far above $\ln 20 = 3.0$: as you have seen, an untrained model like
# this one repeats what it has just read, which is hardly ever right here.)
#
# Now German. You train a small Transformer, with one layer on each side, on the bundled text. The
# course brings the mean curve of three such runs; the figure adds the first steps of yours. If you
# have a few minutes, set `STEPS` to 600 and run the cells again:

# %%
TEXT = np.arange(len(data.train))  # the numbers of all sentences


def batches_of(sentences, seed, tokens=512):
    """Endless batches of these sentences, in another order in each epoch."""
    for epoch in count():
        of_these = src_lengths[sentences], tgt_lengths[sentences]
        for indices in batching.plan_batches(*of_these, tokens, seed=(seed, epoch)):
            batch = make_batch(data.train, sentences[indices])
            yield batch.src, batch.tgt_input, batch.labels


def german(seed, steps):
    """A model of one layer after so many steps, and its losses."""
    torch.manual_seed(seed)
    model = Transformer(4000, d_model=128, d_ff=256, num_heads=4, num_layers=1, dropout=0.1)
    draw = batches_of(TEXT, seed).__next__
    return model, train_model(model, draw, steps, accumulate=1, peak=4e-3, warmup=150)

# %% [markdown]
# The curves, a point for every fifty steps:

# %%
def in_fifties(losses):
    """The mean of every fifty, by the step at which they end."""
    return {n: sum(losses[n - 50 : n]) / 50 for n in range(50, len(losses) + 1, 50)}


def course_curve(steps, seed):
    return {f"step {n}": loss for n, loss in in_fifties(german(seed, steps)[1]).items()}

# %% tags=["nbval-ignore-output"]
STEPS = 100
runs = over_seeds(course_curve, {"the course's": (600,)}, "11_german", seeds=3)
columns = [name for name in runs if name.startswith("step")]
mean = runs[columns].mean()
mine_now, losses = german(seed=0, steps=STEPS)
own = in_fifties(losses)
curves = {"the course's (3 seeds)": ([int(name[5:]) for name in columns], mean.tolist())}
curves["yours"] = (list(own), list(own.values()))
figure = lines(curves, ("step", "smoothed loss (nats)"))
q = torch.full((4000,), 0.1 / 4000).double()  # the smoothed frequencies
q[: len(frequency)] += 0.9 * frequency
by_frequency = torch.special.entr(q).sum().item()
figure.axes[0].axhline(by_frequency, linestyle="--", color="#888888")
figure.axes[0].text(200, by_frequency + 0.1, "frequencies alone", fontsize=8)
show(
    figure,
    "Two learning curves on German: the course's over 600 steps, and yours over its first ones; a "
    "dashed line is what the frequencies alone allow.",
)
last = min(max(own), 600)
print(f"after {last} steps {own[last]:.2f}, the course's then {mean[f'step {last}']:.2f}")
print(f"by frequencies alone {by_frequency:.2f}, the course's after 600 {mean['step 600']:.2f}")
assert abs(own[last] - mean[f"step {last}"]) < 0.5, "far from the course's: does your loop pass?"

# %% [markdown]
# What does your model say by now?

# %%
for sentence in ("Where is my car?", "Tom is not at home.", "I love you."):
    src = torch.tensor([[*tokenizer.encode([sentence])[0], EOS]])
    print(f"{sentence:22}", tokenizer.decode([says(mine_now, src)])[0])

# %% [markdown]
# After a hundred steps its loss is already below the line, which is the best that the frequencies
# of the pieces alone allow, and its sentences come to an end. After six hundred steps the loss is
# far below that line. The course's translator was trained for 14,000 steps with larger batches.
# Your laptop can do that, too: `transformer-lib train course_transformer` trains the library's
# model and shows its progress, saves checkpoints and draws a curve.
#
# ## How high a rate, and how soon?
#
# How much does the peak rate matter, and how much the warm-up? We train a small post-norm
# Transformer for 120 steps on real text, at four peak rates, each in force from the first step on
# or reached after a warm-up of 30 steps, with five seeds each:

# %%
def train_on_text(peak, warmup, seed, steps=120):
    """The mean loss of the last 30 steps."""
    torch.manual_seed(seed)
    config = TransformerConfig("transformer", 64, 128, 4, 2, 2, dropout=0.0)
    model = build_transformer(config, len(data.tokenizer))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), fused=True)
    losses = []
    epoch = batching.plan_batches(*lengths, 512, seed=(seed,))
    for number, indices in enumerate(islice(epoch, steps), start=1):
        optimizer.param_groups[0]["lr"] = peak * min(1.0, number / warmup)
        batch = make_batch(data.train, indices)
        parts = [(batch.src, batch.tgt_input, batch.labels)]
        losses.append(training_step(model, optimizer, parts, 0.0, 1e9))
    return {"loss": sum(losses[-30:]) / 30}

# %%
PEAKS = (1e-3, 4e-3, 8e-3, 1.6e-2)
WARMUPS = {"from the first step": 1, "after a warm-up": 30}
cases = {
    f"{peak:g} {name}": (peak, warmup) for name, warmup in WARMUPS.items() for peak in PEAKS
}
runs = over_seeds(train_on_text, cases, "11_height_and_warmup")
mean_and_spread(runs)

# %% [markdown]
# As a picture, with the unigram entropy as a line:

# %%
loss = runs.groupby("case")["loss"].agg(["mean", "std", "min"])
rows = {name: loss.loc[[f"{peak:g} {name}" for peak in PEAKS]] for name in WARMUPS}
figure = bars(
    {name: row["mean"] for name, row in rows.items()},
    [f"{peak:g}" for peak in PEAKS],
    ("peak rate", "loss after 120 steps (5 seeds)"),
    {name: row["std"] for name, row in rows.items()},
)
figure.axes[0].axhline(unigram, linestyle="--", color="#888888")
figure.axes[0].text(-0.4, unigram + 0.06, "unigram entropy", fontsize=8)
show(
    figure,
    "Loss after 120 steps for four peak rates, with the unigram entropy as a line: lowest at the "
    "second one; at the highest it is about that line without a warm-up.",
)
assert loss["min"]["0.016 after a warm-up"] < loss["min"]["0.016 from the first step"] - 0.3, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# With too low a rate the model learns slowly; with too high a rate it learns next to nothing.
# Without a warm-up, the highest rate ends near the unigram entropy: about as good as a model that
# knows how frequent each piece is, and nothing else.
#
# At the rate that is best here, the warm-up costs a little, with each of the five seeds (presumably
# because for 30 of the 120 steps the rate is on average only half as high). At twice that rate, the
# difference between warm-up and none is within the spread. At four times that rate, the warm-up
# rescues some of the five runs and not the others: look at the spread. (A single seed could show a
# triumph here, or nothing.) So a warm-up widens the range of rates that work, but not by much in a
# shallow model. It matters more, the deeper the model is (chapter 9).
#
# ### Adam's betas, and weight decay
#
# Adam divides the running mean of the gradients ($\beta_1$) by the root of the running mean of
# their squares ($\beta_2$), plus a small ε. A mean with $\beta$ remembers about $1/(1 - \beta)$
# steps: a thousand with PyTorch's $\beta_2 = 0.999$, fifty with the paper's 0.98. What difference
# does it make? Let a gradient be of size 1 for a hundred steps, then ten times as large for ten
# steps, then 1 again. How large are Adam's steps, in units of the learning rate?

# %%
def adam_steps(gradients, beta1, beta2):
    m = v = 0.0
    sizes = []
    for step, gradient in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        sizes.append(m / (1 - beta1**step) / math.sqrt(v / (1 - beta2**step)))
    return sizes


gradients = [1.0] * 100 + [10.0] * 10 + [1.0] * 290
over_time = range(1, 401)
sizes = {f"β₂ = {b}": (over_time, adam_steps(gradients, 0.9, b)) for b in (0.98, 0.999)}
show(
    lines(sizes, ("step", "size of Adam's step (learning rates)")),
    "Adam's step over time: both jump when the gradient grows, 0.999 higher; afterwards both fall "
    "below a half; at step 400 0.98 is nearly back at 1, and 0.999 is a little above a half.",
)
for name, (_, size) in sizes.items():
    strange = sum(size[100:110])
    print(f"{name}: in the ten strange steps together {strange:.1f}, at the end {size[-1]:.2f}")

# %% [markdown]
# The ten steps with large gradients play the part of strange batches. About thirty steps later,
# Adam takes small steps with both values of $\beta_2$. With 0.98 it is back at its old pace at the
# end of the picture, 290 steps later; with 0.999 it still moves at about half that pace. And the
# strange batches themselves have moved the weight farther with 0.999, which takes longer to notice
# them. On the other hand, a mean over fewer steps is noisier. (The paper gives no reason for 0.98.
# Whether it matters for our small text is not measured here.)
#
# **Weight decay** pulls every weight toward zero, so that only the weights that are needed stay
# large. If this pull is added to the gradient, as in plain gradient descent, Adam's division
# distorts it: a weight with large gradients is hardly pulled at all. **AdamW** subtracts the same
# share of every weight, separately from Adam's step ([Loshchilov and Hutter
# 2019](https://arxiv.org/abs/1711.05101)). Here are two weights that start at 1 and get random
# gradients, small for one and a hundred times as large for the other, after a thousand steps (the
# mean of the last two hundred):

# %%
for kind in (torch.optim.Adam, torch.optim.AdamW):
    torch.manual_seed(0)
    weights = torch.ones(2, requires_grad=True)
    optimizer = kind([weights], lr=1e-3, betas=(0.9, 0.98), weight_decay=0.1)
    path = []
    for _ in range(1000):
        weights.grad = torch.randn(2) * torch.tensor([0.1, 10.0])
        optimizer.step()
        path.append(weights.detach().clone())
    small, large = torch.stack(path)[-200:].mean(dim=0).tolist()
    print(f"{kind.__name__:6} with small gradients {small:.2f}, with large ones {large:.2f}")

# %% [markdown]
# With Adam, the weight with small gradients has lost half its size, the one with large gradients
# next to nothing. With AdamW both have lost about a tenth, $1 - (1 - 0.001 \cdot 0.1)^{1000}$,
# apart from the noise. (The paper has no weight decay; most language models since are trained with
# AdamW.)
#
# ## Learned too well
#
# A model that sees the same sentences again and again gets better at *these*. One remedy is
# **dropout** (section 5.4): it sets each channel of a sublayer's output to zero with probability p,
# at random in each step, and scales the others up by $1/(1 - p)$, so that no unit can rely on
# another being there. We train on only 4,000 sentences, for 1,000 steps, with three values of p and
# three seeds each, and measure the loss on these sentences and on others:

# %%
VALID = data.valid.sources[:300], [german[0] for german in data.valid.references[:300]]


@torch.no_grad()
def plain_loss(model, examples):
    """−ln p per token, with dropout off."""
    model.eval()
    total = tokens = 0
    for src, tgt_input, labels in examples:
        logits = model(src, tgt_input).flatten(0, 1)
        total += nn.functional.cross_entropy(
            logits, labels.flatten(), ignore_index=PAD, reduction="sum"
        ).item()
        tokens += (labels != PAD).sum().item()
    model.train()
    return total / tokens


def as_examples(sources, targets):
    """Batches of sentences that are given as text."""
    src, tgt = (tokenizer.encode(side) for side in (sources, targets))
    for start in range(0, len(src), 100):
        labels = pad_sequences([[*t, EOS] for t in tgt[start : start + 100]])
        rows = pad_sequences([[*t, EOS] for t in src[start : start + 100]])
        yield rows, shift_right(labels), labels

# %% [markdown]
# One run of the experiment: your training step with a schedule that falls to zero, and a
# measurement on both kinds of sentences every 200 steps.

# %%
def model_and_steps(sentences, dropout, smoothing, seed, steps):
    """A small model, trained step by step; gives the number of the step each time."""
    torch.manual_seed(seed)
    model = Transformer(4000, d_model=128, d_ff=256, num_heads=4, num_layers=1, dropout=dropout)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    draw = batches_of(sentences, seed)
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = budget_rate(step / (steps + 1), 3e-3, 0.2)
        training_step(model.train(), optimizer, [next(draw)], smoothing, 1.0)
        yield step, model


def few_sentences(dropout, seed, steps=1000, every=200):
    found, few = {}, TEXT[:4000]
    for step, model in model_and_steps(few, dropout, 0.0, seed, steps):
        if step % every == 0:
            known = islice(batches_of(few, seed), 20)
            found[f"{step}, trained on"] = plain_loss(model, known)
            found[f"{step}, not seen"] = plain_loss(model, as_examples(*VALID))
    return found

# %%
rates = {f"p = {p}": (p,) for p in (0.0, 0.1, 0.3)}
by_dropout = over_seeds(few_sentences, rates, "11_dropout", seeds=3)
means = by_dropout.drop(columns="seed").groupby("case").mean()
AT = range(200, 1001, 200)
curves = {
    f"{case}, {which}": (AT, [means[f"{n}, {which}"][case] for n in AT])
    for which in ("trained on", "not seen")
    for case in means.index
}
show(
    lines(curves, ("step", "loss (nats per token)")),
    "Loss over the steps on sentences trained on, which falls and falls, and on others, which "
    "stops falling early and then rises, least with the most dropout.",
)
some = [f"{n}, {which}" for n in (400, 1000) for which in ("trained on", "not seen")]
mean_and_spread(by_dropout[["case", "seed", *some]])

# %% [markdown]
# On the sentences that they train on, all three get better and better. On the others they are best
# somewhere around 200 to 400 steps and then get worse, by almost a nat without dropout: that is
# **overfitting**, and it cannot be seen in the training loss. With more dropout the model learns
# its own sentences more slowly and gets less bad on the others. At their best points the three
# hardly differ: on so little text, dropout does not make a better model, but it makes stopping too
# late less costly. The other remedies are stopping in time and more text.
#
# And label smoothing? It is meant to curb overconfidence. How sure of the right piece are models
# trained with different ε? We train on the whole text for 1,000 steps, with three seeds, and plot a
# histogram of the probability of the right piece over the positions of unseen sentences, in
# twenty equal bins:

# %%
BINS = 20


def certainty(smoothing, dropout, seed, steps=1000):
    for _, model in model_and_steps(TEXT, dropout, smoothing, seed, steps):
        pass
    p = []
    with torch.no_grad():
        for src, tgt_input, labels in as_examples(*VALID):
            chosen = model.eval()(src, tgt_input).softmax(dim=-1).gather(2, labels[:, :, None])
            p.append(chosen[..., 0][labels != PAD])
    p = torch.cat(p)
    bins = torch.histc(p, BINS, 0.0, 1.0) / len(p)
    shares = {f"{(n + 0.5) / BINS:.3f}": share.item() for n, share in enumerate(bins)}
    above = {f"above {limit}": (p > limit).float().mean().item() for limit in (0.8, 0.9, 0.98)}
    return shares | above | {"−ln p": -p.log().mean().item()}

# %%
cases = {f"ε = {epsilon}": (epsilon, 0.1) for epsilon in (0.0, 0.1, 0.2)}
cases["ε = 0.1, no dropout"] = (0.1, 0.0)
certainties = over_seeds(certainty, cases, "11_certainty", seeds=3)
middles = [name for name in certainties if name.startswith("0.")]
shares = certainties.groupby("case", sort=False)[middles].mean()
figure = lines(
    {case: ([float(m) for m in middles], row.tolist()) for case, row in shares.iterrows()},
    ("probability of the right piece", "share of positions (3 seeds)"),
)
for best in (0.9, 0.8):
    figure.axes[0].axvline(best, linestyle="--", color="#888888")
show(
    figure,
    "Histogram of the probability of the right piece: all have a high peak near 0 and a second "
    "one, at 1 without smoothing, a little above 0.9 with ε = 0.1 (without dropout just below it) "
    "and above 0.8 with 0.2.",
)
mean_and_spread(certainties.drop(columns=middles))

# %% [markdown]
# At the left end all models are alike: often the model expected something else, and no smoothing
# changes that. At the other end, the models trained with smoothing stop a little beyond the optimum
# (the dashed lines). Without smoothing, nearly a fifth of all right pieces get more than 0.98; with
# ε = 0.1 none does, and with 0.2 hardly any gets more than 0.9. Why do they go beyond the optimum
# at all, if with ε = 0.1 the best answer is 0.9? Dropout is off when we measure, and then a model
# is surer than it was in training. That is a part of the reason: in a model trained without
# dropout, fewer than half as many pieces pass 0.9.
#
# Does smoothing help? According to the paper it “hurts perplexity” but “improves accuracy and BLEU
# score” (section 5.4). Here is the Transformer of this course after 2,000 steps with each ε, three
# seeds each; the loss is the plain −ln p on validation sentences:

# %%
smoothed = variants("ε = 0", "as it is", "ε = 0.2").replace("as it is", "ε = 0.1")
mean_and_spread(smoothed)

# %% [markdown]
# BLEU does not tell the three apart with three seeds. The loss does: 0.2 hurts it, 0.1 hardly. So
# after 2,000 steps on our small text, the first half of the paper's sentence holds for 0.2, and the
# second half is not confirmed. (The paper trained for fifty times as many steps, on ninety times as
# many sentences.)
#
# ### The mean of several checkpoints
#
# ●○○ · 10 minutes · what the paper's models are (section 6.1)
#
# While a model trains, its weights swing around the point that they are moving toward. A
# **checkpoint** is a state of the weights that is saved during training. The paper's models are not
# the last state of a run but the mean of the last 5 checkpoints (base, saved ten minutes apart) or
# the last 20 (big). `states` is a list of state dictionaries. Return a new one, with the mean of
# each tensor; the given ones stay as they are.

# %%
def average_checkpoints(states):
    ...  # your code


check(average_checkpoints)

# %% [markdown]
# <details><summary>Hint</summary>
#
# All of them have the same names. Does your result share memory with one of the states?
#
# </details>

# %% [markdown]
# We average five states of a run, 20 steps apart, once with a rate that stays high and once with a
# rate that falls to zero. On unseen sentences we compare the loss of this mean with the loss of the
# last state, after 600 steps and after 1,800:

# %%
average_checkpoints = mine("average_checkpoints")


def averaged(falls, steps, seed, apart=20):
    torch.manual_seed(seed)
    model = Transformer(4000, d_model=128, d_ff=256, num_heads=4, num_layers=1, dropout=0.1)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    draw, states = batches_of(TEXT, seed), []
    for step in range(1, steps + 1):
        rate = budget_rate(step / (steps + 1), 3e-3, 0.2) if falls else 3e-3 * min(1, step / 120)
        optimizer.param_groups[0]["lr"] = rate
        training_step(model.train(), optimizer, [next(draw)], 0.1, 1.0)
        if step > steps - 5 * apart and (steps - step) % apart == 0:
            states.append({name: x.clone() for name, x in model.state_dict().items()})
    last = plain_loss(model, as_examples(*VALID))
    model.load_state_dict(average_checkpoints(states))
    return {"the last state": last, "the mean of five": plain_loss(model, as_examples(*VALID))}

# %%
cases = {
    f"rate {name}, {steps:,} steps": (falls, steps)
    for steps in (600, 1800)
    for name, falls in {"stays": False, "falls to zero": True}.items()
}
averages = over_seeds(averaged, cases, "11_averaged", seeds=3)
averages["gain"] = averages["the last state"] - averages["the mean of five"]
mean_and_spread(averages, digits=3)

# %% [markdown]
# Where the rate stays high, the mean is better than the last state with each of the three seeds, by
# five hundredths of a nat on average after 600 steps. Where the rate falls to zero, the five states
# hardly differ, and there is nothing to gain. (After 600 steps, the last state is worse with the
# falling rate; after 1,800 steps, three seeds cannot tell the two rates apart.)
#
# ## Sixteen bits
#
# **bfloat16** has the range of float32 (**fp32**) but only 8 bits of precision. Matrix products in
# it need half the memory traffic, and modern processors compute them several times as fast. In
# **mixed precision**, products are computed in bfloat16, and everything that accumulates small
# contributions, such as sums and weights, is kept in fp32. What happens if the weights are kept in
# bfloat16 as well?

# %%
weight = torch.tensor(1.0, dtype=torch.bfloat16)
for _ in range(1000):
    weight += 0.001
print("1 + 1000 · 0.001 in bfloat16:", weight.item())
for dtype in (torch.float16, torch.bfloat16):
    info = torch.finfo(dtype)
    tiny = torch.tensor(1e-8, dtype=dtype).item()
    print(f"{dtype}: largest {info.max:.0e}, 1e-8 is {tiny:.0e}, after 1 comes {1 + info.eps:.4f}")

# %% [markdown]
# After a thousand steps nothing has moved, because each step is smaller than half the distance to
# the next number. So the weights stay in fp32, and `torch.autocast` makes 16-bit copies for the
# products.
#
# float16 has two problems. Small gradients become zero, so the loss is scaled up before the
# backward pass and the gradients are scaled down again after it. And scores above 65,504 become
# infinite, which this scaling does not prevent. bfloat16 has neither problem.
#
# What does bfloat16 change, and how much time does it save on this machine?

# %% tags=["nbval-ignore-output"]
def gradient_and_time(dtype):
    def losses():
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            states = model.decode(together.tgt_input, model.encode(together.src))
            return output_loss(states, model.output_weight, together.labels)

    model.zero_grad()
    sums = losses()
    (sums.smoothed / sums.tokens).backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    seconds = fastest(lambda: losses().smoothed.backward())
    return sums.smoothed.item() / sums.tokens, gradient, seconds


model = trained.model.eval()
exact, rounded = gradient_and_time(torch.float32), gradient_and_time(torch.bfloat16)
cosine = nn.functional.cosine_similarity(exact[1], rounded[1], dim=0)
print(f"loss {exact[0]:.4f} and {rounded[0]:.4f}, cosine of the gradients {cosine:.4f}")
print(f"forward and backward: {exact[2] * 1e3:.0f} and {rounded[2] * 1e3:.0f} ms")
assert abs(exact[0] - rounded[0]) < 0.02 and cosine > 0.99, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# The loss differs in the fourth decimal, the direction of the gradient hardly at all. If your
# processor has instructions for bfloat16 (`avx512_bf16` or AMX), the second time is shorter; if
# not, bfloat16 has to be emulated and can be many times slower, and the library
# (`precision="auto"`) stays in fp32.
#
# ## Three silent faults
#
# Here is a training program left behind by a former colleague. It runs, its loss falls, and
# three things are wrong with it. `model(src, tgt_input)` returns logits, `batches` and `held_out`
# are lists of (src, tgt_input, labels):

# %%
def broken_training(model, optimizer, batches, held_out, every):
    """The losses of all steps, and those on the held-out batches after every so many."""

    def mean_loss(src, tgt_input, labels):
        logits = model(src, tgt_input)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    losses, measured = [], []
    for number, batch in enumerate(batches, start=1):
        optimizer.zero_grad()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        loss = mean_loss(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if number % every == 0:
            model.eval()
            with torch.no_grad():
                means = [mean_loss(*other).item() for other in held_out]
            measured.append(sum(means) / len(means))
    return losses, measured

# %% [markdown]
# ### Fix it
#
# ●●○ · 30 minutes · find the bugs of a program that trains
#
# Write the same program without its faults. Three choices are not faults: a loss without smoothing,
# clipping to a norm of 1, and a mean of the held-out batches' means.

# %%
def mended_training(model, optimizer, batches, held_out, every):
    ...  # your code


check(mended_training)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Go through the program line by line, and ask at each line what is there at this moment: which
# tokens are in the mean, what is in `.grad`, which mode is the model in?
#
# </details>

# %% [markdown]
# What does each program report, and how good is the model that it trains? We train a small model
# for 300 steps, with three seeds:

# %%
mended_training = mine("mended_training")
PROGRAMS = {"broken": broken_training, "mended": mended_training}


def trained_by(program, seed, steps=300):
    torch.manual_seed(seed)
    model = Transformer(4000, d_model=64, d_ff=128, num_heads=4, num_layers=1, dropout=0.3)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
    held_out = list(as_examples(*VALID))
    batches = list(islice(batches_of(TEXT, seed), steps))
    losses, measured = PROGRAMS[program](model.train(), optimizer, batches, held_out, 50)
    said = {"its losses say": sum(losses[-50:]) / 50, "its measurements say": measured[-1]}
    return said | {"−ln p per real token": plain_loss(model, held_out)}


cases = {program: (program,) for program in PROGRAMS}
mean_and_spread(over_seeds(trained_by, cases, "11_mended", seeds=3))

# %% [markdown]
# The broken program reports 2.1 for a model that pays 3.5 per real token: much of what it averages
# is padding, which is easy to predict. When numbers are too good, nobody looks for a fault. (Its
# model is the better one here, but that is no excuse. Presumably the reason is that from its first
# measurement on, the broken program trains without dropout, which so short a run hardly needs; to
# be sure, you would have to mend one fault at a time.)
#
# ## Common mistakes
#
# **The log of zero.** With smoothing every piece has a share of the target, so one probability that
# is exactly zero makes the loss infinite. The demonstration of label smoothing in The Annotated
# Transformer writes such zeros by hand; their logarithm is −∞, and the figure stays empty (reports
# [109](https://github.com/harvardnlp/annotated-transformer/issues/109) and
# [117](https://github.com/harvardnlp/annotated-transformer/issues/117)). In a model such a zero
# comes from rounding, when the softmax of large logits is computed first and its logarithm
# afterwards. `log_softmax` does both at once and never meets the zero:

# %%
predict = torch.tensor([[0.0, 0.2, 0.7, 0.1, 0.0]])
print("zeros by hand: ", predict.log().numpy().round(1))
logits = torch.tensor([[120.0, 0.0, -5.0, 3.0]])
print("log of softmax:", logits.softmax(dim=-1).log().numpy().round(1))
print("log_softmax:   ", logits.log_softmax(dim=-1).numpy().round(1))
q = torch.tensor([0.925, 0.025, 0.025, 0.025])
print("smoothed loss: ", -(q * logits.softmax(dim=-1).log()).sum().item())

# %% [markdown]
# An infinite loss makes every weight NaN in the next step. The library looks at the norm of the
# gradient before each step, and stops with a message instead.
#
# Other mistakes in training are in the [list of mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. Cross-entropy is −ln p of the right piece; the perplexity is e to the power of its mean over
#    real tokens. Smoothed losses do not go to zero, and losses with different ε cannot be compared.
# 2. A step: clear, add up gradients of sums, divide once, clip, step.
# 3. Overfit one batch, copy random tokens, and judge by the model's output: the lowest losses
#    belonged to the programs that could do nothing.
# 4. Raise the rate gradually, then lower it; measure the size of batches in tokens; evaluate on
#    sentences that the model was not trained on.
# 5. Overfitting shows only on unseen sentences, and dropout makes it milder; a mean of checkpoints
#    helps where the rate is still high.
# 6. Products in bfloat16, sums and weights in fp32.
#
# **In the paper:** section 5, and 6.1 on checkpoints. **Read on:** Srivastava et al. 2014
# (dropout); Szegedy et al. 2016 (label smoothing); Popel and Bojar 2018, “Training Tips for the
# Transformer Model”; Micikevicius et al. 2018, “Mixed Precision Training”.
#
# **Next:** [12 · Decoding](12_decoding.ipynb)
