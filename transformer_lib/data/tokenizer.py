"""A joint SentencePiece BPE for both languages (Sennrich et al. 2016; Kudo and Richardson 2018)."""

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from transformer_lib.errors import UserError
from transformer_lib.vocabulary import (
    BOS,
    BOS_PIECE,
    EOS,
    EOS_PIECE,
    PAD,
    PAD_PIECE,
    UNK,
    UNK_PIECE,
)


class Tokenizer:
    """Text to token numbers and back.

    Args:
        model: a serialized SentencePiece model.

    Raises:
        UserError: the bytes are not a SentencePiece model, or its special tokens are not
            ``<pad> <unk> <s> </s>`` = 0 1 2 3.
    """

    def __init__(self, model: bytes):
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise UserError("this is not a SentencePiece model") from error
        pieces = [self._processor.id_to_piece(i) for i in range(4)]
        if pieces != [PAD_PIECE, UNK_PIECE, BOS_PIECE, EOS_PIECE]:
            raise UserError(f"the tokenizer starts with {pieces}, not with <pad> <unk> <s> </s>")

    @classmethod
    def train(
        cls, sentences: Iterable[str], vocab_size: int, byte_fallback: bool = False
    ) -> "Tokenizer":
        """Learn a BPE of ``vocab_size`` pieces.

        Args:
            byte_fallback: spell the rarest characters (one in 2,000 of the text) in bytes, for
                which 256 pieces are set aside; nothing is unknown then.

        Raises:
            UserError: the text is too small, or too varied, for that many pieces.
        """
        output = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sentences),
                model_writer=output,
                model_type="bpe",
                vocab_size=vocab_size,
                character_coverage=0.9995 if byte_fallback else 1.0,
                byte_fallback=byte_fallback,
                normalization_rule_name="identity",  # cleaning has normalized already
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                pad_piece=PAD_PIECE,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise UserError(_too_many_or_few(vocab_size, str(error))) from error
        return cls(output.getvalue())

    @classmethod
    def load(cls, path: Path | str) -> "Tokenizer":
        """From a file with a serialized SentencePiece model.

        Raises:
            UserError: it cannot be read, or is not such a model.
        """
        try:
            model = Path(path).read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        try:
            return cls(model)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    def __len__(self) -> int:
        return self._processor.get_piece_size()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Token numbers of each sentence, without special tokens.

        Raises:
            TypeError: a single text is given instead of a list.
        """
        if isinstance(sentences, str):
            raise TypeError(f"encode takes a list of sentences: [{sentences!r}]")
        return self._processor.encode(list(sentences), out_type=int)

    def decode(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Sentences from token numbers, with `` ⁇ `` for ``<unk>`` and no other special tokens."""
        texts = [[t for t in sentence if t not in (PAD, BOS, EOS)] for sentence in tokens]
        return self._processor.decode(texts) if texts else []

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """The piece of each token number, with ``▁`` where a word begins."""
        return [self._processor.id_to_piece(int(token)) for token in tokens]


def _too_many_or_few(vocab_size: int, said: str) -> str:
    """SentencePiece's complaint, in our words; its useful part is a number."""
    start = f"cannot learn vocab_size={vocab_size} pieces from this text"
    if found := re.search(r"value <= (\d+)", said):
        return f"{start}: it has too few different ones, choose vocab_size={found[1]} or less"
    if found := re.search(r"smaller than required_chars. \d+ vs (\d+)", said):
        return f"{start}: its characters alone need more, choose vocab_size={found[1]} or more"
    if "sentences_.empty()" in said:
        return f"{start}: it is empty"
    return f"{start}; choose another vocab_size, or give more text"
