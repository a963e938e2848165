"""When to draw a progress bar."""

import sys


def progress_is_shown() -> bool:
    """In a terminal and in a notebook, but not in a log file or a pipe."""
    ipython = sys.modules.get("IPython")
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return is_terminal or (ipython is not None and ipython.get_ipython() is not None)
