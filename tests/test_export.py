"""Exported models say what ours says, in Hugging Face Transformers and in CTranslate2."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors import SafetensorError

from transformer_lib.course.trained import load_trained
from transformer_lib.data import DataConfig
from transformer_lib.decoding import DecodingConfig, greedy_search
from transformer_lib.errors import UserError
from transformer_lib.experiment.config import Experiment
from transformer_lib.experiment.run import Run
from transformer_lib.export import export
from transformer_lib.model import TransformerConfig, build_rnn, build_transformer
from transformer_lib.model.rnn import RNNConfig
from transformer_lib.training.trainer import TrainingConfig
from transformer_lib.vocabulary import BOS, EOS, PAD

SENTENCES = ["Where is the station?", "The old man has a dog.", "Who?"]
SMALL = TransformerConfig(
    d_model=32, d_ff=64, num_heads=4, num_encoder_layers=2, num_decoder_layers=3, dropout=0.0
)


def run_of(tmp_path, **changes):
    """A run with random weights of this shape, and the vocabulary that comes with the course."""
    config = replace(SMALL, **changes)
    tokenizer = load_trained("transformer").tokenizer
    torch.manual_seed(1)
    model = build_transformer(config, len(tokenizer)).eval()
    with torch.no_grad():  # biases and norms that do something, logits far apart
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    experiment = Experiment("small", TrainingConfig(steps=1), data=DataConfig(), model=config)
    info = load_trained("transformer").info
    return Run(tmp_path, experiment, tokenizer, model, info)


def rows(run):
    tokens = [[*t, EOS] for t in run.tokenizer.encode(SENTENCES)]
    width = max(map(len, tokens))
    return torch.tensor([t + [0] * (width - len(t)) for t in tokens])


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoidal", "sinusoidal_halves"])
def test_hugging_face_has_the_same_logits(tmp_path, norm, positions):
    from transformers import AutoModelForSeq2SeqLM

    run = run_of(tmp_path, norm=norm, positions=positions)
    export(run, "huggingface", tmp_path / "out")
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    src, tgt = rows(run), torch.randint(4, 4000, (3, 7))
    with torch.no_grad():
        expected = run.model(src, tgt)
        actual = theirs(input_ids=src, attention_mask=src != 0, decoder_input_ids=tgt).logits
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_a_run_that_searches_greedily_is_exported_too(tmp_path):
    run = run_of(tmp_path)
    greedy = replace(run.experiment, decoding=DecodingConfig(beam_size=1))
    export(replace(run, experiment=greedy), "huggingface", tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_hugging_face_searches_like_ours(tmp_path):
    run = run_of(tmp_path)
    alpha = run.experiment.decoding.alpha
    export(run, "huggingface", tmp_path / "out")
    settings = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert settings["length_penalty"] == alpha
    assert settings["bad_words_ids"] == [[PAD], [BOS]]


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    def full(run, folder):
        raise SafetensorError("Error while serializing: I/O error: No space left on device")

    monkeypatch.setattr("transformer_lib.export.huggingface.write", full)
    with pytest.raises(UserError, match=r"cannot write .*No space left .*nothing was changed"):
        export(run_of(tmp_path), "huggingface", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_hugging_face_translates_plain_text_like_ours(tmp_path):
    """The Transformer that comes with the course, from text to text by their tokenizer."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    run = load_trained("transformer")
    export(run, "huggingface", tmp_path / "out")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    assert torch.equal(inputs["input_ids"], rows(run))
    greedy = model.generate(**inputs, num_beams=1, do_sample=False)
    texts = tokenizer.batch_decode(greedy, skip_special_tokens=True)
    assert texts == run.translate(SENTENCES, DecodingConfig(beam_size=1))


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "post"},
        {"norm": "pre"},
        {"norm": "pre", "tied_embeddings": "none", "positions": "learned"},
        {"norm": "post", "tied_embeddings": "output", "positions": "none"},
    ],
)
def test_ctranslate2_says_the_same(tmp_path, changes):
    import ctranslate2

    run = run_of(tmp_path, **changes)
    export(run, "ctranslate2", tmp_path / "out")
    translator = ctranslate2.Translator(str(tmp_path / "out"), compute_type="float32")
    encoded = run.tokenizer.encode(SENTENCES)
    for said, tokens in zip(greedy_search(run.model, rows(run), 10), encoded, strict=True):
        pieces = run.tokenizer.pieces
        (scored,) = translator.score_batch([pieces(tokens)], [pieces(said)])
        with torch.no_grad():
            logits = run.model(torch.tensor([[*tokens, EOS]]), torch.tensor([[BOS, *said]]))
        expected = logits[0].log_softmax(dim=-1).gather(1, torch.tensor([[*said, EOS]]).T)[:, 0]
        assert scored.log_probs == pytest.approx(expected.tolist(), abs=1e-3)


def test_ctranslate2_translates_like_ours(tmp_path):
    import ctranslate2

    run = load_trained("transformer")
    export(run, "ctranslate2", tmp_path / "out")
    translator = ctranslate2.Translator(str(tmp_path / "out"), compute_type="float32")
    pieces = [run.tokenizer.pieces(t) for t in run.tokenizer.encode(SENTENCES)]
    results = translator.translate_batch(pieces, beam_size=1)
    texts = ["".join(r.hypotheses[0]).replace("▁", " ").strip() for r in results]
    assert texts == run.translate(SENTENCES, DecodingConfig(beam_size=1))


def test_what_cannot_be_exported_says_so(tmp_path):
    run = run_of(tmp_path, tied_embeddings="none")
    with pytest.raises(UserError, match="export to ctranslate2"):
        export(run, "huggingface", tmp_path / "a")
    run = run_of(tmp_path, norm="branch")
    for format in ("huggingface", "ctranslate2"):
        with pytest.raises(UserError, match="norm='branch'"):
            export(run, format, tmp_path / format)
    rnn = replace(run, model=build_rnn(RNNConfig(d_model=16), 4000))
    for format in ("huggingface", "ctranslate2"):
        with pytest.raises(UserError, match="no RNN of this kind"):
            export(rnn, format, tmp_path / f"rnn-{format}")
    with pytest.raises(UserError, match="there are ctranslate2, huggingface"):
        export(run, "onnx", tmp_path / "b")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UserError, match="is not empty"):
        export(run, "ctranslate2", tmp_path / "full")
