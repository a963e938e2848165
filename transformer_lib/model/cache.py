"""What a decoder keeps from one step to the next, so that each step computes only what is new."""

from jaxtyping import Float, Int
from torch import Tensor

Heads = Float[Tensor, "batch heads length d_k"]


class KeyValueCache:
    """Keys and values of one attention sublayer.

    The room for them grows by doubling: appending costs a constant time per token on average.
    """

    def __init__(self) -> None:
        self.length = 0
        self._key: Tensor | None = None
        self._value: Tensor | None = None

    @property
    def is_empty(self) -> bool:
        return self.length == 0

    @property
    def key_and_value(self) -> tuple[Heads, Heads]:
        """Keys and values of all positions so far."""
        assert self._key is not None
        assert self._value is not None
        return self._key[:, :, : self.length], self._value[:, :, : self.length]

    def append(
        self,
        key: Float[Tensor, "batch heads new d_k"],
        value: Float[Tensor, "batch heads new d_k"],
    ) -> None:
        """Add new positions."""
        start, self.length = self.length, self.length + key.size(2)
        self._key = _with_room(self._key, start, self.length, key)
        self._value = _with_room(self._value, start, self.length, value)

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these rows of the batch, in this order (a row may be taken more than once).

        A search does not learn: no gradient flows through this.
        """
        if self._key is not None and self._value is not None:
            self._key = self._key.detach().index_select(0, rows)
            self._value = self._value.detach().index_select(0, rows)


def _with_room(
    kept: Float[Tensor, "batch heads old_room d_k"] | None,
    start: int,
    end: int,
    new: Float[Tensor, "batch heads new d_k"],
) -> Float[Tensor, "batch heads room d_k"]:
    """``kept`` with ``new`` from ``start`` to ``end``, in a larger tensor if it has no room."""
    if kept is None or kept.size(2) < end:
        room = end if kept is None else max(16, 2 * end)
        larger = new.new_empty(*new.shape[:2], room, new.size(3))
        if kept is not None:
            larger[:, :, :start] = kept[:, :, :start]
        kept = larger
    kept[:, :, start:end] = new
    return kept
