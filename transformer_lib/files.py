"""Reading text strictly, writing files so that a crash leaves the old one or the new one."""

import gzip
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_lib.errors import UserError


def cache_folder() -> Path:
    """Where prepared data and downloads are kept: $TRANSFORMER_LIB_CACHE or ~/.cache."""
    chosen = os.environ.get("TRANSFORMER_LIB_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "transformer-lib"


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; renamed to ``path`` on success, else removed.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp made it private
        temporary.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; nothing was changed, "
            "free some space or choose another folder"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a small file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 text file, which may be gzip'd (``.gz``), without their line ends.

    Raises:
        UserError: there is no such file, it is not UTF-8 or not a whole gzip file.
    """
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):  # noqa: B007
                yield line.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start}); "
            "convert the file, for example with iconv"
        ) from error
    except (EOFError, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is not a whole gzip file: {error}; fetch it again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def sha256(path: Path) -> str:
    """The file's SHA-256 as 64 hexadecimal digits."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
