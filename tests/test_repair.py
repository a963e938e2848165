"""The place of the one change that would make an answer right."""

import ast
import io
import linecache
import math
import os
import sys
import textwrap
import time
from contextlib import redirect_stdout

import pytest
import torch
from torch import nn

from transformer_lib.course.checks import EXERCISES, check
from transformer_lib.course.checks.apart import MEMORY, apart
from transformer_lib.course.checks.edits import edits
from transformer_lib.course.checks.repair import definition_of
from transformer_lib.vocabulary import PAD


def answer(source, file="<a cell>"):
    """What a student defines in a cell of a notebook."""
    source = textwrap.dedent(source).strip("\n") + "\n"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names = {"torch": torch, "nn": nn, "math": math, "PAD": PAD, "__name__": "cell"}
    exec(compile(source, file, "exec"), names)
    return next(x for x in reversed(names.values()) if getattr(x, "__module__", "") == "cell")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            """
            def plan_batches(lengths, batch_tokens):
                batches = []
                for n in sorted(range(len(lengths)), key=lengths.__getitem__):
                    if batches and lengths[n] * (len(batches[-1]) + 1) < batch_tokens:
                        batches[-1].append(n)
                    else:
                        batches.append([n])
                return batches
            """,
            "line 4, `lengths[n] * (len(batches[-1]) + 1) < batch_tokens`: everything passes with "
            "another comparison",
        ),
        (
            """
            def merge_heads(x):
                return x.transpose(1, 3).flatten(2)
            """,
            "line 2, `3` in `return x.transpose(1, 3).flatten(2)`: everything passes with another "
            "number",
        ),
        (
            """
            def length_penalty(length, alpha):
                return ((6 + length) / 6) ** alpha
            """,
            "line 2, `6 + length`: everything passes with one less here",
        ),
        (
            """
            def attention_weights(query, key):
                scores = query @ key.mT / key.size(-1) ** 0.5
                powers = (scores - scores.max()).exp()
                return powers / powers.sum(-1, keepdim=True)
            """,
            "line 3, `scores.max()`: everything passes if it runs over the last axis only",
        ),
        (
            """
            def packed_mask(segments):
                length, grids = segments.size(1), []
                grid = torch.zeros(1, length, length, dtype=torch.bool)
                for row in segments.tolist():
                    for query in range(length):
                        for key in range(query + 1):
                            grid[0, query, key] |= row[query] == row[key] != 0
                    grids.append(grid)
                return torch.stack(grids)
            """,
            "line 3, `grid = torch.zeros(1, length, length, dtype=torch.bool)`: everything passes "
            "with this line in the loop",
        ),
        (
            """
            def training_step(model, optimizer, batches, smoothing, max_norm):
                total, number = 0.0, sum((labels != PAD).sum().item() for *_, labels in batches)
                for src, tgt_input, labels in batches:
                    optimizer.zero_grad()
                    logits = model(src, tgt_input).flatten(0, 1)
                    loss = nn.functional.cross_entropy(
                        logits, labels.flatten(), ignore_index=PAD, reduction="sum",
                        label_smoothing=smoothing,
                    ) / number
                    loss.backward()
                    total += loss.item()
                nn.utils.clip_grad_norm_(model.parameters(), max_norm)
                optimizer.step()
                return total
            """,
            "line 4, `optimizer.zero_grad()`: everything passes with this line before the loop",
        ),
        (
            """
            def best_continuations(scores, log_p, beam_size):
                total = (scores[:, None] + log_p).flatten()
                best, place = total.topk(beam_size)
                return best, place % log_p.size(1), place // log_p.size(1)
            """,
            "line 4, `best, place % log_p.size(1), place // log_p.size(1)`: everything passes in "
            "another order",
        ),
        (
            """
            def rms_norm(x, scale, eps):
                return scale * x / torch.sqrt(x.square().mean(-1) + eps)
            """,
            "line 2, `x.square().mean(-1)`: everything passes if the axis is kept",
        ),
        (
            """
            class LayerNorm(nn.Module):
                def __init__(self, d_model, eps=1e-4):
                    super().__init__()
                    self.weight = nn.Parameter(torch.ones(d_model))
                    self.bias = nn.Parameter(torch.zeros(d_model))
                    self.eps = eps

                def forward(self, x):
                    centered = x - x.mean(-1, keepdim=True)
                    variance = centered.square().mean(-1, keepdim=True)
                    return self.weight * centered / torch.sqrt(variance + self.eps) + self.bias
            """,
            "line 2, `1e-4`: everything passes with another number",
        ),
        (
            """
            def positional_encoding(length, d_model):
                table = torch.zeros(length, d_model)
                pos = torch.arange(length, dtype=torch.float64)[:, None]
                i = torch.arange(d_model // 2)
                angle = pos / 10000 ** 2 * i / d_model
                table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
                return table
            """,
            "line 5, `pos / 10000 ** 2 * i / d_model`: everything passes with parentheses",
        ),
        (
            """
            def self_attention(x, w_q, w_k, w_v):
                out = []
                for sentence in x:
                    q = sentence @ w_q
                    k = sentence @ w_k
                    scores = k @ q.T / k.size(-1) ** 0.5
                    out.append(scores.softmax(-1) @ (sentence @ w_v))
                return torch.stack(out)
            """,
            "line 6, `scores = k @ q.T / k.size(-1) ** 0.5`: everything passes with `k` and `q` "
            "exchanged",
        ),
        (
            """
            def self_attention(x, w_q, w_k, w_v):
                weights = (x @ w_q @ (x @ w_k).transpose(1, 2) / w_q.size(1) ** 0.5).softmax(-1)
                return torch.einsum("bij,bik->bjk", weights, x @ w_v)
            """,
            'line 3, `"bij,bik->bjk"` in `return torch.einsum("bij,bik->bjk", weights, x @ w_v)`: '
            "everything passes with two letters exchanged",
        ),
        (
            """
            def self_attention(x, w_q, w_k, w_v):
                q, k, v = (nn.functional.linear(x, w_q), nn.functional.linear(x, w_k), x @ w_v)
                return (q @ k.transpose(1, 2) / k.size(-1) ** 0.5).softmax(-1) @ v
            """,
            "line 2, `w_q` in `nn.functional.linear(x, w_q)`: everything passes with two of its "
            "axes exchanged, here and where the same stands",
        ),
        (
            """
            def layer_norm(x, scale, shift, eps):
                mean, variance = x.mean(-1), x.var(-1, unbiased=False)
                return scale * (x - mean) / torch.sqrt(variance + eps) + shift
            """,
            "line 2, `x.mean(-1)`: everything passes if the axis is kept, here and where the same",
        ),
        (
            """
            def softmax(scores):
                powers = (scores - scores.max()).exp()
                return powers / powers.sum(dim=0, keepdim=True)
            """,
            "line 3, `0` in `return powers / powers.sum(dim=0, keepdim=True)`: everything but "
            "“large scores” passes with another number",
        ),
    ],
)
def test_the_place_is_named(source, said):
    verdict = check(answer(source), seed=1)
    assert not verdict.passed
    assert any(note.startswith(said) for note in verdict.notes), verdict.notes


def test_of_a_graded_task_only_the_place_is_said():
    wrong = """
        def relative_scores(query, key, table):
            length, reach = query.size(2), table.size(0) // 2
            place = torch.arange(length)
            offset = (place[None, :] - place[:, None]).clamp(-reach, reach - 1) + reach
            relative = torch.einsum("bhqd,qkd->bhqk", query, table[offset])
            return (query @ key.mT + relative) / math.sqrt(query.size(-1))
        """
    verdict = check(answer(wrong), seed=1)
    assert verdict.notes == ("line 4, `reach - 1`: everything passes with one change here",)


def test_the_other_mistake_is_named_too():
    wrong = """
        def embed(tokens, table):
            vectors = table[tokens] / math.sqrt(table.size(1))
            return vectors.masked_fill(tokens[..., None] == PAD, 0.0)
        """
    verdict = check(answer(wrong), seed=1)
    assert "`vectors.masked_fill(tokens[..., None] == PAD, 0.0)`" in verdict.notes[0]
    assert verdict.notes[1].startswith("what is left then is M10: ")
    assert verdict.mistakes == ("M10",)


def test_a_loop_that_a_change_makes_endless_is_ended():
    wrong = """
        def greedy_decode(next_logits, max_len):
            said = []
            while len(said) < max_len:
                token = int(next_logits([0] + said).argmax())
                said.append(token)
            return said
        """
    before = sys.gettrace()
    assert not check(answer(wrong), seed=1).passed
    assert sys.gettrace() is before


def test_what_the_answer_prints_is_not_printed_for_every_change():
    wrong = """
        def causal_mask(length):
            print("here")
            return torch.ones(1, 1, length, length).bool().tril(2)
        """
    printed = io.StringIO()
    with redirect_stdout(printed):
        verdict = check(answer(wrong), seed=1)
    assert "`2` in " in verdict.notes[0]
    assert printed.getvalue().count("here") < 20


def test_code_that_is_not_at_hand_is_left_alone():
    inside = eval("lambda tokens: (tokens == 7)[:, None, None]")
    assert definition_of(inside) == (None, "")
    assert check(inside, "padding_mask", seed=1).notes == ()


@pytest.mark.parametrize("name", EXERCISES)
def test_every_edit_is_taken_back(name):
    tree, _ = definition_of(EXERCISES[name].reference)
    if tree is None:  # inside another function
        return
    before = ast.dump(tree)
    for edit in edits(tree):
        with edit.made():
            ast.unparse(ast.fix_missing_locations(tree))
        assert ast.dump(tree) == before, edit


@pytest.mark.parametrize(
    "source",
    [
        "def layer_norm(x, scale, shift, eps):\n    ...",
        "def layer_norm(x, scale, shift, eps):\n    '''To do.'''",
        "def layer_norm(x, scale, shift, eps):\n    raise NotImplementedError",
    ],
)
def test_an_empty_answer_is_not_a_wrong_one(source):
    assert not check(answer(source), seed=1).attempted


def test_a_forgotten_return_is_named():
    wrong = """
        def layer_norm(x, scale, shift, eps):
            y = scale * (x - x.mean(-1, keepdim=True))
        """
    verdict = check(answer(wrong), seed=1)
    assert verdict.attempted
    assert "is a return missing?" in verdict.findings[0].message


def test_a_change_that_gives_a_giant_number_is_no_error_of_ours():
    wrong = """
        def encoder_layer_flops(length, d_model, d_ff):
            projections = 4 * (2 * length * d_model ** 2)
            scores = 2 * length * d_model * length
            values = 2 * length * d_model * d_model
            return projections + scores + values + 2 * length * d_model * d_ff
        """
    verdict = check(answer(wrong), seed=1)
    assert not verdict.passed
    assert "digits" not in repr(verdict)


def test_an_argument_without_influence_is_named():
    wrong = """
        def best_hypothesis(log_p, lengths, alpha):
            shares = [p / n for p, n in zip(log_p, lengths)]
            return shares.index(max(shares))
        """
    assert "alpha does not influence your result" in check(answer(wrong), seed=1).notes


def test_a_list_of_parts_that_is_emptied_is_noticed():
    wrong = """
        def decoder_layer(x, memory, tgt_mask, memory_mask, attention, cross, feed_forward, norms):
            x = norms.pop(0)(x + attention(x, x, tgt_mask))
            x = norms.pop(0)(x + cross(x, memory, memory_mask))
            return norms.pop(0)(x + feed_forward(x))
        """
    verdict = check(answer(wrong), seed=1)
    assert "your code writes into norms" in repr(verdict)


def test_the_shapes_in_the_line_that_failed_are_shown():
    wrong = """
        def layer_norm(x, scale, shift, eps):
            mean = x.mean(dim=-1)
            return scale * (x - mean) + shift
        """
    said = repr(check(answer(wrong), seed=1))
    assert "here scale (6,), x (3, 4, 6), mean (3, 4) and shift (6,)" in said


def test_a_list_of_tensors_is_no_list_of_numbers():
    wrong = """
        def greedy_decode(next_logits, max_len):
            said = [torch.tensor(2)]
            while len(said) <= max_len:
                said.append(next_logits([int(x) for x in said]).argmax())
                if said[-1] == 3:
                    return said[1:-1]
            return said[1:]
        """
    said = repr(check(answer(wrong), seed=1))
    assert "expected a number, got a tensor: item() makes a number of it" in said


def a_search_that_puts_a_list_into_itself():
    return answer(
        """
        def greedy_decode_batch(next_logits, batch_size, max_len):
            rows = [[2] for _ in range(batch_size)]
            active = list(range(batch_size))
            for _ in range(max_len):
                if not active:
                    break
                logits = next_logits(torch.tensor([rows[i] for i in active]))
                still = []
                for i, token in zip(active, logits.argmax(dim=-1).tolist()):
                    if token == 3:
                        continue
                    rows[i].append(token)
                    still.append(i)
                active = still
            return [row[1:] for row in rows]
        """
    )


def test_a_changed_program_that_crashes_leaves_the_notebook_alone():
    # With one of its names exchanged, torch.tensor gets a list that contains itself, and crashes.
    said = repr(check(a_search_that_puts_a_list_into_itself(), seed=3))
    assert "the model has 3 sources, and got 2 rows" in said


def test_a_change_after_which_a_call_takes_long_is_left_behind(monkeypatch):
    monkeypatch.setattr("transformer_lib.course.checks.repair.EACH", 0.1)
    slow = """
        import time

        def causal_mask(length):
            time.sleep(0 * 60)
            return torch.ones(1, 1, length, length).bool().tril(2)
        """
    assert "`2` in " in check(answer(slow), seed=1).notes[0]


APART = sys.platform == "linux" and not torch.accelerator.is_available()


def takes_much():
    return str(len(bytearray(MEMORY + 2**28)))


@pytest.mark.skipif(not APART, reason="here a call is not made in a process of its own")
@pytest.mark.parametrize("call", [os.abort, lambda: 1 / 0, takes_much, lambda: time.sleep(60)])
def test_a_call_apart_that_fails_says_nothing(call):
    assert apart(call, seconds=2) == ""


def test_a_call_apart_says_what_it_returns():
    torch.randn(3, requires_grad=True).sum().backward()

    def gradient():
        x = torch.ones(300, 300, requires_grad=True)
        (x @ x).sum().backward()
        return str(x.grad.sum().item())

    assert apart(gradient, seconds=60) == "54000000.0"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            """
            def embed(tokens, table):
                emb = nn.Embedding.from_pretrained(table)
                return emb(tokens) * math.sqrt(table.size(1))
            """,
            "line 2, `nn.Embedding.from_pretrained(table)`: autograd does not follow what happens "
            "here",
        ),
        (
            """
            class LayerNorm(nn.Module):
                def __init__(self, d_model):
                    super().__init__()
                    self.weight = nn.Parameter(torch.ones(d_model))
                    self.bias = nn.Parameter(torch.zeros(d_model))

                def forward(self, x):
                    variance = x.var(-1, correction=0, keepdim=True)
                    with torch.no_grad():
                        mean = x.mean(-1, keepdim=True)
                    return (x - mean) / (variance + 1e-5).sqrt() * self.weight + self.bias
            """,
            "line 9, `torch.no_grad()`: autograd does not follow what happens here",
        ),
    ],
)
def test_where_autograd_is_left_is_said_if_the_gradient_alone_is_wrong(source, said):
    assert said in check(answer(source), seed=1).notes


def test_a_mistake_is_known_even_if_an_argument_is_changed_besides():
    source = """
        def teacher_forcing(targets):
            both = [targets.copy(), targets.copy()]
            for row in both[0]:
                row.insert(0, 2)
            for row in both[1]:
                row.append(3)
            width = max(len(row) for row in targets)
            return tuple(
                torch.tensor([row + [PAD] * (width - len(row)) for row in rows]) for rows in both
            )
        """
    verdict = check(answer(source), seed=1)
    assert verdict.mistakes == ("M104",)
    assert "your code writes into targets" in repr(verdict)
