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
# One part is missing, the feed-forward network; then everything is put together. By the end you can
#
# - say what a feed-forward network adds to attention, and what its matrices contain,
# - write encoder, decoder and model from their parts, and follow every shape through them,
# - compute the number of parameters in your head, and say where they are,
# - choose the size of random weights, and predict what happens if you choose badly,
# - prove that your model is the same as another implementation.
#
# Reading takes about forty minutes, computing about one.
#
# **Predict first.** “Attention is all you need”, says the paper. Its base model has about 63
# million parameters, in three groups: embeddings, attention, feed-forward networks. What share
# belongs to attention? And which group could you take out of a trained model with the least harm?

# %%
import math
from collections import Counter
from dataclasses import replace

import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, solution
from transformer_lib.course.results import mean_and_spread, over_seeds
from transformer_lib.data.corpora import DataConfig, load_corpus
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.metrics.bleu import bleu
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.model import SIZES, FeedForward, TransformerConfig, build_transformer
from transformer_lib.model import causal_mask, num_parameters, padding_mask, recorded_attention
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
# Two linear layers with a ReLU between them, the hidden one about four times as wide as the model.
# It works on each position by itself, with the same weights at all of them:

# %%
def feed_forward_by_hand(x, W1, b1, W2, b2):
    hidden = (x @ W1 + b1).clamp(min=0)  # (batch, length, d_ff)
    return hidden @ W2 + b2  # (batch, length, d_model)


torch.manual_seed(0)
x = torch.randn(2, 5, 8)
layer = FeedForward(d_model=8, d_ff=32)
by_hand = feed_forward_by_hand(
    x, layer.hidden.weight.T, layer.hidden.bias, layer.output.weight.T, layer.output.bias
)
torch.testing.assert_close(layer(x), by_hand)
changed = x.clone()
changed[:, 2] += 1.0
print("the same as the library's; positions that notice a change at position 2:")
print((layer(changed) != layer(x)).any(dim=-1)[0].tolist())

# %% [markdown]
# Attention moves information between positions, and takes means of it. It can hardly compute
# anything with it. Computing is done here: at each position, with what attention has brought there.
#
# ### What it can store
#
# Read the formula once more, unit by unit. Hidden unit $i$ has a column $k_i$ of $W_1$ and a row
# $v_i$ of $W_2$, and
#
# $$\text{FFN}(x) = b_2 + \sum_i \max(0, x \cdot k_i + b_{1,i})\; v_i .$$
#
# This looks familiar: it is attention without a softmax. $k_i$ is a key, $v_i$ a value, but they do
# not come from the sentence. They are *weights*, a memory that is the same for every sentence
# ([Geva et al. 2021](https://arxiv.org/abs/2012.14913)). How much can such a memory hold? A
# thousand random vectors have to be memorized, each with one of fifty answers. There is no
# rule to be found.

# %%
def learn_by_heart(network, facts=1000, d_model=32, answers=50, steps=300):
    """The share of the facts that are known after training."""
    torch.manual_seed(0)
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


WIDTHS = (8, 16, 32, 64, 128)
known = {
    "with ReLU": [learn_by_heart(lambda d, w=w: FeedForward(d, w)) for w in WIDTHS],
    "without ReLU": [learn_by_heart(lambda d, w=w: without_relu(d, w)) for w in WIDTHS],
}
show(
    bars(known, [str(w) for w in WIDTHS], ("hidden units d_ff", "share of facts known")),
    "Share of a thousand facts known by number of hidden units: with ReLU it rises to all of them, "
    "without ReLU it stays at a fifth.",
)
print({name: [f"{share:.0%}" for share in shares] for name, shares in known.items()})
assert known["with ReLU"][-1] > 0.95, "not as on our machines: restart the kernel and run all cells"
assert max(known["without ReLU"]) < 0.3, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# With the ReLU, more units know more, until all is known. Without it, two matrices are one matrix:
# however many units there are, a fifth is all that a linear map can memorize.
#
# ### What is stored
#
# And in a model that has learned to translate? We take the small trained Transformer of the course,
# let it read 500 test sentences, and look at the hidden units of the encoder's second feed-forward
# network: which pieces wake which unit?

# %%
trained = load_trained("transformer")
model, tokenizer = trained.model.eval(), trained.tokenizer
test = load_corpus(DataConfig()).test
encoded = tokenizer.encode(test.sources[:500])
src = pad_sequences([[*tokens, EOS] for tokens in encoded])
awake = {}
network = model.encoder.layers[1].feed_forward.hidden
hook = network.register_forward_hook(lambda _, x, out: awake.update(units=out.relu()))
with torch.no_grad():
    model.encode(src)
hook.remove()
units = awake["units"][src != PAD]  # (positions, d_ff)
pieces = tokenizer.pieces(src[src != PAD].tolist())
print(f"{len(pieces):,} positions, {units.size(1)} units")
print(f"awake at a position, on average: {(units > 0).sum(dim=1).float().mean():.1f} units")

# %% [markdown]
# Out of 512 units, only four or five are awake at a time. So each of them must be waiting for
# something particular. For each unit, the pieces that its activity is due to; every twentieth of
# those that wake at ten positions or more:

# %%
activity = [Counter() for _ in range(units.size(1))]
for position, unit in units.nonzero().tolist():
    activity[unit][pieces[position]] += units[position, unit].item()


def share(counts, place):
    """A piece and its share of a unit's activity: the first one, the second one …"""
    piece, amount = counts.most_common()[place]
    return f"{piece} {amount / counts.total():.0%}"


times = (units > 0).sum(dim=0).tolist()
often = [unit for unit in range(units.size(1)) if times[unit] >= 10]
rows = [
    [unit, times[unit], *(share(activity[unit], i) for i in range(min(3, len(activity[unit]))))]
    for unit in often[::20]
]
sharp = sum(activity[u].most_common(1)[0][1] > activity[u].total() / 2 for u in often)
print(f"{len(often)} units wake at ten positions or more; one piece makes up half of it: {sharp}")
print(f"{times.count(0)} units never wake")
pd.DataFrame(rows, columns=["unit", "positions", "first", "second", "third"]).fillna("")

# %% [markdown]
# Much of it is a dictionary. Nearly half of these units belong to a single piece (for the most
# frequent ones that may mean little: *Tom* and `</s>` are everywhere). Others belong to a few that
# have something in common: *now, only, just*; *laughed, laugh*; *else, yet, still*. Some tell no
# story (unit 419), and more than a third never wake on these sentences: **dead units**, whose ReLU
# is below zero whatever comes, so that no gradient reaches them any more. What a unit adds to the
# state when it wakes is its value, and that is what the decoder receives.
#
# ### Is it needed?
#
# Now the second half of the opening question. We silence one kind of part in the trained model, let
# it translate 200 test sentences and count BLEU:

# %%
def bleu_without(parts, sentences=200):
    """BLEU with the outputs of these modules set to zero, and what is said then."""
    hooks = [part.register_forward_hook(lambda _, x, out: out * 0.0) for part in parts]
    said = trained.translate(test.sources[:sentences])
    for hook in hooks:
        hook.remove()
    return bleu(said, test.references[:sentences]).score, said


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

# %% tags=["nbval-ignore-output"]
print(" " * 34, " | ".join(test.sources[1:4]))
scores = {}
for name, silenced in parts.items():
    scores[name], said = bleu_without(silenced)
    print(f"without {name:24} {scores[name]:4.1f}", " | ".join(text[:36] for text in said[1:4]))
assert scores["encoder feed-forward"] > scores["nothing"] - 12, (
    "not as on our machines: restart the kernel and run all cells"
)
assert max(scores["decoder feed-forward"], scores["cross-attention"]) < 12, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# It depends on where. The encoder's feed-forward networks, the dictionary above, can be taken out
# for five points. Without the decoder's, or without its self-attention, BLEU says that nothing is
# right. Look at the sentences: many words *are* right, and it cannot stop, or the order is gone.
# that costs as much BLEU as wrong words (chapter 13). Without cross-attention the decoder does
# not know what to translate, and says the same for everything. And the answer to the opening
# question: no group can be spared as a whole. What comes nearest is a part of one, the encoder's
# feed-forward networks.
#
# Two warnings. A zero is something that the parts after it have never met, so that part of the
# damage comes from the zero and not from what is missing (chapter 14). And this says what *this
# trained model* relies on. A model trained without a part might have learned to do without it
# (chapter 14 has more on that).
#
# ## Putting it together
#
# Every box below has been built now, in the chapters whose numbers it bears:
# [2](02_from_rnn_to_attention.ipynb), [3](03_tokens_and_embeddings.ipynb),
# [4](04_positional_encoding.ipynb), [5](05_attention.ipynb), [6](06_multi_head_attention.ipynb),
# [7](07_masks.ipynb), [8](08_layer_norm_and_batch_norm.ipynb), [9](09_residuals.ipynb) and this
# one. Two things are easily misread. The memory leaves the *top* of the encoder, after its last
# layer, and every layer of the decoder gets the same one. And each grey line around a sublayer is a
# residual path, which the norm closes.

# %%
show(architecture(), ALTERNATIVE)

# %% [markdown]
# In code. The encoder: every position looks at every position, then thinks; N times. Our trained
# model has pre-norm and so one more norm at the end; `residual(x, f)` is chapter 9's, here
# $x + f(\text{LN}(x))$.

# %%
def encode(src):
    mask = padding_mask(src)  # (batch, 1, 1, src_len)
    x = model.src_embedding(src)
    for layer in model.encoder.layers:
        x = layer.self_attention_residual(x, lambda y: layer.self_attention(y, mask=mask))
        x = layer.feed_forward_residual(x, layer.feed_forward)
    return model.encoder.final_norm(x), mask

# %% [markdown]
# The decoder: every position looks at itself and the ones before it, then at the source, then
# thinks; N times. What all its layers look at is the *end* of the encoder, `memory`. The output
# projection is the embedding table once more, transposed (chapter 3):

# %%
def decode(tgt_input, memory, memory_mask):
    mask = causal_mask(tgt_input.size(1))  # (tgt_len, tgt_len)
    x = model.tgt_embedding(tgt_input)
    for layer in model.decoder.layers:
        x = layer.self_attention_residual(x, lambda y: layer.self_attention(y, mask=mask))
        x = layer.cross_attention_residual(
            x, lambda y: layer.cross_attention(y, memory, mask=memory_mask)
        )
        x = layer.feed_forward_residual(x, layer.feed_forward)
    return model.decoder.final_norm(x)


def logits(src, tgt_input):
    return decode(tgt_input, *encode(src)) @ model.tgt_embedding.embed_tokens.weight.T

# %% [markdown]
# That is all. Two sentences, to see that it equals the library's model:

# %%
sources = ["Where is my car?", "Tom does not want to go home."]
targets = ["Wo ist mein Auto?", "Tom will nicht nach Hause gehen."]
src = pad_sequences([[*tokens, EOS] for tokens in tokenizer.encode(sources)])
tgt_input = pad_sequences([[BOS, *tokens] for tokens in tokenizer.encode(targets)])
with torch.no_grad():
    torch.testing.assert_close(logits(src, tgt_input), model(src, tgt_input))
    last = logits(src[:1], tgt_input[:1, :5])[0, -1].softmax(dim=-1)
best = last.topk(3)
print("after", " ".join(tokenizer.pieces(tgt_input[0, :5].tolist())), "comes")
for piece, p in zip(tokenizer.pieces(best.indices.tolist()), best.values.tolist()):
    print(f"  {piece:8}{p:.1%}")

# %% [markdown]
# ## Every shape
#
# A **hook** is a function that a module calls after its `forward`. One hook on every module writes
# down what went in and what came out. Batch 2, src_len 9, tgt_len 8, d_model 192, d_ff 512, 4
# heads:

# %%
def shape(x):
    return "×".join(map(str, x.shape)) if isinstance(x, torch.Tensor) else None


def shapes_of(model, *inputs):
    """A row for each call of a module, in the order in which they end."""
    rows = []

    def note(name):
        return lambda _, x, out: rows.append([name, *map(shape, (x[0], out))])

    hooks = [m.register_forward_hook(note(name)) for name, m in model.named_modules() if name]
    with torch.no_grad(), recorded_attention(model) as weights:
        model(*inputs)
    for hook in hooks:
        hook.remove()
    return rows, weights


rows, weights = shapes_of(model, src, tgt_input)
table = pd.DataFrame(rows, columns=["module", "in", "out"])
PARTS = r".*layers\.0.*(attention|feed_forward|hidden|residual)|src_embedding|encoder|decoder"
table[table["module"].str.fullmatch(PARTS)]

# %% [markdown]
# Read it from top to bottom. The embedding turns token numbers into vectors (it is called twice,
# for the target too, since both languages share one table). From then on everything that runs
# through the model is (batch, length, 192), and every part returns the shape that it was given. It
# becomes wider inside the feed-forward network, and at the very end, where the logits are (2, 8,
# 4000): a number for each piece. What hooks do not see are the insides of attention: four heads of
# 48 channels each, and their weights, (batch, heads, queries, keys):

# %%
for name, matrices in weights.items():
    print(f"{name:34}weights {shape(matrices)}")

# %% [markdown]
# In cross-attention the queries come from the target, the keys from the source. No shape depends on
# the number of the layer, and no matrix of *parameters* on the length of a sentence.
#
# ## Every parameter
#
# Per layer, with $d = d_{model}$: attention has four $d \times d$ matrices, the feed-forward
# network two of $d \times d_{ff} = 4d^2$. So an encoder layer has $4d^2 + 8d^2 = 12d^2$ parameters,
# a decoder layer with its two attentions $16d^2$. Six of each with $d = 512$: $168 d^2 = 44$
# million. And the table of 37,000 pieces, $37{,}000 \cdot 512 = 19$ million. (On the “meta” device
# tensors have a shape and no content, so that we can build the big model on any laptop.)

# %%
def parameters(size, vocabulary=37_000, tied="all"):
    """Numbers of parameters by kind of part."""
    with torch.device("meta"):
        model = build_transformer(replace(size, tied_embeddings=tied), vocabulary)
    counts = Counter()
    for name, parameter in model.named_parameters():
        kinds = ("norm", "attention", "feed_forward")
        kind = next((kind for kind in kinds if kind in name), "embeddings")
        counts[kind] += parameter.numel()
    assert counts.total() == num_parameters(model), (
        "not as on this page: restart the kernel and run all cells"
    )
    return counts


counts = {name: parameters(size) for name, size in SIZES.items()}
for tied in ("all", "output", "none"):
    print(f"base, tied={tied!r}: {parameters(SIZES['base'], tied=tied).total() / 1e6:.1f} million")
share_of = pd.DataFrame(counts).T[["embeddings", "attention", "feed_forward", "norm"]]
share_of["all"] = share_of.sum(axis=1)
(share_of / 1e6).round(2)

# %% [markdown]
# The paper says 65 million for the base model and 213 million for the big one (table 3). Ours have
# 63.1 and 214.2, with one table for both languages and the output; without sharing it would be 82
# or 101 million. So the paper's models shared their table. What makes up the small rest is not
# known.

# %%
for name in SIZES:
    row = share_of.loc[name]
    print(f"{name:5}", {kind: f"{row[kind] / row['all']:.0%}" for kind in row.index[:-1]})

# %% [markdown]
# So attention has 30% of the base model's parameters, as much as the embeddings; the feed-forward
# networks have the most, 40%. In a tiny model nearly everything is vocabulary. Norms count for
# nothing.
#
# ## How large is random?
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
    "the library's, uniform within ±1/√512": nn.Linear(512, 512).weight.detach(),
}.items():
    print(f"{name:40} output {(x @ weight.T).square().mean().sqrt():5.2f}")

# %% [markdown]
# With σ = 1 the numbers grow twentyfold in each layer. $1/\sqrt{n}$ keeps the size, and with the
# library's (which is PyTorch's) each layer makes it a little smaller, by $1/\sqrt 3$. The paper
# does not say what it did. What does it matter? A small post-norm Transformer with four layers on
# each side, 150 steps, the library's matrices multiplied by a factor:

# %% tags=["nbval-ignore-output"]
from itertools import islice

from transformer_lib.data import prepare
from transformer_lib.data.batching import make_batch, plan_batches
from transformer_lib.training.loss import output_loss

data = prepare(DataConfig())
assert len(data.train) > 40_000, "the bundled text is not whole: install the course again"

# %% [markdown]
# As in chapter 3, a short training by hand, over five seeds:

# %%
def start(model, factor):
    """Multiply each matrix by the factor; without one, set all weights to the same number."""
    for matrix in [*model.encoder.parameters(), *model.decoder.parameters()]:
        if matrix.dim() == 2:
            with torch.no_grad():
                matrix.mul_(factor) if factor is not None else matrix.fill_(0.05)

# %% [markdown]
# Beside the loss, it measures how far apart two hidden units are in the end:

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

# %%
cases = {f"{factor:g} ×": (factor,) for factor in (0.0, 0.1, 1.0, 3.0, 10.0)}
runs = over_seeds(train, cases | {"all equal": (None,)}, "10_size_of_the_weights")
loss = runs.groupby("case", sort=False)["loss after 150 steps"].agg(["mean", "std"])
show(
    bars(
        {"loss": loss["mean"]},
        list(loss.index),
        ("size at the start", "loss after 150 steps"),
        {"loss": loss["std"]},
    ),
    "Loss after 150 steps by the size of the random weights: best with the library's, worse with "
    "smaller and larger ones, and with equal ones.",
)
assert loss["mean"].idxmin() == "1 ×", (
    "not as on our machines: restart the kernel and run all cells"
)
mean_and_spread(runs)

# %% [markdown]
# Both sides cost a lot. At zero no branch ever says anything: both of its matrices are zero, so
# neither gets a gradient, and only the embeddings learn. Too small is on average even worse than
# zero: the branches wake late, when the learning rate is at its full height. Too large, and softmax
# and ReLU start in places from which there is hardly a way back.
#
# The last bar is another mistake: every weight has the same, sensible size, and even the same
# value. What has become of the 128 hidden units of a feed-forward network? The second column says
# it.
# They are all the same, after training as before. Equal units get equal gradients and stay equal
# for ever: 128 units are one. Random numbers are there to tell them apart.
#
# ## The same as PyTorch's
#
# PyTorch has a Transformer as well, `torch.nn.Transformer` (stacks only; embeddings, positions and
# the output projection are left to the user). If ours and theirs get the same weights, they must
# compute the same. What is called what?

# %%
def copy_attention(ours, theirs):
    theirs.in_proj_weight.copy_(ours.qkv_proj.weight)
    theirs.in_proj_bias.copy_(ours.qkv_proj.bias)
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())


def copy_norm(ours, theirs):
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


def copy_layer(ours, theirs, norms):
    copy_attention(ours.self_attention, theirs.self_attn)
    theirs.linear1.load_state_dict(ours.feed_forward.hidden.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.output.state_dict())
    for name, norm in zip(norms, (theirs.norm1, theirs.norm2, getattr(theirs, "norm3", None))):
        copy_norm(getattr(ours, f"{name}_residual").norm, norm)

# %% [markdown]
# Layer by layer; the decoder's have cross-attention in addition:

# %%
import warnings

warnings.filterwarnings("ignore", "enable_nested_tensor")  # a remark about an optimization
config = model.config
reference = nn.Transformer(
    config.d_model,
    config.num_heads,
    config.num_encoder_layers,
    config.num_decoder_layers,
    config.d_ff,
    batch_first=True,
    norm_first=True,
).eval()
with torch.no_grad():
    for ours, theirs in zip(model.encoder.layers, reference.encoder.layers):
        copy_layer(ours, theirs, ["self_attention", "feed_forward"])
    for ours, theirs in zip(model.decoder.layers, reference.decoder.layers):
        copy_layer(ours, theirs, ["self_attention", "cross_attention", "feed_forward"])
        copy_attention(ours.cross_attention, theirs.multihead_attn)
    copy_norm(model.encoder.final_norm, reference.encoder.norm)
    copy_norm(model.decoder.final_norm, reference.decoder.norm)

# %% [markdown]
# Its masks have the opposite sense: there, True means *blocked* (chapter 7).

# %%
with torch.no_grad():
    states = reference(
        model.src_embedding(src),
        model.tgt_embedding(tgt_input),
        tgt_mask=~causal_mask(tgt_input.size(1)),
        src_key_padding_mask=src == PAD,
        memory_key_padding_mask=src == PAD,
    )
    torch.testing.assert_close(states, model.decode(tgt_input, model.encode(src)))
print("torch.nn.Transformer computes the same, from", tuple(src.shape), "to", tuple(states.shape))

# %% [markdown]
# A test like this finds what a table of shapes cannot find: a forgotten bias, a norm
# in the wrong place, a mask turned round. (Not all: dropout is off here, and gradients are not
# compared.) The library's tests make it for post-norm and pre-norm in
# double precision, where the two differ by less than 10⁻¹⁰.
#
# ## Common mistakes
#
# **Side by side.** Many drawings put encoder and decoder next to one another with an arrow from
# each encoder layer to the decoder layer of the same height. What if the code does that? Or if the
# encoder's result is thrown away, and the decoder looks at the embeddings? Both have the right
# shapes. Our model, which was trained the right way, on 500 test sentences:

# %%
sources, targets = test.sources[:500], [german[0] for german in test.references[:500]]
src = pad_sequences([[*tokens, EOS] for tokens in tokenizer.encode(sources)])
encoded = tokenizer.encode(targets)
tgt_input = pad_sequences([[BOS, *tokens] for tokens in encoded])
labels = pad_sequences([[*tokens, EOS] for tokens in encoded])


@torch.no_grad()
def loss_with(*memories):
    """Loss per token if each decoder layer looks at a memory of its own."""
    x, mask = model.tgt_embedding(tgt_input), padding_mask(src)
    for layer, memory in zip(model.decoder.layers, memories):
        x = layer(x, model.encoder.final_norm(memory), mask)
    scores = model.logits(model.decoder.final_norm(x)).flatten(0, 1)
    return nn.functional.cross_entropy(scores, labels.flatten(), ignore_index=PAD).item()

# %%
with torch.no_grad():
    bottom = model.src_embedding(src)
    first = model.encoder.layers[0](bottom, padding_mask(src))
    second = model.encoder.layers[1](first, padding_mask(src))
print(f"both decoder layers look at the end of the encoder: loss {loss_with(second, second):.2f}")
print(f"each at the encoder layer of its own height:        loss {loss_with(first, second):.2f}")
print(f"both at the embeddings:                             loss {loss_with(bottom, bottom):.2f}")

# %% [markdown]
# The first mistake costs a hundredth. With two layers and six words per sentence nobody would
# notice it, and even with no encoder at all the loss stays near that of the right model. A result
# that looks reasonable proves nothing about the code. A comparison like the one above does, and
# `check`, which tries three layers.
#
# **One layer, N times.** `[layer] * 6` in Python is a list of six names for *one* layer. The model
# has the right depth and a sixth of the parameters, and nothing complains. Count them:

# %%
one = nn.Linear(512, 512)
print(f"six layers: {num_parameters(nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)])):,}")
print(f"[layer] * 6: {num_parameters(nn.Sequential(*[one] * 6)):,}")

# %% [markdown]
# What else `check` knows about the pieces of this chapter:

# %%
for exercise in ("feed_forward", "encoder_layer", "decoder_layer", "transformer"):
    for mistake in wrong_answers(exercise):
        print(f"{exercise:15}{mistake.id:5}{mistake.title}")

# %% [markdown]
# ## Your turn
#
# What passes its `check` is kept in `my_transformer.py` beside this notebook. After a first try,
# `solution("feed_forward")` in a cell of its own shows one way.
#
# ### The feed-forward network
#
# ●○○ · 5 minutes · two thirds of a layer's parameters
#
# As in section 3.3 of the paper. The matrices are (d_model, d_ff) and (d_ff, d_model), the biases
# d_ff and d_model numbers; residual connection and norm are not part of it.

# %%
def feed_forward(x, w1, b1, w2, b2):
    ...  # your code


check(feed_forward)

# %% [markdown]
# <details><summary>Hint</summary>
#
# One ReLU. Where in the formula does it stand, and what is inside it?
#
# </details>
#
# ### A layer of the encoder
#
# ●○○ · 10 minutes · attention and a network, joined by residuals
#
# With post-norm, as in the paper, residual connections included; dropout is left out. The parts are
# given as functions: `self_attention(x, memory, mask)` attends from `x` to `memory`; the others
# take one tensor.

# %%
def encoder_layer(x, mask, self_attention, feed_forward, norm1, norm2):
    ...  # your code


check(encoder_layer)

# %% [markdown]
# <details><summary>Hint</summary>
#
# In self-attention, what is the memory? What does the second sublayer read?
#
# </details>
#
# ### A layer of the decoder
#
# ●●○ · 15 minutes · three sublayers, two masks
#
# Post-norm again. `norms` are the three norms in order, `attention` is the self-attention, `cross`
# the attention to the memory; both are called as above.

# %%
def decoder_layer(x, memory, tgt_mask, memory_mask, attention, cross, feed_forward, norms):
    ...  # your code


check(decoder_layer)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Three sublayers. Which mask belongs to which?
#
# </details>
#
# ### The Transformer
#
# ●●○ · 20 minutes · the whole model
#
# From tokens to logits. Each encoder layer is called as `layer(x, mask)`, each decoder layer as
# `layer(x, memory, tgt_mask, memory_mask)`; the masks hide padding and the future.
# `padding_mask(tokens)` and `causal_mask(length)` are there from chapter 7, the embeddings bring
# their positions with them, and `output_weight` is (vocab_size, d_model).

# %%
def transformer(
    src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, output_weight
):
    ...  # your code


check(transformer)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which two masks are there, and which of them is used twice? The memory is the output of the *last*
# encoder layer.
#
# </details>
#
# You have written a Transformer.
#
# ## Summary
#
# 1. Attention moves information between positions; the feed-forward network computes at each of
#    them. It is a memory of keys and values that are weights.
# 2. All states are (batch, length, d_model). Only the hidden units of the feed-forward networks and
#    the logits are wider.
# 3. 12d² parameters an encoder layer, 16d² a decoder layer, and the vocabulary: attention has less
#    than a third.
# 4. Random weights of size about 1/√n keep the numbers of a size; zero or equal ones never learn.
# 5. Copied weights and equal outputs show that two implementations compute the same forward pass.
#
# **In the paper:** sections 3.1, 3.3 and 3.4, table 3. **Read on:** Geva et al. 2021, “Transformer
# Feed-Forward Layers Are Key-Value Memories”; Glorot and Bengio 2010 on the size of random weights.
#
# **Next:** [11 · Training](11_training.ipynb)
