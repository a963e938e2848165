"""Train what takes too long for a chapter's cell, with three seeds each; chapters read the results.

``make variants``: forms of the course's Transformer that differ in one thing, and the Transformer
and the RNN for several lengths of training. Each has one core to itself, for a minute to a quarter
of an hour. What has been trained is not trained again, so this can be stopped at any time.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm

from transformer_lib.course.results import BUDGETS, VARIANTS, add_run, read_runs
from transformer_lib.data.preparation import PreparedData, prepare
from transformer_lib.decoding.translation import translate
from transformer_lib.experiment.config import Experiment, load_config
from transformer_lib.experiment.run import build_model
from transformer_lib.experiment.validation import reference_loss
from transformer_lib.instructor.grading.executors import processes
from transformer_lib.metrics.bleu import bleu
from transformer_lib.model.multi_head import MultiHeadAttention
from transformer_lib.model.seq2seq import Seq2Seq
from transformer_lib.training.trainer import Trainer

SEEDS = range(3)
STEPS = 2000
FORMS = {
    "as it is": (),
    "1 head": ("model.num_heads=1",),
    "8 heads": ("model.num_heads=8",),
    "without W^O": (),
    "ε = 0": ("training.label_smoothing=0.0",),
    "ε = 0.2": ("training.label_smoothing=0.2",),
    "post-norm": ("model.norm=post",),
}
LENGTHS = {  # the longest first, so that no core waits for the last one
    "Transformer": (6400, 3200, 1600, 800, 400),
    "RNN": (10000, 6400, 3200, 1600, 800, 400),
}


def main() -> None:
    budgets = [
        {"case": case, "steps": steps, "seed": seed}
        for case, lengths in LENGTHS.items()
        for steps in lengths
        for seed in SEEDS
    ]
    forms = [{"case": case, "seed": seed} for case in FORMS for seed in SEEDS]
    measure_missing(BUDGETS, measure_budget, budgets)
    measure_missing(VARIANTS, measure_form, forms)


def measure_missing(
    stored: str, measure: Callable[..., dict[str, float]], cases: list[dict[str, Any]]
) -> None:
    """Measure what is not stored yet, one case on each core."""
    known = read_runs(stored)["runs"]
    todo = [case for case in cases if not any(case.items() <= run.items() for run in known)]
    pool = processes(jobs=None)
    runs = {pool.submit(measure, **case): case for case in todo}
    try:
        for run in tqdm(as_completed(runs), total=len(runs), desc=stored, unit="run"):
            add_run(stored, {**runs[run], **run.result()})
    finally:
        pool.shutdown(cancel_futures=True)


def measure_budget(case: str, steps: int, seed: int) -> dict[str, float]:
    """Train a system for so many steps: what that cost, and its BLEU on the test set."""
    trainer, data, experiment = trained(f"course_{case.lower()}", steps, seed)
    return {
        "tokens": trainer.progress.tokens,
        "seconds": trainer.progress.seconds,
        "FLOPs": trainer.progress.flops,
        "BLEU": test_bleu(trainer.model, data, experiment),
    }


def measure_form(case: str, seed: int) -> dict[str, float]:
    """Train one form; its loss on the validation set and its BLEU on the test set."""
    trainer, data, experiment = trained("course_transformer", STEPS, seed, case)
    references = [several[0] for several in data.valid.references]
    return {
        "loss": reference_loss(
            trainer.model, data, experiment.training, data.valid.sources, references
        ),
        "BLEU": test_bleu(trainer.model, data, experiment),
    }


def trained(
    config: str, steps: int, seed: int, form: str = "as it is"
) -> tuple[Trainer, PreparedData, Experiment]:
    """A training at its end, and what it was."""
    torch.set_num_threads(1)  # the same sums in the same order everywhere
    settings = (f"training.steps={steps}", "training.validations=1", f"seed={seed}", *FORMS[form])
    experiment = load_config(config, settings)
    data = prepare(experiment.data)
    model = build_model(experiment, len(data.tokenizer))
    if form == "without W^O":
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                module.out_proj = nn.Identity()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(model, data.train, experiment.training, Path(folder), seed)
        if not trainer.train():
            raise SystemExit("interrupted; what has been trained to its end is kept")
    return trainer, data, experiment


def test_bleu(model: Seq2Seq, data: PreparedData, experiment: Experiment) -> float:
    """All references of the test set counted."""
    hypotheses = translate(model, data.tokenizer, data.test.sources, experiment.decoding)
    return bleu(hypotheses, data.test.references).score


if __name__ == "__main__":
    main()
