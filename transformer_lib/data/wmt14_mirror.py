"""WMT 2014, English to German, from a mirror, for days on which statmt.org cannot be reached.

The dataset ``wmt/wmt14`` of the Hugging Face hub holds the same texts as Parquet. It lacks 11,835
of the 4,520,620 training pairs: so it is a corpus of its own, and a run says which of the two it
learned from.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_lib.data.cleaning import Pair
from transformer_lib.data.download import download
from transformer_lib.errors import UserError, require
from transformer_lib.files import cache_folder, read_text

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

HUB = "https://huggingface.co"
FILES = "datasets/wmt/wmt14/resolve/main/de-en"
LISTING = "api/datasets/wmt/wmt14/tree/main/de-en"  # with the SHA-256 of each file
ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Part:
    """Files of the mirror, and the number of sentence pairs in all of them together."""

    name: str
    files: int
    sentences: int

    @property
    def names(self) -> list[str]:
        return [f"{self.name}-{i:05}-of-{self.files:05}.parquet" for i in range(self.files)]


TRAIN = Part("train", 3, 4_508_785)
VALID = Part("validation", 1, 3_000)
TEST = Part("test", 1, 3_003)


def read_part(part: Part, folder: Path | None = None) -> Iterator[Pair]:
    """The sentence pairs of a part, whose files are fetched first, and compared with checksums.

    Args:
        folder: where the files already are, instead of downloading them.

    Raises:
        UserError: they cannot be had, are damaged, or hold another number of pairs.
    """
    paths = [folder / name if folder else _fetched(name) for name in part.names]
    files = [_open(path) for path in paths]
    if (found := sum(file.metadata.num_rows for file in files)) != part.sentences:
        raise UserError(
            f"{', '.join(part.names)} in {paths[0].parent} have {found:,} sentence pairs, where "
            f"{part.sentences:,} are expected; fetch them again"
        )
    for path, file in zip(paths, files, strict=True):
        yield from _pairs(path, file)


def _fetched(name: str) -> Path:
    kept = cache_folder() / "downloads" / "wmt14_mirror"
    listing = download(f"{HUB}/{LISTING}", kept / "listing.json", None)
    try:
        entries = json.loads(read_text(listing))
        checksums = {Path(e["path"]).name: e["lfs"]["oid"] for e in entries if "lfs" in e}
        checksum = checksums[name]
    except (ValueError, KeyError, TypeError) as error:
        listing.unlink()
        raise UserError(f"{HUB}/{LISTING} does not list {name} with its checksum") from error
    try:
        return download(f"{HUB}/{FILES}/{name}", kept / name, checksum)
    except UserError:
        listing.unlink(missing_ok=True)  # the file may have changed since, and its checksum
        raise


def _open(path: Path) -> "ParquetFile":
    require("pyarrow.parquet", "mirror")
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    if not path.exists():
        raise UserError(f"there is no {path}")
    try:
        return ParquetFile(path)
    except (OSError, ArrowException) as error:
        raise _damaged(path, error) from error


def _pairs(path: Path, file: "ParquetFile") -> Iterator[Pair]:
    from pyarrow import ArrowException

    try:
        for rows in file.iter_batches(ROWS_AT_ONCE, columns=["translation"]):
            both = rows.column("translation")
            sides = [both.field(language).cast("string") for language in ("en", "de")]
            if any(side.null_count for side in sides):
                raise ValueError("a sentence is missing")
            yield from zip(*(side.to_pylist() for side in sides), strict=True)
    except (OSError, KeyError, AttributeError, ValueError, ArrowException) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged: {str(error).strip()}; fetch it again")
