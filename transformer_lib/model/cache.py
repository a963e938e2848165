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
        self._keys_and_values: Tensor | None = None  # (2, batch, heads, room, d_k)
        self._spare: Tensor | None = None  # of an earlier selection, to be written next

    @property
    def is_empty(self) -> bool:
        return self.length == 0

    @property
    def key(self) -> Float[Tensor, "batch heads length d_k"]:
        assert self._keys_and_values is not None
        return self._keys_and_values[0, :, :, : self.length]

    @property
    def value(self) -> Float[Tensor, "batch heads length d_k"]:
        assert self._keys_and_values is not None
        return self._keys_and_values[1, :, :, : self.length]

    def append(
        self,
        key: Float[Tensor, "batch heads new d_k"],
        value: Float[Tensor, "batch heads new d_k"],
    ) -> tuple[Float[Tensor, "batch heads length d_k"], Float[Tensor, "batch heads length d_k"]]:
        """Add the keys and values of new positions; return those of all positions."""
        start, self.length = self.length, self.length + key.size(2)
        kept = self._keys_and_values
        if kept is None or kept.size(3) < self.length:
            room = key.size(2) if kept is None else max(16, 2 * self.length)
            self._keys_and_values = key.new_empty(2, *key.shape[:2], room, key.size(3))
            if kept is not None:
                self._keys_and_values[:, :, :, :start] = kept[:, :, :, :start]
        self.key[:, :, start:] = key
        self.value[:, :, start:] = value
        return self.key, self.value

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these rows of the batch, in this order (a row may be taken more than once).

        A search does not learn: no gradient flows through this.
        """
        kept, spare = self._keys_and_values, self._spare
        if kept is None:
            return
        # Two buffers take turns: to allocate one at every step would cost more than to fill it.
        if spare is None or spare.size(1) < len(rows) or spare.size(3) != kept.size(3):
            spare = kept.new_empty(2, len(rows), *kept.shape[2:])
        spare = spare[:, : len(rows)]
        torch.index_select(
            kept.detach()[:, :, :, : self.length], 1, rows, out=spare[:, :, :, : self.length]
        )
        self._keys_and_values, self._spare = spare, kept
