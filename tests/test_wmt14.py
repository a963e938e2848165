"""The WMT14 archives: fetched over a bad line, verified, read without unpacking, prepared."""

import gzip
import hashlib
import io
import json
import sys
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from transformer_lib.data import DataConfig, prepare, wmt14, wmt14_mirror
from transformer_lib.data.wmt14 import read_archive, verified
from transformer_lib.data.wmt14_mirror import read_part
from transformer_lib.errors import UserError
from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import build_model
from transformer_lib.model.seq2seq import num_parameters

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from made_up_wmt14 import bad_server, made_up_pairs, served_from, write_archive, write_texts

PAIRS = [
    ("The cat sleeps on the warm stove.", "Die Katze schläft auf dem warmen Ofen."),
    ("Tom & Mary laugh <loudly>.", "Tom & Maria lachen <laut>."),
    ("Where is the next station, please?", "Wo ist bitte der nächste Bahnhof?"),
    ("It was raining the whole day.", "Es hat den ganzen Tag geregnet."),
]
CONFIG = DataConfig(corpus="wmt14", vocab_size=120)


@pytest.fixture
def small(monkeypatch):
    """The same archives with few sentences."""
    counts = {"TRAIN": 300, "VALID": 20, "TEST": 30}
    train = tuple(
        replace(archive, sentences=300 + n, checksum="") for n, archive in enumerate(wmt14.TRAIN)
    )
    monkeypatch.setattr(wmt14, "TRAIN", train)
    for name in ("VALID", "TEST"):
        archive = replace(getattr(wmt14, name), sentences=counts[name], checksum="")
        monkeypatch.setattr(wmt14, name, archive)
    return monkeypatch


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("transformer_lib.data.download.time.sleep", lambda seconds: None)
    return tmp_path / "cache"


def write_all(folder):
    folder.mkdir()
    for seed, archive in enumerate((*wmt14.TRAIN, wmt14.VALID, wmt14.TEST)):
        write_archive(folder / archive.name, archive, PAIRS, seed)
    return folder


@pytest.fixture
def archives(small, cache, tmp_path):
    return write_all(tmp_path / "archives")


def test_prepared_over_a_line_that_breaks_corrupts_and_truncates(archives, small, cache, capsys):
    server = bad_server(archives)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    small.setattr(wmt14, "TRAIN", tuple(served_from(a, address) for a in wmt14.TRAIN))
    for name in ("VALID", "TEST"):
        small.setattr(wmt14, name, served_from(getattr(wmt14, name), address))
    try:
        prepared = prepare(CONFIG)
    finally:
        server.shutdown()
        server.server_close()
    assert set(server.RequestHandlerClass.requests.values()) == {4}  # the last one was right
    assert len(prepared.test) == 30
    assert len(prepared.valid) == 20
    assert sum(prepared.report.values()) == 300 + 301 + 302
    assert prepared.report["a duplicate"] > 0
    assert len(json.loads((cache / "downloads" / "wmt14" / "verified.json").read_text())) == 5
    again = prepare(CONFIG)  # the server is gone: nothing is asked for
    assert again.folder == prepared.folder
    assert not list((cache / "downloads" / "wmt14").glob("*.part"))


def test_archives_that_are_there_already(archives, cache):
    prepared = prepare(CONFIG, archives)
    assert (prepared.test.name, len(prepared.test)) == ("newstest2014", 30)
    expected = [s for s, _ in made_up_pairs(PAIRS, 30, seed=4)]
    assert prepared.test.sources == expected  # what SGM escapes is unescaped
    assert not list((cache / "downloads" / "wmt14").glob("*.tgz"))  # nothing kept twice


def test_both_sides_are_read_in_step(archives):
    pairs = list(read_archive(wmt14.TRAIN[2], archives))
    assert pairs == list(made_up_pairs(PAIRS, 302, seed=2))


@pytest.mark.parametrize("record", ["{", "[]", ""])
def test_a_damaged_record_of_what_was_verified_is_made_anew(archives, cache, record):
    path = cache / "downloads" / "wmt14" / "verified.json"
    path.parent.mkdir(parents=True)
    path.write_text(record)
    for archive in wmt14.TRAIN[:2]:
        verified(archive, archives)
    assert set(json.loads(path.read_text())) == {archive.name for archive in wmt14.TRAIN[:2]}


def test_an_archive_that_changed_is_refused(archives, tmp_path):
    archive = wmt14.TRAIN[0]
    verified(archive, archives)
    write_archive(archives / archive.name, archive, PAIRS, seed=9)
    with pytest.raises(UserError, match=r"is not the training-parallel-europarl-v7\.tgz that was"):
        prepare(CONFIG, archives)


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_an_archive_of_another_checksum_than_the_published_one_is_refused(archives, kind):
    archive = wmt14.TRAIN[0]
    content = (archives / archive.name).read_bytes()
    right = f"{kind}:{hashlib.new(kind, content).hexdigest()}"
    wrong = f"{kind}:{hashlib.new(kind, content + b'.').hexdigest()}"
    with pytest.raises(UserError, match=f"its {kind} is .* is published; fetch it again"):
        verified(replace(archive, checksum=wrong), archives)
    assert verified(replace(archive, checksum=right), archives) == archives / archive.name


def test_every_archive_of_the_corpus_has_a_published_checksum():
    lengths = {"sha256": 64, "md5": 32}
    for archive in (*wmt14.TRAIN, wmt14.VALID, wmt14.TEST, wmt14.FILTERED_TEST):
        kind, _, digits = archive.checksum.partition(":")
        assert len(bytes.fromhex(digits)) * 2 == lengths[kind]


def test_damage_is_found_before_use(archives):
    archive = wmt14.TRAIN[1]
    path = archives / archive.name
    content = path.read_bytes()
    middle = len(content) // 2
    for damaged in (
        content[:middle],
        content[:-4],
        content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :],
        b"<html>not found</html>",
        b"",
    ):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"is damaged|is not the archive of that name"):
            verified(archive, archives)


def test_a_wrong_number_of_sentences_or_a_missing_file(archives):
    archive = wmt14.TEST
    with pytest.raises(UserError, match=r"30 sentences in .*where 31 sentences are expected"):
        verified(replace(archive, sentences=31), archives)
    with pytest.raises(UserError, match=r"no file elsewhere\.sgm"):
        verified(replace(archive, source="elsewhere.sgm"), archives)
    with pytest.raises(UserError, match="cannot read"):
        verified(archive, archives / "nowhere")


@pytest.mark.parametrize("kind", ["outside", "absolute", "link", "hard link", "device", "twice"])
def test_members_that_no_archive_should_have(archives, kind):
    archive = wmt14.VALID
    path = archives / archive.name
    names = {"outside": "../../evil", "absolute": "/etc/evil"}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in (archive.target, archive.source, names.get(kind, archive.source)):
            member = tarfile.TarInfo(name)
            content = b"".join(b"<seg>x</seg>\n" for _ in range(20))
            member.size = len(content)
            if name == archive.source and kind in ("link", "hard link", "device"):
                types = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE)
                member.type = types[("link", "hard link", "device").index(kind)]
                member.linkname, member.size, content = "/etc/passwd", 0, b""
            tar.addfile(member, io.BytesIO(content))
    path.write_bytes(gzip.compress(stream.getvalue()))
    with pytest.raises(UserError, match=r"points outside of the archive|twice, or as a link"):
        verified(archive, archives)


def test_names_may_begin_with_a_dot(archives):
    archive = wmt14.VALID
    dotted = replace(archive, source=f"./{archive.source}", target=f"./{archive.target}")
    write_texts(archives / archive.name, dotted, (["a & b"] * 20, ["c"] * 20))
    assert list(read_archive(archive, archives)) == [("a & b", "c")] * 20


def test_text_that_is_not_utf8_is_dropped_not_fatal(archives, small, tmp_path):
    archive = wmt14.TRAIN[0]
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        lines = [b"a good line %d" % n for n in range(299)] + [b"Stra\xdfe"]
        for name in (archive.source, archive.target):
            content = b"".join(line + b"\n" for line in lines)
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    (archives / archive.name).write_bytes(gzip.compress(stream.getvalue()))
    assert prepare(CONFIG, archives).report["characters that cannot be read"] == 1


@pytest.mark.parametrize(
    ("name", "millions", "tokens"),
    [
        ("wmt14_base", 63.1, 25_000),
        ("wmt14_big", 214.2, 25_000),
        ("wmt14_base_fast", 63.1, 100_352),
        ("wmt14_big_fast", 214.2, 400_000),
        ("wmt14_rnn", 122.9, 25_000),
    ],
)
def test_configurations_have_the_papers_sizes(name, millions, tokens):
    experiment = load_config(name)
    with torch.device("meta"):
        model = build_model(experiment, experiment.data.vocab_size)
    assert num_parameters(model) / 1e6 == pytest.approx(millions, abs=0.05)
    assert experiment.training.batch_tokens * experiment.training.accumulate == tokens
    assert experiment.data == load_config("wmt14_base").data  # prepared once for all


# The mirror

MIRROR = DataConfig(corpus="wmt14_mirror", vocab_size=120)


def write_parquet(path, pairs):
    rows = [{"translation": {"de": german, "en": english}} for english, german in pairs]
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture
def mirror(monkeypatch, cache, tmp_path):
    """The mirror's files with few sentences, in a folder that a server may serve."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    for seed, (name, sentences) in enumerate((("TRAIN", 900), ("VALID", 20), ("TEST", 30))):
        part = replace(getattr(wmt14_mirror, name), sentences=sentences)
        monkeypatch.setattr(wmt14_mirror, name, part)
        pairs = list(made_up_pairs(PAIRS, sentences, seed))
        for number, file in enumerate(part.names):
            write_parquet(folder / file, pairs[number :: part.files])
    monkeypatch.setattr(wmt14_mirror, "LISTING", "de-en")
    entries = [{"type": "directory", "oid": "1" * 40, "size": 0, "path": "de-en/more"}]
    for path in folder.glob("*.parquet"):
        content = path.read_bytes()
        lfs = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}
        entries.append({"type": "file", "oid": "2" * 40, "path": f"de-en/{path.name}", "lfs": lfs})
    (folder / "de-en").write_text(json.dumps(entries))
    return folder


@pytest.fixture
def hub(mirror, monkeypatch):
    """A bad server of these files, which sends the listing right; counts requests."""
    server = bad_server(mirror)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(wmt14_mirror, "HUB", f"http://127.0.0.1:{server.server_port}")
    requests = server.RequestHandlerClass.requests
    requests["de-en"] = 3
    yield requests
    server.shutdown()
    server.server_close()


def test_the_mirror_over_a_line_that_breaks_corrupts_and_truncates(hub):
    prepared = prepare(MIRROR)
    assert set(hub.values()) == {4}  # the last one was right
    assert (prepared.test.name, len(prepared.test), len(prepared.valid)) == ("newstest2014", 30, 20)
    assert prepared.test.sources == [s for s, _ in made_up_pairs(PAIRS, 30, seed=2)]
    assert sum(prepared.report.values()) == 900
    assert prepare(MIRROR).folder == prepared.folder
    assert set(hub.values()) == {4}  # nothing is asked for again


def test_files_of_the_mirror_that_are_there_already(mirror, cache):
    assert sum(prepare(MIRROR, mirror).report.values()) == 900
    assert not (cache / "downloads" / "wmt14_mirror").exists()  # nothing kept twice


@pytest.mark.parametrize("listing", ["[]", "<html>busy</html>", '{"error": 1}', '[{"lfs": 1}]'])
def test_a_listing_without_checksums_is_asked_for_again(mirror, hub, listing):
    right = (mirror / "de-en").read_text()
    (mirror / "de-en").write_text(listing)
    with pytest.raises(UserError, match=r"does not list test-00000-of-00001\.parquet with"):
        list(read_part(wmt14_mirror.TEST))
    (mirror / "de-en").write_text(right)
    assert len(list(read_part(wmt14_mirror.TEST))) == 30


def test_damage_in_the_mirrors_files_is_one_line(mirror):
    part = wmt14_mirror.TEST
    path = mirror / part.names[0]
    content = path.read_bytes()
    for damaged in (content[:-9], content[: len(content) // 2], b"<html>not found</html>", b""):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"is damaged: .*fetch it again$"):
            list(read_part(part, mirror))
    pq.write_table(pa.table({"other": ["a"] * 30}), path)
    with pytest.raises(UserError, match=r"is damaged: .*fetch it again$"):
        list(read_part(part, mirror))
    for odd in ([{"de": "a", "en": None}] * 30, ["a"] * 30, [{"de": [1], "en": "a"}] * 30):
        pq.write_table(pa.table({"translation": odd}), path)
        with pytest.raises(UserError, match=r"is damaged: .*fetch it again$"):
            list(read_part(part, mirror))
    write_parquet(path, PAIRS)
    with pytest.raises(UserError, match="4 sentence pairs, where 30 are expected"):
        list(read_part(part, mirror))
    path.unlink()
    with pytest.raises(UserError, match="there is no"):
        list(read_part(part, mirror))


def test_without_pyarrow_the_mirror_says_what_to_install(mirror, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match=r"pip install 'transformer-lib\[mirror\]'"):
        list(read_part(wmt14_mirror.TEST, mirror))


def test_when_the_archives_cannot_be_reached_the_mirror_is_named(small, cache):
    gone = replace(wmt14.TRAIN[0], url="http://127.0.0.1:9/gone.tgz")
    with pytest.raises(UserError, match=r"cannot download .*take the corpus wmt14_mirror"):
        list(read_archive(gone))
