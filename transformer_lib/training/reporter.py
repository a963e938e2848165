"""Shows how far training is: a bar on a terminal and in a notebook, lines everywhere else."""

import sys
import time

from tqdm.auto import tqdm

from transformer_lib.progress import progress_is_shown
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.metrics import Interval

OFTEN, SELDOM = 5.0, 30.0  # seconds between lines: in the first minute, and later


class Reporter:
    """Reports the step, the loss, the speed and the time left. Use it as a context.

    Args:
        step, seconds: how far the run was when it started, or was taken up again.
        silent: of several processes only one speaks.
    """

    def __init__(self, config: TrainingConfig, step: int, seconds: float, silent: bool):
        self.config = config
        self._first_step, self._first_seconds = step, seconds
        self._lines = not silent and not progress_is_shown()
        self._started = time.monotonic()
        self._next_line = self._started + OFTEN
        by_steps = config.steps is not None
        self._bar = tqdm(
            total=config.steps if by_steps else round(60 * (config.minutes or 0)),
            initial=step if by_steps else int(seconds),
            desc="training",
            unit=" steps" if by_steps else " s",
            disable=silent or not progress_is_shown(),
            bar_format=None if by_steps else "{desc}: {n:.0f}/{total} s {bar} {postfix}",
        )

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self, step: int, seconds: float, interval: Interval) -> None:
        """Call it after every step. Of an empty ``interval`` it says neither loss nor speed."""
        if interval.tokens:
            self._bar.set_postfix(
                {"loss": f"{interval.loss:.3f}", "tokens/s": f"{interval.tokens_per_second:,.0f}"},
                refresh=False,
            )
        self._bar.update((step if self.config.steps is not None else seconds) - self._bar.n)
        now = time.monotonic()
        if self._lines and interval.tokens and now >= self._next_line:
            self._next_line = now + (OFTEN if now - self._started < 60 else SELDOM)
            print(self._line(step, seconds, interval), file=sys.stderr, flush=True)

    def _line(self, step: int, seconds: float, interval: Interval) -> str:
        if self.config.steps is not None:
            pace = (seconds - self._first_seconds) / max(1, step - self._first_step)
            left = pace * (self.config.steps - step)
        else:
            left = 60.0 * (self.config.minutes or 0.0) - seconds
        return (
            f"step {step:>6,}  {seconds / 60:5.1f} min  loss {interval.loss:.3f}  "
            f"{interval.tokens_per_second:,.0f} tokens/s  about {_duration(left)} left"
        )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
