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
# # 1 · A translator in minutes
#
# In this chapter you train a translator from English to German, from scratch, on the machine in
# front of you. By the end you can
#
# - say what goes into a translation model and what comes out,
# - read a learning curve and a BLEU score,
# - turn a model that predicts the next token into one that translates, with a loop of your own,
# - translate your own sentences and see where the model looks.
#
# Reading takes about half an hour, running the cells about two minutes. No network is needed.
#
# **Predict first.** The model below will train for 300 steps. It has never seen a word of either
# language before. Of ten everyday sentences that it has not seen in training, how many will it then
# translate correctly? Write your number down; you will come back to it below.

# %%
import tempfile
from pathlib import Path

import pandas as pd
import torch

from transformer_lib.checks import check, mine, solution
from transformer_lib.experiment.config import load_config
from transformer_lib.data import prepare
from transformer_lib.data.preparation import describe
from transformer_lib.decoding import DecodingConfig, translate
from transformer_lib.evaluation.alignment import cross_attention
from transformer_lib.evaluation.evaluate import evaluate_run
from transformer_lib.model import num_parameters
from transformer_lib.course.figures.architecture import ALTERNATIVE, architecture
from transformer_lib.plots.attention import attention_explorer, attention_heatmap
from transformer_lib.plots.curves import learning_curves, length_histogram
from transformer_lib.plots.measurements import lines
from transformer_lib.plots.notebook import show, show_chart
from transformer_lib.experiment.run import build_model, load_run, train
from transformer_lib.experiment.validation import reference_loss
from transformer_lib.training.metrics import read_metrics
from transformer_lib.vocabulary import BOS, EOS, PAD

pd.set_option("display.max_colwidth", None)

# %% [markdown]
# ## What this course builds
#
# This is the model of the paper [“Attention Is All You Need”](https://arxiv.org/abs/1706.03762)
# (Vaswani et al. 2017). An **encoder** reads the source sentence and turns it into one vector per
# **token**, which is a word, a piece of a word or a punctuation mark; together, these vectors are
# the **memory**. A **decoder** reads the translation so far, looks into the memory, and proposes
# the next token; that token is appended, and the decoder runs again.
#
# The number in each box is the chapter that builds that part. Here we take the finished parts from
# `transformer_lib` and see what they can do together.

# %%
show(architecture(), ALTERNATIVE)

# %% [markdown]
# ## The text
#
# The course comes with 50,001 sentence pairs from [Tatoeba](https://tatoeba.org), a collection
# written by volunteers (CC BY 2.0 FR). An *experiment* is a description of everything that
# determines a result: the text, the model, the training. We take one that comes with the library
# and shorten its training to 300 steps, which take one or two minutes on two CPU cores.
#
# The text is prepared once; after that it is read from a cache.

# %% tags=["nbval-ignore-output"]
experiment = load_config(
    "cpu_tatoeba_transformer", ["training.steps=300", "training.validations=5"]
)
data = prepare(experiment.data)
assert len(data.train) > 40_000, "the bundled text is incomplete: install the course again"

# %%
print(describe(data.report))
print(f"{len(data.valid):,} sentences to watch the training with")
print(f"{len(data.test):,} sentences to judge it by")

# %% [markdown]
# Not every pair is used for training. 1,977 pairs belong to the 1,500 English sentences that are
# held out for validation and test, with all their translations: a model that has seen the question
# deserves no credit for knowing the answer. (Only English sentences are held out. A German one may
# still be in the training text, as the translation of another English sentence; chapter 13 shows
# how often that happens, and what it does to the score.) Two more pairs were dropped because one side is
# several times as long as the other, which usually means that the two sides do not say the same
# thing.
#
# Here are the first test sentences. Some have several translations in the collection, and the test
# set keeps them all:

# %%
pd.DataFrame(
    {
        "English": data.test.sources[:6],
        "German, each one correct": [" / ".join(r) for r in data.test.references[:6]],
    }
)

# %% [markdown]
# ### Tokens
#
# The model does not read letters or words but **pieces**: a frequent word is one piece, and a rare
# one is assembled from several. The 4,000 pieces were learned from both languages at once (chapter
# 3 shows how); `▁` marks the beginning of a word.

# %%
for sentence in ("Where is the station?", "Wo ist der Bahnhof?", "The hedgehog sneezes."):
    (tokens,) = data.tokenizer.encode([sentence])
    print(f"{sentence:24}", *data.tokenizer.pieces(tokens))

# %% [markdown]
# *Where*, *is*, *the*, *Wo*, *ist* and *der* are one piece each. *station* takes two, and
# *Bahnhof*, which every tourist knows, takes five: it does not occur often enough in these 48,000
# pairs. The hedgehog is broken into nothing but fragments. The model can still read such words, but
# it has to learn what the fragments mean together.
#
# How long is a sentence, then? (One more token, which ends every sentence, is counted.)

# %%
lengths = {"English": data.train.src.lengths, "German": data.train.tgt.lengths}
for language, values in lengths.items():
    print(f"{language}: median {int(pd.Series(values).median())}, longest {values.max()} tokens")
show(
    length_histogram(lengths),
    "Histogram of sentence lengths in tokens: most have 5 to 10, hardly any more than 15.",
)

# %% [markdown]
# Short! Remember this picture when you see the model struggle with a long sentence below: it has
# never met one.
#
# ## The model
#
# Our model has two encoder layers and two decoder layers, and each token is a vector of 192
# numbers. The paper's base model has six layers of each kind and vectors of 512 numbers. Apart from
# its size, our model differs from the paper's mainly in two ways:
#
# - Each norm, which brings the vectors to a standard size, comes *before* its **sublayer**
#   (attention or a feed-forward network) and not after it. This order trains more easily (chapter
#   9).
# - The two embeddings (of source and target tokens) and the output projection are three separate
#   tables. The paper has one table for all three (chapter 3).
#
# Both are settings of the experiment.

# %%
model = build_model(experiment, len(data.tokenizer))
parts = {
    "embeddings and output projection": num_parameters(model)
    - num_parameters(model.encoder)
    - num_parameters(model.decoder),
    "encoder": num_parameters(model.encoder),
    "decoder": num_parameters(model.decoder),
    "all": num_parameters(model),
}
for part, count in parts.items():
    print(f"{part:34}{count:>10,}")

# %% [markdown]
# More than half of this small model's parameters belong to its vocabulary. Before training all of
# them are random, and so is what the model says:

# %% tags=["nbval-ignore-output"]
SENTENCES = ["I am hungry.", "Where is my car?", "Tom does not want to go home."]
briefly = DecodingConfig(beam_size=1, max_extra=10)
for source, said in zip(SENTENCES, translate(model, data.tokenizer, SENTENCES, briefly)):
    print(f"{source:32}{said}")
    assert said != source, "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# ## Training, live
#
# In each step the model reads a batch, of over a hundred sentence pairs on average, and, at every
# position of the target, predicts how probable each of the 4,000 pieces is as the next token. The
# **loss** is the mean of −log p, where p is the probability of the right piece; with the natural
# logarithm, as here, its unit is the **nat**. A model that knows nothing and treats all pieces as
# equally likely pays ln 4000 ≈ 8.3; one that is always right and certain pays 0. After every step
# the weights move a little in the direction that lowers the loss. (To be exact, the training lowers
# a *smoothed* version of it, in which being too certain also costs something: chapter 11.)
#
# Five times during the training the library stops to look at the validation sentences. We use that
# moment for two things. We translate our three sentences. And we ask how much the decoder listens
# to the encoder: we compute the loss twice, once with the right source sentences and once with the
# source of *another* pair for each translation. A decoder that ignores the source would not
# notice.


# %% tags=["nbval-ignore-output"]
TARGETS = [references[0] for references in data.valid.references[:200]]
SOURCES = data.valid.sources[: len(TARGETS)]


def both_losses(model):
    right_and_wrong = SOURCES, SOURCES[1:] + SOURCES[:1]
    return [reference_loss(model, data, experiment.training, s, TARGETS) for s in right_and_wrong]


history, listening = [], {0: both_losses(model)}


def watch(trainer, record):
    said = translate(trainer.model, data.tokenizer, SENTENCES, briefly)
    row = {"seconds": round(record["seconds"]), "BLEU": round(record["bleu"], 1)}
    history.append(row | dict(zip(SENTENCES, said)))
    print(f"{row['seconds']:>3} s   BLEU {row['BLEU']:4.1f}   {said[1]}")
    listening[record["step"]] = both_losses(trainer.model)


folder = Path(tempfile.mkdtemp()) / "first_translator"
finished = train(experiment, folder, on_validation=watch)
assert finished, "not as on our machines: restart the kernel and run all cells"
assert len(history) == 5, "not as on this page: restart the kernel and run all cells"

# %% tags=["nbval-ignore-output"]
translations = pd.DataFrame(history)
assert translations["BLEU"].iloc[-1] > translations["BLEU"].iloc[0], (
    "not as on our machines: restart the kernel and run all cells"
)
translations

# %% [markdown]
# Read each column from top to bottom. From early on nearly all of these are German words in German
# order, with the right punctuation mark at the end. Some become correct, others stay wrong to the
# end; in another run, a correct one may get lost again. How much does the decoder listen to the
# encoder? The two losses show it:

# %% tags=["nbval-ignore-output"]
steps = list(listening)
right, wrong = zip(*listening.values())
show(
    lines(
        {"its own source": (steps, right), "the source of another pair": (steps, wrong)},
        ("training steps", "loss of the translation (nats per token)"),
    ),
    f"With the right source the loss falls from {right[0]:.1f} to {right[-1]:.1f}; with the source "
    f"of another pair it goes from {wrong[0]:.1f} to {wrong[-1]:.1f}.",
)
worth = ", ".join(f"{b - a:.1f}" for a, b in zip(right, wrong))
print(f"the right source is worth {worth} nats per token")
assert wrong[-1] - right[-1] > 1.5 * (wrong[1] - right[1]), (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# Before training both losses are near 8.7, a little worse than ln 4000, because random scores
# prefer some pieces. After the first 60 steps the loss is about 5 even with the wrong source. A
# model can get that far without the English: it is enough to know which words are frequent and
# which word follows which. The right source is worth about 1 nat at that point. From then on the
# upper curve hardly moves, and the lower one goes on falling, until the source is worth about 2.6
# nats per token. (The upper curve does not measure how much German the decoder knows: a decoder
# that trusts its source pays for a wrong source. And this is a single training run; another seed
# gives other numbers.)
#
# Here is the score during training, over time and over the number of tokens read. **BLEU** compares
# the output with human translations, as explained below:

# %% tags=["nbval-ignore-output"]
records = read_metrics(folder)
losses = [r["loss"] for r in records if r["kind"] == "validation"]
assert losses[-1] < losses[0] < 8.3, "not as on our machines: restart the kernel and run all cells"
show(
    learning_curves({"Transformer": records}, against=("seconds", "tokens")),
    f"Validation BLEU rises from {history[0]['BLEU']} to {history[-1]['BLEU']} during training.",
)

# %% [markdown]
# ## From the next token to a sentence
#
# What has been trained is not a translator yet. Given the source and the beginning of a
# translation, the decoder returns a score, or **logit**, for each of the 4,000 pieces; softmax
# turns the logits into probabilities. These are the five likeliest pieces after each word of *Wo
# ist mein Auto?*

# %% tags=["nbval-ignore-output"]
run = load_run(folder)
(source_tokens,) = run.tokenizer.encode(["Where is my car?"])


@torch.no_grad()
def next_logits(tokens):
    """A score for each piece as the next token, given the tokens so far, which begin with <s>."""
    src = torch.tensor([[*source_tokens, EOS]])
    return run.model(src, torch.tensor([tokens]))[0, -1]


(beginning,) = run.tokenizer.encode(["Wo ist mein Auto?"])
for length in range(len(beginning) + 1):
    tokens = [BOS, *beginning[:length]]
    top = next_logits(tokens).softmax(dim=0).topk(5)
    likeliest = zip(run.tokenizer.pieces(top.indices), top.values)
    print(f"{run.tokenizer.pieces(tokens)[-1]:7}→", *(f"{s} {p:.0%} " for s, p in likeliest))
    assert top.values[0] > top.values[4], "restart the kernel and run all cells"

# %% [markdown]
# That is all a language model gives, in 2017 and today: a distribution over the next token. A
# *loop* turns it into a sentence, and you will write that loop.
#
# ### The loop
#
# ●●○ · 20 minutes · it turns a model that predicts the next token into a translator
#
# `next_logits(tokens)` takes the list of all tokens so far, beginning with `BOS` (the number of
# `<s>`), and returns a score for each piece of the vocabulary, as above. Append the likeliest piece
# again and again, which is called **greedy** decoding. Stop at `EOS` (`</s>`), or when the
# translation has `max_len` tokens. Return the translation alone, a list of numbers without `BOS`
# and `EOS`.
#
# `check` tells you at once what it thinks of your function: which properties hold, where the first
# wrong number is, and which known mistake your code behaves like, if any. What passes is kept in
# `my_transformer.py` beside this notebook. After a first try, `solution("greedy_decode")` in a cell
# of its own shows one way.

# %%
print(f"PAD = {PAD}, BOS = {BOS}, EOS = {EOS}")


def greedy_decode(next_logits, max_len):
    ...  # your code


check(greedy_decode)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A `for` loop over `range(max_len)` cannot run forever. `tensor.argmax()` is the index of the
# largest number, as a tensor; `int(…)` turns it into an integer.
#
# </details>

# %% [markdown]
# From here on the chapter uses your loop if it has passed its check, and the course's otherwise.
# The line below the next cell says which.

# %%
greedy_decode = mine("greedy_decode")

# %% tags=["nbval-ignore-output"]
translation = greedy_decode(next_logits, max_len=20)
assert len(translation) > 1, "the loop stopped at once: run the cells above again"
print(*run.tokenizer.pieces(translation), "→", run.tokenizer.decode([translation])[0])

# %% [markdown]
# **A common mistake** is to give the model only its last token, `next_logits(tokens[-1:])`. The
# code runs, but the decoder remembers nothing of earlier calls: it must read the whole translation
# so far every time. After *Wo ist*, such a loop shows it only *ist*, and not what precedes it:

# %% tags=["nbval-ignore-output"]
forgetful = greedy_decode(lambda tokens: next_logits(tokens[-1:]), max_len=20)
assert forgetful != translation, "not as on our machines: restart the kernel and run all cells"
print(run.tokenizer.decode([forgetful])[0])

# %% [markdown]
# ## How good is it?
#
# **BLEU** counts how many *n-grams* (runs of one to four words) of the output also occur in a human
# translation, the **reference**, and takes points off if the output is too short. With one
# reference, a score of 100 would mean that every sentence equals it word for word; professional
# translators, compared with one another, stay far below that, since a sentence has many right
# translations. Chapter 13 computes it by hand and shows what it misses. We always use [sacreBLEU](https://github.com/mjpost/sacrebleu) and print its
# *signature*, without which a BLEU score means little.
#
# Now let us score the 1,000 test sentences. Instead of only the likeliest token at each step, the
# library keeps the four likeliest beginnings of a translation (**beam search**, chapter 12). Look
# at BLEU with all references; chapter 13 explains the other scores and the signature, and chapter
# 15 the cost.

# %% tags=["nbval-ignore-output"]
result = evaluate_run(run)
assert result.bleu.score > 3, "300 steps give more: restart the kernel and run all cells"
assert "nrefs:var" in result.bleu.signature, (
    "not as on our machines: restart the kernel and run all cells"
)
print(result.as_text())

# %% [markdown]
# Now back to your prediction: here are ten test sentences, taken at regular intervals, with the
# model's translation next to a person's.

# %% tags=["nbval-ignore-output"]
every = range(0, len(data.test), len(data.test) // 10)
comparison = pd.DataFrame(
    {
        "English": [data.test.sources[i] for i in every],
        "the model": [result.hypotheses[i] for i in every],
        "a person": [data.test.references[i][0] for i in every],
    }
)
assert len(comparison) == 10, "not as on this page: restart the kernel and run all cells"
comparison

# %% [markdown]
# How many of the ten are right? When this page was written, one or two were, depending on the
# judge. Of the others, some are German sentences about something else, and some are not quite
# German. Look closely: a right translation need not be the one that the person wrote, and a wrong
# one can differ from it in a single word. BLEU sees neither.
#
# Training took 300 steps, however long your machine needed for them, so your scores should be close
# to those stored on this page. For a better model, give it 2,000 steps (`training.steps=2000` where
# the experiment is loaded) and run the cells again.
#
# ## Your own sentences
#
# Change the list and run the cell as often as you like. Try a question, a negation, a name, a word
# that the model cannot know, and a long sentence.

# %% tags=["nbval-ignore-output"]
sentences = [
    "I don't know where she lives.",
    "Can you help me?",
    "My brother bought a new car.",
    "The hedgehog sneezes.",
    "Although it was raining, we went to the park, because the children wanted to play outside.",
]
for source, said in zip(sentences, run.translate(sentences)):
    assert said, "not as on our machines: restart the kernel and run all cells"
    print(f"{source}\n    {said}\n")

# %% [markdown]
# Remember the training data: the model has never met a sentence as long as the last one, nor the
# word *hedgehog*, whose pieces it knows only from other words. But after 300 steps it also fails on
# short sentences of frequent words.
#
# ## Where does it look?
#
# Before each token that it produces, the decoder weighs the source tokens: how much of each should
# go into the decision? The answers, the **attention weights**, are numbers between 0 and 1, and for
# each target token they add up to 1. Each layer has four **heads** (chapter 6) that weigh the
# source independently of one another. Here are the weights for one sentence, averaged over both
# layers and all heads:

# %% tags=["nbval-ignore-output"]
sentence = "My brother bought a new car."
said = run.translate([sentence])[0]
weights, tgt_pieces, src_pieces = cross_attention(run.model, run.tokenizer, sentence, said)
torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
show(
    attention_heatmap(weights.mean(dim=(0, 1)), tgt_pieces, src_pieces),
    f"Attention from the translation “{said}” to “{sentence}”, mean over layers and heads.",
)

# %% [markdown]
# Read it row by row. In most rows one or two cells stand out. They form a path that runs roughly
# from the top left to the bottom right, because English and German often agree in word order. Where
# a word of the translation is wrong, see where that row looks: at the wrong word? The mean hides
# the fact that the heads do different things. Here is each head on its own: move the two sliders to
# choose a layer and a head, and point at a cell to read its weight.

# %% tags=["nbval-ignore-output"]
assert weights.shape[:2] == (2, 4), "not as on our machines: restart the kernel and run all cells"
show_chart(attention_explorer(weights, tgt_pieces, src_pieces))

# %% [markdown]
# Most heads focus on one or two words, but not all of them on the same words: choose a row, and see
# where each head looks. All of this was learned from sentence pairs alone. Chapter 14
# measures which heads matter, and shows why a bright cell is not yet an explanation.
#
# ## Summary
#
# 1. A translation model turns source tokens into a memory and, given the memory and the translation
#    so far, predicts how probable each piece is as the next token. A loop turns these predictions
#    into sentences.
# 2. Training lowers one number, the mean −log p of the right next token (smoothed a little).
#    Translations are a by-product of that.
# 3. In 300 steps the model learned to write something like German that has to do with the English,
#    and it got a few translations right. Long sentences, which it has never met, are beyond it.
# 4. A score means something only if the test sentences were kept out of training, in all pairs in
#    which they occur.
# 5. BLEU compares the output with human translations by the n-grams they share; scores can be
#    compared only on the same test set and with the same signature.
#
# **In the paper:** figure 1 is the picture above, section 3 the model, section 5 the training.
# **Read on:** `make train-demo` trains this model and an RNN for three minutes each and compares
# them;
# at this size they are close, and chapter 15 shows when that changes.
#
# In **assignment 4** you build a translator from such parts, including its decoding loop.
#
# **Next:** [2 · From the RNN to attention](02_from_rnn_to_attention.ipynb)
