"""Each chapter in a real JupyterLab, without a network: all cells run, all figures are drawn.

What it looked like is left in ``runs/screenshots``.
"""

from pathlib import Path

import nbformat
import pytest

from transformer_lib.plots.notebook import VEGA_LITE

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "chapters").glob("*.ipynb"))
SCREENSHOTS = ROOT / "runs" / "screenshots"
MINUTE = 60_000  # milliseconds
PROMPTS = "[...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(p => p.textContent)"
FINISHED = f"() => ({PROMPTS}).every(prompt => /[0-9]/.test(prompt))"
ERROR = ".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']"
FAILED = f'() => document.querySelector("{ERROR}")'  # the cells after it are not run
STARTED = f"() => ({PROMPTS}).some(prompt => /[0-9*]/.test(prompt))"


def figures(path: Path) -> list[str]:
    """How JupyterLab is to draw each figure of a notebook: ``chart`` or ``picture``."""
    notebook = nbformat.read(path, as_version=4)
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    data = [output.get("data", {}) for output in outputs]
    return ["chart" if VEGA_LITE in d else "picture" for d in data if "image/png" in d]


def choose(page, menu: str, item: str) -> None:
    page.locator(f'.lm-MenuBar-itemLabel:text-is("{menu}")').click()
    page.locator(f'.lm-Menu-itemLabel:text-is("{item}")').click()


def run_all(page) -> None:
    """Clear what is stored, run all cells from the menu, and wait for the last one."""
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]", timeout=MINUTE)
    choose(page, "Edit", "Clear Outputs of All Cells")
    page.wait_for_function(f"() => !({STARTED})()")
    for _ in range(5):  # a kernel that is just starting may drop what it is asked to run
        choose(page, "Run", "Run All Cells")
        page.wait_for_timeout(4000)
        if page.evaluate(STARTED):
            break
    page.wait_for_function(f"() => ({FINISHED})() || ({FAILED})()", timeout=5 * MINUTE)


def scroll_through(page, name: str) -> None:
    """A screenshot of every screenful."""
    folder = SCREENSHOTS / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    panel = page.locator(".jp-WindowedPanel-outer").first
    height, shown = panel.evaluate("panel => [panel.scrollHeight, panel.clientHeight]")
    for number, top in enumerate(range(0, height, shown - 60)):
        panel.evaluate("(panel, top) => { panel.scrollTop = top }", top)
        page.wait_for_timeout(300)
        page.screenshot(path=folder / f"{number:02d}.png")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_chapter_runs_and_draws_its_figures(notebook, lab, page):
    page.goto(lab(notebook.name))
    try:
        run_all(page)
        page.wait_for_timeout(2000)  # charts draw themselves after their cell is done
    finally:
        scroll_through(page, notebook.stem)

    assert page.locator(ERROR).all_inner_texts() == []
    charts = page.locator(".vega-embed canvas").count()
    pictures = page.locator(".jp-RenderedImage img").evaluate_all(
        "images => images.filter(image => image.naturalWidth > 50).length"
    )
    expected = figures(notebook)
    assert (charts, pictures) == (expected.count("chart"), expected.count("picture"))

    assert page.locator(".jp-RenderedMarkdown details[open]").count() == 0
    for fold in page.locator(".jp-RenderedMarkdown details").all():
        fold.locator("summary").click()
        assert fold.locator("p, pre").first.is_visible()
    assert page.refused == []
    assert page.failures == []


def test_the_drawing_of_the_model_leads_to_its_chapters(lab, page):
    """Without anything run: the stored drawing is there, and the links above it open notebooks."""
    page.goto(lab("10_the_whole_model.ipynb"))
    page.locator(".jp-RenderedImage img").first.wait_for()
    link = page.locator('.jp-RenderedMarkdown a:text-is("4")').first
    link.scroll_into_view_if_needed()
    page.screenshot(path=SCREENSHOTS / "architecture_stored.png")
    link.click()
    page.wait_for_selector('.lm-TabBar-tabLabel:text-is("04_positional_encoding.ipynb")')
