"""Mistakes in a training of one's own: the step, the loop around it, and what comes after."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.vocabulary import PAD


def _real(labels):
    return int((labels != PAD).sum())


def _nll(model, batch, smoothing=0.0, reduction="sum", ignore=PAD):
    src, tgt_input, labels = batch
    logits = model(src, tgt_input).flatten(0, 1)
    return F.cross_entropy(
        logits,
        labels.flatten(),
        ignore_index=ignore,
        label_smoothing=smoothing,
        reduction=reduction,
    )


def _step(model, optimizer, batches, smoothing, max_norm, loss=_nll, zero=True, clip="after"):
    tokens = sum(_real(labels) for _, _, labels in batches)
    if zero:
        optimizer.zero_grad()
    if clip == "before":
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    total = 0.0
    for batch in batches:
        part = loss(model, batch, smoothing) / tokens
        part.backward()
        total += part.item()
        if clip == "each":
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    if clip == "after":
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    if clip == "numbers":
        nn.utils.clip_grad_value_(model.parameters(), max_norm)
    if clip == "one by one":
        for parameter in model.parameters():
            nn.utils.clip_grad_norm_(parameter, max_norm)
    optimizer.step()
    return total


@also("M111", "training_step")
def mean_of_the_means(model, optimizer, batches, smoothing, max_norm):
    optimizer.zero_grad()
    total = 0.0
    for batch in batches:
        part = _nll(model, batch, smoothing, reduction="mean") / len(batches)
        part.backward()
        total += part.item()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total


@also("M108", "training_step")
def padding_is_learned(model, optimizer, batches, smoothing, max_norm):
    tokens = sum(labels.numel() for _, _, labels in batches)
    optimizer.zero_grad()
    total = 0.0
    for batch in batches:
        part = _nll(model, batch, smoothing, ignore=-1) / tokens
        part.backward()
        total += part.item()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total


@also("M110", "training_step")
def never_divided(model, optimizer, batches, smoothing, max_norm):
    optimizer.zero_grad()
    total = 0.0
    for batch in batches:
        part = _nll(model, batch, smoothing)
        part.backward()
        total += part.item()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total


@misconception(
    "M326",
    "training_step",
    title="the old gradient is not cleared",
    source="common: zero_grad forgotten",
    effect="Each step goes along the sum of all gradients so far; learning slows down and swings.",
    hint="What an earlier step has left in `.grad` goes into your step as well.",
)
def not_cleared(model, optimizer, batches, smoothing, max_norm):
    return _step(model, optimizer, batches, smoothing, max_norm, zero=False)


@misconception(
    "M327",
    "training_step",
    title="clipped before there is a gradient",
    source="common: clip_grad_norm_ above backward",
    effect="What is clipped is nothing, or the gradient of the step before.",
    hint="Small gradients are right, large ones are not clipped. Is the gradient there when you "
    "clip it, and is it used only afterwards?",
)
def clipped_too_early(model, optimizer, batches, smoothing, max_norm):
    return _step(model, optimizer, batches, smoothing, max_norm, clip="before")


@misconception(
    "M328",
    "training_step",
    title="each part of the gradient is clipped",
    source="a plausible slip: the clipping stands inside the loop over the batches",
    effect="The first batches count less than the last one.",
    hint="With one batch your step is right. When is the gradient complete whose norm is to be "
    "limited?",
)
def clipped_in_the_loop(model, optimizer, batches, smoothing, max_norm):
    return _step(model, optimizer, batches, smoothing, max_norm, clip="each")


@misconception(
    "M329",
    "training_step",
    title="a step for each batch",
    source="a plausible slip: optimizer.step() stands inside the loop",
    effect="No accumulation: several small steps instead of one with the gradient of all.",
    hint="With one batch your step is right. How many steps are made with two?",
)
def a_step_for_each(model, optimizer, batches, smoothing, max_norm):
    tokens = sum(_real(labels) for _, _, labels in batches)
    total = 0.0
    for batch in batches:
        optimizer.zero_grad()
        part = _nll(model, batch, smoothing) / tokens
        part.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        total += part.item()
    return total


@misconception(
    "M330",
    "training_step",
    title="the loss of the last batch for that of all",
    source="a plausible slip: the variable of the loop is returned",
    effect="The curve swings with the size of single batches; the model learns as it should.",
    hint="Your weights are right. Of which batches is the loss that you return?",
)
def loss_of_the_last(model, optimizer, batches, smoothing, max_norm):
    seen = []

    def loss(*args):
        seen.append(_nll(*args))
        return seen[-1]

    _step(model, optimizer, batches, smoothing, max_norm, loss=loss)
    return (seen[-1] / sum(_real(labels) for _, _, labels in batches)).item()


def _rate(step, peak, warmup):
    return peak * min(step / warmup, (warmup / step) ** 0.5)


def _train(
    model,
    draw,
    steps,
    accumulate,
    peak,
    warmup,
    rate=_rate,
    mode=True,
    betas=(0.9, 0.98),
    eps=1e-9,
    optimizer=torch.optim.Adam,
    drawn=None,
    clip="after",
):
    optimizer = optimizer(model.parameters(), betas=betas, eps=eps)
    model.train(mode)
    losses = []
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = rate(step, peak, warmup)
        batches = [draw() for _ in range(drawn or accumulate)]
        batches = batches * (accumulate // len(batches))
        losses.append(_step(model, optimizer, batches, 0.1, 1.0, clip=clip))
    return losses


@misconception(
    "M331",
    "train_model",
    title="trained in evaluation mode",
    source="common: model.eval() before, for a look at the first loss",
    effect="No dropout: the model learns its training text too well.",
    hint="Your losses are those of a model without dropout. In which mode was it handed over?",
)
def in_evaluation_mode(model, draw, steps, accumulate, peak, warmup):
    return _train(model, draw, steps, accumulate, peak, warmup, mode=False)


@also("M30", "train_model")
def no_warmup(model, draw, steps, accumulate, peak, warmup):
    return _train(
        model, draw, steps, accumulate, peak, warmup,
        rate=lambda step, peak, warmup: peak * min(1.0, (warmup / step) ** 0.5),
    )  # fmt: skip


@also("M25", "train_model")
def counted_from_zero(model, draw, steps, accumulate, peak, warmup):
    return _train(
        model, draw, steps, accumulate, peak, warmup,
        rate=lambda step, peak, warmup: _rate(max(step - 1, 1e-9), peak, warmup),
    )  # fmt: skip


@also("M113", "train_model")
def the_larger_of_the_two(model, draw, steps, accumulate, peak, warmup):
    return _train(
        model, draw, steps, accumulate, peak, warmup,
        rate=lambda step, peak, warmup: peak * max(step / warmup, (warmup / step) ** 0.5),
    )  # fmt: skip


@misconception(
    "M332",
    "train_model",
    title="the rate stays at its peak",
    source="common: warm-up without the way down",
    effect="The loss goes on swinging where it should settle.",
    hint="Your warm-up is right. What does the rate do after the peak?",
)
def stays_at_the_peak(model, draw, steps, accumulate, peak, warmup):
    return _train(
        model, draw, steps, accumulate, peak, warmup,
        rate=lambda step, peak, warmup: peak * min(1.0, step / warmup),
    )  # fmt: skip


@misconception(
    "M333",
    "train_model",
    title="Adam as PyTorch starts it",
    source="common: torch.optim.Adam without its settings",
    effect="A memory of a thousand steps instead of fifty for the size of the gradients.",
    hint="Your rates are right, Adam's β₂ is PyTorch's. Which does section 5.3 of the paper give?",
)
def adam_by_default(model, draw, steps, accumulate, peak, warmup):
    return _train(model, draw, steps, accumulate, peak, warmup, betas=(0.9, 0.999), eps=1e-8)


@misconception(
    "M334",
    "train_model",
    title="ε of Adam as PyTorch has it",
    source="common: the betas are set, ε is forgotten",
    effect="Nearly nothing, but where gradients are tiny.",
    hint="Your betas are right. Which ε does section 5.3 of the paper give?",
)
def epsilon_by_default(model, draw, steps, accumulate, peak, warmup):
    return _train(model, draw, steps, accumulate, peak, warmup, eps=1e-8)


@misconception(
    "M335",
    "train_model",
    title="a new optimizer in each step",
    source="a plausible slip: Adam is made inside the loop",
    effect="Adam never remembers anything, and each step has the full rate in every channel.",
    hint="Your first step is right. What does Adam know at the second one?",
)
def new_optimizer_each_step(model, draw, steps, accumulate, peak, warmup):
    model.train()
    losses = []
    for step in range(1, steps + 1):
        optimizer = torch.optim.Adam(
            model.parameters(), lr=_rate(step, peak, warmup), betas=(0.9, 0.98), eps=1e-9
        )
        losses.append(_step(model, optimizer, [draw() for _ in range(accumulate)], 0.1, 1.0))
    return losses


def _mean(model, batch, ignore=PAD):
    return _nll(model, batch, reduction="mean", ignore=ignore)


def _with_faults(model, optimizer, batches, held_out, every, padding, early, asleep):
    losses, measured = [], []
    for number, batch in enumerate(batches, start=1):
        optimizer.zero_grad()
        loss = _mean(model, batch, ignore=-1 if padding else PAD)
        if early:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        loss.backward()
        if not early:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if number % every == 0:
            model.eval()
            with torch.no_grad():
                ignore = -1 if padding else PAD
                values = [_mean(model, other, ignore=ignore).item() for other in held_out]
            model.train(not asleep)
            measured.append(sum(values) / len(values))
    return losses, measured


@also("M108", "mended_training")
def padding_still_counts(model, optimizer, batches, held_out, every):
    return _with_faults(model, optimizer, batches, held_out, every, True, False, False)


@also("M327", "mended_training")
def still_clipped_too_early(model, optimizer, batches, held_out, every):
    return _with_faults(model, optimizer, batches, held_out, every, False, True, False)


@misconception(
    "M336",
    "mended_training",
    title="evaluation mode is never left",
    source="common: model.eval() before the validation, and no model.train() after it",
    effect="From the first validation on nothing is dropped any more, and the model overfits.",
    hint="Up to the first look at the held-out batches everything is right. In which mode does the "
    "training go on?",
)
def evaluation_mode_stays(model, optimizer, batches, held_out, every):
    return _with_faults(model, optimizer, batches, held_out, every, False, False, True)


@misconception(
    "M967",
    "mended_training",
    title="gradients are set to zero only after the step",
    source="an answer in a trial of the checks: optimizer.zero_grad() at the end of the loop",
    effect="What is in `.grad` when the training begins goes into its first step.",
    hint="Your first loss is right, and your first step is not. What was in `.grad` when your "
    "function was called?",
)
def zeroed_afterwards(model, optimizer, batches, held_out, every):
    return _mended(model, optimizer, batches, held_out, every, _mean, _mean, zero_first=False)


@misconception(
    "M337",
    "mended_training",
    title="all three faults are still there",
    source="the program as it is shown",
    effect="Three effects at once, none of which raises an error.",
    hint="It is the program as it was. Which line is there to limit the gradient, and what is "
    "there to limit when it runs?",
)
def as_it_was(model, optimizer, batches, held_out, every):
    return _with_faults(model, optimizer, batches, held_out, every, True, True, True)


@misconception(
    "M338",
    "average_checkpoints",
    title="summed, and not divided",
    source="a plausible slip",
    effect="All weights are several times too large.",
    hint="Your numbers are as many times too large as there are checkpoints.",
)
def summed(states):
    return {name: sum(state[name] for state in states) for name in states[0]}


@misconception(
    "M339",
    "average_checkpoints",
    title="a running mean of two",
    source="a plausible slip: averaged with the mean so far, one after another",
    effect="The last checkpoint counts half, the first ones hardly at all.",
    hint="With two checkpoints it is right. What does the first of four count in your mean?",
)
def mean_of_two(states):
    average = dict(states[0])
    for state in states[1:]:
        average = {name: (average[name] + state[name]) / 2 for name in average}
    return average


@misconception(
    "M340",
    "average_checkpoints",
    title="the last checkpoint, not the mean",
    source="a plausible slip: overwritten in the loop",
    effect="No averaging.",
    hint="Your result is one of the checkpoints.",
)
def the_last_one(states):
    return dict(states[-1])


@misconception(
    "M497",
    "training_step",
    title="divided by all places, padding included",
    source="common: numel() for the number of real tokens",
    effect="The more padding a batch has, the less is learned from it.",
    hint="Padding has no loss in yours, and is counted all the same. By how many tokens do you "
    "divide?",
)
def divided_by_all_places(model, optimizer, batches, smoothing, max_norm):
    real = sum(_real(labels) for _, _, labels in batches)
    places = sum(labels.numel() for _, _, labels in batches)

    def loss(*args):
        return _nll(*args) * real / places

    return _step(model, optimizer, batches, smoothing, max_norm, loss=loss)


@also("M497", "mended_training")
def means_over_all_places(model, optimizer, batches, held_out, every):
    def mean(model, batch):
        return _nll(model, batch) / batch[2].numel()

    return _mended(model, optimizer, batches, held_out, every, mean, mean)


def _mended(
    model, optimizer, batches, held_out, every, mean, measure, dropout=False,
    clip=nn.utils.clip_grad_norm_, zero_first=True,
):  # fmt: skip
    """The program without its three faults, with these means in training and in measuring."""
    losses, measured = [], []
    for number, batch in enumerate(batches, start=1):
        if zero_first or number > 1:
            optimizer.zero_grad()
        loss = mean(model, batch)
        loss.backward()
        clip(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if number % every == 0:
            model.train(dropout)
            with torch.no_grad():
                values = [measure(model, other) for other in held_out]
            model.train()
            measured.append(float(sum(values) / len(values)))
    return losses, measured


@misconception(
    "M498",
    "training_step",
    title="each parameter's gradient is clipped by itself",
    source="answers in a trial of the checks: clip_grad_norm_ in a loop over the parameters",
    effect="The step has another direction than the gradient, and may be longer than the limit.",
    hint="Small gradients are right. The norm of what is limited: of each parameter, or of all "
    "together?",
)
def clipped_one_by_one(model, optimizer, batches, smoothing, max_norm):
    return _step(model, optimizer, batches, smoothing, max_norm, clip="one by one")


@misconception(
    "M499",
    "training_step",
    title="each batch divided by the tokens so far",
    source="an answer in a trial of the checks: the count grows in the same loop",
    effect="The first batches count too much.",
    hint="With one batch it is right. By how many tokens is the first of several divided?",
)
def tokens_so_far(model, optimizer, batches, smoothing, max_norm):
    so_far, real = 0, sum(_real(labels) for _, _, labels in batches)

    def loss(model, batch, smoothing):
        nonlocal so_far
        so_far += _real(batch[2])
        return _nll(model, batch, smoothing) * real / so_far

    return _step(model, optimizer, batches, smoothing, max_norm, loss=loss)


@misconception(
    "M500",
    "mended_training",
    title="padding still counts where it is measured",
    source="answers in a trial of the checks: ignore_index in the training loss only",
    effect="The held-out losses of two programs with other batches cannot be compared.",
    hint="Your training is right. Which tokens are in the mean of a held-out batch?",
)
def padding_is_measured(model, optimizer, batches, held_out, every):
    def measure(model, batch):
        return _mean(model, batch, ignore=-1)

    return _mended(model, optimizer, batches, held_out, every, _mean, measure)


@misconception(
    "M501",
    "mended_training",
    title="a mean over all held-out tokens",
    source="answers in a trial of the checks: better, and not what was asked for",
    effect="Numbers that do not go with those of the program before.",
    hint="Your training is right. The held-out loss is to stay a mean of the batches' means: what "
    "is yours the mean of?",
)
def mean_over_held_out_tokens(model, optimizer, batches, held_out, every):
    share = len(held_out) / sum(_real(labels) for _, _, labels in held_out)

    def measure(model, batch):
        return _nll(model, batch) * share

    return _mended(model, optimizer, batches, held_out, every, _mean, measure)


@misconception(
    "M502",
    "average_checkpoints",
    title="always the last five",
    source="an answer in a trial of the checks: the paper's number in the code",
    effect="Right for five checkpoints, and less averaging than was asked for with more.",
    hint="With more than five states you leave the first ones out. Who chooses what is averaged?",
)
def last_five(states):
    last = states[-5:]
    return {name: torch.stack([state[name] for state in last]).mean(dim=0) for name in last[0]}


@misconception(
    "M503",
    "average_checkpoints",
    title="what two names share is added twice",
    source="an answer in a trial of the checks: sums in place, into a deep copy",
    effect="Tied tables come out as twice their mean.",
    hint="Two names may stand for one tensor, and a deep copy keeps it so. What happens to it when "
    "you add to both in place?",
)
def shared_added_twice(states):
    total = copy.deepcopy(states[0])
    for state in states[1:]:
        for name in total:
            total[name] += state[name]
    for name in total:
        total[name] /= len(states)
    return total


@misconception(
    "M504",
    "train_model",
    title="AdamW for Adam",
    source="answers in a trial of the checks: its weight decay is 0.01 unless it is set",
    effect="All weights shrink a little in each step.",
    hint="Your rates, betas and ε are right, and your weights shrink a little in each step. Which "
    "optimizer does section 5.3 of the paper name?",
)
def adam_with_decay(model, draw, steps, accumulate, peak, warmup):
    return _train(model, draw, steps, accumulate, peak, warmup, optimizer=torch.optim.AdamW)


@misconception(
    "M505",
    "train_model",
    title="a step for each of the batches to accumulate",
    source="answers in a trial of the checks: training_step called once a batch",
    effect="As many small steps as batches, at the same rate: nothing is accumulated.",
    hint="Without accumulation it is right. Of how many batches is the gradient of one step?",
)
def nothing_accumulated(model, draw, steps, accumulate, peak, warmup):
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    model.train()
    losses = []
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = _rate(step, peak, warmup)
        each = [_step(model, optimizer, [draw()], 0.1, 1.0) for _ in range(accumulate)]
        losses.append(sum(each) / accumulate)
    return losses


@misconception(
    "M511",
    "mended_training",
    title="dropout stays on where it is measured",
    source="an answer in a trial of the checks: model.eval() taken out, train() never needed then",
    effect="Held-out losses that are too high, and others each time.",
    hint="Your training is right. In which mode is the model while you measure?",
)
def measured_with_dropout(model, optimizer, batches, held_out, every):
    return _mended(model, optimizer, batches, held_out, every, _mean, _mean, dropout=True)


@misconception(
    "M512",
    "mended_training",
    title="each number of the gradient is clipped, not its norm",
    source="an answer in a trial of the checks: clip_grad_value_",
    effect="The step has another direction than the gradient, and may be longer than the limit.",
    hint="You limit each number of the gradient by itself. Whose norm should be limited?",
)
def numbers_clipped(model, optimizer, batches, held_out, every):
    clip = nn.utils.clip_grad_value_
    return _mended(model, optimizer, batches, held_out, every, _mean, _mean, clip=clip)


@also("M512", "training_step")
def numbers_clipped_in_a_step(model, optimizer, batches, smoothing, max_norm):
    return _step(model, optimizer, batches, smoothing, max_norm, clip="numbers")


@misconception(
    "M513",
    "train_model",
    title="one batch several times",
    source="an answer in a trial of the checks: [draw()] * accumulate",
    effect="Accumulation without its use: the gradient is that of one batch, for the time of all.",
    hint="With accumulate = 1 you are right. How often do you draw for one step?",
)
def one_batch_several_times(model, draw, steps, accumulate, peak, warmup):
    return _train(model, draw, steps, accumulate, peak, warmup, drawn=1)


@misconception(
    "M514",
    "train_model",
    title="the peak in the place of d_model^−0.5",
    source="an answer in a trial of the checks: equation (3) as it stands, times another number",
    effect="A rate that is √warmup times too small.",
    hint="Your rate is √warmup times too small: at step warmup equation (3) without its d_model "
    "gives 1/√warmup, and not 1.",
)
def peak_for_the_width(model, draw, steps, accumulate, peak, warmup):
    return _train(
        model, draw, steps, accumulate, peak, warmup,
        rate=lambda step, peak, warmup: peak * min(step**-0.5, step * warmup**-1.5),
    )  # fmt: skip


@misconception(
    "M607",
    "average_checkpoints",
    title="the first checkpoint counts twice",
    source="an answer in a trial of the checks: the sum begins with it, and the loop adds it again",
    effect="The mean leans towards the oldest weights.",
    hint="Your mean of two is (2·a + b)/3. With what does your sum begin, and what does the loop "
    "add?",
)
def first_counts_twice(states):
    twice = [states[0], *states]
    return {name: torch.stack([s[name] for s in twice]).mean(dim=0) for name in states[0]}


@misconception(
    "M608",
    "train_model",
    title="batches counted as steps",
    source="an answer in a trial of the checks: an update whenever i is divisible by accumulate",
    effect="Only 1/accumulate of the updates are made, and the rate ends higher than planned.",
    hint="Your losses are fewer than the steps. Is one step one batch, or `accumulate` of them?",
)
def batches_counted_as_steps(model, draw, steps, accumulate, peak, warmup):
    return _train(model, draw, steps // accumulate, accumulate, peak, warmup)


@also("M512", "train_model")
def trained_with_numbers_clipped(model, draw, steps, accumulate, peak, warmup):
    return _train(model, draw, steps, accumulate, peak, warmup, clip="numbers")


@also("M328", "train_model")
def trained_with_each_part_clipped(model, draw, steps, accumulate, peak, warmup):
    return _train(model, draw, steps, accumulate, peak, warmup, clip="each")


@misconception(
    "M628",
    "train_model",
    title="the rate counts batches",
    source="an answer in a trial of the checks: the step is counted up with each backward",
    effect="The warm-up is over `accumulate` times too early.",
    hint="With one batch per step your rates are right. What should the schedule count: batches "
    "or updates?",
)
def rate_counts_batches(model, draw, steps, accumulate, peak, warmup):
    return _train(
        model, draw, steps, accumulate, peak, warmup,
        rate=lambda step, peak, warmup: _rate(step * accumulate, peak, warmup),
    )  # fmt: skip


@misconception(
    "M632",
    "average_checkpoints",
    title="the first checkpoint is added twice",
    source="a plausible slip: the sum begins with it, and the loop begins with it, too",
    effect="No mean at all: the weights are too large.",
    hint="With one checkpoint you return its double. With what does your sum begin, and what does "
    "the loop add?",
)
def first_added_twice(states):
    return {
        name: (states[0][name] + sum(state[name] for state in states)) / len(states)
        for name in states[0]
    }


@misconception(
    "M797",
    "training_step",
    title="batches weighted by all their places, padding included",
    source="an answer in a trial of the checks: the mean of each batch times labels.numel()",
    effect="Tokens beside much padding count more than others.",
    hint="With one batch you are right. By what do you weight the mean of each batch: by its "
    "places or by its real tokens?",
)
def weighted_by_places(model, optimizer, batches, smoothing, max_norm):
    real = sum(_real(labels) for _, _, labels in batches)
    places = sum(labels.numel() for _, _, labels in batches)

    def loss(model, batch, smoothing):
        share = batch[2].numel() / places
        return _nll(model, batch, smoothing) / _real(batch[2]) * share * real

    return _step(model, optimizer, batches, smoothing, max_norm, loss=loss)


@misconception(
    "M841",
    "training_step",
    title="a step for each batch",
    source="an answer in a trial of the checks: the usual loop over batches",
    effect="Several small steps for one large one; the later batches meet another model.",
    hint="With one batch you are right. How often may the optimizer step in one training step?",
)
def a_step_for_each_batch(model, optimizer, batches, smoothing, max_norm):
    each = [_step(model, optimizer, [batch], smoothing, max_norm) for batch in batches]
    tokens = [_real(labels) for _, _, labels in batches]
    return sum(loss * n for loss, n in zip(each, tokens, strict=True)) / sum(tokens)
