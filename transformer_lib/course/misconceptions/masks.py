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
    hint="Your mask lets positions see what comes after them. What must a decoder not see?",
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


def _packed(segments, causal=True, padding=True, same=True):
    mask = segments[:, None, :, None] == segments[:, None, None, :]
    if not same:
        mask = torch.ones_like(mask)
    if padding:
        mask = mask & (segments != PAD)[:, None, None, :]
    length = segments.size(1)
    return mask & torch.ones(length, length, dtype=torch.bool).tril() if causal else mask


@also("M59", "packed_mask")
def packed_without_the_triangle(segments):
    return _packed(segments, causal=False)


@misconception(
    "M360",
    "packed_mask",
    title="a sentence sees the ones before it in its row",
    source="common: sentences packed into one row under a plain causal mask",
    effect="What is learned depends on which sentences happen to be packed together.",
    hint="Your mask is causal and hides padding. May the second sentence see the first?",
)
def sees_other_sentences(segments):
    return _packed(segments, same=False)


@misconception(
    "M361",
    "packed_mask",
    title="padding is a sentence of its own",
    source="a plausible slip: equal numbers may see one another, and all padding is 0",
    effect="None, as long as nobody uses what is computed at padding.",
    hint="Everything is right but the rows of the padding. What may be seen that is number 0?",
)
def padding_sees_padding(segments):
    return _packed(segments, padding=False)


@misconception(
    "M362",
    "packed_mask",
    title="only the neighbor is compared",
    source="a plausible slip: a token may see the one before it if both are of one sentence",
    effect="From the third token on a sentence forgets its beginning.",
    hint="Your tokens see themselves and one neighbor. And the tokens before that?",
)
def only_neighbors(segments):
    length = segments.size(1)
    band = torch.ones(length, length, dtype=torch.bool).tril().triu(-1)
    return _packed(segments) & band


@misconception(
    "M428",
    "packed_mask",
    title="earlier sentences of a row are seen, and padding sees nothing",
    source="a plausible slip: numbers compared by ≥, or by their product",
    effect="A sentence depends on which others happen to be packed before it.",
    hint="Your mask is causal and hides padding. May the second sentence see the first?",
)
def compared_by_order(segments):
    return _packed(segments, same=False) & (segments != PAD)[:, None, :, None]


def _leaks(model, length, places, limit=1e-6, later=True, anew=True):
    tokens = torch.randint(20, (4, length))
    before, found = model(tokens), set()
    changed = tokens.clone()
    for place in places(length):
        if anew:
            changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 7) % 20
        difference = (model(changed) - before).abs().amax(dim=(0, 2))
        seen = range(place) if later else range(place + 1)
        found |= {position for position in seen if difference[position] > limit}
    return sorted(found)


@misconception(
    "M363",
    "leaks",
    title="only the last token is changed",
    source="common: the shortest test that finds a missing mask",
    effect="A leak that does not reach to the end stays unnoticed.",
    hint="Your test finds a look at the last token. Does it find a look at the next token, and no "
    "further?",
)
def last_token_only(model, length):
    return _leaks(model, length, lambda length: [length - 1])


@misconception(
    "M364",
    "leaks",
    title="the tolerance is larger than the leak",
    source="a plausible slip: allclose with a generous tolerance",
    effect="A leak of a thousandth is enough to learn from, and is not found.",
    hint="Large leaks are found. How small a difference does your test take for none?",
)
def generous_tolerance(model, length):
    return _leaks(model, length, lambda length: range(1, length), limit=0.002)


@misconception(
    "M365",
    "leaks",
    title="a position that sees itself counts as a leak",
    source="a plausible slip: the changed position is compared, too",
    effect="Every model leaks.",
    hint="You find leaks in a model that has none. May a position depend on its own token?",
)
def own_token_counts(model, length):
    return _leaks(model, length, lambda length: range(1, length), later=False)


@misconception(
    "M366",
    "leaks",
    title="all tokens are changed at once",
    source="a plausible slip: two random batches are compared",
    effect="Every model leaks: outputs change because their own tokens did.",
    hint="You find leaks in a model that has none. What else has changed beside the future?",
)
def all_at_once(model, length):
    tokens = torch.randint(20, (4, length))
    difference = (model(tokens) - model((tokens + 7) % 20)).abs().amax(dim=(0, 2))
    return [position for position in range(length) if difference[position] > 1e-6]


@misconception(
    "M367",
    "leaks",
    title="the positions that see something earlier",
    source="a plausible slip: the other side of the changed token is compared",
    effect="The test praises a leak and complains of attention.",
    hint="You list the positions after the changed token. Which ones must not notice it?",
)
def the_other_side(model, length):
    tokens = torch.randint(20, (4, length))
    before, found = model(tokens), set()
    for place in range(length - 1):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 7) % 20
        difference = (model(changed) - before).abs().amax(dim=(0, 2))
        found |= {p for p in range(place + 1, length) if difference[p] > 1e-6}
    return sorted(found)


@misconception(
    "M429",
    "leaks",
    title="the changed position is returned, not the one that noticed",
    source="a plausible slip: the loop's variable is kept",
    effect="The leak is reported in the wrong place.",
    hint="You return the positions that were changed. Which ones are asked for?",
)
def the_changed_position(model, length):
    tokens = torch.randint(20, (4, length))
    before, found = model(tokens), set()
    for place in range(1, length):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 7) % 20
        if (model(changed) - before)[:, :place].abs().amax() > 1e-6:
            found.add(place)
    return sorted(found)


@misconception(
    "M430",
    "leaks",
    title="differences are added up before they are compared",
    source="common: the sum of an output in place of its largest change",
    effect="Behind a layer norm all changes add up to zero, and no leak is ever found.",
    hint="Your test is blind where the changes of a position add up to zero. How do you make one "
    "number of them?",
)
def differences_added(model, length):
    tokens = torch.randint(20, (4, length))
    before, found = model(tokens), set()
    for place in range(1, length):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 7) % 20
        difference = (model(changed) - before).sum(dim=-1).abs().amax(dim=0)
        found |= {position for position in range(place) if difference[position] > 1e-5}
    return sorted(found)


@misconception(
    "M483",
    "leaks",
    title="the future is turned round, not changed",
    source="answers in a trial of the checks: flip, or a permutation of the later tokens",
    effect="Who looks at the mean of the future, or at the last token alone, is not noticed.",
    hint="After your change the later tokens are the same in another order, or the only one there "
    "is stays. What does a model see that takes their mean?",
)
def future_turned_round(model, length):
    tokens = torch.randint(20, (16, length))
    before, found = model(tokens), []
    for place in range(length - 1):
        changed = torch.cat([tokens[:, : place + 1], tokens[:, place + 1 :].flip(1)], dim=1)
        if (model(changed) - before)[:, place].abs().amax() > 1e-5:
            found.append(place)
    return found


@misconception(
    "M484",
    "leaks",
    title="two futures only, of zeros and of ones",
    source="an answer in a trial of the checks",
    effect="Where these two tokens are alike to the model, no leak is found.",
    hint="Your two futures are made of two tokens, which may be alike to a model. What would tell "
    "more: other tokens in each place?",
)
def zeros_and_ones(model, length):
    tokens = torch.randint(20, (4, length))
    found = []
    for place in range(length - 1):
        past = tokens[:, : place + 1]
        rest = torch.zeros_like(tokens[:, place + 1 :])
        zeros, ones = (model(torch.cat([past, future], dim=1)) for future in (rest, rest + 1))
        if (zeros - ones)[:, place].abs().amax() > 1e-6:
            found.append(place)
    return found


@misconception(
    "M485",
    "leaks",
    title="compared to the last bit",
    source="common: torch.equal, or a difference that is not 0",
    effect="Rounding counts as a leak, and every model on a GPU has one.",
    hint="You find leaks where there is nothing but rounding. How large is a difference in the "
    "last digit of a float?",
)
def to_the_last_bit(model, length):
    return _leaks(model, length, lambda length: range(1, length), limit=0.0)


@misconception(
    "M510",
    "packed_mask",
    title="the first row's sentences for all rows",
    source="an answer in a trial of the checks: torch.block_diag of the first row's lengths",
    effect="Right for one row; in the others sentences are cut at wrong places.",
    hint="All rows of your mask have the borders of the first. Where is it that the others end?",
)
def borders_of_the_first_row(segments):
    return _packed(segments[:1]).expand(len(segments), -1, -1, -1)


@misconception(
    "M535",
    "leaks",
    title="only the next token is tried",
    source="an answer in a trial of the checks: for position i the token i + 1",
    effect="A look further ahead stays unnoticed.",
    hint="One model looks two places ahead, and nowhere else. Which later tokens do you change for "
    "a position?",
)
def only_the_next_token(model, length):
    tokens = torch.randint(20, (4, length))
    before, found = model(tokens), []
    for position in range(length - 1):
        changed = tokens.clone()
        changed[:, position + 1] = (changed[:, position + 1] + 7) % 20
        if (model(changed) - before)[:, position].abs().max() > 1e-6:
            found.append(position)
    return found


@misconception(
    "M536",
    "leaks",
    title="what was changed stays changed",
    source="an answer in a trial of the checks: one copy of the tokens for all steps",
    effect="An honest model is accused: earlier tokens are not what they were, either.",
    hint="You find leaks where there are none. When you change the third token, are the first two "
    "what they were?",
)
def changes_stay(model, length):
    return _leaks(model, length, lambda length: range(1, length), anew=False)


@misconception(
    "M565",
    "padding_mask",
    title="the first n positions, n the number of real tokens",
    source="answers in trials of the checks: a mask from lengths, like tf.sequence_mask",
    effect="Right if all padding is at the end; else real tokens are hidden, and padding is seen.",
    hint="Where padding is in front, you allow it and hide real tokens. Do you ask each token what "
    "it is, or only how many there are?",
)
def first_positions(tokens):
    lengths = (tokens != PAD).sum(dim=1)
    return (torch.arange(tokens.size(1)) < lengths[:, None])[:, None, None, :]


@misconception(
    "M636",
    "leaks",
    title="the position before the changed one is reported",
    source="an answer in a trial of the checks: t − 1, whichever output has changed",
    effect="A leak from far away is looked for in the wrong place.",
    hint="You report the position before the token that was changed. Which outputs have changed?",
)
def neighbor_reported(model, length):
    found = []
    tokens = torch.randint(20, (4, length))
    before = model(tokens)
    for place in range(1, length):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 7) % 20
        if (model(changed) - before)[:, :place].abs().max() > 1e-6:
            found.append(place - 1)
    return found


@misconception(
    "M792",
    "padding_mask",
    title="padding begins where argmax finds the first, also where there is none",
    source="an answer in a trial of the checks: argmax of all False is 0",
    effect="Sentences without padding are masked whole: in each batch, the longest.",
    hint="A row without padding is masked whole. What does argmax say where nothing is True?",
)
def first_padding_by_argmax(tokens):
    lengths = (tokens == PAD).int().argmax(dim=1)
    return (torch.arange(tokens.size(1)) < lengths[:, None])[:, None, None, :]


@also("M565", "decoder_mask")
def first_positions_of_the_past(tokens):
    return first_positions(tokens) & causal_mask(tokens.size(1))


@misconception(
    "M829",
    "leaks",
    title="a tolerance of a ten-thousandth",
    source="an answer in a trial of the checks: allclose with atol=1e-4",
    effect="A small leak is not found, and training can make it larger.",
    hint="A leak of a few hundred-thousandths escapes you. Which difference does the exercise "
    "allow?",
)
def tolerance_of_a_ten_thousandth(model, length):
    return _leaks(model, length, lambda length: range(1, length), limit=1e-4)
