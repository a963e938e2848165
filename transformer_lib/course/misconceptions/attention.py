"""Mistakes in scaled dot-product attention, ``attention(query, key, value, mask)``.

What is right about it is in :func:`transformer_lib.model.scaled_dot_product.attention`.
"""

import math

import torch
import torch.nn.functional as F

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.course.misconceptions.positions import shifted

LEAST = torch.finfo(torch.float32).min


def _scores(query, key):
    return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))


def _shares(query, key, mask):
    """Not yet divided by their sum; the largest score is taken off, even a blocked one."""
    scores = _scores(query, key)
    shares = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    if mask is not None:
        shares = shares * mask
    return shares


def _weights(scores, mask):
    """As it should be: blocked keys get exactly zero, even where all of them are blocked."""
    if mask is None:
        return scores.softmax(dim=-1)
    return scores.masked_fill(~mask, LEAST).softmax(dim=-1).masked_fill(~mask, 0.0)


@misconception(
    "M6",
    "attention",
    title="the mask is added before the scores are scaled",
    source="NiuTensor",
    effect="A finite mask is divided by √d_k as well: of −10, only −1.25 is left at d_k = 64, and "
    "a blocked key keeps e^−1.25 = 29% of its weight.",
    hint="Your blocked keys keep some of their weight. Follow the number that your mask puts in: "
    "what else happens to it before the softmax?",
)
def mask_before_scaling(query, key, value, mask):
    scores = query @ key.transpose(-2, -1)
    if mask is not None:
        scores = scores + torch.where(mask, 0.0, -10.0)
    weights = (scores / math.sqrt(query.size(-1))).softmax(dim=-1)
    return weights @ value, weights


@misconception(
    "M7",
    "attention",
    title="−1e9 stands for −∞",
    source="the lecture, the illustrated doc, Kyubyong",
    effect="A query that may see nothing spreads its attention evenly over the blocked keys "
    "instead of getting zero; in fp16 the number does not even exist.",
    hint="One query may see no key at all, and yet its weights add up to 1. What is the softmax of "
    "a row in which all numbers are equal, however small they are?",
)
def finite_mask(query, key, value, mask):
    scores = _scores(query, key)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


@misconception(
    "M14",
    "attention",
    title="the mask is read the wrong way round",
    source="nn.Transformer and the zh→en tutorial block where True, "
    "scaled_dot_product_attention attends where True",
    effect="Every query attends to exactly the keys that it must not see; nothing fails.",
    hint="Your queries look exactly where they may not. What does True mean in this mask?",
)
def inverted_mask(query, key, value, mask):
    weights = _weights(_scores(query, key), None if mask is None else ~mask)
    return weights @ value, weights


@misconception(
    "M17",
    "attention",
    title="the softmax runs over the queries",
    source="common",
    effect="The weights that each key hands out add up to 1, those that a query receives do not.",
    hint="Add up the weights of one query: they are not 1. Along which axis does your softmax run?",
)
def softmax_over_queries(query, key, value, mask):
    scores = _scores(query, key)
    if mask is not None:
        scores = scores.masked_fill(~mask, LEAST)
    weights = scores.softmax(dim=-2)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


@misconception(
    "M18",
    "attention",
    title="scaled by √d_model instead of √d_k",
    source="common",
    effect="With 8 heads all scores are √8 = 2.8 times too small, and the attention is too even.",
    hint="Your attention is more even than it should be. How long are the vectors that meet in the "
    "dot product: d_k, as in one head, or d_model?",
)
def scaled_by_d_model(query, key, value, mask):
    weights = _weights(_scores(query, key) / math.sqrt(query.size(1)), mask)
    return weights @ value, weights


@misconception(
    "M33",
    "attention",
    title="not scaled",
    source="common",
    effect="Scores of random vectors have the standard deviation √d_k: 8 at d_k = 64. The softmax "
    "then puts nearly everything on one key, and its gradient vanishes.",
    hint="Your attention is sharper than it should be. What is missing between the dot product and "
    "the softmax?",
)
def unscaled(query, key, value, mask):
    weights = _weights(query @ key.transpose(-2, -1), mask)
    return weights @ value, weights


@misconception(
    "M11",
    "attention",
    title="“the square root of 8 divided by 64” taken at its word",
    source="the illustrated doc, which means √64 = 8",
    effect="At d_k = 64 scores are divided by 0.044 instead of 8: the attention is all on one key.",
    hint="Your attention is far too sharp. Put d_k = 64 into the number that you divide by: do you "
    "get 8?",
)
def root_of_8_by_64(query, key, value, mask):
    d_k = query.size(-1)
    scores = query @ key.transpose(-2, -1) / (math.sqrt(math.sqrt(d_k)) / d_k)
    weights = _weights(scores, mask)
    return weights @ value, weights


@misconception(
    "M34",
    "attention",
    title="divided by d_k instead of its root",
    source="a plausible slip",
    effect="At d_k = 64 all scores are 8 times too small: the attention is close to an average.",
    hint="Your attention is more even than it should be. How large is a sum of d_k random products "
    "typically: like d_k?",
)
def divided_by_d_k(query, key, value, mask):
    weights = _weights(query @ key.transpose(-2, -1) / query.size(-1), mask)
    return weights @ value, weights


@misconception(
    "M35",
    "attention",
    title="multiplied by √d_k instead of divided",
    source="a plausible slip; the embeddings are multiplied by a root, the scores divided by one",
    effect="At d_k = 64 the scores are 64 times too large.",
    hint="Your attention is far too sharp. Should a larger d_k make the scores larger or smaller?",
)
def multiplied_by_the_root(query, key, value, mask):
    weights = _weights(query @ key.transpose(-2, -1) * math.sqrt(query.size(-1)), mask)
    return weights @ value, weights


@misconception(
    "M36",
    "attention",
    title="masked after the softmax",
    source="common",
    effect="Blocked keys get zero, but what they took away is missing: the rest adds up to less "
    "than 1.",
    hint="With a mask, the weights of a query do not add up to 1. Did the blocked keys take part "
    "in the softmax?",
)
def mask_after_softmax(query, key, value, mask):
    weights = _scores(query, key).softmax(dim=-1)
    if mask is not None:
        weights = weights * mask
    return weights @ value, weights


@misconception(
    "M248",
    "attention",
    title="masked after the softmax, and divided by what is left",
    source="common: a mask as a product",
    effect="NaN where nothing may be seen, and where a blocked key is so far ahead that the others "
    "are rounded to 0.",
    hint="You divide by the sum of what the mask leaves. How large is it where a blocked key has "
    "by far the highest score, or where all are blocked?",
)
def renormalized_after_the_mask(query, key, value, mask):
    weights = _scores(query, key).softmax(dim=-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ value, weights


@misconception(
    "M37",
    "attention",
    title="blocked scores are set to zero",
    source="common: “masking means multiplying by zero”",
    effect="e⁰ = 1: a blocked key gets an average weight.",
    hint="Blocked keys get a middling weight. Which score becomes a weight of zero after the "
    "softmax: is it zero?",
)
def zeroed_scores(query, key, value, mask):
    scores = _scores(query, key)
    if mask is not None:
        scores = scores * mask
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


@misconception(
    "M38",
    "attention",
    title="the mask is ignored",
    source="a plausible slip",
    effect="Padding and the future are seen like everything else.",
    hint="Your result is the same as without a mask. Where do you use it, and do you use it in "
    "every case?",
)
def mask_ignored(query, key, value, mask):
    weights = _scores(query, key).softmax(dim=-1)
    return weights @ value, weights


@misconception(
    "M39",
    "attention",
    title="a boolean mask is added to the scores",
    source="common where additive float masks are also in use",
    effect="True counts as 1, False as 0: allowed keys weigh e = 2.7 times as much as blocked "
    "ones.",
    hint="Your mask shifts the attention a little, but blocks nothing. What does adding True to a "
    "number do?",
)
def boolean_mask_added(query, key, value, mask):
    scores = _scores(query, key)
    if mask is not None:
        scores = scores + mask
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


@misconception(
    "M40",
    "attention",
    title="a fully masked query gives NaN",
    source="common: masked_fill with −∞, then softmax",
    effect="0/0 in one row; the next layer spreads the NaN to the whole sentence.",
    hint="One query may see no key at all, and yours gets NaN. What should it get, and what is the "
    "softmax of nothing but −∞?",
)
def nan_where_nothing_is_seen(query, key, value, mask):
    scores = _scores(query, key)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


@misconception(
    "M41",
    "attention",
    title="queries and keys change places",
    source="a plausible slip: K·Qᵀ for Q·Kᵀ",
    effect="The weights have the shape (key, query); with as many queries as keys nothing fails.",
    hint="Your weights have a row for every key. Which of the two should the rows be, and what "
    "does that say about which one is transposed?",
)
def queries_and_keys_swapped(query, key, value, mask):
    scores = key @ query.transpose(-2, -1) / math.sqrt(query.size(-1))
    weights = _weights(scores, None if mask is None else mask.transpose(-2, -1))
    return weights.transpose(-2, -1) @ value, weights


@misconception(
    "M42",
    "attention",
    title="scores are returned as the weights",
    source="a plausible slip",
    effect="The output is right, the weights are not between 0 and 1.",
    hint="Your output is right, but what you return as weights is not between 0 and 1. Which of "
    "your variables is it?",
)
def scores_for_weights(query, key, value, mask):
    scores = _scores(query, key)
    return _weights(scores, mask) @ value, scores


@misconception(
    "M43",
    "attention",
    title="no gradient flows",
    source="a plausible slip: .detach() or torch.no_grad() left over from debugging",
    effect="Queries and keys are never trained.",
    hint="The numbers are right, but no gradient reaches the queries and the keys. What cuts them "
    "off from the loss?",
)
def detached(query, key, value, mask):
    weights = _weights(_scores(query, key), mask).detach()
    return weights @ value, weights


@misconception(
    "M44",
    "attention",
    title="the caller's mask is changed",
    source="a plausible slip: mask.logical_not_()",
    effect="The first call is right; the next one, with the same mask, is wrong.",
    hint="The numbers are right, but afterwards the caller's mask is another one. Which operation "
    "ends in an underscore?",
)
def mask_changed(query, key, value, mask):
    scores = _scores(query, key)
    weights = _weights(scores, mask if mask is None else ~mask.logical_not_())
    return weights @ value, weights


@misconception(
    "M45",
    "attention",
    title="always float32",
    source="a plausible slip: .float() to be safe",
    effect="Double or half precision goes in, single precision comes out.",
    hint="The numbers are right, but not of the type that came in. Where do you convert?",
)
def always_float32(query, key, value, mask):
    query, key, value = query.float(), key.float(), value.float()
    weights = _weights(_scores(query, key), mask)
    return weights @ value, weights


@misconception(
    "M46",
    "attention",
    title="works for a batch of one only",
    source="a plausible slip: squeeze() and [0]",
    effect="Every sentence of a batch gets the attention of the first.",
    hint="Your first sentence is right, the others equal it. Where do you take only one of them?",
)
def first_of_the_batch(query, key, value, mask):
    weights = _weights(_scores(query, key), mask)[:1].expand(len(query), -1, -1, -1)
    return weights @ value, weights


@misconception(
    "M27",
    "attention",
    title="dropout stays on while decoding",
    source="common: F.dropout is on unless it is told training=False",
    effect="The same sentence is translated differently from run to run.",
    hint="Two calls with the same arguments give different results. What in your code is random, "
    "and who tells it that training is over?",
)
def dropout_left_on(query, key, value, mask):
    weights = _weights(_scores(query, key), mask)
    return F.dropout(weights, 0.5) @ value, weights


@misconception(
    "M181",
    "softmax",
    title="the largest score is not taken off first",
    source="the formula, taken literally",
    effect="In single precision e^89 is infinite, and infinity divided by infinity is NaN; where "
    "all scores are below −104, every exponential is 0, and 0/0 is NaN too.",
    hint="With large scores you get NaN. What does exp(500) give, and which number may be taken "
    "off all scores of a row without changing the result?",
)
def exponentials_as_they_are(scores):
    return scores.exp() / scores.exp().sum(dim=-1, keepdim=True)


@misconception(
    "M182",
    "softmax",
    title="normalized over everything",
    source="a plausible slip: sum() without dim",
    effect="All queries share one unit of attention.",
    hint="Add up your whole matrix: it is 1. What should add up to 1?",
)
def normalized_over_everything(scores):
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum()


@misconception(
    "M183",
    "softmax",
    title="divided by the largest score",
    source="a plausible slip: normalizing where subtracting is meant",
    effect="The differences between scores, on which the weights depend, shrink; a largest score "
    "of 0 gives NaN.",
    hint="Softmax depends on differences of scores only. Which operation on a row keeps its "
    "differences?",
)
def divided_by_the_largest(scores):
    exponentials = (scores / scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@misconception(
    "M184",
    "softmax",
    title="the logarithm of the softmax",
    source="a plausible slip: log_softmax for softmax",
    effect="Weights are negative.",
    hint="Your numbers are negative. Can a share be negative?",
)
def logarithm_of_the_softmax(scores):
    return scores - scores.logsumexp(dim=-1, keepdim=True)


@also("M17", "softmax")
def softmax_of_columns(scores):
    exponentials = (scores - scores.amax(dim=0)).exp()
    return exponentials / exponentials.sum(dim=0)


@also("M17", "attention_weights")
def weights_over_queries(query, key):
    return _scores(query, key).softmax(dim=-2)


@also("M33", "attention_weights")
def weights_unscaled(query, key):
    return (query @ key.transpose(-2, -1)).softmax(dim=-1)


@also("M11", "attention_weights")
def weights_by_root_of_8_by_64(query, key):
    d_k = query.size(-1)
    return (query @ key.transpose(-2, -1) / (math.sqrt(math.sqrt(d_k)) / d_k)).softmax(dim=-1)


@also("M34", "attention_weights")
def weights_divided_by_d_k(query, key):
    return (query @ key.transpose(-2, -1) / query.size(-1)).softmax(dim=-1)


@also("M35", "attention_weights")
def weights_multiplied_by_the_root(query, key):
    return (query @ key.transpose(-2, -1) * math.sqrt(query.size(-1))).softmax(dim=-1)


@also("M42", "attention_weights")
def scores_alone(query, key):
    return _scores(query, key)


@misconception(
    "M185",
    "self_attention",
    title="the values are not projected",
    source="a plausible slip: weights @ x",
    effect="Heads cannot choose what they pass on, and the output has d_model channels instead of "
    "d_v.",
    hint="What you pass on is x itself. Which of the three matrices do you not use?",
)
def values_not_projected(x, w_q, w_k, w_v):
    return _scores(x @ w_q, x @ w_k).softmax(dim=-1) @ x


@misconception(
    "M186",
    "self_attention",
    title="keys and queries from one matrix",
    source="a plausible slip: copy and paste",
    effect="Scores are symmetric: before the softmax, i scores j exactly as j scores i.",
    hint="Your scores are symmetric. Do queries and keys come from the matrices that they should?",
)
def queries_as_keys(x, w_q, w_k, w_v):
    return _scores(x @ w_q, x @ w_q).softmax(dim=-1) @ (x @ w_v)


@also("M18", "self_attention")
def self_attention_scaled_by_d_model(x, w_q, w_k, w_v):
    scores = (x @ w_q) @ (x @ w_k).transpose(-2, -1) / math.sqrt(x.size(-1))
    return scores.softmax(dim=-1) @ (x @ w_v)


@also("M17", "self_attention")
def self_attention_over_queries(x, w_q, w_k, w_v):
    return _scores(x @ w_q, x @ w_k).softmax(dim=-2) @ (x @ w_v)


@also("M33", "self_attention")
def self_attention_unscaled(x, w_q, w_k, w_v):
    return ((x @ w_q) @ (x @ w_k).transpose(-2, -1)).softmax(dim=-1) @ (x @ w_v)


@misconception(
    "M228",
    "self_attention",
    title="a causal mask where none was asked for",
    source="an answer in a trial of the checks: copied from a decoder-only model",
    effect="No position sees what follows it; an encoder loses half of its context.",
    hint="Your last position is right, the ones before it are not. What do they not see?",
)
def causal_unasked(x, w_q, w_k, w_v):
    scores = (x @ w_q) @ (x @ w_k).transpose(-2, -1) / math.sqrt(w_q.size(1))
    seen = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
    return scores.masked_fill(~seen, -math.inf).softmax(dim=-1) @ (x @ w_v)


@misconception(
    "M229",
    "softmax",
    title="the largest score of all rows taken off",
    source="an answer in a trial of the checks: scores.max() without an axis",
    effect="A row whose scores all lie far below another row's becomes 0/0.",
    hint="Where one row's scores lie far below another's, yours are NaN. Whose largest "
    "score do you take off?",
)
def one_maximum_for_all(scores):
    e = (scores - scores.max()).exp()
    return e / e.sum(dim=-1, keepdim=True)


@also("M181", "attention")
def attention_of_plain_exponentials(query, key, value, mask):
    powers = _scores(query, key).exp()
    if mask is not None:
        powers = powers * mask
    weights = powers / powers.sum(dim=-1, keepdim=True).clamp(min=1e-9)
    return weights @ value, weights


@also("M181", "attention_weights")
def weights_of_plain_exponentials(query, key):
    return exponentials_as_they_are(_scores(query, key))


@also("M181", "self_attention")
def self_attention_of_plain_exponentials(x, w_q, w_k, w_v):
    return weights_of_plain_exponentials(x @ w_q, x @ w_k) @ (x @ w_v)


@misconception(
    "M254",
    "softmax_backward",
    title="each weight depends on its own score only",
    source="common: the derivative of the sigmoid, w(1 − w), taken for that of softmax",
    effect="The gradient no longer adds up to 0 along the keys: raising all scores at once, "
    "which changes nothing, seems to change the loss.",
    hint="Your gradient is w(1 − w) times what comes from above. Raising one score lowers "
    "all other weights of its row, too: what do they contribute?",
)
def diagonal_only(weights, upstream):
    return weights * (1 - weights) * upstream


@misconception(
    "M255",
    "softmax_backward",
    title="the sum over the keys is forgotten",
    source="a plausible slip",
    effect="The gradient is the one of exp without its division.",
    hint="Your gradient is w times what comes from above: that is what an exponential would "
    "have. Where does the division by the row's sum come in?",
)
def without_the_sum(weights, upstream):
    return weights * upstream


@misconception(
    "M256",
    "softmax_backward",
    title="the sum of the gradients is not weighted",
    source="common: the backward pass of a mean, not of a weighted mean",
    effect="Keys that get next to no weight pull the gradient as hard as the winner.",
    hint="What you take off is the plain mean of the gradients along the keys. The output is"
    " a weighted mean: with which weights?",
)
def plain_mean(weights, upstream):
    return weights * (upstream - upstream.mean(dim=-1, keepdim=True))


@misconception(
    "M257",
    "ignores_order",
    title="floats are compared for equality",
    source="common: torch.equal where sums are taken in another order",
    effect="A right program fails: sums in another order differ in the last digit.",
    hint="Your test fails right attention. The same numbers added in another order differ in"
    " the last digit: how do you compare?",
)
def compared_exactly(attend):
    query, key, value = torch.randn(2, 4, 8), torch.randn(2, 90, 8), torch.randn(2, 90, 8)
    order = torch.arange(90).roll(3)
    return torch.equal(attend(query, key, value), attend(query, key[:, order], value[:, order]))


@misconception(
    "M258",
    "ignores_order",
    title="only the keys are moved",
    source="a plausible slip",
    effect="Each value gets the weight of another key, so that right attention fails the test.",
    hint="Every value now gets the weight of another key. Does your test move the keys and the "
    "values, and both in the same order?",
)
def values_stay(attend):
    query, key, value = torch.randn(2, 4, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8)
    return torch.allclose(
        attend(query, key, value), attend(query, key.roll(3, dims=1), value), atol=1e-5
    )


@misconception(
    "M259",
    "ignores_order",
    title="the queries are moved instead",
    source="a plausible slip",
    effect="It tests whether queries are treated alike, which a program that counts later keys"
    " more passes as well.",
    hint="Your test moves the queries and expects the outputs to move with them. Programs "
    "that favor late keys pass it. Whose order should not matter?",
)
def queries_moved(attend):
    query, key, value = torch.randn(2, 4, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8)
    moved = attend(query.roll(1, dims=1), key, value)
    return torch.allclose(attend(query, key, value).roll(1, dims=1), moved, atol=1e-5)


@misconception(
    "M260",
    "look_back",
    title="rotated the wrong way",
    source="common: rows multiplied by a matrix that was made for columns",
    effect="Each word looks ahead by the offset instead of back.",
    hint="Your queries look as many places ahead as they should look back. Here positions "
    "are rows, x @ W: which way does your matrix turn a row?",
)
def turned_the_other_way(d_model, offset):
    return 1000.0 * shifted(-offset, d_model), torch.eye(d_model)


@misconception(
    "M261",
    "look_back",
    title="the scores are too small for softmax to decide",
    source="a plausible slip",
    effect="The right place gets the most, but only a little more than its neighbors.",
    hint="The right place wins, but not by enough: neighboring positions are much alike. "
    "What makes softmax more decided without changing the order of the scores?",
)
def undecided(d_model, offset):
    return shifted(offset, d_model), torch.eye(d_model)


@misconception(
    "M262",
    "look_back",
    title="queries and keys are rotated alike",
    source="a plausible slip: a rotation that both get cancels in the product",
    effect="Each word looks at itself: a dot product does not change when both vectors turn.",
    hint="Your queries look at themselves. What happens to a dot product when both vectors "
    "are turned by the same angle?",
)
def both_turned(d_model, offset):
    rotation = shifted(offset, d_model)
    return 1000.0 * rotation, rotation


@misconception(
    "M309",
    "softmax_backward",
    title="the weight in front of the bracket is forgotten",
    source="a model in a student's role",
    effect="Keys without weight get a gradient, as if they could be taken away from.",
    hint="What you return has to be multiplied by the weights once more. What is the factor in "
    "front of the bracket?",
)
def no_weight_in_front(weights, upstream):
    return upstream - (weights * upstream).sum(dim=-1, keepdim=True)


@misconception(
    "M310",
    "softmax_backward",
    title="a plain sum of the gradients",
    source="a model in a student's role",
    effect="The more keys there are, the more is taken off.",
    hint="What you take off is the plain sum of the gradients along the keys. With which weights "
    "does the output sum?",
)
def plain_sum(weights, upstream):
    return weights * (upstream - upstream.sum(dim=-1, keepdim=True))


@misconception(
    "M311",
    "attention_weights",
    title="the paper's divisor written into the code",
    source="a model in a student's role: 8, which is √64, whatever the width",
    effect="Right for heads of 64 channels, and wrong for every other width.",
    hint="Your divisor is 8 for every width. How wide are these queries?",
)
def divided_by_eight(query, key):
    return (query @ key.transpose(-2, -1) / 8).softmax(dim=-1)


@misconception(
    "M431",
    "attention",
    title="NaN replaced after the softmax",
    source="common: −∞ added, then nan_to_num",
    effect="The numbers are right, and every gradient that passes the empty row is NaN.",
    hint="Your numbers are right, and the gradient is NaN where a query may see nothing: it passes "
    "the place where the NaN arose. Can you keep it from arising?",
)
def nan_replaced(query, key, value, mask):
    scores = _scores(query, key)
    if mask is not None:
        scores = scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1).nan_to_num(0.0)
    return weights @ value, weights


@misconception(
    "M432",
    "attention",
    title="blocked with a number that is not small enough",
    source="common: −100 for −∞",
    effect="Where allowed scores are lower than that, what is blocked gets all the weight.",
    hint="With scores far below zero, blocked keys get the weight. Which number is below all?",
)
def not_small_enough(query, key, value, mask):
    scores = _scores(query, key)
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        weights = scores.masked_fill(~mask, -100.0).softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value, weights


@misconception(
    "M434",
    "attention",
    title="scores and weights multiplied by the mask",
    source="a plausible slip: the mask as a factor, before and after",
    effect="A blocked score of 0 takes part in the softmax: the rest adds up to less than 1.",
    hint="With a mask, the weights of a query do not add up to 1: a blocked score of 0 is a score "
    "like any other. Which one leaves nothing in the softmax?",
)
def multiplied_by_the_mask(query, key, value, mask):
    scores = _scores(query, key)
    if mask is None:
        return scores.softmax(dim=-1) @ value, scores.softmax(dim=-1)
    weights = (scores * mask).softmax(dim=-1) * mask
    return weights @ value, weights


@misconception(
    "M478",
    "softmax_backward",
    title="the sum runs over the queries",
    source="answers in a trial of the checks: dim=-2, or einsum with the wrong letter",
    effect="Queries that have nothing to do with each other pull at each other's scores.",
    hint="Your sum runs down the queries. Which weights add up to 1 together?",
)
def sum_over_queries(weights, upstream):
    return weights * (upstream - (weights * upstream).sum(dim=-2, keepdim=True))


@misconception(
    "M479",
    "ignores_order",
    title="rolled without saying along which axis",
    source="answers in a trial of the checks: key.roll(1)",
    effect="Right attention fails: numbers slip from one key into the next.",
    hint="Your keys are no longer the same vectors, or have moved to another sentence. Along which "
    "axis do the keys lie, and does your code say so?",
)
def rolled_flat(attend):
    query, key, value = torch.randn(2, 4, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8)
    moved = attend(query, key.roll(1), value.roll(1))
    return torch.allclose(attend(query, key, value), moved, atol=1e-5)


@misconception(
    "M480",
    "ignores_order",
    title="a single query",
    source="an answer in a trial of the checks",
    effect="A program that treats only later queries wrongly passes.",
    hint="One kind of program passes that should not: it treats the first query rightly, and later "
    "ones not. How many queries do you try?",
)
def single_query(attend):
    query, key, value = torch.randn(2, 1, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8)
    order = torch.arange(7).roll(3)
    moved = attend(query, key[:, order], value[:, order])
    return torch.allclose(attend(query, key, value), moved, atol=1e-5)


@misconception(
    "M481",
    "look_back",
    title="the matrix is made for the other layout",
    source="answers in a trial of the checks: all sines in front of all cosines",
    effect="Other channels are rotated together than belong together.",
    hint="Your matrix rotates channel i together with channel i + d_model/2. Which two channels "
    "are sine and cosine of one angle in the paper's layout?",
)
def rotated_in_halves(d_model, offset):
    return 1000.0 * shifted(offset, d_model, halves=True), torch.eye(d_model)


@misconception(
    "M482",
    "look_back",
    title="the factor fits some widths only",
    source="an answer in a trial of the checks: found by trying d_model = 64",
    effect="With few channels the right place wins by too little.",
    hint="With many channels it works, with few the right place wins by too little: there "
    "neighbors are more alike. How large may the factor be?",
)
def factor_for_many_channels(d_model, offset):
    return 24.0 * shifted(offset, d_model), torch.eye(d_model)


@misconception(
    "M509",
    "ignores_order",
    title="self-attention alone is tried",
    source="an answer in a trial of the checks: queries, keys and values moved together",
    effect="A program in which a query prefers the key at its own place passes.",
    hint="Your queries move along with the keys. A program in which each query prefers the key at "
    "its own place passes then: what may stay where it is?",
)
def all_three_moved(attend):
    query, key, value = torch.randn(3, 2, 7, 8)
    order = torch.arange(7).roll(3)
    moved = attend(query[:, order], key[:, order], value[:, order])
    return torch.allclose(attend(query, key, value)[:, order], moved, atol=1e-5)


@misconception(
    "M521",
    "softmax_backward",
    title="the gradient of log-softmax",
    source="an answer in a trial of the checks",
    effect="A gradient even where a weight is 0 or 1 and nothing can change it.",
    hint="That is the way back through log-softmax. What is ∂w/∂s where there is no logarithm?",
)
def of_log_softmax(weights, upstream):
    return upstream - weights * upstream.sum(dim=-1, keepdim=True)


@misconception(
    "M522",
    "softmax_backward",
    title="one sum for all queries",
    source="an answer in a trial of the checks: sum() without an axis",
    effect="Right for a single query; with several, each gets what belongs to the others.",
    hint="Your sum runs over everything there is. How many sums does it take, and of what?",
)
def one_sum_for_all(weights, upstream):
    return weights * (upstream - (weights * upstream).sum())


@misconception(
    "M544",
    "ignores_order",
    title="a test that moves nothing",
    source="an answer in a trial of the checks: flip(0), with a batch of one",
    effect="Every program passes.",
    hint="Every program passes your test. Along which axis are the keys, and does what you do to "
    "them move anything?",
)
def nothing_moved(attend):
    query, key, value = torch.randn(3, 1, 7, 8)
    moved = attend(query, key.flip(0), value.flip(0))
    return torch.allclose(attend(query, key, value), moved, atol=1e-5)


@misconception(
    "M547",
    "attention",
    title="the largest score is subtracted, even if it is a blocked one",
    source="an answer in a trial of the checks: softmax by hand, masked after the exponential",
    effect="Where a blocked score is the largest by far, all that is allowed is rounded to 0.",
    hint="With large scores some queries' weights add up to 0. A softmax takes off each query's "
    "largest score: may that be the score of a blocked key?",
)
def largest_of_all_taken_off(query, key, value, mask):
    shares = _shares(query, key, mask)
    weights = shares / shares.sum(dim=-1, keepdim=True).clamp(min=1e-9)
    return weights @ value, weights


@misconception(
    "M548",
    "self_attention",
    title="the channels of query, key and value are mixed",
    source="an answer in a trial of the checks: one product for all three, cut as (d_k, 3)",
    effect="Each of the three has channels of the others.",
    hint="Your result has the right shape. If you multiply by all three matrices at once, in which "
    "order do the columns of the product lie?",
)
def three_in_one_mixed(x, w_q, w_k, w_v):
    joined = x @ torch.cat([w_q, w_k, w_v], dim=1)
    query, key, value = joined.unflatten(-1, (-1, 3)).unbind(-1)
    return _weights(_scores(query, key), None) @ value


@misconception(
    "M566",
    "attention_weights",
    title="a softmax that chooses its axis itself",
    source="an answer in a trial of the checks: F.softmax without dim",
    effect="PyTorch takes the first axis of three, and the second of four: weights of different "
    "sentences, or of different heads, add up to 1.",
    hint="Add up the weights of one query: they are not 1. Along which axis does F.softmax run if "
    "you do not tell it?",
)
def weights_over_sentences(query, key):
    return _scores(query, key).softmax(dim=0)


@also("M566", "self_attention")
def self_attention_over_sentences(x, w_q, w_k, w_v):
    return weights_over_sentences(x @ w_q, x @ w_k) @ (x @ w_v)


@misconception(
    "M586",
    "softmax_backward",
    title="axes of length 1 are lost",
    source="an answer in a trial of the checks: squeeze() without its axis",
    effect="Right until there is one sentence, or one query.",
    hint="Where an axis has length 1, it is missing from your result. Does squeeze, or an index, "
    "take it away?",
)
def squeezed(weights, upstream):
    return (weights * (upstream - (weights * upstream).sum(dim=-1, keepdim=True))).squeeze()


@misconception(
    "M633",
    "attention",
    title="the largest score is subtracted, even a blocked one, and 10⁻⁹ is added to the sum",
    source="two answers in a trial of the checks: softmax by hand, safe against empty rows",
    effect="Where a blocked score is the largest by far, the weights add up to less than 1.",
    hint="With large scores some queries' weights add up to less than 1. May the score that you "
    "subtract be that of a blocked key, and what is 10⁻⁹ beside the sum then?",
)
def largest_of_all_and_a_little(query, key, value, mask):
    shares = _shares(query, key, mask)
    weights = shares / (shares.sum(dim=-1, keepdim=True) + 1e-9)
    return weights @ value, weights


@misconception(
    "M789",
    "ignores_order",
    title="two keys at fixed places change places",
    source="an answer in a trial of the checks: the first two are exchanged",
    effect="A program that treats another place differently passes.",
    hint="You exchange keys at the same two places each time. What if the program treats another "
    "place differently?",
)
def first_two_exchanged(attend):
    query, key, value = torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    order = [1, 0, 2, 3, 4]
    return torch.allclose(
        attend(query, key, value), attend(query, key[:, order], value[:, order]), atol=1e-5
    )


@misconception(
    "M790",
    "softmax",
    title="large scores cut off",
    source="an answer in a trial of the checks: clamp(max=80), so that no exponential overflows",
    effect="Scores above the limit become equal, and have no gradient.",
    hint="Large scores become equal in yours. What can be taken off all scores of a row without "
    "changing the result?",
)
def cut_off(scores):
    exponentials = scores.clamp(max=80.0).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@misconception(
    "M828",
    "ignores_order",
    title="an order that is its own opposite",
    source="an answer in a trial of the checks: flip",
    effect="Attention that reads keys and values in opposite orders passes.",
    hint="Your order turns the sequence around, and turned around twice it is as it was. Try one "
    "that is not its own opposite, such as roll.",
)
def turned_around(attend):
    query, key, value = torch.randn(2, 4, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8)
    moved = attend(query, key.flip(1), value.flip(1))
    return torch.allclose(attend(query, key, value), moved, atol=1e-5)


@misconception(
    "M832",
    "softmax",
    title="the mean is taken off instead of the largest score",
    source="an answer in a trial of the checks: scores − scores.mean()",
    effect="A score far above the others still overflows, and the row becomes NaN.",
    hint="It helps to take something off all scores of a row, but in yours the largest exponential "
    "can still be infinite. What, taken off, leaves no number above 0?",
)
def mean_taken_off(scores):
    exponentials = (scores - scores.mean(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)
