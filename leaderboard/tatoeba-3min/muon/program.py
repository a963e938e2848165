"""The course's Transformer, whose matrices learn by Muon (Jordan et al. 2024) instead of Adam.

Muon keeps a running mean of a matrix's gradient, like momentum, and goes into the direction of the
nearest orthogonal matrix: all directions of the space are learned at one rate, also those in which
the gradient is weak. Tables, norms and biases learn by Adam.
"""

import argparse
import math
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import torch
from torch import Tensor, nn

from transformer_lib.data import DataConfig, make_batch, plan_batches, prepare
from transformer_lib.decoding import translate
from transformer_lib.device import choose_device, choose_dtype
from transformer_lib.files import read_lines
from transformer_lib.model import TransformerConfig, build_transformer
from transformer_lib.training.loss import output_loss

MODEL = TransformerConfig(
    d_model=192, d_ff=512, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, norm="pre",
    tied_embeddings="none", dropout=0.05,
)  # fmt: skip
VOCAB_SIZE, BATCH_TOKENS, SMOOTHING = 4000, 2048, 0.1
MUON_RATE, ADAM_RATE, WARM_UP = 0.02, 4e-3, 0.25  # peaks; share of the time in which rates rise
DEVICE = choose_device()
DTYPE = choose_dtype(DEVICE)


def orthogonalized(matrices: Tensor, steps: int = 5) -> Tensor:
    """The nearest matrices with all singular values about 1, by Newton and Schulz's iteration.

    Its polynomial (the coefficients are Jordan's) moves every singular value towards 1 without
    computing any.

    Args:
        matrices: (number, rows, columns), with no more rows than columns.
    """
    x = matrices.to(DTYPE)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x,
                          beta=3.4445)  # fmt: skip
    return x.to(matrices.dtype)


class Muon:
    """Matrices of one shape learn together, so that there are few large products."""

    def __init__(self, model: nn.Module, momentum: float = 0.95):
        self.momentum = momentum
        self.groups: dict[tuple[int, ...], list[tuple[nn.Parameter, slice]]] = defaultdict(list)
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and ".layers." in name:
                # W^Q, W^K and W^V lie in one matrix, and are three.
                rows = weight.size(0) // 3 if name.endswith("qkv_proj.weight") else weight.size(0)
                for start in range(0, weight.size(0), rows):
                    part = (weight, slice(start, start + rows))
                    self.groups[tuple(sorted((rows, weight.size(1))))].append(part)
        self.means = {
            shape: torch.zeros(len(parts), *shape, device=DEVICE)
            for shape, parts in self.groups.items()
        }

    def learned(self) -> set[nn.Parameter]:
        return {weight for parts in self.groups.values() for weight, _ in parts}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for shape, parts in self.groups.items():
            gradients = torch.stack([_wide(weight.grad[rows]) for weight, rows in parts])
            mean = self.means[shape].lerp_(gradients, 1 - self.momentum)
            updates = orthogonalized(torch.lerp(gradients, mean, self.momentum))
            for (weight, rows), update in zip(parts, updates, strict=True):
                part = weight[rows]
                tall = part.size(0) > part.size(1)
                scale = max(1.0, part.size(0) / part.size(1)) ** 0.5
                part.sub_(update.mT if tall else update, alpha=rate * scale)


def _wide(matrix: Tensor) -> Tensor:
    return matrix if matrix.size(0) <= matrix.size(1) else matrix.mT


def trained(data, seed: int, seconds: float) -> nn.Module:
    """The model after so many seconds; rates rise, and then fall to zero at the end."""
    torch.manual_seed(seed)
    model = build_transformer(MODEL, len(data.tokenizer)).to(DEVICE).train()
    muon = Muon(model)
    others = [p for p in model.parameters() if p not in muon.learned()]
    adam = torch.optim.Adam(others, betas=(0.9, 0.98), eps=1e-9, fused=True)
    lengths = data.train.src.lengths, data.train.tgt.lengths
    started, epoch = time.perf_counter(), 0
    while True:
        for sentences in plan_batches(*lengths, BATCH_TOKENS, (seed, epoch)):
            used = (time.perf_counter() - started) / seconds
            if used >= 1.0:
                return model
            batch = make_batch(data.train, sentences).to(DEVICE)
            with torch.autocast(DEVICE.type, DTYPE, enabled=DTYPE is not torch.float32):
                states = model.decode(batch.tgt_input, model.encode(batch.src))
                loss = output_loss(
                    states, model.output_weight, batch.labels, SMOOTHING, real=batch.real
                )
            (loss.smoothed / loss.tokens).backward()
            share = min(1.0, used / WARM_UP)
            if used > WARM_UP:
                share = 0.5 + 0.5 * math.cos(math.pi * (used - WARM_UP) / (1 - WARM_UP))
            nn.utils.clip_grad_norm_(others, 1.0)
            for group in adam.param_groups:
                group["lr"] = ADAM_RATE * share
            adam.step()
            muon.step(MUON_RATE * share)
            model.zero_grad()
        epoch += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    sides = {
        part: (str(given.text / f"{part}.en"), str(given.text / f"{part}.de"))
        for part in ("train", "valid")
    }
    sources = str(given.text / "test.en")
    config = DataConfig("files", VOCAB_SIZE, **sides, test=(sources, sources))
    with tempfile.TemporaryDirectory() as folder:
        data = prepare(config, cache=Path(folder))
        model = trained(data, given.seed, given.seconds).eval()
        lines = translate(model, data.tokenizer, list(read_lines(Path(sources))))
    given.out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
