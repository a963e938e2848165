"""Values as bytes: how a grader and a process that runs a student's code talk to one another.

Numbers, texts, lists, tuples and tensors cross: no class, no function, no pickle. Towards the
student, the few parts of :mod:`transformer_lib.course.sandboxed.given` cross as well, by name and
fields. A message is a JSON document that says how the value is built, and behind it its tensors as
safetensors. Whoever reads does not trust whoever wrote: everything is measured before it is used,
and a message that is not exactly of this form is refused with a :class:`WireError`.
"""

import json
import math
import re
import struct
from collections.abc import Callable
from io import BufferedIOBase
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from transformer_lib.course.sandboxed.given import PARTS

MAX_BYTES = 64 * 2**20
MAX_DOCUMENT = 12 * 2**20  # of that, JSON: parsed, it takes up to twenty times as much
MAX_HEADER = 2**20  # of that, what safetensors says of the tensors; JSON, too
MAX_AXIS = 2**18  # who unpacks a tensor has a Python object for each of its rows, empty or not
MAX_DEPTH = 16
MAX_NODES = 100_000
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
# Each byte is looked at once, whoever wrote it: a string without an end takes the rest.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_HEAD = struct.Struct(">QQ")  # bytes of the JSON document, bytes of the tensors


class WireError(Exception):
    """A value that cannot cross, or bytes that are not a message."""


def encode(value: Any) -> bytes:
    """The message for ``value``.

    Raises:
        WireError: it holds something that does not cross, is too large or too deep.
    """
    tensors: dict[str, Tensor] = {}
    document = json.dumps(_build(value, tensors, _Counter()), allow_nan=False).encode()
    blob = safetensors.torch.save(tensors) if tensors else b""
    if _HEAD.size + len(document) + len(blob) > MAX_BYTES:
        raise WireError(f"the value takes more than {MAX_BYTES} bytes")
    return _HEAD.pack(len(document), len(blob)) + document + blob


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of nested lists and tuples, in order."""
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors_in(part)]
    return [value] if isinstance(value, Tensor) else []


def is_data(value: Any) -> bool:
    """Whether a value is plain data, which can be compared: a tensor, number, text, or several."""
    return _is_data(value, {})


def _is_data(value: Any, seen: dict[int, bool]) -> bool:
    if isinstance(value, list | tuple):
        if id(value) not in seen:
            seen[id(value)] = False  # as long as it is looked at: one that contains itself is none
            seen[id(value)] = all(_is_data(part, seen) for part in value)
        return seen[id(value)]
    return isinstance(value, Tensor | str | int | float)


def decode(message: bytes, parts: bool = False) -> Any:
    """The value of a message.

    Args:
        parts: whether the writer is trusted to have parts built.

    Raises:
        WireError: it is not exactly what :func:`encode` writes.
    """
    document, blob = _split(message)
    tree = parse(document, 4 * MAX_NODES)  # a number takes two, a list of one another
    reader = _Reader(_tensors(blob), parts)
    value = reader.rebuild(tree)
    if reader.used != reader.tensors.keys():
        raise WireError("the message has tensors that nothing refers to")
    return value


def parse(document: bytes, parts: int) -> Any:
    """JSON that anybody may have written: its parts are counted before any of them is made.

    Raises:
        WireError: it is no JSON, or has more than so many objects, lists and commas.
    """
    bare = _STRING.sub(b"", document)
    if sum(bare.count(mark) for mark in (b"{", b"[", b",")) > parts:
        raise WireError("the document has too many parts")
    try:
        return json.loads(document, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WireError("the document is not JSON") from error


def write(stream: BufferedIOBase, value: Any) -> None:
    """Send a value. Raises :class:`WireError` as :func:`encode` does."""
    stream.write(encode(value))
    stream.flush()


def read(stream: BufferedIOBase, parts: bool = False, most: int = MAX_BYTES) -> Any:
    """Receive a value; never takes more than one message, nor more than ``most`` bytes.

    Args:
        parts: as for :func:`decode`.

    Raises:
        WireError: the stream ends before, or what comes is not a message.
    """
    head = _exactly(stream, _HEAD.size)
    sizes = _HEAD.unpack(head)
    if _HEAD.size + sum(sizes) > most or sizes[0] > MAX_DOCUMENT:
        raise WireError(f"the message claims more than {most} bytes")
    return decode(head + _exactly(stream, sum(sizes)), parts)


class _Counter:
    """Counts the parts of a value, and how deep they lie."""

    def __init__(self) -> None:
        self.nodes = 0

    def step(self, depth: int) -> None:
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise WireError(f"the value is nested more than {MAX_DEPTH} deep")
        if self.nodes > MAX_NODES:
            raise WireError(f"the value has more than {MAX_NODES} parts")


def _build(value: Any, tensors: dict[str, Tensor], counter: _Counter, depth: int = 0) -> Any:
    counter.step(depth)
    # By the exact type: a subclass may lie about what it is.
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        return {"int": str(value)} if abs(value) < 10**1000 else _cannot(value)
    if type(value) is float:
        return {"float": repr(value)}
    if type(value) in (list, tuple):
        parts = [_build(part, tensors, counter, depth + 1) for part in value]
        return {"list" if type(value) is list else "tuple": parts}
    if PARTS.get(type(value).__name__) is type(value):
        fields = _build(value.fields, tensors, counter, depth + 1)
        return {"part": {type(value).__name__: fields}}
    if type(value) in (Tensor, torch.nn.Parameter):
        if value.dtype not in DTYPES or value.layout != torch.strided or value.is_meta:
            kind = "meta" if value.is_meta else value.layout
            raise WireError(f"a tensor of {value.dtype}, {kind} does not cross")
        if max(value.shape, default=0) >= MAX_AXIS:
            raise WireError(f"a tensor with an axis of {MAX_AXIS:,} or longer does not cross")
        name = str(len(tensors))
        # A copy of its own, or tensors that share memory could not be stored.
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    return _cannot(value)


def _cannot(value: Any) -> Any:
    raise WireError(f"a value of the type {type(value).__name__} does not cross")


class _Reader:
    """Builds the value that a document describes."""

    def __init__(self, tensors: dict[str, Tensor], parts: bool):
        self.tensors = tensors
        self.parts = parts
        self.used: set[str] = set()
        self.counter = _Counter()

    def rebuild(self, tree: Any, depth: int = 0) -> Any:
        self.counter.step(depth)
        if tree is None or type(tree) in (bool, str):
            return tree
        if type(tree) is not dict or len(tree) != 1:
            raise WireError("the message's document has a part of no known form")
        ((kind, content),) = tree.items()
        if kind in ("list", "tuple") and type(content) is list:
            values = [self.rebuild(value, depth + 1) for value in content]
            return values if kind == "list" else tuple(values)
        if kind == "part" and self.parts:
            ((name, fields),) = content.items()
            return PARTS[name](*self.rebuild(fields, depth + 1))
        if type(content) is str:
            if kind == "tensor" and content in self.tensors and content not in self.used:
                self.used.add(content)
                return self.tensors[content]
            number: dict[str, Callable[[str], int | float]] = {"int": int, "float": float}
            if kind in number and len(content) <= 1002:
                try:
                    return number[kind](content)
                except ValueError as error:
                    raise WireError(f"the message has a wrong {kind}") from error
        raise WireError("the message's document has a part of no known form")


def _split(message: bytes) -> tuple[bytes, bytes]:
    if len(message) < _HEAD.size or len(message) > MAX_BYTES:
        raise WireError("the message is too short or too long")
    document, blob = _HEAD.unpack_from(message)
    if document > MAX_DOCUMENT:
        raise WireError("the message's document is too long")
    if _HEAD.size + document + blob != len(message):
        raise WireError("the message has another length than it says")
    middle = _HEAD.size + document
    return message[_HEAD.size : middle], message[middle:]


def _tensors(blob: bytes) -> dict[str, Tensor]:
    if not blob:
        return {}
    try:
        _look_at_header(blob)
        tensors = safetensors.torch.load(blob)
    except Exception as error:  # of a library that reads what anybody may have written
        raise WireError("the message's tensors cannot be read") from error
    for tensor in tensors.values():
        if tensor.dtype not in DTYPES:
            raise WireError(f"a tensor of {tensor.dtype} does not cross")
        if math.prod(tensor.shape) * tensor.element_size() > MAX_BYTES or tensor.ndim > MAX_DEPTH:
            raise WireError("a tensor is too large")
    return tensors


def _look_at_header(blob: bytes) -> None:
    """Refuse sizes that a library might stumble over. Raises some exception."""
    (size,) = struct.unpack_from("<Q", blob)
    if size > MAX_HEADER:
        raise ValueError("a long header")
    header = json.loads(blob[8 : 8 + size])
    for name, tensor in header.items():
        if name != "__metadata__" and not all(0 <= n < MAX_AXIS for n in tensor["shape"]):
            raise ValueError("a long axis")


def _exactly(stream: BufferedIOBase, size: int) -> bytes:
    parts = []
    while size > 0:
        part = stream.read(min(size, 2**20))
        if not part:
            raise WireError("the stream ended in the middle of a message")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
