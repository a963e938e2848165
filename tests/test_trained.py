"""The two translators that come trained with the course."""

import pytest

from transformer_lib.course.trained import load_trained
from transformer_lib.data import prepare
from transformer_lib.decoding import DecodingConfig
from transformer_lib.evaluation.alignment import encoder_attention
from transformer_lib.metrics.bleu import bleu
from transformer_lib.model import num_parameters


@pytest.mark.parametrize(("name", "at_least"), [("transformer", 50.0), ("rnn", 45.0)])
def test_they_translate_sentences_that_they_were_not_trained_on(name, at_least):
    """sacreBLEU with all references; the whole test set gives 57.4 and 53.0 (beam 4)."""
    run = load_trained(name)
    assert num_parameters(run.model) == run.info.parameters
    test = prepare(run.experiment.data).test
    said = run.translate(test.sources[:300], DecodingConfig(beam_size=1))
    assert bleu(said, test.references[:300]).score > at_least


def test_the_encoders_attention_is_a_distribution_over_the_sentence():
    run = load_trained("transformer")
    weights, pieces = encoder_attention(run.model, run.tokenizer, "She has a book.")
    assert pieces == ["▁She", "▁has", "▁a", "▁book", ".", "</s>"]
    assert weights.shape == (2, 4, 6, 6)
    assert ((weights.sum(dim=-1) - 1).abs() < 1e-5).all()
