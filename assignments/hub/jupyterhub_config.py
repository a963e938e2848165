"""A JupyterHub for the course on one machine: students fetch, hand in and read feedback there.

``docs/grading.md`` says how to set it up. ``GRADER`` is the name of the user who grades, and
``COURSE`` the folder of the course in that user's home; ``EXCHANGE`` is the folder through which
assignments go, which everybody may write to.
"""

import os
from pathlib import Path

c = get_config()

GRADER = os.environ.get("GRADER", "teacher")
SETTINGS = Path(__file__).parent
PASSED_ON = ("COURSE", "EXCHANGE")
# PyTorch takes all cores for each user, and threads that wait for others' slow everybody down.
THREADS = "1"


def set_up(spawner):
    """Everybody finds the exchange; the form grader is the grader's alone."""
    kind = "grader" if spawner.user.name == GRADER else "student"
    folders = os.pathsep.join(str(SETTINGS / name) for name in (kind, "everybody"))
    given = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    given["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS") or THREADS
    spawner.environment = {**spawner.environment, **given, "JUPYTER_CONFIG_PATH": folders}


c.Spawner.pre_spawn_hook = set_up
c.Spawner.default_url = "/lab"
c.Authenticator.allow_all = True  # who can log in to the machine; or name allowed_users
