"""Pairs of hand-ins that are more alike than the class: what they share that few others have.

What many have weighs little, what only two have weighs much, and what was released counts for
nothing. How far a pair stands out is measured against all pairs of the class.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer_lib.instructor.likeness.traits import KINDS, Work, traits

Floats = NDArray[np.float64]
STANDS_OUT = 10.0  # robust standard deviations; docs/likeness.md says what that finds and misses
LEAST_SAME = 200  # characters that two may not both write by chance
LEAST_SPREAD = 0.01  # of likenesses from 0 to 1; without it, in a class that shares nothing,
# any two words would stand out


@dataclass(frozen=True)
class Pair:
    """Two hand-ins and how far their likeness stands out.

    Args:
        evidence: by kind of trait, how many robust standard deviations above the class's median.
        numbers: those that both have, and how many of all hand-ins have each.
    """

    a: Work
    b: Work
    evidence: dict[str, float]
    numbers: dict[str, int]

    @property
    def total(self) -> float:
        """Of all kinds; tokens and trees are two views of the same code."""
        one = self.evidence
        return (one["tokens"] + one["trees"]) / 2 + one["words"] + one["numbers"]

    @property
    def is_same(self) -> bool:
        """Whether both wrote the same, words too: scores miss what half of a class copies."""
        bare = self.a.bare
        is_long = sum(map(len, bare.values())) >= LEAST_SAME
        return is_long and bool(self.a.words) and bare == self.b.bare

    @property
    def stands_out(self) -> bool:
        return self.is_same or self.total >= STANDS_OUT


def compare(works: Sequence[Work], released: Work, earlier: Sequence[Work] = ()) -> list[Pair]:
    """All pairs of the class, and of the class with earlier ones; the most alike first.

    Args:
        works: the class.
        released: what everybody got: nothing of it counts.
        earlier: of other cohorts, which are compared with the class but not with each other.
    """
    known = traits(released)
    everybody = [*works, *earlier]
    found = [
        {kind: {t: w for t, w in mine.items() if t not in known[kind]}
         for kind, mine in traits(work).items()}
        for work in everybody
    ]  # fmt: skip
    pairs = [p for p in itertools.combinations(range(len(everybody)), 2) if p[0] < len(works)]
    evidence = {kind: _deviations(_likeness([f[kind] for f in found], pairs)) for kind in KINDS}
    having = Counter(itertools.chain.from_iterable(one["numbers"] for one in found))
    made = [
        Pair(
            everybody[a],
            everybody[b],
            {kind: float(evidence[kind][number]) for kind in KINDS},
            {str(n): having[n] for n in found[a]["numbers"] if n in found[b]["numbers"]},
        )
        for number, (a, b) in enumerate(pairs)
    ]
    return sorted(made, key=lambda pair: (not pair.is_same, -pair.total))


def _likeness(found: Sequence[Mapping[object, float]], pairs: Sequence[tuple[int, int]]) -> Floats:
    """For each pair, how much of the weight of the one that has less both have."""
    frequency = Counter(itertools.chain.from_iterable(found))
    rarity = {trait: math.log(len(found) / n) for trait, n in frequency.items()}
    weight = [sum(w * rarity[t] for t, w in one.items()) for one in found]
    usual = float(np.median(weight)) or 1.0  # who has little shares all of it easily
    shared = [sum(w * rarity[t] for t, w in found[a].items() if t in found[b]) for a, b in pairs]
    least = [max(min(weight[a], weight[b]), usual) for a, b in pairs]
    return np.array(shared) / np.array(least)


def _deviations(values: Floats) -> Floats:
    """How far each stands above the median; a normal distribution's upper half sets the unit."""
    if not len(values):
        return values
    middle = np.median(values)
    spread = (np.quantile(values, 0.75) - middle) / 0.6745
    return np.clip((values - middle) / max(spread, LEAST_SPREAD), 0.0, None)
