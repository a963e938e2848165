"""Mistakes in sinusoidal positions, ``positional_encoding(length, d_model)``.

What is right about it is in :mod:`transformer_lib.model.positional_encoding`.
"""

import torch

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.model.positional_encoding import sinusoidal_positions


def _table(length, d_model, sine_exponents, cosine_exponents, first=0, base=10000.0):
    """Interleaved sin(pos/base^exponent) and cos(pos/base^exponent)."""
    position = torch.arange(first, first + length, dtype=torch.float64)[:, None]
    table = torch.zeros(length, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position / base**sine_exponents)
    table[:, 1::2] = torch.cos(position / base**cosine_exponents)
    return table.float()


@misconception(
    "M1",
    "positional_encoding",
    title="the exponent is doubled, and differs between sine and cosine",
    source="the lecture's first listing: 2·i/d where i already steps by 2, and 2(i+1)/d",
    effect="The frequencies fall twice as fast, and PE(pos+k) is no longer a rotation of PE(pos).",
    hint="Your frequencies fall twice as fast as they should. Does your i count pairs of channels, "
    "or does it already step by 2? And do a sine and its cosine share a frequency?",
)
def doubled_exponent(length, d_model):
    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    return _table(length, d_model, 2 * i / d_model, 2 * (i + 1) / d_model)


@misconception(
    "M2",
    "positional_encoding",
    title="a table of 80 positions",
    source="the lecture: max_seq_len = 80 (and .cuda() in the same lines)",
    effect="A sentence of more than 80 tokens is an error; without a GPU every sentence is.",
    hint="It works for short sentences only. Is there a number in your code that does not come "
    "from the arguments?",
)
def table_of_80(length, d_model):
    return sinusoidal_positions(80, d_model)[:length]


@misconception(
    "M12",
    "positional_encoding",
    title="d_model taken for the longest sentence's length",
    source="the illustrated doc: “the embedding dimension is usually the longest sentence's "
    "length”",
    effect="The encoding has as many channels as there are positions and fits no embedding.",
    hint="Your table has as many channels as positions. Which of the two arguments says how wide "
    "the model is?",
)
def width_is_length(length, d_model):
    return sinusoidal_positions(length + length % 2, length + length % 2)[:length, :length]


@misconception(
    "M47",
    "positional_encoding",
    title="sines in one half, cosines in the other",
    source="Tensor2Tensor and NiuTensor, where it is meant; a mistake where the paper's order is",
    effect="The same numbers in another order: weights trained with one layout fail with the "
    "other.",
    hint="Your numbers are right, their channels are not. Where does this layout put the cosine "
    "that belongs to the sine in channel 0?",
)
def halves_for_interleaved(length, d_model):
    return sinusoidal_positions(length, d_model, layout="halves")


@also("M47", "positional_encoding_halves")
def interleaved_for_halves(length, d_model):
    return sinusoidal_positions(length, d_model)


@misconception(
    "M48",
    "positional_encoding",
    title="sine and cosine change places",
    source="a plausible slip",
    effect="Position 0 becomes 1, 0, 1, 0 … instead of 0, 1, 0, 1 …; a model can learn with it, "
    "but not with weights that were trained with the other.",
    hint="Look at position 0 of your table: which channels should be sin 0, and which cos 0?",
)
def cosine_first(length, d_model):
    return sinusoidal_positions(length, d_model).view(length, -1, 2).flip(-1).flatten(1)


@also("M48", "positional_encoding_halves")
def cosine_half_first(length, d_model):
    return sinusoidal_positions(length, d_model, "halves").roll(d_model // 2, dims=1)


@misconception(
    "M49",
    "positional_encoding",
    title="positions counted from 1",
    source="a plausible slip",
    effect="Every token gets the encoding of the one after it.",
    hint="Row 0 of your table is what row 1 should be. Where do you begin to count?",
)
def counted_from_one(length, d_model):
    return sinusoidal_positions(length + 1, d_model)[1:]


@also("M49", "positional_encoding_halves")
def counted_from_one_in_halves(length, d_model):
    return sinusoidal_positions(length + 1, d_model, "halves")[1:]


@misconception(
    "M50",
    "positional_encoding",
    title="integer division in the exponent",
    source="a plausible slip: // for /",
    effect="All exponents are 0, so all channels swing alike, and positions 2π ≈ 6.28 apart look "
    "nearly the same.",
    hint="All your channels have the same frequency. Print your exponents: what does // do?",
)
def integer_division(length, d_model):
    i = torch.arange(0, d_model, 2)
    return _table(length, d_model, i // d_model, i // d_model)


@misconception(
    "M51",
    "positional_encoding",
    title="every channel has a frequency of its own",
    source="common: pos / 10000^(j/d) for channel j, without rounding j down to an even number",
    effect="Sine and cosine of a pair drift apart: PE(pos+k) is not a rotation of PE(pos).",
    hint="Your sines are right, your cosines are too slow. Should the sine and the cosine of a "
    "pair "
    "have the same frequency?",
)
def own_frequency_each(length, d_model):
    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    return _table(length, d_model, i / d_model, (i + 1) / d_model)


@misconception(
    "M52",
    "positional_encoding",
    title="multiplied by 10000^(2i/d) instead of divided",
    source="a plausible slip: the sign of the exponent",
    effect="The waves get faster from channel to channel, until whole numbers sample them at "
    "random.",
    hint="Your waves get faster with the channel's number. Which way should it go?",
)
def frequencies_rise(length, d_model):
    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    return _table(length, d_model, -i / d_model, -i / d_model)


@misconception(
    "M53",
    "positional_encoding",
    title="base 1000",
    source="a plausible slip",
    effect="The slowest wave is 10 times as fast, and distant positions look alike sooner.",
    hint="Channels 0 and 1 are right, and the further right, the worse. Which number is raised to "
    "the exponent?",
)
def base_1000(length, d_model):
    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    return _table(length, d_model, i / d_model, i / d_model, base=1000.0)


@misconception(
    "M170",
    "add_learned_positions",
    title="the table ends where training ended",
    source="common: an index error for the first sentence that is too long",
    effect="A sentence longer than the table is an error.",
    hint="Your code fails on a sentence that is longer than the table. Which row shall those "
    "positions share?",
)
def index_error_past_the_end(x, table, start):
    return x + table[torch.arange(start, start + x.size(1))]


@misconception(
    "M171",
    "add_learned_positions",
    title="every step begins at position 0",
    source="common in decoders with a cache: the new token is always alone, so always first",
    effect="While decoding, every token gets the position of the first.",
    hint="One of the arguments does not influence your result. Where does a decoder stand that has "
    "said five tokens?",
)
def start_ignored(x, table, start):
    return x + table[torch.arange(x.size(1)).clamp(max=len(table) - 1)]


@misconception(
    "M172",
    "add_learned_positions",
    title="positions past the end begin again",
    source="a plausible slip: position % max_len",
    effect="The first token and the one after the table's end look alike.",
    hint="Past the table's end you start again at row 0. Is the last position you know not nearer?",
)
def positions_wrap_around(x, table, start):
    return x + table[torch.arange(start, start + x.size(1)) % len(table)]


@also("M84", "add_learned_positions")
def learned_positions_along_the_batch(x, table, start):
    position = torch.arange(start, start + x.size(0)).clamp(max=len(table) - 1)
    return x + table[position][:, None]


@misconception(
    "M230",
    "positional_encoding",
    title="2i counted twice",
    source="an answer in a trial of the checks: arange(0, d_model, 2) is 2i already",
    effect="The waves become longer twice as fast: half of the channels hardly move.",
    hint="In the exponent, is your variable i or already 2i?",
)
def two_i_counted_twice(length, d_model):
    angle = torch.arange(length)[:, None] / 10000.0 ** (2 * torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)


@misconception(
    "M231",
    "positional_encoding_halves",
    title="d/2 − 1 steps from 1 to 1/10000",
    source="Tensor2Tensor and fairseq",
    effect="No mistake by itself, but another table than the paper's formula gives.",
    hint="Your slowest wave is exactly 10000·2π long, as in Tensor2Tensor. By what is the exponent "
    "divided in the paper?",
)
def tensor2tensors_frequencies(length, d_model):
    half = d_model // 2
    angle = torch.arange(length)[:, None] / 10000.0 ** (torch.arange(half) / (half - 1))
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def shifted(k, d_model, step=2, sign=1.0, halves=False):
    """The matrix of a shift by k, as it should be but for what is switched."""
    angle = k * 10_000.0 ** (-torch.arange(0, d_model, 2) * (step / 2) / d_model)
    rotation = torch.zeros(d_model, d_model)
    even, odd = torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)
    if halves:
        even, odd = torch.arange(d_model // 2), torch.arange(d_model // 2, d_model)
    rotation[even, even] = rotation[odd, odd] = angle.cos()
    rotation[even, odd], rotation[odd, even] = sign * angle.sin(), -sign * angle.sin()
    return rotation


@misconception(
    "M287",
    "shift_matrix",
    title="rotated the other way",
    source="common: the matrix that turns a vector (x, y), while a row here is (sin, cos)",
    effect="It takes a position k places back.",
    hint="Your matrix takes a position as far back as it should take it forward. The pair is (sin, "
    "cos), not (cos, sin): which of the two sines is negative?",
)
def turned_back(k, d_model):
    return shifted(k, d_model, sign=-1.0)


@misconception(
    "M288",
    "shift_matrix",
    title="the exponent i/d_model for 2i/d_model",
    source="common: i counts pairs in one formula and channels in another",
    effect="All hands but the first turn too fast; the encoding of another position comes out, or "
    "none at all.",
    hint="The first pair is right and the others turn too fast. What is i in 2i/d_model?",
)
def half_the_exponent(k, d_model):
    return shifted(k, d_model, step=1)


@misconception(
    "M289",
    "shift_matrix",
    title="the blocks of the other layout",
    source="common: sines in the first half of the channels, cosines in the second",
    effect="It mixes channels of different hands.",
    hint="Your blocks join channels that are half a table apart. In the paper's layout, where does "
    "the cosine of a sine stand?",
)
def blocks_of_halves(k, d_model):
    return shifted(k, d_model, halves=True)


def _rotated(x, position, pairs=True, sign=1.0, ones=False):
    d_k = x.size(-1)
    angle = position[:, None] * 10_000.0 ** (-torch.arange(0, d_k, 2) / d_k)
    if ones:
        angle = angle[:1].expand_as(angle)
    cos, sin = angle.cos().to(x.dtype), sign * angle.sin().to(x.dtype)
    a, b = (x[..., 0::2], x[..., 1::2]) if pairs else x.chunk(2, dim=-1)
    turned = a * cos - b * sin, a * sin + b * cos
    return torch.stack(turned, dim=-1).flatten(-2) if pairs else torch.cat(turned, dim=-1)


@misconception(
    "M290",
    "rotary",
    title="halves paired instead of neighbors",
    source="GPT-NeoX and Llama in Hugging Face's library pair channel i with channel i + d/2",
    effect="As good, when trained so; weights of one layout are nonsense in the other.",
    hint="You pair channel i with channel i + d_k/2, as some libraries do. Which two does the "
    "exercise ask for?",
)
def paired_across_halves(x, position):
    return _rotated(x, position, pairs=False)


@misconception(
    "M291",
    "rotary",
    title="turned clockwise",
    source="a plausible slip: the sign of a sine",
    effect="Alone it does no harm, since only differences count; weights from elsewhere fit no "
    "more.",
    hint="Your pairs turn by the negative angle. At position 1, where does the pair (1, 0) of the "
    "first hand go?",
)
def turned_clockwise(x, position):
    return _rotated(x, position, sign=-1.0)


@misconception(
    "M292",
    "rotary",
    title="all turned alike",
    source="a plausible slip: one angle for the whole sequence",
    effect="A rotation that queries and keys share cancels: positions are lost.",
    hint="All your positions are turned by the angle of the first one. Along which axis of the "
    "angles do positions run?",
)
def one_angle_for_all(x, position):
    return _rotated(x, position, ones=True)


@misconception(
    "M293",
    "rotary",
    title="positions counted from 0, whatever was given",
    source="a model in a student's role: arange(length) for the argument `position`",
    effect="While decoding with a cache each new token is taken for the first one.",
    hint="`position` does not influence your result. Where does a sentence begin whose first "
    "tokens are in a cache?",
)
def own_count(x, position):
    return _rotated(x, torch.arange(x.size(2)))


@misconception(
    "M294",
    "rotary",
    title="added instead of rotated",
    source="a model in a student's role: the paper's encoding, added to queries and keys",
    effect="The score of a query and a key does not depend on their distance alone.",
    hint="You add a table to x. The exercise rotates each pair: how long is a pair afterwards?",
)
def added_to_the_heads(x, position):
    d_k = x.size(-1)
    angle = position[:, None] * 10_000.0 ** (-torch.arange(0, d_k, 2) / d_k)
    return x + torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).to(x.dtype)


@misconception(
    "M297",
    "shift_matrix",
    title="one angle for all pairs",
    source="a model in a student's role",
    effect="Only the first hand goes where it should.",
    hint="The first block is right and the others are like it. By how much does pair i turn per "
    "position?",
)
def one_angle_for_all_pairs(k, d_model):
    matrix = torch.zeros(d_model, d_model)
    for i in range(0, d_model, 2):
        matrix[i : i + 2, i : i + 2] = shifted(k, 2)
    return matrix


@misconception(
    "M298",
    "shift_matrix",
    title="channels moved instead of positions",
    source="a model in a student's role: a permutation, as torch.roll gives it",
    effect="It moves the numbers of one position to other channels.",
    hint="Your matrix moves channels. The shift is one of positions: what must happen to each pair "
    "of channels for the next position to come out?",
)
def channels_rolled(k, d_model):
    return torch.roll(torch.eye(d_model), k, dims=0)


@misconception(
    "M299",
    "positional_encoding_halves",
    title="the exponent i/d_model for 2i/d_model",
    source="a model in a student's role: the number of the column for that of the pair",
    effect="Waves become longer half as fast, and the slowest one is a hundredth as long.",
    hint="Your first column is right and the others are too fast. What is i in 2i/d_model, and "
    "what is it in column 1 of this layout?",
)
def columns_counted_as_pairs(length, d_model):
    angle = torch.arange(length)[:, None] * 10_000.0 ** (-torch.arange(d_model // 2) / d_model)
    return torch.cat([angle.sin(), angle.cos()], dim=1)


@misconception(
    "M490",
    "add_learned_positions",
    title="only a single token heeds its start",
    source="an answer in a trial of the checks: a branch for a decoder's step",
    effect="Several tokens at once, further on in a text, get the positions of its beginning.",
    hint="With one token your position is right. Where do several begin that start at `start`?",
)
def start_of_one_token_only(x, table, start):
    first = start if x.size(1) == 1 else 0
    return x + table[torch.arange(first, first + x.size(1)).clamp(max=len(table) - 1)]


@misconception(
    "M527",
    "rotary",
    title="the pairs are not put back in place",
    source="an answer in a trial of the checks: torch.cat of the two halves of all pairs",
    effect="Queries and keys agree with each other, and with weights from elsewhere no more.",
    hint="Your numbers are right, in other places: after the rotation all first members of the "
    "pairs come first. Where were they before?",
)
def pairs_left_apart(x, position):
    turned = _rotated(x, position)
    return torch.cat([turned[..., 0::2], turned[..., 1::2]], dim=-1)


@misconception(
    "M531",
    "add_learned_positions",
    title="the window is moved back at the end of the table",
    source="an answer in a trial of the checks: the last rows, as many as there are tokens",
    effect="Tokens that have a row of their own get another one as soon as the sentence is long.",
    hint="Where a sentence runs past the table's end, you move all of its positions. Which tokens "
    "have no row of their own?",
)
def window_moved_back(x, table, start):
    first = min(start, max(len(table) - x.size(1), 0))
    return x + table[torch.arange(first, first + x.size(1)).clamp(max=len(table) - 1)]


@misconception(
    "M532",
    "add_learned_positions",
    title="one row for all",
    source="an answer in a trial of the checks: table[start], broadcast",
    effect="All tokens of a sentence seem to have the same position.",
    hint="All your tokens have the row of the first one. Which row is the second one's?",
)
def one_row_for_all(x, table, start):
    return x + table[min(start, len(table) - 1)]


@misconception(
    "M540",
    "shift_matrix",
    title="one step, as often as range(k) says",
    source="an answer in a trial of the checks",
    effect="For a shift backwards the loop is empty: nothing moves.",
    hint="Forwards you are right, and backwards nothing moves. What does range(−2) give?",
)
def steps_in_a_loop(k, d_model):
    return shifted(max(k, 0), d_model)


@misconception(
    "M591",
    "rotary",
    title="neighbors paired, angles laid out for halves",
    source="an answer in a trial of the checks: repeat(1, 2) for repeat_interleave(2)",
    effect="The two channels of a pair turn by different angles, so the length of the pair "
    "changes.",
    hint="The two channels of a pair have different angles in yours. In what order do you lay them "
    "out?",
)
def angles_of_halves(x, position):
    d_k = x.size(-1)
    angle = position[:, None] * 10_000.0 ** (-torch.arange(0, d_k, 2) / d_k)
    cos, sin = (f(torch.cat([angle, angle], dim=-1)).to(x.dtype) for f in (torch.cos, torch.sin))
    turned = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return x * cos + turned * sin


@misconception(
    "M630",
    "positional_encoding",
    title="the frequencies end at 1/10000",
    source="fairseq and Tensor2Tensor divide by d_model/2 − 1",
    effect="All frequencies but the first are others, so weights trained with those of the paper "
    "do not fit.",
    hint="Your slowest wave is exactly 10000 times as slow as the fastest. What does the paper "
    "divide 2i by?",
)
def ends_at_the_base(length, d_model):
    exponents = torch.arange(d_model // 2) / max(d_model // 2 - 1, 1)
    return _table(length, d_model, exponents, exponents)


@also("M630", "positional_encoding_halves")
def halves_to_the_base(length, d_model):
    table = ends_at_the_base(length, d_model)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


@also("M630", "shift_matrix")
def shifted_to_the_base(k, d_model):
    step = d_model / max(d_model // 2 - 1, 1)
    return shifted(k, d_model, step=step)


@misconception(
    "M793",
    "shift_matrix",
    title="sines beside the whole diagonal",
    source="an answer in a trial of the checks: torch.diag(sines, 1), without gaps",
    effect="The second channel of each pair is mixed with the first one of the next pair.",
    hint="With two channels you are right. In which rows of the diagonal above the main one may a "
    "sine be, if only channels of one pair meet?",
)
def sines_without_gaps(k, d_model):
    angle = k * 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.double) / d_model)
    angle = angle.repeat_interleave(2)
    sines = angle[:-1].sin()
    matrix = torch.diag(angle.cos()) + torch.diag(sines, 1) - torch.diag(sines, -1)
    return matrix.float()


@misconception(
    "M830",
    "rotary",
    title="channels that have been turned already are read again",
    source="an answer in a trial of the checks: out[..., 0::2] is set, then read as if it were x",
    effect="The second channel of each pair is made from the new first one; its length changes.",
    hint="The first channel of each of your pairs is right. When you compute the second one, is "
    "the first still the old one?",
)
def turned_in_place(x, position):
    first = _rotated(x, position)[..., 0::2]
    half_turned = torch.stack([first, x[..., 1::2]], dim=-1).flatten(-2)
    return torch.stack([first, _rotated(half_turned, position)[..., 1::2]], dim=-1).flatten(-2)
