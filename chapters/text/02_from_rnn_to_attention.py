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
# Before the Transformer, recurrent networks translated. Attention was invented for them, to mend a
# weakness that you will see with your own eyes in this chapter. Then the Transformer kept the
# remedy and dropped the patient. Afterwards you can
#
# - build an LSTM and a sequence-to-sequence model, and show where its bottleneck is,
# - write the attention of Bahdanau and that of Luong, and read an alignment,
# - say what recurrence costs in time and in distance, and what attention costs instead,
# - name cases in which the RNN is the cheaper one.
#
# Reading takes about forty minutes, computing less than one.
#
# **Predict first.** A network reads a row of random letters (eleven different ones), keeps 128
# numbers of it, and then has to write the same row down. It was trained on rows of 2 to 32 letters.
# What share of the letters will be right in rows of 2, of 8, and of 32?

# %%
import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, solution
from transformer_lib.evaluation.alignment import cross_attention
from transformer_lib.course.misconceptions.bank import wrong_answers
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
# (Hochreiter and Schmidhuber 1997) keeps two vectors, the state $h$ and the cell $c$, and decides
# by three gates, numbers between 0 and 1 for each channel, what to forget ($f$), what to let in
# ($i$) and what to show ($o$):
#
# $$\begin{aligned}
# i &= \sigma(W_i x_t + U_i h_{t-1} + b_i) & f &= \sigma(W_f x_t + U_f h_{t-1} + b_f)\\ o &=
# \sigma(W_o x_t + U_o h_{t-1} + b_o) & g &= \tanh(W_g x_t + U_g h_{t-1} + b_g)\\ c_t &= f \odot
# c_{t-1} + i \odot g & h_t &= o \odot \tanh c_t
# \end{aligned}$$
#
# PyTorch keeps the four matrices $W$ in one, and the four $U$ in another.

# %%
def lstm(x, lstm_layer):
    """All states h of a sequence x (length, d), with the matrices of an nn.LSTM."""
    W, U = lstm_layer.weight_ih_l0, lstm_layer.weight_hh_l0
    b = lstm_layer.bias_ih_l0 + lstm_layer.bias_hh_l0
    h = c = torch.zeros(U.size(1))
    states = []
    for x_t in x:  # one after another: each step needs the one before
        i, f, g, o = (W @ x_t + U @ h + b).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return torch.stack(states)


torch.manual_seed(0)
layer, x = nn.LSTM(8, 8, batch_first=True), torch.randn(5, 8)
torch.testing.assert_close(lstm(x, layer), layer(x[None])[0][0])
print("the same states as nn.LSTM")

# %% [markdown]
# Note the loop. Step 5 cannot begin before step 4 is done. We come back to that.
#
# ## Sequence to sequence
#
# [Sutskever et al. 2014](https://arxiv.org/abs/1409.3215) put two of them together. The **encoder**
# reads the source; its last state is all that the **decoder** gets to know. The decoder begins with
# that state and says the target token by token, reading its own last word each time (in training:
# the right one, chapter 3).

# %%
LETTERS, D = 12, 64  # letter 0 is the sign to begin


class Seq2Seq(nn.Module):
    """An LSTM reads, an LSTM writes; with attention if one is given."""

    def __init__(self, attention=None):
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, D)
        self.encoder = nn.LSTM(D, D, batch_first=True)
        self.decoder = nn.LSTM(D, D, batch_first=True)
        self.attention = attention
        self.output = nn.Linear(2 * D if attention else D, LETTERS)

    def forward(self, src, tgt_input):
        memory, last = self.encoder(self.embedding(src))
        states, _ = self.decoder(self.embedding(tgt_input), last)
        if self.attention is None:
            return self.output(states), None
        everything = torch.ones(len(src), 1, 1, src.size(1), dtype=torch.bool)
        context, weights = self.attention(states, memory, everything)
        return self.output(torch.cat([states, context], dim=-1)), weights

# %% [markdown]
# The task of the opening question: random letters, to be repeated. Nothing has to be understood,
# everything has to be remembered. (`fused=True` below lets Adam move all parameters in one call: the
# same numbers, sooner.)

# %%
LENGTHS = (2, 4, 8, 12, 16, 24, 32)


def rows_of_letters(count, length):
    letters = torch.randint(1, LETTERS, (count, length))
    begin = torch.zeros(count, 1, dtype=torch.long)
    return letters, torch.cat([begin, letters[:, :-1]], dim=1)


def train(attention, steps=400):
    torch.manual_seed(0)
    model = Seq2Seq(attention and attention(D))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    for step in range(steps):
        src, tgt_input = rows_of_letters(64, LENGTHS[step % len(LENGTHS)])
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
    src, tgt_input = rows_of_letters(300, length)
    logits, _ = model(src, tgt_input)
    return (logits.argmax(dim=-1) == src).float().mean().item()


bottleneck = train(None)
without = [accuracy(bottleneck, length) for length in LENGTHS]
for length, share in zip(LENGTHS, without):
    print(f"{length:2} letters: {share:4.0%} right")
assert without[0] > 0.95 and without[-1] < 0.7, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# Short rows are no problem. The longer the row, the more is lost. (Longer training moves the limit,
# slowly: with 2,400 steps we measured 55% at 32 letters.) 128 numbers hold what they hold,
# whether the row has two letters or thirty-two. That is the **bottleneck**. Early neural
# translators had it: their quality fell with the length of the sentence ([Cho et al.
# 2014](https://arxiv.org/abs/1409.1259)).
#
# ## Attention
#
# A person who translates a long sentence does not learn it by heart. She looks at it again.
# [Bahdanau et al. 2015](https://arxiv.org/abs/1409.0473) let the decoder do that. The encoder keeps
# *all* its states $s_1, \dots, s_n$, the **memory**. Before each word, the decoder with its state
# $h$ gives every one of them a score, turns the scores into shares that add up to 1, and takes the
# mixture of the states with these shares, the **context**:
#
# $$e_j = v^\top \tanh(W_1 h + W_2 s_j) \qquad
# \alpha_j = \frac{\exp e_j}{\sum_k \exp e_k} \qquad c = \sum_j \alpha_j s_j$$

# %%
def bahdanau(h, s, W_1, W_2, v):
    """h: (tgt_len, d), s: (src_len, d); the contexts and the weights."""
    hidden = torch.tanh((h @ W_1.T)[:, None] + (s @ W_2.T)[None])  # (tgt_len, src_len, d)
    weights = (hidden @ v).softmax(dim=-1)
    return weights @ s, weights


torch.manual_seed(0)
library = BahdanauAttention(D)
h, s = torch.randn(3, D), torch.randn(5, D)
everything = torch.ones(1, 1, 1, 5, dtype=torch.bool)
with torch.no_grad():
    library.query.bias.zero_()
    context, weights = bahdanau(
        h, s, library.query.weight, library.key.weight, library.score.weight[0]
    )
    torch.testing.assert_close(library(h[None], s[None], everything)[0][0], context)
print("the same contexts as transformer_lib's")

# %% [markdown]
# The scores come from a little network with a tanh inside, and it has to be computed for every pair
# of a target word and a source word: a tensor of (tgt_len, src_len, d). [Luong et al.
# 2015](https://arxiv.org/abs/1508.04025) found that a product does as well:
#
# $$e_j = h^\top W s_j$$
#
# This is one matrix product for all pairs, and no tanh. The library divides by $\sqrt d$ as well
# (chapter 5 says why):

# %%
def luong(h, s, W):
    scores = (h @ W.T) @ s.T / D**0.5
    weights = scores.softmax(dim=-1)
    return weights @ s, weights


library = LuongAttention(D)
with torch.no_grad():
    context, weights = luong(h, s, library.query.weight)
    torch.testing.assert_close(library(h[None], s[None], everything)[0][0], context)
print("the same contexts as transformer_lib's")

# %% [markdown]
# You have just met the attention of the Transformer: $Wh$ is the query, $s_j$ is key and value at
# once. Does it cure the forgetfulness? The same letters, the same training:

# %% tags=["nbval-ignore-output"]
attentive = train(LuongAttention)
with_attention = [accuracy(attentive, length) for length in LENGTHS]
show(
    lines(
        {"without attention": (LENGTHS, without), "with attention": (LENGTHS, with_attention)},
        ("letters in the row", "share of right letters"),
    ),
    "Share of right letters over the length of the row: without attention it falls to below a half "
    "at 32 letters, with attention nearly all are right.",
)
assert with_attention[-1] > without[-1] + 0.2, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# Compare with your three numbers. With attention even the longest rows come out nearly right. The
# state has to remember no more than how far it has come; the letters are looked up. One can see it
# do so: a row for each letter that is written, a column for each that was read.

# %% tags=["nbval-ignore-output"]
src, tgt_input = rows_of_letters(1, 12)
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
# Nobody told it where to look. That it has to look at letter 7 when it writes letter 7 was the
# cheapest way to get the letter right.
#
# ## An alignment
#
# Now a real sentence. An LSTM with Bahdanau's attention, 192 channels wide, comes trained with the
# course (on the 48,000 sentence pairs of chapter 1). German puts the participle to the end:

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
# diagonal, because the languages do. *habe* looks at *read* as well, and has reason to: whether
# German says *habe* or *bin* depends on the verb.
#
# And *Ich* looks at `</s>`, not at *I*. At the first step the decoder starts from a summary of the
# whole sentence (the mean of the memory), which knows already that it begins with *I*. The
# attention shows where the model got *additional* information, not where each word comes from.
# Chapter 5 returns to that.
#
# ## The way from one word to another
#
# In an LSTM, what the last word is to know about the first one has gone through every state between
# them, and each forget gate has taken a share of it. In training the gradient has to go the same
# way back. How much of it arrives? We take a fresh LSTM layer and a fresh layer of self-attention,
# in which every word looks at every word, and ask how strongly the last output depends on the input
# $k$ places before:

# %%
def influence(layer, length=65, d=64):
    """Norm of the gradient of the last output by each input, from the last to the first."""
    torch.manual_seed(0)
    x = torch.randn(32, length, d, requires_grad=True)
    y = layer(x)
    y = y[0] if isinstance(layer, nn.LSTM) else y
    (gradient,) = torch.autograd.grad((y[:, -1] * torch.randn(32, d)).sum(), x)
    return gradient.norm(dim=-1).mean(dim=0).flip(0).tolist()


torch.manual_seed(0)
influences = {
    "LSTM": influence(nn.LSTM(64, 64, batch_first=True)),
    "self-attention": influence(MultiHeadAttention(64, num_heads=4)),
}

# %%
distances = [1, 2, 4, 8, 16, 32, 64]
show(
    lines(
        {name: (distances, [values[k] for k in distances]) for name, values in influences.items()},
        ("distance k (words)", "gradient that arrives"),
        logarithmic="xy",
    ),
    "The gradient over the distance: that of the LSTM falls by fourteen powers of ten from 1 to 64 "
    "words, that of self-attention stays the same.",
)
assert influences["LSTM"][32] < 1e-5 < 1e-2 < influences["self-attention"][64], (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# In the LSTM the influence is halved with every word, and after 32 words it is a ten-millionth. (It
# is an untrained one; training can open the forget gates and widen the reach, but first it has to
# notice that there is something to reach.) In self-attention every word is one step away, near or
# far. The paper's table 1 calls this the **maximum path length**: $O(n)$ against $O(1)$.
#
# ## Time
#
# The other price of the loop: the $n$ steps of an LSTM have to run one after another.
# Self-attention computes all positions at once, in a few large products. But it compares every word
# with every word. Counted for one layer of width $d$ and a sentence of $n$ words:
#
# | | LSTM | self-attention |
# |---|---|---|
# | operations | $16\,nd^2$ | $8\,nd^2 + 4\,n^2d$ |
# | one after another | $n$ steps | 1 step |
# | path between two words | up to $n$ | 1 |
#
# So self-attention does half of the work for short sentences, and more than the LSTM for texts
# longer than $n = 2d$. Now with a clock. One training step, forwards and backwards, of a layer of
# 256 channels for 8 sentences:

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
    "Time of a training step over the length: self-attention is about twice as fast for short "
    "sentences; towards a thousand words its line meets that of the LSTM.",
)
ratios = [a / b for a, b in zip(times["LSTM"], times["self-attention"])]
print("LSTM / self-attention:", ", ".join(f"{n}: {r:.1f}" for n, r in zip(lengths, ratios)))
assert min(ratios) > 0, "nothing was measured: run this cell again"

# %% [markdown]
# When this page was written, on two CPU cores, the LSTM took more than twice as long for sentences
# of 16 words, and about as long as self-attention at 1024. A CPU is the place where the LSTM
# suffers least: two cores are kept busy by one step of it. A GPU has thousands of cores, and while
# the LSTM takes step after step, most of them wait. That, and not the number of operations, is why
# the Transformer could be trained on so much more text.
#
# ## Where the RNN is the cheaper one
#
# - **Long texts**: from $n = 2d$ on it does less work, and the more so the longer the text.
# - **Decoding**: the state of an LSTM has the same size at every step. A Transformer keeps the keys
#   and values of all tokens so far (chapter 12), and looks at all of them for each new one:

# %%
rows = []
for length in (10, 100, 1000, 10_000):
    rows.append([f"{length:,}", f"{2 * 512:,}", f"{2 * 512 * length:,}"])
pd.DataFrame(rows, columns=["tokens so far", "LSTM keeps", "self-attention keeps"])

# %% [markdown]
# - **Little data and little time**: on the bundled text, three minutes of training on two CPU cores
#   bring the LSTM nearly as far as the Transformer. Chapter 15 puts both on equal terms and shows
#   where their curves cross.
#
# ## Common mistakes
#
# **The backward direction reads padding first.** Encoders read in both directions. In a batch,
# short sentences are padded at the end; reversed as a whole, they *begin* with padding, and the
# LSTM comes to the sentence with a state full of it. Reverse each sentence within its own length:

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
# So a sentence would be translated differently depending on who else is in its batch.
#
# **Attention to padding.** The same with the attention: what is not masked gets a share. Half of
# this memory is padding, and a fresh attention gives nearly half of its weight to it:

# %%
memory = torch.cat([torch.randn(1, 4, D), torch.zeros(1, 4, D)], dim=1)
everything = torch.ones(1, 1, 1, 8, dtype=torch.bool)
real = torch.arange(8) < 4
with torch.no_grad():
    for name, mask in {"no mask": everything, "masked": real.view(1, 1, 1, 8)}.items():
        _, weights = library(torch.randn(1, 1, D), memory, mask)
        print(f"{name:8} weight on padding: {weights[0, 0, 4:].sum():.0%}")

# %% [markdown]
# A test that catches both: a sentence alone and the same sentence in a batch with longer ones must
# give the same result. What else goes wrong:

# %%
for exercise in ("luong_attention", "bahdanau_attention"):
    for mistake in wrong_answers(exercise):
        if list(mistake.answers) == [exercise]:
            print(f"{mistake.id:5}{mistake.title}")

# %% [markdown]
# ## Your turn
#
# What passes its `check` is kept in `my_transformer.py` beside this notebook. After a first try,
# `solution("luong_attention")` in a cell of its own shows one way.
#
# Memory and queries come in batches now: `query` is (batch, queries, d_model), `memory` is (batch,
# keys, d_model), and `mask`, (batch, keys), is True where a key is a real token. Both functions
# return the contexts and the weights.
#
# ### Luong
#
# ●○○ · 10 minutes · scores by a product
#
# $\text{softmax}(h^\top W s)\,s$, as in Luong's paper, without a root: `query` holds the states h,
# `memory` the states s. `mask`, (batch, keys), is True where a word stands and False where padding
# does. Return the contexts, (batch, queries, d_model), and the weights, (batch, queries, keys).

# %%
def luong_attention(query, memory, weight, mask):
    ...  # your code


check(luong_attention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `query @ weight` is $h^\top W$ for all queries. `masked_fill(~mask[:, None], -torch.inf)` gives
# padding no chance; it has to happen before the softmax.
#
# </details>
#
# ### Bahdanau
#
# ●○○ · 10 minutes · scores by a small network
#
# $v^\top\tanh(W_1 h + W_2 s)$, with matrices that stand on the right: `query @ w_query` and
# `memory @ w_memory` have the shape (batch, …, hidden). The mask and what you return are as before.

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
#
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
# `torch.cat` along the last axis. Who comes first?
#
# </details>
#
# ## Summary
#
# 1. An RNN squeezes a sentence into a state of fixed size; what does not fit is lost.
# 2. Attention keeps all encoder states and mixes them anew for each target word: scores, softmax,
#    weighted sum. Bahdanau scores with a small network, Luong with a product.
# 3. Alignments are learnt by themselves, because looking at the right word is the cheapest way to
#    say the right one.
# 4. Between two words lie up to n steps of an LSTM, and one of self-attention, for the gradient
#    too; and those n steps cannot run at once.
# 5. For texts longer than 2d, and for memory while decoding, the RNN is the cheaper one.
#
# **In the paper:** sections 1, 2 and 4, and table 1. **Read on:** Bahdanau et al. 2015, sections 3
# and 5; Wu et al. 2016 (GNMT) for what such models became; Gu and Dao 2023 (Mamba) for how they
# came back.
#
# **Next:** [3 · Tokens and embeddings](03_tokens_and_embeddings.ipynb)
