"""What a student's module keeps, whatever its own methods say of it."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """A module's parameters by their names; one that is kept twice is there once."""
    found: dict[str, Tensor] = {}
    for prefix, held in _held(module):
        for name, parameter in held["_parameters"].items():
            if parameter is not None and not any(parameter is other for other in found.values()):
                found[prefix + name] = parameter
    return found


def kept_graphs(module: nn.Module) -> list[Tensor]:
    """What a module keeps of a call together with how it was computed, and so with its inputs.

    If the next call computes with it, all calls so far stay in memory: numbers for later have to be
    detached.
    """
    return [
        kept
        for _, held in _held(module)
        for kept in (*held["_buffers"].values(), *held.values())
        if isinstance(kept, Tensor) and kept.grad_fn is not None
    ]


def _held(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """What the module has as attributes, and each module in it, with the beginning of its names."""
    held = object.__getattribute__(module, "__dict__")
    yield prefix, held
    for name, child in held["_modules"].items():
        if child is not None:
            yield from _held(child, f"{prefix}{name}.")
