"""Mistakes in the exercises of assignments 1 to 3."""

import math

import torch

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.vocabulary import PAD


def _relative(
    query, key, table, sign=1, clipped=True, scale=True, of_key=False, start=True, beyond=True
):
    length, reach = query.size(2), table.size(0) // 2
    place = torch.arange(length)
    offset = sign * (place[None, :] - place[:, None])
    near = beyond | (offset.abs() <= reach)
    offset = offset.clamp(-reach, reach) + reach * start if clipped else offset % table.size(0)
    if of_key:
        relative = torch.einsum("bhkd,qkd->bhqk", key, table[offset])
    else:
        relative = torch.einsum("bhqd,qkd->bhqk", query, table[offset])
    relative = relative * near
    root = math.sqrt(query.size(-1))
    scores = query @ key.transpose(-2, -1)
    return (scores + relative) / root if scale else scores / root + relative


@misconception(
    "M381",
    "relative_scores",
    title="the offset the wrong way round",
    source="a plausible slip: i − j for j − i",
    effect="What is learned for the token before is used for the one after.",
    hint="Your offsets have the wrong sign: a key that comes later has which one?",
)
def offset_reversed(query, key, table):
    return _relative(query, key, table, sign=-1)


@misconception(
    "M382",
    "relative_scores",
    title="offsets beyond the reach wrap around",
    source="a plausible slip: negative or modular indices instead of clamp",
    effect="Tokens far behind count as tokens far ahead.",
    hint="Within the reach you are right. Which row do offsets beyond it have?",
)
def offset_wraps(query, key, table):
    reach = table.size(0) // 2
    return _relative(query, key, torch.roll(table, -reach, 0), clipped=False)


@misconception(
    "M383",
    "relative_scores",
    title="the relative part is not scaled",
    source="common: added to the scores as a bias is",
    effect="Positions count √d_k times as much as words.",
    hint="The part from the table is √d_k times too large.",
)
def relative_not_scaled(query, key, table):
    return _relative(query, key, table, scale=False)


@misconception(
    "M384",
    "relative_scores",
    title="the table meets the keys, not the queries",
    source="a plausible slip: k·a for q·a",
    effect="A key prefers a distance, whoever asks.",
    hint="The product with the table is that of the keys. Whose is it in the formula?",
)
def table_with_keys(query, key, table):
    return _relative(query, key, table, of_key=True)


@misconception(
    "M401",
    "relative_scores",
    title="the offset itself is the row",
    source="a plausible slip: negative indices count from the end, so nothing fails",
    effect="Row 0 is that of the token itself, and the last rows are those of the tokens before.",
    hint="You look up the offset itself, and Python takes −1 for the last row. In which row is the "
    "offset 0, if row 0 is the offset −r?",
)
def offset_is_the_row(query, key, table):
    return _relative(query, key, table, start=False)


@misconception(
    "M402",
    "relative_scores",
    title="the table is a bias",
    source="a habit from T5, whose table has one number for each offset and head",
    effect="A distance is preferred whatever the query is.",
    hint="What your table adds does not depend on the query. What is its row multiplied by?",
)
def table_as_bias(query, key, table):
    length, reach = query.size(2), table.size(0) // 2
    place = torch.arange(length)
    offset = (place[None, :] - place[:, None]).clamp(-reach, reach) + reach
    return (query @ key.transpose(-2, -1) + table[offset].sum(-1)) / math.sqrt(query.size(-1))


@misconception(
    "M385",
    "embed_with_segments",
    title="scaled by √d_model as in the Transformer",
    source="a habit from section 3.4 of the paper",
    effect="Positions and segments hardly count beside the words.",
    hint="Your embeddings are √d_model times too large. Does BERT have that factor?",
)
def segments_scaled(tokens, segments, table, positions, segment_table):
    rest = positions[: tokens.size(1)] + segment_table[segments]
    return table[tokens] * math.sqrt(table.size(1)) + rest


@also("M84", "embed_with_segments")
def segments_positions_along_the_batch(tokens, segments, table, positions, segment_table):
    return table[tokens] + positions[: len(tokens), None] + segment_table[segments]


@misconception(
    "M386",
    "embed_with_segments",
    title="every token has the first segment",
    source="a plausible slip: segment_table[0]",
    effect="The model cannot tell the two sentences apart.",
    hint="Your result does not depend on segments.",
)
def one_segment(tokens, segments, table, positions, segment_table):
    return table[tokens] + positions[: tokens.size(1)] + segment_table[0]


def _window(length, width, num_global, causal=True, more=0, global_queries=False, both=False):
    place = torch.arange(length)
    distance = place[:, None] - place[None, :]
    first = place[None, :] < num_global
    near = (distance < width + more) & (distance > -width - more)
    if both:
        first = first | (place[:, None] < num_global)
    allowed = near | (place[:, None] < num_global if global_queries else first)
    return (allowed & (distance >= 0) if causal else allowed)[None, None]


@also("M59", "global_window_mask")
def window_sees_the_future(length, width, num_global):
    return _window(length, width, num_global, causal=False)


@misconception(
    "M387",
    "global_window_mask",
    title="the window is one too wide",
    source="common: width tokens before, and oneself",
    effect="A window of one sees two tokens.",
    hint="A window of `width` is `width` tokens in all. How many do yours see?",
)
def window_too_wide(length, width, num_global):
    return _window(length, width, num_global, more=1)


@misconception(
    "M388",
    "global_window_mask",
    title="the first queries see all, not all queries the first",
    source="a plausible slip: rows for columns",
    effect="Under a causal mask it changes nothing at all: the global tokens are global to nobody.",
    hint="Beyond the window your queries see nothing. Are the global tokens rows or columns?",
)
def global_rows(length, width, num_global):
    return _window(length, width, num_global, global_queries=True)


@misconception(
    "M403",
    "global_window_mask",
    title="a window without global tokens",
    source="a plausible slip: num_global is not used",
    effect="The first tokens fall out of the window.",
    hint="Your mask is the same whatever num_global is. Which tokens stay visible to all?",
)
def no_global_tokens(length, width, num_global):
    return _window(length, width, 0)


@misconception(
    "M404",
    "global_window_mask",
    title="the last tokens are global",
    source="a plausible slip: columns counted from the end",
    effect="Under a causal mask hardly anybody can see them.",
    hint="Your global tokens are the last ones. Which ones does the task name?",
)
def last_tokens_global(length, width, num_global):
    place = torch.arange(length)
    distance = place[:, None] - place[None, :]
    last = place[None, :] >= length - num_global
    return ((distance >= 0) & ((distance < width) | last))[None, None]


def _capped(query, key, value, mask, cap, order="cap first", cleaned=True, scaled=True, outer=True):
    scores = query @ key.transpose(-2, -1)
    scores = scores / math.sqrt(query.size(-1)) if scaled is True else scores
    low = torch.finfo(scores.dtype).min
    if order == "mask first" and mask is not None:
        scores = scores.masked_fill(~mask, low)
    scores = torch.tanh(scores / cap) * (cap if outer else 1.0)
    if scaled == "afterwards":
        scores = scores / math.sqrt(query.size(-1))
    if order == "cap first" and mask is not None:
        scores = scores.masked_fill(~mask, low)
    weights = scores.softmax(dim=-1)
    if mask is not None and cleaned:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


@misconception(
    "M389",
    "capped_attention",
    title="the cap lifts the mask",
    source="a plausible slip: masked first, then capped",
    effect="A blocked key has a score of −cap, and keeps a weight.",
    hint="What is blocked has weight in yours. What does tanh make of the smallest number?",
)
def cap_after_mask(query, key, value, mask, cap):
    return _capped(query, key, value, mask, cap, order="mask first", cleaned=False)


@misconception(
    "M390",
    "capped_attention",
    title="clamped instead of bent",
    source="a plausible slip: clamp(−cap, cap)",
    effect="Beyond the cap there is no gradient; below it nothing is bent.",
    hint="Small scores are not changed in yours. What does tanh do to them?",
)
def clamped(query, key, value, mask, cap):
    scores = (query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))).clamp(-cap, cap)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    weights = weights if mask is None else weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


@also("M33", "capped_attention")
def capped_not_scaled(query, key, value, mask, cap):
    return _capped(query, key, value, mask, cap, scaled=False)


@misconception(
    "M391",
    "capped_attention",
    title="a query that may see nothing sees everything",
    source="common: the smallest number for −∞, and nothing after the softmax",
    effect="Its output is the mean of what it must not see.",
    hint="Where everything is blocked, your weights are equal. What should they be?",
)
def empty_rows_equal(query, key, value, mask, cap):
    return _capped(query, key, value, mask, cap, cleaned=False)


@misconception(
    "M405",
    "capped_attention",
    title="capped, then divided by the root",
    source="a plausible slip: the two steps exchanged",
    effect="Scores are bent earlier than at the cap, and never get beyond cap/√d_k.",
    hint="Your scores never get beyond cap/√d_k. Which comes first, the division or the cap?",
)
def cap_before_the_root(query, key, value, mask, cap):
    return _capped(query, key, value, mask, cap, scaled="afterwards")


@misconception(
    "M406",
    "capped_attention",
    title="tanh(s/cap), without the cap before it",
    source="a plausible slip",
    effect="No score is above 1, whatever the cap: attention is nearly uniform.",
    hint="All of your scores lie between −1 and 1. What does the formula have before the tanh?",
)
def cap_inside_only(query, key, value, mask, cap):
    return _capped(query, key, value, mask, cap, outer=False)


@misconception(
    "M407",
    "capped_attention",
    title="masked before the cap, and emptied after the softmax",
    source="a plausible slip: the weights of what is blocked are set to zero, and look right",
    effect="Blocked keys have a score of −cap in the divisor: the others add up to less than 1.",
    hint="With a mask, the weights of a query do not add up to 1. What became of the blocked "
    "scores in the tanh?",
)
def masked_before_cap_and_emptied(query, key, value, mask, cap):
    return _capped(query, key, value, mask, cap, order="mask first")


@also("M36", "capped_attention")
def capped_mask_after_softmax(query, key, value, mask, cap):
    _, weights = _capped(query, key, value, None, cap)
    weights = weights if mask is None else weights * mask
    return weights @ value, weights


def _grouped(x, scale, shift, num_groups, eps, correction=0, outside=False, strided=False):
    groups = x.unflatten(-1, (-1, num_groups)).mT if strided else x.unflatten(-1, (num_groups, -1))
    mean = groups.mean(dim=-1, keepdim=True)
    variance = groups.var(dim=-1, correction=correction, keepdim=True)
    root = torch.sqrt(variance) + eps if outside else torch.sqrt(variance + eps)
    normed = (groups - mean) / root
    normed = normed.mT if strided else normed
    return scale * normed.flatten(-2) + shift


@also("M66", "group_norm")
def group_norm_unbiased(x, scale, shift, num_groups, eps):
    return _grouped(x, scale, shift, num_groups, eps, correction=1)


@also("M65", "group_norm")
def group_norm_epsilon_outside(x, scale, shift, num_groups, eps):
    return _grouped(x, scale, shift, num_groups, eps, outside=True)


@misconception(
    "M392",
    "group_norm",
    title="every n-th channel instead of neighbors",
    source="a plausible slip: the two sizes of unflatten exchanged",
    effect="Other groups than those of any other program.",
    hint="Your groups take every n-th channel. Which channels belong to the first group?",
)
def group_norm_strided(x, scale, shift, num_groups, eps):
    return _grouped(x, scale, shift, num_groups, eps, strided=True)


@misconception(
    "M393",
    "group_norm",
    title="one group: that is layer norm",
    source="a plausible slip: num_groups is not used",
    effect="Layer norm.",
    hint="Your result is layer norm's. What do the groups change?",
)
def group_norm_of_all(x, scale, shift, num_groups, eps):
    return _grouped(x, scale, shift, 1, eps)


@misconception(
    "M408",
    "group_norm",
    title="one mean for all positions of a sentence",
    source="what nn.GroupNorm does with (batch, channels, length)",
    effect="A position's result depends on the other positions, padding and future included.",
    hint="Your mean runs over the positions, too. Which numbers share one here?",
)
def group_norm_over_positions(x, scale, shift, num_groups, eps):
    return torch.nn.functional.group_norm(x.mT, num_groups, scale, shift, eps).mT


@misconception(
    "M409",
    "group_norm",
    title="groups of that size, not that many",
    source="a plausible slip: the number of groups and their size exchanged",
    effect="Right where both are equal, and for no other number.",
    hint="Your groups have num_groups channels each. How many groups are there to be?",
)
def group_norm_by_size(x, scale, shift, num_groups, eps):
    return _grouped(x, scale, shift, x.size(-1) // num_groups, eps)


def _rms_backward(x, upstream, scale, eps, along=1.0, mean=False, scaled=True, root=True):
    r = torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    normed, g = x / r, upstream * scale if scaled else upstream
    of_x = g - along * normed * (g * normed).mean(dim=-1, keepdim=True)
    if mean:
        of_x = of_x - g.mean(dim=-1, keepdim=True)
    return of_x / r if root else of_x, (upstream * normed).sum(dim=(0, 1))


@misconception(
    "M394",
    "rms_norm_backward",
    title="the mean is taken off, as in layer norm",
    source="a habit from chapter 8",
    effect="A gradient for a norm that subtracts a mean, which this one does not.",
    hint="Your gradient has no mean. Does RMSNorm take one off on the way forward?",
)
def rms_backward_with_mean(x, upstream, scale, eps):
    return _rms_backward(x, upstream, scale, eps, mean=True)


@also("M373", "rms_norm_backward")
def rms_backward_constant_root(x, upstream, scale, eps):
    return _rms_backward(x, upstream, scale, eps, along=0.0)


@also("M374", "rms_norm_backward")
def rms_backward_without_scale(x, upstream, scale, eps):
    return _rms_backward(x, upstream, scale, eps, scaled=False)


@also("M375", "rms_norm_backward")
def rms_backward_without_root(x, upstream, scale, eps):
    return _rms_backward(x, upstream, scale, eps, root=False)


@misconception(
    "M410",
    "rms_norm_backward",
    title="a sum along the vector in place of the mean",
    source="common: the 1/d of the mean square is lost on the way",
    effect="The part along the vector is not taken off but turned round, and d − 1 times as long.",
    hint="What you take off along the normalized vector is d times too much. Where does the mean "
    "under the root leave its 1/d?",
)
def rms_backward_sum(x, upstream, scale, eps):
    return _rms_backward(x, upstream, scale, eps, along=x.size(-1))


@misconception(
    "M411",
    "rms_norm_backward",
    title="the part along the vector is added",
    source="a plausible slip: the sign of the derivative of 1/r",
    effect="A step makes the vector longer, which the norm undoes.",
    hint="The part along the normalized vector has the wrong sign: does r grow or shrink with x?",
)
def rms_backward_sign(x, upstream, scale, eps):
    return _rms_backward(x, upstream, scale, eps, along=-1.0)


@misconception(
    "M412",
    "rms_norm_backward",
    title="the scale outside of the bracket",
    source="a plausible slip: γ taken out of the mean, as if it were one number",
    effect="Right as long as all scales are equal.",
    hint="With one scale for all channels you would be right. Does your mean over the channels "
    "contain the scale?",
)
def rms_backward_scale_outside(x, upstream, scale, eps):
    of_x, of_scale = _rms_backward(x, upstream, scale, eps, scaled=False)
    return scale * of_x, of_scale


@misconception(
    "M395",
    "scaled_post_norm",
    title="the branch is scaled, not the way around",
    source="a plausible slip: x + α·f(x)",
    effect="The opposite: each norm keeps less of what came before.",
    hint="Your α multiplies the sublayer's output. What is it for?",
)
def branch_scaled(x, sublayer, norm, dropout, alpha):
    return norm(x + alpha * dropout(sublayer(x)))


@misconception(
    "M396",
    "scaled_post_norm",
    title="α makes no difference",
    source="a plausible slip: α·(x + f(x)), or no α at all",
    effect="The paper's post-norm: what multiplies the whole sum is undone by the norm.",
    hint="Your result does not depend on α: is it missing, or on the whole sum, where the norm "
    "undoes it?",
)
def sum_scaled(x, sublayer, norm, dropout, alpha):
    return norm(alpha * (x + dropout(sublayer(x))))


@misconception(
    "M397",
    "scaled_post_norm",
    title="the sublayer reads the scaled input",
    source="a plausible slip: x = α·x above the sum",
    effect="Each sublayer sees larger numbers than the one before it.",
    hint="What does your sublayer get to see, x or α·x?",
)
def sublayer_reads_scaled(x, sublayer, norm, dropout, alpha):
    x = alpha * x
    return norm(x + dropout(sublayer(x)))


@also("M9", "scaled_post_norm")
def scaled_without_dropout(x, sublayer, norm, dropout, alpha):
    return norm(alpha * x + sublayer(x))


@misconception(
    "M398",
    "sandwich",
    title="the second norm takes the sum",
    source="a plausible slip: pre-norm and post-norm at once",
    effect="The way around goes through a norm, as in post-norm.",
    hint="Your norm_out gets a sum. What is it to normalize?",
)
def norm_out_of_the_sum(x, sublayer, norm_in, norm_out, dropout):
    return norm_out(x + dropout(sublayer(norm_in(x))))


@misconception(
    "M399",
    "sandwich",
    title="the two norms change places",
    source="a plausible slip",
    effect="Nothing in a new model, whose norms are alike; wrong with weights from elsewhere.",
    hint="Your sublayer gets what norm_out gives. Which one is the first?",
)
def norms_exchanged(x, sublayer, norm_in, norm_out, dropout):
    return x + dropout(norm_in(sublayer(norm_out(x))))


@also("M31", "sandwich")
def sandwich_added_back(x, sublayer, norm_in, norm_out, dropout):
    x = norm_in(x)
    return x + dropout(norm_out(sublayer(x)))


@misconception(
    "M400",
    "sandwich",
    title="dropout before the second norm",
    source="a plausible slip",
    effect="The norm makes up for what was dropped: the other channels grow.",
    hint="Your norm_out gets what dropout gives. Which of the two comes last on the branch?",
)
def dropout_before_the_norm(x, sublayer, norm_in, norm_out, dropout):
    return x + norm_out(dropout(sublayer(norm_in(x))))


@misconception(
    "M491",
    "embed_with_segments",
    title="the first token's segment for all tokens",
    source="answers in a trial of the checks: segments[:, :1]",
    effect="Only one sentence to a row; the second one is taken for a part of the first.",
    hint="All tokens of a row have the segment of its first token in yours.",
)
def segment_of_the_first(tokens, segments, table, positions, segment_table):
    return table[tokens] + positions[: tokens.size(1)] + segment_table[segments[:, :1]]


@misconception(
    "M492",
    "scaled_post_norm",
    title="the branch divided by α",
    source="an answer in a trial of the checks: for a layer norm the two are the same",
    effect="Nothing for a layer norm, but for its ε; another result for any other norm.",
    hint="A layer norm does not see whether x is multiplied or the branch divided. Does your "
    "formula hold for a norm that does?",
)
def branch_divided(x, sublayer, norm, dropout, alpha):
    return norm(x + dropout(sublayer(x)) / alpha)


@misconception(
    "M493",
    "capped_attention",
    title="cap · tanh(s) / cap",
    source="answers in a trial of the checks: the brackets of the tanh left out",
    effect="The cap cancels: every score is between −1 and 1, whatever it is.",
    hint="The cap has no influence on your result, for you multiply and divide by it. What is "
    "divided by it in the formula?",
)
def cap_cancels(query, key, value, mask, cap):
    return _capped(query * cap, key, value, mask, cap, outer=False)


@misconception(
    "M515",
    "embed_with_segments",
    title="positions count real tokens, from 1 on",
    source="RoBERTa's convention, whose row 0 is that of padding",
    effect="Every token has the position of the one after it.",
    hint="You count positions as RoBERTa does, from 1 on and padding as 0. Which row does the "
    "first token of BERT get?",
)
def positions_as_in_roberta(tokens, segments, table, positions, segment_table):
    real = (tokens != PAD).long()
    return table[tokens] + positions[real.cumsum(dim=1) * real] + segment_table[segments]


@also("M65", "rms_norm_backward")
def rms_backward_epsilon_outside(x, upstream, scale, eps):
    rms = x.square().mean(dim=-1, keepdim=True).sqrt()
    r, g = rms + eps, upstream * scale
    of_x = g / r - x * (g * x).mean(dim=-1, keepdim=True) / (r * r * rms)
    return of_x, (upstream * x / r).sum(dim=(0, 1))


@misconception(
    "M539",
    "relative_scores",
    title="nothing is added beyond the reach",
    source="an answer in a trial of the checks: offsets that are too far are left out",
    effect="Far keys all look alike, before and after, and unlike those at the border.",
    hint="Beyond the reach you add nothing. Which row do all far offsets share in the formula?",
)
def nothing_beyond_the_reach(query, key, table):
    return _relative(query, key, table, beyond=False)


@misconception(
    "M543",
    "embed_with_segments",
    title="positions begin again in the second sentence",
    source="an answer in a trial of the checks: counted within each segment",
    effect="Tokens of both sentences share their positions; BERT's run on.",
    hint="Your positions start at 0 again where the segment changes. Do they run on through the "
    "row?",
)
def positions_within_segments(tokens, segments, table, positions, segment_table):
    place = torch.arange(tokens.size(1)).expand_as(tokens)
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    start = torch.where(begins, place, 0).cummax(dim=1).values
    return table[tokens] + positions[place - start] + segment_table[segments]


@also("M526", "rms_norm_backward")
def rms_exact_projection(x, upstream, scale, eps):
    of_x, of_scale = _rms_backward(x, upstream, scale, eps, along=0.0)
    part = (of_x * x).sum(dim=-1, keepdim=True) / x.square().sum(dim=-1, keepdim=True)
    return of_x - part * x, of_scale


@misconception(
    "M603",
    "global_window_mask",
    title="global tokens are visible before their turn",
    source="an answer in a trial of the checks: mask[:, :num_global] = True",
    effect="The first words see the global ones after them, which they are trained to predict.",
    hint="Your first queries see global tokens that come after them. What does “causal” mean for "
    "a global token?",
)
def global_tokens_ahead(length, width, num_global):
    allowed = _window(length, width, num_global)
    allowed[..., :num_global] = True
    return allowed


@misconception(
    "M787",
    "embed_with_segments",
    title="the first sentence's length is taken off the positions of the second one",
    source="an answer in a trial of the checks: a place minus the number of zeros in segments",
    effect="Tokens of both sentences share their positions; BERT's run on.",
    hint="You take the length of the first sentence off the positions of the second. Do BERT's "
    "positions begin again there?",
)
def first_sentence_taken_off(tokens, segments, table, positions, segment_table):
    place = torch.arange(tokens.size(1)).expand_as(tokens)
    first = (segments == 0).sum(dim=1, keepdim=True)
    place = torch.where(segments == 1, place - first, place)
    return table[tokens] + positions[place] + segment_table[segments]


@misconception(
    "M788",
    "rms_norm_backward",
    title="the scale is missing in the part along the vector",
    source="an answer in a trial of the checks: mean(upstream·x) for mean(scale·upstream·x)",
    effect="Right where the scale is 1, as at the start of training.",
    hint="With a scale of 1 you would be right. Through r, too, the gradient has passed the scale: "
    "does it occur in both terms?",
)
def rms_scale_in_one_term(x, upstream, scale, eps):
    r = (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    along = x / r**3 * (upstream * x).mean(dim=-1, keepdim=True)
    return scale * upstream / r - along, (upstream * x / r).flatten(0, 1).sum(dim=0)
