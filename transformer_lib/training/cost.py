"""What training costs, in floating-point operations, counted in two ways."""

import time
from collections.abc import Callable

import torch
from torch import nn

from transformer_lib.model.rnn import Rnn
from transformer_lib.model.seq2seq import Seq2Seq
from transformer_lib.model.transformer import Transformer


def flops_by_parameters(model: Seq2Seq, src_tokens: int, tgt_tokens: int) -> float:
    """6 · parameters · tokens: a multiplication and an addition forwards, twice that backwards.

    Encoder weights meet the source tokens, decoder weights and the output projection the target
    tokens. Looking up embeddings multiplies nothing.
    """
    assert isinstance(model, Transformer | Rnn)
    encoder = _weights(model.encoder)
    embeddings = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in [m.weight]}
    all_weights = sum(p.numel() for p in model.parameters() if id(p) not in embeddings)
    output = model.output_weight.numel()
    untied = 0 if id(model.output_weight) in embeddings else output
    decoder = all_weights - untied - encoder
    return 6.0 * (encoder * src_tokens + (decoder + output) * tgt_tokens)


def _weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def flops_by_time(seconds: float, devices: int, flops_per_second: float) -> float:
    """Training time × devices × what one sustains: how the paper's table 2 counts (section 6.1)."""
    return seconds * devices * flops_per_second


def measured_flops_per_second(device: torch.device, dtype: torch.dtype) -> float:
    """What this device sustains on a large matrix product, measured for about half a second."""
    size = 1024 if device.type == "cpu" else 8192
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))

    def multiply() -> None:
        left @ right
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return 2.0 * size**3 / fastest(multiply)


def fastest(function: Callable[[], object], seconds: float = 0.5) -> float:
    """Seconds of the fastest of the calls that fit into ``seconds``: the others were disturbed."""
    function()  # the first one makes what the others use again
    best, deadline = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < deadline:
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best
