"""Several pairs in a row: each learns as if it were alone, none is lost, and little is padding."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from conftest import TOY_CONFIG
from hypothesis import given
from hypothesis import strategies as st

from transformer_lib.data.batching import make_batch, make_packed_batch
from transformer_lib.data.packing import packed_rows
from transformer_lib.data.store import PairStore, TokenStore
from transformer_lib.errors import UserError
from transformer_lib.experiment.config import changed, load_config
from transformer_lib.experiment.run import load_run, train
from transformer_lib.model import TransformerConfig, build_transformer
from transformer_lib.model.packing import positions_in_pair
from transformer_lib.model.positional_encoding import Positions
from transformer_lib.training.loss import output_loss
from transformer_lib.training.metrics import read_metrics
from transformer_lib.vocabulary import BOS, EOS, PAD

VOCAB = 30


def store_of(lengths, seed=0):
    random = np.random.default_rng(seed)
    sides = []
    for side in zip(*lengths, strict=True):
        sequences = [np.append(random.integers(4, VOCAB, n - 1), EOS) for n in side]
        offsets = np.cumsum([0, *side])
        sides.append(TokenStore(np.concatenate(sequences).astype(np.uint16), offsets))
    return PairStore(*sides)


lengths = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=60)


@given(lengths=lengths, seed=st.integers(0, 100))
def test_every_pair_that_fits_is_in_one_row(lengths, seed):
    src, tgt = np.array(lengths).T
    rows = list(packed_rows(src, tgt, 10, (seed,)))
    assert rows == list(packed_rows(src, tgt, 10, (seed,)))
    fits = [n for n, pair in enumerate(lengths) if max(pair) <= 10]
    assert sorted(n for row in rows for n in row) == fits
    for row in rows:
        assert row
        assert max(src[row].sum(), tgt[row].sum()) <= 10


@given(lengths=lengths, seed=st.integers(0, 100))
def test_a_row_is_its_pairs_one_after_another(lengths, seed):
    store = store_of(lengths, seed)
    rows = list(packed_rows(store.src.lengths, store.tgt.lengths, 14, (seed,)))
    batch = make_packed_batch(store, [np.array(row) for row in rows], 14)
    for n, row in enumerate(rows):
        for side, tokens, pairs in (
            (store.src, batch.src, batch.src_pairs), (store.tgt, batch.labels, batch.tgt_pairs)
        ):  # fmt: skip
            joined = [t for pair in row for t in side[pair].tolist()]
            owners = [k for k, pair in enumerate(row, 1) for _ in side[pair]]
            padding = [0] * (14 - len(joined))
            assert (tokens[n].tolist(), pairs[n].tolist()) == (joined + padding, owners + padding)
        inputs = [t for pair in row for t in (BOS, *store.tgt[pair][:-1].tolist())]
        assert batch.tgt_input[n].tolist() == inputs + [PAD] * (14 - len(inputs))


def test_rows_of_news_are_nearly_full():
    random = np.random.default_rng(1)
    src = np.clip(random.lognormal(3.1, 0.6, 20_000).astype(int), 2, 255)
    tgt = np.clip((src * random.normal(1.05, 0.15, len(src))).astype(int), 2, 255)
    rows = list(packed_rows(src, tgt, 256, (1,)))
    filled = (src.sum() + tgt.sum()) / (2 * 256 * len(rows))
    assert filled > 0.94


@pytest.mark.parametrize("positions", get_args(Positions))
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_pair_in_a_row_is_the_pair_alone(norm, positions):
    torch.manual_seed(0)
    store = store_of([(3, 5), (7, 2), (4, 4), (9, 8), (2, 6)])
    model = build_transformer(
        TransformerConfig(
            d_model=16, d_ff=32, num_heads=2, num_encoder_layers=2, num_decoder_layers=2,
            dropout=0.0, norm=norm, positions=positions,
        ),
        VOCAB,
    ).double()  # fmt: skip
    rows = [np.array([0, 3]), np.array([1, 4, 2])]
    packed = make_packed_batch(store, rows, 14)
    states = model.decode_packed(packed.src, packed.tgt_input, packed.src_pairs, packed.tgt_pairs)
    weights = list(model.parameters())
    loss = output_loss(states, model.output_weight, packed.labels, 0.1, real=packed.real)
    gradients = torch.autograd.grad(loss.smoothed, weights)
    assert all(gradient.isfinite().all() for gradient in gradients)

    expected, tokens = 0.0, 0
    for number, row in enumerate(rows):
        place = 0
        for pair in row:
            alone = make_batch(store, np.array([pair]))
            own = model.decode(alone.tgt_input, model.encode(alone.src))
            length = int(store.tgt.lengths[pair])
            torch.testing.assert_close(
                states[number, place : place + length], own[0, :length], rtol=0, atol=1e-10
            )
            place += length
            own_loss = output_loss(own, model.output_weight, alone.labels, 0.1)
            expected, tokens = expected + own_loss.smoothed, tokens + own_loss.tokens
    assert loss.tokens == tokens
    torch.testing.assert_close(loss.smoothed, expected)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, weights), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def test_each_pair_begins_with_a_sign_of_its_own():
    store = store_of([(3, 4), (2, 3)])
    batch = make_packed_batch(store, [np.array([0, 1])], 9)
    first, second = store.tgt[0].astype(int).tolist(), store.tgt[1].astype(int).tolist()
    assert batch.labels.tolist() == [[*first, *second, PAD, PAD]]
    assert batch.tgt_input.tolist() == [[BOS, *first[:-1], BOS, *second[:-1], PAD, PAD]]
    assert positions_in_pair(batch.tgt_pairs).tolist()[0][:7] == [0, 1, 2, 3, 0, 1, 2]
    assert batch.num_tgt_tokens == len(batch.real) == 7


@pytest.fixture
def packed_config(tmp_path, toy_files):
    path = tmp_path / "toy.toml"
    path.write_text(TOY_CONFIG)
    return load_config(str(path), ["training.row_tokens=32"]), toy_files


def test_packed_training_learns_and_resumes_to_the_same_numbers(packed_config, tmp_path):
    experiment, files = packed_config
    assert train(experiment, tmp_path / "whole", files)
    expected = [(r["step"], r["loss"], r["tokens"]) for r in read_metrics(tmp_path / "whole")]
    newest = sorted((tmp_path / "whole").glob("step-*.safetensors"))[-1]
    newest.unlink()
    assert train(experiment, tmp_path / "whole", files, resume=True)
    assert [
        (r["step"], r["loss"], r["tokens"]) for r in read_metrics(tmp_path / "whole")
    ] == expected
    losses = [loss for _, loss, _ in expected]
    assert losses[-1] < 0.7 * losses[0]


def test_a_sentence_longer_than_a_row_is_translated_in_parts(packed_config, tmp_path):
    """A packed training has seen no more than a row, however long a sentence may be."""
    experiment, files = packed_config
    short = changed(experiment.training, steps=1, row_tokens=16)
    train(replace(experiment, training=short), tmp_path / "run", files)
    run = load_run(tmp_path / "run")
    with pytest.warns(UserWarning, match=r"more than the 15 that .* in [2-9] parts"):
        run.translate(["the cat sees the mouse " * 4])


def test_what_cannot_be_packed_is_refused(toy_config):
    with pytest.raises(UserError, match="which an RNN cannot tell apart"):
        load_config("cpu_tatoeba_rnn", ["training.row_tokens=64"])
    with pytest.raises(UserError, match="row_tokens=512 does not fit into a batch"):
        load_config(str(toy_config), ["training.row_tokens=512"])


def test_rows_into_which_no_pair_fits_are_said_to_be(packed_config, tmp_path):
    experiment, files = packed_config
    narrow = replace(experiment, training=changed(experiment.training, row_tokens=2))
    with pytest.raises(UserError, match=r"no sentence pair fits into a row of .*row_tokens=2"):
        train(narrow, tmp_path / "run", files)
