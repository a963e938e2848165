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
#     - plots
#     keeps_outputs: true
# ---

# %% [markdown]
# # Assignment 6 · A language model
#
# For courses on language models: what a decoder-only model needs when it is evaluated and when it
# is in service. You evaluate a model fairly on a long text, serve many fine-tuned models at once,
# read an endless text with a cache that does not grow, and use a small model to speed up a large
# one. Then you ask which way of sampling is better, and review a report. You need chapters 7, 12,
# 13 and 17. Allow about four hours.
#
# | task | what | points |
# |---|---|---|
# | 1 | rows that overlap | 5 |
# | 2 | an adapter for each request | 4 |
# | 3 | a cache that does not grow | 7 |
# | 4 | a draft from a small model | 6 |
# | 5 | temperature or nucleus? | 8 |
# | 6 | review a report | 5 |
#
# **How it works.** Write your code where it says `# your code`. Then run the cell below it:
# `check(…)` tries your function on new numbers each time and tells you what is wrong, if anything
# is. Where there is no `check`, the visible test looks at a few things only, so add tests of your
# own. The grader runs the same tests and more. A `check` gives points for the share of its
# properties that hold, and none if shape, type or the ordinary values are wrong or a hidden test
# fails; a test without `check` gives all of its points or none.
#
# Tasks 1 to 4 are run again with the cells of this notebook and with no more of `transformer_lib`
# than what the cell at the top imports from: `mine` and `my_transformer.py` are not there. In task
# 3, use `torch`'s basic operations, not its ready-made attention; the grader notes any call of it.
# Tasks 5 and 6 are graded by hand. They are not run again: what you see when you hand in is what is
# graded. There you may use what you have built in the chapters: copy `my_transformer.py` from their
# folder to this notebook's, and import from it.
#
# Hand in this one notebook, and do not rename it; `transformer-lib verify-submission
# language_model.ipynb` says whether it can be graded.

# %%
import math

import torch

from transformer_lib.checks import check, run_test
from transformer_lib.personal import personal_number
from transformer_lib.plots.measurements import lines
from transformer_lib.plots.notebook import show
from transformer_lib.vocabulary import EOS, PAD

# %% [markdown]
# Some tasks use numbers of your own, which are computed from your user name: the one under which
# you hand in. Put it between the quotes. (If you work by yourself, any name will do.)

# %% personal=true
COHORT = "self-study"
STUDENT = "..."  # your user name
NUMBER = personal_number(STUDENT, COHORT)
NUMBER

# %% [markdown]
# ## 1 · Rows that overlap (5 points)
#
# To evaluate a model on a long text, the text has to be cut into rows. In the blocks of chapter 17
# the first tokens of each row are predicted from almost no context, and the model seems worse than
# it is. Rows that overlap give them context: each row begins `stride` tokens after the one before
# it, but is `length` tokens long.
#
# Write `overlapping_blocks(tokens, length, stride)`. The text `tokens`, (tokens,), holds at least
# two tokens, none of which is `PAD`, and 1 ≤ `stride` ≤ `length`. It returns `inputs` and `labels`,
# both (rows, length) and of type `torch.long`, as `tokens` is:
#
# - Row r reads the tokens from position r · `stride` on, and the label of a token is the token that
#   follows it in the text. The last token of the text is only a label.
# - Each label counts once, in the first row that has it. In later rows `PAD` takes its place. The
#   inputs stay, because they are the context of the labels that are new in the row.
# - There are just enough rows to count every label. Where the last row is not full, `PAD` fills its
#   end, in the inputs and in the labels.

# %% answer="overlapping_blocks"
def overlapping_blocks(tokens, length, stride):
    ### BEGIN SOLUTION
    num_labels = len(tokens) - 1
    rows = 1 + max(0, math.ceil((num_labels - length) / stride))
    inputs, labels = tokens.new_full((2, rows, length), PAD)
    for row in range(rows):
        read = tokens[row * stride :][: length + 1]
        known = length - stride if row > 0 else 0
        inputs[row, : len(read) - 1] = read[:-1]
        labels[row, known : len(read) - 1] = read[1 + known :]
    return inputs, labels
    ### END SOLUTION

# %% test="test_overlapping_blocks" points=5
verdict = check(overlapping_blocks)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

text = 4 + torch.randperm(86)[:25]
text[5] = text[2]  # a word again
rows = torch.stack([text[:-1].view(4, 6), text[1:].view(4, 6)])
expect(overlapping_blocks(text, 6, 6), tuple(rows), "without an overlap, not the text in rows")
5 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · An adapter for each request (4 points)
#
# A company has fine-tuned one model for a hundred customers with LoRA (chapter 17). It does not
# keep a hundred models: each matrix W is kept in memory once, beside the narrow matrices of all
# customers, and one batch holds requests from several of them.
#
# Write `adapt_each(x, weight, down, up, adapter, scale)`. It gets
#
# - `x`, (batch, length, d_in), one request in each row;
# - `weight`, (d_out, d_in), which is W;
# - `down`, (adapters, rank, d_in), and `up`, (adapters, d_out, rank): the matrices A and B of each
#   adapter;
# - `adapter`, (batch,): the index of the adapter that a row uses, or −1 for none;
# - `scale`, a number.
#
# It returns (batch, length, d_out): Wx + scale · BAx with the adapter of each row, and Wx alone
# where the index is −1. You can do without a loop over the rows, but a loop is allowed.

# %% answer="adapt_each"
def adapt_each(x, weight, down, up, adapter, scale):
    ### BEGIN SOLUTION
    change = scale * x @ down[adapter].mT @ up[adapter].mT
    return x @ weight.mT + change * (adapter >= 0)[:, None, None]
    ### END SOLUTION

# %% test="test_adapt_each" points=4
verdict = check(adapt_each)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

linear = torch.nn.functional.linear
down, up, weight = torch.randn(3, 2, 6), torch.randn(3, 5, 2), torch.randn(5, 6)
merged = torch.cat([weight + 0.5 * up @ down, weight[None]])  # the last one: no change
x, adapter = torch.randn(4, 7, 6), torch.tensor([2, -1, 0, 2])
expected = torch.stack([linear(x[n], merged[a]) for n, a in enumerate(adapter)])
got = adapt_each(x, weight, down, up, adapter, 0.5)
expect(got, expected, "not what each row's merged matrix gives", atol=1e-4)
4 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · A cache that does not grow (7 points)
#
# With the cache of chapter 17, memory grows as the text does. In each layer of some models (the
# first Mistral 7B, 2023, is one) a token attends only to itself and to the `window` − 1 tokens
# before it. Older keys and values can then be thrown away, and memory no longer limits the length
# of a text.
#
# Write `rolling_attention(query, key, value, old_key, old_value, window)`. The first three are
# (batch, heads, new, d_k) and belong to the new tokens, of which there may be several. `old_key`
# and `old_value`, (batch, heads, old, d_k), were kept from earlier tokens; `old` is at most
# `window` − 1, and is smaller near the beginning of the text, where it can be 0. Return a tuple of
# three tensors, in this order:
#
# - the output of attention for the new tokens, (batch, heads, new, d_k): scores are divided by
#   √d_k, each new token sees the last `window` tokens up to itself, old or new, and none that come
#   after it;
# - the keys to keep, those of the last `window` − 1 tokens, or of all tokens so far, if there are
#   fewer;
# - the values to keep, of the same tokens.
#
# With a window of 1 nothing is kept, and both have a length of 0.

# %% answer="rolling_attention" ready_made="scaled_dot_product_attention multi_head_attention_forward"
def rolling_attention(query, key, value, old_key, old_value, window):
    ### BEGIN SOLUTION
    key, value = torch.cat([old_key, key], dim=2), torch.cat([old_value, value], dim=2)
    position = torch.arange(key.size(2))
    own = position[old_key.size(2) :, None]
    mask = (position <= own) & (position > own - window)
    scores = query @ key.mT / math.sqrt(query.size(-1))
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    first = max(0, key.size(2) - (window - 1))
    return weights @ value, key[:, :, first:], value[:, :, first:]
    ### END SOLUTION

# %% test="test_rolling_attention" points=7
verdict = check(rolling_attention)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

query, key, value = torch.randn(3, 1, 2, 6, 4)
place = torch.arange(6)
band = (place <= place[:, None]) & (place > place[:, None] - 4)
whole = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=band)
says = "in pieces, not what PyTorch's attention gives under the mask of this window"
kept = key[:, :, :0], value[:, :, :0]
for start, end in ((0, 2), (2, 3), (3, 6)):
    found = rolling_attention(*(x[:, :, start:end] for x in (query, key, value)), *kept, 4)
    kept = key[:, :, max(0, end - 3) : end], value[:, :, max(0, end - 3) : end]
    expect(found, (whole[:, :, start:end], *kept), says, atol=1e-4)
7 * verdict.share
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · A draft from a small model (6 points)
#
# A large model writes one token per call, and with a small batch a call with five tokens takes
# hardly any longer. So a small model drafts the next n tokens, and the large one reads all of them
# in one call. **Speculative sampling** (Leviathan et al. 2023, Chen et al. 2023) decides how much
# of the draft to take, so that the text still has exactly the large model's distribution.
#
# Write `accept_draft(drafted, p_draft, p_model, uniform)`. It gets
#
# - `drafted`, (n,): the tokens, each of which was drawn from the small model's distribution;
# - `p_draft`, (n, vocab_size): these distributions;
# - `p_model`, (n + 1, vocab_size): the large model's distributions at the same n positions, and at
#   the one after them;
# - `uniform`, (n,): numbers drawn uniformly from [0, 1).
#
# Go through the draft in order. Let t be the token, p the large model's distribution and q the
# small model's at its position. Accept t if its number in `uniform` is less than p(t)/q(t).
# Otherwise reject it and all tokens after it. Return how many tokens are accepted, an int, and the
# distribution, (vocab_size,), that the next token is to be drawn from:
#
# - after a rejection, max(0, p − q) at the position of the rejected token, divided by its sum;
# - if all are accepted, the large model's distribution after the draft.
#
# There is no `check` for this one: write tests of your own. (With a draft of one token, what is the
# probability that the next token is w? It must be p(w). With two, what is returned if the first is
# accepted and the second rejected?)

# %% answer="accept_draft"
def accept_draft(drafted, p_draft, p_model, uniform):
    ### BEGIN SOLUTION
    for place, token in enumerate(drafted.tolist()):
        p, q = p_model[place], p_draft[place]
        if uniform[place] >= p[token] / q[token]:
            left = (p - q).clamp(min=0.0)
            return place, left / left.sum()
    return len(drafted), p_model[-1]
    ### END SOLUTION

# %% test="test_accept_draft" points=6
def test_accept_draft():
    p_draft = torch.full((2, 4), 0.25)
    p_model = torch.tensor([[0.6, 0.4, 0.0, 0.0], [0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]])
    drafted, uniform = torch.tensor([0, 3]), torch.tensor([0.9, 0.1])
    found = accept_draft(drafted, p_draft, p_model, uniform)
    assert found is not None, "not attempted yet, or a return is missing"
    accepted, following = found
    assert type(accepted) is int, "how many are accepted: an int, not a tensor"
    assert accepted == 2, "0.9 < 2.4 and 0.1 < 0.4: both are accepted"
    says = "after a draft that is accepted in full: the large model's last distribution"
    assert torch.equal(following, p_model[2]), says
    accepted, following = accept_draft(torch.tensor([2, 0]), p_draft, p_model, uniform)
    assert accepted == 0, "the large model never says token 2: rejected, like all that follows"
    says = "max(0, p − q) is 0.35, 0.15, 0, 0: divide by the sum"
    assert torch.allclose(following, torch.tensor([0.7, 0.3, 0.0, 0.0])), says


verdict = run_test(test_accept_draft)
verdict
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

assert verdict.passed
p_draft, p_model = torch.randn(3, 6).softmax(dim=-1), torch.randn(4, 6).softmax(dim=-1)
drafted = (p_model[:3] - p_draft).argmin(dim=1)  # less likely for the large model
ratio = (p_model[:3].gather(1, drafted[:, None]) / p_draft.gather(1, drafted[:, None]))[:, 0]
below, above = 0.9 * ratio, ratio + 0.1 * (1 - ratio)
got = accept_draft(drafted, p_draft, p_model, below)
expect(got, (3, p_model[3]), "just below p/q, all are accepted")
for place in range(3):
    uniform = torch.where(torch.arange(3) == place, above, below)
    left = (p_model[place] - p_draft[place]).relu()
    got = accept_draft(drafted, p_draft, p_model, uniform)
    says = "rejected just above p/q, and what follows with it"
    expect(got, (place, left / left.sum()), says)
got = accept_draft(drafted, p_draft, p_model, above)
expect(got[0], 0, "the first rejection counts")
never, even = torch.tensor([[0.0, 1.0], [0.5, 0.5]]), torch.tensor([[0.5, 0.5]])
got = accept_draft(torch.tensor([0]), even, never, torch.tensor([0.0]))
expect(got, (0, never[0]), "a token of probability 0 is never accepted")
### END HIDDEN TESTS

# %% [markdown] question="q_sampling"
# ## 5 · Temperature or nucleus? (8 points, graded by hand)
#
# At a low temperature a model writes better sentences than at a high one, and so it does with a
# small nucleus (chapter 12). Both have a price: the sentences are more alike. So two ways of
# sampling cannot be compared at one setting each. Compare them at **equal diversity**, as Caccia et
# al. 2020 compare models.
#
# **Measure.** Let the course's language model write 200 sentences for each setting. Each begins
# after `EOS`, ends with its first `EOS`, and has at most 30 new tokens, the final `EOS` included.
# The settings are
#
# - at least five temperatures from 0.3 to 1.2, among them 0.3, 0.5, 1 and 1.2;
# - at temperature 1, at least five nuclei from p = 0.2 to p = 1, among them 0.2, 0.9 and 1. (T = 1
#   and p = 1 are the same setting: there the two lines meet.)
#
# Take the triples of neighboring tokens within each of the 200 sentences of a setting, with the
# `EOS` before it and, unless it was cut, the one after it (`EOS` a b `EOS` has two triples), and
# compute
#
# - the *diversity*: the number of different triples, divided by the number of all triples;
# - the *quality*: the share of all triples, repeated ones included, that also occur in the training
#   sentences, each of which has `EOS` before and after it here, too. (`tokenizer.encode` adds
#   none.)
#
# Repeat this with three seeds, the first of which is your `NUMBER`. For each setting, print the
# mean and the standard deviation of both measures over the seeds. Print three of the sentences
# written at your lowest temperature, at temperature 1, and with your smallest nucleus.
#
# **Plot** quality against diversity, one line for each way of sampling (`show(lines(series,
# labels), "…")` helps, where `series` is `{name: (xs, ys)}`, and `"…"` is a sentence that describes
# the picture, written when you have seen it). `lines` begins its vertical axis at zero; where that
# leaves the two lines hardly apart, set the limits of `figure.axes[0]` before you show the figure.
#
# **Answer** in the text cell below, with your seed and your numbers:
#
# - Is one way better than the other at equal diversity? If so, at which diversities, and is the
#   difference larger than the spread over the seeds? Say what you take for the spread. (Between two
#   settings, read the lines by linear interpolation. They are curved: take settings that lie close
#   together where you compare.)
# - Somebody compares T = 0.5 with p = 0.9 and finds the temperature far ahead in quality. What is
#   wrong with that?
# - In which cases is this measure of quality high although the text is poor, or not the model's
#   own? Name two, one of them with an example from your printed sentences.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 1 | cell 1: at least five settings of each with those asked for, 200 sentences, three seeds with {{ NUMBER }} as the first |
# | 1 | cell 1: ½ a correct nucleus (the token that crosses p belongs to it); ½ means, deviations and nine sentences are printed |
# | 1 | cell 1: ½ the diversity, of all sentences of a setting together; ½ the quality, with `EOS` around the training sentences, too |
# | 1 | cell 1: quality against diversity, two lines, labeled |
# | 1 | seed and numbers in the text are those that cell 1 prints (½ with one wrong number), and are as in nine runs of ours, diversity and quality: T = 0.3: 0.26 to 0.32 and 0.95 to 0.98; T = 0.5: 0.59 to 0.62 and 0.88 to 0.91; T = 1: 0.92 to 0.94 and 0.57 to 0.61; T = 1.2: 0.95 to 0.97 and 0.43 to 0.49; p = 0.2: 0.28 to 0.31 and 0.90 to 0.93; p = 0.9: 0.90 to 0.92 and 0.66 to 0.69 |
# | 1 | ½ which line is higher, and where, as in the student's figure; ½ the difference is compared with the spread over the seeds (any measure of it, if named). In our nine runs the nucleus is ahead by 0.03 ± 0.02 at diversities of 0.88 to 0.91 and behind by 0.04 ± 0.01 at 0.3; in between they are equal within the spread |
# | 1 | ½ they have different diversities (about 0.60 and 0.91); ½ so the comparison does not show which line is higher: read both at one diversity |
# | 1 | ½ for each case, the second only if one of them has an example: sentences copied from the training text; the same few sentences again and again; triples that fit locally and make no sense together; very short sentences |
# ### END MARK SCHEME

# %% manual="sampling_figure" points=4 tags=["nbval-ignore-output"]
from transformer_lib.course.trained import load_language_model, load_trained
from transformer_lib.data import DataConfig
from transformer_lib.data.preparation import single_sentences

model, tokenizer = load_language_model(), load_trained().tokenizer
sentences, _ = single_sentences(DataConfig())  # the training sentences
### BEGIN SOLUTION
def triples(rows):
    return [tuple(row[i : i + 3]) for row in rows for i in range(len(row) - 2)]


known = set(triples([EOS, *row, EOS] for row in tokenizer.encode(sentences)))


def at_temperature(temperature):
    return lambda logits: (logits / temperature).softmax(dim=-1)


def from_nucleus(p):
    def probabilities(logits):
        ordered, tokens = logits.softmax(dim=-1).sort(dim=-1, descending=True)
        ordered = ordered * (ordered.cumsum(dim=-1) - ordered < p)
        return torch.zeros_like(logits).scatter(1, tokens, ordered)  # multinomial divides

    return probabilities


@torch.no_grad()
def write(probabilities, seed, number=200, limit=30):
    torch.manual_seed(seed)
    tokens = torch.full((number, 1), EOS)
    for _ in range(limit):
        drawn = torch.multinomial(probabilities(model(tokens)[:, -1]), 1)
        tokens = torch.cat([tokens, drawn], dim=1)
    rows = tokens.tolist()
    return [row[: row.index(EOS, 1) + 1] if EOS in row[1:] else row for row in rows]


def diversity_and_quality(rows):
    found = triples(rows)
    return len(set(found)) / len(found), sum(one in known for one in found) / len(found)


# So that the notebook runs in a test, 20 sentences each; with 200 it takes a minute or two.
SENTENCES = 20
ways = {
    "temperature": {t: at_temperature(t) for t in (0.3, 0.5, 0.7, 0.85, 1.0, 1.2)},
    "nucleus": {p: from_nucleus(p) for p in (0.2, 0.4, 0.6, 0.8, 0.9, 1.0)},
}
series = {}
for way, settings in ways.items():
    series[way] = [], []
    for setting, probabilities in settings.items():
        of_seeds = [write(probabilities, seed, SENTENCES) for seed in (NUMBER, 1, 2)]
        measures = torch.tensor([diversity_and_quality(rows) for rows in of_seeds])
        d, q = measures.mean(dim=0).tolist()
        d_spread, q_spread = measures.std(dim=0).tolist()
        print(
            f"{way:12} {setting:4}: diversity {d:.2f} ± {d_spread:.2f}, "
            f"quality {q:.2f} ± {q_spread:.2f}"
        )
        if (way, setting) in (("temperature", 0.3), ("temperature", 1.0), ("nucleus", 0.2)):
            print(*(f"    {text}" for text in tokenizer.decode(of_seeds[0][:3])), sep="\n")
        series[way][0].append(d)
        series[way][1].append(q)
    assert series[way][1][0] > series[way][1][-1], "the least random should have the best quality"
show(
    lines(series, ("diversity", "quality")),
    "Quality against diversity: both lines fall as diversity grows.",
)
### END SOLUTION

# %% [markdown] manual="sampling_words" points=4
# My seed is 275989. The numbers are those of 200 sentences (the cell above writes 20 of each). In
# the middle it makes no difference: T = 0.5 has a diversity of 0.61 and a quality of 0.89, and so
# has p = 0.4. Where sentences differ more, the nucleus is ahead: p = 0.8 has a quality of 0.73 at a
# diversity of 0.88, and the line of the temperatures has 0.70 there. The difference is 0.02 to 0.04
# in the three seeds, and the quality of one setting varies by 0.01 to 0.02. Where sentences are
# most alike, the temperature is ahead: T = 0.3 has 0.96 at 0.30, and p = 0.2 has 0.92 at 0.29. A
# reason may be that a nucleus of 0.2 still holds 2.6 tokens on average, which keep their
# proportions, while a temperature of 0.3 gives nearly everything to the likeliest.
#
# T = 0.5 (diversity 0.61) and p = 0.9 (0.91) are at different places: of course the one that
# repeats itself more looks better. At 0.91 the temperature has a quality of 0.63, and the nucleus
# one of 0.67.
#
# The quality is high for sentences that were memorized, and for a model that says the same thing
# again and again: among my 200 sentences at T = 0.3, one occurs 22 times. It is also high where
# each triple fits and the whole does not: six of the seven triples of *Tom is a type.* occur in the
# training text, and it says nothing.

# %% [markdown] question="q_report"
# ## 6 · Review a report (5 points, graded by hand)
#
# A colleague has trained two language models of equal size on posts from a forum: A with a
# vocabulary of 4,000 pieces and B with one of 32,000. Here are the colleague's perplexities (per
# piece), computed from your number:

# %%
PIECES = {  # perplexity, and how many characters a piece of the test text has on average
    "A": (18.0 + NUMBER % 50 / 10, 2.9),
    "B": (60.0 + NUMBER % 30, 4.7),
}
for name, (perplexity, characters) in PIECES.items():
    print(f"{name}: perplexity {perplexity:.1f}, {characters} characters per piece")

# %% [markdown] question="q_report_task"
# And these are the conclusions of the report:
#
# 1. “On 2,000 posts that were held out, A has by far the lower perplexity. So A is the better
#    model.”
# 2. “The held-out posts were drawn at random from all posts, before training. So the models have
#    not seen them.”
# 3. “The test posts were cut into rows of 64 pieces, without overlap, for both models. So the
#    comparison is fair.”
# 4. “Fine-tuned with all parameters, A answered 310 of 500 questions correctly, and 306 with LoRA,
#    both after one run at the same learning rate. So LoRA makes the model worse.”
# 5. “Of the triples of words that A writes at T = 0.7, 94% occur in the training text, and of those
#    that B writes at T = 1, 85%. So A writes better.”
#
# For each of the five, write two or three sentences: why does the conclusion not follow, and what
# would you measure or change instead? Where the numbers allow, compute: for 1, the bits per
# character of each model; for 4, the standard error of the difference, as if each model had answered
# 500 questions of its own.
#
# ### BEGIN MARK SCHEME
# | points | for |
# |---|---|
# | 1 | 1: ½ log₂(perplexity) / characters per piece: {{ f"{math.log2(18.0 + NUMBER % 50 / 10) / 2.9:.2f}" }} bits per character for A and {{ f"{math.log2(60.0 + NUMBER % 30) / 4.7:.2f}" }} for B (± 0.02); ½ per character B is ahead, so perplexities of different pieces cannot be compared (2 and 3 say why even that is not certain) |
# | 1 | 2: ½ posts quote and repeat each other (also right: the settings were chosen with these posts); ½ split by thread or by time, or remove what is (nearly) the same |
# | 1 | 3: ½ one of: 64 pieces are 186 characters for A and 301 for B; A begins without context more often, per character; ½ rows that overlap, with about as many characters of context |
# | 1 | 4: ½ a standard error of about 0.03, or 15 questions (less if paired, also right with a formula), beside a difference of 0.008, or 4; ½ one of: several seeds, a rate tuned for each (LoRA usually needs a higher one), a paired test |
# | 1 | 5: ½ another temperature is another diversity: compare at equal diversity; ½ a known triple is no proof of good writing: ask people, or use another measure |
# ### END MARK SCHEME

# %% [markdown] manual="report_words" points=5
# 1. Perplexities per piece cannot be compared if the pieces differ. My A has 18.0 + 3.9 = 21.9, so
# log₂(21.9) = 4.45 bits for 2.9 characters, 1.54 per character; my B has 79, so 6.30 bits for 4.7
# characters, 1.34. Per character B is ahead. I would report bits per character.
#
# 2. Posts in a forum quote each other and repeat themselves, so the training text may contain a
# held-out post, whole or in part. I would hold out whole threads, or all posts after a date, and
# count n-grams that both sides have in common.
#
# 3. 64 pieces are 186 characters for A and 301 for B. So A has less context, and begins anew more
# often, and the first pieces of each row have no context at all. I would let rows overlap, as in
# task 1, and give both about as many characters of context.
#
# 4. The shares are 0.620 and 0.612. The standard error of each is √(0.62 · 0.38 / 500) = 0.022,
# that of the difference 0.031, nearly four times the difference (less if both are compared question
# by question). And there was one run each, at a rate that suits one of them: LoRA usually needs a
# higher one. Several seeds, the rate tuned for each, and a paired test would tell.
#
# 5. At a lower temperature every model repeats itself and stays near its training text. I would
# compare at equal diversity, as in task 5, and let people judge, since known triples are not yet
# good sentences.

# %% [markdown]
# Done? Save, and run `transformer-lib verify-submission language_model.ipynb` before you hand in
# the file.
