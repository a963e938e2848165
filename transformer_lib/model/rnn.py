"""The RNN baseline: LSTM sequence-to-sequence with attention, deep as in GNMT.

The encoder's first layer reads the sentence in both directions, further layers in one (Wu et al.
2016, section 3.2). The first decoder layer queries the memory, and the context feeds the layers
above. No layer's input depends on its own output of the step before, except through the LSTM: so in
training each layer runs over the whole target at once, without a Python loop.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from torch import Tensor, nn

from transformer_lib.model.dropout import Dropout
from transformer_lib.model.linear import Linear
from transformer_lib.model.masks import padding_mask
from transformer_lib.model.scaled_dot_product import attention
from transformer_lib.model.seq2seq import Count, DropoutRate, Memory, Seq2Seq, TiedEmbeddings

Score = Literal["luong", "bahdanau"]
LSTMState = tuple[Float[Tensor, "1 rows d_model"], Float[Tensor, "1 rows d_model"]]


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class RNNConfig:
    """Sizes and variants of the RNN."""

    kind: Literal["rnn"] = "rnn"
    d_model: Annotated[
        Count, Field(description="width; even, since two reading directions share it")
    ] = 512
    num_encoder_layers: Annotated[Count, Field(description="LSTM layers of the encoder")] = 2
    num_decoder_layers: Annotated[Count, Field(description="LSTM layers of the decoder")] = 2
    dropout: DropoutRate = 0.2
    score: Annotated[
        Score,
        Field(
            description='attention score: `"luong"` is hᵀ·W·s (Luong et al. 2015, "general"), '
            '`"bahdanau"` is vᵀ·tanh(W₁·h + W₂·s) (Bahdanau et al. 2015)'
        ),
    ] = "luong"
    tied_embeddings: TiedEmbeddings = "all"

    def __post_init__(self) -> None:
        if self.d_model % 2:
            raise ValueError(
                f"d_model={self.d_model} is odd; the two reading directions share it, "
                "choose an even one"
            )


class LuongAttention(nn.Module):
    """softmax(hᵀ·W·s/√d) over the memory's states s: scaled dot-product attention, one head.

    W is applied to h, which is one vector a step, and not to every s.
    """

    def __init__(self, d_model: int):
        super().__init__()
        self.query = Linear(d_model, d_model, bias=False)

    def forward(
        self,
        query: Float[Tensor, "batch tgt_len d_model"],
        memory: Float[Tensor, "batch src_len d_model"],
        mask: Bool[Tensor, "batch 1 1 src_len"],
    ) -> tuple[Float[Tensor, "batch tgt_len d_model"], Float[Tensor, "batch tgt_len src_len"]]:
        """The context of each query, and the weights that made it."""
        context, weights = attention(
            self.query(query)[:, None], memory[:, None], memory[:, None], mask
        )
        return context[:, 0], weights[:, 0]


class BahdanauAttention(nn.Module):
    """softmax(vᵀ·tanh(W₁·h + W₂·s)) over the memory's states s."""

    def __init__(self, d_model: int):
        super().__init__()
        self.query = Linear(d_model, d_model)
        self.key = Linear(d_model, d_model, bias=False)
        self.score = Linear(d_model, 1, bias=False)

    def forward(
        self,
        query: Float[Tensor, "batch tgt_len d_model"],
        memory: Float[Tensor, "batch src_len d_model"],
        mask: Bool[Tensor, "batch 1 1 src_len"],
    ) -> tuple[Float[Tensor, "batch tgt_len d_model"], Float[Tensor, "batch tgt_len src_len"]]:
        """The context of each query, and the weights that made it."""
        hidden = torch.tanh(self.query(query)[:, :, None] + self.key(memory)[:, None])
        scores = self.score(hidden).squeeze(-1)
        scores = scores.masked_fill(~mask[:, 0], torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)
        return weights @ memory, weights


ATTENTIONS: dict[Score, type[LuongAttention] | type[BahdanauAttention]] = {
    "luong": LuongAttention,
    "bahdanau": BahdanauAttention,
}


def reverse_within_length(
    x: Float[Tensor, "batch length d_model"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch length d_model"]:
    """Each sequence backwards, its padding still at the end."""
    position = torch.arange(x.size(1), device=x.device)[None]
    source = torch.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)
    return x.gather(1, source[:, :, None].expand_as(x))


def autocast_has_lstm(kind: str) -> bool:
    """Whether ``nn.LSTM`` under bfloat16 autocast computes in bfloat16 on this kind of device.

    On a GPU it takes float16, whichever type was asked for, and a CPU without bfloat16 refuses it.
    """
    if kind == "cpu" and torch.backends.mkldnn.is_available():
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return kind != "cuda"


def lstm_dtype(kind: str, width: int) -> torch.dtype:
    """The type in which LSTMs compute under bfloat16 autocast, where autocast has none for them.

    On a GPU it is bfloat16 from cuDNN 9.13 on, for LSTMs wider than 192: narrower ones PyTorch
    gives to kernels that exist for float32 and float16 only. Elsewhere it is float32. (On a GPU the
    products of that still take the faster TF32, which PyTorch allows cuDNN.)
    """
    has_it = kind == "cuda" and (torch.backends.cudnn.version() or 0) >= 91300 and width > 192
    return torch.bfloat16 if has_it else torch.float32


class LSTM(nn.LSTM):
    """``nn.LSTM`` that never computes in float16, which loses small gradients."""

    def forward(  # type: ignore[override]  # no packed sequences
        self, x: Float[Tensor, "batch length inputs"], state: LSTMState | None = None
    ) -> tuple[Float[Tensor, "batch length d_model"], LSTMState]:
        kind = x.device.type
        if not torch.is_autocast_enabled(kind) or autocast_has_lstm(kind):
            return super().forward(x, state)
        dtype = lstm_dtype(kind, self.hidden_size)
        if state is None:
            empty = x.new_zeros(1, x.size(0), self.hidden_size)
            state = empty, empty
        # In one piece, as cuDNN wants them: else PyTorch warns, and puts them together by itself.
        weights = [w for w in self._flat_weights if w is not None]
        with torch.autocast(kind, enabled=False):
            flat = torch.cat([w.flatten() for w in weights]).to(dtype)
            parts = flat.split([w.numel() for w in weights])
            output, hidden, cell = torch._VF.lstm(
                x.to(dtype), [s.to(dtype) for s in state],
                [part.view_as(w) for part, w in zip(parts, weights, strict=True)],
                self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
                self.batch_first,
            )  # fmt: skip
        return output, (hidden, cell)


class RNNEncoder(nn.Module):
    """One layer in both directions, half of the channels each, then layers in one direction."""

    def __init__(self, d_model: int, num_layers: int, dropout: float):
        super().__init__()
        self.forwards = LSTM(d_model, d_model // 2, batch_first=True)
        self.backwards = LSTM(d_model, d_model // 2, batch_first=True)
        self.upper = nn.ModuleList(
            LSTM(d_model, d_model, batch_first=True) for _ in range(num_layers - 1)
        )
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch src_len d_model"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch src_len d_model"]:
        left_to_right, _ = self.forwards(x)
        right_to_left, _ = self.backwards(reverse_within_length(x, lengths))
        x = torch.cat([left_to_right, reverse_within_length(right_to_left, lengths)], dim=-1)
        for layer in self.upper:
            x = x + layer(self.dropout(x))[0]
        return x


@dataclass
class RNNState:
    """The LSTM state of each decoder layer, beside the memory."""

    memory: Memory
    lstm: list[LSTMState]

    def select(
        self, rows: Int[Tensor, " rows"], sentences: Int[Tensor, " sentences"] | None = None
    ) -> None:
        self.lstm = [
            (hidden.index_select(1, rows), cell.index_select(1, rows)) for hidden, cell in self.lstm
        ]
        if sentences is not None:
            self.memory = self.memory.select(sentences)


class RNN(Seq2Seq):
    """LSTM encoder and attentional LSTM decoder; :func:`build_rnn` makes the usual ones."""

    encoder: RNNEncoder

    def __init__(self, config: RNNConfig, vocab_size: int):
        super().__init__()
        self.config = config
        d_model, layers = config.d_model, config.num_decoder_layers
        self.tgt_embedding = _embedding(vocab_size, d_model)
        self.src_embedding = self.tgt_embedding
        if config.tied_embeddings != "all":
            self.src_embedding = _embedding(vocab_size, d_model)
        self.scale = d_model**0.5
        self.dropout = Dropout(config.dropout)
        self.encoder = RNNEncoder(d_model, config.num_encoder_layers, config.dropout)
        self.bridge = Linear(d_model, layers * d_model)
        self.first = LSTM(d_model, d_model, batch_first=True)
        self.attention = ATTENTIONS[config.score](d_model)
        self.upper = nn.ModuleList(
            LSTM(2 * d_model, d_model, batch_first=True) for _ in range(layers - 1)
        )
        self.combine = Linear(2 * d_model, d_model)
        output = self.tgt_embedding
        if config.tied_embeddings == "none":
            output = _embedding(vocab_size, d_model)
        self.output_weight = output.weight

    def encode(self, src: Int[Tensor, "batch src_len"]) -> Memory:
        mask = padding_mask(src)
        x = self.dropout(self.src_embedding(src) * self.scale)
        return Memory(self.encoder(x, mask[:, 0, 0].sum(dim=1)), mask)

    def decode(
        self, tgt_input: Int[Tensor, "batch tgt_len"], memory: Memory
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        return self._run(tgt_input, self.init_state(memory))

    def init_state(self, memory: Memory) -> RNNState:
        """Each layer starts from a learned projection of the memory's mean (its cell from zero)."""
        bridged = torch.tanh(self.bridge(memory.mean()))
        hidden = bridged.chunk(self.config.num_decoder_layers, dim=-1)
        return RNNState(memory, [(h[None].contiguous(), torch.zeros_like(h)[None]) for h in hidden])

    def decode_step(
        self, tokens: Int[Tensor, " rows"], state: RNNState
    ) -> Float[Tensor, "rows vocab_size"]:
        return self.logits(self._run(tokens[:, None], state)[:, -1])

    def _run(
        self, tokens: Int[Tensor, "rows tgt_len"], state: RNNState
    ) -> Float[Tensor, "rows tgt_len d_model"]:
        """The attentional states tanh(W·[h; context]) of these tokens; moves ``state`` on."""
        x = self.dropout(self.tgt_embedding(tokens) * self.scale)
        x, state.lstm[0] = self.first(x, state.lstm[0])
        queries = x.reshape(len(state.memory.states), -1, x.size(-1))  # of one sentence together
        context, _ = self.attention(queries, state.memory.states, state.memory.mask)
        context = context.view_as(x)
        for index, layer in enumerate(self.upper, start=1):
            inputs = torch.cat([self.dropout(x), context], dim=-1)
            output, state.lstm[index] = layer(inputs, state.lstm[index])
            x = x + output
        return self.dropout(torch.tanh(self.combine(torch.cat([x, context], dim=-1))))


def _embedding(vocab_size: int, d_model: int) -> nn.Embedding:
    embedding = nn.Embedding(vocab_size, d_model)
    nn.init.normal_(embedding.weight, std=d_model**-0.5)
    return embedding


def build_rnn(config: RNNConfig, vocab_size: int) -> RNN:
    """A freshly initialized RNN over a joint vocabulary."""
    return RNN(config, vocab_size)
