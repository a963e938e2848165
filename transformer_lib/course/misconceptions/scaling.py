"""Mistakes in counting what training costs, and in spreading it over devices."""

from operator import floordiv, truediv

import torch

from transformer_lib.course.misconceptions.bank import also, misconception


def _flops(projections, mixing, feed_forward):
    return 2 * (projections + mixing + feed_forward)


@misconception(
    "M200",
    "encoder_layer_flops",
    title="multiplications counted, additions not",
    source="common: “MACs” reported as FLOPs",
    effect="Half of the number that others report.",
    hint="You have half of it. How many operations is a multiplication whose result is added to a "
    "sum?",
)
def multiplications_only(length, d_model, d_ff):
    return 4 * length * d_model**2 + 2 * length**2 * d_model + 2 * length * d_model * d_ff


@misconception(
    "M201",
    "encoder_layer_flops",
    title="only what has parameters",
    source="common: 2 · parameters · tokens, which is meant for short sentences",
    effect="Nearly right for short sentences; for long ones most of the work is missing.",
    hint="Your number grows with the length in proportion. Which products of attention have no "
    "parameters?",
)
def parameters_only(length, d_model, d_ff):
    return _flops(4 * length * d_model**2, 0, 2 * length * d_model * d_ff)


@misconception(
    "M202",
    "encoder_layer_flops",
    title="the output projection is missing",
    source="a plausible slip: queries, keys, values, and that is it",
    effect="A quarter of the projections is not counted.",
    hint="How many square matrices does multi-head attention have?",
)
def without_the_output_projection(length, d_model, d_ff):
    mixing = 2 * length**2 * d_model
    return _flops(3 * length * d_model**2, mixing, 2 * length * d_model * d_ff)


@misconception(
    "M203",
    "encoder_layer_flops",
    title="the scores, but not the weighted values",
    source="a plausible slip",
    effect="Half of what grows with the square of the length is missing.",
    hint="You have half of what grows with the square of the length. Two products of attention do: "
    "one makes the matrix of queries times keys, and the other? (An encoder computes all of it.)",
)
def scores_only(length, d_model, d_ff):
    mixing = length**2 * d_model
    return _flops(4 * length * d_model**2, mixing, 2 * length * d_model * d_ff)


@misconception(
    "M204",
    "encoder_layer_flops",
    title="one matrix of the feed-forward network",
    source="a plausible slip",
    effect="A third of a usual layer is missing.",
    hint="How many matrices does the feed-forward network have?",
)
def half_of_the_feed_forward(length, d_model, d_ff):
    mixing = 2 * length**2 * d_model
    return _flops(4 * length * d_model**2, mixing, length * d_model * d_ff)


@misconception(
    "M205",
    "average_gradients",
    title="the mean of the devices' means",
    source="what DistributedDataParallel does, if nobody interferes",
    effect="A token on a device with a small batch counts more than one on a device with a large "
    "batch.",
    hint="With as many tokens on each device you would be right. Does every token count the same?",
)
def mean_of_means(gradients, tokens):
    return gradients.mean(dim=0)


@misconception(
    "M206",
    "average_gradients",
    title="summed, not averaged",
    source="a plausible slip: all-reduce with SUM, and no division after it",
    effect="The gradient grows with the number of devices.",
    hint="With one device you are right. What does adding a second one do to the size of the "
    "gradient?",
)
def summed(gradients, tokens):
    return gradients.sum(dim=0)


@misconception(
    "M207",
    "average_gradients",
    title="weighted by tokens, divided by devices",
    source="a plausible slip",
    effect="The gradient grows with the batch.",
    hint="You weight by the tokens. By what do you divide?",
)
def divided_by_devices(gradients, tokens):
    return (tokens[:, None] * gradients).mean(dim=0)


@misconception(
    "M208",
    "average_gradients",
    title="weighted the other way round",
    source="a plausible slip: means divided by their tokens, as if they were sums",
    effect="The smaller a device's batch, the more it decides.",
    hint="Each device has already divided by its tokens. Do you divide once more?",
)
def divided_once_more(gradients, tokens):
    return (gradients / tokens[:, None]).sum(dim=0)


@misconception(
    "M564",
    "encoder_layer_flops",
    title="three matrices in the feed-forward network",
    source="an answer in a trial of the checks: gate, up and down, as in Llama",
    effect="Half as much again for the feed-forward network.",
    hint="You count too much. How many matrices does the paper's feed-forward network have?",
)
def gated(length, d_model, d_ff):
    return _flops(4 * length * d_model**2, 2 * length**2 * d_model, 3 * length * d_model * d_ff)


@misconception(
    "M594",
    "encoder_layer_flops",
    title="d_ff taken for 4 · d_model",
    source="Megatron-LM's formula, 24·n·d² + 4·n²·d",
    effect="Right for the base and big models of the paper, wrong for any other ratio of d_ff to "
    "d_model.",
    hint="Change d_ff, and your number stays the same. What does your formula assume it to be?",
)
def always_four_times_as_wide(length, d_model, d_ff):
    return 24 * length * d_model**2 + 4 * length**2 * d_model


@misconception(
    "M595",
    "average_gradients",
    title="the first device is not weighted",
    source="an answer in a trial of the checks: the sum begins with its gradient as it is",
    effect="The first device counts as if it had a single token.",
    hint="With one device you return its gradient divided by its tokens. By what is the first "
    "gradient multiplied?",
)
def first_device_unweighted(gradients, tokens):
    weights = tokens.clone()
    weights[0] = 1
    return (weights[:, None] * gradients).sum(dim=0) / tokens.sum()


def _generation(
    src_len, tgt_len, d_model, d_ff, cached,
    projections=6, memories=lambda cached, steps: 1 if cached else steps,
    seen=lambda step, last: step, scores=lambda new, keys: new * keys,
    looked_at=lambda src_len, keys: src_len, mixing=2, pairs=2,
):  # fmt: skip
    """As it should be, but for what is switched."""

    def step(number):
        new, keys = (1, seen(number, tgt_len)) if cached else (number, number)
        attended = scores(new, keys) + new * looked_at(src_len, keys)
        return new * (projections * d_model**2 + 2 * d_model * d_ff) + mixing * attended * d_model

    memory = 2 * src_len * d_model**2
    steps = sum(step(number) for number in range(1, tgt_len + 1))
    return pairs * (memories(cached, tgt_len) * memory + steps)


@also("M200", "generation_flops")
def products_once(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(src_len, tgt_len, d_model, d_ff, cached, pairs=1)


@misconception(
    "M697",
    "generation_flops",
    title="the memory's keys and values are computed in every step",
    source="a plausible slip: a cache for the decoder's own tokens only",
    effect="Half of what the cache saves with long sources is lost.",
    hint="Without a cache you are right. How often do the memory's keys and values change?",
)
def memory_in_every_step(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(
        src_len, tgt_len, d_model, d_ff, cached, memories=lambda cached, steps: steps
    )


@misconception(
    "M698",
    "generation_flops",
    title="the memory's keys and values are left out",
    source="a plausible slip",
    effect="With long sources, much too little.",
    hint="You count too little, the more the longer the source. Of what does cross-attention make "
    "its keys and values?",
)
def without_the_memory(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(src_len, tgt_len, d_model, d_ff, cached, memories=lambda *_: 0)


@misconception(
    "M699",
    "generation_flops",
    title="eight projections of each token",
    source="a plausible slip: four matrices for each attention",
    effect="Keys and values of cross-attention are counted for the decoder's tokens as well.",
    hint="Cross-attention has four matrices. How many of them meet the decoder's tokens?",
)
def eight_projections(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(src_len, tgt_len, d_model, d_ff, cached, projections=8)


@misconception(
    "M700",
    "generation_flops",
    title="two of six projections are missing",
    source="a plausible slip: cross-attention without its own, or W^O left out of both attentions",
    effect="A third of the projections is missing.",
    hint="Each token meets six matrices beside the feed-forward network, and four in yours. Which "
    "come before the scores of each attention, and which after its weighted sum?",
)
def two_projections_missing(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(src_len, tgt_len, d_model, d_ff, cached, projections=4)


@misconception(
    "M701",
    "generation_flops",
    title="every step looks at the whole translation",
    source="a plausible slip: tgt_len for the number of the step",
    effect="The part of attention is twice as large as it is.",
    hint="With a cache, at what does the third token look? In yours at all of them.",
)
def whole_translation_seen(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(src_len, tgt_len, d_model, d_ff, cached, seen=lambda step, last: last)


@misconception(
    "M702",
    "generation_flops",
    title="one product for scores and values",
    source="a plausible slip: n · d for 2 · n · d",
    effect="The part of attention is half of what it is.",
    hint="Queries meet keys in one product. What comes after the softmax?",
)
def one_product_of_attention(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(src_len, tgt_len, d_model, d_ff, cached, mixing=1)


@misconception(
    "M703",
    "generation_flops",
    title="a whole forward pass with or without a cache",
    source="a plausible slip: the cost in training",
    effect="What is computed again in every step is not counted.",
    hint="With a cache you are nearly right. Without one, what does step 10 compute of token 3?",
)
def one_forward_pass(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(src_len, tgt_len, d_model, d_ff, True)


@misconception(
    "M704",
    "generation_flops",
    title="every step costs as much as the last one",
    source="a plausible slip: tgt_len times the cost of the whole",
    effect="Without a cache about twice as much as it is.",
    hint="With a cache you are right. Without one, how many tokens does the first step read?",
)
def last_step_times_length(src_len, tgt_len, d_model, d_ff, cached):
    if cached:
        return _generation(src_len, tgt_len, d_model, d_ff, True)
    with_all = _generation(src_len, tgt_len, d_model, d_ff, False)
    before = _generation(src_len, tgt_len - 1, d_model, d_ff, False)
    return tgt_len * (with_all - before)


@misconception(
    "M765",
    "generation_flops",
    title="the token itself is not seen",
    source="an answer in a trial of the checks",
    effect="One key and one value too few in each step.",
    hint="At how many tokens does the first step look, if there is a cache?",
)
def itself_not_seen(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(src_len, tgt_len, d_model, d_ff, cached, seen=lambda step, last: step - 1)


@misconception(
    "M959",
    "generation_flops",
    title="cross-attention has no scores",
    source="an answer in a trial of the checks: its four projections alone",
    effect="What a long source costs in each step is missing.",
    hint="The longer the source, the more is missing in each step. Which two products come after "
    "the projections of cross-attention, and how many keys has each query there?",
)
def source_not_scored(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(src_len, tgt_len, d_model, d_ff, cached, looked_at=lambda src_len, keys: 0)


@misconception(
    "M766",
    "generation_flops",
    title="masked scores are not counted",
    source="an answer in a trial of the checks: n(n + 1)/2 for n²",
    effect="What the mask hides is computed all the same.",
    hint="With a cache you are right. Without one, what are the sizes of the product that the "
    "mask is laid over?",
)
def masked_not_counted(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(
        src_len, tgt_len, d_model, d_ff, cached,
        scores=lambda new, keys: new * keys - new * (new - 1) // 2,
    )  # fmt: skip


@misconception(
    "M767",
    "generation_flops",
    title="the memory's keys and values are kept without a cache, too",
    source="an answer in a trial of the checks",
    effect="Too little without a cache, the more the longer the source.",
    hint="With a cache you are right. Without one, who keeps the keys and values of the memory "
    "from step to step?",
)
def memory_kept_anyway(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(src_len, tgt_len, d_model, d_ff, cached, memories=lambda *_: 1)


@misconception(
    "M768",
    "generation_flops",
    title="cross-attention looks at the translation",
    source="an answer in a trial of the checks: n keys for src_len",
    effect="The length of the source has hardly any influence.",
    hint="How many keys does a token meet in cross-attention? In yours as many as have been "
    "written.",
)
def cross_over_the_target(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(
        src_len, tgt_len, d_model, d_ff, cached, looked_at=lambda src_len, keys: keys
    )


@misconception(
    "M844",
    "generation_flops",
    title="with the cache a token looks at itself alone",
    source="an answer in a trial of the checks: one key per step",
    effect="Self-attention costs the same in each step, however much has been written.",
    hint="Without a cache you are right. With one, how many keys does the new token look at in "
    "step n?",
)
def a_cache_of_one(src_len, tgt_len, d_model, d_ff, cached):
    return _generation(src_len, tgt_len, d_model, d_ff, cached, seen=lambda step, last: 1)


def _from_its_stage_on(devices, stage, first):
    return devices if stage >= first else 1


def _bytes(
    parameters, devices, stage,
    sizes=(2.0, 2.0, 12.0), from_stage=(3, 2, 1), shared_by=_from_its_stage_on, divided=truediv,
):  # fmt: skip
    """Of weights, gradients and the optimizer's states, but for what is switched."""
    each = zip(sizes, from_stage, strict=True)
    return parameters * sum(divided(n, shared_by(devices, stage, first)) for n, first in each)


@misconception(
    "M705",
    "bytes_per_device",
    title="no weights in float32",
    source="common: Adam's two moments alone",
    effect="A quarter too little on one device.",
    hint="Of the optimizer's states you count two. In what do small steps add up, when the weights "
    "have 16 bits?",
)
def without_the_copy(parameters, devices, stage):
    return _bytes(parameters, devices, stage, sizes=(2.0, 2.0, 8.0))


@misconception(
    "M706",
    "bytes_per_device",
    title="everything in float32",
    source="a plausible slip: 4 bytes each",
    effect="Weights, gradients and two moments: 16 bytes as well, and shared out otherwise.",
    hint="On one device you are right. How many bytes have weights and gradients in mixed "
    "precision?",
)
def all_in_float32(parameters, devices, stage):
    return _bytes(parameters, devices, stage, sizes=(4.0, 4.0, 8.0))


@misconception(
    "M707",
    "bytes_per_device",
    title="the stages turned round",
    source="a plausible slip: weights first",
    effect="Stage 1 seems to save least, and it saves most.",
    hint="Stages 0 and 3 are right. Which of the three is shared out first?",
)
def stages_turned_round(parameters, devices, stage):
    return _bytes(parameters, devices, stage, from_stage=(1, 2, 3))


@misconception(
    "M708",
    "bytes_per_device",
    title="each stage shares out one thing only",
    source="a plausible slip: == for >=",
    effect="Stage 3 seems to need more than stage 1.",
    hint="Stages 0 and 1 are right. What is shared out in stage 1: does stage 2 take it back?",
)
def one_thing_only(parameters, devices, stage):
    return _bytes(
        parameters, devices, stage,
        shared_by=lambda devices, stage, its_own: devices if stage == its_own else 1,
    )  # fmt: skip


@misconception(
    "M709",
    "bytes_per_device",
    title="everything is shared out from stage 1 on",
    source="a plausible slip: devices divide all of it",
    effect="Stages 1 to 3 seem to be the same.",
    hint="Stages 0 and 3 are right. What does each device still have whole in stage 1?",
)
def everything_shared(parameters, devices, stage):
    return parameters * 16.0 / (devices if stage else 1)


@misconception(
    "M710",
    "bytes_per_device",
    title="gradients are left out",
    source="a plausible slip",
    effect="Two bytes of each parameter are missing.",
    hint="Two bytes of each parameter are missing. What does the backward pass leave behind?",
)
def without_gradients(parameters, devices, stage):
    return _bytes(parameters, devices, stage, sizes=(2.0, 0.0, 12.0))


@misconception(
    "M711",
    "bytes_per_device",
    title="bytes of all devices together",
    source="a plausible slip",
    effect="What one device must hold cannot be read off.",
    hint="Yours grows with the number of devices. Asked for is what one of them holds.",
)
def of_all_devices(parameters, devices, stage):
    return devices * _bytes(parameters, devices, stage)


@misconception(
    "M775",
    "bytes_per_device",
    title="the copy in 32 bits belongs to the weights",
    source="an answer in a trial of the checks",
    effect="It is shared out in stage 3 only, and stages 1 and 2 save less than they do.",
    hint="Stages 0 and 3 are right. With what is the copy in 32 bits shared out: with the "
    "weights, or with the optimizer that needs it?",
)
def copy_with_the_weights(parameters, devices, stage):
    return _bytes(parameters, devices, stage, sizes=(6.0, 2.0, 8.0))


@misconception(
    "M776",
    "bytes_per_device",
    title="the bytes of one parameter divided with //",
    source="an answer in a trial of the checks",
    effect="With more devices than bytes nothing seems to be left.",
    hint="On 13 devices the optimizer needs nothing in yours. What does // leave of 12 / 13?",
)
def divided_to_whole_bytes(parameters, devices, stage):
    return _bytes(parameters, devices, stage, divided=floordiv)


@misconception(
    "M777",
    "bytes_per_device",
    title="shared out again in each stage",
    source="an answer in a trial of the checks",
    effect="Stage 3 divides the optimizer by the devices three times.",
    hint="Stages 0 and 1 are right. By what is the optimizer divided in stage 2: by the devices, "
    "or by their square?",
)
def shared_out_again(parameters, devices, stage):
    return _bytes(
        parameters, devices, stage,
        shared_by=lambda devices, stage, first: devices ** max(0, stage - first + 1),
    )  # fmt: skip


def _ring(
    parts, chunk=lambda sender, first, step: sender + first - step, gathered=False, added=True,
    onward=1, first_of_second_half=1, steps=-1, mean=False,
):  # fmt: skip
    """As it should be, but for what is switched."""
    devices = len(parts)
    states = [parts]
    for first, is_sum in ((0, added), (first_of_second_half, gathered)):
        for step in range(devices + steps):
            before, after = states[-1], states[-1].clone()
            for sender in range(devices):
                receiver = (sender + onward) % devices
                sent = chunk(sender, first, step) % devices
                own = before[receiver, sent] if is_sum else 0.0
                after[receiver, sent] = own + before[sender, sent]
            states.append(after)
    result = torch.stack(states)
    return torch.cat([result[:-1], result[-1:] / devices]) if mean else result


@misconception(
    "M712",
    "ring_all_reduce",
    title="replaced in the first half, too",
    source="a plausible slip: = for +=",
    effect="Gradients go round the ring, and nothing is added up.",
    hint="After the first step you hold what your neighbor had. Where is what you had yourself?",
)
def replaced_at_once(parts):
    return _ring(parts, added=False)


@misconception(
    "M713",
    "ring_all_reduce",
    title="added in the second half, too",
    source="a plausible slip: one loop for both halves",
    effect="Whole sums are added to parts of themselves.",
    hint="The first half is right. What is sent in the second half is whole: what is it to do with "
    "the receiver's part?",
)
def added_to_the_end(parts):
    return _ring(parts, gathered=True)


@misconception(
    "M714",
    "ring_all_reduce",
    title="the chunks in the wrong order",
    source="a plausible slip: i + s for i − s",
    effect="What a device has just received is not what it sends on.",
    hint="Step 0 is right. In step 1 a device passes on what it has just received: which chunk is "
    "that?",
)
def chunks_forwards(parts):
    return _ring(parts, chunk=lambda sender, first, step: sender + first + step)


@misconception(
    "M715",
    "ring_all_reduce",
    title="sent to the left",
    source="a plausible slip: device i − 1",
    effect="The neighbor that needs the chunk does not get it.",
    hint="To whom does device 0 send in the first step? Asked for is device 1.",
)
def to_the_left(parts):
    return _ring(parts, onward=-1)


@misconception(
    "M716",
    "ring_all_reduce",
    title="the second half begins with chunk i",
    source="a plausible slip: the same formula for both halves",
    effect="Parts are sent round as if they were sums.",
    hint="The first half is right. Which chunk of device i is whole when it ends?",
)
def same_chunks_in_both_halves(parts):
    return _ring(parts, first_of_second_half=0)


@misconception(
    "M717",
    "ring_all_reduce",
    title="one step too many in each half",
    source="a plausible slip: as many steps as devices",
    effect="In the first half some chunks are added twice.",
    hint="You have two states too many. How many steps does it take until a chunk has seen all "
    "devices?",
)
def one_step_too_many(parts):
    return _ring(parts, steps=0)


@misconception(
    "M718",
    "ring_all_reduce",
    title="the mean for the sum",
    source="a plausible slip: all-reduce as DistributedDataParallel uses it",
    effect="Another operation; the sum is divided by the devices.",
    hint="Your last state is the right one divided by one number. Is a mean asked for?",
)
def mean_for_sum(parts):
    return _ring(parts, mean=True)


@misconception(
    "M719",
    "ring_all_reduce",
    title="all states are the last one",
    source="a plausible slip: one tensor, changed in place, is in the list many times",
    effect="The steps cannot be seen.",
    hint="All your states are equal. What is in your list: states, or many times the same tensor?",
)
def always_the_last(parts):
    states = _ring(parts)
    return states[-1:].repeat(len(states), 1, 1, 1)


@misconception(
    "M720",
    "ring_all_reduce",
    title="the state at the beginning is left out",
    source="a plausible slip",
    effect="One state is missing.",
    hint="You have one state too few. What comes before the first step?",
)
def without_the_beginning(parts):
    return _ring(parts)[1:]


@misconception(
    "M721",
    "ring_all_reduce",
    title="the first half alone",
    source="a plausible slip: reduce-scatter for all-reduce",
    effect="Each device has one whole chunk, and parts of the others.",
    hint="In your last state each device has one whole chunk. How do the others come to it?",
)
def first_half_alone(parts):
    return _ring(parts)[: len(parts)]


@misconception(
    "M722",
    "ring_all_reduce",
    title="everything at once",
    source="a plausible slip: the sum over the devices, without a ring",
    effect="Right in the end; but each device would have to hear from all others.",
    hint="Your last state is right. Which chunks travel in the first step, and how many arrive at "
    "each device? (If that is right too: are all entries of your list one tensor?)",
)
def everything_at_once(parts):
    states = [parts, *[parts.sum(dim=0).expand_as(parts)] * (2 * (len(parts) - 1))]
    return torch.stack(states)


@misconception(
    "M769",
    "ring_all_reduce",
    title="the sender's numbers at the receiver",
    source="an answer in a trial of the checks: device i receives chunk i − s",
    effect="Each device sends what it has just passed on, one chunk off.",
    hint="In the first step device 1 receives chunk 1 in yours. Which chunk does device 0 send?",
)
def numbered_by_the_receiver(parts):
    return _ring(parts, chunk=lambda sender, first, step: sender + 1 + first - step)


@misconception(
    "M770",
    "ring_all_reduce",
    title="means are passed on in the second half",
    source="an answer in a trial of the checks: divided by the devices between the halves",
    effect="Another operation: the sum is divided by the devices.",
    hint="The first half is right. In the second, a device has something else than what it had at "
    "the end of the first: is a mean asked for?",
)
def means_passed_on(parts):
    states, whole = _ring(parts), _ring(torch.ones_like(parts)) == len(parts)
    whole[: len(parts)] = False
    return torch.where(whole, states / len(parts), states)


@misconception(
    "M794",
    "average_gradients",
    title="means taken for sums",
    source="an answer in a trial of the checks: added up and divided by the number of all tokens",
    effect="A gradient that is as many times too small as a device has tokens.",
    hint="With one device yours is divided by its number of tokens. Is a device's gradient a sum "
    "or a mean over them?",
)
def means_taken_for_sums(gradients, tokens):
    return gradients.sum(dim=0) / tokens.sum()


@misconception(
    "M795",
    "encoder_layer_flops",
    title="one addition less than multiplications",
    source="an answer in a trial of the checks: exact, where the text counts both alike",
    effect="A fraction of a percent too little.",
    hint="You are a little too low. How many additions does the text count for each "
    "multiplication?",
)
def one_addition_less(length, d_model, d_ff):
    products = (
        *[(length, d_model, d_model)] * 4,
        (length, d_model, length),
        (length, length, d_model),
        (length, d_model, d_ff),
        (length, d_ff, d_model),
    )
    return sum(rows * columns * (2 * inner - 1) for rows, inner, columns in products)
