"""The ``transformer-lib`` command."""

import io
import json
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from transformer_lib import __version__
from transformer_lib.errors import UserError, did_you_mean
from transformer_lib.experiment.configs import named_configs
from transformer_lib.instructor.grading import commands as grading
from transformer_lib.instructor.rating import commands as rating
from transformer_lib.leaderboard import commands as leaderboard
from transformer_lib.options import DeviceOption, From, RunA, RunB, RunFolder, TestName
from transformer_lib.shown import one_line

if TYPE_CHECKING:
    from transformer_lib.decoding import DecodingConfig
    from transformer_lib.training.metrics import Record
    from transformer_lib.training.trainer import Trainer

app = typer.Typer(
    help="Train, use and judge translation models: a Transformer, and the RNN it replaced.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="The text that models are trained on.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(rating.app, name="rate")
app.add_typer(leaderboard.app, name="leaderboard")

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting, e.g. model.d_model=128"),
]


def _print_version(wanted: bool | None) -> None:
    if wanted:
        typer.echo(f"transformer-lib {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_print_version, is_eager=True, help="print the version"),
    ] = None,
) -> None:
    pass


@data_app.command("prepare")
def data_prepare(
    name: Annotated[
        str, typer.Argument(metavar="CORPUS", help="tatoeba, multi30k, wmt14 … or a CONFIG")
    ],
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
    from transformer_lib.data import CORPORA, prepare
    from transformer_lib.data.preparation import describe
    from transformer_lib.experiment.config import load_config, load_data_config

    if name in CORPORA:
        config = load_data_config(name, settings or [])
    elif name in named_configs() or name.endswith(".toml"):
        config = load_config(name, settings or []).data
    else:
        names = [corpus for corpus in CORPORA if corpus != "files"]
        hint = did_you_mean(name, [*names, *named_configs()])
        raise UserError(f"{name!r} is neither a corpus nor a configuration; {hint}")
    prepared = prepare(config, files)
    typer.echo(f"{config.corpus}: {describe(prepared.report)}")
    typer.echo(
        f"{len(prepared.tokenizer):,} pieces; {len(prepared.valid):,} validation and "
        f"{len(prepared.test):,} test sentences; in {prepared.folder}"
    )


CONFIGS = ", ".join(named_configs())


@app.command(epilog=f"Named configs: {CONFIGS}.")
def train(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="a named config or a .toml file")],
    out: Annotated[Path | None, typer.Option(help="folder for the run [runs/CONFIG]")] = None,
    minutes: Annotated[float | None, typer.Option(help="train this long")] = None,
    steps: Annotated[int | None, typer.Option(help="train this many steps")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue the run in --out with its own settings")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda, cuda:N or mps [that of the config]")
    ] = None,
    files: From = None,
    settings: Settings = None,
) -> None:
    """Train an experiment; preparing its data is part of it.

    Ctrl-C saves the run; --resume goes on with the settings that it was started with. With another
    --steps or --minutes, --resume also trains a finished run longer.

    \b
    Examples:
      transformer-lib train cpu_tatoeba_transformer
      transformer-lib train cpu_tatoeba_rnn --minutes 1 --out runs/quick
      transformer-lib train my_experiment.toml --set training.learning_rate=1e-3
      transformer-lib train cpu_tatoeba_transformer --resume
    """
    from transformer_lib.experiment.config import load_config, with_overrides
    from transformer_lib.experiment.run import read_experiment
    from transformer_lib.experiment.run import train as train_run

    if minutes is not None and steps is not None:
        raise UserError("give --minutes or --steps, not both")
    options = {"device": device, "minutes": minutes, "steps": steps}
    given = [f"training.{key}={value}" for key, value in options.items() if value is not None]
    chosen = [*(settings or []), *given]
    experiment = load_config(config, chosen)
    folder = out or Path("runs") / experiment.name
    if resume:
        name, experiment = experiment.name, read_experiment(folder)
        if experiment.name != name:
            raise UserError(f"{folder} holds a run of {experiment.name}, not of {name}")
        experiment = with_overrides(experiment, chosen, str(folder))

    def announce(line: str) -> None:
        typer.echo(line, err=True)

    finished = train_run(experiment, folder, files, resume, _print_validation, announce)
    message = f"trained: {folder}"
    if not finished:
        again = ["transformer-lib", "train", config, "--resume", "--out", str(folder)]
        again += [word for setting in chosen for word in ("--set", setting)]
        message = f"interrupted and saved; continue with: {shlex.join(again)}"
    if os.environ.get("RANK", "0") == "0":  # one of several processes speaks for all
        typer.echo(message, err=True)
    if not finished:
        raise typer.Exit(130)


@app.command()
def translate(
    run: RunFolder,
    beam: Annotated[int | None, typer.Option(help="beam size; 1 is greedy")] = None,
    device: DeviceOption = "auto",
) -> None:
    """Translate standard input to standard output, line for line.

    \b
    Examples:
      echo "Where is the station?" | transformer-lib translate runs/cpu_tatoeba_transformer
      transformer-lib translate runs/mine --beam 8 < news.en > news.de
    """
    from itertools import islice

    from transformer_lib.experiment.run import load_run

    loaded = load_run(run, device)
    decoding = _decoding(loaded.experiment.decoding, beam)
    if sys.stdin is None:
        raise UserError("there is no standard input to translate")
    given = StandardInput()
    lines = iter(given)
    # On a terminal, line by line; from a pipe, 512 lines at a time.
    size = 1 if sys.stdin.isatty() else 512
    while chunk := list(islice(lines, size)):
        for translation in loaded.translate(chunk, decoding):
            sys.stdout.write(translation + "\n")
        sys.stdout.flush()
    if given.problem is not None:
        raise given.problem


@app.command()
def evaluate(
    run: RunFolder,
    test: TestName = "test",
    beam: Annotated[int | None, typer.Option(help="beam size; 1 is greedy")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    explained: Annotated[
        bool, typer.Option("--explain", help="why is this BLEU not the paper's?")
    ] = False,
    device: DeviceOption = "auto",
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
    from transformer_lib.experiment.run import load_run

    if explained and (as_json or beam is not None):
        raise UserError("--explain tries all searches and prints text; leave out --beam and --json")
    loaded = load_run(run, device)
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
    force: Annotated[bool, typer.Option("--force", help="overwrite the report")] = False,
    ratings: Annotated[
        Path | None,
        typer.Option("--rating", metavar="TASK", help="folder of rate make, with ratings in it"),
    ] = None,
    device: DeviceOption = "auto",
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
    from transformer_lib.experiment.run import load_run

    if out.is_dir():
        raise UserError(f"{out} is a folder; give --out a file in it")
    if out.exists() and not force:
        raise UserError(f"{out} is there already; choose another file with --out, or --force")
    human = rating.report_in(ratings) if ratings is not None else None
    comparison = compare_runs(load_run(run_a, device), load_run(run_b, device), test, files, human)
    typer.echo(comparison.as_text())
    comparison.write_html(out)
    typer.echo(f"report: {out}")


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
    from transformer_lib.experiment.run import average_checkpoints

    typer.echo(f"averaged: {average_checkpoints(run, last)}")


class ExportFormat(StrEnum):
    """The toolkits whose formats can be written."""

    ctranslate2 = "ctranslate2"
    huggingface = "huggingface"


@app.command("export")
def export_run(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="folder to write, new or empty")],
    form: Annotated[ExportFormat, typer.Option("--format", help="of which toolkit")],
) -> None:
    """Write a trained Transformer in another toolkit's format.

    \b
    Examples:
      transformer-lib export runs/wmt14_base --format ctranslate2 --out exported
      transformer-lib export runs/wmt14_base --format huggingface --out exported
    """
    from transformer_lib.experiment.run import load_run
    from transformer_lib.export import export

    export(load_run(run, "cpu"), form.value, out)
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
    from transformer_lib.course.lineages.differences import describe

    typer.echo(describe(sentence))


@app.command()
def misconceptions(
    mistake: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="one mistake, e.g. M17")
    ] = None,
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
    from transformer_lib.course.checks import catalogue

    if mistake and exercise:
        raise UserError("give the name of one mistake, or --exercise; not both")
    if markdown:
        typer.echo(catalogue.as_markdown(), nl=False)
    else:
        typer.echo(catalogue.details(mistake) if mistake else catalogue.overview(exercise))


@app.command("progress")
def show_progress(
    folder: Annotated[Path, typer.Argument(help="where the notebooks are, if not here")] = Path(),
) -> None:
    """What you have done of the course's exercises, and what comes next.

    \b
    Examples:
      transformer-lib progress workspace/chapters
    """
    from transformer_lib.course.own import progress
    from transformer_lib.course.own.record import RECORD

    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    if (folder / "chapters" / RECORD).exists() and not (folder / RECORD).exists():
        folder = folder / "chapters"
    typer.echo(repr(progress(folder)))
    if not (folder / RECORD).exists():
        typer.echo(f"({folder.absolute()} has no {RECORD}: are your notebooks there?)", err=True)


app.command("class-list")(grading.class_list)
app.command("deadline")(grading.deadline)
app.command("collect")(grading.collect)
app.command("grade")(grading.grade)
app.command("feedback")(grading.feedback)
app.command("verify-submission")(grading.verify_submission)
app.command("export-grades")(grading.export_grades)
app.command("class-report")(grading.class_report)
app.command("likeness")(grading.likeness)
app.command("second-grading")(grading.second_grading)
app.command("agreement")(grading.agreement)


def main() -> None:
    """Entry point: a user's mistake is one line on standard error and exit code 2."""
    for stream in (sys.stdout, sys.stderr):  # Windows would take an old code page for a pipe
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    warnings.showwarning = lambda message, *rest, **more: print(
        f"warning: {one_line(str(message), 4000)}", file=sys.stderr
    )
    try:
        app()
    except UserError as error:
        print(f"error: {one_line(str(error), 4000)}", file=sys.stderr)
        _leave(2)
    except BrokenPipeError:  # the reader of our output has gone, as in `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # such as a full disk, or a folder that may not be written
        where = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror or error}{where}", file=sys.stderr)
        _leave(2)
    except Exception as error:
        from transformer_lib.device import is_out_of_memory

        if is_out_of_memory(error):
            print(f"error: too little memory: {error}", file=sys.stderr)
            _leave(2)
        if not _trains_with_others():
            raise
        traceback.print_exc()
        _leave(1)


def _leave(status: int) -> NoReturn:
    """End; at once if others train together with this process, which do not know of the error.

    NCCL would wait for them, and they for this one. ``torchrun`` ends them when this one has ended.
    """
    if _trains_with_others():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _trains_with_others() -> bool:
    return os.environ.get("WORLD_SIZE", "1") != "1"


def _decoding(config: "DecodingConfig", beam: int | None) -> "DecodingConfig":
    from transformer_lib.experiment.config import changed

    return config if beam is None else changed(config, beam_size=beam)


class StandardInput:
    """The lines of standard input up to the first that is not UTF-8, which is then ``problem``."""

    problem: UserError | None = None

    def __iter__(self) -> Iterator[str]:
        from transformer_lib.files import decoded

        for number, given in enumerate(sys.stdin.buffer, start=1):
            try:
                yield decoded(given, number)
            except UnicodeDecodeError as error:
                self.problem = UserError(
                    f"standard input, line {number}: not UTF-8 ({error.reason}); the lines before "
                    "it are translated"
                )
                return


def _print_validation(trainer: "Trainer", record: "Record") -> None:
    from tqdm.auto import tqdm

    tqdm.write(
        f"step {record['step']:>6,}  {record['seconds'] / 60:5.1f} min  "
        f"validation loss {record['loss']:.3f}  BLEU {record['bleu']:.1f}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
