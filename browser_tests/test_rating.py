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
    for keys in ("Control+a", "Control+b", "Control+=", "Alt+ArrowRight"):
        page.keyboard.press(keys)  # the browser's own
    assert "1 of " in page.inner_text("#number")
    assert "0 answered" in page.inner_text("#number")
    given = {}
    for number, item in enumerate(sheet.items):
        assert page.inner_text("#source") == item.source
        sides = ("A: ", "B: ") if kind == "pairwise" else ("",)
        shown = [side + text for side, text in zip(sides, item.texts, strict=True)]
        assert page.locator("#texts p").all_inner_texts() == shown
        if kind == "pairwise":
            answer = "AB="[number % 3]
            if number % 2:
                page.keyboard.press(answer.lower())
            else:
                names = {"A": "A is better", "B": "B is better", "=": "neither"}
                page.get_by_role("button", name=names[answer], exact=True).click()
        else:
            answer = (50, 51, 0, 100)[number % 4]  # 50 is where the slider is at first
            slider = page.locator("input[type=range]")
            if answer == 51:
                slider.focus()
                page.keyboard.press("ArrowRight")
                page.keyboard.press("Enter")
            else:
                slider.fill(str(answer))
                page.get_by_role("button", name="Rate", exact=True).click()
        given[item.id] = answer
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
    assert ratings.answers == given
    assert report(sheet, key, [ratings]).raters[0].rated == len(sheet.items)
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("#anew")
    assert page.input_value("#rater") == ""
    assert "1 of " in page.inner_text("#number")
    page.reload()
    assert "0 answered" in page.inner_text("#number")
    assert page.failures == []
