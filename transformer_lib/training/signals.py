"""Ctrl-C and SIGTERM ask training to stop after the current step, so that it can be saved."""

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
        previous = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
