"""Mistakes in BLEU and in comparing two systems. Sentences come as lists of tokens."""

import math
from collections import Counter

import torch
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from transformer_lib.course.misconceptions.bank import misconception
from transformer_lib.metrics.bleu import ngram_counts


def _matches(hypothesis, reference, n):
    return (ngram_counts(hypothesis, n) & ngram_counts(reference, n)).total()


def _total(hypothesis, reference, n):
    return ngram_counts(hypothesis, n).total()


def _bleu(hypotheses, references, matches=_matches, total=_total, most=4, brevity=None, mean=None):
    """As it should be, but for what is switched."""
    pairs = list(zip(hypotheses, references, strict=True))
    precisions = [
        sum(matches(h, r, n) for h, r in pairs) / max(1, sum(total(h, r, n) for h, r in pairs))
        for n in range(1, most + 1)
    ]
    return _score(precisions, hypotheses, references, brevity, mean)


def _brevity(length, reference_length):
    return 1.0 if length > reference_length else math.exp(1 - reference_length / length)


def _score(precisions, hypotheses, references, brevity=None, mean=None):
    if min(precisions) == 0:
        return 0.0
    length, reference_length = sum(map(len, hypotheses)), sum(map(len, references))
    brevity = brevity or _brevity
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
    def matches(hypothesis, reference, n):
        known = ngram_counts(reference, n)
        return sum(count for run, count in ngram_counts(hypothesis, n).items() if run in known)

    return _bleu(hypotheses, references, matches)


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
    hint="In your count a word can match the reference of another sentence. Are the "
    "sentences' counts added up before or after clipping?",
)
def pooled_before_clipping(hypotheses, references):
    precisions = []
    for n in range(1, 5):
        ours, theirs = (
            sum((ngram_counts(sentence, n) for sentence in side), Counter())
            for side in (hypotheses, references)
        )
        precisions.append((ours & theirs).total() / max(1, ours.total()))
    return _score(precisions, hypotheses, references)


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
    return _bleu(hypotheses, references, total=lambda h, r, n: ngram_counts(r, n).total())


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
    hint="Only short sentences bring you down. How many runs of four words does a sentence of two "
    "have, and how many do you count?",
)
def one_at_least(hypotheses, references):
    return _bleu(hypotheses, references, total=lambda h, r, n: max(1, _total(h, r, n)))


def _distinct_matches(hypothesis, reference, n):
    return len(ngram_counts(hypothesis, n).keys() & ngram_counts(reference, n).keys())


@misconception(
    "M567",
    "corpus_bleu",
    title="an n-gram that occurs twice counts once",
    source="an answer in a trial of the checks: sets instead of counts",
    effect="Repeated words that are right in both places get half of their credit.",
    hint="Where something is said twice, and rightly so, you count it once. Which collection knows "
    "how often something occurs?",
)
def matches_as_a_set(hypotheses, references):
    return _bleu(hypotheses, references, _distinct_matches)


@misconception(
    "M568",
    "corpus_bleu",
    title="the set of n-grams on both sides",
    source="an answer in a trial of the checks: sets for matches and for totals",
    effect="Repetition costs nothing: “the the the” is one word.",
    hint="You count each n-gram of a sentence once, however often it is said. Should repetition be "
    "free?",
)
def everything_as_a_set(hypotheses, references):
    return _bleu(hypotheses, references, _distinct_matches, lambda h, r, n: len(ngram_counts(h, n)))


@misconception(
    "M569",
    "corpus_bleu",
    title="the last n-gram of each sentence is missing",
    source="an answer in a trial of the checks: range(len(s) − n)",
    effect="A sentence of four words has no run of four.",
    hint="Count by hand the pairs of words in a sentence of three. Where does your range end?",
)
def last_missing(hypotheses, references):
    return _bleu(
        hypotheses,
        references,
        lambda h, r, n: _matches(h[:-1], r[:-1], n),
        lambda h, r, n: _total(h[:-1], r, n),
    )


@misconception(
    "M570",
    "corpus_bleu",
    title="slices that run over the end",
    source="an answer in a trial of the checks: range(len(s))",
    effect="The ends of sentences count again as runs that are too short.",
    hint="Print the runs of four words of a sentence of five. Are all of them four words long?",
)
def slices_over_the_end(hypotheses, references):
    def runs(sentence, n):
        return Counter(tuple(sentence[i : i + n]) for i in range(len(sentence)))

    def matches(hypothesis, reference, n):
        return (runs(hypothesis, n) & runs(reference, n)).total()

    return _bleu(hypotheses, references, matches, lambda h, r, n: len(h))


@misconception(
    "M571",
    "corpus_bleu",
    title="the whole corpus as one sentence",
    source="an answer in a trial of the checks: all sentences joined before counting",
    effect="Words match the references of other sentences, and runs cross from one sentence to the "
    "next.",
    hint="In your count a run of words can begin in one sentence and end in the next. What is it "
    "that is added up over sentences?",
)
def one_long_sentence(hypotheses, references):
    joined = (
        [[token for sentence in side for token in sentence]] for side in (hypotheses, references)
    )
    return _bleu(*joined)


@misconception(
    "M572",
    "corpus_bleu",
    title="the mean of the sentences' precisions",
    source="an answer in a trial of the checks: divided sentence by sentence",
    effect="A short sentence counts as much as a long one.",
    hint="A sentence of three words weighs as much as one of thirty. What is divided by what in "
    "corpus BLEU?",
)
def mean_of_precisions(hypotheses, references):
    means = []
    for n in range(1, 5):
        shares = [
            _matches(h, r, n) / total
            for h, r in zip(hypotheses, references, strict=True)
            if (total := _total(h, r, n))
        ]
        means.append(sum(shares) / max(1, len(shares)))
    return _score(means, hypotheses, references)


@misconception(
    "M573",
    "corpus_bleu",
    title="a brevity penalty for each sentence",
    source="an answer in a trial of the checks: the mean of the sentences' penalties",
    effect="A long sentence no longer makes up for a short one.",
    hint="Your precisions are right. Whose lengths does the penalty compare: those of each "
    "sentence, or of all together?",
)
def penalty_of_each_sentence(hypotheses, references):
    penalties = [
        min(1.0, math.exp(1 - len(r) / len(h))) for h, r in zip(hypotheses, references, strict=True)
    ]
    return _bleu(hypotheses, references, brevity=lambda c, r: sum(penalties) / len(penalties))


@misconception(
    "M574",
    "corpus_bleu",
    title="the penalty is the share of the length",
    source="an answer in a trial of the checks: c/r instead of exp(1 − r/c)",
    effect="Output of half the length keeps half of its score instead of 37%.",
    hint="Your penalty for short output is too mild. Which function of the two lengths is it?",
)
def share_of_the_length(hypotheses, references):
    return _bleu(hypotheses, references, brevity=lambda c, r: min(1.0, c / r))


@misconception(
    "M575",
    "bootstrap_wins",
    title="the mean over all samples",
    source="an answer in a trial of the checks: mean() without an axis",
    effect="One comparison instead of a thousand, so the answer is 0 or 1.",
    hint="You take one mean over all samples together, and compare once. Over which axis is the "
    "mean of each sample?",
)
def all_samples_together(scores_a, scores_b, indices):
    return float(scores_a[indices].double().mean() > scores_b[indices].double().mean())


@misconception(
    "M576",
    "bootstrap_wins",
    title="the share made a whole number",
    source="an answer in a trial of the checks: round",
    effect="The answer is 0 or 1, and says who is ahead, not how surely.",
    hint="Your answer is 0 or 1. What becomes of the share on its way out?",
)
def rounded(scores_a, scores_b, indices):
    a, b = scores_a[indices].double().mean(dim=1), scores_b[indices].double().mean(dim=1)
    return float(round((a > b).double().mean().item()))


@misconception(
    "M611",
    "bootstrap_wins",
    title="a sentence counts once, however often it is drawn",
    source="answers in a trial of the checks: scatter_ that writes a 1 where it should add, or a "
    "boolean index",
    effect="Each sample is a subset of the test set and no longer a draw with replacement.",
    hint="A sentence that is drawn three times counts once in yours. Where do the other two get "
    "lost?",
)
def drawn_once(scores_a, scores_b, indices):
    drawn = torch.zeros(len(indices), len(scores_a), dtype=torch.double)
    drawn.scatter_(1, indices, 1.0)
    difference = drawn @ (scores_a - scores_b).double()
    return (difference > 0).double().mean().item()


@misconception(
    "M622",
    "corpus_bleu",
    title="sentences shorter than n subtract n-grams",
    source="an answer in a trial of the checks: length − n + 1 where that is negative",
    effect="The precision rises with each sentence of one or two words.",
    hint="How many 4-grams does a sentence of two words have? In yours, −1.",
)
def negative_numbers_of_ngrams(hypotheses, references):
    pairs = list(zip(hypotheses, references, strict=True))
    precisions = []
    for n in range(1, 5):
        matches = sum(_matches(h, r, n) for h, r in pairs)
        if matches == 0:
            return 0.0
        precisions.append(matches / sum(len(h) - n + 1 for h, _ in pairs))
    list(map(math.log, precisions))  # of a negative one an error, as in the answers
    return _score(precisions, hypotheses, references)


@misconception(
    "M623",
    "bootstrap_wins",
    title="the mean over the samples",
    source="an answer in a trial of the checks: mean(0) for mean(1)",
    effect="Positions within the draws are compared, not samples.",
    hint="Your means run over the samples. Over what should the mean of one sample run?",
)
def mean_over_samples(scores_a, scores_b, indices):
    wins = scores_a[indices].mean(dim=0) > scores_b[indices].mean(dim=0)
    return wins.double().mean().item()


@misconception(
    "M845",
    "bootstrap_wins",
    title="who wins more sentences",
    source="an answer in a trial of the checks: a majority in place of a mean",
    effect="By how much a sentence is better has no influence.",
    hint="In a sample, what do you compare: the mean scores, or how many sentences each is better "
    "in?",
)
def majority_of_sentences(scores_a, scores_b, indices):
    better = (scores_a[indices] > scores_b[indices]).double().mean(dim=1)
    return (better > 0.5).double().mean().item()


@misconception(
    "M783",
    "corpus_bleu",
    title="lengths of which the output has no n-grams are left out",
    source="an answer in a trial of the checks; sentence BLEU with an “effective order”",
    effect="Output of three words per sentence can have 100 BLEU, without a single run of four.",
    hint="If no sentence of the output has four words, you go by shorter runs alone. How many "
    "matches of four words are there?",
)
def lengths_left_out(hypotheses, references):
    pairs = list(zip(hypotheses, references, strict=True))
    precisions = []
    for n in range(1, 5):
        total = sum(max(0, len(h) - n + 1) for h, _ in pairs)
        matches = sum(_matches(h, r, n) for h, r in pairs)
        if total and not matches:
            return 0.0
        if total:
            precisions.append(matches / total)
    return _score(precisions, hypotheses, references)


@misconception(
    "M800",
    "corpus_bleu",
    title="words are cut once more",
    source="an answer in a trial of the checks, with a function for text that was at hand",
    effect="“Kino.” counts as two words: BLEU of another segmentation than the given one.",
    hint="You cut into words what is cut already: “Kino.” is a single one here. What do you get?",
)
def cut_once_more(hypotheses, references):
    said, wanted = (
        [Tokenizer13a()(" ".join(sentence)).split() for sentence in side]
        for side in (hypotheses, references)
    )
    given = [sum(map(len, side)) for side in (hypotheses, references)]
    return _bleu(said, wanted, brevity=lambda *_: _brevity(*given))
