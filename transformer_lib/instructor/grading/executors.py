"""What carries the work of grading: processes of this machine, or a cluster."""

import multiprocessing
import os
import threading
from concurrent.futures import Executor, ProcessPoolExecutor

from transformer_lib.errors import UserError


def processes(jobs: int | None) -> Executor:
    """As many processes of this machine; one for each core by default."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent)


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
