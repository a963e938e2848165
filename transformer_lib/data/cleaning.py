"""Which sentence pairs are worth training on, and a count of those that are not."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator

from transformer_lib.data.config import DataConfig

Pair = tuple[str, str]
_BETWEEN_WORDS = re.compile(r"[\W_]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The commonest words of each language that are no words of the other one.
ENGLISH = _words(
    "the of and to is that for it with as on are be this by at from have not you we they which or "
    "but his her he she has had were been their there would who what will all"
)
GERMAN = _words(
    "der das und ist nicht von mit den dem des ein eine einen für auf im zu sich auch es als "
    "werden wird aus bei nach wir sie dass oder ich er einer eines sind hat haben zum zur"
)


def normalize(text: str) -> str:
    """Unicode NFC (é as one character), white space runs as one space, none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def sentence_key(text: str) -> str:
    """What makes two sentences the same for a split: their letters and digits, in lower case."""
    return _BETWEEN_WORDS.sub(" ", normalize(text).casefold()).strip()


def reads_like_the_other(text: str, own: frozenset[str], other: frozenset[str]) -> bool:
    """Whether a text has at least two of the other language's words, and more than of its own."""
    words = sentence_key(text).split()
    others = sum(word in other for word in words)
    return others >= 2 and others > sum(word in own for word in words)


class Cleaner:
    """Normalizes pairs and drops the bad ones; ``report`` counts what was kept and dropped.

    Args:
        config: its limits say which ones are bad.
        held_out: sentence keys of source sentences that must not be trained on.
    """

    def __init__(self, config: DataConfig, held_out: frozenset[str] = frozenset()):
        self.config = config
        self.held_out = held_out
        self.report: Counter[str] = Counter()
        self._seen: set[bytes] = set()

    def __call__(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The good pairs, in order."""
        for source, target in pairs:
            source, target = normalize(source), normalize(target)
            reason = self._reason_to_drop(source, target)
            self.report[reason or "kept"] += 1
            if reason is None:
                yield source, target

    def _reason_to_drop(self, source: str, target: str) -> str | None:
        if not source or not target:
            return "an empty side"
        if "\ufffd" in source or "\ufffd" in target:
            return "characters that cannot be read"
        config = self.config
        fewer, more = sorted((source.count(" ") + 1, target.count(" ") + 1))
        if more > config.max_words:
            return f"more than {config.max_words} words"
        shorter, longer = sorted((len(source), len(target)))
        if longer > config.max_ratio * shorter + 20:
            return f"lengths differ by a factor over {config.max_ratio:g}"
        if config.max_word_ratio is not None and more > config.max_word_ratio * fewer:
            return f"numbers of words differ by a factor over {config.max_word_ratio:g}"
        if config.drop_copies and source == target:
            return "both sides the same"
        if config.check_languages and (
            reads_like_the_other(source, ENGLISH, GERMAN)
            or reads_like_the_other(target, GERMAN, ENGLISH)
        ):
            return "a side in the other side's language"
        if self.held_out and sentence_key(source) in self.held_out:
            return "source sentence held out for validation or test"
        digest = hashlib.blake2b(f"{source}\t{target}".encode(), digest_size=8).digest()
        if digest in self._seen:
            return "a duplicate"
        self._seen.add(digest)
        return None
