"""Mistakes in the exercises of assignments 4 and 5: a loss, a search, a score and a test."""

import math
from collections import Counter

import torch

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.metrics.bleu import ngram_counts
from transformer_lib.training.loss import label_smoothed_cross_entropy
from transformer_lib.vocabulary import BOS, EOS, PAD, UNK

# The loss


def _each(logits, labels, smoothing, right=None, left_out=2, padding=False):
    """−Σ q·log p of each token; of V pieces V − ``left_out`` are said to share ``smoothing``."""
    log_p = logits.log_softmax(dim=-1)
    likely = log_p.gather(1, labels[:, None])[:, 0]
    others = log_p.sum(dim=-1) - likely - (0.0 if padding else log_p[:, PAD])
    right = 1 - smoothing if right is None else right
    return -right * likely - smoothing * others / (logits.size(1) - left_out)


def _mean(loss, labels):
    return loss[labels != PAD].mean()


@misconception(
    "M441",
    "smooth_among_others",
    title="ε shared among all pieces, as in the chapter",
    source="a plausible slip: ε/V, which is PyTorch's",
    effect="Padding and the right piece get a share: a little is learned about saying padding.",
    hint="That is the loss of chapter 11, where all V pieces share ε. Who shares it here?",
)
def smoothed_among_all(logits, labels, smoothing):
    total = label_smoothed_cross_entropy(logits, labels, smoothing)
    return total / (labels != PAD).sum()


@misconception(
    "M442",
    "smooth_among_others",
    title="padding gets a share of ε",
    source="Tensor2Tensor's convention, ε/(V − 1), which the task does not ask for",
    effect="A little of each step goes into saying padding, which is never right.",
    hint="You are close. One piece can never be the right one: does it get a share in yours?",
)
def padding_gets_a_share(logits, labels, smoothing):
    return _mean(_each(logits, labels, smoothing, left_out=1, padding=True), labels)


@misconception(
    "M443",
    "smooth_among_others",
    title="the share of each is too small",
    source="a plausible slip: padding is left out of the sum, but still counted",
    effect="The target does not add up to 1.",
    hint="Add your q up: it is not 1. How many pieces share ε?",
)
def too_many_counted(logits, labels, smoothing):
    return _mean(_each(logits, labels, smoothing, left_out=1), labels)


@misconception(
    "M444",
    "smooth_among_others",
    title="the right piece gets a share on top",
    source="a plausible slip: q filled with ε/(V − 2), then 1 − ε added",
    effect="The target adds up to 1 + ε/(V − 2).",
    hint="Add your q up: it is more than 1. What does the right piece get?",
)
def right_piece_on_top(logits, labels, smoothing):
    right = 1 - smoothing + smoothing / (logits.size(1) - 2)
    return _mean(_each(logits, labels, smoothing, right), labels)


@misconception(
    "M457",
    "smooth_among_others",
    title="the divergence instead of the cross-entropy",
    source="The Annotated Transformer's own loss: nn.KLDivLoss",
    effect="The same gradient, and a loss that is smaller by the entropy of q.",
    hint="Your loss is too small by the same amount for each token, Σ q·log q. Which of the two is "
    "asked for, the cross-entropy or the divergence?",
)
def divergence(logits, labels, smoothing):
    share = smoothing / (logits.size(1) - 2)
    q = torch.tensor([1 - smoothing] + [share] * (logits.size(1) - 2), dtype=logits.dtype)
    return _mean(_each(logits, labels, smoothing), labels) - torch.special.entr(q).sum()


@misconception(
    "M458",
    "smooth_among_others",
    title="padding keeps its share",
    source="answers in a trial of the checks: q filled with ε/(V − 2), padding not set to 0",
    effect="The target adds up to 1 + ε/(V − 2), and a little is learned about saying padding.",
    hint="Add your q up: it is more than 1. What does padding get?",
)
def padding_keeps_its_share(logits, labels, smoothing):
    return _mean(_each(logits, labels, smoothing, padding=True), labels)


@also("M24", "smooth_among_others")
def smoothed_mean_over_padding(logits, labels, smoothing):
    return _each(logits, labels, smoothing).masked_fill(labels == PAD, 0.0).mean()


@also("M108", "smooth_among_others")
def smoothed_padding_counts(logits, labels, smoothing):
    return _each(logits, labels, smoothing).mean()


@also("M110", "smooth_among_others")
def smoothed_summed(logits, labels, smoothing):
    return _each(logits, labels, smoothing)[labels != PAD].sum()


@also("M109", "smooth_among_others")
def smoothed_for_confidence(logits, labels, smoothing):
    return _mean(_each(logits, labels, 1 - smoothing), labels)


@also("M32", "smooth_among_others")
def smoothed_log_of_softmax(logits, labels, smoothing):
    log_p = logits.softmax(dim=-1).log()[labels != PAD]
    likely = log_p.gather(1, labels[labels != PAD, None])[:, 0]
    others = (log_p[:, 1:].sum(dim=-1) - likely) / (logits.size(1) - 2)
    return (-(1 - smoothing) * likely - smoothing * others).mean()


# The search


def _said(next_logits, batch_size, max_len, stops=torch.all, shown=slice(None)):
    """The tokens that are said in each step, (batch, length); ``stops`` looks at who has ended."""
    tokens = torch.full((batch_size, 1), BOS)
    ended = torch.zeros(batch_size, dtype=torch.bool)
    while tokens.size(1) <= max_len and not stops(ended):
        best = next_logits(tokens[:, shown]).argmax(dim=-1)
        ended |= best == EOS
        tokens = torch.cat([tokens, best[:, None]], dim=1)
    return tokens


def _without(rows, *left_out):
    return [[token for token in row if token not in left_out] for row in rows]


def _up_to_end(tokens):
    rows = [[*row, EOS] for row in tokens[:, 1:].tolist()]
    return [row[: row.index(EOS)] for row in rows]


@misconception(
    "M445",
    "greedy_decode_batch",
    title="all stop with the first that ends",
    source="a plausible slip: any() for all()",
    effect="Every translation is as short as the shortest of its batch.",
    hint="Your translations are cut off where the first of them ends. When is the last one done?",
)
def stops_with_the_first(next_logits, batch_size, max_len):
    return _up_to_end(_said(next_logits, batch_size, max_len, stops=torch.any))


@misconception(
    "M446",
    "greedy_decode_batch",
    title="only the last one decides",
    source="a plausible slip: the end looked for in the last row alone",
    effect="Those that are longer than the last sentence of the batch are cut off.",
    hint="Your loop ends with one particular sentence of the batch. Which?",
)
def stops_with_the_last_row(next_logits, batch_size, max_len):
    return _up_to_end(_said(next_logits, batch_size, max_len, stops=lambda ended: ended[-1]))


@also("M123", "greedy_decode_batch")
def batch_does_not_stop(next_logits, batch_size, max_len):
    said = _said(next_logits, batch_size, max_len, stops=lambda ended: False)
    return _without(said[:, 1:].tolist(), EOS)


@also("M121", "greedy_decode_batch")
def batch_specials_kept(next_logits, batch_size, max_len):
    rows = [[*row, EOS] for row in _said(next_logits, batch_size, max_len).tolist()]
    return [row[: row.index(EOS) + 1] for row in rows]


@also("M122", "greedy_decode_batch")
def batch_last_token_only(next_logits, batch_size, max_len):
    return _up_to_end(_said(next_logits, batch_size, max_len, shown=slice(-1, None)))


@also("M15", "greedy_decode_batch")
def batch_without_limit(next_logits, batch_size, max_len):
    return _up_to_end(_said(next_logits, batch_size, 10_000))


# The score


def _closest(length, lengths):
    return min((abs(one - length), one) for one in lengths)[1]


def _clipped(ours, theirs):
    """How many n-grams are right, each as often as the reference has it that has it most often."""
    return sum(min(count, max(one[gram] for one in theirs)) for gram, count in ours.items())


def _geometric(precisions):
    return math.exp(sum(map(math.log, precisions)) / len(precisions))


def _multi(
    hypotheses, references, right=_clipped, choose=_closest, most=4, brevity=True, mean=_geometric
):
    matches, totals, length, wanted = [0] * most, [0] * most, 0, 0
    for hypothesis, several in zip(hypotheses, references, strict=True):
        length += len(hypothesis)
        wanted += choose(len(hypothesis), [len(one) for one in several])
        for n in range(1, most + 1):
            ours = ngram_counts(hypothesis, n)
            matches[n - 1] += right(ours, [ngram_counts(one, n) for one in several])
            totals[n - 1] += ours.total()
    if min(matches) == 0:
        return 0.0
    precision = mean([m / t for m, t in zip(matches, totals, strict=True)])
    return 100 * precision * math.exp(brevity * min(0.0, 1.0 - wanted / length))


@misconception(
    "M447",
    "multi_bleu",
    title="only the first reference counts",
    source="a plausible slip: references[0], as in the chapter",
    effect="A translation that is right in another person's words is wrong again.",
    hint="Change the second reference of a sentence: your score does not move.",
)
def first_reference_only(hypotheses, references):
    return _multi(hypotheses, [several[:1] for several in references])


@misconception(
    "M448",
    "multi_bleu",
    title="the counts of all references are added up",
    source="a plausible slip: + for | between two Counters",
    effect="A word may be repeated as often as it occurs in all references together.",
    hint="A word that is once in each of two references may be said how often? In yours, twice.",
)
def references_added_up(hypotheses, references):
    def right(ours, theirs):
        return (ours & sum(theirs, Counter())).total()

    return _multi(hypotheses, references, right)


@misconception(
    "M449",
    "multi_bleu",
    title="the shortest reference is the measure",
    source="NIST's mteval before version 13: the shortest one, which the task does not ask for",
    effect="Output that leaves something out is not punished where one person was brief.",
    hint="Your brevity penalty is too mild. Which of the references has the length that counts?",
)
def shortest_reference(hypotheses, references):
    return _multi(hypotheses, references, choose=lambda _, lengths: min(lengths))


@misconception(
    "M450",
    "multi_bleu",
    title="of two lengths equally close, the longer one",
    source="a plausible slip: the first of them, or the longer one",
    effect="The score depends on the order of the references, or is too low.",
    hint="Where two references are equally close in length, which one do you take? Here it is the "
    "longer one.",
)
def longer_of_two(hypotheses, references):
    return _multi(
        hypotheses,
        references,
        choose=lambda length, lengths: min(lengths, key=lambda one: (abs(one - length), -one)),
    )


@misconception(
    "M451",
    "multi_bleu",
    title="the mean length of the references",
    source="a plausible slip",
    effect="A score that no other program gives.",
    hint="Which length counts where there are several references: one of them, or their mean?",
)
def mean_length(hypotheses, references):
    return _multi(hypotheses, references, choose=lambda _, lengths: sum(lengths) / len(lengths))


@misconception(
    "M459",
    "multi_bleu",
    title="the matches of the reference that fits best",
    source="answers in a trial of the checks: the maximum over references of all matches",
    effect="An output that takes its beginning from one reference and its end from another loses.",
    hint="An output may take its beginning from one reference and its end from another. Where do "
    "you take the maximum: for each n-gram, or for all of a sentence together?",
)
def best_single_reference(hypotheses, references):
    def right(ours, theirs):
        return max((ours & one).total() for one in theirs)

    return _multi(hypotheses, references, right)


@misconception(
    "M460",
    "multi_bleu",
    title="n-grams of the closest reference alone",
    source="answers in a trial of the checks: the reference of the length, also for the matches",
    effect="As with one reference, but with another one for each output.",
    hint="The closest reference says how long the output should be. Do the others have no say in "
    "which n-grams are right?",
)
def closest_reference_only(hypotheses, references):
    return _multi(
        hypotheses,
        [
            [min(several, key=lambda one: (abs(len(one) - len(hypothesis)), len(one)))]
            for hypothesis, several in zip(hypotheses, references, strict=True)
        ],
    )


@also("M135", "multi_bleu")
def multi_mean_of_sentences(hypotheses, references):
    scores = [_multi([h], [several]) for h, several in zip(hypotheses, references, strict=True)]
    return sum(scores) / len(scores)


@also("M139", "multi_bleu")
def multi_arithmetic_mean(hypotheses, references):
    return _multi(hypotheses, references, mean=lambda p: sum(p) / len(p))


@also("M136", "multi_bleu")
def multi_not_clipped(hypotheses, references):
    def right(ours, theirs):
        return sum(count for gram, count in ours.items() if any(gram in one for one in theirs))

    return _multi(hypotheses, references, right)


@also("M137", "multi_bleu")
def multi_no_brevity_penalty(hypotheses, references):
    return _multi(hypotheses, references, brevity=False)


@also("M140", "multi_bleu")
def multi_trigrams_only(hypotheses, references):
    return _multi(hypotheses, references, most=3)


@also("M141", "multi_bleu")
def multi_between_0_and_1(hypotheses, references):
    return _multi(hypotheses, references) / 100


# The test


def _apart(scores_a, scores_b, swapped):
    """How far apart the systems are, and how far they are in each draw, with their signs."""
    difference = scores_a - scores_b
    return difference.mean(), torch.where(swapped, -difference, difference).mean(dim=1)


def _p_value(counted):
    return (counted.sum().item() + 1) / (len(counted) + 1)


@misconception(
    "M452",
    "randomization_p_value",
    title="one side only",
    source="common: no absolute value",
    effect="Half of the p-value where A is ahead, and nearly 1 where B is.",
    hint="Exchange A and B, and your p changes. Draws in which the *other* one is far ahead, do "
    "they count?",
)
def one_sided(scores_a, scores_b, swapped):
    apart, drawn = _apart(scores_a, scores_b, swapped)
    return _p_value(drawn >= apart)


@misconception(
    "M453",
    "randomization_p_value",
    title="p can be 0",
    source="common: the share of the draws, without the one that was observed",
    effect="Forty draws never as far apart, and p = 0: nothing is that sure.",
    hint="Where no draw is as far apart, yours says 0. The order that was observed is one, too.",
)
def can_be_zero(scores_a, scores_b, swapped):
    apart, drawn = _apart(scores_a, scores_b, swapped)
    return (drawn.abs() >= apart.abs()).double().mean().item()


@misconception(
    "M454",
    "randomization_p_value",
    title="equally far apart does not count",
    source="a plausible slip: > for ≥",
    effect="With few sentences, of which many draws are as far apart, p is much too small.",
    hint="Draws that are exactly as far apart as the systems are: are they as extreme, or not?",
)
def strictly_farther(scores_a, scores_b, swapped):
    apart, drawn = _apart(scores_a, scores_b, swapped)
    return _p_value(drawn.abs() > apart.abs())


@misconception(
    "M455",
    "randomization_p_value",
    title="how often A is ahead",
    source="a plausible slip: the bootstrap's question asked of swapped pairs",
    effect="About a half, whatever the systems: swapping makes them alike, which is the point.",
    hint="You count the draws in which A is ahead. What is compared here: A with B, or how far "
    "apart a draw is with how far apart they are?",
)
def ahead_in_draws(scores_a, scores_b, swapped):
    _, drawn = _apart(scores_a, scores_b, swapped)
    return _p_value(drawn > 0)


@misconception(
    "M456",
    "randomization_p_value",
    title="every draw is as far apart as the systems are",
    source="a plausible slip: one swap for all sentences of a draw, or distances before the mean",
    effect="p is 1, whatever the systems.",
    hint="Yours says 1, whatever the systems: each draw is as far apart as they are. Are single "
    "sentences exchanged, and is it the means that are compared?",
)
def all_or_none(scores_a, scores_b, swapped):
    first = swapped[:, :1].expand_as(swapped)
    apart, drawn = _apart(scores_a, scores_b, first)
    return _p_value(drawn.abs() >= apart.abs())


@misconception(
    "M461",
    "randomization_p_value",
    title="exchanges pile up from draw to draw",
    source="answers in a trial of the checks: scores exchanged in place, and never put back",
    effect="A draw has the exchanges of all draws before it.",
    hint="Your first draw is right, and later ones are not. What do they begin with?",
)
def exchanges_pile_up(scores_a, scores_b, swapped):
    piled = swapped.long().cumsum(dim=0) % 2 == 1
    apart, drawn = _apart(scores_a, scores_b, piled)
    return _p_value(drawn.abs() >= apart.abs())


@misconception(
    "M462",
    "randomization_p_value",
    title="only one of the two gets the other's scores",
    source="answers in a trial of the checks: B keeps its own",
    effect="The draws are half as far apart as they should be, and p is too small.",
    hint="In an exchange both change. In yours A gets B's scores; what does B get?",
)
def one_keeps_its_own(scores_a, scores_b, swapped):
    difference = scores_a - scores_b
    drawn = difference.masked_fill(swapped, 0.0).mean(dim=1)
    return _p_value(drawn.abs() >= difference.mean().abs())


@misconception(
    "M495",
    "multi_bleu",
    title="one bag for the whole corpus",
    source="answers in a trial of the checks: n-grams added up over all sentences, then compared",
    effect="An n-gram counts as right if another sentence's reference has it.",
    hint="An n-gram counts in yours if any sentence's reference has it. With whose references may "
    "it be compared?",
)
def one_bag(hypotheses, references):
    matches = []
    for n in range(1, 5):
        ours, theirs = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for hypothesis, several in zip(hypotheses, references, strict=True):
            ours += ngram_counts(hypothesis, n)
            most = Counter[tuple[str, ...]]()
            for one in several:
                most |= ngram_counts(one, n)
            theirs += most
        matches.append(((ours & theirs).total(), ours.total()))
    if not all(right for right, _ in matches):
        return 0.0
    length = sum(map(len, hypotheses))
    wanted = sum(
        _closest(len(hypothesis), map(len, several))
        for hypothesis, several in zip(hypotheses, references, strict=True)
    )
    precision = _geometric([right / all_ for right, all_ in matches])
    return 100 * precision * math.exp(min(0.0, 1.0 - wanted / length))


@misconception(
    "M496",
    "randomization_p_value",
    title="only draws in which the same system is as far ahead",
    source="answers in a trial of the checks: the sign is turned, not taken away",
    effect="Half of the p-value, whoever is ahead.",
    hint="You count the draws in which the system that is ahead is as far ahead again. And those "
    "in which the other one is?",
)
def same_system_ahead(scores_a, scores_b, swapped):
    apart, drawn = _apart(scores_a, scores_b, swapped)
    return _p_value(drawn * apart.sign() >= apart.abs())


@misconception(
    "M516",
    "smooth_among_others",
    title="padding is no piece of p's",
    source="an answer in a trial of the checks: its column taken out before the softmax",
    effect="Nothing keeps the model from saying padding: its logit has no gradient.",
    hint="Your softmax is taken over V − 1 pieces. Only q leaves padding out: over which pieces is "
    "p a distribution?",
)
def softmax_without_padding(logits, labels, smoothing):
    without = logits.index_fill(1, torch.tensor([PAD]), -torch.inf)
    log_p = without.log_softmax(dim=-1).index_fill(1, torch.tensor([PAD]), 0.0)
    likely = log_p.gather(1, labels[:, None])[:, 0]
    others = (log_p.sum(dim=-1) - likely) / (logits.size(1) - 2)
    return _mean(-(1 - smoothing) * likely - smoothing * others, labels)


@misconception(
    "M601",
    "greedy_decode_batch",
    title="what comes after </s> is kept",
    source="an answer in a trial of the checks: </s> left out, and no end",
    effect="Short translations go on until the longest of the batch has ended.",
    hint="A row that has ended goes on collecting tokens until the others have ended. Which of "
    "its tokens belong to its translation?",
)
def kept_after_the_end(next_logits, batch_size, max_len):
    return _without(_said(next_logits, batch_size, max_len)[:, 1:].tolist(), EOS)


@misconception(
    "M602",
    "greedy_decode_batch",
    title="padding is taken out of the translation",
    source="an answer in a trial of the checks: PAD fills rows that have ended, and is dropped",
    effect="Where the model itself says that piece, it is missing.",
    hint="A token that the model chose is missing: the one whose number is PAD. Which of them are "
    "yours, and which are the model's?",
)
def padding_taken_out(next_logits, batch_size, max_len):
    return _without(_up_to_end(_said(next_logits, batch_size, max_len)), PAD)


@misconception(
    "M624",
    "greedy_decode_batch",
    title="rows without </s> come back empty",
    source="an answer in a trial of the checks: argmax of (row == EOS), 0 where there is none",
    effect="What the limit has cut off is lost.",
    hint="Rows without </s> come back empty in yours. What does your search for </s> give in "
    "such a row? (argmax, for one, gives 0.)",
)
def empty_without_an_end(next_logits, batch_size, max_len):
    said = _said(next_logits, batch_size, max_len)[:, 1:]
    lengths = (said == EOS).int().argmax(dim=1) if said.size(1) else [0] * batch_size
    return [row[:length].tolist() for row, length in zip(said, lengths, strict=True)]


@also("M545", "greedy_decode_batch")
def batch_without_specials(next_logits, batch_size, max_len):
    return _without(_up_to_end(_said(next_logits, batch_size, max_len)), PAD, UNK, BOS, EOS)


@misconception(
    "M625",
    "multi_bleu",
    title="the length of the first reference",
    source="an answer in a trial of the checks: r as in the code for one reference",
    effect="The brevity penalty depends on the order of the references.",
    hint="Put another reference of a sentence first, and your brevity penalty changes. Which "
    "length does the text ask for?",
)
def length_of_the_first(hypotheses, references):
    return _multi(hypotheses, references, choose=lambda length, lengths: lengths[0])


@misconception(
    "M834",
    "smooth_among_others",
    title="padded places are in the sum, and not in the number",
    source="an answer in a trial of the checks: loss.sum() / (labels != PAD).sum()",
    effect="The more padding a batch has, the larger its loss.",
    hint="You divide by the number of real tokens. Over which tokens is your sum?",
)
def padding_in_the_sum(logits, labels, smoothing):
    return _each(logits, labels, smoothing).sum() / (labels != PAD).sum()
