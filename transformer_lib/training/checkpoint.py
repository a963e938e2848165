"""Checkpoints: one safetensors file each, written whole or not at all, never unpickled."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from transformer_lib.errors import UserError
from transformer_lib.files import atomic_path

MODEL, OPTIMIZER, RANDOM = "model.", "optimizer.", "random."


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: dict[str, Any]
) -> None:
    """Everything that a run needs to go on as if it had never stopped.

    Raises:
        UserError: it cannot be written; an older file of this name is then untouched.
    """
    tensors = {MODEL + name: p.detach() for name, p in model.named_parameters()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"{OPTIMIZER}{name}:{key}"] = value
    tensors[RANDOM + "cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors[RANDOM + "cuda"] = torch.cuda.get_rng_state()
    _write(path, tensors, progress)


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Restore what :func:`save_checkpoint` saved, in place; returns ``progress``."""
    tensors, progress = _read(path)
    load_model(path, model, tensors)
    for name, parameter in model.named_parameters():
        prefix = f"{OPTIMIZER}{name}:"
        optimizer.state[parameter] = {
            key.removeprefix(prefix): value.to(parameter.device)
            for key, value in tensors.items()
            if key.startswith(prefix)
        }
    torch.set_rng_state(tensors[RANDOM + "cpu"])
    if torch.cuda.is_available() and RANDOM + "cuda" in tensors:
        torch.cuda.set_rng_state(tensors[RANDOM + "cuda"])
    return progress


def save_model(path: Path, parameters: dict[str, Tensor], progress: dict[str, Any]) -> None:
    """The weights alone."""
    _write(path, {MODEL + name: tensor for name, tensor in parameters.items()}, progress)


def load_model(path: Path, model: nn.Module, tensors: dict[str, Tensor] | None = None) -> None:
    """Copy a file's weights into ``model``.

    Raises:
        UserError: the file is damaged, or its weights have other names or shapes.
    """
    tensors = _read(path, MODEL)[0] if tensors is None else tensors
    stored = {name for name in tensors if name.startswith(MODEL)}
    own = {MODEL + name: parameter for name, parameter in model.named_parameters()}
    wrong = sorted(stored ^ own.keys()) + [
        name for name in stored & own.keys() if tensors[name].shape != own[name].shape
    ]
    if wrong:
        raise UserError(
            f"{path} holds another model: {wrong[0].removeprefix(MODEL)} does not fit; "
            "use the configuration that it was trained with"
        )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])


def average(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints (section 6.1)."""
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, tensor in _read(path, MODEL)[0].items():
            key = name.removeprefix(MODEL)
            total[key] = total[key] + tensor.double() if key in total else tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def checkpoints_in(folder: Path) -> list[Path]:
    """A run's checkpoints, the oldest first."""
    named = {
        int(match[1]): path
        for path in folder.glob("step-*.safetensors")
        if (match := re.fullmatch(r"step-(\d+)\.safetensors", path.name))
    }
    return [named[step] for step in sorted(named)]


def remove_all_but(paths: Iterable[Path], keep: int) -> None:
    """Delete the oldest checkpoints."""
    for path in list(paths)[:-keep]:
        path.unlink(missing_ok=True)


def _write(path: Path, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            save_file(on_cpu, temporary, metadata={"progress": json.dumps(progress)})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def _read(path: Path, prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
            tensors = {name: file.get_tensor(name) for name in names}
            progress = json.loads((file.metadata() or {}).get("progress", "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"cannot read the checkpoint {path}: {error}") from error
    return tensors, progress
