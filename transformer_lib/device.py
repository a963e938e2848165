"""Which device and which precision a run uses."""

from typing import Literal

import torch

Precision = Literal["auto", "fp32", "bf16"]


def choose_device(name: str = "auto") -> torch.device:
    """``auto`` takes the best at hand: cuda, then mps, then cpu."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def choose_dtype(device: torch.device, precision: Precision = "auto") -> torch.dtype:
    """The type of matrix products: bfloat16 where the hardware multiplies it faster."""
    if precision == "auto":
        return torch.bfloat16 if _multiplies_bfloat16(device) else torch.float32
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False


def elements_in_cache(device: torch.device) -> int:
    """How many numbers to work through at a time, so that a processor's cache still holds them."""
    return 2**18 if device.type == "cpu" else 2**28


def describe_device(device: torch.device) -> str:
    """The device's name for people and reports."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"CPU, {torch.get_num_threads()} threads"
    return device.type
