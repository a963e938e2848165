"""What an entry is: a folder with a configuration or a program, and what came of it.

::

    leaderboard/multi30k-3min/pre-norm/
        entry.toml       track, author and one line about it
        config.toml      an experiment; or program.py, any program that learns and translates
        result.json      for each seed: BLEU, seconds, and how long a reference step took
        log.txt          what was printed
        outputs/1.txt    the translations of seed 1, line by line
"""

import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as pydantic_dataclass

from transformer_lib.data.config import BUNDLED, Corpus, DataConfig
from transformer_lib.data.corpora import Splits, load_corpus
from transformer_lib.errors import UserError, did_you_mean, first_problem
from transformer_lib.files import read_lines, read_text, write_lines, write_text

SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Track:
    """A text, and the time there is: that of so many reference steps on the same machine."""

    corpus: Corpus
    reference_steps: int

    def splits(self, files: Path | None = None) -> Splits:
        """Its text; ``files`` is a folder for a corpus that does not come with the package."""
        return load_corpus(DataConfig(self.corpus), None if self.corpus == BUNDLED else files)


# 2,000 reference steps are two to three minutes on two cores that multiply bfloat16 in hardware.
TRACKS = {
    "tatoeba-3min": Track("tatoeba", 2000),
    "multi30k-3min": Track("multi30k", 2000),
    "multi30k-20min": Track("multi30k", 13_500),
}


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class About:
    """``entry.toml``."""

    track: str
    author: str
    about: str


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class SeedResult:
    """One seed of an entry.

    Args:
        seconds: of the whole process, from its start to its end.
        reference_ms: of a reference step, before the process ran and after it.
    """

    seed: int
    bleu: pydantic.NonNegativeFloat
    seconds: pydantic.PositiveFloat
    reference_ms: tuple[pydantic.PositiveFloat, pydantic.PositiveFloat]


_ABOUT, _RESULTS = pydantic.TypeAdapter(About), pydantic.TypeAdapter(list[SeedResult])


@dataclass(frozen=True)
class Entry:
    """An entry's folder."""

    folder: Path
    about: About

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def track(self) -> Track:
        return TRACKS[self.about.track]

    @property
    def command(self) -> list[str]:
        """The command that starts it; the task follows as options."""
        program = self.folder / "program.py"
        if program.exists():
            return [sys.executable, str(program)]
        config = str(self.folder / "config.toml")
        return [sys.executable, "-m", "transformer_lib.leaderboard.program", config]

    @property
    def is_complete(self) -> bool:
        """Whether it was run with every seed."""
        was_run = (self.folder / "result.json").exists()
        return was_run and {one.seed for one in self.results()} >= set(SEEDS)

    def results(self) -> list[SeedResult]:
        """What came of it when it was run.

        Raises:
            UserError: it was not, or its result cannot be read.
        """
        path = self.folder / "result.json"
        if not path.exists():
            raise UserError(
                f"{self.folder} has no result yet: transformer-lib leaderboard run {self.folder}"
            )
        try:
            return _RESULTS.validate_json(read_text(path))
        except pydantic.ValidationError as error:
            raise UserError(f"{path}: {first_problem(error)}") from error

    def output(self, seed: int) -> list[str]:
        """The translations of one seed."""
        return list(read_lines(self.folder / "outputs" / f"{seed}.txt"))

    def write(self, done: SeedResult, translations: list[str]) -> None:
        """Keep what came of one seed, in place of what there was."""
        write_lines(self.folder / "outputs" / f"{done.seed}.txt", translations)
        before = self.results() if (self.folder / "result.json").exists() else []
        results = {one.seed: one for one in before} | {done.seed: done}
        ordered = [results[seed] for seed in sorted(results)]
        text = json.dumps(json.loads(_RESULTS.dump_json(ordered)), indent=1)
        write_text(self.folder / "result.json", text + "\n")


def read_entry(folder: Path) -> Entry:
    """The entry in this folder.

    Raises:
        UserError: it is none, or of no track.
    """
    path = folder / "entry.toml"
    if not path.exists():
        raise UserError(f"{folder} is no entry: it has no entry.toml")
    try:
        values: dict[str, Any] = tomllib.loads(read_text(path))
        about = _ABOUT.validate_python(values)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error
    except pydantic.ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}") from error
    if about.track not in TRACKS:
        raise UserError(f"{path}: there is no track {about.track}; "
                        + did_you_mean(about.track, TRACKS))  # fmt: skip
    programs = [name for name in ("config.toml", "program.py") if (folder / name).exists()]
    if len(programs) != 1:
        raise UserError(
            f"{folder} needs one of config.toml and program.py, and has {len(programs)}"
        )
    return Entry(folder.resolve(), about)


def entries_in(folder: Path) -> list[Entry]:
    """All entries below a folder.

    Raises:
        UserError: there is none, or one cannot be read.
    """
    found = [read_entry(path.parent) for path in sorted(folder.rglob("entry.toml"))]
    if not found:
        raise UserError(f"{folder} has no entries: there is no entry.toml in it")
    return found
