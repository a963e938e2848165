"""What a cell shows, read from anybody, and made harmless for whoever looks at it."""

import re
from collections.abc import Callable
from typing import Any

from transformer_lib.shown import plain

Output = dict[str, Any]
MAX_OUTPUTS = 200  # of a cell
MAX_TEXT = 100_000  # characters of one output
MAX_LINES, MAX_LINE = 100, 2_000  # of a traceback
# Of TeX what reaches beyond its own formula: it would change all others of the page, or its looks.
_FAR = re.compile(
    r"\\(?=(?:[gex]?def|let|futurelet|global|(?:re)?new(?:command|environment)|providecommand"
    r"|Declare\w+|Newextarrow|require|definecolor|style|class|cssId|href|unicode|mmlToken|data)"
    r"(?![A-Za-z]))"
)


def error_output(name: str, text: str) -> Output:
    """What a cell shows that did not go well."""
    return {"output_type": "error", "ename": name, "evalue": text, "traceback": [text]}


def harmless(outputs: Any) -> list[Output]:
    """Outputs without what could do something in the browser of whoever looks at them.

    What is not of a notebook's form is left out.
    """
    kept = [_read_output(output) for output in outputs[:MAX_OUTPUTS]]
    return [output for output in kept if output]


def _read_output(output: Any) -> Output | None:
    try:
        return _known_output(output)
    except (TypeError, KeyError, AttributeError):
        return None


def _known_output(output: Any) -> Output | None:
    kind = output["output_type"]
    if kind == "stream":
        name = "stderr" if output["name"] == "stderr" else "stdout"
        return {"output_type": kind, "name": name, "text": _text(output["text"])}
    if kind == "error":
        lines = output["traceback"]
        lines = lines[:MAX_LINES] if type(lines) is list else []
        lines = [_text(line)[:MAX_LINE] for line in lines]
        name, value = _text(output["ename"])[:200], _text(output["evalue"])[:1000]
        return error_output(name, value) | {"traceback": lines}
    data = output["data"]
    data = {mime: read(data[mime]) for mime, read in SAFE.items() if mime in data}
    if not data or kind not in ("display_data", "execute_result"):
        return None
    return {"output_type": "display_data", "data": data, "metadata": {}}


def _text(value: Any) -> str:
    """Text that is nothing but text, of a limited length, without colors and overwritten lines."""
    lines = re.sub(r"\x1b\[[\d;]*m", "", joined(value)).split("\n")
    return plain("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines), MAX_TEXT)


def confined(text: str) -> str:
    """Text in which no formula does more than show itself: such commands are then unknown ones."""
    return _FAR.sub("\\\\\u200b", text)


def _latex(value: Any) -> str:
    return confined(_text(value))


def joined(value: Any) -> str:
    """A text of a notebook, which may be a list of its lines; nothing if it is neither."""
    if type(value) is list:
        value = "".join(part for part in value if type(part) is str)
    return value if type(value) is str else ""


def _base64(value: Any) -> str:
    return re.sub(r"[^A-Za-z0-9+/=]", "", joined(value))


SAFE: dict[str, Callable[[Any], str]] = {
    "text/plain": _text, "text/latex": _latex, "image/png": _base64, "image/jpeg": _base64
}  # fmt: skip
"""What of a cell's display goes into the graded notebook; HTML, SVG and scripts do not."""
