"""Where a trained model looks: while it reads the source, and while it writes the target."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.model.multi_head import recorded_attention
from transformer_lib.model.rnn import RNN
from transformer_lib.model.seq2seq import Seq2Seq, evaluating
from transformer_lib.model.transformer import Transformer
from transformer_lib.vocabulary import BOS, EOS


class Attended(NamedTuple):
    """Weights of all layers and heads of one kind, with the pieces of queries and keys."""

    weights: Float[Tensor, "layers heads queries keys"]
    queries: list[str]
    keys: list[str]


def cross_attention(model: Seq2Seq, tokenizer: Tokenizer, source: str, target: str) -> Attended:
    """Attention from the target to the source: weights, target pieces, source pieces.

    Row t is where the model looks when it is about to predict target token t from the ones before.
    An RNN has one layer and one head.
    """
    if isinstance(model, Transformer):
        return every_attention(model, tokenizer, source, target)["cross"]
    assert isinstance(model, RNN)
    src, tgt = tokenizer.encode([source, target])
    device = model.output_weight.device
    with evaluating(model), torch.no_grad():
        weights = _rnn_weights(
            model,
            torch.tensor([[*src, EOS]], device=device),
            torch.tensor([[BOS, *tgt]], device=device),
        )
    return Attended(weights.cpu(), tokenizer.pieces([*tgt, EOS]), tokenizer.pieces([*src, EOS]))


def encoder_attention(
    model: Transformer, tokenizer: Tokenizer, source: str
) -> tuple[Float[Tensor, "layers heads src_len src_len"], list[str]]:
    """The encoder's attention from each token of a sentence to each other: weights, pieces."""
    (src,) = tokenizer.encode([source])
    src_tokens = torch.tensor([[*src, EOS]], device=model.output_weight.device)
    with evaluating(model), torch.no_grad(), recorded_attention(model) as recorded:
        model.encode(src_tokens)
    return _layers(recorded, "encoder", "self"), tokenizer.pieces([*src, EOS])


def every_attention(
    model: Transformer, tokenizer: Tokenizer, source: str, target: str
) -> dict[str, Attended]:
    """All three kinds of attention while the model reads a source and writes a target."""
    src, tgt = tokenizer.encode([source, target])
    device = model.output_weight.device
    with evaluating(model), torch.no_grad(), recorded_attention(model) as recorded:
        model(
            torch.tensor([[*src, EOS]], device=device), torch.tensor([[BOS, *tgt]], device=device)
        )
    src_pieces = tokenizer.pieces([*src, EOS])
    read, said = tokenizer.pieces([BOS, *tgt]), tokenizer.pieces([*tgt, EOS])
    return {
        "encoder": Attended(_layers(recorded, "encoder", "self"), src_pieces, src_pieces),
        "decoder": Attended(_layers(recorded, "decoder", "self"), read, read),
        "cross": Attended(_layers(recorded, "decoder", "cross"), said, src_pieces),
    }


def _layers(
    recorded: dict[str, Tensor],
    stack: Literal["encoder", "decoder"],
    kind: Literal["self", "cross"],
) -> Float[Tensor, "layers heads queries keys"]:
    """The recorded weights of one kind of attention, for the only sentence of the batch."""
    chosen = [
        weights[0]
        for name, weights in recorded.items()
        if name.startswith(stack) and name.endswith(f"{kind}_attention")
    ]
    return torch.stack(chosen).cpu()


def _rnn_weights(
    model: RNN, src: Tensor, tgt_input: Tensor
) -> Float[Tensor, "1 1 tgt_len src_len"]:
    recorded: list[Tensor] = []
    hook = model.attention.register_forward_hook(lambda *call: recorded.append(call[2][1]))
    try:
        model(src, tgt_input)
    finally:
        hook.remove()
    return recorded[0][None]
