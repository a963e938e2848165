"""Grade a made-up class of 40: right, misled, malformed and hostile. Opens nothing.

The course lies in ``runs/grade-demo`` afterwards: ``nbgrader`` finds its gradebook there, and
``transformer-lib grade 2_attention --course runs/grade-demo`` goes on with it.
"""

import json
import sys
import time
from pathlib import Path

from made_up_class import ASSIGNMENT, NOTEBOOK, answered, hand_in, misled, new_course

from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.export import export
from transformer_lib.instructor.grading.grade import grade
from transformer_lib.instructor.grading.report import write_report
from transformer_lib.instructor.grading.table import table
from transformer_lib.instructor.grading.term import standings

HOSTILE = {
    "patches torch": "torch.allclose = lambda *a, **k: True\n"
    "def capped_attention(q, k, v, mask, cap): return v, v",
    "loops for ever": "def capped_attention(q, k, v, mask, cap):\n    while True: pass",
    "takes all memory": "def capped_attention(q, k, v, mask, cap):\n"
    "    while True: q = torch.cat([q, q])",
    "starts processes": "import os\ndef capped_attention(q, k, v, mask, cap):\n"
    "    while True: os.fork()",
    "ends the process": "import os\ndef capped_attention(q, k, v, mask, cap): os._exit(0)",
    "reads other files": "def capped_attention(q, k, v, mask, cap):\n"
    "    return open('/etc/passwd').read(), 1",
}


def make_class(course: Path) -> int:
    """Returns how many students there are."""
    for number in range(8):
        hand_in(course, f"right {number + 1}", answered())
    masks = list(misled("global_window_mask").items())
    for number, (mistake, code) in enumerate(misled("capped_attention").items()):
        other, mask = masks[number] if number < len(masks) else ("", None)
        answers = {"capped_attention": code} | ({"global_window_mask": mask} if mask else {})
        hand_in(course, f"misled by {mistake} {other}".strip(), answered(**answers))
    hand_in(course, "malformed: no file", None)
    hand_in(course, "malformed: no JSON", "{")
    path = hand_in(course, "malformed: another name", answered())
    path.rename(path.with_name(f"{NOTEBOOK} (1).ipynb"))
    shuffled = answered()
    shuffled.cells.reverse()
    hand_in(course, "malformed: cells moved", shuffled)
    cut = json.loads(json.dumps(answered()))
    del cut["cells"][6:9]
    hand_in(course, "malformed: cells deleted", json.dumps(cut))
    for what, code in HOSTILE.items():
        hand_in(course, f"hostile: {what}", answered(capped_attention=code))
    return len(list((course / "submitted").iterdir()))


def main() -> None:
    folder = Path("runs") / "grade-demo"
    new_course(folder)
    students = make_class(folder)
    print(f"{students} submissions of {ASSIGNMENT} in {folder}", flush=True)
    started = time.perf_counter()
    course = Course(folder)
    rows = grade(course, ASSIGNMENT)
    print(table(rows, standings(course, ASSIGNMENT)))
    seconds = time.perf_counter() - started
    write_report(course, ASSIGNMENT, folder / "report.html")
    export(course, ASSIGNMENT, "nbgrader", folder / "grades.csv")
    print(f"{seconds:.0f} s, {seconds / students:.1f} s for each")
    print(f"report.html, grades.csv and nbgrader's gradebook.db are in {folder}")


if __name__ == "__main__":
    sys.exit(main())
