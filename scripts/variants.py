"""Train forms of the course's Transformer that differ in one thing, three seeds each.

``make variants``. Chapters read the results. A form with a seed takes about five minutes on one
core; what has been trained is not trained again, so this can be stopped at any time.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn
from tqdm.auto import tqdm

from transformer_lib.course.results import VARIANTS, add_run, read_runs
from transformer_lib.data.preparation import prepare
from transformer_lib.decoding.translation import translate
from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import build_model
from transformer_lib.experiment.validation import reference_loss
from transformer_lib.metrics.bleu import bleu
from transformer_lib.model.multi_head import MultiHeadAttention
from transformer_lib.training.trainer import Trainer

STEPS = 2000
SEEDS = 3
COMMON = (f"training.steps={STEPS}", "training.validations=1")
FORMS = {
    "as it is": (),
    "1 head": ("model.num_heads=1",),
    "8 heads": ("model.num_heads=8",),
    "without W^O": (),
    "ε = 0": ("training.label_smoothing=0.0",),
    "ε = 0.2": ("training.label_smoothing=0.2",),
    "post-norm": ("model.norm=post",),
}


def main() -> None:
    torch.set_num_threads(1)  # the same sums in the same order on every machine
    known = {(run["case"], run["seed"]) for run in read_runs(VARIANTS)["runs"]}
    todo = [(form, seed) for form in FORMS for seed in range(SEEDS)]
    todo = [run for run in todo if run not in known]
    for form, seed in tqdm(todo, unit="run"):
        add_run(VARIANTS, {"case": form, "seed": seed, **measure(form, seed)})


def measure(form: str, seed: int) -> dict[str, float]:
    """Train one form; its loss on the validation set and its BLEU on the test set."""
    overrides = (*COMMON, f"seed={seed}", *FORMS[form])
    experiment = load_config("course_transformer", overrides)
    data = prepare(experiment.data)
    model = build_model(experiment, len(data.tokenizer))
    if form == "without W^O":
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                module.out_proj = nn.Identity()
    training = experiment.training
    with tempfile.TemporaryDirectory() as folder:
        if not Trainer(model, data.train, training, Path(folder), seed).train():
            raise SystemExit("interrupted; what has been trained to its end is kept")
    model.eval()
    references = [several[0] for several in data.valid.references]
    hypotheses = translate(model, data.tokenizer, data.test.sources, experiment.decoding)
    return {
        "loss": reference_loss(model, data, training, data.valid.sources, references),
        "BLEU": bleu(hypotheses, data.test.references).score,
    }


if __name__ == "__main__":
    main()
