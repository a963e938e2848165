"""Mistakes in the targets, the loss, the learning rate and the batches.

What is right about them is in :mod:`transformer_lib.training` and :mod:`transformer_lib.data`.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.vocabulary import BOS, EOS, PAD


@misconception(
    "M22",
    "teacher_forcing",
    title="the decoder's input is its label",
    source="common: the target not shifted",
    effect="The model learns to copy what it is given: the loss goes to 0, translations are noise.",
    hint="At each position your decoder is given the very token that it should predict. By how "
    "much, and which way, is its input shifted?",
)
def not_shifted(targets):
    labels = pad_sequences([[*target, EOS] for target in targets])
    return labels, labels.clone()


@misconception(
    "M103",
    "teacher_forcing",
    title="no </s> in the labels",
    source="a plausible slip",
    effect="The model never learns to stop.",
    hint="Nothing in your labels tells the decoder when to stop. What should it say after the last "
    "token?",
)
def no_end_in_labels(targets):
    return pad_sequences([[BOS, *target[:-1]] for target in targets]), pad_sequences(targets)


@misconception(
    "M247",
    "teacher_forcing",
    title="nothing put around the targets",
    source="common: code for targets that have <s> and </s> already",
    effect="The first token is never predicted, and the model never learns to stop.",
    hint="Neither <s> nor </s> is in your result. Which tokens do the targets hold that come in?",
)
def nothing_put_around(targets):
    padded = pad_sequences(targets)
    return padded[:, :-1], padded[:, 1:]


@misconception(
    "M104",
    "teacher_forcing",
    title="<s> is to be predicted",
    source="a plausible slip: the same sequence, with both ends, used for both",
    effect="The first step learns to say <s>, so decoding begins with two of them.",
    hint="Your labels begin with <s>. Who says it: the decoder, or you?",
)
def start_in_labels(targets):
    whole = pad_sequences([[BOS, *target, EOS] for target in targets])
    return whole, whole.clone()


@misconception(
    "M105",
    "teacher_forcing",
    title="</s> stays in the input of shorter sentences",
    source="common: whole[:, :-1] cuts the last column, which is padding for all but the longest",
    effect="Harmless to the labels, but the decoder reads a token that it never meets when "
    "decoding.",
    hint="In the shorter sentences of your batch the decoder's input has a token that the longest "
    "one's has not. What does cutting off the last column cut off?",
)
def end_in_the_input(targets):
    whole = pad_sequences([[BOS, *target, EOS] for target in targets])
    return whole[:, :-1].clone(), whole[:, 1:].clone()


@misconception(
    "M106",
    "teacher_forcing",
    title="shifted the wrong way",
    source="a plausible slip",
    effect="The decoder is given the next token and asked for the one before it.",
    hint="At each position your decoder is given the token after the one that it should predict. "
    "Which of the two sequences begins with <s>?",
)
def shifted_backwards(targets):
    labels = pad_sequences([[BOS, *target] for target in targets])
    return pad_sequences([[*target, EOS] for target in targets]), labels


@misconception(
    "M23",
    "label_smoothing",
    title="ε shared among the other pieces only, where all were meant",
    source="ε/(V−1) is the convention of Tensor2Tensor, fairseq and Flax; F.cross_entropy and "
    "Kyubyong have ε/V; the paper gives no formula",
    effect="The same loss as with ε/V at ε·V/(V−1): no mistake by itself, but two programs of "
    "different conventions print different losses.",
    hint="You are close. Among how many pieces do you share ε: does the right one get a share too?",
)
def shared_among_the_others(logits, labels, smoothing):
    log_p = logits.log_softmax(dim=-1)
    right = log_p.gather(1, labels[:, None])[:, 0]
    others = (log_p.sum(dim=-1) - right) / (logits.size(1) - 1)
    loss = -(1 - smoothing) * right - smoothing * others
    return loss[labels != PAD].mean()


@misconception(
    "M107",
    "label_smoothing",
    title="ε shared among the pieces but padding and the right one, where all were meant",
    source="ε/(V−2) is the convention of The Annotated Transformer and JoeyNMT",
    effect="Padding gets no share; no mistake by itself, but the loss is another than with ε/V.",
    hint="You are close. Among how many pieces do you share ε: is one left out, or two?",
)
def shared_without_padding(logits, labels, smoothing):
    log_p = logits.log_softmax(dim=-1)
    right = log_p.gather(1, labels[:, None])[:, 0]
    others = (log_p.sum(dim=-1) - right - log_p[:, PAD]) / (logits.size(1) - 2)
    loss = -(1 - smoothing) * right - smoothing * others
    return loss[labels != PAD].mean()


@misconception(
    "M24",
    "label_smoothing",
    title="the mean runs over padding too",
    source="common",
    effect="The loss, and with it the step, is the smaller the more padding a batch happens to "
    "have.",
    hint="Add padding to the batch, and your loss changes. By how many tokens do you divide?",
)
def mean_over_padding(logits, labels, smoothing):
    log_p = logits.log_softmax(dim=-1)
    right = log_p.gather(1, labels[:, None])[:, 0]
    loss = -(1 - smoothing) * right - smoothing * log_p.mean(dim=-1)
    return loss.masked_fill(labels == PAD, 0.0).mean()


@also("M24", "mean_loss")
def mean_nll_over_padding(nll, labels):
    return nll.masked_fill(labels == PAD, 0.0).mean()


@misconception(
    "M108",
    "label_smoothing",
    title="padding is learned",
    source="common: ignore_index forgotten",
    effect="Half of the learning goes into saying padding after padding.",
    hint="Your loss counts positions that nobody will ever read. Which labels are not words?",
)
def padding_counts(logits, labels, smoothing):
    log_p = logits.log_softmax(dim=-1)
    right = log_p.gather(1, labels[:, None])[:, 0]
    return (-(1 - smoothing) * right - smoothing * log_p.mean(dim=-1)).mean()


@also("M108", "mean_loss")
def mean_nll_with_padding(nll, labels):
    return nll.mean()


@misconception(
    "M32",
    "label_smoothing",
    title="log of a probability that is exactly zero",
    source="The Annotated Transformer's issues 109, 115 and 117: log() after softmax",
    effect="Where the model is very sure, a probability is rounded to 0, its log is −∞, and the "
    "loss is infinite or NaN.",
    hint="For large logits your loss is not finite. What is the log of a probability that was "
    "rounded to zero, and which function avoids that detour?",
)
def log_of_softmax(logits, labels, smoothing):
    log_p = logits.softmax(dim=-1).log()
    right = log_p.gather(1, labels[:, None])[:, 0]
    return (-(1 - smoothing) * right - smoothing * log_p.mean(dim=-1))[labels != PAD].mean()


@misconception(
    "M109",
    "label_smoothing",
    title="smoothing taken for the confidence",
    source="a plausible slip: ε and 1 − ε change places",
    effect="At ε = 0.1 the right piece is worth a tenth, the rest is spread evenly: it learns "
    "nothing.",
    hint="In your loss the right piece hardly matters. What share of the probability does it keep?",
)
def smoothing_for_confidence(logits, labels, smoothing):
    log_p = logits.log_softmax(dim=-1)
    right = log_p.gather(1, labels[:, None])[:, 0]
    return (-smoothing * right - (1 - smoothing) * log_p.mean(dim=-1))[labels != PAD].mean()


@misconception(
    "M110",
    "label_smoothing",
    title="summed, not averaged",
    source="a plausible slip",
    effect="A batch of twice as many tokens makes twice as large a gradient.",
    hint="Your loss grows with the number of tokens. What makes batches of different sizes "
    "comparable?",
)
def summed(logits, labels, smoothing):
    log_p = logits.log_softmax(dim=-1)
    right = log_p.gather(1, labels[:, None])[:, 0]
    return (-(1 - smoothing) * right - smoothing * log_p.mean(dim=-1))[labels != PAD].sum()


@also("M110", "mean_loss")
def summed_nll(nll, labels):
    return nll[labels != PAD].sum()


@misconception(
    "M111",
    "mean_loss",
    title="a mean of the sentences' means",
    source="common",
    effect="A token of a short sentence weighs more than one of a long sentence.",
    hint="A token of a short sentence, or of a small batch, counts for more in your mean than "
    "other tokens do. Over what should the mean run?",
)
def mean_of_means(nll, labels):
    real = labels != PAD
    return ((nll * real).sum(dim=1) / real.sum(dim=1)).mean()


@misconception(
    "M112",
    "mean_loss",
    title="divided by the number of sentences",
    source="common",
    effect="The loss grows with the length of the sentences.",
    hint="Your loss is several times too large. By the number of what do you divide?",
)
def divided_by_sentences(nll, labels):
    return nll[labels != PAD].sum() / len(labels)


@misconception(
    "M25",
    "noam_rate",
    title="steps counted from 0",
    source="common: LambdaLR calls its function with 0 first",
    effect="The first step divides by zero, or has the rate 0 and teaches nothing.",
    hint="Your rate of step n is the right one of step n − 1. What is the number of the first "
    "step?",
)
def counted_from_zero(step, d_model, warmup_steps):
    step -= 1
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@misconception(
    "M30",
    "noam_rate",
    title="no warm-up",
    source="common: deep post-norm models trained with a rate that only falls",
    effect="Post-norm models of many layers diverge in the first steps; pre-norm ones do not.",
    hint="Your rate is highest in the very first step. What should it do before it falls?",
)
def without_warmup(step, d_model, warmup_steps):
    return d_model**-0.5 * step**-0.5


@misconception(
    "M113",
    "noam_rate",
    title="the larger of the two",
    source="a plausible slip: max for min",
    effect="The first step has a rate of d_model^−0.5, and later ones rise without end.",
    hint="Your rate is highest where it should be lowest. Which of the two lines in the formula "
    "wins?",
)
def larger_of_the_two(step, d_model, warmup_steps):
    return d_model**-0.5 * max(step**-0.5, step * warmup_steps**-1.5)


@misconception(
    "M114",
    "noam_rate",
    title="the sign of d_model's exponent",
    source="a plausible slip",
    effect="At d_model = 512 the rate is 512 times too high.",
    hint="A wider model gets a higher rate in your formula. What is the sign of the exponent?",
)
def wider_is_faster(step, d_model, warmup_steps):
    return d_model**0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@misconception(
    "M115",
    "noam_rate",
    title="the factor d_model^−0.5 is missing",
    source="common in rewritten schedules",
    effect="At d_model = 512 the rate is 22.6 times too high.",
    hint="The shape of your curve is right, its height is not. Which argument did you not use?",
)
def without_d_model(step, d_model, warmup_steps):
    return min(step**-0.5, step * warmup_steps**-1.5)


@misconception(
    "M116",
    "noam_rate",
    title="the warm-up's exponent is −0.5",
    source="a plausible slip",
    effect="The two branches no longer meet at step = warmup_steps.",
    hint="At step = warmup_steps both branches should be equal. Are yours?",
)
def branches_do_not_meet(step, d_model, warmup_steps):
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-0.5)


@misconception(
    "M117",
    "plan_batches",
    title="real tokens counted, padding not",
    source="common",
    effect="Batches of unequal sentences need far more memory than the budget says.",
    hint="Some of your batches, once padded, are larger than the budget. How large is a batch of a "
    "short and a long sentence?",
)
def padding_not_counted(lengths, batch_tokens):
    batches: list[list[int]] = []
    room = -1
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if room < lengths[index]:
            batches.append([])
            room = batch_tokens
        batches[-1].append(index)
        room -= lengths[index]
    return batches


def _plan(lengths, batch_tokens, order):
    batches: list[list[int]] = []
    for index in order:
        longest = max(lengths[i] for i in [index, *(batches[-1] if batches else [])])
        if not batches or longest * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


@misconception(
    "M118",
    "plan_batches",
    title="sentences taken as they come",
    source="common",
    effect="Short and long sentences share batches, and much of the work is padding.",
    hint="Your batches hold what they should, but much padding. In which order do you take the "
    "sentences?",
)
def unsorted(lengths, batch_tokens):
    return _plan(lengths, batch_tokens, range(len(lengths)))


@misconception(
    "M119",
    "plan_batches",
    title="the last batch is forgotten",
    source="a plausible slip: a batch is only put away when the next one begins",
    effect="The longest sentences are never trained on.",
    hint="Some sentences are in none of your batches. What happens to those that are left when the "
    "loop ends?",
)
def last_batch_lost(lengths, batch_tokens):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    return _plan(lengths, batch_tokens, order)[:-1]


@misconception(
    "M120",
    "plan_batches",
    title="as many sentences in each batch",
    source="common: a fixed batch size",
    effect="A batch of long sentences is several times as large as one of short ones.",
    hint="All your batches have as many sentences. What should be about equal instead?",
)
def fixed_number_of_sentences(lengths, batch_tokens):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    size = max(1, batch_tokens // max(lengths))
    return [order[start : start + size] for start in range(0, len(order), size)]


@misconception(
    "M217",
    "label_smoothing",
    title="the right piece has no share of ε",
    source="an answer in a trial of the checks: scatter_ overwrites the ε/V that is there already",
    effect="The target does not sum to 1, but to 1 − ε/V.",
    hint="Add your target distribution up: it is not 1. What does the right piece get from ε?",
)
def right_piece_overwritten(logits, labels, smoothing):
    log_p = logits.log_softmax(dim=-1)
    target = torch.full_like(log_p, smoothing / logits.size(1))
    target.scatter_(1, labels[:, None], 1 - smoothing)
    return -(target * log_p).sum(dim=-1)[labels != PAD].mean()


@misconception(
    "M218",
    "mean_loss",
    title="the padding's losses are summed, but not counted",
    source="an answer in a trial of the checks",
    effect="The loss grows with the padding of a batch.",
    hint="You divide by the number of real tokens. Which losses are in the sum above?",
)
def padding_summed_but_not_counted(nll, labels):
    return nll.sum() / (labels != PAD).sum()


@misconception(
    "M219",
    "mean_loss",
    title="the perplexity",
    source="an answer in a trial of the checks",
    effect="Its gradient is that of the loss times the perplexity: large steps when the model is "
    "bad.",
    hint="Your number is e to the power of the right one. What is that called, and is "
    "it asked for?",
)
def perplexity_for_loss(nll, labels):
    return nll[labels != PAD].mean().exp()


@misconception(
    "M220",
    "noam_rate",
    title="x ** -1/2 is half of 1/x",
    source="an answer in a trial of the checks: the power binds more tightly than the division",
    effect="The rate is thousands of times too small.",
    hint="In Python, what comes first in `x ** -1/2`: the power or the division?",
)
def power_before_division(step, d_model, warmup_steps):
    return d_model**-1 / 2 * min(step**-1 / 2, step * warmup_steps**-3 / 2)


@misconception(
    "M221",
    "plan_batches",
    title="from the longest to the shortest",
    source="fairseq and others sort so, to meet a lack of memory at once",
    effect="No mistake by itself, but other batches.",
    hint="Your batches begin with the longest sentences. Which should come first?",
)
def longest_first(lengths, batch_tokens):
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not batches or lengths[batches[-1][0]] * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


@misconception(
    "M222",
    "teacher_forcing",
    title="padded at the beginning",
    source="what Hugging Face's tokenizers do for decoder-only models when they generate",
    effect="Sentences end at the same place and begin at different ones: positions that are "
    "counted from the left are wrong.",
    hint="Your rows are filled at the beginning. At which end is padding asked for?",
)
def padded_at_the_beginning(targets):
    width = max(map(len, targets)) + 1

    def rows(sentences):
        return torch.tensor([[PAD] * (width - len(s)) + s for s in sentences])

    return rows([[BOS, *t] for t in targets]), rows([[*t, EOS] for t in targets])


@misconception(
    "M223",
    "teacher_forcing",
    title="labels filled with −100",
    source="Hugging Face, after F.cross_entropy's ignore_index",
    effect="A loss that leaves out PAD learns from −100, or fails.",
    hint="With which number are short rows of the labels filled here?",
)
def labels_filled_with_minus_100(targets):
    read = pad_sequences([[BOS, *t] for t in targets])
    said = pad_sequences([[*t, EOS] for t in targets])
    return read, said.masked_fill(said == PAD, -100)


@misconception(
    "M224",
    "teacher_forcing",
    title="</s> in the last column of every row",
    source="an answer in a trial of the checks: the padded input shifted, </s> appended",
    effect="Shorter sentences learn to go on with padding.",
    hint="In your labels, </s> is in the last column of every row. Where does a shorter "
    "sentence end?",
)
def end_in_the_last_column(targets):
    read = pad_sequences([[BOS, *t] for t in targets])
    return read, torch.cat([read[:, 1:], torch.full((len(targets), 1), EOS)], dim=1)


@misconception(
    "M551",
    "noam_rate",
    title="constant after the warm-up",
    source="an answer in a trial of the checks: the minimum of step and warmup_steps",
    effect="The rate never falls.",
    hint="Up to the peak you are right. What becomes of your rate after it?",
)
def never_falls(step, d_model, warmup_steps):
    return d_model**-0.5 * min(step, warmup_steps) * warmup_steps**-1.5


@misconception(
    "M552",
    "noam_rate",
    title="d_model in one of the two branches only",
    source="an answer in a trial of the checks: a pair of brackets left out",
    effect="The peak comes too early, at warmup_steps/∛d_model, and is too high.",
    hint="From warmup_steps on you are right, in the first steps you are √d_model times too high. "
    "Of what is the minimum taken, and what is outside of it?",
)
def width_in_one_branch(step, d_model, warmup_steps):
    return min(d_model**-0.5 * step**-0.5, step * warmup_steps**-1.5)


@misconception(
    "M554",
    "plan_batches",
    title="the size computed from the longest so far",
    source="an answer in a trial of the checks: the new sentence is looked at after the decision",
    effect="Batches are too large wherever a sentence is longer than those before it.",
    hint="Some batches of yours are too large, by one sentence. How wide is the batch once the new "
    "sentence, which is the longest, is in it?",
)
def longest_so_far(lengths, batch_tokens):
    batches: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][-1]] <= batch_tokens:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches


@misconception(
    "M555",
    "plan_batches",
    title="numbers looked up by the length",
    source="an answer in a trial of the checks: lengths.index(n)",
    effect="Of sentences of one length the first is trained on again and again, the others never.",
    hint="Of sentences of one length, the same number comes again and again. What does "
    "lengths.index(n) give for the second of them?",
)
def looked_up_by_length(lengths, batch_tokens):
    batches: list[list[int]] = []
    for length in sorted(lengths):
        if batches and (len(batches[-1]) + 1) * length <= batch_tokens:
            batches[-1].append(lengths.index(length))
        else:
            batches.append([lengths.index(length)])
    return batches


@misconception(
    "M556",
    "plan_batches",
    title="an empty batch",
    source="an answer in a trial of the checks: the batch is put away before anything is in it",
    effect="A batch of no sentence, which most code for training cannot use.",
    hint="One of your batches is empty. What is put away if already the first sentence is too "
    "long, and what if there is none?",
)
def an_empty_batch(lengths, batch_tokens):
    batches: list[list[int]] = [[]]
    for number in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if (len(batches[-1]) + 1) * lengths[number] > batch_tokens:
            batches.append([])
        batches[-1].append(number)
    return batches


@misconception(
    "M557",
    "label_smoothing",
    title="the divergence, not the cross-entropy",
    source="common: F.kl_div, as in The Annotated Transformer",
    effect="The gradient is the same; the number is lower by the entropy of the smoothed labels, "
    "and cannot be compared with others' losses.",
    hint="Your loss is too small by the same number everywhere. What does F.kl_div subtract from "
    "the cross-entropy?",
)
def divergence(logits, labels, smoothing):
    kept, right = logits[labels != PAD], labels[labels != PAD]
    vocab_size = logits.size(-1)
    wanted = torch.full_like(kept, smoothing / vocab_size)
    wanted[torch.arange(len(right)), right] += 1 - smoothing
    return F.kl_div(kept.log_softmax(dim=-1), wanted, reduction="batchmean")


@misconception(
    "M604",
    "label_smoothing",
    title="the uniform part runs over padding, too",
    source="an answer in a trial of the checks: ignore_index for one of the two parts",
    effect="The loss depends on how much padding the batch has.",
    hint="Without padding you are right. Over which rows does the uniform part of yours run?",
)
def uniform_over_padding(logits, labels, smoothing):
    log_p = logits.log_softmax(dim=-1)
    likely = log_p.gather(1, labels[:, None])[labels != PAD]
    return -(1 - smoothing) * likely.mean() - smoothing * log_p.mean()


@misconception(
    "M840",
    "label_smoothing",
    title="the uniform part is added, and nothing taken off",
    source="an answer in a trial of the checks: one_hot + ε/V",
    effect="The targets add up to 1 + ε, and the loss is too large.",
    hint="Your targets add up to more than 1. Where does the share of the uniform part come from?",
)
def targets_above_one(logits, labels, smoothing):
    log_p = logits.log_softmax(dim=-1)[labels != PAD]
    likely = log_p.gather(1, labels[labels != PAD][:, None])
    return -likely.mean() - smoothing * log_p.mean()


@misconception(
    "M605",
    "noam_rate",
    title="the warm-up rises with the square root of the step",
    source="an answer in a trial of the checks: step^−0.5 factored out, and the exponent 1.5 of "
    "step/warmup_steps lost",
    effect="At the first step the rate is √warmup_steps times too large; the excess shrinks "
    "towards the peak.",
    hint="From the peak on you are right. Up to it, does your rate grow with the step or with "
    "its square root?",
)
def rises_with_the_root(step, d_model, warmup_steps):
    return min(1.0, step / warmup_steps) / math.sqrt(d_model * step)


@misconception(
    "M606",
    "plan_batches",
    title="of equally long sentences, the last one first",
    source="an answer in a trial of the checks: sorted downwards, then turned around",
    effect="No worse batches, but others than the text asks for: runs cannot be compared.",
    hint="Of equally long sentences you take the later one first. What does reversing a list do "
    "to equal ones?",
)
def last_of_equals_first(lengths, batch_tokens):
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], -i))
    return _plan(lengths, batch_tokens, order)


@misconception(
    "M626",
    "teacher_forcing",
    title="sorted by length",
    source="an answer in a trial of the checks: sentences of like length side by side",
    effect="Row i of the target no longer belongs to row i of the source.",
    hint="Your rows are right, but in another order. Which source belongs to the first of them?",
)
def sorted_by_length(targets):
    ordered = sorted(targets, key=len)
    inputs, labels = ([[BOS, *t] for t in ordered], [[*t, EOS] for t in ordered])
    return pad_sequences(inputs), pad_sequences(labels)


@misconception(
    "M627",
    "plan_batches",
    title="filled from the longest sentence down",
    source="an answer in a trial of the checks: the last ones taken off the sorted list first",
    effect="The first batch is what is left over.",
    hint="Your batches are filled from the long end. With which sentence should the first batch "
    "begin?",
)
def filled_from_the_end(lengths, batch_tokens):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    plan = []
    while order:
        most = max(1, batch_tokens // lengths[order[-1]])
        plan.append(order[-most:])
        order = order[:-most]
    return plan[::-1]


@misconception(
    "M631",
    "plan_batches",
    title="an unstable sort",
    source="an answer in a trial of the checks: np.argsort as it comes",
    effect="Right for a few sentences; of many, equally long ones change places.",
    hint="Of many equally long sentences some have changed places. Does your sort keep the order "
    "of equals (is it stable)?",
)
def unstable_sort(lengths, batch_tokens):
    return _plan(
        lengths, batch_tokens, np.argsort(np.array(lengths, dtype=int), kind="quicksort").tolist()
    )


@misconception(
    "M791",
    "noam_rate",
    title="steps counted anew after the warm-up",
    source="an answer in a trial of the checks: the root of step − warmup_steps",
    effect="Right after the peak the rate falls to a third within ten steps.",
    hint="Up to the peak you are right. After it, from where does the formula count the steps?",
)
def counted_anew(step, d_model, warmup_steps):
    peak = (d_model * warmup_steps) ** -0.5
    if step <= warmup_steps:
        return peak * step / warmup_steps
    return peak * (step - warmup_steps + 1) ** -0.5
