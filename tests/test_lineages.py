"""The five lineages, each against plain NumPy written from its published formulas."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from transformer_lib.course.lineages import LINEAGES, Sizes, kyubyong, lecture, toy, tutorial
from transformer_lib.course.lineages.differences import describe, differences
from transformer_lib.course.lineages.kyubyong import head_major_attention
from transformer_lib.course.lineages.lineage import UnbiasedLayerNorm, filled_attention
from transformer_lib.course.lineages.niutensor import added_before_scaling, timing_signal
from transformer_lib.course.misconceptions.bank import bank
from transformer_lib.decoding.search import greedy_search
from transformer_lib.vocabulary import BOS, EOS, PAD

SIZES = Sizes(
    src_vocab_size=11, tgt_vocab_size=11, d_model=12, d_ff=20, num_heads=3, num_layers=2,
    dropout=0.3,
)  # fmt: skip
SRC = torch.tensor([[4, 5, 6, 7, EOS], [8, 9, EOS, PAD, PAD]])
TGT = torch.tensor([[BOS, 10, 4, 7], [BOS, 6, 5, PAD]])


@pytest.fixture(autouse=True)
def _double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# What a lineage publishes, formula by formula, in NumPy. Masks here are 1 where one may look.


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def paper_positions(length, d):
    return np.array(
        [
            [(math.cos if j % 2 else math.sin)(pos / 10000 ** ((j - j % 2) / d)) for j in range(d)]
            for pos in range(length)
        ]
    )


def niutensor_positions(length, d):
    angle = [[pos / 10000 ** (2 * i / (d - 2)) for i in range(d // 2)] for pos in range(length)]
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def biased_norm(x, scale, shift, eps_in_root):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return scale * (x - mean) / np.sqrt(variance + eps_in_root) + shift


def unbiased_norm(x, scale, shift):
    mean, deviation = x.mean(-1, keepdims=True), x.std(-1, keepdims=True, ddof=1)
    return scale * (x - mean) / (deviation + 1e-6) + shift


class Formulas:
    """The tutorial's, which is the plainest; the others say what they do otherwise."""

    scale = 1.0
    blocked = -np.inf

    def positions(self, length, d):
        return paper_positions(length, d)

    def weights(self, scores, keys, future, d_k):
        scores = scores / math.sqrt(d_k)
        return softmax(np.where(keys * future == 1, scores, self.blocked))

    def norm(self, x, scale, shift):
        return biased_norm(x, scale, shift, 1e-5)

    def residual(self, x, f, norm):
        return norm(x + f(x))

    def final(self, x, norm):
        return x

    def project(self, w, name, x):
        """x·W^O of the attention called ``name``."""
        return x @ w[f"{name}.out_proj.weight"].T + w[f"{name}.out_proj.bias"]

    def projections(self, w, name):
        weight, bias = w[f"{name}.qkv_proj.weight"], w[f"{name}.qkv_proj.bias"]
        return list(zip(np.split(weight, 3), np.split(bias, 3), strict=True))

    def embed(self, w, side, tokens):
        x = w[f"{side}_embedding.embed_tokens.weight"][tokens] * self.scale
        return x + self.positions(tokens.shape[1], x.shape[2])

    def attend(self, w, name, x, memory, keys, future):
        (wq, bq), (wk, bk), (wv, bv) = self.projections(w, name)
        heads, d_k = SIZES.num_heads, x.shape[-1] // SIZES.num_heads
        query, key, value = x @ wq.T + bq, memory @ wk.T + bk, memory @ wv.T + bv
        contexts = []
        for h in range(heads):
            channels = slice(h * d_k, (h + 1) * d_k)
            scores = query[..., channels] @ key[..., channels].swapaxes(1, 2)
            weights = self.weights(scores, keys[:, None, :], future, d_k)
            contexts.append(weights @ value[..., channels])
        return self.project(w, name, np.concatenate(contexts, axis=-1))

    def feed_forward(self, w, name, x):
        hidden = x @ w[f"{name}.hidden.weight"].T + w[f"{name}.hidden.bias"]
        return np.maximum(0, hidden) @ w[f"{name}.output.weight"].T + w[f"{name}.output.bias"]

    def model(self, w, src, tgt):
        def norm(name):
            return lambda x: self.norm(x, w[f"{name}.weight"], w[f"{name}.bias"])

        def sublayer(layer, part, x, f):
            return self.residual(x, f, norm(f"{layer}.{part}_residual.norm"))

        real, tgt_real = (src != PAD) * 1, (tgt != PAD) * 1
        memory = self.embed(w, "src", src)
        for n in range(SIZES.num_layers):
            layer = f"encoder.layers.{n}"
            memory = sublayer(
                layer, "self_attention", memory,
                lambda x, a=f"{layer}.self_attention": self.attend(w, a, x, x, real, 1),
            )  # fmt: skip
            memory = sublayer(
                layer, "feed_forward", memory,
                lambda x, a=f"{layer}.feed_forward": self.feed_forward(w, a, x),
            )  # fmt: skip
        memory = self.final(memory, norm("encoder.final_norm"))
        x = self.embed(w, "tgt", tgt)
        future = np.tril(np.ones((tgt.shape[1], tgt.shape[1])))
        for n in range(SIZES.num_layers):
            layer = f"decoder.layers.{n}"
            x = sublayer(
                layer, "self_attention", x,
                lambda x, a=f"{layer}.self_attention": self.attend(w, a, x, x, tgt_real, future),
            )  # fmt: skip
            x = sublayer(
                layer, "cross_attention", x,
                lambda x, a=f"{layer}.cross_attention": self.attend(w, a, x, memory, real, 1),
            )  # fmt: skip
            x = sublayer(
                layer, "feed_forward", x,
                lambda x, a=f"{layer}.feed_forward": self.feed_forward(w, a, x),
            )  # fmt: skip
        return self.final(x, norm("decoder.final_norm")) @ w["output_weight"].T


class NiuTensor(Formulas):
    scale = math.sqrt(SIZES.d_model)

    def positions(self, length, d):
        return niutensor_positions(length, d)

    def weights(self, scores, keys, future, d_k):
        return softmax((scores + np.where(keys * future == 1, 0, -1e9)) / math.sqrt(d_k))

    def norm(self, x, scale, shift):
        return biased_norm(x, scale, shift, 0.0)

    def projections(self, w, name):
        return [(matrix, 0) for matrix in np.split(w[f"{name}.qkv_proj.weight"], 3)]  # Q, K, V

    def project(self, w, name, x):
        return x @ w[f"{name}.out_proj.weight"].T


class Lecture(Formulas):
    scale = math.sqrt(SIZES.d_model)
    blocked = -1e9

    def __init__(self, form="branch"):
        self.form = form

    def norm(self, x, scale, shift):
        return unbiased_norm(x, scale, shift)

    def residual(self, x, f, norm):
        if self.form == "branch":
            return x + norm(f(x))
        return x + f(norm(x)) if self.form == "pre" else norm(x + f(x))

    def final(self, x, norm):
        return norm(x)


class Kyubyong(Formulas):
    scale = math.sqrt(SIZES.d_model)

    def weights(self, scores, keys, future, d_k):
        scores = scores / math.sqrt(d_k) + (1 - keys) * (-(2**32) + 1)
        return softmax(np.where(future == 1, scores, -(2**32) + 1))

    def norm(self, x, scale, shift):
        return biased_norm(x, scale, shift, 1e-8)

    def project(self, w, name, x):
        return x

    def embed(self, w, side, tokens):
        positions = np.where(
            (tokens == PAD)[..., None], 0, self.positions(tokens.shape[1], SIZES.d_model)
        )
        table = np.concatenate([np.zeros((1, SIZES.d_model)), w["output_weight"][1:]])
        return table[tokens] * self.scale + positions


FORMULAS = {
    "niutensor": NiuTensor(),
    "tutorial": Formulas(),
    "lecture": Lecture(),
    "illustrated": Lecture("pre"),
    "kyubyong": Kyubyong(),
}


def randomized(model):
    """No weight is left at a special value, such as a bias at zero; what is frozen stays."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and not name.endswith("embed_tokens.weight"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def numpy_weights(model):
    return {
        name: parameter.detach().numpy()
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }


def assert_follows(model, formulas):
    expected = formulas.model(numpy_weights(model), SRC.numpy(), TGT.numpy())
    with torch.no_grad():
        got = model(SRC, TGT).numpy()
    real = TGT.numpy() != PAD
    np.testing.assert_allclose(got[real], expected[real], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", LINEAGES)
def test_each_lineage_follows_its_published_formulas(name):
    assert_follows(randomized(LINEAGES[name].build(SIZES)), FORMULAS[name])


@pytest.mark.parametrize("form", ["post", "pre", "branch"])
def test_the_lecture_has_three_residual_forms(form):
    assert_follows(randomized(lecture.build(SIZES, residual=form)), Lecture(form))


@pytest.mark.parametrize("name", LINEAGES)
def test_a_step_with_the_cache_is_the_whole_pass(name):
    model = randomized(LINEAGES[name].build(SIZES))
    with torch.no_grad():
        whole = model(SRC, TGT)
        state = model.init_state(model.encode(SRC))
        steps = [model.decode_step(TGT[:, t], state) for t in range(TGT.size(1))]
    torch.testing.assert_close(torch.stack(steps, dim=1)[0], whole[0], rtol=0, atol=1e-9)


def test_the_timing_signals_slowest_wave_is_exactly_10000_times_2_pi_long():
    table = timing_signal(3, 16)
    assert table[1, 7].item() == pytest.approx(math.sin(1e-4), abs=1e-15)
    with pytest.raises(ValueError, match="d_model=2"):
        timing_signal(3, 2)


def test_layer_norm_with_the_unbiased_deviation_is_off_by_a_known_factor():
    x = torch.randn(4, 5)
    expected = nn.LayerNorm(5, eps=0.0)(x) * math.sqrt(4 / 5)
    torch.testing.assert_close(UnbiasedLayerNorm(5, eps=0.0)(x), expected)


def test_niutensors_norm_of_a_constant_row_is_nan():
    norm = LINEAGES["niutensor"].build(SIZES).encoder.layers[0].feed_forward_residual.norm
    assert norm(torch.full((1, 12), 3.0)).isnan().all()


def test_a_small_mask_is_made_smaller_by_scaling_afterwards():
    query = torch.zeros(1, 1, 1, 16)
    key, value = torch.zeros(1, 1, 2, 16), torch.tensor([[[[0.0], [1.0]]]])
    mask = torch.tensor([[[[True, False]]]])
    leaked = added_before_scaling(query, key, value, mask, blocked=-4.0).item()
    assert leaked == pytest.approx(1 / (1 + math.exp(4.0 / 4.0)))


def test_what_a_query_that_may_see_nothing_gets():
    """Where the paper's model, as we build it, gives zeros."""
    query, key, value = (torch.randn(1, 1, 3, 4) for _ in range(3))
    nothing = torch.zeros(1, 1, 1, 3, dtype=torch.bool)
    mean = value.mean(dim=2, keepdim=True).expand(1, 1, 3, 4)
    torch.testing.assert_close(filled_attention(query, key, value, nothing), mean)
    assert tutorial.filled_with_infinity(query, key, value, nothing).isnan().all()
    # The same number added to all scores changes nothing at all:
    added = head_major_attention(query, key, value, nothing, dropout=nn.Identity())
    torch.testing.assert_close(added, filled_attention(query, key, value), rtol=0, atol=1e-5)


def test_minus_a_billion_does_not_exist_in_half_precision():
    query = torch.randn(1, 1, 3, 4, dtype=torch.float16)
    mask = torch.tensor([[[[True, True, False]]]])
    with pytest.raises(RuntimeError, match="without overflow"):
        filled_attention(query, query, query, mask)


def test_kyubyong_keeps_the_heads_in_the_batch_row_by_row():
    rows = []

    class Watch(nn.Module):
        def forward(self, weights):
            rows.append(weights)
            return weights

    query, key, value = (torch.randn(2, 3, 4, 5) for _ in range(3))
    head_major_attention(query, key, value, dropout=Watch())
    expected = (query[1, 2] @ key[1, 2].T / math.sqrt(5)).softmax(dim=-1)
    torch.testing.assert_close(rows[0][2 * 2 + 1], expected)  # head 2 of sentence 1


def test_kyubyongs_padding_stays_zero_while_training():
    model = kyubyong.build(SIZES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(SRC, TGT).square().sum().backward()
    optimizer.step()
    table = model.src_embedding.embed_tokens.weight
    assert table is model.output_weight is model.tgt_embedding.embed_tokens.weight
    assert (table[PAD] == 0).all()
    assert (table[4] != 0).all()
    assert (model.src_embedding(SRC)[1, 3:] == 0).all()


SUBLAYERS = {"self_attention_residual", "cross_attention_residual", "feed_forward_residual"}
WEIGHTS = {"self_attention", "cross_attention"}
EVERYWHERE = SUBLAYERS | WEIGHTS | {"src_embedding", "tgt_embedding", "feed_forward"}


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("niutensor", EVERYWHERE),
        ("tutorial", set()),
        ("lecture", EVERYWHERE),
        ("illustrated", EVERYWHERE),
        ("kyubyong", WEIGHTS | {"src_embedding"}),  # which is the target's as well
    ],
)
def test_where_each_lineage_drops_out(name, places):
    model = LINEAGES[name].build(SIZES)
    names = [n for n, m in model.named_modules() if getattr(m, "probability", 0.0) > 0]
    assert {n.split(".")[-2] for n in names} == places
    layers = [n for n in names if n.endswith("weights_dropout")]
    assert len(layers) == (3 * SIZES.num_layers if places else 0)  # in all attention sublayers


@pytest.mark.parametrize("name", sorted(set(LINEAGES) - {"tutorial"}))
def test_what_is_dropped_is_the_attention_weights(name):
    module = LINEAGES[name].build(SIZES).encoder.layers[0].self_attention
    seen = []
    module.weights_dropout.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    module(torch.randn(2, 4, SIZES.d_model))
    (weights,) = seen
    assert weights.numel() == 2 * SIZES.num_heads * 4 * 4
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))


def test_kyubyong_needs_one_vocabulary():
    with pytest.raises(ValueError, match="one vocabulary"):
        kyubyong.build(Sizes(src_vocab_size=9, tgt_vocab_size=10))


def test_kyubyongs_training_arithmetic():
    logits, labels = torch.randn(6, 9), torch.tensor([4, 5, 3, 8, PAD, PAD])
    p = softmax(logits.numpy())
    smoothed = 0.9 * np.eye(9)[labels] + 0.1 / 9
    per_token = -(smoothed * np.log(p)).sum(axis=1)
    expected = per_token[:4].sum() / (4 + 1e-7)
    assert kyubyong.mean_loss(logits, labels).item() == pytest.approx(expected, abs=1e-9)

    for step in (1, 50, 4000, 9000):
        expected = 3e-4 * 4000**0.5 * min(step * 4000**-1.5, step**-0.5)
        assert kyubyong.learning_rate(step, 3e-4, 4000) == pytest.approx(expected, rel=1e-12)
    assert kyubyong.learning_rate(4000, 3e-4, 4000) == pytest.approx(3e-4)

    assert kyubyong.shifted([7, 8], [5, 6]) == ([7, 8, EOS], [BOS, 5, 6], [5, 6, EOS])
    assert kyubyong.is_kept([4] * 9, [4] * 3, maxlen=10)
    assert not kyubyong.is_kept([4] * 3, [4] * 10, maxlen=10)
    assert (PAD, BOS, EOS) == (0, 2, 3)  # <pad> <unk> <s> </s>


def test_every_mistake_of_a_lineage_is_in_the_bank():
    known = {mistake.id for mistake in bank()}
    for lineage in LINEAGES.values():
        assert set(lineage.mistakes) <= known


# The toy data


def tutorial_model():
    torch.set_default_dtype(torch.float32)
    return tutorial.build(
        Sizes(toy.SRC_VOCAB_SIZE, toy.TGT_VOCAB_SIZE, 64, 128, num_heads=4, num_layers=2)
    )


def test_the_tutorials_rows_are_numbered_as_printed():
    printed, mended = toy.as_printed(), toy.mended()
    assert printed.src.tolist() == [[4, 5, 6, PAD], [4, 7, 8, 9]]
    assert printed.tgt_input[0].tolist() == [BOS, 4, 5, 6, PAD]
    assert printed.labels[0].tolist() == [4, 5, 6, PAD, EOS]
    assert mended.labels[0].tolist() == [4, 5, 6, EOS, PAD]
    assert mended.labels[1].tolist() == printed.labels[1].tolist() == [4, 7, 8, 9, EOS]
    assert mended.tgt_input[0].tolist() == [BOS, 4, 5, 6, PAD]


def test_the_toy_sentences_are_learned_completely():
    model = tutorial_model()
    assert toy.train(model, toy.mended()) < 0.1
    assert toy.translate(model) == ["i am chinese", "i have a cat"]


def test_decoding_ends_although_the_model_has_never_said_the_end():
    model = tutorial_model().eval()
    last_norm = model.decoder.layers[-1].feed_forward_residual.norm
    with torch.no_grad():  # whatever it reads, it says word 5
        last_norm.weight.fill_(0.0)
        last_norm.bias.fill_(1.0)
        model.output_weight.fill_(-1.0)[5] = 1.0
    outputs = greedy_search(model, toy.as_printed().src, max_extra=6)
    assert [len(tokens) for tokens in outputs] == [8, 9]


# The table of differences


def test_the_table_of_differences_says_what_is_known():
    table = differences("Where is the next station ?")
    same = {part: {n for n, d in row.items() if d < 1e-9} for part, row in table.items()}
    assert same["positions"] == set(LINEAGES) - {"niutensor"}
    assert same["embedding"] == {"lecture", "illustrated", "kyubyong"}
    assert np.isnan(table["attention to nothing"]["tutorial"])
    assert same["attention"] == set(LINEAGES) - {"kyubyong"}
    assert same["attention to nothing"] == set()
    assert same["feed-forward"] == set(LINEAGES)
    assert same["logits"] == set()
    assert same["residual around f"] == {"tutorial"}
    assert same["layer norm"] == {"tutorial"}


def test_the_description_names_every_lineage_and_its_mistakes():
    text = describe("a small cat")
    for lineage in LINEAGES.values():
        assert lineage.source in text
        assert all(id in text for id in lineage.mistakes)
