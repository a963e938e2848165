"""What an entry with a ``config.toml`` runs: train for the time that there is, then translate.

A ``program.py`` takes the same options, and may use the :class:`Task` that is here.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import Run, load_run, train
from transformer_lib.files import read_lines, write_lines


@dataclass(frozen=True)
class Task:
    """What an entry is to do.

    Args:
        seconds: there are to train.
        text: the folder with ``train``, ``valid`` and ``test.en``.
        out: the file for the translations of ``test.en``, line by line.
    """

    seed: int
    seconds: float
    text: Path
    out: Path

    @classmethod
    def from_options(cls, options: Sequence[str]) -> "Task":
        """From the options that every program is started with."""
        parser = argparse.ArgumentParser(description="Train on a text, then translate.")
        parser.add_argument("--seed", type=int, required=True)
        parser.add_argument("--seconds", type=float, required=True, help="to train")
        parser.add_argument("--text", type=Path, required=True, help="folder of the text")
        parser.add_argument("--out", type=Path, required=True, help="file for the translations")
        return cls(**vars(parser.parse_args(options)))

    def sources(self) -> list[str]:
        """The sentences to translate."""
        return list(read_lines(self.text / "test.en"))

    def train(self, config: str, folder: Path, *settings: str) -> Run:
        """A run of this experiment on the text of the task.

        Args:
            config: name of a configuration, or path of one.
            settings: of the experiment, such as ``"model.dropout=0.2"``.
        """
        chosen = load_config(config, [f"training.minutes={self.seconds / 60}", *settings])
        sources = str(self.text / "test.en")
        data = replace(
            chosen.data,
            corpus="files",
            train=self._two_sides("train"),
            valid=self._two_sides("valid"),
            test=(sources, sources),  # there are no references here
        )
        train(replace(chosen, seed=self.seed, data=data), folder)
        return load_run(folder)

    def write(self, translations: Sequence[str]) -> None:
        """Hand in the translations."""
        write_lines(self.out, translations)

    def _two_sides(self, part: str) -> tuple[str, str]:
        return str(self.text / f"{part}.en"), str(self.text / f"{part}.de")


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("config", help="a configuration, or the path of one")
    given, options = parser.parse_known_args()
    task = Task.from_options(options)
    with tempfile.TemporaryDirectory() as folder:
        run = task.train(given.config, Path(folder))
        task.write(run.translate(task.sources()))


if __name__ == "__main__":
    main()
