"""The rating page as a form in a notebook."""

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic

from transformer_lib.errors import UserError
from transformer_lib.files import write_text
from transformer_lib.instructor.rating.sheet import Ratings, Sheet, rater_name, read_ratings

if TYPE_CHECKING:
    import ipywidgets

CHOICES = {"A": "A is better", "=": "neither", "B": "B is better"}


def rating_form(sheet: Sheet, rater: str, path: Path) -> "ipywidgets.VBox":
    """Ask for one item after another; each answer is in ``path`` at once, and a form that is
    opened again goes on where the rater stopped.

    Raises:
        UserError: ``path`` holds something else than this rater's ratings of this sheet.
    """
    import ipywidgets

    answers: dict[str, Any] = {}
    if path.exists():
        before = read_ratings(path, sheet)
        if before.rater != rater_name(rater):
            raise UserError(f"{path} has the ratings of {before.rater}, not those of {rater}")
        answers |= before.answers
    open_items = [n for n, item in enumerate(sheet.items) if item.id not in answers]
    place = open_items[0] if open_items else 0

    progress = ipywidgets.IntProgress(max=len(sheet.items))
    number, question = ipywidgets.Label(), ipywidgets.HTML()
    back = ipywidgets.Button(description="Back")
    onward = ipywidgets.Button(description="Next")

    def keep(answer: object) -> None:
        answers[sheet.items[place].id] = answer
        ratings = Ratings(sheet.digest, rater, answers)
        write_text(path, pydantic.TypeAdapter(Ratings).dump_json(ratings, indent=1).decode())

    def go(steps: int) -> None:
        nonlocal place
        place = min(max(place + steps, 0), len(sheet.items) - 1)
        show()

    controls: ipywidgets.Box
    if sheet.kind == "pairwise":
        buttons = {c: ipywidgets.Button(description=text) for c, text in CHOICES.items()}

        def choose(choice: str) -> None:
            keep(choice)
            go(1)

        for choice, button in buttons.items():
            button.on_click(lambda _, choice=choice: choose(choice))
        controls = ipywidgets.HBox(list(buttons.values()))
    else:
        slider = ipywidgets.IntSlider(min=0, max=100, value=50, continuous_update=False)
        rate = ipywidgets.Button(description="Rate")

        def rate_it(_: object) -> None:
            keep(slider.value)
            go(1)

        rate.on_click(rate_it)
        controls = ipywidgets.HBox([slider, rate])
    back.on_click(lambda _: go(-1))
    onward.on_click(lambda _: go(1))

    def show() -> None:
        item = sheet.items[place]
        progress.value = len(answers)
        number.value = f"{place + 1} of {len(sheet.items)}, {len(answers)} answered"
        names = ["A: ", "B: "] if sheet.kind == "pairwise" else [""]
        texts = "".join(
            f"<p>{name}{html.escape(text)}</p>"
            for name, text in zip(names, item.texts, strict=True)
        )
        question.value = f"<p><b>{html.escape(item.source)}</b></p>{texts}"
        answer = answers.get(item.id)
        if sheet.kind == "pairwise":
            for choice, button in buttons.items():
                button.button_style = "primary" if choice == answer else ""
        else:
            slider.value = 50 if answer is None else answer
        back.disabled, onward.disabled = place == 0, place == len(sheet.items) - 1

    show()
    return ipywidgets.VBox([progress, number, question, controls, ipywidgets.HBox([back, onward])])
