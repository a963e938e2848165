"""An exception, said in one line for the person whose code raised it."""

import linecache
import re
import sys
import textwrap
import traceback
from pathlib import Path
from types import TracebackType

import torch

import transformer_lib


def explain_error(error: BaseException) -> str:
    """The last line of the student's own code that the exception went through, and what it says.

    Where that is in another file or cell, such as an earlier answer, first the line that led there.
    An exception that comes from another process brings this with it, as ``explanation``.
    """
    if explanation := getattr(error, "explanation", None):
        return str(explanation)
    theirs = [
        frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)
    ]
    first_line = str(error).partition("\n")[0]
    said = textwrap.shorten(first_line, 220, placeholder=" …")
    said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if not theirs:
        return f"calling it raised {said}"
    here = [frame for frame in theirs if frame.filename == theirs[0].filename][-1]
    where, last = _place(here), theirs[-1]
    if last.filename != here.filename:
        file = Path(last.filename)
        of = f" ({file.name})" if file.is_file() else ""
        where += f", and in it {last.name}{of}, {_place(last)}"
    return f"{where}: {said}"


def innermost(error: BaseException) -> TracebackType | None:
    """The last entry of its traceback, where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _place(frame: traceback.FrameSummary) -> str:
    quoted = (frame.line or "").rstrip(":")  # of a loop or a condition
    return f"line {frame.lineno}, `{quoted}`" if quoted else f"line {frame.lineno}"


def shapes_there(error: BaseException) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors that the line of the student's code has to do with, by name.

    Empty for an exception that comes from another process.
    """
    theirs = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_theirs(frame.f_code.co_filename)
    ]
    if not theirs:
        return {}
    frame, line = theirs[-1]
    if line is None:  # as Python has it for some instructions of its own
        return {}
    words = re.findall(r"\w+", linecache.getline(frame.f_code.co_filename, line))
    return {
        word: tuple(frame.f_locals[word].shape)
        for word in dict.fromkeys(words)
        if isinstance(frame.f_locals.get(word), torch.Tensor)
    }


def _is_theirs(file: str) -> bool:
    ours = str(Path(transformer_lib.__file__).parent)
    return not file.startswith((ours, sys.prefix, sys.base_prefix, "<frozen"))
