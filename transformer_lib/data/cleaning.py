"""Which sentence pairs are worth training on, and a count of those that are not."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator

Pair = tuple[str, str]
_BETWEEN_WORDS = re.compile(r"[\W_]+")


def normalize(text: str) -> str:
    """Unicode NFC (é as one character), white space runs as one space, none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def sentence_key(text: str) -> str:
    """What makes two sentences the same for a split: their letters and digits, in lower case."""
    return _BETWEEN_WORDS.sub(" ", normalize(text).casefold()).strip()


class Cleaner:
    """Normalizes pairs and drops the bad ones; ``report`` counts what was kept and dropped.

    Args:
        max_words: longest sentence, in words of either side.
        max_ratio: longest side over shortest side, in characters, beyond the first 20 characters
            of difference (short sentences may differ more).
        held_out: sentence keys of source sentences that must not be trained on.
    """

    def __init__(self, max_words: int, max_ratio: float, held_out: frozenset[str] = frozenset()):
        self.max_words = max_words
        self.max_ratio = max_ratio
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
        if max(source.count(" "), target.count(" ")) >= self.max_words:
            return f"more than {self.max_words} words"
        shorter, longer = sorted((len(source), len(target)))
        if longer > self.max_ratio * shorter + 20:
            return f"lengths differ by a factor over {self.max_ratio:g}"
        if self.held_out and sentence_key(source) in self.held_out:
            return "source sentence held out for validation or test"
        digest = hashlib.blake2b(f"{source}\t{target}".encode(), digest_size=8).digest()
        if digest in self._seen:
            return "a duplicate"
        self._seen.add(digest)
        return None
