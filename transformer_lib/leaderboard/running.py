"""Run an entry, see how long it took, and score what it wrote.

The entry's process gets text without the references of the test set, and its time is taken from
outside. It runs with its user's rights: read a program before you run it.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from transformer_lib.data.config import DataConfig
from transformer_lib.data.corpora import TestSet
from transformer_lib.data.preparation import cleaner_of
from transformer_lib.errors import UserError
from transformer_lib.files import read_lines, write_lines
from transformer_lib.leaderboard.entries import SEEDS, Entry, SeedResult, Track
from transformer_lib.leaderboard.reference import reference_step
from transformer_lib.metrics.bleu import bleu

EXTRA_SHARE, EXTRA_SECONDS = 0.2, 30.0  # beside training: to start, to prepare and to translate
TOLERANCE = 1.0  # BLEU: what another machine and chance may change
HURRIED = 0.5  # of the claimed reference steps: a program that takes fewer may not have trained


@contextmanager
def text_of(track: Track, files: Path | None = None) -> Iterator[tuple[Path, TestSet]]:
    """A folder with the text of a track, and the test set, whose references are not in it."""
    splits = track.splits(files)
    train = list(cleaner_of(DataConfig(track.corpus), splits)(splits.train))
    valid = [(s, r[0]) for s, r in zip(splits.valid.sources, splits.valid.references, strict=True)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, pairs in (("train", train), ("valid", valid)):
            for side, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
                write_lines(folder / f"{part}.{side}", lines)
        write_lines(folder / "test.en", splits.test.sources)
        yield folder, splits.test


def run_seed(
    entry: Entry, seed: int, text: Path, test: TestSet, log: Path | None = None
) -> tuple[SeedResult, list[str]]:
    """One seed of an entry, and its translations.

    Args:
        log: what it prints is added to it; ``log.txt`` in its folder by default.

    Raises:
        UserError: it fails, takes too long, or does not write a line for each sentence.
    """
    before = reference_step()
    allowed = entry.track.reference_steps * before
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "translations.txt"
        command = [
            *entry.command, "--seed", str(seed), "--seconds", f"{allowed:.1f}",
            "--text", str(text), "--out", str(out),
        ]  # fmt: skip
        started = time.perf_counter()
        limit = (1 + EXTRA_SHARE) * allowed + EXTRA_SECONDS
        _run(entry.name, command, limit, log or entry.folder / "log.txt", Path(folder))
        seconds = time.perf_counter() - started
        is_there = out.is_file() and not out.is_symlink()  # a pipe could be read for ever
        translations = list(read_lines(out)) if is_there else []
    if len(translations) != len(test):
        raise UserError(
            f"{entry.name}, seed {seed}: {len(translations)} translations of {len(test)} sentences"
        )
    score = bleu(translations, [references[:1] for references in test.references]).score
    after = reference_step()
    return SeedResult(seed, score, seconds, (1000 * before, 1000 * after)), translations


def _run(name: str, command: list[str], limit: float, log: Path, folder: Path) -> None:
    """Wait for it, up to ``limit`` seconds; nothing of it is left running.

    Args:
        folder: for its temporary files, which it cannot remove when it is killed, and for what it
            prints until it has ended: a process can see where that goes.

    Raises:
        UserError: it fails, or takes longer.
    """
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    with tempfile.TemporaryFile(dir=folder) as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired as error:
            raise UserError(f"{name} took longer than {limit:.0f} s") from error
        finally:
            _kill(process)
            said.seek(0)
            with log.open("ab") as file:
                shutil.copyfileobj(said, file)
    if code != 0:
        raise UserError(f"{name} ended with {code}: {log} says why")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """It and what it started; on Windows, which knows no groups of processes, it alone."""
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class VerifiedSeed(NamedTuple):
    """One seed as an entry claims it, and as it came out when it was run again."""

    claimed: SeedResult
    again: SeedResult

    @property
    def is_hurried(self) -> bool:
        """Whether it took far less time than claimed, as something looked up does."""
        before, now = (one.seconds / mean(one.reference_ms) for one in (self.claimed, self.again))
        return now < HURRIED * before


def verify(
    entry: Entry, files: Path | None = None, seeds: Sequence[int] = SEEDS
) -> Iterator[VerifiedSeed]:
    """Run an entry again, seed by seed; its folder stays as it is, but for the log.

    What runs is a copy without the stored translations, which it could hand in again.

    Raises:
        UserError: it cannot be run, or its stored translations do not have the BLEU it claims.
    """
    claimed = {one.seed: one for one in entry.results()}
    if not claimed.keys() >= set(seeds):
        raise UserError(f"{entry.folder} has no result of all seeds {', '.join(map(str, seeds))}")
    with text_of(entry.track, files) as (text, test), tempfile.TemporaryDirectory() as above:
        for seed in seeds:
            _check_claim(entry, claimed[seed], test)
        bare = replace(entry, folder=Path(above) / entry.name)
        _copy_program(entry.folder, bare.folder)
        for seed in seeds:
            again, _ = run_seed(bare, seed, text, test, entry.folder / "log.txt")
            yield VerifiedSeed(claimed[seed], again)


def _copy_program(folder: Path, target: Path) -> None:
    """An entry without what came of it.

    Raises:
        UserError: something in the folder cannot be copied.
    """
    results = {"outputs", "result.json", "log.txt"}

    def ignored(place: str, names: list[str]) -> set[str]:
        return results & set(names) if Path(place) == folder else set()

    try:
        shutil.copytree(folder, target, symlinks=True, ignore=ignored)
    except shutil.Error as error:
        raise UserError(f"{folder} cannot be copied: {error.args[0][0][2]}") from error


def _check_claim(entry: Entry, claimed: SeedResult, test: TestSet) -> None:
    """Raises UserError if the stored translations of a seed do not have the BLEU it claims."""
    stored = entry.output(claimed.seed)
    if len(stored) != len(test):
        raise UserError(f"{entry.name}: outputs/{claimed.seed}.txt has {len(stored)} lines")
    score = bleu(stored, [references[:1] for references in test.references]).score
    if abs(score - claimed.bleu) > 0.01:
        raise UserError(
            f"{entry.name} claims {claimed.bleu:.2f} for seed {claimed.seed}, but its "
            f"outputs/{claimed.seed}.txt has {score:.2f}"
        )


@dataclass(frozen=True)
class Verification:
    """Of all seeds that were run again."""

    seeds: Sequence[VerifiedSeed]

    @property
    def claimed(self) -> float:
        """Mean BLEU."""
        return mean(one.claimed.bleu for one in self.seeds)

    @property
    def again(self) -> float:
        """Mean BLEU."""
        return mean(one.again.bleu for one in self.seeds)

    @property
    def holds(self) -> bool:
        """Whether the mean is no lower than claimed, but for what chance changes."""
        return self.again >= self.claimed - TOLERANCE
