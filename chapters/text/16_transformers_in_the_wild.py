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
# # 16 · Reading Transformers in the wild
#
# Other people's Transformers look different from yours. Some differences are taste, some change
# every number, some are mistakes; from the outside you cannot tell which. By the end you can
#
# - put another implementation beside yours, part by part, with the same weights,
# - read five published descriptions, and say what is odd in each and what it costs,
# - find a bug in code that runs, has the right shapes and learns,
# - say what has changed since 2017, mix experts, mend a layer of Llama, and compute GPT-2 from its
#   weights,
# - see how much of your translator is your own by now.
#
# Reading takes about forty minutes, running the cells a few seconds.
#
# **Predict first.** Five descriptions of the Transformer are given the same weights and the same
# sentence. All five claim to describe the same model. How many compute the same logits as the
# paper's model?

# %%
import math

import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, mine, solution
from transformer_lib.course import checks
from transformer_lib.course.figures.course_map import ALTERNATIVE, NOTEBOOKS, course_map
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.course.lineages import LINEAGES, Sizes
from transformer_lib.course.lineages.differences import differences
from transformer_lib.course.lineages.illustrated import column_by_column
from transformer_lib.course.lineages.lineage import UnbiasedLayerNorm
from transformer_lib.course.lineages.niutensor import added_before_scaling, timing_signal
from transformer_lib.course.misconceptions.bank import bank
from transformer_lib.course.own import progress
from transformer_lib.course.trained import load_trained
from transformer_lib.model import LayerNorm, attention, sinusoidal_positions
from transformer_lib.course.lineages.plot import difference_map
from transformer_lib.plots.notebook import show
from transformer_lib.course.figures.positions import position_tables
from transformer_lib.vocabulary import BOS, EOS, PAD

# %% [markdown]
# ## Five descriptions, one sentence
#
# This course grew out of five published descriptions, among them the C++ library
# [NiuTensor](https://github.com/NiuTrans/NiuTensor) (here always as it was in early 2020; its model
# has been rewritten since) and the TensorFlow program
# [Kyubyong/transformer](https://github.com/Kyubyong/transformer); two of the others follow [The
# Annotated Transformer](https://nlp.seas.harvard.edu/annotated-transformer/).
# `transformer_lib.course.lineages` rebuilds the model of each as it is, with its mistakes.
# (Mistakes that are only in a printed listing or in the text come further down.) Where a
# description leaves something open, the program behind it decides; the docstring of each `build`
# says what was open:

# %%
sources = {lineage.name: lineage.source for lineage in LINEAGES.values()}
print(*(f"{name:13}{source}" for name, source in sources.items()), sep="\n")

# %% [markdown]
# All get the weights of one model in the paper's form, and the same sentence, once complete and
# once without its last word and padded. Every *part* gets the input that it has in the paper's
# model, so that a difference shows up in the part where it arises:

# %%
found = differences("I do not want to go home .")
show(
    difference_map(found),
    "Heat map of the largest differences: the tutorial differs in the embedding, and is NaN where "
    "nothing may be attended to; NiuTensor in its positions; lecture and illustrated in norm and "
    "residual; Kyubyong in attention; the logits differ in all five.",
)
print("same logits as the paper's:", sum(value < 1e-12 for value in found["logits"].values()))

# %% [markdown]
# None. Each of them departs from the paper in a few places, and those are enough. Read the columns,
# not the last row:
#
# - Feed-forward networks are the same everywhere. (The map is made without dropout; three
#   descriptions also have dropout after the ReLU.)
# - “Attention to nothing” is what a query gets when all its keys are masked. The paper does not say
#   what that should be; the library gives zeros. In the tutorial it is NaN, since the softmax of
#   nothing but −∞ is 0/0. The lecture and the illustrated documentation replace every score by the
#   same large negative number, which makes all keys equal. NiuTensor and Kyubyong add such a number
#   to the scores, and in double precision, which the map uses, the result is as if nothing were
#   masked.
# - A difference of 10⁻⁵ is an epsilon, a difference of 3 a different formula.
#
# This is the first thing to do with code that you do not know: same weights, same input, compared
# part by part. Do not begin by reading it.
#
# ## A guided reading
#
# ### NiuTensor: a C++ library
#
# NiuTensor's position table has all sines first, then all cosines, and $d - 2$ in the exponent, as
# in the authors' own program (chapter 4). The picture shows it beside the paper's table and one
# that is printed in the lecture, in which the exponent is doubled (the lecture's model uses the
# paper's table):

# %%
i = torch.arange(0, 64, 2, dtype=torch.float64)
position = torch.arange(50, dtype=torch.float64)[:, None]
printed = torch.empty(50, 64)
printed[:, 0::2] = torch.sin(position / 10000 ** (2 * i / 64))
printed[:, 1::2] = torch.cos(position / 10000 ** (2 * (i + 1) / 64))
tables = {
    "paper": sinusoidal_positions(50, 64),
    "NiuTensor": timing_signal(50, 64),
    "lecture, as printed": printed,
}
show(
    position_tables(tables),
    "Three position tables: the paper's interleaved, NiuTensor's in two halves, and the lecture's, "
    "whose waves become long twice as fast.",
)

# %% [markdown]
# NiuTensor's table has nearly the same waves, in another order. There is no reason not to train
# with it, but weights cannot be moved from one kind of table to the other. The lecture's is a
# mistake: its frequencies fall twice as fast, so that many more of its channels hardly change
# within a sentence.
#
# NiuTensor also adds its mask *before* it divides by $\sqrt{d_k}$. With a mask value of −10⁹ nobody
# notices, and with −100 hardly anybody; with −20 everybody does:

# %%
torch.manual_seed(0)
query, key, value = torch.randn(3, 1, 1, 4, 64)
mask = torch.tensor([True, True, True, False])  # the last key is blocked
for blocked in (-1e9, -100.0, -20.0):
    weights = added_before_scaling(query, key, torch.eye(4)[None, None], mask, blocked=blocked)
    print(
        f"mask value {blocked:.0e}: largest weight of the blocked key {weights[..., 3].max():.1e}"
    )

# %% [markdown]
# ### A tutorial on two Chinese sentences
#
# The tutorial's model is the paper's without three things: the factor $\sqrt{d}$ on the embeddings,
# the one table that they share (chapter 3), and dropout. What is interesting is its data: batches
# are written by hand, with `P` for padding, `S` for the start and `E` for the end, and you can
# follow every symbol. Notice two things: the padding of a target comes *before* its end symbol, and
# decoding has no length limit, so that an untrained model may go on forever (chapter 12).
#
# The tutorial fills blocked scores with −∞. The four others take −10⁹ or a few times that. If *all*
# scores of a query are blocked, −∞ gives NaN, and −10⁹, filled in, makes all keys equal:

# %%
nobody = torch.zeros(1, 1, 1, 4, dtype=torch.bool)
scores = query @ key.transpose(-2, -1) / 8
_, ours = attention(query, key, value, nobody)
for blocked, name in ((-math.inf, "−∞"), (-1e9, "−10⁹")):
    filled = scores.masked_fill(~nobody, blocked).softmax(dim=-1)
    print(f"filled with {name}:".ljust(17), filled[0, 0, 0].tolist())
print("the library's:   ", ours[0, 0, 0].tolist())

# %% [markdown]
# ### A university lecture, and an illustrated documentation
#
# Both follow The Annotated Transformer and have its layer norm: `x.std()`, which divides by $d -
# 1$, and ε added to the standard deviation (chapter 8). What does that cost?

# %%
rows = []
for d in (4, 64, 512):
    x = torch.randn(100, d)
    ratio = (UnbiasedLayerNorm(d)(x) / LayerNorm(d)(x)).median().item()
    rows.append([d, f"{1 - ratio:.2%}", f"{1 - math.sqrt((d - 1) / d):.2%}"])
pd.DataFrame(rows, columns=["d", "smaller by", "1 − √((d−1)/d)"]).set_index("d")

# %% [markdown]
# At full width, it costs one part in a thousand. A model that is trained with this norm learns
# weights that suit it; a model whose weights were trained with `nn.LayerNorm` is slightly off in
# every layer.
#
# The lecture's residual connection has the norm on the branch, $x + \text{LN}(f(x))$, which the
# lecture calls “adjusted”. The illustrated documentation prints neither norm nor residual: it says
# “add & normalize after each sub-module”, which is post-norm, and calls classes of The Annotated
# Transformer, which are pre-norm. We follow the classes. These two forms give the two largest
# values in the row “residual around f” of the map. The documentation's position table is computed
# column by column. Is it the same table?

# %%
torch.testing.assert_close(column_by_column(50, 64), sinusoidal_positions(50, 64))
print("column by column: the same table")

# %% [markdown]
# What is wrong in this documentation is the *text*: “divide by d_model” where the code multiplies
# by the square root of d_model; “the square root of 8 divided by 64” for √64 = 8; an embedding as
# wide as the longest sentence. Code is tested by running, prose only by readers.
#
# ### Kyubyong: a TensorFlow program
#
# This program has its heads in the batch axis (chapter 6), one table for everything, and no $W^O$.
# The missing $W^O$ shows in the number of parameters (base size):

# %%
rows = []
with torch.device("meta"):
    for lineage in LINEAGES.values():
        model = lineage.build(Sizes(37_000, 37_000))
        names = " ".join(name for name, _ in model.named_parameters())
        rows.append(
            [
                lineage.name,
                f"{sum(p.numel() for p in model.parameters() if p.requires_grad) / 1e6:.1f}",
                "yes" if "self_attention.out_proj.weight" in names else "no",
                "yes" if model.src_embedding is model.tgt_embedding else "no",
            ]
        )
columns = ["description", "million parameters", "W^O", "one table"]
pd.DataFrame(rows, columns=columns).set_index("description")

# %% [markdown]
# Kyubyong's model has 4.7 million parameters fewer than the library's form of the paper's model
# with one table (63.1): each of its 18 attention sublayers lacks a matrix of 512 × 512.
#
# ### Somebody else's weights
#
# ●○○ · 10 minutes · weights of another program in your model
#
# NiuTensor keeps all three projections of self-attention in one matrix, and so do many programs.
# Here it is kept as `nn.Linear` keeps its weight: the first rows are W^Q, then W^K, then W^V, (3 ·
# d_model, d_model). Return query, key and value of `x`, (batch, length, d_model) each. What passes
# its `check` is kept in `my_transformer.py` beside this notebook. After a first try,
# `solution("query_key_value")` in a cell of its own shows one way.

# %%
def query_key_value(x, weight):
    ...  # your code


check(query_key_value)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `nn.Linear` computes $xW^T$. Split it into thirds: in which order?
#
# </details>

# %% [markdown]
# ## Find the bug
#
# Now read without a guide. Here are ten functions, such as you might find in somebody's program,
# and each of them is wrong (one is a trap that has no effect yet). You have met some of them
# before. All run; all return the right shapes. Find out what is wrong *before* you open the folded
# notes: read, then write a small test. Five tests find nearly everything:
#
# 1. **Compare** with a formula, or with PyTorch, on small random input.
# 2. **Change the future**, and see whether the past changes.
# 3. **Change the padding**, and see whether anything real changes.
# 4. **Swap two sentences** of a batch, and see whether their outputs are swapped and nothing else
#    changes.
# 5. **Try an extreme**: one token, equal numbers, step 1, several layers.
#
# ### 1 · Attention

# %%
def suspect_1(query, key, value, mask):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights * mask
    return weights @ value, weights

# %% [markdown]
# <details><summary>Where to look</summary>
#
# What do the weights of one query add up to?
#
# </details>
#
# <details><summary>What it is</summary>
#
# M36, *masked after the softmax*. Blocked keys get zero, but what they took away is missing: the
# rest adds up to less than 1.
#
# </details>

# %% [markdown]
# ### 2 · Positions

# %%
def suspect_2(length, d_model):
    position = torch.arange(length, dtype=torch.float64)[:, None]
    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    table = torch.empty(length, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position / 10000 ** (2 * i / d_model))
    table[:, 1::2] = torch.cos(position / 10000 ** (2 * (i + 1) / d_model))
    return table.float()

# %% [markdown]
# <details><summary>Where to look</summary>
#
# Sine and cosine of a pair should go round a circle together. What is sin² + cos²?
#
# </details>
#
# <details><summary>What it is</summary>
#
# M1, *the exponent is doubled, and differs between sine and cosine*. This is the table printed in
# the lecture (above). The frequencies fall twice as fast, and PE(pos+k) is no longer a rotation of
# PE(pos).
#
# </details>

# %% [markdown]
# ### 3 · Heads

# %%
def suspect_3(x, num_heads):
    batch, length, d_model = x.shape
    return x.reshape(batch, num_heads, length, d_model // num_heads)

# %% [markdown]
# <details><summary>Where to look</summary>
#
# Fill every channel of x with the number of the position. What do you find in one head?
#
# </details>
#
# <details><summary>What it is</summary>
#
# M19, *heads split without the transpose*. The shape is right, but a “head” holds pieces of several
# positions.
#
# </details>

# %% [markdown]
# ### 4 · The mask of the target

# %%
def suspect_4(tokens):
    real = (tokens != PAD)[:, None, None, :]
    past = torch.ones(tokens.size(1), tokens.size(1), dtype=torch.bool).tril()
    return real | past

# %% [markdown]
# <details><summary>Where to look</summary>
#
# Print it for the tokens 5, 6, 7, PAD. What may the first position see?
#
# </details>
#
# <details><summary>What it is</summary>
#
# M58, *“or” for “and”*. All real tokens are seen by all, the future included.
#
# </details>

# %% [markdown]
# ### 5 · Layer norm

# %%
def suspect_5(x, scale, shift, eps):
    mean = x.mean(dim=1, keepdim=True)
    variance = x.var(dim=1, correction=0, keepdim=True)
    return scale * (x - mean) / torch.sqrt(variance + eps) + shift

# %% [markdown]
# <details><summary>Where to look</summary>
#
# Change the last token of a sentence. Which outputs change?
#
# </details>
#
# <details><summary>What it is</summary>
#
# M61, *normalized over the positions*. What a token becomes depends on the other tokens, the
# padding and the future included.
#
# </details>

# %% [markdown]
# ### 6 · A residual connection

# %%
def suspect_6(x, sublayer, norm, dropout):
    x = norm(x)
    return x + dropout(sublayer(x))

# %% [markdown]
# <details><summary>Where to look</summary>
#
# Let the sublayer return zeros. What should come out, and what does?
#
# </details>
#
# <details><summary>What it is</summary>
#
# M31, *the normalized input is added back*. Every sublayer normalizes the residual stream anew: the
# identity path, which is the reason to choose pre-norm, is lost.
#
# </details>

# %% [markdown]
# ### 7 · A layer of the encoder

# %%
def suspect_7(x, mask, self_attention, feed_forward, norm1, norm2):
    looked = norm1(x + self_attention(x, x, mask))
    return norm2(looked + feed_forward(x))

# %% [markdown]
# <details><summary>Where to look</summary>
#
# Make the feed-forward network the identity and look at what arrives there.
#
# </details>
#
# <details><summary>What it is</summary>
#
# M95, *both sublayers read the layer's input*. The feed-forward network never sees what attention
# found.
#
# </details>

# %% [markdown]
# ### 8 · The shift

# %%
def suspect_8(targets):
    whole = pad_sequences([[BOS, *target, EOS] for target in targets])
    return whole[:, :-1].clone(), whole[:, 1:].clone()

# %% [markdown]
# <details><summary>Where to look</summary>
#
# Two targets of different length. Where is `</s>` in what the decoder reads?
#
# </details>
#
# <details><summary>What it is</summary>
#
# M105, *`</s>` stays in the input of shorter sentences*. This is the trap. It is harmless as long
# as the mask is causal and those places have no label: nothing that counts is computed from them.
# It matters where a program detects padding from the input alone: such a program counts this `</s>`
# as a word.
#
# </details>

# %% [markdown]
# ### 9 · The loss

# %%
def suspect_9(nll, labels):
    real = labels != PAD
    return ((nll * real).sum(dim=1) / real.sum(dim=1)).mean()

# %% [markdown]
# <details><summary>Where to look</summary>
#
# A sentence of one token beside one of a hundred. How much does each *token* count?
#
# </details>
#
# <details><summary>What it is</summary>
#
# M111, *a mean of the sentences' means*. A token of a short sentence weighs more than one of a long
# sentence.
#
# </details>

# %% [markdown]
# ### 10 · A step of beam search

# %%
def suspect_10(scores, log_p, beam_size):
    best, index = (scores[:, None] + log_p).flatten().topk(beam_size)
    return best, index // len(scores), index % len(scores)

# %% [markdown]
# <details><summary>Where to look</summary>
#
# Three hypotheses, five pieces. Which indices can a hypothesis have, and which can a token have?
#
# </details>
#
# <details><summary>What it is</summary>
#
# M130, *divided by the size of the beam instead of the vocabulary's*. The hypotheses and tokens
# that come out are not those of the best scores, and some hypotheses do not exist.
#
# </details>

# %% [markdown]
# And `check`? All ten are in its bank. Can it tell them apart by what they compute?

# %%
suspects = {
    suspect_1: "attention",
    suspect_2: "positional_encoding",
    suspect_3: "split_heads",
    suspect_4: "decoder_mask",
    suspect_5: "layer_norm",
    suspect_6: "pre_norm",
    suspect_7: "encoder_layer",
    suspect_8: "teacher_forcing",
    suspect_9: "mean_loss",
    suspect_10: "best_continuations",
}
verdicts = {suspect: checks.check(suspect, exercise) for suspect, exercise in suspects.items()}
print(
    f"{sum(not verdict.passed for verdict in verdicts.values())} of {len(suspects)} are wrong, and "
    f"{sum(len(verdict.mistakes) == 1 for verdict in verdicts.values())} behave like a mistake "
    f"among the {len(bank())} of the bank"
)

# %% [markdown]
# `verdicts[suspect_3]` in a cell of its own shows one of them.
#
# ## Since 2017
#
# The models that people talk about today are Transformers, and each of their parts differs a little
# from the paper's. What has changed, and where you have met it:
#
# | | paper (2017) | GPT-2 (2019) | T5 (2020) | Llama (2023) | in chapter |
# |---|---|---|---|---|---|
# | halves | encoder and decoder | decoder only | encoder and decoder | decoder only | 10; 7 trains a decoder alone |
# | norm | post-norm, LayerNorm | pre-norm and one at the end, LayerNorm | the same, RMSNorm | the same, RMSNorm | 8, 9 |
# | positions | sinusoids | learned | a bias for each range of distances | rotary | 4 |
# | heads | as many of keys and values as of queries | the same | the same, no division by √d_k | grouped in Llama 2 70B and Llama 3 | 6 |
# | feed-forward | ReLU | GELU | ReLU, later gated GELU | SwiGLU | 10, and below |
# | biases | in the feed-forward network | everywhere | no | no | |
# | output table | that of the input | that of the input | that of the input, later its own | its own | 3 |
# | pieces | 37,000, BPE | 50,257, BPE on bytes | 32,000, unigram | 32,000, BPE with bytes | 3 (BPE) |
#
# ([Radford et al.
# 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf),
# [Raffel et al. 2020](https://arxiv.org/abs/1910.10683), [Touvron et al.
# 2023](https://arxiv.org/abs/2302.13971); “later” is T5 v1.1.) Nothing in this table is out of your
# reach. (GELU is a smooth ReLU, which PyTorch has; T5's pieces come from another algorithm, which
# this course leaves out.) You still lack the gate, and one part that the largest models have added:
#
# ### SwiGLU
#
# ●○○ · 10 minutes · the feed-forward network of most large models today
#
# SwiGLU has two matrices side by side where the ReLU network has one. The output of the first
# passes through $\text{SiLU}(z) = z \cdot \sigma(z)$ and becomes a **gate**, which multiplies the
# output of the second, element by element. A third matrix leads back to the width of the model
# ([Shazeer 2020](https://arxiv.org/abs/2002.05202)). `gate` and `up` are (d_ff, d_model) and `down`
# is (d_model, d_ff), as `nn.Linear` keeps its weights; there are no biases. `x` is (batch, length,
# d_model); return what the network makes of it, of the same shape.

# %%
def swiglu(x, gate, up, down):
    ...  # your code


check(swiglu)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `torch.sigmoid` is σ; `torch.nn.functional.silu` exists, too. Only one of the two branches passes
# through it.
#
# </details>

# %% [markdown]
# ### A mixture of experts
#
# ●●○ · 20 minutes · more parameters for the same computing
#
# Many of the largest open models have several feed-forward networks in each layer, the **experts**,
# and ask only a few of them about each token ([Shazeer et al.
# 2017](https://arxiv.org/abs/1701.06538); in Mixtral, [Jiang et al.
# 2024](https://arxiv.org/abs/2401.04088), two of eight). One more matrix, the **router**, gives
# each token a score for each expert, $xW^T$. The `k` experts with the highest scores answer, and
# the softmax of these `k` scores says how much each answer counts. `router` is (experts, d_model);
# `gate` and `up` hold the matrices of all experts, (experts, d_ff, d_model), and so does `down`,
# (experts, d_model, d_ff). Return the mixture for `x`, (batch, length, d_model), without a residual
# connection. You may call `swiglu` with the matrices of one expert.

# %%
swiglu = mine("swiglu")


def mixture_of_experts(x, router, gate, up, down, k):
    ...  # your code


check(mixture_of_experts)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `topk` returns the highest scores and their indices. A loop over the experts is good enough: for
# which tokens is this one among the chosen, and with which weight?
#
# </details>

# %% [markdown]
# What does Mixtral save, and does a router that has learned nothing distribute the work evenly?

# %%
mixture_of_experts = mine("mixture_of_experts")
EXPERTS, ASKED, WIDE, INNER, LAYERS = 8, 2, 4096, 14_336, 32  # Jiang et al. 2024, table 1
billions = 3 * WIDE * INNER * LAYERS / 1e9
print(f"Mixtral's experts: {EXPERTS * billions:.1f} billion parameters, of which a token meets "
      f"{ASKED * billions:.1f}")  # fmt: skip

torch.manual_seed(0)
tokens, router = torch.randn(1000, 32), torch.randn(EXPERTS, 32) / 32**0.5
chosen = (tokens @ router.T).topk(ASKED).indices
load = chosen.flatten().bincount(minlength=EXPERTS).sort().values
print(f"of 1,000 tokens the experts get {load.tolist()}, evenly it would be {2000 // EXPERTS}")

# %% [markdown]
# Nearly, but not quite. Shazeer et al. found that training makes it worse: an expert that is asked
# more often learns more, and is then asked even more often. So they add losses that keep the
# load even (a simpler form: [Fedus et al. 2021](https://arxiv.org/abs/2101.03961)).
#
# ### A layer of Llama, with four faults
#
# This is somebody's implementation of a layer of Llama, with the names of the published weights. It
# runs with any number of heads and groups, and it trains. Four things are wrong with it:

# %%
rotary, rms_norm = mine("rotary"), mine("rms_norm")


def broken_block(x, weights, position, num_heads):
    batch, length, d_model = x.shape
    d_k = d_model // num_heads
    y = rms_norm(x, weights["attention_norm"], 1e-5)
    parts = []
    for name in ("wq", "wk", "wv"):
        part = (y @ weights[name].T).view(batch, length, -1, d_k).transpose(1, 2)
        parts.append(rotary(part, position))
    query, key, value = parts
    groups = key.size(1)
    key = key.repeat(1, num_heads // groups, 1, 1)
    value = value.repeat(1, num_heads // groups, 1, 1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(d_k)
    seen = torch.ones(length, length, dtype=torch.bool).tril(1)
    heads = scores.masked_fill(~seen, -math.inf).softmax(dim=-1) @ value
    x = x + heads.transpose(1, 2).reshape(batch, length, d_model) @ weights["wo"].T
    y = rms_norm(x, weights["ffn_norm"], 1e-5)
    return x + swiglu(y, weights["w3"], weights["w1"], weights["w2"])

# %% [markdown]
# ### Mend it
#
# ●●○ · 30 minutes · find the bugs of a layer that trains
#
# Write the layer that its author wanted:
#
# - pre-norm with RMSNorm (ε = 10⁻⁵);
# - rotary positions for what is compared;
# - grouped queries, where neighboring heads share a group;
# - a causal mask;
# - SwiGLU, `swiglu(x, gate, up, down)` from above, whose gate is `w1` and whose other branch is
#   `w3` in Llama's names.
#
# `x` is (batch, length, d_model), and `position`, (length,), has the positions of its tokens.
# Return the layer's output, of the shape of `x`.

# %%
def mended_block(x, weights, position, num_heads):
    ...  # your code


check(mended_block)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two of the four show themselves: change the last token; move all positions by the same number. For
# the other two read what its author wanted, and print what is compared with what: which of eight
# heads share the first group? Mend one at a time; `check` says how many are left.
#
# </details>

# %% [markdown]
# What do two such tests say about both layers?

# %%
mended_block = mine("mended_block")
torch.manual_seed(0)
shapes = {"wq": (32, 32), "wk": (16, 32), "wv": (16, 32), "wo": (32, 32), "w1": (48, 32)}
shapes |= {"w3": (48, 32), "w2": (32, 48)}
llama = {name: torch.randn(shape) / shape[1] ** 0.5 for name, shape in shapes.items()}
llama |= {"attention_norm": torch.ones(32), "ffn_norm": torch.ones(32)}
x, places = torch.randn(2, 6, 32), torch.arange(6)
last_changed = x.clone()
last_changed[:, -1] += 1.0
for name, block in {"broken": broken_block, "mended": mended_block}.items():
    out = block(x, llama, places, 8)
    past = (block(last_changed, llama, places, 8) - out)[:, :-1].abs().max()
    moved = (block(x, llama, places + 100, 8) - out).abs().max()
    sizes = [f"{it:.1f}" if it > 1e-3 else "rounding at most" for it in (past, moved)]
    print(f"{name}: the past changes by {sizes[0]}, with moved positions {sizes[1]}")
    assert (past < 1e-5) == (moved < 1e-3) == (name == "mended"), "has yours passed its check?"

# %% [markdown]
# Stack such layers between an embedding and a final norm, multiply by a table for the output, and
# you have Llama. For the other famous decoder you will write all of it.
#
# ### GPT-2 from its weights
#
# ●●● · 60 minutes · somebody else's model, from nothing but a dictionary of tensors
#
# GPT-2's weights are published as a file with a dictionary of tensors. Write the model that they
# belong to. `tokens` are (batch, length), `num_heads` is an argument, and everything else can be
# read from the dictionary. It has these names (the layers are `h.0`, `h.1` and so on):
#
# | name | shape | |
# |---|---|---|
# | `wte.weight` | (vocab_size, d_model) | embeddings, without a factor; also the output's table |
# | `wpe.weight` | (positions, d_model) | learned positions, added |
# | `h.0.ln_1.weight`, `.bias` | (d_model) | LayerNorm before attention, ε = 10⁻⁵ |
# | `h.0.attn.c_attn.weight`, `.bias` | (d_model, 3 · d_model) | queries, keys, values, in this order |
# | `h.0.attn.c_proj.weight`, `.bias` | (d_model, d_model) | the output projection |
# | `h.0.ln_2.weight`, `.bias` | (d_model) | LayerNorm before the feed-forward network |
# | `h.0.mlp.c_fc.weight`, `.bias` | (d_model, 4 · d_model) | its first matrix; then GELU, `approximate="tanh"` |
# | `h.0.mlp.c_proj.weight`, `.bias` | (4 · d_model, d_model) | its second |
# | `ln_f.weight`, `.bias` | (d_model) | LayerNorm after the last layer |
#
# The matrices are stored as (in, out), transposed compared with `nn.Linear`. Attention is causal,
# scores are divided by $\sqrt{d_k}$, and there is no dropout. Return logits, (batch, length,
# vocab_size).

# %%
def gpt2_logits(tokens, weights, num_heads):
    ...  # your code


check(gpt2_logits)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Write small functions first: one for the norm of a given name, one for the product with the matrix
# of a given name. How many layers are there? Count the names that end in `ln_1.weight`. `c_attn`
# gives the queries of all heads, then the keys of all heads.
#
# </details>

# %% [markdown]
# How large is it? Here are the published sizes, counted without loading any weights:

# %%
gpt2_logits = mine("gpt2_logits")


def gpt2_parameters(d_model, layers, vocab_size=50_257, positions=1024):
    matrices = 12 * d_model**2 + 9 * d_model  # c_attn, c_proj, c_fc, c_proj with their biases
    return (vocab_size + positions) * d_model + layers * (matrices + 4 * d_model) + 2 * d_model


SIZES_OF_GPT2 = {"small": (768, 12), "medium": (1024, 24), "large": (1280, 36), "XL": (1600, 48)}
for name, (width, layers) in SIZES_OF_GPT2.items():
    millions = gpt2_parameters(width, layers) / 1e6
    print(f"GPT-2 {name:7}{layers} layers of {width}: {millions:7.1f} million parameters")

# %% [markdown]
# The real weights (548 MB) have to be downloaded once; if `transformers` is installed, this is all
# it takes to let your model write:
#
# ```python
# from transformers import GPT2LMHeadModel, GPT2Tokenizer
# published = GPT2LMHeadModel.from_pretrained("gpt2").state_dict()
# weights = {name.removeprefix("transformer."): tensor for name, tensor in published.items()}
# tokenizer = GPT2Tokenizer.from_pretrained("gpt2")
# tokens = tokenizer("Attention is all you", return_tensors="pt").input_ids
# for _ in range(20):
#     best = gpt2_logits(tokens, weights, num_heads=12)[:, -1].argmax(dim=-1)
#     tokens = torch.cat([tokens, best[:, None]], dim=1)
# print(tokenizer.decode(tokens[0]))
# ```
#
# ## Common mistakes
#
# **A matrix that is square hides its orientation.** Three of GPT-2's four matrices give an error
# when they are taken the wrong way around. The fourth, which is square, does not (M739 of the [list
# of mistakes](../docs/misconceptions.md)). How much harm does that do, and how much does a slightly
# different GELU (M740)?

# %%
(case,) = [checks.find_exercise("gpt2_logits").cases(torch.Generator().manual_seed(1))["values"]]
right_logits = gpt2_logits(*case.args)
for mistake in bank():
    if mistake.id in ("M739", "M740"):
        wrong_logits = mistake.answers["gpt2_logits"](*case.args)
        off = (wrong_logits - right_logits).abs().max() / right_logits.abs().max()
        print(f"{mistake.id}: {mistake.title}, off by up to {off:.2%} of the largest logit")

# %% [markdown]
# The first is as large as the logits themselves, so any comparison shows it. The second changes the
# fourth digit: only numbers show it, not what the model writes. Other mistakes, in reading code:
# **trusting a shape**; **trusting a loss that falls** (models with the first nine suspects above
# can be trained); **trusting a comment**; taking a difference for a mistake (halves instead of
# interleaved), or a mistake for a difference.
#
# ## What you have built
#
# In chapter 1 a translator that was not yours said its first sentence. Here are the parts of your
# own, and whose version of each is in use:

# %%
PARTS = (
    "encode_text", "embed_with_positions", "padding_mask", "causal_mask", "attention",
    "split_heads", "merge_heads", "LayerNorm", "FeedForward", "MultiHeadAttention",
    "EncoderLayer", "DecoderLayer", "Transformer", "convert", "best_continuations",
    "length_penalty", "beam_search", "translate", "corpus_bleu",
)  # fmt: skip
translator = {name: mine(name) for name in PARTS}

# %% tags=["nbval-ignore-output"]
so_far = progress()
done = {number: so_far.share(file.removesuffix(".ipynb")) for number, file in NOTEBOOKS.items()}
show(course_map(done), ALTERNATIVE)
assert len(done) == 17, "not as on this page: restart the kernel and run all cells"
print(so_far.summary)

# %% [markdown]
# And it translates, with your own search and everything else of yours in `my_transformer.py`:

# %%
trained = load_trained("transformer")
PIECES = trained.tokenizer.pieces(range(len(trained.tokenizer)))
own = translator["Transformer"](len(PIECES), 192, 512, 4, 2, dropout=0.15).eval()
own.load_state_dict(translator["convert"](trained.model.state_dict()))
for sentence in ("I wrote this myself.", "Nobody helped me.", "That is all."):
    print(f"{sentence:24}{translator['translate'](sentence, own, PIECES)}")

# %% [markdown]
# ## Summary
#
# 1. Same weights, same input, part by part: that is how two implementations are compared.
# 2. Every description departs from the paper somewhere. A difference that a model can get used to
#    in training can be fatal when weights are copied.
# 3. Shapes and falling losses prove nothing. Change the future, change the padding, compare with a
#    formula.
# 4. Since 2017 nearly every part has changed: norms before the sublayers, rotary positions, shared
#    keys and values, gates. Some parts have disappeared: from most large models the encoder,
#    cross-attention and the biases. You can write GPT-2 and Llama from their weights.
#
# **In the paper:** compare its own sections 3.1 and 5.4 with its program, tensor2tensor. **Read
# on:** the code of a library that you use; now you can.
#
# **Next:** [17 · A language model of your own](17_a_language_model.ipynb)
