"""The ``transformer-lib`` command."""

import json
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from transformer_lib.errors import UserError
from transformer_lib.grading import commands

app = typer.Typer(
    help="Train, use and judge translation models: a Transformer, and the RNN it replaced.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="The text that models are trained on.", no_args_is_help=True)
app.add_typer(data_app, name="data")
rate_app = typer.Typer(help="Let people judge two runs, blindly.", no_args_is_help=True)
app.add_typer(rate_app, name="rate")

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="folder of a trained run")]
RunA = Annotated[Path, typer.Argument(metavar="RUN_A", help="folder of a trained run")]
RunB = Annotated[Path, typer.Argument(metavar="RUN_B", help="folder of another one")]
TestName = Annotated[
    str, typer.Option(metavar="SET", help="test, valid, or SOURCE,TARGET: two text files")
]
From = Annotated[
    Path | None,
    typer.Option("--from", metavar="DIR", help="folder that already has the corpus's files"),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting, e.g. model.d_model=128"),
]


@data_app.command("prepare")
def data_prepare(
    name: Annotated[str, typer.Argument(help="a corpus (tatoeba, multi30k, wmt14) or a CONFIG")],
    files: From = None,
    settings: Settings = None,
) -> None:
    """Clean a corpus, split it, learn its tokenizer and store its tokens; print a report.

    \b
    Examples:
      transformer-lib data prepare tatoeba
      transformer-lib data prepare multi30k --from ~/multi30k
      transformer-lib data prepare wmt14
      transformer-lib data prepare my_experiment.toml --set data.vocab_size=8000
    """
    from transformer_lib.config import load_config, load_data_config
    from transformer_lib.data import CORPORA, prepare
    from transformer_lib.data.prepare import describe

    if name in CORPORA:
        config = load_data_config(name, settings or [])
    else:
        config = load_config(name, settings or []).data
    prepared = prepare(config, files)
    typer.echo(f"{config.corpus}: {describe(prepared.report)}")
    typer.echo(
        f"{len(prepared.tokenizer):,} pieces; {len(prepared.valid):,} validation and "
        f"{len(prepared.test):,} test sentences; in {prepared.folder}"
    )


@app.command()
def train(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="a named config or a .toml file")],
    out: Annotated[Path | None, typer.Option(help="folder for the run [runs/CONFIG]")] = None,
    minutes: Annotated[float | None, typer.Option(help="train this long")] = None,
    steps: Annotated[int | None, typer.Option(help="train this many steps")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    files: From = None,
    settings: Settings = None,
) -> None:
    """Train an experiment; preparing its data is part of it.

    \b
    Examples:
      transformer-lib train cpu_tatoeba_transformer
      transformer-lib train cpu_tatoeba_rnn --minutes 1 --out runs/quick
      transformer-lib train my_experiment.toml --set training.learning_rate=1e-3
      transformer-lib train cpu_tatoeba_transformer --resume
    """
    from transformer_lib.config import load_config
    from transformer_lib.run import train as train_run

    if minutes is not None and steps is not None:
        raise UserError("give --minutes or --steps, not both")
    experiment = load_config(config, settings or [])
    if minutes is not None or steps is not None:
        training = replace_checked(experiment.training, minutes=minutes, steps=steps)
        experiment = replace(experiment, training=training)
    folder = out or Path("runs") / experiment.name
    finished = train_run(experiment, folder, files, resume, on_validation=_print_validation)
    message = f"trained: {folder}"
    if not finished:
        again = f"transformer-lib train {config} --resume --out {folder}"
        message = f"interrupted and saved; continue with: {again}"
    if os.environ.get("RANK", "0") == "0":  # one of several processes speaks for all
        typer.echo(message, err=True)
    if not finished:
        raise typer.Exit(130)


@app.command()
def translate(
    run: RunFolder,
    beam: Annotated[int | None, typer.Option(help="beam size; 1 is greedy")] = None,
) -> None:
    """Translate standard input to standard output, line for line.

    \b
    Examples:
      echo "Where is the station?" | transformer-lib translate runs/cpu_tatoeba_transformer
      transformer-lib translate runs/mine --beam 8 < news.en > news.de
    """
    from itertools import islice

    from transformer_lib.run import load_run

    loaded = load_run(run)
    decoding = _decoding(loaded.experiment.decoding, beam)
    lines = _standard_input()
    # The first answer comes at once, later ones in batches.
    size = 1 if sys.stdin.isatty() else 512
    while chunk := list(islice(lines, size)):
        for translation in loaded.translate(chunk, decoding):
            sys.stdout.write(translation + "\n")
        sys.stdout.flush()


@app.command()
def evaluate(
    run: RunFolder,
    test: TestName = "test",
    beam: Annotated[int | None, typer.Option(help="beam size; 1 is greedy")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    explained: Annotated[
        bool, typer.Option("--explain", help="why is this BLEU not the paper's?")
    ] = False,
    files: From = None,
) -> None:
    """Translate a test set and score it: BLEU and chrF with their signatures, and the cost.

    \b
    Examples:
      transformer-lib evaluate runs/cpu_tatoeba_transformer
      transformer-lib evaluate runs/mine --test news.en,news.de --beam 1 --json
      transformer-lib evaluate runs/wmt14_base --explain
    """
    from transformer_lib.evaluation.evaluate import evaluate_run
    from transformer_lib.evaluation.explain import explain
    from transformer_lib.run import load_run

    if explained and (as_json or beam is not None):
        raise UserError("--explain tries all searches and prints text; leave out --beam and --json")
    loaded = load_run(run)
    if explained:
        typer.echo(explain(loaded, test, files).as_text())
        return
    result = evaluate_run(loaded, test, _decoding(loaded.experiment.decoding, beam), files)
    typer.echo(json.dumps(result.as_dict()) if as_json else result.as_text())


@app.command()
def compare(
    run_a: RunA,
    run_b: RunB,
    test: TestName = "test",
    out: Annotated[Path, typer.Option(help="the report")] = Path("comparison.html"),
    rating: Annotated[
        Path | None, typer.Option(metavar="TASK", help="folder of rate make, with ratings in it")
    ] = None,
    files: From = None,
) -> None:
    """Compare two runs on one test set: significance, cost, curves, examples; writes HTML.

    The report has the paper's table with both runs below it. With --rating, it also has what people
    said: the files ratings*.json in that folder.

    \b
    Examples:
      transformer-lib compare runs/cpu_tatoeba_transformer runs/cpu_tatoeba_rnn
      transformer-lib compare runs/wmt14_base runs/wmt14_rnn --rating rating
    """
    from transformer_lib.evaluation.comparison import compare_runs
    from transformer_lib.run import load_run

    human = None
    if rating is not None:
        ratings = sorted(rating.glob("ratings*.json"))
        if not ratings:
            raise UserError(f"{rating} has no ratings*.json; put the raters' files there")
        human = _rating_report(rating, ratings)
    comparison = compare_runs(load_run(run_a), load_run(run_b), test, files, human)
    comparison.write_html(out)
    typer.echo(comparison.as_text())
    typer.echo(f"report: {out}")


@rate_app.command("make")
def rate_make(
    run_a: RunA,
    run_b: RunB,
    kind: Annotated[str, typer.Option(help="pairwise (which is better?) or direct (0-100)")] = (
        "pairwise"
    ),
    sentences: Annotated[int, typer.Option(help="how many sentences are rated")] = 30,
    test: TestName = "test",
    out: Annotated[Path, typer.Option(help="folder for the task")] = Path("rating"),
    seed: Annotated[int, typer.Option(help="draws the sentences and their order")] = 1,
    files: From = None,
) -> None:
    """Draw sentences, hide who said what, and write the page on which people rate them.

    Send rate.html to the raters, and keep key.json to yourself. Each rater sends a file back.

    \b
    Examples:
      transformer-lib rate make runs/cpu_tatoeba_transformer runs/cpu_tatoeba_rnn
      transformer-lib rate make runs/a runs/b --kind direct --sentences 50
    """
    from transformer_lib.evaluation.evaluate import find_test_set
    from transformer_lib.rating import make_sheet, write_task
    from transformer_lib.run import load_run

    if kind not in ("pairwise", "direct"):
        raise UserError(f"--kind {kind}: it is pairwise or direct")
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; choose another folder with --out")
    runs = [load_run(folder) for folder in (run_a, run_b)]
    test_set = find_test_set(runs[0], test, files)
    outputs = {
        str(folder): run.translate(test_set.sources)
        for folder, run in zip((run_a, run_b), runs, strict=True)
    }
    sheet, key = make_sheet(
        test_set.sources,
        outputs,
        "direct" if kind == "direct" else "pairwise",
        sentences,
        seed=seed,
        references=test_set.references,
    )
    write_task(out, sheet, key)
    typer.echo(f"{len(sheet.items)} items: send {out / 'rate.html'}, keep {out / 'key.json'}")


@rate_app.command("report")
def rate_report(
    folder: Annotated[Path, typer.Argument(metavar="TASK", help="folder made by rate make")],
    ratings: Annotated[list[Path], typer.Argument(metavar="RATINGS...", help="the raters' files")],
) -> None:
    """Merge the raters' files: who is better, how sure that is, and do the raters agree?

    \b
    Examples:
      transformer-lib rate report rating ratings-*.json
    """
    typer.echo(_rating_report(folder, ratings))


@app.command()
def average(
    run: RunFolder,
    last: Annotated[int, typer.Option(help="how many checkpoints")],
) -> None:
    """Make the mean of the last checkpoints the run's model.

    \b
    Examples:
      transformer-lib average runs/mine --last 5
    """
    from transformer_lib.run import average_checkpoints

    typer.echo(f"averaged: {average_checkpoints(run, last)}")


@app.command("export")
def export_run(
    run: RunFolder,
    format: Annotated[str, typer.Option(help="ctranslate2 or huggingface")],
    out: Annotated[Path, typer.Option(help="folder to write, new or empty")],
) -> None:
    """Write a trained Transformer in another toolkit's format.

    \b
    Examples:
      transformer-lib export runs/wmt14_base --format ctranslate2 --out exported
      transformer-lib export runs/wmt14_base --format huggingface --out exported
    """
    from transformer_lib.export import export
    from transformer_lib.run import load_run

    export(load_run(run), format, out)
    typer.echo(f"exported: {out}")


@app.command()
def lineages(
    sentence: Annotated[
        str, typer.Option(help="what the models read")
    ] = "Where is the next station , please ?",
) -> None:
    """How five published descriptions of the Transformer differ: part by part, same weights.

    \b
    Examples:
      transformer-lib lineages
      transformer-lib lineages --sentence "The cat sleeps on the warm stove ."
    """
    from transformer_lib.lineages.differences import describe

    typer.echo(describe(sentence))


@app.command()
def misconceptions(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="one mistake, e.g. M17")] = None,
    exercise: Annotated[str | None, typer.Option(help="only those of this exercise")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="all of them as a table")] = False,
) -> None:
    """Known mistakes about the Transformer: a list, or all about one of them.

    \b
    Examples:
      transformer-lib misconceptions
      transformer-lib misconceptions --exercise attention
      transformer-lib misconceptions M17
    """
    from transformer_lib.checks import catalogue

    if markdown:
        typer.echo(catalogue.as_markdown(), nl=False)
    else:
        typer.echo(catalogue.details(id) if id else catalogue.overview(exercise))


app.command("grade")(commands.grade)
app.command("verify-submission")(commands.verify_submission)
app.command("export-grades")(commands.export_grades)
app.command("class-report")(commands.class_report)


def main() -> None:
    """Entry point: a user's mistake is one line on standard error and exit code 2."""
    warnings.showwarning = lambda message, *rest, **more: print(
        f"warning: {message}", file=sys.stderr
    )
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has gone, as in `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # such as a full disk, or a folder that may not be written
        where = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror or error}{where}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def replace_checked(config, **changes):
    """``dataclasses.replace`` whose complaint is for the user."""
    try:
        return replace(config, **changes)
    except ValueError as error:
        raise UserError(str(error)) from error


def _decoding(config, beam: int | None):
    return config if beam is None else replace_checked(config, beam_size=beam)


def _rating_report(folder: Path, ratings: list[Path]) -> str:
    from transformer_lib.rating import read_key, read_ratings, read_sheet, report

    sheet, key = read_sheet(folder / "sheet.json"), read_key(folder / "key.json")
    return report(sheet, key, [read_ratings(path, sheet) for path in ratings]).as_text()


def _standard_input():
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"standard input, line {number}: not UTF-8 ({error.reason})") from error


def _print_validation(trainer, record) -> None:
    from tqdm.auto import tqdm

    tqdm.write(
        f"step {record['step']:>6,}  {record['seconds'] / 60:5.1f} min  "
        f"validation loss {record['loss']:.3f}  BLEU {record['bleu']:.1f}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
