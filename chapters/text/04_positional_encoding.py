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
# # 4 · Positional encoding
#
# Attention treats a sentence as a bag of words. In this chapter you see this for yourself, give the
# words their positions, and find out what the famous sines and cosines are good for. Afterwards you
# can
#
# - show that attention alone does not know the order of words,
# - build the sinusoidal encoding and say what each of its channels does,
# - explain why a shift by k positions is a rotation, and check it,
# - recognize a wrong encoding by its picture.
#
# Reading takes about forty minutes, running the cells less than one.
#
# **Predict first.** Three small models learn the same game on sequences of 16 tokens: from the
# fourth token on, say which token came three places earlier. One gets sinusoids, one learns a
# vector for each position, and one gets no positions at all. Then the sequences grow to 32 tokens.
# What share of the answers does each model get right up to position 15 (we count from 0, so this is
# the last position of the short sequences), and what share beyond it? Write six numbers down. (The
# result surprised us too.)

# %%
import math

import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, check_experiment, mine, solution
from transformer_lib.course.lineages.niutensor import timing_signal
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.course.results import mean_and_spread, over_seeds
from transformer_lib.model import (
    Embedding,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    SinusoidalPositions,
    sinusoidal_positions,
)
from transformer_lib.plots.notebook import show, show_chart
from transformer_lib.course.figures.positions import (
    accuracy_by_position,
    position_tables,
    similarity_map,
    wave_explorer,
)

# %% [markdown]
# ## Attention does not see order
#
# In self-attention each word puts a question to all words, itself included, and collects their
# answers (chapter 5 takes this apart). Nothing in this says which word is where. Take two sentences
# that mean very different things but consist of the same words:

# %%
torch.manual_seed(4)
words = ["the", "dog", "bites", "the", "man"]
vector = {word: torch.randn(16) for word in dict.fromkeys(words)}
attend = MultiHeadAttention(d_model=16, num_heads=2)


def understand(sentence):
    """What self-attention makes of each word of a sentence, without positions."""
    x = torch.stack([vector[word] for word in sentence])
    with torch.no_grad():
        return attend(x[None])[0]


one = understand(["the", "dog", "bites", "the", "man"])
other = understand(["the", "man", "bites", "the", "dog"])
print("bites, in both sentences:", one[2, :4].numpy().round(3), other[2, :4].numpy().round(3))
torch.testing.assert_close(one[1], other[4])
print("dog becomes the same vector, at place 1 and at place 4")

# %% [markdown]
# Who bites whom makes no difference: *bites* becomes the same vector in both, and so does *dog*,
# wherever it occurs. (Up to rounding: the sums are taken in a different order.) Shuffle a sentence
# in any way, and the results are shuffled in the same way; nothing else changes. Attention is said
# to be **permutation-equivariant**.
#
# So the position of a word has to be written into its vector. How?

# %% [markdown]
# ## A number for each place?
#
# The first idea, adding the position itself (0, 1, 2, …, 500), swamps the word, whose vector has
# numbers around 1. Dividing by the sentence's length makes “one place further on” mean something
# different in each sentence. What we want is a vector for each position that
#
# 1. stays as small as a word's vector, however long the sentence,
# 2. is different for every position,
# 3. makes “k places further on” mean the same thing everywhere.
#
# Computers count with small numbers too: with bits. The last bit changes at every step, the one
# before it at every second step, the one before that at every fourth. Each bit is a wave and, from
# the last bit to the first, each wave is twice as long as the previous one.

# %%
positions = torch.arange(32)
bits = torch.stack([(positions >> k) & 1 for k in range(5)], dim=1).float() * 2 - 1
sines = sinusoidal_positions(32, 26)[:, 0:10:2]
show(
    position_tables({"bits of the position (±1)": bits, "five sines, for d_model = 26": sines}),
    "Left: the bits of the numbers 0 to 31 as columns of ever longer waves. Right: sines, "
    "each about twice as long as the one before, that do the same smoothly.",
)

# %% [markdown]
# (With 26 channels each of the paper's waves is $10000^{1/13} = 2.03$ times as long as the one
# before, so about twice; with 512 it is 1.04 times.) Bits satisfy requirements 1 and 2, but not 3,
# because they jump: from 15 to 16 five bits change at once, from 16 to 17 only one. The paper takes
# smooth waves instead, a sine and a cosine of each length.
#
# ## The formula
#
# Section 3.5 of the paper:
#
# $$PE_{(pos,\,2i)} = \sin\frac{pos}{10000^{2i/d_{model}}} \qquad
# PE_{(pos,\,2i+1)} = \cos\frac{pos}{10000^{2i/d_{model}}}$$
#
# Channels come in pairs. Pair $i$ turns like the hand of a clock, by the angle $\omega_i =
# 10000^{-2i/d_{model}}$ per position; sine and cosine are the two coordinates of its tip. The first
# hand ($i = 0$) turns by 1 radian per position; the last one, with many channels, is nearly 10,000
# times slower. With four channels there are two hands, and you can check them on a pocket
# calculator:

# %%
d_model = 4
for pos in range(3):
    row = []
    for i in range(d_model // 2):
        angle = pos / 10000 ** (2 * i / d_model)
        row += [math.sin(angle), math.cos(angle)]
    print(pos, " ".join(f"{value:7.4f}" for value in row))

# %% [markdown]
# Position 0 is always 0 1 0 1 …; at position 1 the first pair is sin 1 and cos 1; the second pair
# has hardly moved, because its angle is only 0.01.
#
# Now for all positions and channels at once. What passes its `check` is kept in `my_transformer.py`
# beside this notebook; after a first try, `solution("positional_encoding")` in a cell of its own
# shows one way.
#
# ### The encoding
#
# ●●○ · 15 minutes · the positions of the paper's model
#
# The positions are 0 to `length` − 1, and `d_model` is even; return a tensor of shape (length,
# d_model) in single precision.

# %%
def positional_encoding(length, d_model):
    ...  # your code


check(positional_encoding)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `torch.arange(0, d_model, 2)` is 2i for every pair. Fill the even columns of a table with
# `table[:, 0::2] = …` and the odd ones with `table[:, 1::2] = …`.
#
# </details>

# %% [markdown]
# Does yours agree with the library's?

# %%
positional_encoding = mine("positional_encoding")
table = sinusoidal_positions(100, 64)
torch.testing.assert_close(positional_encoding(100, 64), table, rtol=0, atol=1e-4)
print("the same as transformer_lib's, to four digits")

# %% [markdown]
# Why only to four digits? The library computes the angles in double precision. In single precision
# an angle of 99 radians is off by a few millionths, and so is its sine. This error does no harm
# here, but it grows with the position.
#
# Here is the whole table, for 64 channels. In the chart below it, for 16 channels, choose a pair:
# from pair to pair, the two waves grow longer:

# %%
table = sinusoidal_positions(60, 64)
show(
    position_tables({"PE(pos, channel)": table}),
    "Heat map of 60 positions and 64 channels: fast stripes on the left, hardly any change on the "
    "right.",
)

# %%
show_chart(wave_explorer(sinusoidal_positions(40, 16)))

# %% [markdown]
# The fast hands, on the left of the table, tell neighbors apart; the slow ones, on the right, tell
# the beginning of a long text from its end. Together they are a clock with $d_{model}/2$ hands;
# with 64 channels the slowest one takes 47,117 positions to come round once.
#
# ## A shift is a rotation
#
# Now for the third requirement. Where does a hand stand $k$ positions later? It has turned by
# $k\,\omega$, wherever it started. Written out with the angle-addition formulas:
#
# $$\begin{pmatrix}\sin\omega(pos+k)\\ \cos\omega(pos+k)\end{pmatrix} =
# \begin{pmatrix}\cos\omega k & \sin\omega k\\ -\sin\omega k & \cos\omega k\end{pmatrix}
# \begin{pmatrix}\sin\omega\,pos\\ \cos\omega\,pos\end{pmatrix}$$
#
# The matrix does not contain $pos$. One fixed matrix takes **every** position to the one $k$ places
# further on.
#
# ### The matrix of a shift
#
# ●●○ · 25 minutes · what “three places back” is, as a matrix
#
# Build the matrix for all pairs at once: R such that $R \cdot PE(pos) = PE(pos + k)$ for every
# position, where PE(pos) is a column vector in the paper's layout. `k` may be negative. Return
# (d_model, d_model), in single precision.

# %%
def shift_matrix(k, d_model):
    ...  # your code


check(shift_matrix)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A 2 × 2 block on the diagonal for each pair, with the angle $k / 10000^{2i/d_{model}}$. A loop
# over `range(0, d_model, 2)` runs over 2i.
#
# </details>

# %% [markdown]
# Is one matrix right for all positions?

# %%
shift_matrix = mine("shift_matrix")
table = sinusoidal_positions(200, 64)
for k in (1, 3, 50):
    shifted = table[:-k] @ shift_matrix(k, 64).T
    torch.testing.assert_close(shifted, table[k:], rtol=0, atol=1e-4)
    print(f"k = {k:2}: right for all {len(shifted)} positions, to four digits")

# %% [markdown]
# Only rounding errors are left. There is a second consequence: the similarity of two positions,
# measured by the dot product of their vectors, depends on their distance alone, since $\sin a \sin
# b + \cos a \cos b = \cos(a - b)$.

# %%
similarity = table[:100] @ table[:100].T
show(
    similarity_map(similarity),
    "Left: similarity of all pairs of 100 positions, in stripes along the diagonal. Right: the "
    "similarity of position 0 and of position 50 to the others, over the distance: the same curve.",
)
print("PE(p)·PE(p+5) for p = 0, 10, 90:", *[f"{similarity[p, p + 5]:.3f}" for p in (0, 10, 90)])

# %% [markdown]
# Each diagonal has a single color, and the curve is the same for every position. On the whole,
# nearby positions are alike and distant ones less so, with ripples: the curve is a sum of cosines.
#
# ## Two layouts, and a different encoding
#
# Some programs put all sines into the first half of the channels and all cosines into the second.
# That is the same encoding with its channels in a different order. A network trained with one
# layout from the start does not care which; one that is already trained does.
#
# ### The other layout
#
# ●○○ · 10 minutes · the layout of Tensor2Tensor and of Hugging Face's Marian
#
# Return the same numbers, also in single precision, with all sines in the first half of the
# channels and all cosines in the second.

# %%
def positional_encoding_halves(length, d_model):
    ...  # your code


check(positional_encoding_halves)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `torch.cat([a, b], dim=1)` puts two tables side by side.
#
# </details>

# %% [markdown]
# Which channel has gone where?

# %%
positional_encoding_halves = mine("positional_encoding_halves")
halves, interleaved = positional_encoding_halves(60, 64), positional_encoding(60, 64)
moved_to = [int((halves.mT - wave).abs().sum(dim=1).argmin()) for wave in interleaved.mT]
print("channels 0, 1, 2, 3 … of the interleaved table are now", *moved_to[:6], "…")

# %% [markdown]
# Tensor2Tensor, with which the paper's models were trained, shares this order with Marian, but not
# the numbers: it has $d_{model} - 2$ instead of $d_{model}$ in the exponent. Then the slowest wave
# is exactly $10000 \cdot 2\pi$ positions long, and no reordering makes the two tables equal:

# %%
rows = []
for d_model in (8, 64, 512):
    slowest = [2 * math.pi * 10000 ** ((d_model - 2) / d) for d in (d_model, d_model - 2)]
    ours, theirs = sinusoidal_positions(60, d_model, "halves"), timing_signal(60, d_model)
    difference = (ours - theirs).abs().max()
    rows.append([d_model, *(f"{wave:,.0f}" for wave in slowest), f"{difference:.2f}"])
columns = ["positions per slowest wave", "with d_model − 2", "largest difference in 60 positions"]
pd.DataFrame(rows, columns=["d_model", *columns]).set_index("d_model")

# %% [markdown]
# The two tables share only the fastest pair. With few channels the others differ by almost 2, which
# is as much as two waves can differ; with 512 channels they differ only a little. When you load
# weights from elsewhere, compare the position table first.
#
# ## Positions in the scores instead
#
# If only distances count, why not rotate the queries and keys themselves? That is **rotary position
# embedding** (RoPE, [Su et al. 2021](https://arxiv.org/abs/2104.09864)), which most large language
# models use today. Nothing is added to the words. Before the scores are computed, each pair of
# channels of a query or key is rotated by an angle proportional to its position. Since rotating
# both vectors by the same angle does not change their dot product, only the difference of the two
# angles is left. (The next two chapters take queries, keys and heads apart. If you would rather see
# that first, come back here after chapter 5.)
#
# ### Rotate queries and keys
#
# ●●○ · 25 minutes · the positions of most large language models today
#
# `x` is (batch, heads, length, d_k), queries or keys; `position` holds whole numbers, (length,).
# Rotate each pair of neighboring channels (0 and 1, 2 and 3, …) by the angle $\theta = pos /
# 10000^{2i/d_k}$, counterclockwise: $(a, b)$ becomes $(a\cos\theta - b\sin\theta,\ a\sin\theta +
# b\cos\theta)$. Return a tensor of the same shape and type.

# %%
def rotary(x, position):
    ...  # your code


check(rotary)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `x[..., 0::2]` and `x[..., 1::2]` are the first and the second of each pair. The angles, (length,
# d_k / 2), broadcast to both. `torch.stack(…, dim=-1).flatten(-2)` interleaves them again.
#
# </details>

# %% [markdown]
# Does only the distance between two positions matter? Here are one query and one key, moved along
# together:

# %%
rotary = mine("rotary")
torch.manual_seed(0)
query, key = torch.randn(2, 1, 1, 1, 64)
for distance in (0, 3, 10):
    places = [(start + distance, start) for start in (0, 7, 500)]
    scores = [
        (rotary(query, torch.tensor([p])) * rotary(key, torch.tensor([q]))).sum().item()
        for p, q in places
    ]
    print(f"distance {distance:2}:", *[f"{score:8.4f}" for score in scores])

# %% [markdown]
# The score is the same within each row, wherever the pair is. **ALiBi** ([Press et al.
# 2022](https://arxiv.org/abs/2108.12409)) is simpler still: from each score it subtracts a fixed
# multiple of the distance, so that nearby tokens count more. And some decoders have no positional
# encoding at all: their causal mask, which hides all later tokens (chapter 7), already
# distinguishes the first token, which sees one key, from the tenth, which sees ten.
#
# ## Learned or computed?
#
# Why not learn the vectors, like those of words? The paper tried both, with nearly the same result
# (25.7 BLEU with learned vectors, 25.8 with sinusoids: its table 3, row E). Its authors chose the
# sinusoids in the hope that a model would cope with longer sentences than it was trained on. Does
# it? Back to the opening question. In the game the tokens are random, and at each position the
# answer is the token three places earlier. The model is one attention layer; in training the
# sequences have 16 tokens.

# %%
VOCABULARY, BACK, TRAINED = 20, 3, 16


class LookBack(nn.Module):
    """Embedding with positions, one head of attention, an output projection."""

    def __init__(self, positions, attention=None, d_model=64):
        super().__init__()
        self.embedding = Embedding(VOCABULARY, d_model, positions, dropout=0.0)
        self.attention = attention or MultiHeadAttention(d_model, num_heads=1)
        self.output = nn.Linear(d_model, VOCABULARY)

    def forward(self, tokens, start=0):
        return self.output(self.attention(self.embedding(tokens, start)))


def sequences(count, length):
    tokens = torch.randint(VOCABULARY, (count, length))
    return tokens, tokens[:, :-BACK]  # the answers, from position BACK on

# %% [markdown]
# ALiBi takes part, too, with a causal head (one that sees no later token), as in the ALiBi paper.
# Its *slope* is the number by which the distance is multiplied before it is subtracted. With a
# slope of 0 only the causal mask is left, which shows what is due to the mask and what to the
# slope. (Chapter 5 explains the other lines of `forward`; here only the slope and the mask matter.)

# %%
class AlibiAttention(nn.Module):
    """One causal head whose scores fall with the distance."""

    def __init__(self, slope, d_model=64):
        super().__init__()
        self.projections, self.slope = nn.Linear(d_model, 3 * d_model), slope
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x):
        query, key, value = self.projections(x).chunk(3, dim=-1)
        place = torch.arange(x.size(1))
        distance = place[:, None] - place
        scores = query @ key.mT / x.size(-1) ** 0.5 - self.slope * distance
        weights = scores.masked_fill(distance < 0, -torch.inf).softmax(dim=-1)
        return self.output(weights @ value)

# %% [markdown]
# In `LookBack`, `start` is the position of the first token, drawn from the first `starts`
# positions. In this experiment `starts` is 1, so `start` is always 0; the next experiment varies
# it. Training takes a few seconds for each kind of positions. One run may be luck, so each is
# repeated with five seeds. The results come with the course; if you change the program, your
# machine measures them again:

# %%
def train(kind, steps, starts=1):
    """Each step begins at a random one of the first ``starts`` positions."""
    positions = {
        "sinusoids": SinusoidalPositions(64),
        "learned": LearnedPositions(64, max_len=400),
    }.get(kind, NoPositions())
    slope = {"causal": 0.0, "ALiBi": 0.1}.get(kind)
    model = LookBack(positions, None if slope is None else AlibiAttention(slope))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    for _ in range(steps):
        tokens, answers = sequences(128, TRAINED)
        logits = model(tokens, int(torch.randint(starts, ())))[:, BACK:]
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def accuracy(model, length, start=0):
    """Share of right answers at each position from BACK on."""
    tokens, answers = sequences(500, length)
    right = model(tokens, start)[:, BACK:].argmax(dim=-1) == answers
    return right.float().mean(dim=0)

# %%
def by_position(kind, seed):
    share = accuracy(train(kind, steps=300), 2 * TRAINED)
    return {str(BACK + number): right for number, right in enumerate(share.tolist())}


KINDS = ("sinusoids", "learned", "none", "causal", "ALiBi")
runs = over_seeds(by_position, {kind: [kind] for kind in KINDS}, "04_longer_than_trained")
shares = {kind: runs.loc[runs["case"] == kind, "3":] for kind in KINDS}
for kind, share in shares.items():
    inside, beyond = share.loc[:, :"15"].mean(axis=1), share.loc[:, "16":].mean(axis=1)
    print(
        f"{kind:10} up to position 15: {inside.mean():4.0%} ± {inside.std():.0%} (at 3: "
        f"{share['3'].mean():4.0%}, at 15: {share['15'].mean():4.0%}), "
        f"beyond: {beyond.mean():3.0%} ± {beyond.std():.0%}"
    )
    assert beyond.max() < 0.5, "not as on our machines: restart the kernel and run all cells"
show(
    accuracy_by_position(
        {kind: torch.tensor(share.mean().to_numpy()) for kind, share in shares.items()},
        BACK, TRAINED, chance=1 / VOCABULARY,
    ),
    "Share of right answers by position: with sinusoids and learned positions all are right up to "
    "the training length and hardly any beyond it; without positions few are right anywhere. With "
    "the causal mask alone the share falls all the way, with ALiBi it rises to a quarter.",
)  # fmt: skip

# %% [markdown]
# Compare these shares with your numbers. Without positions the model cannot know which token is
# meant. It does better than chance, because the answer is one of the tokens that it sees, most
# likely one that occurs more than once. With learned positions it plays perfectly as far as it was
# trained. From position 16 on it meets vectors that no training step has touched, and guesses;
# it is right less often there than the model without positions, which is not misled by any.
#
# A head without any positions but with a causal mask does about as well as ALiBi up to position 15
# on average, but not for the same reason. Its share falls all the way, since the more tokens it
# sees, the less often it guesses right. ALiBi's share rises and then stays. ALiBi hardly notices
# the length: with each place farther back a token has a tenth less weight, so what a longer
# sequence adds changes little. It says *near*, not *where*, and one such head, with one slope, does
# not learn to count to three.
#
# And the sinusoids? **They fail just as suddenly.** The rotation that means “three places back” is
# there, and it would be right everywhere. But nothing in training asked for it. Sixteen positions
# can be connected correctly by very many matrices, and gradient descent found one of the others.
# That a solution can be represented does not mean that it is learned.
#
# What if training asks for it? Let the sequences of each step begin at a random place among the
# first 100 positions. The sequences are as short as before, and the game is the same.

# %%
def by_start(kind, starts, seed):
    model = train(kind, 800, starts)
    return {f"from {s}": accuracy(model, 2 * TRAINED, s).mean() for s in (0, 50, 200, 300)}


cases = {kind: [kind, 100] for kind in ("sinusoids", "learned")}
cases |= {f"{kind}, always from 0": [kind, 1] for kind in ("sinusoids", "ALiBi")}
runs = over_seeds(by_start, cases, "04_trained_at_a_hundred_places")
far = runs.groupby("case")["from 300"]
assert far.min()["sinusoids"] > far.max()["learned"] + 0.3, (
    "not as on our machines: restart the kernel and run all cells"
)
mean_and_spread(runs)

# %% [markdown]
# Now there is a difference. Both play well where they were trained, even on sequences twice as long
# as any they met. Where neither has been trained, the learned vectors are noise. The sinusoids
# still work there, a little less well the farther away: what works at a hundred places at once
# works at most others.
#
# The longer training is not the reason. After as many steps that always begin at position 0,
# sinusoids are right less than half of the time at every start (third row of the table; its first
# number includes the trained positions, up to 15). Far out they are right more often than ALiBi,
# which knows no more than *near* (last row). So perhaps something of the rotation has been learned,
# but nothing reliable.
#
# Had you trusted the folklore (“sinusoids extrapolate”) or the first experiment alone
# (“they do not”), you would have been wrong either way.
#
# ### Does rotary go further?
#
# ●●● · 45 minutes · an experiment on the question of this chapter
#
# Which of the two fates awaits rotary encoding? It sees only distances, and three places back is a
# distance that occurs in training. But a sequence of 32 tokens also has distances from 16 to 31,
# which no sequence in training had. Write your prediction down.
#
# Then write a layer of attention that rotates its queries and keys with your `rotary` (modeled on
# `AlibiAttention`, but without its mask), give it to `LookBack` with `NoPositions()`, train 300
# steps on sequences of 16 tokens as above, and measure the mean share of right answers at positions
# 16 to 31; do the same for the sinusoids. Use at least three seeds each. Make a table with the
# columns `case` ("rotary" or "sinusoids"), `seed` and `accuracy`, and conclude: does rotary give
# "more", "less", or are the two "not told apart"? (Chapter 2 has a rule for that: “Reading
# backwards”.)

# %%
runs, conclusion = ..., ...  # your experiment: a pd.DataFrame, and one of the three conclusions


check_experiment("rotary_beyond", runs, conclusion)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `rotary` expects an axis for the heads: `rotary(query[:, None], place)[:, 0]`.
# `torch.manual_seed(seed)` first in each run, or the seeds do nothing. The positions from 16 on are
# `accuracy(model, 32)[TRAINED - BACK :]`.
#
# </details>

# %% [markdown]
# ## Where a word enters the model
#
# ### Embedding and position
#
# ●○○ · 10 minutes · the first layer of your Transformer
#
# Positions are added to embeddings, which have first been multiplied by √d_model (chapter 3 says
# why). Dropout comes last. `tokens` is (batch, length), `table` holds a row for each piece of the
# vocabulary, `positions` a row for each position, perhaps more than the sentence needs; `dropout`
# is a function from tensor to tensor (chapter 11 shows what it is good for). Return the result,
# (batch, length, d_model).

# %%
def embed_with_positions(tokens, table, positions, dropout):
    ...  # your code


check(embed_with_positions)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `table[tokens]` looks up all rows at once. Which rows of `positions` belong to a sentence of
# `tokens.size(1)` tokens?
#
# </details>

# %% [markdown]
# ## Common mistakes
#
# The lecture that this course partly follows (chapter 16 introduces it) prints code for the formula
# in which `i` already steps by 2 and the exponent is `2 * i` all the same; and the cosine uses `i +
# 1`. What does the resulting table look like?

# %%
(doubled,) = [m for m in wrong_answers("positional_encoding") if m.id == "M1"]
wrong = doubled.answers["positional_encoding"](60, 64)
show(
    position_tables({"right": sinusoidal_positions(60, 64), "exponent doubled": wrong}),
    "On the left the correct table, then the wrong one: in both, the last channels are constant "
    "stripes; in the wrong one they begin twice as early.",
)
for name, shown in {"right": sinusoidal_positions(60, 64), "exponent doubled": wrong}.items():
    moved = (shown.amax(dim=0) - shown.amin(dim=0)) > 0.3
    print(f"{name:16} {moved.sum()} of 64 channels move by more than 0.3 within 60 positions")

# %% [markdown]
# At a glance they look alike: in both, the channels on the right hardly move. Look at where the
# motion ends. In the wrong table the hands slow down twice as fast, so half as many of them move
# within a sentence. And there is a second mistake, which the picture does not show:

# %%
for name, positions in {"right": sinusoidal_positions(100, 64), "wrong": wrong}.items():
    dots = [float(positions[p] @ positions[p + 5]) for p in (0, 10, 50)]
    print(f"{name}: PE(p)·PE(p+5) for p = 0, 10, 50:", *[f"{dot:.3f}" for dot in dots])

# %% [markdown]
# In the wrong table a sine and its cosine have different frequencies. So they are no longer the two
# coordinates of a hand, a shift is no longer a rotation, and “five places” does not mean the same
# thing everywhere. And yet nothing fails: the shape is right, all numbers lie between −1 and 1, and
# a model can be trained. Test a formula by its properties, not only by whether it runs.
#
# Other mistakes with positions are in the [list of mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. Attention is permutation-equivariant: without positions it sees a bag of words.
# 2. The sinusoidal encoding is a clock with d_model/2 hands; fast hands tell neighbors apart, slow
#    ones the beginning from the end.
# 3. A shift by k is one fixed rotation, whatever the position; the dot product of two positions
#    depends on their distance alone.
# 4. Interleaved or in halves is a matter of order; d_model − 2 in the exponent is a different
#    encoding.
# 5. Learned positions end where training ended. Sinusoids go further only if training made the
#    model use the rotation; being able to represent it is not enough.
# 6. Rotary encoding turns queries and keys, so that positions enter the scores only as distances;
#    ALiBi subtracts a multiple of the distance.
#
# Now you can do **assignment 1**: relative, learned and interpolated positions, and the sinusoids
# with a base of your own.
#
# **In the paper:** section 3.5, and row E of table 3. **Read on:** Shaw et al. 2018 put distances
# into attention instead of positions; Kazemnejad et al. 2023 compare encodings, and no encoding at
# all, beyond the training length.
#
# **Next:** [5 · Attention](05_attention.ipynb)
