"""What a student's module keeps, whatever its own methods say of it."""

from torch import Tensor, nn


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """A module's parameters by their names; one that is kept twice is there once."""
    found: dict[str, Tensor] = {}
    _collect(module, "", found)
    return found


def _collect(module: nn.Module, prefix: str, found: dict[str, Tensor]) -> None:
    held = object.__getattribute__(module, "__dict__")
    for name, parameter in held["_parameters"].items():
        if parameter is not None and not any(parameter is other for other in found.values()):
            found[prefix + name] = parameter
    for name, child in held["_modules"].items():
        if child is not None:
            _collect(child, f"{prefix}{name}.", found)


def keeps_graph(module: nn.Module) -> bool:
    """Whether a gradient would flow through what a module keeps, back into an earlier call.

    Then every call so far stays in memory. Numbers for later have to be detached.
    """
    held = object.__getattribute__(module, "__dict__")
    kept = [*held["_buffers"].values(), *held.values()]
    children = [child for child in held["_modules"].values() if child is not None]
    graphs = any(isinstance(x, Tensor) and x.grad_fn is not None for x in kept)
    return graphs or any(map(keeps_graph, children))
