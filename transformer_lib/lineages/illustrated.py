"""The illustrated documentation (PyTorch; its positional code is TensorFlow's)."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from transformer_lib.lineages import lecture
from transformer_lib.lineages.lineage import Lineage


def column_by_column(length: int, d_model: int) -> Float[Tensor, "{length} {d_model}"]:
    """pos/10000^((j − j mod 2)/d_model) in column j; then sine of even, cosine of odd columns."""
    column = torch.arange(d_model, dtype=torch.float64)
    position = torch.arange(length, dtype=torch.float64)[:, None]
    table = position / 10000.0 ** ((column - column % 2) / d_model)
    table[:, 0::2] = table[:, 0::2].sin()
    table[:, 1::2] = table[:, 1::2].cos()
    return table.to(torch.get_default_dtype())


LINEAGE = Lineage(
    name="illustrated",
    source="an illustrated documentation (PyTorch)",
    build=partial(lecture.build, position_table=column_by_column),
    oddities=("the lecture's model; its position table is computed column by column",),
    mistakes=("M4", "M7", "M10", "M11", "M12", "M13"),
)
