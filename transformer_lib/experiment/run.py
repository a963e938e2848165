"""A run: the folder in which an experiment was trained, and what can be made of it."""

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from dataclasses import dataclass as plain_dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pydantic
from pydantic.dataclasses import dataclass

from transformer_lib.data.corpora import with_absolute_paths
from transformer_lib.data.preparation import PreparedData, describe, prepare
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.decoding.translation import DecodingConfig, translate
from transformer_lib.device import choose_device, choose_dtype, describe_device
from transformer_lib.errors import UserError, first_problem
from transformer_lib.experiment.config import (
    Experiment,
    experiment_from_json,
    experiment_to_json,
)
from transformer_lib.experiment.validation import validate
from transformer_lib.files import atomic_path, claimed, read_text, write_text
from transformer_lib.model.rnn import RNNConfig, build_rnn
from transformer_lib.model.seq2seq import Seq2Seq, num_parameters
from transformer_lib.model.transformer import Transformer, build_transformer
from transformer_lib.randomness import seeded
from transformer_lib.training.checkpoint import (
    average,
    checkpoints_in,
    load_model,
    read_progress,
    save_model,
    step_of,
)
from transformer_lib.training.cost import measured_flops_per_second
from transformer_lib.training.counted_start import start_from_counts
from transformer_lib.training.distributed import joined_workers
from transformer_lib.training.metrics import Record, read_metrics
from transformer_lib.training.trainer import Trainer

FORMAT = 2
KINDS = {"transformer": "a Transformer", "rnn": "an RNN"}


@dataclass(frozen=True)
class Hardware:
    """What a run was trained on.

    Args:
        device: as :func:`~transformer_lib.device.describe_device` names it.
        devices: how many of them trained it together.
        flops_per_second: what one of them sustains on a large matrix product.
        since: the second of training from which on it was this.
    """

    device: str
    devices: int
    precision: str
    flops_per_second: float
    since: float = 0.0


@dataclass(frozen=True)
class RunInfo:
    """What a run says about itself in ``run.json``.

    Args:
        format: of the folder; another version of this library may write another one.
        device: with the three after it, what it began on; see :class:`Hardware`.
        data: name of the folder of prepared data; ``data_report`` says what cleaning did.
        later: where it went on, if that was other hardware.
    """

    format: int
    model: str
    parameters: int
    device: str
    devices: int
    precision: str
    flops_per_second: float
    data: str
    data_report: dict[str, int]
    later: tuple[Hardware, ...] = ()

    @property
    def hardware(self) -> list[Hardware]:
        """What it was trained on, one after another."""
        began = Hardware(self.device, self.devices, self.precision, self.flops_per_second)
        return [began, *self.later]


_INFO = pydantic.TypeAdapter(RunInfo)


@plain_dataclass(frozen=True)
class Run:
    """A trained model with all that is needed to use it."""

    folder: Path
    experiment: Experiment
    tokenizer: Tokenizer
    model: Seq2Seq
    info: RunInfo

    def translate(self, sentences: list[str], decoding: DecodingConfig | None = None) -> list[str]:
        """Translate with the experiment's search settings, or others."""
        longest = self.experiment.data.max_len
        if self.experiment.training.row_tokens is not None:
            longest = min(longest, self.experiment.training.row_tokens)
        return translate(
            self.model,
            self.tokenizer,
            sentences,
            decoding or self.experiment.decoding,
            max(1, longest - 1),  # without the </s>, which counts in training
        )


def build_model(experiment: Experiment, vocab_size: int) -> Seq2Seq:
    """The experiment's model, initialized from its seed.

    Raises:
        UserError: the sizes do not fit together.
    """
    try:
        with seeded(experiment.seed):
            if isinstance(experiment.model, RNNConfig):
                return build_rnn(experiment.model, vocab_size)
            return build_transformer(experiment.model, vocab_size)
    except ValueError as error:
        raise UserError(f"{experiment.name}: {error}") from error


def train(
    experiment: Experiment,
    folder: Path | str,
    files: Path | None = None,
    resume: bool = False,
    on_validation: Callable[[Trainer, Record], None] | None = None,
    announce: Callable[[str], None] | None = None,
) -> bool:
    """Prepare the data, train, and leave a run in ``folder``; False if it was interrupted.

    Under ``torchrun`` its processes train together, and after a restart they go on from the last
    checkpoint. All of them must see ``folder``. PyTorch's global random numbers are those of the
    last step afterwards.

    Args:
        resume: go on with the run in ``folder``; ``experiment`` may differ from it in the device
            and in the length of training only.
        announce: called before anything takes long, with a line that says what is trained on what,
            and with one that says what was left out of the text.

    Raises:
        UserError: the folder holds another run, or another process is training into it; preparing
            or training fails.
    """
    folder = Path(folder)
    device = choose_device(experiment.training.device)
    if experiment.data.corpus == "files":
        experiment = replace(experiment, data=with_absolute_paths(experiment.data, files))
        files = None
    model = build_model(experiment, experiment.data.vocab_size)  # wrong sizes show at once
    with (
        joined_workers(device) as workers,
        claimed(folder) if workers.is_first else nullcontext(),
    ):
        if resume:
            _read_info(folder)
        ours = f"training into {folder.resolve()}"
        was_restarted = workers.has_noted(ours)  # by torchrun, one of whose processes had died
        if not resume and not was_restarted and workers.is_first:
            _check_free(folder)
            workers.note(ours)

        def say(line: str) -> None:
            if announce is not None and workers.is_first:
                announce(line)

        line = describe_training(experiment, model, folder, workers.count)
        say(f"{line}, which goes on with the settings stored there" if resume else line)
        with workers.main_process_first():
            data = prepare(experiment.data, files)
        vocabulary = sha256(data.tokenizer.model).hexdigest()[:16]
        workers.check_alike("the text", f"{data.folder.name}, vocabulary {vocabulary}")
        say(f"{experiment.data.corpus}: {describe(data.report)}")
        if len(data.tokenizer) != experiment.data.vocab_size:
            model = build_model(experiment, len(data.tokenizer))
        if was_restarted and checkpoints_in(folder):
            resume = True
        if resume:
            _check_same(folder, experiment, data)
        elif workers.is_first:
            _start(folder, experiment, data, model, workers.count)
        trainer = Trainer(
            model,
            data.train,
            experiment.training,
            folder,
            experiment.seed,
            partial(validate, model, data, experiment.training),
            on_validation,
            workers,
        )
        if resume:
            trainer.resume()
            done, wanted = trainer.progress.step, experiment.training.steps
            if wanted is not None and done > wanted:
                raise UserError(f"{folder} has {done:,} steps already, more than {wanted:,}")
        elif experiment.training.counted_start:
            assert isinstance(model, Transformer)  # an Experiment sees to that
            start_from_counts(model, data.train, experiment.seed)
        if resume and workers.is_first:  # now that it can go on
            write_text(folder / "experiment.json", experiment_to_json(experiment))
            _note_hardware(folder, experiment, workers.count, trainer.progress.seconds)
        return trainer.train()


def describe_training(experiment: Experiment, model: Seq2Seq, folder: Path, processes: int) -> str:
    """What is trained, where, on what, for how long, in one line."""
    training, hardware = experiment.training, _hardware(experiment, processes)
    if training.steps is None:
        length = f"{training.minutes:g} minutes"
    else:
        length = f"{training.steps:,} step" + "s" * (training.steps != 1)
    together = f"{processes} × " if processes > 1 else ""
    return (
        f"{experiment.name}: {KINDS[experiment.model.kind]} of {num_parameters(model) / 1e6:.1f} M "
        f"parameters on {together}{hardware['device']} in {hardware['precision']}, on the text "
        f"{experiment.data.corpus}, for {length}; into {folder}"
    )


def load_run(folder: Path | str, device: str = "auto", weights: Path | None = None) -> Run:
    """Open a run to translate with it, on any device, whichever it was trained on.

    Args:
        weights: a checkpoint; by default what training ended with.

    Raises:
        UserError: the folder is not a run, is damaged or of another version, or has no weights yet;
            or there is no such device.
    """
    folder = Path(folder)
    info = _read_info(folder)
    experiment = _read_experiment(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer.model")
    model = build_model(experiment, len(tokenizer))
    load_model(weights or _weights(folder), model)
    model.to(choose_device(device)).eval()
    return Run(folder, experiment, tokenizer, model, info)


def last_weights(run: Run) -> Run | None:
    """The same run with its last checkpoint instead of an average, if that is still there."""
    paths = checkpoints_in(run.folder)
    device = str(run.model.output_weight.device)
    return load_run(run.folder, device, paths[-1]) if paths else None


def averaged_checkpoints(run: Run) -> int:
    """The number of checkpoints that the run's weights are the mean of."""
    return int(read_progress(_weights(run.folder)).get("averaged", 1))


def training_progress(run: Run) -> Record:
    """Step, seconds, tokens and FLOPs of the weights in use: at the end, or as far as it came.

    Raises:
        UserError: the run has neither metrics nor checkpoints any more.
    """
    paths, of_weights = checkpoints_in(run.folder), read_progress(_weights(run.folder))
    last = of_weights.get("step", math.inf)
    records = [record for record in read_metrics(run.folder) if record["step"] <= last]
    if paths and (not records or step_of(paths[-1]) > records[-1]["step"]):  # it was interrupted
        progress = read_progress(paths[-1])
        return {**progress, "tokens": progress["src_tokens"] + progress["tgt_tokens"]}
    if records:
        return records[-1]
    raise UserError(f"{run.folder} does not say how long it was trained: it has no metrics.jsonl")


def average_checkpoints(folder: Path, last: int) -> Path:
    """Make the mean of the last checkpoints the run's model.

    Raises:
        UserError: there are not that many.
    """
    _read_info(folder)
    paths = checkpoints_in(folder)
    if not 1 <= last <= len(paths):
        raise UserError(
            f"{folder} has {len(paths)} checkpoints, so the last {last} cannot be averaged; give a "
            f"number from 1 to {len(paths)} (training.keep_checkpoints says how many are kept)"
        )
    target = folder / "model.safetensors"
    save_model(target, average(paths[-last:]), last, step_of(paths[-1]))
    return target


def _check_free(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; choose a folder with --out")
    if (folder / "model.safetensors").exists() or checkpoints_in(folder):
        raise UserError(
            f"{folder} already holds a run; continue it with --resume, "
            "or choose another folder with --out"
        )


def _start(
    folder: Path, experiment: Experiment, data: PreparedData, model: Seq2Seq, devices: int
) -> None:
    with atomic_path(folder / "tokenizer.model") as temporary:
        temporary.write_bytes(data.tokenizer.model)
    (folder / "metrics.jsonl").unlink(missing_ok=True)  # of a run killed before it saved anything
    info = RunInfo(
        format=FORMAT,
        model=experiment.model.kind,
        parameters=num_parameters(model),
        **_hardware(experiment, devices),
        flops_per_second=_measured_rate(experiment),
        data=data.folder.name,
        data_report=data.report,
    )
    write_text(folder / "run.json", _INFO.dump_json(info, indent=2).decode())
    write_text(folder / "experiment.json", experiment_to_json(experiment))


def _hardware(experiment: Experiment, devices: int) -> dict[str, Any]:
    """What is at hand, by the names of :class:`Hardware`."""
    device = choose_device(experiment.training.device)
    dtype = choose_dtype(device, experiment.training.precision)
    precision = str(dtype).removeprefix("torch.")
    return {"device": describe_device(device), "devices": devices, "precision": precision}


def _measured_rate(experiment: Experiment) -> float:
    device = choose_device(experiment.training.device)
    return measured_flops_per_second(device, choose_dtype(device, experiment.training.precision))


def _note_hardware(folder: Path, experiment: Experiment, devices: int, seconds: float) -> None:
    """Write down that a run goes on elsewhere, for its cost; what is done again does not count."""
    info = _read_info(folder)
    later = [part for part in info.later if part.since < seconds]
    last = replace(info, later=tuple(later)).hardware[-1]
    now = _hardware(experiment, devices)
    if any(getattr(last, name) != value for name, value in now.items()):
        later.append(Hardware(**now, flops_per_second=_measured_rate(experiment), since=seconds))
    if tuple(later) != info.later:
        info = replace(info, later=tuple(later))
        write_text(folder / "run.json", _INFO.dump_json(info, indent=2).decode())


def _check_same(folder: Path, experiment: Experiment, data: PreparedData) -> None:
    before, now = asdict(_read_experiment(folder)), asdict(experiment)
    for changeable in ("device", "steps", "minutes"):
        before["training"][changeable] = now["training"][changeable]
    for files in ("train", "valid", "test"):  # they count by what is in them, wherever they are
        before["data"][files] = now["data"][files]
    for section, values in before.items():
        if values != now[section]:
            raise UserError(
                f"{folder} was started with {section}={_changed(values, now[section])}; "
                "resume with the same settings, or start a new run with --out"
            )
    if experiment.data.corpus == "files" and _read_info(folder).data != data.folder.name:
        raise UserError(
            f"{folder} was trained on another text, its files have changed since; start a new run "
            "with --out"
        )
    if Tokenizer.load(folder / "tokenizer.model").model != data.tokenizer.model:
        raise UserError(
            f"{folder} was trained with another vocabulary than {data.folder}; a model cannot "
            "change its vocabulary: resume with the same data settings, or start a new run"
        )


def _changed(before: object, now: object) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in before if before[key] != now.get(key)]
        return ", ".join(f"{key}: {before[key]}, not {now.get(key)}" for key in keys)
    return f"{before}, not {now}"


def _weights(folder: Path) -> Path:
    """The finished model, or the last checkpoint of a training that is not finished, or goes on."""
    model, checkpoints = folder / "model.safetensors", checkpoints_in(folder)
    finished = read_progress(model).get("step", math.inf) if model.exists() else -1
    if checkpoints and step_of(checkpoints[-1]) > finished:
        return checkpoints[-1]
    if model.exists():
        return model
    raise UserError(f"{folder} has no weights yet; train it (or continue with --resume) first")


def _read_info(folder: Path) -> RunInfo:
    path = folder / "run.json"
    if not path.exists():
        raise UserError(
            f"{folder} is not a run: it has no run.json; make one with transformer-lib train"
        )
    try:
        values = json.loads(read_text(path))
        version = values.get("format") if isinstance(values, dict) else None
        if version != FORMAT:
            raise UserError(
                f"{folder} was written by another version of this library (format {version}, this "
                f"one reads {FORMAT}); train it again"
            )
        return _INFO.validate_python(values)
    except pydantic.ValidationError as error:
        raise UserError(f"{path} is damaged: {first_problem(error)}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {str(error).splitlines()[0]}") from error


def read_experiment(folder: Path) -> Experiment:
    """The experiment that a run was started with.

    Raises:
        UserError: the folder is not a run, or is damaged.
    """
    _read_info(folder)
    return _read_experiment(folder)


def _read_experiment(folder: Path) -> Experiment:
    path = folder / "experiment.json"
    return experiment_from_json(read_text(path), str(path))
