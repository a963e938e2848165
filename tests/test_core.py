"""What docs/gpu.md installs, the core without any extra, is enough for all that it names."""

import json
import re
import subprocess
import sys
from importlib import metadata
from importlib.resources import files
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def core_distributions():
    """The names of what the core needs, and of what that needs."""
    found, left = set(), ["transformer-lib"]
    while left:
        name = canonicalize_name(left.pop())
        if name in found:
            continue
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another system, or not needed here
            continue
        found.add(name)
        for line in needs:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                left.append(need.name)
    return found


def blocked_modules():
    import setuptools  # which brings copies of some packages that it needs

    core = core_distributions()
    vendored = {path.stem for path in (Path(setuptools.__file__).parent / "_vendor").iterdir()}
    owners = metadata.packages_distributions()
    return sorted(
        module
        for module, distributions in owners.items()
        if not {canonicalize_name(d) for d in distributions} & core
        and not module.startswith("_")
        and module not in vendored
    )


BLOCK = '''
import sys

class Without:
    """A finder that does not find what is blocked."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in BLOCKED:
            return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
'''


def run_in_core(program, *arguments):
    program = f"BLOCKED = {set(blocked_modules())!r}\n{BLOCK}\n{program}"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True
    )


TRAINED = files("transformer_lib.course.trained") / "transformer"
CLI = "from transformer_lib.cli import main; main()"


def test_every_module_of_the_toolkit_and_of_the_course_can_be_imported():
    program = """
import importlib, pkgutil, transformer_lib
for info in pkgutil.walk_packages(transformer_lib.__path__, "transformer_lib."):
    if not info.name.startswith(("transformer_lib.instructor", "transformer_lib.export.")):
        if not info.name.endswith((".__main__", ".sandboxed.worker")):
            importlib.import_module(info.name)
print("ok")
"""
    result = run_in_core(program)
    assert result.stdout == "ok\n", result.stderr[-2000:]


ONE_AFTER_ANOTHER = """
import json, sys
from transformer_lib.cli import main
for words in map(json.loads, sys.argv[1:]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
"""


@pytest.mark.long
def test_the_commands_of_the_gpu_page_work(toy_config, tmp_path):
    runs = [tmp_path / "a", tmp_path / "b"]
    train = ["train", toy_config, "--steps", "4"]
    commands = [[*train, "--set", f"seed={seed}", "--out", run] for seed, run in enumerate(runs)]
    commands += [["evaluate", runs[0], "--explain"], ["average", runs[0], "--last", "2"],
                 ["compare", *runs, "--out", tmp_path / "report.html"]]  # fmt: skip
    words = [json.dumps([str(word) for word in command]) for command in commands]
    result = run_in_core(ONE_AFTER_ANOTHER, *words)
    assert result.returncode == 0, result.stderr[-2000:]
    assert (tmp_path / "report.html").exists()


def test_what_an_extra_is_needed_for_says_which(tmp_path):
    for words, extra in (
        (["grade", "x"], "grading"),
        (["verify-submission", "x.ipynb"], "notebooks"),
        (["rate", "make", "a", "b"], "rating"),
        (["export", TRAINED, "--format", "ctranslate2", "--out", tmp_path / "out"], "export"),
        (["export", TRAINED, "--format", "huggingface", "--out", tmp_path / "out"], "export"),
    ):
        result = run_in_core(CLI, *words)
        assert result.returncode == 2
        assert re.search(rf"is missing: pip install 'transformer-lib\[{extra}\]'", result.stderr)
        assert "Traceback" not in result.stderr
