"""What training and decoding need of a model, be it a Transformer or an RNN."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from transformer_lib.model.linear import linear

Count = Annotated[int, Field(ge=1)]
DropoutRate = Annotated[
    float, Field(ge=0, lt=1, description="probability with which dropout sets a number to zero")
]
TiedEmbeddings = Annotated[
    Literal["none", "output", "all"],
    Field(
        description='`"output"` shares the target embedding with the output projection, `"all"` '
        "the source embedding too, as the paper does (section 3.4)"
    ),
]


@dataclass
class Memory:
    """The encoder's output for a batch of sentences, and which positions of it are real."""

    states: Float[Tensor, "batch src_len d_model"]
    mask: Bool[Tensor, "batch 1 1 src_len"]

    def select(self, sentences: Int[Tensor, " sentences"]) -> "Memory":
        """The memory of these sentences, in this order."""
        return Memory(self.states.index_select(0, sentences), self.mask.index_select(0, sentences))

    def mean(self) -> Float[Tensor, "batch d_model"]:
        """The mean of each sentence's states; zero where a sentence is empty."""
        real = self.mask[:, 0, 0, :, None].to(self.states.dtype)
        return (self.states * real).sum(dim=1) / real.sum(dim=1).clamp(min=1.0)


class DecoderState(Protocol):
    """What a decoder remembers between steps.

    Each hypothesis has a row. Those of one sentence are in consecutive rows, the same number for
    every sentence, and share what depends on the sentence alone.
    """

    def select(
        self, rows: Int[Tensor, " rows"], sentences: Int[Tensor, " sentences"] | None = None
    ) -> None:
        """Keep these hypotheses and these sentences (``None``: all of them), in this order."""


class Seq2Seq(nn.Module, ABC):
    """An encoder and a decoder that ends in ``states · output_weightᵀ``.

    ``config`` is the dataclass that the model was built from.
    """

    config: Any
    encoder: nn.Module
    output_weight: Tensor

    @abstractmethod
    def encode(self, src: Int[Tensor, "batch src_len"]) -> Memory:
        """Read the source sentences."""

    @abstractmethod
    def decode(
        self, tgt_input: Int[Tensor, "batch tgt_len"], memory: Memory
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """The decoder's states when it is fed the right target at every step (teacher forcing)."""

    @abstractmethod
    def init_state(self, memory: Memory) -> Any:
        """A :class:`DecoderState` with one hypothesis per sentence, nothing decoded yet."""

    @abstractmethod
    def decode_step(
        self, tokens: Int[Tensor, " rows"], state: Any
    ) -> Float[Tensor, "rows vocab_size"]:
        """Feed each hypothesis its latest token; return the logits of the next one."""

    def logits(self, states: Float[Tensor, "*shape d_model"]) -> Float[Tensor, "*shape vocab_size"]:
        """Scores of every token; softmax turns them into probabilities."""
        return linear(states, self.output_weight)

    def forward(
        self, src: Int[Tensor, "batch src_len"], tgt_input: Int[Tensor, "batch tgt_len"]
    ) -> Float[Tensor, "batch tgt_len vocab_size"]:
        """Logits of each next token, given the source and the target up to there."""
        return self.logits(self.decode(tgt_input, self.encode(src)))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within this context the model does not drop anything; afterwards it is as it was."""
    were_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in were_training:
            module.training = True


def num_parameters(model: nn.Module) -> int:
    """Numbers in its parameters, frozen ones too; a matrix that is used twice counts once."""
    return sum(parameter.numel() for parameter in model.parameters())
