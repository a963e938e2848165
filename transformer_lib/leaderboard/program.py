"""What an entry with a ``config.toml`` runs: train for the time that there is, then translate.

Whoever writes a ``program.py`` instead writes a program that takes the same options.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import load_run, train
from transformer_lib.files import read_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="to train")
    parser.add_argument("--text", type=Path, required=True, help="train, valid and test.en in it")
    parser.add_argument("--out", type=Path, required=True, help="translations, line by line")
    arguments = parser.parse_args()
    chosen = load_config(arguments.config, [f"training.minutes={arguments.seconds / 60}"])
    sources = str(arguments.text / "test.en")
    data = replace(
        chosen.data,
        corpus="files",
        train=_two_sides(arguments.text, "train"),
        valid=_two_sides(arguments.text, "valid"),
        test=(sources, sources),  # there are no references here
    )
    with tempfile.TemporaryDirectory() as folder:
        train(replace(chosen, seed=arguments.seed, data=data), Path(folder))
        translations = load_run(folder).translate(list(read_lines(Path(sources))))
    arguments.out.write_text("".join(f"{line}\n" for line in translations), encoding="utf-8")


def _two_sides(folder: Path, part: str) -> tuple[str, str]:
    return str(folder / f"{part}.en"), str(folder / f"{part}.de")


if __name__ == "__main__":
    main()
