"""Attention against torch, in the forms to read and to run."""

import subprocess
import sys
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.profiler import ProfilerActivity, profile

from transformer_lib.model import (
    MultiHeadAttention,
    attention,
    causal_mask,
    combine_masks,
    fused_attention,
    padding_mask,
    recorded_attention,
)
from transformer_lib.model.scaled_dot_product import _kernels_for_any_shape

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def random_qkv(queries=5, keys=7, dtype=torch.float64, requires_grad=False):
    shapes = [(2, 3, queries, 8), (2, 3, keys, 8), (2, 3, keys, 8)]
    return [torch.randn(s, dtype=dtype).requires_grad_(requires_grad) for s in shapes]


@given(
    queries=st.integers(1, 9), keys=st.integers(1, 9), masked=st.booleans(), seed=st.integers(0, 99)
)
def test_readable_attention_is_torchs(queries, keys, masked, seed):
    torch.manual_seed(seed)
    q, k, v = random_qkv(queries, keys)
    mask = (torch.rand(2, 1, queries, keys) < 0.6) if masked else None
    output, weights = attention(q, k, v, mask)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    rows = weights.sum(-1)
    assert ((rows - 1).abs() < 1e-12).logical_or(rows == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_fused_attention_is_the_readable_one(dtype, is_causal, masked, requires_grad):
    q, k, v = random_qkv(6, 6, dtype, requires_grad)
    mask = padding_mask(torch.tensor([[5, 6, 7, 8, 9, 4], [5, 6, 7, 0, 0, 0]])) if masked else None
    every = combine_masks(mask, causal_mask(6) if is_causal else None)
    expected = attention(q.double(), k.double(), v.double(), every)[0].to(dtype)
    actual = fused_attention(q, k, v, mask, is_causal)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 3e-2)
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", [None, torch.ones(1, 1, 5, 7, dtype=torch.bool)])
def test_causal_attention_wants_as_many_queries_as_keys(dtype, mask):
    (q, *_), (_, k, v) = random_qkv(5, 5, dtype), random_qkv(7, 7, dtype)
    with pytest.raises(ValueError, match="as many queries as keys, not 5 and 7"):
        fused_attention(q, k, v, mask, is_causal=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", [lambda *x: attention(*x)[0], fused_attention])
def test_a_fully_masked_row_gives_zeros_and_finite_gradients(dtype, form):
    q, k, v = random_qkv(4, 4, dtype, requires_grad=True)
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    mask[0, 0, 2] = False
    output = form(q, k, v, mask)
    assert (output[0, :, 2] == 0).all()
    assert output.isfinite().all()
    output.float().sum().backward()
    for tensor in (q, k, v):
        assert tensor.grad.isfinite().all()


def test_no_kernel_of_a_gpu_is_planned_for_each_shape():
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with _kernels_for_any_shape(torch.device("cuda")):
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
        assert torch.backends.cuda.mem_efficient_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


@pytest.mark.parametrize("cross", [False, True])
def test_multi_head_attention_is_torchs(cross):
    ours = MultiHeadAttention(24, 4).double()
    theirs = nn.MultiheadAttention(24, 4, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv_proj.weight)
        theirs.in_proj_bias.copy_(ours.qkv_proj.bias.normal_())
        theirs.out_proj.weight.copy_(ours.out_proj.weight)
        theirs.out_proj.bias.copy_(ours.out_proj.bias.normal_())
    x = torch.randn(2, 5, 24).double()
    memory = torch.randn(2, 6, 24).double() if cross else x
    tokens = torch.ones(2, memory.size(1), dtype=torch.long)
    tokens[1, -2:] = 0
    expected, _ = theirs(x, memory, memory, key_padding_mask=tokens == 0)
    actual = ours(x, memory if cross else None, mask=padding_mask(tokens))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@given(seed=st.integers(0, 99), length=st.integers(2, 8))
def test_self_attention_without_positions_is_permutation_equivariant(seed, length):
    torch.manual_seed(seed)
    layer = MultiHeadAttention(16, 4).double()
    x = torch.randn(1, length, 16).double()
    order = torch.randperm(length)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order], rtol=0, atol=1e-12)


def test_wrong_number_of_heads_says_what_to_do():
    with pytest.raises(ValueError, match="d_model=30 is not divisible by num_heads=4; choose"):
        MultiHeadAttention(30, 4)


def test_recorded_attention_sees_the_weights_and_leaves_the_model_as_it_was():
    layer = nn.Sequential(MultiHeadAttention(16, 2))
    x = torch.randn(1, 4, 16)
    before = layer(x)
    with recorded_attention(layer) as weights:
        during = layer(x)
    torch.testing.assert_close(before, during)
    assert weights["0"].shape == (1, 2, 4, 4)
    assert layer[0].attention_function is fused_attention


def test_what_is_recorded_in_training_is_the_weights_before_dropout():
    layer = MultiHeadAttention(16, 2, dropout=0.5)
    x = torch.randn(1, 4, 16)
    with recorded_attention(layer) as weights:
        torch.manual_seed(1)
        during = layer(x)
    torch.manual_seed(1)
    torch.testing.assert_close(during, layer(x))
    torch.testing.assert_close(weights[""].sum(dim=-1), torch.ones(1, 2, 4))


def above(event):
    """The names of the operations that an operation is part of."""
    names = ""
    while event := event.cpu_parent:
        names += f" {event.name}"
    return names


@pytest.mark.parametrize("cross", [False, True])
def test_gradients_of_the_projections_are_copied_once(cross):
    """Side by side, as the product wants them; not joined by heads and then put in order."""
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    output = MultiHeadAttention(16, 4)(x, memory if cross else None)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        output.backward(torch.randn_like(output))
    # Some processors' products copy a factor for themselves.
    calls = Counter(event.name for event in profiled.events() if "_linear_" not in above(event))
    assert (calls["aten::cat"], calls["aten::clone"]) == (1, 0)


def test_masks():
    tokens = torch.tensor([[5, 6, 0], [7, 0, 0]])
    assert padding_mask(tokens)[:, 0, 0].tolist() == [[True, True, False], [True, False, False]]
    assert causal_mask(3)[0, 0].tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    both = combine_masks(padding_mask(tokens), None, causal_mask(3))
    assert both.shape == (2, 1, 3, 3)
    assert both[1, 0].tolist() == [[True, False, False]] * 3
    assert combine_masks(None, None) is None
    blocked = nn.Transformer.generate_square_subsequent_mask(5).isinf()
    assert torch.equal(~causal_mask(5)[0, 0], blocked)


REFUSED = """
import torch
from transformer_lib.model import scaled_dot_product
query = torch.randn(1, 1, 3, 4)
for name in ("attention", "fused_attention"):
    try:
        getattr(scaled_dot_product, name)(query, query, query, torch.ones(3, 3).tril())
    except TypeError as error:
        print(error)
"""


def test_a_mask_of_numbers_is_refused():
    """PyTorch's kernel would add them to the scores. (In this process types are checked before.)"""
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True)
    line = "the mask is of torch.float32; give torch.bool, True where one may look"
    assert done.stdout.splitlines() == [line, line], done.stderr
