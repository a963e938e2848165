"""Where the grader's course lies; the rest stands in its own nbgrader_config.py."""

import os
from pathlib import Path

get_config().CourseDirectory.root = os.environ.get("COURSE", str(Path.home() / "course"))
