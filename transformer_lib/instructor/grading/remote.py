"""A student's functions and classes as seen from outside: call them as if they were here.

A call sends the arguments through the sandbox's connection and brings back what came of it, as
data. Gradients pass too: going backward through a remote call asks the worker for them. So a check
or a test that was written for a function works on a remote one without knowing it.
"""

import builtins
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_lib.course.sandboxed import wire
from transformer_lib.instructor.grading.sandbox import Connection, Ended, StudentError

Place = list[int]
MAX_PARAMETERS = 10_000
MAX_NAME, MAX_STEPS = 200, 20  # characters and parts of a parameter's name


def remote(connection: Connection, name: str) -> Any:
    """What the notebook calls ``name``: a function, a class of modules, or a value.

    Raises:
        NameError: the notebook has nothing of this name.
        TypeError: its value cannot be handed over.
        Ended: its process is gone.
    """
    match connection.ask("kind", name):
        case "missing":
            raise NameError(f"there is no {name}")
        case "class":
            return RemoteClass(connection, name)
        case "function":
            return RemoteFunction(connection, name)
        case "value":
            return _ask(connection, "value", name)
    raise Ended("it answered the question for a name with something else")


class RemoteFunction:
    """A function of the notebook."""

    def __init__(self, connection: Connection, name: str):
        self.__name__ = name
        self._connection = connection

    def __call__(self, *arguments: Any) -> Any:
        return _call(self._connection, "call", [self.__name__], arguments)[0]

    def watched(self, *arguments: Any) -> tuple[Any, tuple[Any, ...]]:
        """The value, and the arguments as the function left them.

        The caller's own are never changed: a test that uses them again must not be misled.
        """
        return _call(self._connection, "call", [self.__name__], arguments)


class RemoteClass:
    """A class of the notebook; to construct it makes a :class:`RemoteModule`."""

    def __init__(self, connection: Connection, name: str):
        self.__name__ = name
        self._connection = connection

    def __call__(self, *arguments: Any) -> "RemoteModule":
        reply = _ask(self._connection, "build", self.__name__, list(arguments))
        match reply:
            case [int(number), list(named)] if len(named) <= MAX_PARAMETERS:
                return RemoteModule(self._connection, number, dict(map(_named_tensor, named)))
        raise Ended("it answered the construction of a class with something else")


class RemoteModule(nn.Module):
    """A module of the notebook. Its parameters are here, and go along with each call."""

    def __init__(self, connection: Connection, number: int, parameters: dict[str, Tensor]):
        super().__init__()
        self._connection = connection
        self._number = number
        for name, value in parameters.items():
            *path, last = name.split(".")
            owner: nn.Module = self
            for step in path:
                if step not in owner._modules:
                    owner.add_module(step, nn.Module())
                owner = owner.get_submodule(step)
            owner.register_parameter(last, nn.Parameter(value, value.is_floating_point()))

    def forward(self, *arguments: Any) -> Any:
        parameters = list(self.parameters())
        question = [self._number, self.training, parameters]
        return _call(self._connection, "call_module", question, arguments, parameters)[0]

    def keeps_graph(self) -> Any:
        """Whether a gradient would flow through what the module keeps into an earlier call."""
        return _ask(self._connection, "keeps_graph", self._number)


def _call(
    connection: Connection,
    what: str,
    question: list[Any],
    arguments: tuple[Any, ...],
    inputs: list[nn.Parameter] | tuple[()] = (),
) -> tuple[Any, tuple[Any, ...]]:
    """The value of a call, differentiable by ``inputs`` and arguments, and the arguments after."""
    leaves = list(_leaves(arguments)) if torch.is_grad_enabled() else []
    places, tensors = [place for place, _ in leaves], [tensor for _, tensor in leaves]

    def ask() -> _Reply:
        wanted = None if torch.is_inference_mode_enabled() else places
        reply = _ask(connection, what, *question, list(arguments), wanted)
        match reply:
            case [int(number), value, list(differentiable), list(after)] if (
                len(after) == len(arguments)
                and len(differentiable) == len(wire.tensors_in(value))
                and all(type(flag) is bool for flag in differentiable)
            ):
                return _Reply(number, value, differentiable, after)
        raise Ended("it answered a call with something else")

    if not tensors and not (inputs and torch.is_grad_enabled()):
        reply = ask()
        return reply.value, _after(arguments, reply.after)
    call = _Call(connection, ask)
    outputs = _Differentiable.apply(call, *inputs, *tensors)
    value = _refill(call.reply.value, iter(outputs))
    return value, _after(arguments, call.reply.after)


class _Reply(NamedTuple):
    """What came back of a call."""

    number: int
    value: Any
    differentiable: list[bool]
    after: list[Any]


class _Call:
    """A call on its way through autograd, which knows tensors only."""

    reply: _Reply

    def __init__(self, connection: Connection, ask: Callable[[], _Reply]):
        self.connection = connection
        self.ask = ask


class _Differentiable(torch.autograd.Function):
    """The remote call as a node of the graph: backward asks the worker for the gradients."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *inputs: Tensor) -> tuple[Tensor, ...]:
        call.reply = call.ask()
        outputs = tuple(wire.tensors_in(call.reply.value))
        ctx.call, ctx.shapes = call, [(x.shape, x.dtype) for x in inputs]
        ctx.set_materialize_grads(False)
        pairs = zip(outputs, call.reply.differentiable, strict=True)
        ctx.mark_non_differentiable(*(x for x, flag in pairs if not flag))
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        number, _, differentiable, _ = ctx.call.reply
        wanted = [g for g, flag in zip(gradients, differentiable, strict=True) if flag]
        reply = _ask(ctx.call.connection, "backward", number, wanted)
        if type(reply) is not list or len(reply) != len(ctx.shapes):
            raise Ended("it answered the question for gradients with something else")
        for got, (shape, dtype) in zip(reply, ctx.shapes, strict=True):
            if got is not None and not (
                type(got) is Tensor and got.shape == shape and got.dtype == dtype
            ):
                raise Ended("its gradients have not the shape of what they are gradients of")
        return (None, *reply)


def _ask(connection: Connection, what: str, *question: Any) -> Any:
    """Ask, and raise what the student's code raised as an exception of the same kind."""
    try:
        return connection.ask(what, *question)
    except wire.WireError as error:
        raise TypeError(f"the test's own arguments cannot be handed over: {error}") from error
    except StudentError as error:
        raise _alike(error) from None


def _alike(error: StudentError) -> Exception:
    """An exception of the same class, if it is one of Python's own; with the same explanation."""
    kind = getattr(builtins, error.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return error
    same = kind.__new__(kind)
    same.args = (error.explanation,)
    same.explanation = error.explanation  # type: ignore[attr-defined]
    return same


def _after(arguments: tuple[Any, ...], after: list[Any]) -> tuple[Any, ...]:
    """The arguments as the call left them; those that are not data do not come back."""
    return tuple(
        mine if theirs is None else theirs for mine, theirs in zip(arguments, after, strict=True)
    )


def _leaves(value: Any, place: Place | None = None) -> Iterator[tuple[Place, Tensor]]:
    if isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _leaves(part, [*(place or []), index])
    elif isinstance(value, Tensor) and value.requires_grad:
        yield place or [], value


def _refill(value: Any, outputs: Iterator[Tensor]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)([_refill(part, outputs) for part in value])
    return next(outputs) if isinstance(value, Tensor) else value


def _named_tensor(pair: Any) -> tuple[str, Tensor]:
    match pair:
        case [str(name), Tensor() as value] if len(name) <= MAX_NAME:
            steps = name.split(".")
            if len(steps) <= MAX_STEPS and all(s.isidentifier() or s.isdigit() for s in steps):
                return name, value
    raise Ended("it gave its parameters in no known form")
