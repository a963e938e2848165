"""When to draw a progress bar."""

import sys


def progress_is_shown() -> bool:
    """In a terminal and in a notebook, but not in a log file or a pipe."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
