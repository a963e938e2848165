"""What a GPU reaches, in parts of at most ten minutes each.

    python benchmarks/gpu.py speed       tokens/s and TFLOP/s of base, big and RNN, beside two peers
    python benchmarks/gpu.py decoding    newstest2014 with beam 4, beside generate and CTranslate2
    python benchmarks/gpu.py multi30k    Multi30k to convergence: both models, three seeds each
    python benchmarks/gpu.py news        the largest real mix at hand: where do the curves cross?
    python benchmarks/gpu.py profile     what the GPU does in some steps of the base model

All take ``--text DIR``, a folder of the text that docs/gpu.md lists. A call begins nothing new 400
seconds after its start, so name one part, or several short ones; ``--systems``, ``--seconds``,
``--minutes`` and ``--seeds`` make them shorter. Each prints a table and adds its figures to one
JSON file, after each system: what comes later may fail or be cut off. Without a GPU the smallest
form runs on the CPU: it shows that everything works, and its figures mean nothing.
"""

import argparse
import gc
import gzip
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import sacremoses  # noqa: F401  # needed after the first training, so look for it before
import torch
from bench import build, timed
from peers import MarianModel
from torch._dynamo.utils import counters
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from transformer_lib.data import DataConfig, PreparedData, prepare
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.device import Precision, choose_device, describe_device, synchronize
from transformer_lib.evaluation.evaluate import evaluate_run
from transformer_lib.experiment.config import Experiment, load_config
from transformer_lib.experiment.run import Run, build_model, load_run, train
from transformer_lib.export import export
from transformer_lib.export.huggingface import to_huggingface
from transformer_lib.files import read_lines, write_lines, write_text
from transformer_lib.model import TransformerConfig
from transformer_lib.model.linear import linear
from transformer_lib.timing import fastest
from transformer_lib.training.checkpoint import CheckpointWriter
from transformer_lib.training.compilation import forget_compiled
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.cost import measured_flops_per_second
from transformer_lib.training.distributed import Workers
from transformer_lib.training.metrics import Interval, Record, read_metrics
from transformer_lib.training.micro_batches import MicroBatch, micro_batches
from transformer_lib.training.prefetch import prefetched
from transformer_lib.training.trainer import BATCHES_AHEAD, Progress, Trainer
from transformer_lib.vocabulary import EOS

DEVICE = choose_device()
GPU = DEVICE.type == "cuda"
# Of the base model. A step has at most 25,000 source and 25,000 target tokens with their padding;
# 88% of that are tokens, with the lengths of newstest.
PAPER_STEPS, PAPER_TOKENS = 100_000, 44_000
LAST_START = 400.0  # seconds after the imports; what would begin later is left out
SKIPPED = {"skipped": "no time was left"}
STARTED = time.perf_counter()
Figures = dict[str, Any]
Systems = Iterator[tuple[str, Figures]]  # a name, and what was measured of it
NEWS = ("2008", "2009", "2010", "2011", "2012", "2015", "2016", "2017", "2018")


@dataclass(frozen=True)
class Scale:
    """How much is done: as much as a GPU does in ten minutes, or a sign of life."""

    seconds: float  # of training for each system whose speed is measured, after ten steps
    vocab_size: int
    batch_tokens: int
    seeds: int
    multi30k_steps: int
    minutes: float  # of training on the news
    sentences: int  # that are decoded
    systems: tuple[str, ...]  # what is aimed at comes first


PEERS = tuple(
    f"{peer}, {setting}"
    for peer in ("torch.nn.Transformer", "MarianMTModel")
    for setting in ("default", "bf16")
)
SYSTEMS = ("wmt14_base", "wmt14_base_fast", *PEERS, "wmt14_rnn")
MORE = ("wmt14_big", "wmt14_base, not compiled", "wmt14_big, not compiled")
FULL = Scale(24, 37_000, 25_000, 3, 4000, 3.3, 3003, (*SYSTEMS, *MORE))
SMALLEST = Scale(5, 4000, 1024, 1, 60, 0.2, 40, SYSTEMS)
# Of the inner layer, of the table, and of a table whose height is a multiple of 128 and not only
# of 8: is the product with it faster?
WIDTHS = (2048, 37_000, 36_992)
HIDDEN = ("records", "traceback", "kernels")  # figures for the file alone
# On the CPU everything shrinks to what it can do in seconds.
SHRUNK = ("model.d_model=64", "model.num_encoder_layers=1", "model.num_decoder_layers=1")


def experiment(name: str, *settings: str) -> Experiment:
    """A named experiment, as far as this machine can bear it."""
    return load_config(name, [*(() if GPU else SHRUNK), *settings])


def news_data(text: Path, work: Path, scale: Scale, only_news: bool = False) -> PreparedData:
    """The news tests of other years, Multi30k and Tatoeba; newstest2013 and 2014 are held out.

    Args:
        only_news: without the short sentences of the last two, whose batches are less full.
    """
    work.mkdir(parents=True, exist_ok=True)
    sides: dict[str, list[str]] = {"en": [], "de": []}
    for side, lines in sides.items():
        for year in NEWS:
            lines += read_lines(text / "newstest" / f"newstest{year}.en-de.{side}.gz")
        if not only_news:
            lines += read_lines(text / "multi30k" / f"train.{side}.gz")
    for line in [] if only_news else read_lines(text / "tatoeba" / "deu.tsv.gz"):
        for side, sentence in zip(("en", "de"), line.split("\t"), strict=False):
            sides[side].append(sentence)
    for side, lines in sides.items():
        write_lines(work / f"train.{side}", lines)
        for name, year in (("valid", "2013"), ("test", "2014")):
            with gzip.open(text / "newstest" / f"newstest{year}.en-de.{side}.gz") as file:
                (work / f"{name}.{side}").write_bytes(file.read())
    return prepare(news_config(work, scale))


def news_config(work: Path, scale: Scale) -> DataConfig:
    """The text that :func:`news_data` has put together."""
    train, valid, test = (
        (str(work / f"{name}.en"), str(work / f"{name}.de")) for name in ("train", "valid", "test")
    )
    return DataConfig(
        "files", scale.vocab_size, max_len=256, max_words=200, train=train, valid=valid, test=test
    )


def speed(text: Path, work: Path, scale: Scale) -> Systems:
    """Tokens a second while training on real sentence lengths, and how full the device is."""
    data = news_data(text, work, scale, only_news=True)
    rate = measured_flops_per_second(DEVICE, torch.bfloat16)
    products = {f"tflops_to_{n}": _product_rate(n) / 1e12 for n in WIDTHS if GPU}
    yield "matrix products in bfloat16", {"tflops": rate / 1e12} | products
    for label in scale.systems:
        _reset_memory()
        measure = _peer_speed if label in PEERS else partial(_training_speed, rate=rate)
        yield label, _tried(partial(measure, label, data, scale))


def _product_rate(outputs: int, rows: int = 8192, inputs: int = 512) -> float:
    """Operations per second in one of the base model's products, forward."""
    left, right = (torch.randn(n, inputs, device=DEVICE).bfloat16() for n in (rows, outputs))

    def multiply() -> None:
        for _ in range(20):  # one alone would be done before the next is launched
            linear(left, right)
        synchronize(DEVICE)

    return 20 * 2.0 * rows * inputs * outputs / fastest(multiply, seconds=0.3)


def _is_late() -> bool:
    return GPU and time.perf_counter() - STARTED > LAST_START


def _tried(measure: Callable[[], Figures]) -> Figures:
    """What was measured, or why not: the other systems are worth having all the same."""
    if _is_late():
        return SKIPPED
    try:
        return measure()
    except Exception as error:  # a compiler's and a driver's are of many kinds
        return _failure(error)


def _failure(error: Exception) -> Figures:
    traceback.print_exc(file=sys.stderr)
    reason = (str(error).strip().splitlines() or [""])[0]
    return {"failed": f"{type(error).__name__}: {reason}", "traceback": traceback.format_exc()}


class _Unsaved(Trainer):
    """Leaves out the checkpoints: gigabytes that a measurement of speed has no use for."""

    waited = 0.0  # seconds for the device: if they are few, the processor is what limits the speed
    first: tuple[float, float] | None = None  # of the first step: loss, norm of the gradient

    def train(self) -> bool:
        if not super().train():  # what is measured now would be of a shorter training
            raise KeyboardInterrupt
        return True

    def train_anew(self, training: TrainingConfig) -> None:
        """From the weights that it has, as if nothing had been trained."""
        self.config, self.progress, self.waited = training, Progress(), 0.0
        self.records.clear()
        self.train()

    def _account(self, interval: Interval) -> None:
        started = time.perf_counter()
        if self.first is None and self._launched is not None:
            nll, norm = self._launched.results.read()
            self.first = round(nll / self._launched.tgt_tokens, 4), round(norm, 4)
        super()._account(interval)
        self.waited += time.perf_counter() - started

    def _save(self, writer: CheckpointWriter, stopped: bool = False) -> None:
        pass

    def _finish(self) -> None:
        pass


def _trainer(label: str, data: PreparedData, scale: Scale, folder: str) -> _Unsaved:
    """Our own loop as it is, ready to train for ten steps, in which kernels are made."""
    name, _, setting = label.partition(", ")
    # The fast one's step is four times the paper's: at once, where the memory is large.
    times = 4 if name == "wmt14_base_fast" else 1
    chosen = experiment(
        name,
        f"training.batch_tokens={times * scale.batch_tokens}",
        "training.accumulate=1",
        "training.validation_sentences=1",
        *(["training.compile=false"] if setting == "not compiled" or not GPU else []),
    )
    return _ten_steps(chosen, data, folder)


def _ten_steps(chosen: Experiment, data: PreparedData, folder: str) -> _Unsaved:
    model = build_model(chosen, len(data.tokenizer))
    return _Unsaved(model, data.train, _for(chosen.training, steps=10), Path(folder))


def _for(training: TrainingConfig, parts: int = 3, **length: float) -> TrainingConfig:
    """Train so long, and note the speed of each of so many parts."""
    kept = {"keep_checkpoints": 1, "average_last": 1, "validations": parts}
    return replace(training, **{"steps": None, "minutes": None} | length | kept)


def _training_speed(label: str, data: PreparedData, scale: Scale, rate: float) -> Figures:
    """After ten steps in which kernels are made, without the first third."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(label, data, scale, folder)
        first = timed(trainer.train)
        compiled = counters["stats"]["unique_graphs"]
        trainer.train_anew(_for(trainer.config, minutes=scale.seconds / 60))
    trained = [record for record in trainer.records if record["kind"] == "train"]
    per_second = statistics.median(r["tokens_per_second"] for r in trained[1:] or trained)
    flops_per_second = per_second * trainer.progress.flops / trainer.progress.tokens
    return {
        "tokens_per_second": per_second,
        "tflops": flops_per_second / 1e12,
        "share_of_matrix_rate": flops_per_second / rate,
        "waiting_for_data": trained[-1]["waiting_for_data"],
        "waiting_for_device": trainer.waited / trainer.progress.seconds,
        "memory_gib": _peak_memory(),
        "hours_for_100k_paper_steps": PAPER_STEPS * PAPER_TOKENS / per_second / 3600,
        "seconds_of_ten_steps": first,
        "graphs": counters["stats"]["unique_graphs"],
        "graphs_too_late": counters["stats"]["unique_graphs"] - compiled,  # slow in between
        "graph_breaks": sum(counters["graph_break"].values()),
        # Compiled or not they are the same, but for dropout: or else what is fast is wrong.
        "first_loss_and_gradient_norm": trainer.first,
        "last_loss": trained[-1]["loss"],
    }


def profile(text: Path, work: Path, scale: Scale) -> Systems:
    """The kernels that take the GPU longest in some steps of the base model, with their times."""
    data = news_data(text, work, scale, only_news=True)
    yield "wmt14_base", _tried(partial(_profiled, data, scale))


def _profiled(data: PreparedData, scale: Scale) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer("wmt14_base", data, scale, folder)
        trainer.train()
        # To record what the processor does as well would slow it down.
        activity = ProfilerActivity.CUDA if GPU else ProfilerActivity.CPU
        with torch.profiler.profile(activities=[activity]) as profiler:
            trainer.train_anew(_for(trainer.config, parts=1, steps=20 if GPU else 3))
    which = "self_device_time_total" if GPU else "self_cpu_time_total"  # microseconds
    # An operation that starts kernels has their time as well, and so have ranges that are marked.
    ran = [
        k for k in profiler.key_averages()
        if not GPU or (k.device_type == DeviceType.CUDA and not k.is_user_annotation)
    ]  # fmt: skip
    kernels = sorted(ran, key=lambda k: -getattr(k, which))[:40]
    for kernel in kernels[:15]:
        print(f"{getattr(kernel, which) / 1e3:8.1f} ms {kernel.count:5} × {kernel.key[:90]}")
    return {
        "steps": trainer.progress.step,
        "seconds_of_steps": trainer.progress.seconds,  # batches for later are not in it
        "seconds_in_kernels": sum(getattr(k, which) for k in ran) / 1e6,
        "kernels": [{"name": k.key, "us": getattr(k, which), "calls": k.count} for k in kernels],
    }


def _peer_speed(label: str, data: PreparedData, scale: Scale) -> Figures:
    """The same batches through a loop as one would write it."""
    name, _, setting = label.partition(", ")
    chosen = experiment("wmt14_base", f"training.batch_tokens={scale.batch_tokens}")
    assert isinstance(chosen.model, TransformerConfig)
    system = build(name, setting, chosen.model, len(data.tokenizer))
    rates: list[float] = []  # of ten steps each
    seconds = 0.0
    # The batches that ours get: made ahead, in pinned memory, and counted there.
    made = micro_batches(data.train, chosen.training, 1, Workers(), DEVICE)
    with prefetched(made, BATCHES_AHEAD) as batches:

        def steps(some: list[MicroBatch]) -> None:
            for item in some:
                assert item.batch is not None
                system.step(item.batch.to(DEVICE))

        steps([next(batches) for _ in range(10)])
        while seconds < scale.seconds / 2:
            some = [next(batches) for _ in range(10)]
            took = timed(partial(steps, some))
            rates.append(sum(item.src_tokens + item.tgt_tokens for item in some) / took)
            seconds += took
    # Without the first third, like ours: in it some shapes are met for the first time.
    per_second = statistics.median(rates[len(rates) // 3 :])
    return {"tokens_per_second": per_second, "memory_gib": _peak_memory()}


def _reset_memory() -> None:
    """Nothing of the system before is to count for the next one."""
    forget_compiled()
    counters.clear()
    gc.collect()
    if GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _peak_memory() -> float | None:
    return torch.cuda.max_memory_allocated() / 2**30 if GPU else None


def multi30k(text: Path, work: Path, scale: Scale) -> Systems:
    """Both models until they learn no more, several seeds; BLEU on test2016 with beam 4."""
    settings = {
        "transformer": (
            "cpu_multi30k_transformer_20min",
            ["learning_rate=1e-3", "warmup_share=0.1"],
            [],
        ),
        "rnn": ("cpu_tatoeba_rnn", ["learning_rate=1e-3", "warmup_share=0.1"], ["dropout=0.4"]),
    }
    common = [f"batch_tokens={4096 if GPU else 1024}", "validations=4"]
    if GPU:
        settings["rnn"][2].extend(("num_encoder_layers=2", "num_decoder_layers=2"))
    scores: dict[str, list[float]] = {name: [] for name in settings}

    def measure(chosen: Experiment, folder: Path, so_far: list[float]) -> Figures:
        train(chosen, folder, text / "multi30k")
        so_far.append(evaluate_run(load_run(folder), files=text / "multi30k").bleu.score)
        return {"bleu": so_far, "mean": statistics.mean(so_far)}

    for seed, name in product(range(1, scale.seeds + 1), settings):
        config, training, model = settings[name]
        chosen = experiment(
            config,
            *(f"training.{setting}" for setting in (*common, *training)),
            *(f"model.{setting}" for setting in model),
        )
        chosen = replace(
            chosen,
            seed=seed,
            data=DataConfig("multi30k", 6000 if GPU else 4000),
            training=replace(chosen.training, steps=scale.multi30k_steps, minutes=None),
        )
        figures = _tried(partial(measure, chosen, work / f"{name}-{seed}", scores[name]))
        yield name, {"bleu": scores[name]} | figures


def news(text: Path, work: Path, scale: Scale) -> Systems:
    """Both models for the same time on the mix; when is the Transformer ahead for good?"""
    news_data(text, work, scale)
    records: list[list[Record]] = []

    def measure(name: str) -> Figures:
        run = _news_run(name, scale.minutes, work, scale)
        records.append(read_metrics(run.folder))
        evaluation = evaluate_run(run)
        return {
            "bleu": evaluation.bleu.score,
            "bleu_as_in_paper": evaluation.bleu_as_in_paper.score,
            "tokens": evaluation.cost.tokens,
            "flops": evaluation.cost.flops_by_parameters,
            "records": records[-1],
        }

    for name in ("wmt14_base_fast", "wmt14_rnn"):
        yield name, _tried(partial(measure, name))
    if len(records) == 2:
        a, b = ([r for r in lines if r["kind"] == "validation"] for lines in records)
        ahead = {quantity: _ahead_for_good(a, b, quantity) for quantity in QUANTITIES}
        yield "the Transformer is ahead for good from", ahead


def _news_run(name: str, minutes: float, work: Path, scale: Scale) -> Run:
    chosen = experiment(
        name,
        f"training.batch_tokens={scale.batch_tokens}",
        "training.accumulate=1",
        "training.schedule=budget",
        f"training.learning_rate={7e-4 if GPU else 2e-3}",
        "training.warmup_share=0.1",
        # With each goes a checkpoint of up to 1.5 GB, and the next one waits until it is written.
        f"training.validations={max(4, min(12, round(6 * minutes)))}",
        f"training.validation_sentences={200 if GPU else 20}",
        "training.compile=false",
        "training.average_last=1",
        "model.dropout=0.3",
    )
    chosen = replace(chosen, data=news_config(work, scale))
    # Kernels get into the compiler's cache before the clock starts: otherwise the first model would
    # pay for those that the second finds there.
    with tempfile.TemporaryDirectory() as scratch:
        _ten_steps(chosen, prepare(chosen.data), scratch).train()
    training = replace(chosen.training, steps=None, minutes=minutes, keep_checkpoints=1)
    folder = work / name
    train(replace(chosen, training=training), folder)
    return load_run(folder)


QUANTITIES = ("seconds", "tokens", "flops")


def _ahead_for_good(a: list[Record], b: list[Record], quantity: str) -> float | None:
    """From which budget on ``a`` has the higher validation BLEU; ``None`` if it has not."""
    budgets = sorted({r[quantity] for r in a} | {r[quantity] for r in b})
    scores = [np.interp(budgets, [r[quantity] for r in x], [r["bleu"] for r in x]) for x in (a, b)]
    behind = np.flatnonzero(scores[0] <= scores[1])
    if len(behind) == 0:
        return budgets[0]
    return budgets[behind[-1] + 1] if behind[-1] + 1 < len(budgets) else None


def decoding(text: Path, work: Path, scale: Scale) -> Systems:
    """Sentences a second on newstest2014, beam 4: ours, Hugging Face's generate, CTranslate2.

    Ours in bfloat16, where the GPU has it, and in float32 like Hugging Face's; CTranslate2 in what
    it finds fastest. A tenth of the sentences are translated before, to warm up.
    """
    data = news_data(text, work, scale)
    run = _news_run("wmt14_base", scale.minutes / 2, work, scale)
    tokens = sorted(run.tokenizer.encode(data.test.sources[: scale.sentences]), key=len)

    def per_second(translate_all: Callable[[list[Any]], object], inputs: list[Any]) -> Figures:
        translate_all(inputs[::10])
        seconds = timed(lambda: translate_all(inputs))
        return {"seconds": seconds, "sentences_per_second": len(tokens) / seconds}

    def ours(precision: Precision) -> Figures:
        settings = replace(run.experiment.decoding, precision=precision)
        sentences = run.tokenizer.decode(tokens)
        return per_second(lambda some: run.translate(some, settings), sentences)

    def hugging_face() -> Figures:
        theirs = MarianModel(to_huggingface(run.model, len(run.tokenizer))).to(DEVICE)
        ended = [[*sentence, EOS] for sentence in tokens]
        size = 512 if GPU else 64  # about as many as ours takes at once
        batches = [
            pad_sequences(ended[i : i + size]).to(DEVICE) for i in range(0, len(ended), size)
        ]
        extra = run.experiment.decoding.max_extra
        return per_second(lambda some: [theirs.translate(src, 4, extra) for src in some], batches)

    def ctranslate2_on(device: str) -> Figures:
        import ctranslate2

        folder = work / "ctranslate2"
        if not folder.exists():
            export(run, "ctranslate2", folder)
        engine = ctranslate2.Translator(str(folder), device=device, compute_type="auto")
        return per_second(
            lambda some: engine.translate_batch(
                some,
                beam_size=4,
                batch_type="tokens",
                max_batch_size=16_384 if device == "cuda" else 4096,
            ),
            [run.tokenizer.pieces(sentence) for sentence in tokens],
        )

    for precision in ("auto", "fp32"):
        yield f"transformer_lib, {precision}", _tried(partial(ours, precision))
    yield "Hugging Face generate", _tried(hugging_face)
    for device in ("cpu", "cuda") if GPU else ("cpu",):
        yield f"CTranslate2 on {device}", _tried(partial(ctranslate2_on, device))


PARTS = {
    "speed": speed, "decoding": decoding, "multi30k": multi30k, "news": news, "profile": profile,
}  # fmt: skip


def main() -> None:
    scale = FULL if GPU else SMALLEST
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="part", help=", ".join(PARTS))
    parser.add_argument("--text", type=Path, required=True, help="real text: docs/gpu.md lists it")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="figures [runs/gpu]")
    parser.add_argument("--systems", nargs="+", default=scale.systems, choices=FULL.systems,
                        metavar="NAME", help="speed: these alone")  # fmt: skip
    for name, what in {
        "seconds": "speed: of training for each system", "seeds": "multi30k: for each model",
        "minutes": "of training for each model of news, and for two of decoding",
    }.items():  # fmt: skip
        default = getattr(scale, name)
        parser.add_argument(f"--{name}", type=type(default), default=default,
                            help=f"{what} [{default}]")  # fmt: skip
    arguments = parser.parse_args()
    if not (arguments.text / "newstest").is_dir():
        parser.error(f"{arguments.text} has no folder newstest; give the text with --text")
    if not GPU:
        print("no GPU here: the smallest form runs on the CPU, and its figures mean nothing")
    scale = replace(
        scale, systems=tuple(arguments.systems), seconds=arguments.seconds,
        seeds=arguments.seeds, minutes=arguments.minutes,
    )  # fmt: skip
    arguments.out.mkdir(parents=True, exist_ok=True)
    # Text is prepared once, for all parts.
    cache = Path(tempfile.gettempdir(), "transformer-lib-gpu")
    os.environ.setdefault("TRANSFORMER_LIB_CACHE", str(cache))
    # For all systems alike: cuDNN's attention would spend a second on planning for each new shape.
    torch.backends.cuda.enable_cudnn_sdp(False)
    for part in arguments.parts:
        _measured(part, arguments.text.resolve(), arguments.out / "results.json", scale)


def _measured(part: str, text: Path, path: Path, scale: Scale) -> None:
    """A part's figures into the file, each as soon as it is known, and as a table."""
    systems: dict[str, Figures] = {}

    def note(name: str, figures: Figures) -> None:
        systems[name] = figures
        print(name, {k: v for k, v in figures.items() if k not in HIDDEN}, flush=True)
        _write(path, part, systems)

    if _is_late():
        note("all of it", SKIPPED)
        return
    with tempfile.TemporaryDirectory() as work:
        try:
            for name, figures in PARTS[part](text, Path(work).resolve(), scale):
                note(name, figures)
        except Exception as error:  # in what the part needs before it can measure
            note("what comes first", _failure(error))
    print(as_table(part, systems))
    print(f"\nall figures: {path}")


def _write(path: Path, part: str, systems: dict[str, Figures]) -> None:
    """Add to the file what is known of a part by now."""
    results = json.loads(path.read_text()) if path.exists() else {}
    results[part] = {
        "device": describe_device(DEVICE),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": str(date.today()),
        "minutes": round((time.perf_counter() - STARTED) / 60, 1),
        "systems": systems,
    }
    write_text(path, json.dumps(results, indent=2) + "\n")


def as_table(part: str, rows: dict[str, Figures]) -> str:
    """Markdown: a row for each system, a column for each figure."""
    columns = list(dict.fromkeys(c for row in rows.values() for c in row if c not in HIDDEN))
    lines = [f"| {part} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in rows.items():
        cells = [_cell(row.get(column)) for column in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return str(value)


if __name__ == "__main__":
    main()
