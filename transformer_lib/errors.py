"""An error the user can fix: printed as one line, without a traceback."""

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pydantic


class UserError(Exception):
    """What was given, what was expected, what to do. Commands print it and exit with code 2."""


def require(package: str, extra: str) -> None:
    """Make sure that an optional package is installed before anything that needs it is imported.

    Raises:
        UserError: it is not; how to install it.
    """
    try:
        importlib.import_module(package)
    except ImportError as error:
        message = f"{package} is missing: pip install 'transformer-lib[{extra}]'"
        raise UserError(message) from error


def first_problem(error: "pydantic.ValidationError") -> str:
    """The first thing that is wrong with given values: where, and what."""
    problem = error.errors()[0]
    where, what = ".".join(map(str, problem["loc"])), problem_message(problem)
    return f"{where}: {what}" if where else what


def problem_message(problem: Mapping[str, Any]) -> str:
    """What pydantic says of one problem, to go on with after a colon."""
    message = problem["msg"].removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def did_you_mean(wrong: str, names: Iterable[str]) -> str:
    """The end of a complaint: the name that ``wrong`` was probably meant to be, or all names."""
    names = sorted(names)
    near = difflib.get_close_matches(wrong, names, n=1)
    near = near or [name for name in names if wrong and name.startswith(wrong)]
    return f"did you mean {near[0]}?" if near else "there are " + ", ".join(names)
