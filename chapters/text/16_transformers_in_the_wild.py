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
# every number, some are mistakes; from outside one cannot tell. By the end you can
#
# - put another implementation beside yours, part by part, with the same weights,
# - read five published descriptions, and say what is odd in each and what it costs,
# - find a bug in code that runs, has the right shapes and learns.
#
# Reading takes about forty minutes, computing a few seconds.
#
# **Predict first.** Five descriptions of the Transformer get the same weights and the same
# sentence. All five claim to describe the same model. How many compute the same logits as the
# paper's model?

# %%
import math

import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, solution
from transformer_lib.course import checks
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.course.lineages import LINEAGES, Sizes
from transformer_lib.course.lineages.differences import differences
from transformer_lib.course.lineages.illustrated import column_by_column
from transformer_lib.course.lineages.lineage import UnbiasedLayerNorm
from transformer_lib.course.lineages.niutensor import added_before_scaling, timing_signal
from transformer_lib.course.misconceptions.bank import bank
from transformer_lib.model import LayerNorm, attention, num_parameters, sinusoidal_positions
from transformer_lib.course.lineages.plot import difference_map
from transformer_lib.plots.notebook import show
from transformer_lib.course.figures.positions import position_tables
from transformer_lib.vocabulary import BOS, EOS, PAD

# %% [markdown]
# ## Five descriptions, one sentence
#
# This course grew out of five published descriptions. `transformer_lib.course.lineages` rebuilds
# the model of each as it is, with its mistakes. (What is wrong in a listing or in the text alone
# comes below.) Where a page leaves something open, the program behind it decides (the docstring of
# each `build` says what that was):

# %%
sources = {lineage.name: lineage.source for lineage in LINEAGES.values()}
print(*(f"{name:13}{source}" for name, source in sources.items()), sep="\n")

# %% [markdown]
# All get the weights of one model in the paper's form, and the same sentence, once whole and once
# with padding. Every *part* gets the input that it has in the paper's model, so that a difference
# shows where it arises:

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
# - feed-forward networks are the same everywhere (in this map, which is without dropout: three
#   descriptions have it after the ReLU as well);
# - “attention to nothing” is what a query with all keys masked gets. The paper does not say;
#   ours gives zeros. In the tutorial it is NaN, since the softmax of nothing but −∞ is 0/0. The
#   lecture and the illustrated documentation, which put the same number in all places, make all
#   keys equal. NiuTensor and Kyubyong add it to the scores, and in double precision, which the map
#   uses, it then looks as if nothing were masked;
# - a difference of 10⁻⁵ is an epsilon, one of 3 a different formula.
#
# This is the first thing to do with code that you do not know: same weights, same input, part by
# part. Not by reading.
#
# ## A guided reading
#
# ### NiuTensor: a C++ library
#
# Its position table has all sines first, then all cosines, and $d - 2$ in the exponent, as the
# authors' own program has it (chapter 4). Beside it the paper's, and one that is printed in the
# lecture, which doubles the exponent (its model has the paper's):

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
# The second has nearly the same waves, reordered. A model trained with it is as good; but
# weights cannot be taken from one to the other. The third is a mistake: its waves become long twice
# as fast, and many more of its channels hardly change within a sentence.
#
# NiuTensor also adds its mask *before* it divides by $\sqrt{d_k}$. With −10⁹ nobody notices. With a
# timid value one does:

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
# It is the paper's model without three things: the factor $\sqrt{d}$ of the embeddings, their one
# table (chapter 3) and dropout. Its interest is in its data: batches are written by hand, with `P`,
# `S` and `E`, and one can follow every letter. Two things to see there: the padding of a target
# comes *before* its end symbol, and decoding has no limit of length, so that an untrained model may
# talk forever (chapter 12).
#
# It fills blocked scores with −∞. The four others take −10⁹ or a few times that. If *all* are
# blocked, the first gives NaN, and the second, filled in, makes all keys equal:

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
# 1$, and ε added to the standard deviation (chapter 8). What does it cost?

# %%
rows = []
for d in (4, 64, 512):
    x = torch.randn(100, d)
    ratio = (UnbiasedLayerNorm(d)(x) / LayerNorm(d)(x)).median().item()
    rows.append([d, f"{1 - ratio:.2%}", f"{1 - math.sqrt((d - 1) / d):.2%}"])
pd.DataFrame(rows, columns=["d", "smaller by", "1 − √((d−1)/d)"])

# %% [markdown]
# One part in a thousand at full width. A model trained like this does as well as any; one that
# takes its weights from `nn.LayerNorm` is wrong by a little in every layer.
#
# The lecture's residual connection is the norm on the branch, $x + \text{LN}(f(x))$, “adjusted”, as
# it says. The illustrated documentation prints neither norm nor residual: it says “add & normalize
# after each sub-module”, which is post-norm, and calls classes of The Annotated Transformer, which
# are pre-norm. We take the classes. These are the two largest fields in the row “residual around f”
# of the map. The documentation's position table is computed column by column. Is it the same table?

# %%
torch.testing.assert_close(column_by_column(50, 64), sinusoidal_positions(50, 64))
print("column by column: the same table")

# %% [markdown]
# What is wrong there is the *text*: “divide by d_model” where the code multiplies by its root; “the
# square root of 8 divided by 64” for √64 = 8; an embedding as wide as the longest sentence. Code is
# tested by running, prose only by readers.
#
# ### Kyubyong: the TensorFlow program that everybody read
#
# Heads in the batch axis (chapter 6), one matrix for everything, and no $W^O$. The last shows in
# the number of parameters, base size:

# %%
rows = []
with torch.device("meta"):
    for lineage in LINEAGES.values():
        model = lineage.build(Sizes(37_000, 37_000))
        names = " ".join(name for name, _ in model.named_parameters())
        rows.append(
            [
                lineage.name,
                f"{num_parameters(model) / 1e6:.1f}",
                "yes" if "self_attention.out_proj.weight" in names else "no",
                "yes" if model.src_embedding is model.tgt_embedding else "no",
            ]
        )
pd.DataFrame(rows, columns=["description", "million parameters", "W^O", "one table"])

# %% [markdown]
# 4.7 million fewer than the paper's form with one table (63.1): 18 attention sublayers without a
# matrix of 512 × 512.
#
# ## Find the bug
#
# Now without a guide. Ten functions, each as it could occur in somebody's program, each wrong; some
# of them are old acquaintances. All run; all have the right shapes. Find out what is wrong *before*
# you open the folds below: read, then write a small test. Five tests find nearly everything:
#
# 1. **Compare** with a formula, or with PyTorch, on small random input.
# 2. **Change the future**, look whether the past changes.
# 3. **Change the padding**, look whether anything real changes.
# 4. **Swap two sentences** of a batch, look whether only they are swapped.
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
#
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
# M1, *the exponent is doubled, and differs between sine and cosine*: the lecture's, above.
# The frequencies fall twice as fast, and PE(pos+k) is no longer a rotation of PE(pos).
#
# </details>
#
# ### 3 · Heads

# %%
def suspect_3(x, num_heads):
    batch, length, d_model = x.shape
    return x.reshape(batch, num_heads, length, d_model // num_heads)

# %% [markdown]
# <details><summary>Where to look</summary>
#
# Put the number of its position into every channel of x. What do you find in one head?
#
# </details>
#
# <details><summary>What it is</summary>
#
# M19, *heads split without the transpose*. The shape is right, but a “head” holds pieces of several
# positions.
#
# </details>
#
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
#
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
#
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
# identity path, for which one chooses pre-norm, is lost.
#
# </details>
#
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
#
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
# M105, *`</s>` stays in the input of shorter sentences*. Harmless as long as the mask is causal and
# those places have no label: nothing that counts is computed from them. It matters where a program
# finds padding by the input alone: it then counts that `</s>` as a word.
#
# </details>
#
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
#
# ### 10 · A step of beam search

# %%
def suspect_10(scores, log_p, beam_size):
    best, index = (scores[:, None] + log_p).flatten().topk(beam_size)
    return best, index // len(scores), index % len(scores)

# %% [markdown]
# <details><summary>Where to look</summary>
#
# Three hypotheses, five pieces. Which numbers can a hypothesis have, which a token?
#
# </details>
#
# <details><summary>What it is</summary>
#
# M130, *divided by the size of the beam instead of the vocabulary's*. The hypotheses and tokens
# that come out are not those of the best scores, and some hypotheses do not exist.
#
# </details>
#
# And `check`? It should know them all:

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
# ## Common mistakes
#
# In reading code: **to trust a shape**; **to trust a loss that falls** (models with the first nine
# bugs above can be trained); **to trust a comment**; to take a difference for a mistake (halves
# instead of interleaved), and a mistake for a difference.
#
# ## Your turn
#
# What passes its `check` is kept in `my_transformer.py` beside this notebook. After a first try,
# `solution("query_key_value")` in a cell of its own shows one way.
#
# ### Somebody else's weights
#
# ●○○ · 10 minutes · weights of another program in your model
#
# A program keeps all three projections in one matrix, as `nn.Linear` keeps its weight: the first
# rows are W^Q, then W^K, then W^V, (3 · d_model, d_model). Return query, key and value of `x`,
# (batch, length, d_model) each.

# %%
def query_key_value(x, weight):
    ...  # your code


check(query_key_value)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `nn.Linear` computes $xW^T$. Thirds, in which order?
#
# </details>
#
# ### Somebody else's output
#
# ●○○ · 10 minutes · the other end of it
#
# Kyubyong's program makes its logits from the decoder's states (batch, length, d_model) with the
# embedding `table` (vocab_size, d_model). Do the same.

# %%
def output_logits(states, table):
    ...  # your code


check(output_logits)

# %% [markdown]
# <details><summary>Hint</summary>
#
# One product, and nothing else: neither a softmax nor a factor.
#
# </details>
#
# ## Summary
#
# 1. Same weights, same input, part by part: that is how two implementations are compared.
# 2. Every description departs from the paper somewhere; most departures are harmless if you train
#    with them, and fatal if you copy weights.
# 3. Shapes and falling losses prove nothing. Change the future, change the padding, compare with a
#    formula.
# 4. A mistake has a form: those of the bank come back in new programs.
#
# **In the paper:** compare its own sections 3.1 and 5.4 with its program, tensor2tensor. **Read
# on:** the code of a library that you use; now you can.
