"""The commands ``transformer-lib rate …``: make a task for raters, and read what they said."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from transformer_lib.errors import UserError, require
from transformer_lib.options import DeviceOption, From, RunA, RunB, TestName

app = typer.Typer(help="Let people judge two runs, blindly.", no_args_is_help=True)


class Kind(StrEnum):
    """What is asked of a rater."""

    pairwise = "pairwise"
    direct = "direct"


@app.command("make")
def rate_make(
    run_a: RunA,
    run_b: RunB,
    kind: Annotated[
        Kind, typer.Option(help="pairwise: which is better? direct: 0 to 100")
    ] = Kind.pairwise,
    sentences: Annotated[int, typer.Option(min=1, help="how many sentences are rated")] = 30,
    test: TestName = "test",
    out: Annotated[Path, typer.Option(help="folder for the task")] = Path("rating"),
    seed: Annotated[
        int | None, typer.Option(min=0, help="draws the sentences and sides; the key has it [any]")
    ] = None,
    device: DeviceOption = "auto",
    files: From = None,
) -> None:
    """Draw sentences, hide who said what, and write the page on which people rate them.

    Send rate.html to the raters, and keep key.json to yourself. Each rater sends a file back.

    \b
    Examples:
      transformer-lib rate make runs/cpu_tatoeba_transformer runs/cpu_tatoeba_rnn
      transformer-lib rate make runs/a runs/b --kind direct --sentences 50
    """
    require("scipy", "rating")
    from transformer_lib.evaluation.evaluate import find_common_test_set
    from transformer_lib.experiment.run import load_run
    from transformer_lib.files import must_be_new
    from transformer_lib.instructor.rating import make_sheet, write_task

    must_be_new(out)
    runs = [load_run(folder, device) for folder in (run_a, run_b)]
    test_set = find_common_test_set(runs[0], runs[1], test, files)
    outputs = {
        str(folder): run.translate(test_set.sources)
        for folder, run in zip((run_a, run_b), runs, strict=True)
    }
    sheet, key = make_sheet(
        test_set.sources,
        outputs,
        kind.value,
        sentences,
        seed=seed,
        references=test_set.references,
    )
    write_task(out, sheet, key)
    typer.echo(f"{len(sheet.items)} items: send {out / 'rate.html'}, keep {out / 'key.json'}")


@app.command("report")
def rate_report(
    folder: Annotated[Path, typer.Argument(metavar="TASK", help="folder made by rate make")],
    ratings: Annotated[list[Path], typer.Argument(metavar="RATINGS...", help="the raters' files")],
) -> None:
    """Merge the raters' files: who is better, how sure that is, and do the raters agree?

    \b
    Examples:
      transformer-lib rate report rating ratings-*.json
    """
    typer.echo(_report(folder, ratings))


def report_in(folder: Path) -> str:
    """The report on a task whose raters' files, ratings*.json, lie in its folder.

    Raises:
        UserError: there are none.
    """
    ratings = sorted(folder.glob("ratings*.json"))
    if not ratings:
        raise UserError(f"{folder} has no ratings*.json; put the raters' files there")
    return _report(folder, ratings)


def _report(folder: Path, ratings: list[Path]) -> str:
    require("scipy", "rating")
    from transformer_lib.instructor.rating import read_key, read_ratings, read_sheet, report

    sheet, key = read_sheet(folder / "sheet.json"), read_key(folder / "key.json")
    return report(sheet, key, [read_ratings(path, sheet) for path in ratings]).as_text()
