"""Train the two bundled CPU experiments and compare them."""

import sys
from pathlib import Path

from transformer_lib.cli import main

RUNS = Path("runs")
NAMES = ("cpu_tatoeba_transformer", "cpu_tatoeba_rnn")


def command(*arguments: str) -> None:
    """Run a ``transformer-lib`` command; stop at the first that fails."""
    print("$ transformer-lib", *arguments, flush=True)
    sys.argv = ["transformer-lib", *arguments]
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise


for name in NAMES:
    folder = RUNS / name
    finished = (folder / "model.safetensors").exists()
    if not finished:
        resume = ["--resume"] if any(folder.glob("step-*.safetensors")) else []
        command("train", name, "--out", str(folder), *resume)
report = ("--out", str(RUNS / "comparison.html"), "--force")  # also when it is called again
command("compare", *(str(RUNS / name) for name in NAMES), *report)
