"""Which device and which precision a run uses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from transformer_lib.errors import UserError

Precision = Literal["auto", "fp32", "bf16"]
DeviceName = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]


TOO_LITTLE = (  # words for too little memory
    "can't allocate memory",  # PyTorch, of a CPU's
    "out of memory",  # CUDA's driver, and MPS
    "STATUS_ALLOC_FAILED",  # cuBLAS and cuDNN
)


def choose_device(name: str = "auto") -> torch.device:
    """``auto`` takes the best at hand: cuda, then mps, then cpu.

    Raises:
        UserError: this machine, or this build of PyTorch, has no such device.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    kind, colon, number = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (colon and not number.isdecimal()):
        raise UserError(f"there is no device {name!r}; it is auto, cpu, cuda, cuda:N or mps")
    if kind == "cpu":
        return torch.device("cpu")
    if kind == "mps" and torch.backends.mps.is_available():
        return torch.device("mps")
    if kind == "cuda" and int(number or 0) < torch.cuda.device_count():
        return torch.device(name)
    built = "" if kind != "cuda" or torch.backends.cuda.is_built() else "; this PyTorch has no CUDA"
    raise UserError(f"device {name} is not on this machine{built}; choose auto or cpu")


def choose_dtype(device: torch.device, precision: Precision = "auto") -> torch.dtype:
    """The type of matrix products: bfloat16 where the hardware multiplies it faster."""
    if precision == "auto":
        return torch.bfloat16 if _multiplies_bfloat16(device) else torch.float32
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Matrix products in this type; with float32, all stays as it is."""
    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)


@contextmanager
def double_precision() -> Iterator[None]:
    """Numbers are made in float64 where nothing else is said."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        # PyTorch's own is_bf16_supported looks at the current device only.
        return torch.version.hip is not None or torch.cuda.get_device_capability(device)[0] >= 8
    if device.type == "cpu":
        has = torch.cpu.get_capabilities()
        return bool(has.get("avx512_bf16") or has.get("amx_tile"))
    return False


def elements_per_chunk(device: torch.device) -> int:
    """Numbers to work through at a time: few enough for a CPU's cache, enough to fill a GPU."""
    return 2**18 if device.type == "cpu" else 2**28


def describe_device(device: torch.device) -> str:
    """The device's name for people and reports."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        number = torch.get_num_threads()
        return f"CPU, {number} thread" + "s" * (number > 1)
    return device.type


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, which PyTorch often says in the message alone."""
    is_told = isinstance(error, RuntimeError) and any(words in str(error) for words in TOO_LITTLE)
    return is_told or isinstance(error, torch.OutOfMemoryError | MemoryError)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was given; a CPU always has."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


class LateNumbers:
    """Numbers that a device is computing, read later without waiting for anything begun since.

    Args:
        values: on any device.
    """

    def __init__(self, values: Tensor):
        self._values = values
        self._is_there: torch.cuda.Event | None = None
        if values.device.type == "cuda":
            self._values = torch.empty_like(values, device="cpu", pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._is_there = torch.cuda.Event()
            self._is_there.record(torch.cuda.current_stream(values.device))

    def read(self) -> list[float]:
        """Wait until they are computed."""
        if self._is_there is not None:
            self._is_there.synchronize()
        return self._values.tolist()
