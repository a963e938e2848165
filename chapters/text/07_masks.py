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
# # 7 · Masks
#
# A mask says which positions may look at which others. It is only an array of ones and zeros, but
# many of the bugs that raise no error are wrong masks. In this chapter you write the masks of the
# Transformer, the attention that obeys them, and a test that catches models that cheat. By the end
# you can
#
# - build the padding mask, the causal mask and both together, with the right shapes,
# - translate between the two opposite conventions that PyTorch uses,
# - say when −1e9 differs from −∞, and what comes out of a row without a single allowed key,
# - find a leak with a test: change the future, watch the past.
#
# Reading takes about thirty minutes, running the cells less than one.
#
# **Predict first.** A trained translator uses a padding mask in two places: where the encoder looks
# at the source, and where the decoder looks at the encoder's output. We translate 200 sentences in
# one batch: first without the mask in the encoder, then without the mask where the decoder looks at
# the encoder's output, then without either. How many of the 200 translations change in each case?

# %%
import math

import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, mine, solution
from transformer_lib.course.figures.masks import ALTERNATIVE, as_text, first_head, mask_gallery
from transformer_lib.data.corpora import DataConfig, load_corpus
from transformer_lib.decoding.search import greedy_search, pad_sequences
from transformer_lib.model import Embedding, MultiHeadAttention, SinusoidalPositions
from transformer_lib.model import fused_attention
from transformer_lib.plots.attention import mask_explorer
from transformer_lib.plots.notebook import show, show_chart
from transformer_lib.course.trained import load_trained
from transformer_lib.vocabulary import EOS, PAD

# %% [markdown]
# ## Padding
#
# The sentences of a batch are padded to the same length with `<pad>`, token 0. Padding carries no
# meaning, and no position should attend to it.

# %%
trained = load_trained("transformer")
sentences = ["I am hungry.", "Where is my car?", "Tom does not want to go home."]
tokens = pad_sequences([[*t, EOS] for t in trained.tokenizer.encode(sentences)])
print(tokens.numpy())

# %% [markdown]
# ### Padding mask
#
# ●○○ · 5 minutes · nobody attends to padding
#
# Turn `tokens`, (batch, length), into a boolean mask of shape (batch, 1, 1, length): True where a
# key may be attended to, that is, wherever the token is not `PAD`. Attention weights have the shape
# (batch, heads, queries, keys), and an axis of size 1 is repeated as needed (broadcasting), so the
# same keys are allowed for every head and for every query.
#
# What passes its `check` is kept in `my_transformer.py` beside this notebook. After a first try,
# `solution("padding_mask")` in a cell of its own shows one way.

# %%
def padding_mask(tokens):
    ...  # your code


check(padding_mask)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `x[:, None]` inserts an axis of size 1. Which tokens may be attended to: only ordinary words, or
# `<s>`, `</s>` and `<unk>` as well?
#
# </details>

# %% [markdown]
# Here is your mask on the three sentences (or the course's, until yours passes). A × may be seen, a
# dot may not:

# %%
padding_mask = mine("padding_mask")
print("shape", tuple(padding_mask(tokens).shape))
print(as_text(padding_mask(tokens)[:, 0, 0]))

# %% [markdown]
# So a *query* at a padded position looks at the real tokens, like any other query. Its output is of
# no use, but it does no harm either, as long as no other position attends to it. Masks are about
# **keys**.
#
# ## The future
#
# The decoder is trained on whole sentences at once. At position 3 it must predict token 4, and
# token 4 is in its input, right there at the next position. It must not look. The causal mask lets
# every position attend to itself and to the positions before it.
#
# ### Causal mask
#
# ●○○ · 5 minutes · nobody sees the future
#
# Return a boolean mask of shape (1, 1, length, length) for `length` positions: True where the query
# (the row) may attend to the key (the column). A position may see itself and everything before it.

# %%
def causal_mask(length):
    ...  # your code


check(causal_mask)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `torch.tril` keeps the lower triangle, `torch.triu` the upper one. Which of them is the past? And
# may a position see itself?
#
# </details>

# %%
causal_mask = mine("causal_mask")
print("shape", tuple(causal_mask(5).shape))
print(as_text(causal_mask(5)[0, 0]))

# %% [markdown]
# (A description that says “an upper triangle of zeros”, without saying whether zero allows or
# blocks, can be read either way. One of the five published descriptions that chapter 16 compares
# says just that, and a reader may well build the mirror image.)
#
# ### Both
#
# ●○○ · 5 minutes · both at once
#
# Return the mask for a decoder's self-attention on a batch of padded targets, (batch, 1, length,
# length). No query may see padding or the future. There is no other rule: the rows of padded
# queries are treated like all others.

# %%
def decoder_mask(tokens):
    ...  # your code


check(decoder_mask)

# %% [markdown]
# <details><summary>Hint</summary>
#
# You have two masks, (batch, 1, 1, length) and (1, 1, length, length). Which operation means
# “allowed by both”?
#
# </details>

# %%
decoder_mask = mine("decoder_mask")
both = decoder_mask(tokens)
print("shape", tuple(both.shape))
for name, matrix in zip(sentences[:2], both[:2, 0]):
    print(name, as_text(matrix), sep="\n")

# %% [markdown]
# The first sentence has five tokens. Its first five rows would be the same under the causal mask
# alone: padding comes last, so a position that may not see the future does not see the padding
# either. (The rows below belong to padded queries, whose output nobody uses.) So as long as padding
# comes last, a decoder with a causal mask needs no padding mask in its self-attention, and the
# library's decoder has none.
#
# In this figure you can choose a sentence and a mask, and see what the mask does to the weights of
# one head of the trained model's encoder.

# %%
everything = torch.ones_like(both)
masks = {
    "no mask": everything,
    "causal": everything & causal_mask(tokens.size(1)),
    "both": both,
    "padding": everything & padding_mask(tokens),
}
weights = first_head(trained.model, tokens, masks)
allowed = {name: mask[:, 0] for name, mask in masks.items()}
show_chart(mask_explorer(weights, allowed, [trained.tokenizer.pieces(row) for row in tokens]))
of_words = weights["no mask"][0][:5]
print(f"without a mask, padding gets {of_words[:, 5:].sum() / 5:.0%} in the first sentence's rows")

# %% [markdown]
# Without a mask, padding takes nearly as much of the attention, in this head and this sentence, as
# it would in a head that looks at all nine keys equally: 4/9. In training, padding was always
# masked, so nothing taught the model to look away from it. With the mask, blocked keys get a weight
# of exactly zero, and the other weights grow so that each row still adds up to 1, because a mask
# acts *before* the softmax.
#
# ## What happens without a mask
#
# Back to the opening question. We make the trained model forget its mask in one kind of attention
# and have it translate 200 test sentences in one batch:

# %%
sources = load_corpus(DataConfig()).test.sources[:200]
src = pad_sequences([[*t, EOS] for t in trained.tokenizer.encode(sources)])


def without_mask(query, key, value, mask=None, is_causal=False):
    return fused_attention(query, key, value, None, is_causal)


def translations(forgetful):
    """Greedy translations, with no padding mask in the modules whose names end like this."""
    layers = [m for name, m in trained.model.named_modules() if name.endswith(forgetful)]
    for layer in layers:
        layer.attention_function = without_mask
    outputs = greedy_search(trained.model, src)
    for layer in layers:
        layer.attention_function = fused_attention
    return outputs

# %% tags=["nbval-ignore-output"]
ENCODER = ("encoder.layers.0.self_attention", "encoder.layers.1.self_attention")
FORGET = {
    "in the encoder": ENCODER,
    "in cross-attention": ("cross_attention",),
    "in both": (*ENCODER, "cross_attention"),
}
right = translations(())
alone = [greedy_search(trained.model, src[i : i + 1, src[i] != PAD])[0] for i in range(200)]
change = {"(alone instead of in a batch)": sum(a != b for a, b in zip(alone, right))}
for place, names in FORGET.items():
    change[f"no mask {place}"] = sum(a != b for a, b in zip(translations(names), right))
for what, count in change.items():
    print(f"{what:30}{count:4} of 200 change")
assert change["(alone instead of in a batch)"] < 3 < 50 < min(list(change.values())[1:]), (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# With its masks, the model returns the same translation whether a sentence is translated alone or
# together with 199 others. Without them most translations depend on how long the longest sentence
# of the batch happens to be. Both places matter, and cross-attention matters more. If your model
# does better with a batch of one than with a batch of a hundred, look here first.
#
# ## Two opposite conventions
#
# In this course, as in `scaled_dot_product_attention`, **True means: may attend**. In
# `nn.MultiheadAttention`, `nn.Transformer` and many tutorials, **True means: blocked**. Both are in
# PyTorch, and a boolean tensor does not say which convention it follows. Here is the same attention
# under both:

# %%
torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 1, 4, 8)
allowed = causal_mask(4)
ours = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)

reference = nn.MultiheadAttention(8, 1, batch_first=True, bias=False).eval()
with torch.no_grad():
    reference.in_proj_weight.copy_(torch.eye(8).repeat(3, 1))
    reference.out_proj.weight.copy_(torch.eye(8))
    for name, m in {"~mask": ~allowed[0, 0], "mask as it is": allowed[0, 0]}.items():
        output, weights = reference(q[0], k[0], v[0], attn_mask=m)
        same = torch.allclose(output, ours[0], atol=1e-5)
        print(f"{name:14} equal: {same}")
        for query in (1, 3):
            print(f"    weights of query {query}:", weights[0, query].numpy().round(2))

# %% [markdown]
# With the wrong polarity, query 1 sees exactly the future and nothing else. The last query has no
# future: all its keys are blocked, and its weights are NaN. So here the loss would be NaN at once,
# and you would notice. But tell the same module not to return its weights (`need_weights=False`, as
# `nn.TransformerEncoderLayer` does), and in training that row's output is zero instead: nothing
# complains, and a decoder trained in this way reads what it must predict. The next section shows
# when each of the two happens.
#
# A third form, found in older code, is a float mask that is **added** to the scores: 0 where
# allowed, −∞ where not. Each conversion takes one line:

# %%
def blocked_where_true(mask):
    """May-attend to nn.Transformer's convention, and back."""
    return ~mask


def additive(mask, dtype=torch.float32):
    """May-attend to a mask that is added to the scores."""
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -torch.inf)


added = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=additive(allowed))
torch.testing.assert_close(added, ours)
print(additive(allowed)[0, 0].numpy())

# %% [markdown]
# ## −1e9 is not −∞
#
# Four of the five descriptions in chapter 16 block with a large negative number, −10⁹ or −2³²+1.
# After the softmax nothing is left of a key blocked in this way. Is that the same as −∞? We block
# the last two keys of a row of scores, then all four, in three number formats. Besides float32
# there are two of half its size: bfloat16 has the range of float32; float16 (**fp16**) has more
# digits than bfloat16, but a smaller range:

# %%
scores = torch.tensor([1.0, 2.0, 3.0, 4.0])
blocked = {
    "last two": torch.tensor([False, False, True, True]),
    "all": torch.ones(4, dtype=torch.bool),
}
rows = []
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for value in (-torch.inf, -1e9, torch.finfo(dtype).min):
        row = {"format": str(dtype).removeprefix("torch."), "blocked with": f"{value:.3g}"}
        for name, where in blocked.items():
            try:
                weights = scores.to(dtype).masked_fill(where, value).softmax(dim=0)
                row[f"blocked: {name}"] = " ".join(f"{w:.2f}" for w in weights.tolist())
            except RuntimeError:
                row[f"blocked: {name}"] = "error: does not fit"
        rows.append(row)
pd.DataFrame(rows)

# %% [markdown]
# As long as one key is allowed, all values that fit into the format give the same weights. The
# differences are in the edge cases. The largest number in fp16 is 65,504, so −10⁹ does not exist
# there: `masked_fill` refuses it, and in an additive mask it silently becomes −∞. And what comes
# out of a row in which **every** key is blocked depends on the function that computes it:

# %%
nothing = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
scaled_dot_product_attention = nn.functional.scaled_dot_product_attention


def by_hand(fill):
    return (q @ k.mT / math.sqrt(8)).masked_fill(~nothing, fill).softmax(dim=-1) @ v

# %%
with torch.no_grad():
    answers = {
        "by hand, −∞": by_hand(-torch.inf),
        "by hand, −1e9": by_hand(-1e9),
        "scaled_dot_product_attention, boolean": scaled_dot_product_attention(q, k, v, nothing),
        "scaled_dot_product_attention, −∞ added": scaled_dot_product_attention(
            q, k, v, additive(nothing)
        ),
        "nn.MultiheadAttention": reference(q[0], k[0], v[0], attn_mask=~nothing[0, 0])[0],
        "nn.MultiheadAttention, need_weights=False": reference(
            q[0], k[0], v[0], attn_mask=~nothing[0, 0], need_weights=False
        )[0],
        "the same, two heads, one tensor": nn.MultiheadAttention(8, 2, batch_first=True).eval()(
            *[q[0]] * 3, attn_mask=~nothing[0, 0], need_weights=False
        )[0],
        "the mean of all values": v.mean(dim=2),
    }
for name, output in answers.items():
    print(f"{name:42}", output.flatten()[:3].numpy().round(2))

# %% [markdown]
# There are three answers: NaN, zero, and the mean of all values. (With −1e9, the query looks
# equally at every key that it must not see.) And one module gives two of them:
# `nn.MultiheadAttention` returns NaN together with its weights, and zero without them. Even without
# them there is an exception: in evaluation without gradients, self-attention with an even number of
# heads takes a fast path of its own and returns NaN again. (All this holds for the version of
# PyTorch with which this page was made. The zeros are fairly new: versions before 2.5 returned NaN
# there, too.)
#
# Do such rows occur? Yes: in a sentence left empty by cleaning, if no `</s>` is appended (here it
# always is); for a padded query under padding *and* causal masks, if padding comes first; or
# through an error in the mask. NaN is at least easy to see, and yet it is the worst choice, because
# it spreads even if the loss does not use the row:

# %%
for name, fill in {"−∞": -torch.inf, "lowest number": torch.finfo(torch.float32).min}.items():
    values = torch.ones(4, 3, requires_grad=True)
    where = torch.tensor([[False] * 4, [True] * 4])  # the second query may see nothing
    output = torch.zeros(2, 4).masked_fill(where, fill).softmax(dim=-1) @ values
    output[0].sum().backward()  # and only the first query's output is used
    print(f"{name:16} gradient of the values:", values.grad[:, 0].tolist())

# %% [markdown]
# In the backward pass, the unused row's NaN is multiplied by a gradient of 0, and NaN times 0 is
# NaN. One such row in a batch, and after the next step nearly every weight of the model is NaN.
# Does it help to replace the NaN after the softmax? That depends on how the −∞ got into the scores:

# %%
nowhere = torch.tensor([[False] * 4, [True] * 4])
for how in ("filled in", "added"):
    scores = torch.zeros(2, 4, requires_grad=True)
    minus_infinity = torch.zeros(2, 4).masked_fill(nowhere, -torch.inf)
    blocked = scores + minus_infinity if how == "added" else scores.masked_fill(nowhere, -torch.inf)
    weights = blocked.softmax(dim=-1).nan_to_num()
    weights[:, 0].sum().backward()
    print(f"−∞ {how:10} gradient of the second query's scores:", scores.grad[1].tolist())

# %% [markdown]
# The gradient of `masked_fill` is 0 at the positions that it fills, so the NaN stops there. A sum
# passes it on to the queries and keys.
#
# ### Attention, with its mask
#
# ●●○ · 20 minutes · rows in which nothing may be seen
#
# Chapter 5's function, now complete: `query` is (batch, heads, queries, d_k), `key` (batch, heads,
# keys, d_k) and `value` (batch, heads, keys, d_v). The mask, True where a key may be attended to,
# can be broadcast to (batch, heads, queries, keys), or is None. Return the output and the weights.
# The weights of masked keys are zero, and so are all weights of a query that may see nothing: its
# output is neither NaN nor the mean of forbidden values, and there is no NaN in the gradients
# either.

# %%
def attention(query, key, value, mask):
    ...  # your code


check(attention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Before the softmax, make blocked scores so low that nothing is left of them after it; the table
# above shows such a number for each format. A row without an allowed key then still has weights.
# What can you do about them after the softmax?
#
# </details>

# %%
attention = mine("attention")
output, weights = attention(q, k, v, nothing)
print("weights", weights[0, 0, 0].tolist(), " output", output[0, 0, 0, :3].tolist())

# %% [markdown]
# ## Before or after scaling
#
# One of the descriptions in chapter 16 adds its mask first and divides by √d_k afterwards. With −∞
# this makes no difference. With a number that is not large enough it does: −10 becomes −10/8 at
# $d_k = 64$, and a blocked key still gets $e^{-1.25} = 29\%$ of what an allowed key with the same score
# gets:

# %%
scores = torch.zeros(1, 4)
for value in (-10.0, -1e9):
    mask = torch.tensor([[0.0, 0.0, value, value]])
    before, after = ((scores + mask) / 8).softmax(-1), (scores / 8 + mask).softmax(-1)
    print(f"{value:.0e}: added before {before[0, 3]:.3f}, after {after[0, 3]:.5f}")

# %% [markdown]
# ## Which attention needs which mask?
#
# | attention | queries | keys | padding mask of | causal |
# |---|---|---|---|---|
# | encoder, self | source | source | the source | no |
# | decoder, self | target | target | not needed: padding comes last | **yes** |
# | decoder, cross | target | source | **the source** | no |
#
# In cross-attention the queries are target tokens and the keys are source tokens. A mask is about
# keys, so here it must be the padding mask of the source. With that of the target, the shapes
# usually do not fit and you get an error. If source and target happen to be equally long, you get
# none:

# %%
torch.manual_seed(0)
cross = MultiHeadAttention(16, 2)
src_tokens = torch.tensor([[5, 6, 7, EOS, PAD, PAD]])
tgt_tokens = torch.tensor([[8, 9, 10, 11, 12, EOS]])
memory, states = torch.randn(1, 6, 16), torch.randn(1, 6, 16)
noisy = memory.masked_fill((src_tokens == PAD)[..., None], 100.0)  # other padding, same sentence
with torch.no_grad():
    for name, side in {"source": src_tokens, "target": tgt_tokens}.items():
        outputs = [cross(states, m, mask=padding_mask(side)) for m in (memory, noisy)]
        change = (outputs[0] - outputs[1]).abs().max()
        print(f"mask of the {name}: what is in the padding changes the output by {change:.2f}")

# %% [markdown]
# ### Masks of other models
#
# A Transformer for translation needs two masks. Later models use others, nearly all made from the
# same two shapes: a full block and the causal triangle. Each row is a query, and what it may see is
# blue:

# %%
show(mask_gallery(), ALTERNATIVE)

# %% [markdown]
# - A **window** lets each token see only its neighbors; in a decoder, only the last few tokens
#   ([Beltagy et al. 2020](https://arxiv.org/abs/2004.05150)). In a program that skips blocked
#   scores, the work then grows with the length rather than with its square; a boolean mask alone
#   saves nothing. Over several layers, information still travels farther than one window.
# - A **prefix** is read in both directions, and the rest is generated token by token: one stack is
#   encoder and decoder at once ([Raffel et al. 2020](https://arxiv.org/abs/1910.10683)).
# - **Packed** sentences share a row, so that there is little padding; each may see only itself. You
#   write this mask below.
# - **Decoder-only** models continue all texts of a batch at once, so all texts must end in the same
#   column: this is **left padding**. The causal mask then no longer hides the padding, padded
#   queries see nothing at all (NaN, in a softmax by hand), and positions must be counted from the
#   first real token.

# %%
for name, batch in {"padding last": tokens, "padding first": tokens.flip(1)}.items():
    empty = (~decoder_mask(batch).any(dim=-1)).sum()
    hidden_by_causal = (causal_mask(batch.size(1)) & ~decoder_mask(batch)).any(dim=-1)
    of_tokens = (hidden_by_causal[:, 0] & (batch != PAD)).sum()
    print(f"{name:13}: {empty} queries see nothing; {of_tokens} tokens need the padding mask")

# %% [markdown]
# ### Packed sentences
#
# ●●○ · 15 minutes · no padding, and no sentence sees another one
#
# `segments`, (batch, length), holds a number for each position: 1 for the first sentence of the
# row, 2 for the second, and so on, and 0 for padding at the end. Return a mask, (batch, 1, length,
# length): causal within each sentence, nothing across sentences, and no query sees padding.

# %%
def packed_mask(segments):
    ...  # your code


check(packed_mask)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two positions belong together if their numbers are equal: compare the numbers as a column with the
# numbers as a row. To which sentence does padding belong then?
#
# </details>

# %%
packed_mask = mine("packed_mask")
print(as_text(packed_mask(torch.tensor([[1, 1, 1, 2, 2, 3, 0]]))[0, 0]))

# %% [markdown]
# ## A test for leaks
#
# All these mistakes have one thing in common: they raise no error, and the shapes are right. To
# find them, test what must **not** depend on what: change the future, and watch the past.
#
# ### A test that finds a leak
#
# ●●● · 35 minutes · design a test that catches a wrong program
#
# `model` is a function that takes tokens, (batch, length), with values from 0 to 19, and returns
# outputs, (batch, length, d). Return the sorted list of the positions whose output depends on a
# *later* token; for an honest model it is empty. Differences below $10^{-6}$ are rounding errors
# and must not count. Nine dishonest models are waiting in `check`, and not all of them are crude:
# one looks a single token ahead, one leaks at one position only, one in one channel only, and one
# mixes in a thousandth of the mean.

# %%
def leaks(model, length):
    ...  # your code


check(leaks)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which positions would notice if only the last token changed, and which would not? And which
# outputs may change when a token does? With its default tolerances, `torch.allclose` mistakes
# rounding for a leak.
#
# </details>

# %% [markdown]
# Now run the test on four models with the attention that you have written. They differ only in
# their masks:

# %%
leaks, multi_head_attention = mine("leaks"), mine("multi_head_attention")


class LanguageModel(nn.Module):
    """One layer of self-attention that predicts the next token."""

    def __init__(self, mask, vocab_size=20, d_model=32):
        super().__init__()
        self.mask = mask  # a function of the length
        self.embedding = Embedding(vocab_size, d_model, SinusoidalPositions(d_model), dropout=0.0)
        self.matrices = nn.Parameter(torch.randn(4, d_model, d_model) * d_model**-0.5)
        self.output = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        x = self.embedding(tokens)
        mask = self.mask(tokens.size(1))
        return self.output(x + multi_head_attention(x, x, *self.matrices, 2, mask))


MASKS = {
    "lower triangle": causal_mask,
    "upper triangle": lambda n: causal_mask(n).transpose(-2, -1),
    "one too many": lambda n: torch.ones(n, n, dtype=torch.bool).tril(1)[None, None],
    "none": lambda n: None,
}

# %%
for name, mask in MASKS.items():
    torch.manual_seed(0)
    print(f"{name:15} positions that see the future: {leaks(LanguageModel(mask), 8) or 'none'}")

# %% [markdown]
# So the causal mask does not leak, and the other three do. What does a leak do in training? We let
# each of these models predict **random** tokens. There is nothing to learn: the best
# possible loss is ln 20 = 3.0. A model that gets clearly below that has cheated. (Even a cheat does
# not get down to zero: of the eight answers, the last is nowhere in the input, so (ln 20)/8 = 0.37
# is the best that it can reach.)

# %% tags=["nbval-ignore-output"]
def train(mask, seed, steps=300):
    torch.manual_seed(seed)
    model = LanguageModel(mask)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    for _ in range(steps):
        tokens = torch.randint(20, (64, 9))
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


losses = {name: [train(mask, seed) for seed in range(3)] for name, mask in MASKS.items()}
for name, values in losses.items():
    print(f"{name:15} loss", *(f"{loss:.2f}" for loss in values))
print(f"ln 20 = {math.log(20):.2f}, (ln 20)/8 = {math.log(20) / 8:.2f}")
assert min(losses["lower triangle"]) > 2.9 and max(losses["one too many"]) < 2.0, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# The honest model stays at 3.0 with all three seeds. The other three get far below that, and all
# that they have learned is to copy the answer. A model that sees one token too many does as well as
# one that sees everything. On real text a leak is less obvious: there, a loss that is too low looks
# like success.
#
# ## Common mistakes
#
# **Masked after the softmax.** The weights of blocked keys become zero, as they should, but the
# others do not grow to make up for them, so a row adds up to less than 1. The more weight is
# blocked, the smaller the sum:

# %%
weights = (q @ k.mT / math.sqrt(8)).softmax(dim=-1)
afterwards = weights.masked_fill(~allowed, 0.0)
print("masked after: ", afterwards[0, 0].sum(dim=-1).numpy().round(2))
print("masked before:", attention(q, k, v, allowed)[1][0, 0].sum(dim=-1).numpy().round(2))

# %% [markdown]
# Nothing leaks into the output through a weight of zero. But the denominator of the softmax still
# contains the blocked keys, so the size of the remaining weights depends on the future. Does your
# leak test find this? It does:

# %%
table = torch.randn(20, 6)


def leaky(tokens):
    x = table[tokens][:, None]
    weights = (x @ x.mT).softmax(dim=-1).masked_fill(~causal_mask(tokens.size(1)), 0.0)
    return (weights @ x)[:, 0]


print("masked after the softmax: leaks at", leaks(leaky, 6))

# %% [markdown]
# **Queries masked instead of keys.** `(tokens != PAD)[:, None, :, None]` has one axis in the wrong
# place. Padded queries see nothing, which helps nobody, and every real token still sees the
# padding. Other mistakes with masks are in the [list of mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. A mask is boolean, True means “may attend”, and it is about keys. Its shape is (batch, heads,
#    queries, keys), with size 1 where it does not vary.
# 2. Encoder and cross-attention need the source's padding mask; the decoder's self-attention needs
#    the causal one, and no padding mask as long as padding comes last.
# 3. In `nn.Transformer`, True means “blocked”; `~mask` converts.
# 4. −1e9 does not fit into fp16. A fully blocked row is NaN, zero or a mean, depending on the
#    function that computes it; zero is right, and a NaN spreads through the gradient even from an
#    unused row.
# 5. The test that finds leaks: change the future one token at a time, and watch the past. On random
#    data, a loss clearly below the logarithm of the vocabulary size means a leak.
#
# Now you can do **assignment 2**, which asks for attention with other masks.
#
# **In the paper:** section 3.2.3, and the “Masked” in figure 1. **Read on:** the documentation of
# `torch.nn.functional.scaled_dot_product_attention` beside that of `nn.MultiheadAttention`.
#
# **Next:** [8 · Layer norm and batch norm](08_layer_norm_and_batch_norm.ipynb)
