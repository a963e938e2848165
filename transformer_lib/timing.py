"""How long something takes."""

from collections.abc import Callable

import torch


def fastest(
    function: Callable[[], object], seconds: float = 0.5, threads: int | None = None
) -> float:
    """Seconds of a call, measured for about ``seconds``: the fastest, since others were disturbed.

    PyTorch's timer calls it until it is warm, three times over: a stop of the whole machine may
    take longer than ``seconds``, and would be all that one measurement sees. What the function
    starts on a GPU or on MPS it must wait for itself
    (:func:`transformer_lib.device.synchronize`).

    Args:
        threads: PyTorch's, as many as it has now if none are given.
    """
    from torch.utils.benchmark import Timer  # takes setuptools along, which is slow to import

    threads = threads or torch.get_num_threads()
    timer = Timer("function()", globals={"function": function}, num_threads=threads)
    return min(min(timer.blocked_autorange(min_run_time=seconds / 3).times) for _ in range(3))
