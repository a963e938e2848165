"""Token sequences in memory-mapped files: millions of sentences without their weight in RAM."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from transformer_lib.errors import UserError
from transformer_lib.vocabulary import PAD


def padded_lengths(lengths: np.ndarray, multiple: int = 1) -> np.ndarray:
    """The lengths that sequences of these lengths are padded to: a few instead of all.

    Up to 8 the length itself, then the next multiple of 2 up to 16, of 4 up to 64, of 8 up to 128,
    and so on. Kernels for matrix products are made anew for every shape that comes along. On a CPU
    that can take longer than the products themselves; a little padding is cheaper
    (benchmarks/RESULTS.md). For long sentences it is the other way round: finer steps.

    Args:
        multiple: what they are rounded up to a multiple of, after that.
    """
    doublings = np.ceil(np.log2(np.maximum(lengths, 1))).astype(int)
    step = 2 ** np.maximum(0, doublings - np.where(lengths > 32, 4, 3))
    few = -(-lengths // step) * step
    return -(-few // multiple) * multiple


class TokenStore:
    """Sequences of different lengths, end to end in one flat array, and where each begins."""

    def __init__(self, tokens: np.ndarray, offsets: np.ndarray):
        self.tokens = tokens
        self.offsets = offsets

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def padded(self, indices: np.ndarray, multiple: int = 1) -> np.ndarray:
        """These sequences as one (batch, padded length) array of int64, padded at the end.

        Args:
            multiple: what the length is rounded up to a multiple of.
        """
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        columns = np.arange(padded_lengths(lengths, multiple).max())
        real = columns < lengths[:, None]
        batch = np.full(real.shape, PAD, dtype=np.int64)
        batch[real] = self.tokens[(starts[:, None] + columns)[real]]
        return batch

    def packed(self, rows: Sequence[np.ndarray], row_tokens: int) -> tuple[np.ndarray, np.ndarray]:
        """The sequences of each row one after another, and which one each position is of; int64.

        Both are (rows, ``row_tokens``). A row's sequences have the numbers 1, 2, …; 0 is padding.
        """
        indices, sizes = np.concatenate(rows), [len(row) for row in rows]
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        ends = np.cumsum(lengths)
        before = ends - lengths  # tokens of all sequences before one, in its row and in those above
        above = np.repeat(before[np.cumsum(sizes) - sizes], sizes)
        places = np.repeat(np.arange(len(rows)), sizes) * row_tokens + before - above
        within = np.arange(ends[-1]) - np.repeat(before, lengths)
        where = np.repeat(places, lengths) + within
        tokens = np.full((len(rows), row_tokens), PAD, dtype=np.int64)
        owners = np.zeros_like(tokens)
        tokens.flat[where] = self.tokens[np.repeat(starts, lengths) + within]
        owners.flat[where] = np.repeat(np.concatenate([np.arange(n) for n in sizes]) + 1, lengths)
        return tokens, owners

    @classmethod
    def open(cls, folder: Path, name: str, vocab_size: int) -> "TokenStore":
        """Map one side of what :meth:`PairStore.write` wrote.

        Raises:
            UserError: it is missing or truncated.
        """
        try:
            offsets = np.load(folder / f"{name}.offsets.npy", allow_pickle=False)
            tokens = np.memmap(folder / f"{name}.tokens", dtype=_dtype(vocab_size), mode="r")
        except (OSError, EOFError, ValueError) as error:
            raise UserError(f"cannot read the tokens in {folder}: {error}") from error
        if len(tokens) != offsets[-1]:
            raise UserError(f"the tokens in {folder} are truncated")
        return cls(tokens, offsets)


class PairStore:
    """Source and target sequences of the training pairs, each ending in ``</s>``."""

    def __init__(self, src: TokenStore, tgt: TokenStore):
        self.src = src
        self.tgt = tgt

    def __len__(self) -> int:
        return len(self.src)

    @classmethod
    def open(cls, folder: Path, vocab_size: int) -> "PairStore":
        """Map what :meth:`write` wrote."""
        return cls(*(TokenStore.open(folder, name, vocab_size) for name in ("src", "tgt")))

    @staticmethod
    def write(
        folder: Path, pairs: Iterable[tuple[Sequence[int], Sequence[int]]], vocab_size: int
    ) -> int:
        """Write the pairs one by one; returns how many there were."""
        lengths: tuple[list[int], list[int]] = ([0], [0])
        dtype = _dtype(vocab_size)
        with (folder / "src.tokens").open("wb") as src, (folder / "tgt.tokens").open("wb") as tgt:
            for pair in pairs:
                for file, side_lengths, tokens in zip((src, tgt), lengths, pair, strict=True):
                    file.write(np.asarray(tokens, dtype=dtype).tobytes())
                    side_lengths.append(len(tokens))
        for name, side_lengths in zip(("src", "tgt"), lengths, strict=True):
            np.save(folder / f"{name}.offsets.npy", np.cumsum(side_lengths, dtype=np.int64))
        return len(lengths[0]) - 1


def _dtype(vocab_size: int) -> type[np.unsignedinteger]:
    return np.uint16 if vocab_size <= 2**16 else np.uint32
