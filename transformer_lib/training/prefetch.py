"""Prefetching: a thread computes the next items while one is in use."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def prefetched(items: Iterator[T], count: int) -> Iterator[Iterator[T]]:
    """The same endless items, of which a thread computes the next ``count`` in advance."""

    def handed_out() -> Iterator[T]:
        coming = deque(thread.submit(next, items) for _ in range(count))
        while True:
            item = coming.popleft().result()
            coming.append(thread.submit(next, items))
            yield item

    with ThreadPoolExecutor(1) as thread:
        yield handed_out()
