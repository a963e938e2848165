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
# # 6 · Multi-head attention
#
# A single attention head mixes everything it finds into one vector. Several heads, side by side,
# can look for several things. In this chapter you build them, see that four ways of writing them
# give the same result, and find out what the heads of a trained model look for. By the end you can
#
# - split, attend, concatenate and project, and name the shape after every step,
# - recognize the four ways of writing heads in other people's code,
# - say what the number of heads costs, and what the matrix W^O is for,
# - tell by an experiment, with a baseline, whether heads have specialized.
#
# Reading takes about forty minutes, running the cells less than one.
#
# **Predict first.** A layer has to answer two questions at every position: which token came two
# places earlier, and which one five places earlier? It gets one head of 64 channels, or two heads
# of 32, or four of 16, or eight of 8; all four layers cost the same. For each of them, what share
# of the answers to each question will be right?

# %%
import math
from collections import Counter, defaultdict

import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, mine, solution
from transformer_lib.course.figures.heads import multi_head_flow
from transformer_lib.data.corpora import DataConfig, load_corpus
from transformer_lib.evaluation.alignment import encoder_attention
from transformer_lib.course.results import (
    mean_and_spread,
    over_seeds,
    standard_errors_apart,
    variants,
)
from transformer_lib.model import Embedding, MultiHeadAttention, SinusoidalPositions
from transformer_lib.model import attention, causal_mask, num_parameters
from transformer_lib.plots.attention import SELF, attention_heads
from transformer_lib.plots.measurements import bars, heat_table
from transformer_lib.plots.notebook import show
from transformer_lib.course.trained import load_trained

# %% [markdown]
# ## Two questions, one answer
#
# Why is one head not enough? The output of attention is *one* mixture of values for each query. If
# a word needs something from two places, the mixture contains both. If it is half and half, and the
# values say only what is there, nobody can tell afterwards which half came from where: ½(*fish* +
# *cat*) is ½(*cat* + *fish*).
#
# The opening question turns this into a game. One layer, 64 channels, and only the number of heads
# varies:

# %%
VOCABULARY, LENGTH, BACK = 20, 16, (2, 5)


class TwoQuestions(nn.Module):
    """Embedding with positions, one layer of attention, two answers per position."""

    def __init__(self, num_heads, d_model=64):
        super().__init__()
        self.embedding = Embedding(VOCABULARY, d_model, SinusoidalPositions(d_model), dropout=0.0)
        self.attention = MultiHeadAttention(d_model, num_heads)
        self.output = nn.Linear(d_model, 2 * VOCABULARY)

    def forward(self, tokens):
        states = self.attention(self.embedding(tokens))
        return self.output(states).unflatten(-1, (2, VOCABULARY))[:, max(BACK) :]


def sequences(count):
    """Random tokens, and the right answers from position 5 on."""
    tokens = torch.randint(VOCABULARY, (count, LENGTH))
    answers = [tokens[:, max(BACK) - back : LENGTH - back] for back in BACK]
    return tokens, torch.stack(answers, dim=-1)

# %% [markdown]
# Training takes a few seconds for each number of heads, and is repeated with five seeds. (The
# results come with the course; if you change the program, your machine measures them again.)

# %%
def train(num_heads, seed, steps=250):
    """The share of right answers to each question after training."""
    model = TwoQuestions(num_heads)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    for _ in range(steps):
        tokens, answers = sequences(128)
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 2), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        tokens, answers = sequences(1000)
        right = (model(tokens).argmax(dim=-1) == answers).float()
    return dict(zip(("2 back", "5 back"), right.mean(dim=(0, 1))))

# %%
HEADS = (1, 2, 4, 8)
assert len({num_parameters(TwoQuestions(heads)) for heads in HEADS}) == 1, "they cost the same"
runs = over_seeds(train, {str(heads): [heads] for heads in HEADS}, "06_two_questions")
runs[runs["case"] == "1"].set_index("seed")[["2 back", "5 back"]].round(2)

# %% [markdown]
# The table shows the five seeds of the layer with one head. It does not get half of the answers to
# each question right. It answers *one* question nearly always right, and guesses at the other
# (chance is one in twenty). Which question it answers depends on the seed. And with more heads?

# %%
questions = runs[["2 back", "5 back"]]
runs["better question"], runs["other question"] = questions.max(axis=1), questions.min(axis=1)
shares = runs.groupby("case")[["better question", "other question"]].agg(["mean", "std"])
show(
    bars(
        {name: shares[name]["mean"] for name in shares.columns.levels[0]},
        list(shares.index),
        ("heads", "right answers (mean ± std, 5 seeds)"),
        {name: shares[name]["std"] for name in shares.columns.levels[0]},
    ),
    "Share of right answers to each question: one head answers one of them nearly always and the "
    "other by chance; two heads answer both nearly always, four and eight a little less surely.",
)
print(shares.xs("mean", axis=1, level=1).round(2).to_string())
print("least of all seeds:", questions.min(axis=1).groupby(runs["case"]).min().round(2).to_dict())
one, two = (questions[runs["case"] == heads] for heads in ("1", "2"))
assert one.sum(axis=1).max() < 1.2, "not as on our machines: restart the kernel and run all cells"
assert two.min(axis=None) > 0.9, "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# In 250 steps, one head settles on one place and gives up the other. That is what training finds,
# not what is best. With half of its weight on each place, the head would be left with two
# candidates for each answer, a loss of ln 2 = 0.7 on both questions. Now its loss is about 0 on one
# and about ln 20 = 3.0 on the other. Two heads are enough for two questions. With more and narrower
# heads, some seeds learn one of the two questions only in part: look at the spread.
#
# ## Four steps
#
# $$\text{MultiHead}(Q, K, V) = \text{Concat}(\text{head}_1, \dots, \text{head}_h)\,W^O
# \qquad \text{head}_i = \text{Attention}(QW_i^Q, KW_i^K, VW_i^V)$$
#
# Here it is as a picture, for one sentence of 5 words, 12 channels and 3 heads. Each color is a
# head:

# %%
show(
    multi_head_flow(),
    "x of shape (5, 12) is projected to Q, K and V, whose 12 channels are cut into 3 heads of 4; "
    "each head has weights of shape (5, 5) and an output of shape (5, 4); the outputs are joined "
    "to (5, 12) and multiplied by W^O.",
)

# %% [markdown]
# Taken literally, the formula gives each head three matrices of its own, which project $d_{model}$
# channels to $d_k = d_{model}/h$. In code that is a loop over the heads, and one matrix at the end:

# %%
torch.manual_seed(1)
batch, length, d_model, num_heads = 2, 5, 12, 3
d_k = d_model // num_heads
x = torch.randn(batch, length, d_model)
W_q, W_k, W_v = torch.randn(3, num_heads, d_model, d_k) / math.sqrt(d_model)
W_o = torch.randn(d_model, d_model) / math.sqrt(d_model)


def one_head(i):
    query, key, value = x @ W_q[i], x @ W_k[i], x @ W_v[i]  # (batch, length, d_k) each
    weights = (query @ key.transpose(1, 2) / math.sqrt(d_k)).softmax(dim=-1)
    return weights @ value  # (batch, length, d_k)


by_loop = torch.cat([one_head(i) for i in range(num_heads)], dim=-1) @ W_o
print(tuple(one_head(0).shape), "× 3 heads →", tuple(by_loop.shape))

# %% [markdown]
# Fast programs get rid of the loop, because one large product suits the hardware better than many
# small ones. Side by side, the small matrices $W_1^Q, W_2^Q, \dots$ form one matrix of $d_{model}
# \times d_{model}$; one product projects for all heads, and the channels are cut into heads
# afterwards. You will write this now, in three steps. What passes its `check` is kept in
# `my_transformer.py` beside this notebook; after a first try, `solution("split_heads")` in a cell
# of its own shows one way.
#
# ### Split
#
# ●○○ · 10 minutes · one width becomes several heads
#
# Turn a tensor of (batch, length, d_model) into one of (batch, heads, length, d_k). Each head gets
# d_k adjacent channels.

# %%
def split_heads(x, num_heads):
    ...  # your code


check(split_heads)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which two axes change places, and when: before or after the channels are cut?
#
# </details>

# %% [markdown]
# ### Merge
#
# ●○○ · 10 minutes · and back
#
# Turn a tensor of (batch, heads, length, d_k) back into one of (batch, length, d_model).

# %%
def merge_heads(heads):
    ...  # your code


check(merge_heads)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Undo the steps of `split_heads` in the opposite order. After a transpose, `view` complains;
# `reshape` and `flatten` copy where they must.
#
# </details>

# %% [markdown]
# ### All of it
#
# ●●○ · 20 minutes · a sublayer of your Transformer
#
# Compute attention from the positions of `x`, (batch, queries, d_model), to the positions of
# `memory`, (batch, keys, d_model). Return only the output, which has the shape of `x`. All four
# matrices are (d_model, d_model). `mask` is either None or a boolean tensor that is True where a
# key may be attended to; its axes are (batch, heads, queries, keys), and any of them may have
# length 1 instead. Build the function from your `split_heads` and `merge_heads`; `attention(query,
# key, value, mask)` of the library, imported above, returns the output and the weights.

# %%
split_heads, merge_heads = mine("split_heads"), mine("merge_heads")


def multi_head_attention(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    ...  # your code


check(multi_head_attention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Project, split, attend, merge, project. What comes from `x`, and what from `memory`?
#
# </details>

# %% [markdown]
# Does yours do what the loop did? Here are the same numbers, with the small matrices side by side:

# %%
multi_head_attention = mine("multi_head_attention")


def side_by_side(W):
    return torch.cat(list(W), dim=1)  # (d_model, heads · d_k)


together = [side_by_side(W) for W in (W_q, W_k, W_v)]
by_axis = multi_head_attention(x, x, *together, W_o, num_heads, None)
torch.testing.assert_close(by_axis, by_loop)
print("the same as the loop:", tuple(by_axis.shape))

# %% [markdown]
# ## The same in other people's code
#
# Giving the heads an axis of their own is the first of four ways that you will meet.
#
# **Heads in the batch.** Attention treats every sentence of a batch separately, and every head too.
# So heads can pose as extra sentences: cut the channels, and put the pieces one after another along
# the batch. Kyubyong Park's TensorFlow program (chapter 16) does so:

# %%
def to_batch(x):
    return torch.cat(x.split(d_k, dim=-1), dim=0)  # (heads · batch, length, d_k), head by head


query, key, value = (to_batch(x @ W) for W in together)
weights = (query @ key.transpose(1, 2) / math.sqrt(d_k)).softmax(dim=-1)
heads = weights @ value
by_batch = torch.cat(heads.split(batch, dim=0), dim=-1) @ W_o
torch.testing.assert_close(by_batch, by_loop)
print("heads:", tuple(query.shape), "and the same result")

# %% [markdown]
# Mind the order: head by head, and within each head sentence by sentence. Masks have to be repeated
# in the same order: (mask, mask, mask), not each row three times. That is the trap in this layout.
#
# **Letters instead of axes.** `einsum` names each axis with a letter; axes whose letters do not
# occur to the right of the arrow are summed over. No states are transposed or cut here, because
# each head keeps its own matrix, along the axis `h`:

# %%
query, key, value = (torch.einsum("bld,hdk->bhlk", x, W) for W in (W_q, W_k, W_v))
weights = torch.einsum("bhik,bhjk->bhij", query, key).div(math.sqrt(d_k)).softmax(dim=-1)
by_letters = torch.einsum(
    "bhij,bhjk,hkd->bid", weights, value, W_o.unflatten(0, (num_heads, d_k))
)
torch.testing.assert_close(by_letters, by_loop)
print("einsum: the same result")

# %% [markdown]
# Read the last `einsum`: the sum over `h` and `k` together joins the heads and multiplies by $W^O$
# in one step.
#
# **One matrix for all three.** In self-attention queries, keys and values come from the same $x$.
# So their three matrices, side by side, turn three products into one. The library does it this way,
# with biases. Let us put our matrices into its layer (`nn.Linear` stores a matrix transposed):

# %%
fused = torch.cat(together, dim=1)  # (d_model, 3 · d_model)
layer = MultiHeadAttention(d_model, num_heads)
with torch.no_grad():
    layer.qkv_proj.weight.copy_(fused.T)
    layer.qkv_proj.bias.zero_()
    layer.out_proj.weight.copy_(W_o.T)
    layer.out_proj.bias.zero_()
torch.testing.assert_close(layer(x), by_loop)
print("one matrix of", tuple(fused.shape), "in transformer_lib.model.MultiHeadAttention: the same")

# %% [markdown]
# ### Weights of three programs
#
# ●●● · 35 minutes · put somebody else's weights into your layer
#
# Three well-known programs store the three projections as one matrix, each in a different way:
#
# - `"rows"`: PyTorch's `nn.MultiheadAttention` has (3 · d_model, d_model), the rows for the queries
#   first, then those for the keys and the values, and computes `x @ weight.T`;
# - `"columns"`: GPT-2 has (d_model, 3 · d_model), the columns for the queries first, then those for
#   the keys and the values, and computes `x @ weight`;
# - `"heads"`: GPT-NeoX has (3 · d_model, d_model) and computes `x @ weight.T`; the rows are ordered
#   by head: the d_k query rows of head 0, its key rows, its value rows, then those of head 1.
#
# Return `w_q`, `w_k` and `w_v`, each (d_model, d_model), as your `multi_head_attention` takes them.

# %%
def unfuse(weight, num_heads, layout):
    ...  # your code


check(unfuse)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Bring each layout to `"rows"` first. `unflatten(0, (num_heads, 3, -1))` turns the rows of the
# third layout into three axes; which two change places? And your layer computes `x @ w_q`: what
# does that mean for a matrix that was made for `x @ weight.T`?
#
# </details>

# %% [markdown]
# Try it on PyTorch's own module:

# %%
unfuse = mine("unfuse")
torchs = nn.MultiheadAttention(d_model, num_heads, bias=False, batch_first=True)
with torch.no_grad():
    parts = unfuse(torchs.in_proj_weight, num_heads, "rows")
    ours = multi_head_attention(x, x, *parts, torchs.out_proj.weight.T, num_heads, None)
    torch.testing.assert_close(ours, torchs(x, x, x)[0])
print("equal to nn.MultiheadAttention, with its weights")

# %% [markdown]
# ## What it costs
#
# However many heads there are, the matrices have the same total size, and the products take the
# same work. More heads means narrower heads.

# %%
rows = [[h, 512 // h, f"{num_parameters(MultiHeadAttention(512, h)):,}"] for h in (1, 8, 64)]
pd.DataFrame(rows, columns=["heads", "d_k", "parameters, d_model = 512"]).set_index("heads")

# %% [markdown]
# That is $4d^2 + 4d$ parameters: four square matrices and their biases. What grows with the number
# of heads is the number of attention weights, $h \cdot n^2$, which take memory, and time in the
# softmax.
#
# And quality? The paper varied the number of heads of its base model, at the same cost, and found
# (table 3, rows A, BLEU on newstest2013): 1 head 24.9, 4 heads 25.5, 8 heads 25.8, 16 heads 25.8,
# 32 heads 25.4.
#
# And our model? Here are variants of this course's small Transformer, trained for 2,000 steps with
# three seeds each. The table gives the loss on validation sentences and BLEU on the test set, mean
# ± standard deviation.

# %%
heads = variants("1 head", "as it is", "8 heads").replace("as it is", "4 heads")
for other in ("1 head", "8 heads"):
    apart = standard_errors_apart(heads, other, "4 heads").round(1).to_dict()
    print(f"{other} minus 4 heads, in standard errors:", apart)
mean_and_spread(heads)

# %% [markdown]
# One head is behind four on both measures. In the loss the difference is three standard errors,
# which is enough. In BLEU it is about a point, a little more than two: by the rule of thumb in
# chapter 2 that tells them apart, but with three seeds two equal cases are that far apart about one
# time in eight, so we take less than 2.8 standard errors for no more than a hint. BLEU does not
# tell four heads from eight; in the loss eight are a little better, by just over two standard
# errors, again only a hint. And even a single head translates.
#
# ### Fewer heads of keys than of queries
#
# ●●○ · 25 minutes · the form of attention in most large models today
#
# When a model generates text, it keeps the keys and values of all tokens so far (chapter 12). These
# are $2 d_\text{model}$ numbers per token and layer, and with long texts they fill the memory. With
# fewer heads of keys and values there are fewer numbers to keep. So several query heads share one
# head of keys and values: all query heads in multi-query attention ([Shazeer
# 2019](https://arxiv.org/abs/1911.02150)), small groups of them in grouped-query attention
# ([Ainslie et al. 2023](https://arxiv.org/abs/2305.13245)).
#
# Write grouped-query attention. `query` is (batch, heads, queries, d_k), `key` (batch, groups,
# keys, d_k) and `value` (batch, groups, keys, d_v); `groups` divides the number of query heads, and
# adjacent query heads share a group. `attention`, imported above, takes a mask as its fourth
# argument; pass `None` here. Return the output, (batch, heads, queries, d_v).

# %%
def grouped_query_attention(query, key, value):
    ...  # your code


check(grouped_query_attention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# With 6 query heads and 2 groups, heads 0, 1 and 2 use group 0. You can repeat keys and values
# (`repeat` or `repeat_interleave`?), or give the queries one more axis.
#
# </details>

# %% [markdown]
# ## What W^O is for
#
# After attention, the heads' outputs lie side by side: the first d_k channels come from head 1, the
# next from head 2. Without $W^O$ they stay like that. Let us silence one head and see which
# channels of the output notice:

# %%
def channels_that_notice(output_matrix):
    """How much each output channel changes when the values of head 1 become zero."""
    query, key, value = (split_heads(x @ W, num_heads) for W in together)
    silenced = value.clone()
    silenced[:, 0] = 0.0
    heads = [attention(query, key, v)[0] for v in (value, silenced)]
    outputs = [merge_heads(of_heads) @ output_matrix for of_heads in heads]
    return (outputs[0] - outputs[1]).abs().mean(dim=(0, 1))


for name, matrix in {"without W^O": torch.eye(d_model), "with W^O": W_o}.items():
    print(f"{name:12}", " ".join(f"{change:.2f}" for change in channels_that_notice(matrix)))

# %% [markdown]
# Without the matrix, each head owns four of the twelve channels: what it found is written there and
# nowhere else. With it, each head can write wherever that is useful, and the heads' findings are
# combined.
#
# Kyubyong Park's program leaves the matrix out, and learns to translate all the same. Here is our
# model with and without it, again after 2,000 steps:

# %%
with_and_without = variants("as it is", "without W^O").replace("as it is", "with W^O")
apart = standard_errors_apart(with_and_without, "without W^O", "with W^O").round(1).to_dict()
print("without minus with, in standard errors:", apart)
mean_and_spread(with_and_without)

# %% [markdown]
# BLEU does not tell the two apart. The loss does, but not in the direction that one might expect:
# it is lower *without* the matrix, by more than three standard errors. In a model of this size
# nothing is lost without it. (The feed-forward network that follows mixes all channels anyway,
# which may be why. Whether that holds for a large model, this experiment does not say.)
#
# ## What heads look for
#
# Here are the four heads of the encoder's second layer in the small trained Transformer that comes
# with the course, on one sentence.

# %%
trained = load_trained("transformer")
weights, pieces = encoder_attention(
    trained.model, trained.tokenizer, "Tom knows that my sister is not at home."
)
show(
    attention_heads(weights[1], pieces, pieces, SELF),
    "Four heat maps of the heads of layer 2, each with its own pattern.",
)

# %% [markdown]
# They differ; that much can be seen. But one sentence can be made to fit any story, so let us
# count. In translators of the paper's size some heads nearly always have their largest weight on
# the previous token, or on the next one ([Voita et al. 2019](https://arxiv.org/abs/1905.09418)). Do
# ours have such a habit?
#
# ### How much goes to a neighbor?
#
# ●○○ · 15 minutes · a measure with the right divisor
#
# `weights` is (heads, length, length); rows are queries. For each head, return the mean weight of
# the key that is `offset` places after its query (−1: the key just before it), over the queries
# that have such a key.

# %%
def offset_share(weights, offset):
    ...  # your code


check(offset_share)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `tensor.diagonal` takes an offset. The first token has no token before it, and the last has none
# after it. By what number do you divide?
#
# </details>

# %% [markdown]
# Now for the first 500 test sentences. How much do the heads look at `</s>`?

# %%
offset_share = mine("offset_share")
recorded = [
    encoder_attention(trained.model, trained.tokenizer, source)
    for source in load_corpus(DataConfig()).test.sources[:500]
]
to_end = torch.stack([w.flatten(0, 1)[:, :, -1].mean(dim=-1) for w, _ in recorded]).mean(dim=0)
uniform = sum(1 / w.size(-1) for w, _ in recorded) / len(recorded)
shown = [f"{share:.0%}" for share in to_end]
print("weight on </s>:", *shown, f"(if all were alike: {uniform:.0%})")

# %% [markdown]
# All eight heads give `</s>` more than an equal share, some more than twice as much. ([Clark et al.
# 2019](https://arxiv.org/abs/1906.04341) found the same for BERT's separator token, and argue that
# a head looks there when it finds nothing to look for.) We leave `</s>` out and divide by what is
# left, so that each row adds up to 1 again. Beside the measures we put a baseline: what a head
# would give if it looked at all words equally.

# %%
def words_only(weights):
    """Attention among the words of a sentence, (all heads, words, words), without </s>."""
    among_words = weights.flatten(0, 1)[:, :-1, :-1]
    return among_words / among_words.sum(dim=-1, keepdim=True)


words = [(words_only(weights), pieces[:-1]) for weights, pieces in recorded if len(pieces) > 3]

# %%
shares = {
    "one before": [offset_share(w, -1) for w, _ in words],
    "itself": [offset_share(w, 0) for w, _ in words],
    "one after": [offset_share(w, 1) for w, _ in words],
    "the first": [w[:, 1:, 0].mean(dim=-1) for w, _ in words],
    "uniform": [torch.full((8,), 1 / w.size(-1)) for w, _ in words],
}
names = [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2, 3, 4)]
means = {measure: torch.stack(values).mean(dim=0) for measure, values in shares.items()}
share_table = pd.DataFrame({measure: mean.numpy() for measure, mean in means.items()}, index=names)
show(
    heat_table(share_table, "mean share of attention", highest=0.4),
    "Eight heads by four measures and the uniform share: head 2 of layer 2 gives nearly twice the "
    f"uniform share to the next token ({means['one after'][5]:.0%}), head 4 to the one before "
    f"({means['one before'][7]:.0%}), "
    f"head 1 of layer 1 to the first ({means['the first'][0]:.0%}).",
)

# %% [markdown]
# A head that looks at all words equally gives 17% to each. Two heads of layer 2 have a habit: head
# 2 gives the *next* token 31%, head 4 the *previous* one 29%, nearly twice as much. Head 1 of layer
# 1 gives the first token of the sentence 30%. No head looks much at the token itself, which the
# residual connection (chapter 9) passes on in any case. Is that what Voita et al. found? They count
# something else: how often the *largest* weight is in that place.

# %%
def is_largest(weights, offset):
    """For each query that has a key there: is its weight the largest? (one head)"""
    places = torch.arange(max(0, -offset), weights.size(-1) - max(0, offset))
    return weights[places].argmax(dim=-1) == places + offset


lengths = [w.size(-1) for w, _ in words]
chance = sum((n - 1) / n for n in lengths) / sum(n - 1 for n in lengths)
for name, head, offset in (("head 2, the next token", 5, 1), ("head 4, the previous one", 7, -1)):
    share = torch.cat([is_largest(w[head], offset) for w, _ in words]).float().mean()
    print(f"layer 2, {name}: {share:.0%} of the tokens, by chance {chance:.0%}")

# %% [markdown]
# A habit, then, but far from “nearly always”.
#
# (Divide the sum along the diagonal by the number of tokens instead of the number of pairs, and
# every neighbor's share comes out too small. Leave `</s>` in as well, and the two mistakes
# together are enough to miss both heads.)
#
# ### Words, or places?
#
# Do heads also prefer certain *words*? Here are the pieces that most often get the largest share
# from head 1 of layer 1, with the number of sentences for each:

# %%
favorites = Counter(pieces[weights[0].mean(dim=0).argmax()] for weights, pieces in words)
print(favorites.most_common(5))

# %% [markdown]
# *Tom* and *I* come first, together in nearly a quarter of the sentences. But before you call this
# a head for subjects, ask where subjects occur in these sentences. Compare such words in first
# position with the same words elsewhere, and with other words in first position:

# %%
SUBJECTS = {"▁Tom", "▁I", "▁He", "▁She", "▁We", "▁They", "▁You", "▁It"}
gains, subjects = defaultdict(list), defaultdict(Counter)
for weights, pieces in words:
    for place, piece in enumerate(pieces):
        what = "subject words" if piece.title() in SUBJECTS else "other words"
        where = "first" if place == 0 else "later"
        gains[f"{what}, {where}"].append(weights[:, :, place].mean(dim=-1) * len(pieces))
        subjects[where][piece] += piece.title() in SUBJECTS
print(", ".join(f"{kind}: {len(values)}" for kind, values in gains.items()))
print({where: counts.most_common(3) for where, counts in subjects.items()})
mean_gains = {kind: torch.stack(values).mean(dim=0).numpy() for kind, values in gains.items()}
pd.DataFrame(mean_gains, index=names)[sorted(mean_gains)].round(2)

# %% [markdown]
# (In the table, 1 is the share that every word would get from a head without preferences.)
#
# First hold the kind of word fixed and change the position: head 1 of layer 1 favors whatever comes
# first, subject or not, and gives words of the same kind less than an equal share elsewhere. Its
# preference is for a position, and it is the strongest of all heads that favor the front.
#
# Now hold the position fixed and change the kind of word: at the front, heads 2 and 3 of layer 1,
# and all heads of layer 2, give subject words about half of what they give other words. Later in
# the sentence, where positions are only roughly alike, they give them six to eight tenths. That is
# a preference for words, and not the one we expected. (The subject words at the front are mostly
# *I* and *Tom*; later ones are often objects, such as *you* and *it*.)
#
# A preference for words can be the shadow of a preference for positions, or the other way around;
# only a comparison in which one of the two is held fixed tells them apart.
#
# That is where heads look. Whether the model needs them is another question, which chapter 14
# answers by switching them off.
#
# ## Common mistakes
#
# **Heads split without the transpose.** `view(batch, heads, length, d_k)` instead of `view(batch,
# length, heads, d_k).transpose(1, 2)`: the shape is right, every number is there, and the result is
# nonsense. The tensor is cut up in the order in which its numbers are stored, so a “head” holds
# pieces of several positions. Which outputs then depend on which inputs? Under a causal mask, an
# output should depend on the inputs up to its own position, and on no others:

# %%
def depends(split, merge):
    """A line for each output position: × where it depends on that input position."""

    def layer(x):
        query, key, value = (split(x @ W) for W in together)
        return merge(attention(query, key, value, causal_mask(length))[0]) @ W_o

    jacobian = torch.autograd.functional.jacobian(lambda y: layer(y).sum(dim=(0, 2)), x)
    marks = jacobian.abs().sum(dim=(1, 3)) > 0  # (output position, input position)
    return ["".join("×" if mark else "·" for mark in line) for line in marks]


def split_by_view(x):
    return x.reshape(batch, num_heads, length, d_k)


def merge_by_view(heads):
    return heads.reshape(batch, length, d_model)


def split_right(x):
    return split_heads(x, num_heads)


# %%
kinds = [
    depends(split_right, merge_heads),
    depends(split_by_view, merge_heads),
    depends(split_by_view, merge_by_view),
]
print("right     split wrong   both wrong")
for lines in zip(*kinds):
    print("{:10}{:14}{}".format(*lines))

# %% [markdown]
# The mask is the same in all three. Where only the split is wrong, the first output sees the second
# and the fourth input: the future. A decoder trained like this reads what it must predict. Where
# split and merge are both wrong, they undo each other, and nothing comes from the future; but the
# last output sees only two of the five inputs. Such a model trains without an error, but cannot use
# a good part of what it is given.
#
# The shape does not show the mistake, and with a single head there is no mistake to show. Two tests
# do show it. No output may depend on what comes later: that finds a split that alone is wrong. And
# each output must depend on all that it may see: that finds split and merge where both are wrong.
# Other mistakes with heads are in the [list of mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. A head gives one mixture per query. Two heads can look at two places and keep them apart; in
#    our game, a single head learned to look at only one of them.
# 2. Split the channels, attend, put the heads side by side, multiply by W^O: 4d² parameters,
#    however many heads.
# 3. An axis for the heads, heads in the batch, the letters of einsum, one matrix for Q, K and V:
#    four ways to the same result.
#    Keys and values can be shared by several query heads, to save memory.
# 4. W^O lets every head write into every channel; without it, each owns d_k of them.
# 5. Whether heads specialize must be measured, against a baseline and with the right divisor; words
#    and positions cannot be told apart until one of them is held fixed.
# 6. A wrong split has the right shape: test that the past does not change with the future, and that
#    an output does change with each token of its past.
#
# **Assignment 2**, after chapter 7, asks for a layer of such heads.
#
# **In the paper:** section 3.2.2, and rows A of table 3. **Read on:** Michel et al. 2019, “Are
# Sixteen Heads Really Better than One?”; Shazeer 2019 on sharing keys and values among heads.
#
# **Next:** [7 · Masks](07_masks.ipynb)
