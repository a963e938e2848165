"""Mistakes in byte-pair encoding (Sennrich et al. 2016)."""

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
    effect="Where a pair of equals stands in a row of three, the pieces differ from those of every "
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


def _merge(symbols, pair):
    shorter = _merge_first(symbols, pair)
    return shorter if len(shorter) == len(symbols) else _merge(shorter, pair)


@misconception(
    "M177",
    "merge_pair",
    title="only the first occurrence",
    source="a plausible slip: return after the first match",
    effect="Words with a repeated pair are cut into more pieces than need be.",
    hint="You merge the pair once. How often may it stand in a word?",
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
