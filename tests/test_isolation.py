"""The numbers of the kernel's that the sandbox is built from, held against the kernel's headers."""

import re
from pathlib import Path

import pytest

from transformer_lib.course.sandboxed import isolation

HEADERS = {
    0: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    1: Path("/usr/include/asm-generic/unistd.h"),  # aarch64 has the generic numbers
}
OTHER = {"clone": isolation._CLONE, "clone3": isolation._CLONE3, "socket": isolation._SOCKET}


@pytest.mark.parametrize("column", HEADERS)
def test_system_calls_have_the_numbers_of_the_headers(column):
    path = HEADERS[column]
    if not path.exists():
        pytest.skip(f"{path} is not here (Debian: apt install linux-libc-dev)")
    known = {
        name: int(number)
        for name, number in re.findall(
            r"^#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text(), re.MULTILINE
        )
    }
    refused = {**isolation._REFUSED, **OTHER}
    found = {name: known[name] for name in refused if name in known}
    assert len(found) >= len(refused) - 3  # headers may be older than the newest calls
    assert found == {name: refused[name][column] for name in found}
