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
# A trained model gives the probability of each next piece. A translation is what a *search* makes
# of it. By the end you can
#
# - write greedy and beam search, and read a beam search as a tree,
# - say what the length penalty is for, and measure whether it helps,
# - build the cache that makes decoding fast, and prove that it changes nothing,
# - say what a translator does with input that it was not made for.
#
# Reading takes about thirty minutes, computing less than one.
#
# **Predict first.** Greedy search takes the likeliest piece at each step and never looks back. Beam
# search with 16 hypotheses finds far more probable translations. How many BLEU points is that
# worth? And: a model that translates single sentences at 50 BLEU gets two of them at once. How many
# points remain?

# %%
import math

import pandas as pd
import torch

from transformer_lib.checks import check, solution
from transformer_lib.data.corpora import DataConfig, load_corpus
from transformer_lib.decoding import search
from transformer_lib.decoding.search import beam_search, greedy_search, pad_sequences
from transformer_lib.decoding.translation import translate
from transformer_lib.metrics.bleu import bleu
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.model import MultiHeadAttention, attention, split_heads
from transformer_lib.course.figures.beam import Node, beam_tree
from transformer_lib.plots.measurements import bars, lines
from transformer_lib.plots.notebook import show, show_chart
from transformer_lib.course.trained import load_trained
from transformer_lib.timing import fastest
from transformer_lib.vocabulary import BOS, EOS, PAD

# %% [markdown]
# ## What the model knows
#
# A search may ask the model only one thing: given the source and the pieces so far, what is $\ln p$
# of each next piece?

# %%
trained = load_trained("transformer")
model, tokenizer = trained.model.eval(), trained.tokenizer


def read(source):
    """The encoder's memory of one sentence."""
    (tokens,) = tokenizer.encode([source])
    return model.encode(torch.tensor([[*tokens, EOS]]))


@torch.no_grad()
def next_log_p(prefixes, memory):
    """ln p of each next piece, for prefixes of one length: (prefixes, vocabulary)."""
    repeated = memory.select(torch.zeros(len(prefixes), dtype=torch.long))
    logits = model.logits(model.decode(torch.tensor(prefixes), repeated)[:, -1])
    logits[:, [PAD, BOS]] = -math.inf  # nobody says these
    return logits.log_softmax(dim=-1)


log_p = next_log_p([[BOS]], read("He has been waiting for hours."))[0]
best = log_p.topk(5)
for piece, p in zip(tokenizer.pieces(best.indices.tolist()), best.values.exp().tolist()):
    print(f"{piece:10}{p:.3f}")

# %% [markdown]
# ## Greedy search
#
# Take the best, append it, ask again, until `</s>` or a limit (an untrained model would never
# stop):

# %%
def greedy(source, limit=50):
    memory, tokens, total = read(source), [BOS], 0.0
    while tokens[-1] != EOS and len(tokens) <= limit:
        log_p = next_log_p([tokens], memory)[0]
        tokens.append(int(log_p.argmax()))
        total += log_p.max().item()
    return tokens[1:], total


SENTENCE = "He has been waiting for hours."
said, total = greedy(SENTENCE)
print(f"{tokenizer.decode([said[:-1]])[0]}   ln p = {total:.2f}")
(src,) = tokenizer.encode([SENTENCE])
assert greedy_search(model, torch.tensor([[*src, EOS]])) == [said[:-1]], (
    "not as on our machines: restart the kernel and run all cells"
)
print("the same as the library's")

# %% [markdown]
# Each choice is the best one at its place. The sentence need not be the best one: a start that
# looks a little worse may go on much better, and greedy search never sees it.
#
# ## Beam search
#
# Keep the `beam_size` best prefixes instead of one. In each step, continue each of them by every
# piece of the vocabulary, and of all these candidates keep the best again. One that ends in `</s>`
# is finished and leaves the beam:

# %%
def beam_by_hand(source, beam_size, limit=50):
    """Finished hypotheses as (tokens, ln p), and every candidate as a node of a tree."""
    memory, finished = read(source), []
    beam = [([BOS], 0.0, 1)]  # tokens, ln p, rank among the candidates of its step
    nodes = [Node(0, 1, None, "<s>", 0.0, "goes on")]
    for step in range(1, limit):
        log_p = next_log_p([tokens for tokens, _, _ in beam], memory)
        candidates = torch.tensor([total for _, total, _ in beam])[:, None] + log_p
        best = candidates.flatten().topk(2 * beam_size)  # at most half of them can be </s>
        parents, beam = beam, []
        for rank, index in enumerate(best.indices.tolist(), start=1):
            (tokens, _, parent), token = parents[index // log_p.size(1)], index % log_p.size(1)
            total, fate = candidates.flatten()[index].item(), "dropped"
            if token == EOS and rank <= beam_size:
                finished.append((tokens[1:], total))
                fate = "finished"
            elif token != EOS and len(beam) < beam_size:
                beam.append(([*tokens, token], total, rank))
                fate = "goes on"
            nodes.append(Node(step, rank, parent, tokenizer.pieces([token])[0], total, fate))
        if len(finished) >= beam_size:
            return finished, nodes

# %% [markdown]
# Is it the library's, which does this for many sentences at once?

# %%
finished, nodes = beam_by_hand(SENTENCE, beam_size=3)
(theirs,) = beam_search(model, torch.tensor([[*src, EOS]]), beam_size=3)
assert {tuple(tokens) for tokens, _ in finished} == {tuple(h.tokens) for h in theirs}, (
    "not as on our machines: restart the kernel and run all cells"
)
for hypothesis in theirs:
    print(f"{hypothesis.log_p:6.2f}  {tokenizer.decode([hypothesis.tokens])[0]}")

# %% [markdown]
# The search as a tree. Move the slider to 1 and let it unfold; point at a piece to read its
# $\ln p$. Blue goes on, green is finished, grey was considered and dropped:

# %%
show_chart(beam_tree(nodes))

# %% [markdown]
# The greedy translation began with *Er hat auf*. The beam finds a sentence that is more than five
# times as probable, $e^{-4.27 + 5.98}$, and look what it is: *he has worked after an hour*. Greedy
# search had *gewartet*, “waited”, the word that mattered; its beginning, *gewar*, is in column 7,
# in grey. More probable is not the same as better; the model is wrong here, and a better search
# only brings that to light.
#
# ## Which one is best?
#
# At the end there are several finished hypotheses, of different lengths. Each further piece
# multiplies by a probability below 1, so a longer sentence nearly always has the smaller $\ln p$.
# The **length penalty** ([Wu et al. 2016](https://arxiv.org/abs/1609.08144), equation 14) evens
# that out: compare
#
# $$\frac{\ln p(y)}{lp(y)}, \qquad lp(y) = \left(\frac{5 + |Y|}{6}\right)^{\alpha}$$
#
# α = 0 is no penalty, α = 1 nearly the mean per piece; the paper takes 0.6, with beam 4. Does it
# help? For 300 test sentences and five sizes of the beam we keep all finished hypotheses, and
# choose afterwards with three α:

# %%
test = load_corpus(DataConfig()).test
sources, references = test.sources[:300], test.references[:300]
src = pad_sequences([[*tokens, EOS] for tokens in tokenizer.encode(sources)])
BEAMS, ALPHAS = (1, 2, 4, 8, 16), (0.0, 0.6, 1.0)
found = {beam: beam_search(model, src, beam) for beam in BEAMS}


def choose(hypotheses, alpha):
    return max(hypotheses, key=lambda h: h.log_p / search.length_penalty(len(h.tokens) + 1, alpha))


def judge(chosen):
    """BLEU, mean length in pieces, mean ln p."""
    said = tokenizer.decode([hypothesis.tokens for hypothesis in chosen])
    length = sum(len(hypothesis.tokens) for hypothesis in chosen) / len(chosen)
    log_p = sum(hypothesis.log_p for hypothesis in chosen) / len(chosen)
    return bleu(said, references).score, length, log_p

# %% tags=["nbval-ignore-output"]
results = {
    (beam, alpha): judge([choose(hypotheses, alpha) for hypotheses in found[beam]])
    for beam in BEAMS
    for alpha in ALPHAS
}
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
# translations. They are hardly better ones. From 1 to 4 it is less than a point, from 4 to 16
# nothing. The search is not what limits this model, and sixteen hypotheses buy little but work:
# that was the first half of the opening question.
#
# And the penalty: without it, output becomes shorter as the beam grows, for a large beam finds the
# short sentences; a larger α makes it longer. In short sentences both move by a tenth of a piece.
# On the paper's longer ones it is worth more, and there very large beams without a penalty do harm,
# since the most probable translation may be an empty one ([Stahlberg and Byrne
# 2019](https://arxiv.org/abs/1908.10090)).
#
# ### By chance
#
# Language models often do not search but draw: the next piece by its probability, sharpened by a
# **temperature** ($p^{1/T}$, normalized anew). For stories that is a gain. For translations?

# %%
@torch.no_grad()
def sample(temperature, limit=30):
    torch.manual_seed(0)
    state = model.init_state(model.encode(src))
    tokens, said = src.new_full((len(src),), BOS), []
    for _ in range(limit):
        p = (model.decode_step(tokens, state) / temperature).softmax(dim=-1)
        tokens = p.multinomial(1)[:, 0]
        said.append(tokens)
    rows = [row[: row.index(EOS)] if EOS in row else row for row in torch.stack(said, 1).tolist()]
    return tokenizer.decode(rows)

# %% tags=["nbval-ignore-output"]
drawn = {temperature: sample(temperature) for temperature in (0.1, 0.5, 1.0, 1.5)}
scores = {temperature: bleu(said, references).score for temperature, said in drawn.items()}
for temperature, score in scores.items():
    print(f"T = {temperature}: {score:4.1f} BLEU   {drawn[temperature][1]}")
assert scores[0.1] > scores[1.0] + 5, "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# At T = 0.1 it is greedy search. At T = 1 each piece is drawn as the model believes, and every
# wrong one that is drawn stays. A translation has few right answers; look for them, do not draw.
#
# ## The cache
#
# When the decoder writes piece 20, it reads the 19 before it once more, all layers, although
# nothing about them has changed: the causal mask sees to it that no position knows what comes after
# it. So keep what later positions need of the earlier ones. What is that? Only their **keys and
# values**. One layer, by hand:

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
# come from the memory and are computed once. How much does it save? The library's decoder, one
# sentence, with its cache and by reading everything anew:

# %%
@torch.no_grad()
def with_cache(tokens, memory):
    state = model.init_state(memory)
    return torch.stack([model.decode_step(token[None], state) for token in tokens], dim=1)


@torch.no_grad()
def without_cache(tokens, memory):
    prefixes = (tokens[None, : end + 1] for end in range(len(tokens)))
    return torch.stack([model.logits(model.decode(p, memory)[:, -1]) for p in prefixes], dim=1)


memory, tokens = read(SENTENCE), torch.randint(4, 4000, (64,))
torch.testing.assert_close(
    with_cache(tokens, memory), without_cache(tokens, memory), atol=1e-4, rtol=1e-4
)
print("the same logits")

# %% tags=["nbval-ignore-output"]
LENGTHS = (8, 16, 32, 64, 128)
tokens = torch.randint(4, 4000, (128,))
milliseconds = {
    name: (LENGTHS, [1e3 * fastest(lambda: decode(tokens[:n], memory), 0.3) for n in LENGTHS])
    for name, decode in {"without a cache": without_cache, "with a cache": with_cache}.items()
}
show(
    lines(milliseconds, ("pieces said", "time (ms)"), logarithmic="xy"),
    "Time over the length of the output: with a cache it grows with the length, without one "
    "faster than that.",
)
for name, (_, times) in milliseconds.items():
    print(f"{name:16}", " ".join(f"{t:7.1f}" for t in times))
assert min(times) > 0, "nothing was measured: run this cell again"

# %% [markdown]
# With a cache every piece costs the same, without one each costs more than the one before it: at
# 128 pieces nearly three times as much in all. In a large model, in which computing counts for more
# and the calling of functions for less, the difference is larger. The price is memory: keys and
# values of every layer for every hypothesis.
#
# ## What it was not made for
#
# **Long input.** Our model has read sentences of six words. What does it do with two of them at
# once, with three? The test sentences, joined, against their references, joined:

# %% tags=["nbval-ignore-output"]
def joined(texts, together):
    return [" ".join(texts[i : i + together]) for i in range(0, 300, together)]


first_references = [german[0] for german in references]
at_once = {}
for together in (1, 2, 3):
    said = translate(model, tokenizer, joined(sources, together))
    one_by_one = joined(translate(model, tokenizer, sources), together)
    right = [[text] for text in joined(first_references, together)]
    at_once[together] = bleu(said, right).score
    print(
        f"{together} at once: {at_once[together]:4.1f} BLEU, one by one and joined: "
        f"{bleu(one_by_one, right).score:4.1f}"
    )
assert at_once[2] < at_once[1] - 20, "not as on our machines: restart the kernel and run all cells"
print(joined(sources, 3)[0], "→", translate(model, tokenizer, joined(sources, 3)[:1])[0])

# %% [markdown]
# Two sentences at once, and four fifths of the score are gone, the second half of the question. The
# sinusoids have values at every position; the model has never seen a full stop in the middle. It
# says *one* sentence, made of bits of all of them. So a translator first splits its text into
# sentences. (Sentences of more than `data.max_len` pieces the library splits into parts, with a
# warning. That is better than nothing, and not good.)
#
# **Strange input.**

# %%
for source in ("", "日本", "WHERE IS MY CAR?", "12345", "Wo ist mein Auto?"):
    (tokens,) = tokenizer.encode([source])
    said = translate(model, tokenizer, [source])[0]
    print(f"{source:20}{' '.join(tokenizer.pieces(tokens)):32}→ {said}")

# %% [markdown]
# Nothing in, nothing out: the library sees to that, since the model would make up a sentence for
# `</s>` alone. All the others get a fluent answer that has nothing to do with what was asked.
# Nobody taught the model to say “I do not know”: it always says the likeliest German. An unknown
# letter is one `<unk>`; capital letters fall apart into pieces that it has hardly ever seen; and
# German is not English. Fluency is no sign of being right.
#
# ## Common mistakes
#
# **Dropout left on.** `model.train()` after a validation, or a forgotten `model.eval()`: nothing
# fails.

# %% tags=["nbval-ignore-output"]
model.train()
torch.manual_seed(0)
tokens = torch.tensor([[*tokenizer.encode([SENTENCE])[0], EOS]])
said = [tokenizer.decode(greedy_search(model, tokens))[0] for _ in range(4)]
model.eval()
print(*said, sep="\n")
assert len(set(said)) > 1, "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# Four translations of one sentence by a search in which nothing is random. (The library's
# `translate` turns dropout off by itself.) If translations change from run to run, this is the
# first place to look.
#
# What else `check` knows:

# %%
for exercise in ("best_continuations", "length_penalty", "best_hypothesis", "append_to_cache"):
    for mistake in wrong_answers(exercise):
        print(f"{exercise:20}{mistake.id:5}{mistake.title}")

# %% [markdown]
# ## Your turn
#
# What passes its `check` is kept in `my_transformer.py` beside this notebook. After a first try,
# `solution("best_continuations")` in a cell of its own shows one way.
#
# ### One step of beam search
#
# ●●○ · 15 minutes · the step of which beam search consists
#
# `scores` are ln p of the hypotheses so far, (hypotheses,), `log_p` is ln p of their next tokens,
# (hypotheses, vocab_size). Return three tensors of `beam_size`, the best first: the new scores, the
# number of the hypothesis that is continued, the token that continues it.

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
#
# ### The length penalty
#
# ●○○ · 5 minutes · long translations are not to lose
#
# The formula above; `length` is |Y|.

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
#
# ### The best one
#
# ●○○ · 10 minutes · which of the beams is the answer
#
# `log_p` and `lengths` are lists, one entry for each finished hypothesis. Return the number of the
# best one, with the penalty above.

# %%
def best_hypothesis(log_p, lengths, alpha):
    ...  # your code


check(best_hypothesis)

# %% [markdown]
# <details><summary>Hint</summary>
#
# ln p is negative. Does dividing by a larger number make it better or worse?
#
# </details>
#
# ### The cache
#
# ●○○ · 10 minutes · nothing is computed twice
#
# `cached` holds the keys of all positions so far, (batch, heads, length, d_k), `new` those of one
# or more new ones. Return all of them.

# %%
def append_to_cache(cached, new):
    ...  # your code


check(append_to_cache)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which axis counts the positions?
#
# </details>
#
# ## Summary
#
# 1. The model gives probabilities, the search makes a sentence. Greedy takes the best piece, beam
#    search keeps several prefixes.
# 2. A larger beam finds more probable sentences, not necessarily better ones: measure.
# 3. ln p favours short sentences; the length penalty evens that out.
# 4. Keys and values of what has been said do not change: cache them, compute one position a step.
# 5. A translator answers everything, fluently. What it was not trained for it does not know.
#
# **In the paper:** section 6.1. **Read on:** Wu et al. 2016 on length penalties; Stahlberg and
# Byrne 2019, “On NMT Search Errors and Model Errors”; Holtzman et al. 2020 on drawing by chance.
#
# **Next:** [13 · Is it better?](13_is_it_better.ipynb)
