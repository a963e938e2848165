"""Mistakes in the exercises of assignment 6: overlapping rows, adapters, and a rolling cache."""

import math

import torch

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.vocabulary import PAD

# ---- Rows that overlap ----


def _rows(tokens, length, stride, rows=None, known=None, fill=PAD, every=False):
    num_labels = len(tokens) - 1
    rows = 1 + max(0, math.ceil((num_labels - length) / stride)) if rows is None else rows
    known = length - stride if known is None else known
    inputs = tokens.new_full((rows, length), PAD)
    labels = tokens.new_full((rows, length), fill)
    for row in range(rows):
        read = tokens[row * stride :][: length + 1]
        first = known if row > 0 and not every else 0
        inputs[row, : len(read) - 1] = read[:-1]
        labels[row, first : len(read) - 1] = read[1 + first :]
    return inputs, labels


@misconception(
    "M923",
    "overlapping_blocks",
    title="labels of the overlap are counted again",
    source="a common shortcut: perplexity of overlapping rows, averaged",
    effect="Labels of the overlap count again in later rows, where less comes before them.",
    hint="In your rows some labels occur more than once. Which row should count them?",
)
def counted_again(tokens, length, stride):
    return _rows(tokens, length, stride, every=True)


@misconception(
    "M961",
    "overlapping_blocks",
    title="the first row's labels are left out, too",
    source="an answer in a trial of the checks: a column of PAD in front of all rows",
    effect="The beginning of the text is never counted.",
    hint="Your first row leaves labels out. Which earlier row has counted them?",
)
def first_row_too(tokens, length, stride):
    inputs, labels = _rows(tokens, length, stride)
    labels[0, : length - stride] = PAD
    return inputs, labels


@misconception(
    "M924",
    "overlapping_blocks",
    title="the first `stride` labels of a row are left out, not those of the overlap",
    source="a plausible slip: stride for length − stride",
    effect="Labels are lost or counted twice, unless the stride is half the length.",
    hint="How many labels does a row have in common with the row before it?",
)
def stride_left_out(tokens, length, stride):
    return _rows(tokens, length, stride, known=stride)


@misconception(
    "M925",
    "overlapping_blocks",
    title="what does not fill a row is lost",
    source="the blocks of chapter 17",
    effect="The end of the text is never judged.",
    hint="The last labels of your text are missing. What becomes of a row that is not full?",
)
def end_lost(tokens, length, stride):
    return _rows(tokens, length, stride, rows=1 + max(0, len(tokens) - 1 - length) // stride)


@misconception(
    "M926",
    "overlapping_blocks",
    title="a row for each stride, even without a new label",
    source="common: range(0, len(tokens) − 1, stride)",
    effect="The last rows have no label that counts: the model computes them for nothing.",
    hint="Does your last row have a label that no earlier row has had?",
)
def rows_for_nothing(tokens, length, stride):
    return _rows(tokens, length, stride, rows=math.ceil((len(tokens) - 1) / stride))


@misconception(
    "M927",
    "overlapping_blocks",
    title="inputs of the overlap are padding, too",
    source="a plausible slip: what does not count is not shown either",
    effect="The overlap was to be the context: without it each row begins with nothing again.",
    hint="Your labels are right. What should a row read before its first label that counts?",
)
def context_hidden(tokens, length, stride):
    inputs, labels = _rows(tokens, length, stride)
    return inputs.masked_fill(labels == PAD, PAD), labels


@misconception(
    "M928",
    "overlapping_blocks",
    title="labels are the inputs themselves",
    source="a habit from models that shift inside",
    effect="The loss measures how well the model repeats what it reads, not what it predicts.",
    hint="Your label of a token is that token. What is the model to predict?",
)
def not_shifted(tokens, length, stride):
    inputs, labels = _rows(tokens, length, stride)
    return inputs, inputs.masked_fill(labels == PAD, PAD)


@misconception(
    "M929",
    "overlapping_blocks",
    title="the new labels of a row are its first ones",
    source="a plausible slip: the overlap is at the other end",
    effect="Later rows count the overlap, with the least context; the last labels may never count.",
    hint="Which of a row's labels has the row before it had: its first or its last ones?",
)
def first_ones_count(tokens, length, stride):
    inputs, labels = _rows(tokens, length, stride, every=True)
    labels[1:, stride:] = PAD
    return inputs, labels


@misconception(
    "M930",
    "overlapping_blocks",
    title="labels that do not count are −100",
    source="PyTorch's default of ignore_index",
    effect="A loss that leaves out PAD takes −100 for a label, which is an error.",
    hint="What stands where no label counts? It is to be `PAD`.",
)
def minus_hundred(tokens, length, stride):
    return _rows(tokens, length, stride, fill=-100)


@misconception(
    "M949",
    "overlapping_blocks",
    title="the last token of the text is an input as well",
    source="an answer in a trial of the checks: the text is padded first and cut afterward",
    effect="Where the last row is not full, the model reads a token that nothing follows.",
    hint="Your labels are right. Is the last token of the text an input in your last row?",
)
def last_one_read(tokens, length, stride):
    inputs, labels = _rows(tokens, length, stride)
    read = tokens[(len(inputs) - 1) * stride :][:length]
    inputs[-1, : len(read)] = read
    return inputs, labels


@misconception(
    "M950",
    "overlapping_blocks",
    title="a label counts in the last row that has it",
    source="an answer in a trial of the checks: the row before is cut, not the one after",
    effect="Labels are judged with the least context that there is, not with the most.",
    hint="Where two rows overlap, either could count a label. Which has read more before it?",
)
def last_row_counts(tokens, length, stride):
    inputs, labels = _rows(tokens, length, stride, every=True)
    labels[:-1, stride:] = PAD
    return inputs, labels


@misconception(
    "M951",
    "overlapping_blocks",
    title="a token that was a label before does not count again",
    source="an answer in a trial of the checks: the token is remembered, not its place",
    effect="Each word of the vocabulary counts at most once.",
    hint="A label is missing that no row had before. Does its token occur in the text earlier?",
)
def token_counts_once(tokens, length, stride):
    inputs, labels = _rows(tokens, length, stride)
    seen = set()
    for row in labels:
        for place, token in enumerate(row.tolist()):
            if token in seen:
                row[place] = PAD
            seen.add(token)
    return inputs, labels


# ---- An adapter for each row ----


def _adapted(x, weight, down, up, adapter, scale, without=True):
    change = scale * x @ down[adapter].mT @ up[adapter].mT
    change = change * (adapter >= 0)[:, None, None] if without else change
    return x @ weight.mT + change


@misconception(
    "M931",
    "adapt_each",
    title="−1 takes the last adapter",
    source="a plausible slip: in Python −1 is an index",
    effect="A request without an adapter gets another customer's.",
    hint="You are right where all rows have an adapter. What is `down[-1]`?",
)
def last_for_none(x, weight, down, up, adapter, scale):
    return _adapted(x, weight, down, up, adapter, scale, without=False)


@misconception(
    "M932",
    "adapt_each",
    title="rows without an adapter are zero",
    source="a plausible slip: the whole sum is masked",
    effect="They lose the shared matrix as well.",
    hint="What should come out for a row whose adapter is −1?",
)
def zero_for_none(x, weight, down, up, adapter, scale):
    found = _adapted(x, weight, down, up, adapter, scale)
    return found * (adapter >= 0)[:, None, None]


@misconception(
    "M933",
    "adapt_each",
    title="the first row's adapter for all rows",
    source="a plausible slip: one adapter for the whole batch, as in training",
    effect="Right only if all rows ask for the same adapter.",
    hint="With one row you are right. Which adapter do your other rows use?",
)
def first_for_all(x, weight, down, up, adapter, scale):
    return _adapted(x, weight, down, up, adapter[:1].expand(len(x)), scale)


@misconception(
    "M934",
    "adapt_each",
    title="adapters in their order, not those asked for",
    source="a plausible slip: the number of the row for that of its adapter",
    effect="Right only if row n happens to ask for adapter n.",
    hint="Which adapter does your row 0 use, and which one does it ask for?",
)
def by_row(x, weight, down, up, adapter, scale):
    rows = torch.arange(len(x)) % len(down)
    return _adapted(x, weight, down, up, torch.where(adapter < 0, adapter, rows), scale)


@misconception(
    "M935",
    "adapt_each",
    title="the scale is left out",
    source="a plausible slip: W + BA",
    effect="The change is too large or too small, by the same factor everywhere.",
    hint="Rows without an adapter are right. By which factor is the change of the others off?",
)
def without_scale(x, weight, down, up, adapter, scale):
    return _adapted(x, weight, down, up, adapter, 1.0)


@misconception(
    "M962",
    "adapt_each",
    title="the shared matrix is scaled, too",
    source="an answer in a trial of the checks: scale × (W + BA)x",
    effect="What was trained before changes with the strength of the change.",
    hint="Rows without an adapter are right. In the others, which of the two summands does `scale` "
    "belong to?",
)
def all_scaled(x, weight, down, up, adapter, scale):
    factor = torch.where(adapter < 0, 1.0, scale)[:, None, None].to(x.dtype)
    return factor * _adapted(x, weight, down, up, adapter, 1.0)


@misconception(
    "M936",
    "adapt_each",
    title="scale divided by the rank",
    source="Hu et al. 2021 write α/r, and so does PEFT",
    effect="The change is too small, unless the rank is one.",
    hint="With rank one you are right. The task has no α: what is `scale` multiplied by?",
)
def over_the_rank(x, weight, down, up, adapter, scale):
    return _adapted(x, weight, down, up, adapter, scale / down.size(1))


@misconception(
    "M937",
    "adapt_each",
    title="the change is all there is",
    source="a plausible slip: the shared matrix is forgotten",
    effect="Rows without an adapter are zero, and the others lack what was trained before.",
    hint="What does a row without an adapter give in yours? Where does `weight` come in?",
)
def change_alone(x, weight, down, up, adapter, scale):
    change = scale * x @ down[adapter].mT @ up[adapter].mT
    return change * (adapter >= 0)[:, None, None]


@misconception(
    "M938",
    "adapt_each",
    title="all adapters together",
    source="a plausible slip: summed over the adapters, not selected",
    effect="Everybody gets everybody's change.",
    hint="With one adapter you are right. Whose matrices does a row of yours use?",
)
def all_together(x, weight, down, up, adapter, scale):
    change = scale * sum(x @ a.mT @ b.mT for a, b in zip(down, up, strict=True))
    return x @ weight.mT + change * (adapter >= 0)[:, None, None]


@misconception(
    "M952",
    "adapt_each",
    title="reshaped instead of transposed",
    source="an answer in a trial of the checks: reshape until the shapes fit",
    effect="The numbers of the narrow matrices are mixed up; right with rank one only.",
    hint="With rank one you are right. Does your reshape exchange rows and columns?",
)
def reshaped(x, weight, down, up, adapter, scale):
    down, up = (part.reshape(len(part), -1, part.size(1)).mT for part in (down, up))
    return _adapted(x, weight, down, up, adapter, scale)


@misconception(
    "M953",
    "adapt_each",
    title="adapter 0 counts as none",
    source="two answers in a trial of the checks: > 0 for ≥ 0",
    effect="The first customer gets the model as it was.",
    hint="Rows with adapter 1 or 2 are right. Whose are the others?",
)
def zero_is_none(x, weight, down, up, adapter, scale):
    found = _adapted(x, weight, down, up, adapter, scale)
    return torch.where((adapter > 0)[:, None, None], found, x @ weight.mT)


# ---- A cache that does not grow ----


def _rolled(
    query, key, value, old_key, old_value, window, seen=None, ahead=0, kept=None, offset=None,
    scale=None,
):  # fmt: skip
    """How many are seen, how many of them ahead, how many kept; where the new ones begin; √d_k."""
    keys, values = torch.cat([old_key, key], dim=2), torch.cat([old_value, value], dim=2)
    seen, kept = window if seen is None else seen, window - 1 if kept is None else kept
    place = torch.arange(keys.size(2))
    own = torch.arange(query.size(2))[:, None] + (old_key.size(2) if offset is None else offset)
    mask = (place <= own + ahead) & (place > own - seen)
    scores = query @ keys.mT / (math.sqrt(query.size(-1)) if scale is None else scale)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    first = max(0, keys.size(2) - kept)
    return weights @ values, keys[:, :, first:], values[:, :, first:]


@misconception(
    "M939",
    "rolling_attention",
    title="the window does not count the token itself",
    source="common: `window` tokens before, and oneself",
    effect="All but the first token of a piece can see one too many: other pieces, other results.",
    hint="How many keys can the second of several new tokens see, itself included?",
)
def one_too_many(query, key, value, old_key, old_value, window):
    return _rolled(query, key, value, old_key, old_value, window, seen=window + 1)


@misconception(
    "M940",
    "rolling_attention",
    title="one token too many is kept",
    source="a plausible slip: the last `window` tokens",
    effect="The cache holds a token that nobody looks at any more.",
    hint="The next token sees itself and how many of those before it?",
)
def kept_too_many(query, key, value, old_key, old_value, window):
    return _rolled(query, key, value, old_key, old_value, window, kept=window)


@misconception(
    "M941",
    "rolling_attention",
    title="everything is kept if the window is one",
    source="common: `x[-n:]` with n = 0 is all of x",
    effect="With a window of one, and only then, the cache grows after all.",
    hint="Look at a window of one. What does a slice that begins at `-n` give if n is 0?",
)
def minus_zero(query, key, value, old_key, old_value, window):
    output, keys, values = _rolled(query, key, value, old_key, old_value, window, kept=10**6)
    return output, keys[:, :, -(window - 1) :], values[:, :, -(window - 1) :]


@misconception(
    "M960",
    "rolling_attention",
    title="the cache never grows beyond its first size",
    source="an answer in a trial of the checks: first in, first out, though there is room",
    effect="A cache that has begun small stays small.",
    hint="What you attend to is right. While fewer than `window` − 1 tokens are kept, must "
    "anything be thrown away?",
)
def pushed_out_too_early(query, key, value, old_key, old_value, window):
    kept = min(window - 1, old_key.size(2) or key.size(2))
    return _rolled(query, key, value, old_key, old_value, window, kept=kept)


@misconception(
    "M942",
    "rolling_attention",
    title="cut before looking",
    source="a plausible slip: the cache is cut first, then used",
    effect="Of several tokens at once, the first miss keys that they may see; with none left: NaN.",
    hint="With one new token you are right. Which keys does the first of several new tokens need?",
)
def cut_first(query, key, value, old_key, old_value, window):
    return _cut_first(query, key, value, old_key, old_value, window, kept=window)


def _cut_first(query, key, value, old_key, old_value, window, kept):
    """What is seen when all but the last ``kept`` are thrown away before."""
    keys, values = torch.cat([old_key, key], dim=2), torch.cat([old_value, value], dim=2)
    first = max(0, keys.size(2) - kept)
    keys, values = keys[:, :, first:], values[:, :, first:]
    nothing, own = keys[:, :, :0], keys.size(2) - query.size(2)
    return _rolled(query, keys, values, nothing, nothing, window, offset=own)


@misconception(
    "M969",
    "rolling_attention",
    title="thrown away before looking",
    source="a plausible slip: only what is kept for the next call is attended to",
    effect="Each token sees one key less than its window; with a window of one it sees none.",
    hint="What you keep is right. Does the oldest key of the window take part before you drop it?",
)
def thrown_away_first(query, key, value, old_key, old_value, window):
    return _cut_first(query, key, value, old_key, old_value, window, kept=window - 1)


@misconception(
    "M943",
    "rolling_attention",
    title="new tokens see all that is in the cache",
    source="a plausible slip: the window only cuts the cache",
    effect="With several new tokens the later ones see farther back than the window.",
    hint="With one new token you are right. How far back does the last of several look?",
)
def no_window_inside(query, key, value, old_key, old_value, window):
    return _rolled(query, key, value, old_key, old_value, window, seen=10**6)


@misconception(
    "M944",
    "rolling_attention",
    title="new tokens see those that come after them",
    source="a plausible slip: a window to both sides",
    effect="A piece with several tokens knows what comes.",
    hint="With one new token you are right. Does a token see those after it in its piece?",
)
def sees_the_future(query, key, value, old_key, old_value, window):
    return _rolled(query, key, value, old_key, old_value, window, ahead=10**6)


@misconception(
    "M945",
    "rolling_attention",
    title="the triangle begins in the upper left corner",
    source="PyTorch's is_causal with a cache (issue 108108)",
    effect="The first new token sees the oldest key alone.",
    hint="With nothing in the cache you are right. In which column is a new token itself?",
)
def upper_left(query, key, value, old_key, old_value, window):
    return _rolled(query, key, value, old_key, old_value, window, offset=0)


@misconception(
    "M946",
    "rolling_attention",
    title="not scaled",
    source="a plausible slip: √d_k is forgotten",
    effect="Weights that are sharper than those the model was trained with.",
    hint="Your weights are too sharp. What are scores divided by?",
)
def unscaled(query, key, value, old_key, old_value, window):
    return _rolled(query, key, value, old_key, old_value, window, scale=1.0)


@misconception(
    "M947",
    "rolling_attention",
    title="the oldest are kept",
    source="a plausible slip: the first window − 1 in place of the last",
    effect="The cache never changes once it is full.",
    hint="Your output is right. Which tokens will the next one look at?",
)
def oldest_kept(query, key, value, old_key, old_value, window):
    output, *_ = _rolled(query, key, value, old_key, old_value, window)
    keys, values = torch.cat([old_key, key], dim=2), torch.cat([old_value, value], dim=2)
    return output, keys[:, :, : window - 1], values[:, :, : window - 1]


@misconception(
    "M948",
    "rolling_attention",
    title="only the new ones are kept",
    source="a plausible slip: the cache is replaced, not extended",
    effect="With one at a time a token sees two at most, itself and the one before.",
    hint="Your output is right. Do the tokens to keep include old ones?",
)
def new_ones_kept(query, key, value, old_key, old_value, window):
    output, *_ = _rolled(query, key, value, old_key, old_value, window)
    first = max(0, key.size(2) - (window - 1))
    return output, key[:, :, first:], value[:, :, first:]


@misconception(
    "M954",
    "rolling_attention",
    title="masked as if the cache were full",
    source="an answer in a trial of the checks: triu and tril from the first column",
    effect="Near the beginning of the text tokens see what comes after them.",
    hint="With a full cache you are right. Which column is a new token's own if fewer were kept?",
)
def band_for_a_full_cache(query, key, value, old_key, old_value, window):
    return _rolled(query, key, value, old_key, old_value, window, offset=window - 1)


@misconception(
    "M955",
    "rolling_attention",
    title="each new token pushes an old one out, full cache or not",
    source="an answer in a trial of the checks: a cache that is always full",
    effect="Near the beginning of the text too little is kept.",
    hint="With a full cache you are right. How many are to be kept if it was not full before?",
)
def one_out_for_one_in(query, key, value, old_key, old_value, window):
    output, *_ = _rolled(query, key, value, old_key, old_value, window)
    new = key.size(2)
    keys, values = (
        torch.cat([old[:, :, new:], fresh], dim=2)
        for old, fresh in ((old_key, key), (old_value, value))
    )
    first = max(0, keys.size(2) - (window - 1))
    return output, keys[:, :, first:], values[:, :, first:]


@misconception(
    "M956",
    "rolling_attention",
    title="always window − 1 places, zeros in front",
    source="an answer in a trial of the checks: a cache of a fixed size, as in JAX",
    effect="The next call takes the zeros for tokens, and shares its attention with them.",
    hint="Near the beginning you keep more than there is. How is the next call to tell?",
)
def zeros_in_front(query, key, value, old_key, old_value, window):
    output, *kept = _rolled(query, key, value, old_key, old_value, window)
    missing = window - 1 - kept[0].size(2)
    return output, *(torch.nn.functional.pad(x, (0, 0, missing, 0)) for x in kept)


@also("M36", "rolling_attention")
def masked_after_softmax(query, key, value, old_key, old_value, window):
    _, kept_keys, kept_values = _rolled(query, key, value, old_key, old_value, window)
    keys, values = torch.cat([old_key, key], dim=2), torch.cat([old_value, value], dim=2)
    ago = torch.arange(query.size(2))[:, None] + old_key.size(2) - torch.arange(keys.size(2))
    weights = (query @ keys.mT / math.sqrt(query.size(-1))).softmax(dim=-1)
    return (weights * ((ago >= 0) & (ago < window))) @ values, kept_keys, kept_values
