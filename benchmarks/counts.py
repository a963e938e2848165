"""What a step of wmt14_base asks of a GPU, counted without one.

``python benchmarks/counts.py --text DIR``, with a folder of the text that docs/gpu.md lists.

Operations (each is a kernel or two on a GPU that runs without a compiler), synchronizations, at
which the processor waits for the GPU, graphs that torch.compile makes over many batches, and how
full batches are. The model has the depth of wmt14_base and a fraction of its width, which changes
no count; it has no dropout, which is one kernel on a GPU and several operations here.
"""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from gpu import SMALLEST, news_data
from torch import nn
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode
from tqdm.auto import tqdm

from transformer_lib.data import PreparedData, plan_batches
from transformer_lib.data.packing import packed_rows
from transformer_lib.device import elements_per_chunk
from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import build_model
from transformer_lib.training import loss
from transformer_lib.training.compilation import compiled_layers
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.micro_batches import ALIGNMENT
from transformer_lib.training.trainer import Trainer

AS_ON_A_GPU = ("training.compile=false", "training.precision=bf16")
"""What autocast casts counts, too."""
SYNCHRONIZATIONS = {"_local_scalar_dense", "nonzero", "masked_select", "equal"}
VIEWS = {"view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "split", "select",
         "unsqueeze", "squeeze", "detach", "alias", "as_strided", "split_with_sizes", "unbind",
         "chunk", "unsafe_split", "lift_fresh"}  # fmt: skip


class Operations(TorchDispatchMode):
    """Counts what PyTorch is asked to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


def trainer_of(data: PreparedData, folder: str, training: TrainingConfig) -> Trainer:
    small = (
        "model.d_model=64",
        "model.d_ff=128",
        "model.dropout=0.0",
        f"data.vocab_size={len(data.tokenizer)}",
    )
    return Trainer(
        build_model(load_config("wmt14_base", small), len(data.tokenizer)),
        data.train,
        training,
        Path(folder),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True, help="real text: docs/gpu.md lists it")
    parser.add_argument("--batches", type=int, default=500, help="that are compiled [500]")
    arguments = parser.parse_args()
    # The loss goes through the logits in as few pieces as on a GPU.
    loss.elements_per_chunk = lambda device: elements_per_chunk(torch.device("cuda"))
    with tempfile.TemporaryDirectory() as folder:
        data = news_data(arguments.text.resolve(), Path(folder), SMALLEST, only_news=True)
        for label, settings in (
            ("25,000 × 1", ["training.batch_tokens=25000"]),
            ("6,250 × 4", ["training.batch_tokens=6250", "training.accumulate=4"]),
        ):
            chosen = load_config("wmt14_base", [*AS_ON_A_GPU, *settings]).training
            trainer = trainer_of(data, folder, chosen)
            batches = trainer._micro_batches()
            work = [next(batches) for _ in range(chosen.accumulate)]
            with Operations() as operations:
                trainer._launch(work, 1e-3)
            kernels = sum(n for name, n in operations.count.items() if name not in VIEWS)
            synchronizations = sum(operations.count[name] for name in SYNCHRONIZATIONS)
            print(f"a step of {label}: {kernels:,} operations, {synchronizations} synchronizations")
        print_fill(data)
        print_batching(data, folder)
        print_graphs(data, folder, arguments.batches)


def print_fill(data: PreparedData, epochs: int = 50) -> None:
    """Which share of the places of a batch is filled, with as much text as WMT14 has, about."""
    src, tgt = (np.tile(side.lengths, epochs) for side in (data.train.src, data.train.tgt))
    tokens = src.sum() + tgt.sum()
    for batch_tokens in (25_000, 6_250):
        batches = len(plan_batches(src, tgt, batch_tokens, (1,), ALIGNMENT))
        print(f"batches of {batch_tokens:,}: {tokens / (2 * batch_tokens * batches):.1%} filled")
    rows = sum(1 for _ in packed_rows(src[: len(src) // 10], tgt[: len(tgt) // 10], 256, (1,)))
    print(f"rows of 256: {tokens / 10 / (2 * 256 * rows):.1%} filled")


def print_batching(data: PreparedData, folder: str, number: int = 100) -> None:
    """How fast one core makes batches, which the GPU must not have to wait for."""
    for name in ("wmt14_base", "wmt14_base_fast"):
        batches = trainer_of(data, folder, load_config(name).training)._micro_batches()
        started = time.perf_counter()
        made = [next(batches) for _ in range(number)]
        seconds = time.perf_counter() - started
        tokens = sum(batch.src_tokens + batch.tgt_tokens for batch in made)
        print(f"batches of {name}: {tokens / seconds / 1e6:.1f} million tokens/s")


def print_graphs(data: PreparedData, folder: str, number: int) -> None:
    """How often layers are compiled over many batches, in their real lengths."""
    compile_by = torch.compile

    def by_aot_eager(function, options=None, **rest):  # the options are Inductor's
        return compile_by(function, backend="aot_eager", **rest)

    torch.compile = by_aot_eager  # type: ignore[assignment]
    trainer = trainer_of(
        data, folder, load_config("wmt14_base", ["training.batch_tokens=512"]).training
    )
    counters.clear()
    model: nn.Module = trainer.model
    with compiled_layers(model):
        for item, _ in zip(trainer._micro_batches(), tqdm(range(number)), strict=False):
            assert item.batch is not None
            model.decode(item.batch.tgt_input, model.encode(item.batch.src)).sum().backward()
    graphs, breaks = counters["stats"]["unique_graphs"], counters["graph_break"].total()
    print(f"{number} batches: {graphs} graphs, {breaks} graph breaks")


if __name__ == "__main__":
    main()
