"""A call in a process of its own: whatever happens to it, the notebook goes on."""

import contextlib
import faulthandler
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable

import torch

MEMORY = 4 * 2**30  # that it may take besides what there is


def apart(call: Callable[[], str], seconds: float) -> str:
    """The result of ``call``; empty if it fails, crashes or takes longer than ``seconds``.

    The call runs in a copy of this process, and nothing of what it changes is seen here. Such a
    copy, a fork, can be made on Linux, and PyTorch survives it where it has no accelerator;
    elsewhere the call is an ordinary one.
    """
    if sys.platform != "linux" or torch.accelerator.is_available():
        return call()
    reading, writing = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # of other threads: none is needed there
        child = os.fork()
    if child == 0:
        _answer(call, writing)
    os.close(writing)
    try:
        return _read(reading, seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _answer(call: Callable[[], str], writing: int) -> None:
    """Write what is returned, and end without anything that a Python program does at its end."""
    import resource  # which Windows does not have

    faulthandler.disable()  # a crash leaves no message
    with contextlib.suppress(BaseException):
        torch.set_num_threads(1)  # the others were not copied
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        with open(writing, "w", encoding="utf-8") as file:
            file.write(call())
    os._exit(0)


def _read(reading: int, seconds: float) -> str:
    with open(reading, "rb", closefd=False) as file:
        ready, _, _ = select.select([file], [], [], seconds)
        return file.read().decode() if ready else ""
