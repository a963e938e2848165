"""The command that shuts a program in with bubblewrap, and whether it works on this machine.

https://github.com/containers/bubblewrap: no network, nothing of the machine to be seen but the
system's programs and the Python environment, both read-only.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import transformer_lib
from transformer_lib.course.sandboxed.isolation import PRIVATE, Limits
from transformer_lib.errors import UserError

PACKAGE = Path(transformer_lib.__file__).parent
# What the worker itself needs of the library; what a notebook may import comes on top.
OWN_MODULES = (
    "__init__.py", "errors.py", "personal.py", "vocabulary.py", "course/__init__.py",
    "course/sandboxed",
)  # fmt: skip
SYSTEM = (
    "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64",
    "/usr/share/fonts", "/usr/share/zoneinfo", "/usr/share/locale",
)  # fmt: skip
"""What of the system a submission sees. Not /usr as a whole, where somebody may keep files."""
FIRST_UID = 200_000  # for root: numbers of users that do not exist, one for each submission


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def bubblewrap(library: Sequence[str], limits: Limits) -> list[str]:
    """The command that runs what follows it in the sandbox."""
    program = shutil.which("bwrap")
    assert program is not None
    command = [program, "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-net"]
    command += ["--unshare-ipc", "--unshare-uts", "--hostname", "sandbox"]
    if is_root():
        # Root makes the namespaces for each submission itself and then becomes another user.
        command += ["--cap-drop", "ALL"]
        for capability in ("SYS_ADMIN", "SETUID", "SETGID"):
            command += ["--cap-add", f"CAP_{capability}"]
    else:
        command += ["--unshare-user"]
    command += ["--tmpfs", "/tmp", "--dir", "/usr"]
    for folder in SYSTEM:
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        else:
            command += [*_folders_above(folder), "--ro-bind-try", folder, folder]
    for folder in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    command += ["--dir", "/etc"]
    for path in ("/etc/ld.so.cache", "/etc/alternatives", "/etc/fonts", "/etc/localtime"):
        command += ["--ro-bind-try", path, path]
    for prefix in dict.fromkeys((sys.base_prefix, sys.prefix)):
        # Of a Python that shares its folder with others, only what belongs to Python.
        shared = prefix in ("/usr", "/usr/local")
        for path in [f"{prefix}/bin", f"{prefix}/lib"] if shared else [prefix]:
            command += [*_folders_above(path), "--ro-bind", path, path]
    command += ["--proc", "/proc", "--dev", "/dev"]
    command += ["--perms", "1777", "--size", str(4 * limits.file_bytes), "--tmpfs", PRIVATE]
    command += [*_folders_above(PACKAGE), "--size", "1048576", "--tmpfs", str(PACKAGE)]
    for name in (*OWN_MODULES, *library):
        command += [*_folders_above(PACKAGE / name), *["--ro-bind"] + 2 * [str(PACKAGE / name)]]
    for folder in (str(PACKAGE), "/tmp", "/dev", "/"):
        command += ["--remount-ro", folder]
    return [*command, "--chdir", PRIVATE, "--"]


def _folders_above(path: str | Path) -> list[str]:
    """Make them readable for all: bubblewrap itself would make them for their owner alone."""
    above = [str(folder) for folder in reversed(Path(path).parents)][1:]
    return [word for folder in above for word in ("--dir", folder)]


@functools.cache
def require_bubblewrap() -> None:
    """Try the sandbox once.

    Raises:
        UserError: it is not there or does not work; what to do.
    """
    instead = (
        "Without a sandbox, a submission can read and change whatever you can; if you trust "
        "all of them, say so with --isolation none"
    )
    if sys.platform != "linux":
        raise UserError(
            f"grading needs Linux for its sandbox (bubblewrap), and this is {sys.platform}. "
            f"A Linux virtual machine or container will do. {instead}"
        )
    if shutil.which("bwrap") is None:
        raise UserError(
            "grading needs bubblewrap for its sandbox, and there is no program called bwrap. "
            f"Debian and Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap. {instead}"
        )
    trial = subprocess.run(
        [*bubblewrap([], Limits()), "/bin/true"], capture_output=True, text=True, check=False
    )
    if trial.returncode != 0:
        said = (trial.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UserError(
            f"bubblewrap does not work here: {said}. Unprivileged user namespaces must be "
            f"allowed (in a container: --privileged or a seccomp profile). {instead}"
        )


@functools.cache
def can_fork() -> bool:
    """Whether a sandbox inside the sandbox is allowed, so that one import serves many."""
    program = (
        f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
        "from transformer_lib.course.sandboxed.isolation import Limits, shut_in\n"
        f"shut_in(Limits(), {FIRST_UID if is_root() else None})\n"
    )
    command = [*bubblewrap([], Limits()), sys.executable, "-I", "-c", program]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
