"""Open JupyterLab on the chapters; without a screen, only print the address."""

import json
import os
import subprocess
import sys
from pathlib import Path

CHAPTERS = Path(__file__).parent.parent / "chapters"
SETTINGS = Path(sys.prefix) / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
# The course needs no network, so JupyterLab shall not ask whether it may fetch news.
OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}
}


def main() -> int:
    if not SETTINGS.exists():
        SETTINGS.parent.mkdir(parents=True, exist_ok=True)
        SETTINGS.write_text(json.dumps(OVERRIDES, indent=2), encoding="utf-8")
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
