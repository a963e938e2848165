"""The sandbox from outside: start it, open a connection for each submission, end it when need be.

On Linux it is bubblewrap's (:mod:`.bubblewrap`). Inside, the program of
:mod:`transformer_lib.course.sandboxed.worker` waits.
"""

import builtins
import contextlib
import dataclasses
import json
import math
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase, BufferedRWPair
from pathlib import Path
from typing import IO, Any, Literal

import psutil
import torch

from transformer_lib.course.sandboxed import wire
from transformer_lib.course.sandboxed.isolation import PRIVATE, UIDS, Limits, shell_code
from transformer_lib.errors import UserError
from transformer_lib.instructor.grading.bubblewrap import (
    FIRST_UID,
    PACKAGE,
    bubblewrap,
    can_fork,
    is_root,
    require_bubblewrap,
)
from transformer_lib.shown import one_line

Isolation = Literal["bubblewrap", "none"]
ISOLATIONS: tuple[Isolation, ...] = ("bubblewrap", "none")
Stream = BufferedIOBase | BufferedRWPair

MANY = 10  # processes; a submission that starts none has up to six around it
START_SECONDS = 120
MAX_GIVEN, MAX_NUMBERS = 100, 10_000  # tensors, and numbers of each, that no text may repeat
DECIMAL = re.compile(r"-?\d*\.\d{2,15}(?:e-?\d{1,2})?")
SIGNALS = {
    4: "an illegal instruction", 6: "abort()", 7: "a bus error", 8: "a division by zero",
    9: "a kill", 11: "a segmentation fault", 24: "the limit on CPU time",
    25: "the limit on the size of a file", 31: "a system call that is not allowed",
}  # fmt: skip


class Ended(BaseException):
    """The submission's process is gone, or had to go; the message says why.

    Not an :class:`Exception`, so that no check takes it for what a function raised.
    """


class StudentError(Exception):
    """Code of the submission raised an exception.

    Args:
        kind: name of the exception's class.
        explanation: the line of the student's code and what was said.
    """

    def __init__(self, kind: str, explanation: str):
        super().__init__(explanation)
        self.kind = kind
        self.explanation = explanation


class Connection:
    """A submission's process, as one who asks sees it.

    Attributes:
        is_quiet: of exceptions only the kind is told from now on, for the process has met what no
            student may see.
    """

    def __init__(self, stream: Stream, watch: "_Watch", seconds: int, how: Callable[[], str]):
        self.is_quiet = False
        self._stream = stream
        self._watch = watch
        self._seconds = seconds
        self._how_it_ended = how
        self._given: list[torch.Tensor] = []

    def ask(self, what: str, *arguments: Any, reply_bytes: int = wire.MAX_BYTES) -> Any:
        """Put a question to the worker (its ``do_`` methods) and return the answer.

        Args:
            reply_bytes: the longest answer that is read at all.

        Raises:
            StudentError: student's code raised.
            Ended: there is no answer in time, none of the agreed form, or no process any more.
            wire.WireError: the question cannot cross.
        """
        # Whoever answers must say to what, or an answer written in advance would be taken for it.
        number = secrets.randbits(64)
        message = wire.encode([number, what, *arguments])
        self._given = [*self._given, *wire.tensors_in(list(arguments))][-MAX_GIVEN:]
        with self._watch.deadline(self._seconds):
            try:
                self._stream.write(message)
                self._stream.flush()
                reply = wire.read(self._stream, most=reply_bytes)
            except (OSError, ValueError, wire.WireError) as error:
                unreadable = isinstance(error, wire.WireError) and "ended" not in str(error)
                why = f"its answer could not be read: {error}" if unreadable else ""
                raise Ended(self._watch.reason or why or self._how_it_ended()) from error
        match reply:
            case [int(answered), "ok", value] if answered == number:
                return value
            case [int(answered), "error", str(kind), str(explanation)] if answered == number:
                kind = self._known(kind)
                raise StudentError(kind, self._told(kind, one_line(explanation)))
        raise Ended("it wrote something of its own where an answer was due")

    def _known(self, kind: str) -> str:
        """An exception's class by its name; a student's own name could tell what it has seen."""
        is_pythons = isinstance(getattr(builtins, kind, None), type)
        return one_line(kind, 100) if is_pythons or not self.is_quiet else "an exception"

    def _told(self, kind: str, explanation: str) -> str:
        """What an exception says, unless it says what the tests are made of."""
        if self.is_quiet:
            return f"your code raised {kind}"
        given = [x.detach().flatten()[:MAX_NUMBERS].double() for x in self._given]
        for number in map(float, DECIMAL.findall(explanation)):
            if any(((x - number).abs() <= 1e-3 * abs(number)).any() for x in given):
                return f"your code raised {kind}, with numbers of the test in its text"
        return explanation


@contextmanager
def _closing(stream: Stream) -> Iterator[None]:
    """Close it at the end, also where the other side is gone and did not read the last question."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            stream.close()


class Sandbox:
    """A prepared place for submissions, which use it one after the other.

    Args:
        library: modules and folders of ``transformer_lib`` that notebooks may import.
        imports: modules to import once, before the first submission.
        isolation: ``"none"`` runs submissions as the grader's own user, with nothing between.

    Raises:
        UserError: there is no sandbox on this machine; what to do about it.
    """

    def __init__(
        self,
        library: Sequence[str] = (),
        imports: Sequence[str] = (),
        limits: Limits | None = None,
        isolation: Isolation = "bubblewrap",
    ):
        if isolation == "bubblewrap":
            require_bubblewrap()
        self.isolation = isolation
        self.limits = limits or Limits()
        self._library = tuple(library)
        self._imports = tuple(imports)
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        self._forks = isolation == "bubblewrap" and can_fork()
        self._words: IO[bytes] | None = None  # what it writes to its standard error
        self._last_words = ""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._before: int | None = None  # bytes that the waiting interpreter holds
        self._ended: int | None = None  # how the latest submission's process ended

    def close(self) -> None:
        """End the sandbox and all that runs in it. It starts anew when it is used again."""
        if self._process is not None:
            self._process.kill()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._process.wait()
            self._process = self._before = None
        if self._words is not None:
            self._words.seek(0)
            said = self._words.read().decode(errors="replace").strip().splitlines()
            self._last_words = said[-1] if said else "it ended without a word"
            self._words.close()
            self._words = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        if self._control is not None:
            self._control.close()
            self._control = None

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @contextmanager
    def open(self, until: float = math.inf) -> Iterator[Connection]:
        """A fresh process for one submission. Whatever it leaves behind is gone afterwards.

        Args:
            until: when it must have ended, by :func:`time.monotonic`.

        Raises:
            UserError: the sandbox does not start.
        """
        stream = self._connect()
        assert self._process is not None
        if self._before is None:  # it takes long to count, and the interpreter does not grow
            self._before = _memory(self._process.pid)
        watch = _Watch(self._process, self.limits, self._before, self._forks, until)
        ended = False
        try:
            with watch, _closing(stream):
                try:
                    yield Connection(stream, watch, self.limits.seconds, self._how_it_ended)
                finally:
                    ended = True
        finally:
            # The interpreter that forks stays, if it says that the submission's process is gone.
            if not (ended and self._forks and self._exit_code() is not None):
                self.close()

    def _connect(self) -> Stream:
        """Start what is not running and wait until the worker is ready."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        is_new = self._process is None
        if is_new:
            self._start()
        assert self._process is not None
        self._ended = None
        watch = _Watch(self._process, Limits(total_seconds=START_SECONDS))
        if self._forks:
            assert self._control is not None
            ours, theirs = socket.socketpair()
            with theirs, contextlib.suppress(OSError):  # it has ended: nobody answers below
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            stream: Stream = ours.makefile("rwb")
            ours.close()
        else:
            assert self._process.stdout is not None
            assert self._process.stdin is not None
            stream = BufferedRWPair(self._process.stdout, self._process.stdin)  # type: ignore
        with watch:
            try:
                reply = wire.read(stream)
            except (OSError, wire.WireError) as error:
                stream.close()
                self.close()
                if not is_new:  # it has been ended together with the latest submission
                    return self._connect()
                raise UserError(f"the sandbox does not start: {self._last_words}") from error
        if reply != ["ready"]:
            self.close()
            raise UserError(f"the sandbox does not start: {reply[-1]}")
        return stream

    def _start(self) -> None:
        theirs = None
        if self._forks:
            self._control, theirs = socket.socketpair()
        settings = {
            "control": theirs and theirs.fileno(),
            "confined": self.isolation == "bubblewrap",
            "imports": self._imports,
            "limits": dataclasses.asdict(self.limits),
            "uid": FIRST_UID + os.getpid() * UIDS if is_root() else None,
        }
        start = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); "
        program = start + "from transformer_lib.course.sandboxed.worker import main; main()"
        command = [sys.executable, "-I", "-c", program, json.dumps(settings)]
        if self.isolation == "bubblewrap":
            command = [*bubblewrap(self._library, self.limits), *command]
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if self._forks else subprocess.PIPE,
            stdout=subprocess.DEVNULL if self._forks else subprocess.PIPE,
            stderr=self._words,
            bufsize=0,
            cwd=self._folder.name,
            pass_fds=[theirs.fileno()] if theirs else [],
            env=_environment(self.isolation),
        )
        if theirs:
            theirs.close()

    def _exit_code(self) -> int | None:
        """Of the submission's process, as shells count; it has a moment to go by itself."""
        if self._ended is None and self._process is not None:
            try:
                if self._control is None:
                    self._ended = shell_code(self._process.wait(2.0))
                else:
                    self._control.settimeout(2.0)
                    self._ended = int.from_bytes(self._control.recv(1) or b"\xff")
            except (OSError, subprocess.TimeoutExpired):
                return None
        return self._ended

    def _how_it_ended(self) -> str:
        code = self._exit_code()
        if code is None:
            return "it closed its connection"
        if code < 128:
            return f"its process exited with code {code}"
        return f"its process was ended by {SIGNALS.get(code - 128, f'signal {code - 128}')}"


class _Watch:
    """A thread that ends a submission when time is up or too much memory is used.

    Args:
        before: bytes that the interpreter holds which the submission is forked from.
        only_children: spare the interpreter in the sandbox, which forks.
        until: when all of it must have ended, by :func:`time.monotonic`.
    """

    def __init__(
        self,
        process: subprocess.Popen,
        limits: Limits,
        before: int = 0,
        only_children: bool = False,
        until: float = math.inf,
    ):
        self.reason: str | None = None
        self._process = process
        self._only_children = only_children
        self._limits = limits
        self._end = min(until, time.monotonic() + limits.total_seconds)
        self._deadline = self._end
        self._stop = threading.Event()
        self._before = before
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def deadline(self, seconds: int) -> Iterator[None]:
        self._deadline = min(self._end, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._deadline = self._end

    def _run(self) -> None:
        try:
            self._look_until_stopped()
        except Exception as error:  # a submission that nobody watches must not run on
            self._kill(f"it could not be watched: {type(error).__name__}: {error}")

    def _look_until_stopped(self) -> None:
        while not self._stop.wait(0.2):
            if time.monotonic() > self._deadline:
                whole = self._deadline == self._end
                seconds = self._limits.total_seconds if whole else self._limits.seconds
                self._kill(f"it took more than {seconds:g} seconds{' in all' * whole}")
            elif self._takes_too_much():
                count = len(psutil.Process(self._process.pid).children(recursive=True))
                together = f"its {count} processes together" if count > MANY else "it"
                much = f"{2 * self._limits.memory / 2**30:g} GiB of memory"
                self._kill(f"{together} took more than {much}")

    def _takes_too_much(self) -> bool:
        allowed = 2 * self._limits.memory + self._before
        return _memory(self._process.pid, allowed) > allowed

    def _kill(self, reason: str) -> None:
        self.reason = self.reason or reason
        if not (self._only_children and _kill_forked(self._process.pid)):
            self._process.kill()


def _kill_forked(sandbox: int) -> bool:
    """Kill what the interpreter in a sandbox has forked; whether there was anything.

    With the first process of the submission's namespace all others of it go, fork bombs included.
    """
    try:
        (inner,) = psutil.Process(sandbox).children()  # bubblewrap, as its namespace sees it
        (interpreter,) = inner.children()
        forked = interpreter.children(recursive=True)
        for process in forked:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    except (psutil.Error, ValueError):
        return False
    return bool(forked)


def _memory(pid: int, limit: int = 0) -> int:
    """Bytes that a process and all that it started hold, what they share among them included.

    What comes from files, such as the libraries of the Python environment, is not counted. Pages
    that several processes have in common, as after a fork, are counted once if counting them often
    is more than ``limit``.
    """
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(pid).children(recursive=True)
        if sys.platform != "linux":
            return sum(child.memory_info().rss for child in children)
        pids = [child.pid for child in children]
        often = sum(_read_memory(pid, "status", ("RssAnon:", "RssShmem:")) for pid in pids)
        if often <= limit:
            return often
        once = [_read_memory(pid, "smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")) for pid in pids]
        return sum(once) or often
    return 0


def _read_memory(pid: int, name: str, fields: tuple[str, ...]) -> int:
    """The sum of some lines of a file that Linux keeps about a process; none of it elsewhere."""
    try:
        lines = Path(f"/proc/{pid}/{name}").read_text().splitlines()
    except OSError:  # it is gone, or may not be looked at
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(fields))


def _environment(isolation: Isolation) -> dict[str, str]:
    """Nothing of the grader's environment, which may hold secrets."""
    home = tempfile.gettempdir() if isolation == "none" else PRIVATE
    system = {name: os.environ[name] for name in ("SYSTEMROOT", "PATH") if name in os.environ}
    return system | {
        "HOME": home,
        "TMPDIR": home,
        "USER": "student",
        "LOGNAME": "student",
        "LANG": "C.UTF-8",
        "IPYTHONDIR": f"{home}/ipython",
        "MPLCONFIGDIR": f"{home}/matplotlib",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "OMP_NUM_THREADS": "1",
        "PYTHONUTF8": "1",
        "TORCHDYNAMO_DISABLE": "1",  # there is no compiler: torch.compile leaves code as it is
    }
