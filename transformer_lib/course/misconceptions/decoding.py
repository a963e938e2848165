"""Mistakes in searching for a translation and in its bookkeeping.

What is right about it is in :mod:`transformer_lib.decoding`.
"""

import torch

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.vocabulary import BOS, EOS, PAD


def _penalty(length, alpha):
    return ((5.0 + length) / 6.0) ** alpha


@misconception(
    "M15",
    "greedy_decode",
    title="no limit to the length",
    source="the zh→en tutorial",
    effect="A model that never says </s>, such as an untrained one, is decoded for ever.",
    hint="If the model never says </s>, your loop never ends. Which argument could end it?",
)
def without_limit(next_logits, max_len):
    tokens = [BOS]
    while True:
        token = int(next_logits(tokens).argmax())
        if token == EOS:
            return tokens[1:]
        tokens.append(token)


@misconception(
    "M121",
    "greedy_decode",
    title="<s> and </s> stay in the translation",
    source="common",
    effect="Two tokens that are not words: BLEU counts them as errors.",
    hint="Your translation contains tokens that are not words. Which?",
)
def specials_kept(next_logits, max_len):
    tokens = [BOS]
    for _ in range(max_len):
        tokens.append(int(next_logits(tokens).argmax()))
        if tokens[-1] == EOS:
            break
    return tokens


@misconception(
    "M122",
    "greedy_decode",
    title="only the last token is shown to the model",
    source="common where a cache was in use before",
    effect="Without a cache the model forgets what it has said.",
    hint="Your model seems to forget what it has said. What do you pass to it in the second step?",
)
def last_token_only(next_logits, max_len):
    tokens, last = [], BOS
    for _ in range(max_len):
        last = int(next_logits([last]).argmax())
        if last == EOS:
            break
        tokens.append(last)
    return tokens


@misconception(
    "M123",
    "greedy_decode",
    title="goes on after </s>",
    source="common in batched decoding: a fixed number of steps for all",
    effect="What follows the end of the sentence is noise.",
    hint="Your translation goes on where the model has said that it is over. When do you stop?",
)
def does_not_stop(next_logits, max_len):
    tokens = [BOS]
    for _ in range(max_len):
        tokens.append(int(next_logits(tokens).argmax()))
    return [token for token in tokens[1:] if token != EOS]


@misconception(
    "M28",
    "best_hypothesis",
    title="no length penalty",
    source="common",
    effect="Every token lowers the sum of log-probabilities, so short translations win.",
    hint="You choose too short a translation. What does each further token do to a sum of "
    "log-probabilities?",
)
def no_penalty(log_p, lengths, alpha):
    return max(range(len(log_p)), key=lambda i: log_p[i])


@misconception(
    "M124",
    "length_penalty",
    title="the length itself as the penalty",
    source="Marian, fairseq and Hugging Face, where it is meant: |Y|^α",
    effect="Stronger than GNMT's: the same α favors longer translations.",
    hint="Your penalty at length 1 is 1, and so it should be. But it grows too fast: what does "
    "Wu et al.'s formula add to the length?",
)
def plain_length(length, alpha):
    return float(length) ** alpha


@misconception(
    "M125",
    "length_penalty",
    title="(5 + |Y|)/(5 + 1) without its exponent",
    source="a plausible slip",
    effect="As if α were 1.",
    hint="One of the arguments does not influence your result. Which?",
)
def without_alpha(length, alpha):
    return (5.0 + length) / 6.0


@misconception(
    "M126",
    "best_hypothesis",
    title="multiplied by the penalty",
    source="a plausible slip: log-probabilities are negative",
    effect="Long translations are punished twice.",
    hint="Your choice prefers short translations even more than no penalty would. "
    "Log-probabilities are negative: what does multiplying by a number above 1 do to them?",
)
def multiplied(log_p, lengths, alpha):
    return max(range(len(log_p)), key=lambda i: log_p[i] * _penalty(lengths[i], alpha))


@misconception(
    "M127",
    "best_hypothesis",
    title="the worst one",
    source="a plausible slip: min for max, as for a loss",
    effect="The least likely hypothesis is returned.",
    hint="You choose the least likely one. Are these numbers losses?",
)
def the_worst(log_p, lengths, alpha):
    return min(range(len(log_p)), key=lambda i: log_p[i] / _penalty(lengths[i], alpha))


@misconception(
    "M781",
    "best_hypothesis",
    title="the best so far begins at 0",
    source="an answer in a trial of the checks: best_score = 0.0",
    effect="All scores are below 0, so nothing is ever better: the first one is returned.",
    hint="You always return the first one. With what does the best score so far begin, and is any "
    "score larger than that?",
)
def always_the_first(log_p, lengths, alpha):
    return 0


@misconception(
    "M128",
    "best_continuations",
    title="the best of each hypothesis",
    source="common: top k within each row, one for each",
    effect="Not a beam: each hypothesis goes on alone, however unlikely it is.",
    hint="Each of your hypotheses has exactly one continuation. May a good one have two, and a bad "
    "one none?",
)
def one_each(scores, log_p, beam_size):
    best, tokens = (scores[:, None] + log_p).max(dim=1)
    order = best.argsort(descending=True)[:beam_size]
    return best[order], order, tokens[order]


@misconception(
    "M129",
    "best_continuations",
    title="the past is forgotten",
    source="a plausible slip: log p of the new token alone",
    effect="An unlikely beginning with one likely token beats everything.",
    hint="Your scores are those of the last token. What was the beginning worth?",
)
def past_forgotten(scores, log_p, beam_size):
    best, index = log_p.flatten().topk(beam_size)
    return best, index // log_p.size(1), index % log_p.size(1)


@misconception(
    "M130",
    "best_continuations",
    title="divided by the size of the beam instead of the vocabulary's",
    source="a plausible slip in index arithmetic",
    effect="Hypotheses and tokens are picked at random.",
    hint="Your scores are right, the hypotheses and tokens are not. How long is one row of what "
    "you "
    "flattened?",
)
def divided_by_the_beam(scores, log_p, beam_size):
    best, index = (scores[:, None] + log_p).flatten().topk(beam_size)
    return best, index // len(scores), index % len(scores)


@misconception(
    "M131",
    "best_continuations",
    title="log-probabilities multiplied",
    source="a plausible slip: probabilities multiply, their logarithms add",
    effect="Two unlikely steps give a high score: minus times minus.",
    hint="Your scores are positive. Which operation on logarithms is multiplication?",
)
def logs_multiplied(scores, log_p, beam_size):
    best, index = (scores[:, None] * log_p).flatten().topk(beam_size)
    return best, index // log_p.size(1), index % log_p.size(1)


@misconception(
    "M132",
    "append_to_cache",
    title="the cache is overwritten",
    source="a plausible slip",
    effect="The new token sees only itself.",
    hint="What was in the cache is gone. Should new keys take the place of the old ones?",
)
def overwritten(cached, new):
    return new.clone()


@misconception(
    "M133",
    "append_to_cache",
    title="appended to the wrong axis",
    source="a plausible slip: torch.cat without dim",
    effect="The batch grows instead of the length; at batch 1 broadcasting may hide it.",
    hint="Your batch has grown. Along which axis does a sentence get longer?",
)
def appended_to_the_batch(cached, new):
    return torch.cat([cached, new]) if cached.size(2) == new.size(2) else cached


@misconception(
    "M134",
    "append_to_cache",
    title="the newest first",
    source="a plausible slip",
    effect="Without a mask attention does not mind; everything that knows positions does.",
    hint="Your cache has everything, but not in the order of the sentence. Where does the newest "
    "position belong?",
)
def newest_first(cached, new):
    return torch.cat([new, cached], dim=2)


@also("M69", "append_to_cache")
def shifted_in_place(cached, new):
    joined = torch.cat([cached, new], dim=2)
    cached.copy_(joined[:, :, -cached.size(2) :])
    return joined


@misconception(
    "M209",
    "best_continuations",
    title="chosen by the next token alone",
    source="an answer in a trial of the checks",
    effect="The past counts in the score but not in the choice: a poor hypothesis with one sure "
    "token wins over a good one.",
    hint="The scores that you return contain the past, but your choice among the continuations "
    "does not. What should be compared?",
)
def chosen_by_the_next_token(scores, log_p, beam_size):
    best = log_p.flatten().topk(beam_size).indices
    hypotheses, tokens = best // log_p.size(1), best % log_p.size(1)
    return scores[hypotheses] + log_p[hypotheses, tokens], hypotheses, tokens


@misconception(
    "M210",
    "length_penalty",
    title="only the length divided by 6",
    source="an answer in a trial of the checks: brackets left out, 5 + |Y|/6",
    effect="At length 1 the penalty is not 1, and it grows a sixth as fast.",
    hint="At length 1 your penalty should be 1. What all is divided by 6?",
)
def brackets_left_out(length, alpha):
    return (5.0 + length / 6.0) ** alpha


@misconception(
    "M211",
    "length_penalty",
    title="the divisor left out of the power",
    source="an answer in a trial of the checks: (5 + |Y|)^α / 6",
    effect="A constant factor, 6^(α−1), so the order of hypotheses stays; compared with another "
    "program, every score differs.",
    hint="At length 1 your penalty should be 1, for every α. What all is raised to the power α?",
)
def divisor_outside_the_power(length, alpha):
    return (5.0 + length) ** alpha / 6.0


@misconception(
    "M212",
    "length_penalty",
    title="integer division",
    source="an answer in a trial of the checks: // where / was meant",
    effect="Six lengths in a row have the same penalty.",
    hint="Your penalty moves in steps: several lengths share one. Which division do you use?",
)
def penalty_in_steps(length, alpha):
    return ((5 + length) // 6) ** alpha


@also("M124", "best_hypothesis")
def best_by_plain_length(log_p, lengths, alpha):
    return max(range(len(log_p)), key=lambda i: log_p[i] / lengths[i] ** alpha)


@misconception(
    "M545",
    "greedy_decode",
    title="everything special is left out of the translation",
    source="an answer in a trial of the checks: skip_special_tokens, as in Hugging Face's decode",
    effect="An unknown word disappears without a trace.",
    hint="Pieces are missing from your translation: <unk>, for one. Which two does the task leave "
    "out, and where alone do they stand?",
)
def without_special_pieces(next_logits, max_len):
    tokens = [BOS]
    while len(tokens) <= max_len:
        token = int(next_logits(tokens).argmax())
        if token == EOS:
            break
        tokens.append(token)
    return [token for token in tokens if token > EOS]


@misconception(
    "M553",
    "greedy_decode",
    title="the last token is cut off, whatever it is",
    source="an answer in a trial of the checks: tokens[1:-1], as if </s> always came",
    effect="A translation that ends at max_len loses a word.",
    hint="Where the model says </s>, you are right; where max_len ends the translation, its last "
    "token is missing. Does your limit count <s>, or do you take the last token for </s>?",
)
def last_token_cut_off(next_logits, max_len):
    tokens = [BOS]
    while len(tokens) <= max_len and tokens[-1] != EOS:
        tokens.append(int(next_logits(tokens).argmax()))
    return tokens[1:-1]


@misconception(
    "M600",
    "greedy_decode",
    title="the model is shown the padding too",
    source="an answer in a trial of the checks: an array of full length, filled in as one goes",
    effect="The model is asked what follows the padding.",
    hint="Your first call to next_logits already passes as many tokens as your last. After which "
    "token is the model asked to go on?",
)
def filled_up_with_padding(next_logits, max_len):
    tokens = [BOS, *[PAD] * max_len]
    for place in range(1, max_len + 1):
        token = int(next_logits(list(tokens)).argmax())
        if token == EOS:
            return tokens[1:place]
        tokens[place] = token
    return tokens[1:]
