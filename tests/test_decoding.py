"""Search against exhaustive enumeration and against itself."""

import copy
import itertools
import math
import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from transformer_lib.course.trained import load_trained
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.decoding import (
    DecodingConfig,
    beam_search,
    greedy_search,
    length_penalty,
    translate,
)
from transformer_lib.decoding.search import Hypothesis, pad_sequences
from transformer_lib.decoding.translation import _in_precision
from transformer_lib.errors import UserError
from transformer_lib.model import (
    RNNConfig,
    TransformerConfig,
    build_rnn,
    build_transformer,
)
from transformer_lib.model.seq2seq import Seq2Seq
from transformer_lib.vocabulary import BOS, EOS, PAD


def sharp_model(seed, vocab=12, kind="transformer"):
    """An untrained model whose choices are clear and differ between sentences."""
    torch.manual_seed(seed)
    if kind == "rnn":
        model = build_rnn(RNNConfig(d_model=16, dropout=0.0), vocab)
    else:
        config = TransformerConfig(
            d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=2,
            dropout=0.0, tied_embeddings="none",
        )  # fmt: skip
        model = build_transformer(config, vocab)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(1.5)
    return model.double().eval()


def log_probability(model, src, tokens):
    """log p(tokens </s> | src), in one pass with teacher forcing; PAD and BOS are never said."""
    tgt = [*tokens, EOS]
    logits = model(src, torch.tensor([[BOS, *tokens]]))[0]
    log_p = logits.log_softmax(-1)
    return sum(log_p[i, token].item() for i, token in enumerate(tgt))


kinds = pytest.mark.parametrize("kind", ["transformer", "rnn"])


@kinds
@given(seed=st.integers(0, 30), alpha=st.sampled_from([0.0, 0.6, 1.0]))
def test_a_beam_as_wide_as_the_space_finds_the_optimum(kind, seed, alpha):
    model = sharp_model(seed, vocab=6, kind=kind)  # three words can be said: 1, 4 and 5
    src = torch.tensor([[4, 5, EOS]])
    max_len = 3
    space = [
        list(words) for n in range(max_len) for words in itertools.product((1, 4, 5), repeat=n)
    ]
    scores = {
        tuple(words): log_probability(model, src, words) / length_penalty(len(words) + 1, alpha)
        for words in space
    }
    found = beam_search(model, src, beam_size=3**max_len, alpha=alpha, max_extra=max_len - 3)[0]
    best = max(scores, key=scores.get)
    assert tuple(found[0].tokens) == best
    assert found[0].score == pytest.approx(scores[best], abs=1e-4)
    assert {tuple(h.tokens) for h in found} == set(scores)  # n-best: all of them, in order
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


@kinds
@given(seed=st.integers(0, 60))
def test_beam_one_is_greedy(kind, seed):
    model = sharp_model(seed, kind=kind)
    src = pad_sequences([[5, 6, 7, EOS], [8, EOS], [9, 10, EOS]])
    greedy = greedy_search(model, src, max_extra=10)
    beam = beam_search(model, src, beam_size=1, max_extra=10)
    assert [hypotheses[0].tokens for hypotheses in beam] == greedy


@kinds
@given(seed=st.integers(0, 60))
def test_cached_greedy_equals_decoding_the_prefix_anew(kind, seed):
    model = sharp_model(seed, kind=kind)
    src = torch.tensor([[5, 6, 7, EOS]])
    prefix = [BOS]
    for _ in range(9):
        logits = model(src, torch.tensor([prefix]))[0, -1]
        logits[[PAD, BOS]] = -torch.inf
        token = int(logits.argmax())
        if token == EOS:
            break
        prefix.append(token)
    assert greedy_search(model, src, max_extra=6) == [prefix[1:]]


@kinds
@given(seed=st.integers(0, 40), beam_size=st.integers(1, 5))
def test_a_sentences_translation_does_not_depend_on_its_batch(kind, seed, beam_size):
    model = sharp_model(seed, kind=kind)
    sentences = [[5, 6, 7, EOS], [8, EOS], [9, 10, 11, 4, 6, EOS]]
    together = beam_search(model, pad_sequences(sentences), beam_size, max_extra=6)
    for sentence, hypotheses in zip(sentences, together, strict=True):
        alone = beam_search(model, torch.tensor([sentence]), beam_size, max_extra=6)[0]
        assert [h.tokens for h in alone] == [h.tokens for h in hypotheses]
        assert [h.score for h in alone] == pytest.approx([h.score for h in hypotheses], abs=1e-5)


def plain_beam_search(model, src, beam_size, alpha, max_extra):
    """As the docstring has it: one sentence, Python lists, every prefix computed from its start."""
    limit = int((src != PAD).sum()) + max_extra
    beam, finished = [([], 0.0)], []
    while beam and len(finished) < beam_size:
        continued = []
        for tokens, log_p in beam:
            logits = model(src, torch.tensor([[BOS, *tokens]]))[0, -1]
            for token, value in enumerate(logits.log_softmax(-1).tolist()):
                may_follow = token == EOS if len(tokens) + 1 == limit else token not in (PAD, BOS)
                if may_follow:
                    continued.append(([*tokens, token], log_p + value))
        continued.sort(key=lambda candidate: -candidate[1])
        for tokens, log_p in continued[:beam_size]:
            if tokens[-1] == EOS:
                finished.append((tokens[:-1], log_p / length_penalty(len(tokens), alpha)))
        beam = [candidate for candidate in continued if candidate[0][-1] != EOS][:beam_size]
    return sorted(finished, key=lambda hypothesis: -hypothesis[1])[:beam_size]


@kinds
@given(
    seed=st.integers(0, 40),
    beam_size=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.6, 2.0]),
)
def test_beam_search_is_one_that_is_written_plainly(kind, seed, beam_size, alpha):
    model = sharp_model(seed, kind=kind)
    src = torch.tensor([[5, 6, 7, EOS]])
    found = beam_search(model, src, beam_size, alpha, max_extra=5)[0]
    plain = plain_beam_search(model, src, beam_size, alpha, max_extra=5)
    assert [h.tokens for h in found] == [tokens for tokens, _ in plain]
    assert [h.score for h in found] == pytest.approx([score for _, score in plain], abs=1e-4)


def test_scores_are_the_models_log_probabilities_over_the_penalty():
    model = sharp_model(7)
    src = torch.tensor([[5, 6, 7, EOS]])
    for hypothesis in beam_search(model, src, beam_size=4, alpha=0.6, max_extra=4)[0]:
        expected = log_probability(model, src, hypothesis.tokens)
        assert hypothesis.log_p == pytest.approx(expected, abs=1e-4)
        penalty = ((5 + len(hypothesis.tokens) + 1) / 6) ** 0.6
        assert hypothesis.score == pytest.approx(expected / penalty, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_endless_model_stops_at_the_limit(beam_size):
    model = sharp_model(3)
    end = torch.nn.functional.one_hot(torch.tensor(EOS), 12)[:, None]
    model.output_weight = nn.Parameter(model.output_weight.detach() * (1 - end))
    model.logits = lambda states: states @ model.output_weight.T - 1e9 * end[:, 0]
    src = pad_sequences([[5, 6, EOS], [7, EOS]])
    outputs = [h[0].tokens for h in beam_search(model, src, beam_size, max_extra=5)]
    assert [len(tokens) for tokens in outputs] == [3 + 5 - 1, 2 + 5 - 1]  # </s> is the last one
    if beam_size == 1:
        assert greedy_search(model, src, max_extra=5) == outputs


def test_numbers_that_become_nan_later_are_an_error():
    """Also where a hypothesis had ended before."""

    class State:
        def select(self, rows, sentences=None):
            pass

    class Breaks(Seq2Seq):
        def encode(self, src):
            return src

        def decode(self, tgt_input, memory):
            raise NotImplementedError

        def init_state(self, memory):
            return State()

        def decode_step(self, tokens, state):
            logits = torch.zeros(len(tokens), 12)
            logits[:, 7], logits[:, EOS] = 3.0, 2.0  # the end is second best at first
            return logits if bool((tokens == BOS).all()) else logits * math.nan

    for search in (greedy_search, beam_search):
        with pytest.raises(UserError, match="not finite"):
            search(Breaks(), torch.tensor([[5, 6, EOS]]))


def test_hypotheses_of_other_tokens_differ():
    assert Hypothesis([4], -1.0, -1.0) != Hypothesis([5], -1.0, -1.0)
    assert len({Hypothesis([4], -1.0, -1.0), Hypothesis([5], -1.0, -1.0)}) == 2


def test_no_length_at_all_is_refused():
    with pytest.raises(ValueError, match="max_len=0 is below 1"):
        translate(sharp_model(0, vocab=40), EchoTokenizer(), ["abc"], max_len=0)


def test_a_text_is_no_list_of_sentences():
    with pytest.raises(TypeError, match=r"takes a list of sentences: \['abc'\]"):
        translate(sharp_model(0, vocab=40), EchoTokenizer(), "abc")
    with pytest.raises(TypeError, match="takes a list of sentences"):
        load_trained("rnn").tokenizer.encode("abc")


@pytest.mark.parametrize("search", [greedy_search, beam_search])
def test_fewer_tokens_than_the_source_are_refused(search):
    with pytest.raises(ValueError, match="max_extra=-1 is negative"):
        search(sharp_model(0, vocab=40), torch.tensor([[5, 6, EOS]]), max_extra=-1)


def test_padding_alone_has_an_empty_translation():
    model, padding = sharp_model(0), torch.zeros(2, 3, dtype=torch.long)
    assert greedy_search(model, padding, max_extra=0) == [[], []]
    found = beam_search(model, padding, max_extra=0)
    assert [[hypothesis.tokens for hypothesis in beam] for beam in found] == [[[]], [[]]]


def test_of_no_sentence_there_is_no_translation():
    model, nothing = sharp_model(0), torch.zeros(0, 3, dtype=torch.long)
    assert greedy_search(model, nothing) == beam_search(model, nothing) == []
    assert translate(model, EchoTokenizer(), (s for s in ())) == []


def test_beam_below_one_is_refused():
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        DecodingConfig(beam_size=0)


class EchoTokenizer(Tokenizer):
    """Letters as tokens from 10 on."""

    def __init__(self):
        pass

    def encode(self, sentences):
        return [[ord(c) - 87 for c in s if c != " "] for s in sentences]

    def decode(self, tokens):
        return ["".join(chr(t + 87) for t in ts) for ts in tokens]

    def pieces(self, tokens):
        return ["x" for _ in tokens]


def test_empty_and_long_sentences_are_translated(monkeypatch):
    """With a search that returns its input: nothing is lost, reordered or crashed on."""
    model = sharp_model(0, vocab=40)
    monkeypatch.setattr(
        sys.modules[
            "transformer_lib.decoding.translation"
        ],  # the package's `translate` is a function
        "greedy_search",
        lambda model, src, extra: [[t for t in row if t > EOS] for row in src.tolist()],
    )
    sentences = ["abc", "", "b", "   ", "abcdefghij" * 3, "cc"]
    with pytest.warns(
        UserWarning, match="“abcdefghijabcdefghijabcdefghij” has 30 tokens, more than the 8"
    ):
        result = translate(model, EchoTokenizer(), sentences, DecodingConfig(beam_size=1), 8)
    assert [r.replace(" ", "") for r in result] == ["abc", "", "b", "", "abcdefghij" * 3, "cc"]
    assert model.training is False


def test_a_part_without_a_translation_leaves_no_space(monkeypatch):
    monkeypatch.setattr(
        sys.modules["transformer_lib.decoding.translation"],
        "greedy_search",
        lambda model, src, extra: [[t for t in row if t > 10] for row in src.tolist()],
    )
    options = DecodingConfig(beam_size=1), 2
    with pytest.warns(UserWarning, match="in 3 parts"):
        found = translate(sharp_model(0, vocab=40), EchoTokenizer(), ["bcaade", "aabcaa"], *options)
    assert found == ["bc de", "bc"]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_batches_keep_their_budget_and_use_it(monkeypatch, beam_size):
    """Of padded source tokens times the beam; a sentence that is longer goes alone."""
    model = sharp_model(0, vocab=40)
    shapes = []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda src: shapes.append(src.shape) or encode(src))
    config = DecodingConfig(beam_size=beam_size, max_extra=0, batch_tokens=24 * beam_size)
    sentences = ["a" * n for n in (7, 2, 30, 7, 1, 7, 5, 2)]  # with its </s> one token more
    translate(model, EchoTokenizer(), sentences, config)
    assert shapes == [(1, 31), (3, 8), (4, 6)]


def test_a_sentence_is_composed_before_it_is_encoded(monkeypatch):
    heard = []
    encode = EchoTokenizer.encode
    monkeypatch.setattr(
        EchoTokenizer, "encode", lambda self, s: heard.extend(s) or encode(self, [])
    )
    translate(sharp_model(0, vocab=40), EchoTokenizer(), ["u\u0308ber  das"])
    assert heard == ["\u00fcber das"]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_in_too_little_memory_a_batch_is_translated_in_halves(beam_size):
    model, tokenizer = sharp_model(0, vocab=40), EchoTokenizer()
    sentences = ["abc", "de", "f", "ghi", "jk", "lm", "n"]
    config = DecodingConfig(beam_size=beam_size, max_extra=5)
    wanted = translate(model, tokenizer, sentences, config)
    real, most, sizes = model.encode, 2, []

    def encode(src):
        sizes.append(len(src))
        if len(src) > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(src)

    model.encode = encode
    assert translate(model, tokenizer, sentences, config) == wanted
    assert sizes == [7, 3, 1, 2, 4, 2, 2]
    most = 0
    with pytest.raises(torch.OutOfMemoryError):
        translate(model, tokenizer, sentences, config)


@kinds
@pytest.mark.parametrize("beam_size", [1, 4])
def test_in_bfloat16_a_translation_is_about_as_good(kind, beam_size):
    """By the model's own log-probability, which rounding to 8 bits hardly changes."""
    model, tokenizer = sharp_model(3, vocab=36, kind=kind).float(), EchoTokenizer()
    sentences = ["".join(chr(97 + (7 * n + k) % 26) for k in range(3 + n % 5)) for n in range(40)]
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def mean_log_probability(precision):
        config = DecodingConfig(beam_size=beam_size, max_extra=3, precision=precision)
        said = tokenizer.encode(translate(model, tokenizer, sentences, config))
        sources = tokenizer.encode(sentences)
        exact = copy.deepcopy(model).double()
        scores = [
            log_probability(exact, torch.tensor([[*src, EOS]]), tokens) / (len(tokens) + 1)
            for src, tokens in zip(sources, said, strict=True)
        ]
        return sum(scores) / len(scores)

    wide, narrow = mean_log_probability("fp32"), mean_log_probability("bf16")
    assert narrow == pytest.approx(wide, rel=0.02)
    assert mean_log_probability("auto") == wide
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), "the model itself is not rounded"


def test_a_narrow_lstm_on_a_gpu_is_not_asked_for_kernels_that_it_has_not():
    """As in training: PyTorch has none in bfloat16 for LSTMs up to 192 wide."""
    weight = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32)
    narrow = SimpleNamespace(output_weight=weight, modules=lambda: [nn.LSTM(8, 128)])
    assert _in_precision(narrow, "bf16") is narrow


def test_sentences_without_a_word_have_a_translation_all_the_same():
    model = sharp_model(0)
    nothing = torch.zeros(2, 0, dtype=torch.long)
    beams = beam_search(model, nothing, beam_size=1)
    assert greedy_search(model, nothing) == [beam[0].tokens for beam in beams]
