"""Token sequences in memory-mapped files: millions of sentences without their weight in RAM."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from transformer_lib.errors import UserError
from transformer_lib.files import atomic_path
from transformer_lib.vocabulary import PAD


class TokenStore:
    """Sequences of different lengths, end to end in one flat array, and where each begins."""

    def __init__(self, tokens: np.ndarray, offsets: np.ndarray):
        self.tokens = tokens
        self.offsets = offsets

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def padded(self, indices: np.ndarray) -> np.ndarray:
        """These sequences as one (batch, longest) array of int64, padded at the end."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        columns = np.arange(lengths.max())
        real = columns < lengths[:, None]
        batch = np.full(real.shape, PAD, dtype=np.int64)
        batch[real] = self.tokens[(starts[:, None] + columns)[real]]
        return batch

    @classmethod
    def write(cls, folder: Path, name: str, sequences: Iterable[list[int]], vocab_size: int) -> int:
        """Write the sequences one by one; returns how many there were."""
        dtype = np.uint16 if vocab_size <= 2**16 else np.uint32
        lengths = [0]
        with atomic_path(folder / f"{name}.tokens") as path, path.open("wb") as file:
            for sequence in sequences:
                file.write(np.asarray(sequence, dtype=dtype).tobytes())
                lengths.append(len(sequence))
        with atomic_path(folder / f"{name}.offsets.npy") as path, path.open("wb") as file:
            np.save(file, np.cumsum(lengths, dtype=np.int64))
        return len(lengths) - 1

    @classmethod
    def open(cls, folder: Path, name: str, vocab_size: int) -> "TokenStore":
        """Map a store that :meth:`write` made.

        Raises:
            UserError: it is missing or truncated.
        """
        dtype = np.uint16 if vocab_size <= 2**16 else np.uint32
        try:
            offsets = np.load(folder / f"{name}.offsets.npy", allow_pickle=False)
            tokens = np.memmap(folder / f"{name}.tokens", dtype=dtype, mode="r")
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read the tokens in {folder}: {error}; prepare again") from error
        if len(tokens) != offsets[-1]:
            raise UserError(f"the tokens in {folder} are truncated; delete it and prepare again")
        return cls(tokens, offsets)


class PairStore:
    """Source and target sequences of the training pairs, each ending in ``</s>``."""

    def __init__(self, src: TokenStore, tgt: TokenStore):
        self.src = src
        self.tgt = tgt

    def __len__(self) -> int:
        return len(self.src)
