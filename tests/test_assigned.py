"""The assignments' own exercises against what others compute."""

from itertools import product

import pytest
import torch
from sacrebleu.metrics import BLEU
from scipy.stats import permutation_test
from torch import nn

from transformer_lib.course.checks.topics.assigned_4_5 import (
    greedy_decode_batch,
    multi_bleu,
    randomization_p_value,
    smooth_among_others,
)
from transformer_lib.course.checks.topics.decoding import greedy_decode
from transformer_lib.course.sandboxed.given import Speaker, Speakers
from transformer_lib.vocabulary import BOS, EOS, PAD


def test_the_smoothed_loss_is_cross_entropy_with_that_target():
    torch.manual_seed(0)
    logits, labels = torch.randn(30, 11).double(), torch.randint(11, (30,))
    labels[:6] = PAD
    target = torch.full((30, 11), 0.2 / 9).double()
    target[:, PAD] = 0.0
    target[torch.arange(30), labels] = 0.8
    real = labels != PAD
    expected = nn.functional.cross_entropy(logits[real], target[real])
    torch.testing.assert_close(smooth_among_others(logits, labels, 0.2), expected)


def test_a_batch_is_decoded_as_its_sentences_are_one_by_one():
    noise = torch.randn(15, generator=torch.Generator().manual_seed(0))
    sentences = [[5, 6, 7, EOS], [EOS], [9, 4, PAD, 8, 8, 5, EOS], [10] * 30]
    one_by_one = [greedy_decode(Speaker.saying(sentence, noise), 12) for sentence in sentences]
    assert greedy_decode_batch(Speakers.saying(sentences, noise), 4, 12) == one_by_one
    assert one_by_one[:2] == [[5, 6, 7], []]
    assert len(one_by_one[3]) == 12


def test_rows_of_another_batch_are_refused():
    speakers = Speakers.saying([[5, EOS], [6, EOS]], torch.zeros(15))
    with pytest.raises(RuntimeError, match="the model has 2 sources, and got 1 rows"):
        speakers(torch.tensor([[BOS]]))


def test_bleu_with_several_references_is_sacrebleus():
    hypotheses = ["the cat sat on the mat today", "a dog ran fast", "it rains the whole day long"]
    references = [
        ["the cat sat on a mat today", "a dog ran very fast", "it rains all day long"],
        ["today the cat sat on the mat", "one dog ran fast indeed", "it rains the whole long day"],
        ["cats sit on the mat", "dogs ran fast", "rain for the whole day"],
    ]
    expected = BLEU(tokenize="none").corpus_score(hypotheses, references).score
    several = [[one.split() for one in each] for each in zip(*references, strict=True)]
    assert multi_bleu([h.split() for h in hypotheses], several) == pytest.approx(expected)


def test_with_every_way_to_swap_the_p_value_is_scipys_exact_one():
    torch.manual_seed(1)
    scores_a, scores_b = torch.rand(10).double() + 0.2, torch.rand(10).double()
    every = torch.tensor(list(product([False, True], repeat=10)))
    got = randomization_p_value(scores_a, scores_b, every)
    exact = permutation_test(
        (scores_a.numpy(), scores_b.numpy()),
        lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=2000,
    ).pvalue
    assert got == pytest.approx((1024 * exact + 1) / 1025)
