"""What passes its check is kept as a module of plain Python, and used from there."""

import json
import linecache
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell

from transformer_lib.course.checks import EXERCISES
from transformer_lib.course.own import mine, module, progress, solution
from transformer_lib.course.own.module import free_name, load, run
from transformer_lib.course.own.record import note_try, read_record
from transformer_lib.course.own.source import (
    NotKeptError,
    Part,
    names_needed,
    names_needed_at_once,
    part_from,
    renamed,
)

IMPORTS = "import math\nimport torch\nfrom transformer_lib.checks import check, mine, solution"
KEPT = "kept in my_transformer.py"  # and not: not kept
SOFTMAX = """
def softmax(scores):
    exponentials = (scores - scores.amax(-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)
"""
BY_LOGARITHMS = """def softmax(scores):
    return (scores - torch.logsumexp(scores, -1, keepdim=True)).exp()"""

WEIGHTS = """
def attention_weights(query, key):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    return softmax(scores)
"""


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Run cells as a notebook in an empty folder does; returns the value of the last line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(HistoryManager, "hist_file", ":memory:")
    shell = InteractiveShell.instance()

    def run(*cells):
        for cell in cells:
            result = shell.run_cell(cell, store_history=True)
            result.raise_error()
        return result.result

    run(IMPORTS)
    yield run
    InteractiveShell.clear_instance()


def kept():
    return Path("my_transformer.py").read_text(encoding="utf-8")


def record(folder=Path()):
    return json.loads((folder / "my_progress.json").read_text(encoding="utf-8"))


def run_alone(code):
    """Run the file in a Python of its own, in which the course cannot be imported."""
    blocked = "import sys; sys.modules['transformer_lib'] = None\n"
    return subprocess.run(
        [sys.executable, "-c", blocked + code], capture_output=True, text=True, check=True
    ).stdout


def test_what_passes_is_kept_and_runs_without_the_course(notebook):
    verdict = notebook(SOFTMAX, "check(softmax)")
    assert verdict.passed
    assert KEPT in repr(verdict)
    notebook(WEIGHTS, "check(attention_weights)")
    assert kept().index("import math") < kept().index("def softmax")
    assert kept().index("def softmax") < kept().index("def attention_weights")
    assert "transformer_lib" not in kept()
    said = run_alone(
        "import torch, my_transformer as my; print(my.attention_weights(*torch.ones(2, 1, 2, 4)))"
    )
    assert "0.5" in said


def test_what_passes_by_the_name_of_its_exercise_is_kept_as_well(notebook):
    verdict = notebook(SOFTMAX, "from transformer_lib import checks", "checks.softmax(softmax)")
    assert KEPT in repr(verdict)


def test_an_import_with_the_name_of_a_part_stays_itself(notebook):
    """A part that passes later does not take its place in older parts."""
    notebook(
        "from torch import softmax",
        WEIGHTS.replace("softmax(scores)", "softmax(scores, dim=-1)"),
        "check(attention_weights)",
    )
    assert KEPT in repr(notebook(SOFTMAX, "check(softmax)"))
    assert "import softmax as softmax_of_attention_weights" in kept()
    assert notebook("check(mine('attention_weights'))").passed


def test_two_imports_of_one_name_stay_apart(notebook):
    notebook(
        "from math import sqrt",
        WEIGHTS.replace("math.sqrt", "sqrt").replace("softmax(scores)", "scores.softmax(-1)"),
        "check(attention_weights)",
    )
    norm = """
def rms_norm(x, scale, eps):
    return scale * x / sqrt(x.square().mean(-1, keepdim=True) + eps)
"""
    assert KEPT in repr(notebook("from torch import sqrt", norm, "check(rms_norm)"))
    for name in ("attention_weights", "rms_norm"):
        assert notebook(f"check(mine('{name}'))").passed


def test_what_is_only_changed_is_not_defined(notebook):
    notebook("torch.backends.cudnn.deterministic = True")
    verdict = notebook(
        "def softmax(x):\n    return torch.exp(x - x.logsumexp(-1, True))", "check(softmax)"
    )
    assert "kept in" in repr(verdict)
    assert "import torch" in kept()


def test_a_helper_may_have_the_name_of_an_exercise(notebook):
    helper = "def attention(q, k, v):\n    return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v"
    answer = "def self_attention(x, a, b, c):\n    return attention(x @ a, x @ b, x @ c)"
    assert "kept in" in repr(notebook(helper, answer, "check(self_attention)"))
    assert "attention_of_self_attention" in kept()
    assert notebook("check(mine('self_attention'))").passed


def test_the_courses_own_answer_is_no_try(notebook):
    said = repr(notebook("softmax = mine('softmax')", "check(softmax)"))
    assert "this is the course's" in said
    assert not Path("my_progress.json").exists()


def test_a_record_of_another_version_or_a_damaged_one_is_not_lost(notebook):
    notebook(SOFTMAX, "check(softmax)")
    newer = {"softmax": record()["softmax"] | {"stars": 3}}
    Path("my_progress.json").write_text(json.dumps(newer), encoding="utf-8")
    notebook("def embed(tokens, table):\n    return table[tokens]", "check(embed)")
    assert record()["softmax"]["passed"]
    for number, damaged in enumerate(("{", '{"softmax": {"tries": "a"}}', "[]"), start=1):
        Path("my_progress.json").write_text(damaged, encoding="utf-8")
        notebook("check(embed)")
        broken = Path(f"my_progress.broken{number}.json")
        assert broken.read_text(encoding="utf-8") == damaged
    Path("my_progress.json").write_text("{}", encoding="utf-8")
    notebook("check(embed)")
    assert not Path("my_progress.broken4.json").exists(), "there was nothing in it yet"


def test_a_function_whose_argument_has_the_name_keeps_it():
    code = "eps = 1\n\n\ndef f(x, eps):\n    return x + eps\n\n\ndef g(x):\n    return x + eps\n"
    there = renamed(code, "eps", "eps_of_f")
    assert "def f(x, eps):\n    return x + eps\n" in there
    assert there.endswith("return x + eps_of_f\n")


def test_an_empty_or_wrong_answer_is_not_kept(notebook):
    notebook("def softmax(scores):\n    ...", "check(softmax)")
    assert not list(Path().iterdir())
    notebook("def softmax(scores):\n    return scores.exp()", "check(softmax)")
    assert not Path("my_transformer.py").exists()
    assert record()["softmax"]["tries"] == 1


def test_mine_is_the_course_s_until_mine_passes(notebook, capsys):
    assert notebook("mine('softmax')") is EXERCISES["softmax"].reference
    assert "softmax: the course's, until yours passes its check" in capsys.readouterr().out
    notebook(SOFTMAX, "check(softmax)", "softmax = mine('softmax')")
    assert "softmax: yours, from my_transformer.py" in capsys.readouterr().out
    own = notebook("softmax")
    assert own.__module__ == "my_transformer"
    torch.testing.assert_close(own(torch.tensor([[0.0, 0.0]])), torch.tensor([[0.5, 0.5]]))


def test_a_part_that_uses_the_course_s_imports_it_until_there_is_an_own_one(notebook):
    notebook("softmax = mine('softmax')", WEIGHTS, "check(attention_weights)")
    assert "from transformer_lib.course.checks.topics.attention import softmax" in kept()
    notebook(SOFTMAX, "check(softmax)")
    assert "transformer_lib" not in kept()
    assert notebook("check(mine('attention_weights'))").passed


def test_helpers_constants_and_imports_come_along(notebook):
    notebook(
        "from torch import nn as layers\nimport torch.nn.functional as F\nSMALL, LARGE = 0.0, 1e9",
        "def highest(x):\n    # the largest one\n    return x.amax(-1, keepdim=True) + SMALL",
        "def softmax(scores):\n    return F.normalize((scores - highest(scores)).exp(), 1.0, -1)",
    )
    assert notebook("check(softmax)").passed
    assert "SMALL, LARGE = 0.0, 1e9" in kept()
    assert "# the largest one" in kept()
    assert "import torch.nn.functional as F" in kept()
    assert "layers" not in kept()
    run_alone("import my_transformer")


def test_helpers_of_one_name_do_not_meet(notebook):
    notebook(
        "def help(x):\n    return (x - x.amax(-1, keepdim=True)).exp()",
        "def softmax(scores):\n    e = help(scores)\n    return e / e.sum(-1, keepdim=True)",
        "check(softmax)",
        "def help(q, k):\n    return q @ k.mT / q.size(-1) ** 0.5",
        "def attention_weights(query, key):\n    return help(query, key).softmax(-1)",
        "check(attention_weights)",
    )
    assert "def help_of_attention_weights(q, k):" in kept()
    for name in ("softmax", "attention_weights"):
        assert notebook(f"check(mine({name!r}))").passed


def test_an_answer_in_a_cell_is_not_copied_into_another_part(notebook):
    """Or that copy would hide the better one that passes later."""
    notebook(SOFTMAX, "check(softmax)", WEIGHTS, "check(attention_weights)")
    assert kept().count("def softmax") == 1
    notebook(BY_LOGARITHMS, "check(softmax)")
    assert "exponentials" not in kept()
    notebook(
        "def softmax(scores):\n    return scores", "check(softmax)", "check(attention_weights)"
    )
    assert "exponentials" not in kept()
    assert notebook("check(mine('attention_weights'))").passed


def test_a_part_that_fetches_another_one_itself_is_not_kept(notebook):
    notebook("def attention_weights(query, key):\n"
             "    softmax = mine('softmax')\n"
             "    return softmax(query @ key.mT / query.size(-1) ** 0.5)")  # fmt: skip
    said = repr(notebook("check(attention_weights)"))
    assert "not kept: attention_weights calls mine itself; call it in a line of its own" in said


def test_numbers_of_the_course_are_written_down(notebook):
    notebook(
        "from transformer_lib.vocabulary import BOS, EOS",
        "def greedy_decode(next_logits, max_len):\n"
        "    tokens = [BOS]\n"
        "    for _ in range(max_len):\n"
        "        token = int(next_logits(tokens).argmax())\n"
        "        if token == EOS:\n"
        "            break\n"
        "        tokens.append(token)\n"
        "    return tokens[1:]",
    )
    assert "kept in" in repr(notebook("check(greedy_decode)"))
    assert "BOS = 2\n" in kept()
    assert "EOS = 3\n" in kept()
    run_alone("import my_transformer")


def test_a_part_done_again_replaces_the_old_one(notebook):
    notebook(SOFTMAX, "check(softmax)")
    notebook(BY_LOGARITHMS, "check(softmax)")
    assert kept().count("def softmax") == 1
    assert "exponentials" not in kept()
    assert "import torch" in kept()


def test_what_the_student_wrote_into_the_file_stays(notebook):
    notebook(SOFTMAX, "check(softmax)")
    text = kept().replace('check."""', 'check."""\n\nNOTE = "my own"')
    Path("my_transformer.py").write_text(text + "\n# the end\n")
    notebook(WEIGHTS, "check(attention_weights)")
    assert 'NOTE = "my own"' in kept()
    assert "# the end" in kept()


def test_what_stands_below_the_parts_stays_below_them(notebook):
    notebook(WEIGHTS.replace("softmax(scores)", "scores.softmax(-1)"), "check(attention_weights)")
    mine_too = (
        "# my own\ndef twice(x):\n    return 2 * x\n\n\nif __name__ == '__main__':\n    twice(1)\n"
    )
    Path("my_transformer.py").write_text(f"{kept()}\n\n{mine_too}")
    notebook(SOFTMAX, "check(softmax)")
    notebook(WEIGHTS, "check(attention_weights)")
    assert "scores.softmax" not in kept()
    assert kept().endswith(f"    return softmax(scores)\n\n\n{mine_too}")


def test_what_stands_between_two_parts_stays_before_the_later_one(notebook):
    notebook(SOFTMAX, "check(softmax)", WEIGHTS, "check(attention_weights)")
    text = kept().replace("# ---- attention", "SCALE = 1.0\n\n\n# ---- attention")
    text = text.replace("(query, key)", "(query, key, scale=SCALE)").replace(
        "(scores)\n", "(scale * scores)\n"
    )
    Path("my_transformer.py").write_text(text)
    assert KEPT in repr(notebook(BY_LOGARITHMS, "check(softmax)"))
    assert kept().index("logsumexp") < kept().index("SCALE = 1.0") < kept().index("scale=SCALE")
    run_alone("import my_transformer")


def test_what_a_student_imports_below_leaves_the_imports_above(notebook):
    notebook(
        WEIGHTS.replace("softmax(scores)", "torch.softmax(scores, -1)"), "check(attention_weights)"
    )
    below = "if __name__ == '__main__':\n    import math, torch\n    print(math, torch)\n"
    Path("my_transformer.py").write_text(f"{kept()}\n\n{below}")
    assert KEPT in repr(notebook(SOFTMAX, "check(softmax)"))
    assert "\nimport torch\n" in kept()


def test_two_parts_of_one_name_lose_nothing(notebook):
    notebook(SOFTMAX, "check(softmax)")
    rule = kept()[kept().index("# ----") :]
    Path("my_transformer.py").write_text(f"{kept()}\nHELPER = 3\n\n{rule}")
    notebook(WEIGHTS, "check(attention_weights)")
    assert kept().count("def softmax") == 2
    assert "HELPER = 3" in kept()


@pytest.mark.parametrize("odd", ["\f", "\v", "\x1c", "\x85", "\u2028"])
def test_odd_ends_of_lines_in_a_comment_cut_nothing_off(notebook, odd):
    answer = SOFTMAX.replace("    exp", f"    # first{odd}second\n    exp", 1)
    assert KEPT in repr(notebook(answer, "check(softmax)"))
    assert KEPT in repr(notebook(WEIGHTS, "check(attention_weights)"))
    assert kept().count("return exponentials") == 1


def test_helpers_that_differ_in_what_they_use_do_not_meet(notebook):
    helper = "def soft(s):\n    return torch.softmax(s, dim=AXIS)"
    weights = WEIGHTS.replace("softmax(scores)", "soft(scores)")
    assert KEPT in repr(notebook("AXIS = -1", helper, weights, "check(attention_weights)"))
    attend = """def self_attention(x, w_q, w_k, w_v):
    weights = soft((x @ w_k) @ (x @ w_q).mT / math.sqrt(w_q.size(1)))
    return weights.mT @ (x @ w_v)"""
    assert KEPT in repr(notebook("AXIS = 1", helper, attend, "check(self_attention)"))
    for name in ("attention_weights", "self_attention"):
        assert notebook(f"check(mine('{name}'))").passed


def test_a_part_that_others_use_is_not_exchanged_for_one_that_they_cannot_use(notebook):
    notebook(SOFTMAX, "check(softmax)", WEIGHTS, "check(attention_weights)")
    before = kept()
    said = repr(notebook(SOFTMAX.replace("-1", "1"), "check(softmax)"))
    assert "not kept: attention_weights in my_transformer.py, which uses it, would no" in said
    assert kept() == before
    Path("my_transformer.py").write_text(before.replace("math.sqrt", "math.cos"))
    assert "kept in" in repr(notebook("check(softmax)")), "what fails anyhow is no reason"


def test_a_helper_that_another_part_fetches_stays(notebook):
    notebook(
        "def real(tokens):\n    return tokens != 0",
        "def padding_mask(tokens):\n    return real(tokens)[:, None, None]",
        "check(padding_mask)",
        "from my_transformer import padding_mask, real",
        """def decoder_mask(tokens):
    length = tokens.size(1)
    return real(tokens)[:, None, None] & torch.ones(length, length).tril().bool()""",
    )
    assert KEPT in repr(notebook("check(decoder_mask)"))
    other = "def padding_mask(tokens):\n    return (tokens > 0)[:, None, None]"
    assert "decoder_mask in my_transformer.py" in repr(notebook(other, "check(padding_mask)"))


def test_two_ways_to_import_the_same(notebook):
    weights = WEIGHTS.replace("softmax(scores)", "torch.nn.functional.softmax(scores, -1)")
    notebook(SOFTMAX, "check(softmax)")
    assert KEPT in repr(notebook("import torch.nn.functional", weights, "check(attention_weights)"))
    norm = """class LayerNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)"""
    layers = """class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.hidden, self.output = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.output(self.hidden(x).relu())"""
    assert KEPT in repr(notebook("from torch import nn", norm, "check(LayerNorm)"))
    assert KEPT in repr(notebook("import torch.nn as nn", layers, "check(FeedForward)"))
    assert "nn_of" not in kept()


def test_what_is_used_as_soon_as_the_file_runs_comes_first(notebook):
    notebook(
        "from functools import partial\nfrom transformer_lib.model import attention",
        "attend = partial(attention, mask=None)",
        """def grouped_query_attention(query, key, value):
    n = query.size(1) // key.size(1)
    return attend(query, key.repeat_interleave(n, 1), value.repeat_interleave(n, 1))[0]""",
    )
    assert KEPT in repr(notebook("check(grouped_query_attention)"))
    attention = """def attention(query, key, value, mask):
    scores = query @ key.mT / query.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1).nan_to_num()
    return weights @ value, weights"""
    assert KEPT in repr(notebook(attention, "check(attention)"))
    assert kept().index("def attention") < kept().index("partial(attention")
    assert notebook("check(mine('grouped_query_attention'))").passed


def test_defaults_and_counters_are_renamed_with_their_names(notebook):
    notebook(
        "scale = 0.5", SOFTMAX.replace("keepdim=True)", "keepdim=scale > 0)"), "check(softmax)"
    )
    weights = """scale = 1.0
def attention_weights(query, key, scale=scale):
    return torch.softmax(scale * query @ key.mT / math.sqrt(query.size(-1)), -1)"""
    assert KEPT in repr(notebook(weights, "check(attention_weights)"))
    penalty = """calls = 0
def length_penalty(length, alpha):
    global calls
    calls += 1
    return ((5 + length) / 6) ** alpha"""
    assert KEPT in repr(notebook(penalty, "check(length_penalty)"))
    rate = """calls = []
def noam_rate(step, d_model, warmup_steps):
    global calls
    calls = [*calls, step]
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)"""
    assert KEPT in repr(notebook(rate, "check(noam_rate)"))


def test_a_cell_may_begin_with_its_time(notebook):
    assert KEPT in repr(notebook(f"%%time\n{SOFTMAX}", "check(softmax)"))


def test_what_a_part_needs_besides_torch_is_said(notebook):
    weights = WEIGHTS.replace("math.", "numpy.").replace("softmax(scores)", "scores.softmax(-1)")
    said = repr(notebook("import numpy", weights, "check(attention_weights)"))
    assert "kept in my_transformer.py, which now needs numpy" in said


def test_what_passed_and_is_lost_is_said_so(notebook, capsys):
    notebook(SOFTMAX, "check(softmax)")
    Path("my_transformer.py").unlink()
    notebook("mine('softmax')")
    assert "yours passed, but is not in my_transformer.py: run its cell" in capsys.readouterr().out


def test_the_file_can_be_imported_from_as_soon_as_something_is_kept(notebook):
    notebook(SOFTMAX, "check(softmax)", WEIGHTS, "check(attention_weights)")
    assert notebook("from my_transformer import attention_weights, softmax\nsoftmax.__module__")


@pytest.mark.parametrize("text", ["def softmax(scores:\n", "import no_such_module\n", "1 / 0\n"])
def test_a_broken_file_never_stops_a_chapter_and_is_set_aside(notebook, capsys, text):
    Path("my_transformer.py").write_text(text)
    assert notebook("mine('softmax')") is EXERCISES["softmax"].reference
    assert "line 1 of my_transformer.py does not run" in capsys.readouterr().out
    assert kept() == text
    verdict = notebook(SOFTMAX, "check(softmax)")
    assert "the old file is now my_transformer.broken1.py" in repr(verdict)
    assert Path("my_transformer.broken1.py").read_text() == text
    assert "def softmax" in kept()


def test_the_whole_parts_of_a_broken_file_are_taken_over(notebook):
    notebook(SOFTMAX, "check(softmax)")
    whole = kept()
    Path("my_transformer.py").write_text(
        whole + "\n\n# ---- split_heads ----\ndef split_heads(x)\n"
    )
    verdict = notebook(WEIGHTS, "check(attention_weights)")
    assert "the old file is now my_transformer.broken1.py; 1 of its parts" in repr(verdict)
    assert "taken over, but not split_heads" in repr(verdict)
    assert "def softmax" in kept()
    assert "split_heads" not in kept()
    assert "split_heads" in Path("my_transformer.broken1.py").read_text()


@pytest.mark.parametrize(
    "slip",
    [
        lambda text: f"{text}\nprint(hello)\n",
        lambda text: text.replace("# ----", "print(hello)\n# ----", 1),
        lambda text: f"import no_such_module\n{text}",
        lambda text: f"{text}\n[][0]\n",
    ],
)
def test_one_line_that_fails_costs_no_part(notebook, slip):
    notebook(SOFTMAX, "check(softmax)")
    notebook(WEIGHTS, "check(attention_weights)")
    Path("my_transformer.py").write_text(slip(kept()))
    verdict = notebook(SOFTMAX, "check(softmax)")
    assert "broken1.py; 2 of its parts were taken over" in repr(verdict)
    assert "def attention_weights" in kept()
    assert "hello" not in kept()


def test_a_part_of_which_a_statement_fails_is_not_taken_over(notebook):
    notebook(SOFTMAX, "check(softmax)")
    notebook(WEIGHTS, "check(attention_weights)")
    text = re.sub(r"^    return .*softmax", lambda m: m[0].lstrip(), kept(), flags=re.M)
    Path("my_transformer.py").write_text(text)
    verdict = notebook(SOFTMAX, "check(softmax)")
    assert "of its parts were taken over" in repr(verdict)
    assert "# ---- attention_weights" not in kept()


def test_an_empty_stub_says_that_an_earlier_answer_is_kept(notebook):
    notebook(SOFTMAX, "check(softmax)")
    verdict = notebook("def softmax(scores):\n    ...", "check(softmax)")
    assert "the one that passed before is still in my_transformer.py" in repr(verdict)


def test_a_folder_that_cannot_be_written_costs_one_line(notebook, monkeypatch):
    Path("my_transformer.py").mkdir()
    verdict = notebook(SOFTMAX, "check(softmax)")
    assert verdict.passed
    assert "not kept: cannot read" in repr(verdict)
    assert record()["softmax"]["passed"]


def test_what_only_the_notebook_has_cannot_be_kept(notebook):
    notebook("for table in [torch.zeros(1)]:\n    pass")
    notebook("def softmax(x):\n    return (x + table - (x + table).logsumexp(-1, True)).exp()")
    verdict = notebook("check(softmax)")
    assert verdict.passed
    assert "not kept: softmax uses table, which no plain statement of a cell defines" in repr(
        verdict
    )
    assert not Path("my_transformer.py").exists()
    assert record()["softmax"] == {"tries": 1, "passed": True, "solution_seen": False}


def test_two_notebooks_at_once_lose_no_try(tmp_path):
    count = (
        "from transformer_lib.course.own.record import note_try as note; from pathlib import Path\n"
    )
    count += "for _ in range(40): note(Path(), 'softmax', passed=False)"
    running = [subprocess.Popen([sys.executable, "-c", count], cwd=tmp_path) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert record(tmp_path)["softmax"]["tries"] == 80


def test_classes_and_decorators_are_kept(notebook):
    notebook(
        "from torch import nn",
        "class LayerNorm(nn.Module):\n"
        "    def __init__(self, d_model, eps=1e-5):\n"
        "        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.ones(d_model))\n"
        "        self.bias = nn.Parameter(torch.zeros(d_model))\n"
        "        self.eps = eps\n"
        "    def forward(self, x):\n"
        "        mean = x.mean(-1, keepdim=True)\n"
        "        deviation = (x - mean).pow(2).mean(-1, keepdim=True)\n"
        "        return self.weight * (x - mean) / (deviation + self.eps).sqrt() + self.bias\n",
    )
    verdict = notebook("check(LayerNorm)")
    assert "kept in" in repr(verdict), verdict
    run_alone("import my_transformer as my, torch; my.LayerNorm(4)(torch.ones(1, 4))")
    notebook("norm = mine('LayerNorm')(4)")  # an object of one's own is in nobody's way
    assert "kept in" in repr(notebook(SOFTMAX, "check(softmax)"))


def test_a_solution_is_shown_after_a_try_and_the_progress_says_so(notebook):
    assert "Try it first" in repr(notebook("solution('softmax')"))
    notebook("def softmax(scores):\n    return scores.exp()", "check(softmax)")
    assert "def softmax(scores)" in repr(notebook("solution('softmax')"))
    notebook(SOFTMAX, "check(softmax)")
    assert "✓ ●○○" in repr(progress())
    assert "(solution seen)" in repr(progress())


def test_progress_says_what_is_next(notebook):
    first = progress().open[0]
    assert first.name in progress().summary
    assert progress()._repr_html_().count("<tr>") > len(EXERCISES) / 2
    Path("my_progress.json").write_text("no json")
    notebook("def softmax(scores):\n    return scores.exp()", "check(softmax)")
    assert "…" in repr(progress())


def test_outside_of_a_notebook_nothing_is_kept(tmp_path, monkeypatch):
    from transformer_lib.checks import check

    monkeypatch.chdir(tmp_path)
    InteractiveShell.clear_instance()
    assert check(EXERCISES["softmax"].reference).passed
    assert not list(tmp_path.iterdir())


def test_unknown_names_are_refused():
    for function in (mine, solution):
        with pytest.raises(ValueError, match="did you mean softmax"):
            function("softmix")


def test_names_needed():
    code = "def f(x: Tensor, y=START) -> 'Late':\n    return [lambda: x + other for _ in range(2)]"
    assert names_needed(code) == {"Tensor", "START", "other", "range"}


def test_a_name_is_exchanged_where_it_is_meant():
    code = "def help(x):\n    return x.help + help(x) + len('help')\n"
    assert renamed(code, "help", "h2") == "def h2(x):\n    return x.help + h2(x) + len('help')\n"


def test_the_last_definition_that_ran_holds():
    part = part_from("f", ["def f():\n    return 1", "def f():\n    return 2", "not python !"])
    assert part == Part("f", "def f():\n    return 2")
    with pytest.raises(NotKeptError, match="no cell that was run defines g"):
        part_from("g", ["g = 3"])
    part = part_from("f", ["def f():\n    return 1\ncheck(f)\nf = mine('f')"])
    assert part == Part("f", "def f():\n    return 1")


def test_a_file_comes_back_as_it_was_written():
    own = module.OwnModule()
    own.keep(Part("g", "def g():\n    return math.pi", ("import math",)), ["f", "g"])
    own.keep(Part("f", "X = 1\n\n\ndef f():\n    return X", ("import os",)), ["f", "g"])
    again = module.parse(str(own))
    assert (again.imports, again.parts, str(again)) == (["import math"], own.parts, str(own))
    assert list(again.parts) == ["f", "g"]


def test_tasks_of_assignments_are_neither_lent_nor_solved_nor_kept(notebook):
    with pytest.raises(ValueError, match="not an exercise of a chapter"):
        mine("group_norm")
    assert "is not shown" in repr(solution("group_norm"))
    notebook(
        "def group_norm(x, scale, shift, num_groups, eps):\n"
        "    flat = x.flatten(0, 1)\n"
        "    normed = torch.nn.functional.group_norm(flat, num_groups, scale, shift, eps)\n"
        "    return normed.view_as(x)"
    )
    assert notebook("check(group_norm)").passed
    assert not list(Path().iterdir())


def test_a_second_broken_file_does_not_take_the_place_of_the_first(tmp_path):
    (tmp_path / "my_transformer.broken1.py").write_text("x = (")
    assert free_name(tmp_path / "my_transformer.py").name == "my_transformer.broken2.py"


def test_a_pass_stays_one_and_a_solution_seen_later_does_not_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    note_try(tmp_path, "softmax", True)
    note_try(tmp_path, "softmax", False)
    solution("softmax")
    done = read_record(tmp_path)["softmax"]
    assert (done.tries, done.passed, done.solution_seen) == (2, True, False)


def test_files_may_begin_with_the_mark_of_some_editors(tmp_path):
    (tmp_path / "my_progress.json").write_text('{"softmax": {"tries": 3}}', encoding="utf-8-sig")
    assert read_record(tmp_path)["softmax"].tries == 3
    path = tmp_path / "my_transformer.py"
    path.write_text("X = 1\n", encoding="utf-8-sig")
    assert load(path).X == 1


def test_of_two_definitions_in_a_part_both_are_kept():
    text = "# ---- f ----\ndef f(x):\n    return 1\n\ndef f(x):\n    return 2\n"
    assert module.parse(text).parts["f"].endswith("return 2")


def test_the_line_that_fails_is_named_and_not_the_one_that_led_there(tmp_path):
    path = tmp_path / "my_transformer.py"
    path.write_text("def f():\n    return 1 / 0\n\nX = f()\n")
    with pytest.raises(ZeroDivisionError) as caught:
        load(path)
    said = module.why_it_does_not_run(path, caught.value)
    assert said.startswith("line 2 of my_transformer.py")


def test_a_decorator_belongs_to_what_is_taken_over_of_a_broken_file(tmp_path):
    part = "@functools.cache\ndef f(x):\n    return x"
    text = f"import functools\n\n# ---- f ----\n{part}\nf(1, 2)\n"
    saved = module.what_still_runs(text, tmp_path / "my_transformer.py")
    assert saved.parts["f"] == part


def test_the_variable_of_a_comprehension_is_nobody_elses():
    """Since Python 3.12 a symbol table has it among the names of the module."""
    code = "TABLE = [helper(n) for n in range(3)]\ndef f():\n    return n\n"
    assert names_needed(code) == {"helper", "n", "range"}
    assert names_needed(code.partition("def")[0]) == {"helper", "range"}
    assert names_needed("n = 1\nTABLE = [n for n in DATA]") == {"DATA"}


def test_a_counter_of_the_notebook_is_needed():
    assert names_needed("def f():\n    global n\n    n += 1") == {"n"}
    assert names_needed("def f():\n    global n\n    n = 1") == set()


def test_what_a_comprehension_uses_is_needed_at_once():
    assert "helper" in names_needed_at_once("TABLE = [helper(n) for n in range(3)]")


def test_a_file_that_ends_python_does_not_end_the_notebook(notebook, capsys):
    Path("my_transformer.py").write_text("import sys\n\nsys.exit(3)\n")
    assert mine("softmax") is EXERCISES["softmax"].reference
    assert "line 3 of my_transformer.py does not run" in capsys.readouterr().out


def test_tracebacks_quote_the_file_and_not_what_was_tried_and_refused(tmp_path):
    path = tmp_path / "my_transformer.py"
    path.write_text("# \x0c a form feed\ndef f(x):\n    return 1 / x\n")
    load(path)
    run("# other\n\n\ndef f(x):\n    return 2\n", path)
    load(path)
    assert linecache.getline(str(path), 3) == "    return 1 / x\n"


@pytest.mark.parametrize("magic", ["time", "capture"])
def test_a_cell_may_begin_with_a_magic_of_its_own(magic):
    code = "def attention(q):\n    return q"
    cell = f"get_ipython().run_cell_magic({magic!r}, '', {code!r})\n"
    assert part_from("attention", [cell]).code == code
