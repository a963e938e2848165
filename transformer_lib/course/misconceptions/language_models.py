"""Mistakes with language models: measuring, counting, building, caching and tuning them."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from transformer_lib.course.assembled import LanguageModel
from transformer_lib.course.checks.topics.language_models import LoRA
from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.model.masks import causal_mask, padding_mask
from transformer_lib.model.multi_head import merge_heads, split_heads
from transformer_lib.model.positional_encoding import sinusoidal_positions
from transformer_lib.model.scaled_dot_product import attention
from transformer_lib.vocabulary import BOS, EOS, PAD, UNK

# ---- Bits per character ----


def _nats(logits, labels, reduction="sum", ignored=PAD):
    found = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=ignored, reduction=reduction
    )
    return found.item()


@misconception(
    "M846",
    "bits_per_character",
    title="nats are called bits",
    source="common: cross_entropy as it comes",
    effect="Too small by a factor of 0.69: a model seems better than it is.",
    hint="Your number is 0.69 of the right one. Which logarithm does PyTorch take?",
)
def in_nats(logits, labels, characters):
    return _nats(logits, labels) / characters


@misconception(
    "M847",
    "bits_per_character",
    title="bits per token",
    source="common: the mean that cross_entropy returns",
    effect="Models with longer pieces look worse; nothing can be compared across tokenizers.",
    hint="Yours does not depend on the characters. What is the sum of the bits shared among?",
)
def per_token(logits, labels, characters):
    return _nats(logits, labels, "mean") / math.log(2)


@misconception(
    "M848",
    "bits_per_character",
    title="padding is counted",
    source="common: cross_entropy without ignore_index",
    effect="What a model says after the end counts as text.",
    hint="Without padding you are right. Is `PAD` a label that the model should get right?",
)
def with_padding(logits, labels, characters):
    return _nats(logits, labels, ignored=-100) / math.log(2) / characters


@misconception(
    "M849",
    "bits_per_character",
    title="the mean divided by the characters",
    source="a plausible slip: cross_entropy's mean in the place of its sum",
    effect="The longer the text, the smaller the number.",
    hint="You have divided twice, by the tokens and by the characters. Which reduction does the "
    "formula want?",
)
def mean_by_characters(logits, labels, characters):
    return _nats(logits, labels, "mean") / math.log(2) / characters


@misconception(
    "M850",
    "bits_per_character",
    title="multiplied by ln 2",
    source="a plausible slip",
    effect="Too small by a factor of 0.48.",
    hint="Your number is 0.48 of the right one. Is a bit more than a nat, or less?",
)
def multiplied(logits, labels, characters):
    return _nats(logits, labels) * math.log(2) / characters


@misconception(
    "M851",
    "bits_per_character",
    title="perplexity",
    source="common: the number that papers print",
    effect="Another number, which depends on the pieces.",
    hint="Yours is a perplexity: an exponential of the mean loss. A sum of bits is asked for.",
)
def perplexity(logits, labels, characters):
    return math.exp(_nats(logits, labels, "mean"))


@misconception(
    "M852",
    "bits_per_character",
    title="the log of a softmax",
    source="common: softmax, then log",
    effect="With sure models infinite: a probability is rounded to 0.",
    hint="With large logits yours is infinite. Which function gives ln p without p?",
)
def log_of_softmax(logits, labels, characters):
    p = logits.softmax(dim=-1).gather(-1, labels[..., None])[..., 0]
    return -(p.log2() * (labels != PAD)).sum().item() / characters


@misconception(
    "M853",
    "bits_per_character",
    title="shifted once more",
    source="common: logits[:, :-1] against labels[:, 1:], as where labels are the inputs",
    effect="Each prediction is compared with the token after the next.",
    hint="You compare each prediction with the label of the next position. Were the labels not "
    "shifted before?",
)
def shifted_again(logits, labels, characters):
    return _nats(logits[:, :-1], labels[:, 1:]) / math.log(2) / characters


@misconception(
    "M854",
    "bits_per_character",
    title="the log of the mean probability",
    source="a plausible slip: the mean taken too soon",
    effect="One sure guess hides many bad ones.",
    hint="You take the log of a mean of probabilities. What does the probability of a whole text "
    "have to do with those of its tokens?",
)
def log_of_the_mean(logits, labels, characters):
    real = labels != PAD
    p = logits.softmax(dim=-1).gather(-1, labels[..., None])[..., 0][real]
    return -(p.mean().log2() * real.sum()).item() / characters


@misconception(
    "M910",
    "bits_per_character",
    title="the mean of the real labels times the number of all",
    source="an answer in a trial of the checks: mean · labels.numel()",
    effect="The more padding, the worse the model seems.",
    hint="Without padding you are right. The mean of how many labels do you multiply, and by how "
    "many?",
)
def times_all_labels(logits, labels, characters):
    return _nats(logits, labels, "mean") * labels.numel() / math.log(2) / characters


@misconception(
    "M911",
    "bits_per_character",
    title="a little is added to each probability",
    source="common: log(p + 1e-9), so that nothing is infinite",
    effect="No token costs more than 30 bits, however sure the model is of another one.",
    hint="With large logits your tokens never cost more than some 30 bits. What is added to p?",
)
def a_little_added(logits, labels, characters):
    p = logits.softmax(dim=-1).gather(-1, labels[..., None])[..., 0]
    return -((p + 1e-9).log2() * (labels != PAD)).sum().item() / characters


@misconception(
    "M912",
    "bits_per_character",
    title="a softmax of powers of two",
    source="an answer in a trial of the checks: 2**logits, since bits are wanted",
    effect="Another distribution than the model's.",
    hint="You have made other probabilities of the logits. What changes with the unit, p or its "
    "logarithm?",
)
def powers_of_two(logits, labels, characters):
    return _nats(logits * math.log(2), labels) / math.log(2) / characters


# ---- Counting ----


def _counts(tokens, vocab_size):
    counts = torch.zeros(vocab_size, vocab_size)
    return counts.index_put_(
        (tokens[:-1], tokens[1:]), torch.ones(len(tokens) - 1), accumulate=True
    )


def _discounted(counts, lower, discount, given_back=lambda kinds, total: kinds, least=0.0):
    total = counts.sum(dim=-1, keepdim=True)
    kinds = given_back((counts > 0).sum(dim=-1, keepdim=True), total)
    kept = (counts - discount).clamp(min=least)
    return torch.where(total > 0, (kept + discount * kinds * lower) / total, lower)


def _uniform(vocab_size):
    return torch.full((vocab_size,), 1 / vocab_size)


def _before(counts):
    return (counts > 0).sum(dim=0).float()


def _both_levels(tokens, vocab_size, discount):
    """The counts of the pairs, and the right distribution below them."""
    counts = _counts(tokens, vocab_size)
    return counts, _discounted(_before(counts), _uniform(vocab_size), discount)


@misconception(
    "M855",
    "kneser_ney",
    title="frequencies below, not continuations",
    source="another variant: absolute discounting (Ney, Essen and Kneser 1994)",
    effect="A token that is frequent after one other only is expected everywhere.",
    hint="Your lower distribution counts how often a token occurs. What should it count?",
)
def frequencies_below(tokens, vocab_size, discount):
    counts = _counts(tokens, vocab_size)
    return _discounted(
        counts, _discounted(counts.sum(dim=0), _uniform(vocab_size), discount), discount
    )


@misconception(
    "M856",
    "kneser_ney",
    title="what was taken away is not given back",
    source="a plausible slip: a discount without its interpolation",
    effect="The rows add up to less than 1.",
    hint="What do your rows add up to? What has been taken away from the counts belongs to the "
    "lower distribution.",
)
def nothing_given_back(tokens, vocab_size, discount):
    counts, lower = _both_levels(tokens, vocab_size, discount)
    return _discounted(counts, lower, discount, lambda kinds, total: 0.0 * kinds)


@misconception(
    "M857",
    "kneser_ney",
    title="rows and columns exchanged",
    source="common: p(previous | next)",
    effect="The model reads backward; its rows add up to 1 all the same.",
    hint="Your rows are distributions, of the token that comes before. Which of the two axes is "
    "the token that has been read?",
)
def backward(tokens, vocab_size, discount):
    counts, lower = _both_levels(tokens.flip(0), vocab_size, discount)
    return _discounted(counts, lower, discount)


@misconception(
    "M858",
    "kneser_ney",
    title="one is added to all counts",
    source="another variant: Laplace's add-one smoothing",
    effect="With thousands of pieces nearly all of the probability goes to pairs never seen.",
    hint="You add to the counts. Kneser–Ney takes away from them.",
)
def add_one(tokens, vocab_size, discount):
    counts = _counts(tokens, vocab_size) + 1
    return counts / counts.sum(dim=-1, keepdim=True)


@misconception(
    "M859",
    "kneser_ney",
    title="nothing below the continuations",
    source="common: the textbook's formula, which ends there",
    effect="What is never read has probability 0, and one such token makes the loss infinite.",
    hint="A token that never occurs has probability 0 in yours. What is below the lower "
    "distribution?",
)
def no_uniform(tokens, vocab_size, discount):
    counts = _counts(tokens, vocab_size)
    before = _before(counts)
    return _discounted(counts, before / before.sum(), discount)


@misconception(
    "M860",
    "kneser_ney",
    title="kinds that follow, where kinds that come before were meant",
    source="a plausible slip: the wrong axis",
    effect="A token is expected if much can come after it.",
    hint="For the lower distribution you count what follows a token. What should be counted?",
)
def followers(tokens, vocab_size, discount):
    counts = _counts(tokens, vocab_size)
    lower = _discounted((counts > 0).sum(dim=1).float(), _uniform(vocab_size), discount)
    return _discounted(counts, lower, discount)


@misconception(
    "M861",
    "kneser_ney",
    title="0/0 after a token that nothing follows",
    source="common: a division by the row's sum",
    effect="NaN for a token that was never read.",
    hint="After a token without a successor yours is NaN. What is left if there is nothing to "
    "count?",
)
def nothing_follows(tokens, vocab_size, discount):
    counts, lower = _both_levels(tokens, vocab_size, discount)
    total, kinds = counts.sum(dim=-1, keepdim=True), (counts > 0).sum(dim=-1, keepdim=True)
    return ((counts - discount).clamp(min=0.0) + discount * kinds * lower) / total


@misconception(
    "M862",
    "kneser_ney",
    title="zeros after a token that nothing follows",
    source="a plausible slip: clamp(min=1) in the denominator, and no more",
    effect="No distribution where it is needed most.",
    hint="After a token without a successor your row is all zeros. Which distribution is left?",
)
def zeros_follow(tokens, vocab_size, discount):
    counts, lower = _both_levels(tokens, vocab_size, discount)
    total = counts.sum(dim=-1, keepdim=True).clamp(min=1.0)
    kinds = (counts > 0).sum(dim=-1, keepdim=True)
    return ((counts - discount).clamp(min=0.0) + discount * kinds * lower) / total


@misconception(
    "M863",
    "kneser_ney",
    title="plain counts",
    source="a plausible slip: maximum likelihood",
    effect="A pair that was never seen has probability 0.",
    hint="Pairs that were never seen have probability 0 in yours. Where does the discount come in?",
)
def plain_counts(tokens, vocab_size, discount):
    counts, lower = _both_levels(tokens, vocab_size, discount)
    total = counts.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, counts / total, lower)


@misconception(
    "M864",
    "kneser_ney",
    title="the lower one always weighs as much as the discount",
    source="another variant: interpolation with a fixed weight (Jelinek and Mercer 1980)",
    effect="The rows add up to 1 only where every pair occurs once.",
    hint="Your lower distribution weighs the same in each row. How much has been taken away there?",
)
def fixed_weight(tokens, vocab_size, discount):
    counts, lower = _both_levels(tokens, vocab_size, discount)
    return _discounted(counts, lower, discount, lambda kinds, total: total)


@misconception(
    "M865",
    "kneser_ney",
    title="never cut off at zero",
    source="a plausible slip: max(…, 0) forgotten",
    effect="Pairs that were never seen have negative probabilities.",
    hint="Some of your probabilities are negative. What is left of a count of 0?",
)
def never_cut_off(tokens, vocab_size, discount):
    counts, lower = _both_levels(tokens, vocab_size, discount)
    return _discounted(counts, lower, discount, least=-discount)


@misconception(
    "M866",
    "kneser_ney",
    title="the last token counts as one that was followed",
    source="a plausible slip: bincount(tokens) for the row's sum",
    effect="The row of the text's last token adds up to less than 1.",
    hint="The row of the last token of the text does not add up to 1. By what did you divide it?",
)
def last_token_counts(tokens, vocab_size, discount):
    counts, lower = _both_levels(tokens, vocab_size, discount)
    total = tokens.bincount(minlength=vocab_size)[:, None].float()
    kinds = (counts > 0).sum(dim=-1, keepdim=True)
    kept = (counts - discount).clamp(min=0.0)
    return torch.where(total > 0, (kept + discount * kinds * lower) / total, lower)


@misconception(
    "M867",
    "kneser_ney",
    title="the text as a ring",
    source="a plausible slip: torch.roll(tokens, -1)",
    effect="The last token is followed by the first one.",
    hint="You count one pair more than there is. What follows the last token?",
)
def as_a_ring(tokens, vocab_size, discount):
    return backward(torch.cat([tokens, tokens[:1]]).flip(0), vocab_size, discount)


@misconception(
    "M913",
    "kneser_ney",
    title="a pair is counted once, however often it occurs",
    source="common: counts[v, w] += 1 with tensors of indices",
    effect="All pairs that occur are equally likely, but for the discount.",
    hint="Your pairs are all counted once. What does `counts[v, w] += 1` do with an index that is "
    "there twice?",
)
def counted_once(tokens, vocab_size, discount):
    counts, lower = _both_levels(tokens, vocab_size, discount)
    return _discounted((counts > 0).float(), lower, discount)


@misconception(
    "M914",
    "kneser_ney",
    title="what is given back depends on the column",
    source="an answer in a trial of the checks: n counted along the wrong axis",
    effect="The rows do not add up to 1.",
    hint="Your rows do not add up to 1. Is n(v) a number of the row, or of the column?",
)
def given_back_by_column(tokens, vocab_size, discount):
    counts, lower = _both_levels(tokens, vocab_size, discount)
    return _discounted(counts, lower, discount, lambda kinds, total: _before(counts))


@misconception(
    "M915",
    "kneser_ney",
    title="after a token that nothing follows all are alike",
    source="an answer in a trial of the checks: nan_to_num with 1/V",
    effect="Where nothing is known of the pair, nothing is used of the tokens.",
    hint="After a token without a successor all tokens are equally likely in yours. Is nothing "
    "else known?",
)
def all_alike_at_the_end(tokens, vocab_size, discount):
    counts, lower = _both_levels(tokens, vocab_size, discount)
    table = _discounted(counts, lower, discount)
    return torch.where(counts.sum(dim=-1, keepdim=True) > 0, table, 1 / vocab_size)


# ---- The model ----


def _embedded(model, tokens, scale=True, positions=True):
    x = model.embed_tokens(tokens)
    if scale:
        x = x * math.sqrt(x.size(-1))
    return x + sinusoidal_positions(*x.shape[1:]) if positions else x


def _through(model, x, mask=None, after_each=lambda x: x, norm=True, table=None):
    """From the embedded tokens to the logits, as it should be but for what is switched."""
    x = model.dropout(x)
    mask = causal_mask(x.size(1)) if mask is None else mask
    for layer in model.layers:
        x = after_each(layer(x, mask))
    return (model.norm(x) if norm else x) @ (
        model.embed_tokens.weight if table is None else table
    ).T


@also("M100", "LanguageModel")
class SeesTheFuture(LanguageModel):
    def forward(self, tokens):
        return _through(self, _embedded(self, tokens), padding_mask(tokens))


@misconception(
    "M868",
    "LanguageModel",
    title="the mask upside down",
    source="common: programs whose True means “blocked”",
    effect="Each position sees only what comes after it.",
    hint="Your positions see the future and not the past. What does True mean in a mask of this "
    "course?",
)
class UpsideDown(LanguageModel):
    def forward(self, tokens):
        return _through(self, _embedded(self, tokens), ~causal_mask(tokens.size(1)))


@also("M81", "LanguageModel")
class ReturnsProbabilities(LanguageModel):
    def forward(self, tokens):
        return super().forward(tokens).softmax(dim=-1)


@also("M26", "LanguageModel")
class EmbeddingNotScaled(LanguageModel):
    def forward(self, tokens):
        return _through(self, _embedded(self, tokens, scale=False))


@misconception(
    "M869",
    "LanguageModel",
    title="no positions",
    source="another variant: “NoPE” (Haviv et al. 2022); the causal mask tells positions apart",
    effect="Trains, a little worse, and does not fit weights that were trained with positions.",
    hint="Yours does not know where a token is, but for what the mask tells. What is added to the "
    "embedding?",
)
class NoPositions(LanguageModel):
    def forward(self, tokens):
        return _through(self, _embedded(self, tokens, positions=False))


@misconception(
    "M870",
    "LanguageModel",
    title="no norm after the last layer",
    source="common: pre-norm layers in a model that was written for post-norm",
    effect="The logits grow with the number of layers.",
    hint="Your logits grow with the number of layers. What does pre-norm want after the last one?",
)
class NoFinalNorm(LanguageModel):
    def forward(self, tokens):
        return _through(self, _embedded(self, tokens), norm=False)


@also("M517", "LanguageModel")
class FinalNormInTheLoop(LanguageModel):
    def forward(self, tokens):
        return _through(self, _embedded(self, tokens), after_each=self.norm, norm=False)


@also("M316", "LanguageModel")
class TableTooLarge(LanguageModel):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        nn.init.normal_(self.embed_tokens.weight, std=1.0)


@also("M317", "LanguageModel")
class EmbeddingNotDropped(LanguageModel):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.dropout = nn.Dropout(0.0)


@misconception(
    "M871",
    "LanguageModel",
    title="one layer, used several times",
    source="a plausible slip: [layer] * num_layers; on purpose in the Universal Transformer",
    effect="A deep model with the parameters of one layer.",
    hint="Your layers are one and the same. Where is it made, in the loop or before it?",
)
class OneLayer(LanguageModel):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.layers = nn.ModuleList([self.layers[0]] * len(self.layers))


@misconception(
    "M916",
    "LanguageModel",
    title="the positions are scaled, too",
    source="an answer in a trial of the checks: the factor after the sum",
    effect="Where a token is outweighs what it is.",
    hint="Your positions are √d_model times too large. What is the factor for?",
)
class PositionsScaled(LanguageModel):
    def forward(self, tokens):
        x = _embedded(self, tokens, scale=False)
        return _through(self, x * math.sqrt(x.size(-1)))


@misconception(
    "M917",
    "LanguageModel",
    title="dropout even in evaluation",
    source="common: F.dropout(x, p) without training=self.training",
    effect="The model says something else each time, and worse than it could.",
    hint="Your model drops in evaluation mode, too. How does `F.dropout` know of the mode?",
)
class AlwaysDrops(LanguageModel):
    def forward(self, tokens):
        training, self.dropout.training = self.dropout.training, True
        try:
            return super().forward(tokens)
        finally:
            self.dropout.training = training


@misconception(
    "M918",
    "LanguageModel",
    title="the output does not train the table",
    source="an answer in a trial of the checks: weight.data, or detach(), for the output",
    effect="The logits are right; the table learns only from what is read.",
    hint="Your logits are right, and the gradient of the table is not. Does the output use the "
    "parameter, or a copy without a gradient?",
)
class OutputWithoutGradient(LanguageModel):
    def forward(self, tokens):
        return _through(self, _embedded(self, tokens), table=self.embed_tokens.weight.detach())


# ---- Its text ----


def _inputs(tokens, length):
    """The rows that a model reads; each of their tokens is followed by one that is known."""
    whole = (len(tokens) - 1) // length * length
    return tokens[:whole].view(-1, length)


@misconception(
    "M872",
    "blocks",
    title="nothing is shifted",
    source="common: labels are the inputs, as in libraries that shift by themselves",
    effect="The loss falls to 0: the model learns to copy.",
    hint="Your labels are the inputs. Which token is to be predicted at the first place?",
)
def not_shifted(tokens, length):
    rows = _inputs(tokens, length)
    return rows, rows.clone()


@misconception(
    "M873",
    "blocks",
    title="each block is a ring",
    source="a plausible slip: roll(-1) in each row",
    effect="At the end of each block the model must predict how it began.",
    hint="Your last label in each row is the row's first token. Where does the text go on?",
)
def rings(tokens, length):
    rows = _inputs(tokens, length)
    return rows, rows.roll(-1, dims=1)


@misconception(
    "M966",
    "blocks",
    title="the last label of each row is missing",
    source="an answer in a trial of the checks: shifted within the row",
    effect="One label in `length` is never learned, although it is known.",
    hint="In your rows the last place has no label. Which token of the text comes after the row?",
)
def last_label_missing(tokens, length):
    rows = _inputs(tokens, length)
    return rows, F.pad(rows[:, 1:], (0, 1), value=PAD)


@misconception(
    "M874",
    "blocks",
    title="the text goes down the columns",
    source="another program: `batchify` of PyTorch's old word_language_model",
    effect="Rows hold tokens that are far apart in the text.",
    hint="Your text goes on below, not to the right. Which of the two axes is the time?",
)
def down_the_columns(tokens, length):
    whole = (len(tokens) - 1) // length * length
    return tokens[:whole].view(length, -1).T, tokens[1 : whole + 1].view(length, -1).T


@misconception(
    "M875",
    "blocks",
    title="a window for each token",
    source="another variant: a dataset whose item i begins at token i, as in nanoGPT's sampling",
    effect="Every token is in as many rows as they are long; an epoch takes that much longer.",
    hint="Your rows overlap. Where does the second block begin?",
)
def windows(tokens, length):
    return tokens[:-1].unfold(0, length, 1), tokens[1:].unfold(0, length, 1)


@misconception(
    "M876",
    "blocks",
    title="cut first, shifted afterward",
    source="common: chunks of length + 1, each without its last and without its first token",
    effect="The first token of each block is never predicted.",
    hint="You cut the text before you shift it: some tokens are never a label. Which?",
)
def cut_first(tokens, length):
    rows = tokens[: len(tokens) // (length + 1) * (length + 1)].view(-1, length + 1)
    return rows[:, :-1], rows[:, 1:]


@misconception(
    "M877",
    "blocks",
    title="the last block is lost",
    source="a plausible slip: one block fewer, to be sure",
    effect="A little less text.",
    hint="You have a block fewer than there could be. How many labels does a text of n tokens "
    "have?",
)
def last_block_lost(tokens, length):
    whole = max((len(tokens) - 1) // length - 1, 0) * length
    return tokens[:whole].view(-1, length), tokens[1 : whole + 1].view(-1, length)


@misconception(
    "M878",
    "blocks",
    title="labels to the left",
    source="a plausible slip: inputs and labels exchanged",
    effect="The model learns to say what it has read before.",
    hint="Your labels are the tokens that come before. Which way does the text run?",
)
def exchanged(tokens, length):
    whole = (len(tokens) - 1) // length * length
    return tokens[1 : whole + 1].view(-1, length), tokens[:whole].view(-1, length)


@misconception(
    "M879",
    "blocks",
    title="no room for the last label",
    source="a plausible slip: len(tokens) // length blocks",
    effect="Fails, or loses a block, where the text fills its blocks without a token left.",
    hint="Where the text fills its blocks exactly, what is the label of its last token?",
)
def no_room(tokens, length):
    whole = len(tokens) // length * length
    labels = torch.cat([tokens[1:], tokens.new_tensor([EOS])])
    return tokens[:whole].view(-1, length), labels[:whole].view(-1, length)


# ---- With a cache ----


def _cached(
    model, tokens, cache, start=lambda old, new: old, mask=None, join=None, normed=True,
    last=True, into=None, scaled=True,
):  # fmt: skip
    """As it should be, but for what is switched."""
    old = cache[0][0].size(2) if cache else 0
    first, end = start(old, tokens.size(1)), old + tokens.size(1)
    x = model.embed_tokens(tokens)
    if scaled:
        x = x * math.sqrt(x.size(-1))
    last_place = first + tokens.size(1)
    x = x + sinusoidal_positions(max(end, last_place), x.size(-1))[first:last_place]
    seen = causal_mask(end)[:, :, old:] if mask is None else mask(old, tokens.size(1))
    new = [] if into is None else into
    for number, layer in enumerate(model.layers):
        part = layer.self_attention
        y = layer.norm1(x)
        read = y if normed else x
        query = split_heads(part.q_proj(y), part.num_heads)
        key = split_heads(part.k_proj(read), part.num_heads)
        value = split_heads(part.v_proj(y), part.num_heads)
        if old:
            key, value = (join or _join)(cache[number], (key, value))
        if len(new) > number:
            new[number] = (key, value)
        else:
            new.append((key, value))
        attended, _ = attention(query, key, value, seen[..., -key.size(2) :])
        x = x + part.out_proj(merge_heads(attended))
        x = x + layer.feed_forward(layer.norm2(x))
    return (model.norm(x) if last else x) @ model.embed_tokens.weight.T, new


def _join(old, new):
    return tuple(torch.cat(pair, dim=2) for pair in zip(old, new, strict=True))


@misconception(
    "M880",
    "cached_logits",
    title="positions begin anew",
    source="common: position 0 for what is new",
    effect="The first words come out well; then every token believes that it is the first.",
    hint="The prompt is right, and what comes after it is not. At which position does it stand?",
)
def positions_anew(model, tokens, cache):
    return _cached(model, tokens, cache, start=lambda old, new: 0)


@misconception(
    "M965",
    "cached_logits",
    title="as many positions before as the cache has layers",
    source="an answer in a trial of the checks: len(cache)",
    effect="Every token after the prompt believes that it is at the same position.",
    hint="The prompt is right, and what comes after it is not. Your cache is a list: what does its "
    "length count?",
)
def layers_for_positions(model, tokens, cache):
    return _cached(model, tokens, cache, start=lambda old, new: len(cache or ()))


@misconception(
    "M881",
    "cached_logits",
    title="no mask",
    source="common: one token at a time needs none, so it was left out",
    effect="Right for one token at a time; in a prompt every token sees those after it.",
    hint="One token at a time you are right. What may the tokens of one call see of each other?",
)
def no_mask(model, tokens, cache):
    return _cached(
        model, tokens, cache, mask=lambda old, new: torch.ones(1, 1, new, old + new).bool()
    )


@misconception(
    "M882",
    "cached_logits",
    title="the triangle in the upper left corner",
    source="common: is_causal of PyTorch with fewer queries than keys, whose mask begins at key 0",
    effect="What comes after the prompt sees only the beginning of it.",
    hint="Your new tokens see the beginning of the cache and not its end. Which corner of the mask "
    "belongs to the newest token?",
)
def upper_left(model, tokens, cache):
    return _cached(
        model, tokens, cache, mask=lambda old, new: torch.ones(1, 1, new, old + new).bool().tril()
    )


@misconception(
    "M883",
    "cached_logits",
    title="the new tokens do not see the cache",
    source="a plausible slip: only the new keys and values go into attention and into the cache",
    effect="Every call begins a new text.",
    hint="What was in the cache is gone. What do the new keys and values have to do with the old "
    "ones?",
)
def overwritten(model, tokens, cache):
    return _cached(model, tokens, cache, join=lambda old, new: new)


@misconception(
    "M884",
    "cached_logits",
    title="the newest first",
    source="a plausible slip: cat([new, old])",
    effect="The mask hides the wrong keys.",
    hint="Your cache has everything, in another order. Where does the newest position belong?",
)
def newest_first(model, tokens, cache):
    return _cached(model, tokens, cache, join=lambda old, new: _join(new, old))


@misconception(
    "M885",
    "cached_logits",
    title="keys of what has not been normed",
    source="a plausible slip: x for norm1(x)",
    effect="Other keys than those that the model was trained with.",
    hint="Your keys are wrong, your values right. What do the projections read in pre-norm?",
)
def keys_not_normed(model, tokens, cache):
    return _cached(model, tokens, cache, normed=False)


@misconception(
    "M886",
    "cached_logits",
    title="no norm after the last layer",
    source="a plausible slip",
    effect="Other logits, from a cache that is right.",
    hint="Your cache is right, and the logits are not. What comes after the last layer?",
)
def no_last_norm(model, tokens, cache):
    return _cached(model, tokens, cache, last=False)


@misconception(
    "M887",
    "cached_logits",
    title="the embedding is not scaled",
    source="a plausible slip: the factor √d_model forgotten in the second program",
    effect="Another model than the one that was trained.",
    hint="Even the first token is wrong in yours. What does the model do with an embedding before "
    "it adds the position?",
)
def not_scaled(model, tokens, cache):
    return _cached(model, tokens, cache, scaled=False)


@misconception(
    "M888",
    "cached_logits",
    title="the given cache is changed",
    source="common: cache[i] = …, or a cache that is an object",
    effect="Whoever goes on twice from the same cache, as a search does, has both texts in it.",
    hint="You are right once. What happens to the cache that you were given?",
)
def given_cache_changed(model, tokens, cache):
    return _cached(model, tokens, cache, into=cache)


@misconception(
    "M889",
    "cached_logits",
    title="everything is computed again",
    source="a plausible slip: the tokens are kept, and not the keys and values",
    effect="The right logits, and nothing is saved.",
    hint="Your cache holds something else than keys and values. What should not be computed again?",
)
def computed_again(model, tokens, cache):
    whole = torch.cat([cache[0][0], tokens], dim=1) if cache else tokens
    return model(whole)[:, -tokens.size(1) :], [(whole, whole) for _ in model.layers]


@misconception(
    "M890",
    "cached_logits",
    title="one cache for all layers",
    source="a plausible slip: cache[0] in the loop",
    effect="The layers above read the keys of the first one.",
    hint="With one layer you are right. Whose keys does your second layer read?",
)
def one_for_all(model, tokens, cache):
    return _cached(model, tokens, [cache[0]] * len(cache) if cache else cache)


@misconception(
    "M919",
    "cached_logits",
    title="a mask for the prompt alone",
    source="answers in a trial of the checks: no mask as soon as there is a cache",
    effect="Right for one new token; of several, each sees those after it.",
    hint="You are right until several tokens come after a cache. What may they see of each other?",
)
def mask_for_the_prompt(model, tokens, cache):
    def mask(old, new):
        whole = torch.ones(1, 1, new, old + new, dtype=torch.bool)
        return whole if old else whole.tril()

    return _cached(model, tokens, cache, mask=mask)


@misconception(
    "M920",
    "cached_logits",
    title="only the new keys and values are returned",
    source="an answer in a trial of the checks: the pair before it is joined",
    effect="Right in the second call, wrong from the third on.",
    hint="Your second call is right, and what it hands on is too short. What should the new cache "
    "hold?",
)
def only_the_new(model, tokens, cache):
    logits, new = _cached(model, tokens, cache)
    length = tokens.size(1)
    return logits, [(key[:, :, -length:], value[:, :, -length:]) for key, value in new]


@misconception(
    "M908",
    "cached_logits",
    title="the given empty list is filled",
    source="an answer in a trial of the checks: cache.append(…), or extend, at the first call",
    effect="The list that the next text begins with is no longer empty.",
    hint="You are right, and the empty list that you were given is no longer empty.",
)
def empty_list_filled(model, tokens, cache):
    logits, new = _cached(model, tokens, cache)
    if not cache:
        cache.extend((key[:, :, :0], value[:, :, :0]) for key, value in new)
    return logits, new


# ---- Only the answer counts ----


@misconception(
    "M891",
    "answer_labels",
    title="the prompt counts",
    source="another variant: training on whole rows, as in pre-training",
    effect="Part of the model is spent on questions that users will ask.",
    hint="Your labels hold the prompt. Which of them should be `PAD`?",
)
def prompt_counts(rows):
    return rows[:, :-1], rows[:, 1:]


@misconception(
    "M892",
    "answer_labels",
    title="the first token of the answer is not learned",
    source="common: the mask of the inputs laid over the labels",
    effect="The model does not learn how to begin.",
    hint="The first token of the answer is `PAD` in yours. What does the model read where it must "
    "predict it?",
)
def first_not_learned(rows):
    inputs, labels = rows[:, :-1], rows[:, 1:]
    return inputs, labels.masked_fill(((inputs == BOS).cumsum(1) == 0) | (inputs == BOS), PAD)


@misconception(
    "M893",
    "answer_labels",
    title="<s> is to be predicted",
    source="common: the mask begins one place too soon",
    effect="The model learns to end a question, which the user does.",
    hint="One of your labels is <s>. Who writes it, the user or the model?",
)
def start_is_label(rows):
    inputs, labels = rows[:, :-1], rows[:, 1:]
    return inputs, labels.masked_fill((labels == BOS).cumsum(dim=1) == 0, PAD)


@misconception(
    "M894",
    "answer_labels",
    title="the prompt is taken from the inputs",
    source="a plausible slip: the mask laid over both",
    effect="The model answers without having read the question.",
    hint="Your inputs are without the prompt. What should the model read?",
)
def prompt_not_read(rows):
    inputs, labels = rows[:, :-1], rows[:, 1:]
    hidden = (inputs == BOS).cumsum(dim=1) == 0
    return inputs.masked_fill(hidden, PAD), labels.masked_fill(hidden, PAD)


@misconception(
    "M895",
    "answer_labels",
    title="the end is not learned",
    source="common: </s> masked together with the padding",
    effect="The model goes on and on.",
    hint="The </s> of the answer is no label in yours. How would the model learn to stop?",
)
def end_not_learned(rows):
    inputs, labels = rows[:, :-1], rows[:, 1:]
    return inputs, labels.masked_fill(((inputs == BOS).cumsum(1) == 0) | (labels == EOS), PAD)


@misconception(
    "M896",
    "answer_labels",
    title="not shifted",
    source="common: labels are the rows, as in libraries that shift by themselves",
    effect="The model learns to copy.",
    hint="Your labels are the inputs where the answer is. Which token follows?",
)
def answer_not_shifted(rows):
    inputs = rows[:, :-1]
    return inputs, inputs.masked_fill(((inputs == BOS).cumsum(1) == 0) | (inputs == BOS), PAD)


@misconception(
    "M897",
    "answer_labels",
    title="the answer is hidden, the prompt learned",
    source="a plausible slip: the mask not negated",
    effect="The model learns to ask.",
    hint="Yours hides the answer. Which of the two is to be learned?",
)
def prompt_learned(rows):
    inputs, labels = rows[:, :-1], rows[:, 1:]
    return inputs, labels.masked_fill((inputs == BOS).cumsum(dim=1) > 0, PAD)


@misconception(
    "M898",
    "answer_labels",
    title="all rows begin their answer where the first one does",
    source="a plausible slip: one length of the prompt for the whole batch",
    effect="Right for one row, and for prompts of one length.",
    hint="With prompts of one length you are right. Where does the answer of the second row begin?",
)
def as_the_first_row(rows):
    inputs, labels = rows[:, :-1], rows[:, 1:]
    first = (inputs[:1] == BOS).cumsum(dim=1) == 0
    return inputs, labels.masked_fill(first, PAD)


@misconception(
    "M921",
    "answer_labels",
    title="an unknown word is not learned",
    source="an answer in a trial of the checks: labels > UNK",
    effect="The model is never told that it has to say something there.",
    hint="An unknown word in the answer is `PAD` in yours. Which labels should not count?",
)
def unknown_not_learned(rows):
    inputs, labels = rows[:, :-1], rows[:, 1:]
    return inputs, labels.masked_fill(((inputs == BOS).cumsum(1) == 0) | (labels == UNK), PAD)


@also("M223", "answer_labels")
def minus_a_hundred(rows):
    inputs, labels = rows[:, :-1], rows[:, 1:]
    hidden = ((inputs == BOS).cumsum(dim=1) == 0) | (labels == PAD)
    return inputs, labels.masked_fill(hidden, -100)


# ---- Few parameters ----


@misconception(
    "M899",
    "LoRA",
    title="both matrices start at random",
    source="a plausible slip",
    effect="Before the first step the model is another one than the trained one.",
    hint="Before any step your layer gives something else than the linear layer. Which of the two "
    "matrices is 0 at first?",
)
class BothRandom(LoRA):
    def __init__(self, linear, rank, scale):
        super().__init__(linear, rank, scale)
        nn.init.normal_(self.up)


@misconception(
    "M900",
    "LoRA",
    title="both matrices start at zero",
    source="a plausible slip: zeros, to be sure",
    effect="Neither ever gets a gradient: nothing is learned.",
    hint="Both of your matrices are 0. Which gradient does a factor of 0 let through to the other?",
)
class BothZero(LoRA):
    def __init__(self, linear, rank, scale):
        super().__init__(linear, rank, scale)
        nn.init.zeros_(self.down)


@misconception(
    "M901",
    "LoRA",
    title="the layer is not frozen",
    source="common: the optimizer gets model.parameters() and all of them learn",
    effect="All parameters are trained, and the two matrices are of no use.",
    hint="More is trained than two matrices. What of `linear` still wants a gradient?",
)
class NotFrozen(LoRA):
    def __init__(self, linear, rank, scale):
        super().__init__(linear, rank, scale)
        self.linear.requires_grad_(True)


@misconception(
    "M902",
    "LoRA",
    title="the bias goes on learning",
    source='another variant: bias="lora_only" of PEFT',
    effect="A few more parameters than two matrices.",
    hint="A bias of `linear` still learns. What is frozen in LoRA?",
)
class BiasLearns(LoRA):
    def __init__(self, linear, rank, scale):
        super().__init__(linear, rank, scale)
        self.linear.bias.requires_grad_(True)


@misconception(
    "M903",
    "LoRA",
    title="the scale is left out",
    source="a plausible slip",
    effect="The learning rate must be found anew for every rank.",
    hint="Where the scale is 1 you are right.",
)
class NoScale(LoRA):
    def forward(self, x):
        return self.linear(x) + x @ self.down.T @ self.up.T


@misconception(
    "M904",
    "LoRA",
    title="the scale divided by the rank",
    source="Hu et al. 2021, whose factor is α/r",
    effect="With the scale of this exercise, too small by the rank.",
    hint="Where the rank is 1 you are right. What is `scale` here, α or α/r?",
)
class DividedByTheRank(LoRA):
    def forward(self, x):
        return self.linear(x) + self.scale / len(self.down) * (x @ self.down.T @ self.up.T)


@misconception(
    "M905",
    "LoRA",
    title="the scale multiplies everything",
    source="a plausible slip: a bracket",
    effect="The trained layer becomes another one.",
    hint="Before any step your layer gives a multiple of what the linear one gives. What should be "
    "scaled?",
)
class AllScaled(LoRA):
    def forward(self, x):
        return self.scale * (self.linear(x) + x @ self.down.T @ self.up.T)


@misconception(
    "M906",
    "LoRA",
    title="in the place of the layer",
    source="a plausible slip: the sum forgotten",
    effect="At first the layer gives 0, and all that it had learned is gone.",
    hint="Before any step yours gives 0. What is the product added to?",
)
class InItsPlace(LoRA):
    def forward(self, x):
        return self.scale * (x @ self.down.T @ self.up.T)


@misconception(
    "M907",
    "LoRA",
    title="the other matrix starts at zero",
    source="a plausible slip: down = 0, up at random",
    effect="Learns as well, if more slowly; weights of other programs assume up = 0.",
    hint="Your `down` starts at 0 and your `up` at random. Which of them is to be 0?",
)
class TheOtherIsZero(LoRA):
    def __init__(self, linear, rank, scale):
        super().__init__(linear, rank, scale)
        nn.init.zeros_(self.down)
        nn.init.normal_(self.up)


@misconception(
    "M909",
    "LoRA",
    title="the frozen layer computes under no_grad",
    source="an answer in a trial of the checks",
    effect="What lies before the layer gets its gradient through the narrow path alone.",
    hint="What you give is right, and the gradient of x is not. Which of the two paths should it "
    "pass?",
)
class UnderNoGrad(LoRA):
    def forward(self, x):
        with torch.no_grad():
            fixed = self.linear(x)
        return fixed + self.scale * (x @ self.down.T @ self.up.T)


@misconception(
    "M922",
    "LoRA",
    title="the start depends on the output's width",
    source="an answer in a trial of the checks: weight.shape[0] for d_in",
    effect="Right for square matrices; at first too large or too small for the others.",
    hint="With as many outputs as inputs your `down` starts as it should. Which of the two widths "
    "does x have?",
)
class WidthOfTheOutput(LoRA):
    def __init__(self, linear, rank, scale):
        super().__init__(linear, rank, scale)
        nn.init.normal_(self.down, std=linear.out_features**-0.5)


@misconception(
    "M968",
    "LoRA",
    title="1/√d_in is the bound of a uniform draw",
    source="an answer in a trial of the checks: kaiming_uniform_ as in nn.Linear",
    effect="The start is smaller than asked for, by √3.",
    hint="Your `down` starts too small. What is its standard deviation? (If it is drawn uniformly "
    "between −b and b, that is b/√3.)",
)
class UniformStart(LoRA):
    def __init__(self, linear, rank, scale):
        super().__init__(linear, rank, scale)
        bound = linear.in_features**-0.5
        nn.init.uniform_(self.down, -bound, bound)
