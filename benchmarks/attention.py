"""Forward and backward time of attention as matrix products and as PyTorch's fused kernel.

``transformer_lib.model.scaled_dot_product`` chooses by what this prints: run it on a new processor.
"""

import statistics
import time

import torch
import torch.nn.functional as F

from transformer_lib.device import choose_device, synchronize
from transformer_lib.model.scaled_dot_product import attention

SHAPES = [(100, 4, 10, 48), (50, 4, 20, 48), (16, 8, 64, 64), (4, 8, 256, 64)]  # about 1,024 tokens
DEVICE = choose_device()


def milliseconds(function, shape, dtype, repeats=30):
    """Median time of one forward and backward pass."""
    times = []
    for _ in range(repeats):
        qkv = [torch.randn(shape, device=DEVICE, dtype=dtype, requires_grad=True) for _ in range(3)]
        started = time.perf_counter()
        function(*qkv).sum().backward()
        synchronize(DEVICE)
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


def main():
    print(f"{DEVICE}: batch, heads, length, d_k    dtype      products   fused    fused/products")
    for dtype in (torch.float32, torch.bfloat16):
        for shape in SHAPES:
            products = milliseconds(lambda q, k, v: attention(q, k, v)[0], shape, dtype)
            fused = milliseconds(F.scaled_dot_product_attention, shape, dtype)
            print(
                f"{shape!s:>34}    {str(dtype)[6:]:9}{products:8.2f} ms{fused:8.2f} ms"
                f"{fused / products:10.2f}"
            )


if __name__ == "__main__":
    main()
