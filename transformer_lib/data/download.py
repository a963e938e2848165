"""Downloads that resume where they broke off and are verified before use."""

import errno
import http.client
import time
import urllib.error
import urllib.request
from pathlib import Path

from tqdm.auto import tqdm

from transformer_lib.errors import UserError
from transformer_lib.files import locked, sha256
from transformer_lib.progress import progress_is_shown

CHUNK = 2**18
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)


def download(url: str, path: Path, expected_sha256: str | None, attempts: int = 5) -> Path:
    """Fetch ``url`` to ``path`` unless a file with this checksum is already there.

    Where no checksum is known (``None``), any file of that name will do; verify it before use.

    An interrupted download stays beside it as ``….part`` and is continued by the next call. If two
    processes want the same file, one fetches it and the other waits.

    Raises:
        UserError: the server cannot be reached, or what it sends has another checksum.
    """
    if is_there(path, expected_sha256):  # perhaps in a folder that is read-only
        return path
    with locked(path):
        if not is_there(path, expected_sha256):
            _download(url, path, expected_sha256, attempts)
    return path


def is_there(path: Path, expected_sha256: str | None) -> bool:
    """Whether there is a file with this checksum; where none is known, any file will do."""
    return path.exists() and (expected_sha256 is None or sha256(path) == expected_sha256)


def _download(url: str, path: Path, expected_sha256: str | None, attempts: int) -> None:
    part = path.with_name(path.name + ".part")
    for attempt in range(1, attempts + 1):
        is_last = attempt == attempts
        try:
            _fetch_rest(url, part)
        except (OSError, http.client.HTTPException) as error:
            status = error.code if isinstance(error, urllib.error.HTTPError) else None
            if isinstance(error, OSError) and error.errno in DISK_ERRORS:
                raise UserError(
                    f"cannot write {part}: {error.strerror}; free some space or choose another "
                    "folder with TRANSFORMER_LIB_CACHE, and run the command again"
                ) from error
            if status != 416:  # where nothing is left to fetch, the checksum decides
                refused = status is not None and 400 <= status < 500 and status not in (408, 429)
                if is_last or refused:
                    raise UserError(
                        f"cannot download {url}: {error}; check the network and run the command "
                        "again (it continues where it stopped), or fetch the file and use "
                        "--from DIR"
                    ) from error
                time.sleep(min(2.0**attempt, 30.0) / 4)
                continue
        if expected_sha256 is None or (actual := sha256(part)) == expected_sha256:
            part.replace(path)
            return
        part.unlink()
        if is_last:
            raise UserError(
                f"{url} has SHA-256 {actual[:12]}…, expected {expected_sha256[:12]}…; the download "
                "was removed, run the command again or fetch the file elsewhere and use "
                "--from DIR"
            )


def _fetch_rest(url: str, part: Path) -> None:
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    with urllib.request.urlopen(request, timeout=30) as response:
        resumed = response.status == 206
        done = done if resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with (
            part.open("ab" if resumed else "wb") as file,
            tqdm(
                total=total,
                initial=done,
                unit="B",
                unit_scale=True,
                desc=url.rsplit("/", 1)[-1],
                disable=not progress_is_shown(),
            ) as bar,
        ):
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                bar.update(len(chunk))
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)
