"""Our steps in nbgrader's chains: set up a release, mend a hand-in, judge it in the sandbox.

``nbgrader autograde``, the form grader's button and ``transformer-lib grade`` come through here.
"""

import functools
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jinja2
import nbformat
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors import ClearMetadataPreprocessor
from nbformat import NotebookNode
from nbgrader import preprocessors as steps
from nbgrader.converters import GenerateAssignment
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Enum, TraitError, Unicode
from traitlets.config import Config

from transformer_lib.errors import UserError
from transformer_lib.files import write_text
from transformer_lib.instructor.grading.intake import (
    HAND_IN,
    REMARKS,
    UNREAD,
    known,
    mend,
    source_digest,
)
from transformer_lib.instructor.grading.judge import Result, TestResult
from transformer_lib.instructor.grading.late import LatePolicy, require_known
from transformer_lib.instructor.grading.master import (
    HANDED_IN,
    as_handed_in,
    load_master,
    read_cell,
)
from transformer_lib.instructor.grading.outputs import Output, confined
from transformer_lib.instructor.grading.personal import (
    SetCohort,
    anonymize,
    fill_schemes,
    personalize,
)
from transformer_lib.instructor.grading.results import (
    StoredResult,
    cells_to_judge,
    judge_for,
    result_key,
)
from transformer_lib.instructor.grading.sandbox import ISOLATIONS
from transformer_lib.shown import one_line

STUB = "...  # your code"
TEXT_STUB = "*Your answer.*"
SCHEME = re.compile(r"^### (BEGIN|END) MARK SCHEME$", re.MULTILINE)
MARKS = re.compile(r"[\\`*_{}\[\]<>()#+.!|~$-]")  # what Markdown reads as its own
TITLE = "**How this is marked**"
BOX = '<div class="alert alert-info">{}</div>'


def configure(config: Any, folder: Path) -> None:
    """Fill in ``nbgrader_config.py``'s object for a course that lies in ``folder``."""
    config.CourseDirectory.root = str(folder)
    config.CourseDirectory.course_id = "transformer"
    config.ClearSolutions.code_stub = {"python": STUB}
    config.ClearSolutions.text_stub = TEXT_STUB
    config.ClearMarkScheme.enforce_metadata = False  # ours are in the questions
    config.HTMLExporter.filters = {"markdown2html": plain_markdown}
    config.MendNotebook.source = config.JudgeOutside.source = str(folder / "source")
    config.JudgeOutside.results = config.SaveGrades.results = str(folder / "results")
    config.AssignLatePenalties.plugin_class = LatePolicy
    steps_before = GenerateAssignment().preprocessors
    config.GenerateAssignment.preprocessors = [SetCohort, *steps_before, ListCells]
    config.Autograde.sanitize_preprocessors = [
        MendNotebook,
        steps.ClearOutput,
        steps.DeduplicateIds,
        steps.OverwriteKernelspec,
        steps.OverwriteCells,
        steps.CheckCellMetadata,
    ]
    config.Autograde.autograde_preprocessors = [
        JudgeOutside,
        ClearMetadataPreprocessor,
        steps.LimitOutput,
        SaveGrades,
        steps.AssignLatePenalties,
        steps.CheckCellMetadata,
    ]


@jinja2.pass_context
def plain_markdown(context: Any, source: str) -> str:
    """Markdown as HTML in the form grader and in feedback, without the HTML that is written in it.

    Students write it, and instructors look at it while they are logged in.
    """
    cell = context.get("cell", {})
    renderer = _PlainRenderer(
        escape=True, allow_harmful_protocols=False, attachments=cell.get("attachments", {})
    )

    def page(text: str) -> str:
        return _spaced(MarkdownWithMath(renderer).render(text))

    # No student can write a box, for HTML is escaped. These are cells that no student can write.
    if cell.get("id") == HAND_IN:
        return BOX.format(confined(page(source)))
    if not cell.get("metadata", {}).get("nbgrader", {}).get("locked", False):
        return confined(page(source))
    before, *parts = SCHEME.split(source)  # BEGIN, a scheme, END, a text, and so on
    marked = zip(parts[::2], parts[1::2], strict=True)
    return page(before) + "".join(
        BOX.format(page(TITLE + text)) if kind == "BEGIN" else page(text) for kind, text in marked
    )


class _PlainRenderer(IPythonRenderer):
    """Shows the name of a picture that is not there, where nbconvert would stop.

    A picture in the net could be another one tomorrow, and its server would see who looks at it: of
    that there is a link. Headings have no ids, for by its id the form grader finds where points go.
    """

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        return f"<h{level}>{text}</h{level}>\n"

    def image(self, text: str, url: str, title: str | None = None) -> str:
        name = url.removeprefix("attachment:")
        if name != url and not self.attachments.get(unquote(name)):
            return f"[{self.escape_html(text or name)}: this picture was not handed in]"
        if name == url and not url.startswith("data:image/"):
            return str(self.link(self.escape_html(text or url), url, title))
        return str(super().image(text, unquote(url) if name != url else url, title))


class MendNotebook(NbGraderPreprocessor):
    """Puts the student's answers into the released notebook; see :mod:`.intake`."""

    source = Unicode("source", help="Folder of the master notebooks.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        template = released_from(_master_path(self.source, resources))
        student = resources["nbgrader"]["student"]
        return mended(known(nb), template, student, cohort_of(self.config))[0], resources


class JudgeOutside(NbGraderPreprocessor):
    """Takes the place of nbgrader's ``Execute``: nothing of the submission runs in this process.

    A result that is already there, for the same cells and the same tests, is not made again.
    """

    source = Unicode("source", help="Folder of the master notebooks.").tag(config=True)
    results = Unicode("results", help="Folder where results are kept.").tag(config=True)
    isolation = Enum(ISOLATIONS, ISOLATIONS[0], help="How to shut them in.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        where = resources["nbgrader"]
        master = load_master(_master_path(self.source, resources))
        key = result_key(master, nb)
        stored = StoredResult(
            Path(self.results), where["assignment"], where["notebook"], where["student"]
        )
        result = stored.read(key)
        if result is None:
            result = judge_for(master, self.isolation).judge(cells_to_judge(nb))
            stored.write(key, result)
        fill_in(nb, result, master.keeps_outputs)
        fill_schemes(nb, where["student"], cohort_of(self.config))
        anonymize(nb)
        resources["answers"] = _answers(nb, master.keeps_outputs)
        resources["unread"] = any(cell.metadata.get(UNREAD) for cell in nb.cells)
        return nb, resources


class SaveGrades(steps.SaveAutoGrades):
    """What a human has graded stays graded as long as its answer is the same.

    nbgrader asks for a second look after every regrade. For a test whose points a human has
    changed, the answer is all code of the notebook and what the test gave.
    """

    results = Unicode("results", help="Folder where results are kept.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        where = resources["nbgrader"]
        names = where["assignment"], where["notebook"], f"{where['student']}.json"
        path = Path(self.results, "answers", *names)
        self.answers = resources["answers"]
        self.before = _read_answers(path)
        done = super().preprocess(nb, resources)
        write_text(path, json.dumps(self.answers))
        return done

    def _add_score(self, cell: NotebookNode, resources: Any) -> None:
        name = cell.metadata["nbgrader"]["grade_id"]
        grade = self.gradebook.find_grade(
            name, self.notebook_id, self.assignment_id, self.student_id
        )
        was_done = grade.manual_score is not None and not grade.needs_manual_grade
        automatic = grade.auto_score
        super()._add_score(cell, resources)
        before, now = self.before.get(name, ""), self.answers[name]
        is_same = before == now and automatic == grade.auto_score
        is_new = before.partition("/")[0] != now.partition("/")[0]
        is_by_hand = cell.metadata["nbgrader"]["solution"]
        if is_by_hand and grade.auto_score == 0 and is_new:  # handed in as released
            grade.manual_score = grade.extra_credit = None
        is_open = is_by_hand and grade.auto_score == 0 and not resources["unread"]
        if (was_done and is_same) or is_open:
            grade.needs_manual_grade = False
        elif is_by_hand and resources["unread"]:
            grade.needs_manual_grade = True
        self.gradebook.db.commit()


def _answers(nb: NotebookNode, keeps_outputs: bool) -> dict[str, str]:
    """By grade cell, a digest of what a human looks at who gives points for it, and how many."""
    cells = [read_cell(node) for node in nb.cells]
    code = [cell.source for cell in cells if cell.is_answer]
    written = [
        [node.source, node.get("attachments"), keeps_outputs and node.get("outputs")]
        for node in nb.cells
    ]
    return {
        cell.grade_id: f"{source_digest(repr(code if cell.is_test else answer))}/{cell.points:g}"
        for cell, answer in zip(cells, written, strict=True)
        if cell.is_grade
    }


def _read_answers(path: Path) -> dict[str, str]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _master_path(source: str, resources: Any) -> Path:
    where = resources["nbgrader"]
    return Path(source, where["assignment"], f"{where['notebook']}.ipynb")


def cohort_of(config: Any) -> str:
    """The course and its year, as ``nbgrader_config.py`` has them.

    Raises:
        UserError: what it has there is no text.
    """
    require_known(config, SetCohort)
    try:
        return str(SetCohort(config=config).cohort)
    except TraitError as error:
        raise UserError(f"nbgrader_config.py: {error}") from error


def mended(
    submission: NotebookNode,
    template: NotebookNode,
    student: str,
    cohort: str,
    remarks: Sequence[str] = (),
    is_read: bool = True,
) -> tuple[NotebookNode, list[str]]:
    """The submission in the released form, and what was remarkable; a cell at the top says it.

    Args:
        submission: as :func:`.intake.known` makes it.
        template: the released notebook.
        remarks: those about the file.
        is_read: whether there was a notebook that could be read. If not, or if none of its cells is
            known, a human decides.
    """
    intake = mend(submission, template)
    said = personalize(intake.notebook, submission, student, cohort)
    intake.remarks += said if intake.answered else []
    remarks = [one_line(remark) for remark in (*remarks, *intake.remarks)]
    if remarks:
        lines = "\n".join(f"- {MARKS.sub(_escaped, remark)}" for remark in remarks)
        text = f"**About your hand-in**\n\n{lines}"
        said_above = nbformat.v4.new_markdown_cell(text, id=HAND_IN)
        said_above.metadata[REMARKS] = remarks
        said_above.metadata[UNREAD] = not (is_read and intake.is_known)
        intake.notebook.cells.insert(0, said_above)
    return intake.notebook, remarks


def _escaped(mark: re.Match[str]) -> str:
    return f"\\{mark[0]}"


def released_from(master: Path) -> NotebookNode:
    """The released form of a master notebook."""
    return _released_from(master, master.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _released_from(master: Path, changed: int) -> NotebookNode:
    return released(nbformat.read(master, as_version=4), master.stem)


def fill_in(nb: NotebookNode, result: Result, keeps_outputs: bool) -> None:
    """Put the outputs of a result into the notebook, where nbgrader looks for grades."""
    cells = [read_cell(cell) for cell in nb.cells]
    kept = as_handed_in(cells, keeps_outputs)
    for number, (cell, seen) in enumerate(zip(nb.cells, cells, strict=True)):
        if cell.cell_type != "code":
            continue
        outputs = result.outputs.get(number, [])
        if number in kept:
            outputs = cell.metadata.get(HANDED_IN, {}).get("outputs", [])
        if seen.is_test:
            cell.source = seen.visible.rstrip()  # what is hidden stays so in the feedback
            test = result.tests[seen.grade_id]
            outputs = [*map(_in_bootstrap, test.outputs), _points(test)]
        cell.outputs = [nbformat.from_dict(output) for output in outputs]


def _in_bootstrap(output: Output) -> Output:
    """With space in its tables: nbgrader's pages are styled with Bootstrap, which takes it away."""
    data = output["data"]
    return {**output, "data": {**data, "text/html": _spaced(data["text/html"])}}


def _spaced(page: str) -> str:
    return page.replace("<table>", '<table class="table" style="width: auto">')


def _points(test: TestResult) -> Output:
    """The last output of a test cell: for people to read, and a number for nbgrader."""
    points = f"{test.points:g} of {test.max_points:g} points"
    reason = f": {html.escape(one_line(test.reason, 1000))}" if test.reason else ""
    data = {
        "text/plain": f"{test.points:g}",
        "text/html": f"<p><strong>{points}</strong> by this test{reason}</p>",
    }
    return {"output_type": "execute_result", "execution_count": None, "data": data, "metadata": {}}


def released(master: NotebookNode, name: str) -> NotebookNode:
    """What students get: the master without solutions, hidden tests and marking schemes.

    Args:
        name: of the notebook's file, without ``.ipynb``.
    """
    config = Config()
    configure(config, Path())
    notebook = nbformat.from_dict(master)
    resources: dict[str, Any] = {"nbgrader": {"notebook": name}}
    for step in (
        steps.LockCells,
        steps.ClearSolutions,
        steps.ClearOutput,
        steps.CheckCellMetadata,
        steps.ClearHiddenTests,
        steps.ClearMarkScheme,
        steps.ComputeChecksums,
        steps.CheckCellMetadata,
        ListCells,
    ):
        notebook, resources = step(config=config).preprocess(notebook, resources)
    return notebook


class ListCells(NbGraderPreprocessor):
    """Writes into what is released its name and its cells, which ``verify-submission`` goes by."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        cells = [
            [grade_id, source_digest(cell.source)]
            for cell in nb.cells
            if (grade_id := cell.metadata.get("nbgrader", {}).get("grade_id"))
        ]
        name = resources["nbgrader"]["notebook"]
        nb.metadata.setdefault("transformer_lib", {}).update(name=name, cells=cells)
        return nb, resources
