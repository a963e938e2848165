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
# # 10 · The whole model
#
# One part is still missing, the feed-forward network; then you put everything together. At the end
# of this chapter a Transformer assembled from your own parts, with the weights of a trained one,
# translates its first sentences. By the end you can
#
# - say what a feed-forward network adds to attention, and what its matrices contain,
# - write encoder, decoder and model as modules, and follow every shape through them,
# - load the weights of another program, and prove that both compute the same,
# - compute the number of parameters in your head, and say where they are,
# - choose the size of random weights, and predict what happens if you choose badly.
#
# Reading takes about fifty minutes, running the cells about one.
#
# **Predict first.** “Attention is all you need”, says the paper. Its base model has about 65
# million parameters, in three groups: embeddings, attention, feed-forward networks. What share
# belongs to attention? And which group could you take out of a trained model with the least harm?

# %%
import math
from collections import Counter
from dataclasses import replace

import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, mine, solution
from transformer_lib.course.results import mean_and_spread, over_seeds
from transformer_lib.data import DataConfig, training_pairs
from transformer_lib.data.corpora import load_corpus
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.metrics.bleu import bleu
from transformer_lib.model import SIZES, TransformerConfig, build_transformer
from transformer_lib.model import num_parameters
from transformer_lib.course.figures.architecture import ALTERNATIVE, architecture
from transformer_lib.plots.measurements import bars
from transformer_lib.plots.notebook import show
from transformer_lib.course.trained import load_trained
from transformer_lib.vocabulary import BOS, EOS, PAD

# %% [markdown]
# ## The feed-forward network
#
# $$\text{FFN}(x) = \max(0, xW_1 + b_1)\,W_2 + b_2$$
#
# Two linear layers with a ReLU between them; the hidden layer is usually four times as wide as
# d_model. It works on each position by itself, with the same weights at every position. Attention
# moves information between positions and averages it, but it can hardly compute anything from it.
# The computing is done here, at each position, on what attention has brought there.
#
# ### A network for every position
#
# ●○○ · 10 minutes · two thirds of an encoder layer's parameters
#
# Write a module with two `nn.Linear` layers, called `hidden` and `output`, from d_model to d_ff and
# back. (The names matter: later in this chapter the weights of another program must fit.) The
# residual connection and the norm are not part of it.
#
# In this chapter, too, what passes its `check` is kept in `my_transformer.py` beside this notebook,
# and after a first try `solution("FeedForward")` shows one way.

# %%
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        ...  # your code

    def forward(self, x):
        ...  # your code


check(FeedForward)

# %% [markdown]
# <details><summary>Hint</summary>
#
# One ReLU. Where in the formula is it, and what is inside it?
#
# </details>

# %% [markdown]
# Which positions notice a change at position 2?

# %%
FeedForward = mine("FeedForward")
torch.manual_seed(0)
x = torch.randn(2, 5, 8)
layer = FeedForward(d_model=8, d_ff=32)
changed = x.clone()
changed[:, 2] += 1.0
print("position notices:", (layer(changed) != layer(x)).any(dim=-1)[0].tolist())

# %% [markdown]
# ### What it can store
#
# Read the formula once more, unit by unit. Hidden unit $i$ has a column $k_i$ of $W_1$ and a row
# $v_i$ of $W_2$, and
#
# $$\text{FFN}(x) = b_2 + \sum_i \max(0, x \cdot k_i + b_{1,i})\; v_i .$$
#
# This looks familiar: it is attention with a ReLU in place of the softmax. $x$ is the query, $k_i$
# a key and $v_i$ a value; but keys and values do not come from the sentence. They are *weights*, a
# memory that is the same for every sentence ([Geva et al. 2021](https://arxiv.org/abs/2012.14913)).
# How much can such a memory hold? We let small networks memorize a thousand random vectors, each
# with one of fifty answers; there is no rule to discover.

# %%
def memorize(network, seed, facts=1000, d_model=32, answers=50, steps=300):
    """The share of the facts that are known after training."""
    torch.manual_seed(seed)
    questions, right = torch.randn(facts, d_model), torch.randint(answers, (facts,))
    model = nn.Sequential(network(d_model), nn.Linear(d_model, answers))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=True)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(questions), right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (model(questions).argmax(dim=-1) == right).float().mean().item()

# %% tags=["nbval-ignore-output"]
def without_relu(d_model, d_ff):
    return nn.Sequential(nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model))


WIDTHS, SEEDS = (8, 16, 32, 64, 128), range(3)
known = {
    name: torch.tensor([[memorize(lambda d, w=w: net(d, w), s) for s in SEEDS] for w in WIDTHS])
    for name, net in {"with ReLU": FeedForward, "without ReLU": without_relu}.items()
}
show(
    bars(
        {name: shares.mean(dim=1) for name, shares in known.items()},
        [str(w) for w in WIDTHS],
        ("hidden units d_ff", "facts known (mean ± std, 3 seeds)"),
        {name: shares.std(dim=1) for name, shares in known.items()},
    ),
    "Share of a thousand facts known by number of hidden units: with ReLU it rises to all of them, "
    "without ReLU it never gets beyond a fifth.",
)
for name, shares in known.items():
    print(f"{name:13}", " ".join(f"{share:4.0%}" for share in shares.mean(dim=1).tolist()))
assert known["with ReLU"][-1].min() > 0.95 and known["without ReLU"].max() < 0.3, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# With the ReLU, more units store more facts, until all are stored. Without it, the two matrices are
# equivalent to one: however many units there are, with this training a linear map gets to a fifth
# of the facts and no further.
#
# How can so few units know a thousand facts, if a unit is one key with one value? They do not
# divide the facts among themselves. A unit is **awake** where its ReLU lets something through. A
# random question wakes many units at once, and what is read out is the *pattern* of the units that
# are awake, so that each unit serves many facts: a **distributed** code. The last matrix, from
# d_model to the fifty answers, stores facts as well.
#
# ### What is stored
#
# And what is stored in a model that has learned to translate? We take the small trained Transformer
# of the course, let it read 500 test sentences, and look at the hidden units of the encoder's
# second feed-forward network: which pieces wake which unit? (The **hook** (chapter 8) is here a
# function that a module calls after its `forward`, with the inputs and the output. If the hook
# returns something, that replaces the output; if not, nothing changes.)

# %%
trained = load_trained("transformer")
model, tokenizer = trained.model.eval(), trained.tokenizer
test = load_corpus(DataConfig()).test
src = pad_sequences([[*tokens, EOS] for tokens in tokenizer.encode(test.sources[:500])])
awake = {}
encoder_hidden = model.encoder.layers[1].feed_forward.hidden


def units_of(src):
    """What the hidden units give at each piece of some sources: (positions, d_ff)."""
    hook = encoder_hidden.register_forward_hook(lambda _, x, out: awake.update(units=out.relu()))
    with torch.no_grad():
        model.encode(src)
    hook.remove()
    return awake["units"][src != PAD]

# %%
units = units_of(src)
pieces = tokenizer.pieces(src[src != PAD].tolist())
times = (units > 0).sum(dim=0)
print(f"{len(pieces):,} positions, {units.size(1)} units")
print(f"awake at a position, on average: {(units > 0).sum(dim=1).float().mean():.1f} units")
print(f"units that never wake: {(times == 0).sum()}")
again = torch.zeros_like(times)
english = sorted((source for source, _ in training_pairs(DataConfig())[::4]), key=len)
for start in range(0, len(english), 1000):
    some = [[*tokens, EOS] for tokens in tokenizer.encode(english[start : start + 1000])]
    again += (units_of(pad_sequences(some)) > 0).sum(dim=0)
asleep = ((times == 0) & (again == 0)).sum()
print(f"nor on {len(english):,} sentences that the model was trained on: {asleep}")

# %% [markdown]
# Out of 512 units, only four or five are awake at a time. So most of them must be waiting for
# something particular, if for anything. The table takes every twentieth of the units that wake at
# ten positions or more, and shows which pieces account for its activity:

# %%
often = [unit for unit in range(units.size(1)) if times[unit] >= 10]


def activity(pieces):
    """For each of those units, how much of its activity each piece has, the most active first."""
    found = []
    for unit in often:
        counts = Counter()
        for position in units[:, unit].nonzero()[:, 0].tolist():
            counts[pieces[position]] += units[position, unit].item()
        found.append([(piece, n / counts.total()) for piece, n in counts.most_common()])
    return found


wakes = activity(pieces)
rows = [
    [unit, times[unit].item(), *(f"{piece} {share:.0%}" for piece, share in wakes[place][:3])]
    for place, unit in list(enumerate(often))[::20]
]
columns = ["unit", "positions", "first", "second", "third"]
pd.DataFrame(rows, columns=columns).set_index("unit").fillna("")

# %% [markdown]
# Is that more than you would expect by chance? A frequent piece would lead by its frequency alone.
# As a baseline we shuffle the pieces over the positions, so that the activity at a position is
# credited to whatever piece happens to land there:

# %%
order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0)).tolist()
shuffled = activity([pieces[place] for place in order])
for name, found in {"as they stand": wakes, "shuffled": shuffled}.items():
    sharp = sum(shares[0][1] > 0.5 for shares in found)
    print(f"{name:14} one piece has more than half of it: {sharp:3} of {len(often)} units")

# %% [markdown]
# Much of this memory is a dictionary. Nearly half of these units belong mainly to a single piece,
# and hardly any do after shuffling. Others respond to a few pieces that have something in common:
# *laughed, laugh*; *else, yet, still*; single letters that begin a word (units 377 and 419). Some
# show no pattern (unit 3). More than a third of all
# units never wake on these sentences, and nearly all of those do not wake on a quarter of the
# training text either. They seem to be **dead**: if the input of a ReLU is negative for every
# sentence, neither an output nor a gradient gets through.
#
# Those were the keys. A value is what a unit adds to the state when it wakes. After the last layer
# of the decoder, only the final norm and the output table follow, so we can work out what a value
# of that layer does to the scores of the pieces. The norm subtracts the mean, divides by the spread
# and multiplies by its weight. The division scales all effects alike; the subtraction and the
# weight can be applied to the values beforehand. Multiplied by the output table, a value then says
# which pieces it makes more likely.
#
# Of the units that wake at thirty positions or more of the reference translations, we take the ten
# with the sharpest values: those that raise a single piece most, compared with the spread over all
# pieces. Each line has the pieces at which a unit is most active, and the four pieces that it
# raises most. Do these come next? The percentage is the share of the unit's twelve most active
# positions at which the right next piece is one of the four. The last line has the mean of these
# shares and, as a baseline, the same mean with the values of another of the ten units:

# %%
encoded = tokenizer.encode([german[0] for german in test.references[:500]])
tgt_input = pad_sequences([[BOS, *tokens] for tokens in encoded])
network = model.decoder.layers[1].feed_forward
hook = network.hidden.register_forward_hook(lambda _, x, out: awake.update(units=out.relu()))
with torch.no_grad():
    model(src, tgt_input)
    values = network.output.weight - network.output.weight.mean(dim=0)
    values = values * model.decoder.final_norm.weight[:, None]
    effect = model.output_weight @ values  # (vocabulary, units)
hook.remove()
awake_units = awake["units"][tgt_input != PAD]
read = tokenizer.pieces(tgt_input[tgt_input != PAD].tolist())
effect = (effect - effect.mean(dim=0)) / effect.std(dim=0)
sharpness = effect.amax(dim=0).masked_fill((awake_units > 0).sum(dim=0) < 30, 0.0)
chosen = sharpness.topk(10).indices
raised = effect[:, chosen].topk(4, dim=0).indices.T  # (10 units, 4 pieces)
places = awake_units[:, chosen].topk(12, dim=0).indices.T  # (10 units, 12 positions)
following = pad_sequences([[*tokens, EOS] for tokens in encoded])[tgt_input != PAD][places]
come = (following[:, None, :, None] == raised[None, :, None, :]).any(dim=-1).float().mean(dim=-1)
for unit, at, pieces_raised, share in zip(chosen.tolist(), places, raised, come.diagonal()):
    at_pieces = " ".join(list(dict.fromkeys(read[n] for n in at.tolist()))[:3])
    more = " ".join(tokenizer.pieces(pieces_raised.tolist()))
    print(f"{unit:3} wakes at {at_pieces:24} and raises {more:21} {share:4.0%}")
others = come[~torch.eye(10, dtype=torch.bool)].mean()
print(f"mean {come.diagonal().mean():.0%}, with another unit's values {others:.0%}")

# %% [markdown]
# Two units wake at *?* and at the period and raise `</s>`; one wakes at words that end clauses,
# such as *gefunden*, and raises closing marks; one wakes inside words, after *anz* or *ück*, and
# raises the endings of verbs. Here key and value make a rule: after this, say that. Others look
# like a rule but are not: the unit that wakes at *weiß* raises *was*, and the one that wakes at
# *ist* raises *sich*, but these pieces hardly ever come next. A value is one vote among many.
#
# ### Is it needed?
#
# Now the second half of the opening question. We take one kind of part out of the trained model (an
# **ablation**), let it translate 200 test sentences and compute BLEU. There are two ways to take
# out a part. Its output can be replaced by zero; but the parts after it have never seen a zero
# there, and some of the damage may come from that. Or its output can be replaced by its own mean
# over many positions; then what is the same everywhere stays, and only what varies is gone.

# %%
tgt_200 = pad_sequences([[BOS, *tokens] for tokens in encoded[:200]])
real = {src.size(1): src[:200] != PAD, tgt_200.size(1): tgt_200 != PAD}
assert len(real) == 2, "the two sides are told apart by their length, and must not be equally long"


@torch.no_grad()
def mean_output(part, where=real):
    """The mean of what a part returns at the real positions of 200 sentence pairs, or others."""
    seen = []
    hook = part.register_forward_hook(lambda _, x, out: seen.append(out[where[out.size(1)]]))
    model(src[:200], tgt_200)
    hook.remove()
    return torch.cat(seen).mean(dim=0)


def without(parts, constants, sentences=200):
    """BLEU and the translations, with the outputs of these modules replaced by constants."""
    hooks = [
        part.register_forward_hook(lambda _, x, out, c=constant: c.expand_as(out))
        for part, constant in zip(parts, constants)
    ]
    said = trained.translate(test.sources[:sentences])
    for hook in hooks:
        hook.remove()
    return bleu(said, test.references[:sentences]).score, said

# %% tags=["nbval-ignore-output"]
encoder_layers, decoder_layers = model.encoder.layers, model.decoder.layers
parts = {
    "nothing": [],
    "encoder self-attention": [layer.self_attention for layer in encoder_layers],
    "encoder feed-forward": [layer.feed_forward for layer in encoder_layers],
    "decoder self-attention": [layer.self_attention for layer in decoder_layers],
    "cross-attention": [layer.cross_attention for layer in decoder_layers],
    "decoder feed-forward": [layer.feed_forward for layer in decoder_layers],
}
parts["all attention"] = [part for name in parts if "attention" in name for part in parts[name]]
parts["all feed-forward"] = [part for name in parts if "forward" in name for part in parts[name]]
parts["all look-ups of embeddings"] = [model.tgt_embedding.embed_tokens]
results = {
    name: [without(some, [by * mean_output(part) for part in some]) for by in (0, 1)]
    for name, some in parts.items()
}
scores = {name: (zero, mean) for name, ((zero, _), (mean, _)) in results.items()}
assert scores["nothing"][0] - 10 < scores["encoder feed-forward"][0] < scores["nothing"][0], (
    "not as on our machines: restart the kernel and run all cells"
)
rows = [[f"{zero:.1f}", f"{mean:.1f}"] for zero, mean in scores.values()]
pd.DataFrame(rows, index=list(scores), columns=["its output zero", "its output's mean"])

# %% [markdown]
# And what do the translations look like?

# %% tags=["nbval-ignore-output"]
print(f"{'':24}", " | ".join(test.sources[1:4]))
for name, ((_, zero), (_, mean)) in results.items():
    print(f"{name:24}", " | ".join(text[:40] for text in zero[1:4]))
    print(f"{'    its mean instead':24}", " | ".join(text[:40] for text in mean[1:4]))
assert results["nothing"][0][1] == results["nothing"][1][1], (
    "nothing was taken out, and the translation changed: run this cell again"
)

# %% [markdown]
# The damage depends on the place. The two mildest cases are both in the encoder: its
# self-attention, and its feed-forward networks (the dictionary above) if they are replaced by
# zeros. Without the decoder's networks, or without its self-attention, BLEU says that next to
# nothing is right. Look at the sentences: many words *are* right, but the model does not stop, or
# the inflections are wrong, and that costs as much BLEU as wrong words (chapter 13). Without
# cross-attention the decoder does not know what to translate, and says the same thing for every
# sentence. (Of the embeddings only the look-up is taken out; positions and the output table stay.)
#
# So the answer to the opening question is that no group can be spared as a whole. What comes
# closest to being expendable is only a part of a group: the encoder's self-attention, in both
# columns, and its feed-forward networks if they return zero. (200 sentences do not tell which of
# the two does less harm if it returns zero.)
#
# The two columns differ most where you would least expect it. The encoder's networks can nearly be
# spared if they return zero, but their *mean* destroys everything. Should the mean not be the
# gentler choice? How long are the vectors that these networks return, and what happens with the
# mean over words alone?

# %%
with torch.no_grad():
    ends, words = src[:200] == EOS, (src[:200] != PAD) & (src[:200] != EOS)
    lengths = {}
    hooks = [
        layer.feed_forward.register_forward_hook(
            lambda _, x, out, n=n: lengths.update({f"encoder layer {n}": out.norm(dim=-1)})
        )
        for n, layer in enumerate(encoder_layers, start=1)
    ]
    model.encode(src[:200])
for hook in hooks:
    hook.remove()
for name, length in lengths.items():
    print(f"{name}: {length[words].mean():4.0f} at words, {length[ends].mean():4.0f} at </s>")
networks = parts["encoder feed-forward"]
of_words = [mean_output(part, real | {src.size(1): words}) for part in networks]
print(f"BLEU with the mean over words alone: {without(networks, of_words)[0]:.1f}")

# %% [markdown]
# At `</s>` the networks return a vector seven to ten times as long as at words. (In large models a
# few individual numbers are enormous, at first tokens and delimiters: [Sun et al.
# 2024](https://arxiv.org/abs/2402.17762) call them massive activations.) One position in seven is a
# `</s>`, so the mean over all positions is dominated by the vector at `</s>`. The mean over words
# alone does far better, but still far worse than zeros: for this part, zero is the gentler choice.
# So the result of an ablation is also a result about whatever was put in the part's place. State
# what you replaced it with, and inspect what you average.
#
# This says what *this trained model* relies on. A model trained without a part might learn to do
# without it; that is a different experiment. (Chapter 14 switches off single heads.)
#
# ## Putting it together
#
# You have now built every box below; each carries the number of its chapter:
# [2](02_from_rnn_to_attention.ipynb), [3](03_tokens_and_embeddings.ipynb),
# [4](04_positional_encoding.ipynb), [5](05_attention.ipynb), [6](06_multi_head_attention.ipynb),
# [7](07_masks.ipynb), [8](08_layer_norm_and_batch_norm.ipynb), [9](09_residuals.ipynb) and this
# one. Two things in the drawing are easily misread. The memory leaves the *top* of the encoder,
# after its last layer, and every layer of the decoder gets this same memory. And each gray line
# around a sublayer is a residual path.

# %%
show(architecture(), ALTERNATIVE)

# %% [markdown]
# The drawing is the paper's, with post-norm. The model that you build now has pre-norm, because the
# weights that you will load were trained that way: each branch begins with a norm, and each stack
# ends with one more. What remains is four modules, which you write from the inside out. They are
# made of your feed-forward network and of your parts from earlier chapters; where one is missing,
# the course lends its own:

# %%
split_heads, merge_heads = mine("split_heads"), mine("merge_heads")
attention, pre_norm = mine("attention"), mine("pre_norm")

# %% [markdown]
# ### Multi-head attention as a module
#
# ●●○ · 20 minutes · the same module for self-attention and for cross-attention
#
# The function of chapter 6 with its matrices inside: four `nn.Linear` of d_model × d_model, each
# with the bias that chapter 6 left out, called `q_proj`, `k_proj`, `v_proj` and `out_proj`. The
# queries come from `x`, the keys and values from `memory`, and `mask` says which keys may be looked
# at. Use `split_heads`, `attention` and `merge_heads` from the cell above. `forward` returns the
# output alone, in the shape of `x`.

# %%
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        ...  # your code

    def forward(self, x, memory, mask):
        ...  # your code


check(MultiHeadAttention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `attention` returns two things. What does `forward` need the number of heads for, and how does it
# get there?
#
# </details>

# %% [markdown]
# ### A layer of the encoder
#
# ●●○ · 15 minutes · attention and a network, joined by residual connections
#
# The parts are passed in, as modules: `self_attention` is called as above; `feed_forward`, `norm1`,
# `norm2` and `dropout` take one tensor each. Store them under the names of the arguments.
# `pre_norm(x, sublayer, norm, dropout)` is yours from chapter 9.

# %%
class EncoderLayer(nn.Module):
    def __init__(self, self_attention, feed_forward, norm1, norm2, dropout):
        super().__init__()
        ...  # your code

    def forward(self, x, mask):
        ...  # your code


check(EncoderLayer)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `pre_norm` wants a sublayer with one argument, but self-attention has three: a `lambda` fills in
# the others. In self-attention, what is the memory?
#
# </details>

# %% [markdown]
# ### A layer of the decoder
#
# ●●○ · 20 minutes · three sublayers, two masks
#
# It attends to what has been said so far, then to the encoder's memory; the network comes last.
# Again the parts are passed in and stored under the names of the arguments, and `pre_norm` wraps
# each sublayer. The memory comes from the encoder's final norm and is not normalized again.

# %%
class DecoderLayer(nn.Module):
    def __init__(
        self, self_attention, cross_attention, feed_forward, norm1, norm2, norm3, dropout
    ):
        super().__init__()
        ...  # your code

    def forward(self, x, memory, tgt_mask, memory_mask):
        ...  # your code


check(DecoderLayer)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Three sublayers. Which mask belongs to which?
#
# </details>

# %% [markdown]
# From here on the modules are yours, or the course's where you have none yet, and so are the parts
# from other chapters that the whole model needs:

# %%
MultiHeadAttention, EncoderLayer = mine("MultiHeadAttention"), mine("EncoderLayer")
DecoderLayer, LayerNorm = mine("DecoderLayer"), mine("LayerNorm")
positional_encoding = mine("positional_encoding")
embed_with_positions = mine("embed_with_positions")
padding_mask, causal_mask = mine("padding_mask"), mine("causal_mask")

# %% [markdown]
# ### The Transformer
#
# ●●● · 45 minutes · the whole model, from tokens to logits
#
# One table serves the source, the target and the output (chapter 3), and there are as many encoder
# layers as decoder layers. The parts have these names:
#
# | name | what |
# |---|---|
# | `embed_tokens` | the table, an `nn.Embedding`; it starts at a standard deviation of 1/√d_model |
# | `dropout` | on the sum of embedding and position |
# | `encoder_layers`, `decoder_layers` | an `nn.ModuleList` each, of `num_layers` layers |
# | `encoder_norm`, `decoder_norm` | one norm after the last layer of each stack |
#
# Its `state_dict()` contains these parts and nothing else, so that weights from elsewhere fit.
#
# `encode(src)` returns the memory. `decode(tgt_input, memory, memory_mask)` returns logits for
# every position, and `forward(src, tgt_input)` does both. The masks hide padding in the source and
# the future in the target; each layer, and the sum of embedding and position, has an `nn.Dropout`
# with the given rate.

# %%
class Transformer(nn.Module):
    def __init__(self, vocab_size, d_model, d_ff, num_heads, num_layers, dropout):
        super().__init__()
        ...  # your code

    def encode(self, src):
        ...  # your code

    def decode(self, tgt_input, memory, memory_mask):
        ...  # your code

    def forward(self, src, tgt_input):
        ...  # your code


check(Transformer)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A function inside `__init__` that makes a new attention each time is shorter than writing each of
# them out, and safer than one attention used in every layer. Which two masks are there, and which
# of them is used twice? `embed_with_positions(tokens, table, positions, dropout)` of chapter 4 is
# the whole first line of `encode` and of `decode`, and the output is a product with the same table,
# transposed.
#
# </details>

# %% [markdown]
# ## The weights of another program
#
# Your model begins with random weights. Training is the subject of the next chapter; for now the
# model borrows the weights of the course's translator. There they have other names:

# %%
state = trained.model.state_dict()
for name, tensor in state.items():
    if "layers.1." not in name:  # called like those of layer 0
        print(f"{name:58}{tuple(tensor.shape)}")

# %% [markdown]
# ### Convert
#
# ●●○ · 30 minutes · what one does when weights are published
#
# Return a new dictionary with the same tensors under the names of *your* model, and leave the given
# one as it is. Three things are different in the given one:
#
# - The layers and the norm after them are called `encoder.layers` and `encoder.final_norm`, and
#   likewise in the decoder.
# - Each norm is inside the residual connection of its sublayer.
# - Queries, keys and values are projected by one matrix, with the rows of $W^Q$ first, then those
#   of $W^K$ and $W^V$.
#
# `output_weight` and both `embed_tokens` are one table.

# %%
def convert(state):
    ...  # your code


check(convert)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Go through the dictionary and let `name.replace(…)` do most of the work; some names give three
# entries. The norm before the feed-forward network is numbered differently in encoder and decoder.
# `print(list(mine("Transformer")(9, 4, 4, 1, 1, 0.0).state_dict()))` shows the names of yours.
#
# </details>

# %% [markdown]
# Now the moment of truth. If a shape does not fit, `load_state_dict` complains; and with the same
# weights your model must return the same logits as the library's:

# %%
Transformer, convert = mine("Transformer"), mine("convert")
built = Transformer(len(tokenizer), 192, 512, 4, 2, dropout=0.15).eval()
built.load_state_dict(convert(state))

src_200 = pad_sequences([[*t, EOS] for t in tokenizer.encode(test.sources[:200])])
with torch.no_grad():
    ours, theirs = built(src_200, tgt_200), model(src_200, tgt_200)
real_labels = tgt_200 != PAD
torch.testing.assert_close(ours[real_labels], theirs[real_labels], atol=1e-3, rtol=1e-3)
print("equal logits at", f"{real_labels.sum():,}", "positions of 200 sentence pairs")

# %% [markdown]
# And it translates, with the loop that you wrote in chapter 1:

# %%
greedy_decode = mine("greedy_decode")


@torch.no_grad()
def translate(sentence):
    src = torch.tensor([[*tokenizer.encode([sentence])[0], EOS]])
    memory, mask = built.encode(src), padding_mask(src)
    tokens = greedy_decode(lambda said: built.decode(torch.tensor([said]), memory, mask)[0, -1], 40)
    return tokenizer.decode([tokens])[0]


for sentence in ("Where is my car?", "Tom does not want to go home.", "I would like a cup of tea."):
    print(f"{sentence:32}{translate(sentence)}")

# %% [markdown]
# That is a Transformer. If the lines above say “yours” everywhere, nothing in it was written by
# anybody else, apart from PyTorch's own modules, such as `nn.Linear` and `nn.Embedding`.
#
# ## Every shape
#
# A hook on each of your modules records what went in and what came out. Batch 2, src_len 9,
# tgt_len 8, d_model 192, d_ff 512, 4 heads:

# %%
def shape(x):
    return "×".join(map(str, x.shape)) if isinstance(x, torch.Tensor) else ""


def shapes_of(model, *inputs):
    """A row for each call of a module, in the order in which they end."""
    rows = []

    def note(name):
        def hook(module, inputs, output):
            rows.append([name, ", ".join(filter(None, map(shape, inputs))), shape(output)])

        return hook

    hooks = [
        module.register_forward_hook(note(name or "the model"))
        for name, module in model.named_modules()
    ]
    with torch.no_grad():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    return rows

# %%
few_src, few_tgt = src_200[[7, 11], :9], tgt_200[[7, 11], :8]
table = pd.DataFrame(shapes_of(built, few_src, few_tgt), columns=["module", "in", "out"])
PARTS = r".*layers\.0(\.(self|cross)_attention|\.feed_forward.*|\.norm1)?|.*_norm|the model"
table[table["module"].str.fullmatch(PARTS)].set_index("module")

# %% [markdown]
# Read it from top to bottom. Whatever runs through the layers is (batch, length, 192), and every
# sublayer returns the shape that its `x` had. The states widen in two places only: inside the
# feed-forward network, and at the very end (the last line, of the model itself), where the logits
# are (2, 8, 4000): a number for each piece. In the line of cross-attention, the first input comes
# from the target and gives the queries, the second is the memory, 9 positions long, and the third
# is the mask. What the hooks do not see is the inside of attention: four heads of 48 channels each,
# and their weights, (batch, heads, queries, keys).
#
# Every layer has the same shapes, and no matrix of *parameters* depends on the length of a
# sentence.
#
# ## Every parameter
#
# ### Count them
#
# ●○○ · 15 minutes · the number in the headline of every model
#
# How many parameters does your `Transformer` have? Compute their number from the sizes, without
# building the model. Count matrices, biases, norms and the one table.

# %%
def count_parameters(vocab_size, d_model, d_ff, num_layers):
    ...  # your code


check(count_parameters)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Begin with one attention, one feed-forward network and one norm. How many of each are in an
# encoder layer, how many in a decoder layer? And how many norms are outside the layers?
#
# </details>

# %% [markdown]
# Without biases and norms, the count becomes a rule worth remembering. With $d = d_{model}$ and the
# usual $d_{ff} = 4d$, attention has four $d \times d$ matrices, that is, $4d^2$ parameters, and the
# feed-forward network has $2 \cdot d \cdot 4d = 8d^2$. So an encoder layer has $12d^2$, a decoder
# layer, with its second attention, $16d^2$, and the table has a row of d numbers for each piece.
# Here are the paper's two models and the smallest one of the library (d_model 128, two layers on
# each side, 8,000 pieces), in millions of parameters:

# %%
count_parameters = mine("count_parameters")
VOCABULARY = {"tiny": 8000, "base": 37_000, "big": 37_000}  # the paper's was about 37,000


def count_by_kind(name, **changes):
    """The number of parameters of each kind; nothing is allocated for the model."""
    with torch.device("meta"):
        model = build_transformer(replace(SIZES[name], **changes), VOCABULARY[name])
    counts = Counter()
    kinds = ("norm", "attention", "feed_forward")
    for own_name, parameter in model.named_parameters():
        kind = next((kind for kind in kinds if kind in own_name), "embeddings")
        counts[kind] += parameter.numel()
    return counts

# %%
counts = pd.DataFrame({name: count_by_kind(name) for name in SIZES}).T
counts = counts[["embeddings", "attention", "feed_forward", "norm"]]
for name, config in SIZES.items():
    sizes = VOCABULARY[name], config.d_model, config.d_ff, config.num_encoder_layers
    final_norms = 4 * config.d_model  # the paper's post-norm needs none
    assert count_parameters(*sizes) - final_norms == counts.loc[name].sum(), (
        "your count differs: does it pass its check?"
    )
for tied, tables in {"all": "one table", "output": "two tables", "none": "three tables"}.items():
    millions = count_by_kind("base", tied_embeddings=tied).total() / 1e6
    print(f"base, {tables:12} {millions:6.1f} million")
(counts / 1e6).assign(all=counts.sum(axis=1) / 1e6).round(2)

# %% [markdown]
# The paper says 65 million for the base model and 213 million for the big one (table 3). Ours have
# 63.1 and 214.2, with one table for both languages and the output; with two or three tables the
# base model would have 82 or 101 million. So the counts agree with section 3.4, where all three
# uses share one table. Where the remaining small difference comes from is not known.

# %%
for name, row in counts.iterrows():
    print(f"{name:5}", {kind: f"{number / row.sum():.0%}" for kind, number in row.items()})

# %% [markdown]
# So attention has 30% of the base model's parameters, as much as the embeddings; the feed-forward
# networks have the most, 40%. In the tiny model the embeddings alone have more than half. The norms
# hardly count.
#
# ## Initialization: how large is random?
#
# Before training every weight is a random number. How large should it be? A linear layer adds up
# $n$ products. If inputs have the size 1 (as a root mean square) and weights the size $\sigma$, the
# sum has the size $\sigma\sqrt{n}$:

# %%
torch.manual_seed(0)
x = torch.randn(1000, 512)
for name, weight in {
    "normal, σ = 1": torch.randn(512, 512),
    "normal, σ = 1/√512": torch.randn(512, 512) / math.sqrt(512),
    "PyTorch's, uniform within ±1/√512": nn.Linear(512, 512).weight.detach(),
}.items():
    print(f"{name:40} output {(x @ weight.T).square().mean().sqrt():5.2f}")

# %% [markdown]
# With σ = 1 the numbers grow twentyfold in each layer. $\sigma = 1/\sqrt{n}$ keeps the size the
# same ([Glorot and Bengio 2010](https://proceedings.mlr.press/v9/glorot10a.html) balance this
# against the same condition for the gradient in the backward pass). With PyTorch's default, which
# the library's matrices and yours have, each layer multiplies the size of the numbers by $1/\sqrt 3 =
# 0.58$. (A deep stack adds up many branches; GPT-2 divides the last matrix of each branch by the
# square root of the number of branches.) The paper does not say how it initialized its weights.
# What difference does it make? We train a small post-norm Transformer with four layers on each side
# for 150 steps, with the library's matrices multiplied by a factor at the start:

# %% tags=["nbval-ignore-output"]
from itertools import islice

from transformer_lib.data import prepare
from transformer_lib.data.batching import make_batch, plan_batches
from transformer_lib.training.loss import output_loss

data = prepare(DataConfig())
assert len(data.train) > 40_000, "the bundled text is not whole: install the course again"

# %% [markdown]
# As in chapter 3, a short training run by hand, over five seeds:

# %%
def start(model, factor):
    """Multiply each matrix by the factor; without one, set all weights to the same number."""
    for matrix in [*model.encoder.parameters(), *model.decoder.parameters()]:
        if matrix.dim() == 2:
            with torch.no_grad():
                matrix.mul_(factor) if factor is not None else matrix.fill_(0.05)

# %% [markdown]
# Besides the loss, it measures how far apart two hidden units end up:

# %%
def train(factor, seed, steps=150, warmup=30, learning_rate=2e-3):
    """The mean loss of the last thirty steps."""
    torch.manual_seed(seed)
    config = TransformerConfig("transformer", 64, 128, 4, 4, 4, dropout=0.0)
    model = build_transformer(config, len(data.tokenizer))
    start(model, factor)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), fused=True)
    losses = []
    epoch = plan_batches(data.train.src.lengths, data.train.tgt.lengths, 512, seed=(seed,))
    for step, indices in enumerate(islice(epoch, steps), start=1):
        optimizer.param_groups[0]["lr"] = learning_rate * min(1.0, step / warmup)
        batch = make_batch(data.train, indices)
        states = model.decode(batch.tgt_input, model.encode(batch.src))
        sums = output_loss(states, model.output_weight, batch.labels)
        optimizer.zero_grad()
        (sums.smoothed / sums.tokens).backward()
        optimizer.step()
        losses.append(sums.smoothed.item() / sums.tokens)
    hidden = model.encoder.layers[0].feed_forward.hidden.weight.detach()
    return {
        "loss after 150 steps": sum(losses[-30:]) / 30,
        "difference of two hidden units": (hidden[0] - hidden[1]).abs().max().item(),
    }

# %% [markdown]
# One number is worth having next to such losses. A model that has learned how frequent each piece
# is, and nothing else, has a loss equal to the **unigram entropy** of the text:

# %%
plan = plan_batches(data.train.src.lengths, data.train.tgt.lengths, 4096, seed=(0,))
labels = torch.cat([make_batch(data.train, indices).labels.flatten() for indices in plan])
frequency = labels[labels != PAD].bincount().double()
share = frequency[frequency > 0] / frequency.sum()
unigram = -(share * share.log()).sum().item()
print(f"unigram entropy of the German pieces: {unigram:.2f} nats")
cases = {f"{factor:g} ×": (factor,) for factor in (0.0, 0.1, 1.0, 3.0, 10.0)}
runs = over_seeds(train, cases | {"all equal": (None,)}, "10_size_of_the_weights")
mean_and_spread(runs)

# %%
loss = runs.groupby("case", sort=False)["loss after 150 steps"].agg(["mean", "std"])
figure = bars(
    {"loss": loss["mean"]},
    list(loss.index),
    ("size at the start", "loss after 150 steps (mean ± std, 5 seeds)"),
    {"loss": loss["std"]},
)
figure.axes[0].axhline(unigram, linestyle="--", color="#888888")
figure.axes[0].text(-0.4, unigram + 0.1, "unigram entropy", fontsize=8)
show(
    figure,
    "Loss after 150 steps by the size of the random weights, beside the unigram entropy: well "
    "below it with the library's, about at it with three times as large or equal ones, above it "
    "with ten times as large ones.",
)
assert loss["mean"].idxmin() == "1 ×" and loss["mean"]["10 ×"] > unigram - 0.3, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# Weights that are too small cost a lot, and so do weights that are too large. At zero a branch
# never looks at its input: all of its matrices are zero, and since the library's biases start at
# zero, too, none of them gets a gradient. Only embeddings, norms and the last bias of each branch
# learn. That is enough to learn which piece follows which, since the residual path leads from the
# piece just read to the output table. With a tenth of the size the loss is no better, but look at
# the spread: some seeds get going within 150 steps, others do not.
#
# If the weights are too large, 150 steps get no further than frequencies. The dashed line explains
# several bars at once: with three times the size, or with all weights equal, the loss is that of a
# model that knows how frequent each piece is, and nothing else; with ten times the size, it is not
# quite even that.
#
# The last case is a different mistake: all weights have the same value, and that value is of a
# sensible size. What has become of the 128 hidden units of a feed-forward network? The second
# column of the table has the answer: they are all the same, after training as before. Equal units
# get equal gradients and stay equal forever: 128 units do the work of one. Random numbers are there
# to make them different from the start (**symmetry breaking**).
#
# ## The same as PyTorch's
#
# PyTorch has a Transformer as well, `torch.nn.Transformer` (stacks only; embeddings, positions and
# the output projection are left to the user). If yours and theirs get the same weights, they must
# compute the same. First, which names correspond?

# %%
def to_torch(name):
    """The name in torch.nn.Transformer of a parameter of a layer."""
    pairs = {
        "encoder_layers": "encoder.layers",
        "decoder_layers": "decoder.layers",
        "encoder_norm": "encoder.norm",
        "decoder_norm": "decoder.norm",
        "self_attention": "self_attn",
        "cross_attention": "multihead_attn",
        "feed_forward.hidden": "linear1",
        "feed_forward.output": "linear2",
    }
    for ours, theirs in pairs.items():
        name = name.replace(ours, theirs)
    return name

# %% [markdown]
# Its three projections are one matrix, as in the library. So this is `convert` in reverse:

# %%
def fused(state):
    """The state dictionary of your model, under PyTorch's names."""
    found = {}
    for name, tensor in state.items():
        before, which, kind = name.rpartition("q_proj.")
        if which:
            three = [state[f"{before}{x}_proj.{kind}"] for x in "qkv"]
            found[f"{before}in_proj_{kind}"] = torch.cat(three)
        elif "k_proj" not in name and "v_proj" not in name:
            found[name] = tensor
    del found["embed_tokens.weight"]
    return {to_torch(name): tensor for name, tensor in found.items()}

# %% [markdown]
# Its masks have the opposite sense: there, True means *blocked* (chapter 7).

# %%
import warnings

warnings.filterwarnings("ignore", "enable_nested_tensor")  # a remark about an optimization
reference = nn.Transformer(192, 4, 2, 2, 512, batch_first=True, norm_first=True).eval()
reference.load_state_dict(fused(built.state_dict()))


def embed(tokens):
    table = built.embed_tokens.weight
    positions = positional_encoding(tokens.size(1), table.size(1))
    return embed_with_positions(tokens, table, positions, nn.Identity())


with torch.no_grad():
    states = reference(
        embed(src_200),
        embed(tgt_200),
        tgt_mask=~causal_mask(tgt_200.size(1))[0, 0],
        src_key_padding_mask=src_200 == PAD,
        memory_key_padding_mask=src_200 == PAD,
    )
    scores = states @ built.embed_tokens.weight.T
torch.testing.assert_close(scores[real_labels], ours[real_labels], atol=1e-3, rtol=1e-3)
print("torch.nn.Transformer computes the same logits")

# %% [markdown]
# A test like this finds what a table of shapes cannot find: a forgotten bias, a norm in the wrong
# place, a mask the wrong way round. (It does not find everything: dropout is off here, and
# gradients are not compared.) The library's tests make the same comparison for post-norm and for
# pre-norm in double precision, where library and PyTorch differ by less than 10⁻¹⁰.
#
# ## Common mistakes
#
# **Side by side.** Many drawings put encoder and decoder next to one another with an arrow from
# each encoder layer to the decoder layer at the same height. What if the code does that? Or if the
# encoder's result is thrown away, and the decoder looks at the embeddings? With both mistakes, all
# shapes are right. Here is our model, which was trained the right way, with each of them, on 200
# test sentences:

# %%
labels = pad_sequences([[*tokens, EOS] for tokens in encoded[:200]])


@torch.no_grad()
def loss_with(*memories):
    """Loss per token, and the share of right next pieces, if each layer has its own memory."""
    x, mask = embed(tgt_200), causal_mask(tgt_200.size(1))
    for layer, memory in zip(built.decoder_layers, memories):
        x = layer(x, built.encoder_norm(memory), mask, padding_mask(src_200))
    scores = built.decoder_norm(x) @ built.embed_tokens.weight.T
    right = (scores.argmax(dim=-1) == labels)[real_labels].float().mean()
    loss = nn.functional.cross_entropy(scores[real_labels], labels[real_labels])
    return f"loss {loss:.2f}, {right:.1%} of the next pieces right"

# %%
with torch.no_grad():
    bottom = embed(src_200)
    first = built.encoder_layers[0](bottom, padding_mask(src_200))
    second = built.encoder_layers[1](first, padding_mask(src_200))
print("both decoder layers look at the end of the encoder:", loss_with(second, second))
print("each at the encoder layer of its own height:       ", loss_with(first, second))
print("both at the embeddings:                            ", loss_with(bottom, bottom))

# %% [markdown]
# The first mistake costs six pieces in a thousand. With two layers and six pieces per sentence
# nobody would notice, and even without any layer of the encoder most of the next pieces are still
# right. A result that looks reasonable proves nothing about the code. Comparing it with a
# program that is known to be right does prove something (above, that was PyTorch's), and so does
# `check`, which tries three layers.
#
# **One layer, N times.** `[layer] * 6` in Python is a list of six names for *one* layer. The model
# has the right depth and a sixth of the parameters, and nothing complains. Count them:

# %%
one = nn.Linear(512, 512)
print(f"six layers: {num_parameters(nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)])):,}")
print(f"[layer] * 6: {num_parameters(nn.Sequential(*[one] * 6)):,}")

# %% [markdown]
# Other mistakes in putting a model together are in the [list of
# mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. Attention moves information between positions; the feed-forward network computes at each of
#    them. It is a memory whose keys and values are weights.
# 2. All states are (batch, length, d_model). Only the hidden units of the feed-forward networks and
#    the logits are wider.
# 3. 12d² parameters per encoder layer, 16d² per decoder layer, and the vocabulary. In the paper's
#    base model attention has 30% of them.
# 4. Random weights of size about 1/√n keep the numbers at the same size. If all weights are equal,
#    units never learn to differ.
# 5. Copied weights and equal outputs show that two implementations compute the same forward pass.
#
# **In the paper:** sections 3.1, 3.3 and 3.4, table 3. **Read on:** Geva et al. 2021, “Transformer
# Feed-Forward Layers Are Key-Value Memories”; Elhage et al. 2022, “Toy Models of Superposition”.
#
# **Next:** [11 · Training](11_training.ipynb)
