"""Cross-entropy with label smoothing (section 5.4), without ever holding all logits."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.data.batching import real_positions
from transformer_lib.device import elements_per_chunk
from transformer_lib.model.linear import linear, product_over_rows
from transformer_lib.vocabulary import PAD

LOGITS_AT_ONCE = 2**25  # on a CPU: 64 MiB in bfloat16


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
    real: Int[Tensor, " tokens"] | None = None,
) -> Loss:
    """Output projection and :func:`label_smoothed_cross_entropy` in one. The form to run.

    The vocabulary is the widest dimension of the model: here its logits exist for some thousand
    positions at a time, and never for padding. Their gradient is computed on the spot, since
    softmax's is known: p − q. Both are computed in float32, whatever the states are.

    Args:
        compiled: let torch.compile join all passes over the logits, which on a GPU is worth its
            start-up time.
        real: the result of :func:`real_positions`, where it is known already; to count them, one
            would wait for the GPU.
    """
    flat_labels = labels.flatten()
    real = real_positions(labels) if real is None else real
    if torch.is_autocast_enabled(states.device.type):
        states = states.to(torch.get_autocast_dtype(states.device.type))
    smoothed, nll = _OutputLoss.apply(
        states.flatten(0, 1),
        weight,
        flat_labels,
        real,
        smoothing,
        torch.is_grad_enabled(),
        _compiled_softmax_loss() if compiled else _softmax_loss_in_chunks,
    )
    return Loss(smoothed, nll, len(real))


SumsAndGradient = tuple[Tensor, Tensor, Tensor]


def _softmax_loss(
    logits: Float[Tensor, "rows vocab_size"],
    labels: Int[Tensor, "rows 1"],
    smoothing: float,
) -> SumsAndGradient:
    """Both sums of :class:`Loss`, and the gradient p − q. The form to compile.

    Without any indexing it becomes one kernel, which reads the logits twice and writes once.
    """
    uniform = smoothing / logits.size(1)
    log_p = logits.float().log_softmax(dim=-1)
    is_right = torch.arange(logits.size(1), device=logits.device) == labels
    q = torch.where(is_right, 1.0 - smoothing + uniform, uniform)
    nll = -torch.where(is_right, log_p, 0.0).sum()
    return -(q * log_p).sum(), nll, (log_p.exp() - q).to(logits.dtype)


@cache
def _compiled_softmax_loss() -> Callable[..., SumsAndGradient]:
    return torch.compile(_softmax_loss)


def _softmax_loss_in_chunks(
    logits: Float[Tensor, "rows vocab_size"],
    labels: Int[Tensor, "rows 1"],
    smoothing: float,
) -> SumsAndGradient:
    """The same with few operations, a chunk at a time; the gradient takes the logits' place."""
    uniform = smoothing / logits.size(1)
    smoothed = nll = torch.zeros((), device=logits.device)
    rows_in_chunk = max(1, elements_per_chunk(logits.device) // logits.size(1))
    for part, label in zip(logits.split(rows_in_chunk), labels.split(rows_in_chunk), strict=True):
        log_p = part.float().log_softmax(dim=-1)
        part_nll = -log_p.gather(1, label).sum()
        nll = nll + part_nll
        smoothed = smoothed + (1.0 - smoothing) * part_nll
        if smoothing:
            smoothed = smoothed - uniform * log_p.sum()
        gradient = log_p.exp_().sub_(uniform)
        part.copy_(gradient.scatter_add_(1, label, gradient.new_full(label.shape, smoothing - 1.0)))
    return smoothed, nll, logits


def _float32_product(
    left: Float[Tensor, "rows m"], right: Float[Tensor, "rows n"]
) -> Float[Tensor, "m n"]:
    """leftᵀ·right; of narrow numbers on a GPU, without rounding the sums to their type."""
    if left.device.type == "cuda" and left.dtype != torch.float32:
        return torch.mm(left.t(), right, out_dtype=torch.float32)
    return product_over_rows(left, right)


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Float[Tensor, "positions d_model"],
        weight: Float[Tensor, "vocab_size d_model"],
        labels: Int[Tensor, " positions"],
        real: Int[Tensor, " tokens"],
        smoothing: float,
        with_gradient: bool,
        softmax_loss: Callable[..., SumsAndGradient],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        # Products are in the type of the states; what is summed over chunks is in the weights' own.
        narrow = weight.to(states.dtype)
        states_gradient = torch.zeros_like(states) if with_gradient else None
        weight_gradient = None
        smoothed = nll = torch.zeros((), device=states.device)
        elements = max(elements_per_chunk(states.device), LOGITS_AT_ONCE)
        with torch.autocast(states.device.type, enabled=False):
            for rows in real.split(max(1, elements // weight.size(0))):
                chunk = states[rows]
                logits = linear(chunk, narrow)
                *sums, gradient = softmax_loss(logits, labels[rows, None], smoothing)
                smoothed, nll = smoothed + sums[0], nll + sums[1]
                if states_gradient is not None:
                    states_gradient[rows] = linear(gradient, narrow.t())
                    part = _float32_product(gradient, chunk).to(weight.dtype)
                    weight_gradient = (
                        part if weight_gradient is None else weight_gradient.add_(part)
                    )
        ctx.save_for_backward(states_gradient, weight_gradient)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Float[Tensor, ""]) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # of what was computed ahead, it would be a wrong one
            raise RuntimeError(
                "output_loss has no second derivative: take label_smoothed_cross_entropy"
            )
        scale, _ = gradients
        states_gradient, weight_gradient = ctx.saved_tensors
        # 1/tokens would lose digits in bfloat16, and the same for all of the gradient.
        scaled = (states_gradient.float() * scale).to(states_gradient.dtype)
        return scaled, weight_gradient * scale, *[None] * 5
