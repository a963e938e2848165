"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

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
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps")]
