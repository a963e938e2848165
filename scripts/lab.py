"""Open JupyterLab on a work copy of the course; without a screen, only print the address.

The work copy, the folder ``workspace``, holds the chapters and the assignments as students get
them. What a student changes there, git never sees, so that ``git pull`` always works. A new version
of the course replaces the notebooks that were not changed (running one changes its outputs alone),
and comes beside those that were.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import nbformat

from transformer_lib.files import write_text

ROOT = Path(__file__).parent.parent
WORK = ROOT / "workspace"
NOT_COPIED = ("mutation.md",)  # it quotes right answers
COPIED = ".copied.json"  # in the work copy: the digest of each file as it was copied

SETTINGS = Path(sys.prefix) / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
# The course needs no network, so JupyterLab shall not ask whether it may fetch news.
OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}
}
# Where nbgrader is installed, its buttons are for instructors.
HIDDEN = ("nbgrader", "@jupyter/nbgrader")


def originals() -> Iterator[tuple[Path, Path]]:
    """The files of the work copy: where each comes from, and its place in the copy."""
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        yield path, path.relative_to(ROOT)
    for folder in ("chapters/images", "docs"):
        for path in sorted((ROOT / folder).iterdir()):
            if path.name not in NOT_COPIED:
                yield path, path.relative_to(ROOT)
    yield ROOT / "benchmarks" / "RESULTS.md", Path("benchmarks", "RESULTS.md")
    yield ROOT / "leaderboard" / "README.md", Path("leaderboard", "README.md")
    for name in ("entry.toml", "config.toml", "program.py"):
        for path in sorted((ROOT / "leaderboard").glob(f"*/*/{name}")):
            yield path, path.relative_to(ROOT)
    yield ROOT / "assignments" / "AGENTS.md", Path("AGENTS.md")
    for path in sorted((ROOT / "assignments" / "release").glob("*/*.ipynb")):
        yield path, Path("assignments", path.parent.name, path.name)


def update(work: Path = WORK) -> list[str]:
    """Bring the work copy up to date; returns a line for each file that the student has changed.

    Nothing of the student's is ever overwritten or removed.
    """
    work.mkdir(exist_ok=True)
    record = work / COPIED
    before = copied_before(record)
    copied, kept = {}, []
    for source, place in originals():
        target, name, new = work / place, place.as_posix(), digest(source)
        copied[name] = new
        if target.exists():
            there, known = digest(target), before.get(name)
            if new in (there, known):
                continue
            if there != known:
                target = free_place(target, {known, new})
                kept.append(f"{name}: yours is kept, the new version is {target.name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    write_text(record, json.dumps(copied, indent=1))
    return kept


def copied_before(record: Path) -> dict[str, str]:
    """What was copied last time; nothing, where that cannot be read: then all is the student's."""
    try:
        return json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def free_place(target: Path, versions: set[str | None]) -> Path:
    """Beside a notebook: ``.new``, or the next one that holds nothing of the student's."""
    suffixes = (f".new{number if number > 1 else ''}{target.suffix}" for number in count(1))
    places = (target.with_name(target.stem + suffix) for suffix in suffixes)
    return next(place for place in places if not place.exists() or digest(place) in versions)


def digest(path: Path) -> str:
    """SHA-256; of a notebook, that of its cells' sources, which running it does not change."""
    content = path.read_bytes()
    if path.suffix == ".ipynb":
        try:
            cells = nbformat.reads(content.decode(), as_version=4).cells
            content = json.dumps([[cell.cell_type, cell.source] for cell in cells]).encode()
        except Exception:  # nbformat raises many kinds
            pass  # no notebook: its bytes
    return hashlib.sha256(content).hexdigest()


def environment(settings: Path) -> dict[str, str]:
    """For a JupyterLab without instructors' buttons, whose terminals find the commands.

    ``settings`` is a folder to write to.
    """
    page = {"disabledExtensions": dict.fromkeys(HIDDEN, True)}
    (settings / "labconfig").mkdir(parents=True, exist_ok=True)
    (settings / "labconfig" / "page_config.json").write_text(json.dumps(page), encoding="utf-8")
    others = os.environ.get("JUPYTER_CONFIG_PATH")
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "JUPYTER_CONFIG_PATH": os.pathsep.join([str(settings), *([others] if others else [])]),
    }


def main() -> int:
    if not SETTINGS.exists():
        SETTINGS.parent.mkdir(parents=True, exist_ok=True)
        SETTINGS.write_text(json.dumps(OVERRIDES, indent=2), encoding="utf-8")
    for line in update():
        print(line, file=sys.stderr)
    print(f"your copy of the course: {WORK}", file=sys.stderr)
    command = [sys.executable, "-m", "jupyterlab", str(WORK), *sys.argv[1:]]
    has_screen = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if not has_screen:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    try:
        return subprocess.call(command, cwd=WORK, env=environment(WORK / ".jupyter"))
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
