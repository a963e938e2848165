"""Norms, residuals, positions, embeddings, dropout: each against a reference or a law."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.model import (
    BranchNorm,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    PostNorm,
    PreNorm,
    SinusoidalPositions,
    layer_norm,
    sinusoidal_positions,
)
from transformer_lib.model.dropout import Dropout
from transformer_lib.model.embedding import Embedding
from transformer_lib.model.linear import Linear, _onednn_is_faster, linear, product_over_rows
from transformer_lib.model.positional_encoding import Positions, build_positions


@given(width=st.integers(2, 64), seed=st.integers(0, 99), scale=st.floats(0.01, 100))
def test_layer_norm_is_torchs_in_both_forms(width, seed, scale):
    torch.manual_seed(seed)
    x = torch.randn(3, 4, width).double() * scale
    ours, theirs = LayerNorm(width).double(), nn.LayerNorm(width).double()
    with torch.no_grad():
        theirs.weight.copy_(ours.weight.normal_())
        theirs.bias.copy_(ours.bias.normal_())
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-10)
    torch.testing.assert_close(layer_norm(x, ours.weight, ours.bias), theirs(x), rtol=0, atol=1e-10)


def test_layer_norm_of_a_constant_row_is_its_shift():
    assert torch.equal(LayerNorm(4)(torch.full((2, 4), 7.0)), torch.zeros(2, 4))


def test_the_three_residual_placements():
    x = torch.randn(2, 3, 8).double()
    sublayer = nn.Linear(8, 8).double()
    norm = nn.LayerNorm(8).double()
    expected = {
        PostNorm: norm(x + sublayer(x)),
        PreNorm: x + sublayer(norm(x)),
        BranchNorm: x + norm(sublayer(x)),
    }
    for residual, value in expected.items():
        torch.testing.assert_close(residual(norm, dropout=0.0)(x, sublayer), value)


class Marked(nn.Module):
    """Stands where dropout is, and shows it: no norm takes it back."""

    def forward(self, x):
        return x * torch.linspace(0.5, 2.0, x.size(-1)).to(x)


def test_dropout_is_where_the_paper_has_it():
    """Of a sublayer's output before it is added, and of embeddings with positions (5.4)."""
    x, mark = torch.randn(2, 3, 8).double(), Marked()
    sublayer, norm = nn.Linear(8, 8).double(), nn.LayerNorm(8).double()
    expected = {
        PostNorm: norm(x + mark(sublayer(x))),
        PreNorm: x + mark(sublayer(norm(x))),
        BranchNorm: x + norm(mark(sublayer(x))),
    }
    for residual, value in expected.items():
        part = residual(norm, dropout=0.1)
        part.dropout = mark
        torch.testing.assert_close(part(x, sublayer), value)
    embedding = Embedding(9, 8, SinusoidalPositions(8), dropout=0.0)
    tokens = torch.tensor([[4, 5, 6]])
    without = embedding(tokens)
    embedding.dropout = mark
    torch.testing.assert_close(embedding(tokens), mark(without))


@pytest.fixture(params=["MKL", "oneDNN"])
def product_library(request, monkeypatch):
    """Both ways, whatever is faster on the processor of this test."""
    by_onednn = request.param == "oneDNN"
    if by_onednn and not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr("transformer_lib.model.linear._onednn_is_faster", lambda: by_onednn)
    return request.param


def both_linears(shape, outputs, with_bias):
    """Ours in float32 and PyTorch's in float64, with inputs; the same numbers in all."""
    torch.manual_seed(0)
    ours = Linear(shape[-1], outputs, bias=with_bias)
    theirs = nn.Linear(shape[-1], outputs, bias=with_bias, dtype=torch.float64)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(shape, requires_grad=True)
    return ours, theirs, x, x.detach().double().requires_grad_()


@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 3, 64), (0, 7), (2, 0, 7)], ids=str)
@pytest.mark.parametrize("outputs", [1, 7, 96])
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear_and_its_gradients_are_torchs(product_library, shape, outputs, with_bias):
    ours, theirs, x, x64 = both_linears(shape, outputs, with_bias)
    y, y64 = ours(x), theirs(x64)
    torch.testing.assert_close(y.double(), y64, rtol=1e-5, atol=1e-5)
    y.square().sum().backward()
    y64.square().sum().backward()
    for mine, right in zip([x, *ours.parameters()], [x64, *theirs.parameters()], strict=True):
        torch.testing.assert_close(mine.grad.double(), right.grad, rtol=1e-4, atol=1e-4)
    with torch.inference_mode():
        torch.testing.assert_close(ours(x).double(), y64, rtol=1e-5, atol=1e-5)


def test_linear_has_second_derivatives(product_library):
    ours, theirs, x, x64 = both_linears((5, 7), 6, with_bias=True)
    for module, inputs in ((ours, x), (theirs, x64)):
        (gradient,) = torch.autograd.grad(module(inputs).pow(3).sum(), inputs, create_graph=True)
        gradient.square().sum().backward()
    torch.testing.assert_close(x.grad.double(), x64.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.weight.grad.double(), theirs.weight.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_linear_can_be_transformed(product_library):
    """By torch.func, in forward mode and by a trace."""
    ours, theirs, x, x64 = both_linears((5, 7), 6, with_bias=True)
    for transformed in (torch.func.jacrev, torch.func.jacfwd, torch.func.vmap, torch.func.hessian):
        got, right = transformed(ours)(x.detach()), transformed(theirs)(x64.detach())
        torch.testing.assert_close(got.double(), right, rtol=1e-5, atol=1e-5)
    with forward_ad.dual_level():
        got = forward_ad.unpack_dual(ours(forward_ad.make_dual(x.detach(), x.detach()))).tangent
    torch.testing.assert_close(got.double(), x64 @ theirs.weight.t(), rtol=1e-5, atol=1e-5)
    assert torch.equal(torch.jit.trace(ours, x)(x), F.linear(x, ours.weight, ours.bias))


def test_linear_takes_any_strides(product_library):
    x, weight, bias = torch.randn(9, 5), torch.randn(7, 11), torch.randn(12)
    turned, part, part_of_bias = x.t(), weight[2:5, 1:10], bias[4:7]
    right = turned.double() @ part.double().t() + part_of_bias.double()
    torch.testing.assert_close(
        linear(turned, part, part_of_bias).double(), right, rtol=1e-5, atol=1e-5
    )
    for left in (torch.randn(9, 3), torch.randn(9, 12)):
        right = left.double().t() @ x.double()
        torch.testing.assert_close(product_over_rows(left, x).double(), right, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("unchecked_shapes")
def test_linear_of_other_shapes_is_pytorchs(product_library):
    x, weight = torch.randn(2, 5, 4), torch.randn(3, 4)
    for bias in (torch.randn(1, 3), torch.randn(1)):
        torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias))
    torch.testing.assert_close(linear(x, weight[0]), F.linear(x, weight[0]))
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied \(10x4 and 5x3\)"):
        linear(x, torch.randn(3, 5))


def test_linear_keeps_the_type_that_is_asked_for(product_library):
    layer, x = Linear(4, 4), torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert layer.double()(x.double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("processor", "is_faster"),
    [
        ({"cpu_name": "AMD EPYC 9354", "avx512_f": True}, True),
        ({"cpu_name": "AMD EPYC 7763", "avx512_f": False}, False),
        ({"cpu_name": "Intel(R) Xeon(R) Platinum 8488C", "avx512_f": True}, False),
        ({"architecture": "aarch64"}, False),
    ],
)
def test_onednn_multiplies_where_mkl_is_slow(monkeypatch, processor, is_faster):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    assert _onednn_is_faster.__wrapped__() is is_faster


def test_flops_of_linear_are_counted(product_library):
    layer, x = Linear(8, 3), torch.randn(2, 5, 8, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        y = layer(x).sum()
    with FlopCounterMode(display=False) as backward:
        y.backward()
    assert forward.get_total_flops() == 2 * 10 * 8 * 3
    assert backward.get_total_flops() == 2 * forward.get_total_flops()


def numpy_sinusoid(length, d_model):
    """Section 3.5, entry by entry."""
    table = np.zeros((length, d_model))
    for pos in range(length):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            table[pos, 2 * i] = math.sin(angle)
            table[pos, 2 * i + 1] = math.cos(angle)
    return table


@pytest.mark.parametrize("d_model", [2, 8, 64])
def test_sinusoid_is_the_papers(d_model):
    table = sinusoidal_positions(300, d_model).numpy()
    np.testing.assert_allclose(table, numpy_sinusoid(300, d_model), atol=1e-6)


def test_halves_are_the_same_channels_in_another_order():
    interleaved = sinusoidal_positions(50, 16)
    halves = sinusoidal_positions(50, 16, layout="halves")
    assert torch.equal(halves, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], dim=1))


@given(pos=st.integers(0, 400), k=st.integers(0, 50))
def test_a_shift_is_a_fixed_rotation_of_the_sinusoid(pos, k):
    table = sinusoidal_positions(451, 32).double()
    frequency = 10000.0 ** -(torch.arange(0, 32, 2).double() / 32)
    cos, sin = (k * frequency).cos(), (k * frequency).sin()
    s, c = table[pos, 0::2], table[pos, 1::2]
    rotated = torch.stack([s * cos + c * sin, c * cos - s * sin], dim=1).flatten()
    torch.testing.assert_close(table[pos + k], rotated, rtol=0, atol=1e-5)


def test_odd_width_is_refused():
    with pytest.raises(ValueError, match="d_model=7 is odd"):
        sinusoidal_positions(10, 7)


@pytest.mark.parametrize("kind", get_args(Positions))
def test_positions_take_any_length_and_can_start_anywhere(kind):
    positions = build_positions(kind, 8)
    x = torch.randn(1, 1500, 8)
    whole = positions(x)
    tail = positions(x[:, 1200:], start=1200)
    assert whole.shape == x.shape
    torch.testing.assert_close(whole[:, 1200:], tail)


def test_positions_that_add_nothing_and_positions_past_the_learned_table():
    x = torch.randn(1, 5, 8)
    assert NoPositions()(x) is x
    learned = LearnedPositions(8, max_len=3)
    added = learned(torch.zeros(1, 5, 8))[0]
    assert torch.equal(added[3], added[2])
    assert torch.equal(added[4], added[2])


def test_a_longer_sentence_extends_the_sinusoid_table():
    positions = SinusoidalPositions(8)
    x = torch.zeros(1, 700, 8)
    np.testing.assert_allclose(positions(x)[0], numpy_sinusoid(700, 8), atol=1e-6)


def test_embedding_is_scaled_before_positions_are_added():
    embedding = Embedding(10, 8, build_positions("sinusoidal", 8), dropout=0.0)
    tokens = torch.tensor([[4, 7]])
    expected = embedding.embed_tokens.weight[tokens[0]] * math.sqrt(8) + sinusoidal_positions(2, 8)
    torch.testing.assert_close(embedding(tokens)[0], expected)


def test_feed_forward_is_equation_2():
    layer = FeedForward(6, 12)
    x = torch.randn(2, 3, 6)
    w1, b1, w2, b2 = layer.hidden.weight, layer.hidden.bias, layer.output.weight, layer.output.bias
    torch.testing.assert_close(layer(x), (x @ w1.T + b1).clamp(min=0) @ w2.T + b2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5, 0.9])
def test_dropout_drops_and_scales(probability, dtype):
    x = torch.ones(1_000_003, dtype=dtype, requires_grad=True)
    y = Dropout(probability)(x)
    y.sum().backward()
    dropped = (y == 0).double().mean().item()
    deviation = math.sqrt(probability * (1 - probability) / len(x))
    assert abs(dropped - probability) < 5 * deviation + 2**-16
    kept = y.detach()[y != 0].unique()
    torch.testing.assert_close(kept.double(), torch.tensor([1 / (1 - probability)]).double(),
                               rtol=0.01, atol=0)  # fmt: skip
    assert torch.equal(x.grad, y.detach())  # the same elements, the same scale


def test_dropout_is_independent_between_neighbors():
    y = Dropout(0.5)(torch.ones(400_000)) != 0
    for distance in (1, 2, 3, 4, 8):
        both = (y[:-distance] & y[distance:]).double().mean().item()
        assert abs(both - 0.25) < 0.005


def test_dropout_inside_of_a_sublayer_is_of_weights_and_of_channels():
    """Where the paper has none: the mean over many draws is what is computed without it."""
    x = torch.randn(20_000, 3, 8)
    one = x[:1].expand_as(x)
    for layer in (FeedForward(8, 16, 0.4), MultiHeadAttention(8, 2, dropout=0.4)):
        with torch.no_grad():
            without = layer.eval()(one[:1])[0]
            drawn = layer.train()(one)
        deviation = drawn.std(dim=0) / math.sqrt(len(drawn))
        assert ((drawn.mean(dim=0) - without).abs() < 5 * deviation + 1e-6).all()
        assert len(drawn[:50].flatten(1).unique(dim=0)) > 40
        assert torch.equal(layer.eval()(x[:4]), layer.eval()(x[:4]))


def test_dropout_off():
    x = torch.randn(5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    with pytest.raises(ValueError, match=r"dropout=1\.0 is not a probability"):
        Dropout(1.0)
