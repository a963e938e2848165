"""What students, or those who pretend to be, may try; each with what comes of it.

Every attack stands in the answer to the first task, ``scale``, and wants its points without doing
its work, or something worse. The second task is answered honestly: nothing may cost it a point.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import asdict, replace
from pathlib import Path

import grading_help
import psutil
import pytest
import torch

from transformer_lib.instructor.grading import master, remote, sandbox
from transformer_lib.instructor.grading.judge import Judge
from transformer_lib.instructor.grading.master import make_master

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def judge():
    judge = Judge(make_master(grading_help.master(seconds=5)))
    yield judge
    judge.close()


@pytest.fixture
def attack(judge, request):
    """Hands in this code as the answer to ``scale``; the other task must have all its points."""

    def run(code, spoils_all=False):
        result = judge.judge(with_answer(judge.master, textwrap.dedent(code)))
        assert spoils_all or result.tests["test_mask"].points == 4, result.tests["test_mask"]
        return result

    return run


def with_answer(master, code):
    return [replace(c, source=code) if c.grade_id == "scale" else c for c in master.cells]


def texts(result):
    """All that a student could ever read of a result."""
    return repr(result)


def frame(shape, places, kind="F32"):
    """A reply whose tensor is described like this, as code."""
    header = f'{{"0": {{"dtype": "{kind}", "shape": {shape}, "data_offsets": {places}}}}}'
    return f"""
        header = {header.encode()!r}
        blob = struct.pack("<Q", len(header)) + header + bytes(4)
        document = b'{{"tensor": "0"}}'
        wire.encode = lambda value: HEAD.pack(len(document), len(blob)) + document + blob
        """


HONEST = "def scale(x):\n    return 3 * x + 1\n"


def test_an_honest_answer_has_all_points(attack):
    result = attack(HONEST)
    assert result.tests["test_scale"].points == 2
    assert result.tests["test_scale"].reason == ""


FORGED = {
    "a patched torch.allclose": """
        torch.allclose = lambda *a, **k: True
        torch.equal = lambda *a, **k: True
        torch.testing.assert_close = lambda *a, **k: None
        def scale(x): return x * 0 + 1
        """,
    "patched operators of Tensor": """
        torch.Tensor.__eq__ = lambda *a: True
        torch.Tensor.__sub__ = lambda a, b: a * 0
        torch.Tensor.tolist = lambda self: [1, 1]
        def scale(x): return torch.ones(x.shape)
        """,
    "patched builtins": """
        import builtins
        builtins.abs = builtins.max = lambda *a: 0
        builtins.all = builtins.any = lambda *a: True
        builtins.isinstance = lambda *a: True
        builtins.AssertionError = type("Quiet", (Exception,), {})
        def scale(x): return torch.ones(x.shape)
        """,
    "an object that equals everything": """
        class Right:
            def __eq__(self, other): return True
            def __getattr__(self, name): return lambda *a, **k: self
            def tolist(self): return self
        def scale(x): return Right()
        """,
    "a tensor whose class lies": """
        class Liar(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                return True
        def scale(x): return torch.ones(x.shape).as_subclass(Liar)
        """,
    "a number whose class lies": """
        class Liar(float):
            def __eq__(self, other): return True
        def scale(x): return Liar(1.0)
        """,
    "hard-coded answers of the visible test": """
        def scale(x): return torch.ones(x.shape)
        """,
    "answers remembered from the first call": """
        seen = []
        def scale(x):
            seen.append(x)
            return 3 * seen[0] + 1
        """,
    "inputs changed behind the test's back": """
        def scale(x):
            with torch.no_grad():
                x.zero_()
            return torch.ones(x.shape)
        """,
    "a class in place of the function": """
        class scale:
            def __init__(self, x): pass
            def tolist(self): return [1, 1]
        """,
    "NaN, which no comparison finds unequal": """
        def scale(x): return x * float("nan")
        """,
    "a right value with a wrong gradient": """
        def scale(x): return (3 * x + 1).detach() + x - x.detach()
        """,
    "the reference from the library": """
        from transformer_lib.course.checks import EXERCISES
        scale = EXERCISES["causal_mask"].reference
        """,
    "replies written into every open connection": """
        import os, sys
        from transformer_lib.course.sandboxed import wire
        def scale(x):
            frame = sys._getframe()
            while "question" not in frame.f_locals: frame = frame.f_back
            number = frame.f_locals["question"][0]
            reply = wire.encode([number, "ok", [1, torch.ones(x.shape), [False], [x]]])
            for descriptor in range(3, 64):
                try: os.write(descriptor, reply)
                except OSError: pass
            return x
        """,
    "the message of another question as the reply": """
        from transformer_lib.course.sandboxed import wire
        encode = wire.encode
        wire.encode = lambda value: encode(["ok", "passed"])
        def scale(x): return x
        """,
    "a worker that is patched during the call": """
        from transformer_lib.course.sandboxed.worker import Worker
        def scale(x):
            Worker.do_call = lambda *a: [1, "all points", [], [None]]
            Worker.answer = lambda self, question: [question[0], "ok", True]
        """,
    "a worker that claims gradients": """
        from transformer_lib.course.sandboxed.worker import Worker
        Worker.do_backward = lambda self, call, gradients: [g * 3 for g in gradients]
        def scale(x): return torch.ones(x.shape) + 0 * x
        """,
    "garbage on the connection": """
        import os
        def scale(x):
            for descriptor in range(3, 64):
                try: os.write(descriptor, os.urandom(1000))
                except OSError: pass
        """,
    "a reply that says it is very long": """
        import os, struct
        def scale(x):
            for descriptor in range(3, 64):
                try: os.write(descriptor, struct.pack(">QQ", 2**62, 2**62))
                except OSError: pass
        """,
    "a reply that is too large": """
        def scale(x): return torch.zeros(40_000_000)
        """,
    "a reply that is nested very deep": """
        def scale(x):
            value = x
            for _ in range(5000): value = [value]
            return value
        """,
    "a million small things": """
        def scale(x): return list(range(1_000_000))
        """,
    "a pickle that would run code": """
        import os
        class Bomb:
            def __reduce__(self): return (os.system, ("touch /tmp/pickled",))
        def scale(x): return Bomb()
        """,
    "an exception without a string": """
        class Rude(Exception):
            def __str__(self): raise self
        def scale(x): raise Rude()
        """,
    "SystemExit in the middle of a call": """
        def scale(x): raise SystemExit(0)
        """,
    "KeyboardInterrupt in the middle of a call": """
        def scale(x): raise KeyboardInterrupt
        """,
    "a hook on every function call": """
        import sys
        def look(frame, event, argument):
            frame.f_locals.update(success=True, points=99)
            return look
        sys.settrace(look)
        def scale(x): return x
        """,
    "the name deleted again": """
        def scale(x): return x
        del scale
        """,
    "an empty tensor": "def scale(x): return torch.zeros(0)",
    "an empty tensor with the right axis": "def scale(x): return x[:0]",
    "an empty axis before the others": "def scale(x): return torch.zeros(0, *x.shape)",
    "one number for all": "def scale(x): return torch.ones(1)",
    "a number without an axis": "def scale(x): return torch.ones(())",
    "infinity": "def scale(x): return x * 0 + float('inf')",
    "another dtype": "def scale(x): return (3 * x + 1).double()",
    "half precision": "def scale(x): return (3 * x + 1).half()",
    "a list of the right numbers": "def scale(x): return (3 * x + 1).tolist()",
    "the right value in a list": "def scale(x): return [3 * x + 1]",
    "the right value once more than asked": "def scale(x): return (3 * x + 1).expand(2, *x.shape)",
    "a sparse tensor": "def scale(x): return (3 * x + 1).to_sparse()",
    "a tensor without numbers": "def scale(x): return (3 * x + 1).to('meta')",
    "a quantized tensor": """
        def scale(x): return torch.quantize_per_tensor(3 * x + 1, 0.1, 0, torch.qint8)
        """,
    "complex numbers": "def scale(x): return (3 * x + 1).to(torch.complex64)",
    "a generator": "def scale(x): yield 3 * x + 1",
    "a coroutine": "async def scale(x): return 3 * x + 1",
    "a text with the number of points": "def scale(x): return '2'",
    "a dictionary": "def scale(x): return {'points': 2}",
    "the test's own names": """
        import builtins
        builtins.expect = lambda *a, **k: None
        expect = builtins.expect
        def scale(x): return x
        """,
    "what is remembered between two attempts": """
        import pickle, os
        def scale(x):
            with open("/sandbox/seen", "ab") as file: file.write(x.detach().numpy().tobytes())
            return x
        """,
    "a verdict in place of a value": """
        class Verdict:
            passed, share = True, 1.0
        verdict = Verdict()
        def scale(x): return verdict
        """,
    "a syntax error": "def scale(x) return x",
    "no answer": "",
}


@pytest.mark.parametrize("code", FORGED.values(), ids=FORGED)
def test_no_points_without_the_work(attack, code):
    result = attack(code)
    assert result.tests["test_scale"].points == 0
    assert result.tests["test_scale"].reason


ENDED = {
    "exit with code 0": ("import os\ndef scale(x): os._exit(0)", "exited with code 0"),
    "exit in the cell": ("import os\nos._exit(5)", "exited with code 5"),
    "a segmentation fault": (
        "import ctypes\ndef scale(x): ctypes.string_at(0)",
        "a segmentation fault",
    ),
    "abort": ("import os\ndef scale(x): os.abort()", "abort()"),
    "a kill of itself": ("import os\ndef scale(x): os.kill(os.getpid(), 9)", "a kill"),
    "a kill of everybody": ("import os\ndef scale(x): os.kill(-1, 9)", ""),
    "an endless loop": ("def scale(x):\n    while True: pass", "more than 5 seconds"),
    "an endless loop in the cell": ("while True: pass", "more than 5 seconds"),
    "an endless loop that ignores signals": (
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except OSError: pass\ndef scale(x):\n    while True: pass",
        "more than 5 seconds",
    ),
    "a reply that never ends": (
        "import os, time\ndef scale(x):\n    for d in range(3, 64):\n"
        "        try: os.write(d, b'\\0')\n        except OSError: pass\n    time.sleep(60)",
        "more than 5 seconds",
    ),
    "a closed connection": (
        "import os, time\ndef scale(x):\n    os.closerange(3, 64)\n    time.sleep(60)",
        "",
    ),
}


@pytest.mark.parametrize(("code", "reason"), ENDED.values(), ids=ENDED)
def test_a_process_that_ends_costs_only_its_own_task(attack, code, reason):
    result = attack(code)
    assert result.tests["test_scale"].points == 0
    assert reason in result.tests["test_scale"].reason


LIMITED = {
    "a memory hog": """
        def scale(x):
            hoard = []
            while True: hoard.append(torch.ones(2**22))
        """,
    "memory that belongs to no process": """
        import os
        def scale(x):
            files = []
            while True:
                file = os.memfd_create("x")
                os.write(file, bytes(2**20))
                files.append(file)
        """,
    "shared memory": """
        from multiprocessing import shared_memory
        def scale(x):
            kept = []
            while True:
                kept.append(shared_memory.SharedMemory(create=True, size=2**24))
                kept[-1].buf[:] = bytes(2**24)
        """,
    "memory that a process shares with nobody": """
        import mmap
        def scale(x):
            kept = []
            while True:
                kept.append(mmap.mmap(-1, 2**26))
                kept[-1].write(bytes(2**26))
        """,
    "a full disk": """
        def scale(x):
            number = 0
            while True:
                number += 1
                with open(f"/sandbox/{number}", "wb") as file:
                    for _ in range(64): file.write(bytes(2**20))
        """,
    "a huge file": """
        def scale(x):
            with open("/sandbox/huge", "wb") as file:
                while True: file.write(bytes(2**20))
        """,
    "a fork bomb": """
        import os
        def scale(x):
            while True: os.fork()
        """,
    "a thread bomb": """
        import threading, time
        def scale(x):
            while True: threading.Thread(target=time.sleep, args=(60,)).start()
        """,
    "limits raised": """
        import resource
        def scale(x):
            for kind in (resource.RLIMIT_DATA, resource.RLIMIT_NPROC, resource.RLIMIT_CPU):
                resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            return 3 * x + 1
        """,
}


@pytest.mark.parametrize("code", LIMITED.values(), ids=LIMITED)
def test_limits_hold(attack, code):
    free = psutil.virtual_memory().available
    result = attack(code)
    assert result.tests["test_scale"].points == 0
    assert psutil.virtual_memory().available > free - 4 * 2**30  # other tests run beside this one


def test_a_forked_process_does_not_answer_too(attack):
    """Or its answer would be taken for that to the next question, about another task."""
    result = attack(
        """
        import os
        def scale(x):
            os.fork()
            return 3 * x + 1
        """
    )
    assert result.tests["test_scale"].points == 2


def test_a_process_that_is_gone_before_the_question(monkeypatch):
    box = sandbox.Sandbox(isolation="none")
    ours, theirs = socket.socketpair()
    theirs.close()

    def connect():
        box._process = subprocess.Popen(["sleep", "60"])
        return ours.makefile("rwb")

    monkeypatch.setattr(box, "_connect", connect)
    with pytest.raises(sandbox.Ended), box, box.open() as connection:
        connection.ask("run", "1")


def test_a_flood_of_output_is_cut(attack):
    result = attack(
        """
        import os, sys
        for _ in range(20_000): print("x" * 1000)
        for _ in range(20_000): os.write(1, b"y" * 1000); os.write(2, b"z" * 1000)
        def scale(x): return 3 * x + 1
        """
    )
    (output,) = result.outputs[2]
    assert len(output["text"]) <= 100_000
    assert result.tests["test_scale"].points == 2


def test_what_is_shown_cannot_run_in_the_graders_browser(attack):
    result = attack(
        """
        from IPython.display import HTML, SVG, Javascript, Markdown, display
        display(HTML("<script>alert(1)</script>"), Javascript("alert(1)"))
        display(SVG("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"))
        display({"text/html": "<img onerror=alert(1)>", "image/png": "<script>"}, raw=True)
        display({"application/x-evil": "1", "text/plain": "fine"}, raw=True)
        """
    )
    shown = {mime for output in result.outputs[2] for mime in output.get("data", {})}
    assert shown <= {"text/plain", "image/png"}
    assert "<script" not in repr([o["data"].get("image/png") for o in result.outputs[2]])


LEAKS = {
    "the history of inputs": "print(In, Out)",
    "what IPython has kept": """
        shell = get_ipython()
        print(shell.user_ns.keys(), shell.history_manager.input_hist_raw)
        """,
    "the lines of earlier cells": """
        import linecache
        print([line for lines in linecache.cache.values() for line in lines[2]])
        """,
    "a traceback through an earlier task": """
        try: causal_mask("x")
        except Exception:
            import traceback
            traceback.print_exc()
        """,
    "the source of an earlier task": """
        import inspect
        print(inspect.getsource(causal_mask))
        """,
    "all code in memory that is of no file": """
        import gc, types
        for thing in gc.get_objects():
            if isinstance(thing, types.FunctionType):
                code = thing.__code__
                if code.co_filename[0] == "<": print(code.co_filename, code.co_consts)
        """,
    "files": """
        import os
        for folder in ("/sandbox", "/tmp", "/dev/shm"):
            for above, _, names in os.walk(folder):
                for name in names: print(open(os.path.join(above, name), errors="replace").read())
        """,
    "what was given to the function before": "print(seen, open('/sandbox/seen').read())",
    "a figure of what was given": """
        import matplotlib.pyplot as plt
        plt.title(str(seen))
        print(seen)
        """,
}
SPY = """
    seen = []
    def scale(x):
        seen.append(x.tolist())
        open("/sandbox/seen", "a").write(str(x.tolist()))
        __import__("atexit").register(print, seen)
        return 3 * x + 1
    """


OWN_MASK = """
def causal_mask(length):
    {}
    return (torch.arange(length)[:, None] >= torch.arange(length))[None, None]
"""


def with_answers(master, **answers):
    return [replace(c, source=answers.get(c.grade_id, c.source)) for c in master.cells]


@pytest.mark.parametrize("code", LEAKS.values(), ids=LEAKS)
def test_later_cells_show_no_solution_and_no_hidden_input(judge, code):
    """The cells after a test are shown as they are for the student: nothing was tested there."""
    answers = {"scale": textwrap.dedent(SPY), "causal_mask": OWN_MASK.format("")}
    cells = with_answers(judge.master, **answers)
    cells.append(master.Cell("code", textwrap.dedent(code)))
    result = judge.judge(cells)
    assert {name: test.points for name, test in result.tests.items()} == {
        "test_scale": 2,
        "test_mask": 4,
    }
    shown = repr(result.outputs[len(cells) - 1])
    assert "tril" not in shown, "the master's solution"
    assert not re.search(r"-?\d\.\d{4,}", shown), "no number that a test gave"


LOOK = ["In", "inspect.getsource(scale)", "scale.__code__.co_consts", "linecache.cache", "seen"]


@pytest.mark.parametrize("what", LOOK)
def test_where_the_solution_of_an_earlier_task_is_used_no_text_is_shown(judge, what):
    look = f"import inspect, linecache; raise ValueError(f'it is {{{what}}} {{scale(1)}}')"
    answers = {"scale": "seen = []\ndef scale(x): return x", "causal_mask": OWN_MASK.format(look)}
    result = judge.judge(with_answers(judge.master, **answers))
    assert "your code raised" in result.tests["test_mask"].reason
    assert "it is" not in texts(result)


def test_numbers_of_a_test_are_not_repeated_by_an_exception(judge):
    code = "import torch\ndef f(x, factor): raise ValueError(f'it is {(factor * x).tolist()}')"
    with judge.sandbox.open() as connection:
        connection.ask("run", code)
        for factor, told in ((1.0, False), (7.0, True)):
            with pytest.raises(sandbox.StudentError) as error:
                connection.ask("call", "f", [torch.tensor([0.123456, 2.0]), factor], [])
            assert ("it is" in str(error.value)) == told


def test_an_exception_s_name_tells_nothing_of_what_the_code_has_met(judge):
    code = "def f(name): raise type(name, (Exception,), {})()"
    with judge.sandbox.open() as connection:
        connection.ask("run", code)
        for quiet, kind in ((False, "secret"), (True, "an exception")):
            connection.is_quiet = quiet
            with pytest.raises(sandbox.StudentError) as error:
                connection.ask("call", "f", ["secret"], [])
            assert error.value.kind == kind
        with pytest.raises(sandbox.StudentError) as error:
            connection.ask("call", "f", ["ValueError"], [])
        assert error.value.kind == "ValueError"


@pytest.mark.parametrize("name", ["a" * 201, ".".join("a" * 21)])
def test_names_of_parameters_have_an_end(name):
    with pytest.raises(sandbox.Ended, match="in no known form"):
        remote._named_tensor([name, torch.zeros(1)])


FLOODS = {
    "outputs that the worker does not limit": """
        worker.Worker.do_run = lambda self, source: json.dumps([text("x" * 60_000_000)])
        """,
    "outputs just below the limit, in every cell": """
        worker.Worker.do_run = lambda self, source: json.dumps([text("x" * 7_000_000)])
        """,
    "a traceback as one long text": """
        error = {"output_type": "error", "ename": "E", "evalue": "x" * 2_000_000,
                 "traceback": "x" * 4_000_000}
        worker.Worker.do_run = lambda self, source: json.dumps([error])
        """,
    "a traceback of very many lines": """
        error = {"output_type": "error", "ename": "E", "evalue": "", "traceback": ["x"] * 40_000}
        worker.Worker.do_run = lambda self, source: json.dumps([error])
        """,
    "very many outputs": """
        worker.Worker.do_run = lambda self, source: json.dumps([text("x")] * 10_000)
        """,
    "very many parts": """
        worker.Worker.do_run = lambda self, source: "[" + "[]," * 2_000_000 + "[]]"
        """,
    "a text without an end, full of quotation marks": """
        worker.Worker.do_run = lambda self, source: '"' + '\\\\"' * 1_500_000
        """,
    "outputs that are none": """
        worker.Worker.do_run = lambda self, source: json.dumps({"a": [1, {"b": None}]})
        """,
    "outputs of other types": """
        worker.Worker.do_run = lambda self, source: json.dumps(
            [1, None, [], {}, {"output_type": []}, {"output_type": "stream", "text": 5},
             {"output_type": "stream", "name": [], "text": {}},
             {"output_type": "display_data", "data": ["text/plain"]},
             {"output_type": "display_data", "data": {"text/plain": {"a": 1}, "image/png": 3}}])
        """,
    "a number in place of outputs": "worker.Worker.do_run = lambda self, source: 7",
    "halves of characters": """
        worker.Worker.do_run = lambda self, source: json.dumps([text("\\ud800")])
        """,
    "a reply of empty lists": """
        wire.encode = lambda value: HEAD.pack(12_000_000, 0) + b"[]," * 4_000_000
        """,
    "a reply of nested lists": """
        wire.encode = lambda value: HEAD.pack(1_000_000, 0) + b"[" * 1_000_000
        """,
    "a tensor with an axis of 2^64 - 1": frame("[18446744073709551615, 0]", "[0, 0]"),
    "a tensor with a negative axis": frame("[-1]", "[0, 4]"),
    "a tensor with a long axis and nothing in it": frame("[4611686018427387904, 0]", "[0, 0]"),
    "a tensor with an axis that is a text": frame('["a"]', "[0, 4]"),
    "a tensor whose places are turned round": frame("[1]", "[4, 0]"),
    "a tensor of an unknown kind": frame("[1]", "[0, 4]", "F4"),
    "a header that says it is long": """
        blob = struct.pack("<Q", 2**62) + b"{}"
        wire.encode = lambda value: HEAD.pack(2, len(blob)) + b"{}" + blob
        """,
}
START = """
    import json, struct
    from transformer_lib.course.sandboxed import wire, worker
    HEAD = struct.Struct(">QQ")
    text = lambda x: {"output_type": "stream", "name": "stdout", "text": x}
    """


@pytest.mark.parametrize("code", FLOODS.values(), ids=FLOODS)
def test_what_comes_out_of_a_process_is_limited_where_it_arrives(judge, code):
    spoiled = textwrap.dedent(START) + textwrap.dedent(code) + "\n" + HONEST
    free = psutil.virtual_memory().available
    result = judge.judge([*with_answer(judge.master, spoiled), master.Cell("code", "1")])
    assert result.tests["test_mask"].points == 4
    assert len(json.dumps(asdict(result))) < 20_000_000
    assert psutil.virtual_memory().available > free - 2 * 2**30
    json.dumps(asdict(result)).encode()


SHARED = {
    "anonymous": "mmap.mmap(-1, size)",
    "in a file of /dev/shm": "mmap.mmap(big('/dev/shm/x'), size)",
    "in a file of its folder": "mmap.mmap(big('/sandbox/x'), size)",
}


@pytest.mark.parametrize("code", SHARED.values(), ids=SHARED)
def test_shared_memory_counts(attack, code):
    """With 1 GiB allowed, 3 GiB at once and as pages of 256 MiB: neither is to be had."""
    for size, count in ((3 * 2**30, 1), (2**28, 12)):
        result = attack(
            f"""
            import mmap, os
            def big(path):
                file = os.open(path, os.O_RDWR | os.O_CREAT)
                os.truncate(path, {size})
                return file
            def scale(x):
                size, kept = {size}, []
                for _ in range({count}):
                    kept.append({code})
                    for place in range(0, size, 4096): kept[-1][place] = 1
                return 3 * x + 1
            """
        )
        assert result.tests["test_scale"].points == 0


@pytest.fixture
def secrets(tmp_path, monkeypatch):
    """A file and a variable that only the grader should see."""
    secret = tmp_path / "answers.txt"
    secret.write_text("the-secret-answer")
    monkeypatch.setenv("SECRET_OF_THE_GRADER", "the-secret-answer")
    return secret


def test_nothing_of_the_machine_is_to_be_seen(judge, attack, secrets):
    judge.sandbox.close()  # so that it starts with the secret in the environment
    # The Python environment may lie in somebody's home: the folders above it are there, and empty.
    shown = [sys.prefix, sys.base_prefix, str(sandbox.PACKAGE)]
    shown += [str(folder) for path in shown for folder in Path(path).parents]
    result = attack(
        f"""
        import glob, os
        found, shown = [], {shown!r}
        for folder in shown[3:]:
            if folder.startswith(("/home", "/root")):
                found += [f for f in os.listdir(folder) if os.path.join(folder, f) not in shown]
        for path in [{str(secrets)!r}, "/etc/passwd", "/etc/shadow", "/etc/hostname",
                     *glob.glob("/home/*"), *glob.glob("/root/.[a-oq-z]*"), *glob.glob("/var/*"),
                     *glob.glob("/proc/*"), *glob.glob("/sys/*"), *glob.glob("/run/*")]:
            if path in shown: continue
            try: open(path); found.append(path)
            except IsADirectoryError: found.append(path)
            except OSError: pass
        found += [name for name in os.environ if "SECRET" in name]
        print(found)
        """
    )
    assert result.outputs[2][0]["text"] == "[]\n"
    assert "the-secret-answer" not in texts(result)


def test_the_solutions_in_the_library_are_not_there(attack):
    result = attack(
        """
        import importlib, os, sys, transformer_lib
        found = []
        for name in ["course.checks.topics.masks", "course.misconceptions.bank", "model.masks",
                     "course.lineages", "instructor.grading.judge", "instructor.grading.course",
                     "course.checks.diagnosis", "course.trained"]:
            try: importlib.import_module(f"transformer_lib.{name}"); found.append(name)
            except ImportError: pass
        there = [f for _, _, files in os.walk(transformer_lib.__path__[0]) for f in files]
        print(found, sorted(f for f in there if not f.endswith(".pyc")))
        """
    )
    listed = (
        "['__init__.py', '__init__.py', '__init__.py', 'errors.py', 'explain.py', 'given.py', "
        "'isolation.py', 'kept.py', 'personal.py', 'vocabulary.py', 'wire.py', 'worker.py']"
    )
    assert result.outputs[2][0]["text"] == f"[] {listed}\n"


def test_no_test_and_no_expected_value_is_in_the_process(attack):
    """Not in frames, not among all objects. The words looked for stand in the hidden tests."""
    result = attack(
        """
        import gc, sys
        words = ["nmutua teiuq"]  # backwards, not to find this very text
        def scale(x):
            texts = []
            frame = sys._getframe()
            while frame:
                texts += map(repr, frame.f_locals.values())
                frame = frame.f_back
            for thing in gc.get_objects():
                if type(thing) is dict: texts += [v for v in thing.values() if type(v) is str]
                if type(thing) in (list, tuple): texts += [v for v in thing if type(v) is str]
            found = [text for text in texts for word in words if word in text[::-1]]
            if found: raise RuntimeError(f"found {found[:3]}")
            return 3 * x + 1
        """
    )
    assert result.tests["test_scale"].points == 2, result.tests["test_scale"]


def test_what_a_hidden_test_gives_is_not_told(attack):
    result = attack("def scale(x):\n    raise ValueError(f'input: {x.tolist()}')\n")
    assert result.tests["test_scale"].reason.startswith("line 2")  # of the visible test
    result = attack(
        """
        def scale(x):
            if not x.any(): return x + 1
            raise ValueError(f"input: {x.tolist()}")
        """
    )
    assert result.tests["test_scale"].reason == "a hidden test failed: your code raised ValueError"
    assert "input:" not in texts(result)
    result = attack("def scale(x):\n    return x + 1\n")
    assert result.tests["test_scale"].reason == "a hidden test failed: other values"


def test_no_network(attack):
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    name = f"\0grader-{port}"
    local = socket.socket(socket.AF_UNIX)
    local.bind(name)
    local.listen()
    result = attack(
        f"""
        import socket
        reached = []
        for family, address in [(socket.AF_INET, ("127.0.0.1", {port})),
                                (socket.AF_INET, ("192.0.2.1", 80)), (socket.AF_UNIX, {name!r})]:
            try: socket.socket(family).connect(address); reached.append(address)
            except OSError: pass
        for family in (16, 17, 38, 40):
            try: socket.socket(family, socket.SOCK_RAW); reached.append(family)
            except OSError: pass
        print(reached)
        """
    )
    server.close()
    local.close()
    assert result.outputs[2][0]["text"] == "[]\n"


def test_nothing_can_be_written_where_others_would_find_it(judge, attack):
    writer = f"""
        import os, sys
        written = []
        for folder in ["/", "/usr", "/usr/lib", "/dev", "/etc", "/proc", "/home", "/root", "/work",
                       "/tmp", "/var/tmp", sys.prefix, sys.base_prefix, {str(sandbox.PACKAGE)!r}]:
            try: open(f"{{folder}}/left", "w"); written.append(folder)
            except OSError: pass
        open("/sandbox/left", "w").write("for you")
        open("/dev/shm/left", "w").write("for you")
        print(written)
        """
    assert attack(writer).outputs[2][0]["text"] == "[]\n"
    reader = (
        'import os\nprint([p for p in ("/sandbox/left", "/dev/shm/left") if os.path.exists(p)])'
    )
    assert attack(reader).outputs[2][0]["text"] == "[]\n"


def test_no_process_is_left_behind(judge, attack):
    attack(HONEST)  # so that the sandbox runs
    sandbox_process = psutil.Process(judge.sandbox._process.pid)
    before = sandbox_process.children(recursive=True)
    attack(
        """
        import os, time
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    while True: time.sleep(1)
                os._exit(0)
        """
    )
    assert sandbox_process.children(recursive=True) == before


def test_no_privileges_and_no_way_out(attack):
    result = attack(
        """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        worked = []
        def attempt(name, *arguments):
            if getattr(libc, name)(*arguments) >= 0: worked.append(name)
        attempt("unshare", 0x10000000)
        attempt("unshare", 0x00020000)
        attempt("mount", b"proc", b"/proc", b"proc", 0, None)
        attempt("umount2", b"/proc", 0)
        attempt("chroot", b"/tmp")
        attempt("setns", 0, 0)
        attempt("ptrace", 16, os.getppid(), None, None)
        attempt("syscall", 101, 16, 1, 0, 0)
        attempt("setuid", 0)
        attempt("setgid", 0)
        attempt("sethostname", b"x", 1)
        attempt("syscall", 321, 0, 0, 0)
        attempt("syscall", 425, 8, 0)
        attempt("syscall", 435, 0, 0)
        print(worked, os.getpid() < 5, os.getppid(), os.geteuid() != 0)
        """
    )
    assert result.outputs[2][0]["text"] == "[] True 1 True\n"


def test_the_process_that_prepared_it_is_out_of_reach(attack):
    result = attack(
        """
        import os
        reached = []
        for pid in range(1, 300):
            try: os.kill(pid, 0); reached.append(pid)
            except OSError: pass
        print([pid for pid in reached if pid not in (1, os.getpid())])
        """
    )
    assert result.outputs[2][0]["text"] == "[]\n"


def test_one_submission_does_not_change_the_next(attack):
    attack(
        """
        import builtins
        builtins.print = torch.ones = None
        torch.set_default_dtype(torch.float64)
        """,
        spoils_all=True,
    )
    result = attack("print(torch.ones(1).dtype)\n" + HONEST)
    assert result.outputs[2][0]["text"] == "torch.float32\n"
    assert result.tests["test_scale"].points == 2


def test_an_earlier_answer_that_breaks_later_ones_costs_only_itself(attack):
    """The task before is graded with its own answer, all later ones with the reference."""
    result = attack("def scale(x):\n    return x\n")
    assert result.tests["test_scale"].points == 0


def test_all_submissions_of_a_run_meet_the_same_numbers(judge):
    wrong = "def causal_mask(n):\n    return torch.ones(n, n).triu().bool()[None, None]"
    cells = [replace(cell, source=wrong) if cell.grade_id == "causal_mask" else cell
             for cell in judge.master.cells]  # fmt: skip
    shown = [judge.judge(cells).tests["test_mask"].outputs[0]["data"]["text/plain"] for _ in "ab"]
    assert f"seed={judge.seed})" in shown[0]
    assert shown[0] == shown[1]


@pytest.mark.long
def test_slow_calls_have_an_end_in_all():
    judge = Judge(make_master(grading_help.master(total_seconds=6, seconds=30)))
    code = "import time\ndef scale(x):\n    time.sleep(3)\n    return 3 * x + 1\n"
    started = time.monotonic()
    with contextlib.closing(judge):
        result = judge.judge(with_answer(judge.master, code))
    assert "in all" in result.tests["test_scale"].reason
    assert time.monotonic() - started < 25


def test_the_sandbox_ends_with_the_grader(tmp_path):
    """Killed, it leaves no process behind, not even one in the middle of a loop."""
    script = tmp_path / "grader.py"
    script.write_text(
        "import sys, threading, time\n"
        f"sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "import grading_help\n"
        "from transformer_lib.instructor.grading.sandbox import Sandbox\n"
        "with Sandbox().open() as connection:\n"
        "    connection.ask('run', 'x = 1')\n"
        "    print('ready', flush=True)\n"
        "    connection.ask('run', 'while True: pass')\n"
    )
    grader = psutil.Popen([sys.executable, script], stdout=-1)
    assert grader.stdout.readline() == b"ready\n"
    family = grader.children(recursive=True)
    assert len(family) >= 4
    grader.kill()
    grader.wait()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (HONEST, ""),
        (ENDED["exit with code 0"][0], "exited with code 0"),
        (ENDED["an endless loop"][0], "more than 5 seconds"),
        (textwrap.dedent(LIMITED["a memory hog"]), "hoard.append"),
        (textwrap.dedent(LIMITED["limits raised"]), "setrlimit"),
    ],
)
def test_where_the_sandbox_cannot_be_nested(monkeypatch, code, reason):
    """Each submission gets an interpreter and a sandbox of its own."""
    monkeypatch.setattr(sandbox, "can_fork", lambda: False)
    judge = Judge(make_master(grading_help.master(seconds=5)))
    with contextlib.closing(judge):
        result = judge.judge(with_answer(judge.master, code))
    assert reason in result.tests["test_scale"].reason
    assert (result.tests["test_scale"].points == 2) == (reason == "")
    assert result.tests["test_mask"].points == 4


@pytest.mark.long
def test_as_an_ordinary_user_too():
    """Inside a user namespace in which we are not root, the other way of separating is taken."""
    script = (
        "import os, sys; assert os.geteuid() == 1000\n"
        f"sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "import grading_help\n"
        "from transformer_lib.instructor.grading.judge import Judge\n"
        "from transformer_lib.instructor.grading.master import make_master\n"
        "judge = Judge(make_master(grading_help.master(seconds=5)))\n"
        "result = judge.judge(judge.master.cells)\n"
        "print({name: test.points for name, test in result.tests.items()})\n"
        "judge.close()\n"
    )
    command = ["bwrap", "--unshare-user", "--uid", "1000", "--gid", "1000", "--dev-bind", "/", "/"]
    done = subprocess.run([*command, sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "{'test_scale': 2.0, 'test_mask': 4.0}\n", done.stderr
