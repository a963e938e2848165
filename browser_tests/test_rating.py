"""The page on which people rate translations: answered by keyboard and mouse, saved, read back."""

from pathlib import Path

import pytest

from transformer_lib.instructor.rating import make_sheet, read_ratings, report, write_task

SCREENSHOTS = Path(__file__).parent.parent / "runs" / "screenshots"
SOURCES = [f"This is sentence number {i}." for i in range(12)]
OUTPUTS = {
    "first": [f"Das ist Satz Nummer {i}." for i in range(12)],
    "second": [f"Dies ist <b>der</b> Satz {i}." for i in range(12)],
}


@pytest.mark.parametrize("kind", ["pairwise", "direct"])
def test_a_rater_answers_everything_and_saves(kind, page, tmp_path):
    sheet, key = make_sheet(SOURCES, OUTPUTS, kind, sentences=5, repeated=1, degraded=1)
    write_task(tmp_path, sheet, key)
    page.goto((tmp_path / "rate.html").as_uri())
    page.click("#save")
    assert page.inner_text("#message") == "Write your name first."
    page.fill("#rater", "Zoë B.")
    page.click("h1")
    for number, item in enumerate(sheet.items):
        assert page.inner_text("#source") == item.source
        shown = page.locator("#texts p").all_inner_texts()
        assert [text.removeprefix("A: ").removeprefix("B: ") for text in shown] == list(item.texts)
        if kind == "pairwise":
            page.keyboard.press("ab="[number % 3])
        else:
            page.locator("input[type=range]").fill(str(10 * (number % 10)))
            page.keyboard.press("Escape")
            page.click("h1")
            page.keyboard.press("ArrowRight")
    page.reload()  # nothing is lost
    assert page.input_value("#rater") == "Zoë B."
    assert f"{len(sheet.items)} answered" in page.inner_text("#number")
    page.screenshot(path=SCREENSHOTS / f"rate_{kind}.png")
    with page.expect_download() as download:
        page.click("#save")
    assert page.inner_text("#message") == "Saved. Thank you."
    path = tmp_path / "ratings.json"
    download.value.save_as(path)
    ratings = read_ratings(path, sheet)
    assert ratings.rater == "Zoë B."
    assert ratings.answers.keys() == {item.id for item in sheet.items}
    assert report(sheet, key, [ratings]).raters[0].rated == len(sheet.items)
    assert page.failures == []
