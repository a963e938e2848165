"""Exercises on byte-pair encoding, with a word as a list of symbols."""

import re
from collections import Counter
from itertools import pairwise

import torch

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case

Pair = tuple[str, str]


def _symbols(random: torch.Generator, length: int, letters: str = "ab") -> list[str]:
    return [letters[i] for i in torch.randint(len(letters), (length,), generator=random).tolist()]


def _merge_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(["a", "b", *_symbols(random, 8), "a", "b"], ("a", "b")),
        "a pair of equals": Case(["a", "a", "a", "b", *_symbols(random, 6), "a"], ("a", "a")),
        "a pair that does not occur": Case(_symbols(random, 6), ("b", "c")),
        "symbols of several letters": Case(["t", "he", "ut", "he", "h", "t", "he"], ("t", "he")),
        "another pair that spells the same": Case(["th", "e", "t", "he", "th"], ("t", "he")),
        "one symbol": Case(["a"], ("a", "b")),
    }


@exercise("tokens", _merge_cases)
def merge_pair(symbols: list[str], pair: Pair) -> list[str]:
    """The symbols with every occurrence of the pair, from left to right, made one symbol."""
    merged: list[str] = []
    for symbol in symbols:
        if merged and (merged[-1], symbol) == pair:
            merged[-1] += symbol
        else:
            merged.append(symbol)
    return merged


def _apply_cases(random: torch.Generator) -> dict[str, Case]:
    learned = [("e", "r"), ("l", "o"), ("lo", "w"), ("▁", "n"), ("▁n", "e"), ("w", "er")]
    return {
        "values": Case("▁lower", learned),
        "a merge that does not apply": Case("▁newer", learned),
        "an early merge stands in the way": Case("▁ner", learned),
        "letters never met": Case("▁x" + "".join(_symbols(random, 3, "yz")), learned),
        "a repeated pair": Case("lolowerer", learned),
        "nothing learned": Case("▁low", []),
        "three equals in a row": Case("hmmm", [("m", "m"), ("h", "mm")]),
    }


@exercise("tokens", _apply_cases)
def apply_merges(word: str, merges: list[Pair]) -> list[str]:
    """The word cut into pieces: the merges, in the order in which they were learned."""
    symbols = list(word)
    for pair in merges:
        symbols = merge_pair(symbols, pair)
    return symbols


def _count_cases(random: torch.Generator) -> dict[str, Case]:
    def some_words(number: int) -> dict[str, int]:
        words = ["▁" + "".join(_symbols(random, 4, "abc")) for _ in range(number)]
        counts = torch.randint(1, 9, (number,), generator=random).tolist()
        return dict(zip(words, counts, strict=True))

    one_of_each = {"▁ba": 2, "▁cd": 2, "▁ab": 2}
    return {
        "values": Case({"▁the": 9, "▁then": 3, "▁hen": 2, "▁cat": 4, **some_words(4)}, 5),
        "frequent words count more": Case({"▁xy": 10, "▁ab": 1, "▁cab": 1, "▁dab": 1}, 2),
        "a pair twice in a word": Case({"▁nana": 4, "▁now": 5}, 2),
        "equally frequent": Case(one_of_each, 3),
        "equally frequent, of two lengths": Case({"abc": 3, "ab": 4, "ad": 3}, 3),
        "more merges than there are": Case({"▁a": 3, "b": 5}, 4),
        "a row of equals": Case({"aaaa": 3, "▁b": 4}, 2),
        "three equals": Case({"aaa": 3, "▁b": 4}, 2),
        "pairs that occur once": Case({"▁ab": 1, "cd": 1}, 3),
        "the end of a longer symbol": Case({"bbbbb": 2}, 5),
    }


@exercise("tokens", _count_cases)
def learn_merges(counts: dict[str, int], number: int) -> list[Pair]:
    """The most frequent pair of neighbors, merged everywhere, again and again (Sennrich 2016)."""
    spelled = {word: list(word) for word in counts}
    merges: list[Pair] = []
    while len(merges) < number:
        pairs: Counter[Pair] = Counter()
        for word, symbols in spelled.items():
            for pair in pairwise(symbols):
                pairs[pair] += counts[word]
        if not pairs:
            break
        most = max(pairs.values())
        best = min(pair for pair, count in pairs.items() if count == most)
        merges.append(best)
        spelled = {word: merge_pair(symbols, best) for word, symbols in spelled.items()}
    return merges


def _byte_cases(random: torch.Generator) -> dict[str, Case]:
    known = {"▁", "T", "o", "m", "▁Tom", "e", "n", "▁g", "ü"}
    return {
        "values": Case(["▁Tom", "▁", "ж", "e", "n"], known),
        "nothing unknown": Case(["▁g", "e", "n"], known),
        "three and four bytes": Case(["▁", "好", "😀", "n"], known),
        "a byte below sixteen": Case(["T", "\t", "o"], known),
        "a known letter with two bytes": Case(["▁g", "ü", "ö"], known),
        "a ligature and an accent": Case(["▁g", "ﬁ", "e", "\N{COMBINING DIAERESIS}"], known),
        "a piece of several letters": Case(["▁ль", "n"], known),
    }


@exercise("tokens", _byte_cases)
def byte_fallback(symbols: list[str], vocabulary: set[str]) -> list[str]:
    """What the vocabulary does not have becomes its UTF-8 bytes, written as <0x0A>."""
    pieces: list[str] = []
    for symbol in symbols:
        if symbol in vocabulary:
            pieces.append(symbol)
        else:
            pieces += [f"<0x{byte:02X}>" for byte in symbol.encode("utf-8")]
    return pieces


def _tokenizer_cases(random: torch.Generator) -> dict[str, Case]:
    text = ["Tom is here.", "Is Tom there?", "He is there.", "The hen is there."]
    return {
        "values": Case(text, 12, ["Tom is there.", "The hen."]),
        "one merge": Case(text, 1, ["is he here"]),
        "letters never met": Case(text, 8, ["Tom ißt.", "好!"]),
        "a letter never met beside known pieces": Case(text[:2], 20, ["Tomß is"]),
        "punctuation": Case(["Oh, no.", "No, no, oh."], 6, ["No. No, oh", ",,"]),
        "no sentence": Case(text, 3, []),
        "more merges than there are": Case(["oh no"], 20, ["no, oh no"]),
        "an early merge stands in the way": Case(["bc bc bc ab ab abc"], 4, ["abc ab"]),
        "a word three times in a sentence": Case(["ab ab ab cd", "cd"], 2, ["ab cd"]),
        "a piece of pieces only": Case(["the the"], 3, ["he the"]),
        "two spaces, one at the end, and nothing": Case(text, 6, ["Tom  is ", ""]),
    }


def split_words(sentence: str) -> list[str]:
    """Words with ▁ before each, punctuation apart."""
    return re.findall(r"▁?\w+|▁?[^\w▁]", "▁" + sentence.replace(" ", "▁"))


@exercise("tokens", _tokenizer_cases)
def tokenize(text: list[str], number: int, sentences: list[str]) -> list[list[str]]:
    """Learn merges from a text, cut sentences by them, and spell unknown letters in bytes."""
    counts = Counter(word for sentence in text for word in split_words(sentence))
    merges = learn_merges(counts, number)
    vocabulary = {letter for word in counts for letter in word} | {a + b for a, b in merges}
    cut = ([p for w in split_words(s) for p in apply_merges(w, merges)] for s in sentences)
    return [byte_fallback(pieces, vocabulary) for pieces in cut]
