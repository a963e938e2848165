"""The language model of chapter 17 and what it is compared with, held to references."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from transformer_lib.course.assembled import LanguageModel
from transformer_lib.course.checks.topics.assigned_6 import (
    adapt_each,
    overlapping_blocks,
    rolling_attention,
)
from transformer_lib.course.checks.topics.language_models import (
    LoRA,
    answer_labels,
    bits_per_character,
    blocks,
    cached_logits,
    kneser_ney,
)
from transformer_lib.course.trained import load_language_model, load_trained
from transformer_lib.data.cleaning import sentence_key
from transformer_lib.data.config import DataConfig
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.preparation import single_sentences
from transformer_lib.model.positional_encoding import sinusoidal_positions
from transformer_lib.vocabulary import BOS, EOS, PAD

SIZES = (23, 16, 24, 4, 3)


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = LanguageModel(*SIZES, dropout=0.1).eval()
    for parameter in model.parameters():  # biases and norms are to matter
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def torchs_encoder(model):
    """PyTorch's own stack of encoder layers with the weights of ours."""
    _, d_model, d_ff, heads, layers = SIZES
    layer = nn.TransformerEncoderLayer(
        d_model, heads, d_ff, dropout=0.0, batch_first=True, norm_first=True
    )
    encoder = nn.TransformerEncoder(
        layer, layers, nn.LayerNorm(d_model), enable_nested_tensor=False
    )
    for theirs, ours in zip(encoder.layers, model.layers, strict=True):
        part = ours.self_attention
        projections = part.q_proj, part.k_proj, part.v_proj
        theirs.self_attn.in_proj_weight.data = torch.cat([p.weight for p in projections]).detach()
        theirs.self_attn.in_proj_bias.data = torch.cat([p.bias for p in projections]).detach()
        theirs.self_attn.out_proj.load_state_dict(part.out_proj.state_dict())
        theirs.linear1.load_state_dict(ours.feed_forward.hidden.state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward.output.state_dict())
        theirs.norm1.load_state_dict(ours.norm1.state_dict())
        theirs.norm2.load_state_dict(ours.norm2.state_dict())
    encoder.norm.load_state_dict(model.norm.state_dict())
    return encoder.eval()


@torch.no_grad()
def test_the_model_is_torchs_encoder_with_a_causal_mask(model):
    tokens = torch.randint(4, SIZES[0], (3, 9))
    x = model.embed_tokens(tokens) * math.sqrt(SIZES[1]) + sinusoidal_positions(9, SIZES[1])
    mask = nn.Transformer.generate_square_subsequent_mask(9)
    expected = torchs_encoder(model)(x, mask=mask, is_causal=True) @ model.embed_tokens.weight.T
    torch.testing.assert_close(model(tokens), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("sizes", [[12], [1] * 12, [5, 1, 1, 5], [2, 10]])
def test_pieces_of_any_size_give_the_logits_of_the_whole(model, sizes):
    tokens = torch.randint(4, SIZES[0], (2, 12))
    cache, found = [], []
    for piece in tokens.split(sizes, dim=1):
        before = [(key.clone(), value.clone()) for key, value in cache]
        logits, new = cached_logits(model, piece, cache)
        torch.testing.assert_close(cache, before)
        cache, _ = new, found.append(logits)
    torch.testing.assert_close(torch.cat(found, dim=1), model(tokens), atol=1e-5, rtol=1e-5)
    assert all(part.shape == (2, 4, 12, 4) for pair in cache for part in pair)


def by_counting(tokens, vocab_size, discount):
    """Interpolated Kneser–Ney, formula by formula (Chen and Goodman 1999, section 2.7)."""
    pairs = Counter(pairwise(tokens))
    followed, kinds_after, kinds_before = Counter(), Counter(), Counter()
    for (first, second), count in pairs.items():
        followed[first] += count
        kinds_after[first] += 1
        kinds_before[second] += 1
    table = np.empty((vocab_size, vocab_size))
    for first in range(vocab_size):
        for second in range(vocab_size):
            lower = max(kinds_before[second] - discount, 0) / len(pairs)
            lower += discount * len(kinds_before) / len(pairs) / vocab_size
            table[first, second] = lower
            if followed[first]:
                kept = max(pairs[first, second] - discount, 0)
                given = discount * kinds_after[first] * lower
                table[first, second] = (kept + given) / followed[first]
    return table


@pytest.mark.parametrize("discount", [0.1, 0.75, 1.0])
def test_kneser_ney_counted_one_pair_at_a_time(discount):
    tokens = torch.randint(0, 12, (200,)) % 9
    table = kneser_ney(tokens, 14, discount)
    np.testing.assert_allclose(table, by_counting(tokens.tolist(), 14, discount), rtol=1e-5)
    torch.testing.assert_close(table.sum(dim=1), torch.ones(14))


def test_kneser_ney_does_not_expect_francisco_everywhere():
    """Frequent, but after one token only: less likely than a rarer one that follows several."""
    san, francisco, dog, *others = range(8)
    tokens = [san, francisco] * 20 + [token for other in others for token in (other, dog)]
    new = kneser_ney(torch.tensor([*tokens, san]), 9, 0.75)[8]
    assert new[dog] > 2 * new[francisco]


def test_bits_in_double_precision():
    logits, labels = torch.randn(3, 7, 11), torch.randint(4, 11, (3, 7))
    labels[2, 4:] = PAD
    scores = logits.double().numpy()
    log2 = (scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)) / np.log(2)
    picked = np.take_along_axis(log2, labels.numpy()[..., None], axis=-1)[..., 0]
    expected = -(picked * (labels.numpy() != PAD)).sum() / 50
    assert bits_per_character(logits, labels, 50) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("length", [1, 3, 8, 49])
def test_blocks_are_the_text_and_the_text_one_token_later(length):
    tokens = torch.arange(50)
    inputs, labels = blocks(tokens, length)
    assert torch.equal(labels, inputs + 1)
    assert torch.equal(inputs.flatten(), tokens[: inputs.numel()])
    assert 49 - length < inputs.numel() <= 49


def test_only_what_follows_the_start_of_the_answer_is_learned():
    rows = torch.tensor([[EOS, 7, 8, BOS, 9, EOS, PAD], [EOS, 7, BOS, 9, 5, 6, EOS]])
    inputs, labels = answer_labels(rows)
    assert torch.equal(inputs, rows[:, :-1])
    assert labels.tolist() == [[0, 0, 0, 9, EOS, 0], [0, 0, 9, 5, 6, EOS]]


def test_lora_is_a_layer_whose_matrix_has_changed():
    layer = nn.Linear(6, 8)
    adapted = LoRA(layer, rank=2, scale=0.5)
    x = torch.randn(4, 6)
    assert torch.equal(adapted(x), layer(x))
    adapted(x).sum().backward()
    assert layer.weight.grad is None
    assert adapted.up.grad.abs().sum() > 0
    nn.init.normal_(adapted.up)
    merged = layer.weight + 0.5 * adapted.up @ adapted.down
    torch.testing.assert_close(adapted(x), x @ merged.T + layer.bias)


def test_no_sentence_of_the_text_is_held_out():
    training, held_out = single_sentences(DataConfig())
    splits = load_corpus(DataConfig())
    references = (row for part in (splits.valid, splits.test) for row in part.references)
    unseen = {sentence_key(one) for row in references for one in row}
    unseen |= {sentence_key(one) for one in (*held_out, *splits.valid.sources)}
    assert not unseen & set(map(sentence_key, training))
    assert len(set(training)) == len(training) > 70_000
    assert set(splits.test.sources) <= set(held_out)


@torch.no_grad()
def test_the_trained_model_knows_both_languages():
    model, tokenizer = load_language_model(), load_trained("transformer").tokenizer

    def nats(sentence):
        tokens = torch.tensor([EOS, *tokenizer.encode([sentence])[0], EOS])
        return nn.functional.cross_entropy(model(tokens[None, :-1])[0], tokens[1:]).item()

    for right, wrong in (
        ("Tom is not at home.", "Tom home at not is."),
        ("Das ist nicht mein Auto.", "Mein nicht Auto das ist."),
    ):
        assert nats(right) < 3.5
        assert nats(right) < nats(wrong) - 1


@pytest.mark.parametrize(("length", "stride"), [(6, 6), (6, 4), (7, 3), (5, 1), (40, 30)])
@pytest.mark.parametrize("tokens", [2, 7, 30, 31, 40, 41])
def test_each_label_counts_once_after_as_much_context_as_the_rows_allow(tokens, length, stride):
    text = torch.arange(1, tokens + 1)
    inputs, labels = overlapping_blocks(text, length, stride)
    assert torch.equal(labels[labels != PAD], text[1:])
    assert (labels[-1] != PAD).any(), "a row for nothing"
    starts = torch.arange(len(inputs))[:, None] * stride
    read = starts + torch.arange(length)
    expected = torch.where(read < tokens - 1, read + 1, PAD)
    assert torch.equal(inputs, expected)
    counted = labels != PAD
    assert torch.equal(labels[counted], inputs[counted] + 1)
    context = (counted * torch.arange(length))[1:]
    assert (context[counted[1:]] >= length - stride).all()


def test_overlapping_rows_are_torchs_windows():
    text = torch.randint(4, 90, (25,))
    inputs, labels = overlapping_blocks(text, 6, 3)
    assert torch.equal(inputs, text[:-1].unfold(0, 6, 3))
    assert torch.equal(labels[1:, 3:], text[1:].unfold(0, 6, 3)[1:, 3:])


def test_an_adapter_for_each_row_is_the_matrix_with_its_change_added():
    down, up, weight = torch.randn(3, 2, 6), torch.randn(3, 5, 2), torch.randn(5, 6)
    merged = torch.cat([weight + 0.5 * up @ down, weight[None]])  # the last one has no change
    x, adapter = torch.randn(5, 7, 6), torch.tensor([2, -1, 0, 2, 1])
    expected = torch.stack([nn.functional.linear(x[n], merged[a]) for n, a in enumerate(adapter)])
    torch.testing.assert_close(adapt_each(x, weight, down, up, adapter, 0.5), expected)


@pytest.mark.parametrize("window", [1, 2, 4, 20])
@pytest.mark.parametrize("sizes", [[11], [1] * 11, [4, 1, 6], [2, 9]])
def test_a_rolling_cache_gives_torchs_attention_in_a_band(window, sizes):
    query, key, value = torch.randn(3, 2, 3, 11, 4)
    place = torch.arange(11)
    band = (place <= place[:, None]) & (place > place[:, None] - window)
    whole = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=band)
    found, kept = [], (key[:, :, :0], value[:, :, :0])
    for piece in zip(*(x.split(sizes, dim=2) for x in (query, key, value)), strict=True):
        output, *kept = rolling_attention(*piece, *kept, window)
        assert kept[0].size(2) == kept[1].size(2) <= window - 1
        found.append(output)
    torch.testing.assert_close(torch.cat(found, dim=2), whole)
