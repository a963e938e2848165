"""The tutorial's two sentence pairs: as it prints them, and with the end where it belongs.

The tutorial pads its first target and puts the end symbol after the padding: the label after
"chinese" is ``P``, and ``E`` is to follow ``P``. Its greedy decoder goes on until it says ``E``,
however long that takes: a model that has not learned it keeps the program busy for ever. Here the
end symbol follows the last word, padding follows the end symbol and is not a label, and
:func:`~transformer_lib.decoding.search.greedy_search` stops at a length limit.

Measured with d_model 64 and two layers: of five untrained models two speak until the limit; after
100 steps (0.6 s) both sentences are right for all five. So they are after 40 steps (11 s) at the
paper's size. Trained on the rows as printed, the model stops as well, though only by analogy: no
label says so after "chinese".
"""

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from transformer_lib.data.batching import Batch, shift_right
from transformer_lib.decoding.search import greedy_search
from transformer_lib.model.transformer import Transformer
from transformer_lib.vocabulary import BOS, EOS, PAD

ROWS = (
    ("我 是 中国人 P", "S i am chinese P", "i am chinese P E"),
    ("我 有 一只 猫", "S i have a cat", "i have a cat E"),
)
SPECIAL = {"P": PAD, "S": BOS, "E": EOS}
FIRST_WORD = 4


def _words(*columns: int) -> list[str]:
    """The words in these columns, each once; a word's number is its place from FIRST_WORD on."""
    words = [word for row in ROWS for column in columns for word in row[column].split()]
    return [word for word in dict.fromkeys(words) if word not in SPECIAL]


SRC_WORDS, TGT_WORDS = _words(0), _words(1, 2)
SRC_VOCAB_SIZE, TGT_VOCAB_SIZE = FIRST_WORD + len(SRC_WORDS), FIRST_WORD + len(TGT_WORDS)


def _numbers(column: int, words: list[str]) -> Int[Tensor, "batch length"]:
    number = {word: FIRST_WORD + place for place, word in enumerate(words)} | SPECIAL
    return torch.tensor([[number[word] for word in row[column].split()] for row in ROWS])


def as_printed() -> Batch:
    """The tutorial's own rows."""
    return Batch(_numbers(0, SRC_WORDS), _numbers(1, TGT_WORDS), _numbers(2, TGT_WORDS))


def mended() -> Batch:
    """The same pairs, each target ending in ``E`` and only then padded."""
    printed = as_printed()
    padding_last = (printed.labels == PAD).long().argsort(dim=1, stable=True)
    labels = printed.labels.gather(1, padding_last)
    return Batch(printed.src, shift_right(labels), labels)


def train(model: Transformer, batch: Batch, steps: int = 100, learning_rate: float = 1e-3) -> float:
    """Teacher forcing on the whole batch, with Adam; the last loss, in nats per token."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    loss = torch.zeros(())
    model.train()
    for _ in range(steps):
        logits = model(batch.src, batch.tgt_input)
        loss = F.cross_entropy(logits.transpose(1, 2), batch.labels, ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def translate(model: Transformer, max_extra: int = 10) -> list[str]:
    """What greedy search makes of the two sources."""
    outputs = greedy_search(model.eval(), as_printed().src, max_extra)
    names = ["P", "?", "S", "E", *TGT_WORDS]
    return [" ".join(names[token] for token in tokens) for tokens in outputs]
