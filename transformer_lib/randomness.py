"""Random numbers of our own, which leave the caller's as they are."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within this context CPU random numbers follow ``seed``; afterwards they go on as before.

    A GPU's generators are not touched.
    """
    before = torch.get_rng_state()
    try:
        torch.default_generator.manual_seed(seed)
        yield
    finally:
        torch.set_rng_state(before)
