"""The exercises; each module declares those of one topic."""

from transformer_lib.course.checks.topics import (
    attention,
    decoding,
    embeddings,
    evaluation,
    interpretation,
    layers,
    masks,
    model,
    modules,
    multi_head,
    norms,
    positions,
    rnn,
    scaling,
    tokens,
    training,
)

__all__ = [
    "attention",
    "decoding",
    "embeddings",
    "evaluation",
    "interpretation",
    "layers",
    "masks",
    "model",
    "modules",
    "multi_head",
    "norms",
    "positions",
    "rnn",
    "scaling",
    "tokens",
    "training",
]
