"""Trained models in the formats of other toolkits, for those who want to use them elsewhere."""

from pathlib import Path

from transformer_lib.errors import UserError, require
from transformer_lib.experiment.run import Run
from transformer_lib.files import must_be_new, new_folder
from transformer_lib.training.checkpoint import disk_errors

FORMATS = ("ctranslate2", "huggingface")


def export(run: Run, form: str, folder: Path) -> None:
    """Write the run's model and vocabulary into ``folder``, which must not hold anything yet.

    Raises:
        UserError: the format has no place for this architecture, its package is missing, or the
            folder is not empty or cannot be written.
    """
    if form not in FORMATS:
        raise UserError(f"no format {form!r}; there are {', '.join(FORMATS)}")
    must_be_new(folder)
    if form == "ctranslate2":
        require("ctranslate2", "export")
        from transformer_lib.export.ctranslate2 import write
    else:
        require("transformers", "export")
        from transformer_lib.export.huggingface import write
    with new_folder(folder) as temporary, disk_errors():
        write(run, temporary)
