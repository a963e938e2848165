"""The learning rate over a run."""

import math
from typing import Literal

ScheduleName = Literal["noam", "budget"]


def noam_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """d_model^−0.5 · min(step^−0.5, step · warmup_steps^−1.5), equation (3); steps from 1.

    Raises:
        ValueError: step 0, at which the formula divides by zero.
    """
    if step < 1:
        raise ValueError(f"step={step}; steps are counted from 1")
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def budget_rate(progress: float, peak: float, warmup_share: float) -> float:
    """Linear warm-up to ``peak`` over ``warmup_share`` of the budget, then a cosine to zero.

    ``progress`` is the used share of the budget (of steps or of minutes), so that the rate reaches
    zero when the run ends, however fast the machine is.
    """
    if progress < warmup_share:
        return peak * progress / warmup_share
    fallen = min(1.0, (progress - warmup_share) / (1.0 - warmup_share))
    return peak * 0.5 * (1.0 + math.cos(math.pi * fallen))
