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
# # 2 · From the RNN to attention
#
# Before the Transformer, neural translation was mostly done with recurrent networks. Attention was
# invented for them, to remedy a weakness that you will see for yourself in this chapter. Then the
# Transformer kept the remedy and dropped the patient. By the end you can
#
# - write an LSTM and a sequence-to-sequence model, and show where its bottleneck is,
# - distinguish what a model cannot hold from what it has not learned,
# - write Bahdanau's attention and Luong's, say how they differ, and read an alignment,
# - say what recurrence costs in time and in distance, and what attention costs instead,
# - name cases in which an RNN is cheaper.
#
# Reading takes about forty minutes, running the cells less than one.
#
# **Predict first.** A network reads a string of random letters from an alphabet of eleven, may keep
# only 128 numbers, and then has to write down the same string. After each letter it is told what
# the right letter was. It was trained on strings of 2 to 32 letters. What share of the letters
# will be right in strings of 2, of 8, and of 32?

# %%
import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, check_experiment, mine, solution
from transformer_lib.course.figures.lstm import ALTERNATIVE, lstm_step_drawn
from transformer_lib.course.figures.wirings import seq2seq_wirings
from transformer_lib.course.results import mean_and_spread, over_seeds
from transformer_lib.data.corpora import DataConfig, load_corpus
from transformer_lib.evaluation.alignment import cross_attention
from transformer_lib.model import MultiHeadAttention
from transformer_lib.model.rnn import BahdanauAttention, LuongAttention, reverse_within_length
from transformer_lib.plots.attention import CROSS, attention_heatmap
from transformer_lib.plots.measurements import lines
from transformer_lib.plots.notebook import show
from transformer_lib.course.trained import load_trained
from transformer_lib.timing import fastest

# %% [markdown]
# ## The LSTM
#
# A recurrent network reads a sentence word by word and keeps what it has read in a vector, the
# **state**. At each word it computes the new state from the old one and the word. The LSTM
# (Hochreiter and Schmidhuber 1997; Gers, Schmidhuber and Cummins 2000 added the forget gate) keeps
# two vectors, the state $h$ and the cell $c$. They are controlled by three gates, each with a
# number between 0 and 1 for every **channel** (a channel is one of the numbers in a vector). The
# forget gate $f$ decides how much of the cell to keep, the input gate $i$ how much of a candidate
# $g$ to let in, and the output gate $o$ how much to show. With ⊙ for the product channel by
# channel:
#
# $$\begin{aligned}
# i &= \sigma(W_i x_t + U_i h_{t-1} + b_i) & f &= \sigma(W_f x_t + U_f h_{t-1} + b_f)\\ o &=
# \sigma(W_o x_t + U_o h_{t-1} + b_o) & g &= \tanh(W_g x_t + U_g h_{t-1} + b_g)\\ c_t &= f \odot
# c_{t-1} + i \odot g & h_t &= o \odot \tanh c_t \end{aligned}$$
#
# with $\sigma(x) = 1/(1 + e^{-x})$, the logistic function. In the drawing, the cell is the upper
# line:

# %%
show(lstm_step_drawn(), ALTERNATIVE)

# %% [markdown]
# Nothing but a product and a sum happens to the cell on its way, so what is stored in it can stay
# there for a long time.
#
# ### A step of the LSTM
#
# ●●○ · 20 minutes · what an encoder is made of
#
# PyTorch stacks the four matrices $W$ into one, in the order i, f, g, o, and likewise the four $U$
# and $b$. With d_x for the width of the input and d_h for that of the state, `w` is (4 · d_h, d_x),
# `u` is (4 · d_h, d_h), and `b` is (4 · d_h), the sum of PyTorch's two biases. `x` is (batch, d_x),
# `h` and `c` are (batch, d_h). Return the new `h` and the new `c`.
#
# What passes its `check` is kept in `my_transformer.py` beside this notebook; after a first try,
# `solution("lstm_step")` in a cell of its own shows one way.

# %%
def lstm_step(x, h, c, w, u, b):
    ...  # your code


check(lstm_step)

# %% [markdown]
# <details><summary>Hint</summary>
#
# All four at once: `x @ w.T + h @ u.T + b` has the shape (batch, 4 · d_h), and `chunk(4, dim=-1)`
# cuts it. $\odot$ is the product channel by channel. Which of the four gets a tanh?
#
# </details>

# %% [markdown]
# A loop turns the step into a layer. With the matrices of PyTorch's own layer it must give the same
# states:

# %%
lstm_step = mine("lstm_step")
torch.manual_seed(0)
layer, x = nn.LSTM(8, 8, batch_first=True), torch.randn(3, 5, 8)
weights = layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0 + layer.bias_hh_l0

h = c = torch.zeros(3, 8)
states = []
for x_t in x.unbind(dim=1):  # one after another: each step needs the one before
    h, c = lstm_step(x_t, h, c, *weights)
    states.append(h)
torch.testing.assert_close(torch.stack(states, dim=1), layer(x)[0])
print("the same states as nn.LSTM")

# %% [markdown]
# Note the loop. Step 5 cannot begin before step 4 is done. We will come back to that.
#
# ## Sequence to sequence
#
# [Sutskever et al. 2014](https://arxiv.org/abs/1409.3215) put two LSTMs together. The **encoder**
# reads the source; its last state is all that the **decoder** receives. The decoder begins with
# that state and produces the target token by token, each time reading the token that it produced
# last (in training, the right one instead: chapter 3). This is the first of the three drawings
# below; we will come to the other two soon.

# %%
show(
    seq2seq_wirings(),
    "Three networks that read three words and write two. Sutskever's: the encoder's last state "
    "starts the decoder. Bahdanau's: the decoder's old state is scored against all encoder states, "
    "and the context goes into the next step. Luong's: the new state is scored, and the context "
    "joins it after the step.",
)

# %% [markdown]
# ### From one sequence to the other
#
# ●●○ · 30 minutes · the model that the Transformer replaced
#
# `src`, (batch, src_len), and `tgt_input`, (batch, tgt_len), are tokens without padding;
# `embed(tokens)` returns their vectors, (batch, length, d_model). `encoder_step(x, h, c)` and
# `decoder_step(x, h, c)` are steps like the one you have just written, each with its own weights,
# and return the new `h` and `c`, as wide as `x`. The encoder begins with zeros; the decoder reads
# `tgt_input`, not its own output. Return the scores of all words, the **logits**: the decoder's
# states times `w_out`, (d_model, vocab_size). Their shape is (batch, tgt_len, vocab_size).

# %%
def seq2seq(src, tgt_input, embed, encoder_step, decoder_step, w_out):
    ...  # your code


check(seq2seq)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two loops; the second starts from the states that the first ends with. `tensor.unbind(dim=1)`
# gives one position after another. Collect the decoder's `h` in a list; `torch.stack(…, dim=1)`.
#
# </details>

# %% [markdown]
# ## The bottleneck
#
# Here is the same model as a module, with PyTorch's LSTM, whose loop runs in C++; `attention` is
# for later:

# %%
LETTERS, D = 12, 64  # letter 0 marks the beginning


class Seq2Seq(nn.Module):
    """An LSTM reads, an LSTM writes; with attention if one is given."""

    def __init__(self, attention=None, width=D):
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.attention = attention
        self.output = nn.Linear(2 * width if attention else width, LETTERS)

    def forward(self, src, tgt_input):
        memory, last = self.encoder(self.embedding(src))
        states, _ = self.decoder(self.embedding(tgt_input), last)
        if self.attention is None:
            return self.output(states), None
        no_mask = torch.ones(len(src), 1, 1, src.size(1), dtype=torch.bool)
        context, weights = self.attention(states, memory, no_mask)
        return self.output(torch.cat([states, context], dim=-1)), weights

# %% [markdown]
# The task is the one in the opening question: repeat a string of random letters. Nothing has to be
# understood; everything has to be remembered. (`fused=True` below lets Adam move all parameters in
# one call: the same result, faster.)

# %%
LENGTHS = (2, 4, 8, 12, 16, 24, 32)


def strings(count, length):
    letters = torch.randint(1, LETTERS, (count, length))
    begin = torch.zeros(count, 1, dtype=torch.long)
    return letters, torch.cat([begin, letters[:, :-1]], dim=1)


def train(attention=None, steps=400, width=D, seed=0):
    torch.manual_seed(seed)
    model = Seq2Seq(attention and attention(width), width)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    for step in range(steps):
        src, tgt_input = strings(64, LENGTHS[step % len(LENGTHS)])
        logits, _ = model(src, tgt_input)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), src.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model

# %% tags=["nbval-ignore-output"]
@torch.no_grad()
def accuracy(model, length):
    src, tgt_input = strings(300, length)
    logits, _ = model(src, tgt_input)
    return (logits.argmax(dim=-1) == src).float().mean().item()


bottleneck = train()
without = [accuracy(bottleneck, length) for length in LENGTHS]
for length, share in zip(LENGTHS, without):
    print(f"{length:2} letters: {share:4.0%} right")
assert without[0] > 0.95 and without[-1] < 0.7, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# Compare these shares with your three numbers. And `Seq2Seq` is the model that you have written
# yourself: your two functions, with the weights that PyTorch's layers have just learned, return the
# same logits.

# %%
seq2seq = mine("seq2seq")


def step_of(layer):
    w, u, *biases = layer.parameters()
    return lambda x, h, c: lstm_step(x, h, c, w, u, sum(biases))


src, tgt_input = strings(5, 8)
with torch.no_grad():
    steps = step_of(bottleneck.encoder), step_of(bottleneck.decoder)
    yours = seq2seq(src, tgt_input, bottleneck.embedding, *steps, bottleneck.output.weight.T)
    torch.testing.assert_close(yours + bottleneck.output.bias, bottleneck(src, tgt_input)[0])
print("the same logits")

# %% [markdown]
# Short strings are no problem. The longer the string, the more is lost. Everything that the decoder
# knows about the source has gone through one state and one cell, here 128 numbers together. That is
# the **bottleneck**, and early neural translators had it: their quality fell with the length of the
# sentence ([Cho et al. 2014](https://arxiv.org/abs/1409.1259)).
#
# But is the bottleneck too narrow, or is it only hard to learn to use? These are two different
# faults. A string of 32 letters from an alphabet of eleven holds $32 \log_2 11 = 111$ bits, and 128
# numbers of 32 bits, 4,096 bits in all, could hold many times as much. So let us give the same
# network more training, or more width with the same training, and see which helps.
#
# Here is the share of right letters in strings of 32, as the mean ± the standard deviation of five
# seeds. (`over_seeds` trains each case once per seed. The results come with the course; if you
# change the program, your machine measures them again.)

# %%
def measure(steps, width, seed):
    model = train(None, steps, width, seed)
    return {"2 letters": accuracy(model, 2), "32 letters": accuracy(model, 32)}


runs = over_seeds(
    measure,
    {
        "as above: 400 steps, 128 numbers": [400, 64],
        "four times the steps": [1600, 64],
        "twice the numbers": [400, 128],
    },
    "02_bottleneck",
)
mean_and_spread(runs)

# %% [markdown]
# With four times as many steps, the same 128 numbers give back half of the letters instead of four
# tenths: they were not full. With the same training, more numbers help too, but less. So the
# forgetting is at least in part a failure of training. This does not decide which of the two faults
# a real translator suffers from, but on our strings you can test it in another way.
#
# ### Reading backwards
#
# ●●● · 45 minutes · an experiment: does an easier way to learn widen the bottleneck?
#
# Sutskever et al. had their encoder read every source sentence *backwards*, and this was one of the
# contributions of their paper: the first word of the source is then close to the first word of the
# target, and training soon finds something that helps. The network is the same, with just as many
# numbers; only the learning has become easier. Or has it?
#
# Write your prediction down, and then measure it. Train with the strings as they are and with
# `src.flip(1)` for the encoder, for 400 steps, with at least three seeds each, and measure the
# share of right letters in strings of 16. This takes a minute or two. Make a table with the columns
# `case` ("backwards" or "forwards"), `seed` and `accuracy`. Then conclude: does "backwards" give
# "more" or "less", or are the two "not told apart"?
#
# (A rule of thumb: they are told apart when the means differ by more than twice the standard error
# of their difference, $\sqrt{s_1^2/n_1 + s_2^2/n_2}$, where $s$ is the standard deviation of the
# $n$ seeds of a case. With three seeds each, two cases that are alike pass for different about one
# time in eight. So up to 2.8 standard errors, an answer of “not told apart” counts as right, too.)

# %%
runs, conclusion = ..., ...  # your experiment: a pd.DataFrame, and one of the three conclusions


check_experiment("reading_backwards", runs, conclusion)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Write your own `train_reading(backwards, seed)`, modeled on `train`, and an accuracy that
# flips the source, too: a model that learned to read backwards must be tested that way.
# `rows.append({"case": "backwards", "seed": seed, "accuracy": …})` and `pd.DataFrame(rows)`.
#
# </details>

# %% [markdown]
# ## Attention
#
# A person who translates a long sentence does not memorize it. She looks at it again.
# [Bahdanau et al. 2015](https://arxiv.org/abs/1409.0473) let the decoder do that. The encoder keeps
# *all* its states $s_1, \dots, s_n$, the **memory**. Before each word, the decoder uses its state
# $h$ to give each of them a score, turns the scores into weights that add up to 1, and takes the
# weighted sum of the states, the **context**:
#
# $$e_j = v^\top \tanh(W_1 h + W_2 s_j) \qquad
# \alpha_j = \frac{\exp e_j}{\sum_k \exp e_k} \qquad c = \sum_j \alpha_j s_j$$
#
# The scores come from a small network with a tanh inside, which has to be evaluated for every pair
# of a target word and a source word: it needs a tensor of (tgt_len, src_len, d). [Luong et al.
# 2015](https://arxiv.org/abs/1508.04025) found that a product works at least as well:
#
# $$e_j = h^\top W s_j$$
#
# This takes two matrix products for all pairs together, and no tanh. (Their paper calls it
# “general”. It also tries the product without $W$, “dot”, and a form like Bahdanau's, “concat”.)
#
# The scores are not the only difference, as the drawing above shows. Bahdanau's decoder asks with
# its *old* state, and the context goes *into* the step that makes the new one; his encoder reads in
# both directions. Luong's decoder makes its step first, asks with the *new* state, and joins state
# and context afterwards. (His best models also feed the result into the next step, which he calls
# input feeding; we leave that out, so that attention for all steps can be computed at once.)
#
# A word on letters: here, as in Luong's paper, $h$ is the decoder's state; Bahdanau calls it $s$
# and the encoder's states $h_j$. And $c$, which was the LSTM's cell, is the context from here on.
#
# You will write both scores and Luong's join. Memory and queries come in batches: `query` is
# (batch, queries, d_model), `memory` is (batch, keys, d_model).
#
# ### Luong
#
# ●○○ · 10 minutes · scores by a product
#
# Compute $\text{softmax}(h^\top W s)\,s$ as in Luong's paper, without dividing by $\sqrt d$:
# `query` holds the states h, `memory` the states s, and `weight` is W, (d_model, d_model). `mask`,
# (batch, keys), is True where there is a word and False where there is padding. Return the
# contexts, (batch, queries, d_model), and the weights, (batch, queries, keys).

# %%
def luong_attention(query, memory, weight, mask):
    ...  # your code


check(luong_attention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `query @ weight` is $h^\top W$ for all queries. `masked_fill(~mask[:, None], -torch.inf)` gives
# padding no weight; it has to happen before the softmax.
#
# </details>

# %% [markdown]
# ### Bahdanau
#
# ●○○ · 10 minutes · scores by a small network
#
# The scores are now $v^\top\tanh(W_1 h + W_2 s)$. In code the matrices are on the right: `query @
# w_query` and `memory @ w_memory` have the shape (batch, …, hidden), and `v` is (hidden,). The mask
# and what you return are as before.

# %%
def bahdanau_attention(query, memory, w_query, w_memory, v, mask):
    ...  # your code


check(bahdanau_attention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Every query meets every key: (batch, queries, 1, hidden) + (batch, 1, keys, hidden).
#
# </details>

# %% [markdown]
# ### The attentional state
#
# ●○○ · 10 minutes · where the context enters Luong's decoder
#
# Luong's decoder puts context and state side by side, in this order, and sends them through one
# layer: $\tanh(W[c; h])$. `weight` is (d_model, 2·d_model).

# %%
def attentional_state(state, context, weight):
    ...  # your code


check(attentional_state)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `torch.cat` along the last axis. Which comes first?
#
# </details>

# %% [markdown]
# The library's layers compute the same contexts, except that `LuongAttention` also divides the
# scores by $\sqrt d$ (chapter 5 says why). Its `query.weight` holds $\sqrt d\,W^\top$: transposed,
# because `nn.Linear` multiplies by the transpose of its weight, and times $\sqrt d$ to undo that
# division. The last lines of the cell compute the attentional state, which follows each step of
# Luong's decoder, from random states with your functions:

# %%
luong_attention, bahdanau_attention = mine("luong_attention"), mine("bahdanau_attention")
attentional_state = mine("attentional_state")
torch.manual_seed(0)
library = LuongAttention(D)
h, s = torch.randn(1, 3, D), torch.randn(1, 5, D)
no_mask = torch.ones(1, 1, 1, 5, dtype=torch.bool)
with torch.no_grad():
    W = library.query.weight.T / D**0.5
    context, weights = luong_attention(h, s, W, no_mask[:, 0, 0])
    torch.testing.assert_close(library(h, s, no_mask)[0], context)
    bahdanau = BahdanauAttention(D)
    bahdanau.query.bias.zero_()  # the paper's has none
    parts = bahdanau.query.weight.T, bahdanau.key.weight.T, bahdanau.score.weight[0]
    contexts, _ = bahdanau_attention(h, s, *parts, no_mask[:, 0, 0])
    torch.testing.assert_close(bahdanau(h, s, no_mask)[0], contexts)
print("the same contexts as transformer_lib's")
state = attentional_state(h, context, torch.randn(D, 2 * D) / (2 * D) ** 0.5)
print("state", tuple(h.shape), "and context", tuple(context.shape), "→", tuple(state.shape))

# %% [markdown]
# This is in essence the Transformer's attention: $W^\top h$ is the query, and $s_j$ is both key and
# value. Does it cure the forgetting? We use the same letters and the same training. (To keep the
# model small, state and context go into the output layer as they are, without the tanh.)

# %% tags=["nbval-ignore-output"]
attentive = train(LuongAttention)
with_attention = [accuracy(attentive, length) for length in LENGTHS]
show(
    lines(
        {"without attention": (LENGTHS, without), "with attention": (LENGTHS, with_attention)},
        ("letters in the string", "share of right letters"),
    ),
    "Share of right letters over the length of the string: without attention it falls to below a "
    "half at 32 letters, with attention nearly all are right.",
)
assert with_attention[-1] > without[-1] + 0.2, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# With attention nearly all letters are right even in the longest strings. But after each letter the
# decoder was told what the right one was. When a decoder translates, nobody tells it: it reads what
# it has written. And what if it reads letters drawn at random? Here is the share of right letters
# in strings of 32, with three seeds for each model:

# %%
def by_what_is_read(attended, seed):
    model = train(LuongAttention if attended else None, seed=seed)
    with torch.no_grad():
        src, told = strings(300, 32)
        written = told.clone()
        for place in range(1, 32):
            logits, _ = model(src, written[:, :place])
            written[:, place] = logits[:, -1].argmax(dim=-1)
        reads = {"told": told, "as written": written, "at random": strings(300, 32)[1]}
        right = {name: model(src, read)[0].argmax(dim=-1) == src for name, read in reads.items()}
    return {name: share.float().mean().item() for name, share in right.items()}


runs = over_seeds(
    by_what_is_read,
    {"without attention": [False], "with attention": [True]},
    "02_what_is_read",
    seeds=3,
)
attended = runs[runs["case"] == "with attention"]
assert attended["told"].min() > attended["as written"].max() + 0.1, (
    "not as on our machines: restart the kernel and run all cells"
)
mean_and_spread(runs)

# %% [markdown]
# When they read what they have written, both models go on from their own mistakes, and get fewer
# letters right than when they are told. With attention the state need not remember the string; the
# letters are looked up. You can see this in the weights. There is a row for each letter written,
# and a column for each letter read:

# %% tags=["nbval-ignore-output"]
src, tgt_input = strings(1, 12)
with torch.no_grad():
    _, weights = attentive(src, tgt_input)
letters = ["?ABCDEFGHIJK"[letter] for letter in src[0]]
assert (weights[0].argmax(dim=-1) == torch.arange(12)).float().mean() > 0.5, (
    "not as on our machines: restart the kernel and run all cells"
)
show(
    attention_heatmap(weights[0], letters, letters, ("writes", "looks at")),
    "Heat map of 12 letters written against 12 letters read: most of the weight lies near the "
    "diagonal.",
)

# %% [markdown]
# The training data never said where to look. Looking at letter 7 while writing letter 7 is one way
# to get it right, and gradient descent finds it. How does the model know its place? Not by
# counting: when it reads random letters it loses its place, as the table shows. So it seems to find
# the place by the letters that it has just read.
#
# ## An alignment
#
# Now a real sentence. Which word of the source does each word of the translation belong to? The
# course comes with a trained LSTM, 192 channels wide, that has Bahdanau's scores in Luong's wiring.
# (It was trained on the sentence pairs of chapter 1. Its encoder reads in both directions, and its
# decoder starts from a learned projection of the memory's mean, not from a last state.) In this
# example, German puts the participle at the end:

# %%
trained = load_trained("rnn")
sentence = "I have already read the book."
(said,) = trained.translate([sentence])
weights, tgt_pieces, src_pieces = cross_attention(
    trained.model, trained.tokenizer, sentence, said
)
show(
    attention_heatmap(weights[0, 0], tgt_pieces, src_pieces, CROSS),
    f"Attention of the RNN from “{said}” to “{sentence}”: Buch looks at book, gelesen at read.",
)
print(sentence, "→", said)

# %% [markdown]
# Read it row by row. *Buch* looks at *book*, *schon* at *already*. *gelesen*, at the end of the
# German sentence, looks at *read* in the middle of the English one: the alignment leaves the
# diagonal because the two word orders differ. *habe* looks at *read* as well, perhaps because the
# verb decides whether German says *habe* or *bin*; one sentence cannot tell us.
#
# And *Ich* looks at `</s>`, not at *I*. At the first step the decoder starts from a summary of the
# whole sentence (the mean of the memory), which may already say that the sentence begins with *I*.
# The attention shows where the model got *additional* information, not where each word comes from.
# Chapter 5 returns to that.
#
# ## The way from one word to another
#
# In an LSTM, what the last state knows about the first word has passed through every state between
# them, and each forget gate has taken a share of it. In training the gradient has to go the same
# way back. How much of it arrives? We ask how strongly the last output of a layer depends on the
# input $k$ positions earlier. We compare five layers:
#
# - a fresh LSTM with PyTorch's initialization,
# - two more with 1 and with 2 added to the bias of the forget gates ([Jozefowicz et al.
#   2015](https://proceedings.mlr.press/v37/jozefowicz15.html) recommend 1),
# - the left-to-right half of the trained encoder above, which reads test sentences one after
#   another,
# - a fresh layer of self-attention.

# %%
def influence(layer, x):
    """Norm of the last output's gradient with respect to each input, last to first."""
    x = x.clone().requires_grad_()
    y = layer(x)
    y = y[0] if isinstance(layer, nn.LSTM) else y
    (gradient,) = torch.autograd.grad((y[:, -1] * torch.randn(y[:, -1].shape)).sum(), x)
    return gradient.norm(dim=-1).mean(dim=0).flip(0).tolist()


def fresh_lstm(forget_bias):
    torch.manual_seed(0)
    layer = nn.LSTM(64, 64, batch_first=True)
    with torch.no_grad():
        layer.bias_hh_l0[64:128] += forget_bias  # the second block: f
    return layer


sources = load_corpus(DataConfig()).test.sources
tokens = [token for row in trained.tokenizer.encode(sources) for token in row]
with torch.no_grad():
    text = trained.model.src_embedding(torch.tensor(tokens[: 32 * 65]).view(32, 65))
    text = text * trained.model.scale  # √d_model, as the model itself multiplies

# %%
noise = torch.randn(32, 65, 64)
influences = {
    f"LSTM, forget bias +{bias}": influence(fresh_lstm(bias), noise) for bias in (0, 1, 2)
}
influences["trained LSTM"] = influence(trained.model.encoder.forwards, text)
influences["self-attention"] = influence(MultiHeadAttention(64, num_heads=4), noise)
distances = [1, 2, 4, 8, 16, 32]
show(
    lines(
        {
            name: (distances, [values[k] / values[1] for k in distances])
            for name, values in influences.items()
        },
        ("distance k (words)", "gradient that arrives (at distance 1: 1)"),
        logarithmic="xy",
    ),
    "The gradient over the distance: in a fresh LSTM it falls steeply, with larger forget biases "
    "less so, in the trained one by about a sixth per word, in self-attention it stays the same.",
)
for name, values in influences.items():
    print(f"{name:20} per word, from 1 to 32: × {(values[32] / values[1]) ** (1 / 31):.2f}")
assert influences["LSTM, forget bias +0"][32] < 1e-4 * influences["LSTM, forget bias +0"][1], (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# In a fresh LSTM four tenths of the influence are lost with every word, and next to nothing arrives
# from 32 words away. That is a matter of initialization, though: with 1 added to the bias of the
# forget gates a fifth is lost per word, with 2 less than a tenth, and in the trained translator
# about a sixth (here on sentences read one after another, longer than any text that it met in
# training). What remains is that in an LSTM a long path has to be *kept open*, channel by channel,
# while in self-attention every word is one step away, near or far. The paper's table 1 calls this
# the **maximum path length**: $O(n)$ against $O(1)$.
#
# ## Time
#
# The loop has another price: the $n$ steps of an LSTM have to run one after another.
# Self-attention computes all positions at once, in a few large products. But it compares every word
# with every word. The table counts the operations of the forward pass for one layer of width $d$
# and a sentence of $n$ words. A multiplication and the addition after it count as two operations.
# The Transformer layer is one of the encoder, with a feed-forward network of width $4d$.
#
# | | LSTM | self-attention | a whole Transformer layer |
# |---|---|---|---|
# | operations | $16\,nd^2$ | $8\,nd^2 + 4\,n^2d$ | $24\,nd^2 + 4\,n^2d$ |
# | one after another | $n$ steps | 1 step | 1 step |
# | path between two words | up to $n$ | 1 | 1 |
#
# So for short sentences the attention *sublayer* does half the work of the LSTM, and for texts
# longer than $n = 2d$ it does more. With the feed-forward network that follows it (chapter 10), a
# layer of the Transformer never takes fewer operations than the LSTM. Now by the clock: here is one
# training step, forward and backward, of a layer of 256 channels for 8 sentences:

# %%
def training_step(layer, x):
    y = layer(x)
    (y[0] if isinstance(layer, nn.LSTM) else y).sum().backward()


lstm_layer, attention_layer = nn.LSTM(256, 256, batch_first=True), MultiHeadAttention(256, 4)

# %% tags=["nbval-ignore-output"]
lengths = (16, 32, 64, 128, 256, 512, 1024)
times = {"LSTM": [], "self-attention": []}
for length in lengths:
    x = torch.randn(8, length, 256)
    for name, layer in {"LSTM": lstm_layer, "self-attention": attention_layer}.items():
        times[name].append(1000 * fastest(lambda: training_step(layer, x)))
show(
    lines(
        {name: (lengths, values) for name, values in times.items()},
        ("words in the sentence", "a training step on this machine (ms)"),
        logarithmic="xy",
    ),
    "Time of a training step over the length: self-attention is more than twice as fast for short "
    "sentences, and the lines cross at several hundred words.",
)
ratios = [a / b for a, b in zip(times["LSTM"], times["self-attention"])]
print("LSTM / self-attention:", ", ".join(f"{n}: {r:.1f}" for n, r in zip(lengths, ratios)))
assert min(ratios) > 0, "nothing was measured: run this cell again"

# %% [markdown]
# By the count, the two lines should meet at $n = 2d = 512$. When this page was written, on two CPU
# cores, the LSTM took more than twice as long for sentences of 16 words, and the lines met between
# 512 and 1024. A CPU is where the LSTM suffers least, since a single step is enough to keep two
# cores busy. On a device with thousands of cores, most of them wait while the LSTM takes step after
# step; that is the argument of the paper's introduction.
#
# ## Where the RNN is cheaper
#
# - **Operations**: beyond $n = 2d$ an LSTM layer does less work than the attention sublayer, and it
#   always does less than a whole Transformer layer. The difference grows with the length of the
#   text.
# - **Decoding**: the state of an LSTM has the same size at every step. A Transformer keeps the keys
#   and values of all tokens so far (chapter 12), and looks at all of them for each new one. Here
#   are the numbers for one layer of 512 channels, without the memory of the source, which both
#   keep:

# %%
rows = []
for length in (10, 100, 1000, 10_000):
    rows.append([f"{length:,}", f"{2 * 512:,}", f"{2 * 512 * length:,}"])
columns = ["tokens so far", "LSTM keeps", "self-attention keeps"]
pd.DataFrame(rows, columns=columns).set_index("tokens so far")

# %% [markdown]
# Is the RNN also better where there is little time to train? That depends on the sizes of the
# models, and on how little time there is. `make train-demo` trains an LSTM and a Transformer with
# about the same number of parameters for three minutes each on two CPU cores. In five of the seven
# runs recorded in the project's file `benchmarks/RESULTS.md`, the Transformer was ahead, by 1.0 to
# 1.7 BLEU; in the other two, one with a slower version of the program and one on an older
# processor, the LSTM was ahead, by 1.2 and 0.8. Chapter 15 compares two models that are equally
# *wide*: there the LSTM is smaller and faster, and it is ahead in the first minutes, until the
# curves cross.
#
# ## Common mistakes
#
# **The backward direction reads padding first.** Many encoders also read backwards. In a batch,
# short sentences are padded at the end; reversed as a whole, they *begin* with padding, and the
# LSTM arrives at the last word, which it should read first, with a state full of padding. Reverse
# each sentence within its own length:

# %%
torch.manual_seed(0)
backwards = nn.LSTM(4, 4, batch_first=True)
sentence = torch.randn(1, 3, 4)
padded = torch.cat([sentence, torch.zeros(1, 2, 4)], dim=1)
with torch.no_grad():
    alone = backwards(sentence.flip(1))[0].flip(1)
    naive = backwards(padded.flip(1))[0].flip(1)[:, :3]
    lengths = torch.tensor([3])
    states = backwards(reverse_within_length(padded, lengths))[0]
    careful = reverse_within_length(states, lengths)[:, :3]
print(f"flipped as a whole:     states differ by {(naive - alone).abs().max():.2f}")
print(f"within its own length:  states differ by {(careful - alone).abs().max():.2f}")

# %% [markdown]
# Flipped as a whole, the same sentence would be translated differently depending on what else is in
# its batch.
#
# **Attention to padding.** Attention has the same problem: whatever is not masked gets a share.
# Half of this memory is padding, and a fresh attention layer gives nearly half of its weight to it:

# %%
memory = torch.cat([torch.randn(1, 4, D), torch.zeros(1, 4, D)], dim=1)
no_mask = torch.ones(1, 1, 1, 8, dtype=torch.bool)
real = torch.arange(8) < 4
with torch.no_grad():
    for name, mask in {"no mask": no_mask, "masked": real.view(1, 1, 1, 8)}.items():
        _, weights = library(torch.randn(1, 1, D), memory, mask)
        print(f"{name:8} weight on padding: {weights[0, 0, 4:].sum():.0%}")

# %% [markdown]
# One test catches both mistakes: a sentence alone and the same sentence in a batch with longer ones
# must give the same result. Other mistakes are in the [list of
# mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. Without attention, everything that a decoder knows about the source has gone through one state
#    of fixed size. What gets lost was not necessarily too much for the state; it may only have been
#    too hard to learn to keep.
# 2. Attention keeps all encoder states and mixes them anew for each target word: scores, softmax,
#    weighted sum. Bahdanau's decoder asks before its step and scores with a small network; Luong's
#    asks after its step and scores with a product.
# 3. Alignments are learned without being shown: looking at the right source word helps to predict
#    the right target word, and training finds that out.
# 4. In an LSTM two words are up to n steps apart, every gate on the way has to keep the path open,
#    and the n steps cannot run at once. In self-attention any two words are one step apart.
# 5. For texts longer than $2d$ words an LSTM layer does less work than an attention sublayer, and
#    its memory while decoding does not grow.
#
# In **assignment 5** you train a Transformer and an RNN with attention on the same text.
#
# **In the paper:** sections 1, 2 and 4, and table 1. **Read on:** Bahdanau et al. 2015, sections 3
# and 5; Wu et al. 2016 (GNMT) for what such models became; Gu and Dao 2023 (Mamba) for how
# recurrence came back.
#
# **Next:** [3 · Tokens and embeddings](03_tokens_and_embeddings.ipynb)
