"""Mistakes in a whole search, in sampling, and on the way from text to text."""

from itertools import pairwise

import torch

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.decoding.search import length_penalty
from transformer_lib.model.masks import padding_mask
from transformer_lib.vocabulary import BOS, EOS, PAD, UNK


def _search(
    next_log_p,
    beam_size,
    alpha,
    max_len,
    *,
    penalty=length_penalty,
    goes_on=lambda finished, beam_size: len(finished) < beam_size,
    of_the_beam=True,
    forced=True,
    width=2,
    uncounted=0,
    more=0,
    whole_steps=True,
    unfinished_too=False,
):
    beam, finished = [([BOS], 0.0)], []
    for length in range(1, max_len + 1):
        log_p = next_log_p([tokens for tokens, _ in beam])
        if length == max_len and forced:
            log_p[:, [token for token in range(log_p.size(1)) if token != EOS]] = -torch.inf
        totals = torch.tensor([total for _, total in beam])[:, None] + log_p
        best = totals.flatten().topk(min(width * beam_size, totals.numel()))
        parents, beam = beam, []
        for rank, (total, index) in enumerate(
            zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ):
            tokens, token = parents[index // log_p.size(1)][0], index % log_p.size(1)
            if total == -torch.inf:
                break
            if token == EOS and (rank < beam_size or not of_the_beam):
                finished.append((total / penalty(length - uncounted, alpha), tokens[1:]))
                if not whole_steps and not goes_on(finished, beam_size):
                    break
            elif token != EOS and len(beam) < beam_size + more:
                beam.append(([*tokens, token], total))
        if not goes_on(finished, beam_size) or not beam:
            break
    if unfinished_too and len(finished) < beam_size:
        finished += [(total / penalty(length, alpha), tokens[1:]) for tokens, total in beam]
    finished.sort(key=lambda hypothesis: -hypothesis[0])
    return [tokens for _, tokens in finished[:beam_size]]


@also("M28", "beam_search")
def no_length_penalty(next_log_p, beam_size, alpha, max_len):
    return _search(next_log_p, beam_size, 0.0, max_len)


@also("M126", "beam_search")
def multiplied_by_the_penalty(next_log_p, beam_size, alpha, max_len):
    return _search(next_log_p, beam_size, -alpha, max_len)


@also("M127", "beam_search")
def the_worst_first(next_log_p, beam_size, alpha, max_len):
    return _search(next_log_p, beam_size, alpha, max_len)[::-1]


@misconception(
    "M341",
    "beam_search",
    title="stops at the first finished hypothesis",
    source="common: the search ends as greedy search does",
    effect="Short translations, the likelier ones among the later ends are never seen.",
    hint="You return fewer hypotheses than the beam is wide. When does the search end?",
)
def stops_at_the_first(next_log_p, beam_size, alpha, max_len):
    return _search(
        next_log_p, beam_size, alpha, max_len, goes_on=lambda finished, beam_size: not finished
    )


@misconception(
    "M342",
    "beam_search",
    title="unlikely ends are finished, too",
    source="a plausible slip: </s> is accepted below the beam's places as well",
    effect="Poor short hypotheses fill the list, and the search ends too early.",
    hint="Among your finished hypotheses are some whose </s> was not among the best beam_size "
    "continuations of its step.",
)
def ends_below_the_beam(next_log_p, beam_size, alpha, max_len):
    return _search(next_log_p, beam_size, alpha, max_len, of_the_beam=False)


@misconception(
    "M343",
    "beam_search",
    title="only as many candidates as the beam is wide",
    source="common: topk(beam_size), of which ends are taken away",
    effect="The beam becomes narrower with each hypothesis that ends.",
    hint="With a hypothesis finished, fewer than beam_size go on. From how many candidates do you "
    "choose?",
)
def beam_shrinks(next_log_p, beam_size, alpha, max_len):
    return _search(next_log_p, beam_size, alpha, max_len, width=1)


@misconception(
    "M344",
    "beam_search",
    title="nothing is finished at the limit",
    source="a plausible slip: the loop just ends",
    effect="No translation at all for a sentence that the model does not end.",
    hint="Everything is right but where the limit is reached. What may follow in the last step?",
)
def nothing_at_the_limit(next_log_p, beam_size, alpha, max_len):
    return _search(next_log_p, beam_size, alpha, max_len, forced=False)


@misconception(
    "M345",
    "beam_search",
    title="</s> stays in the translation",
    source="common",
    effect="One token too many in each hypothesis; BLEU counts it if it is turned into text.",
    hint="Each of your hypotheses has a </s> at its end.",
)
def with_its_end(next_log_p, beam_size, alpha, max_len):
    return [[*tokens, EOS] for tokens in _search(next_log_p, beam_size, alpha, max_len)]


@misconception(
    "M778",
    "beam_search",
    title="<s> is counted in the length",
    source="an answer in a trial of the checks: len(prefix), with both ends",
    effect="Another hypothesis wins where two are close.",
    hint="Your hypotheses are right, some of them in another order. Which tokens did the model "
    "have to predict?",
)
def start_counted(next_log_p, beam_size, alpha, max_len):
    return _search(next_log_p, beam_size, alpha, max_len, uncounted=-1)


@misconception(
    "M779",
    "beam_search",
    title="the beam keeps one hypothesis too many",
    source="a plausible slip: <= for <",
    effect="A wider search than was asked for, which costs more.",
    hint="In yours, more than beam_size hypotheses go on. How many are in the beam when it takes "
    "another one?",
)
def one_too_many(next_log_p, beam_size, alpha, max_len):
    return _search(next_log_p, beam_size, alpha, max_len, more=1)


@misconception(
    "M780",
    "beam_search",
    title="ends one hypothesis too late",
    source="a plausible slip: > for >=",
    effect="A step more than needed; what is finished in it may come before others.",
    hint="When beam_size hypotheses have finished, yours goes on. How many are enough?",
)
def ends_too_late(next_log_p, beam_size, alpha, max_len):
    return _search(
        next_log_p, beam_size, alpha, max_len,
        goes_on=lambda finished, beam_size: len(finished) <= beam_size,
    )  # fmt: skip


def _in_order(probabilities, p):
    """The probabilities from the largest on, whose they are, and which are to be dropped."""
    likeliest, order = probabilities.sort(dim=-1, descending=True)
    return likeliest, order, likeliest.cumsum(dim=-1) - likeliest >= p


def _sorted_nucleus(probabilities, p, drop):
    likeliest, tokens = probabilities.sort(dim=-1, descending=True)
    kept = likeliest.masked_fill(drop(likeliest, likeliest.cumsum(dim=-1)), 0.0)
    return torch.zeros_like(probabilities).scatter(-1, tokens, kept)


@misconception(
    "M346",
    "nucleus",
    title="the token that crosses p is dropped",
    source="common: cumsum > p is masked without a shift by one",
    effect="Less than p is kept, and nothing at all where one token has more than p.",
    hint="What you keep has less than p together. Does the token that crosses the limit belong to "
    "it?",
)
def without_the_last(probabilities, p):
    kept = _sorted_nucleus(probabilities, p, lambda likeliest, total: total > p)
    return kept / kept.sum(dim=-1, keepdim=True)


@misconception(
    "M347",
    "nucleus",
    title="not normalized anew",
    source="a plausible slip",
    effect="What is returned adds up to p; whatever samples from it may refuse, or rescale.",
    hint="The right tokens are kept. Do your probabilities add up to 1?",
)
def not_normalized(probabilities, p):
    return _sorted_nucleus(probabilities, p, lambda likeliest, total: total - likeliest >= p)


@misconception(
    "M348",
    "nucleus",
    title="tokens kept whose own probability is p",
    source="a plausible slip: p taken as a threshold for each token",
    effect="Nothing is left where no token is that likely.",
    hint="You compare each token by itself with p. What is to reach p?",
)
def threshold(probabilities, p):
    kept = probabilities.masked_fill(probabilities < p, 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


@misconception(
    "M349",
    "nucleus",
    title="left in sorted order",
    source="common: sorted, masked, and not put back",
    effect="The probabilities belong to other tokens.",
    hint="Your probabilities are the right ones, from the largest to the smallest. Whose are they?",
)
def left_sorted(probabilities, p):
    likeliest, _, dropped = _in_order(probabilities, p)
    kept = likeliest.masked_fill(dropped, 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


def _encode(
    text, pieces, choose, marked=True, together=True, unknown=UNK, leftmost=True, spaced=False
):
    numbers = {piece: number for number, piece in enumerate(pieces)}
    words = text.split(" ") if spaced else text.split()
    symbols = list("▁".join(["", *words] if marked else words))
    while True:
        pairs = [one + other for one, other in pairwise(symbols)]
        known = [pair for pair in pairs if pair in numbers]
        if not known:
            break
        chosen = choose(known, numbers)
        at = pairs.index(chosen) if leftmost else len(pairs) - 1 - pairs[::-1].index(chosen)
        symbols[at : at + 2] = [pairs[at]]
    tokens = [numbers.get(symbol, unknown) for symbol in symbols]
    before = [None, *tokens]
    return [
        t
        for t, last in zip(tokens, before, strict=False)
        if not together or (t, last) != (UNK, UNK)
    ]


def _earliest(known, numbers):
    return min(known, key=lambda pair: numbers[pair])


@misconception(
    "M350",
    "encode_text",
    title="from left to right",
    source="common: the first pair that is a piece is joined",
    effect="Other tokens than those that the model was trained with, and worse translations.",
    hint="You join the first pair that is a piece. In what order were the pieces made?",
)
def from_left_to_right(text, pieces):
    return _encode(text, pieces, lambda known, numbers: known[0])


@misconception(
    "M351",
    "encode_text",
    title="the longest piece that fits",
    source="common: the longest match from the left, as WordPiece has it",
    effect="Other tokens than those that the model was trained with, and worse translations.",
    hint="You take the longest piece that fits. BPE joins pairs: in what order were they learned?",
)
def longest_match(text, pieces):
    numbers = {piece: number for number, piece in enumerate(pieces)}
    rest, tokens = "▁".join(["", *text.split()]), list[int]()
    while rest:
        found = next((rest[:n] for n in range(len(rest), 0, -1) if rest[:n] in numbers), None)
        if found or not tokens or tokens[-1] != UNK:
            tokens.append(numbers[found] if found else UNK)
        rest = rest[len(found or "x") :]
    return tokens


@misconception(
    "M352",
    "encode_text",
    title="no ▁ before the first word",
    source="common: spaces are replaced, and the text does not begin with one",
    effect="The first word is cut as if it were the middle of a word.",
    hint="All is right but the first word. What stands before a word in the pieces?",
)
def first_word_unmarked(text, pieces):
    return _encode(text, pieces, _earliest, marked=False)


@misconception(
    "M353",
    "encode_text",
    title="the latest pair first",
    source="a plausible slip: a high number taken for a high rank",
    effect="Rare pieces are preferred to frequent ones.",
    hint="You join the pair that was learned last. Which one comes first?",
)
def latest_first(text, pieces):
    return _encode(text, pieces, lambda known, numbers: max(known, key=lambda x: numbers[x]))


@misconception(
    "M354",
    "encode_text",
    title="unknown letters are left out",
    source="a plausible slip",
    effect="The model does not learn that there was something.",
    hint="Where a letter is unknown, a token is missing. What does 1 stand for?",
)
def unknown_left_out(text, pieces):
    return [token for token in _encode(text, pieces, _earliest) if token != UNK]


def _translate(
    text,
    model,
    pieces,
    *,
    beam_size=4,
    alpha=0.6,
    mode=False,
    end=True,
    strip=True,
    marks=" ",
    never=(PAD, BOS),
    normalized=True,
    limit=51,
    before_softmax=False,
    start=(),
):
    model.train(mode)
    tokens = _encode(text, pieces, _earliest)
    src = torch.tensor([[*start, *tokens, EOS] if end else tokens])
    with torch.no_grad():
        memory = model.encode(src)

        def next_log_p(prefixes):
            rows = len(prefixes)
            mask = padding_mask(src).expand(rows, -1, -1, -1)
            logits = model.decode(torch.tensor(prefixes), memory.expand(rows, -1, -1), mask)[:, -1]
            if before_softmax:
                logits[:, list(never)] = -torch.inf
            log_p = logits.log_softmax(dim=-1) if normalized else logits
            log_p[:, list(never)] = -torch.inf
            return log_p

        best = _search(next_log_p, beam_size, alpha, len(tokens) + limit)[0]
    said = "".join(pieces[token] for token in best).replace("▁", marks)
    return said.strip() if strip else said


@misconception(
    "M355",
    "translate",
    title="dropout is left on",
    source="common: model.eval() forgotten",
    effect="Another translation in each call, and worse ones.",
    hint="In which mode was the model handed over? Two calls should return the same.",
)
def dropout_left_on(text, model, pieces):
    return _translate(text, model, pieces, mode=True)


@misconception(
    "M356",
    "translate",
    title="the source without its </s>",
    source="common: only the target gets one",
    effect="The model has never seen a source that does not end; it says other things.",
    hint="With which token did each source end in training?",
)
def source_without_end(text, model, pieces):
    return _translate(text, model, pieces, end=False)


@misconception(
    "M357",
    "translate",
    title="the text still has ▁ in it",
    source="a plausible slip",
    effect="Nothing for people, and BLEU near zero.",
    hint="What does ▁ stand for in a text?",
)
def marks_left(text, model, pieces):
    return _translate(text, model, pieces, marks="▁")


@misconception(
    "M358",
    "translate",
    title="a space at the beginning",
    source="common: the ▁ of the first word",
    effect="Invisible, and wrong wherever texts are compared.",
    hint="What does your text begin with?",
)
def space_in_front(text, model, pieces):
    return _translate(text, model, pieces, strip=False)


@misconception(
    "M359",
    "translate",
    title="greedy search",
    source="a plausible slip: a beam of 1",
    effect="Less than a point of BLEU.",
    hint="Your translation is the one that greedy search finds. How wide is the beam to be?",
)
def greedy(text, model, pieces):
    return _translate(text, model, pieces, beam_size=1)


@misconception(
    "M435",
    "beam_search",
    title="</s> is not counted in the length",
    source="common: the length of the translation without its end",
    effect="Another hypothesis wins where two are close.",
    hint="Your hypotheses are right, some of them in another order. Is `</s>` in the length?",
)
def end_not_counted(next_log_p, beam_size, alpha, max_len):
    return _search(next_log_p, beam_size, alpha, max_len, uncounted=1)


@misconception(
    "M436",
    "encode_text",
    title="the rightmost of equal pairs is joined",
    source="a plausible slip: a dictionary of pairs keeps the last place",
    effect="Another cut where a pair overlaps itself.",
    hint="You join the right pair, and of several places the last one. Which one is to be first?",
)
def the_rightmost(text, pieces):
    return _encode(text, pieces, _earliest, leftmost=False)


@misconception(
    "M437",
    "encode_text",
    title="the text is made lower case",
    source="a habit from older tokenizers",
    effect="Nouns and names lose their pieces.",
    hint="Capital letters become small ones in yours. Are they pieces of their own?",
)
def lower_case(text, pieces):
    return _encode(text.lower(), pieces, _earliest)


@misconception(
    "M438",
    "nucleus",
    title="one token more where p is reached exactly",
    source="a plausible slip: > for ≥",
    effect="Not the smallest set.",
    hint="Where the probabilities add up to exactly p, you keep one token more.",
)
def one_more_where_exact(probabilities, p):
    kept = _sorted_nucleus(probabilities, p, lambda own, sums: sums - own > p)
    return kept / kept.sum(dim=-1, keepdim=True)


@misconception(
    "M440",
    "translate",
    title="padding may be generated",
    source="a plausible slip: nothing is forbidden",
    effect="Invisible pieces in the middle of a translation.",
    hint="Your translation has pieces in it that are never to be said. Which two are they?",
)
def nothing_forbidden(text, model, pieces):
    return _translate(text, model, pieces, never=())


@misconception(
    "M487",
    "nucleus",
    title="one number of tokens for all rows",
    source="answers in a trial of the checks: topk with the largest number that a row needs",
    effect="Where the model is sure, as many tokens are kept as where it is not.",
    hint="One of your rows is right, and the others keep too many tokens. Does each row have a "
    "nucleus of its own?",
)
def one_size_for_all(probabilities, p):
    likeliest = probabilities.sort(dim=-1, descending=True).values
    needed = 1 + (likeliest.cumsum(dim=-1)[:, :-1] < p).sum(dim=-1)
    top, where = probabilities.topk(int(needed.max()), dim=-1)
    kept = torch.zeros_like(probabilities).scatter(-1, where, top)
    return kept / kept.sum(dim=-1, keepdim=True)


@misconception(
    "M488",
    "beam_search",
    title="breaks off in the middle of a step",
    source="an answer in a trial of the checks: returns at the last hypothesis that is needed",
    effect="Hypotheses that end in the same step are lost, and one of them may be the best.",
    hint="Hypotheses that end in the last step are missing. Several may end in one step: when do "
    "you look whether there are enough?",
)
def breaks_off_in_the_step(next_log_p, beam_size, alpha, max_len):
    return _search(next_log_p, beam_size, alpha, max_len, whole_steps=False)


@misconception(
    "M489",
    "translate",
    title="logits for log-probabilities",
    source="answers in a trial of the checks: no log_softmax",
    effect="Sums of logits compare nothing: each prefix has another constant in it.",
    hint="What does your beam search add up, ln p or logits? Do their exponentials add up to 1?",
)
def logits_for_ln_p(text, model, pieces):
    return _translate(text, model, pieces, normalized=False)


@misconception(
    "M507",
    "translate",
    title="<unk> is never said",
    source="an answer in a trial of the checks: log_p[:, : BOS + 1] = −∞, which takes UNK along",
    effect="Where the model does not know a letter, it says something else instead.",
    hint="Your model never says `<unk>`. Which two tokens may not be said?",
)
def unknown_never_said(text, model, pieces):
    return _translate(text, model, pieces, never=(PAD, UNK, BOS))


@misconception(
    "M508",
    "translate",
    title="the limit counts the source without its </s>",
    source="a plausible slip: the length of the text's tokens, to which </s> is added later",
    effect="A translation that never ends has one token less.",
    hint="Where the model does not end, your translation is one token short. Does the source's "
    "`</s>` count?",
)
def limit_without_the_end(text, model, pieces):
    return _translate(text, model, pieces, limit=50)


@misconception(
    "M518",
    "encode_text",
    title="all equal neighbors become one",
    source="an answer in a trial of the checks: itertools.groupby over all tokens",
    effect="A double letter that stays two pieces loses one of them.",
    hint="Several unknown symbols in a row are one token. In yours a known piece that occurs twice "
    "in a row is one, too.",
)
def equal_neighbors_joined(text, pieces):
    tokens = _encode(text, pieces, _earliest)
    return [t for t, last in zip(tokens, [None, *tokens], strict=False) if t != last]


@misconception(
    "M519",
    "encode_text",
    title="letters become unknown before anything is joined",
    source="an answer in a trial of the checks: looked up letter by letter first",
    effect="A piece is missed if one of its letters is no piece by itself.",
    hint="A letter may be in a piece without being one itself. When do you know that a symbol is "
    "unknown?",
)
def unknown_before_joining(text, pieces):
    known = set(pieces)
    letters = [x if x in known else "\0" for x in "▁".join(["", *text.split()])]
    return _encode("".join(letters)[1:].replace("▁", " "), pieces, _earliest)


@misconception(
    "M520",
    "encode_text",
    title="several spaces are several ▁",
    source="an answer in a trial of the checks: split at each single space",
    effect="A text that was typed with two spaces is cut unlike all that the model has read.",
    hint="Two spaces in a row give two ▁ in yours.",
)
def every_space_counts(text, pieces):
    return _encode(text.strip(), pieces, _earliest, spaced=True)


@misconception(
    "M537",
    "nucleus",
    title="the first of none",
    source="an answer in a trial of the checks: argmax of cumsum ≥ p",
    effect="Where rounding keeps the sum below p, one token is left of all.",
    hint="If the sum never reaches p, which happens where p is 1, argmax finds no True and says 0. "
    "How many tokens are to stay then?",
)
def first_of_none(probabilities, p):
    def drop(own, sums):
        last = (sums >= p).int().argmax(dim=-1, keepdim=True)
        return torch.arange(sums.size(-1)) > last

    kept = _sorted_nucleus(probabilities, p, drop)
    return kept / kept.sum(dim=-1, keepdim=True)


@misconception(
    "M538",
    "nucleus",
    title="all that are as likely as the last one",
    source="an answer in a trial of the checks: a threshold for the probability",
    effect="Not the smallest set where several are equally likely.",
    hint="Of several equally probable tokens you keep all. Does it take all of them to reach p?",
)
def equals_stay(probabilities, p):
    def drop(own, sums):
        return own < own.masked_fill(sums - own >= p, torch.inf).amin(dim=-1, keepdim=True)

    kept = _sorted_nucleus(probabilities, p, drop)
    return kept / kept.sum(dim=-1, keepdim=True)


@misconception(
    "M598",
    "encode_text",
    title="each unknown letter is one <unk>",
    source="an answer in a trial of the checks: each symbol looked up by itself",
    effect="A foreign word becomes a row of <unk> such as the model never saw in training.",
    hint="Unknown characters side by side are several UNK in yours. How many does the exercise "
    "ask for?",
)
def unknown_one_by_one(text, pieces):
    return _encode(text, pieces, _earliest, together=False)


@misconception(
    "M599",
    "nucleus",
    title="the mask is put back in order with the wrong index",
    source="an answer in a trial of the checks: gather(order) twice; the inverse is wanted",
    effect="As many tokens as there should be, but not the likeliest.",
    hint="You keep the right number of tokens, but the wrong ones. Your mask is in sorted order: "
    "which index brings each place back to its token?",
)
def sorted_twice(probabilities, p):
    _, order, dropped = _in_order(probabilities, p)
    kept = probabilities.masked_fill(dropped.gather(-1, order), 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


@misconception(
    "M617",
    "nucleus",
    title="a mask in sorted order for unsorted tokens",
    source="an answer in a trial of the checks: masked_fill before anything is put back",
    effect="The right number of tokens, but the first ones of the vocabulary, not the likeliest.",
    hint="Your mask is right for the sorted row. Which row do you apply it to?",
)
def mask_stays_sorted(probabilities, p):
    _, _, dropped = _in_order(probabilities, p)
    kept = probabilities.masked_fill(dropped, 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


@misconception(
    "M618",
    "beam_search",
    title="what is unfinished counts as finished at the limit",
    source="an answer in a trial of the checks; the beam search of Hugging Face does so at its "
    "limit",
    effect="A translation that breaks off may win, because it has not paid for its end.",
    hint="In step max_len only </s> may follow. What becomes of hypotheses that go on?",
)
def unfinished_returned(next_log_p, beam_size, alpha, max_len):
    return _search(next_log_p, beam_size, alpha, max_len, forced=False, unfinished_too=True)


@misconception(
    "M619",
    "translate",
    title="normalized anew without PAD and <s>",
    source="an answer in a trial of the checks: −∞ before log_softmax",
    effect="A step in which the model would rather have said PAD or <s> costs a hypothesis "
    "nothing, so another one may win.",
    hint="Your probabilities of the other pieces are too large. Do you exclude PAD and <s> before "
    "the softmax or after it?",
)
def normalized_anew(text, model, pieces):
    return _translate(text, model, pieces, before_softmax=True)


@misconception(
    "M620",
    "translate",
    title="<unk> is left out of the text",
    source="common: skip_special_tokens=True",
    effect="Nobody sees that the model did not know a word.",
    hint="A piece that the model said is missing from your text. Which of the special pieces may "
    "it say?",
)
def unknown_unsaid(text, model, pieces):
    return _translate(text, model, ["" if n == UNK else piece for n, piece in enumerate(pieces)])


@misconception(
    "M621",
    "translate",
    title="<s> at the beginning of the source",
    source="an answer in a trial of the checks; the tokenizers of BART and RoBERTa put one there",
    effect="The encoder reads a token that it has never seen in this place.",
    hint="Your source begins with a token that the model has not met there. What did sources look "
    "like in training?",
)
def start_in_the_source(text, model, pieces):
    return _translate(text, model, pieces, start=(BOS,))


@misconception(
    "M838",
    "translate",
    title="the first character is cut off, whatever it is",
    source="an answer in a trial of the checks: [1:] for the space at the beginning",
    effect="A translation that begins within a word loses a letter.",
    hint="Not every first piece begins with `▁`. What do you cut off if it does not?",
)
def first_character_cut_off(text, model, pieces):
    return _translate(text, model, pieces, strip=False)[1:]


@misconception(
    "M839",
    "nucleus",
    title="from the unlikeliest token on",
    source="an answer in a trial of the checks: sorted upwards",
    effect="Only what should be dropped can be said.",
    hint="You keep what the nucleus drops. Which tokens come first where you add up?",
)
def from_the_unlikeliest(probabilities, p):
    ascending, order = probabilities.sort(dim=-1)
    kept = ascending.masked_fill(ascending.cumsum(dim=-1) - ascending >= p, 0.0)
    kept = torch.zeros_like(kept).scatter(-1, order, kept)
    return kept / kept.sum(dim=-1, keepdim=True)


@misconception(
    "M796",
    "nucleus",
    title="the probabilities are put back in order with the wrong index",
    source="an answer in a trial of the checks: gather(order) for scatter(order)",
    effect="The right numbers at the wrong tokens.",
    hint="The numbers are right and at the wrong tokens. To gather by the order sorts once more: "
    "what undoes it?",
)
def gathered_again(probabilities, p):
    likeliest, order, dropped = _in_order(probabilities, p)
    kept = likeliest.masked_fill(dropped, 0.0)
    return (kept / kept.sum(dim=-1, keepdim=True)).gather(-1, order)
