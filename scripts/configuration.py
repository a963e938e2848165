"""Write docs/configuration.md: every setting of an experiment, from the dataclasses themselves."""

import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo

from transformer_lib.data.config import DataConfig
from transformer_lib.decoding.translation import DecodingConfig
from transformer_lib.experiment.config import LAPTOP, Experiment
from transformer_lib.experiment.configs import named_configs
from transformer_lib.files import write_text
from transformer_lib.model.rnn import RNNConfig
from transformer_lib.model.transformer import TransformerConfig
from transformer_lib.training.config import TrainingConfig

TARGET = Path(__file__).parent.parent / "docs" / "configuration.md"
SECTIONS: dict[str, tuple[type, str]] = {
    "[data]": (DataConfig, "The text."),
    '[model], kind = "transformer"': (
        TransformerConfig,
        "Without the section: d_model {0.d_model}, d_ff {0.d_ff}, {0.num_heads} heads, "
        '{0.num_encoder_layers} + {0.num_decoder_layers} layers, `norm = "{0.norm}"`, which fits '
        "a laptop. With it, the defaults are the paper's base model.",
    ),
    '[model], kind = "rnn"': (RNNConfig, "An LSTM with attention."),
    "[training]": (TrainingConfig, "How the model is trained. Give `steps` or `minutes`."),
    "[decoding]": (DecodingConfig, "How translations are searched."),
}


def as_markdown() -> str:
    """The page."""
    lines = [
        "# Every setting of an experiment",
        "",
        "An experiment is a TOML file, or one of those that come with the library: "
        + ", ".join(f"`{name}`" for name in named_configs())
        + " (their texts are in `transformer_lib/experiment/configs`). What a file does not say "
        "has the default below; `--set SECTION.KEY=VALUE` changes one setting on the command line. "
        f"The keys `seed` ({description(Experiment, 'seed')}; default 1) and `name` (by default "
        "that of the file) stand above all sections.",
        "",
        "This page is made from the code by `make docs`.",
    ]
    for title, (section, text) in SECTIONS.items():
        lines += ["", f"## `{title}`", "", text.format(LAPTOP), ""]
        lines += ["| key | type | default | allowed | what it is |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(row(section, key))} |" for key in fields(section)]  # type: ignore
    return "\n".join(lines) + "\n"


def row(section: type, key: Field[Any]) -> tuple[str, ...]:
    hint = get_type_hints(section, include_extras=True)[key.name]
    if key.name == "kind":
        default = "none: it must be given"
    else:
        default = "" if key.default is MISSING else shown(key.default)
    what = description(section, key.name) or "which model this is"
    return f"`{key.name}`", kind(hint), default, allowed(hint), what


def shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"`[{', '.join(str(part) for part in value)}]`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value is None:
        return ""
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def infos(hint: Any) -> Iterator[FieldInfo]:
    for part in get_args(hint):
        if isinstance(part, FieldInfo):
            yield part
        else:
            yield from infos(part)


def description(section: type, name: str) -> str:
    hint = get_type_hints(section, include_extras=True)[name]
    return next((info.description for info in infos(hint) if info.description), "")


def types(hint: Any) -> Iterator[Any]:
    origin = get_origin(hint)
    if origin is Literal or origin is tuple or not get_args(hint):
        yield hint
    else:
        for part in get_args(hint)[: 1 if hasattr(hint, "__metadata__") else None]:
            yield from types(part)


def kind(hint: Any) -> str:
    (only,) = {part for part in types(hint) if part is not type(None)}
    if get_origin(only) is Literal:
        return "text"
    if get_origin(only) is tuple:
        return f"two {'paths' if str in get_args(only) else 'numbers'}"
    return {int: "whole number", float: "number", str: "text", bool: "true or false"}[only]


def allowed(hint: Any) -> str:
    (only,) = {part for part in types(hint) if part is not type(None)}
    if get_origin(only) is Literal:
        return ", ".join(f'`"{choice}"`' for choice in get_args(only))
    signs = {"ge": "≥ {}", "gt": "> {}", "le": "≤ {}", "lt": "< {}"}
    found = {
        sign.format(f"{getattr(limit, name):,}"): None
        for info in infos(hint)
        for limit in info.metadata
        for name, sign in signs.items()
        if hasattr(limit, name)
    }
    return ", ".join(found)


if __name__ == "__main__":
    write_text(TARGET, as_markdown())
    print(TARGET, file=sys.stderr)
