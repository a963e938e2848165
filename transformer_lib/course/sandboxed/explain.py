"""An exception, said in one line for the person whose code raised it."""

import sys
import textwrap
import traceback
from pathlib import Path

import transformer_lib


def explain_error(error: BaseException) -> str:
    """The last line of the student's own code that the exception went through, and what it says.

    An exception that comes from another process brings this with it, as ``explanation``.
    """
    if explanation := getattr(error, "explanation", None):
        return str(explanation)
    ours = str(Path(transformer_lib.__file__).parent)
    theirs = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, sys.prefix, sys.base_prefix, "<frozen"))
    ]
    first_line = str(error).partition("\n")[0]
    said = f"{type(error).__name__}: {textwrap.shorten(first_line, 220, placeholder=' …')}"
    if not theirs:
        return f"calling it raised {said}"
    frame = theirs[-1]
    return f"line {frame.lineno}, `{frame.line}`: {said}"
