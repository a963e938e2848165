"""The programs of the leaderboard that are the course's: what they add to the library's models."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from test_model import VOCAB, random_tokens, small_rnn, small_transformer

from transformer_lib.data.store import PairStore
from transformer_lib.decoding import beam_search
from transformer_lib.leaderboard.program import Task
from transformer_lib.vocabulary import BOS, EOS, PAD

ENTRIES = Path(__file__).parent.parent / "leaderboard"


def program(path):
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), ENTRIES / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


neighbors = program("tatoeba-3min/neighbors/program.py")
ensemble = program("multi30k-20min/ensemble/program.py")


@pytest.fixture
def pairs(tmp_path):
    """Twelve sentence pairs of all lengths."""
    made = [
        tuple([*random_tokens(length).tolist(), EOS] for length in (2 + n % 5, 1 + n % 7))
        for n in range(12)
    ]
    PairStore.write(tmp_path, made, VOCAB)
    return PairStore.open(tmp_path, VOCAB)


def by_hand(model, pairs, src, prefix, sentences, share, temperature):
    """The next token's probabilities for one sentence, one number after another, in NumPy."""

    def states(source, target):
        source, target = (torch.tensor([list(map(int, side))]) for side in (source, target))
        memory = model.encode(source)
        return memory.states[0].detach().numpy(), model.decode(target, memory)[0].detach().numpy()

    read = [states(pairs.src[n], [BOS, *pairs.tgt[n][:-1]]) for n in range(len(pairs))]
    means = np.stack([encoded.mean(axis=0) for encoded, _ in read])
    center = means.mean(axis=0)
    encoded, decoded = states(src, prefix)
    own = encoded.mean(axis=0) - center
    cosines = (means - center) @ own / np.linalg.norm(means - center, axis=1) / np.linalg.norm(own)
    here = decoded[-1]
    logits = model.output_weight.detach().numpy() @ here
    p = np.exp(logits) / np.exp(logits).sum()
    weights = np.zeros(VOCAB)
    for n in np.argsort(-cosines)[:sentences]:
        for key, token in zip(read[n][1], pairs.tgt[n], strict=True):
            weights[token] += np.exp(-((here - key) ** 2).sum() / temperature)
    return (1 - share) * p + share * weights / weights.sum()


def test_neighbors_say_what_followed_in_the_most_similar_sentences(pairs, monkeypatch):
    for name, value in (("SENTENCES", 3), ("SHARE", 0.3), ("TEMPERATURE", 2.0)):
        monkeypatch.setattr(neighbors, name, value)
    model = small_transformer(norm="pre")
    with_neighbors = neighbors.WithNeighbors(model, pairs)
    src = random_tokens(3, 6)
    src[1, 4:] = PAD
    state = with_neighbors.init_state(with_neighbors.encode(src))

    def step(tokens, prefixes, rows):
        logits = with_neighbors.decode_step(torch.tensor(tokens), state)
        for row, prefix, found in zip(rows, prefixes, logits, strict=True):
            source = [token for token in src[row].tolist() if token != PAD]
            expected = by_hand(model, pairs, source, prefix, 3, 0.3, 2.0)
            np.testing.assert_allclose(found.exp().detach().numpy(), expected, atol=1e-9)

    step([BOS] * 3, [[BOS]] * 3, [0, 1, 2])
    state.select(torch.tensor([2, 2, 1, 1]), torch.tensor([2, 1]))  # two hypotheses of each
    step([5, 6, 7, 8], [[BOS, 5], [BOS, 6], [BOS, 7], [BOS, 8]], [2, 2, 1, 1])


def test_a_search_with_neighbors_that_weigh_nothing_is_the_model_s(pairs, monkeypatch):
    monkeypatch.setattr(neighbors, "SHARE", 0.0)
    model = small_transformer()
    src = random_tokens(5, 6)
    expected = beam_search(model, src)
    assert found_tokens(beam_search(neighbors.WithNeighbors(model, pairs), src)) == found_tokens(
        expected
    )


def test_an_ensemble_s_probabilities_are_the_mean_of_its_models():
    models = [small_transformer(), small_transformer(norm="post"), small_rnn()]
    together = ensemble.Ensemble(models)
    src, tgt = random_tokens(3, 6), random_tokens(3, 8)
    tgt[:, 0] = BOS
    src[2, -3:] = PAD
    expected = sum(model(src, tgt).softmax(dim=-1) for model in models) / 3
    state = together.init_state(together.encode(src))
    for position in range(4):
        p = together.decode_step(tgt[:, position], state).exp()
        torch.testing.assert_close(p, expected[:, position], rtol=0, atol=1e-10)
    rows = torch.tensor([2, 0])
    state.select(rows, rows)
    for position in range(4, 8):
        p = together.decode_step(tgt[rows, position], state).exp()
        torch.testing.assert_close(p, expected[rows, position], rtol=0, atol=1e-10)


def test_an_ensemble_of_one_model_twice_finds_what_it_finds():
    model = small_transformer()
    src = random_tokens(5, 6)
    found = beam_search(ensemble.Ensemble([model, model]), src)
    assert found_tokens(found) == found_tokens(beam_search(model, src))


def found_tokens(beams):
    return [[hypothesis.tokens for hypothesis in beam] for beam in beams]


@pytest.mark.parametrize("module", [neighbors, ensemble], ids=["neighbors", "ensemble"])
def test_a_program_learns_and_translates(module, toy_files, tmp_path, monkeypatch):
    text = tmp_path / "text"
    text.mkdir()
    for name in ("train.en", "train.de", "valid.en", "valid.de", "test.en"):
        (text / name).write_bytes((toy_files / name).read_bytes())
    train = Task.train

    def small(self, config, folder, *settings, **options):
        sizes = ("data.vocab_size=80", "model.d_model=32", "model.d_ff=64", "training.device=cpu")
        return train(self, config, folder, *settings, *sizes, **options)

    monkeypatch.setattr(Task, "train", small)
    out = tmp_path / "out"
    options = ["--seed", "1", "--seconds", "4", "--text", str(text), "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["program.py", *options])
    module.main()
    assert len(out.read_text(encoding="utf-8").splitlines()) == 20
