"""Five published descriptions of the Transformer, each assembled from the one model's parts.

What is odd in a description is a small part of its own here. Where it is wrong or fragile, so is
its preset: that is what one comes here to see. ``Lineage.mistakes`` names what to look for.
"""

from transformer_lib.course.lineages import illustrated, kyubyong, lecture, niutensor, tutorial
from transformer_lib.course.lineages.lineage import Lineage, Sizes

LINEAGES: dict[str, Lineage] = {
    lineage.name: lineage
    for lineage in (
        niutensor.LINEAGE,
        tutorial.LINEAGE,
        lecture.LINEAGE,
        illustrated.LINEAGE,
        kyubyong.LINEAGE,
    )
}

__all__ = ["LINEAGES", "Lineage", "Sizes"]
