"""What each part of the fast recipe is worth: equal steps, several seeds, the validation loss.

$ python benchmarks/recipe.py                      # all forms, three seeds: 40 minutes
$ python benchmarks/recipe.py "Muon" --seeds 1     # one of them

Losses at equal steps do not depend on how busy the machine is. What a step takes does.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import train
from transformer_lib.training.metrics import read_metrics

TABLES_FASTER = ("training.learning_rate=8e-3", "training.warmup_share=0.1")
MUON = ("training.muon_rate=0.016",)
COUNTED = ("training.counted_start=true",)
DECAYED = ("training.weight_decay=0.4",)
FORMS = {
    "Adam": (),  # as the configuration has it
    "Adam, twice the rate": TABLES_FASTER,
    "Adam, started from counts": COUNTED,
    "Muon": TABLES_FASTER + MUON,
    "Muon, started from counts": TABLES_FASTER + MUON + COUNTED,
    "Muon, started from counts, weight decay": TABLES_FASTER + MUON + COUNTED + DECAYED,
}


def measure(form: str, seed: int, steps: int) -> tuple[float, float]:
    """Loss in nats per token, and greedy BLEU, of the 500 validation sentences."""
    common = (
        f"seed={seed}", f"training.steps={steps}", "training.validations=1",
        "training.validation_sentences=500", "training.batch_tokens=2048", "model.dropout=0.1",
    )  # fmt: skip
    experiment = load_config("cpu_tatoeba_transformer", (*common, *FORMS[form]))
    with tempfile.TemporaryDirectory() as folder:
        if not train(experiment, Path(folder)):
            raise SystemExit("interrupted")
        last = [r for r in read_metrics(Path(folder)) if r["kind"] == "validation"][-1]
    return last["loss"], last["bleu"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("forms", nargs="*", help=f"of: {', '.join(FORMS)}")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if unknown := set(arguments.forms) - FORMS.keys():
        parser.error(f"no form {', '.join(unknown)}")
    print("| form | loss | each | greedy BLEU |\n|---|---|---|---|", flush=True)
    for form in arguments.forms or FORMS:
        runs = [measure(form, seed + 1, arguments.steps) for seed in range(arguments.seeds)]
        losses, scores = zip(*runs, strict=True)
        each = ", ".join(f"{loss:.3f}" for loss in losses)
        mean, score = statistics.mean(losses), statistics.mean(scores)
        print(f"| {form} | {mean:.3f} | {each} | {score:.1f} |", flush=True)


if __name__ == "__main__":
    main()
