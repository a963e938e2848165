"""Mistakes in a training of one's own: the step, the loop around it, and what comes after."""

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
    hint="Small gradients are right, large ones are not clipped. When does the gradient exist?",
)
def clipped_too_early(model, optimizer, batches, smoothing, max_norm):
    return _step(model, optimizer, batches, smoothing, max_norm, clip="before")


@misconception(
    "M328",
    "training_step",
    title="each part of the gradient is clipped",
    source="a plausible slip: the clipping stands inside the loop over the batches",
    effect="The first batches count less than the last one.",
    hint="With one batch your step is right. The norm of what should be limited?",
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
    model, draw, steps, accumulate, peak, warmup, rate=_rate, mode=True, betas=(0.9, 0.98), eps=1e-9
):
    optimizer = torch.optim.Adam(model.parameters(), betas=betas, eps=eps)
    model.train(mode)
    losses = []
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = rate(step, peak, warmup)
        batches = [draw() for _ in range(accumulate)]
        losses.append(_step(model, optimizer, batches, 0.1, 1.0))
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
