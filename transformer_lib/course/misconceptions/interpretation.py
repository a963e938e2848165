"""Mistakes in measuring what attention looks at, what heads add and what states bring."""

import torch

from transformer_lib.course.misconceptions.bank import misconception
from transformer_lib.model.scaled_dot_product import attention


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
    hint="At other offsets than 0 your shares are too small. How many queries have a key at this "
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


def _without(query, key, value, mask, factor):
    """The output of attention, times a factor for each head."""
    output, _ = attention(query, key, value, mask)
    return output * factor[:, None, None]


def _kept(query, switched_off, first=1):
    factor = torch.ones(query.size(1), dtype=query.dtype)
    factor[[number - first for number in switched_off]] = 0.0
    return factor


@misconception(
    "M667",
    "attention_without",
    title="counted from 0",
    source="a plausible slip: the head's number as an index",
    effect="The neighbor of the head is switched off; the last one is out of range.",
    hint="With head 1 you silence the second one. What is the index of the first head?",
)
def counted_from_0(query, key, value, mask, switched_off):
    return _without(query, key, value, mask, _kept(query, switched_off, first=0))


@misconception(
    "M668",
    "attention_without",
    title="all others are switched off",
    source="a plausible slip: kept and silenced exchanged",
    effect="Measures what a head does alone, not what the model does without it.",
    hint="With an empty list everything is zero. Which heads are to be silent?",
)
def all_others(query, key, value, mask, switched_off):
    return _without(query, key, value, mask, 1.0 - _kept(query, switched_off))


@misconception(
    "M669",
    "attention_without",
    title="sentences of the batch are switched off",
    source="a plausible slip: output[i] for output[:, i]",
    effect="Whole sentences get no attention, and all heads stay.",
    hint="What you set to zero are sentences. Which axis are the heads?",
)
def first_axis(query, key, value, mask, switched_off):
    output, _ = attention(query, key, value, mask)
    output = output.clone()
    output[[number - 1 for number in switched_off]] = 0.0
    return output


@misconception(
    "M670",
    "attention_without",
    title="positions are switched off",
    source="a plausible slip: output[:, :, i] for output[:, i]",
    effect="All heads stay, and some positions get nothing.",
    hint="What you set to zero are positions. Which axis are the heads?",
)
def third_axis(query, key, value, mask, switched_off):
    output, _ = attention(query, key, value, mask)
    output = output.clone()
    output[:, :, [number - 1 for number in switched_off]] = 0.0
    return output


@misconception(
    "M957",
    "attention_without",
    title="all heads from the first to the last of the list",
    source="an answer in a trial of the checks: a slice from the first number to the last",
    effect="Heads between two that are to be silent are silent, too.",
    hint="Where one head is to be silent you are right, and where all are. If it is heads 2 and 4, "
    "what does your head 3 say?",
)
def from_first_to_last(query, key, value, mask, switched_off):
    between = range(min(switched_off), max(switched_off) + 1) if switched_off else []
    return _without(query, key, value, mask, _kept(query, list(between)))


@misconception(
    "M671",
    "attention_without",
    title="scores of zero for a head of zero",
    source="a plausible slip: the head's queries are set to zero",
    effect="The head looks at all keys alike, and adds the mean of the values.",
    hint="Your silenced head still says something: the mean of its values. What comes after the "
    "softmax?",
)
def looks_everywhere(query, key, value, mask, switched_off):
    silenced = query * _kept(query, switched_off)[:, None, None]
    output, _ = attention(silenced, key, value, mask)
    return output


@misconception(
    "M672",
    "attention_without",
    title="the others are made louder",
    source="a plausible slip: as dropout does it",
    effect="Heads that stay give more than before, which is another change of the model.",
    hint="The heads that stay give more than before. Is anything said of making up for the others?",
)
def made_up_for(query, key, value, mask, switched_off):
    factor = _kept(query, switched_off)
    return _without(query, key, value, mask, factor * len(factor) / factor.sum().clamp(min=1))


@misconception(
    "M673",
    "attention_without",
    title="the mask is left out",
    source="a plausible slip",
    effect="Where something is masked, the other heads see it now.",
    hint="Without a mask you are right. Do you hand it on?",
)
def without_the_mask(query, key, value, mask, switched_off):
    return _without(query, key, value, None, _kept(query, switched_off))


@misconception(
    "M674",
    "attention_without",
    title="taken out, not set to zero",
    source="a plausible slip: the head is deleted",
    effect="The heads behind it move up, and W^O multiplies them by another head's numbers.",
    hint="Your output has fewer heads. What does W^O expect in their place?",
)
def taken_out(query, key, value, mask, switched_off):
    output, _ = attention(query, key, value, mask)
    return output[:, [n for n in range(query.size(1)) if n + 1 not in switched_off]]


@misconception(
    "M675",
    "attention_without",
    title="output and weights",
    source="a plausible slip: what attention returns is handed on",
    effect="The layer that calls it expects one tensor.",
    hint="You return two things. Which of them is asked for?",
)
def both_results(query, key, value, mask, switched_off):
    _, weights = attention(query, key, value, mask)
    return _without(query, key, value, mask, _kept(query, switched_off)), weights


def _per_head(output_weight, heads):
    return output_weight.view(len(output_weight), heads, -1)


def _added(weights, value, per_head):
    """What each key adds to each query, by head: (heads, queries, keys, d_model)."""
    return torch.einsum("hqk,hkd,ohd->hqko", weights, value, per_head)


@misconception(
    "M676",
    "contribution_norms",
    title="the weights alone",
    source="common: pictures of attention weights",
    effect="A bright field at a short value seems to add much.",
    hint="Your numbers do not depend on the values. What is a weight multiplied by?",
)
def weights_alone(weights, value, output_weight):
    return weights.mean(dim=0)


@misconception(
    "M677",
    "contribution_norms",
    title="W^O is left out",
    source="a simplification: weight times the length of the value",
    effect="Heads whose output W^O makes small count as much as the others.",
    hint="What each head adds passes one more matrix before it is added. Does it occur in yours?",
)
def without_the_projection(weights, value, output_weight):
    added = torch.einsum("hqk,hkd->qkhd", weights, value)
    return added.flatten(2).norm(dim=-1)


@misconception(
    "M678",
    "contribution_norms",
    title="the heads' lengths added up",
    source="a plausible slip: norm before the sum",
    effect="Heads that cancel each other seem to add twice as much.",
    hint="With one head you are right. Two heads may add opposite vectors: what comes first, the "
    "sum or the length?",
)
def lengths_added(weights, value, output_weight):
    return _added(weights, value, _per_head(output_weight, len(value))).norm(dim=-1).sum(dim=0)


@misconception(
    "M958",
    "contribution_norms",
    title="the heads' lengths added as if at right angles",
    source="an answer in a trial of the checks: the root of the sum of the squared lengths",
    effect="Heads that add opposite vectors seem to add much, and those that agree too little.",
    hint="With one head you are right. With two you add squared lengths: what if their vectors are "
    "opposite?",
)
def at_right_angles(weights, value, output_weight):
    return _added(weights, value, _per_head(output_weight, len(value))).norm(dim=(0, 3))


@misconception(
    "M679",
    "contribution_norms",
    title="the mean over the heads",
    source="a plausible slip: mean for sum",
    effect="Too small, by the number of heads.",
    hint="Your numbers are too small by one factor. Does W^O take the mean of the heads?",
)
def mean_over_heads(weights, value, output_weight):
    return _added(weights, value, _per_head(output_weight, len(value))).mean(dim=0).norm(dim=-1)


@misconception(
    "M680",
    "contribution_norms",
    title="W^O not transposed",
    source="a plausible slip: x W for x W^T",
    effect="Rows and columns of the matrix are exchanged.",
    hint="A weight in PyTorch's form is (d_out, d_in). By which of its axes do you multiply?",
)
def projection_not_transposed(weights, value, output_weight):
    per_head = _per_head(output_weight.T, len(value))
    return _added(weights, value, per_head).sum(dim=0).norm(dim=-1)


@misconception(
    "M681",
    "contribution_norms",
    title="heads' channels interleaved",
    source="a plausible slip: reshape without a transpose",
    effect="Each head meets another head's columns of W^O.",
    hint="With one head you are right. Which columns of W^O belong to the first head?",
)
def interleaved(weights, value, output_weight):
    heads, _, d_k = value.shape
    per_head = output_weight.view(len(output_weight), d_k, heads).transpose(1, 2)
    return _added(weights, value, per_head).sum(dim=0).norm(dim=-1)


@misconception(
    "M682",
    "contribution_norms",
    title="the length squared",
    source="a plausible slip: no root",
    effect="What is twice as long counts four times.",
    hint="Yours are the squares of the right numbers. What is missing of a length?",
)
def squared(weights, value, output_weight):
    added = _added(weights, value, _per_head(output_weight, len(value))).sum(dim=0)
    return added.square().sum(dim=-1)


@misconception(
    "M683",
    "contribution_norms",
    title="shares of each query",
    source="a plausible slip: divided by their sum",
    effect="How much is added in all is lost.",
    hint="Your rows add up to 1. Asked for are the lengths themselves.",
)
def as_shares(weights, value, output_weight):
    added = _added(weights, value, _per_head(output_weight, len(value))).sum(dim=0)
    lengths = added.norm(dim=-1)
    return lengths / lengths.sum(dim=-1, keepdim=True)


@misconception(
    "M684",
    "contribution_norms",
    title="the length of the whole output",
    source="a plausible slip: summed over the keys before the length",
    effect="One number for each query: which key it came from is lost.",
    hint="You return a number for each query. Asked for is one for each query and key.",
)
def of_the_whole_output(weights, value, output_weight):
    added = _added(weights, value, _per_head(output_weight, len(value)))
    return added.sum(dim=(0, 2)).norm(dim=-1)


@misconception(
    "M763",
    "contribution_norms",
    title="the heads' mean weight, times the whole value",
    source="an answer in a trial of the checks",
    effect="Which head looked where is lost before the vectors are added.",
    hint="With one head you are right. With two, which weight multiplies which part of the value?",
)
def mean_weight_times_value(weights, value, output_weight):
    whole = value.transpose(0, 1).flatten(1) @ output_weight.T
    return weights.mean(dim=0) * whole.norm(dim=-1)


@misconception(
    "M764",
    "contribution_norms",
    title="heads merged without a transpose",
    source="an answer in a trial of the checks: reshape(queries, keys, d_model)",
    effect="Numbers of different keys and heads get mixed.",
    hint="With one head you are right. In which order are heads, queries and keys in memory when "
    "you reshape?",
)
def merged_without_transpose(weights, value, output_weight):
    weighted = weights[..., None] * value[:, None]
    merged = weighted.reshape(weights.size(1), weights.size(2), -1)
    return (merged @ output_weight.T).norm(dim=-1)


def _log_p(layers, read, x):
    for layer in layers:
        x = layer(x)
    return read(x).log_softmax(dim=-1)


def _states(embed, layers, tokens):
    found = [embed(tokens)]
    for layer in layers:
        found.append(layer(found[-1]))
    return found


def _patched(own, foreign, position):
    patched = own.clone()
    patched[position] = foreign[position]
    return patched


def _effects(
    arguments,
    patched=_patched,
    score=lambda log_p, token, rival: log_p[token] - log_p[rival],
    effect=lambda now, before, after: (now - before) / (after - before),
    left=lambda layers, done, theirs, position: layers[done:],
):
    """As it should be, but for what is switched."""
    embed, layers, read, clean, other, token, rival = arguments
    ours, theirs = _states(embed, layers, clean), _states(embed, layers, other)

    def answer(x, layers):
        return score(_log_p(layers, read, x), token, rival)

    before, after = answer(ours[0], layers), answer(theirs[0], layers)
    effects = torch.empty(len(ours), len(clean))
    for done, (own, foreign) in enumerate(zip(ours, theirs, strict=True)):
        for position in range(len(clean)):
            now = answer(patched(own, foreign, position), left(layers, done, theirs, position))
            effects[done, position] = effect(now, before, after)
    return effects


@misconception(
    "M685",
    "patch_effects",
    title="what was patched stays patched",
    source="a plausible slip: written into the states, not into a copy",
    effect="Each field shows all positions up to it, and the last one of a row is always 1.",
    hint="Along a row your effects grow to 1. Is the state of the position before back in its "
    "place?",
)
def stays_patched(*arguments):
    def in_place(own, foreign, position):
        own[position] = foreign[position]
        return own

    return _effects(arguments, patched=in_place)


@misconception(
    "M686",
    "patch_effects",
    title="the difference is not divided",
    source="a plausible slip",
    effect="Effects in nats, which cannot be compared between sentences.",
    hint="Yours are the right ones times one number. What should a state give that brings the "
    "other sentence's whole answer?",
)
def not_divided(*arguments):
    return _effects(arguments, effect=lambda now, before, after: now - before)


@misconception(
    "M687",
    "patch_effects",
    title="0 and 1 exchanged",
    source="a plausible slip: measured from the other sentence",
    effect="Where nothing is changed there is a 1.",
    hint="Yours and the right ones add up to 1. What is the effect where the answer stays?",
)
def measured_from_the_other(*arguments):
    return _effects(arguments, effect=lambda now, before, after: (after - now) / (after - before))


@misconception(
    "M688",
    "patch_effects",
    title="the other sentence is patched",
    source="a plausible slip: clean and other exchanged",
    effect="Says what is lost without a state, not what a state brings.",
    hint="Whose states are replaced, and by whose? In yours those of `other` are replaced.",
)
def the_other_way_round(embed, layers, read, clean, other, token, rival):
    return _effects((embed, layers, read, other, clean, token, rival))


@misconception(
    "M689",
    "patch_effects",
    title="tokens are exchanged, not states",
    source="a plausible slip: the sentence is changed and read anew",
    effect="All rows are the same as the first one: what later layers hold is not asked.",
    hint="Your first row is right, and all others are equal to it. What is replaced in row 2?",
)
def tokens_exchanged(embed, layers, read, clean, other, token, rival):
    first = _effects((embed, layers, read, clean, other, token, rival))[:1]
    return first.repeat(len(layers) + 1, 1)


@misconception(
    "M690",
    "patch_effects",
    title="all layers run again",
    source="a plausible slip: the whole stack over a patched state",
    effect="Behind the first row the states pass layers twice.",
    hint="Your first row is right. How many layers are left to run for a state from behind the "
    "first one?",
)
def all_layers_again(*arguments):
    return _effects(arguments, left=lambda layers, *_: layers)


@misconception(
    "M691",
    "patch_effects",
    title="one layer too few behind a state",
    source="a plausible slip: layers[done + 1:]",
    effect="Each row skips a layer.",
    hint="Which layer comes next for the embeddings? In yours it is skipped.",
)
def one_layer_skipped(*arguments):
    return _effects(arguments, left=lambda layers, done, *_: layers[done + 1 :])


@misconception(
    "M692",
    "patch_effects",
    title="probabilities for their logarithms",
    source="a plausible slip: softmax for log_softmax",
    effect="Where a token is nearly certain or nearly impossible, hardly anything is seen to "
    "change.",
    hint="What you compare are probabilities. The answer is a difference of which numbers?",
)
def probabilities(*arguments):
    return _effects(
        arguments, score=lambda log_p, token, rival: log_p[token].exp() - log_p[rival].exp()
    )


@misconception(
    "M693",
    "patch_effects",
    title="the token without its rival",
    source="a plausible slip",
    effect="Counts, too, what moves all tokens.",
    hint="`rival` has no influence on your result. What is the token compared with?",
)
def without_the_rival(*arguments):
    return _effects(arguments, score=lambda log_p, token, rival: log_p[token])


@misconception(
    "M694",
    "patch_effects",
    title="the embeddings are left out",
    source="a plausible slip: states after layers only",
    effect="One row is missing, the one that shows where the sentences differ.",
    hint="Your result has one row too few. What is row 0?",
)
def without_the_embeddings(*arguments):
    return _effects(arguments)[1:]


@misconception(
    "M695",
    "patch_effects",
    title="the last states are left out",
    source="a plausible slip: one row for each layer's input",
    effect="One row is missing, the one that the decoder reads.",
    hint="Your result has one row too few. With two layers, how many states are there?",
)
def without_the_last(*arguments):
    return _effects(arguments)[:-1]


@misconception(
    "M696",
    "patch_effects",
    title="everything from this position on",
    source="a plausible slip: a slice for an index",
    effect="The first field is always 1.",
    hint="Your first column is 1 everywhere. How many positions are replaced at a time?",
)
def from_here_on(*arguments):
    def patched(own, foreign, position):
        return torch.cat([own[:position], foreign[position:]])

    return _effects(arguments, patched=patched)


@misconception(
    "M774",
    "patch_effects",
    title="put in again after every layer",
    source="an answer in a trial of the checks",
    effect="What a state brings at one depth cannot be told from what later states bring.",
    hint="Your last row is right. At how many depths is a state replaced in one run?",
)
def put_in_again(*arguments):
    def left(layers, done, theirs, position):
        return [
            lambda x, layer=layer, foreign=foreign: _patched(layer(x), foreign, position)
            for layer, foreign in zip(layers[done:], theirs[done + 1 :], strict=True)
        ]

    return _effects(arguments, left=left)


@misconception(
    "M782",
    "patch_effects",
    title="effects beyond 0 and 1 are cut off",
    source="an answer in a trial of the checks",
    effect="A state that moves the answer past the other sentence's, or away from it, is not seen.",
    hint="No effect of yours is below 0 or above 1. Must a single state stay between the two "
    "sentences?",
)
def cut_off(*arguments):
    return _effects(arguments).clamp(0.0, 1.0)


@misconception(
    "M786",
    "attention_rollout",
    title="a rollout for each head, and the mean at the end",
    source="an answer in a trial of the checks",
    effect="As though a head read only what the heads of its own number had written.",
    hint="With one layer or one head you are right. When are the heads of a layer joined: in the "
    "layer, or after all layers?",
)
def mean_at_the_end(weights):
    mixed = (weights + torch.eye(weights.size(-1), dtype=weights.dtype)) / 2
    return _roll(mixed).mean(dim=0)
