"""The assembled models: torch.nn.Transformer with the same weights, sizes, and their laws."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from transformer_lib.course.trained import load_trained
from transformer_lib.decoding import DecodingConfig, translate
from transformer_lib.device import choose_device
from transformer_lib.errors import UserError
from transformer_lib.evaluation.alignment import every_attention
from transformer_lib.model import (
    SIZES,
    RNNConfig,
    TransformerConfig,
    build_rnn,
    build_transformer,
    num_parameters,
)
from transformer_lib.model.dropout import Dropout
from transformer_lib.model.masks import causal_mask
from transformer_lib.model.rnn import LSTM
from transformer_lib.model.seq2seq import evaluating
from transformer_lib.vocabulary import BOS, PAD

SMALL = {
    "d_model": 16,
    "d_ff": 32,
    "num_heads": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
}
VOCAB = 23


def small_transformer(**options):
    config = TransformerConfig(**{**SMALL, "dropout": 0.0, **options})
    return build_transformer(config, VOCAB).double().eval()


def small_rnn(**options):
    config = RNNConfig(d_model=16, dropout=0.0, **options)
    return build_rnn(config, VOCAB).double().eval()


MODELS = {
    "post": lambda: small_transformer(norm="post"),
    "pre": lambda: small_transformer(norm="pre"),
    "branch": lambda: small_transformer(norm="branch", positions="learned"),
    "rnn-luong": lambda: small_rnn(score="luong"),
    "rnn-bahdanau": lambda: small_rnn(score="bahdanau", num_decoder_layers=3),
    "rnn-shallow": lambda: small_rnn(num_encoder_layers=1, num_decoder_layers=1),
}
every_model = pytest.mark.parametrize("name", MODELS)


def random_tokens(*shape):
    return torch.randint(4, VOCAB, shape)


def copy_linear(theirs, ours):
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias.normal_(std=0.1))


def copy_norm(theirs, ours):
    theirs.weight.copy_(ours.weight.normal_(mean=1.0, std=0.1))
    theirs.bias.copy_(ours.bias.normal_(std=0.1))


def copy_attention(theirs, ours):
    theirs.in_proj_weight.copy_(ours.qkv_proj.weight)
    theirs.in_proj_bias.copy_(ours.qkv_proj.bias.normal_(std=0.1))
    copy_linear(theirs.out_proj, ours.out_proj)


@torch.no_grad()
def torch_copy(model, norm_first):
    """``nn.Transformer`` with the weights of ours (and none of its final norms for post-norm)."""
    reference = nn.Transformer(
        16, 4, 2, 2, 32, dropout=0.0, batch_first=True, norm_first=norm_first
    ).double()
    for ours, theirs in zip(model.encoder.layers, reference.encoder.layers, strict=True):
        copy_attention(theirs.self_attn, ours.self_attention)
        copy_linear(theirs.linear1, ours.feed_forward.hidden)
        copy_linear(theirs.linear2, ours.feed_forward.output)
        copy_norm(theirs.norm1, ours.self_attention_residual.norm)
        copy_norm(theirs.norm2, ours.feed_forward_residual.norm)
    for ours, theirs in zip(model.decoder.layers, reference.decoder.layers, strict=True):
        copy_attention(theirs.self_attn, ours.self_attention)
        copy_attention(theirs.multihead_attn, ours.cross_attention)
        copy_linear(theirs.linear1, ours.feed_forward.hidden)
        copy_linear(theirs.linear2, ours.feed_forward.output)
        copy_norm(theirs.norm1, ours.self_attention_residual.norm)
        copy_norm(theirs.norm2, ours.cross_attention_residual.norm)
        copy_norm(theirs.norm3, ours.feed_forward_residual.norm)
    for side in ("encoder", "decoder"):
        stack = getattr(reference, side)
        if norm_first:
            copy_norm(stack.norm, getattr(model, side).final_norm)
        else:
            stack.norm = None
    return reference.eval()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_states_equal_nn_transformers(norm):
    model = small_transformer(norm=norm)
    reference = torch_copy(model, norm_first=norm == "pre")
    src, tgt = random_tokens(3, 6), random_tokens(3, 5)
    src[1, -2:] = PAD
    memory = model.encode(src)
    actual = model.decode(tgt, memory)
    expected = reference(
        model.src_embedding(src),
        model.tgt_embedding(tgt),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64),
        src_key_padding_mask=src == PAD,
        memory_key_padding_mask=src == PAD,
        tgt_is_causal=True,
    )
    assert (actual - expected).abs().max() < 1e-10


@pytest.mark.parametrize("score", ["luong", "bahdanau"])
def test_the_rnn_is_the_one_that_is_described(score):
    """One sentence, by PyTorch's bidirectional LSTM and its attention."""
    model = small_rnn(score=score)
    src, tgt = random_tokens(1, 6), random_tokens(1, 5)
    both_ways = nn.LSTM(16, 8, batch_first=True, bidirectional=True).double()
    backwards = model.encoder.backwards.state_dict()
    both_ways.load_state_dict(
        model.encoder.forwards.state_dict()
        | {f"{name}_reverse": weight for name, weight in backwards.items()}
    )
    table = model.output_weight * 16**0.5  # one for all
    memory, _ = both_ways(table[src])
    memory = memory + model.encoder.upper[0](memory)[0]

    first, second = model.bridge(memory.mean(dim=1)).tanh().chunk(2, dim=-1)
    h, _ = model.first(table[tgt], (first[None], torch.zeros(1, 1, 16).double()))
    attention = model.attention
    if score == "luong":
        context = F.scaled_dot_product_attention(attention.query(h), memory, memory)
    else:
        hidden = (attention.query(h)[:, :, None] + attention.key(memory)[:, None]).tanh()
        context = attention.score(hidden)[..., 0].softmax(dim=-1) @ memory
    inputs = torch.cat([h, context], dim=-1)
    h = h + model.upper[0](inputs, (second[None], torch.zeros(1, 1, 16).double()))[0]
    states = model.combine(torch.cat([h, context], dim=-1)).tanh()
    torch.testing.assert_close(model(src, tgt), states @ model.output_weight.T)


def expected_parameters(c, vocab):
    """What section 3 says, written out; embeddings are tied."""
    attention = 4 * (c.d_model**2 + c.d_model)
    feed_forward = c.d_model * c.d_ff + c.d_ff + c.d_ff * c.d_model + c.d_model
    norm = 2 * c.d_model
    encoder = c.num_encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = c.num_decoder_layers * (2 * attention + feed_forward + 3 * norm)
    return vocab * c.d_model + encoder + decoder


@pytest.mark.parametrize(("size", "paper"), [("tiny", None), ("base", 65e6), ("big", 213e6)])
def test_sizes_have_the_papers_parameter_counts(size, paper):
    with torch.device("meta"):
        model = build_transformer(SIZES[size], 37_000)
    count = num_parameters(model)
    assert count == expected_parameters(SIZES[size], 37_000)
    if paper is not None:
        assert abs(count / paper - 1) < 0.035  # the paper's figures are rounded


@pytest.mark.parametrize(("tied", "matrices"), [("none", 3), ("output", 2), ("all", 1)])
def test_tied_embeddings_share_their_matrices(tied, matrices):
    model = small_transformer(tied_embeddings=tied)
    weights = {
        id(model.src_embedding.embed_tokens.weight),
        id(model.tgt_embedding.embed_tokens.weight),
        id(model.output_weight),
    }
    assert len(weights) == matrices
    config = TransformerConfig(**SMALL)
    shared = expected_parameters(config, VOCAB)
    assert num_parameters(model) == shared + (matrices - 1) * VOCAB * 16


def test_tying_two_vocabularies_is_refused():
    with pytest.raises(ValueError, match="needs one vocabulary, but the sizes are 10 and 20"):
        build_transformer(TransformerConfig(**SMALL), 10, 20)
    two = build_transformer(TransformerConfig(**SMALL, tied_embeddings="output"), 10, 20)
    assert two(torch.ones(1, 3).long(), torch.ones(1, 3).long()).shape == (1, 3, 20)


@every_model
def test_a_future_target_token_changes_no_earlier_logit(name):
    model = MODELS[name]()
    src, tgt = random_tokens(2, 6), random_tokens(2, 7)
    before = model(src, tgt)
    for position in range(1, 7):
        changed = tgt.clone()
        changed[:, position] = (tgt[:, position] - 3) % (VOCAB - 4) + 4
        after = model(src, changed)
        torch.testing.assert_close(after[:, :position], before[:, :position], rtol=0, atol=1e-12)
        assert not torch.allclose(after[:, position], before[:, position])


@every_model
@given(
    seed=st.integers(0, 50), extra=st.integers(1, 9), lengths=st.tuples(*[st.integers(1, 8)] * 4)
)
def test_padding_changes_no_sentences_result(name, seed, extra, lengths):
    torch.manual_seed(seed)
    model = MODELS[name]()
    src_len, tgt_len, other_src, other_tgt = lengths
    src, tgt = random_tokens(1, src_len), random_tokens(1, tgt_len)
    alone = model(src, tgt)[0]
    batch_src = torch.full((2, max(src_len, other_src) + extra), PAD)
    batch_tgt = torch.full((2, max(tgt_len, other_tgt) + extra), PAD)
    batch_src[0, :src_len], batch_tgt[0, :tgt_len] = src, tgt
    batch_src[1, :other_src], batch_tgt[1, :other_tgt] = 5, 6
    padded = model(batch_src, batch_tgt)[0, :tgt_len]
    torch.testing.assert_close(padded, alone, rtol=0, atol=1e-10)


@every_model
def test_step_by_step_equals_all_at_once(name):
    model = MODELS[name]()
    src, tgt = random_tokens(3, 6), random_tokens(3, 40)
    src[2, -3:] = PAD
    at_once = model(src, tgt)
    state = model.init_state(model.encode(src))
    for position in range(40):
        step = model.decode_step(tgt[:, position], state)
        torch.testing.assert_close(step, at_once[:, position], rtol=0, atol=1e-10)


def test_a_cache_is_continued_in_pieces_only_with_a_mask():
    model = MODELS["post"]()
    memory, tgt = model.encode(random_tokens(3, 6)), random_tokens(3, 5)
    x = model.tgt_embedding(tgt)
    at_once = model.decoder(x, memory.states, memory.mask)

    def pieces(tgt_mask):
        caches = model.init_state(memory).caches
        for piece, mask in ((x[:, :3], None), (x[:, 3:], tgt_mask)):
            yield model.decoder(piece, memory.states, memory.mask, caches, mask)

    seen = causal_mask(5)[..., 3:, :].expand(3, 1, 2, 5)
    torch.testing.assert_close(torch.cat(list(pieces(seen)), 1), at_once, rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="one position at a time"):
        list(pieces(None))


@every_model
def test_a_state_keeps_the_selected_rows(name):
    model = MODELS[name]()
    src, tgt = random_tokens(3, 6), random_tokens(3, 4)
    at_once = model(src, tgt)
    state = model.init_state(model.encode(src))
    for position in range(2):
        model.decode_step(tgt[:, position], state)
    rows = torch.tensor([2, 0, 2])
    state.select(rows, rows)
    for position in range(2, 4):
        step = model.decode_step(tgt[rows, position], state)
        torch.testing.assert_close(step, at_once[rows, position], rtol=0, atol=1e-10)


@every_model
def test_hypotheses_of_a_sentence_share_its_memory(name):
    model = MODELS[name]()
    src, tgt = random_tokens(2, 6), random_tokens(6, 4)
    tgt[:, 0] = BOS
    at_once = model(src.repeat_interleave(3, dim=0), tgt)
    state = model.init_state(model.encode(src))
    model.decode_step(tgt[::3, 0], state)
    state.select(torch.tensor([0, 0, 0, 1, 1, 1]))
    for position in range(1, 4):
        step = model.decode_step(tgt[:, position], state)
        torch.testing.assert_close(step, at_once[:, position], rtol=0, atol=1e-10)


def test_encoder_without_positions_cannot_see_order():
    model = small_transformer(positions="none")
    src = random_tokens(1, 7)
    order = torch.randperm(7)
    expected = model.encode(src).states[:, order]
    actual = model.encode(src[:, order]).states
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("has_state", [False, True])
def test_an_lstm_never_computes_in_float16(monkeypatch, dtype, has_state):
    monkeypatch.setattr("transformer_lib.model.rnn.autocast_has_lstm", lambda kind: False)
    monkeypatch.setattr("transformer_lib.model.rnn.lstm_dtype", lambda kind, width: dtype)
    lstm = LSTM(16, 16, batch_first=True)
    x = torch.randn(4, 30, 16)
    state = tuple(torch.randn(1, 4, 16) for _ in range(2)) if has_state else None
    expected, _ = lstm(x, state)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = state and tuple(s.to(dtype) for s in state)
        actual, (hidden, _) = lstm(x, narrow)
    assert actual.dtype == hidden.dtype == dtype
    # bfloat16 has 8 bits: steps of 1/256 at most below 1, and a few of them add up.
    tolerance = {"rtol": 0, "atol": 0.02} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(actual.float(), expected, **tolerance)
    gradients = [
        torch.autograd.grad(y.float().sum(), lstm.parameters()) for y in (actual, expected)
    ]
    for narrow_gradient, gradient in zip(*gradients, strict=True):
        assert narrow_gradient.dtype == torch.float32
        assert (narrow_gradient - gradient).norm() <= 0.02 * gradient.norm()


@every_model
def test_every_model_learns_under_autocast_on_this_processor(name):
    """In bfloat16, or where the processor lacks it, in what comes closest."""
    model = MODELS[name]().float().train()
    src, tgt = random_tokens(3, 5), random_tokens(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = model(src, tgt).float().square().mean()
    torch.testing.assert_close(narrow, model(src, tgt).square().mean(), rtol=0.05, atol=0)
    narrow.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@every_model
def test_autograd_copies_nothing_because_of_a_change_in_place(name):
    """Of a view, such as what a linear layer returns, it copies the whole for its gradient."""
    model = MODELS[name]().train()
    todo = [model(random_tokens(3, 5), random_tokens(3, 4)).grad_fn]
    seen = set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [earlier for earlier, _ in node.next_functions]
    names = {node.name().rpartition("::")[2] for node in seen}
    assert {"AddmmBackward0", "CopySlices"} & names == {"AddmmBackward0"}


def test_odd_rnn_width_is_refused():
    with pytest.raises(ValueError, match="d_model=15 is odd"):
        RNNConfig(d_model=15)


def test_dropout_of_nearly_everything_is_finite():
    dropped = Dropout(0.999999)(torch.ones(1000))
    assert dropped.isfinite().all()


def test_a_model_that_is_not_finite_says_so_and_stays_in_its_mode():
    tokenizer = load_trained("transformer").tokenizer
    sizes = {"d_model": 8, "d_ff": 8, "num_heads": 2, "num_encoder_layers": 1}
    model = build_transformer(TransformerConfig(**sizes, num_decoder_layers=1), len(tokenizer))
    model.train()
    with torch.no_grad():
        model.output_weight.fill_(math.nan)
    for beam_size in (1, 4):
        with pytest.raises(UserError, match="not finite"):
            translate(model, tokenizer, ["a cat"], DecodingConfig(beam_size=beam_size))
    assert model.training


def test_outputs_that_are_not_finite_are_said_to_be():
    tokenizer = load_trained("transformer").tokenizer
    sizes = {"d_model": 8, "d_ff": 8, "num_heads": 2, "num_encoder_layers": 1}
    model = build_transformer(TransformerConfig(**sizes, num_decoder_layers=1), len(tokenizer))
    with torch.no_grad():
        next(model.decoder.parameters()).fill_(math.nan)  # the output weights are finite
    for beam_size in (1, 4):
        with pytest.raises(UserError, match="the model's outputs are not finite"):
            translate(model, tokenizer, ["a cat"], DecodingConfig(beam_size=beam_size))


def test_a_frozen_part_stays_in_its_mode():
    model = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False]


def test_a_sentence_without_a_known_character_is_said_to_be():
    run = load_trained("transformer")
    with pytest.warns(UserWarning, match="“你好” has no character that the model knows"):
        run.translate(["a cat", "你好"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.translate(["a 你 cat"])


def test_looking_at_attention_leaves_the_mode_alone():
    run = load_trained("transformer")
    run.model.train()
    every_attention(run.model, run.tokenizer, "a cat", "eine Katze")
    assert run.model.training


def test_a_devices_number_is_understood_and_another_name_is_not(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("mps:0").type == "mps"  # as PyTorch prints it
    for name in ("cuda:x", "cuda:-1", "gpu", "cuda:"):
        with pytest.raises(UserError, match=f"there is no device '{name}'; it is auto, cpu"):
            choose_device(name)
