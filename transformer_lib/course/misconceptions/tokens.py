"""Mistakes in byte-pair encoding (Sennrich et al. 2016)."""

import re
from collections import Counter
from itertools import pairwise

from transformer_lib.course.misconceptions.bank import also, misconception


@misconception(
    "M174",
    "merge_pair",
    title="merged by replacing text",
    source="common; the code printed in Sennrich et al. 2016 guards against it with a regular "
    "expression",
    effect="The end of one symbol is torn off: in “ut he” the text “t he” stands, and becomes "
    "“uthe”.",
    hint="You join symbols that are not the pair. If symbols are joined into one text, can the "
    "pair be found across the end of a longer symbol?",
)
def replaced_in_the_text(symbols, pair):
    return " ".join(symbols).replace(" ".join(pair), "".join(pair)).split(" ")


@misconception(
    "M175",
    "merge_pair",
    title="one symbol in two pairs",
    source="a plausible slip: on by one after a merge",
    effect="A letter is doubled: a·a·a becomes aa·aa.",
    hint="Put your pieces together: there is more than there was before. Where do you go on after "
    "a merge?",
)
def one_symbol_in_two_pairs(symbols, pair):
    merged: list[str] = []
    position = 0
    while position < len(symbols):
        if tuple(symbols[position : position + 2]) == pair:
            merged.append("".join(pair))
            position += 1 if tuple(symbols[position + 1 : position + 3]) == pair else 2
        else:
            merged.append(symbols[position])
            position += 1
    return merged


@misconception(
    "M176",
    "merge_pair",
    title="merged from the right",
    source="a plausible slip",
    effect="Where a pair of equals occurs in a row of three, the pieces differ from those of every "
    "other program.",
    hint="In a·a·a you join the last two. At which end does a reader begin?",
)
def merged_from_the_right(symbols, pair):
    merged: list[str] = []
    position = len(symbols)
    while position > 0:
        width = 2 if tuple(symbols[max(0, position - 2) : position]) == pair else 1
        merged.insert(0, "".join(symbols[position - width : position]))
        position -= width
    return merged


def _merge_first(symbols, pair):
    for position in range(len(symbols)):
        if tuple(symbols[position : position + 2]) == pair:
            return [*symbols[:position], "".join(pair), *symbols[position + 2 :]]
    return list(symbols)


def _before_the_last(symbols, pair):
    """What a loop gives that ends before the last symbol."""
    merged: list[str] = []
    position = 0
    while position < len(symbols) - 1:
        joins = (symbols[position], symbols[position + 1]) == tuple(pair)
        merged.append("".join(pair) if joins else symbols[position])
        position += 2 if joins else 1
    return merged


def _merge(symbols, pair):
    shorter = _merge_first(symbols, pair)
    return shorter if len(shorter) == len(symbols) else _merge(shorter, pair)


@misconception(
    "M177",
    "merge_pair",
    title="only the first occurrence",
    source="a plausible slip: return after the first match",
    effect="Words with a repeated pair are cut into more pieces than need be.",
    hint="You merge the pair once. How often may it occur in a word?",
)
def only_the_first_pair(symbols, pair):
    return _merge_first(symbols, pair)


@also("M177", "apply_merges")
def each_merge_once(word, merges):
    symbols = list(word)
    for pair in merges:
        symbols = _merge_first(symbols, pair)
    return symbols


@misconception(
    "M178",
    "apply_merges",
    title="the longest piece first",
    source="common: how WordPiece cuts words",
    effect="Words are cut into pieces into which the training text was not cut.",
    hint="You cut the word into known pieces from the left. What decides in BPE which merge comes "
    "first?",
)
def longest_piece_first(word, merges):
    known = {"".join(pair) for pair in merges}
    pieces = []
    while word:
        end = next((n for n in range(len(word), 1, -1) if word[:n] in known), 1)
        pieces.append(word[:end])
        word = word[end:]
    return pieces


@misconception(
    "M179",
    "apply_merges",
    title="the last merge first",
    source="a plausible slip: the list read from its end",
    effect="Late merges need pieces that the early ones make, so hardly any of them applies.",
    hint="Many of your merges find nothing to merge. Which ones have to come before them?",
)
def last_merge_first(word, merges):
    symbols = list(word)
    for pair in reversed(merges):
        symbols = _merge(symbols, pair)
    return symbols


@misconception(
    "M180",
    "apply_merges",
    title="ends at the first merge that does not apply",
    source="a plausible slip: break where continue was meant",
    effect="Only words that contain the first learned pairs are merged at all.",
    hint="You stop early. Does a merge that does not apply mean that no later one does?",
)
def ends_at_the_first_that_fails(word, merges):
    symbols = list(word)
    for pair in merges:
        merged = _merge(symbols, pair)
        if merged == symbols:
            break
        symbols = merged
    return symbols


def _learned(counts, number, weigh=True, merge=True, once=False, best=None, join=_merge):
    """As it should be, but for what is switched."""
    spelled = {word: list(word) for word in counts}
    merges: list[tuple[str, str]] = []
    while len(merges) < number:
        pairs: Counter = Counter()
        for word, symbols in spelled.items():
            found = list(pairwise(symbols))
            for pair in sorted(set(found)) if once else found:
                pairs[pair] += counts[word] if weigh else 1
        for pair in merges if not merge else ():
            del pairs[pair]
        if not pairs:
            break
        most = max(pairs.values())
        equal = [pair for pair, count in pairs.items() if count == most]
        merges.append((best or min)(equal))
        if merge:
            spelled = {word: join(symbols, merges[-1]) for word, symbols in spelled.items()}
    return merges


@misconception(
    "M277",
    "learn_merges",
    title="every word counts once",
    source="common: pairs counted over the list of words instead of over the text",
    effect="Rare words decide as much as frequent ones, and common endings come late.",
    hint="You count each word once. How often does a pair occur in the text if its word occurs ten "
    "times?",
)
def words_count_once(counts, number):
    return _learned(counts, number, weigh=False)


@misconception(
    "M278",
    "learn_merges",
    title="counted once, never merged",
    source="a plausible slip: the loop counts the letters anew each time",
    effect="Only pairs of letters are found; no piece gets longer than two.",
    hint="All your pairs are pairs of letters. What do the words consist of after a merge?",
)
def never_merge(counts, number):
    return _learned(counts, number, merge=False)


@misconception(
    "M279",
    "learn_merges",
    title="a pair counts once per word",
    source="a plausible slip: a set of a word's pairs",
    effect="Repetitions inside a word are missed.",
    hint="In “nana” the pair n·a occurs twice. How often do you count it?",
)
def once_per_word(counts, number):
    return _learned(counts, number, once=True)


@misconception(
    "M280",
    "learn_merges",
    title="of equally frequent pairs the last one",
    source="common: max over pairs of count and pair",
    effect="The merges are as good, but differ from those of programs with another rule.",
    hint="Where two pairs are equally frequent you take the last one of the alphabet. Which one "
    "does the exercise ask for?",
)
def last_of_equals(counts, number):
    return _learned(counts, number, best=max)


def _as_bytes(symbol):
    return [f"<0x{byte:02X}>" for byte in symbol.encode("utf-8")]


def _in_bytes(symbols, vocabulary, spell):
    pieces: list[str] = []
    for symbol in symbols:
        pieces += [symbol] if symbol in vocabulary else spell(symbol)
    return pieces


@misconception(
    "M281",
    "byte_fallback",
    title="code points instead of bytes",
    source="common: ord() for encode()",
    effect="A vocabulary of 256 bytes is not enough: code points go up to 1,114,111.",
    hint="Your numbers are code points. Which bytes does UTF-8 make of such a letter?",
)
def code_points(symbols, vocabulary):
    return _in_bytes(symbols, vocabulary, lambda s: [f"<0x{ord(letter):02X}>" for letter in s])


@misconception(
    "M282",
    "byte_fallback",
    title="bytes without their leading zero",
    source="common: hex() or :X",
    effect="<0x9> is not in a vocabulary whose bytes have two digits.",
    hint="A byte below sixteen has one digit in yours. How many has it in <0x09>?",
)
def one_digit(symbols, vocabulary):
    return _in_bytes(symbols, vocabulary, lambda s: [f"<0x{byte:X}>" for byte in s.encode("utf-8")])


@misconception(
    "M283",
    "byte_fallback",
    title="everything in bytes",
    source="a plausible slip: byte-level BPE taken for byte fallback",
    effect="Sentences become several times as long as they need be.",
    hint="You spell known pieces, too. Which ones need it?",
)
def everything_in_bytes(symbols, vocabulary):
    return _in_bytes(symbols, set(), _as_bytes)


def _words(sentence):
    return re.findall(r"▁?\w+|▁?[^\w▁]", "▁" + sentence.replace(" ", "▁"))


def _cut(word, merges, vocabulary):
    symbols = list(word)
    for pair in merges:
        symbols = _merge(symbols, pair)
    return symbols


def _letters_and_merged(words, merges):
    return {letter for word in words for letter in word} | {a + b for a, b in merges}


def _tokenized(
    text,
    number,
    sentences,
    words=_words,
    learn=None,
    known=_letters_and_merged,
    cut=_cut,
    spell=_as_bytes,
    weigh=True,
    best=None,
):
    """As it should be, but for what is switched."""
    counts = Counter(word for sentence in text for word in (learn or words)(sentence))
    merges = _learned(counts, number, weigh=weigh, best=best)
    vocabulary = known(counts, merges)
    cuts = ([p for w in words(s) for p in cut(w, merges, vocabulary)] for s in sentences)
    return [_in_bytes(pieces, vocabulary, spell) for pieces in cuts]


@misconception(
    "M284",
    "tokenize",
    title="words without their ▁",
    source="common: sentence.split()",
    effect="Nothing says where a word began, so the text cannot be put together again.",
    hint="Your pieces do not say where a word begins. What should stand before it?",
)
def without_the_border(text, number, sentences):
    return _tokenized(
        text, number, sentences, lambda s: [w.lstrip("▁") for w in _words(s) if w != "▁"]
    )


@misconception(
    "M963",
    "tokenize",
    title="the vocabulary is what the text is cut into",
    source="an answer in a trial of the checks: the pieces of all words after all merges",
    effect="A letter that is always merged in the text is spelled in bytes elsewhere.",
    hint="A letter that the text has comes out in bytes. What belongs to the vocabulary besides "
    "the pieces that the text is cut into in the end?",
)
def final_pieces_alone(text, number, sentences):
    def known(words, merges):
        return {piece for word in words for piece in _cut(word, merges, None)}

    return _tokenized(text, number, sentences, known=known)


@misconception(
    "M285",
    "tokenize",
    title="unknown letters become <unk>",
    source="common: SentencePiece without byte_fallback",
    effect="What was written is lost.",
    hint="Letters that the text does not have are lost in yours. What did the exercise before this "
    "one make of them?",
)
def unknown_is_lost(text, number, sentences):
    return _tokenized(text, number, sentences, spell=lambda s: ["<unk>"])


@misconception(
    "M286",
    "tokenize",
    title="merges applied from the longest on",
    source="common: greedy longest match, which is WordPiece's way",
    effect="Some words are cut in other places than they were learned.",
    hint="Your merges are right and applied in another order. In which order were they learned?",
)
def longest_first(text, number, sentences):
    def cut(word, merges, vocabulary):
        return _cut(word, sorted(merges, key=lambda pair: -len("".join(pair))), vocabulary)

    return _tokenized(text, number, sentences, cut=cut)


@misconception(
    "M305",
    "learn_merges",
    title="of equally frequent pairs the one met first",
    source="a model in a student's role: Counter.most_common(1)",
    effect="The merges depend on the order of the text.",
    hint="Where two pairs are equally frequent you take the one that was met first. Which one does "
    "the exercise ask for?",
)
def first_met_of_equals(counts, number):
    return _learned(counts, number, best=lambda equal: equal[0])


@misconception(
    "M306",
    "learn_merges",
    title="equals compared by what they spell",
    source="a model in a student's role: the smallest joined text for the smallest pair",
    effect="Rarely another merge than that of programs that compare pairs.",
    hint="Where two pairs are equally frequent you compare what they spell. In Python's order, is "
    "the pair (a, d) before or after (ab, c)?",
)
def smallest_spelling(counts, number):
    return _learned(counts, number, best=lambda equal: min(equal, key="".join))


@also("M277", "tokenize")
def each_word_once(text, number, sentences):
    return _tokenized(text, number, sentences, weigh=False)


@misconception(
    "M463",
    "learn_merges",
    title="a pair has to occur twice",
    source="subword-nmt's min_frequency, which the exercise does not ask for",
    effect="On a small text there are fewer merges than were asked for.",
    hint="You stop where the most frequent pair occurs once. Are there no pairs left then?",
)
def stops_at_one(counts, number):
    merges = _learned(counts, number)
    often = _frequencies(counts, merges)
    return [pair for pair, count in zip(merges, often, strict=True) if count > 1]


def _frequencies(counts, merges):
    """How often each pair occurs when it is merged."""
    spelled = {word: list(word) for word in counts}
    for best in merges:
        pairs = ((pair, word) for word, symbols in spelled.items() for pair in pairwise(symbols))
        yield sum(counts[word] for pair, word in pairs if pair == best)
        spelled = {word: _merge(symbols, best) for word, symbols in spelled.items()}


@misconception(
    "M464",
    "learn_merges",
    title="pairs that overlap are counted once",
    source="answers in a trial of the checks: str.count, or a pair skipped after each match",
    effect="A pair of equals seems rarer than it is.",
    hint="In “aaa” the pair a·a occurs twice, for each letter but the last has a neighbor. How "
    "often do you count it?",
)
def overlaps_counted_once(counts, number):
    spelled = {word: list(word) for word in counts}
    merges: list[tuple[str, str]] = []
    while len(merges) < number:
        pairs = {pair for symbols in spelled.values() for pair in pairwise(symbols)}
        often = {
            pair: sum(
                (len(symbols) - len(_merge(symbols, pair))) * counts[word]
                for word, symbols in spelled.items()
            )
            for pair in pairs
        }
        if not often:
            break
        merges.append(min(often, key=lambda pair: (-often[pair], pair)))
        spelled = {word: _merge(symbols, merges[-1]) for word, symbols in spelled.items()}
    return merges


@misconception(
    "M465",
    "learn_merges",
    title="pairs that a merge has ended keep their counts",
    source="an answer in a trial of the checks: a table of pairs kept up to date by additions only",
    effect="Merges are spent on pairs that no longer occur.",
    hint="Some of your pairs no longer occur anywhere: a letter in them has become a part of a "
    "longer symbol. Is everything counted anew after each merge?",
)
def old_pairs_stay(counts, number):
    spelled = {word: list(word) for word in counts}
    table: Counter[tuple[str, str]] = Counter()
    for word, symbols in spelled.items():
        for pair in pairwise(symbols):
            table[pair] += counts[word]
    merges: list[tuple[str, str]] = []
    while table and len(merges) < number:
        best = min(table, key=lambda pair: (-table[pair], pair))
        merges.append(best)
        del table[best]
        for word, symbols in spelled.items():
            spelled[word] = _merge(symbols, best)
            for pair in pairwise(spelled[word]):
                if "".join(best) in pair and len(spelled[word]) < len(symbols):
                    table[pair] += counts[word]
    return merges


@misconception(
    "M466",
    "tokenize",
    title="the longest piece that fits, instead of the merges",
    source="common: WordPiece's way to cut",
    effect="Words are cut in other places than the merges would.",
    hint="You take the longest piece that fits. An early merge can have cut the "
    "word otherwise: what does `apply_merges` make of it?",
)
def longest_piece(text, number, sentences):
    def cut(word, merges, vocabulary):
        pieces = []
        while word:
            ends = range(len(word), 0, -1)
            end = next((end for end in ends if word[:end] in vocabulary), 1)
            pieces.append(word[:end])
            word = word[end:]
        return pieces

    return _tokenized(text, number, sentences, cut=cut)


@misconception(
    "M467",
    "tokenize",
    title="the vocabulary is what is left of the text",
    source="answers in a trial of the checks: pieces collected from the text after all merges",
    effect="A piece that was always merged further is spelled in bytes in a new word.",
    hint="A piece that was merged further everywhere in the text is in bytes in yours. Which "
    "pieces belong to the vocabulary?",
)
def only_what_is_left(text, number, sentences):
    counts = Counter(word for sentence in text for word in _words(sentence))
    left = _tokenized(text, number, text)
    known = {piece for pieces in left for piece in pieces} | {x for word in counts for x in word}
    found = _tokenized(text, number, sentences)
    return [_in_bytes(pieces, known | _bytes_in(pieces), _as_bytes) for pieces in found]


def _bytes_in(pieces):
    return {piece for piece in pieces if re.fullmatch("<0x[0-9A-F]{2}>", piece)}


@misconception(
    "M561",
    "merge_pair",
    title="the last symbol comes once more",
    source="an answer in a trial of the checks: a loop over neighbors, and the last one after it",
    effect="Where the pair is at the end, its second half is doubled.",
    hint="Some of your results end with a symbol too many. Is the last symbol always left "
    "when the loop over neighbors ends?",
)
def last_symbol_once_more(symbols, pair):
    return _before_the_last(symbols, pair) + symbols[-1:]


@also("M174", "apply_merges")
def merges_replaced_in_the_text(word, merges):
    text = " ".join(word)
    for left, right in merges:
        text = text.replace(f"{left} {right}", left + right)
    return text.split()


@also("M174", "learn_merges")
def learned_by_replacing_text(counts, number):
    return _learned(counts, number, join=replaced_in_the_text)


@misconception(
    "M581",
    "tokenize",
    title="one letter never met, and nothing of its word is merged",
    source="an answer in a trial of the checks: a word is merged or spelled, not both",
    effect="A foreign letter takes its whole word apart.",
    hint="In a word with one letter that is not in the text, the others stay single. Are they "
    "unknown, too?",
)
def unmerged_beside_unknown(text, number, sentences):
    def cut(word, merges, vocabulary):
        return _cut(word, merges if vocabulary.issuperset(word) else [], vocabulary)

    return _tokenized(text, number, sentences, cut=cut)


@misconception(
    "M596",
    "byte_fallback",
    title="bytes in lower case",
    source="answers in a trial of the checks: bytes.hex(), or :02x for :02X",
    effect="<0xc3> is not in a vocabulary that has <0xC3>.",
    hint="Your bytes are right but written differently. Are hexadecimal letters upper or lower "
    "case here?",
)
def lower_case_bytes(symbols, vocabulary):
    return _in_bytes(symbols, vocabulary, lambda s: [f"<0x{byte:02x}>" for byte in s.encode()])


@misconception(
    "M597",
    "merge_pair",
    title="the last symbol is lost",
    source="an answer in a trial of the checks: the loop ends before the last symbol",
    effect="Words lose their last letter wherever it is in no pair.",
    hint="A last symbol that belongs to no pair is missing. Where does your loop end?",
)
def last_symbol_lost(symbols, pair):
    return _before_the_last(symbols, pair)


@also("M305", "tokenize")
def tokenized_with_first_of_equals(text, number, sentences):
    return _tokenized(text, number, sentences, best=lambda equal: equal[0])


@misconception(
    "M612",
    "tokenize",
    title="merges learned with the punctuation attached",
    source="an answer in a trial of the checks: split() for learning, another rule for cutting",
    effect="“here.” is learned instead of “here”, and the merge is never used.",
    hint="Your merges are learned from words other than those that you cut. What does each of "
    "the two do with punctuation?",
)
def punctuation_learned(text, number, sentences):
    def learn(sentence):
        return ["▁" + word for word in sentence.split()]

    return _tokenized(text, number, sentences, learn=learn)


@misconception(
    "M613",
    "tokenize",
    title="▁ is not in the vocabulary",
    source="an answer in a trial of the checks: the characters of the text as it came",
    effect="A ▁ that stays alone becomes three bytes.",
    hint="A ▁ that stays alone is spelled in bytes. Which text do your characters come from?",
)
def mark_not_in_vocabulary(text, number, sentences):
    return _tokenized(
        text, number, sentences, known=lambda words, merges: _letters_and_merged(text, merges)
    )


@misconception(
    "M614",
    "byte_fallback",
    title="unknown pieces are taken apart into known characters",
    source="an answer in a trial of the checks: only what is left is spelled in bytes",
    effect="Other tokens than those of SentencePiece, which spells the whole piece.",
    hint="A piece that is not in the vocabulary is spelled out in bytes as a whole. Which of its "
    "characters do you keep?",
)
def characters_kept(symbols, vocabulary):
    pieces: list[str] = []
    for symbol in symbols:
        pieces += [symbol] if symbol in vocabulary else _in_bytes(symbol, vocabulary, _as_bytes)
    return pieces


@also("M176", "apply_merges")
def merges_applied_from_the_right(word, merges):
    symbols = list(word)
    for pair in merges:
        symbols = merged_from_the_right(symbols, pair)
    return symbols


@misconception(
    "M634",
    "merge_pair",
    title="a symbol is added letter by letter",
    source="an answer in a trial of the checks: += between a list and a string",
    effect="What earlier merges have joined falls apart again.",
    hint="Symbols of several letters fall apart where they are not merged. What does += add to a "
    "list when it gets a string?",
)
def added_letter_by_letter(symbols, pair):
    joined = "".join(pair)
    merged: list[str] = []
    for symbol in _merge(symbols, pair):
        merged += [symbol] if symbol == joined else symbol
    return merged


@misconception(
    "M826",
    "tokenize",
    title="a word counts once per sentence",
    source="an answer in a trial of the checks: set(split_words(sentence))",
    effect="A pair that one sentence has twice counts as much as a pair that it has once.",
    hint="Where a sentence has the same word twice, your merges come in another order. How often "
    "does that word count in yours?",
)
def once_per_sentence(text, number, sentences):
    return _tokenized(
        text, number, sentences, learn=lambda sentence: dict.fromkeys(_words(sentence))
    )
