"""Mistakes in counting what training costs, and in spreading it over devices."""

from transformer_lib.course.misconceptions.bank import misconception


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
    hint="How many square matrices has multi-head attention?",
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
    hint="How many matrices has the feed-forward network?",
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
    hint="You count too much. How many matrices has the paper's feed-forward network?",
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
