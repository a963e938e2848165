"""Open JupyterLab on the chapters; without a screen, only print the address."""

import os
import subprocess
import sys
from pathlib import Path

CHAPTERS = Path(__file__).parent.parent / "chapters"


def main() -> int:
    command = [sys.executable, "-m", "jupyterlab", str(CHAPTERS), *sys.argv[1:]]
    has_screen = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if not has_screen:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    try:
        return subprocess.call(command)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
