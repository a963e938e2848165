"""Mistakes in masks (bool, True = may attend).

What is right about them is in :mod:`transformer_lib.model.masks`.
"""

import torch

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.model.masks import causal_mask, padding_mask
from transformer_lib.vocabulary import EOS, PAD, UNK


def _ones(length):
    return torch.ones(length, length, dtype=torch.bool)[None, None]


@also("M14", "padding_mask")
def padding_is_true(tokens):
    return ~padding_mask(tokens)


@also("M14", "causal_mask")
def future_is_true(length):
    return ~causal_mask(length)


@also("M14", "decoder_mask")
def blocked_is_true(tokens):
    return ~(padding_mask(tokens) & causal_mask(tokens.size(1)))


@misconception(
    "M13",
    "causal_mask",
    title="the upper triangle for the lower one",
    source="the illustrated doc: “an upper triangle of zeros”, without saying which value blocks",
    effect="Each position sees itself and the future, and nothing of what came before.",
    hint="Row 0 of your mask may see everything, the last row only itself. Which positions may the "
    "last token see?",
)
def upper_triangle(length):
    return _ones(length).triu()


@also("M13", "decoder_mask")
def upper_triangle_and_padding(tokens):
    return padding_mask(tokens) & _ones(tokens.size(1)).triu()


@misconception(
    "M21",
    "causal_mask",
    title="the triangle without its diagonal",
    source="common: tril(-1), or a negated triu() without the 1",
    effect="No position sees itself, and the first one sees nothing at all.",
    hint="The first row of your mask is empty. May a position look at itself?",
)
def strict_triangle(length):
    return _ones(length).tril(-1)


@also("M21", "decoder_mask")
def strict_triangle_and_padding(tokens):
    return padding_mask(tokens) & _ones(tokens.size(1)).tril(-1)


@misconception(
    "M54",
    "causal_mask",
    title="the triangle reaches one too far",
    source="common: tril(1)",
    effect="Each position sees the token that it should predict: the training loss falls towards "
    "0, and the translations are nonsense.",
    hint="Row 0 of your mask may see position 1. What will be there while you translate?",
)
def sees_the_next(length):
    return _ones(length).tril(1)


@also("M54", "decoder_mask")
def sees_the_next_and_padding(tokens):
    return padding_mask(tokens) & _ones(tokens.size(1)).tril(1)


@misconception(
    "M55",
    "padding_mask",
    title="queries are masked instead of keys",
    source="common: [:, None, :, None] for [:, None, None, :]",
    effect="Padded positions see nothing, which nobody reads; real ones still see the padding.",
    hint="Your mask stops the padding from looking. Should it not stop the others from looking at "
    "the padding? Which axis are the keys?",
)
def queries_masked(tokens):
    return (tokens != PAD)[:, None, :, None]


@also("M55", "decoder_mask")
def padding_queries_masked(tokens):
    return (tokens != PAD)[:, None, :, None] & causal_mask(tokens.size(1))


@misconception(
    "M233",
    "padding_mask",
    title="all special tokens are masked",
    source="a plausible slip: whatever is no word is taken for padding",
    effect="The model sees neither the beginning nor the end of a sentence.",
    hint="Your mask blocks padding, and the other special tokens with it. What is wrong with </s>?",
)
def special_masked(tokens):
    return (tokens > EOS)[:, None, None, :]


@misconception(
    "M234",
    "padding_mask",
    title="the first padding may be seen",
    source="a plausible slip: positions <= lengths",
    effect="One vector of padding for each shorter sentence is attended to.",
    hint="One position too many may be seen, right after the sentence. Counting from 0, which is "
    "the last position of a sentence of three tokens?",
)
def one_too_many(tokens):
    lengths = (tokens != PAD).sum(dim=1, keepdim=True)
    return (torch.arange(tokens.size(1)) <= lengths)[:, None, None, :]


@misconception(
    "M56",
    "padding_mask",
    title="the axes of heads and queries are missing",
    source="a plausible slip",
    effect="Broadcasting takes the batch axis for the queries: an error at most sizes, and "
    "silently "
    "wrong where batch and length are equal.",
    hint="Your mask has two axes, the scores have four. Between which of them do yours belong?",
)
def two_axes(tokens):
    return tokens != PAD


@misconception(
    "M57",
    "padding_mask",
    title="<unk> is masked like padding",
    source="a plausible slip: tokens > 1",
    effect="The model cannot see that there is a word that it does not know.",
    hint="Your mask blocks more than padding. Which numbers do the special tokens have?",
)
def unknown_masked(tokens):
    return (tokens > UNK)[:, None, None, :]


@misconception(
    "M58",
    "decoder_mask",
    title="“or” for “and”",
    source="a plausible slip, easily made when switching from masks in which True blocks",
    effect="All real tokens are seen by all, the future included.",
    hint="Your mask allows what only one of the two conditions allows. Must both hold, or one?",
)
def either_condition(tokens):
    return padding_mask(tokens) | causal_mask(tokens.size(1))


@misconception(
    "M232",
    "decoder_mask",
    title="the padding is forgotten",
    source="common: the causal mask alone, repeated for each sentence",
    effect="Rows of padding see padding, which harms nobody as long as padding comes last.",
    hint="Your mask is the same for each sentence. Where do the tokens come in?",
)
def padding_forgotten(tokens):
    return causal_mask(tokens.size(1)).expand(len(tokens), -1, -1, -1).clone()


@misconception(
    "M59",
    "decoder_mask",
    title="the future is not masked",
    source="a plausible slip: the encoder's mask used for the decoder",
    effect="Each position sees the token that it should predict.",
    hint="Your mask blocks padding only. What else must a decoder not see?",
)
def future_forgotten(tokens):
    return padding_mask(tokens).expand(-1, -1, tokens.size(1), -1).clone()


@misconception(
    "M60",
    "causal_mask",
    title="a mask of numbers",
    source="common: np.triu, torch.ones without dtype=bool",
    effect="~mask and masked_fill fail, or a mask of 0 and 1 is added to the scores.",
    hint="The pattern is right, but it consists of numbers. Of which type is a mask in this "
    "course?",
)
def mask_of_floats(length):
    return causal_mask(length).float()


@also("M60", "padding_mask")
def padding_mask_of_floats(tokens):
    return padding_mask(tokens).float()


@also("M60", "decoder_mask")
def decoder_mask_of_floats(tokens):
    return (padding_mask(tokens) & causal_mask(tokens.size(1))).float()
