"""What a late hand-in costs: the rules that ``nbgrader_config.py`` sets."""

import math
from zoneinfo import ZoneInfo

from nbgrader.plugins import LateSubmissionPlugin
from traitlets import Float, Unicode
from traitlets.config import Config, Configurable

from transformer_lib.errors import UserError

DAY = 86_400.0  # seconds


class LatePolicy(LateSubmissionPlugin):
    """What a late hand-in costs, as ``nbgrader_config.py`` says; nbgrader's own rules still work.

    Every day that has begun after the deadline costs the same points, and after the cut-off nothing
    is left. Within the grace nothing is lost; after it, the days count from the deadline.
    """

    points_a_day = Float(0.0, min=0.0, help="Points for each day that has begun.").tag(config=True)
    grace_minutes = Float(0.0, min=0.0, help="Lateness that costs nothing.").tag(config=True)
    cut_off_days = Float(
        None, min=0.0, allow_none=True, help="Days after which nothing counts."
    ).tag(config=True)
    zone = Unicode("UTC", help="Time zone of the dates that people see and type.").tag(config=True)

    def late_submission_penalty(
        self, student_id: str, score: float, total_seconds_late: float
    ) -> float | None:
        """The points to take off a notebook with this score, at most all of them."""
        if total_seconds_late <= 60.0 * self.grace_minutes:
            return None
        if self.cut_off_days is not None and total_seconds_late > DAY * self.cut_off_days:
            return score
        if self.points_a_day == 0:
            return super().late_submission_penalty(student_id, score, total_seconds_late)
        return min(score, self.points_a_day * math.ceil(total_seconds_late / DAY))

    def rules(self) -> str:
        """In words."""
        rules = []
        if self.points_a_day:
            rules.append(f"{self.points_a_day:g} points less for each day begun")
        if self.grace_minutes:
            rules.append(f"{self.grace_minutes:g} minutes of grace")
        if self.penalty_method == "zero" and not self.points_a_day:
            rules.append("late work counts nothing")
        elif self.cut_off_days is not None:
            rules.append(f"nothing counts after {self.cut_off_days:g} days")
        return ", ".join(rules) or "being late costs nothing"

    @property
    def zone_info(self) -> ZoneInfo:
        """The time zone.

        Raises:
            UserError: there is none of this name.
        """
        try:
            return ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError) as error:
            raise UserError(f"{self.zone!r} is no time zone; one is Europe/Berlin") from error


def require_known(config: Config, kind: type[Configurable]) -> None:
    """Traitlets takes a misspelled setting without a word.

    Raises:
        UserError: the configuration sets something that there is not.
    """
    known = sorted(kind.class_trait_names(config=True))
    if wrong := sorted(set(config.get(kind.__name__, {})) - set(known)):
        raise UserError(
            f"nbgrader_config.py: c.{kind.__name__} has no {wrong[0]}; it has {', '.join(known)}"
        )
