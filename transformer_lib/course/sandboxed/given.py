"""Parts that an exercise hands to a student's function: small, fixed, and not linear.

A part is known by its class and its fields, which are plain data, so that it can be built anew in
another process. Of the library only the numbers of special tokens are used here, so that the
answer to no exercise comes along with a part.
"""

import hashlib
import inspect
from collections.abc import Callable
from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.vocabulary import BOS, EOS

TICKS = count()
MAX_CALLS = 100  # more are not written down


class Part(nn.Module):
    """Something callable that is made of plain data, its ``fields``, and keeps a log of its calls.

    An entry of the log: when it was (a number that only grows), the arguments, and the result.
    """

    def __init__(self, *fields: Any):
        super().__init__()
        self.fields = fields
        self.log: list[tuple[int, list[Any], Any]] = []

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if named:  # in the order of the names; what does not fit fails below
            order = list(inspect.signature(self.forward).parameters)[len(arguments) :]
            if sorted(named) == sorted(order):
                arguments, named = (*arguments, *(named[name] for name in order)), {}
        if named:
            names = ", ".join(inspect.signature(self.forward).parameters)
            raise TypeError(f"this {type(self).__name__} is called with ({names})")
        when, got = next(TICKS), [_copy(x) for x in arguments]
        try:
            result = super().__call__(*arguments)
        except TypeError as error:
            wanted = list(inspect.signature(self.forward).parameters)
            if len(arguments) == len(wanted):
                raise
            raise TypeError(
                f"this {type(self).__name__} is called with ({', '.join(wanted)}), and got "
                f"{len(arguments)} argument{'s' * (len(arguments) != 1)}"
            ) from error
        if len(self.log) < MAX_CALLS:
            self.log.append((when, got, _copy(result)))
        return result


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else None


def logs(value: Any) -> Any:
    """The logs of the parts in nested lists, each in its part's place, as plain data.

    A tensor is identified by its :func:`fingerprint`; the sum of two that were seen before, by both
    of theirs with a + between.
    """
    seen: dict[str, Tensor] = {}
    plain: dict[int, list[Any]] = {}
    for when, arguments, result in sorted(_entries(value), key=lambda entry: entry[0]):
        prints = [_known_sum(x, seen) or fingerprint(x) for x in arguments]
        plain[when] = [when, prints, fingerprint(result)]
        seen |= {fingerprint(x): x for x in (*arguments, result) if isinstance(x, Tensor)}
    return _in_place(value, plain)


def _entries(value: Any) -> list[tuple[int, list[Any], Any]]:
    if isinstance(value, list | tuple):
        return [entry for part in value for entry in _entries(part)]
    return value.log if isinstance(value, Part) else []


def _in_place(value: Any, plain: dict[int, list[Any]]) -> Any:
    if isinstance(value, list | tuple):
        return [_in_place(part, plain) for part in value]
    return [plain[when] for when, _, _ in value.log] if isinstance(value, Part) else None


def _known_sum(value: Any, seen: dict[str, Tensor]) -> str:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return ""
    like = [(n, x) for n, x in seen.items() if x.shape == value.shape and x.dtype == value.dtype]
    for number, (one, x) in enumerate(like):
        for other, y in like[: number + 1]:
            if torch.allclose(x + y, value, rtol=1e-6, atol=1e-6):
                return "+".join(sorted((one, other)))
    return ""


def fingerprint(value: Any) -> str:
    """The same for equal tensors of one shape, and for no others; empty for what is no tensor."""
    if not isinstance(value, Tensor):
        return ""
    numbers = value.detach().cpu().contiguous().numpy().tobytes()
    return hashlib.sha256(repr(value.shape).encode() + numbers).hexdigest()[:16]


class FixedDropout(Part):
    """Drops every third channel, so that one can see where dropout stands.

    Which ones, the vector itself decides: for a sum others than for its parts, as at random.
    """

    def forward(self, x: Tensor) -> Tensor:
        keep = (torch.arange(x.size(-1)) + x.argmax(dim=-1, keepdim=True)) % 3 != 2
        return x * keep * 1.5


class Same(Part):
    """Returns x itself, as dropout in evaluation mode does."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Norm(Part):
    """A layer norm whose scale and shift, its fields, are its own."""

    def forward(self, x: Tensor) -> Tensor:
        scale, shift = self.fields
        return F.layer_norm(x, x.shape[-1:], scale, shift)


class Sublayer(Part):
    """Something that is not linear in x; its field is a square matrix."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.fields[0]) + 0.5


class Attention(Part):
    """Attention of one head, called as ``attention(x, memory, mask)``; its field projects x."""

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        # A copy that may be changed in place: the fused form needs its output to go backward.
        return _look(x @ self.fields[0], memory, mask).clone()


class Step(Part):
    """A step of a recurrent network, ``step(x, h, c)``, returns the new h and c.

    Its fields are a matrix for x and one for h; h and c have the same width.
    """

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        w, u = self.fields
        c = 0.6 * c + torch.tanh(x @ w + h @ u)
        return torch.tanh(c + 0.5 * h), c


class Embed(Part):
    """The rows of a table, its field, without a factor."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.fields[0][tokens]


class EncoderLayer(Part):
    """Called as ``layer(x, mask)``; its field projects x."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return x + _look(torch.tanh(x @ self.fields[0]), x, mask)


class DecoderLayer(Part):
    """Called as ``layer(x, memory, tgt_mask, memory_mask)``; its field projects x."""

    def forward(self, x: Tensor, memory: Tensor, tgt_mask: Tensor, memory_mask: Tensor) -> Tensor:
        x = x + _look(torch.tanh(x @ self.fields[0]), x, tgt_mask)
        return x + _look(torch.tanh(x @ self.fields[0]), memory, memory_mask)


class Speaker(Part):
    """Logits that say a fixed sentence, as long as the model is given back what it has said.

    Its fields are the sentence, sealed, so that only asking token by token reveals it, and numbers
    to add to all logits.

    Raises:
        TypeError: what it is given is no list.
        RuntimeError: it was asked more often than any search needs.
    """

    def __init__(self, sealed: list[int], noise: Tensor):
        super().__init__(sealed, noise)
        self.calls = 0

    @classmethod
    def saying(cls, sentence: list[int], noise: Tensor) -> "Speaker":
        return cls(_sealed(sentence), noise)

    def forward(self, tokens: list[int]) -> Tensor:
        if not isinstance(tokens, list | tuple):
            got = type(tokens).__name__
            raise TypeError(f"the model takes the list of all tokens so far, and got a {got}")
        self.calls = _one_more(self.calls)
        sealed, noise = self.fields
        return _logits(tokens, sealed, noise)


class Speakers(Part):
    """A :class:`Speaker` for each row of tokens, (batch, length): logits are (batch, vocab_size).

    Its fields are the sealed sentences and numbers to add to all logits.

    Raises:
        RuntimeError: it was asked more often than any search needs, or for another batch.
    """

    def __init__(self, sealed: list[list[int]], noise: Tensor):
        super().__init__(sealed, noise)
        self.calls = 0

    @classmethod
    def saying(cls, sentences: list[list[int]], noise: Tensor) -> "Speakers":
        return cls([_sealed(sentence) for sentence in sentences], noise)

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls = _one_more(self.calls)
        sealed, noise = self.fields
        rows = [[int(token) for token in row] for row in tokens]
        if len(rows) != len(sealed):
            raise RuntimeError(f"the model has {len(sealed)} sources, and got {len(rows)} rows")
        said = zip(rows, sealed, strict=True)
        logits = torch.stack([_logits(row, sentence, noise) for row, sentence in said])
        # One that has ended goes on with noise, and every other time with another end.
        again = [EOS in row and len(row) % 2 == 0 for row in rows]
        logits[torch.tensor(again), EOS] = noise.max() + 1.0
        return logits


def _one_more(calls: int) -> int:
    if calls == 200:
        raise RuntimeError("the model has been asked 200 times and is tired")
    return calls + 1


def _logits(tokens: list[int], sealed: list[int], noise: Tensor) -> Tensor:
    logits = noise.clone()
    said = len(tokens) - 1
    token = sealed[said] ^ _key(tokens) if 0 <= said < len(sealed) else -1
    if not 0 <= token < len(noise):  # not what it has said so far, or after the end
        token = 4 + int(sum(tokens)) % 7
    logits[token] = noise.max() + 0.5
    return logits


def _sealed(sentence: list[int]) -> list[int]:
    """Each token, mixed with a key that only those before it give."""
    return [token ^ _key([BOS, *sentence[:n]]) for n, token in enumerate(sentence)]


def _key(tokens: list[int]) -> int:
    text = ",".join(str(int(token)) for token in tokens)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])


def _look(query: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
    memory = memory[:, None]
    return F.scaled_dot_product_attention(query[:, None], memory, memory, mask)[:, 0]


PARTS: dict[str, Callable[..., Part]] = {
    part.__name__: part
    for part in (
        FixedDropout, Norm, Sublayer, Attention, Embed, EncoderLayer, DecoderLayer, Speaker,
        Speakers, Same,
    )
}  # fmt: skip
