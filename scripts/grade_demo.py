"""Grade a made-up class: right, late, misled, malformed and hostile. Opens nothing.

The course lies in ``runs/grade-demo`` afterwards: ``nbgrader`` finds its gradebook there, and
``transformer-lib grade 2_attention --course runs/grade-demo`` goes on with it.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from made_up_class import ASSIGNMENT, NOTEBOOK, answered, hand_in, misled, new_course

from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.export import export
from transformer_lib.instructor.grading.grade import grade
from transformer_lib.instructor.grading.hand_ins import Entry, record
from transformer_lib.instructor.grading.report import write_report
from transformer_lib.instructor.grading.table import table
from transformer_lib.instructor.grading.term import set_deadline, standings

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
    "returns nothing at all, as a tensor": "def capped_attention(q, k, v, mask, cap):\n"
    "    return torch.empty(0), torch.empty(0)",
    "says of itself that it is equal": "class Liar(torch.Tensor):\n"
    "    def __eq__(self, other): return torch.tensor(True)\n"
    "    def all(self, *a): return torch.tensor(True)\n"
    "def capped_attention(q, k, v, mask, cap): return Liar(v), Liar(v)",
    "keeps what it was asked": "asked = []\ndef capped_attention(q, k, v, mask, cap):\n"
    "    asked.append(q)\n    print(asked)\n    return v, v",
    "hides memory from the limits": "import mmap\n"
    "def capped_attention(q, k, v, mask, cap):\n    kept = []\n"
    "    while True:\n        kept.append(mmap.mmap(-1, 2**28))\n"
    "        kept[-1].write(b'x' * 2**28)",
    "floods the output": "print('x' * 10_000_000)\n"
    "def capped_attention(q, k, v, mask, cap): return v, v",
    "calls the ready-made one": "def capped_attention(q, k, v, mask, cap):\n"
    "    return torch.nn.functional.scaled_dot_product_attention(q, k, v), v",
}
ODD_NAMES = ("=1+1", "hostile: \u202egnp", "a,b;c", "[a-z]*")
MALFORMED = {
    "no JSON": "{",
    "half of a character": json.dumps({"cells": [{"source": "\ud800"}], "nbformat": 4}),
    "very deep": "[" * 100_000,
    "cells that are none": json.dumps({"cells": [1, None, {"cell_type": []}], "nbformat": 4}),
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
    for what, text in MALFORMED.items():
        hand_in(course, f"malformed: {what}", text)
    for name in ODD_NAMES:
        hand_in(course, name, answered())
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
    with (folder / "nbgrader_config.py").open("a") as file:
        file.write("get_config().LatePolicy.points_a_day = 2\n")
    students = make_class(folder)
    course = Course(folder)
    now = datetime.now(UTC)
    late = {f"right {n}": Entry(now + timedelta(hours=20 * n)) for n in range(1, 4)}
    set_deadline(course, ASSIGNMENT, now)
    record(course, ASSIGNMENT, late)
    print(f"{students} submissions of {ASSIGNMENT} in {folder}", flush=True)
    started = time.perf_counter()
    rows = grade(course, ASSIGNMENT)
    print(table(rows, standings(course, ASSIGNMENT)))
    seconds = time.perf_counter() - started
    write_report(course, ASSIGNMENT, folder / "report.html")
    export(course, ASSIGNMENT, "nbgrader", folder / "grades.csv")
    print(f"{seconds:.0f} s, {seconds / students:.1f} s for each")
    print(f"report.html, grades.csv and nbgrader's gradebook.db are in {folder}")


if __name__ == "__main__":
    sys.exit(main())
