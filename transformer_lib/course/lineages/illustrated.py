"""The illustrated documentation (PyTorch; its positional code is TensorFlow's)."""

import torch
from jaxtyping import Float
from torch import Tensor

from transformer_lib.course.lineages import lecture
from transformer_lib.course.lineages.lineage import Lineage, Sizes
from transformer_lib.model import Transformer


def column_by_column(length: int, d_model: int) -> Float[Tensor, "{length} {d_model}"]:
    """pos/10000^((j − j mod 2)/d_model) in column j; then sine of even, cosine of odd columns."""
    column = torch.arange(d_model, dtype=torch.float64)
    position = torch.arange(length, dtype=torch.float64)[:, None]
    table = position / 10000.0 ** ((column - column % 2) / d_model)
    table[:, 0::2] = table[:, 0::2].sin()
    table[:, 1::2] = table[:, 1::2].cos()
    return table.to(torch.get_default_dtype())


def build(sizes: Sizes) -> Transformer:
    """Pre-norm, x + dropout(f(LN(x))), with a norm after each stack; the lecture's other parts.

    The page prints attention, multi-head attention, feed-forward and the position table. It leaves
    open the norm and the residual connection: it calls ``LayerNorm`` and ``SublayerConnection``
    without showing them, and says “Add & Normalize after each sub-module”. Its classes are those of
    The Annotated Transformer, whose own are these; the sentence would be post-norm.
    """
    return lecture.build(sizes, residual="pre", position_table=column_by_column)


LINEAGE = Lineage(
    name="illustrated",
    source="an illustrated documentation (PyTorch)",
    build=build,
    oddities=(
        "norm and residual are not shown: The Annotated Transformer's, which are pre-norm, a last "
        "norm after each stack, LayerNorm with the unbiased deviation",
        "blocked scores become −10⁹",
        "dropout also after the ReLU and on attention weights",
        "its position table is computed column by column",
    ),
    mistakes=("M4", "M7", "M10", "M11", "M12", "M13"),
)
