"""Rules that hold for every notebook of the course."""

import ast
import builtins
import re
import symtable
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest

from transformer_lib.course.chapters import order
from transformer_lib.course.checks import EXERCISES, EXPERIMENTS, check
from transformer_lib.course.own.record import solutions
from transformer_lib.course.own.source import of_comprehensions_alone

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from exercises import CHECK, CODE, MARK, PAGE, STORED, all_tasks, as_json, as_markdown

CHAPTERS = Path(__file__).parent.parent / "chapters"
NOTEBOOKS = sorted(CHAPTERS.glob("*.ipynb"))
MAX_LINES = 25
MAX_WIDTH = 100


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_is_a_chapter():
    assert NOTEBOOKS


def test_every_text_twin_has_its_notebook():
    assert {p.stem for p in (CHAPTERS / "text").glob("*.py")} == {p.stem for p in NOTEBOOKS}


def test_notebook_and_text_twin_agree(path, notebook):
    twin = jupytext.read(CHAPTERS / "text" / f"{path.stem}.py")

    def content(cells):
        return [(c.cell_type, c.source, c.metadata.get("tags", [])) for c in cells]

    assert content(notebook.cells) == content(twin.cells), "run `make notebooks`"


def test_outputs_are_stored_from_one_run_without_errors(notebook):
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    for output in outputs:
        assert output.output_type != "error"
        assert not (output.output_type == "stream" and output.name == "stderr"), output.text


def test_ignored_outputs_are_asserted_and_nothing_is_skipped(notebook):
    for cell in code_cells(notebook):
        tags = cell.metadata.get("tags", [])
        assert not {"nbval-skip", "nbval-raises-exception", "raises-exception"} & set(tags)
        if "nbval-ignore-output" in tags:
            assert re.search(r"\bassert\b|\bassert_close\(|\bcheck\(", cell.source), cell.source
        assert "NBVAL" not in cell.source


def test_every_assertion_says_what_to_do(notebook):
    for cell in code_cells(notebook):
        for node in ast.walk(ast.parse(cell.source)):
            assert not isinstance(node, ast.Assert) or node.msg is not None, ast.unparse(node)


def test_trainings_are_counted_in_steps(notebook):
    """By minutes, a slow or busy machine would have another result."""
    for cell in code_cells(notebook):
        assert "training.minutes" not in cell.source
        assert not re.search(r"while .*(time|perf_counter)\(\)", cell.source), cell.source


def test_cells_are_short(notebook):
    for cell in code_cells(notebook):
        lines = cell.source.splitlines()
        assert len(lines) <= MAX_LINES, cell.source
        assert all(len(line) <= MAX_WIDTH for line in lines), cell.source


def test_prose_stands_around_the_code(notebook):
    """A chapter begins and ends with prose, and never runs more than two code cells together."""
    kinds = "".join(cell.cell_type[0] for cell in notebook.cells)
    assert kinds.startswith("m")
    assert kinds.endswith("m")
    assert "ccc" not in kinds


def bound_and_read(code):
    """The names that a cell gives a value, and those whose value it takes from earlier cells."""
    top = symtable.symtable(code, "cell", "exec")
    # Since Python 3.12 the variables of comprehensions count as the cell's.
    bound = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned()}
    bound -= of_comprehensions_alone(ast.parse(code))
    read, tables = set(), [top]
    for table in tables:
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (table is top or symbol.is_global()):
                read.add(symbol.get_name())
    return bound, read - bound - of_comprehensions_alone(ast.parse(code))


def test_a_cell_can_be_run_again_after_later_ones(notebook):
    """No name that it reads has another meaning by then."""
    cells = [bound_and_read(cell.source) for cell in code_cells(notebook)]
    for number, (_, read) in enumerate(cells):
        before = set().union(*(bound for bound, _ in cells[:number]))
        after = set().union(*(bound for bound, _ in cells[number + 1 :]))
        assert not read & before & after, code_cells(notebook)[number].source


def test_later_cells_ask_for_the_answer_that_passed(notebook):
    """Not for what the cell of the exercise defined, which may be wrong or empty."""
    cells = code_cells(notebook)
    for name, _, cell, _ in exercises(notebook):
        for later in cells[cells.index(cell) + 1 :]:
            if f'mine("{name}")' in later.source:
                break
            assert name not in bound_and_read(later.source)[1], later.source


def test_pictures_have_a_text_alternative(notebook):
    for cell in code_cells(notebook):
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                assert len(data.get("text/plain", "")) > 30
                assert not data["text/plain"].startswith("<"), "show it with plots.notebook.show"
                # The text of the picture in pages that nbconvert makes.
                assert output.metadata["image/png"]["alt"] == data["text/plain"]


def test_no_output_needs_the_network(notebook):
    for cell in code_cells(notebook):
        for output in cell.outputs:
            html = "".join(output.get("data", {}).get("text/html", ""))
            assert "<script" not in html
            assert "src=" not in html


def exercises(notebook):
    """The name of each exercise with its cell, the prose above it and the prose below it."""
    for above, cell, below in zip(
        notebook.cells, notebook.cells[1:], notebook.cells[2:], strict=False
    ):
        called = CHECK.search(cell.source)
        if cell.cell_type == "code" and called:
            yield called[1], above.source, cell, below.source


def test_an_exercise_is_released_unsolved_with_a_mark_and_a_hint_folded_away(notebook):
    for name, above, cell, below in exercises(notebook):
        assert cell.outputs[-1].data["text/plain"] == f"– {name}: not attempted yet"
        assert MARK.search(above), f"{name} has no line like ●○○ · 10 minutes · what for"
        assert re.findall(r"<summary>(.*?)</summary>", below) == ["Hint"], name


@pytest.mark.usefixtures("unchecked_shapes")
def test_every_exercise_has_a_solution_that_passes(notebook):
    for name, *_ in exercises(notebook):
        if name in EXPERIMENTS:
            continue  # they take long: test_student.py runs them
        namespace = {name: exercise.reference for name, exercise in EXERCISES.items()}
        exec(code_cells(notebook)[0].source, namespace)  # the chapter's imports
        for code in CODE.findall(solutions()[name]):
            exec(code, namespace)
        verdict = check(namespace[name])
        assert verdict.passed, verdict


def test_a_chapter_has_small_and_large_exercises(path):
    here = [task for task in all_tasks() if task.chapter == path.stem]
    if int(path.stem[:2]) >= 2:
        assert 4 <= len(here) <= 7
        assert {2, 3} <= {task.difficulty for task in here}


def statements(code):
    """The statements of a piece of code with their size, names in the order of their occurrence."""
    found = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = {}
            copy = ast.parse(ast.unparse(node))
            inner = list(ast.walk(copy))
            for name in inner:
                if isinstance(name, ast.Name) and name.id not in KNOWN:
                    name.id = names.setdefault(name.id, f"name{len(names)}")
            if isinstance(node, ast.Return | ast.Assign):  # its value is as good elsewhere
                copy = copy.body[0].value
            if copy is not None and len(inner) >= SMALLEST:
                found[ast.dump(copy)] = len(inner)
    return found


KNOWN = {"torch", "math", "nn", "np", "F", *dir(builtins)}
SMALLEST = 12  # nodes: what is smaller, anybody writes so


def test_no_solution_is_printed_above_its_exercise(notebook):
    above = {}
    for cell in code_cells(notebook):
        called = CHECK.search(cell.source)
        if called:
            solution = statements("\n".join(CODE.findall(solutions()[called[1]])))
            printed = sum(size for text, size in solution.items() if text in above)
            assert printed <= sum(solution.values()) / 2, called[1]
        above |= statements(cell.source)


def test_no_solution_is_without_its_exercise():
    assert set(solutions()) == set(order())


@pytest.mark.parametrize("name", order())
def test_a_solution_says_why(name):
    assert len(re.sub(r"```.*?```", "", solutions()[name], flags=re.DOTALL).split()) >= 15


def test_the_list_of_exercises_is_current():
    tasks = all_tasks()
    assert STORED.read_text(encoding="utf-8") == as_json(tasks), "run `make docs`"
    assert PAGE.read_text(encoding="utf-8") == as_markdown(tasks), "run `make docs`"


def test_links_to_files_resolve(path, notebook):
    links = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL)
            links += re.findall(r"\]\(([^)#]+)", prose)
        for output in cell.get("outputs", []):
            links += re.findall(r'href="([^"#]+)"', output.get("data", {}).get("text/html", ""))
    for link in links:
        if not link.startswith(("http://", "https://", "attachment:")):
            assert (path.parent / link).exists(), link


def test_links_of_the_readme_resolve():
    root = CHAPTERS.parent
    text = (root / "README.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)", text):
        if not link.startswith(("http://", "https://")):
            assert (root / link).exists(), link


def test_what_the_plan_for_lectures_shows_is_in_its_chapters():
    """Each quoted name in a session's row is a heading of one of the chapters of that row."""
    text = (CHAPTERS.parent / "docs" / "teaching.md").read_text(encoding="utf-8")
    sessions = re.findall(r"^\| \d+ \| ([\d and]+) \| (.+) \|$", text, re.MULTILINE)
    assert {number for chapters, _ in sessions for number in chapters.split(" and ")} == {
        str(number) for number in range(18)
    }
    for chapters, row in sessions:
        headings = set()
        for number in chapters.split(" and "):
            (twin,) = (CHAPTERS / "text").glob(f"{int(number):02}_*.py")
            prose = twin.read_text(encoding="utf-8").replace("“", "‘").replace("”", "’")
            headings |= set(re.findall(r"^# #+ (.+)$", prose, re.MULTILINE))
        assert (quoted := re.findall(r"“([^”]+)”", row))
        assert set(quoted) <= headings, set(quoted) - headings
