"""Adam (Kingma and Ba 2015), and AdamW (Loshchilov and Hutter 2019), by PyTorch."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


def adam(
    parameters: Iterable[nn.Parameter],
    betas: tuple[float, float],
    eps: float,
    weight_decay: float = 0.0,
) -> torch.optim.Adam:
    """Adam, or AdamW if there is a ``weight_decay``; the rate is set before each step.

    Args:
        weight_decay: with each step matrices and tables shrink by the rate times this; norms and
            biases do not.
    """
    parameters = list(parameters)
    if weight_decay == 0.0:
        return torch.optim.Adam(parameters, betas=betas, eps=eps, fused=True)
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() >= 2]},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
