"""Mistakes in layer norm and batch norm.

What is right about layer norm is in :mod:`transformer_lib.model.normalization`.
"""

import torch
from torch import nn

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.model.normalization import layer_norm


def _normalize(x, scale, shift, eps, dims):
    mean = x.mean(dim=dims, keepdim=True)
    variance = x.var(dim=dims, correction=0, keepdim=True)
    return scale * (x - mean) / torch.sqrt(variance + eps) + shift


@misconception(
    "M4",
    "layer_norm",
    title="the unbiased standard deviation, with epsilon added to it",
    source="the lecture and The Annotated Transformer: x.std() and (std + eps)",
    effect="Results are too small by √((d−1)/d): 13% at d = 4, 0.1% at d = 512, where nobody sees "
    "it, until weights come from nn.LayerNorm.",
    hint="Your results are slightly too small, and the narrower the vector, the more. By which "
    "number does x.std() divide, and where does the paper's formula put epsilon?",
)
def unbiased_and_epsilon_outside(x, scale, shift, eps):
    mean, std = x.mean(dim=-1, keepdim=True), x.std(dim=-1, keepdim=True)
    return scale * (x - mean) / (std + eps) + shift


@misconception(
    "M5",
    "layer_norm",
    title="no epsilon",
    source="NiuTensor",
    effect="A vector of equal numbers becomes 0/0 = NaN.",
    hint="A vector whose numbers are all equal gives NaN. What is its variance, and what is "
    "epsilon for?",
)
def without_epsilon(x, scale, shift, eps):
    return _normalize(x, scale, shift, 0.0, (-1,))


@misconception(
    "M16",
    "layer_norm",
    title="statistics rounded to whole numbers",
    source="the lecture's table of 6 features and 3 examples: means 3 for 2 and 3 for 2.33, and "
    "rounded unbiased deviations",
    effect="Anyone who recomputes the slide gets other numbers and looks for the mistake in their "
    "own code.",
    hint="Your mean and your deviation are whole numbers. Did you take them from a worked example? "
    "Recompute it: the mean of 0, 1 and 5 is 2.",
)
def rounded_statistics(x, scale, shift, eps):
    mean, std = x.mean(dim=-1, keepdim=True).round(), x.std(dim=-1, keepdim=True).round()
    return scale * (x - mean) / (std + eps) + shift


@misconception(
    "M61",
    "layer_norm",
    title="normalized over the positions",
    source="a plausible slip: dim=1 for dim=-1",
    effect="What a token becomes depends on the other tokens, the padding and the future included.",
    hint="Your statistics mix the positions of a sentence. Over which axis does layer norm work?",
)
def over_positions(x, scale, shift, eps):
    return _normalize(x, scale, shift, eps, (1,))


@misconception(
    "M62",
    "layer_norm",
    title="normalized over the batch: that is batch norm",
    source="common: layer norm and batch norm confused",
    effect="What a sentence becomes depends on its neighbors in the batch.",
    hint="Your statistics mix the sentences of a batch. That is the other one of the two norms.",
)
def over_the_batch(x, scale, shift, eps):
    return _normalize(x, scale, shift, eps, (0, 1))


@misconception(
    "M165",
    "batch_norm",
    title="layer norm for batch norm",
    source="common: layer norm and batch norm confused",
    effect="Every vector has the mean 0, the channels of a batch do not.",
    hint="Your statistics are those of each vector alone. That is the other one of the two norms: "
    "what does batch norm average over?",
)
def layer_norm_for_batch_norm(x, scale, shift, eps):
    return layer_norm(x, scale, shift, eps)


@misconception(
    "M63",
    "layer_norm",
    title="normalized over positions and channels together",
    source="common: layer norm as it is drawn for images",
    effect="A long sentence shares one mean and one deviation; padding changes it.",
    hint="All positions of a sentence share your mean. How many means should there be in a "
    "sentence of ten tokens?",
)
def over_the_sentence(x, scale, shift, eps):
    return _normalize(x, scale, shift, eps, (1, 2))


@misconception(
    "M64",
    "layer_norm",
    title="divided by the variance",
    source="a plausible slip: the root is missing",
    effect="The result has the deviation 1/σ instead of 1.",
    hint="Your result does not have the deviation 1. Is what you divide by in the same units as x?",
)
def divided_by_variance(x, scale, shift, eps):
    mean, variance = x.mean(dim=-1, keepdim=True), x.var(dim=-1, correction=0, keepdim=True)
    return scale * (x - mean) / (variance + eps) + shift


@also("M64", "batch_norm")
def batch_norm_divided_by_variance(x, scale, shift, eps):
    mean, variance = x.mean(dim=(0, 1)), x.var(dim=(0, 1), correction=0)
    return scale * (x - mean) / (variance + eps) + shift


@misconception(
    "M65",
    "layer_norm",
    title="epsilon outside the root",
    source="common: (σ + ε) for √(σ² + ε)",
    effect="Nothing to be seen where σ is about 1; where σ is small the result is several times "
    "smaller or larger.",
    hint="Where the numbers vary a good deal you are nearly right; where they hardly vary or, "
    "without a mean, are nearly zero, you are not. Is your epsilon under the root or outside it?",
)
def epsilon_outside(x, scale, shift, eps, dims=-1):
    mean = x.mean(dim=dims, keepdim=True)
    std = x.std(dim=dims, correction=0, keepdim=True)
    return scale * (x - mean) / (std + eps) + shift


@misconception(
    "M66",
    "layer_norm",
    title="the unbiased variance",
    source="common: x.var() divides by d − 1 unless told otherwise",
    effect="Results are too small by √((d−1)/d).",
    hint="Your results are slightly too small, and the fewer numbers share a variance, the more. "
    "By which number does x.var() divide?",
)
def unbiased_variance(x, scale, shift, eps):
    mean, variance = x.mean(dim=-1, keepdim=True), x.var(dim=-1, keepdim=True)
    return scale * (x - mean) / torch.sqrt(variance + eps) + shift


@also("M66", "batch_norm")
def batch_norm_of_unbiased_variance(x, scale, shift, eps):
    mean, variance = x.mean(dim=(0, 1)), x.var(dim=(0, 1))
    return scale * (x - mean) / torch.sqrt(variance + eps) + shift


@misconception(
    "M67",
    "layer_norm",
    title="scale and shift forgotten",
    source="a plausible slip",
    effect="Right at the start of training, when they are 1 and 0, and at no time after it.",
    hint="Your result is normalized, but the learned part is missing. What is it multiplied by, "
    "and what is added?",
)
def without_scale_and_shift(x, scale, shift, eps):
    return layer_norm(x, torch.ones_like(scale), torch.zeros_like(shift), eps)


@misconception(
    "M68",
    "layer_norm",
    title="the mean is not subtracted",
    source="a plausible slip; without the mean in the deviation as well it would be RMS norm",
    effect="The result keeps a mean of μ/σ.",
    hint="Your result does not have the mean that it should. What happens before the division?",
)
def mean_kept(x, scale, shift, eps):
    variance = x.var(dim=-1, correction=0, keepdim=True)
    return scale * x / torch.sqrt(variance + eps) + shift


@misconception(
    "M69",
    "layer_norm",
    title="the caller's tensor is changed",
    source="a plausible slip: x -= mean",
    effect="The residual connection adds a centered x instead of x.",
    hint="The numbers are right, but afterwards the caller's tensor is another one. Which line of "
    "yours writes into a tensor that you were given?",
)
def input_changed(x, scale, shift, eps):
    x -= x.mean(dim=-1, keepdim=True)
    return scale * x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps) + shift


@misconception(
    "M70",
    "batch_norm",
    title="normalized over the batch axis alone",
    source="a plausible slip: dim=0, as for data without a time axis",
    effect="Each position has statistics of its own, from as many numbers as there are sentences.",
    hint="Each position has its own mean in your result. How many numbers belong to one channel?",
)
def over_sentences_only(x, scale, shift, eps):
    return _normalize(x, scale, shift, eps, (0,))


@misconception(
    "M235",
    "batch_norm",
    title="each sentence for itself",
    source="a plausible slip: dim=1, which is what instance norm does",
    effect="Each sentence has statistics of its own; short ones have unreliable ones.",
    hint="Each sentence has its own mean in your result. How many numbers belong to one channel?",
)
def over_one_sentence(x, scale, shift, eps):
    return _normalize(x, scale, shift, eps, (1,))


class _Norm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))


@also("M4", "LayerNorm")
class UnbiasedNorm(_Norm):
    def forward(self, x):
        deviation = x.std(dim=-1, keepdim=True)
        return self.weight * (x - x.mean(dim=-1, keepdim=True)) / (deviation + 1e-6) + self.bias


@also("M61", "LayerNorm")
class NormOverPositions(_Norm):
    def forward(self, x):
        return _normalize(x, self.weight, self.bias, 1e-5, -2)


@misconception(
    "M244",
    "LayerNorm",
    title="nothing to be trained",
    source="answers in a trial of the checks: no scale and shift, or torch.ones for nn.Parameter",
    effect="Right in a new model; no optimizer finds anything to train.",
    hint="`list(norm.parameters())` of yours is empty. Which numbers are to be trained, and what "
    "makes a tensor one that is?",
)
class NormWithoutParameters(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight, self.bias = torch.ones(d_model), torch.zeros(d_model)

    def forward(self, x):
        return _normalize(x, self.weight, self.bias, 1e-5, -1)


@misconception(
    "M166",
    "LayerNorm",
    title="one scale and one shift for all channels",
    source="a plausible slip: nn.Parameter(torch.ones(1))",
    effect="The norm can make a vector larger or smaller, but not weigh its channels.",
    hint="Your numbers are right, but your norm has two trained numbers in all. How many does each "
    "channel have?",
)
class NormWithOneScale(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return _normalize(x, self.weight, self.bias, 1e-5, -1)


@misconception(
    "M187",
    "rms_norm",
    title="the mean is taken off",
    source="a plausible slip: layer norm without its shift",
    effect="That is layer norm; what RMSNorm saves is done all the same.",
    hint="Every vector of yours has the mean 0 before it is scaled. Is the mean part of the root "
    "mean square?",
)
def rms_norm_centred(x, scale, eps):
    return (
        scale
        * (x - x.mean(-1, keepdim=True))
        / torch.sqrt(x.var(-1, keepdim=True, correction=0) + eps)
    )


@misconception(
    "M188",
    "rms_norm",
    title="divided by the norm of the vector",
    source="a plausible slip: x.norm() for the root of the mean",
    effect="Numbers are √d_model too small: their squares add up to 1 instead of d_model.",
    hint="Your numbers are too small, the more so the wider the vector. Root of the mean, or root "
    "of the sum?",
)
def rms_norm_by_length(x, scale, eps):
    return scale * x / torch.sqrt(x.square().sum(-1, keepdim=True) + eps)


@misconception(
    "M189",
    "rms_norm",
    title="over the whole tensor",
    source="a plausible slip: mean() without dim",
    effect="A loud position makes all others quiet, and padding counts.",
    hint="Your positions influence one another. Over which axis does the mean run?",
)
def rms_norm_of_everything(x, scale, eps):
    return scale * x / torch.sqrt(x.square().mean() + eps)


@also("M5", "rms_norm")
def rms_norm_without_epsilon(x, scale, eps):
    return scale * x / torch.sqrt(x.square().mean(-1, keepdim=True))


@misconception(
    "M190",
    "rms_norm",
    title="the mean square without its root",
    source="a plausible slip",
    effect="Doubling a vector halves the result instead of leaving it as it is.",
    hint="Double a vector: your result becomes smaller. What should a norm do?",
)
def rms_norm_without_root(x, scale, eps):
    return scale * x / (x.square().mean(-1, keepdim=True) + eps)


@misconception(
    "M236",
    "rms_norm",
    title="the square of the mean",
    source="a plausible slip: x.mean() ** 2 for (x ** 2).mean()",
    effect="Where a vector's mean is about 0, the result explodes.",
    hint="You average first and square then. What does “mean square” say?",
)
def square_of_the_mean(x, scale, eps):
    return scale * x / torch.sqrt(x.mean(-1, keepdim=True).square() + eps)


@also("M65", "rms_norm")
def rms_norm_with_epsilon_outside(x, scale, eps):
    return scale * x / (x.square().mean(-1, keepdim=True).sqrt() + eps)


@misconception(
    "M243",
    "rms_norm",
    title="divided by the standard deviation",
    source="a plausible slip: x.var() for the mean square",
    effect="A vector far from zero is blown up instead of being made as long as the others.",
    hint="A vector whose mean is far from 0 becomes too long. Is the mean taken off in what you "
    "divide by?",
)
def rms_norm_by_deviation(x, scale, eps):
    return scale * x / torch.sqrt(x.var(-1, correction=0, keepdim=True) + eps)


@misconception(
    "M251",
    "batch_norm",
    title="the variance of each sentence, averaged",
    source="a plausible slip: one axis after the other",
    effect="How far the means of the sentences lie apart is left out of the variance.",
    hint="With one sentence your result is right. Is the mean of the sentences' variances the "
    "variance of all their tokens?",
)
def variances_averaged(x, scale, shift, eps):
    mean, variance = x.mean(dim=(0, 1)), x.var(dim=1, correction=0).mean(dim=0)
    return scale * (x - mean) / torch.sqrt(variance + eps) + shift


@misconception(
    "M252",
    "batch_norm",
    title="channels brought forward by reshape",
    source="common: reshape where transpose is meant, for F.batch_norm",
    effect="Each statistic mixes channels, and no channel has the mean 0.",
    hint="Each of your means mixes several channels. Does reshape move an axis?",
)
def batch_norm_of_reshaped(x, scale, shift, eps):
    moved = x.reshape(x.size(0), x.size(2), x.size(1)).transpose(1, 2)
    normalized = _normalize(moved, scale, shift, eps, (0, 1))
    return normalized.transpose(1, 2).reshape(x.shape)


@misconception(
    "M253",
    "rms_norm",
    title="epsilon as a lower bound",
    source="common: F.normalize, which divides by max(length, eps)",
    effect="Vectors of small numbers come out too large.",
    hint="Small numbers come out too large. Is your epsilon added to the mean square, or only a "
    "bound below it?",
)
def epsilon_as_a_bound(x, scale, eps):
    length = x.norm(dim=-1, keepdim=True).clamp(min=eps)
    return scale * x * x.size(-1) ** 0.5 / length


class _Running(nn.Module):
    """Batch norm as it is right; a mistake changes one of these."""

    keep = 0.9  # of the running statistics
    takes: float | None = None  # of the new ones, where it is not the rest
    correction = 1
    correction_in_training = 0
    in_use = "running"
    also_in_use = False
    persistent = True
    detached = True
    differentiable = True  # by mean and variance
    eps_in_use = 1e-5
    scaled_in_use = True
    mean: torch.Tensor
    variance: torch.Tensor

    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.register_buffer("mean", torch.zeros(d_model), self.persistent)
        self.register_buffer("variance", torch.ones(d_model), self.persistent)

    def forward(self, x):
        mean = x.mean(dim=(0, 1))
        variance = x.var(dim=(0, 1), correction=self.correction_in_training)
        if self.training or self.also_in_use:
            new = [mean, self.kept_variance(x)]
            if self.detached:
                new = [statistic.detach() for statistic in new]
            takes = 1 - self.keep if self.takes is None else self.takes
            self.mean = self.keep * self.mean + takes * new[0]
            self.variance = self.keep * self.variance + takes * new[1]
        if not self.differentiable:
            mean, variance = mean.detach(), variance.detach()
        if self.training or self.in_use == "batch":
            return self.weight * (x - mean) / torch.sqrt(variance + 1e-5) + self.bias
        normed = (x - self.mean) / torch.sqrt(self.variance + self.eps_in_use)
        return self.weight * normed + self.bias if self.scaled_in_use else normed

    def kept_variance(self, x):
        return x.var(dim=(0, 1), correction=self.correction)


def _corrected_by(n, x):
    return x.var(dim=(0, 1), correction=0) * n / max(n - 1, 1)


@misconception(
    "M368",
    "BatchNorm",
    title="the batch's own statistics in use, too",
    source="a plausible slip: no difference between training and use",
    effect="A translation depends on what else is in the batch; a batch of one token is all zeros.",
    hint="In training you are right. What does batch norm do when the model is in use?",
)
class BatchStatisticsInUse(_Running):
    in_use = "batch"


@misconception(
    "M369",
    "BatchNorm",
    title="the running mean keeps a tenth, not nine tenths",
    source="common: momentum read as the share of the old value",
    effect="The running statistics are nearly those of the last batch.",
    hint="In training you are right, and your running mean is nearly that of the last batch. How "
    "much of the old one stays?",
)
class KeepsATenth(_Running):
    keep = 0.1


@misconception(
    "M370",
    "BatchNorm",
    title="the running statistics are changed in use",
    source="a plausible slip: updated in every call",
    effect="A translation depends on the ones before it.",
    hint="Two calls with the same batch in evaluation mode give different results. What changes?",
)
class ChangesInUse(_Running):
    also_in_use = True


@misconception(
    "M371",
    "BatchNorm",
    title="the running variance is the biased one",
    source="common: the batch's variance is kept as it is",
    effect="A factor of n/(n − 1) in the variance, in use only.",
    hint="The running mean is right. The variance of a sample, as an estimate of that of all "
    "texts: by what is it divided?",
)
class BiasedRunningVariance(_Running):
    correction = 0


@misconception(
    "M413",
    "BatchNorm",
    title="the running statistics are those of the last batch",
    source="a plausible slip: replaced, not moved by a tenth",
    effect="Use depends on whichever batch came last in training.",
    hint="In training you are right, and in use your statistics are those of the last batch alone. "
    "How much of the old ones stays?",
)
class LastBatchOnly(_Running):
    keep = 0.0


@misconception(
    "M414",
    "BatchNorm",
    title="what is kept does not belong to the module's state",
    source="common: a plain attribute, or a buffer that is not persistent",
    effect="A saved model forgets its running statistics, and a plain attribute stays on the CPU.",
    hint="In use you are right, until the state is loaded into a new module. How does a module "
    "know that a tensor is part of it?",
)
class NotInTheState(_Running):
    persistent = False


@misconception(
    "M415",
    "BatchNorm",
    title="the running statistics keep the graph",
    source="common: mean without detach or no_grad",
    effect="Memory grows with each batch, and a second backward pass fails.",
    hint="In use your output still hangs on the first batch of training by its gradient. What is "
    "kept for later?",
)
class KeepsTheGraph(_Running):
    detached = False


@misconception(
    "M416",
    "BatchNorm",
    title="no gradient through mean and variance",
    source="common: no_grad around more than what is kept",
    effect="The gradient has the parts that the norm takes off: training becomes unstable.",
    hint="Your outputs are right, and the gradient in training is not. Through what does it flow "
    "besides x itself?",
)
class NoGradientThroughStatistics(_Running):
    differentiable = False


@misconception(
    "M417",
    "BatchNorm",
    title="no ε in use",
    source="a plausible slip: the formula written twice, and once without it",
    effect="A channel that did not vary in training is divided by nearly zero.",
    hint="In use, a channel without spread comes out too large. What is added to the variance in "
    "training?",
)
class NoEpsilonInUse(_Running):
    eps_in_use = 0.0


@misconception(
    "M418",
    "BatchNorm",
    title="scale and shift in training only",
    source="a plausible slip: an early return in evaluation mode",
    effect="In use the next layer gets other numbers than it was trained with.",
    hint="In training you are right. In use, scale and shift are missing.",
)
class NoScaleInUse(_Running):
    scaled_in_use = False


@misconception(
    "M419",
    "LayerNorm",
    title="parameters with other names",
    source="common: gamma and beta, or a norm of nn inside",
    effect="The weights of another program do not find their places.",
    hint="Your numbers are right. What does the task call the two parameters?",
)
class OtherNames(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return _normalize(x, self.gamma, self.beta, 1e-5, -1)


@misconception(
    "M420",
    "LayerNorm",
    title="no gradient reaches scale and shift",
    source="a plausible slip: weight.data, or detach",
    effect="They stay at 1 and 0 for ever.",
    hint="Your numbers are right, and scale and shift never learn. What do you use of them?",
)
class ParametersWithoutGradient(_Norm):
    def forward(self, x):
        return _normalize(x, self.weight.detach(), self.bias.detach(), 1e-5, -1)


@misconception(
    "M421",
    "layer_norm",
    title="the mean is taken off, and divided by the root mean square of x",
    source="a plausible slip: the square of x in place of that of x − μ",
    effect="Vectors far from zero come out too small.",
    hint="Your result has the mean 0 and is too small. Squares of what are under the root?",
)
def divided_by_the_size_of_x(x, scale, shift, eps):
    root = torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    return scale * (x - x.mean(dim=-1, keepdim=True)) / root + shift


@misconception(
    "M422",
    "layer_norm",
    title="RMSNorm for layer norm",
    source="common: the norm of newer models",
    effect="The mean stays in.",
    hint="You divide by the root mean square and leave the mean in: that is RMSNorm. What does "
    "layer norm subtract?",
)
def rms_norm_for_layer_norm(x, scale, shift, eps):
    return scale * x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps) + shift


@misconception(
    "M423",
    "layer_norm",
    title="no gradient through mean and variance",
    source="a plausible slip: detach or no_grad around the statistics",
    effect="The gradient has the parts that the norm takes off.",
    hint="Your numbers are right, and the gradient is not: mean and variance depend on x, too.",
)
def statistics_detached(x, scale, shift, eps):
    mean = x.mean(dim=-1, keepdim=True).detach()
    variance = x.var(dim=-1, correction=0, keepdim=True).detach()
    return scale * (x - mean) / torch.sqrt(variance + eps) + shift


@misconception(
    "M424",
    "batch_norm",
    title="one mean for all channels",
    source="a plausible slip: x.mean() without axes",
    effect="Channels keep their differences.",
    hint="You have one mean and one variance for everything. How many are there to be?",
)
def one_mean_for_all(x, scale, shift, eps):
    return _normalize(x, scale, shift, eps, (0, 1, 2))


def _backward(x, upstream, scale, eps, mean=True, along=1.0, scaled=True, root=True):
    centered = x - x.mean(dim=-1, keepdim=True)
    deviation = torch.sqrt(centered.square().mean(dim=-1, keepdim=True) + eps)
    normed, g = centered / deviation, upstream * scale if scaled else upstream
    of_x = g
    if mean:
        of_x = of_x - g.mean(dim=-1, keepdim=True)
    of_x = of_x - along * normed * (g * normed).mean(dim=-1, keepdim=True)
    if root:
        of_x = of_x / deviation
    return of_x, (upstream * normed).sum(dim=(0, 1)), upstream.sum(dim=(0, 1))


@misconception(
    "M372",
    "layer_norm_backward",
    title="the mean is taken for a constant",
    source="common: the derivative of x − μ without that of μ",
    effect="A gradient by which the whole vector would move, which the norm undoes.",
    hint="Your gradient has a mean, the right one has none. Does μ depend on x?",
)
def mean_is_constant(x, upstream, scale, eps):
    return _backward(x, upstream, scale, eps, mean=False)


@misconception(
    "M373",
    "layer_norm_backward",
    title="the deviation is taken for a constant",
    source="common: the derivative of a quotient without that of its divisor",
    effect="A gradient by which the vector would become longer, which the norm undoes.",
    hint="Your gradient is not at right angles to the normalized vector. Does what you divide by "
    "depend on x?",
)
def deviation_is_constant(x, upstream, scale, eps):
    return _backward(x, upstream, scale, eps, along=0.0)


@misconception(
    "M374",
    "layer_norm_backward",
    title="the scale is forgotten on the way back",
    source="a plausible slip",
    effect="Right as long as the scale is 1, that is, before the first step.",
    hint="With a scale of 1 your gradient of x would be right. What is between the norm and y?",
)
def scale_forgotten(x, upstream, scale, eps):
    return _backward(x, upstream, scale, eps, scaled=False)


@misconception(
    "M375",
    "layer_norm_backward",
    title="not divided by the deviation",
    source="a plausible slip",
    effect="The gradient of a long vector is too long, that of a short one too short.",
    hint="Your gradient points the right way, but the length of each row is off by what the norm "
    "divides by.",
)
def root_forgotten(x, upstream, scale, eps):
    return _backward(x, upstream, scale, eps, root=False)


@misconception(
    "M376",
    "layer_norm_backward",
    title="the gradient of the scale from x as it was",
    source="a plausible slip: upstream · x for upstream · x̂",
    effect="The scale learns from numbers that it never multiplies.",
    hint="The gradient of x is right. By what is the scale multiplied in the formula?",
)
def scale_from_x(x, upstream, scale, eps):
    of_x, _, of_shift = _backward(x, upstream, scale, eps)
    return of_x, (upstream * x).sum(dim=(0, 1)), of_shift


@misconception(
    "M425",
    "layer_norm_backward",
    title="gradients of the parameters not summed",
    source="common: one gradient per position",
    effect="Their shape is that of x, and an optimizer refuses them.",
    hint="The gradients of scale and shift have a value per position. In how many places is each "
    "number of scale used, and what becomes of those gradients?",
)
def not_summed(x, upstream, scale, eps):
    of_x, _, _ = _backward(x, upstream, scale, eps)
    centered = x - x.mean(dim=-1, keepdim=True)
    normed = centered / torch.sqrt(centered.square().mean(dim=-1, keepdim=True) + eps)
    return of_x, upstream * normed, upstream


@misconception(
    "M426",
    "layer_norm_backward",
    title="the parameters' gradients with the scale in them",
    source="a plausible slip: g for upstream",
    effect="Scale and shift learn at a rate of their own size.",
    hint="The gradients of scale and shift are multiplied by the scale. Does it stand between them "
    "and y?",
)
def parameters_from_scaled(x, upstream, scale, eps):
    of_x, of_scale, of_shift = _backward(x, upstream, scale, eps)
    return of_x, of_scale * scale, of_shift * scale


@misconception(
    "M427",
    "layer_norm_backward",
    title="sums in place of the two means",
    source="common: the 1/d of mean and variance is lost on the way",
    effect="What is taken off is d times too much.",
    hint="What you take off is d times too much. Where do the two means leave their 1/d?",
)
def sums_for_means(x, upstream, scale, eps):
    of_x, of_scale, of_shift = _backward(x, upstream, scale, eps, mean=False, along=x.size(-1))
    g = (upstream * scale).sum(dim=-1, keepdim=True)
    deviation = torch.sqrt(x.var(dim=-1, correction=0, keepdim=True) + eps)
    return of_x - g / deviation, of_scale, of_shift


@misconception(
    "M476",
    "layer_norm_backward",
    title="multiplied by the scale at the end",
    source="answers in a trial of the checks: scale · (the gradient without it)",
    effect="Right only where all scales are equal, as before the first step.",
    hint="You multiply by the scale at the end. On the way back it comes first: what are the two "
    "means taken of?",
)
def scale_at_the_end(x, upstream, scale, eps):
    of_x, of_scale, of_shift = _backward(x, upstream, scale, eps, scaled=False)
    return scale * of_x, of_scale, of_shift


@misconception(
    "M477",
    "BatchNorm",
    title="the running statistics move with gradients only",
    source="an answer in a trial of the checks: updated only where torch.is_grad_enabled()",
    effect="To let a trained model see more data, without training it, changes nothing.",
    hint="In training mode without gradients your running statistics stand still. Which of the two "
    "decides, the mode or the gradients?",
)
class MovesWithGradientsOnly(_Running):
    def forward(self, x):
        before = {name: buffer.clone() for name, buffer in self.named_buffers()}
        output = super().forward(x)
        if not torch.is_grad_enabled():
            for name, buffer in self.named_buffers():
                buffer.copy_(before[name])
        return output


@misconception(
    "M525",
    "layer_norm_backward",
    title="gradients of the parameters averaged",
    source="an answer in a trial of the checks: mean over the positions",
    effect="The longer the batch, the less scale and shift learn beside everything else.",
    hint="The gradients of scale and shift are too small by the number of positions. What becomes "
    "of gradients that reach one number from several places?",
)
def averaged_over_positions(x, upstream, scale, eps):
    of_x, of_scale, of_shift = _backward(x, upstream, scale, eps)
    positions = x.size(0) * x.size(1)
    return of_x, of_scale / positions, of_shift / positions


@misconception(
    "M526",
    "layer_norm_backward",
    title="projected as if there were no ε",
    source="an answer in a trial of the checks: divided by the length of x̂ squared, not by d",
    effect="Right where the deviation is large; where ε counts x̂ is shorter than √d.",
    hint="Where the deviation is small you take off too much along x̂. Is its length √d there?",
)
def exact_projection(x, upstream, scale, eps):
    of_x, of_scale, of_shift = _backward(x, upstream, scale, eps, along=0.0)
    centered = x - x.mean(dim=-1, keepdim=True)
    length = centered.square().sum(dim=-1, keepdim=True)
    part = (of_x * centered).sum(dim=-1, keepdim=True) / length
    return of_x - part * centered, of_scale, of_shift


@misconception(
    "M529",
    "BatchNorm",
    title="n is the number of sentences",
    source="an answer in a trial of the checks: B/(B − 1) for n/(n − 1)",
    effect="The smaller the batch, the larger the running variance.",
    hint="The running mean is right. Over how many numbers is a channel's variance taken: over the "
    "sentences, or over all their positions?",
)
class CorrectedBySentences(_Running):
    def kept_variance(self, x):
        return _corrected_by(len(x), x)


@misconception(
    "M530",
    "BatchNorm",
    title="running statistics in training, too",
    source="an answer in a trial of the checks: moved first, and then used",
    effect="What is normalized has neither mean 0 nor variance 1, least of all at the beginning.",
    hint="In use you are right. With which mean and variance does batch norm work in training?",
)
class RunningInTraining(_Running):
    def forward(self, x):
        mode = self.training
        super().forward(x)
        self.eval()
        output = super().forward(x)
        self.train(mode)
        return output


@also("M423", "LayerNorm")
class StatisticsDetached(_Norm):
    def forward(self, x):
        return statistics_detached(x, self.weight, self.bias, 1e-5)


@misconception(
    "M549",
    "LayerNorm",
    title="an epsilon of 10⁻³",
    source="an answer in a trial of the checks: Keras' default",
    effect="Nothing that one sees, except where a vector's numbers differ little: those are not "
    "normalized.",
    hint="Where the numbers of a vector are close to each other, yours come out much too small. "
    "Which epsilon does the task ask for?",
)
class LargeEpsilon(_Norm):
    def forward(self, x):
        return _normalize(x, self.weight, self.bias, 1e-3, -1)


@misconception(
    "M550",
    "rms_norm",
    title="divided by the unbiased standard deviation",
    source="an answer in a trial of the checks: x.var(-1) as it comes",
    effect="The mean is taken off within the root, and the sum divided by d − 1.",
    hint="You divide by more than the root of a mean of squares. What does x.var() do before it "
    "squares, and by what does it divide?",
)
def unbiased_deviation(x, scale, eps):
    return scale * x / torch.sqrt(x.var(dim=-1, keepdim=True) + eps)


@misconception(
    "M577",
    "BatchNorm",
    title="the unbiased variance normalizes, too",
    source="an answer in a trial of the checks: x.var() for both",
    effect="The smaller the batch, the smaller its normalized numbers.",
    hint="In training your numbers come out a little too small. There are two variances here: "
    "which one normalizes, and which one is kept?",
)
class UnbiasedInTraining(_Running):
    correction_in_training = 1


@misconception(
    "M578",
    "BatchNorm",
    title="nothing of the old running statistics fades",
    source="an answer in a trial of the checks: += 0.1 · new",
    effect="The running statistics grow with every batch, without an end.",
    hint="Your running statistics grow from batch to batch. What has to happen to the old ones "
    "when a tenth of the new ones comes in?",
)
class NothingFades(_Running):
    keep = 1.0
    takes = 0.1


@misconception(
    "M579",
    "BatchNorm",
    title="the running standard deviation",
    source="an answer in a trial of the checks: a tenth of the deviation, not of the variance",
    effect="In use the spread is too small: a mean of roots is below the root of the mean.",
    hint="In training you are right. Of what is the running mean taken before the root: of the "
    "variance, or of the deviation?",
)
class RunningDeviation(_Running):
    def forward(self, x):
        before = self.variance
        output = super().forward(x)
        if self.training:
            new = x.detach().var(dim=(0, 1)).sqrt()
            self.variance = (0.9 * before.sqrt() + 0.1 * new).square()
        return output


@misconception(
    "M580",
    "BatchNorm",
    title="n is the number of all numbers",
    source="an answer in a trial of the checks: x.numel() for n",
    effect="The variance is hardly corrected at all.",
    hint="The running mean is right. Over how many numbers is *one channel's* variance taken?",
)
class CorrectedByAllNumbers(_Running):
    def kept_variance(self, x):
        return _corrected_by(x.numel(), x)


@also("M65", "batch_norm")
def batch_eps_outside(x, scale, shift, eps):
    return epsilon_outside(x, scale, shift, eps, (0, 1))


@misconception(
    "M609",
    "layer_norm_backward",
    title="summed over the batch, not over the positions",
    source="an answer in a trial of the checks: sum(0), from code for two axes",
    effect="Gradients that do not have the shape of their parameters.",
    hint="Your gradients of scale and shift still have an axis for the positions. How many "
    "positions share one scale?",
)
def summed_over_the_batch(x, upstream, scale, eps):
    of_x, _, _ = _backward(x, upstream, scale, eps)
    normed = _normalize(x, 1.0, 0.0, eps, -1)
    return of_x, (upstream * normed).sum(dim=0), upstream.sum(dim=0)


@misconception(
    "M610",
    "layer_norm_backward",
    title="no ε in the factor in front",
    source="an answer in a trial of the checks: x̂ from a function with ε, σ from one without",
    effect="Too large a gradient where a vector hardly varies; a division by zero where it does "
    "not at all.",
    hint="Your x̂ has ε under its root, and the factor in front has none. By which root was x "
    "divided?",
)
def factor_without_eps(x, upstream, scale, eps):
    of_x, of_scale, of_shift = _backward(x, upstream, scale, eps, root=False)
    return of_x / x.std(dim=-1, correction=0, keepdim=True), of_scale, of_shift


def _sum_of_roots(x, scale, shift, eps, dims):
    mean, variance = x.mean(dim=dims, keepdim=True), x.var(dim=dims, correction=0, keepdim=True)
    return scale * (x - mean) / (variance.sqrt() + eps**0.5) + shift


@misconception(
    "M827",
    "layer_norm",
    title="the root of a sum as the sum of the roots",
    source="an answer in a trial of the checks: variance.sqrt() + eps ** 0.5",
    effect="Results are too small, the more the smaller the deviation is.",
    hint="Your results are too small where the deviation is. Is √(σ² + ε) the same as √σ² + √ε?",
)
def sum_of_roots(x, scale, shift, eps):
    return _sum_of_roots(x, scale, shift, eps, -1)


@also("M827", "batch_norm")
def batch_sum_of_roots(x, scale, shift, eps):
    return _sum_of_roots(x, scale, shift, eps, (0, 1))


@also("M827", "rms_norm")
def rms_sum_of_roots(x, scale, eps):
    return scale * x / (x.square().mean(dim=-1, keepdim=True).sqrt() + eps**0.5)


@misconception(
    "M833",
    "BatchNorm",
    title="the mean of all batches so far",
    source="an answer in a trial of the checks: a count, and momentum 1/count",
    effect="What the model was like at the beginning of training never fades.",
    hint="In training you are right. In use all batches so far count alike in yours: how much of "
    "the old statistics should a new batch leave, whatever its number?",
)
class AllBatchesAlike(_Running):
    batches = 0

    def forward(self, x):
        if self.training:
            self.batches += 1
            self.keep = 1 - 1 / self.batches
        return super().forward(x)
