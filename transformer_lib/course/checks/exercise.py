"""An exercise: the function or class that a student is to write, and on what it is tried."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from transformer_lib.course.checks.observe import Case

Cases = Callable[[torch.Generator], dict[str, Case]]


@dataclass(frozen=True)
class Exercise:
    """One function or class for students to write.

    ``cases`` draws the calls that it is tried on, each under the name of the property that it
    shows; the first one, by custom "values", is the ordinary one. ``outputs`` names what is
    returned, if that is several things. The axes of a returned tensor are named by the shapes in
    the reference's return annotation. ``use`` makes a function of a class: the cases hold that
    function's arguments.
    """

    name: str
    topic: str
    reference: Callable[..., Any]
    cases: Cases
    outputs: tuple[str, ...] = ("the result",)
    tolerance: float = 1e-4
    use: Callable[[Any], Callable[..., Any]] = lambda function: function

    @property
    def arguments(self) -> list[str]:
        """Names of the arguments that the cases hold."""
        return list(inspect.signature(self.use(self.reference)).parameters)

    @property
    def axes(self) -> list[tuple[str, ...]]:
        """Names of the axes of each output; empty for what is not a tensor."""
        annotation = get_type_hints(self.use(self.reference)).get("return")
        kinds = get_args(annotation) if get_origin(annotation) is tuple else (annotation,)
        shapes = [getattr(kind, "dim_str", "") for kind in kinds]
        words = ([w for w in shape.split() if w != "..."] for shape in shapes)
        return [tuple(map(_axis, axes)) for axes in words]

    def sizes(self, case: Case) -> dict[str, int]:
        """Whole numbers among the arguments, and lengths of their axes, by name."""
        hints = get_type_hints(self.use(self.reference))
        hints.pop("return", None)
        sizes: dict[str, int] = {}
        for name, hint, x in zip(hints, hints.values(), case.args, strict=False):
            if type(x) is int:
                sizes[name] = x
            if isinstance(x, Tensor) and x.dtype == torch.long and x.ndim == 1:
                sizes[f"the sum of {name}"] = int(x.sum())
            dimensions = getattr(hint, "dim_str", "").split()
            if isinstance(x, Tensor) and len(dimensions) == x.ndim:
                sizes |= {_axis(d): n for d, n in zip(dimensions, x.shape, strict=True)}
        return {name: n for name, n in sizes.items() if name.split()[-1].isidentifier()}


def without_autograd(answer: Callable[..., Any]) -> Callable[..., Any]:
    """The answer called in inference mode: for those who are to compute a gradient themselves."""

    @wraps(answer)
    def use(*arguments: Any) -> Any:
        with torch.inference_mode():
            try:
                return answer(*arguments)
            except RuntimeError as error:
                if "does not require grad" not in str(error):
                    raise
                message = "autograd is off here: write the gradient as a formula"
                said = RuntimeError(message)
                if hasattr(error, "explanation"):  # it comes from another process
                    said.explanation = message  # type: ignore[attr-defined]
                raise said.with_traceback(error.__traceback__) from None

    return use


def _axis(dimension: str) -> str:
    """heads → head, {length} → length: a name that can stand before an index."""
    name = dimension.strip("{}")
    return {"heads": "head", "queries": "query", "keys": "key"}.get(name, name)


EXERCISES: dict[str, Exercise] = {}


def exercise(topic: str, cases: Cases, **settings: Any) -> Callable[[Callable], Callable]:
    """Declare the decorated function or class, the right answer, as an exercise of this name."""

    def declare(reference: Callable) -> Callable:
        name = reference.__name__
        assert name not in EXERCISES, f"two exercises are called {name}"
        EXERCISES[name] = Exercise(name, topic, reference, cases, **settings)
        return reference

    return declare
