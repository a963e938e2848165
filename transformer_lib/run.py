"""A run: the folder in which an experiment was trained, and what can be made of it."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from transformer_lib.config import Experiment, experiment_from_json, experiment_to_json
from transformer_lib.data.prepare import PreparedData, prepare
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.decoding.translate import DecodingConfig, translate
from transformer_lib.device import choose_device, choose_dtype, describe_device
from transformer_lib.errors import UserError
from transformer_lib.files import atomic_path, read_lines, write_text
from transformer_lib.model.rnn import RnnConfig, build_rnn
from transformer_lib.model.seq2seq import Seq2Seq, num_parameters
from transformer_lib.model.transformer import build_transformer
from transformer_lib.training.checkpoint import (
    average,
    checkpoints_in,
    load_model,
    save_model,
)
from transformer_lib.training.cost import measured_flops_per_second
from transformer_lib.training.distributed import joined_workers, was_restarted
from transformer_lib.training.trainer import Record, Trainer

FORMAT = 1


@dataclass(frozen=True)
class Run:
    """A trained model with all that is needed to use it."""

    folder: Path
    experiment: Experiment
    tokenizer: Tokenizer
    model: Seq2Seq
    info: dict[str, object]

    def translate(self, sentences: list[str], decoding: DecodingConfig | None = None) -> list[str]:
        """Translate with the experiment's search settings, or others."""
        return translate(
            self.model,
            self.tokenizer,
            sentences,
            decoding or self.experiment.decoding,
            self.experiment.data.max_len,
        )


def build_model(experiment: Experiment, vocab_size: int) -> Seq2Seq:
    """The experiment's model, initialized from its seed.

    Raises:
        UserError: the sizes do not fit together.
    """
    torch.manual_seed(experiment.seed)
    try:
        if isinstance(experiment.model, RnnConfig):
            return build_rnn(experiment.model, vocab_size)
        return build_transformer(experiment.model, vocab_size)
    except ValueError as error:
        raise UserError(f"{experiment.name}: {error}") from error


def train(
    experiment: Experiment,
    folder: Path,
    files: Path | None = None,
    resume: bool = False,
    on_validation: Callable[[Trainer, Record], None] | None = None,
) -> bool:
    """Prepare the data, train, and leave a run in ``folder``; False if it was interrupted.

    Under ``torchrun`` its processes train together, and after a restart they go on from the last
    checkpoint. All of them must see ``folder``.

    Raises:
        UserError: the folder holds another run, or preparing or training fails.
    """
    model = build_model(experiment, experiment.data.vocab_size)  # wrong sizes show at once
    with joined_workers() as workers:
        with workers.one_at_first():
            data = prepare(experiment.data, files)
        if len(data.tokenizer) != experiment.data.vocab_size:
            model = build_model(experiment, len(data.tokenizer))
        (restarted,) = workers.sum(float(was_restarted()))  # some machines may not know
        if restarted and checkpoints_in(folder):
            resume = True
        if resume:
            _check_same(folder, experiment, data)
        elif workers.is_first:
            _start(folder, experiment, data, model)
        trainer = Trainer(
            model, data, experiment.training, folder, experiment.seed, on_validation, workers
        )
        if resume:
            trainer.resume()
        return trainer.train()


def load_run(folder: Path) -> Run:
    """Open a run to translate with it.

    Raises:
        UserError: the folder is no run, is damaged or of another version, or has no weights yet.
    """
    return _open_run(folder)


def last_weights(run: Run) -> Run | None:
    """The same run with its last checkpoint instead of an average, if that is still there."""
    paths = checkpoints_in(run.folder)
    return _open_run(run.folder, paths[-1]) if paths else None


def _open_run(folder: Path, weights: Path | None = None) -> Run:
    info = _read_info(folder)
    experiment = _read_experiment(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer.model")
    model = build_model(experiment, len(tokenizer))
    load_model(weights or _weights(folder), model)
    model.to(choose_device(experiment.training.device)).eval()
    return Run(folder, experiment, tokenizer, model, info)


def average_checkpoints(folder: Path, last: int) -> Path:
    """Make the mean of the last checkpoints the run's model.

    Raises:
        UserError: there are not that many.
    """
    _read_info(folder)
    paths = checkpoints_in(folder)
    if not 1 <= last <= len(paths):
        raise UserError(
            f"{folder} has {len(paths)} checkpoints, so the last {last} cannot be averaged; "
            "training.keep_checkpoints says how many are kept"
        )
    target = folder / "model.safetensors"
    save_model(target, average(paths[-last:]), {"averaged": [path.name for path in paths[-last:]]})
    return target


def _start(folder: Path, experiment: Experiment, data: PreparedData, model: Seq2Seq) -> None:
    if (folder / "model.safetensors").exists() or checkpoints_in(folder):
        raise UserError(
            f"{folder} already holds a run; continue it with --resume, "
            "or choose another folder with --out"
        )
    device = choose_device(experiment.training.device)
    dtype = choose_dtype(device, experiment.training.precision)
    write_text(folder / "experiment.json", experiment_to_json(experiment))
    (folder / "metrics.jsonl").unlink(missing_ok=True)  # of a run killed before it saved anything
    with atomic_path(folder / "tokenizer.model") as temporary:
        temporary.write_bytes(data.tokenizer.model)
    info = {
        "format": FORMAT,
        "model": experiment.model.kind,
        "parameters": num_parameters(model),
        "device": describe_device(device),
        "precision": str(dtype).removeprefix("torch."),
        "flops_per_second": measured_flops_per_second(device, dtype),
        "data": str(data.folder.name),
        "data_report": data.report,
    }
    write_text(folder / "run.json", json.dumps(info, indent=2))


def _check_same(folder: Path, experiment: Experiment, data: PreparedData) -> None:
    _read_info(folder)
    if Tokenizer.load(folder / "tokenizer.model").model != data.tokenizer.model:
        raise UserError(
            f"{folder} was trained with another vocabulary than {data.folder}; a model cannot "
            "change its vocabulary: resume with the same data settings, or start a new run"
        )
    before, now = asdict(_read_experiment(folder)), asdict(replace(experiment))
    for section, values in before.items():
        if values != now[section]:
            raise UserError(
                f"{folder} was started with {section}={_changed(values, now[section])}; "
                "resume with the same settings, or start a new run with --out"
            )


def _changed(before: object, now: object) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in before if before[key] != now.get(key)]
        return ", ".join(f"{key}: {before[key]}, not {now.get(key)}" for key in keys)
    return f"{before}, not {now}"


def _weights(folder: Path) -> Path:
    model = folder / "model.safetensors"
    if model.exists():
        return model
    if checkpoints := checkpoints_in(folder):
        return checkpoints[-1]
    raise UserError(f"{folder} has no weights yet; train it (or continue with --resume) first")


def _read_info(folder: Path) -> dict[str, object]:
    path = folder / "run.json"
    if not path.exists():
        raise UserError(
            f"{folder} is no run: it has no run.json; make one with transformer-lib train"
        )
    try:
        info = json.loads("\n".join(read_lines(path)))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise UserError(
            f"{folder} was written by another version of this library (format "
            f"{info.get('format') if isinstance(info, dict) else '?'}, this one reads {FORMAT})"
        )
    return info


def _read_experiment(folder: Path) -> Experiment:
    path = folder / "experiment.json"
    return experiment_from_json("\n".join(read_lines(path)), str(path))
