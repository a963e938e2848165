"""Training and decoding speed beside two peers, in one run: ``make bench``.

Same sizes, same batches of real text, the same steps in turn; each figure is the median of repeats.
Writes a table to the screen and everything to ``benchmarks/results.json``.
"""

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from peers import MarianModel, TorchModel
from torch import Tensor, nn
from tqdm.auto import tqdm

from transformer_lib.data import Batch, DataConfig, make_batch, plan_batches, prepare
from transformer_lib.device import (
    autocast,
    choose_device,
    choose_dtype,
    describe_device,
    synchronize,
)
from transformer_lib.export.huggingface import untrained
from transformer_lib.files import write_text
from transformer_lib.model import Transformer, TransformerConfig, build_transformer
from transformer_lib.training.loss import output_loss
from transformer_lib.training.schedule import budget_rate
from transformer_lib.vocabulary import PAD

CONFIG = TransformerConfig(
    d_model=256,
    d_ff=1024,
    num_heads=4,
    num_encoder_layers=3,
    num_decoder_layers=3,
    positions="sinusoidal_halves",
)
DATA = DataConfig(vocab_size=6000)
BATCH_TOKENS = 2048
SMOOTHING = 0.1
SYSTEMS = ("transformer_lib", "torch.nn.Transformer", "MarianMTModel")
SETTINGS = {
    "fp32": "all in fp32, fused Adam, no dropout of attention weights",
    "bf16": "all under bf16 autocast, fused Adam, no dropout of attention weights",
    "default": "each as it comes: ours in the precision that it chooses, the others in fp32",
}
DEVICE = choose_device()
HAS_BF16 = choose_dtype(DEVICE) == torch.bfloat16  # where it is emulated, a step takes a minute
MEASURED = [setting for setting in SETTINGS if HAS_BF16 or setting != "bf16"]


@dataclass
class System:
    """A model, its optimizer and its loss on a batch."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[Batch], Tensor]
    dtype: torch.dtype

    def step(self, batch: Batch) -> None:
        """One step of training."""
        with autocast(DEVICE, self.dtype):
            loss = self.loss(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def build(
    name: str,
    setting: str,
    config: TransformerConfig = CONFIG,
    vocab_size: int = DATA.vocab_size,
) -> System:
    """One of ``SYSTEMS`` in one of ``SETTINGS``."""
    torch.manual_seed(1)
    model: nn.Module
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}.get(setting, torch.float32)
    if name == "transformer_lib":
        model = ours = build_transformer(config, vocab_size)
        if setting == "default":
            dtype = choose_dtype(DEVICE)

        def loss(batch: Batch) -> Tensor:
            states = ours.decode(batch.tgt_input, ours.encode(batch.src))
            result = output_loss(states, ours.output_weight, batch.labels, SMOOTHING)
            return result.smoothed / result.tokens
    else:
        if name == "MarianMTModel":
            model = peer = MarianModel(untrained(config, vocab_size))
        else:
            model = peer = TorchModel(config, vocab_size, setting == "default")

        def loss(batch: Batch) -> Tensor:
            return F.cross_entropy(
                peer(batch).flatten(0, 1),
                batch.labels.flatten(),
                ignore_index=PAD,
                label_smoothing=SMOOTHING,
            )

    model.to(DEVICE).train()
    fused = True if setting != "default" or name == "transformer_lib" else None
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9, fused=fused
    )
    return System(model, optimizer, loss, dtype)


def real_batches() -> Iterator[Batch]:
    """Training batches of the bundled text, without end."""
    train = prepare(DATA).train
    epoch = 0
    while True:
        plan = plan_batches(train.src.lengths, train.tgt.lengths, BATCH_TOKENS, (1, epoch))
        yield from (make_batch(train, indices).to(DEVICE) for indices in plan)
        epoch += 1


def measure_training(repeats: int, steps: int) -> dict[str, dict[str, float]]:
    """Median tokens per second (source and target, padding not counted)."""
    source = real_batches()
    batches = [next(source) for _ in range(steps)]
    tokens = sum(batch.num_src_tokens + batch.num_tgt_tokens for batch in batches)
    results = {}
    for setting in MEASURED:
        systems = {name: build(name, setting) for name in SYSTEMS}
        rates: dict[str, list[float]] = {name: [] for name in SYSTEMS}
        for repeat in tqdm(range(repeats + 1), desc=f"training, {setting}"):
            for name, system in systems.items():
                seconds = timed(lambda system=system: [system.step(batch) for batch in batches])
                if repeat:  # the first one warms up
                    rates[name].append(tokens / seconds)
        results[setting] = {name: statistics.median(r) for name, r in rates.items()}
    return results


def _trained(seconds: float) -> Transformer:
    """A model that has learned where sentences end, so that decoding is realistic work."""
    system = build("transformer_lib", "default")
    started = time.perf_counter()
    with tqdm(total=round(seconds), desc="training for decoding", unit=" s") as bar:
        for batch in real_batches():
            used = (time.perf_counter() - started) / seconds
            if used >= 1.0:
                break
            system.optimizer.param_groups[0]["lr"] = budget_rate(used, 1e-3, 0.1)
            system.step(batch)
            bar.update(round(used * seconds) - bar.n)
    assert isinstance(system.model, Transformer)
    return system.model.eval()


def measure_memory() -> dict[str, dict[str, float]]:
    """Peak memory of training above that of the loaded libraries, in MiB; a process for each."""
    results: dict[str, dict[str, float]] = {}
    for setting in MEASURED:
        for name in tqdm(SYSTEMS, desc=f"memory, {setting}"):
            command = [sys.executable, __file__, "--peak-memory", name, setting]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            results.setdefault(setting, {})[name] = float(output)
    return results


def peak_memory(name: str, setting: str) -> float:
    """What :func:`measure_memory` runs in a process of its own."""
    source = real_batches()
    batches = [next(source) for _ in range(20)]
    before = _peak()
    system = build(name, setting)
    for batch in batches:
        system.step(batch)
    return _peak() - before


def _peak() -> float:
    if DEVICE.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    if sys.platform == "linux":  # there, ru_maxrss starts from what the parent process had
        (line,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        return int(line) / 2**10
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts bytes


def timed(work: Callable[[], object]) -> float:
    synchronize(DEVICE)
    started = time.perf_counter()
    work()
    synchronize(DEVICE)
    return time.perf_counter() - started


def as_table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """Markdown; the ratio is ours over theirs."""
    lines = [
        "| training, tokens/s | transformer_lib | torch.nn.Transformer | ratio | "
        "MarianMTModel | ratio | peak memory (MiB) |",
        "|---|---|---|---|---|---|---|",
    ]
    for setting, rates in results["training"].items():
        ours, torchs, marians = (rates[name] for name in SYSTEMS)
        memory = " / ".join(f"{results['memory'][setting][name]:,.0f}" for name in SYSTEMS)
        lines.append(
            f"| {setting} | {ours:,.0f} | {torchs:,.0f} | {ours / torchs:.2f} | "
            f"{marians:,.0f} | {ours / marians:.2f} | {memory} |"
        )
    lines += [
        "",
        "| decoding | sentences/s | against MarianMTModel | same translations | BLEU |",
        "|---|---|---|---|---|",
    ]
    for name, figures in results["decoding"].items():
        rate, ratio, same, score = figures.values()
        lines.append(f"| {name} | {rate:,.0f} | {ratio:.2f} | {same:.1%} | {score:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="measured repeats of each [3]")
    parser.add_argument("--steps", type=int, default=20, help="training steps in a repeat [20]")
    parser.add_argument("--train-seconds", type=float, default=180.0, help="before decoding [180]")
    parser.add_argument(
        "--peak-memory", nargs=2, metavar=("SYSTEM", "SETTING"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.peak_memory:
        print(peak_memory(*arguments.peak_memory))
        return
    from decoding import measure_decoding  # which needs CTranslate2, and nothing else does

    if not HAS_BF16:
        print("no rows in bf16, which this machine multiplies no faster than fp32", file=sys.stderr)
    results = {
        "machine": {
            "device": describe_device(DEVICE),
            "processor": platform.processor() or platform.machine(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "training": measure_training(arguments.repeats, arguments.steps),
        "memory": measure_memory(),
        "decoding": measure_decoding(
            _trained(arguments.train_seconds), prepare(DATA), arguments.repeats
        ),
    }
    path = Path(__file__).parent / "results.json"
    write_text(path, json.dumps(results, indent=2) + "\n")
    print(as_table(results))
    print(f"\nall figures: {path}")


if __name__ == "__main__":
    main()
