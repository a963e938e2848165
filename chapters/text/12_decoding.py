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
# # 12 · Decoding
#
# A trained model gives the probability of each next piece. It takes a *search* to turn these
# probabilities into a translation. In this chapter you write that search and everything around it,
# from text to text, until your own module translates without the course. By the end you can
#
# - write greedy and beam search, and read a beam search as a tree,
# - say what the length penalty is for, and measure whether it helps,
# - sample with a temperature, from the top k, from a nucleus, and say when to sample,
# - say what a cache keeps and why it changes nothing, measure what it saves, and compute its
#   memory,
# - say what a translator does with input that it was not made for.
#
# Reading takes about forty minutes, running the cells about one.
#
# **Predict first.** Greedy search takes the likeliest piece at each step and never looks back. Beam
# search keeps several translations in progress; with 16 of them it finds more probable
# translations. How many BLEU points is that worth? And a second question: a model that translates
# single sentences with 50 BLEU is given two sentences at once. How many points remain?

# %%
import math
import re
from itertools import product

import numpy as np
import pandas as pd
import sacrebleu.metrics
import torch

from transformer_lib.checks import check, mine, solution
from transformer_lib.course.results import mean_and_spread
from transformer_lib.data import DataConfig, training_pairs
from transformer_lib.data.corpora import load_corpus
from transformer_lib.decoding import search
from transformer_lib.decoding.search import greedy_search, pad_sequences
from transformer_lib.decoding.translation import translate as library_translate
from transformer_lib.metrics.bleu import bleu
from transformer_lib.model import MultiHeadAttention, attention, split_heads
from transformer_lib.course.figures.beam import beam_tree, trace
from transformer_lib.course.figures.cache import ALTERNATIVE, cache_growth
from transformer_lib.plots.measurements import lines
from transformer_lib.plots.notebook import show, show_chart
from transformer_lib.course.trained import load_trained
from transformer_lib.timing import fastest
from transformer_lib.vocabulary import BOS, EOS, PAD

# %% [markdown]
# ## What the model knows
#
# The model is the one that you built in chapter 10 (or the course's, if you have none yet), with
# the weights of the course's translator:

# %%
trained = load_trained("transformer")
tokenizer = trained.tokenizer
Transformer, convert, padding_mask = mine("Transformer"), mine("convert"), mine("padding_mask")
model = Transformer(len(tokenizer), 192, 512, 4, 2, dropout=0.15).eval()
model.load_state_dict(convert(trained.model.state_dict()))
PIECES = tokenizer.pieces(range(len(tokenizer)))

# %% [markdown]
# A search may ask the model only one thing: given the source and the pieces so far, what is $\ln p$
# of each next piece?

# %%
def asker(source):
    """A function from prefixes of one length to ln p of each next piece: (prefixes, vocabulary)."""
    src = torch.tensor([[*tokenizer.encode([source])[0], EOS]])
    with torch.no_grad():
        memory = model.encode(src)

    @torch.no_grad()
    def next_log_p(prefixes):
        many = memory.expand(len(prefixes), -1, -1)
        mask = padding_mask(src).expand(len(prefixes), -1, -1, -1)
        log_p = model.decode(torch.tensor(prefixes), many, mask)[:, -1].log_softmax(dim=-1)
        log_p[:, [PAD, BOS]] = -math.inf  # never generated
        return log_p

    return next_log_p


SENTENCE = "He has been waiting for hours."
best = asker(SENTENCE)([[BOS]])[0].topk(5)
for piece, p in zip(tokenizer.pieces(best.indices.tolist()), best.values.exp().tolist()):
    print(f"{piece:10}{p:.3f}")

# %% [markdown]
# ## Greedy search
#
# You wrote it in chapter 1: take the likeliest piece, append it, ask again, until `</s>` or a limit
# (a model that has not learned to stop might go on forever).

# %%
greedy_decode = mine("greedy_decode")
next_log_p = asker(SENTENCE)
greedy = greedy_decode(lambda tokens: next_log_p([tokens])[0], 50)
total = sum(
    next_log_p([[BOS, *greedy[:n]]])[0, token].item() for n, token in enumerate([*greedy, EOS])
)
print(f"{tokenizer.decode([greedy])[0]}   ln p = {total:.2f}")
(src,) = tokenizer.encode([SENTENCE])
assert greedy_search(trained.model, torch.tensor([[*src, EOS]])) == [greedy], (
    "not as on our machines: restart the kernel and run all cells"
)
print("the same as the library's")

# %% [markdown]
# Each choice is the best one at its step, but the whole sentence need not be the best sentence: a
# start that looks a little worse may continue much better, and greedy search never sees such a
# continuation.
#
# ## Beam search
#
# Keep the `beam_size` best prefixes (the **hypotheses**) instead of one. At each step, extend each
# of them by every piece of the vocabulary, and again keep the best `beam_size` of all these
# candidates. A candidate that ends in `</s>` is finished and leaves the beam. Here are two steps by
# hand, with a vocabulary of three, *a*, *b* and `</s>`:

# %%
P = {"": {"a": 0.5, "b": 0.4, "</s>": 0.1}}
P |= {"a": {"a": 0.3, "b": 0.3, "</s>": 0.4}, "b": {"a": 0.05, "b": 0.05, "</s>": 0.9}}
rows = [(f"{x} {y}", f"{P[''][x]} · {P[x][y]}", P[""][x] * P[x][y]) for x in "ab" for y in P[x]]
continued = pd.DataFrame(rows, columns=["two steps", "product", "p"]).set_index("two steps")
continued.sort_values("p", ascending=False)

# %% [markdown]
# Greedy search takes *a*, the better first step, and ends with `a </s>`, which has p = 0.2. A beam
# of two keeps *a* and *b* (`</s>`, with 0.1, comes third and is dropped), looks at all six
# continuations together, and finds `b </s>`, p = 0.36. (In code, products of probabilities become
# sums of their logarithms.)
#
# ### One step of it
#
# ●●○ · 15 minutes · the one step that beam search repeats
#
# `scores`, (hypotheses,), are ln p of the hypotheses so far; `log_p`, (hypotheses, vocab_size), is
# ln p of their next tokens. Return three tensors of length `beam_size`, the best first: the new
# scores, the numbers of the hypotheses that are continued, and the tokens that continue them.
#
# What passes its `check` is kept in `my_transformer.py` beside this notebook. After a first try,
# `solution("best_continuations")` in a cell of its own shows one way.

# %%
def best_continuations(scores, log_p, beam_size):
    ...  # your code


check(best_continuations)

# %% [markdown]
# <details><summary>Hint</summary>
#
# One `topk` over all candidates together. From an index into the flattened table, how do you get
# back to row and column?
#
# </details>

# %% [markdown]
# At the end there are several finished hypotheses, of different lengths. Each further piece
# multiplies $p$ by a number below 1, so $\ln p$ is biased against long sentences. The **length
# penalty** ([Wu et al. 2016](https://arxiv.org/abs/1609.08144), equation 14) compensates for this.
# Hypotheses are compared by
#
# $$\frac{\ln p(y)}{lp(y)}, \qquad lp(y) = \left(\frac{5 + |Y|}{6}\right)^{\alpha}$$
#
# where $|Y|$ is the number of pieces of the translation $y$. With α = 0 there is no penalty; with
# α = 1 long sentences are compared almost by their mean ln p per piece. The Transformer's authors use
# α = 0.6, with a beam of 4 (section 6.1).
#
# ### The length penalty
#
# ●○○ · 5 minutes · so that long translations can win
#
# The formula above; `length` is |Y|, counted with its `</s>`.

# %%
def length_penalty(length, alpha):
    ...  # your code


check(length_penalty)

# %% [markdown]
# <details><summary>Hint</summary>
#
# With α = 0 it is 1, whatever the length.
#
# </details>

# %%
best_continuations, length_penalty = mine("best_continuations"), mine("length_penalty")

# %% [markdown]
# ### The search
#
# ●●● · 60 minutes · a translation that greedy search does not see
#
# `next_log_p(prefixes)` takes a list of prefixes, all of the same length, each beginning with
# `BOS`, and returns ln p of each next token. Return the finished hypotheses as lists of tokens,
# without `BOS` and `EOS`, the best one first, at most `beam_size`. In each step, in detail:
#
# 1. Take the best `2 * beam_size` candidates (all, if there are fewer): twice as many as the beam
#    holds, because up to half of them may end.
# 2. A candidate that ends in `EOS` is finished if it is among the first `beam_size`, and dropped if
#    not. Of the others the first `beam_size` go on. A continuation with ln p = −∞ is not a
#    candidate.
# 3. Stop when `beam_size` hypotheses are finished, or when no candidate goes on. Unlike in chapter
#    1, `max_len` counts `EOS`, so in step `max_len` only `EOS` may follow.
#
# Finished hypotheses are compared by ln p divided by `length_penalty`, with `EOS` counted.

# %%
def beam_search(next_log_p, beam_size, alpha, max_len):
    ...  # your code


check(beam_search)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The beam is a list of prefixes with a list of their scores. `best_continuations` does step 1, if
# you never ask it for more candidates than there are. For step 2, write a loop over the candidates
# and their ranks, and fill two lists: the finished ones and the next beam.
#
# </details>

# %% [markdown]
# A beam so wide that nothing is ever dropped looks at all possible sentences, so it must find the
# best of them. Here it is compared with an **exhaustive search**, in twenty toy models with five
# tokens and with sentences of at most three tokens:

# %%
beam_search = mine("beam_search")
words = [token for token in range(5) if token != EOS]
everything = [list(tokens) for n in range(4) for tokens in product(words, repeat=n)]


def toy_table(seed):
    """ln p by step, last token and next token: a toy model that seldom stops at once."""
    table = 1.5 * torch.randn(4, 5, 5, generator=torch.Generator().manual_seed(seed))
    table[:2, :, EOS] -= 2.0
    return table.log_softmax(dim=-1)


def score(table, tokens, alpha=0.6):
    whole = [BOS, *tokens, EOS]
    total = sum(table[n, whole[n], whole[n + 1]].item() for n in range(len(whole) - 1))
    return total / length_penalty(len(tokens) + 1, alpha)


def searched(table, width):
    def toy(prefixes):
        return torch.stack([table[len(prefix) - 1, prefix[-1]] for prefix in prefixes])

    return beam_search(toy, width, 0.6, 4)[0]

# %%
TABLES = [toy_table(seed) for seed in range(20)]
best = [max(everything, key=lambda tokens, t=table: score(t, tokens)) for table in TABLES]
for width in (1, 2, 4, 200):
    hits = sum(searched(table, width) == right for table, right in zip(TABLES, best))
    print(f"beam {width:3} finds the best of {len(everything)} sentences in {hits} of 20 models")
assert hits == 20, "the widest beam does not always find the best sentence"

# %% [markdown]
# Now your search on a real sentence, compared with the library's, which searches for many sentences
# at once:

# %%
found = beam_search(next_log_p, 3, 0.6, len(src) + 51)
(theirs,) = search.beam_search(trained.model, torch.tensor([[*src, EOS]]), beam_size=3)
assert found == [hypothesis.tokens for hypothesis in theirs], "the library finds something else"
for hypothesis in theirs:
    print(f"{hypothesis.log_p:6.2f}  {tokenizer.decode([hypothesis.tokens])[0]}")

# %% [markdown]
# Here is the search as a tree; the number under each piece is ln p of the prefix up to it. Move the
# slider to 1 and let it unfold:

# %%
show_chart(beam_tree(trace(next_log_p, 3, lambda token: PIECES[token])))

# %% [markdown]
# The greedy translation began with *Er hat auf*. The beam finds a sentence that is more than five
# times as probable, $e^{-4.27 + 5.98}$, and look at what it says: *he has worked after an hour*.
# Greedy search had *gewartet*, “waited”, the word that mattered. The beginning of the greedy
# translation, *Er hat auf St*, was dropped in column 4, and *gewar*, the beginning of that word, in
# column 7. More probable is not the same as better; the model is wrong here, and a better search
# only brings that to light.
#
# ## Which one is best?
#
# Does the penalty help, and does a wider beam? For 300 test sentences and five sizes of the beam we
# keep the finished hypotheses that the library's search returns (at most as many as the beam is
# wide), and choose among them with three values of α:

# %%
test = load_corpus(DataConfig()).test
sources, references = test.sources[:300], test.references[:300]
batch = pad_sequences([[*tokens, EOS] for tokens in tokenizer.encode(sources)])
BEAMS, ALPHAS = (1, 2, 4, 8, 16), (0.0, 0.6, 1.0)
hypotheses = {beam: search.beam_search(trained.model, batch, beam) for beam in BEAMS}


def judge(beam, alpha):
    """BLEU, mean length in pieces, mean ln p."""
    chosen = [
        max(finished, key=lambda h: h.log_p / length_penalty(len(h.tokens) + 1, alpha))
        for finished in hypotheses[beam]
    ]
    said = tokenizer.decode([hypothesis.tokens for hypothesis in chosen])
    length = sum(len(hypothesis.tokens) for hypothesis in chosen) / len(chosen)
    log_p = sum(hypothesis.log_p for hypothesis in chosen) / len(chosen)
    return bleu(said, references).score, length, log_p

# %% tags=["nbval-ignore-output"]
results = {(beam, alpha): judge(beam, alpha) for beam in BEAMS for alpha in ALPHAS}
rows = [
    [f"{results[beam, alpha][0]:.1f}" for alpha in ALPHAS]
    + [f"{results[beam, alpha][1]:.2f}" for alpha in ALPHAS]
    + [f"{results[beam, 0.0][2]:.2f}"]
    for beam in BEAMS
]
columns = [f"{what}, α={alpha:g}" for what in ("BLEU", "pieces") for alpha in ALPHAS]
length = sum(map(len, tokenizer.encode([german[0] for german in references]))) / len(references)
print(f"the first references have {length:.2f} pieces on average")
assert results[16, 0.0][2] > results[1, 0.0][2], (
    "not as on our machines: restart the kernel and run all cells"
)
assert max(score for score, _, _ in results.values()) < results[1, 0.0][0] + 3, (
    "not as on our machines: restart the kernel and run all cells"
)
pd.DataFrame(rows, columns=[*columns, "ln p, α=0"], index=pd.Index(BEAMS, name="beam"))

# %% [markdown]
# Look at the last column first. A larger beam does what it promises: it finds more probable
# translations. But these are hardly better. From a beam of 1 to a beam of 4 the gain is less than a
# point; from 4 to 16 there is none. (Differences of this size, on 300 sentences, are within chance:
# chapter 13.) The search is not what limits this model, and sixteen hypotheses cost much work for
# little gain: that was the first half of the opening question.
#
# And the penalty: without it, output becomes shorter as the beam grows from 1 to 4, and no shorter
# after that; a larger α makes it longer. In sentences as short as these, both effects are of one or
# two tenths of a piece, all outputs stay shorter than the references, and BLEU does not notice:
# whatever the beam, the three values of α lie within half a point of each other. On ordinary text,
# whose sentences are longer, very large beams do harm ([Koehn and Knowles
# 2017](https://arxiv.org/abs/1706.03872)); the most probable translation of all may even be the
# empty one ([Stahlberg and Byrne 2019](https://arxiv.org/abs/1908.10090)).
#
# ## Sampling
#
# Language models often **sample** instead of searching: the next piece is drawn according to its
# probability. Three settings are in use:
#
# - A **temperature** T sharpens or flattens the distribution ($p^{1/T}$, renormalized).
# - **Top k** draws among the k likeliest pieces only.
# - A **nucleus** ([Holtzman et al. 2020](https://arxiv.org/abs/1904.09751), also called top p)
#   draws among the likeliest pieces, as many as are needed to reach a given share of the
#   probability, such as 0.9: few where the model is sure, many where it is not.
#
# ### A nucleus
#
# ●●○ · 20 minutes · how chat programs choose their words
#
# `probabilities` is (batch, vocab_size). In each row keep the smallest set of likeliest tokens
# whose probabilities add up to p or more, set all others to 0, and normalize what is left. `p` is
# above 0.

# %%
def nucleus(probabilities, p):
    ...  # your code


check(nucleus)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Sort, then `cumsum`. A token is kept if those *before* it do not reach p. `scatter` brings sorted
# values back to their places.
#
# </details>

# %% [markdown]
# Where many continuations are right, as in stories, sampling gives variety (that is Holtzman et
# al.'s subject). And in translation? Here are samples for the first 150 sentences, with three seeds
# each, and two searches for comparison:

# %%
nucleus = mine("nucleus")


def top_k(probabilities, k):
    lowest = probabilities.topk(k, dim=-1).values[:, -1:]
    return probabilities.masked_fill(probabilities < lowest, 0.0)


@torch.no_grad()
def sample(change, src, seed, limit=30):
    """A translation of each sentence, its pieces drawn by the changed probabilities."""
    torch.manual_seed(seed)
    state = trained.model.init_state(trained.model.encode(src))
    tokens, said = src.new_full((len(src),), BOS), []
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    while len(said) < limit and not ended.all():
        p = change(trained.model.decode_step(tokens, state).softmax(dim=-1))
        tokens = p.multinomial(1)[:, 0]
        ended |= tokens == EOS
        said.append(tokens)
    rows = torch.stack(said, dim=1).tolist()
    return tokenizer.decode([row[: row.index(EOS)] if EOS in row else row for row in rows])

# %% tags=["nbval-ignore-output"]
KNOBS = {f"T = {T}": lambda p, T=T: p ** (1 / T) for T in (0.1, 0.5, 1.0, 1.5)}
KNOBS |= {f"top k = {k}": lambda p, k=k: top_k(p, k) for k in (2, 10)}
KNOBS |= {f"nucleus p = {share}": lambda p, s=share: nucleus(p, s) for share in (0.5, 0.9)}
drawn = {
    name: [sample(knob, batch[:150], seed) for seed in range(3)] for name, knob in KNOBS.items()
}
runs = pd.DataFrame(
    [
        {"case": name, "seed": seed, "BLEU": bleu(said, references[:150]).score}
        for name, several in drawn.items()
        for seed, said in enumerate(several)
    ]
)
score_of = runs.groupby("case")["BLEU"].mean()
assert score_of["T = 0.1"] > score_of["T = 1.0"] + 5, (
    "not as on our machines: restart the kernel and run all cells"
)
by_greedy = tokenizer.decode(greedy_search(trained.model, batch[:150]))
searched_for = library_translate(trained.model, tokenizer, sources[:150])
for name, said in {"greedy search": by_greedy, "beam search": searched_for}.items():
    print(f"{name:14}{bleu(said, references[:150]).score:.1f} BLEU")
mean_and_spread(runs)

# %% [markdown]
# And what one sentence becomes:

# %% tags=["nbval-ignore-output"]
print(f"{sources[1]} | {references[1][0]}")
for name, several in drawn.items():
    print(f"{name:15}", " | ".join(said[1] for said in several))
assert all(len(several) == 3 for several in drawn.values()), "run the cell above first"

# %% [markdown]
# At T = 0.1, sampling is nearly greedy search. At T = 1 each piece is drawn with the probability
# that the model gives it, and a wrong piece, once drawn, stays: a small probability of something
# strange at each step becomes a large probability per sentence. That costs about a third of the
# score. Top k and the nucleus cut off the tail of unlikely pieces, and so avoid some of this loss.
# Sampling that is sharp enough, with T = 0.5 or a nucleus of p = 0.5, does as well as the searches
# here: the points by which it is ahead are within chance on 150 sentences.
#
# ### The sample that agrees with the others
#
# Samples can serve a search of another kind. Draw many, and take the one that is most like all the
# others. It is what most of the probability agrees on, which need not be the single most probable
# sentence. That is **minimum Bayes risk** decoding ([Kumar and Byrne
# 2004](https://aclanthology.org/N04-1022/); with samples, [Eikema and Aziz
# 2020](https://arxiv.org/abs/2005.10283)), and with a learned metric of similarity it is among the
# best methods. Here we measure similarity with chrF, which counts common character n-grams (chapter
# 13), and draw 16 samples for each of the first hundred sentences, three times:

# %% tags=["nbval-ignore-output"]
CHRF = sacrebleu.metrics.CHRF()


def most_like_the_others(candidates):
    """The candidate that is most like all of them together."""

    def likeness(one):
        return sum(CHRF.sentence_score(one, [other]).score for other in candidates)

    return max(dict.fromkeys(candidates), key=likeness)


samples = [sample(KNOBS["T = 1.0"], batch[:100], seed) for seed in range(48)]
groups = [samples[first : first + 16] for first in (0, 16, 32)]
agreed = [[most_like_the_others(several) for several in zip(*group)] for group in groups]
kinds = {"one sample at T = 1": samples, "the one of 16 that agrees most": agreed}
for name, outputs in kinds.items():
    each = [bleu(said, references[:100]).score for said in outputs]
    print(f"{name:32}{np.mean(each):.1f} ± {np.std(each, ddof=1):.1f} BLEU")
by_beam = bleu(library_translate(trained.model, tokenizer, sources[:100]), references[:100]).score
print(f"{'beam search':32}{by_beam:.1f}")
of_samples = [bleu(said, references[:100]).score for said in samples[:3]]
assert min(each) > max(of_samples), "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# Single samples have 35 BLEU; the chosen ones have 46, two points below beam search (on 100
# sentences that is within chance), without ever asking which sentence is the most probable.
#
# ## From text to text
#
# Your model needs numbers, but people have text. The vocabulary lists first the special pieces,
# then the merged pieces, in the order in which they were merged when the tokenizer was trained
# (chapter 3), and then the single characters. So this list is all that you need to cut a text as
# SentencePiece does (apart from normalizing unusual characters, which the library does first).
#
# ### Cut a text
#
# ●●○ · 25 minutes · the tokenizer's other half
#
# `pieces` is the list of all pieces; the number of a piece is its index in that list. A space
# becomes `▁`, and there is one before the first word; leading, trailing and repeated spaces do not
# count. Begin with single characters. Again and again, look at all pairs of neighbors that together
# form a piece, and join the pair whose piece comes first in the list (the leftmost, if it occurs
# more than once), until there is no such pair. Whatever is not a piece becomes `UNK`, number 1, and
# adjacent unknown characters become a single `UNK`. Return the list of numbers, without `BOS` and
# `EOS`.

# %%
def encode_text(text, pieces):
    ...  # your code


check(encode_text)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `"▁".join(["", *text.split()])` is one way to begin. A dictionary from piece to number tells
# whether two neighbors can be joined, and which pair is first.
#
# </details>

# %% [markdown]
# ### Translate
#
# ●●○ · 25 minutes · a translator that is yours from end to end
#
# Turn an English text into a German one. The steps are: `encode_text`, with `EOS` at the end; the
# memory; a beam search with a beam of 4, α = 0.6 and a `max_len` of the number of source tokens
# (with `EOS`) plus 50; and the pieces as text, with `<unk>` unchanged. `model` has the methods of
# your `Transformer`; dropout must be off. `PAD` and `BOS` are never generated: their ln p becomes
# −∞, after the softmax. `asker`, above, shows how a model is asked about many prefixes at once.

# %%
encode_text = mine("encode_text")


def translate(text, model, pieces):
    ...  # your code


check(translate)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Join the pieces and turn each `▁` into a space; a space at the beginning is removed.
# `model.eval()` turns dropout off; `torch.no_grad()` saves time and memory.
#
# </details>

# %% [markdown]
# Here are twenty sentences of the test set, translated by your translator and by the library:

# %%
translate = mine("translate")
yours = [translate(source, model, PIECES) for source in sources[:20]]
theirs = library_translate(trained.model, tokenizer, sources[:20])
print(f"{sum(a == b for a, b in zip(yours, theirs))} of 20 are the same")
print(f"BLEU {bleu(yours, references[:20]).score:.1f}")
for source, said in list(zip(sources, yours))[:4]:
    print(f"{source:36}{said}")
assert yours == theirs, "not the library's translations: has every part passed its check?"

# %% [markdown]
# If everything in `my_transformer.py` is yours, it translates without the course. Put the weights
# and the pieces beside it, then start Python there, with nothing installed but PyTorch:
#
# ```python
# # in this notebook
# import json
# from pathlib import Path
# torch.save(model.state_dict(), "my_weights.pt")
# Path("my_pieces.json").write_text(json.dumps(PIECES))
# # ... and anywhere else:
# import json, torch
# from pathlib import Path
# from my_transformer import Transformer, translate
# pieces = json.loads(Path("my_pieces.json").read_text())
# model = Transformer(len(pieces), 192, 512, 4, 2, 0.15)
# model.load_state_dict(torch.load("my_weights.pt"))
# print(translate("Where is my car?", model, pieces))
# ```
#
# ## The cache
#
# When the decoder writes piece 20, it computes the 19 before it once more, in all layers, although
# nothing about them has changed: because of the causal mask, no position depends on what comes
# after it. So keep what later positions need from the earlier ones. What is that? Only their **keys
# and values**. In the drawing, what is computed in a step is orange, what is read from the cache
# blue:

# %%
show(cache_growth(), ALTERNATIVE)

# %% [markdown]
# One layer, by hand:

# %%
torch.manual_seed(0)
d_model, heads = 64, 4
layer = MultiHeadAttention(d_model, heads)
states = torch.randn(1, 6, d_model)


def project(x):
    """Queries, keys, values: (batch, heads, length, d_k) each."""
    return (split_heads(part, heads) for part in layer.qkv_proj(x).chunk(3, dim=-1))


outputs, keys, values = [], None, None
with torch.no_grad():
    for position in range(states.size(1)):
        query, key, value = project(states[:, position : position + 1])  # this position only
        keys = key if keys is None else torch.cat([keys, key], dim=2)
        values = value if values is None else torch.cat([values, value], dim=2)
        heads_out, _ = attention(query, keys, values)
        outputs.append(layer.out_proj(heads_out.transpose(1, 2).flatten(2)))
    torch.testing.assert_close(torch.cat(outputs, dim=1), layer(states, is_causal=True))
print("one position at a time, with a cache of", tuple(keys.shape), "keys: the same")

# %% [markdown]
# No mask is needed: what has not been said is not in the cache. In cross-attention keys and values
# come from the memory and are computed once. The library's decoder has such a cache. First, are the
# logits the same as when everything is computed again?

# %%
library = trained.model.eval()
memory = library.encode(torch.tensor([[*src, EOS]]))


@torch.no_grad()
def with_cache(tokens):
    state = library.init_state(memory)
    return torch.stack([library.decode_step(token[None], state) for token in tokens], dim=1)


@torch.no_grad()
def without_cache(tokens):
    prefixes = (tokens[None, : end + 1] for end in range(len(tokens)))
    return torch.stack([library.logits(library.decode(p, memory)[:, -1]) for p in prefixes], dim=1)


tokens = torch.randint(4, 4000, (64,))
torch.testing.assert_close(with_cache(tokens), without_cache(tokens), atol=1e-4, rtol=1e-4)
print("the same logits")

# %% [markdown]
# And how much does it save?

# %% tags=["nbval-ignore-output"]
LENGTHS = (8, 16, 32, 64, 128)
tokens = torch.randint(4, 4000, (128,))
milliseconds = {
    name: (LENGTHS, [1e3 * fastest(lambda: decode(tokens[:n]), 0.3) for n in LENGTHS])
    for name, decode in {"without a cache": without_cache, "with a cache": with_cache}.items()
}
show(
    lines(milliseconds, ("pieces said", "time (ms)"), logarithmic="xy"),
    "Time over the length of the output: with a cache it grows with the length, without one "
    "faster than that.",
)
for name, (_, times) in milliseconds.items():
    print(f"{name:16}", " ".join(f"{t:7.1f}" for t in times))
assert times[-1] < milliseconds["without a cache"][1][-1], "a cache should pay: run this cell again"

# %% [markdown]
# At this size, with a cache, a piece costs about the same wherever it is in the output; strictly
# speaking, its row of attention grows with the cache. Without a cache, all earlier rows are
# computed anew for each piece. In a large model, where arithmetic counts for more and the overhead
# of function calls for less, the difference is larger.
#
# The price is memory: keys and values, of every layer, of every token, for every hypothesis. For
# one hypothesis (and without the keys and values of cross-attention, which do not grow), that is $2
# \cdot N \cdot n \cdot h \cdot d_k$ numbers for $N$ layers, $n$ tokens and $h$ heads of keys and
# values. Here are the sizes for our model, with 32-bit numbers, and for Llama 3 70B, with 16-bit
# numbers. Llama has 80 layers and 64 query heads of 8,192/64 = 128 channels each, but only 8 heads
# of keys and values ([Grattafiori et al. 2024](https://arxiv.org/abs/2407.21783), table 3):

# %%
def cache_bytes(layers, tokens, heads, d_k, bytes_per_number):
    return 2 * layers * tokens * heads * d_k * bytes_per_number


for name, sizes in {
    "ours, 20 tokens": (2, 20, 4, 48, 4),
    "Llama 3 70B, 8,192 tokens": (80, 8192, 8, 128, 2),
    "the same with 64 heads of keys and values": (80, 8192, 64, 128, 2),
}.items():
    print(f"{name:43}{cache_bytes(*sizes) / 2**20:12,.2f} MiB")

# %% [markdown]
# So the cache of one long text takes gigabytes, and all of it must be read for every new token.
# That is why most large models share keys and values among several query heads (chapter 6).
#
# ## What it was not made for
#
# **Two sentences.** Our model was trained on single sentences, of six pieces on average. What does
# it do with two at once? That was the second half of the opening question. If it fails, three
# causes suggest themselves: the *length*, with positions at which it has seen little; the *period*
# in the middle, which it has hardly ever seen; or the fact that there are *two statements*. Hence
# the table has four rows, each with three random pairings, scored against their references, joined
# in the same way:
#
# - pairs of test sentences;
# - pairs joined by a comma, without the period in the middle;
# - pairs of short sentences, without the length (since there are few short sentences, the three
#   draws pair nearly the same ones);
# - pairs of short sentences joined by a comma, without either.
#
# First, how often did the model see two sentences in training?

# %%
TRAINED_ON = [source for source, _ in training_pairs(DataConfig())]
double = sum(bool(re.search(r"(?<!\bMt)[.?!] [A-Z]", source)) for source in TRAINED_ON)
print(f"{double} of the {len(TRAINED_ON):,} sources that it was trained on are two sentences")

# %% [markdown]
# The pairs, and how they are joined:

# %%
CASES = ("two sentences", "joined by a comma", "two short ones", "short ones, with a comma")
pieces_of = np.array([len(tokens) for tokens in tokenizer.encode(test.sources)])


def pairs(case, seed, number=100):
    """Numbers of test sentences, two by two."""
    order = np.random.default_rng(seed).permutation(len(test.sources))
    if "short" in case:
        order = order[pieces_of[order] <= 4]
    return order[: min(2 * number, len(order) // 2 * 2)].reshape(-1, 2)


def joined(texts, case):
    """Two by two."""
    if "comma" in case:
        return [f"{a.rstrip('.?!')}, {b}" for a, b in zip(texts[::2], texts[1::2])]
    return [f"{a} {b}" for a, b in zip(texts[::2], texts[1::2])]

# %% [markdown]
# Translated at once, and one by one:

# %%
def two_at_once(case, seed):
    chosen = pairs(case, seed)
    sources = [test.sources[number] for number in chosen.flat]
    right = joined([test.references[number][0] for number in chosen.flat], case)
    references = [[text] for text in right]
    at_once = library_translate(library, tokenizer, joined(sources, case))
    one_by_one = joined(library_translate(library, tokenizer, sources), case)
    return {
        "pieces": pieces_of[chosen].sum(axis=1).mean(),
        "BLEU at once": bleu(at_once, references).score,
        "one by one": bleu(one_by_one, references).score,
        "ends per output": np.mean([sum(map(said.count, ".?!")) for said in at_once]),
    }

# %% tags=["nbval-ignore-output"]
runs = pd.DataFrame(
    [
        {"case": case, "seed": seed, **two_at_once(case, seed)}
        for case in CASES
        for seed in range(3)
    ]
)
assert (runs["one by one"] - runs["BLEU at once"]).min() > 10, (
    "not as on our machines: restart the kernel and run all cells"
)
mean_and_spread(runs)

# %% [markdown]
# With two sentences at once, four fifths of the score are gone: that is the answer to the second
# half of the question. Neither the period nor the length is needed for the model to fail: with a
# comma it fails about as badly, and so it does with only eight pieces in all; with a comma *and*
# only eight pieces, nearly three quarters of the score are still gone. In the first and the third
# row, the last column, which counts the periods, question marks and exclamation marks per output,
# shows what happens: *one* sentence comes out, always. Two examples:

# %%
for pair in ("I was alone. Where am I?", "Try it. They are here."):
    print(f"{pair:28}→ {library_translate(library, tokenizer, [pair])[0]}")

# %% [markdown]
# So a translator first splits its text into sentences. (The library splits sentences of more than
# `data.max_len` pieces, with a warning. That is better than nothing, but not good.)
#
# **Strange input.**

# %%
import warnings

for source in ("", "日本", "WHERE IS MY CAR?", "12345", "Wo ist mein Auto?"):
    (tokens,) = tokenizer.encode([source])
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        said = library_translate(library, tokenizer, [source])[0]
    print(f"{source:20}{' '.join(tokenizer.pieces(tokens)):32}→ {said}")
    for note in noted:
        print(f"warning: {note.message}")

# %% [markdown]
# Nothing in, nothing out: the library makes sure of that. All other inputs get something that looks
# like German and has nothing to do with the input. Nobody taught the model to say “I do not know”:
# it always says the likeliest German. Adjacent unknown characters become one `<unk>`, however many
# there are, and if the input has nothing else, the library warns. Words in capital letters fall
# apart into pieces that the model has hardly ever seen. And German is not English. Looking right is
# no sign of being right.
#
# ## Common mistakes
#
# **Dropout left on.** With `model.train()` after a validation, or a forgotten `model.eval()`, no
# error is raised, but the output changes:

# %% tags=["nbval-ignore-output"]
library.train()
torch.manual_seed(0)
tokens = torch.tensor([[*src, EOS]])
said = [tokenizer.decode(greedy_search(library, tokens))[0] for _ in range(4)]
library.eval()
print(*said, sep="\n")
assert len(set(said)) > 1, "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# Four different translations of one sentence, by a search in which nothing is random. (The
# library's `translate` turns dropout off by itself, and so should yours.) If translations change
# from run to run, this is the first place to look.
#
# Other mistakes in decoding are in the [list of mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. The model gives probabilities, the search makes a sentence. Greedy search takes the best piece
#    at each step; beam search keeps several prefixes.
# 2. A larger beam finds more probable sentences, not necessarily better ones: measure.
# 3. ln p favors short sentences; the length penalty compensates for that.
# 4. Sampling with the model's own probabilities costs a lot in translation; sharpened, it does as
#    well as a search. From many samples, you can take the one that agrees most with the others.
# 5. Keys and values of what has been said do not change: cache them, compute one position per step,
#    and count the memory.
# 6. A translator answers everything. It does not notice what it was not trained for.
#
# Now you can do **assignment 4**, a translator from end to end.
#
# **In the paper:** section 6.1. **Read on:** Wu et al. 2016 on length penalties; Stahlberg and
# Byrne 2019, “On NMT Search Errors and Model Errors”; Freitag et al. 2022 on minimum Bayes risk
# with learned metrics.
#
# **Next:** [13 · Is it better?](13_is_it_better.ipynb)
