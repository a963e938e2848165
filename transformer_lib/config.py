"""An experiment: data, model, training and decoding, read from TOML and checked strictly."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import pydantic

from transformer_lib.data.corpora import DataConfig
from transformer_lib.decoding.translate import DecodingConfig
from transformer_lib.errors import UserError
from transformer_lib.model.rnn import RnnConfig
from transformer_lib.model.transformer import TransformerConfig
from transformer_lib.training.trainer import TrainingConfig

ModelConfig = Annotated[TransformerConfig | RnnConfig, pydantic.Field(discriminator="kind")]


@dataclass(frozen=True)
class Experiment:
    """Everything that decides what a run computes."""

    name: str
    training: TrainingConfig
    seed: int = 1
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=TransformerConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)


for _config in (
    Experiment,
    TrainingConfig,
    DataConfig,
    TransformerConfig,
    RnnConfig,
    DecodingConfig,
):
    _config.__pydantic_config__ = pydantic.ConfigDict(extra="forbid")  # type: ignore[union-attr]
_EXPERIMENT = pydantic.TypeAdapter(Experiment)


def named_configs() -> list[str]:
    """Names of the experiments that come with the library."""
    folder = resources.files("transformer_lib.configs")
    return sorted(Path(f.name).stem for f in folder.iterdir() if f.name.endswith(".toml"))


def load_config(name_or_path: str, overrides: Sequence[str] = ()) -> Experiment:
    """A named experiment or a TOML file, with ``key.sub=value`` overrides.

    Raises:
        UserError: no such configuration, an unknown key, a value of the wrong type or out of range.
    """
    path = Path(name_or_path)
    if name_or_path in named_configs():
        text = (resources.files("transformer_lib.configs") / f"{name_or_path}.toml").read_text()
        name = name_or_path
    elif path.suffix == ".toml" and path.is_file():
        text, name = path.read_text(encoding="utf-8"), path.stem
    else:
        raise UserError(
            f"no configuration {name_or_path!r}: neither a .toml file nor one of "
            + ", ".join(named_configs())
        )
    try:
        values = {"name": name, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name_or_path} is not valid TOML: {error}") from error
    for override in overrides:
        _set(values, override)
    return _validate(values, name_or_path)


def load_data_config(corpus: str, overrides: Sequence[str] = ()) -> DataConfig:
    """The default settings of a corpus, with ``data.key=value`` overrides."""
    values: dict[str, Any] = {"name": corpus, "data": {"corpus": corpus}, "training": {"steps": 1}}
    for override in overrides:
        _set(values, override)
    return _validate(values, corpus).data


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
    except ValueError as error:
        raise UserError(f"{origin} is damaged: {error}") from error
    return _validate(values, origin)


def _validate(values: Any, origin: str) -> Experiment:
    try:
        # From JSON, because a TOML array is to become a tuple; strictly, because "3" is no number.
        return _EXPERIMENT.validate_json(json.dumps(values), strict=True)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(x) for x in problem["loc"] if x not in ("transformer", "rnn"))
        if problem["type"] == "unexpected_keyword_argument":
            message = "there is no such key"
        else:
            message = problem["msg"].removeprefix("Value error, ")
        raise UserError(f"{origin}: {where + ': ' if where else ''}{message}") from error


def _set(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    *sections, last = key.strip().split(".")
    if not equals or not last:
        raise UserError(f"--set {override}: write it as key=value, for example training.steps=100")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise UserError(f"--set {override}: {section} is a value, not a section")
    values[last] = value
