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
# # 13 · Is it better?
#
# Two systems, two numbers, and the larger one wins: that is how papers are written. This chapter is
# about what the numbers count, what they miss, and when a difference is more than luck. By the end
# you can
#
# - compute BLEU and chrF by hand, and get sacreBLEU's numbers to the last digit,
# - judge the translator that you built by the BLEU that you wrote,
# - say why two BLEU scores of one output can be ten points apart, and how to prevent that,
# - decide by a paired bootstrap whether a difference is real,
# - show what BLEU misses, and let people judge in a way that can be trusted.
#
# Reading takes about forty minutes, running the cells about one. Assignment 5 asks for an
# experiment of your own, and for a verdict that follows this chapter's rules.
#
# **Predict first.** The Transformer and the RNN that come with the course translate the same 1,000
# sentences. Their BLEU scores differ by three and a half points. If we had tested on the first 50
# sentences only, would the same system have been ahead, and could you have been sure?

# %%
import math
import re
from collections import Counter
from itertools import compress

import numpy as np
import pandas as pd
import torch
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from transformer_lib.checks import check, mine, solution
from transformer_lib.course import judged as judged_blindly
from transformer_lib.data.corpora import DataConfig, load_corpus
from transformer_lib.data.preparation import training_pairs
from transformer_lib.metrics import bleu as scores
from transformer_lib.plots.measurements import histogram
from transformer_lib.plots.notebook import show
from transformer_lib.course.trained import load_trained

# %% [markdown]
# Here are the translations by both systems. From here on we look at nothing but these texts. (The
# two models differ in size, 2.5 and 1.5 million parameters, and in how long they were trained.
# Whether one *architecture* is better is a question for chapter 15, which gives both the same
# budgets. Here the question is whether one *output* is better.)

# %% tags=["nbval-ignore-output"]
test = load_corpus(DataConfig()).test
outputs = {name: load_trained(name).translate(test.sources) for name in ("transformer", "rnn")}
one_reference = [german[0] for german in test.references]
example = pd.DataFrame({"English": test.sources, **outputs, "a person": one_reference})
assert len(example) == 1000, "not as on this page: restart the kernel and run all cells"
example.iloc[::125]

# %% [markdown]
# ## BLEU by hand
#
# Which runs of one, two, three or four words (**n-grams**) of the output also occur in the
# reference? For each length $n$, the share of the output's n-grams that do is the **precision**
# $p_n$. An n-gram of the reference may be matched only as often as it occurs there; otherwise *the
# the the* would be a good translation. This is called **clipping**:

# %%
tokenize = Tokenizer13a()  # splits punctuation from words, as WMT does


def ngrams(sentence, n):
    words = tokenize(sentence).split()
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


hypothesis = "Ich bin gestern ins Kino gegangen, ins Kino."
reference = "Gestern bin ich ins Kino gegangen."
for n in (1, 2, 3, 4):
    ours, theirs = ngrams(hypothesis, n), ngrams(reference, n)
    matches = ours & theirs  # the smaller of both counts
    shown = ", ".join(" ".join(gram) for gram in matches)
    print(f"p{n} = {matches.total()}/{ours.total()}   {shown}")

# %% [markdown]
# *ins Kino* occurs twice in the output and counts once. *Ich* is not *ich*: BLEU sees strings and
# nothing else.
#
# Precision alone would reward an output of a single safe word. So if the output is shorter than the
# reference, the score is multiplied by the **brevity penalty**:
#
# $$\text{BLEU} = 100 \cdot \min\left(1, e^{1 - r/c}\right) \cdot \left(p_1 p_2 p_3 p_4\right)^{1/4}$$
#
# $c$ and $r$ are the lengths of output and reference. Lengths and counts are summed over *all*
# sentences before anything is divided. BLEU is a property of a test set, not a mean over sentences
# ([Papineni et al. 2002](https://aclanthology.org/P02-1040/)).
#
# ### BLEU
#
# ●●○ · 30 minutes · the score of every table
#
# `hypotheses` and `references` are lists of sentences, each a list of words. Each hypothesis has
# one reference. Clip counts sentence by sentence, and sum them over all sentences. If there is no
# match of some length, BLEU is 0, as in Papineni et al. (sacreBLEU smooths in that case, which
# matters only for very small test sets.) Return a number from 0 to 100. What passes its `check` is
# kept in `my_transformer.py` beside this notebook. After a first try, `solution("corpus_bleu")` in
# a cell of its own shows one way.

# %%
def corpus_bleu(hypotheses, references):
    ...  # your code


check(corpus_bleu)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `Counter(...) & Counter(...)` clips. What is divided, and when: after each sentence or at the end?
# The brevity penalty is at most 1.
#
# </details>

# %% [markdown]
# Here is your BLEU for both systems on the 1,000 sentences, beside sacreBLEU's:

# %% tags=["nbval-ignore-output"]
corpus_bleu = mine("corpus_bleu")


def words(texts):
    return [tokenize(text).split() for text in texts]


for name, texts in outputs.items():
    ours = corpus_bleu(words(texts), words(one_reference))
    theirs = BLEU().corpus_score(texts, [one_reference])
    print(f"{name:12} ours {ours:.4f}, sacreBLEU {theirs.score:.4f}   {theirs}")
    assert abs(ours - theirs.score) < 1e-9, (
        "not as on our machines: restart the kernel and run all cells"
    )

# %% [markdown]
# They agree to the last digit. The line on the right gives the four precisions, the brevity penalty
# (BP) and its lengths: always look at them. A low BP says that the output is too short, which none
# of the precisions tells you.
#
# ### Your own translator
#
# Since chapter 3 you have been building a translator. Now you judge it by your own BLEU: the model
# of chapter 10 with the course's weights, and the encoding of text and the beam search of chapter
# 12, on a hundred test sentences. (Where a part is not yours yet, the course's takes its
# place.)

# %% tags=["nbval-ignore-output"]
Transformer, convert, translate = mine("Transformer"), mine("convert"), mine("translate")
trained = load_trained("transformer")
PIECES = trained.tokenizer.pieces(range(len(trained.tokenizer)))
built = Transformer(len(PIECES), 192, 512, 4, 2, dropout=0.15).eval()
built.load_state_dict(convert(trained.model.state_dict()))

HUNDRED = 100
by_yours = [translate(source, built, PIECES) for source in test.sources[:HUNDRED]]
judged = {"your translator": by_yours}
judged |= {f"the course's {name}": texts[:HUNDRED] for name, texts in outputs.items()}
for name, texts in judged.items():
    score = corpus_bleu(words(texts), words(one_reference[:HUNDRED]))
    print(f"{name:25}BLEU {score:.1f} on {HUNDRED} sentences")
same = sum(a == b for a, b in zip(by_yours, outputs["transformer"]))
print(f"{same} of {HUNDRED} translations are those of the course's Transformer")
assert same > 95, "not the library's translations: has every part passed its check?"

# %% [markdown]
# The same weights and the same search give the same translations, whoever wrote the program. What a
# hundred sentences can and cannot say about the Transformer and the RNN comes below.
#
# ## One output, many scores
#
# “We reach 28.4 BLEU”: on which text, and counted how? Here is *one* output, the Transformer's,
# scored in several ways, all of which are found in papers:

# %%
def pieces_of(texts):
    """Cut into the model's own pieces, as if they were words."""
    tokenizer = load_trained().tokenizer
    return [" ".join(tokenizer.pieces(tokens)) for tokens in tokenizer.encode(texts)]


def without_punctuation(texts):
    return [re.sub(r"[^\w\s]", "", text) for text in texts]


one_output = outputs["transformer"]
ways = {
    "as it should be": (BLEU(), one_output, one_reference),
    "lower-cased": (BLEU(lowercase=True), one_output, one_reference),
    "split at spaces only": (BLEU(tokenize="none"), one_output, one_reference),
    "without punctuation": (BLEU(), *map(without_punctuation, (one_output, one_reference))),
    "pieces for words": (
        BLEU(tokenize="none", force=True),
        pieces_of(one_output),
        pieces_of(one_reference),
    ),
    "characters for words": (BLEU(tokenize="char"), one_output, one_reference),
    "mean of the sentences": None,
}

# %% tags=["nbval-ignore-output"]
rows = []
for way, settings in ways.items():
    if settings is None:
        sentence = BLEU(effective_order=True)
        each = [sentence.sentence_score(h, [r]).score for h, r in zip(one_output, one_reference)]
        rows.append([way, sum(each) / len(each), ""])
    else:
        metric, hypotheses, references = settings
        score = metric.corpus_score(hypotheses, [references]).score
        rows.append([way, score, str(metric.get_signature())])
apart = pd.DataFrame(rows, columns=["scored", "BLEU", "signature"]).set_index("scored")
assert apart["BLEU"].max() - apart["BLEU"].min() > 5, (
    "not as on our machines: restart the kernel and run all cells"
)
apart.style.format({"BLEU": "{:.1f}"})

# %% [markdown]
# The scores range from 51 to 70, for one and the same text. Lower-casing flatters a little;
# splitting at spaces costs points, since *Haus.* is not *Haus*; counting characters as words gives
# an entirely different measure; and the mean of the sentences' scores is not BLEU.
#
# A score without a **signature** says little. sacreBLEU ([Post
# 2018](https://aclanthology.org/W18-6319/)) takes the finished text, as people read it, tokenizes
# it itself, and prints what it did as the signature: number of references, case, tokenizer,
# smoothing, version. Compare only scores with equal signatures. That is necessary but not
# sufficient: twice in the table above, two rows have the same signature, since sacreBLEU cannot
# know what was done to a text before it received it. The paper's 28.4 was computed on tokenized
# text in which compound words with hyphens had been split, which adds points; it cannot be compared
# with yours (`transformer-lib evaluate --explain` computes both).
#
# ### Several references
#
# There is more than one right translation. Many of our test sentences have several references. An
# n-gram may match any of them, and $r$ is the sum over the sentences of the length of the reference
# that is closest in length to the output:

# %%
many = sum(len(german) > 1 for german in test.references)
print(f"{many} of 1,000 sentences have more than one reference")

# %% tags=["nbval-ignore-output"]
for name, texts in outputs.items():
    one = scores.bleu(texts, [[german] for german in one_reference])
    every = scores.bleu(texts, test.references)
    print(f"{name:12} one {one.score:.1f}, all {every.score:.1f}")
    assert every.score > one.score, "not as on our machines: restart the kernel and run all cells"
print(every.signature)

# %% [markdown]
# ### A second opinion
#
# ●●● · 40 minutes · a metric that is often reported beside BLEU
#
# **chrF** ([Popović 2015](https://aclanthology.org/W15-3049/)) counts runs of one to six
# *characters* instead of words. *Autos* for *Auto* is wrong for BLEU and nearly right for chrF,
# which is fairer to languages with many endings. And it counts what is missing (**recall**, matches
# divided by the runs of the reference) as well as what is superfluous (**precision**, matches
# divided by the runs of the output). Let $P$ be the mean of the six precisions and $R$ the mean of
# the six recalls. With $\beta = 2$, sacreBLEU's default, recall weighs more:
#
# $$\text{chrF} = 100 \cdot (1 + \beta^2) \frac{P R}{\beta^2 P + R}$$
#
# `hypotheses` and `references` are lists of sentences as they are written, one reference each.
# Spaces do not count as characters. As in BLEU, matches are clipped sentence by sentence, and
# counts are summed over all sentences before anything is divided. Follow two rules of sacreBLEU for
# short sentences:
#
# - If a *reference* is too short to have runs of some length, the runs of this length in its
#   hypothesis do not count either.
# - A length of which one side, over all sentences, has no runs at all is left out of both means.
#
# Without any match the score is 0.

# %%
def chrf(hypotheses, references):
    ...  # your code


check(chrf)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `"".join(text.split())` has no spaces. Write a function for the runs of one length and one
# sentence, then count three things for each length: matches, runs of the output, runs of the
# reference.
#
# </details>

# %% tags=["nbval-ignore-output"]
chrf = mine("chrf")
for name, texts in outputs.items():
    ours, theirs = chrf(texts, one_reference), CHRF().corpus_score(texts, [one_reference])
    print(f"{name:12} ours {ours:.4f}, sacreBLEU {theirs.score:.4f}")
    assert abs(ours - theirs.score) < 1e-9, (
        "not as on our machines: restart the kernel and run all cells"
    )

# %% [markdown]
# By chrF, too, the Transformer is ahead. (The scales differ: a point of chrF is not a point of
# BLEU.)
#
# ## Is the difference real?
#
# The Transformer is ahead by about three and a half points, on these 1,000 sentences. With other
# sentences the lead would have been different. By how much? We have no others, but we can draw
# 1,000 from the ones we have, **with replacement**, again and again: some twice, some not at all.
# This is called the **bootstrap**. Both systems are scored on the same draw, which makes it
# *paired*
# ([Koehn 2004](https://aclanthology.org/W04-3250/)).
#
# ### The paired bootstrap
#
# ●●○ · 15 minutes · whether a difference is more than chance
#
# To begin with, let each sentence have a score of its own: `scores_a` and `scores_b` are tensors of
# shape (sentences,), and each row of `indices`, (samples, sentences), is one draw. In what share of
# the draws is A's mean *above* B's? Return one number, from 0 to 1.

# %%
def bootstrap_wins(scores_a, scores_b, indices):
    ...  # your code


check(bootstrap_wins)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `scores_a[indices]` is a table: a row for each draw. Both systems get the same draw.
#
# </details>

# %% [markdown]
# chrF gives usable numbers for single sentences, too. In how many draws is the Transformer ahead?

# %% tags=["nbval-ignore-output"]
bootstrap_wins = mine("bootstrap_wins")
sentence_chrf = CHRF().sentence_score
by_sentence = {
    name: torch.tensor([sentence_chrf(h, [r]).score for h, r in zip(texts, one_reference)])
    for name, texts in outputs.items()
}
draws = torch.from_numpy(np.random.default_rng(1).integers(1000, size=(1000, 1000)))
ahead = bootstrap_wins(by_sentence["transformer"], by_sentence["rnn"], draws)
print("mean chrF:", {name: round(each.mean().item(), 1) for name, each in by_sentence.items()})
print(f"the Transformer is ahead in {ahead:.1%} of the draws")
assert ahead > 0.95, "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# BLEU is not a mean over sentences, so here the bootstrap draws the sentences' *counts*, and turns
# them into a score afterwards. sacreBLEU gives the counts of each sentence:

# %%
sentence_bleu = BLEU(effective_order=True)  # as a score of one sentence, a very rough number


def counts(hypothesis, reference):
    """What BLEU is made of, for one sentence: matches 1–4, n-grams 1–4, both lengths."""
    one = sentence_bleu.sentence_score(hypothesis, [reference])
    return [*one.counts, *one.totals, one.sys_len, one.ref_len]


table = {
    name: torch.tensor([counts(h, r) for h, r in zip(texts, one_reference)])
    for name, texts in outputs.items()
}
print("Transformer, first sentence:", table["transformer"][0].tolist())

# %% [markdown]
# ### The bootstrap of BLEU
#
# ●●○ · 20 minutes · how far one system is ahead, and how surely
#
# `counts_a` and `counts_b` are such tables, (sentences, 10): matches of one to four words, n-grams
# of one to four words, the length of the output, the length of the reference. Each row of
# `indices`, (samples, sentences), is a draw. Return, for each draw, BLEU of A minus BLEU of B:
# (samples,). Where there is no match of some length, BLEU is 0.

# %%
def bootstrap_bleu(counts_a, counts_b, indices):
    ...  # your code


check(bootstrap_bleu)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `counts_a[indices]` has three axes: over which of them do you add up a draw? The logarithm of 0 is
# −∞, and the exponential of −∞ is 0. Whole numbers become doubles by `.double()`.
#
# </details>

# %%
bootstrap_bleu = mine("bootstrap_bleu")


def differences(sentences, samples=1000):
    """BLEU of the Transformer minus BLEU of the RNN, on draws from the first sentences."""
    drawn = np.random.default_rng(1).integers(sentences, size=(samples, sentences))
    return bootstrap_bleu(table["transformer"], table["rnn"], torch.from_numpy(drawn)).numpy()


# %% tags=["nbval-ignore-output"]
drawn = differences(1000)
low, high = np.percentile(drawn, [2.5, 97.5])
show(
    histogram(drawn, ("difference in BLEU", "number of draws, of 1,000"), mark=0.0),
    "Histogram of the difference over a thousand draws: a bell around 3.5, none below zero.",
)
print(f"95% of the draws: {low:+.1f} to {high:+.1f}; the RNN is ahead in {(drawn <= 0).mean():.1%}")
assert low > 0, "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# The RNN is ahead in none of a thousand draws. So the difference is real, in this sense: with other
# sentences *of this kind*, the same system would win. This does not say that it would win after
# another training run: two runs of one system differ, too (chapter 15).
#
# And with fewer sentences?

# %% tags=["nbval-ignore-output"]
rows = []
for sentences in (50, 100, 200, 500, 1000):
    all_of_them = torch.arange(sentences)[None]
    first = bootstrap_bleu(table["transformer"], table["rnn"], all_of_them).item()
    few_drawn = differences(sentences)
    low, high = np.percentile(few_drawn, [2.5, 97.5])
    behind = f"{(few_drawn <= 0).mean():.1%}"
    rows.append([sentences, f"{first:+.1f}", f"{low:+.1f} to {high:+.1f}", behind])
columns = ["sentences", "difference", "95% of draws", "RNN ahead"]
sizes = pd.DataFrame(rows, columns=columns).set_index("sentences")
assert len(sizes) == 5, "not as on this page: restart the kernel and run all cells"
sizes

# %% [markdown]
# On the first 50 sentences the *RNN* is ahead by almost three points, and nobody could have been
# sure of anything: 95% of the draws lie between −10 and +5. This answers the opening question. With
# 200 sentences the right system is ahead, but one draw in six still says otherwise. From 500 on,
# hardly any draw does. Remember this when somebody shows you three examples.
#
# sacreBLEU has a near relative of this, `--paired-bs`, which the library uses. For each draw it
# takes the absolute difference of the two scores, $d_i$. Then it counts the draws with
# $d_i - \bar d > d$, where $\bar d$ is the mean over all draws and $d$ the difference that was
# measured. If the lead is clear, the share of such draws estimates how often chance alone would
# give this system such a lead. Chance might as well have favored the other system, so the library's
# p is twice that share. (For a lead that is well within chance this p is too small; around 0.05 it
# is right.) Here it is, with all references of each sentence:

# %% tags=["nbval-ignore-output"]
difference = scores.paired_bootstrap(outputs["transformer"], outputs["rnn"], test.references)
for name, of in {"transformer": "a", "rnn": "b"}.items():
    score, interval = (getattr(difference, f"{what}_{of}") for what in ("score", "interval"))
    print(f"{name:12} {score:.1f} ± {interval:.1f}")
print(f"p = {difference.p_value:.3f}")
assert difference.p_value < 0.05, "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# (2/1,001 is the smallest p that a thousand draws can give: one is added to the count and to the
# number of draws, and the share is doubled.) The number after ± is half the width of that system's
# own 95% interval. These intervals may overlap even when the difference is real: hard draws are
# hard for both systems.
#
# ## What BLEU misses
#
# BLEU counts strings. A correct translation that uses different words counts as wrong, and a wrong
# one that uses the right words counts as nearly right:

# %% tags=["nbval-ignore-output"]
rows = []
for source in (
    "It makes no sense.",
    "She can't do that.",
    "That's not my name.",
    "I prefer reading.",
    "It's not that simple.",
):
    i = test.sources.index(source)
    output, references = outputs["transformer"][i], test.references[i]
    score = sentence_bleu.sentence_score(output, references).score
    rows.append([source, output, references[0], round(score)])
columns = ["English", "Transformer", "a person", "BLEU"]
examples = pd.DataFrame(rows, columns=columns).set_index("English")
assert len(examples) == 5, "not as on this page: restart the kernel and run all cells"
examples

# %% [markdown]
# The first four are good German, and score 10 or less, because the person happened to put it
# differently. The last one has lost its *nicht*: it says the opposite of what it should, and gets
# 58.
#
# What a lost negation costs can be measured. Take the references themselves as the output,
# once with every *nicht* taken out, once with every *Tom* called *Tim*, once with the first two
# words swapped:

# %%
def swapped(text):
    first, second, *rest = [*text.split(), "", ""]
    return " ".join([second, first, *rest]).strip()


damaged = {
    "nothing changed": one_reference,
    "every “nicht” deleted": [re.sub(r" nicht\b", "", text) for text in one_reference],
    "“Tom” is called “Tim”": [text.replace("Tom", "Tim") for text in one_reference],
    "first two words swapped": [swapped(text) for text in one_reference],
}
for name, texts in damaged.items():
    changed = sum(a != b for a, b in zip(texts, one_reference))
    score = BLEU().corpus_score(texts, [one_reference]).score
    print(f"{name:26} {changed:4} sentences changed, BLEU {score:5.1f}")

# %% [markdown]
# Deleting every *nicht* spoils 90 sentences, most of which then say the opposite, and costs five
# points; another name, in a quarter of all sentences, costs ten; swapping two words, which would
# mislead hardly any reader, costs more than half of the score. For each sentence changed, the loss
# is of the same size: BLEU charges for the words, not for what they mean. It is good at telling
# systems of one kind apart on many sentences. It does not know what a sentence says.
#
# **Learned metrics** do know something of it. COMET ([Rei et al.
# 2020](https://arxiv.org/abs/2009.09025)) is a multilingual Transformer that reads source, output
# and reference, and was trained to predict what people thought of translations. Metrics of this
# kind agree with people better than BLEU and chrF do, on whole systems and on single sentences
# ([Kocmi et al. 2021](https://arxiv.org/abs/2107.10821), [Freitag et al.
# 2022](https://aclanthology.org/2022.wmt-1.2/), whose title says it: “Stop Using BLEU – Neural
# Metrics Are Better and More Robust”). They have weak points of their own: they are only as good as
# their training data, their scores cannot be explained, and a score means nothing without the name
# of the model. The usual COMET model takes about two gigabytes, which is why none is used here. In
# a paper written today, report a learned metric, chrF and BLEU, with signatures.
#
# ## Let people judge
#
# In the end translations are for people. Three ways to ask them are in use:
#
# - **Direct assessment**: one translation, one number from 0 to 100, “how well does it say what the
#   source says?”. Raters differ in how generous they are, so each rater's numbers are first made
#   comparable: $z = (s - \text{mean}_{rater}) /
#   \text{standard deviation}_{rater}$. The mean over all of them is the score.
# - **Pairwise judgment**: two translations side by side: which one is better, or is neither? This
#   is easier to answer, and does not depend on how generous a rater is.
# - **Marked errors** (MQM, [Freitag et al. 2021](https://arxiv.org/abs/2104.14478)): professional
#   translators mark each error with its kind and its weight, and the score is the sum of the
#   weights. This takes the most time, and learned metrics have long been measured against it. WMT
#   now uses a quicker form (ESA, [Kocmi et al. 2024](https://arxiv.org/abs/2406.11580)), in which
#   raters mark the places of the errors and then give one number.
#
# In all cases raters must not know which system said what, and the order must be random. Here are
# 30 sentences of our test set, taken at regular intervals from those that the two systems translate
# differently:

# %% tags=["nbval-ignore-output"]
blind = []
for sentence, flip in zip(judged_blindly.SENTENCES, judged_blindly.RNN_IS_A):
    pair = [outputs["transformer"][sentence], outputs["rnn"][sentence]]
    a, b = pair[::-1] if flip == "1" else pair
    blind.append([test.sources[sentence], a, b])
assert len(blind) == 30, "not as on this page: restart the kernel and run all cells"
pd.DataFrame(blind, columns=["English", "A", "B"], index=range(1, 31))

# %% [markdown]
# If you know German, judge these pairs before you read on. Enter a letter for each pair: A or B for
# the better translation, `=` if both are about equally good (or bad). Which system is A was drawn
# at random for each pair. Neither this nor anybody else's verdicts are shown before your own.

# %%
yours = ""  # 30 letters

yours = yours.upper()
assert len(yours) in (0, 30), f"30 letters, please, one for each pair; these are {len(yours)}"
assert set(yours) <= set("AB="), "only the letters A and B, and ="
print(f"{len(yours)} pairs judged")

# %% [markdown]
# A large language model has judged them without knowing which was which (Anthropic's Claude; if you
# do the same, record the version, too, which we did not do). It also helped to write this course;
# it is one judge, and not a person.

# %%
MODEL = judged_blindly.FIRST
systems = {"0": {"A": "transformer", "B": "rnn"}, "1": {"A": "rnn", "B": "transformer"}}


def preferred(judgments):
    names = zip(judgments, judged_blindly.RNN_IS_A)
    return Counter("neither" if letter == "=" else systems[flip][letter] for letter, flip in names)


print("the language model:", dict(preferred(MODEL)))
print("yours:             ", dict(preferred(yours)) if yours else "not judged yet")

# %% [markdown]
# The Transformer was preferred eleven times, the RNN twice, and in 17 pairs neither was preferred.
# That agrees with BLEU on the whole test set. How sure can we be? If both were equally good, each
# preference would be a coin toss; the **sign test** asks how often 13 tosses split 11 : 2 or more
# extremely:

# %%
def sign_test(judgments):
    """How often so many tosses of a coin fall like these preferences, or more extremely."""
    votes = preferred(judgments)
    most, tosses = max(votes["transformer"], votes["rnn"]), votes["transformer"] + votes["rnn"]
    return min(1.0, 2 * sum(math.comb(tosses, k) for k in range(most, tosses + 1)) / 2**tosses)


print(f"the language model: p = {sign_test(MODEL):.3f}")
if yours:
    print(f"you:                p = {sign_test(yours):.3f}")

# %% [markdown]
# By this judge the Transformer is ahead, at the usual 5% level. But could it be that the judge
# simply prefers what comes first? Language models are known to do that ([Zheng et al.
# 2023](https://arxiv.org/abs/2306.05685)), and here, by chance, the Transformer was A in most of
# the pairs in which anything was preferred. So it was asked again, in a new conversation, with A
# and B exchanged:

# %%
turned_back = judged_blindly.EXCHANGED.translate(str.maketrans("AB", "BA"))
says = {letter: MODEL.count(letter) for letter in "AB"}
in_both = [(a, b) for a, b in zip(MODEL, turned_back) if a != "="]
print(f"at first it said A {says['A']} times and B {says['B']} times")
print(f"exchanged, it keeps {sum(a == b for a, b in in_both)} of these {len(in_both)} preferences")
print("then:              ", dict(preferred(turned_back)), f"p = {sign_test(turned_back):.3f}")

# %% [markdown]
# So it prefers certain translations, not a certain position. Ask twice, in both orders, and count
# only the preferences that hold in both. This is still one judge and thirty sentences: what you
# learned above about small samples holds for judgments, too. And a language model has other
# preferences, such as for its own style or for longer answers; to find out whether people agree
# with it, you must ask people.
#
# ### Do judges agree?
#
# If two judges do not agree, at least one of them judges something other than what was asked. The
# share of equal judgments $p_o$ says too little, since some agreement comes by chance: two judges
# who say `=` nine times out of ten agree on 82% of the pairs without looking. **Cohen's kappa**
# subtracts this agreement by chance, $p_e$:
#
# $$\kappa = \frac{p_o - p_e}{1 - p_e}, \qquad p_e = \sum_k p_1(k)\,p_2(k)$$
#
# $p_1(k)$ is how often the first judge says $k$, as a share. A $\kappa$ of 1 is perfect agreement,
# 0 is what chance gives. (If both judges only ever say one and the same letter, $\kappa$ is
# undefined.)
#
# ### Cohen's kappa
#
# ●○○ · 10 minutes · agreement beyond chance
#
# `first` and `second` are strings of the same length, a letter for each judgment. Return $\kappa$.

# %%
def kappa(first, second):
    ...  # your code


check(kappa)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A `Counter` returns 0 for what it has not counted. Each term of $p_e$ takes one frequency from
# each judge.
#
# </details>

# %% [markdown]
# Our second judge is a formula: it prefers the translation with the higher chrF if the two are at
# least five points apart, and says `=` otherwise.

# %%
kappa = mine("kappa")


def judged_by_chrf(sentence, a, b):
    score_a, score_b = (sentence_chrf(text, test.references[sentence]).score for text in (a, b))
    return "=" if abs(score_a - score_b) < 5 else "A" if score_a > score_b else "B"

# %% tags=["nbval-ignore-output"]
shown = zip(judged_blindly.SENTENCES, blind)
machine = "".join(judged_by_chrf(i, a, b) for i, (_, a, b) in shown)
judges = {"the model's and chrF's": (MODEL, machine)}
if yours:
    judges |= {"yours and chrF's": (yours, machine), "yours and the model's": (yours, MODEL)}
for name, (one, other) in judges.items():
    equal = sum(a == b for a, b in zip(one, other)) / len(one)
    print(f"{name}: agree {equal:.0%}, kappa {kappa(one, other):.2f}")
assert 0.1 < kappa(MODEL, machine) < 0.8, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# Kappa is four tenths of the way from chance to perfection: chrF sees differences where the model
# saw none. People do not always agree with one another any better: [Graham et al.
# 2015](https://aclanthology.org/N15-1124/) call the agreement at WMT “disturbingly low”. That is
# why you should ask several people about many sentences.
#
# All of this is in the library. `transformer-lib rate make RUN_A RUN_B` draws the sentences, hides
# who said what, and writes one page that people open in a browser; some items appear twice, and
# some are damaged on purpose, to see whether a rater pays attention. `transformer-lib rate report`
# merges the files that the raters send back, and reports standardized scores, an interval, a test,
# and Krippendorff's alpha, a relative of kappa for any number of raters.
#
# ## Common mistakes
#
# **The draws are not paired.** Each system gets draws of its own, and what makes a sentence hard
# for both no longer cancels. What happens to the interval?

# %% tags=["nbval-ignore-output"]
random_draws = np.random.default_rng(2).integers(1000, size=(2, 1000, 1000))
draws_a, draws_b = torch.from_numpy(random_draws)
nothing = torch.tensor([[0] * 4 + [1] * 6])  # a system without a match: BLEU is 0
only_a = bootstrap_bleu(table["transformer"], nothing.expand(1000, -1), draws_a)
only_b = bootstrap_bleu(table["rnn"], nothing.expand(1000, -1), draws_b)
width = {}
for name, sample in {"paired": differences(1000), "not paired": (only_a - only_b).numpy()}.items():
    low, high = np.percentile(sample, [2.5, 97.5])
    width[name] = high - low
    print(f"{name:11} {low:+.1f} to {high:+.1f}, which is {high - low:.1f} points wide")
assert width["not paired"] > 1.3 * width["paired"], "not as on our machines: run all cells"

# %% [markdown]
# It is twice as wide, and it includes zero. The symptom is a clear difference that comes out as
# “not significant”: when the systems are drawn separately, their ups and downs no longer cancel.
#
# **The test set is looked at too often.** Try twenty variants, report the best. Here are twenty
# that are equally good by construction: for each sentence, each of them takes the Transformer's
# translation or the RNN's, by the toss of a coin. We choose the best of them on the first half of
# the sentences, and compare it with the mean of all twenty, on this half and on the other:

# %% tags=["nbval-ignore-output"]
coins = torch.from_numpy(np.random.default_rng(3).integers(2, size=(20, 1000, 1)))
variants = torch.where(coins == 1, table["transformer"], table["rnn"])
halves = {"first half": torch.arange(500)[None], "second half": torch.arange(500, 1000)[None]}
empty = nothing.expand(1000, -1)
bleu_of = {
    name: torch.stack([bootstrap_bleu(variant, empty, half)[0] for variant in variants])
    for name, half in halves.items()
}
chosen = bleu_of["first half"].argmax()
for name, each in bleu_of.items():
    print(f"{name:12} the chosen one {each[chosen]:.1f}, all twenty {each.mean():.1f}")
lead = {name: (each[chosen] - each.mean()).item() for name, each in bleu_of.items()}
assert lead["first half"] > lead["second half"], "not as on this page: run all cells"

# %% [markdown]
# On the half on which it was chosen, the winner leads; on the other half, any difference from the
# rest is chance. So choose on validation sentences, and test once.
#
# **The answer is in the training text.** The library removes every training pair whose English side
# is in the test set (chapter 1). Is a German reference then new to the model? Not if another English
# sentence has the same translation:

# %% tags=["nbval-ignore-output"]
trained_on = {german for _, german in training_pairs(DataConfig())}
met = np.array([any(german in trained_on for german in refs) for refs in test.references])
for which, places in {"met in training": met, "new": ~met}.items():
    references = list(compress(test.references, places))
    said = f"{which:16}{len(references):4} sentences"
    for name, texts in outputs.items():
        said += f", {name} {scores.bleu(list(compress(texts, places)), references).score:.1f}"
    print(said)
assert 150 < met.sum() < 300, "not as on this page: restart the kernel and run all cells"

# %% [markdown]
# Both systems are far better where one of the references was met. Not all of that need be
# remembering: a German sentence that translates two English ones of so small a text is probably an
# ordinary one, and a sentence with several references is met more often, and is easier to get right.
# But the score is a mixture of the two kinds, and a text with another mixture would give another
# score. The comparison suffers less, for the Transformer leads on both. (For a run of your own,
# `transformer-lib evaluate RUN --explain` prints the two scores. A published test set is on the web
# with its references, so of a language model that was trained on the web nobody can say which of
# them it has met. WMT makes a new test set every year.)
#
# You have met two more above: the mean of the sentences' BLEU, and scores with different signatures
# side by side. The other mistakes that `check` knows are in the [list of
# mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. BLEU is clipped n-gram precision, summed over the test set, times a penalty for being short.
# 2. A score without its signature says little; compare only scores with equal signatures, on texts
#    that were prepared alike. chrF counts characters, and is the second opinion that costs nothing.
# 3. A paired bootstrap says whether a difference would survive other sentences. It needs at least a
#    few hundred sentences.
# 4. BLEU sees strings: a right paraphrase scores low, a lost *nicht* costs no more than a
#    swapped pair of words.
# 5. Let people judge, blindly, in random order, and report their agreement.
#
# **In the paper:** section 6.1, table 2. **Read on:** Post 2018, “A Call for Clarity in Reporting
# BLEU Scores”; Mathur et al. 2020, “Tangled up in BLEU”; Läubli et al. 2018, “Has Machine
# Translation Achieved Human Parity?”.
#
# **Next:** [14 · What did it learn?](14_what_did_it_learn.ipynb)
