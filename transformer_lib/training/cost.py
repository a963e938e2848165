"""What training costs, in floating-point operations, counted in two ways."""

import torch
from torch import nn

from transformer_lib.device import synchronize
from transformer_lib.model.linear import linear
from transformer_lib.model.positional_encoding import LearnedPositions
from transformer_lib.model.seq2seq import Seq2Seq, num_parameters
from transformer_lib.timing import fastest


def flops_by_parameters(model: Seq2Seq, src_tokens: int, tgt_tokens: int) -> float:
    """6 · parameters · tokens: a multiplication and an addition forwards, twice that backwards.

    Encoder weights meet the source tokens, decoder weights and the output projection the target
    tokens. Looking up an embedding or a learned position multiplies nothing.
    """
    encoder = num_parameters(model.encoder)
    tables = {id(p) for m in model.modules() if _is_table(m) for p in m.parameters(recurse=False)}
    all_weights = sum(p.numel() for p in model.parameters() if id(p) not in tables)
    output = model.output_weight.numel()
    untied = 0 if id(model.output_weight) in tables else output
    decoder = all_weights - untied - encoder
    return 6.0 * (encoder * src_tokens + (decoder + output) * tgt_tokens)


def _is_table(module: nn.Module) -> bool:
    return isinstance(module, nn.Embedding | LearnedPositions)


def flops_by_time(seconds: float, devices: int, flops_per_second: float) -> float:
    """Training time × devices × what one sustains: how the paper's table 2 counts (section 6.1)."""
    return seconds * devices * flops_per_second


def measured_flops_per_second(device: torch.device, dtype: torch.dtype) -> float:
    """What this device sustains on a large matrix product, measured for about half a second."""
    size = 1024 if device.type == "cpu" else 8192
    generator = torch.Generator(device).manual_seed(0)
    left, right = (
        torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2)
    )

    def multiply() -> None:
        linear(left, right)
        synchronize(device)

    return 2.0 * size**3 / fastest(multiply)
