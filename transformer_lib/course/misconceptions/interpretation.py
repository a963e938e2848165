"""Mistakes in measuring what attention looks at."""

import torch

from transformer_lib.course.misconceptions.bank import misconception


@misconception(
    "M191",
    "offset_share",
    title="the offset's sign is turned round",
    source="a plausible slip: rows and columns confused",
    effect="A head that looks at the token before is reported as one that looks at the token "
    "after.",
    hint="At offset 0 you are right. In which direction does a key that stands before its query "
    "lie?",
)
def sign_turned(weights, offset):
    return weights.diagonal(-offset, dim1=-2, dim2=-1).mean(dim=-1)


@misconception(
    "M192",
    "offset_share",
    title="divided by the length",
    source="a plausible slip: the first query has no token before it, and is counted all the same",
    effect="Shares are too small, in short sentences the most.",
    hint="At offset 0 you are right, elsewhere too small. How many queries have a key at this "
    "offset?",
)
def divided_by_the_length(weights, offset):
    return weights.diagonal(offset, dim1=-2, dim2=-1).sum(dim=-1) / weights.size(-1)


@misconception(
    "M193",
    "offset_share",
    title="counted by the largest weight",
    source="common in papers: a head “looks at” the token with its largest weight",
    effect="Another measure: it says how often, not how much.",
    hint="Your results are shares of whole queries. Asked for is the mean weight itself.",
)
def counted_by_the_largest(weights, offset):
    length = weights.size(-1)
    places = torch.arange(length)
    meant = places + offset
    exists = (meant >= 0) & (meant < length)
    hits = weights.argmax(dim=-1)[:, exists] == meant[exists]
    return hits.to(weights.dtype).mean(dim=-1)


@misconception(
    "M194",
    "offset_share",
    title="one number for all heads",
    source="a plausible slip: mean() without a dimension",
    effect="Heads that do opposite things cancel out.",
    hint="You return one number. Asked for is one for each head.",
)
def heads_together(weights, offset):
    return weights.diagonal(offset, dim1=-2, dim2=-1).mean()


def _roll(layers):
    rollout = torch.eye(layers[0].size(-1), dtype=layers[0].dtype)
    for layer in layers:
        rollout = layer @ rollout
    return rollout


def _with_residual(weights):
    identity = torch.eye(weights.size(-1), dtype=weights.dtype)
    return [0.5 * layer.mean(dim=0) + 0.5 * identity for layer in weights]


@misconception(
    "M195",
    "attention_rollout",
    title="the residual connection is left out",
    source="common: products of attention matrices alone",
    effect="Most of what a token knows comes along the residual connection, from itself; without "
    "it every token seems to depend on all others.",
    hint="On which way, besides attention, does a layer's input reach its output?",
)
def without_the_residual(weights):
    return _roll([layer.mean(dim=0) for layer in weights])


@misconception(
    "M196",
    "attention_rollout",
    title="multiplied in the wrong order",
    source="a plausible slip",
    effect="The result still has rows that add up to 1; it belongs to a model whose last layer "
    "comes first.",
    hint="With one layer you are right. Row i of A says what output i is made of: what are those "
    "made of, and on which side does the earlier layer stand?",
)
def wrong_order(weights):
    return _roll(_with_residual(weights)[::-1])


@misconception(
    "M197",
    "attention_rollout",
    title="rows do not add up to 1",
    source="a plausible slip: A + I without halving",
    effect="Everything is too large by a factor of two for each layer.",
    hint="Add up a row of your result. How much of a token should be accounted for in all?",
)
def not_halved(weights):
    return _roll([2.0 * layer for layer in _with_residual(weights)])


@misconception(
    "M198",
    "attention_rollout",
    title="multiplied number by number",
    source="a plausible slip: * for @",
    effect="A path must then begin and end with the same pair of tokens in every layer.",
    hint="With one layer you are right. Paths go from token to token to token: which product sums "
    "over the token in the middle?",
)
def number_by_number(weights):
    rollout, *others = _with_residual(weights)
    for layer in others:
        rollout = rollout * layer
    return rollout


@misconception(
    "M199",
    "attention_rollout",
    title="the last layer alone",
    source="common: pictures of the last layer",
    effect="What the layers below have mixed already is not seen.",
    hint="With one layer you are right. Do the lower layers have any influence on your result?",
)
def last_layer_alone(weights):
    return _with_residual(weights)[-1]


@misconception(
    "M225",
    "offset_share",
    title="wrapped round the ends",
    source="an answer in a trial of the checks: torch.roll, or a negative index",
    effect="Queries without such a key are counted with a key from the other end of the sentence.",
    hint="What does the first query have one place before it? In your code it has the last key.",
)
def wrapped_round(weights, offset):
    rows = torch.arange(weights.size(-1))
    return weights[:, rows, (rows + offset) % len(rows)].mean(dim=-1)


@misconception(
    "M242",
    "attention_rollout",
    title="the largest head, not the mean of the heads",
    source="common: implementations for pictures offer the maximum, too",
    effect="What one head alone looks at is taken for what the layer looks at.",
    hint="With one head you are right. How does the definition make one matrix of several heads?",
)
def largest_head(weights):
    fused = weights.amax(dim=1) + torch.eye(weights.size(-1), dtype=weights.dtype)
    rollout = torch.eye(weights.size(-1), dtype=weights.dtype)
    for layer in fused / fused.sum(dim=-1, keepdim=True):
        rollout = layer @ rollout
    return rollout


@misconception(
    "M558",
    "attention_rollout",
    title="the residual connection once, at the end",
    source="an answer in a trial of the checks",
    effect="With several layers, far too little stays where it was.",
    hint="With one layer you are right. How often does a vector pass a residual connection?",
)
def residual_at_the_end(weights):
    mean = weights.mean(dim=1)
    total = mean[0]
    for layer in mean[1:]:
        total = layer @ total
    return 0.5 * total + 0.5 * torch.eye(total.size(0), dtype=total.dtype)


@misconception(
    "M559",
    "offset_share",
    title="divided by length − offset, whatever the offset's sign",
    source="an answer in a trial of the checks",
    effect="Shares of the tokens before are too small, the shorter the sentence the more.",
    hint="At offset 0 and to the right you are right, to the left too small. How many queries have "
    "a key two places before them?",
)
def divided_without_the_absolute(weights, offset):
    shares = weights.diagonal(offset, dim1=-2, dim2=-1).sum(dim=-1)
    return shares / (weights.size(-1) - offset)


@misconception(
    "M560",
    "offset_share",
    title="the diagonal of the wrong axes",
    source="an answer in a trial of the checks: diagonal() without axes takes the first two",
    effect="A number for each key, not for each head.",
    hint="You have a number for each key. Between which two axes does diagonal() look, unless it "
    "is told?",
)
def diagonal_of_the_first_axes(weights, offset):
    return weights.diagonal(offset).mean(dim=-1)
