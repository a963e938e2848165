"""``cpu_tatoeba_fast``, with the training text at hand while it translates.

A model of this size cannot keep 48,000 sentence pairs in its weights. So the decoder's state before
each target token of the training text is kept, and beside it that token. For a sentence to be
translated, the training sentences are chosen whose encoder states are most like its own, and the
decoder asks at each step: which token followed where my state was like this one? (Nearest-neighbor
machine translation, Khandelwal et al. 2021; among the tokens of similar sentences only.)

    p(y) = (1 - λ) p_model(y) + λ Σ_i softmax_i(-‖state - key_i‖² / T) [token_i = y]

λ, T and the number of sentences were chosen on the validation set.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data.batching import make_batch, plan_batches
from transformer_lib.data.preparation import prepare
from transformer_lib.data.store import PairStore
from transformer_lib.decoding.translation import translate
from transformer_lib.leaderboard.program import Task
from transformer_lib.model.seq2seq import Memory, Seq2Seq
from transformer_lib.model.transformer import Transformer, TransformerState
from transformer_lib.vocabulary import PAD

SENTENCES = 128  # in which the neighbors of a sentence's states are looked for
SHARE = 0.4  # λ, what the neighbors say weighs
TEMPERATURE = 20.0  # T, in squared distances


class Examples:
    """The training text as a model sees it: for each sentence its states, and what followed."""

    @torch.no_grad()
    def __init__(self, model: Transformer, pairs: PairStore):
        self.tokens = [torch.from_numpy(pairs.tgt[n].astype("int64")) for n in range(len(pairs))]
        self.keys = [torch.empty(0)] * len(pairs)
        means = model.output_weight.new_empty(len(pairs), model.output_weight.size(1))
        for numbers in plan_batches(pairs.src.lengths, pairs.tgt.lengths, 4096, seed=(0,)):
            batch = make_batch(pairs, numbers)
            memory = model.encode(batch.src)
            means[numbers] = memory.mean()
            for n, states in zip(numbers, model.decode(batch.tgt_input, memory), strict=True):
                self.keys[n] = states[: len(self.tokens[n])].clone()
        self.center = means.mean(dim=0)
        self.directions = self._directions(means)

    def like(
        self, means: Float[Tensor, "batch d_model"]
    ) -> tuple[Float[Tensor, "batch places d_model"], Int[Tensor, "batch places"]]:
        """The states in the most similar sentences, and their tokens, padded."""
        similarity = self._directions(means) @ self.directions.T  # cosine
        chosen = similarity.topk(min(SENTENCES, len(self.tokens))).indices.tolist()

        def together(parts: list[Tensor]) -> Tensor:
            rows = [torch.cat([parts[n] for n in numbers]) for numbers in chosen]
            return pad_sequence(rows, batch_first=True, padding_value=PAD)

        return together(self.keys), together(self.tokens)

    def _directions(self, means: Float[Tensor, "n d_model"]) -> Float[Tensor, "n d_model"]:
        return F.normalize(means - self.center, dim=-1)


@dataclass
class State:
    """The model's own, and the neighbors to choose from."""

    own: TransformerState
    keys: Float[Tensor, "sentences places d_model"]
    tokens: Int[Tensor, "sentences places"]

    def select(
        self, rows: Int[Tensor, " rows"], sentences: Int[Tensor, " sentences"] | None = None
    ) -> None:
        self.own.select(rows, sentences)
        if sentences is not None:
            self.keys = self.keys.index_select(0, sentences)
            self.tokens = self.tokens.index_select(0, sentences)


class WithNeighbors(Seq2Seq):
    """A trained Transformer that knows its training text."""

    def __init__(self, model: Transformer, pairs: PairStore):
        super().__init__()
        self.model = model
        self.encoder, self.output_weight = model.encoder, model.output_weight
        self.examples = Examples(model, pairs)

    def encode(self, src: Int[Tensor, "batch src_len"]) -> Memory:
        return self.model.encode(src)

    def decode(
        self, tgt_input: Int[Tensor, "batch tgt_len"], memory: Memory
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        return self.model.decode(tgt_input, memory)

    def init_state(self, memory: Memory) -> State:
        return State(self.model.init_state(memory), *self.examples.like(memory.mean()))

    def decode_step(
        self, tokens: Int[Tensor, " rows"], state: State
    ) -> Float[Tensor, "rows vocab_size"]:
        states = self.model.next_states(tokens, state.own)
        p = self.model.logits(states).softmax(dim=-1)
        by_sentence = states.unflatten(0, (len(state.keys), -1))
        distances = torch.cdist(by_sentence, state.keys).square()
        distances = distances.masked_fill((state.tokens == PAD)[:, None], torch.inf)
        weights = (-distances / TEMPERATURE).softmax(dim=-1)
        said = state.tokens[:, None].expand_as(weights).flatten(0, 1)
        from_neighbors = torch.zeros_like(p).scatter_add_(1, said, weights.flatten(0, 1))
        return ((1 - SHARE) * p + SHARE * from_neighbors).log()


def main() -> None:
    task = Task.from_options(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        run = task.train("cpu_tatoeba_fast", Path(folder), "training.device=cpu")
        assert isinstance(run.model, Transformer)
        model = WithNeighbors(run.model, prepare(run.experiment.data).train).eval()
        task.write(translate(model, run.tokenizer, task.sources(), run.experiment.decoding))


if __name__ == "__main__":
    main()
