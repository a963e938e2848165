"""What a decoder keeps from one step to the next, so that each step computes only what is new."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class KeyValueCache:
    """Keys and values of one attention sublayer: (batch, heads, length so far, d_k).

    The memory grows by doubling, so appending costs a constant time per token on average.
    """

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def is_empty(self) -> bool:
        return self.length == 0

    @property
    def key(self) -> Float[Tensor, "batch heads length d_k"]:
        assert self._keys is not None
        return self._keys[:, :, : self.length]

    @property
    def value(self) -> Float[Tensor, "batch heads length d_v"]:
        assert self._values is not None
        return self._values[:, :, : self.length]

    def append(
        self,
        key: Float[Tensor, "batch heads new d_k"],
        value: Float[Tensor, "batch heads new d_v"],
    ) -> tuple[Float[Tensor, "batch heads length d_k"], Float[Tensor, "batch heads length d_v"]]:
        """Add the keys and values of new positions; return those of all positions."""
        start, self.length = self.length, self.length + key.size(2)
        self._keys = _with_room(self._keys, key, self.length)
        self._values = _with_room(self._values, value, self.length)
        self._keys[:, :, start : self.length] = key
        self._values[:, :, start : self.length] = value
        return self.key, self.value

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these rows of the batch, in this order (a row may be taken more than once)."""
        if self._keys is not None and self._values is not None:
            self._keys = self._keys.index_select(0, rows)
            self._values = self._values.index_select(0, rows)


def _with_room(buffer: Tensor | None, new: Tensor, length: int) -> Tensor:
    if buffer is None:
        return torch.empty_like(new)
    if buffer.size(2) >= length:
        return buffer
    larger = buffer.new_empty(*buffer.shape[:2], max(16, 2 * length), buffer.size(3))
    larger[:, :, : buffer.size(2)] = buffer
    return larger
