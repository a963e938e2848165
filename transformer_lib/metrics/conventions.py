"""One output, many BLEUs: how papers count, and how to find out why yours differs from theirs.

The Transformer's authors made quotation marks straight, tokenized with the Moses script, split
words at hyphens, and counted with ``multi-bleu.perl`` (``get_ende_bleu.sh`` of Tensor2Tensor);
sacreBLEU (Post 2018) counts on plain text with a tokenizer of its own. On the same German
translations the first number is the higher one, so the two must not be compared.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from sacrebleu.metrics import BLEU

from transformer_lib.metrics.bleu import MetricScore, bleu, score

if TYPE_CHECKING:
    from sacremoses import MosesTokenizer

PAPER = "straight quotes, Moses tokens, compounds split (the paper)"
_HYPHEN = re.compile(r"(\S)-(\S)")
_STRAIGHT = str.maketrans("„“”‚‘’", "\"\"\"'''")


def moses_tokens(sentence: str) -> str:
    """German text as the Moses tokenizer separates it, with a space between tokens."""
    return _moses().tokenize(sentence, return_str=True)


def straightened(sentence: str) -> str:
    """Its quotation marks as ASCII has them.

    The German text of newstest2014 has all kinds, that of other years has one: without this, a
    model loses points for the kind that it has learned.

    >>> straightened("„ja“")
    '"ja"'
    """
    return sentence.translate(_STRAIGHT)


def split_compounds(tokens: str) -> str:
    """``Vater-Sohn`` as three tokens, which gives partial credit for half a compound.

    >>> split_compounds("die Vater-Sohn-Reise")
    'die Vater ##AT##-##AT## Sohn ##AT##-##AT## Reise'
    """
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokens)


def paper_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> MetricScore:
    """BLEU in the way of “Attention Is All You Need”, of translations into German.

    Straight quotation marks, Moses tokens by the rules for German, compounds split, unsmoothed.
    """
    spoken, wanted = (
        [split_compounds(moses_tokens(straightened(sentence))) for sentence in side]
        for side in (hypotheses, references)
    )
    return _tokenized_bleu(spoken, wanted, "moses, quotes straight, compounds split")


def every_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, MetricScore]:
    """The same output scored under each convention that one meets in papers and toolkits."""
    one_each = [[reference] for reference in references]
    spoken, wanted = ([moses_tokens(s) for s in side] for side in (hypotheses, references))
    return {
        "sacreBLEU, 13a": bleu(hypotheses, one_each),
        "sacreBLEU, 13a, lower-cased": bleu(hypotheses, one_each, lowercase=True),
        "sacreBLEU, international tokens": score(BLEU(tokenize="intl"), hypotheses, one_each),
        "Moses tokens": _tokenized_bleu(spoken, wanted, "moses"),
        PAPER: paper_bleu(hypotheses, references),
    }


def _tokenized_bleu(
    hypotheses: Sequence[str], references: Sequence[str], tokens: str
) -> MetricScore:
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    result = score(metric, hypotheses, [[reference] for reference in references])
    return replace(result, signature=result.signature.replace("tok:none", f"tok:{tokens}"))


@cache
def _moses() -> "MosesTokenizer":
    from sacremoses import MosesTokenizer  # takes half a second: only where it is needed

    return MosesTokenizer(lang="de")
