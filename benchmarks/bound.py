"""How near a training step and greedy search come to what the processor can multiply.

$ python benchmarks/bound.py      # two minutes, with nothing else running

For each system the share of its time that goes into matrix products, and the rate of these products
and of the whole, as shares of the rate of one large product in the same precision. All systems
multiply the same matrices: that bounds how far ahead one of them can be.
"""

from collections.abc import Callable

import torch
from bench import DEVICE, HAS_BF16, SYSTEMS, build, real_batches
from decoding import BATCH as SENTENCES
from decoding import MAX_EXTRA
from peers import MarianModel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.decoding import greedy_search
from transformer_lib.model import Transformer
from transformer_lib.training.cost import measured_flops_per_second

STEPS = 10
PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear_pointwise"}


def measure(work: Callable[[], object], rate: float) -> tuple[float, float, float]:
    """Products' share of the time; their rate, and that of the whole, as shares of ``rate``."""
    with FlopCounterMode(display=False) as counter:  # warms up as well
        work()
    counts = counter.get_flop_counts()["Global"]
    flops = sum(count for op, count in counts.items() if op._qualified_op_name in PRODUCTS)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        work()
    times = {event.key: event.self_cpu_time_total / 1e6 for event in recorded.key_averages()}
    whole = sum(times.values())
    seconds = sum(time for name, time in times.items() if name in PRODUCTS)
    return seconds / whole, flops / seconds / rate, flops / whole / rate


def main() -> None:
    if DEVICE.type != "cpu":
        raise SystemExit("this looks at the processor only")
    source = real_batches()
    batches = [next(source) for _ in range(STEPS)]
    print("| | products' share of the time | their rate | rate of the whole |\n|---|---|---|---|")
    dtypes = {"fp32": torch.float32} | ({"bf16": torch.bfloat16} if HAS_BF16 else {})
    rates = {name: measured_flops_per_second(DEVICE, dtype) for name, dtype in dtypes.items()}
    for setting, rate in rates.items():
        print(f"| one large product, {setting}: {rate / 1e9:,.0f} GFLOP/s | 100% | 100% | 100% |")
        for name in SYSTEMS:
            system = build(name, setting)
            row = measure(lambda system=system: [system.step(batch) for batch in batches], rate)
            print(_line(f"training, {setting}, {name}", row), flush=True)
    # Fresh weights, so that no sentence ends before it must.
    ours, peer = (build(name, "fp32").model.eval() for name in ("transformer_lib", "MarianMTModel"))
    assert isinstance(ours, Transformer)
    assert isinstance(peer, MarianModel)
    sentences = batches[0].src[:SENTENCES]
    searches = {
        "transformer_lib": lambda: greedy_search(ours, sentences, MAX_EXTRA),
        "MarianMTModel": lambda: peer.translate(sentences, 1, MAX_EXTRA),
    }
    for name, search in searches.items():
        print(_line(f"greedy search, fp32, {name}", measure(search, rates["fp32"])), flush=True)


def _line(name: str, row: tuple[float, float, float]) -> str:
    return f"| {name} | " + " | ".join(f"{share:.0%}" for share in row) + " |"


if __name__ == "__main__":
    main()
