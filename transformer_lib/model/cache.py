"""What a decoder keeps from one step to the next, so that each step computes only what is new."""

from jaxtyping import Float, Int
from torch import Tensor


class KeyValueCache:
    """Keys and values of one attention sublayer.

    The heads of the keys and those of the values lie side by side in one tensor, (batch, 2·heads,
    room, d_k), so that new positions are one copy. The room grows by doubling: appending costs a
    constant time per token on average.
    """

    def __init__(self) -> None:
        self.length = 0
        self._kept: Tensor | None = None

    @property
    def is_empty(self) -> bool:
        return self.length == 0

    @property
    def key_and_value(self) -> tuple[Float[Tensor, "batch heads length d_k"], ...]:
        """Keys and values of all positions so far."""
        assert self._kept is not None
        return self._kept.narrow(2, 0, self.length).chunk(2, dim=1)

    def append(self, new: Float[Tensor, "batch both_heads new d_k"]) -> None:
        """Add new positions: the heads of their keys, then those of their values."""
        start, self.length = self.length, self.length + new.size(2)
        kept = self._kept
        if kept is None or kept.size(2) < self.length:
            room = new.size(2) if kept is None else max(16, 2 * self.length)
            self._kept = new.new_empty(*new.shape[:2], room, new.size(3))
            if kept is not None:
                self._kept[:, :, :start] = kept[:, :, :start]
        assert self._kept is not None
        self._kept.narrow(2, start, new.size(2)).copy_(new)

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these rows of the batch, in this order (a row may be taken more than once).

        A search does not learn: no gradient flows through this.
        """
        if self._kept is not None:
            self._kept = self._kept.detach().index_select(0, rows)
