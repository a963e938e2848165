"""The one list of dependencies, and what repeats it, agree."""

import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements():
    extras = PROJECT["optional-dependencies"].values()
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    return [Requirement(line) for line in lines]


def locked():
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("python", ["3.11", "3.14"])
def test_the_lock_pins_every_dependency_within_its_range(python):
    here = {"python_version": python, "python_full_version": f"{python}.0"}

    def holds(line):
        return line.marker is None or line.marker.evaluate(here)

    pins = {}
    for pin in locked():
        pins.setdefault(canonicalize_name(pin.name), []).append(pin)
    for requirement in filter(holds, requirements()):
        if requirement.name == PROJECT["name"]:
            continue
        assert canonicalize_name(requirement.name) in pins, requirement
        for pin in filter(holds, pins[canonicalize_name(requirement.name)]):
            (specifier,) = pin.specifier
            assert specifier.operator == "=="
            assert requirement.specifier.contains(Version(specifier.version)), (requirement, pin)


def test_conda_installs_the_same():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    *conda, pip = environment["dependencies"]
    assert conda == ["python" + PROJECT["requires-python"], "pip"]
    assert pip == {"pip": ["-c requirements.lock", "-e .[dev]"]}


def test_readme_names_what_is_supported_and_installed():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (torch,) = (pin for pin in locked() if pin.name == "torch")
    assert f"pip install {torch}" in text
    assert PROJECT["requires-python"] == ">=3.11,<3.15"
    assert "Python 3.11 to 3.14" in text
    assert 'pip install -c requirements.lock -e ".[notebooks]"' in text
    assert '`".[dev]"`' in text


def test_commands_of_the_readme_are_in_the_makefile():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", text):
        assert target in targets


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("transformer_lib.data.bundled", "tatoeba.en-de.tsv.gz"),
        ("transformer_lib.data.bundled", "README.md"),
        ("transformer_lib.experiment.configs", "cpu_tatoeba_transformer.toml"),
        ("transformer_lib.evaluation", "comparison.html"),
        ("transformer_lib.course", "chapters.json"),
        ("transformer_lib.course.trained", "transformer/model.safetensors"),
        ("transformer_lib.course.trained", "rnn/tokenizer.model"),
        ("transformer_lib.course.trained", "language_model/model.safetensors"),
    ],
)
def test_files_travel_with_the_package(package, name):
    """They are there, and the build is told to take them along."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = patterns["tool"]["setuptools"]["package-data"][package]
    assert resources.files(package).joinpath(name).is_file()
    assert any(Path(name).match(pattern) for pattern in patterns)
