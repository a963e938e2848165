"""Where in a student's code autograd is left: what to look at if the gradient alone is wrong."""

import ast
from collections.abc import Callable
from typing import Any

from transformer_lib.course.checks.repair import definition_of, segment

LEAVING = (
    *("no_grad", "inference_mode", "detach", "detach_", "data", "from_pretrained"),
    *("numpy", "from_numpy", "item", "tolist", "Parameter", "tensor"),
)
"""Names after a dot, the surest ones first."""


def where_autograd_is_left(candidate: Callable[..., Any]) -> str:
    """The line with the call that most surely leaves autograd, if there is one.

    A class may well make parameters: what it keeps in them is what is to be trained.
    """
    tree, source = definition_of(candidate)
    if tree is None:
        return ""
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in LEAVING
        if not (node.attr == "Parameter" and isinstance(tree, ast.ClassDef))
    ]
    if not found:
        return ""
    surest = min(found, key=lambda node: LEAVING.index(node.attr))
    place = segment(calls.get(id(surest), surest), source)
    return f"line {surest.lineno}, `{place}`: autograd does not follow what happens here"
