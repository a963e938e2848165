# ---
# jupyter:
#   jupytext:
#     notebook_metadata_filter: transformer_lib
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   transformer_lib:
#     library:
#     - data
#     - device.py
#     - files.py
#     - plots
#     - progress.py
#     keeps_outputs: true
#     limits:
#       seconds: 180
#       total_seconds: 900
# ---

# %% [markdown]
# # Assignment 4 · A translator, from end to end
#
# You put layers together, train the whole model with teacher forcing, and let it translate word by
# word. At the end it has learned a secret language that the grader makes up, and some German. You
# need chapters 10 to 12. Allow about four hours.
#
# | task | what | points |
# |---|---|---|
# | 1 | a layer of the encoder | 4 |
# | 2 | a layer of the decoder | 4 |
# | 3 | from tokens to logits | 5 |
# | 4 | a loss that is not too sure | 4 |
# | 5 | word by word, several at once | 4 |
# | 6 | the model | 6 |
# | 7 | learning | 7 |
# | 8 | some German | 8 |
#
# **How it works.** Write your code where it says `# your code`. Then run the cell below it:
# `check(…)` tries your function on new numbers each time and tells you what is wrong, if anything
# is. The grader does the same and tries a few more things. A `check` gives points for the share of
# its properties that hold, and none if shape, type or the ordinary values are wrong or a hidden
# test fails; other tests give all of their points or none, except for task 7.
#
# - A task that builds on an earlier one is graded with a correct answer to the earlier one, so a
#   mistake costs you points only once. For this to work, use your earlier functions exactly as
#   their tasks describe them, without extra arguments or methods.
# - Write the loss of task 4 with basic operations. The grader notes any call of a ready-made one.
# - Task 8 is not run again: what you see when you hand in is what is graded.
#
# Hand in this one notebook, and do not rename it; `transformer-lib verify-submission
# translator.ipynb` says whether it can be graded.

# %%
import math

import matplotlib.pyplot as plt
import torch
from torch import nn

from transformer_lib.checks import check, run_test
from transformer_lib.data import DataConfig, training_pairs
from transformer_lib.vocabulary import BOS, EOS, PAD

# %% [markdown]
# Two parts that you have built in the chapters are given here.

# %%
class Attention(nn.Module):
    """Multi-head attention from x to memory."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )

    def forward(self, x, memory, mask):
        def split(states):
            return states.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(memory)), split(self.value(memory))
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
        return self.output((weights @ value).transpose(1, 2).flatten(2))


def positional_encoding(length, d_model):
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    angle = torch.arange(length)[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)

# %% [markdown]
# ## 1 · A layer of the encoder (4 points)
#
# The layer has self-attention, then the feed-forward network, each with a residual connection and a
# norm after the sum (post-norm, without dropout). All parts are given as functions:
# `self_attention(x, memory, mask)`, `feed_forward(x)`, `norm1(x)`, `norm2(x)`.

# %% answer="encoder_layer"
def encoder_layer(x, mask, self_attention, feed_forward, norm1, norm2):
    ### BEGIN SOLUTION
    x = norm1(x + self_attention(x, x, mask))
    return norm2(x + feed_forward(x))
    ### END SOLUTION

# %% test="test_encoder_layer" points=4
verdict = check(encoder_layer)
verdict
### BEGIN HIDDEN TESTS
4 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · A layer of the decoder (4 points)
#
# There are three sublayers, each with a residual connection and, after the sum, a norm (`norms[0]`,
# `norms[1]` and `norms[2]`, in this order), as in task 1: self-attention under `tgt_mask`,
# attention to `memory` under `memory_mask`, and the feed-forward network. `attention` and `cross`
# are called as in task 1, as `cross(x, memory, mask)`.

# %% answer="decoder_layer"
def decoder_layer(x, memory, tgt_mask, memory_mask, attention, cross, feed_forward, norms):
    ### BEGIN SOLUTION
    x = norms[0](x + attention(x, x, tgt_mask))
    x = norms[1](x + cross(x, memory, memory_mask))
    return norms[2](x + feed_forward(x))
    ### END SOLUTION

# %% test="test_decoder_layer" points=4
verdict = check(decoder_layer)
verdict
### BEGIN HIDDEN TESTS
4 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · From tokens to logits (5 points)
#
# `transformer` gets
#
# - the tokens of both sides;
# - two embedding functions, which return (batch, length, d_model) with positions added;
# - two lists of layers, called as `layer(x, mask)` and `layer(x, memory, tgt_mask, memory_mask)`;
# - the matrix of the output, (vocab_size, d_model).
#
# Return the logits, (batch, length, vocab_size). No position may look at padding of the source
# (`PAD`), nor at anything later in the target. Masks are `True` where a position may look, with
# shapes (batch, 1, 1, src_len) for the source and (length, length) for the target.

# %% answer="transformer"
def transformer(
    src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, output_weight
):
    ### BEGIN SOLUTION
    src_mask = (src != PAD)[:, None, None, :]
    length = tgt_input.size(1)
    tgt_mask = torch.ones(length, length, dtype=torch.bool).tril()
    memory = src_embed(src)
    for layer in encoder_layers:
        memory = layer(memory, src_mask)
    x = tgt_embed(tgt_input)
    for layer in decoder_layers:
        x = layer(x, memory, tgt_mask, src_mask)
    return x @ output_weight.T
    ### END SOLUTION

# %% test="test_transformer" points=5
verdict = check(transformer)
verdict
### BEGIN HIDDEN TESTS
5 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · A loss that is not too sure (4 points)
#
# With the label smoothing of chapter 11, all V words share ε, including the right one and padding.
# The Annotated Transformer smooths differently, and so do you: the target q is 1 − ε for the label,
# 0 for padding, which is never right, and the remaining V − 2 words share ε evenly.
#
# Write `smooth_among_others(logits, labels, smoothing)`. For logits (tokens, vocab_size), it
# returns the mean, over tokens whose label is not `PAD`, of −Σ q(v)·log p(v): a tensor of the
# logits' type, through which a gradient can flow, because you will train with it.

# %% answer="smooth_among_others" ready_made="cross_entropy kl_div nll_loss"
def smooth_among_others(logits, labels, smoothing):
    ### BEGIN SOLUTION
    real = labels != PAD
    log_p = logits[real].log_softmax(dim=-1)
    likely = log_p.gather(1, labels[real, None])[:, 0]
    others = (log_p.sum(dim=-1) - likely - log_p[:, PAD]) / (logits.size(1) - 2)
    return -((1 - smoothing) * likely + smoothing * others).mean()
    ### END SOLUTION

# %% test="test_smooth_among_others" points=4
verdict = check(smooth_among_others)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

logits, labels = torch.randn(20, 9), torch.randint(1, 9, (20,))
targets = torch.full((20, 9), 0.1 / 7)
targets[:, PAD] = 0.0
targets[torch.arange(20), labels] = 0.9
expected = nn.functional.cross_entropy(logits, targets)
expect(smooth_among_others(logits, labels, 0.1), expected, "not what PyTorch's cross_entropy gives")
4 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 5 · Word by word, several at once (4 points)
#
# In chapter 1 one sentence was decoded at a time. Here `next_logits(tokens)` takes a tensor of
# tokens, (batch, length), each row of which begins with `BOS`, and gives the logits of the next
# token of each row, (batch, vocab_size).
#
# Write `greedy_decode_batch(next_logits, batch_size, max_len)`. It appends the most likely token to
# each row, again and again, and returns a list for each row: its tokens up to its own `EOS`, or
# `max_len` of them, without `BOS` and `EOS`. A row that has ended stays in the batch until all have
# ended; what is appended to it then does not matter.

# %% answer="greedy_decode_batch"
def greedy_decode_batch(next_logits, batch_size, max_len):
    ### BEGIN SOLUTION
    tokens = torch.full((batch_size, 1), BOS)
    ended = torch.zeros(batch_size, dtype=torch.bool)
    while tokens.size(1) <= max_len and not ended.all():
        best = next_logits(tokens).argmax(dim=-1)
        ended |= best == EOS
        tokens = torch.cat([tokens, best[:, None]], dim=1)
    rows = [[*row, EOS] for row in tokens[:, 1:].tolist()]
    return [row[: row.index(EOS)] for row in rows]
    ### END SOLUTION

# %% test="test_greedy_decode_batch" points=4
verdict = check(greedy_decode_batch)
verdict
### BEGIN HIDDEN TESTS
4 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 6 · The model (6 points)
#
# These two modules hold the weights of a layer and call your functions.

# %%
def feed_forward(d_model):
    return nn.Sequential(
        nn.Linear(d_model, 4 * d_model), nn.ReLU(), nn.Linear(4 * d_model, d_model)
    )


class EncoderLayer(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention = Attention(d_model, num_heads)
        self.feed_forward = feed_forward(d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, mask):
        return encoder_layer(x, mask, self.attention, self.feed_forward, self.norm1, self.norm2)


class DecoderLayer(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention, self.cross = Attention(d_model, num_heads), Attention(d_model, num_heads)
        self.feed_forward = feed_forward(d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, tgt_mask, memory_mask):
        parts = (self.attention, self.cross, self.feed_forward, self.norms)
        return decoder_layer(x, memory, tgt_mask, memory_mask, *parts)

# %% [markdown]
# Write `Translator(vocab_size, d_model, num_heads, num_layers)`. It has these parts, with these
# names, so that the grader can load weights into your model:
#
# - `table`, one `nn.Parameter` (no `nn.Embedding`), (vocab_size, d_model), for the source, the
#   target and the output. Where it embeds, multiply by √d_model and add positions.
# - `encoder` and `decoder`, two `nn.ModuleList`s of `num_layers` layers each.
#
# The table starts normally distributed with a standard deviation of 1/√d_model (chapter 10): with a
# larger one the model hardly learns. `model(src, tgt_input)` returns the logits (batch, length,
# vocab_size). The test below is only a start: what else would a wrong model show?

# %% answer="Translator"
class Translator(nn.Module):
    def __init__(self, vocab_size, d_model, num_heads, num_layers):
        super().__init__()
        ### BEGIN SOLUTION
        self.table = nn.Parameter(torch.randn(vocab_size, d_model) / math.sqrt(d_model))
        self.encoder = nn.ModuleList(EncoderLayer(d_model, num_heads) for _ in range(num_layers))
        self.decoder = nn.ModuleList(DecoderLayer(d_model, num_heads) for _ in range(num_layers))
        ### END SOLUTION

    def forward(self, src, tgt_input):
        ### BEGIN SOLUTION
        def embed(tokens):
            d_model = self.table.size(1)
            return self.table[tokens] * math.sqrt(d_model) + positional_encoding(
                tokens.size(1), d_model
            )

        return transformer(
            src, tgt_input, embed, embed, self.encoder, self.decoder, self.table
        )
        ### END SOLUTION

# %% test="test_translator" points=6
def test_model():
    logits = Translator(11, 16, 2, 1)(torch.full((2, 3), 5), torch.full((2, 4), 6))
    assert logits is not None, "not attempted yet, or a return is missing"
    assert logits.shape == (2, 4, 11), f"the shape is {tuple(logits.shape)}"
    shapes = {name: tuple(p.shape) for name, p in Translator(11, 16, 2, 1).named_parameters()}
    names = {name.partition(".")[0] for name in shapes}
    wanted = ["decoder", "encoder", "table"]
    assert sorted(names) == wanted, f"your parts are {sorted(names)}, not {wanted}"
    assert shapes.get("table") == (11, 16), "table is one nn.Parameter, (vocab_size, d_model)"


verdict = run_test(test_model)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

assert verdict.passed
table = torch.randn(11, 16) / 4
encoder, decoder = (
    nn.ModuleList(kind(16, 2) for _ in range(2)) for kind in (EncoderLayer, DecoderLayer)
)
model = Translator(11, 16, 2, 2)
sides = nn.ModuleDict({"encoder": encoder, "decoder": decoder})
shapes = {part: tuple(value.shape) for part, value in sides.named_parameters()}
got = {name: tuple(p.shape) for name, p in model.named_parameters()}
expect(got, shapes | {"table": (11, 16)}, "the names and shapes of the parameters")
spread = Translator(2000, 16, 2, 1).table.std().item()
expect(spread, 0.25, "the table does not start at a standard deviation of 1/√d_model", atol=0.1)
with torch.no_grad():
    model.table.copy_(table)
model.encoder.load_state_dict(encoder.state_dict())
model.decoder.load_state_dict(decoder.state_dict())


def embed(tokens):
    return 4 * table[tokens] + positional_encoding(tokens.size(1), 16)


src, tgt = torch.randint(4, 11, (2, 5)), torch.randint(4, 11, (2, 6))
src[1, 3:] = PAD
with torch.no_grad():
    expected = transformer(src, tgt, embed, embed, encoder, decoder, table)
expect(model(src, tgt), expected, "with the grader's weights, not its logits", atol=1e-4)
### END HIDDEN TESTS

# %% [markdown]
# ## 7 · Learning (7 points)
#
# `learn(sources, targets, steps, new_sources)` gets lists of token lists. It makes a small
# `Translator` (its size is up to you), trains it for `steps` steps with teacher forcing on batches
# drawn at random, with `Adam`, your `smooth_among_others` and a learning rate of your choice, and
# returns the translations of `new_sources`, by `greedy_decode_batch`. Token numbers are below 30;
# sentences have up to eight tokens, and `BOS` and `EOS` are not among them.
#
# The grader makes up a language: every word has a secret counterpart, and one simple rule, also
# secret, changes the order of the words in all sentences. It gives you 2,000 pairs, 400 steps and
# 100 new sentences, and counts the translations that are right to the last token.
#
# - Eighty right translations give all seven points, fewer give their share, and fewer than ten give
#   none.
# - You have three minutes on one core.
# - The model must owe its answers to the training: after 20 steps, few translations should be right
#   yet.
# - Luck plays a part. If fewer than 80 are right, the grader tries again with new languages, three
#   in all, and the best result counts.
#
# A warm-up does no harm here, and deeper models need it. The test below only looks at the form of
# what you return. So make up a language of your own (reverse the words, for example), and count.

# %% answer="learn" needed="backward grad"
def learn(sources, targets, steps, new_sources):
    ### BEGIN SOLUTION
    model = Translator(30, 64, 4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 60, (60 / (step + 1)) ** 0.5)
    )

    def padded(rows):
        width = max(map(len, rows))
        return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])

    for _ in range(steps):
        chosen = torch.randint(len(sources), (64,)).tolist()
        src = padded([sources[i] for i in chosen])
        tgt_input = padded([[BOS, *targets[i]] for i in chosen])
        labels = padded([[*targets[i], EOS] for i in chosen])
        loss = smooth_among_others(model(src, tgt_input).flatten(0, 1), labels.flatten(), 0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    src = padded(new_sources)
    with torch.no_grad():
        return greedy_decode_batch(lambda tokens: model(src, tokens)[:, -1], len(src), 12)
    ### END SOLUTION

# %% test="test_learn" points=7 tags=["nbval-ignore-output"]
def test_learn():
    words = [[n, n + 1] for n in range(4, 28)]
    answers = learn(words, words, 20, words[:3])
    assert answers is not None, "not attempted yet, or a return is missing"
    assert len(answers) == 3, f"{len(answers)} translations of 3 sentences"
    assert all(isinstance(token, int) for answer in answers for token in answer), "lists of int"


verdict = run_test(test_learn)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import agreeing, expect

assert verdict.passed


def sentences(count):
    lengths = torch.randint(3, 8, (count,)).tolist()
    return [torch.randint(4, 24, (length,)).tolist() for length in lengths]


def right_of_100(steps=400):
    secret = (torch.randperm(20) + 4).tolist()
    first = (-1, 1, 2)[torch.randint(3, ()).item()]

    def translated(sources):
        return [
            [secret[token - 4] for token in source[first:] + source[:first]] for source in sources
        ]

    shown, new = sentences(2000), sentences(100)
    answers = learn(shown, translated(shown), steps, new)
    return agreeing(answers, translated(new))


soon = right_of_100(steps=20)
expect(soon < 50, True, "most are right after 20 steps: no model learns so fast")
right = 0
for _ in range(3):
    right = max(right, right_of_100())
    if right >= 80:
        break
expect(right >= 10, True, "of 100 new sentences, fewer than ten are right in all three languages")
7 * min(1.0, right / 80)
### END HIDDEN TESTS

# %% [markdown] question="q_german"
# ## 8 · Some German (8 points, graded by hand)
#
# The course includes a corpus of short sentences, English and German; these are its training pairs:

# %%
pairs = training_pairs(DataConfig())
short = [(a.lower().split(), b.lower().split()) for a, b in pairs if len(a.split()) <= 4]
short[:3], len(short)

# %% [markdown] question="q_german_task"
# Train a translator on the short pairs:
#
# 1. Make a vocabulary of the words of both sides (leave out pairs with rare words).
# 2. Train a `Translator` on some thousands of the short pairs, or on all of them, for a minute or
#    two, and draw the loss over the steps.
# 3. Print ten translations of sentences that it was **not** trained on, each beside its reference.
# 4. In the text cell below, describe in a few sentences what the model has learned and what it has
#    not, with examples. What happens to a word that is not in your vocabulary, and what would a
#    better tokenizer change?
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 2 | cell 1: trained on one part, tested on another: no sentence is in both |
# | 1 | cell 1: the loss over the steps, axes labeled |
# | 1 | cell 1: ten translations beside their references |
# | 2 | what it has learned and what not, with examples from the list |
# | 1 | words that were never seen cannot be translated or said |
# | 1 | pieces of words (BPE) would share stems and endings and leave no word out; or: *tom.* would no longer be another word than *tom* |
# ### END MARK SCHEME

# %% manual="german" points=4 tags=["nbval-ignore-output"]
### BEGIN SOLUTION
from collections import Counter

torch.manual_seed(0)
counts = Counter(word for a, b in short for word in a + b)
words = [word for word, count in counts.items() if count >= 8]
number = {word: n for n, word in enumerate(words, start=4)}
known = [(a, b) for a, b in short if all(word in number for word in a + b)]
held_out = set(torch.randperm(len(known))[:200].tolist())
seen = {tuple(a) for i, (a, b) in enumerate(known) if i not in held_out}
train = [known[i] for i in range(len(known)) if i not in held_out]
new = [known[i] for i in sorted(held_out) if tuple(known[i][0]) not in seen]

model = Translator(len(words) + 4, 96, 4, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), fused=True)


def padded(rows):
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])


losses = []
for step in range(1, 121):  # so that the notebook runs in a test; 800 take half a minute
    chosen = [train[i] for i in torch.randint(len(train), (64,)).tolist()]
    src = padded([[number[w] for w in a] for a, _ in chosen])
    tgt = [[number[w] for w in b] for _, b in chosen]
    logits = model(src, padded([[BOS, *t] for t in tgt]))
    labels = padded([[*t, EOS] for t in tgt])
    loss = smooth_among_others(logits.flatten(0, 1), labels.flatten(), 0.1)
    optimizer.param_groups[0]["lr"] = 1e-3 * min(1.0, step / 60)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert sum(losses[-20:]) / 20 < 0.8 * losses[0], "it does not learn: look at the loss"

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.plot(losses)
axes.set(xlabel="step", ylabel="loss")
src = padded([[number[w] for w in english] for english, _ in new[:10]])
with torch.no_grad():
    said = greedy_decode_batch(lambda tokens: model(src, tokens)[:, -1], 10, 12)
for (english, german), row in zip(new[:10], said, strict=True):
    print(" ".join(english), "|", " ".join(words[t - 4] for t in row), "|", " ".join(german))
### END SOLUTION

# %% [markdown] manual="german_words" points=4
# (About 800 steps, half a minute; the cell above stops after 120.) It has learned which words
# belong together and where the verb goes, and whole phrases that occur often: *we're alone* is *wir
# sind allein* and *i saw tom* is *ich habe tom gesehen*, as in the reference. It replaces rarer
# words by frequent ones of the same form: *i use this* became *ich habe das geschrieben*. It
# translates idioms word for word, or half of them: *turn it up* became *mach es ein*, *i'm not ok*
# became *mir geht es nicht in ordnung*, which mixes two ways to say it. A word that is not in the
# vocabulary cannot be read or said at all, which is why pairs with rare words had to go. Pieces of
# words (BPE) would cure this: every word is made of known pieces, and *gehe*, *gehst* and *geht*
# share their stem instead of being three strangers.

# %% [markdown]
# Done? Run everything once from the top (*Restart Kernel and Run All Cells*), save, and run
# `transformer-lib verify-submission translator.ipynb` before you hand in the file.
