"""Text in, batches out: cleaning, splits, tokenizer, token store, batching, downloads."""

import functools
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import unicodedata
import urllib.error

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_lib.data import DataConfig, make_batch, plan_batches, prepare, training_pairs
from transformer_lib.data.cleaning import Cleaner, normalize, sentence_key
from transformer_lib.data.corpora import MULTI30K_SHA256, as_test_set, load_corpus
from transformer_lib.data.download import download
from transformer_lib.data.store import PairStore, padded_lengths
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.errors import UserError
from transformer_lib.vocabulary import BOS, EOS, PAD, UNK


@pytest.fixture(scope="module")
def tatoeba():
    return prepare(DataConfig(vocab_size=1000))


def files_config(folder, **options):
    names = {name: (f"{name}.en", f"{name}.de") for name in ("train", "valid", "test")}
    return DataConfig(**{"corpus": "files", "vocab_size": 60, **names, **options})


def test_normalize_composes_characters_and_collapses_space():
    assert normalize(" Cafe\N{COMBINING ACUTE ACCENT}\t\n au  lait ") == "Café au lait"


@given(st.text())
def test_normalize_is_stable(text):
    once = normalize(text)
    assert normalize(once) == once
    assert unicodedata.is_normalized("NFC", once)


@pytest.mark.parametrize("vocab_size", [2**16, 70_000])
def test_the_largest_token_is_read_back(tmp_path, vocab_size):
    pair = [4, vocab_size - 1], [vocab_size - 2]
    PairStore.write(tmp_path, [pair], vocab_size)
    pairs = PairStore.open(tmp_path, vocab_size)
    for side, tokens in zip((pairs.src, pairs.tgt), pair, strict=True):
        assert side[0].tolist() == tokens


def test_sentence_key_forgets_case_and_punctuation():
    assert sentence_key("Don't  go!") == sentence_key("don’t GO.") != sentence_key("do go")


def test_cleaner_drops_and_counts_by_reason():
    cleaner = Cleaner(DataConfig(max_words=5, max_ratio=2.0), held_out=frozenset({"secret"}))
    pairs = [
        ("a b", "c d"),
        ("a  b", "c d "),  # the same after normalization
        ("", "c"),
        ("a", " "),
        ("a b c d e f", "c"),
        ("a", "c" * 23),
        ("Secret!", "Geheim!"),
        ("a b", "c e"),
        ("a", "c" * 22),  # twice as long, and 20 characters
    ]
    assert list(cleaner(pairs)) == [("a b", "c d"), ("a b", "c e"), ("a", "c" * 22)]
    assert cleaner.report == {
        "kept": 3,
        "a duplicate": 1,
        "an empty side": 2,
        "more than 5 words": 1,
        "lengths differ by a factor over 2": 1,
        "source sentence held out for validation or test": 1,
    }


def test_what_a_crawl_has_too_much_of_is_dropped_where_one_asks():
    pairs = [
        ("This is what they have for you.", "Das ist, was sie für dich haben."),
        ("Copyright 2014 Example Ltd", "Copyright 2014 Example Ltd"),
        ("This is what they have for you.", "That is not what we had."),
        ("Das ist nicht, was sie haben.", "Das ist es, was er hat."),
        ("one two three", "eins zwei drei vier fünf"),
        ("The Best of Queen", "Das Beste von „The Best of Queen“"),  # a title is no language
    ]
    usual = Cleaner(DataConfig())
    assert len(list(usual(pairs))) == len(pairs)
    strict = Cleaner(DataConfig(max_word_ratio=1.5, drop_copies=True, check_languages=True))
    assert list(strict(pairs)) == [pairs[0]]
    assert strict.report == {
        "kept": 1,
        "both sides the same": 1,
        "a side in the other side's language": 2,
        "numbers of words differ by a factor over 1.5": 2,
    }
    languages = Cleaner(DataConfig(check_languages=True))
    assert pairs[5] in list(languages(pairs))


def test_rare_characters_are_spelled_in_bytes_where_one_asks(toy_files):
    text = (toy_files / "train.en").read_text().splitlines() * 20
    text += ["a letter of another script: ж"]
    plain, spelled = Tokenizer.train(text, 90), Tokenizer.train(text, 340, byte_fallback=True)
    sentence = "the cat ж and 猫"
    assert plain.decode(plain.encode([sentence])) != [sentence]
    assert spelled.decode(spelled.encode([sentence])) == [sentence]
    assert UNK not in spelled.encode([sentence])[0]
    assert "ж" not in spelled.pieces(range(len(spelled)))


def test_no_held_out_sentence_is_trained_on(tatoeba):
    splits = load_corpus(DataConfig())
    decoded = set()
    store, tokenizer = tatoeba.train, tatoeba.tokenizer
    texts = tokenizer.decode([store.src[i].tolist() for i in range(len(store))])
    decoded = {sentence_key(text) for text in texts}
    assert len(tatoeba.test) == 1000
    assert len(tatoeba.valid) == 500
    for held_out in (tatoeba.test, tatoeba.valid):
        keys = {sentence_key(source) for source in held_out.sources}
        assert len(keys) == len(held_out)
        assert not keys & decoded
    total = sum(1 for _ in splits.train)
    assert sum(tatoeba.report.values()) == total == 50_001


def test_the_training_pairs_as_text_are_those_that_a_model_learns_from(tatoeba):
    pairs = training_pairs(DataConfig(vocab_size=1000))
    assert len(pairs) == tatoeba.report["kept"] == len(tatoeba.train)
    held_out = {sentence_key(source) for source in tatoeba.test.sources + tatoeba.valid.sources}
    assert not held_out & {sentence_key(source) for source, _ in pairs}
    tokens = tatoeba.tokenizer.encode([source for source, _ in pairs[:100]])
    assert [[*row, EOS] for row in tokens] == [tatoeba.train.src[i].tolist() for i in range(100)]


def test_every_reference_of_a_held_out_sentence_is_kept(tatoeba):
    all_pairs = list(load_corpus(DataConfig()).train)
    source = next(s for s, r in zip(tatoeba.test.sources, tatoeba.test.references, strict=True)
                  if len(r) > 1)  # fmt: skip
    key = sentence_key(source)
    expected = list(dict.fromkeys(g for e, g in all_pairs if sentence_key(e) == key))
    assert tatoeba.test.references[tatoeba.test.sources.index(source)] == expected


def test_what_a_killed_process_left_of_preparing_goes_when_the_text_is_prepared(
    tmp_path, toy_files
):
    first = prepare(files_config(toy_files), toy_files, cache=tmp_path)
    left = first.folder.with_name(f".{first.folder.name}.0a1b2c3d")
    first.folder.rename(left)
    (left / "report.json").unlink()
    others = first.folder.with_name(".files-of-another-text.0a1b2c3d")
    others.mkdir()
    again = prepare(files_config(toy_files), toy_files, cache=tmp_path)
    assert again.folder == first.folder
    assert (left.exists(), others.exists()) == (False, True)


def test_preparing_twice_is_the_same_and_done_once(tmp_path, toy_files):
    first = prepare(files_config(toy_files), toy_files, cache=tmp_path / "a")
    stamp = (first.folder / "report.json").stat().st_mtime_ns
    again = prepare(files_config(toy_files), toy_files, cache=tmp_path / "a")
    assert (again.folder / "report.json").stat().st_mtime_ns == stamp
    other = prepare(files_config(toy_files), toy_files, cache=tmp_path / "b")
    for name in ("tokenizer.model", "src.tokens", "tgt.tokens", "test.json"):
        assert (first.folder / name).read_bytes() == (other.folder / name).read_bytes()


def test_tokenizer_round_trips_and_has_its_special_tokens(tatoeba):
    sentences = tatoeba.test.sources[:100]
    tokens = tatoeba.tokenizer.encode(sentences)
    assert tatoeba.tokenizer.decode(tokens) == sentences
    assert tatoeba.tokenizer.pieces([PAD, BOS, EOS]) == ["<pad>", "<s>", "</s>"]
    assert len(tatoeba.tokenizer) == 1000
    with_special = [[BOS, *tokens[0], EOS, PAD]]
    assert tatoeba.tokenizer.decode(with_special) == sentences[:1]
    assert Tokenizer(tatoeba.tokenizer.model).encode(["Tom"]) == tatoeba.tokenizer.encode(["Tom"])


def test_tokens_are_mapped_not_loaded(tatoeba):
    assert isinstance(tatoeba.train.src.tokens, np.memmap)
    assert tatoeba.train.src.tokens.dtype == np.uint16


@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=200),
    budget=st.integers(1, 100),
    seed=st.integers(0, 9),
    multiple=st.sampled_from([1, 8]),
)
def test_batches_keep_the_budget_and_every_sentence(lengths, budget, seed, multiple):
    src, tgt = np.array(lengths).T
    batches = plan_batches(src, tgt, budget, (seed, 0), multiple)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        longest = [padded_lengths(side[batch]).max() for side in (src, tgt)]
        longest[0] = -(-longest[0] // multiple) * multiple
        assert len(batch) * max(longest) <= budget or len(batch) == 1
    again = plan_batches(src, tgt, budget, (seed, 0), multiple)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


def test_batches_have_a_multiple_of_eight_sentences_where_that_many_fit():
    lengths = np.full(100, 4)
    sizes = sorted(len(batch) for batch in plan_batches(lengths, lengths, 4 * 21, (1, 0)))
    assert sizes == [4, 16, 16, 16, 16, 16, 16]
    sizes = sorted(len(batch) for batch in plan_batches(lengths, lengths, 4 * 7, (1, 0)))
    assert sizes == [2, *[7] * 14]


@given(st.integers(1, 1000))
def test_padded_lengths_are_few_and_at_most_a_quarter_longer(length):
    padded = int(padded_lengths(np.array([length]))[0])
    assert length <= padded <= max(length, 1.25 * length)
    assert len(set(padded_lengths(np.arange(1, length + 1)))) <= 8 * max(2, length.bit_length())


def test_epochs_differ_and_little_is_padding(tatoeba):
    src, tgt = tatoeba.train.src.lengths, tatoeba.train.tgt.lengths
    first, second = (plan_batches(src, tgt, 1024, (1, epoch)) for epoch in (0, 1))
    assert not np.array_equal(first[0], second[0])
    batches = [make_batch(tatoeba.train, indices) for indices in first]
    cells = sum(b.src.numel() + b.labels.numel() for b in batches)
    real = sum(b.num_src_tokens + b.num_tgt_tokens for b in batches)
    assert real / cells > 0.95


def test_a_batch_is_shifted_right(tatoeba):
    aligned = make_batch(tatoeba.train, np.array([0, 2000, 30000]), 8)
    assert aligned.src.size(1) % 8 == 0
    assert aligned.num_src_tokens == tatoeba.train.src.lengths[[0, 2000, 30000]].sum()
    batch = make_batch(tatoeba.train, np.array([0, 2000, 30000]))
    assert (batch.labels.flatten()[batch.real] != PAD).all()
    assert len(batch.real) == batch.num_tgt_tokens
    for row, index in enumerate([0, 2000, 30000]):
        labels = tatoeba.train.tgt[index].tolist()
        n = len(labels)
        assert labels[-1] == EOS
        assert batch.labels[row, :n].tolist() == labels
        assert batch.tgt_input[row, :n].tolist() == [BOS, *labels[:-1]]
        assert (batch.labels[row, n:] == PAD).all()
        assert (batch.tgt_input[row, n:] == PAD).all()
        assert batch.src[row, : len(tatoeba.train.src[index])].tolist() == list(
            tatoeba.train.src[index]
        )


def test_different_numbers_of_lines(toy_files, tmp_path):
    (tmp_path / "short.de").write_text("eins\nzwei\n")
    config = files_config(toy_files, train=("train.en", str(tmp_path / "short.de")))
    with pytest.raises(UserError, match=r"same number of lines, but .*short\.de ends after 2"):
        prepare(config, toy_files, cache=tmp_path)
    assert not list((tmp_path / "prepared").iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "are empty"),
        (b"\n\n", r"left after cleaning: kept 0 pairs; dropped 2 \(an empty side\)"),
        (b"gut\nna\xefve\n", "line 2: not UTF-8"),
    ],
)
def test_unusable_files(toy_files, tmp_path, content, message):
    for side in ("en", "de"):
        (tmp_path / f"bad.{side}").write_bytes(content)
    bad = (str(tmp_path / "bad.en"), str(tmp_path / "bad.de"))
    with pytest.raises(UserError, match=message):
        prepare(files_config(toy_files, train=bad), toy_files, cache=tmp_path)


def test_missing_and_truncated_files(toy_files, tmp_path):
    missing = files_config(toy_files, train=("no.en", "train.de"))
    with pytest.raises(UserError, match=r"cannot read .*no\.en: No such file"):
        prepare(missing, toy_files, cache=tmp_path)
    prepared = prepare(files_config(toy_files), toy_files, cache=tmp_path)
    tokens = prepared.folder / "src.tokens"
    tokens.write_bytes(tokens.read_bytes()[:100])
    with pytest.raises(UserError, match="truncated"):
        prepare(files_config(toy_files), toy_files, cache=tmp_path)


@pytest.mark.parametrize("content", [b"{", b""])
@pytest.mark.parametrize(
    "name", ["tokenizer.model", "src.tokens", "src.offsets.npy", "valid.json", "report.json"]
)
def test_damaged_prepared_text_says_what_to_do(toy_files, tmp_path, name, content):
    prepared = prepare(files_config(toy_files), toy_files, cache=tmp_path)
    (prepared.folder / name).write_bytes(content)
    with pytest.raises(
        UserError, match=r"is damaged; delete that folder, and it is prepared again"
    ):
        prepare(files_config(toy_files), toy_files, cache=tmp_path)


def test_a_held_out_line_without_letters_holds_nothing_else_out(toy_files, tmp_path):
    for name in ("train", "valid"):
        for side in ("en", "de"):
            text = (toy_files / f"{name}.{side}").read_text(encoding="utf-8")
            (tmp_path / f"{name}.{side}").write_text("?!\n" + text, encoding="utf-8")
    names = {
        name: (str(tmp_path / f"{name}.en"), str(tmp_path / f"{name}.de"))
        for name in ("train", "valid")
    }
    before = prepare(files_config(toy_files), toy_files, cache=tmp_path)
    after = prepare(files_config(toy_files, **names), toy_files, cache=tmp_path)
    assert len(after.train) == len(before.train) + 1


def test_a_byte_order_mark_is_no_part_of_the_text(toy_files, tmp_path):
    for name in ("test.en", "test.de"):
        text = (toy_files / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
    config = files_config(toy_files, test=(str(tmp_path / "test.en"), str(tmp_path / "test.de")))
    expected = prepare(files_config(toy_files), toy_files, cache=tmp_path).test
    assert prepare(config, toy_files, cache=tmp_path).test == expected


def test_too_many_pieces_for_the_text(toy_files, tmp_path):
    config = files_config(toy_files)
    config = DataConfig(**{**vars(config), "vocab_size": 5000})
    with pytest.raises(UserError, match="cannot learn vocab_size=5000 pieces"):
        prepare(config, toy_files, cache=tmp_path)
    assert not list((tmp_path / "prepared").iterdir())


def test_a_folder_of_text_is_not_ignored_for_the_text_that_is_bundled(tmp_path):
    with pytest.raises(UserError, match=r'is a part of this package.* set data.corpus="files"'):
        prepare(DataConfig(), tmp_path)


def test_wrong_multi30k_file(tmp_path):
    for name in MULTI30K_SHA256:
        (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(UserError, match="is not the Multi30k file of that name"):
        prepare(DataConfig(corpus="multi30k"), tmp_path, cache=tmp_path)


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves one file, with ranges; breaks the connection half-way as often as told."""

    content = bytes(range(256)) * 4000
    break_next = 0
    requests: list = []  # noqa: RUF012

    def do_GET(self):
        start = 0
        if given := self.headers.get("Range"):
            start = int(given.removeprefix("bytes=").rstrip("-"))
        type(self).requests.append(start)
        body = self.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if type(self).break_next > 0:
            type(self).break_next -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    Server.requests.clear()
    Server.break_next = 0
    monkeypatch.setattr("transformer_lib.data.download.time.sleep", lambda seconds: None)
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server))
    threading.Thread(target=http_server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http_server.server_port}/file"
    http_server.shutdown()
    http_server.server_close()


def test_a_download_resumes_where_it_broke(server, tmp_path):
    Server.break_next = 2
    checksum = hashlib.sha256(Server.content).hexdigest()
    path = download(server, tmp_path / "file", checksum)
    assert path.read_bytes() == Server.content
    assert Server.requests[0] == 0
    assert 0 < Server.requests[1] < Server.requests[2]
    download(server, tmp_path / "file", checksum)
    assert len(Server.requests) == 3  # it is there, nothing is asked for


def test_a_download_with_another_checksum_is_refused_and_removed(server, tmp_path):
    with pytest.raises(UserError, match=r"has SHA-256 [0-9a-f]{12}…, expected 0000"):
        download(server, tmp_path / "file", "0" * 64)
    assert not list(tmp_path.iterdir())


def test_an_unreachable_server_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("transformer_lib.data.download.time.sleep", lambda seconds: None)
    with pytest.raises(UserError, match="check the network and run the command again"):
        download("http://127.0.0.1:9/file", tmp_path / "file", "0" * 64, attempts=2)


def test_the_report_adds_up(toy_files, tmp_path):
    prepared = prepare(files_config(toy_files), toy_files, cache=tmp_path)
    stored = json.loads((prepared.folder / "report.json").read_text())
    assert stored == prepared.report
    assert stored["kept"] == len(prepared.train)


def test_two_processes_that_prepare_one_corpus_share_it(toy_files, tmp_path):
    """Both start at once; one prepares, the other waits, and both read a whole folder."""
    program = f"""
import sys
from pathlib import Path
from transformer_lib.data import DataConfig, prepare
names = {{n: (n + ".en", n + ".de") for n in ("train", "valid", "test")}}
sys.stdin.readline()
data = prepare(DataConfig(corpus="files", vocab_size=60, **names), Path({str(toy_files)!r}))
print(data.folder, len(data.train))
"""
    environment = {**os.environ, "TRANSFORMER_LIB_CACHE": str(tmp_path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended
    assert ended[0][0] == ended[1][0] != ""
    assert len(list((tmp_path / "prepared").iterdir())) == 1


def test_what_another_process_has_prepared_meanwhile_is_used(toy_files, tmp_path, monkeypatch):
    """The lock is free again, and the folder is there: it must not be made a second time."""
    from transformer_lib.data import preparation

    config = files_config(toy_files)
    first = prepare(config, toy_files, cache=tmp_path)
    answers = iter([False, True])  # before the lock, behind it
    monkeypatch.setattr(preparation, "_is_complete", lambda folder: next(answers))
    monkeypatch.setattr(preparation, "_make", lambda *_: pytest.fail("made twice"))
    assert prepare(config, toy_files, cache=tmp_path).folder == first.folder


def test_the_same_text_at_another_place_is_not_prepared_again(toy_files, tmp_path):
    here = prepare(files_config(toy_files), toy_files, cache=tmp_path)
    absolute = {n: (str(toy_files / f"{n}.en"), str(toy_files / f"{n}.de")) for n in
                ("train", "valid", "test")}  # fmt: skip
    there = prepare(files_config(toy_files, **absolute), cache=tmp_path)
    assert here.folder == there.folder


def test_a_page_that_is_not_there_is_asked_for_once(server, tmp_path, monkeypatch):
    asked = []

    def gone(url, part):
        asked.append(url)
        raise urllib.error.HTTPError(url, 404, "Not Found", None, None)

    monkeypatch.setattr("transformer_lib.data.download._fetch_rest", gone)
    with pytest.raises(UserError, match="404"):
        download(server, tmp_path / "file", None)
    assert len(asked) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_server_that_is_busy_is_asked_again(server, tmp_path, monkeypatch, status):
    from transformer_lib.data import download as module

    asked = []

    def busy_at_first(url, part):
        asked.append(url)
        if len(asked) < 3:
            raise urllib.error.HTTPError(url, status, "Busy", None, None)
        fetch(url, part)

    fetch = module._fetch_rest
    monkeypatch.setattr(module, "_fetch_rest", busy_at_first)
    assert download(server, tmp_path / "file", None).read_bytes() == Server.content
    assert len(asked) == 3


def test_sentences_that_are_all_too_long_are_said_to_be(toy_files, tmp_path):
    with pytest.raises(UserError, match=r"at most max_len=2 tokens .* larger data.max_len"):
        prepare(files_config(toy_files, max_len=2), toy_files, cache=tmp_path)
    assert not list((tmp_path / "prepared").iterdir())


@pytest.mark.parametrize(
    ("vocab_size", "message"),
    [(8000, r"choose vocab_size=\d+ or less$"), (9, r"choose vocab_size=\d+ or more$")],
)
def test_a_vocabulary_of_the_wrong_size_names_the_right_one(
    toy_files, tmp_path, vocab_size, message
):
    with pytest.raises(UserError, match=message) as wrong:
        prepare(files_config(toy_files, vocab_size=vocab_size), toy_files, cache=tmp_path)
    assert "trainer_interface" not in str(wrong.value)
    right = int(re.search(r"vocab_size=(\d+) or", str(wrong.value))[1])
    prepare(files_config(toy_files, vocab_size=right), toy_files, cache=tmp_path)


def test_a_file_with_another_checksum_stays_until_the_right_one_is_there(server, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"older")
    with pytest.raises(UserError, match="has SHA-256"):
        download(server, path, "0" * 64)
    assert path.read_bytes() == b"older"
    download(server, path, hashlib.sha256(Server.content).hexdigest())
    assert path.read_bytes() == Server.content


@pytest.mark.parametrize("pairs", [[("", ""), (" ", "x")], [("a", " "), ("b", "")]])
def test_a_test_set_of_empty_lines_is_refused(pairs):
    with pytest.raises(UserError, match="valid has nothing but empty lines"):
        as_test_set("valid", pairs)
