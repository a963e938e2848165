"""Decoding speed of systems that have the same trained weights; ``make bench`` calls it."""

import copy
import multiprocessing
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import ctranslate2
import torch
from peers import MarianModel
from tqdm.auto import tqdm

from transformer_lib.data import PreparedData
from transformer_lib.decoding import DecodingConfig, beam_search, greedy_search, translate
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.device import Precision, choose_dtype
from transformer_lib.export.ctranslate2 import write_model
from transformer_lib.export.huggingface import to_huggingface
from transformer_lib.metrics.bleu import bleu
from transformer_lib.model import Transformer
from transformer_lib.vocabulary import EOS

MAX_EXTRA = 10  # tokens of a translation beyond those of its source, for all
BATCH = 64  # sentences
REFERENCE, PEER = "ours, fp32", "MarianMTModel"
_engine: ctranslate2.Translator  # in the process that has it
Sentences = list[list[int]]
TranslateAll = Callable[[Sentences, int], list[str]]  # with a beam of this size


def measure_decoding(
    model: Transformer, data: PreparedData, repeats: int
) -> dict[str, dict[str, float]]:
    """Median sentences per second on the test set, sorted by length.

    One system after the other, in batches of 64 or, where it says so, in batches that the library
    makes when it is given all sentences. ``ratio`` is against Hugging Face's model in batches of 64
    in the same repeat, ``same`` the share of translations that are ours in fp32.
    """
    tokens = sorted(data.tokenizer.encode(data.test.sources), key=len)
    sentences = data.tokenizer.decode(tokens)
    references = dict(zip(data.test.sources, data.test.references, strict=True))
    results: dict[str, dict[str, float]] = {}
    with _systems(model, data) as systems:
        for name, beam in (("greedy", 1), ("beam 4", 4)):
            seconds: dict[str, list[float]] = defaultdict(list)
            texts: dict[str, list[str]] = {}
            for repeat in tqdm(range(repeats + 1), desc=f"decoding, {name}"):
                for system, translate_all in systems.items():
                    started = time.perf_counter()
                    texts[system] = translate_all(tokens, beam)
                    if repeat:  # the first one warms up
                        seconds[system].append(time.perf_counter() - started)
            wanted = [references[sentence] for sentence in sentences]
            for system, values in seconds.items():
                ratios = [theirs / own for theirs, own in zip(seconds[PEER], values, strict=True)]
                alike = map(str.__eq__, texts[system], texts[REFERENCE])
                results[f"{name}: {system}"] = {
                    "per_second": len(sentences) / statistics.median(values),
                    "ratio": statistics.median(ratios),
                    "same": sum(alike) / len(sentences),
                    "bleu": bleu(texts[system], wanted).score,
                }
    return results


@contextmanager
def _systems(model: Transformer, data: PreparedData) -> Iterator[dict[str, TranslateAll]]:
    """Each is ready to go: copied, converted and loaded."""
    device = model.output_weight.device
    pieces = data.tokenizer.pieces(range(len(data.tokenizer)))
    numbers = {piece: number for number, piece in enumerate(pieces)}
    peer = MarianModel(to_huggingface(model, len(data.tokenizer))).to(device).eval()

    def padded(batch: Sentences) -> torch.Tensor:
        return pad_sequences([[*sentence, EOS] for sentence in batch]).to(device)

    def by_batch(decode: Callable[[Sentences, int], Sentences]) -> TranslateAll:
        def translate_all(tokens: Sentences, beam: int) -> list[str]:
            starts = range(0, len(tokens), BATCH)
            found = [decode(tokens[start : start + BATCH], beam) for start in starts]
            return data.tokenizer.decode([row for rows in found for row in rows])

        return translate_all

    def searching(ours: Transformer) -> TranslateAll:
        def decode(batch: Sentences, beam: int) -> Sentences:
            if beam == 1:
                return greedy_search(ours, padded(batch), MAX_EXTRA)
            beams = beam_search(ours, padded(batch), beam, max_extra=MAX_EXTRA)
            return [hypotheses[0].tokens for hypotheses in beams]

        return by_batch(decode)

    def as_it_comes(precision: Precision) -> TranslateAll:
        def translate_all(tokens: Sentences, beam: int) -> list[str]:
            config = DecodingConfig(beam, max_extra=MAX_EXTRA, precision=precision)
            return translate(model, data.tokenizer, data.tokenizer.decode(tokens), config)

        return translate_all

    def by_engine(batch: Sentences, beam: int) -> Sentences:
        pieces = [data.tokenizer.pieces(sentence) for sentence in batch]
        found = engine.submit(_translate_with_engine, pieces, beam).result()
        return [[numbers[piece] for piece in sentence] for sentence in found]

    with tempfile.TemporaryDirectory() as folder:
        write_model(model, data.tokenizer, Path(folder))
        # A process of its own, for its threads would keep PyTorch's from waiting actively for each
        # other in this one, which makes small operations slow.
        with ProcessPoolExecutor(
            1,
            multiprocessing.get_context("spawn"),
            _start_engine,
            (folder, device.type, torch.get_num_threads()),
        ) as engine:
            systems = {
                REFERENCE: searching(model),
                "ours, bf16": searching(copy.deepcopy(model).bfloat16()),
                "ours, fp32, batches of its own": as_it_comes("fp32"),
                "ours, bf16, batches of its own": as_it_comes("bf16"),
                PEER: by_batch(lambda batch, beam: peer.translate(padded(batch), beam, MAX_EXTRA)),
                "CTranslate2, fp32": by_batch(by_engine),
            }
            has_bf16 = choose_dtype(device) == torch.bfloat16
            yield {name: way for name, way in systems.items() if has_bf16 or "bf16" not in name}


def _start_engine(folder: str, device: str, threads: int) -> None:
    global _engine
    _engine = ctranslate2.Translator(
        folder, device=device, compute_type="float32", intra_threads=threads
    )


def _translate_with_engine(pieces: list[list[str]], beam: int) -> list[list[str]]:
    results = _engine.translate_batch(
        pieces,
        beam_size=beam,
        length_penalty=0.6,
        max_decoding_length=max(map(len, pieces)) + 1 + MAX_EXTRA,
    )
    return [result.hypotheses[0] for result in results]
