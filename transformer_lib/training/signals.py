"""Ctrl-C, SIGTERM and a closed terminal ask training to stop after a step, and to save it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class StopRequest:
    """Whether somebody asked to stop; false until then."""

    def __init__(self) -> None:
        self._asked = False

    def __bool__(self) -> bool:
        return self._asked

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within this context the first signal is a request, a second Ctrl-C interrupts at once.

        (A second SIGTERM does not: a cluster sends it to all processes, and torchrun passes it on.)
        Python handles signals in the main thread only; in others nothing changes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: object) -> None:
            if self._asked and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._asked = True

        self._asked = False
        listened = [signal.SIGINT, signal.SIGTERM]
        # Of a terminal that is closed; `nohup` has it ignored. Windows has no such signal.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            listened.append(signal.SIGHUP)
        previous = {s: signal.signal(s, ask) for s in listened}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
