"""Muon, and tables that start from counts: the fast recipe's two parts."""

from collections import Counter

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from transformer_lib.data.store import PairStore, TokenStore
from transformer_lib.errors import UserError
from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import train
from transformer_lib.model import TransformerConfig, build_transformer
from transformer_lib.training.adam import adam
from transformer_lib.training.checkpoint import checkpoints_in
from transformer_lib.training.counted_start import pointwise_mutual_information, start_from_counts
from transformer_lib.training.metrics import read_metrics
from transformer_lib.training.muon import Muon, orthogonalized
from transformer_lib.vocabulary import BOS

SMALL = TransformerConfig(
    d_model=16, d_ff=40, num_heads=2, num_encoder_layers=1, num_decoder_layers=2, norm="pre",
    tied_embeddings="none",
)  # fmt: skip


def with_gradients(seed, config=SMALL):
    torch.manual_seed(seed)
    model = build_transformer(config, 30)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 5, 20), (1, 1, 7)])
def test_orthogonalized_goes_to_the_polar_factor(shape):
    torch.manual_seed(0)
    matrices = torch.randn(shape, dtype=torch.float64)
    found = orthogonalized(matrices, torch.float64)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.3
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)  # U·Vᵀ is the nearest one
    similarity = torch.cosine_similarity(found.flatten(1), (left @ right).flatten(1))
    assert similarity.min() > 0.95
    # Whatever the length of the gradient.
    torch.testing.assert_close(
        orthogonalized(1e-3 * matrices, torch.float64), found, rtol=1e-3, atol=1e-3
    )
    assert not orthogonalized(torch.zeros(shape), torch.float32).any()


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_a_step_is_that_of_pytorchs_muon_and_adamw(decay):
    model = with_gradients(1)
    reference = with_gradients(1)
    optimizer = Muon(model, 4.0, (0.9, 0.98), 1e-9, torch.bfloat16, decay)
    muons, others = {}, []
    with torch.no_grad():  # PyTorch's does not know that a matrix may be three
        for name, parameter in reference.named_parameters():
            if parameter.dim() == 2 and ".layers." in name:
                number = 3 if "qkv" in name else 1
                muons[name] = [nn.Parameter(part.clone()) for part in parameter.chunk(number)]
            else:
                others.append(parameter)
    theirs = torch.optim.Muon(
        [part for parts in muons.values() for part in parts],
        lr=0.02, weight_decay=0.0, momentum=0.95, nesterov=True,
    )  # fmt: skip
    groups = [
        {"params": [p for p in others if p.dim() == 2], "weight_decay": decay},
        {"params": [p for p in others if p.dim() == 1], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=0.005, betas=(0.9, 0.98), eps=1e-9)
    optimizer.param_groups[0]["lr"] = 0.005
    for step in range(4):
        torch.manual_seed(step)
        gradients = {name: torch.randn_like(p) for name, p in model.named_parameters()}
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name]
        for name, parameter in reference.named_parameters():
            parameter.grad = gradients[name]
            for part, gradient in zip(
                muons.get(name, []), gradients[name].chunk(len(muons.get(name, [0]))), strict=False
            ):
                part.grad = gradient
        optimizer.step()
        theirs.step()
        adamw.step()
    for name, parameter in model.named_parameters():
        if name in muons:
            torch.testing.assert_close(parameter, torch.cat(muons[name]), rtol=0, atol=2e-3)
        else:
            torch.testing.assert_close(parameter, dict(reference.named_parameters())[name])


def test_a_step_that_is_not_finite_changes_nothing():
    model = with_gradients(2)
    optimizer = Muon(model, 4.0, (0.9, 0.98), 1e-9, weight_decay=0.1)
    optimizer.param_groups[0]["lr"] = 0.01
    optimizer.step()
    before = [p.clone() for p in model.parameters()]
    means = {p: s["mean"].clone() for p, s in optimizer.state.items() if "mean" in s}
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(torch.equal(optimizer.state[p]["mean"], mean) for p, mean in means.items())
    optimizer.found_inf = torch.zeros(())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("ratio", [None, 4.0])
def test_weight_decay_lets_what_adam_trains_shrink_but_no_norm_or_bias(ratio):
    model = with_gradients(3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    if ratio is None:
        optimizer = adam(model.parameters(), (0.9, 0.98), 1e-9, weight_decay=0.5)
    else:
        optimizer = Muon(model, ratio, (0.9, 0.98), 1e-9, weight_decay=0.5)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        of_muon = ratio is not None and ".layers." in name
        kept = 1.0 - 0.5 * 0.01 if parameter.dim() == 2 and not of_muon else 1.0
        torch.testing.assert_close(parameter, kept * before[name])


def test_a_resumed_run_with_muon_is_the_uninterrupted_one(toy_config, tmp_path):
    settings = ["training.muon_rate=0.02", "model.tied_embeddings=output"]
    settings += ["training.weight_decay=0.1"]
    settings += ["training.counted_start=true", "training.keep_checkpoints=9"]
    experiment = load_config(str(toy_config), settings)
    assert train(experiment, tmp_path / "whole")
    assert train(experiment, tmp_path / "broken")
    middle = checkpoints_in(tmp_path / "broken")[-2]
    for path in (
        checkpoints_in(tmp_path / "broken")[-1],
        tmp_path / "broken" / "model.safetensors",
    ):
        path.unlink()
    assert any(name.endswith(":mean") for name in load_file(middle))
    assert train(experiment, tmp_path / "broken", resume=True)
    whole, broken = (read_metrics(tmp_path / name) for name in ("whole", "broken"))
    assert [r["loss"] for r in broken] == [r["loss"] for r in whole]
    expected = load_file(tmp_path / "whole" / "model.safetensors")
    for name, tensor in load_file(tmp_path / "broken" / "model.safetensors").items():
        assert torch.equal(tensor, expected[name]), name


# Tables from counts


def store(sentences):
    offsets = np.cumsum([0, *map(len, sentences)])
    return TokenStore(np.concatenate(sentences).astype(np.uint16), offsets)


@pytest.fixture
def dictionary():
    """Pairs in a language of which word w + 40 translates word w, in another order."""
    random = np.random.default_rng(0)
    sources = [random.integers(4, 44, size=random.integers(2, 7)) for _ in range(600)]
    return PairStore(store(sources), store([random.permutation(s) + 40 for s in sources]))


def test_mutual_information_is_that_of_counting_one_by_one(dictionary):
    found = pointwise_mutual_information(dictionary, 90).to_dense().double()
    together, src, tgt = Counter(), Counter(), Counter()
    for i in range(len(dictionary)):
        s, t = set(dictionary.src[i].tolist()), set(dictionary.tgt[i].tolist())
        src.update(s)
        tgt.update(t)
        together.update((x, y) for x in s for y in t)
    expected = torch.zeros(90, 90, dtype=torch.float64)
    for (s, t), n in together.items():
        p = n / 600
        expected[s, t] = max(0.0, np.log(p / (src[s] / 600 * tgt[t] / 600))) * n / (n + 1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tied", ["none", "output"])
def test_an_untrained_model_knows_the_words(dictionary, tied):
    config = TransformerConfig(
        d_model=48, d_ff=64, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, norm="pre",
        tied_embeddings=tied,
    )  # fmt: skip
    torch.manual_seed(0)
    model = build_transformer(config, 90).eval()
    start_from_counts(model, dictionary, seed=1)
    words = torch.arange(4, 44)
    rows = model.src_embedding.embed_tokens.weight[words]
    assert (rows @ model.output_weight.T).argmax(dim=1).eq(words + 40).float().mean() > 0.95
    # In the whole model: what a source makes more probable than others do translates a word of it.
    sources = torch.randint(4, 44, (100, 4))
    logits = model(sources, torch.full((100, 1), BOS))[:, 0]
    most = (logits - logits.mean(dim=0)).argmax(dim=1)
    assert (most[:, None] == sources + 40).any(dim=1).float().mean() > 0.9


def test_the_same_seed_counts_the_same(dictionary):
    models = [build_transformer(SMALL, 90) for _ in range(2)]
    for model in models:
        before = torch.get_rng_state()
        start_from_counts(model, dictionary, seed=3)
        assert torch.equal(before, torch.get_rng_state())
    one, two = (model.src_embedding.embed_tokens.weight for model in models)
    assert torch.equal(one, two)
    lengths = models[0].output_weight.norm(dim=1)
    assert lengths.min() > 0.2
    assert lengths.max() < 1.8


def test_a_vocabulary_smaller_than_the_model_is_wide():
    pairs = PairStore(store([[4, 5], [5]]), store([[6, 7], [7]]))
    model = build_transformer(SMALL, 9)
    start_from_counts(model, pairs, seed=0)
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("kind", ["an RNN", "one table"])
def test_counts_need_a_table_for_each_language(toy_config, tmp_path, kind):
    settings = ["training.counted_start=true"]
    if kind == "one table":
        settings.append("model.tied_embeddings=all")
    else:
        text = toy_config.read_text(encoding="utf-8").split("[model]")[0]
        rnn = '[model]\nkind = "rnn"\n[training]\nsteps = 2\n'
        toy_config.write_text(text + rnn, encoding="utf-8")
    with pytest.raises(UserError, match="needs a Transformer with a table for each language"):
        train(load_config(str(toy_config), settings), tmp_path / "run")


def test_muon_is_for_the_layers_of_a_transformer():
    with pytest.raises(UserError, match="for the matrices of a Transformer's layers"):
        load_config("cpu_tatoeba_rnn", ["training.muon_rate=0.02"])


def test_muon_has_no_place_in_the_schedule_of_the_paper(toy_config):
    settings = ["training.muon_rate=0.02", "training.schedule=noam"]
    with pytest.raises(UserError, match="muon_rate goes with schedule='budget'"):
        load_config(str(toy_config), settings)
