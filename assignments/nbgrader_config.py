"""nbgrader's settings for this course, with which submissions run in a sandbox."""

from pathlib import Path

from transformer_lib.instructor.grading.nbgrader_plugin import configure

configure(get_config(), Path(__file__).parent)
