"""Checkpoints: one safetensors file each, written whole or not at all, never unpickled."""

import json
import re
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm.auto import tqdm

from transformer_lib.errors import UserError
from transformer_lib.files import atomic_path, half_written

MODEL, OPTIMIZER = "model.", "optimizer."
RESUMABLE = 2  # only this many of the newest checkpoints keep the optimizer's state


class CheckpointWriter:
    """Writes checkpoints in the background while training goes on, one at a time.

    Args:
        folder: the run's.
        keep: how many checkpoints to keep.

    Use it as a context: on leaving it, the last checkpoint is written.
    """

    def __init__(self, folder: Path, keep: int):
        self.folder = folder
        self.keep = keep
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def save(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        progress: dict[str, Any],
        stopped: bool = False,
    ) -> None:
        """Copy everything that a run needs to go on as if it had never stopped, and write it later.

        Args:
            stopped: training ends here for now. Nothing is written if this step is saved already;
                otherwise the next regular checkpoint replaces this one.

        Raises:
            UserError: neither this one nor the one before could be written; older ones are
                untouched.
        """
        problem = None
        try:
            self.wait()
        except UserError as error:
            problem = error
        if stopped and _path_of(self.folder, progress["step"]).exists():
            return
        tensors = {MODEL + name: _copy(p) for name, p in model.named_parameters()}
        for name, parameter in model.named_parameters():
            for key, value in optimizer.state[parameter].items():
                tensors[f"{OPTIMIZER}{name}:{key}"] = _copy(value)
        extra = {"stopped": True} if stopped else {}
        self._writing = self._thread.submit(self._write, tensors, progress | extra)
        if problem is not None:  # there may be room again
            self.wait()
            tqdm.write(f"{problem}; the next checkpoint is written")

    def wait(self) -> None:
        """Until what was saved is on disk.

        Raises:
            UserError: it cannot be written.
        """
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _write(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        for left in half_written(self.folder, "step-*.safetensors"):
            left.unlink(missing_ok=True)
        _write(_path_of(self.folder, progress["step"]), tensors, progress)
        paths = checkpoints_in(self.folder)
        stops = [path for path in paths[:-1] if _was_stopped_at(path)]
        due = [path for path in paths if path not in stops]
        for path in (*stops, *due[: -self.keep]):
            with suppress(OSError):  # on Windows, another program may have it open; next time, then
                path.unlink(missing_ok=True)
        if self.keep > RESUMABLE:
            for path in due[-RESUMABLE - 1 : -RESUMABLE]:
                _keep_weights_only(path)


def _copy(tensor: Tensor) -> Tensor:
    """On the CPU, and out of reach of the next training step."""
    return tensor.detach().to("cpu", copy=True).contiguous()


def _was_stopped_at(path: Path) -> bool:
    """Whether it was written at a stop, and not when a checkpoint was due."""
    with suppress(UserError):
        return bool(read_progress(path).get("stopped"))
    return False


def _keep_weights_only(path: Path) -> None:
    """Drop the optimizer's state: weights are enough for averaging, and a third of the size."""
    with suppress(UserError):  # a damaged one stays as it is
        _write(path, *_read(path, MODEL))


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Restore what :class:`CheckpointWriter` saved, in place; returns ``progress``.

    Raises:
        UserError: it is damaged, of another model, or has only weights left.
    """
    tensors, progress = _read(path)
    if all(name.startswith(MODEL) for name in tensors):
        raise UserError(f"{path} has weights only; training cannot go on from there")
    if "step" not in progress:
        raise UserError(f"{path} does not say how far its run has come")
    load_model(path, model, tensors)
    progress.pop("stopped", None)
    for name, parameter in model.named_parameters():
        prefix = f"{OPTIMIZER}{name}:"
        optimizer.state[parameter] = {
            key.removeprefix(prefix): value.to(parameter.device)
            for key, value in tensors.items()
            if key.startswith(prefix)
        }
    return progress


def save_model(
    path: Path, parameters: dict[str, Tensor], averaged: int = 1, step: int | None = None
) -> None:
    """Save weights, of how many checkpoints they are the mean, and the step of the last one."""
    tensors = {MODEL + name: _copy(tensor) for name, tensor in parameters.items()}
    _write(path, tensors, {"averaged": averaged} | ({} if step is None else {"step": step}))


def read_progress(path: Path) -> dict[str, Any]:
    """What was saved beside the tensors.

    Raises:
        UserError: the file is damaged.
    """
    return _read(path, prefix="-")[1]


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


def _path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:07d}.safetensors"


def step_of(checkpoint: Path) -> int:
    """The step after which it was saved, by its name."""
    return int(checkpoint.stem.removeprefix("step-"))


def _write(path: Path, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
    metadata = {
        "progress": json.dumps(progress),
        "checksums": json.dumps({name: _checksum(tensor) for name, tensor in tensors.items()}),
    }
    with atomic_path(path) as temporary, disk_errors():
        save_file(tensors, temporary, metadata=metadata)


@contextmanager
def disk_errors() -> Iterator[None]:
    """A full disk is an OSError here; for safetensors, which writes the file, it is none."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(str(error)) from error


def _read(path: Path, prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        # By NumPy, which copies in one thread. PyTorch would copy in several: had the writer's
        # thread a team of its own, there were more threads than cores, and from then on OpenMP let
        # those of training sleep between two operations, which made it a third slower.
        with safe_open(path, framework="np") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
            tensors = {name: torch.from_numpy(file.get_tensor(name)) for name in names}
            metadata = file.metadata() or {}
            progress = json.loads(metadata.get("progress", "{}"))
            checksums = json.loads(metadata.get("checksums", "{}"))
            if not (isinstance(progress, dict) and isinstance(checksums, dict)):
                raise ValueError("what it says of itself has another form")
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise UserError(f"cannot read the checkpoint {path}: {error}") from error
    for name, tensor in tensors.items():
        if name in checksums and checksums[name] != _checksum(tensor):
            raise UserError(f"the checkpoint {path} is damaged: {name} is not what was written")
    return tensors, progress


def _checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data)
