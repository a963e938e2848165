"""Phrases that a copy editor would strike, wherever the course has prose: part of ``make check``.

Spelling is left to codespell. Here are patterns that came up more than once when native speakers
read the chapters, each with what to write instead.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROSE = (
    "*.md", "docs/*.md", "leaderboard/*.md", "benchmarks/*.md",
    "chapters/text/*.py", "assignments/**/*.md", "assignments/text/*.py",
)  # fmt: skip
PROGRAMS = ("transformer_lib/**/*.py", "transformer_lib/**/*.md", "scripts/*.py")
COUNTED = (
    r"(?:answer|hour|mixture|number|piece|point|radian|sentence|step|token|translation|word)s?"
)
PER = r"(?:batch|day|head|hour|layer|minute|position|query|second|sentence|token|week|word)"
THINGS = r"(?:decoder|encoder|head|layer|model|network|program|query|key|run|token|tokenizer)s?"
INSTEAD = {
    rf"\b(?:\d[\d.,]*|two|three|four|five|six|ten) (?:\w+ )?{COUNTED} an? {PER}\b": "per",
    rf"\b(?:an?|the|this|each) {THINGS} who\b": "that or which; who is for people",
    r"(?:^|[.;:] )Who (?:asks|copies|has|knows|reads|sees|takes|trains|tries|wants)\b": "If you …",
    r"\bfor who\b|\bone gets who\b|\bone who sees\b": "if you …",
    r"\b(?:is|are|was) to (?:say|predict)\b": "must or should predict",
    r"\bNow to (?:the|a|its|our)\b": "Back to …, Now for …",
    r"\b(?:stands?|stood) (?:in(?! the way)|at|there|twice|once|beside|behind)\b": "is, occurs",
    r"(?<!standard[ ])(?<!standard\n[#][ ])\bdeviations? (?:of|to)\b": "standard deviation",
    r"\blearnt\b": "learned",
    r"\bby heart\b": "memorize",
    r"\bdearer\b": "more expensive",
    r"\bgets? to know\b": "receives",
    r"\b[Ww]hich share\b|\b[Ww]hat share has\b": "what share of …, what share belongs to …",
    r"\bof (?:above|below)\b": "the … above",
    r"\bgo(?:es)? by (?:place|position|word|both)\b": "depends on",
    r"\bOne says\b": "is said to be",
    r"\baddition theorems?\b": "angle-addition formulas",
    r"\bfills? \w+ (?:\w+ )?up\b": "pads",
    r"\bmultipl(?:y|ies|ied|ying)(?: \w+){0,3} with (?:the|a|an|its|their|this)\b": "multiply by",
    r"\bno merit\b": "deserves no credit",
    r"\beven bet\b": "uniform guess",
    r"\bbring(?:s)? (?:little|nothing) but\b": "buys",
    r"\bplace of the (?:largest|smallest)\b": "index of",
    r"\bNobody told\b": "(strike it)",
    r"\bas papers are written\b|\bso papers are written\b": "that is how papers are written",
}  # fmt: skip
GAP = r"(?:\s|#)+"  # a phrase may go on in the next line, and that of a comment
PATTERNS = {
    re.compile(re.sub(r"(?<!\[) ", lambda _: GAP, phrase)): better
    for phrase, better in INSTEAD.items()
}


def style_findings(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, phrase and what to write instead."""
    for pattern, better in PATTERNS.items():
        for found in pattern.finditer(text):
            yield text.count("\n", 0, found.start()) + 1, " ".join(found[0].split()), better


def main() -> int:
    complaints = [
        f"{path.relative_to(ROOT)}:{line}: “{phrase}”: {better}"
        for pattern in (*PROSE, *PROGRAMS)
        for path in sorted(ROOT.glob(pattern))
        if path != Path(__file__).resolve()
        for line, phrase, better in style_findings(path.read_text(encoding="utf-8"))
    ]
    print("\n".join(complaints), end="\n" if complaints else "")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
