"""What a student sees who calls ``make lab``."""


def test_chapters_and_assignments_are_at_hand_and_no_buttons_of_instructors(lab, page):
    page.goto(lab(""))
    page.wait_for_selector(".jp-DirListing-item")
    names = page.locator(".jp-DirListing-itemText").all_inner_texts()
    assert {"assignments", "chapters"} <= set(names)
    page.goto(lab("assignments/2_attention/attention.ipynb"))
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.wait_for_timeout(3000)
    assert "Nbgrader" not in page.locator("#jp-top-panel").inner_text()
    assert page.get_by_role("button", name="Validate").count() == 0
    page.screenshot(path="runs/screenshots/work_copy.png")
