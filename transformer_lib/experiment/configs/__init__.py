"""The experiments that come with the library, one TOML file each."""

from importlib import resources
from pathlib import Path


def named_configs() -> list[str]:
    """Their names."""
    folder = resources.files(__name__)
    return sorted(Path(f.name).stem for f in folder.iterdir() if f.name.endswith(".toml"))


def read_config(name: str) -> str:
    """The TOML text of the experiment of this name."""
    return (resources.files(__name__) / f"{name}.toml").read_text(encoding="utf-8")
