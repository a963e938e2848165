"""Figures in notebooks and pages, drawn without a network; each has a description in words."""

import base64
import io
from typing import Any

from matplotlib.figure import Figure

from transformer_lib.plots.style import styled

# What JupyterLab draws by itself. Altair 6 writes Vega-Lite 6; our charts are valid in both.
VEGA_LITE = "application/vnd.vegalite.v5+json"
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.20.1.json"


def show(figure: Figure, alternative: str) -> None:
    """Display a figure in a notebook; ``alternative`` describes it in words."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    _display({"image/png": buffer.getvalue()}, alternative)


@styled  # whose salt makes the names in the file the same each time
def as_data_uri(figure: Figure) -> str:
    """A figure for the ``src`` of an HTML page that loads nothing from elsewhere."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def show_chart(chart: Any) -> None:
    """Display an Altair chart: interactive in JupyterLab, a picture elsewhere.

    Altair's own default loads its code from the network and names each output at random. The text
    alternative is the chart's ``description``.

    Raises:
        ValueError: the chart has no description.
    """
    import vl_convert

    # Dark letters on white, or JupyterLab's dark theme would write white on it.
    black = {"labelColor": "black", "titleColor": "black"}
    chart = chart.properties(background="white").configure_title(color="black")
    chart = chart.configure_axis(**black).configure_legend(**black)
    specification = chart.to_dict() | {"$schema": SCHEMA}
    if "description" not in specification:
        raise ValueError("the chart has no text alternative; give altair.Chart(description=…)")
    picture = vl_convert.vegalite_to_png(specification, vl_version="5.20", scale=1.5)
    _display({VEGA_LITE: specification, "image/png": picture}, specification["description"])


def _display(data: dict[str, Any], alternative: str) -> None:
    """The description is also the ``alt`` of a page made with nbconvert's classic template."""
    from IPython.display import display

    metadata = {"image/png": {"alt": alternative}}
    display(data | {"text/plain": alternative}, metadata=metadata, raw=True)
