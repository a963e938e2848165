"""Cross-entropy with label smoothing (section 5.4), without ever holding all logits."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.device import elements_in_cache
from transformer_lib.vocabulary import PAD

LOGITS_AT_ONCE = 2**25  # 64 MiB in bfloat16


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "tokens vocab_size"],
    labels: Int[Tensor, " tokens"],
    smoothing: float,
) -> Float[Tensor, ""]:
    """Σ over real tokens of −Σᵥ q(v)·log p(v), q = (1 − ε)·onehot + ε/V. The form to read."""
    log_p = logits.log_softmax(dim=-1)
    right = log_p.gather(1, labels[:, None])[:, 0]
    loss = -(1.0 - smoothing) * right - smoothing * log_p.mean(dim=-1)
    return loss.masked_fill(labels == PAD, 0.0).sum()


class Loss(NamedTuple):
    """Sums over the real tokens; ``smoothed`` is what is trained on, ``nll`` is for perplexity."""

    smoothed: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    tokens: int


def output_loss(
    states: Float[Tensor, "batch tgt_len d_model"],
    weight: Float[Tensor, "vocab_size d_model"],
    labels: Int[Tensor, "batch tgt_len"],
    smoothing: float = 0.0,
    compiled: bool = False,
) -> Loss:
    """Output projection and :func:`label_smoothed_cross_entropy` in one. The form to run.

    The vocabulary is the widest dimension of the model: here its logits exist for a few hundred
    positions at a time, and never for padding. Their gradient is made on the spot, since softmax's
    is known: p − q.

    Args:
        compiled: let torch.compile join the many passes over the logits, which on a GPU is worth
            its start-up time.
    """
    flat_labels = labels.flatten()
    real = (flat_labels != PAD).nonzero()[:, 0]
    if torch.is_autocast_enabled(states.device.type):
        dtype = torch.get_autocast_dtype(states.device.type)
        states, weight = states.to(dtype), weight.to(dtype)
    smoothed, nll = _OutputLoss.apply(
        states.flatten(0, 1),
        weight,
        flat_labels,
        real,
        smoothing,
        torch.is_grad_enabled(),
        _compiled_softmax_loss() if compiled else _softmax_loss,
    )
    return Loss(smoothed, nll, len(real))


def _softmax_loss(
    logits: Float[Tensor, "rows vocab_size"],
    labels: Int[Tensor, "rows 1"],
    smoothing: float,
    with_gradient: bool,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The sums of :class:`Loss`; with a gradient, p − q takes the place of the logits."""
    uniform = smoothing / logits.size(1)
    log_p = logits.float().log_softmax(dim=-1)
    right = log_p.gather(1, labels)
    nll = -right.sum()
    smoothed = (1.0 - smoothing) * nll
    if smoothing:
        smoothed = smoothed - uniform * log_p.sum()
    if with_gradient:
        logits.copy_(log_p.exp_().sub_(uniform))
        logits.scatter_(1, labels, (right.exp() - (1.0 - smoothing + uniform)).to(logits.dtype))
    return smoothed, nll


@cache
def _compiled_softmax_loss() -> Callable[..., tuple[Tensor, Tensor]]:
    return torch.compile(_softmax_loss)


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, states, weight, labels, real, smoothing, with_gradient, softmax_loss):
        vocab_size = weight.size(0)
        states_gradient = torch.zeros_like(states) if with_gradient else None
        weight_gradient = torch.zeros_like(weight) if with_gradient else None
        smoothed = nll = torch.zeros((), device=states.device)
        elements = elements_in_cache(states.device)
        rows_in_cache = max(1, elements // vocab_size)
        rows_at_once = max(1, max(elements, LOGITS_AT_ONCE) // vocab_size)
        with torch.autocast(states.device.type, enabled=False):
            for rows in real.split(rows_at_once):
                chunk = states[rows]
                logits = F.linear(chunk, weight)
                for part, label in zip(
                    logits.split(rows_in_cache),
                    labels[rows, None].split(rows_in_cache),
                    strict=True,
                ):
                    sums = softmax_loss(part, label, smoothing, with_gradient)
                    smoothed, nll = smoothed + sums[0], nll + sums[1]
                if states_gradient is not None and weight_gradient is not None:
                    states_gradient[rows] = logits @ weight
                    weight_gradient.addmm_(logits.t(), chunk)
        ctx.save_for_backward(states_gradient, weight_gradient)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx, scale, _):
        states_gradient, weight_gradient = ctx.saved_tensors
        scale = scale.to(states_gradient.dtype)
        return states_gradient * scale, weight_gradient * scale, *[None] * 5
