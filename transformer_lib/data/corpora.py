"""The corpora of the course: where their text is and how it splits into train, valid and test."""

import gzip
import hashlib
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import resources
from itertools import chain, zip_longest
from pathlib import Path

from transformer_lib.data import wmt14, wmt14_mirror
from transformer_lib.data.cleaning import Pair, normalize, sentence_key
from transformer_lib.data.config import BUNDLED, DataConfig
from transformer_lib.data.download import download, is_there
from transformer_lib.errors import UserError
from transformer_lib.files import atomic_path, cache_folder, read_lines, sha256


@dataclass(frozen=True)
class TestSet:
    """Source sentences and, for each, one or more reference translations."""

    __test__ = False  # not a test for pytest

    name: str
    sources: list[str]
    references: list[list[str]]

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True)
class Splits:
    """Raw training pairs (to be cleaned) and the two held-out sets."""

    train: Iterable[Pair]
    valid: TestSet
    test: TestSet


def fingerprint(config: DataConfig, folder: Path | None) -> str:
    """What tells a user's texts apart in files of the same names; known corpora never change."""
    if config.corpus != "files":
        return ""
    return " ".join(sha256(path) for pair in _own_files(config, folder) for path in pair)


def with_absolute_paths(config: DataConfig, folder: Path | None) -> DataConfig:
    """The same files of the user's own, which a run finds from any folder later."""
    train, valid, test = (
        (str(source.absolute()), str(target.absolute()))
        for source, target in _own_files(config, folder)
    )
    return replace(config, train=train, valid=valid, test=test)


def check_folder(config: DataConfig, folder: Path | None) -> None:
    """Make sure that the corpus's files can be in this folder.

    Raises:
        UserError: there is no such folder, or the corpus is a part of the package.
    """
    if folder is not None and config.corpus == BUNDLED:
        raise UserError(
            f"the text of {BUNDLED} is a part of this package, not in {folder}; for text of your "
            'own set data.corpus="files"'
        )
    if folder is not None and not folder.is_dir():
        raise UserError(f"there is no folder {folder}")


def load_corpus(config: DataConfig, folder: Path | None = None) -> Splits:
    """The corpus of this configuration; ``folder`` holds files that need not be downloaded.

    Raises:
        UserError: the files cannot be had or read.
    """
    check_folder(config, folder)
    return CORPORA[config.corpus](config, folder)


def read_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """Line by line from two files.

    Raises:
        UserError: they differ in their number of lines, or there is none.
    """
    number = 0
    for number, (left, right) in enumerate(
        zip_longest(read_lines(source), read_lines(target)), start=1
    ):
        if left is None or right is None:
            shorter = source if left is None else target
            raise UserError(
                f"{source} and {target} must have the same number of lines, but {shorter} ends "
                f"after {number - 1}; align them line by line"
            )
        yield left, right
    if number == 0:
        raise UserError(f"{source} and {target} are empty; give files with one sentence a line")


def read_test_set(name: str, source: Path, target: Path) -> TestSet:
    """Two files as a test set with one reference per sentence."""
    return as_test_set(name, read_pairs(source, target))


def as_test_set(name: str, pairs: Iterable[Pair]) -> TestSet:
    """Sentence pairs as a test set with one reference per sentence.

    Raises:
        UserError: a side has nothing but empty lines.
    """
    clean = [(normalize(source), normalize(target)) for source, target in pairs]
    if clean and not all(map(any, zip(*clean, strict=True))):
        raise UserError(f"{name} has nothing but empty lines in one of its languages")
    return TestSet(name, [source for source, _ in clean], [[target] for _, target in clean])


def _tatoeba(config: DataConfig, folder: Path | None) -> Splits:
    """Bundled. Split by English sentence: a held-out one is in no training pair whatever its
    capitals and punctuation, and all its translations are references."""
    data = resources.files("transformer_lib.data.bundled").joinpath("tatoeba.en-de.tsv.gz")
    lines = gzip.decompress(data.read_bytes()).decode("utf-8").splitlines()
    pairs: list[Pair] = []
    for line in lines:
        english, german = line.split("\t")
        pairs.append((normalize(english), normalize(german)))
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[sentence_key(pair[0])].append(pair)
    by_hash = sorted(groups, key=lambda key: hashlib.sha256(key.encode()).digest())

    def held_out(name: str, keys: list[str]) -> TestSet:
        references = [list(dict.fromkeys(german for _, german in groups[key])) for key in keys]
        return TestSet(name, [groups[key][0][0] for key in keys], references)

    test, valid = by_hash[:1000], by_hash[1000:1500]
    return Splits(pairs, held_out("tatoeba-valid", valid), held_out("tatoeba-test", test))


MULTI30K_URL = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
)
MULTI30K_SHA256 = {
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
}


def _multi30k(config: DataConfig, folder: Path | None) -> Splits:
    """Image captions (Elliott et al. 2016), downloaded from a pinned commit."""
    kept = cache_folder() / "downloads" / "multi30k"
    paths: dict[str, Path] = {}
    for name, checksum in MULTI30K_SHA256.items():
        kept_file = kept / name
        if folder is not None:
            given = folder / name
            if sha256(given) != checksum:
                raise UserError(f"{given} is not the Multi30k file of that name; fetch it again")
            if not is_there(kept_file, checksum):
                with atomic_path(kept_file) as temporary:
                    shutil.copyfile(given, temporary)
        paths[name] = download(MULTI30K_URL + name, kept_file, checksum)

    def both(stem: str) -> tuple[Path, Path]:
        return paths[f"{stem}.en.gz"], paths[f"{stem}.de.gz"]

    return Splits(
        read_pairs(*both("train")),
        read_test_set("multi30k-valid", *both("val")),
        read_test_set("multi30k-test2016", *both("test_2016_flickr")),
    )


def _wmt14(config: DataConfig, folder: Path | None) -> Splits:
    """Europarl v7, Common Crawl and News Commentary v9; newstest2013 and the full newstest2014."""
    return Splits(
        chain.from_iterable(wmt14.read_archive(archive, folder) for archive in wmt14.TRAIN),
        as_test_set("newstest2013", wmt14.read_archive(wmt14.VALID, folder)),
        as_test_set("newstest2014", wmt14.read_archive(wmt14.TEST, folder)),
    )


def _wmt14_mirror(config: DataConfig, folder: Path | None) -> Splits:
    """The same from the Hugging Face hub."""
    return Splits(
        wmt14_mirror.read_part(wmt14_mirror.TRAIN, folder),
        as_test_set("newstest2013", wmt14_mirror.read_part(wmt14_mirror.VALID, folder)),
        as_test_set("newstest2014", wmt14_mirror.read_part(wmt14_mirror.TEST, folder)),
    )


def _files(config: DataConfig, folder: Path | None) -> Splits:
    """Any pairs of text files."""
    train, valid, test = _own_files(config, folder)
    return Splits(read_pairs(*train), read_test_set("valid", *valid), read_test_set("test", *test))


def _own_files(config: DataConfig, folder: Path | None) -> list[tuple[Path, Path]]:
    """Where they are: at the absolute paths that a run stores, or moved into ``folder``."""

    def place(name: str) -> Path:
        path = Path(name)
        if folder is not None and path.is_absolute() and not path.exists():
            return folder / path.name
        return (folder or Path()) / path

    pairs = (config.train, config.valid, config.test)
    return [(place(pair[0]), place(pair[1])) for pair in pairs if pair]


CORPORA = {
    "tatoeba": _tatoeba,
    "multi30k": _multi30k,
    "wmt14": _wmt14,
    "wmt14_mirror": _wmt14_mirror,
    "files": _files,
}
