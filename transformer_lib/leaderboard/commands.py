"""``transformer-lib leaderboard``."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_lib.options import From

if TYPE_CHECKING:
    from transformer_lib.leaderboard.entries import SeedResult

app = typer.Typer(
    help="The best translator in a given time: run entries, verify them, make the table.",
    no_args_is_help=True,
)
STEADY = 0.1  # by how much the time of a reference step may change during a run
Seeds = Annotated[
    list[int] | None, typer.Option(metavar="N", help="only this one; may be repeated")
]
EntryFolder = Annotated[Path, typer.Argument(metavar="ENTRY", help="folder with entry.toml")]


@app.command()
def run(
    entry: EntryFolder,
    seed: Seeds = None,
    files: From = None,
) -> None:
    """Run an entry with each seed, and keep its translations, scores and log in its folder.

    \b
    Examples:
      transformer-lib leaderboard run leaderboard/multi30k-3min/mine
    """
    from transformer_lib.leaderboard.entries import SEEDS, read_entry
    from transformer_lib.leaderboard.running import run_seed, text_of

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends the entry's process, too
    chosen = read_entry(entry)
    with text_of(chosen.track, files) as (text, test):
        for number in seed or SEEDS:
            typer.echo(f"seed {number} is running; {entry / 'log.txt'} has what it says", err=True)
            done, translations = run_seed(chosen, number, text, test)
            chosen.write(done, translations)
            typer.echo(_line(done))


@app.command()
def verify(
    entry: EntryFolder,
    seed: Seeds = None,
    files: From = None,
) -> None:
    """Run an entry again and compare. It runs with your rights: read its program first.

    \b
    Examples:
      transformer-lib leaderboard verify leaderboard/multi30k-3min/mine
    """
    from transformer_lib.leaderboard.entries import SEEDS, read_entry
    from transformer_lib.leaderboard.running import TOLERANCE, Verification
    from transformer_lib.leaderboard.running import verify as verify_entry

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    done = []
    for one in verify_entry(read_entry(entry), files, seed or SEEDS):
        typer.echo(f"claimed  {_line(one.claimed)}")
        typer.echo(f"again    {_line(one.again)}")
        if one.is_hurried:
            typer.echo("this took far less time than claimed: read what the program does")
        done.append(one)
    found = Verification(done)
    typer.echo(
        f"{'holds' if found.holds else 'does not hold'}: {found.claimed:.2f} claimed, "
        f"{found.again:.2f} again (may be {TOLERANCE:g} lower)"
    )
    if not found.holds:
        raise typer.Exit(1)


@app.command()
def table(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="with the entries")],
    files: From = None,
) -> None:
    """Print the tables of all tracks, from the translations in the entries' folders.

    \b
    Examples:
      transformer-lib leaderboard table leaderboard
    """
    from transformer_lib.leaderboard.entries import entries_in
    from transformer_lib.leaderboard.table import tables

    entries = entries_in(folder)
    complete = [entry for entry in entries if entry.is_complete]
    for number, one in enumerate(tables(complete, files)):
        if number:
            typer.echo()
        typer.echo(one)
    for entry in entries:
        if entry not in complete:
            typer.echo(f"left out: {entry.folder}, which was not run with every seed", err=True)


def _line(one: "SeedResult") -> str:
    before, after = one.reference_ms
    line = (
        f"seed {one.seed}: BLEU {one.bleu:.2f} in {one.seconds:.0f} s "
        f"(a reference step took {before:.0f} ms before, {after:.0f} after)"
    )
    if abs(after / before - 1) > STEADY:
        line += "; this machine has changed its speed meanwhile: run this seed again"
    return line
