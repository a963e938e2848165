"""Runs a student's notebook on behalf of a grader who asks from outside, and knows nothing else.

This is the program inside the sandbox. It imports once what notebooks need and then forks a process
for each submission, which shuts itself in (:mod:`transformer_lib.course.sandboxed.isolation`) and
answers over a connection of its own: run this cell, call this function on these tensors, give me
the gradients. Student's code shares a process with nothing that is worth knowing or changing.
"""

import contextlib
import importlib
import itertools
import json
import os
import socket
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from io import BufferedIOBase
from typing import Any, NamedTuple

import numpy as np
import torch
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from traitlets import Type
from traitlets.config import Config

from transformer_lib.course.sandboxed import wire
from transformer_lib.course.sandboxed.explain import explain_error
from transformer_lib.course.sandboxed.given import logs
from transformer_lib.course.sandboxed.isolation import UIDS, Limits, confine, shell_code, shut_in
from transformer_lib.course.sandboxed.kept import kept_graphs, parameters_of

MAX_TEXT = 100_000  # characters of one output
MAX_OUTPUT = 4_000_000  # characters of all outputs of a cell
MAX_OUTPUTS = 200
MAX_EVENTS = 20_000  # calls and returns in which it is noted what was called
MAX_NAMES = 1000
MAX_GRAPHS = 8  # calls whose gradients can still be asked for

Reply = list[Any]


class _Outputs:
    """What a cell shows, in the form of a notebook's outputs, up to a limit."""

    def __init__(self) -> None:
        self.clear()

    @staticmethod
    def of(shell: Any) -> "_Outputs":
        return shell.outputs

    def clear(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.room = MAX_OUTPUT

    def add(self, output: dict[str, Any]) -> None:
        size = len(json.dumps(output, default=str))
        if size <= self.room and len(self.items) < MAX_OUTPUTS:
            self.items.append(output)
            self.room -= size

    def write(self, name: str, text: str) -> None:
        last = self.items[-1] if self.items else {}
        if last.get("output_type") != "stream" or last["name"] != name:
            self.add({"output_type": "stream", "name": name, "text": text[:MAX_TEXT]})
        elif len(last["text"]) < MAX_TEXT:
            last["text"] += text[: MAX_TEXT - len(last["text"])]


class _Stream:
    """A text stream whose text becomes an output."""

    encoding = "utf-8"

    def __init__(self, outputs: _Outputs, name: str):
        self.outputs = outputs
        self.name = name

    def write(self, text: str) -> int:
        self.outputs.write(self.name, str(text))
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False


class _Hook(DisplayHook):
    """Keeps the value of a cell's last expression as an output."""

    def __call__(self, result: Any = None) -> None:
        if result is not None and not self.quiet():
            data, metadata = self.compute_format_data(result)
            _Outputs.of(self.shell).add(
                {
                    "output_type": "execute_result",
                    "execution_count": self.prompt_count,
                    "data": data,
                    "metadata": metadata,
                }
            )


class _Publisher(DisplayPublisher):
    def publish(self, data: Any, metadata: Any = None, *_: Any, **__: Any) -> None:
        _Outputs.of(self.shell).add(
            {"output_type": "display_data", "data": data, "metadata": metadata or {}}
        )


class _Shell(InteractiveShell):
    """IPython without a terminal, a history or a kernel."""

    displayhook_class = Type(_Hook)
    display_pub_class = Type(_Publisher)

    def __init__(self, **settings: Any):
        self.outputs = _Outputs()
        super().__init__(**settings)

    def enable_gui(self, gui: str | None = None) -> None:
        """Nothing, as there are no windows: ``%matplotlib inline`` asks for none."""

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        self.outputs.add(
            {
                "output_type": "error",
                "ename": etype.__name__,
                "evalue": str(evalue)[:1000],
                "traceback": [line[:MAX_TEXT] for line in stb],
            }
        )


class _Seen(TorchFunctionMode):
    """Notes what a student's function calls: functions of PyTorch and of C, packages of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.left = MAX_EVENTS

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        self.names.add(getattr(function, "__name__", ""))
        return function(*arguments, **(named or {}))

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            with self:
                yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.names.add(frame.f_globals.get("__name__", "").partition(".")[0])
        elif event == "c_call":
            self.names.add(argument.__name__)
        self.left -= 1
        if self.left <= 0:  # it takes time, and what is called is called early
            sys.setprofile(None)


class _Graph(NamedTuple):
    """A call whose gradients can be asked for."""

    inputs: list[Tensor]  # a module's parameters first
    outputs: list[Tensor]
    own: Sequence[Tensor]  # the same parameters where the module keeps them


class Worker:
    """Answers a grader's questions about one notebook."""

    def __init__(self) -> None:
        self.shell = _Shell.instance(
            config=Config(HistoryManager={"enabled": False}, InteractiveShell={"colors": "nocolor"})
        )
        self.objects: list[Any] = []
        self.graphs: dict[int, _Graph] = {}
        self.calls = 0
        self.seen: _Seen | None = None

    def answer(self, question: Any) -> Reply:
        """Do what is asked; whatever happens, there is a reply."""
        number, what, *arguments = question
        try:
            return [number, "ok", getattr(self, f"do_{what}")(*arguments)]
        except BaseException as error:
            said = explain_error(error)  # of exit() too, which must not end the conversation
            return [number, "error", type(error).__name__, said[:400]]

    def do_run(self, source: str) -> str:
        """Run a cell; its outputs as JSON."""
        outputs = self.shell.outputs
        outputs.clear()
        with (
            contextlib.redirect_stdout(_Stream(outputs, "stdout")),
            contextlib.redirect_stderr(_Stream(outputs, "stderr")),
        ):
            self.shell.run_cell(source, store_history=True)
        return json.dumps(outputs.items, default=str)

    def do_give(self, source: str) -> None:
        """Run the grader's own code, which leaves no source behind: no history, no lines."""
        exec(compile(source, "<given>", "exec", dont_inherit=True), self.shell.user_ns)

    def do_kind(self, name: str) -> str:
        """What a name stands for: a class, a function, a value, or nothing."""
        if name not in self.shell.user_ns:
            return "missing"
        value = self.shell.user_ns[name]
        if isinstance(value, type):
            return "class"
        return "function" if callable(value) else "value"

    def do_value(self, name: str) -> Any:
        return _plain(self.shell.user_ns[name])

    def do_build(self, name: str, arguments: list[Any]) -> list[Any]:
        """Construct a module; its number, and its parameters with their names."""
        built = self.shell.user_ns[name](*arguments)
        if not callable(built):
            raise TypeError(f"{name} makes something that cannot be called")
        self.objects.append(built)
        parameters = parameters_of(built) if isinstance(built, nn.Module) else {}
        return [len(self.objects) - 1, [[name, p.detach()] for name, p in parameters.items()]]

    def do_call(self, name: str, arguments: list[Any], leaves: list[list[int]] | None) -> list[Any]:
        """Call a function; ``leaves`` are the places of the tensors that want a gradient.

        With ``None`` in place of a list, autograd is off during the call. The reply: the call's
        number, the value, which of its tensors have a gradient, and the arguments as they are
        afterwards.
        """
        return self._called(self.shell.user_ns[name], arguments, leaves)

    def do_call_module(
        self,
        number: int,
        training: bool,
        parameters: list[Tensor],
        arguments: list[Any],
        leaves: list[list[int]] | None,
    ) -> list[Any]:
        """Call a module with these parameters, which want gradients, before those of leaves."""
        module = self.objects[number]
        if not isinstance(module, nn.Module):
            return self._called(module, arguments, leaves)
        module.train(training)
        given = [p.requires_grad_(p.is_floating_point()) for p in parameters]
        own = parameters_of(module)
        # Also in their places, for the module may keep them in other ways besides: in a partial.
        for parameter, wanted in zip(own.values(), given, strict=True):
            parameter.data = wanted.detach()
            parameter.requires_grad_(parameter.is_floating_point())
        named = dict(zip(own, given, strict=True))

        def call(*passed: Any) -> Any:
            return torch.func.functional_call(module, named, passed)

        return self._called(call, arguments, leaves, given, list(own.values()))

    def do_keeps_graph(self, number: int) -> bool:
        """Whether a gradient would flow through what a module keeps into a call before the last."""
        module = self.objects[number]
        if not isinstance(module, nn.Module):
            return False
        before = [graph for call, graph in self.graphs.items() if call < self.calls]
        earlier = [x for graph in before for x in graph.inputs[len(graph.own) :]]
        return bool(earlier) and any(
            gradient is not None
            for kept in kept_graphs(module)
            for gradient in torch.autograd.grad(
                kept.sum(), earlier, allow_unused=True, retain_graph=True
            )
        )

    def _called(
        self,
        function: Callable[..., Any],
        arguments: list[Any],
        leaves: list[list[int]] | None,
        parameters: Sequence[Tensor] = (),
        own: Sequence[Tensor] = (),
    ) -> list[Any]:
        wanted = [_at(arguments, place).requires_grad_() for place in leaves or ()]
        # Copies, so that a function that writes into its arguments can still be watched.
        passed = _map_tensors(lambda x: x.clone() if x.requires_grad else x, arguments)
        looking = self.seen.looking() if self.seen else contextlib.nullcontext()
        with torch.inference_mode(leaves is None), looking:
            value = _plain(function(*passed))
        outputs = [x for x in wire.tensors_in(value) if x.requires_grad]
        self.calls += 1
        if outputs:
            self.graphs[self.calls] = _Graph([*parameters, *wanted], outputs, own)
            self.graphs.pop(self.calls - MAX_GRAPHS, None)
        pairs = zip(passed, logs(passed), strict=True)
        after = [x if wire.is_data(x) else log for x, log in pairs]
        return [self.calls, value, [x.requires_grad for x in wire.tensors_in(value)], after]

    def do_watch(self) -> None:
        """From now on note what student's functions call; it takes time."""
        self.seen = _Seen()

    def do_called(self) -> list[str]:
        """Names of PyTorch's and C's functions, and of packages, that were called since then."""
        return sorted(self.seen.names)[:MAX_NAMES] if self.seen else []

    def do_backward(self, call: int, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients of a call's inputs, given those of its outputs."""
        graph = self.graphs[call]
        pairs = [(x, g) for x, g in zip(graph.outputs, gradients, strict=True) if g is not None]
        found: list[Tensor | None] = list(
            torch.autograd.grad(
                [x for x, _ in pairs],
                [*graph.inputs, *graph.own],
                [g for _, g in pairs],
                allow_unused=True,
                retain_graph=True,
            )
        )
        for place, more in enumerate(found[len(graph.inputs) :]):
            if more is not None:
                so_far = found[place]
                found[place] = more if so_far is None else so_far + more
        return found[: len(graph.inputs)]


def _at(values: Any, place: list[int]) -> Any:
    for index in place:
        values = values[index]
    return values


def _map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_map_tensors(change, part) for part in value)
    return change(value) if isinstance(value, Tensor) else value


def _plain(value: Any) -> Any:
    """Numbers of NumPy as Python's, kinds of tuple as tuples: what can cross, if it can."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value


def serve(worker: Worker, reader: BufferedIOBase, writer: BufferedIOBase) -> None:
    """Answer until the grader has no more questions."""
    process = os.getpid()
    while True:
        try:
            question = wire.read(reader, parts=True)
        except wire.WireError:
            return
        reply = worker.answer(question)
        if os.getpid() != process:  # the notebook forked; one answer is enough
            os._exit(0)
        try:
            wire.write(writer, reply)
        except Exception as error:  # it cannot cross; so that the next question has an answer
            wire.write(writer, [question[0], "error", "WireError", str(error)[:400]])


def stand_in_for_checks() -> None:
    """Let notebooks import ``transformer_lib.checks``: nothing is judged where students' code runs.

    A cell may go on only if its check passes, and what it defines below may be needed.
    """
    module = types.ModuleType("transformer_lib.checks")
    module.__getattr__ = _nothing  # type: ignore[method-assign]
    sys.modules[module.__name__] = module


class _Unjudged:
    """What ``check`` and ``run_test`` give here; a notebook shows nothing of it."""

    passed = True
    share = 1.0

    def _ipython_display_(self) -> None:
        pass


def _nothing(name: str) -> Callable[..., _Unjudged | None]:
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *_, **__: _Unjudged() if name in ("check", "run_test") else None


def prepare(imports: list[str]) -> Worker:
    """Do once what every submission needs: import modules, start IPython, look at the processor."""
    torch.set_num_threads(1)  # and no pool of threads, which would not survive a fork
    x = torch.ones(8, 8, requires_grad=True)
    torch.autograd.grad(x @ x, x, torch.ones(8, 8))
    stand_in_for_checks()
    for name in imports:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    worker = Worker()
    worker.do_run("%matplotlib inline\n0")
    return worker


def serve_forks(worker: Worker, control: socket.socket, settings: dict[str, Any]) -> None:
    """Fork a process for each connection that comes over ``control``; one at a time."""
    limits = Limits(**settings["limits"])
    for uid in _uids(settings["uid"]):
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        child = os.fork()
        if child == 0:
            control.close()
            try:
                shut_in(limits, uid)
            except OSError as error:
                os.write(descriptors[0], wire.encode(["refused", str(error)]))
                os._exit(3)
            _silence()
            _enter_folder()
            with socket.socket(fileno=descriptors[0]) as connection:
                stream = connection.makefile("rwb")
                wire.write(stream, ["ready"])
                serve(worker, stream, stream)
            os._exit(0)
        os.close(descriptors[0])
        _, status = os.waitpid(child, 0)
        control.send(bytes([shell_code(os.waitstatus_to_exitcode(status))]))


def _uids(first: int | None) -> Iterator[int | None]:
    """Another user for each submission, so that none can meet what another one left."""
    for number in itertools.count():
        yield None if first is None else first + number % UIDS


def _enter_folder() -> None:
    folder = os.path.join(os.environ["HOME"], "work")
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    sys.path.insert(0, "")  # as in a notebook, which can import what a cell has written


def _silence() -> None:
    """What is written past Python goes nowhere."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def serve_once(worker: Worker, settings: dict[str, Any]) -> None:
    """Serve one notebook over standard input and output, in this very process."""
    if settings["confined"]:
        confine(Limits(**settings["limits"]), settings["uid"])
        _enter_folder()
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _silence()
    wire.write(writer, ["ready"])
    serve(worker, reader, writer)


def main() -> None:
    """``worker.main SETTINGS``, a JSON object that the grader's sandbox writes."""
    settings = json.loads(sys.argv[1])
    worker = prepare(settings["imports"])
    if settings["control"] is None:
        serve_once(worker, settings)
    else:
        with socket.socket(fileno=settings["control"]) as control:
            serve_forks(worker, control, settings)
