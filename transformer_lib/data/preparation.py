"""From a corpus to a folder with tokenizer, token store and held-out sets, made once."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from tqdm.auto import tqdm

from transformer_lib.data.cleaning import Cleaner, Pair, sentence_key
from transformer_lib.data.config import DataConfig
from transformer_lib.data.corpora import (
    Splits,
    TestSet,
    check_folder,
    fingerprint,
    load_corpus,
)
from transformer_lib.data.store import PairStore
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.errors import UserError
from transformer_lib.files import (
    cache_folder,
    half_written,
    locked,
    new_folder,
    read_lines,
    read_text,
    write_text,
)
from transformer_lib.progress import progress_is_shown
from transformer_lib.vocabulary import EOS

T = TypeVar("T")

FORMAT = 1
# At least so many are learned from: enough for the pieces of any corpus, and saves 2 GB of memory.
TOKENIZER_PAIRS = 500_000


@dataclass(frozen=True)
class PreparedData:
    """What training reads. ``report`` counts the kept pairs and the dropped ones by reason."""

    folder: Path
    tokenizer: Tokenizer
    train: PairStore
    valid: TestSet
    test: TestSet
    report: dict[str, int]


def prepare(
    config: DataConfig, files: Path | None = None, cache: Path | None = None
) -> PreparedData:
    """Clean, split, learn the tokenizer and store the tokens, unless that was done before.

    Args:
        files: folder with the corpus's files, instead of downloading them.
        cache: where prepared data is kept; the default is :func:`cache_folder`.

    Raises:
        UserError: the text cannot be had, read or used; nothing half-made is left.
    """
    check_folder(config, files)
    # A user's files count by what is in them, wherever they are.
    settings = asdict(config) | {"train": None, "valid": None, "test": None}
    identity = json.dumps([FORMAT, settings, fingerprint(config, files)], sort_keys=True)
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    folder = (cache or cache_folder()) / "prepared" / f"{config.corpus}-{key}"
    if not _is_complete(folder):
        with locked(folder):  # of two processes one prepares; the other waits and finds it done
            if not _is_complete(folder):
                for left in [folder, *half_written(folder.parent, folder.name)]:
                    shutil.rmtree(left, ignore_errors=True)
                with new_folder(folder, "another one with TRANSFORMER_LIB_CACHE") as making:
                    _make(config, load_corpus(config, files), making)
    return open_prepared(folder)


def _is_complete(folder: Path) -> bool:
    return (folder / "report.json").exists()


def open_prepared(folder: Path) -> PreparedData:
    """A folder that :func:`prepare` made.

    Raises:
        UserError: one of its files is missing or damaged.
    """
    try:
        tokenizer = Tokenizer.load(folder / "tokenizer.model")
        train = PairStore.open(folder, len(tokenizer))
        valid, test = (_read_set(folder / f"{name}.json") for name in ("valid", "test"))
        report = json.loads(read_text(folder / "report.json"))
    except (UserError, OSError, ValueError, TypeError) as error:
        raise UserError(
            f"the prepared text in {folder} is damaged; delete that folder, and it is prepared "
            f"again ({error})"
        ) from error
    return PreparedData(folder, tokenizer, train, valid, test, report)


def cleaner_of(config: DataConfig, splits: Splits) -> Cleaner:
    """The cleaner that decides which training pairs are used: none with a held-out sentence."""
    held_out = frozenset(map(sentence_key, splits.valid.sources + splits.test.sources))
    held_out -= {""}  # the key of a line without a letter or digit
    return Cleaner(config, held_out)


def training_pairs(config: DataConfig, files: Path | None = None) -> list[Pair]:
    """The sentence pairs that a model learns from, as text: cleaned, none of them held out.

    Raises:
        UserError: the text cannot be had or read.
    """
    return list(clean_pairs(config, files))


def clean_pairs(config: DataConfig, files: Path | None = None) -> Iterator[Pair]:
    """The same, one after another: a corpus need not fit into memory.

    Raises:
        UserError: the text cannot be had or read.
    """
    splits = load_corpus(config, files)
    return cleaner_of(config, splits)(splits.train)


def single_sentences(config: DataConfig, files: Path | None = None) -> tuple[list[str], list[str]]:
    """The sentences of both languages, each once: to train a language model, and held out.

    Those to train with are the sides of :func:`training_pairs` without any that is held out as a
    reference; those held out are the sources of the test set and their first references.

    Raises:
        UserError: the text cannot be had or read.
    """
    splits = load_corpus(config, files)
    held_out = {
        sentence_key(sentence)
        for part in (splits.valid, splits.test)
        for sentence in chain(part.sources, *part.references)
    }
    pairs = cleaner_of(config, splits)(splits.train)
    training = set(chain.from_iterable(pairs))
    test = {*splits.test.sources, *(first for first, *_ in splits.test.references)}
    return sorted(s for s in training if sentence_key(s) not in held_out), sorted(test)


def _make(config: DataConfig, splits: Splits, folder: Path) -> None:
    cleaner = cleaner_of(config, splits)
    # Clean text waits in a file, so that the corpus need not fit into memory.
    clean = folder / "clean.tsv"
    with clean.open("w", encoding="utf-8", newline="\n") as file:
        for source, target in _with_progress(cleaner(splits.train), "cleaning"):
            file.write(f"{source}\t{target}\n")
    kept = cleaner.report["kept"]
    if kept == 0:
        raise UserError("no sentence pair is left after cleaning: " + describe(cleaner.report))

    step = max(1, kept // TOKENIZER_PAIRS)
    sample = islice(read_lines(clean), 0, None, step)
    sentences = (side for line in sample for side in line.split("\t"))
    tokenizer = Tokenizer.train(sentences, config.vocab_size, config.byte_fallback)

    too_long = f"more than {config.max_len} tokens"
    tokens = _with_progress(_tokenize(clean, tokenizer, config.max_len), "tokenizing")
    cleaner.report["kept"] = PairStore.write(folder, tokens, len(tokenizer))
    cleaner.report[too_long] = kept - cleaner.report["kept"]
    if cleaner.report["kept"] == 0:
        raise UserError(
            f"no sentence pair has at most max_len={config.max_len} tokens on both sides; choose "
            "a larger data.max_len"
        )
    clean.unlink()
    (folder / "tokenizer.model").write_bytes(tokenizer.model)
    for name, held_out_set in (("valid", splits.valid), ("test", splits.test)):
        write_text(folder / f"{name}.json", json.dumps(asdict(held_out_set), ensure_ascii=False))
    write_text(folder / "report.json", json.dumps(+cleaner.report))


def _tokenize(
    clean: Path, tokenizer: Tokenizer, max_len: int
) -> Iterator[tuple[list[int], list[int]]]:
    lines = read_lines(clean)
    while chunk := list(islice(lines, 10_000)):
        sources, targets = zip(*(line.split("\t") for line in chunk), strict=True)
        for src, tgt in zip(tokenizer.encode(sources), tokenizer.encode(targets), strict=True):
            if max(len(src), len(tgt)) < max_len:
                yield [*src, EOS], [*tgt, EOS]


def _with_progress(pairs: Iterable[T], name: str) -> Iterator[T]:
    yield from tqdm(
        pairs, desc=name, unit=" pairs", unit_scale=True, disable=not progress_is_shown()
    )


def _read_set(path: Path) -> TestSet:
    return TestSet(**json.loads(read_text(path)))


def describe(report: dict[str, int]) -> str:
    """The cleaning report in one line."""
    dropped = {reason: n for reason, n in report.items() if reason != "kept" and n}
    parts = [f"{n:,} ({reason})" for reason, n in sorted(dropped.items(), key=lambda x: -x[1])]
    return f"kept {report.get('kept', 0):,} pairs; dropped " + (", ".join(parts) or "none")
