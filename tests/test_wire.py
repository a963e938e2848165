"""What crosses between a grader and a student's process comes back as it was, or not at all."""

import contextlib
import io
import json
import math
import pickle
import struct

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_lib.course.sandboxed import wire
from transformer_lib.course.sandboxed.given import Norm, Speaker
from transformer_lib.course.sandboxed.wire import WireError, decode, encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
)
values = st.recursive(
    scalars, lambda parts: st.lists(parts) | st.lists(parts).map(tuple), max_leaves=20
)


def same(a, b):
    if isinstance(a, float):
        return type(b) is float and (a == b or (math.isnan(a) and math.isnan(b)))
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@given(values)
def test_values_come_back_as_they_were(value):
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize("dtype", wire.DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4)])
def test_tensors_come_back_as_they_were(dtype, shape):
    tensor = (torch.randn(shape) * 5).abs().to(dtype)
    back = decode(encode([tensor, (tensor, tensor.transpose(0, -1) if shape else tensor)]))
    torch.testing.assert_close(back[0], tensor, rtol=0, atol=0)
    torch.testing.assert_close(back[1][0], tensor, rtol=0, atol=0)
    assert back[0].dtype == dtype


def test_nan_infinity_and_signed_zero_survive():
    tensor = torch.tensor([float("nan"), float("inf"), -0.0])
    back = decode(encode((tensor, float("-inf"), -0.0)))
    assert torch.equal(back[0].view(torch.int32), tensor.view(torch.int32))
    assert back[1] == float("-inf")
    assert math.copysign(1.0, back[2]) == -1.0


class Liar(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class LyingTensor(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Liar(3),
        LyingTensor([1.0]),
        {"a": 1},
        {1},
        object(),
        print,
        b"bytes",
        1 + 2j,
        torch.randn(2, 2).to_sparse(),
        torch.zeros(2, dtype=torch.complex64),
        torch.zeros(2**22, 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nothing_else_crosses(value):
    with pytest.raises(WireError):
        encode([value])


def test_a_value_that_holds_itself_does_not_cross():
    endless = []
    endless.append(endless)
    with pytest.raises(WireError, match="nested"):
        encode(endless)


def message(document, blob=b"", sizes=None):
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return struct.pack(">QQ", *(sizes or (len(text), len(blob)))) + text + blob


ONE = safetensors.torch.save({"0": torch.ones(2)})
LONG = safetensors.torch.save({"0": torch.zeros(2**22, 0)})  # a grader that unpacks it waits


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x00" * 15,
        pickle.dumps([1, 2]),
        message([1]),
        message(3),
        message({"int": 3}),
        message({"int": "3.5"}),
        message({"int": "9" * 2000}),
        message({"float": "one"}),
        message({"float": "1", "int": "1"}),
        message({"class": "os.system"}),
        message({"list": {"0": 1}}),
        message({"tensor": "0"}),
        message({"tensor": "1"}, ONE),
        message(None, ONE),
        message({"list": [{"tensor": "0"}, {"tensor": "0"}]}, ONE),
        message({"tensor": "0"}, ONE[:-1]),
        message({"tensor": "0"}, LONG),
        message({"tensor": "0"}, b"\xff" * 40),
        message({"tensor": "0"}, pickle.dumps(torch.ones(2))),
        message(b"[" * 100_000),
        message(b"NaN"),
        message(b"\xff\xfe"),
        message(None, sizes=(2**63, 2**63)),
        message(None, sizes=(4, 2**40)),
        message(None) + b"more",
        message({"list": [None] * (wire.MAX_NODES + 1)}),
    ],
    ids=range(27),
)
def test_bytes_that_are_no_message_are_refused(bad):
    with pytest.raises(WireError):
        decode(bad)
    stream = io.BytesIO(bad)
    with contextlib.suppress(WireError):
        wire.read(stream)
        assert stream.read(), "a stream may go on after a message; this was none"


@given(st.binary(max_size=200))
def test_random_bytes_never_do_anything_but_be_refused(noise):
    for bad in (noise, message(noise), message({"tensor": "0"}, noise)):
        with pytest.raises(WireError):
            decode(bad)


@given(place=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_changed_byte_gives_a_value_or_is_refused(place, byte):
    good = bytearray(encode([1, 2.5, "text", torch.arange(3.0)]))
    good[place % len(good)] = byte
    with contextlib.suppress(WireError):
        decode(bytes(good))


def test_messages_follow_one_another_in_a_stream():
    stream = io.BytesIO()
    wire.write(stream, [1, torch.ones(2)])
    wire.write(stream, "next")
    stream.seek(0)
    assert wire.read(stream)[0] == 1
    assert wire.read(stream) == "next"
    with pytest.raises(WireError, match="ended"):
        wire.read(stream)


def test_a_claim_of_too_many_bytes_is_refused_before_they_are_read():
    class Counted(io.BytesIO):
        taken = 0

        def read(self, size=-1):
            self.taken += size
            return super().read(size)

    stream = Counted(struct.pack(">QQ", 2**40, 0) + b"x" * 1000)
    with pytest.raises(WireError, match="claims"):
        wire.read(stream)
    assert stream.taken == 16


def test_a_part_crosses_only_from_a_trusted_writer():
    norm = Norm(torch.randn(4), torch.randn(4))
    message = encode([norm, Speaker.saying([5, 3], torch.zeros(9))])
    with pytest.raises(WireError, match="no known form"):
        decode(message)
    again, speaker = decode(message, parts=True)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(again(x), norm(x))
    assert speaker([2]).argmax() == 5


def test_a_long_document_is_refused_before_it_is_parsed():
    """Parsed, 60 MiB of {} would take 1.7 GB."""
    document = b"[" + b"{}," * (5 * 2**20) + b"{}]"
    message = wire._HEAD.pack(len(document), 0) + document
    with pytest.raises(wire.WireError, match="too long"):
        wire.decode(message)
    with pytest.raises(wire.WireError, match="claims more"):
        wire.read(io.BytesIO(message))
