"""What a check tells the student: rich in a notebook, plain elsewhere."""

import html
import re
from dataclasses import dataclass
from typing import Literal

from transformer_lib.course.checks.compare import ASPECTS

Status = Literal["passed", "failed", "not reached"]
SIGNS: dict[Status, str] = {"passed": "✓", "failed": "✗", "not reached": "–"}


@dataclass(frozen=True)
class Finding:
    """One property that was looked at."""

    name: str
    status: Status
    message: str = ""


@dataclass(frozen=True)
class Verdict:
    """The answer of a check.

    ``hints`` are about the known mistakes that the code behaves like, ``notes`` say what was seen
    of the parts that it was given, ``printed`` is what it printed, and where.
    """

    exercise: str
    findings: tuple[Finding, ...] = ()
    hints: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    attempted: bool = True
    seed: int | None = None
    printed: str = ""

    @property
    def passed(self) -> bool:
        return self.attempted and all(f.status == "passed" for f in self.findings)

    @property
    def share(self) -> float:
        """The share of the properties that hold; none if the ordinary values are wrong."""
        status = {finding.name: finding.status for finding in self.findings}
        if not self.attempted or any(status.get(a, "passed") != "passed" for a in ASPECTS):
            return 0.0
        return sum(s == "passed" for s in status.values()) / len(status)

    @property
    def headline(self) -> str:
        if not self.attempted:
            return f"– {self.exercise}: not attempted yet"
        if self.passed:
            return f"✓ {self.exercise}: passed"
        failed = sum(f.status == "failed" for f in self.findings)
        return f"✗ {self.exercise}: {failed} of {len(self.findings)} properties failed"

    @property
    def summary(self) -> str:
        """One line without the name: how many properties failed, and what is said of the first."""
        failed = [finding for finding in self.findings if finding.status == "failed"]
        if not failed:
            return self.headline.partition(": ")[2]
        first = failed[0].message
        if len(self.findings) == 1:
            return first
        return f"{len(failed)} of {len(self.findings)} properties failed; {failed[0].name}: {first}"

    def __repr__(self) -> str:
        lines = [self.headline, *(f"  → {said}" for said in (*self.hints, *self.notes))]
        width = max((len(f.name) for f in self.findings), default=0)
        lines += [
            f"  {SIGNS[f.status]} {f.name:{width}}  {f.message or f.status}".rstrip()
            for f in self.findings
        ]
        if self.seed is not None and self.attempted and not self.passed:
            lines.append(f"  (the same numbers again: seed={self.seed})")
        lines += [f"  {line}" for line in self.printed.splitlines()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        # Colors of JupyterLab's theme, light or dark; the signs and words say the same without.
        colors = {
            "passed": "var(--jp-success-color0, #1b7f4d)",
            "failed": "var(--jp-error-color1, #c62828)",
            "not reached": "var(--jp-ui-font-color2, #757575)",
        }
        overall = "passed" if self.passed else "failed" if self.attempted else "not reached"
        rows = "".join(
            f'<tr><td style="color:{colors[f.status]};text-align:center">{SIGNS[f.status]}</td>'
            f'<td style="text-align:left;white-space:nowrap">{html.escape(f.name)}</td>'
            f'<td style="text-align:left">{_with_code(f.message or f.status)}</td></tr>'
            for f in self.findings
        )
        hints = "".join(
            '<p style="margin:0.4em 0;padding-left:0.6em;border-left:3px solid '
            f'var(--jp-brand-color1, #1976d2)">{_with_code(hint)}</p>'
            for hint in (*self.hints, *self.notes)
        )
        again = (
            f'<p style="opacity:0.7">the same numbers again: <code>seed={self.seed}</code></p>'
            if self.seed is not None and self.attempted and not self.passed
            else ""
        )
        table = f"<table>{rows}</table>" if rows else ""
        printed = (
            f'<pre style="margin:0.4em 0">{html.escape(self.printed)}</pre>' if self.printed else ""
        )
        return (
            f'<div><p style="color:{colors[overall]}"><strong>{html.escape(self.headline)}'
            f"</strong></p>{hints}{table}{again}{printed}</div>"
        )


def _with_code(text: str) -> str:
    """As HTML; what stands between backticks is code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))
