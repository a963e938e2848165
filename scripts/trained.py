"""Train the two models that come with the course, and store them small: ``make trained``."""

import shutil
import subprocess
import sys
from pathlib import Path

from transformer_lib.course import trained
from transformer_lib.experiment.run import load_run
from transformer_lib.training.checkpoint import checkpoints_in, save_model

RUNS = Path("runs")
KEPT = ("experiment.json", "run.json", "tokenizer.model", "metrics.jsonl")


def main() -> None:
    for name in ("transformer", "rnn"):
        run = RUNS / f"course_{name}"
        command = [sys.executable, "-m", "transformer_lib", "train", run.name, "--out", str(run)]
        resume = ["--resume"] if checkpoints_in(run) else []
        subprocess.run([*command, *resume], check=True)
        folder = Path(trained.__file__).parent / name
        folder.mkdir(exist_ok=True)
        for file in KEPT:
            shutil.copyfile(run / file, folder / file)
        weights = {n: p.detach().half() for n, p in load_run(run).model.named_parameters()}
        save_model(folder / "model.safetensors", weights)
        print(f"{folder}: {sum(f.stat().st_size for f in folder.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
