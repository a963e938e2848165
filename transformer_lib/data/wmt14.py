"""WMT 2014, English to German: the archives of statmt.org, verified, and read as they are.

Nothing is unpacked to disk. An archive is checked whole before anything of it is used: no member's
name points outside, the two sides are plain files with the published number of lines, the
compressed stream is sound, and the checksum is the one that others have published. The SHA-256 of
an archive that passed is written down, and from then on only that file is accepted.
"""

import gzip
import hashlib
import html
import io
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tqdm.auto import tqdm

from transformer_lib.data.cleaning import Pair
from transformer_lib.data.download import download
from transformer_lib.errors import UserError
from transformer_lib.files import cache_folder, locked, read_text, sha256, write_text
from transformer_lib.progress import progress_is_shown

ATTEMPTS = 4
BUFFER = 2**20
SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>", re.IGNORECASE)


@dataclass(frozen=True)
class Archive:
    """Where an archive is, its two files that we need, and how many sentences each has.

    Args:
        checksum: ``sha256:…`` or ``md5:…`` of the file, from manifests of other projects (of
            the test sets from sacreBLEU's); empty where none is known.
    """

    url: str
    source: str
    target: str
    sentences: int
    checksum: str = ""

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


TRAIN = (
    Archive(
        "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
        "training/europarl-v7.de-en.en",
        "training/europarl-v7.de-en.de",
        1_920_209,
        "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    Archive(
        "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
        "commoncrawl.de-en.en",
        "commoncrawl.de-en.de",
        2_399_123,
        "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    Archive(
        "https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
        "training/news-commentary-v9.de-en.en",
        "training/news-commentary-v9.de-en.de",
        201_288,
        "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
)
VALID = Archive(
    "https://www.statmt.org/wmt14/dev.tgz",
    "dev/newstest2013-src.en.sgm",
    "dev/newstest2013-ref.de.sgm",
    3_000,
    "sha256:cda0f85309e8ea4c9c2bc142cd795fb2771a5939ed5b4527b525dae05fa0c145",
)
TEST = Archive(
    "https://www.statmt.org/wmt14/test-full.tgz",
    "test-full/newstest2014-deen-src.en.sgm",
    "test-full/newstest2014-deen-ref.de.sgm",
    3_003,
    "md5:a8cd784e006feb32ac6f3d9ec7eb389a",
)
# The filtered test set of the shared task; some published scores are on it.
FILTERED_TEST = Archive(
    "https://www.statmt.org/wmt14/test-filtered.tgz",
    "test/newstest2014-deen-src.en.sgm",
    "test/newstest2014-deen-ref.de.sgm",
    2_737,
    "md5:84c597844c1542e29c2aff23aaee4310",
)


def downloads() -> Path:
    """Where the archives are kept."""
    return cache_folder() / "downloads" / "wmt14"


def read_archive(archive: Archive, folder: Path | None = None) -> Iterator[Pair]:
    """The sentence pairs of an archive, which is fetched and verified first.

    Args:
        folder: where the archive already is, instead of downloading it.

    Raises:
        UserError: it cannot be had, is damaged, or is not the archive of that name.
    """
    path = verified(archive, folder)
    with _member(path, archive.source) as sources, _member(path, archive.target) as targets:
        yield from zip(
            _sentences(sources, archive.source), _sentences(targets, archive.target), strict=True
        )


def verified(archive: Archive, folder: Path | None = None) -> Path:
    """The archive's file, once it is known to be whole; a damaged download is fetched again."""
    record = downloads() / "verified.json"
    checksum = _known(record).get(archive.name)
    if folder is not None:
        path = folder / archive.name
        found = _check(path, archive, checksum)
    else:
        path = downloads() / archive.name
        for attempt in range(1, ATTEMPTS + 1):
            try:
                download(archive.url, path, checksum)
            except UserError as error:
                raise UserError(
                    f"{error}; or take the corpus wmt14_mirror, nearly the same text from elsewhere"
                ) from error
            try:
                found = checksum or _check(path, archive, None)
                break
            except UserError as error:
                path.unlink()
                if attempt == ATTEMPTS:
                    raise
                tqdm.write(f"{error}; fetching it again")
    if checksum is None:
        with locked(record):
            write_text(record, json.dumps({**_known(record), archive.name: found}, indent=2) + "\n")
    return path


def _known(record: Path) -> dict[str, str]:
    """The SHA-256 of each archive that was verified before; nothing, if that cannot be read."""
    try:
        known = json.loads(read_text(record)) if record.exists() else {}
    except (ValueError, UserError):
        return {}
    return known if isinstance(known, dict) else {}


def _check(path: Path, archive: Archive, checksum: str | None) -> str:
    """The file's SHA-256, if it is ``checksum`` or, where none is known, if all of it is sound."""
    if checksum is not None:
        if sha256(path) != checksum:
            raise UserError(
                f"{path} is not the {archive.name} that was verified here before; fetch it again, "
                f"or delete {downloads() / 'verified.json'} if the new one is right"
            )
        return checksum
    wanted = {archive.source, archive.target}
    counts: dict[str, int] = {}
    digest = hashlib.sha256()
    try:
        with _bar(path) as bar, _Watched(path, digest.update) as file:
            stream = gzip.GzipFile(fileobj=file, mode="rb")
            with tarfile.open(fileobj=stream, mode="r|", bufsize=BUFFER) as tar:
                for member in tar:
                    bar.update(file.tell() - bar.n)
                    name = _name(member, path)
                    if name in wanted:
                        if name in counts or not member.isreg():
                            raise UserError(
                                f"{path} has {name} twice, or as a link: it is not trusted, fetch "
                                "it again from its source"
                            )
                        lines = _lines(tar, member)
                        counts[name] = sum(1 for _ in _sentences(lines, name))
            while stream.read(BUFFER):  # to the end, where gzip's own checksum is
                pass
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is damaged: {error}; fetch it again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    for name in sorted(wanted):
        if counts.get(name) != archive.sentences:
            has = f"{counts[name]:,} sentences in" if name in counts else "no file"
            raise UserError(
                f"{path} is not the archive of that name: it has {has} {name}, where "
                f"{archive.sentences:,} sentences are expected"
            )
    _compare(path, archive, digest.hexdigest())
    return digest.hexdigest()


def _compare(path: Path, archive: Archive, digest: str) -> None:
    """Make sure that a file with this SHA-256 is the one whose checksum others have published."""
    kind, _, expected = archive.checksum.partition(":")
    if not expected:
        return
    found = digest
    if kind != "sha256":
        with path.open("rb") as file:
            found = hashlib.file_digest(file, kind).hexdigest()
    if found != expected:
        raise UserError(
            f"{path} is not the archive of that name: its {kind} is {found}, where {expected} is "
            "published; fetch it again from its source"
        )


def _bar(path: Path) -> tqdm:
    return tqdm(
        total=path.stat().st_size,
        desc=f"verifying {path.name}",
        unit="B",
        unit_scale=True,
        disable=not progress_is_shown(),
    )


class _Watched(io.FileIO):
    """A file that reports what is read from it."""

    def __init__(self, path: Path, note: Callable[[bytes], object]):
        super().__init__(path)
        self._note = note

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size) or b""
        self._note(block)
        return block


def _name(member: tarfile.TarInfo, path: Path) -> str:
    """The member's name without a leading ``./``."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise UserError(
            f"{path} holds {member.name!r}, which points outside of the archive; it is not "
            "trusted, fetch it again from its source"
        )
    return str(name)


@contextmanager
def _member(path: Path, name: str) -> Iterator[Iterable[bytes]]:
    """One file of an archive, read as a stream."""
    with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|", bufsize=BUFFER) as tar:
        for member in tar:
            if _name(member, path) == name:
                yield _lines(tar, member)
                return


def _lines(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterable[bytes]:
    file = tar.extractfile(member)
    assert file is not None, "a plain file, as _check saw"
    return file


def _sentences(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of a text, or segments of an SGM file. Bytes that are not UTF-8 become U+FFFD."""
    for line in lines:
        text = line.rstrip(b"\r\n").decode("utf-8", errors="replace")
        if not name.endswith(".sgm"):
            yield text
        elif found := SEGMENT.search(text):
            yield html.unescape(found[1])
