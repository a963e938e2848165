"""Exercises on byte-pair encoding, with a word as a list of symbols."""

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
    }


@exercise("tokens", _apply_cases)
def apply_merges(word: str, merges: list[Pair]) -> list[str]:
    """The word cut into pieces: the merges, in the order in which they were learned."""
    symbols = list(word)
    for pair in merges:
        symbols = merge_pair(symbols, pair)
    return symbols
