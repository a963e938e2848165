"""How fast this machine is: the time of one fixed step of training."""

import statistics
import time

import torch

from transformer_lib.device import autocast, choose_device, choose_dtype, synchronize
from transformer_lib.model.transformer import TransformerConfig, build_transformer
from transformer_lib.randomness import seeded
from transformer_lib.training.loss import output_loss

STEPS, WARM_UP = 30, 10
# The model and batch size of cpu_multi30k_transformer.
MODEL = TransformerConfig(
    d_model=192, d_ff=512, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, norm="pre",
    tied_embeddings="none",
)  # fmt: skip
VOCAB, ROWS, LENGTH = 4000, 64, 16


def reference_step() -> float:
    """Median seconds of a step, in the precision that this machine multiplies fastest."""
    device = choose_device()
    dtype = choose_dtype(device)
    with seeded(1):
        model = build_transformer(MODEL, VOCAB).to(device).train()
        src, labels = torch.randint(4, VOCAB, (2, ROWS, LENGTH), device=device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        taken = []
        for _ in range(STEPS):
            started = time.perf_counter()
            with autocast(device, dtype):
                states = model.decode(labels, model.encode(src))
                loss = output_loss(states, model.output_weight, labels, 0.1)
            (loss.smoothed / loss.tokens).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            synchronize(device)
            taken.append(time.perf_counter() - started)
    return statistics.median(taken[WARM_UP:])
