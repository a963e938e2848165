"""An experiment: data, model, training and decoding, read from TOML and checked strictly."""

import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import pydantic
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from transformer_lib.data.config import DataConfig
from transformer_lib.decoding.translation import DecodingConfig
from transformer_lib.errors import UserError, did_you_mean, problem_message
from transformer_lib.experiment.configs import named_configs, read_config
from transformer_lib.model.positional_encoding import LEARNED_POSITIONS
from transformer_lib.model.rnn import RNNConfig
from transformer_lib.model.transformer import TransformerConfig
from transformer_lib.training.config import TrainingConfig

ModelConfig = Annotated[TransformerConfig | RNNConfig, Field(discriminator="kind")]
Settings = TypeVar("Settings", TrainingConfig, DecodingConfig)
MODELS: dict[str, type] = {"transformer": TransformerConfig, "rnn": RNNConfig}

LAPTOP = TransformerConfig(
    d_model=192, d_ff=512, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, norm="pre"
)
"""The model of an experiment that names none: two CPU cores train it within minutes."""

CONFIG_OF_CORPUS = {
    "tatoeba": "cpu_tatoeba_transformer",
    "multi30k": "cpu_multi30k_transformer",
    "wmt14": "wmt14_base",
    "wmt14_mirror": "wmt14_base",
    "files": "cpu_tatoeba_transformer",
}
"""The configuration whose ``[data]`` section is used where only a corpus is named."""

SCHEDULE_OF = {
    "training.learning_rate": "budget",
    "training.warmup_share": "budget",
    "training.warmup_steps": "noam",
}
"""The schedule that each of these settings belongs to."""

LENGTHS = {"steps", "minutes"}  # of training, of which one is given
LOW, HIGH = (("ge", "≤"), ("gt", "<")), (("le", "≤"), ("lt", "<"))
"""The limits of a setting by their names in pydantic, with their signs."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Experiment:
    """Everything that decides what a run computes."""

    name: Annotated[
        str, Field(pattern=r"^[^/\\\x00._][^/\\\x00]*$", description="of its folder in runs")
    ]
    training: TrainingConfig
    seed: Annotated[
        int, Field(ge=0, lt=2**32, description="of the weights, the batches and dropout")
    ] = 1
    data: DataConfig = Field(default_factory=DataConfig)
    model: ModelConfig = LAPTOP
    decoding: DecodingConfig = Field(default_factory=DecodingConfig)

    def __post_init__(self) -> None:
        is_rnn = isinstance(self.model, RNNConfig)
        if self.training.row_tokens is not None and is_rnn:
            raise ValueError(
                "training.row_tokens puts several pairs into a row, which an RNN cannot tell apart"
            )
        if self.training.muon_rate is not None and is_rnn:
            raise ValueError("training.muon_rate is for the matrices of a Transformer's layers")
        if self.training.counted_start and (is_rnn or self.model.tied_embeddings == "all"):
            raise ValueError(
                "training.counted_start needs a Transformer with a table for each language: "
                "model.tied_embeddings none or output"
            )
        learned = isinstance(self.model, TransformerConfig) and self.model.positions == "learned"
        if learned and self.data.max_len > LEARNED_POSITIONS:
            raise ValueError(
                f"data.max_len={self.data.max_len} is too long: model.positions=learned has "
                f"{LEARNED_POSITIONS}; choose a smaller data.max_len, or other positions"
            )


_EXPERIMENT = pydantic.TypeAdapter(Experiment)


def load_config(name_or_path: str, overrides: Sequence[str] = ()) -> Experiment:
    """A named experiment or a TOML file, with ``key.sub=value`` overrides.

    Raises:
        UserError: no such configuration, an unknown key, a value of the wrong type or out of range.
    """
    path = Path(name_or_path)
    if name_or_path in named_configs():
        text, name = read_config(name_or_path), name_or_path
    elif path.suffix == ".toml" and path.is_file():
        text, name = _read(path), path.stem
    else:
        raise UserError(
            f"no configuration {name_or_path!r}: it is neither a .toml file nor a named one; "
            + did_you_mean(name_or_path, [*named_configs(), *map(str, path.parent.glob("*.toml"))])
        )
    try:
        values = {"name": name, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name_or_path} is not valid TOML: {error}") from error
    return _overridden(values, overrides, name_or_path)


def with_overrides(experiment: Experiment, overrides: Sequence[str], origin: str) -> Experiment:
    """A changed experiment; ``overrides`` and what is raised are as in :func:`load_config`."""
    values = json.loads(experiment_to_json(experiment))
    return _overridden(values, overrides, origin)


def changed(settings: Settings, **changes: Any) -> Settings:
    """A section of an experiment with other values.

    Raises:
        UserError: they are out of range.
    """
    try:
        return replace(settings, **changes)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        where, message = ".".join(map(str, problem["loc"])), problem_message(problem)
        raise UserError(f"{where}={problem['input']}: {message}" if where else message) from error


def load_data_config(corpus: str, overrides: Sequence[str] = ()) -> DataConfig:
    """As the course's configurations take a corpus, with ``data.key=value`` overrides."""
    values = {"name": corpus, **tomllib.loads(read_config(CONFIG_OF_CORPUS[corpus]))}
    values["data"]["corpus"] = corpus
    return _overridden(values, overrides, corpus).data


def experiment_to_json(experiment: Experiment) -> str:
    """The whole configuration, defaults included."""
    return _EXPERIMENT.dump_json(experiment, indent=2).decode()


def experiment_from_json(text: str, origin: str) -> Experiment:
    """What :func:`experiment_to_json` wrote.

    Raises:
        UserError: it is damaged or of another version of this library.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{origin} is damaged: {error}") from error
    return _validate(values, origin)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"cannot read {path}: {reason}") from error


def _validate(values: Any, origin: str) -> Experiment:
    try:
        # By way of JSON, in which an array may become a tuple; TOML's dates become text.
        return _EXPERIMENT.validate_json(json.dumps(values, default=str))
    except pydantic.ValidationError as error:
        raise UserError(f"{origin}: {_explain(error.errors()[0])}") from error
    except RecursionError as error:
        raise UserError(f"{origin} is nested too deeply") from error


def _explain(problem: Any) -> str:
    """One line: where, what was given, what is allowed."""
    place = [x for x in problem["loc"] if x not in MODELS]
    where = ".".join(map(str, place))
    given = f"={json.dumps(problem['input'])}" if _is_short(problem["input"]) else ""
    match problem["type"]:
        case "unexpected_keyword_argument":
            section = _section(problem["loc"][:-1])
            keys = [key.name for key in fields(section)] if section else []
            if section is Experiment and (sections := _sections_with(where)):
                return f"there is no key {where}; did you mean {' or '.join(sections)}?"
            return f"there is no key {where}; {did_you_mean(str(place[-1]), keys)}"
        case "union_tag_not_found" | "union_tag_invalid":
            return f'{where} needs a kind: kind = "transformer" or kind = "rnn"'
        case "string_pattern_mismatch" if where == "name":
            return f"{where}{given}: it names a folder, so no slash, and no dot or underscore first"
        case "string_pattern_mismatch":  # of a device
            return f"{where}{given}: it is auto, cpu, cuda, cuda:N or mps"
        case "missing" if place and isinstance(place[-1], int):
            example = '["a.en", "a.de"]' if place[0] == "data" else "[0.9, 0.98]"
            return f"{'.'.join(map(str, place[:-1]))} needs two values, as in {example}"
        case "missing":
            return f"{where} is missing"
    message = problem_message(problem)
    return f"{where}{given}: {message}{_range(problem['loc'])}" if where else message


def _is_short(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and len(value) <= 60)


def _section(place: Sequence[int | str]) -> type | None:
    """The dataclass of the settings there."""
    section: Any = Experiment
    for name in place:
        section = MODELS.get(str(name)) or get_type_hints(section).get(str(name))
    return section if isinstance(section, type) and is_dataclass(section) else None


def _sections_with(key: str) -> list[str]:
    """The full names of the settings that have this short one."""
    kinds: list[tuple[str, type]] = [("model", kind) for kind in MODELS.values()]
    kinds += [("data", DataConfig), ("training", TrainingConfig), ("decoding", DecodingConfig)]
    found = [f"{section}.{key}" for section, kind in kinds if key in {x.name for x in fields(kind)}]
    return list(dict.fromkeys(found))


def _range(place: Sequence[int | str]) -> str:
    """What is allowed there, where both ends are limited."""
    if not place:
        return ""
    section = _section(place[:-1])
    hints = get_type_hints(section, include_extras=True) if section else {}
    bounds = dict(_bounds(hints.get(str(place[-1]))))
    low = next((f"{bounds[key]:,} {sign} " for key, sign in LOW if key in bounds), "")
    high = next((f" {sign} {bounds[key]:,}" for key, sign in HIGH if key in bounds), "")
    return f"; allowed: {low}{place[-1]}{high}" if low and high else ""


def _bounds(hint: Any) -> Iterator[tuple[str, float]]:
    """The limits in a type annotation, however deep."""
    for part in get_args(hint):
        if isinstance(part, FieldInfo):
            for limit in part.metadata:
                yield from ((k, getattr(limit, k)) for k, _ in (*LOW, *HIGH) if hasattr(limit, k))
        else:
            yield from _bounds(part)


def _overridden(values: dict[str, Any], overrides: Sequence[str], origin: str) -> Experiment:
    experiment = _validate(_with_overrides(values, overrides), origin)
    schedule = experiment.training.schedule
    for key in _keys(overrides) & SCHEDULE_OF.keys():
        if SCHEDULE_OF[key] != schedule:
            raise UserError(
                f"--set {key}: it has no effect with training.schedule={schedule}, which {origin} "
                f"has; leave it out, or set training.schedule={SCHEDULE_OF[key]} as well"
            )
    return experiment


def _keys(overrides: Sequence[str]) -> set[str]:
    return {override.partition("=")[0].strip() for override in overrides}


def _with_overrides(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    given = _keys(overrides)
    of_model = any(key.startswith("model.") for key in given) and "model.kind" not in given
    if of_model and "model" not in values:
        values["model"] = asdict(LAPTOP)  # the default model, in which that setting is changed
    for override in overrides:
        _set(values, override)
    # One length of training replaces the other.
    lengths = {key for key in LENGTHS if f"training.{key}" in given}
    if len(lengths) == 1 and isinstance(values.get("training"), dict):
        (other,) = LENGTHS - lengths
        values["training"].pop(other, None)
    return values


def _set(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    *sections, last = key.strip().split(".")
    if not equals or not last:
        raise UserError(f"--set {override}: write it as key=value, for example training.steps=100")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError, RecursionError):
        value = text  # a bare word is a string
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise UserError(f"--set {override}: {section} is a value, not a section")
    values[last] = value
