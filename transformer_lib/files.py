"""Reading text strictly, writing files so that a crash leaves the old one or the new one."""

import errno
import gzip
import hashlib
import os
import secrets
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from transformer_lib.errors import UserError


def cache_folder() -> Path:
    """Where prepared data and downloads are kept: $TRANSFORMER_LIB_CACHE or the user's cache."""
    chosen = os.environ.get("TRANSFORMER_LIB_CACHE")
    return Path(chosen) if chosen else user_cache_path("transformer-lib", appauthor=False)


def _lock(path: Path) -> FileLock:
    """Never a marker in place of a lock: it would outlive a process that is killed."""
    return FileLock(path, fallback_to_soft=False)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time makes ``path``; others wait here. Its folder is made if need be.

    The lock is a file in the cache, named after ``path``, and is released when its process ends.
    Where the file system has no locks, nobody waits.

    Raises:
        UserError: a folder cannot be written.
    """
    lock = _lock(cache_folder() / "locks" / f"{path.name}.lock")
    try:
        for folder in (path.parent, Path(lock.lock_file).parent):
            folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """One process at a time writes into ``folder``, which is made; others are turned away.

    The lock is a hidden file in it as long as it is held, so that all who see the folder see it.
    Where the file system has no locks, nobody is turned away. A new folder into which nothing was
    written is removed.

    Raises:
        UserError: another process has it.
    """
    lock, is_new = _lock(folder / ".lock"), not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except Timeout as error:
        raise UserError(
            f"another process is writing into {folder}; wait until it has ended, or choose another "
            "folder with --out"
        ) from error
    except OSError:
        pass
    try:
        yield
    finally:
        with suppress(OSError):
            if lock.is_locked:
                Path(lock.lock_file).unlink()  # whoever has opened it already tries again
        lock.release()
        if is_new:
            with suppress(OSError):
                folder.rmdir()


def _beside(path: Path) -> Path:
    """A free name in the same folder.

    Raises:
        UserError: the path is a folder without a name of its own, such as ``.``
    """
    if not path.name:
        raise UserError(f"{path} cannot be replaced; give a name in it")
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def half_written(folder: Path, name: str) -> Iterator[Path]:
    """What a killed process left half-written under this name, which may be a pattern."""
    return folder.glob(f".{name}.*")


def _unwritten(path: Path, error: OSError, elsewhere: str = "another folder") -> UserError:
    """What stopped writing ``path``, and what to do about it."""
    files = [str(parent) for parent in path.parents if parent.is_file()]
    reason = f"{files[0]} is no folder" if files else error.strerror or str(error)
    room = "free some space or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return UserError(
        f"cannot write {path}: {reason}; nothing was changed, {room}choose {elsewhere}"
    )


def must_be_new(folder: Path) -> None:
    """Ask before long work whether a folder that it fills can be made.

    Raises:
        UserError: there is something in it already, or a file has its name.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; choose a folder with --out")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; choose another folder with --out")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; renamed to ``path`` on success, else removed.

    Raises:
        UserError: any OSError of the body, such as a full disk, or the folder cannot be written.
    """
    temporary = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode  # the permissions that the user's new files get
        yield temporary
        temporary.chmod(mode)  # safetensors makes a file anew, for its owner alone
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, elsewhere: str = "another folder") -> Iterator[Path]:
    """A temporary folder beside ``path`` to fill; renamed to ``path`` on success, else removed.

    Args:
        elsewhere: what to choose instead, for the complaint.

    Raises:
        UserError: any OSError of the body, or ``path`` is there already and not empty.
    """
    temporary = _beside(path)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if path.is_dir():
            path.rmdir()  # an empty one
        temporary.replace(path)
    except OSError as error:
        raise _unwritten(path, error, elsewhere) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a small file atomically.

    Raises:
        UserError: it cannot be written.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file atomically, line by line; raises what :func:`write_text` does."""
    write_text(path, "".join(f"{line}\n" for line in lines))


def decoded(line: bytes, number: int) -> str:
    """A line of UTF-8 without its end, and line 1 without a byte-order mark.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
    """
    return line.rstrip(b"\r\n").decode("utf-8-sig" if number == 1 else "utf-8")


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 text file, which may be gzip'd (``.gz``), without their line ends.

    Raises:
        UserError: there is no such file, it is not UTF-8 or not a whole gzip file.
    """
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                yield decoded(line, number)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start}); "
            "convert the file, for example with iconv"
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is not a whole gzip file: {error}; fetch it again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def read_text(path: Path) -> str:
    """A small file as a whole, each line ending in ``\\n``; raises what :func:`read_lines` does."""
    return "\n".join(read_lines(path))


def sha256(path: Path) -> str:
    """The file's SHA-256 as 64 hexadecimal digits.

    Raises:
        UserError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
