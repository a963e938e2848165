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
# # 3 · Tokens and embeddings
#
# A network computes with vectors; a sentence consists of letters. In this chapter you build the
# path from letters to vectors: a tokenizer of your own, which can handle any character, and the
# embedding that follows it. By the end you can
#
# - write byte-pair encoding, compare yours with SentencePiece's, and say what a larger vocabulary
#   costs,
# - explain why embeddings are multiplied by √d_model, and what happens if they are not,
# - say what tied weights save,
# - prepare a batch: padding, the special tokens, the shift of the target.
#
# Reading takes about forty minutes, running the cells less than one.
#
# **Predict first.** A vocabulary of 8,000 pieces is sixteen times as large as one of 500. To what
# fraction of their length do sentences shrink with it: a sixteenth, a quarter, or two thirds?

# %%
import math
import re
from collections import Counter
from itertools import chain, count, islice

import numpy as np
import pandas as pd
import torch

from transformer_lib.checks import check, mine, solution
from transformer_lib.course.results import mean_and_spread, over_seeds
from transformer_lib.data import DataConfig, make_batch, plan_batches, prepare
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.course.figures.merges import merge_explorer
from transformer_lib.course.figures.shift import ALTERNATIVE, shift_drawn
from transformer_lib.course.lineages import toy
from transformer_lib.experiment.validation import reference_loss
from transformer_lib.model import TransformerConfig, build_transformer, num_parameters
from transformer_lib.model.positional_encoding import sinusoidal_positions
from transformer_lib.plots.measurements import lines
from transformer_lib.plots.notebook import show, show_chart
from transformer_lib.course.trained import load_trained
from transformer_lib.training.loss import output_loss
from transformer_lib.vocabulary import BOS, EOS, PAD

# %% [markdown]
# ## Letters or words?
#
# The model chooses the next token from a fixed list, the **vocabulary**. What should be in it?
# Letters? There are few of them, and every word can be written. But sentences become long, and the
# model has to learn to spell before it learns anything else. Words? Sentences become short. But
# which words? Let us list the words of our corpus, and then the words of every fifth sentence pair
# alone, and see how well each list covers the test sentences:

# %%
corpus = load_corpus(DataConfig())
held_out = {*corpus.test.sources, *corpus.valid.sources}
pairs = [pair for pair in corpus.train if pair[0] not in held_out]
text = [side for pair in pairs[::5] for side in pair]
test = corpus.test.sources + [german[0] for german in corpus.test.references]


def words_of(sentence):
    return re.findall(r"\w+|[^\w\s]", sentence)


for part in (pairs, pairs[::5]):
    read = [side for pair in part for side in pair]
    known = {word for sentence in read for word in words_of(sentence)}
    unknown = [[word for word in words_of(s) if word not in known] for s in test]
    share = sum(map(bool, unknown)) / len(test)
    print(f"{len(read):,} sentences with {len(known):,} different words; ", end="")
    print(f"{share:.0%} of the test sentences have a word that is not among them")
print("for example", ", ".join(word for words in unknown[1005:1080] for word in words))

# %% [markdown]
# With the words of a fifth of the text, every fifth test sentence contains a word that is not on
# the list, although these are simple sentences and the list is twice as long as the vocabulary of
# chapter 1. With five times as much text it is still every twelfth sentence, and the list is then
# four times as long as that vocabulary. An inflected form or a compound can be new in any sentence.
# And the model can only say what is on its list.
#
# So we want something in between: frequent words whole, rare ones in pieces.
#
# ## Byte-pair encoding
#
# [Sennrich et al. 2016](https://arxiv.org/abs/1508.07909) borrowed a method from data compression.
# Begin with single characters. Count which two neighbors occur together most often, and make them
# one symbol. Repeat until the vocabulary has the size that you want. That is all there is to
# **BPE**.
#
# The beginning of a word is marked by `▁`, which stands for the space before it. Merges never cross
# a word boundary, so it is enough to know how often each word occurs:

# %%
def split_words(sentence):
    """▁ before each word; punctuation separate."""
    return re.findall(r"▁?\w+|▁?[^\w▁]", "▁" + sentence.replace(" ", "▁"))


print(split_words("I'm hungry, Tom."))
counts = Counter(word for sentence in text for word in split_words(sentence))
print(f"{len(counts):,} different, the most frequent:", counts.most_common(5))

# %% [markdown]
# You will write BPE in three steps; two more make a tokenizer of it. What passes its `check` is
# kept in `my_transformer.py` beside this notebook; after a first try, `solution("merge_pair")` in a
# cell of its own shows one way.
#
# ### Merge a pair
#
# ●○○ · 10 minutes · the step that BPE is made of
#
# The heart of BPE: in the list `symbols`, merge every occurrence of `pair`, from left to right,
# into one symbol, and return the new list. `["a", "a", "a"]` and `("a", "a")` give `["aa", "a"]`.

# %%
def merge_pair(symbols, pair):
    ...  # your code


check(merge_pair)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Build the new list symbol by symbol, and look each time at the last symbol that is already in it.
# Why not join the symbols with spaces and replace text? Try the symbols `ut`, `he` and the pair
# `t`, `he`.
#
# </details>

# %% [markdown]
# ### Learn the merges
#
# ●●○ · 30 minutes · the training of a tokenizer
#
# `counts` says how often each word occurs in the text. Begin with each word as a list of
# characters. Then, `number` times or until there is no pair left:
#
# 1. Count all pairs of neighbors, each as often as its word occurs.
# 2. Merge the most frequent pair in all words. Of equally frequent pairs take the first in
#    alphabetical order, the smallest in Python's order.
#
# Return the list of pairs, in the order in which you merged them.

# %%
merge_pair = mine("merge_pair")


def learn_merges(counts, number):
    ...  # your code


check(learn_merges)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `{word: list(word) for word in counts}` and a `Counter` of pairs, made anew for each merge.
# `zip(symbols, symbols[1:])` are the neighbors. `max` finds the highest count, `min` the first of
# the pairs that have it.
#
# </details>

# %% [markdown]
# ### Cut a word
#
# ●○○ · 10 minutes · your tokenizer cuts words
#
# Begin with the characters of the word and apply the merges one by one, in the order in which they
# were learned. Return the list of pieces.

# %%
def apply_merges(word, merges):
    ...  # your code


check(apply_merges)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Begin with single characters. The order of the merges decides, not the length of the pieces. A
# merge that finds nothing is no reason to stop.
#
# </details>

# %% [markdown]
# Now learn a hundred merges from the text, and watch the characters of a sentence grow together
# (two spaces separate words):

# %%
learn_merges, apply_merges = mine("learn_merges"), mine("apply_merges")
merges = learn_merges(counts, 100)
for number in (0, 1, 2, 5, 8, 12, 50, 100):
    sentence = [" ".join(apply_merges(w, merges[:number])) for w in split_words("Tom is in town.")]
    last = " + ".join(merges[number - 1]) if number else ""
    print(f"{number:3} {last:8} {'  '.join(sentence)}")

# %% [markdown]
# *Tom* is whole after eight merges, because he occurs in every fourth sentence of this text. The other
# merges are endings and beginnings that are frequent in one of the two languages or in both. The
# algorithm knows nothing of syllables. Move the slider and watch the characters grow together;
# choose another sentence:

# %%
def cut(sentence, number):
    return [
        piece for word in split_words(sentence) for piece in apply_merges(word, merges[:number])
    ]


SENTENCES = ("Tom is in town.", "My mother saw a hedgehog.", "Meine Mutter sah einen Igel.")
show_chart(merge_explorer(cut, SENTENCES, merges, shown=8))

# %% [markdown]
# ## SentencePiece
#
# The library leaves this to [SentencePiece](https://github.com/google/sentencepiece), whose BPE
# mode does the same faster: it recounts only what a merge has changed. Its pieces are numbered in
# the order in which they were learned, so we can compare. Do its first hundred merges agree with
# ours?

# %%
characters = {character for sentence in text for character in sentence}
tokenizer = Tokenizer.train(text, vocab_size=4 + len(characters) + 100)
theirs = tokenizer.pieces(range(4, 104))
ours = ["".join(pair) for pair in merges]
print(f"the same hundred pieces: {set(ours) == set(theirs)}, in the same order: {ours == theirs}")

# %% [markdown]
# Where two pairs are equally frequent, each program decides in its own way which one goes first, so
# two lists may differ for a while; on this text they do not.
#
# ## Special tokens
#
# Numbers 0 to 3 are special: `<pad>` is filler, `<unk>` stands for characters that were not in the
# text (a single one for several in a row), `<s>` begins what the decoder reads, `</s>` ends every
# sentence. Everything else survives encoding and decoding unchanged, except for white space:

# %%
for sentence in ("The hedgehog sneezes.", "two  spaces, then one", "Привет, Tom!"):
    (tokens,) = tokenizer.encode([sentence])
    print(tokenizer.pieces(tokens))
    print(tokens, "→", tokenizer.decode([tokens])[0])

# %% [markdown]
# There is not one Russian letter in our text. What has no piece becomes `<unk>`, and is lost: the ⁇
# does not say which letters they were. And somebody who types `</s>` into a text cannot end the
# sentence with it (such an attack is one kind of *prompt injection*). The typed characters are cut
# like any other text, here into a slash and an s between two unknown characters:

# %%
print(tokenizer.pieces(tokenizer.encode(["</s>"])[0]), "but the token itself is", EOS)

# %% [markdown]
# ### Nothing unknown
#
# ●●○ · 20 minutes · how large language models read every script
#
# Does anything have to be unknown? Every text is a sequence of bytes (UTF-8), and there are only
# 256 of them. GPT-2's tokenizer merges bytes instead of characters from the start; SentencePiece
# can spell what it does not know in bytes (`byte_fallback`), as it does for the first two Llama
# models. Write the second method: a symbol that is in the set `vocabulary` stays as it is; any
# other symbol, however many characters it has, is replaced by its bytes, each a piece like
# `<0xD0>`. Return one list of pieces.

# %%
def byte_fallback(symbols, vocabulary):
    ...  # your code


check(byte_fallback)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `symbol.encode("utf-8")` is a sequence of numbers from 0 to 255. `f"{10:02X}"` is 0A.
#
# </details>

# %% [markdown]
# ### A tokenizer of your own
#
# ●●● · 30 minutes · from text to pieces, with nothing but your own parts
#
# Now all together: learn `number` merges from the sentences of `text`, and cut each of `sentences`
# into pieces. Split words as `split_words` above does; you may call it. The vocabulary consists of
# all characters of the text (`▁` among them) and of all merged pieces; what is not in it is spelled
# in bytes. Return a list of pieces for each sentence.

# %%
byte_fallback = mine("byte_fallback")


def tokenize(text, number, sentences):
    ...  # your code


check(tokenize)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Four lines do it: counts, merges, vocabulary, and a list of lists. Cut word by word with
# `apply_merges`, and pass the result to `byte_fallback`.
#
# </details>

# %% [markdown]
# **Your first milestone.** Does your tokenizer cut sentences as SentencePiece does? Both learn a
# hundred merges from the same text and cut the 2,000 sentences of the test set:

# %%
tokenize = mine("tokenize")
mine_cut = tokenize(text, 100, test)
theirs_cut = [tokenizer.pieces(tokens) for tokens in tokenizer.encode(test)]
alike = [a == b for a, b in zip(mine_cut, theirs_cut)]
print(f"cut alike: {sum(alike)} of {len(alike)} sentences")
different = [(a, b) for a, b, same in zip(mine_cut, theirs_cut, alike) if not same]
for a, b in different[:2]:
    print("yours ", *a, "\ntheirs", *b)
assert sum(alike) > 0.9 * len(alike), "not as on our machines: run all cells again"

# %% [markdown]
# They differ in one sentence, and only in a character that SentencePiece gives up as unknown and
# your tokenizer spells in bytes. You have written the tokenizer of a translation model.
#
# ## How many pieces?
#
# Back to the opening question. Here is the same text with vocabularies from 250 to 8,000 pieces:

# %%
sizes = (250, 500, 1000, 2000, 4000, 8000)
lengths = []
for size in sizes:
    learned = Tokenizer.train(text, size)
    lengths.append(sum(map(len, learned.encode(test))) / len(test))
    met = Counter(token for tokens in learned.encode(text) for token in tokens)
    median = np.median([met[token] for token in range(4, size)])
    print(f"{size:5} pieces: {lengths[-1]:4.1f} tokens per sentence, median piece {median:g} times")
show(
    lines({"": (sizes, lengths)}, ("pieces in the vocabulary", "tokens per sentence"), "x"),
    "Tokens per sentence against the size of the vocabulary: from 11 at 250 pieces to 6 at 8,000, "
    "each doubling saves less.",
)

# %% [markdown]
# From 500 to 8,000 pieces, sentences shrink to two thirds of their length, and each doubling saves
# less than the one before.
#
# What does a larger vocabulary cost? Every piece costs a row of the embedding and, at each output
# step, the computation of a score. And the more pieces there are, the more of them are rare: at
# 8,000, half of them occur at most twice in this text, which is little to learn a vector from. The
# paper used about 37,000 pieces for 4.5 million sentence pairs; for all our 48,000 pairs we use
# 4,000.
#
# ## From numbers to vectors
#
# A token number (in most libraries: token ID) is a name, not a quantity: piece 2000 is not twice piece 1000. Each gets a vector
# of its own, a row of the **embedding** matrix, and the rows are learned like all other weights.
# Looking up row $t$ gives the same result as multiplying a **one-hot** vector (1 at $t$ and 0
# elsewhere) by the matrix, without all the multiplications by 0:

# %%
torch.manual_seed(0)
table = torch.randn(6, 4)
tokens = torch.tensor([5, 0, 5])
one_hot = torch.nn.functional.one_hot(tokens, num_classes=6).float()
assert torch.equal(one_hot @ table, table[tokens]), (
    "not as on this page: restart the kernel and run all cells"
)
print(one_hot.int().tolist(), "times the table = its rows", tokens.tolist())

# %% [markdown]
# What do trained rows know? The course includes a small trained Transformer. It has one table for
# both languages. Which rows are most similar to the row of a given piece? We measure similarity by
# the cosine of the angle between two rows:

# %%
trained = load_trained("transformer")
E = trained.model.tgt_embedding.embed_tokens.weight.detach()
E = E / E.norm(dim=1, keepdim=True)


def neighbors(word, number=4):
    ((token,),) = trained.tokenizer.encode([word])
    nearest = (E @ E[token]).topk(number + 1).indices.tolist()[1:]
    return [piece.removeprefix("▁") for piece in trained.tokenizer.pieces(nearest)]


for word in ("car", "mother", "bought", "him", "kaufte", "Hund", "Monday"):
    print(f"{word:8}", ", ".join(neighbors(word)))

# %% [markdown]
# Nouns lie beside nouns, pronouns beside pronouns, verbs beside verbs, mostly past forms beside
# past forms: words that occur in the same places get similar rows. Some words that mean much the
# same are neighbors, too (*mother* and *mom*), but a car is no girl, and a word and its translation
# are not neighbors, although both languages share the table. *Monday* has not found its place.
# Pictures in which such a space looks tidy come from models that have read far more.
#
# ## Times √d_model
#
# “In the embedding layers, we multiply those weights by √d_model”, says section 3.4, and no more.
# Why? The same table is used three times, for source, target and output: the model has **tied
# weights**.
#
# At the end of the model, the score (**logit**) of each piece is the dot product of the decoder's
# state with the piece's row. The numbers in a state have size 1 (root mean square; a norm sees to
# that, chapter 8), so the dot product of a state with a row whose numbers have size σ has size
# $\sigma\sqrt{d_{model}}$. That should not be more than about 1 at the start, so that hardly any
# piece is preferred; hence rows start with $\sigma = 1/\sqrt{d_{model}}$. (They do in the authors'
# program, Tensor2Tensor, and in this library; the paper does not say.)
#
# At the beginning of the model, though, the row is added to a vector for its position (chapter 4),
# whose numbers have size 0.7. Next to that vector such a row is almost nothing:

# %%
def rms(x):
    return x.square().mean().sqrt().item()


torch.manual_seed(0)
d_model = 512
rows = torch.randn(4000, d_model) * d_model**-0.5
states = torch.randn(1000, d_model)
print(f"logits:          {rms(states @ rows.T):.2f}")
print(f"positions:       {rms(sinusoidal_positions(50, d_model)):.2f}")
print(f"rows:            {rms(rows):.2f}")
print(f"rows × √d_model: {rms(rows * math.sqrt(d_model)):.2f}")
print(f"rows / √d_model: {rms(rows / math.sqrt(d_model)):.3f}")

# %% [markdown]
# When the row is multiplied by the root, word and position are about equally large. The last line
# is what you get if you divide by the root: the position is 360 times as large as the word. (One
# published notebook, which chapter 16 reads, says “divide by d_model” in a comment above code that
# multiplies by the root.)
#
# ### Embed
#
# ●○○ · 5 minutes · what the first layer reads
#
# Return the vectors of a batch of tokens, (batch, length), looked up in a table of (vocab_size,
# d_model) and scaled as section 3.4 of the paper prescribes.

# %%
def embed(tokens, table):
    ...  # your code


check(embed)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `table[tokens]` has the shape (batch, length, d_model). One factor is missing.
#
# </details>

# %% [markdown]
# Does the factor matter, or will training make up for it? To find out we need the text as batches
# of token numbers, as chapter 1 prepared it:

# %% tags=["nbval-ignore-output"]
data = prepare(DataConfig())
assert len(data.train) > 40_000, "the bundled text is not whole: install the course again"

# %% [markdown]
# We train five small models for 150 steps each. The last two have three tables, one for each use.

# %%
def train(scale, tied, seed, d_model=128, steps=150):
    """The first loss, and the mean of the last thirty."""
    torch.manual_seed(seed)
    config = TransformerConfig("transformer", d_model, 128, 4, 1, 1, 0.0, tied_embeddings=tied)
    model = build_transformer(config, len(data.tokenizer))
    model.src_embedding.scale = model.tgt_embedding.scale = scale
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), fused=True)
    losses = []
    epoch = plan_batches(data.train.src.lengths, data.train.tgt.lengths, 512, seed=(seed,))
    for indices in islice(epoch, steps):
        batch = make_batch(data.train, indices)
        states = model.decode(batch.tgt_input, model.encode(batch.src))
        sums = output_loss(states, model.output_weight, batch.labels)
        loss = sums.smoothed / sums.tokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"first loss": losses[0], "loss after 150 steps": sum(losses[-30:]) / 30}

# %% [markdown]
# One run says little: the next one, with other random weights and with the batches in another
# order, ends in a slightly different place. `over_seeds` trains each model five times. As this
# takes some minutes, the course comes with the results (`make results` measures them); if you
# change `train`, your machine measures its own.

# %%
root = math.sqrt(128)
cases = {
    "× √d_model": (root, "all"),
    "as it is": (1.0, "all"),
    "/ √d_model": (1 / root, "all"),
    "× √d_model, not tied": (root, "none"),
    "as it is, not tied": (1.0, "none"),
}
runs = over_seeds(train, cases, "03_scale_of_the_embedding")
loss = runs.groupby("case")["loss after 150 steps"].mean()
assert loss["× √d_model"] + 0.2 < loss["as it is"] < loss["/ √d_model"] - 0.1, (
    "not as on our machines: restart the kernel and run all cells"
)
each = runs.pivot(index="seed", columns="case", values="loss after 150 steps")
for tied in ("", ", not tied"):
    more = each[f"as it is{tied}"] - each[f"× √d_model{tied}"]
    print(f"without the root{tied}: {more.mean():+.2f} nats per token", end=", seed by seed ")
    print(*(f"{seed:+.2f}" for seed in more))
mean_and_spread(runs)

# %% [markdown]
# The root matters: the means differ by 0.44, about four standard errors. Loss is in nats per token,
# so without the root the right piece gets, in the geometric mean, $e^{-0.44} = 64\%$ of the
# probability that the scaled model gives it. Where each language and the output have tables of
# their own (not tied), the root is worth more with each of the five seeds. Longer training may make
# up for a missing root, but that takes time that could be spent on learning.
#
# ## Tied weights
#
# Compare the first model with the fourth. With more than twice the parameters, the fourth learned
# *faster*. Look at the first losses: a model that treats all pieces alike has a loss of ln 4000 =
# 8.3, random scores of size 1 cost half a nat more, and so four of the five begin near 8.8. Only
# the tied model with the root begins about a nat higher. It does know something, but what it knows
# is wrong. What does it say?

# %%
batch = make_batch(data.train, np.arange(64))
shares = []
for tied, scale in (("all", root), ("all", 1.0), ("none", root)):
    torch.manual_seed(0)
    config = TransformerConfig("transformer", 128, 128, 4, 1, 1, 0.0, tied_embeddings=tied)
    model = build_transformer(config, len(data.tokenizer))
    model.src_embedding.scale = model.tgt_embedding.scale = scale
    says = model(batch.src, batch.tgt_input).argmax(dim=-1)
    shares.append((says == batch.tgt_input)[batch.tgt_input != PAD].float().mean())
    print(f"tied: {tied:4} scale {scale:4.1f}  says again what it has just read: {shares[-1]:4.0%}")
assert min(shares[0], 1 - shares[1], 1 - shares[2]) > 0.9, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# The residual connections around the sublayers (chapter 9) carry the row of the token just read all
# the way to the output. With tied weights, the row that matches it best there is that row itself,
# so the model says the token again. This happens only where the root has made the row large enough
# to be heard. So a model that is tied and scaled begins as a parrot and first has to unlearn that.
#
# Does it catch up? Here it is beside the model with three tables, both trained sixteen times as
# long, with three seeds each. The results also give the loss on sentences that the models have not
# read:

# %%
from transformer_lib.training.config import TrainingConfig


def train_longer(tied, seed, steps=2400, d_model=128):
    """The mean loss of the thirty batches before some steps, and that on unread sentences."""
    torch.manual_seed(seed)
    config = TransformerConfig("transformer", d_model, 128, 4, 1, 1, 0.0, tied_embeddings=tied)
    model = build_transformer(config, len(data.tokenizer))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), fused=True)
    lengths = data.train.src.lengths, data.train.tgt.lengths
    epochs = chain.from_iterable(plan_batches(*lengths, 512, seed=(seed, n)) for n in count())
    losses, found, limits = [], {}, TrainingConfig(steps=steps)
    unread = data.valid.sources, [several[0] for several in data.valid.references]
    for number, indices in enumerate(islice(epochs, steps), start=1):
        batch = make_batch(data.train, indices)
        states = model.decode(batch.tgt_input, model.encode(batch.src))
        sums = output_loss(states, model.output_weight, batch.labels)
        optimizer.zero_grad()
        (sums.smoothed / sums.tokens).backward()
        optimizer.step()
        losses.append(sums.nll.item() / sums.tokens)
        if number in (150, 600, 2400):
            found[f"{number}, read"] = sum(losses[-30:]) / 30
            found[f"{number}, unread"] = reference_loss(model, data, limits, *unread)
    return found

# %%
cases = {"one table": ["all"], "three tables": ["none"]}
runs = over_seeds(train_longer, cases, "03_tied_for_longer", seeds=3)
epoch = plan_batches(data.train.src.lengths, data.train.tgt.lengths, 512, seed=(0, 0))
print(len(epoch), "steps are one pass over the text")
mean_and_spread(runs.rename(columns=lambda name: name.replace(", read", ", in training")))

# %% [markdown]
# Not within 2,400 steps. The loss in training is measured on each batch before the model takes its
# step on it. So during the first pass over the text, which takes 780 steps, these batches are as
# new to the models as the unread sentences: after 600 steps the tied model is more than half a nat
# behind on both. At the end, when the fourth pass has begun, it is four tenths of a nat behind in
# training, and a quarter of a nat on sentences that neither model has read. So by then part of the
# lead of the model with more parameters is memorization, and part is not.
#
# In so short a training, then, tying costs some quality. This is why the translator of chapter 1
# has three tables. The Transformer that comes with the course, which was trained for much longer,
# has one.
#
# What does tying give in return? Here are the parameters of the paper's base model, built without
# allocating memory, on PyTorch's device `meta`:

# %%
for tied, meaning in {"none": "three tables", "output": "two", "all": "one"}.items():
    with torch.device("meta"):
        model = build_transformer(TransformerConfig(tied_embeddings=tied), 37_000)
    print(f"{meaning:12} {num_parameters(model) / 1e6:5.1f} million parameters")

# %% [markdown]
# One table instead of three saves 38 of 101 million parameters, and all three uses train the same
# rows. ([Press and Wolf 2017](https://arxiv.org/abs/1608.05859) found that tying improves language
# models, and lets a translator of half the size do as well.) One table for both languages needs one
# vocabulary for both, as here; names and numbers are spelled alike in both anyway.
#
# ## A batch
#
# The sentences of a batch are processed together, in one tensor, which must be rectangular. Shorter
# ones are padded with `<pad>`, number 0. Each source and each target ends with `</s>`, number 3:

# %%
batch = make_batch(data.train, np.array([0, 1000, 30_000]))
print(batch.src.numpy())
for row in batch.src:
    print(*data.tokenizer.pieces(row))

# %% [markdown]
# Padding is computed and thrown away. How much of it there is depends on which sentences are put
# together:

# %%
def padding(batches):
    """Share of positions that hold <pad>."""
    lengths = data.train.src.lengths
    computed = sum(len(batch) * lengths[batch].max() for batch in batches)
    return 1 - lengths.sum() / computed


lengths = data.train.src.lengths, data.train.tgt.lengths
at_random = np.array_split(np.random.default_rng(0).permutation(len(data.train)), 375)
print(f"128 random sentences per batch: {padding(at_random):.0%} padding")
print(f"sentences of similar length:    {padding(plan_batches(*lengths, 1024, seed=(0,))):.0%}")

# %% [markdown]
# So the library puts sentences of similar length together, as the paper did (section 5.1). Chapter
# 7 sees to it that attention never looks at padding, chapter 11 that the loss does not count it.
#
# ## The shift
#
# The decoder learns to predict the next token, given all tokens before it. In training the whole
# target is known, so all its positions are computed at once: the decoder **reads** the right
# target, preceded by `<s>`, and must **predict** the same target, followed by `</s>`. Its input is
# its label, shifted right by one place. That is **teacher forcing**: whatever the model would have
# said itself, it goes on reading the right tokens.

# %%
show(shift_drawn(), ALTERNATIVE)

# %% [markdown]
# ### Shift right
#
# ●●○ · 15 minutes · what the decoder reads and predicts
#
# `targets` is a list of lists of token numbers, without special tokens. Return what the decoder
# reads and what it must predict, in this order, each as a tensor of whole numbers, (batch, length),
# padded at the end.

# %%
def teacher_forcing(targets):
    ...  # your code


check(teacher_forcing)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `BOS`, `EOS` and `PAD` are imported above. Both tensors have one more column than the longest
# target has tokens. Which of the three occur in the input, and which in the labels?
#
# </details>

# %% [markdown]
# A tutorial from which this course grew (chapter 16) shows the shift with two sentence pairs,
# Chinese to English, in which `S`, `E` and `P` stand for `<s>`, `</s>` and `<pad>`:

# %%
pd.DataFrame(toy.ROWS, columns=["source", "decoder reads", "decoder should predict"])

# %% [markdown]
# Look closely at the first row: the end token comes *after* the padding. From this the model learns
# to say `P` after *chinese*; or, if padding does not count in the loss, it learns nothing about
# what comes after *chinese*. The end belongs after the last word:

# %%
mended = toy.mended()
names = ["P", "?", "S", "E", *toy.TGT_WORDS]
for reads, says in zip(mended.tgt_input, mended.labels):
    print("reads", *[f"{names[token]:8}" for token in reads])
    print("says ", *[f"{names[token]:8}" for token in says], "\n")

# %% [markdown]
# Read it column by column: having read `S`, say *i*; having read `S i`, say *am*. The `E` is never
# read: after it nothing is left to say. It takes a second to train a model that memorizes these two
# sentences:

# %%
def small_model():
    torch.manual_seed(0)
    config = TransformerConfig("transformer", 64, 128, 4, 2, 2, 0.0, tied_embeddings="none")
    return build_transformer(config, toy.SRC_VOCAB_SIZE, toy.TGT_VOCAB_SIZE)


model = small_model()
print(f"loss {toy.train(model, mended):.1f}", toy.translate(model))

# %% [markdown]
# ## Common mistakes
#
# **The input is the label.** Forget the shift, and the model reads the very token that it must
# predict. Compare the loss, and then the translations:

# %%
forgotten = toy.Batch(mended.src, mended.labels, mended.labels)
model = small_model()
print(f"loss {toy.train(model, forgotten):.1f}", toy.translate(model))

# %% [markdown]
# The loss is as good as before. But the model has learned to repeat what it reads, and now that
# nobody tells it the answer, it repeats its own first word. Whenever a loss falls suspiciously
# fast, check the shift first.
#
# **The tokenizer of another run.** Token numbers mean something only with the vocabulary that they
# come from. Here are the token numbers of one sentence, decoded with a vocabulary of the same size
# that was learned from a fifth of the text:

# %%
(tokens,) = data.tokenizer.encode(["My brother bought a new car."])
print(Tokenizer.train(text, len(data.tokenizer)).decode([tokens])[0])

# %% [markdown]
# No error, just nonsense. That is why a run of this library keeps its tokenizer beside its weights,
# and why `--resume` refuses a different one. Other mistakes are in the [list of
# mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. BPE merges the most frequent pair of neighbors until the vocabulary is full: frequent words
#    become one piece, rare ones several. What is unknown can be spelled in bytes.
# 2. A vocabulary of 8,000 pieces instead of 500 shortens a sentence to two thirds of its length;
#    each piece costs a row and has to occur often enough to be learned.
# 3. Rows start at size 1/√d_model (in the authors' program) because they also make the logits;
#    multiplied by √d_model they are as large as the positions they are added to.
# 4. One table for source, target and output saves 38 of the base model's 101 million parameters.
# 5. The decoder reads `<s> y₁ … yₙ` and predicts `y₁ … yₙ </s>`; without the shift it learns to
#    copy.
#
# In **assignment 1**, after chapter 4, you embed words together with their positions.
#
# **In the paper:** sections 3.4 and 5.1. **Read on:** Sennrich et al. 2016 on BPE; Kudo 2018 on
# cutting the same word in several ways during training; Press and Wolf 2017 on tied weights.
#
# **Next:** [4 · Positional encoding](04_positional_encoding.ipynb)
