"""Mistakes in BLEU and in comparing two systems. Sentences come as lists of tokens."""

import math
from collections import Counter

import torch

from transformer_lib.course.misconceptions.bank import misconception
from transformer_lib.metrics.bleu import ngram_counts


def _bleu(hypotheses, references, most=4, clip=True, brevity=None, mean=None, least=0):
    matches, totals = [0] * most, [0] * most
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(1, most + 1):
            ours, theirs = ngram_counts(hypothesis, n), ngram_counts(reference, n)
            found = (
                ours & theirs if clip else Counter({g: c for g, c in ours.items() if g in theirs})
            )
            matches[n - 1] += found.total()
            totals[n - 1] += max(least, ours.total())
    if min(matches) == 0:
        return 0.0
    precisions = [m / t for m, t in zip(matches, totals, strict=True)]
    length = sum(map(len, hypotheses))
    reference_length = sum(map(len, references))
    brevity = brevity or (lambda c, r: 1.0 if c > r else math.exp(1 - r / c))
    mean = mean or (lambda p: math.exp(sum(map(math.log, p)) / len(p)))
    return 100 * brevity(length, reference_length) * mean(precisions)


@misconception(
    "M29",
    "corpus_bleu",
    title="lower-cased before counting",
    source="common: papers that report lower-cased, tokenized BLEU beside others that do not",
    effect="Several points too many, and German nouns in lower case go unpunished.",
    hint="Your score does not mind capitals. Is “haus” a German word?",
)
def lowercased(hypotheses, references):
    lower = [[[token.lower() for token in s] for s in side] for side in (hypotheses, references)]
    return _bleu(*lower)


@misconception(
    "M135",
    "corpus_bleu",
    title="the mean of the sentences' BLEU",
    source="common",
    effect="A sentence without a matching 4-gram counts 0, most short ones do, and the mean is far "
    "from the corpus's score.",
    hint="You score each sentence and take the mean. When does BLEU add up its counts: before or "
    "after dividing?",
)
def mean_of_sentences(hypotheses, references):
    scores = [_bleu([h], [r]) for h, r in zip(hypotheses, references, strict=True)]
    return sum(scores) / len(scores)


@misconception(
    "M136",
    "corpus_bleu",
    title="matches not clipped",
    source="a plausible slip",
    effect="“the the the the” gets full marks for unigrams.",
    hint="A word that is repeated is counted as right each time. How often may it be?",
)
def not_clipped(hypotheses, references):
    return _bleu(hypotheses, references, clip=False)


@misconception(
    "M137",
    "corpus_bleu",
    title="no brevity penalty",
    source="a plausible slip",
    effect="Whoever says only what is certain wins.",
    hint="Leave words out of the hypotheses, and your score rises. What keeps short output from "
    "winning?",
)
def no_brevity_penalty(hypotheses, references):
    return _bleu(hypotheses, references, brevity=lambda c, r: 1.0)


@misconception(
    "M138",
    "corpus_bleu",
    title="the brevity penalty upside down",
    source="a plausible slip: exp(1 − c/r)",
    effect="Long output is punished, short output is not.",
    hint="You punish output that is longer than the reference. Which of the two lengths is divided "
    "by which?",
)
def brevity_upside_down(hypotheses, references):
    return _bleu(hypotheses, references, brevity=lambda c, r: 1.0 if c < r else math.exp(1 - c / r))


@misconception(
    "M139",
    "corpus_bleu",
    title="the arithmetic mean of the precisions",
    source="a plausible slip",
    effect="Unigrams, of which many match by chance, decide.",
    hint="Your score is too high. Which mean of the four precisions is 0 if one of them is?",
)
def arithmetic_mean(hypotheses, references):
    return _bleu(hypotheses, references, mean=lambda p: sum(p) / len(p))


@misconception(
    "M140",
    "corpus_bleu",
    title="up to trigrams only",
    source="a plausible slip: range(1, 4)",
    effect="Word order beyond three words does not matter.",
    hint="Your score is too high. Up to which n does BLEU count, and what does range(1, n) end "
    "with?",
)
def trigrams_only(hypotheses, references):
    return _bleu(hypotheses, references, most=3)


@misconception(
    "M141",
    "corpus_bleu",
    title="between 0 and 1",
    source="common: NLTK's scale beside sacreBLEU's",
    effect="0.27 and 27 mean the same; in one table they look like a hundredfold difference.",
    hint="Your score is right but for a factor. On which scale does sacreBLEU print?",
)
def between_0_and_1(hypotheses, references):
    return _bleu(hypotheses, references) / 100


@misconception(
    "M142",
    "bootstrap_wins",
    title="the systems are resampled apart",
    source="common",
    effect="Each has other sentences, easy or hard; differences that are real drown in that.",
    hint="Your two systems are judged on different sentences. What does “paired” mean?",
)
def not_paired(scores_a, scores_b, indices):
    wins = scores_a[indices].mean(dim=1) > scores_b[indices.flip(0)].mean(dim=1)
    return wins.double().mean().item()


@misconception(
    "M143",
    "bootstrap_wins",
    title="sentences that are won, not samples",
    source="a plausible slip",
    effect="That is how often A is better, not how sure the difference of the means is.",
    hint="You count sentences. What is compared in each sample: every sentence, or a mean?",
)
def sentences_won(scores_a, scores_b, indices):
    return (scores_a > scores_b).double().mean().item()


@misconception(
    "M241",
    "bootstrap_wins",
    title="drawn sentences that are won, not samples",
    source="an answer in a trial of the checks",
    effect="That is how often A is better in a sentence; more samples do not make it surer.",
    hint="You compare sentence by sentence within each draw. What is compared in a draw: every "
    "sentence, or a mean?",
)
def drawn_sentences_won(scores_a, scores_b, indices):
    return (scores_a[indices] > scores_b[indices]).double().mean().item()


@misconception(
    "M144",
    "bootstrap_wins",
    title="the wins of B",
    source="a plausible slip",
    effect="The better system seems the worse.",
    hint="Your share and the right one add up to 1. Whose wins do you count?",
)
def wins_of_b(scores_a, scores_b, indices):
    return (scores_b[indices].mean(dim=1) > scores_a[indices].mean(dim=1)).double().mean().item()


@misconception(
    "M145",
    "bootstrap_wins",
    title="the whole test set each time",
    source="a plausible slip: the indices are not used",
    effect="Every sample is the same, and the answer is 0 or 1.",
    hint="All your samples are the same. Where do you use the drawn indices?",
)
def not_resampled(scores_a, scores_b, indices):
    return float(torch.mean(scores_a) > torch.mean(scores_b))


@misconception(
    "M213",
    "corpus_bleu",
    title="n-grams pooled before they are clipped",
    source="an answer in a trial of the checks",
    effect="A word may match the reference of another sentence, so the score is too high.",
    hint="In your count a word can match the reference of another sentence. Before or after "
    "clipping are the sentences' counts added up?",
)
def pooled_before_clipping(hypotheses, references):
    matches, totals = [], []
    for n in range(1, 5):
        ours = sum((ngram_counts(h, n) for h in hypotheses), Counter())
        theirs = sum((ngram_counts(r, n) for r in references), Counter())
        matches.append((ours & theirs).total())
        totals.append(ours.total())
    if min(matches) == 0:
        return 0.0
    length, reference = sum(map(len, hypotheses)), sum(map(len, references))
    brevity = min(1.0, math.exp(1 - reference / length))
    logs = [math.log(m / t) for m, t in zip(matches, totals, strict=True)]
    return 100 * brevity * math.exp(sum(logs) / 4)


@misconception(
    "M214",
    "corpus_bleu",
    title="divided by the reference's n-grams",
    source="an answer in a trial of the checks: recall, as in ROUGE",
    effect="Long output is rewarded twice: it finds more, and nothing is divided by its length.",
    hint="You measure how much of the reference was found. BLEU is made of precisions: of what are "
    "they shares?",
)
def recall_instead_of_precision(hypotheses, references):
    matches, totals = [0] * 4, [0] * 4
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(4):
            ours, theirs = ngram_counts(hypothesis, n + 1), ngram_counts(reference, n + 1)
            matches[n] += (ours & theirs).total()
            totals[n] += theirs.total()
    if min(matches) == 0:
        return 0.0
    length, reference = sum(map(len, hypotheses)), sum(map(len, references))
    brevity = min(1.0, math.exp(1 - reference / length))
    logs = [math.log(m / t) for m, t in zip(matches, totals, strict=True)]
    return 100 * brevity * math.exp(sum(logs) / 4)


@misconception(
    "M215",
    "bootstrap_wins",
    title="a draw in which both are equal counts as won",
    source="an answer in a trial of the checks: ≥ where > was meant",
    effect="Two systems with the same output beat each other in every draw.",
    hint="Who wins a draw in which both means are the same?",
)
def equal_counts_as_won(scores_a, scores_b, indices):
    a, b = scores_a[indices].double().mean(dim=1), scores_b[indices].double().mean(dim=1)
    return (a >= b).double().mean().item()


@misconception(
    "M216",
    "bootstrap_wins",
    title="only A is drawn anew",
    source="an answer in a trial of the checks",
    effect="Not paired any more: the luck of the draw counts for A and against nobody.",
    hint="A's sentences are drawn anew each time. And B's?",
)
def only_a_is_drawn(scores_a, scores_b, indices):
    a = scores_a[indices].double().mean(dim=1)
    return (a > scores_b.double().mean()).double().mean().item()


@misconception(
    "M562",
    "corpus_bleu",
    title="long output is rewarded",
    source="an answer in a trial of the checks: exp(1 − r/c) without its limit",
    effect="A translation that is too long gets more than its precision.",
    hint="Where the output is longer than its reference, your score is higher than its precision. "
    "What is the largest value that a penalty may have?",
)
def long_output_rewarded(hypotheses, references):
    return _bleu(hypotheses, references, brevity=lambda c, r: math.exp(1 - r / c))


@misconception(
    "M563",
    "corpus_bleu",
    title="at least one n-gram in each sentence",
    source="an answer in a trial of the checks: max(1, …), as in NLTK",
    effect="Sentences that are too short to have four words lower the precision.",
    hint="Only short sentences bring you down. How many runs of four words has a sentence of two, "
    "and how many do you count?",
)
def one_at_least(hypotheses, references):
    return _bleu(hypotheses, references, least=1)
