"""What carries the work of grading: processes of this machine, or a cluster."""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess

from transformer_lib.errors import UserError


class _Worker(SpawnProcess):
    """Ctrl-C is for its parent, which lets it finish; it would die in the middle of its imports."""

    def start(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            super().start()
            return
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a new process inherits this
        try:
            super().start()
        finally:
            signal.signal(signal.SIGINT, before)


class _Spawning(SpawnContext):
    Process = _Worker


def processes(jobs: int | None) -> Executor:
    """As many processes of this machine; one for each core by default."""
    return ProcessPoolExecutor(jobs, mp_context=_Spawning(), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """A worker whose parent is killed would wait for ever for work."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def machines(scheduler: str) -> Executor:
    """The workers of a running ``dask.distributed`` cluster.

    Raises:
        UserError: dask is not installed, or nobody answers at this address.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise UserError("--scheduler needs dask: pip install 'transformer-lib[cluster]'") from error
    try:
        client = Client(scheduler, timeout=10)
    except (OSError, ValueError) as error:
        raise UserError(f"no dask scheduler answers at {scheduler}: {error}") from error
    return client.get_executor()
