"""An all-reduce in a ring, step by step: who holds how much of which chunk."""

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from transformer_lib.plots.measurements import heat_map
from transformer_lib.plots.style import styled


@styled
def ring_steps(counts: Float[Tensor, "states devices chunks"]) -> Figure:
    """A field for each device (row) and chunk (column): how many devices' gradients are in it."""
    devices = counts.size(1)
    names = ["at first", *[f"added, step {s}" for s in range(1, devices)]]
    names += [f"passed on, step {s}" for s in range(1, devices)]
    figure = Figure(figsize=(8.4, 4.2), layout="constrained")
    for number, (name, held) in enumerate(zip(names, counts.tolist(), strict=True)):
        second = number >= devices  # half, in a row of its own, below the steps of the first
        axes = figure.add_subplot(2, devices, number + 1 + second)
        shown = {"annot": True, "fmt": ".0f", "cbar": False, "square": True}
        heat_map(axes, held, "", vmin=0, vmax=devices, **shown)
        axes.set_title(name, fontsize=9)
        axes.set(xlabel="chunk", ylabel="device")
        axes.tick_params(labelsize=8)
    return figure
