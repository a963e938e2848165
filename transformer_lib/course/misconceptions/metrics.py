"""Mistakes in the bootstrap of BLEU, in chrF and in measuring agreement."""

import math
from collections import Counter

import torch

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.metrics.bleu import ngram_counts


def _brevity(output, reference):
    return (1 - reference / output).clamp(max=0)


def _log_precision(total):
    return (total[..., :4] / total[..., 4:8]).log().mean(dim=-1)


def _bleu(total, brevity=_brevity, log_precision=_log_precision):
    """Of the sums, in double precision, but for what is switched."""
    return 100 * (log_precision(total) + brevity(total[..., 8], total[..., 9])).exp()


def _difference(counts_a, counts_b, indices, **switched):
    a, b = (counts[indices].sum(dim=1).double() for counts in (counts_a, counts_b))
    return _bleu(a, **switched) - _bleu(b, **switched)


@also("M142", "bootstrap_bleu")
def drawn_apart(counts_a, counts_b, indices):
    a, b = counts_a[indices].sum(dim=1), counts_b[indices.roll(1, dims=0)].sum(dim=1)
    return _bleu(a.double()) - _bleu(b.double())


@misconception(
    "M637",
    "bootstrap_bleu",
    title="the mean of the sentences' BLEU",
    source="common: a bootstrap of scores where BLEU is meant",
    effect="Another measure than the one in the table: a sentence without a common run of four "
    "words counts 0.",
    hint="You score each sentence and take the mean of a draw. When does BLEU divide: before or "
    "after the sentences are added up?",
)
def mean_of_sentence_scores(counts_a, counts_b, indices):
    a, b = (_bleu(counts.double()) for counts in (counts_a, counts_b))
    return a[indices].mean(dim=1) - b[indices].mean(dim=1)


@misconception(
    "M638",
    "bootstrap_bleu",
    title="B minus A",
    source="a plausible slip",
    effect="The wrong system is reported as the better one.",
    hint="All signs are turned round. Which one is to be taken from which?",
)
def turned_round(counts_a, counts_b, indices):
    return -_difference(counts_a, counts_b, indices)


@also("M137", "bootstrap_bleu")
def no_penalty(counts_a, counts_b, indices):
    return _difference(counts_a, counts_b, indices, brevity=lambda c, r: torch.zeros_like(c))


@also("M138", "bootstrap_bleu")
def penalty_upside_down(counts_a, counts_b, indices):
    return _difference(counts_a, counts_b, indices, brevity=lambda c, r: (1 - c / r).clamp(max=0))


@misconception(
    "M639",
    "bootstrap_bleu",
    title="long output is rewarded",
    source="a plausible slip: exp(1 − r/c) without the limit of 1",
    effect="Whoever says more than the reference gets points for it.",
    hint="Where the output is longer than the reference, yours is too high. How large may the "
    "brevity penalty become?",
)
def without_the_limit(counts_a, counts_b, indices):
    return _difference(counts_a, counts_b, indices, brevity=lambda c, r: 1 - r / c)


@also("M139", "bootstrap_bleu")
def arithmetic_mean(counts_a, counts_b, indices):
    def log_precision(total):
        return (total[..., :4] / total[..., 4:8]).mean(dim=-1).log()

    return _difference(counts_a, counts_b, indices, log_precision=log_precision)


@also("M140", "bootstrap_bleu")
def trigrams_only(counts_a, counts_b, indices):
    def log_precision(total):
        return (total[..., :3] / total[..., 4:7]).log().mean(dim=-1)

    return _difference(counts_a, counts_b, indices, log_precision=log_precision)


@also("M141", "bootstrap_bleu")
def between_0_and_1(counts_a, counts_b, indices):
    return _difference(counts_a, counts_b, indices) / 100


@also("M611", "bootstrap_bleu")
def drawn_once(counts_a, counts_b, indices):
    drawn = torch.zeros(len(indices), len(counts_a), dtype=torch.double)
    drawn.scatter_(1, indices, 1.0)
    return _bleu(drawn @ counts_a.double()) - _bleu(drawn @ counts_b.double())


@misconception(
    "M640",
    "bootstrap_bleu",
    title="precisions of sentences, averaged",
    source="a plausible slip: the ratio is taken before the sum",
    effect="A short sentence weighs as much as a long one.",
    hint="The precision of a sample is one fraction. Are its counts added up before you divide?",
)
def ratios_before_the_sum(counts_a, counts_b, indices):
    def bleu(counts):
        drawn = counts[indices].double()
        log_precision = (drawn[..., :4] / drawn[..., 4:8]).mean(dim=1).log().mean(dim=-1)
        total = drawn.sum(dim=1)
        return 100 * (log_precision + _brevity(total[:, 8], total[:, 9])).exp()

    return bleu(counts_a) - bleu(counts_b)


@misconception(
    "M641",
    "bootstrap_bleu",
    title="the penalty of each sentence",
    source="a plausible slip",
    effect="Each sentence that is a word too short is punished, and one that is a word too long "
    "does not make up for it.",
    hint="One sentence is too short and the next too long. Which two lengths does the brevity "
    "penalty compare?",
)
def penalty_of_each_sentence(counts_a, counts_b, indices):
    def bleu(counts):
        drawn = counts[indices].double()
        brevity = _brevity(drawn[..., 8], drawn[..., 9]).exp().mean(dim=1)
        return 100 * brevity * _log_precision(drawn.sum(dim=1)).exp()

    return bleu(counts_a) - bleu(counts_b)


@misconception(
    "M642",
    "bootstrap_bleu",
    title="summed over the samples",
    source="a plausible slip: sum(0) for sum(1)",
    effect="What is scored is a place in all draws, not a draw.",
    hint="A sample is a row of `indices`. Over which axis of `counts[indices]` does its sum run?",
)
def summed_over_samples(counts_a, counts_b, indices):
    a, b = (counts[indices].sum(dim=0).double() for counts in (counts_a, counts_b))
    return _bleu(a) - _bleu(b)


@misconception(
    "M643",
    "bootstrap_bleu",
    title="one share for the differences",
    source="a plausible slip: bootstrap_wins, with counts",
    effect="Says how often A is ahead; how far, and with it the interval, is lost.",
    hint="You return one number. Asked for is the difference of each sample.",
)
def share_of_wins(counts_a, counts_b, indices):
    return (_difference(counts_a, counts_b, indices) > 0).double().mean()


@misconception(
    "M756",
    "bootstrap_bleu",
    title="one draw without a match makes all of them 0",
    source="an answer in a trial of the checks: any() over all draws",
    effect="On small test sets, in which some draws have no common run of four words, the whole "
    "bootstrap is lost.",
    hint="Where all draws have a match, or none has, you are right. Over what does your test for 0 "
    "run?",
)
def all_draws_zero(counts_a, counts_b, indices):
    def bleu(counts):
        total = counts[indices].sum(dim=1).double()
        return 0 * total[:, 0] if (total[:, :4] == 0).any() else _bleu(total)

    return bleu(counts_a) - bleu(counts_b)


def _characters(text, n):
    return ngram_counts("".join(text.split()), n)


def _f_score(precision, recall, beta=2):
    if not precision and not recall:
        return 0.0
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def _totals(hypotheses, references, grams=_characters, matched=None, most=6, too_short=True):
    """For each n: matches, runs of the output, runs of the reference."""
    matched = matched or (lambda ours, theirs: (ours & theirs).total())
    for n in range(1, most + 1):
        pairs = [(grams(h, n), grams(r, n)) for h, r in zip(hypotheses, references, strict=True)]
        said = sum(ours.total() for ours, theirs in pairs if theirs or not too_short)
        yield sum(matched(*pair) for pair in pairs), said, sum(r.total() for _, r in pairs)


def _means(totals):
    each = [(m / said, m / wanted) for m, said, wanted in totals if said and wanted]
    return [sum(side) / len(each) for side in zip(*each, strict=True)] if each else (0.0, 0.0)


def _chrf(hypotheses, references, beta=2, **switched):
    precision, recall = _means(_totals(hypotheses, references, **switched))
    return 100 * _f_score(precision, recall, beta)


@misconception(
    "M644",
    "chrf",
    title="spaces count as characters",
    source="common: implementations with an option for it",
    effect="A space too many costs as much as a wrong letter.",
    hint="A second space between two words changes your score. Which characters count?",
)
def with_spaces(hypotheses, references):
    return _chrf(hypotheses, references, grams=ngram_counts)


@misconception(
    "M964",
    "chrf",
    title="zero as soon as one length has no match",
    source="an answer in a trial of the checks, after BLEU",
    effect="Without a common run of some length the score is 0, however many shorter ones match.",
    hint="Where no run of some length matches, your score is 0. In BLEU the precisions are "
    "multiplied; what is done with them here?",
)
def zero_without_a_match(hypotheses, references):
    totals = _totals(hypotheses, references)
    if any(said and wanted and not matches for matches, said, wanted in totals):
        return 0.0
    return _chrf(hypotheses, references)


@misconception(
    "M645",
    "chrf",
    title="precision and recall weigh alike",
    source="common: F1 for F2 (chrF1 and chrF3 exist, too)",
    effect="What is missing costs less than it should.",
    hint="You give what is missing and what is superfluous the same weight. What does the 2 in "
    "chrF2 say?",
)
def balanced(hypotheses, references):
    return _chrf(hypotheses, references, beta=1)


@misconception(
    "M646",
    "chrf",
    title="precision weighs more, not recall",
    source="a plausible slip: β² at the recall in the denominator",
    effect="Short output is rewarded.",
    hint="Short output scores too high, and long output too low. Which of the two does β² multiply "
    "in the denominator?",
)
def precision_first(hypotheses, references):
    return _chrf(hypotheses, references, beta=0.5)


@misconception(
    "M647",
    "chrf",
    title="β where β² belongs",
    source="a plausible slip",
    effect="Recall counts less than it should.",
    hint="Your recall has too little weight. Is it β that occurs in the formula, or its square?",
)
def beta_not_squared(hypotheses, references):
    return _chrf(hypotheses, references, beta=math.sqrt(2))


@misconception(
    "M648",
    "chrf",
    title="the mean of six F-scores",
    source="common: the F-score of each length is averaged",
    effect="Too low: the F-scores of the long runs, in which precision and recall are small, "
    "decide.",
    hint="With one length of runs you are right. What is averaged over the lengths: F, or "
    "precision and recall?",
)
def mean_of_f_scores(hypotheses, references):
    totals = [t for t in _totals(hypotheses, references) if t[1] and t[2]]
    each = [_f_score(m / said, m / wanted) for m, said, wanted in totals]
    return 100 * sum(each) / len(each) if each else 0.0


@misconception(
    "M649",
    "chrf",
    title="all lengths in one fraction",
    source="a plausible slip: the counts of all lengths are added up",
    effect="Short runs, of which there are more and which match by chance, decide.",
    hint="Your runs of one character weigh more than those of six. How many fractions are "
    "averaged?",
)
def all_lengths_pooled(hypotheses, references):
    matches, said, wanted = map(sum, zip(*_totals(hypotheses, references), strict=True))
    return 100 * _f_score(matches / said, matches / wanted)


@misconception(
    "M650",
    "chrf",
    title="the mean of the sentences' chrF",
    source="common: a mean of sentence scores",
    effect="A short sentence counts as much as a long one.",
    hint="With one sentence you are right. When are the counts of the sentences added up: before "
    "or after dividing?",
)
def mean_of_sentences(hypotheses, references):
    each = [_chrf([h], [r]) for h, r in zip(hypotheses, references, strict=True)]
    return sum(each) / len(each)


@misconception(
    "M651",
    "chrf",
    title="matches not clipped",
    source="a plausible slip",
    effect="A run that is repeated is right each time.",
    hint="“das das das” gets full marks for a reference with one “das”. How often may a run match?",
)
def not_clipped(hypotheses, references):
    def matched(ours, theirs):
        return sum(count for run, count in ours.items() if run in theirs)

    return _chrf(hypotheses, references, matched=matched)


@misconception(
    "M652",
    "chrf",
    title="runs of words",
    source="a plausible slip: BLEU's n-grams",
    effect="“Autos” for “Auto” is wrong altogether.",
    hint="A word with one wrong letter gets nothing from you. What is chrF made of?",
)
def of_words(hypotheses, references):
    return _chrf(hypotheses, references, grams=lambda text, n: ngram_counts(text.split(), n))


@misconception(
    "M653",
    "chrf",
    title="up to five characters",
    source="a plausible slip: range(1, 6)",
    effect="Too high: long runs, which match least, are left out.",
    hint="Your score is a little too high. Up to which n does chrF count, and what does "
    "range(1, n) end with?",
)
def up_to_five(hypotheses, references):
    return _chrf(hypotheses, references, most=5)


@misconception(
    "M654",
    "chrf",
    title="up to four characters",
    source="a plausible slip: BLEU's four",
    effect="Too high: long runs, which match least, are left out.",
    hint="Your score is too high. Four is BLEU's number. Up to which n does chrF count?",
)
def up_to_four(hypotheses, references):
    return _chrf(hypotheses, references, most=4)


@misconception(
    "M655",
    "chrf",
    title="runs count that the reference is too short for",
    source="the formula, taken literally",
    effect="On test sets with short references a little below sacreBLEU's number.",
    hint="A reference of three characters has no run of four. Do those of its hypothesis count?",
)
def too_long_for_the_reference(hypotheses, references):
    return _chrf(hypotheses, references, too_short=False)


@misconception(
    "M656",
    "chrf",
    title="lengths that do not occur count as 0",
    source="a plausible slip: a division by six, however many lengths there are",
    effect="Short texts score too low, even where they are right.",
    hint="Where no sentence has six characters, yours is too low. Over how many lengths is the "
    "mean?",
)
def missing_lengths_as_zero(hypotheses, references):
    totals = list(_totals(hypotheses, references))
    precision = sum(m / said for m, said, _ in totals if said) / 6
    recall = sum(m / wanted for m, _, wanted in totals if wanted) / 6
    return 100 * _f_score(precision, recall)


@misconception(
    "M657",
    "chrf",
    title="each run counts once",
    source="a plausible slip: sets for counts",
    effect="Repetitions, wanted and unwanted, are not seen.",
    hint="A run that occurs twice counts once in yours, in the output and in the reference. What "
    "keeps numbers, where a set does not?",
)
def as_sets(hypotheses, references):
    def grams(text, n):
        return Counter(set(_characters(text, n)))

    return _chrf(hypotheses, references, grams=grams)


@also("M29", "chrf")
def lower_cased(hypotheses, references):
    return _chrf(*([text.lower() for text in side] for side in (hypotheses, references)))


@misconception(
    "M658",
    "chrf",
    title="between 0 and 1",
    source="common: NLTK's scale beside sacreBLEU's",
    effect="0.56 and 56 mean the same; in one table they look like a hundredfold difference.",
    hint="Your score is right but for a factor. On which scale is it asked for?",
)
def chrf_between_0_and_1(hypotheses, references):
    return _chrf(hypotheses, references) / 100


@misconception(
    "M757",
    "chrf",
    title="matches clipped over the whole corpus",
    source="an answer in a trial of the checks: the counts of all sentences in one Counter",
    effect="A run that is too much in one sentence is right because another sentence lacks it.",
    hint="With one sentence you are right. Between which two texts may a run match?",
)
def clipped_over_the_corpus(hypotheses, references):
    def totals():
        for n in range(1, 7):
            pairs = zip(hypotheses, references, strict=True)
            grams = [(_characters(h, n), _characters(r, n)) for h, r in pairs]
            said = sum((ours for ours, theirs in grams if theirs), Counter[str]())
            wanted = sum((theirs for _, theirs in grams), Counter[str]())
            yield (said & wanted).total(), said.total(), wanted.total()

    return 100 * _f_score(*_means(totals()))


@misconception(
    "M758",
    "chrf",
    title="lengths without a match are left out",
    source="an answer in a trial of the checks",
    effect="Output that is so bad that no long run matches scores higher than it should.",
    hint="Where there are runs and none of them matches, yours is too high. What is the precision "
    "of such a length?",
)
def unmatched_lengths_left_out(hypotheses, references):
    totals = [t for t in _totals(hypotheses, references) if t[0]]
    return 100 * _f_score(*_means(totals))


@misconception(
    "M759",
    "chrf",
    title="no run crosses a space",
    source="an answer in a trial of the checks: runs inside each word",
    effect="The order of the words costs nothing.",
    hint="You are right as long as there is one word. Where does a run end for you, if spaces are "
    "not there?",
)
def inside_words(hypotheses, references):
    def grams(text, n):
        return sum((ngram_counts(word, n) for word in text.split()), Counter())

    return _chrf(hypotheses, references, grams=grams)


def _agreement(first, second):
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first)


def _by_chance(first, second):
    one, two = Counter(first), Counter(second)
    return sum(one[kind] * two[kind] for kind in one) / len(first) ** 2


def _beyond(observed, chance):
    return (observed - chance) / (1 - chance)


@misconception(
    "M659",
    "kappa",
    title="the bare agreement",
    source="common: “the judges agreed in 82% of the cases”",
    effect="Two judges who nearly always say the same kind seem to agree, whatever they look at.",
    hint="You count how often both say the same. How often would they without looking?",
)
def bare_agreement(first, second):
    return _agreement(first, second)


@misconception(
    "M660",
    "kappa",
    title="chance taken off, and not divided",
    source="a plausible slip",
    effect="Even two judges who always agree do not reach 1.",
    hint="Two equal strings do not give 1. How much room does chance leave?",
)
def not_divided(first, second):
    return _agreement(first, second) - _by_chance(first, second)


@misconception(
    "M661",
    "kappa",
    title="all kinds taken to be equally frequent",
    source="another measure: Bennett's S (1954)",
    effect="Judges who often say `=` seem to agree more than they do.",
    hint="You take chance to be one over the number of kinds. Does each judge say all kinds "
    "equally often?",
)
def equally_frequent(first, second):
    return _beyond(_agreement(first, second), 1 / len(set(first + second)))


@misconception(
    "M662",
    "kappa",
    title="both judges' frequencies pooled",
    source="another measure: Scott's pi (1955)",
    effect="A little below kappa; the same if both judges say each kind equally often.",
    hint="You take one frequency of each kind for both judges. Whose frequencies are p₁ and p₂?",
)
def pooled(first, second):
    both = Counter(first + second)
    chance = sum((count / both.total()) ** 2 for count in both.values())
    return _beyond(_agreement(first, second), chance)


@misconception(
    "M663",
    "kappa",
    title="the first judge's frequencies, squared",
    source="a plausible slip",
    effect="What the second judge is like has no influence on chance.",
    hint="In your chance only one of the judges occurs. What does the other one say by chance?",
)
def first_judge_twice(first, second):
    return _beyond(_agreement(first, second), _by_chance(first, first))


@misconception(
    "M664",
    "kappa",
    title="divided by the agreement that was observed",
    source="a plausible slip: 1 − p_o in the denominator",
    effect="Grows beyond 1, and cannot be computed for two judges who always agree.",
    hint="What you divide by is what the judges missed. What is there to be gained beyond chance?",
)
def divided_by_disagreement(first, second):
    observed, chance = _agreement(first, second), _by_chance(first, second)
    return (observed - chance) / (1 - observed)


@misconception(
    "M665",
    "kappa",
    title="negative values cut off at 0",
    source="a plausible slip: max(0, …)",
    effect="Judges who contradict each other look like judges who guess.",
    hint="Two judges who never agree have less than chance gives. What is your result for them?",
)
def cut_off(first, second):
    return max(0.0, _beyond(_agreement(first, second), _by_chance(first, second)))


@misconception(
    "M666",
    "kappa",
    title="chance of every two kinds",
    source="a plausible slip: two loops for one",
    effect="Chance is then 1, whatever the judges say.",
    hint="Your chance is 1. Over which kinds does its sum run: the same for both judges, or every "
    "two?",
)
def every_two_kinds(first, second):
    one, two = Counter(first), Counter(second)
    chance = sum(a * b for a in one.values() for b in two.values()) / len(first) ** 2
    return _beyond(_agreement(first, second), chance)


@misconception(
    "M760",
    "kappa",
    title="chance of every judgment, not of every kind",
    source="an answer in a trial of the checks: a loop over the string",
    effect="A kind that was said ten times counts ten times, and chance can exceed 1.",
    hint="Your chance grows with the length of the strings. Over what does its sum run: over the "
    "kinds, or over all judgments?",
)
def over_all_judgments(first, second):
    one, two = Counter(first), Counter(second)
    chance = sum(one[kind] * two[kind] for kind in first) / len(first) ** 2
    return _beyond(_agreement(first, second), chance)


@misconception(
    "M761",
    "kappa",
    title="how often each kind was said, compared",
    source="an answer in a trial of the checks: the smaller of two counts",
    effect="Two judges who say each kind equally often agree, whatever they say it of.",
    hint="“AABB” and “BBAA” agree in yours. What do the judges have to say the same of?",
)
def agreement_of_counts(first, second):
    agreed = (Counter(first) & Counter(second)).total() / len(first)
    chance = _by_chance(first, second)
    return _beyond(agreed, chance) if chance < 1 else 1.0


@misconception(
    "M762",
    "kappa",
    title="pairs with a tie are left out",
    source="common: wins and losses alone",
    effect="Judges who differ in when they say `=` seem to agree.",
    hint="Where a judge said `=`, you look away. Is that not a judgment, too?",
)
def without_ties(first, second):
    decided = [pair for pair in zip(first, second, strict=True) if "=" not in pair]
    if not decided:
        return 0.0
    one, two = zip(*decided, strict=True)
    return _beyond(_agreement(one, two), _by_chance(one, two))


@misconception(
    "M784",
    "kappa",
    title="chance from the letters of the chapter alone",
    source="an answer in a trial of the checks: a loop over “AB=”",
    effect="Judges who say other letters have a chance of 0, and agree more than they do.",
    hint="For letters other than A, B and = your chance is 0. Which letters can a judge say?",
)
def letters_of_the_chapter(first, second):
    chance = sum(first.count(kind) * second.count(kind) for kind in "AB=") / len(first) ** 2
    return _beyond(_agreement(first, second), chance)


@misconception(
    "M843",
    "kappa",
    title="chance from a count and a share",
    source="an answer in a trial of the checks: divided by n for n²",
    effect="Chance is n times too large, mostly above 1.",
    hint="Your chance can be above 1. Is each of the two factors a share of all judgments?",
)
def chance_of_counts(first, second):
    return _beyond(_agreement(first, second), _by_chance(first, second) * len(first))
