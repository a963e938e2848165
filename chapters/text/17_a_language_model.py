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
# # 17 · A language model of your own
#
# The models that people talk to are half of the one that you have built: a decoder that has nothing
# to translate, and goes on with whatever it has read. In this chapter you assemble one from your
# parts, and then teach it to translate after all. By the end you can
#
# - measure a language model so that models with other tokenizers can be compared with it, and know
#   what counting alone achieves,
# - build a decoder-only model, train it and let it write, with a cache of your own,
# - fine-tune it on pairs of a question and an answer, with all of its parameters or with few,
# - say what it gains from having read before, and what it loses without an encoder.
#
# Reading takes about forty minutes, running the cells about one.
#
# **Predict first.** Two translators have the same number of parameters, see the same sentence pairs
# and take the same number of steps. One has an encoder and a decoder. The other is a decoder alone,
# which reads the English sentence as if it had said it itself, and goes on in German. Which of the
# two translates better, and by how much?

# %%
import math
import random

import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, mine, solution
from transformer_lib.course.figures.masks import as_text
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.course.results import mean_and_spread, over_seeds
from transformer_lib.course.trained import LANGUAGE_MODEL, load_language_model, load_trained
from transformer_lib.data.corpora import DataConfig, load_corpus
from transformer_lib.data.preparation import single_sentences, training_pairs
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.metrics.bleu import bleu
from transformer_lib.model import num_parameters
from transformer_lib.plots.measurements import lines
from transformer_lib.plots.notebook import show
from transformer_lib.vocabulary import BOS, EOS, PAD

# %% [markdown]
# ## A text without a source
#
# A translator is trained with pairs. A language model needs nothing but text, and predicts each
# token from those before it: $p(x) = \prod_t p(x_t \mid x_{<t})$. Our text is the two sides of the
# bundled pairs, each sentence once, English and German mixed; there is a `</s>` before the first
# sentence and after each one. (No source or reference of the test set is among them.)

# %%
tokenizer = load_trained("transformer").tokenizer
VOCABULARY = len(tokenizer)
sentences, held_out = single_sentences(DataConfig())


def as_tokens(sentences, seed):
    """One long row of tokens: the sentences in random order."""
    mixed = random.Random(seed).sample(sentences, len(sentences))
    rows = tokenizer.encode(mixed)
    return torch.tensor([EOS, *(token for row in rows for token in (*row, EOS))])


text, test_text = as_tokens(sentences, seed=0), as_tokens(held_out, seed=0)
print(f"{len(sentences):,} sentences, {len(text):,} tokens; held out: {len(held_out):,} sentences")
print(" ".join(tokenizer.pieces(text[:30].tolist())))

# %% [markdown]
# ### Blocks
#
# ●○○ · 10 minutes · the batches of every language model
#
# Nobody pads such a text: it is cut into rows of equal length, wherever a row happens to end. From
# `tokens`, (tokens,), make `inputs` and `labels`, both (blocks, length). The inputs are the text
# itself, row after row without a gap, and the label of each token is the token that follows it in
# the text. What is too short for a row at the end is left out, but no more than that. What passes
# its `check` is kept in `my_transformer.py` beside this notebook. After a first try,
# `solution("blocks")` in a cell of its own shows one way.

# %%
def blocks(tokens, length):
    ...  # your code


check(blocks)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A text of $n$ tokens has $n - 1$ labels. How many rows can be filled with them?
#
# </details>

# %% [markdown]
# What does the first row look like?

# %%
blocks = mine("blocks")


def batches(rows, size, seed):
    """Endless batches of row numbers, in another order each time."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(rows, generator=generator).split(size)


inputs, labels = blocks(text, 64)
test_inputs, test_labels = blocks(test_text, 64)
for name, some_row in {"reads": inputs[0], "predicts": labels[0]}.items():
    print(f"{name:9}", " ".join(tokenizer.pieces(some_row[:14].tolist())))

# %% [markdown]
# ## How good is a guess?
#
# The perplexity of chapter 11 counts the pieces among which a model seems to choose. That is a
# number for one tokenizer only: with longer pieces there are fewer guesses, and each is harder. Two
# models with different pieces can be compared by what both have to say in the end, the characters.
# A text costs $-\log_2 p$ **bits**, which is also its length in a file if an ideal program
# compresses it with the model; divided by the number of characters, it gives **bits per
# character**.
#
# ### Bits per character
#
# ●○○ · 10 minutes · a measure that does not depend on the tokenizer
#
# `logits` are (batch, length, vocab_size), and `labels`, (batch, length), are the tokens that
# should have been predicted. Labels that are `PAD` do not count. Return the sum of the bits,
# divided by `characters`, as a number.

# %%
def bits_per_character(logits, labels, characters):
    ...  # your code


check(bits_per_character)

# %% [markdown]
# <details><summary>Hint</summary>
#
# PyTorch's logarithms are natural, and a bit is ln 2 nats. `log_softmax` is safe with large logits.
#
# </details>

# %% [markdown]
# What is a good number? One can guess that all pieces are equally likely, or go by their
# frequencies:

# %%
bits_per_character = mine("bits_per_character")
letters = torch.tensor([len(piece) for piece in tokenizer.pieces(range(VOCABULARY))])
letters[EOS] = 0  # the space with which each sentence begins is counted for it
characters = int(letters[test_labels].sum())


@torch.no_grad()
def bits(predict):
    """What the held-out text costs with this function from inputs to logits."""
    rows = zip(test_inputs.split(16), test_labels.split(16))
    return sum(bits_per_character(predict(x), y, 1) for x, y in rows) / characters


frequency = (text.bincount(minlength=VOCABULARY) + 1.0).log()
cost = {
    "all pieces alike": bits(lambda x: torch.zeros(*x.shape, VOCABULARY)),
    "frequencies": bits(lambda x: frequency.expand(*x.shape, -1)),
}
print(f"{test_labels.numel():,} tokens, {characters:,} characters")
print(*(f"{name}: {number:.2f} bits per character" for name, number in cost.items()), sep="\n")

# %% [markdown]
# ## Counting pairs
#
# Before there were neural networks, language models were tables of counts, and they are the
# baseline still: a network that does not beat them has learned nothing worth its price. With pairs,
# $p(w \mid v)$ is the share of $w$ among the tokens that followed $v$. But a new text always has
# some pairs that have never been counted, and a share of 0 would call it impossible. So **absolute
# discounting** takes the same $D$ from each count, and gives what it has taken to a simpler
# distribution:
#
# $$p(w \mid v) = \frac{\max(c(v, w) - D, 0) + D \cdot n(v)\, p_1(w)}{c(v)}$$
#
# Here $c(v, w)$ counts the pair, $c(v) = \sum_w c(v, w)$, and $n(v)$ is the number of different
# tokens that have followed $v$. Where nothing has followed $v$, what is left is $p_1$.
#
# Which simpler distribution? Frequencies are a bad choice. *Francisco* is frequent in American
# newspapers, but only after *San*; in a place where something never seen must follow, it is an
# unlikely guess. [Kneser and Ney 1995](https://doi.org/10.1109/ICASSP.1995.479394) therefore count
# *kinds*: $k(w)$, the number of different tokens after which $w$ has occurred. Here these counts
# are discounted in the same way, and what is taken from them goes to all $V$ tokens alike:
#
# $$p_1(w) = \frac{\max(k(w) - D, 0) + D \cdot K / V}{\sum_{w'} k(w')}$$
#
# where $K$ is the number of tokens with $k > 0$.
#
# ### Kneser–Ney
#
# ●●○ · 30 minutes · the model that a neural network has to beat
#
# Return the table of all $p(w \mid v)$, (vocab_size, vocab_size), with a row for each $v$. `tokens`
# is one long row, (tokens,), and `discount` is $D$, which is at most 1.

# %%
def kneser_ney(tokens, vocab_size, discount):
    ...  # your code


check(kneser_ney)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Both formulas are the same one: counts, and a distribution below them. `index_put_` with
# `accumulate=True` counts all pairs at once; `(counts > 0).sum(dim=…)` counts kinds, along one axis
# those that follow, along the other those that come before.
#
# </details>

# %% [markdown]
# How far does counting go?

# %%
kneser_ney = mine("kneser_ney")
pairs = kneser_ney(text, VOCABULARY, discount=0.75).log()
cost["pairs (Kneser–Ney)"] = bits(lambda x: pairs[x])
print(f"pairs: {cost['pairs (Kneser–Ney)']:.2f} bits per character")

# %% [markdown]
# Knowing one token saves two fifths of the cost. Tables of longer contexts go further; triples are
# worth a try. Now for a model that reads everything before.
#
# ## The model
#
# Which of your layers does a language model need? A layer of the decoder has cross-attention, and
# there is nothing to cross to. Without it, what is left is self-attention and a feed-forward
# network: a layer of the *encoder*. The only difference is the mask. A decoder-only model is an
# encoder that cannot see the future.
#
# ### The language model
#
# ●●○ · 25 minutes · the model behind the chat programs, from your parts
#
# `LanguageModel(vocab_size, d_model, d_ff, num_heads, num_layers, dropout)`, an `nn.Module`. It
# begins as your Transformer does, with an embedding `embed_tokens` that starts at a standard
# deviation of 1/√d_model; its vectors are multiplied by √d_model, sinusoids are added, and
# `dropout` follows. Then come `layers`, an `nn.ModuleList` of your `EncoderLayer` with all its
# parts, and a last `norm`. The output uses the table of the input, and nothing else is in the
# `state_dict`, so that the weights of others fit. `forward(tokens)` takes rows of any length, (batch,
# length), and returns logits, (batch, length, vocab_size), of which none depends on a later token.

# %%
EncoderLayer, MultiHeadAttention = mine("EncoderLayer"), mine("MultiHeadAttention")
FeedForward, LayerNorm = mine("FeedForward"), mine("LayerNorm")
embed_with_positions, causal_mask = mine("embed_with_positions"), mine("causal_mask")
positional_encoding = mine("positional_encoding")


class LanguageModel(nn.Module):
    def __init__(self, vocab_size, d_model, d_ff, num_heads, num_layers, dropout):
        super().__init__()
        ...  # your code

    def forward(self, tokens):
        ...  # your code


check(LanguageModel)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `EncoderLayer` takes its parts, all of them modules, in the order self-attention, feed-forward
# network, two norms, dropout. Padding needs no mask here: a row is padded at its end, and no real
# token looks there.
#
# </details>

# %% [markdown]
# Yours can be trained with your `training_step` of chapter 11, which takes a source, an input and
# labels. The source is not read:

# %%
LanguageModel, training_step = mine("LanguageModel"), mine("training_step")


class WithoutSource(nn.Module):
    """A language model, called as a translator is called."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, src, tgt_input):
        return self.model(tgt_input)


def learn(model, draw, steps, peak, warmup=50):
    """So many steps with the batches that are drawn; the rate rises, then follows a cosine."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learned, betas=(0.9, 0.98))
    model.train()
    for step in range(1, steps + 1):
        rate = min(step / warmup, (1 + math.cos(math.pi * step / steps)) / 2)
        optimizer.param_groups[0]["lr"] = peak * rate
        training_step(model, optimizer, [next(draw)], 0.0, 1.0)
    model.eval()

# %% [markdown]
# A small one learns for 200 steps. The course comes with a larger one, trained for 4,000 steps
# with the same text (`make trained`). Your class can load it, since all its parts have the names
# that yours have:

# %% tags=["nbval-ignore-output"]
def pretrained(dropout=0.1):
    model = LanguageModel(*LANGUAGE_MODEL, dropout)
    model.load_state_dict(load_language_model().state_dict())
    return model


torch.manual_seed(0)
small = LanguageModel(VOCABULARY, d_model=96, d_ff=256, num_heads=4, num_layers=2, dropout=0.0)
drawn = ((inputs[i], inputs[i], labels[i]) for i in batches(len(inputs), 8, seed=0))
learn(WithoutSource(small), drawn, steps=200, peak=6e-3)

model = pretrained(dropout=0.0).eval()
cost["small, after 200 steps"], cost["the course's"] = bits(small), bits(model)
millions = {"small": num_parameters(small) / 1e6, "the course's": num_parameters(model) / 1e6}
print(*(f"{name}: {number:.1f} million parameters" for name, number in millions.items()), sep="\n")
assert cost["the course's"] < cost["small, after 200 steps"] < cost["frequencies"], (
    "not as on our machines: restart the kernel and run all cells"
)
pd.DataFrame({"bits per character": cost}).round(2)

# %% [markdown]
# A short training does not beat a table: in 200 steps the small model has read less than a fifth of
# the text, and the table all of it. How long must it train? Here are longer trainings of the small
# model, with three seeds each, beside the table:

# %%
def bits_after(steps, seed):
    torch.manual_seed(seed)
    model = LanguageModel(VOCABULARY, d_model=96, d_ff=256, num_heads=4, num_layers=2, dropout=0.0)
    drawn = ((inputs[i], inputs[i], labels[i]) for i in batches(len(inputs), 8, seed))
    learn(WithoutSource(model), drawn, steps, peak=6e-3)
    return {"bits": bits(model)}


LENGTHS = (200, 400, 800, 1600)
longer = over_seeds(bits_after, {f"{n:,} steps": (n,) for n in LENGTHS}, "17_length", seeds=3)
curve = longer.groupby("case", sort=False)["bits"].mean()
figure = lines({"the small model": (LENGTHS, curve)}, ("steps", "bits per character"))
figure.axes[0].axhline(cost["pairs (Kneser–Ney)"], linestyle="--", color="#888888")
figure.axes[0].text(300, cost["pairs (Kneser–Ney)"] + 0.02, "pairs, counted", fontsize=9)
figure.axes[0].set_ylim(1.4, 2.3)
show(
    figure,
    "Bits per character of the small model over the length of its training: they fall from more "
    "than two and cross a dashed line, that of the counted pairs, between 800 and 1,600 steps.",
)
mean_and_spread(longer.rename(columns={"bits": "bits per character"}), digits=3)

# %% [markdown]
# Between 800 and 1,600 steps the network passes the table, when it has read about as much as the
# table has: the whole text, once. The table sees one token, the network all that came before. The
# course's model, which is larger and has read the text seven times, needs 1.44 bits. A baseline
# that costs a second of computing is worth having. Without it, 2.2 bits would have looked good.
#
# ## Let it write
#
# To write, a model draws a token from its distribution, appends it, and reads everything again.
# With the cache of chapter 12 it reads only what is new. In that chapter a decoder went on token by
# token. A chat program does two more things: it reads a whole prompt at once, and it reads more
# text after a while, when the user has answered. Both are calls with *several* new tokens, the
# second with a cache that is not empty, and now the mask matters.
#
# ### With a cache
#
# ●●● · 60 minutes · how a chat program writes
#
# `model` is a `LanguageModel`, yours or the course's, without dropout. `tokens`, (batch, length),
# follow what is in `cache`: a list with one pair for each layer, keys and values, each (batch,
# heads, so far, d_k), or an empty list at the beginning of a text. Return the logits of these
# tokens, (batch, length, vocab_size), and a new cache, which holds their keys and values as well.
# Compute nothing for tokens that are in the cache, and leave the given cache as it is, even an
# empty one: a search may go on from it more than once. The layers have pre-norm, and the parts have
# the names above and those of chapter 10: `layer.norm1`, `layer.self_attention` with `q_proj`,
# `k_proj`, `v_proj`, `out_proj` and `num_heads`, `layer.norm2`, `layer.feed_forward`.

# %%
attention, split_heads, merge_heads = mine("attention"), mine("split_heads"), mine("merge_heads")


def cached_logits(model, tokens, cache):
    ...  # your code


check(cached_logits)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Write the model's `forward` once more, with a layer's three lines in the loop. Two things depend
# on how much is in the cache: the positions of the new tokens, and the mask. Which axis of keys and
# values grows?
#
# </details>

# %% [markdown]
# Is it the same model, in pieces of any size?

# %%
cached_logits = mine("cached_logits")


@torch.no_grad()
def in_pieces(tokens, sizes):
    """The logits of a text that is read in pieces of these sizes."""
    cache, logits = [], []
    for piece in tokens.split(sizes, dim=1):
        new, cache = cached_logits(model, piece, cache)
        logits.append(new)
    return torch.cat(logits, dim=1)


read_at_once = model(test_inputs[:4, :32])
for sizes in ([32], [1] * 32, [20, 1, 1, 1, 9]):
    found = in_pieces(test_inputs[:4, :32], sizes)
    torch.testing.assert_close(found, read_at_once, atol=1e-4, rtol=1e-4)
    again = sum(sum(sizes[: n + 1]) for n in range(len(sizes)))
    print(f"calls: {len(sizes):2}, the same logits, 32 positions computed; without a cache {again}")

# %% [markdown]
# Now it writes. A temperature $T$ divides the logits before the softmax: below 1 the likely tokens
# become likelier. `nucleus` is yours, from chapter 12. The table of pairs, counted in the same
# text, writes too:

# %%
nucleus = mine("nucleus")


@torch.no_grad()
def go_on(model, prompts, choose, limit=40):
    """What the model says after prompts of one length, each up to its </s>."""
    new, cache, said = prompts, [], []
    while len(said) < limit and not (said and (torch.cat(said, 1) == EOS).any(dim=1).all()):
        logits, cache = cached_logits(model, new, cache)
        new = choose(logits[:, -1])[:, None]
        said.append(new)
    return up_to_the_end(torch.cat(said, dim=1).tolist())


def up_to_the_end(rows):
    return tokenizer.decode([row[: row.index(EOS)] if EOS in row else row for row in rows])


def sampled(temperature, p=1.0):
    """Draws a token for each row of logits."""

    def choose(logits):
        return torch.multinomial(nucleus((logits / temperature).softmax(dim=-1), p), 1)[:, 0]

    return choose

# %% tags=["nbval-ignore-output"]
def pairs_go_on(number, temperature, limit=40):
    token, said = torch.full((number,), EOS), []
    for _ in range(limit):
        token = sampled(temperature)(pairs[token])
        said.append(token)
    return up_to_the_end(torch.stack(said, dim=1).tolist())


torch.manual_seed(0)
NUMBER = 200
written = {f"pairs, T = {t}": pairs_go_on(NUMBER, t) for t in (1.0, 0.5)}
for temperature, p in ((1.0, 1.0), (1.0, 0.9), (0.5, 1.0)):
    name = f"T = {temperature}, p = {p}"
    written[name] = go_on(model, torch.full((NUMBER, 1), EOS), sampled(temperature, p))
for name, its_sentences in written.items():
    print(name, *its_sentences[:5], sep="\n    ")
assert all(written.values()), "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# Are these sentences new? Count those that occur in the training text word for word:

# %% tags=["nbval-ignore-output"]
known = set(sentences)
shares = {
    name: [sum(one in known for one in its) / NUMBER, len(set(its)) / NUMBER]
    for name, its in written.items()
}
counted = pd.DataFrame(shares, index=["word for word in the text", "different from each other"]).T
first = counted["word for word in the text"]
assert first["pairs, T = 1.0"] < first["T = 1.0, p = 1.0"] < first["T = 0.5, p = 1.0"], (
    "not as on our machines: restart the kernel and run all cells"
)
counted.map("{:.0%}".format)

# %% [markdown]
# At temperature 1, 6% of the model's sentences are in the text, at 0.5 it is 36%. For the pairs,
# which know no sentence, it is 2% and 8%. (With 200 sentences each, a share is uncertain by up to seven
# points.) The table of pairs also changes language in mid-sentence, which the model rarely does.
#
# Does a low temperature make the model recite, then? A share means little without its baseline, and
# here is one: the held-out sentences, which it has never read. Let it write more of them at 0.5:

# %% tags=["nbval-ignore-output"]
unread = set(held_out)
said = set(go_on(model, torch.full((2000, 1), EOS), sampled(0.5)))
print(f"{len(said):,} different sentences:")
print(f"{len(said & known)} are among the {len(known):,} that it has read,")
print(f"{len(said & unread)} among the {len(unread):,} held out;", end=" ")
print(f"by their number it would be {len(said & known) * len(unread) / len(known):.0f}")
assert len(said & known) > 200, "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# There is no sign that it says a sentence that it has read more readily than one that it has never
# read. (Twelve are few, and common German sentences, which translate several English ones, are a
# little more frequent among those held out.) A low temperature makes it say what is common, and
# short, common sentences are in any text of this kind, the more of them the longer the text.
#
# ## From going on to answering
#
# A language model goes on; it does not answer. (After a question, another question is a likely
# continuation.) To become an assistant it is trained a little longer, on pairs of a prompt and an
# answer, with special tokens that say whose turn it is: **fine-tuning**. Our question is an English
# sentence, the answer its translation, and `<s>`, which the model has never met, stands between the
# two: `</s>` English `<s>` German `</s>`. So the decoder becomes a translator without an encoder.
#
# ### Only the answer counts
#
# ●○○ · 15 minutes · fine-tuning on answers
#
# The model reads everything, but it should learn only to answer: users write their questions
# themselves. `rows`, (batch, length), are such rows, with `PAD` at their end. Return the inputs,
# all columns but the last one, and the labels, (batch, length − 1): the token that follows, where
# the model has to say it, and `PAD`, which no loss counts, everywhere else. The end of the answer
# is to be said, too.

# %%
def answer_labels(rows):
    ...  # your code


check(answer_labels)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which input stands where the first token of the answer is to be said? `cumsum` tells what comes
# after it.
#
# </details>

# %% [markdown]
# Then the pairs of the course become batches:

# %%
answer_labels = mine("answer_labels")
all_pairs = training_pairs(DataConfig())
test = load_corpus(DataConfig()).test
TESTED = 500
questions, references = test.sources[:TESTED], test.references[:TESTED]


def encoded(pairs):
    return zip(*(tokenizer.encode(list(side)) for side in zip(*pairs)))


def question_batches(pairs, seed, size=32):
    """Endless batches of questions with their answers, as the training step takes them."""
    table = pad_sequences([[EOS, *e, BOS, *g, EOS] for e, g in encoded(pairs)])
    for chosen in batches(len(table), size, seed):
        longest = int((table[chosen] != PAD).sum(dim=1).max())
        read, answer = answer_labels(table[chosen, :longest])
        yield read, read, answer


read, _, answer = next(question_batches([("Go home.", "Geh nach Hause!")], seed=0))
for name, part in {"reads": read, "predicts": answer}.items():
    print(f"{name:9}", " ".join(tokenizer.pieces(part[0].tolist())))

# %% [markdown]
# To answer, the model goes on with the likeliest token. Prompts of the same length can be read
# together:

# %%
def by_length(prompts, say):
    """What is said to each prompt; those of one length are read together."""
    said = {}
    for length in sorted(set(map(len, prompts))):
        numbers = [n for n, prompt in enumerate(prompts) if len(prompt) == length]
        said |= zip(numbers, say(torch.tensor([prompts[n] for n in numbers])))
    return [said[n] for n in range(len(prompts))]


def answers(model, questions):
    """What a language model says to each question."""
    prompts = [[EOS, *tokens, BOS] for tokens in tokenizer.encode(questions)]
    return by_length(prompts, lambda read: go_on(model, read, likeliest))


def likeliest(logits):
    return logits.argmax(dim=-1)

# %%
def from_scratch():
    return LanguageModel(*LANGUAGE_MODEL, dropout=0.1)


@torch.no_grad()
def nats_per_piece(model):
    """The mean loss on the answers of the test set, each with its first reference."""
    pairs = [(question, first) for question, (first, *_) in zip(questions, references)]
    read, _, answer = next(question_batches(pairs, seed=0, size=TESTED))
    logits = model(read).flatten(0, 1)
    return nn.functional.cross_entropy(logits, answer.flatten(), ignore_index=PAD).item()


# %% [markdown]
# Does it answer after a hundred steps with 2,000 pairs? A model of the same size that has read
# nothing before learns beside it:

# %% tags=["nbval-ignore-output"]
few = random.Random(0).sample(all_pairs, 2000)
after = {}
for name, begin in {"pretrained": pretrained, "from nothing": from_scratch}.items():
    torch.manual_seed(0)
    beginner = begin()
    learn(WithoutSource(beginner), question_batches(few, seed=0), steps=100, peak=3e-3)
    after[name] = nats_per_piece(beginner)
    print(f"{name}: {after[name]:.1f} nats per piece of the right answer")
    for question in ("Where is my car?", "Tom is not at home.", "I do not want to go home."):
        print(f"    {question:28}{answers(beginner, [question])[0]}")
assert after["pretrained"] < after["from nothing"] - 0.5, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# The model that has read before writes correct German that has little to do with the question. What
# it has brought along is the language. Which word answers which it must still learn from the pairs,
# and a hundred steps are not enough. (An answer that is fluent and wrong: remember where it comes
# from when you meet one in a larger model.)
#
# ### LoRA
#
# ●●○ · 20 minutes · fine-tuning a large model with little memory
#
# Fine-tuning all parameters of a large model takes as much memory as training it, and gives a
# second large model to keep. **Low-rank adaptation** ([Hu et al.
# 2021](https://arxiv.org/abs/2106.09685)) leaves each matrix as it is and learns a change to it
# that is the product of two narrow ones: $y = Wx + b + s \cdot BAx$, where $A$ is (rank, d_in) and
# $B$ is (d_out, rank). Write it as a module around an `nn.Linear`: `LoRA(linear, rank, scale)`.
# Keep the layer as `linear`, and take care that its parameters are no longer trained, while
# gradients still pass through it to $x$. The parameters are `down`, which is $A$ and starts with
# random numbers of standard deviation 1/√d_in, and `up`, which is $B$ and starts at 0, so that at
# first the model is unchanged. `scale` is $s$.

# %%
class LoRA(nn.Module):
    def __init__(self, linear, rank, scale):
        super().__init__()
        ...  # your code

    def forward(self, x):
        ...  # your code


check(LoRA)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `requires_grad_(False)` on a module freezes all of its parameters. The product of the two matrices
# need not be computed: `x` can go through `down` first.
#
# </details>

# %% [markdown]
# How many parameters are that, around every matrix of every layer?

# %%
LoRA = mine("LoRA")
MATRICES = ("q_proj", "k_proj", "v_proj", "out_proj", "hidden", "output")


def with_lora(model, rank=8, scale=2.0):
    """The same model, of which only LoRA's matrices learn."""
    model.requires_grad_(False)
    for layer in model.layers:
        for part in (layer.self_attention, layer.feed_forward):
            for name in MATRICES:
                if hasattr(part, name):
                    setattr(part, name, LoRA(getattr(part, name), rank, scale))
    return model


adapted = with_lora(pretrained())
learned = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
print(f"{learned:,} parameters learn, {learned / num_parameters(model):.0%} of the model's")

# %% [markdown]
# ## What has it gained from reading?
#
# Now six times as many steps, with 64 pairs in each, and three seeds: with 32,000 pairs from
# nothing, pretrained, and pretrained with LoRA; and pretrained with 2,000 pairs, each of which
# comes up nineteen times. LoRA usually wants a higher rate, and gets twice that of the others; none
# of the rates was tuned with care.

# %%
def fine_tuned(start, number, peak, seed, steps=600):
    """A translator after these steps, 64 of so many pairs in each."""
    torch.manual_seed(seed)
    model = LanguageModel(*LANGUAGE_MODEL, dropout=0.1) if start == "nothing" else pretrained()
    if start == "LoRA":
        model = with_lora(model)
    some = random.Random(seed).sample(all_pairs, number)
    learn(WithoutSource(model), question_batches(some, seed, 64), steps, peak)
    said = answers(model, questions)
    return {"BLEU": bleu(said, references).score, "nats": nats_per_piece(model)}


starts = {
    "from nothing, 32,000 pairs": ("nothing", 32_000, 3e-3),
    "pretrained, 2,000 pairs": ("pretrained", 2_000, 3e-3),
    "pretrained, 32,000 pairs": ("pretrained", 32_000, 3e-3),
    "pretrained, LoRA, 32,000 pairs": ("LoRA", 32_000, 6e-3),
}
tuned = over_seeds(fine_tuned, starts, "17_fine_tuned", seeds=3)
mean_and_spread(tuned)

# %% [markdown]
# Reading before is worth a great deal. With the same pairs and the same steps of fine-tuning the
# pretrained model reaches nearly twice the BLEU, and with 2,000 pairs it is ahead of a model that
# had sixteen times as many and no other text. Look at that row again, though: its BLEU is higher,
# and its loss is *worse*. Probably pairs that come up nineteen times are memorized, and the model
# becomes too sure of itself where a new sentence differs, which costs nats and not always words.
# The loss and the task are two measures.
#
# ### What LoRA leaves alone
#
# LoRA, which often does as well as full fine-tuning ([Hu et al.
# 2021](https://arxiv.org/abs/2106.09685), tables 2 to 4), does not here: its loss lies between
# those of the other two with 32,000 pairs, and its BLEU is below that from nothing. Is it the rank,
# the rate, or what LoRA leaves alone? The table of vectors does not learn, and in it is the vector
# of `<s>`, which the model has never read. One thing is changed in each case. (But a higher rank, at
# the same `scale` and rate, also means larger steps.)

# %%
def adapted_with(rank, also, peak, seed, steps=600):
    """LoRA's matrices learn, or of rank 0 the layers' own, and of the table what `also` names."""
    torch.manual_seed(seed)
    model = pretrained()
    if rank:
        with_lora(model, rank)
    else:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("layers") and parameter.dim() == 2)
    if also:
        table = model.embed_tokens.weight.requires_grad_(True)
    if also == "<s>":
        its_row = (torch.arange(VOCABULARY) == BOS)[:, None]
        table.register_hook(lambda gradient: gradient * its_row)
    some = random.Random(seed).sample(all_pairs, 32_000)
    learn(WithoutSource(model), question_batches(some, seed, 64), steps, peak)
    said = answers(model, questions)
    return {"BLEU": bleu(said, references).score, "nats": nats_per_piece(model)}

# %% [markdown]
# The last case has no LoRA: the same matrices learn in full, at the rate of full fine-tuning, so
# that no rank limits them. Biases, norms and table stay as they were. The first two rows are the
# cases from above that began pretrained and had as many pairs:

# %%
adaptations = {
    "LoRA, twice the rate": (8, "", 1.2e-2),
    "LoRA, rank 32": (32, "", 6e-3),
    "LoRA, and <s> learns": (8, "<s>", 6e-3),
    "LoRA, and the table learns": (8, "table", 6e-3),
    "the matrices themselves": (0, "", 3e-3),
}
varied = over_seeds(adapted_with, adaptations, "17_lora", seeds=3)
with_table = learned + model.embed_tokens.weight.numel()
print(f"LoRA and the table: {with_table:,} parameters, {with_table / num_parameters(model):.0%}")
before = tuned[tuned["case"].isin(["pretrained, 32,000 pairs", "pretrained, LoRA, 32,000 pairs"])]
mean_and_spread(pd.concat([before, varied]))

# %% [markdown]
# By BLEU it is mostly the table. If it learns as well, LoRA reaches 17.7, three quarters of the way
# from 7.9 to the 21.1 of full fine-tuning. But then 41% of the parameters learn. The vector of
# `<s>` alone makes no difference, and twice the rate gives a point or so. A higher rank helps, too:
# 13.4. But rank is not all that is missing, for the matrices themselves, which no rank limits, end
# near that, at 11.9 (the rate of neither was tuned). By the loss, table and rank count about alike:
# of the way from 2.46 to 2.07, LoRA with the table goes as far as 2.21, and the matrices
# themselves, without the table, as far as 2.24.
#
# In that paper large models learn tasks for which they have nearly everything they need. Ours has
# never seen a translation. Which word answers which is knowledge about single words, and that may
# be what the table is needed for: it is both what a word is read as and what it is written by.
# Which of the two matters was not varied.
#
# ## Without an encoder
#
# Back to the opening question: your Transformer of chapter 10, with two layers on each side, beside
# a decoder alone with four. The decoder's feed-forward networks are somewhat wider, so that both
# have the same number of parameters:

# %%
Transformer, padding_mask = mine("Transformer"), mine("padding_mask")
translators = {
    "encoder and decoder": Transformer(VOCABULARY, 128, 512, 4, 2, dropout=0.1),
    "decoder only": LanguageModel(*LANGUAGE_MODEL, dropout=0.1),
}
for name, form in translators.items():
    print(f"{name:20}{num_parameters(form):,} parameters")
layers = {  # what a source token and a target token are multiplied by, together
    "encoder and decoder": 2 * (4 * 128**2 + 2 * 128 * 512) + 2 * (8 * 128**2 + 2 * 128 * 512),
    "decoder only": 2 * 4 * (4 * 128**2 + 2 * 128 * 640),
}
ratio = layers["decoder only"] / layers["encoder and decoder"]
print(f"for a token on each side the decoder alone computes {ratio:.1f} times as much")

# %% [markdown]
# The parameters are the same, the work is not. In the one model a source token passes the two
# layers of the encoder, and a target token the two of the decoder; in the other both pass all four
# layers. So the table below has a third row, in which the model with an encoder takes twice as many
# steps:

# %%
def sentence_batches(pairs, seed, size):
    """Endless batches for a model with an encoder."""
    made = [([*english, EOS], [BOS, *german, EOS]) for english, german in encoded(pairs)]
    for chosen in batches(len(made), size, seed):
        src, tgt = map(pad_sequences, zip(*(made[n] for n in chosen.tolist())))
        yield src, tgt[:, :-1], tgt[:, 1:]


@torch.no_grad()
def translations(model, questions, limit=40):
    """Greedy translations of a model with an encoder, many at once."""

    def go_on_in_german(sources):
        memory, mask = model.encode(sources), padding_mask(sources)
        tokens = torch.full((len(sources), 1), BOS)
        while tokens.size(1) <= limit and not (tokens == EOS).any(dim=1).all():
            new = model.decode(tokens, memory, mask)[:, -1:].argmax(dim=-1)
            tokens = torch.cat([tokens, new], dim=1)
        return up_to_the_end(tokens[:, 1:].tolist())

    return by_length([[*tokens, EOS] for tokens in tokenizer.encode(questions)], go_on_in_german)

# %% [markdown]
# Both learn from all pairs with your training step, and both answer greedily:

# %%
def from_nothing(form, steps, peak, seed):
    """A translator that has learned from all pairs, 64 in each step."""
    torch.manual_seed(seed)
    if form == "decoder only":
        model = LanguageModel(*LANGUAGE_MODEL, dropout=0.1)
        learn(WithoutSource(model), question_batches(all_pairs, seed, 64), steps, peak)
        said = answers(model, questions)
    else:
        model = Transformer(VOCABULARY, 128, 512, 4, 2, dropout=0.1)
        learn(model, sentence_batches(all_pairs, seed, 64), steps, peak)
        said = translations(model, questions)
    return {"BLEU": bleu(said, references).score}

# %%
STEPS = 1000
forms = {
    "encoder and decoder": ("encoder and decoder", STEPS, 3e-3),
    "decoder only": ("decoder only", STEPS, 3e-3),
    "encoder and decoder, twice as long": ("encoder and decoder", 2 * STEPS, 3e-3),
}
compared = over_seeds(from_nothing, forms, "17_without_an_encoder", seeds=3)
mean_and_spread(compared, digits=1)

# %% [markdown]
# With equal parameters and equal steps the decoder alone is behind by two points, no more than the
# spread of its three seeds (one of them is much worse than the others). But it needs twice the work
# for that. With as much work the model with an encoder is more than twelve points ahead, most of
# them from its second thousand steps.
#
# What does the decoder alone lack? Its mask keeps it from looking ahead in the question, although
# it is given all of it. A **prefix** mask (chapter 7) allows that: all tokens before `<s>` are seen
# by everybody, those after it only by later ones. Parameters and steps stay the same:

# %%
class PrefixModel(LanguageModel):
    """Sees all of the question, and of the answer no more than a language model does."""

    def forward(self, tokens):
        in_question = (tokens == BOS).cumsum(dim=1) == 0
        mask = causal_mask(tokens.size(1)) | in_question[:, None, None]
        encoding = positional_encoding(tokens.size(1), self.embed_tokens.embedding_dim)
        dropout = nn.Dropout(0.1 if self.training else 0.0)
        x = embed_with_positions(tokens, self.embed_tokens.weight, encoding, dropout)
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x) @ self.embed_tokens.weight.T


@torch.no_grad()
def answers_without_cache(model, questions, limit=40):
    def go_on_from_all(prompts):
        tokens, length = prompts, prompts.size(1)
        while tokens.size(1) < length + limit and not (tokens[:, length:] == EOS).any(1).all():
            tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(dim=-1)], dim=1)
        return up_to_the_end(tokens[:, length:].tolist())

    return by_length([[EOS, *t, BOS] for t in tokenizer.encode(questions)], go_on_from_all)

# %% [markdown]
# Its answers are written without a cache, since `cached_logits` is for a causal mask alone. Does it
# come nearer to the model with an encoder?

# %%
def with_prefix(steps, peak, seed):
    """A prefix model that has learned from all pairs, 64 in each step."""
    torch.manual_seed(seed)
    model = PrefixModel(*LANGUAGE_MODEL, dropout=0.1)
    learn(WithoutSource(model), question_batches(all_pairs, seed, 64), steps, peak)
    return {"BLEU": bleu(answers_without_cache(model, questions), references).score}


prefixed = {"decoder only, prefix mask": (STEPS, 3e-3)}
masks = over_seeds(with_prefix, prefixed, "17_prefix", seeds=3)
mean_and_spread(pd.concat([compared, masks]), digits=1)

# %% [markdown]
# Whether the mask matters, three seeds do not tell: with a question that is read in both directions
# the mean is higher than with a causal mask, but by less than two standard errors. It is three
# quarters of a point below the model with an encoder, which is more than two, and that model does
# half the work. Of its lead with equal work the mask explains little. What else may count
# was not varied: a decoder alone uses the same layers to read English and to write German.
#
# So why have decoders alone won? Not because they translate better from the same pairs. They learn
# from every token of any text, while pairs are rare; and one model, one loss and one cache serve
# all tasks. [Raffel et al. 2020](https://arxiv.org/abs/1910.10683), who first trained all forms on
# text without pairs, also found the encoder and decoder ahead, and a prefix mask between it and a
# causal one, in section 3.2.
#
# ## Common mistakes
#
# **A cache that is nearly right.** With one new token at a time, a missing mask makes no
# difference; with several it shows the future. Three known mistakes with `cached_logits` (the [list
# of mistakes](../docs/misconceptions.md) has more), each reading the same held-out text in two
# ways:

# %% tags=["nbval-ignore-output"]
@torch.no_grad()
def cost_in_pieces(step, sizes):
    """Bits per character of some held-out text that is read in pieces of these sizes."""
    cache, total = [], 0.0
    for x, y in zip(test_inputs[:32].split(sizes, 1), test_labels[:32].split(sizes, 1)):
        logits, cache = step(model, x, cache)
        total += bits_per_character(logits, y, 1)
    return total / int(letters[test_labels[:32]].sum())


steps = {"right": cached_logits}
for mistake in wrong_answers("cached_logits"):
    if mistake.id in ("M880", "M881", "M882"):
        steps[f"{mistake.id}: {mistake.title}"] = mistake.answers["cached_logits"]
HALVES, ONE_BY_ONE = [32, 32], [1] * 64
columns = {"two halves": HALVES, "one by one": ONE_BY_ONE}
costs = {name: [cost_in_pieces(step, n) for n in columns.values()] for name, step in steps.items()}
assert costs["right"][0] < min(one[0] for name, one in costs.items() if name != "right"), (
    "not as on our machines: restart the kernel and run all cells"
)
pd.DataFrame(costs, index=columns).T.round(2)

# %% [markdown]
# Without a mask (M881) all is well as long as the tokens come one by one, and that is how most
# people test. In two halves the model sees the future, and does *worse* for it: it was trained
# without such keys and does not know what to do with them. (A leak in *training* makes the cost too
# low, as in chapter 7.) With M880 and M882 it is the other way around: the more pieces, the worse.
# These are the masks (that of M880 is right), with four tokens in the cache and three new ones:

# %%
seen = {  # four tokens in the cache, three new ones: a row for each of these
    "right": causal_mask(7)[0, 0, 4:],
    "M881": torch.ones(3, 7, dtype=torch.bool),
    "M882": torch.ones(3, 7, dtype=torch.bool).tril(),
}
print("   ".join(f"{name:7}" for name in seen))
for mask_rows in zip(*(as_text(mask).splitlines() for mask in seen.values())):
    print("   ".join(mask_rows))

# %% [markdown]
# Other mistakes: **labels that are the inputs** (the loss goes to zero, and the model repeats one
# token for ever); **perplexities compared across tokenizers**; **a test text that was in the
# training text**, which is easily overlooked with text from the web; **a prompt that is padded on
# the left**, with positions and mask unchanged (chapter 7).
#
# ## Summary
#
# 1. A decoder-only model is an encoder with a causal mask. Your parts and your training step need
#    no change.
# 2. Bits per character compare models whose tokenizers differ. Count pairs before you train: a
#    short training of a network can be worse.
# 3. A cache needs the right positions and the right part of the mask as soon as several tokens come
#    at once.
# 4. Fine-tuning is training on rows in which only the answer counts. What was read before replaces
#    many pairs. LoRA of the matrices alone was no substitute here, by BLEU mostly because the table
#    did not learn.
# 5. With equal work an encoder and a decoder translated better than a decoder alone, after short
#    trainings from pairs. What speaks for the decoder is all the text without pairs.
#
# Now you can do **assignment 6**, on measuring language models and on serving them.
#
# **In the paper:** there is no language model, but the decoder is one, given a source. **Read on:**
# [Radford et al.
# 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)
# (GPT-2); [Chen and Goodman 1999](https://doi.org/10.1006/csla.1999.0128) on counting; [Ouyang et
# al. 2022](https://arxiv.org/abs/2203.02155) on what follows fine-tuning.
