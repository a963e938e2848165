# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The Transformer, built and trained
#
# In 2017 the paper [“Attention Is All You Need”](https://arxiv.org/abs/1706.03762) described a
# translation model built from a few simple parts. Nearly every large language model since then has
# been built from parts of the same kind. In this course you write all these parts, assemble them
# into a Transformer of your own, train it, break it, and judge the result.
#
# You need a laptop, but no GPU, and no network once the course is installed.
#
# ## The map
#
# An arrow leads from a chapter to one that uses its ideas (chapters 1 to 4 also use finished parts
# that later chapters take apart). Colors: green is the overview, blue the ideas, orange the
# model, and pink what you do with it. Each dot is an exercise; a filled dot is one that you have
# done. Run the cell again from time to time to see your progress.

# %%
from IPython.display import Markdown

from transformer_lib.course.checks import check
from transformer_lib.course.figures.course_map import ALTERNATIVE, NOTEBOOKS, course_map
from transformer_lib.course.own import progress, timetable
from transformer_lib.plots.notebook import show

so_far = progress()
done = {number: so_far.share(file.removesuffix(".ipynb")) for number, file in NOTEBOOKS.items()}
show(course_map(done), ALTERNATIVE)
print(so_far.summary)

# %% [markdown]
# ## Are you ready?
#
# You should know Python and, from a first course on neural networks, what a matrix product, a
# gradient and a training step are. Here are six questions, a minute or two each. Write your answers
# down before you scroll on: the cell below prints the right ones.
#
# 1. `x` is (8, 10, 64) and `W` is (64, 32). What shape is `x @ W`?
# 2. `x` is (8, 10, 64) and `b` is (10, 1). What shape is `x + b`, and what is added to what?
# 3. What is the softmax of (0, 0, ln 2)?
# 4. $y = w^2 x$ with $w = 3$ and $x = 2$. What is $\partial y/\partial w$?
# 5. A network gives the correct class a probability of 1/4. What is the cross-entropy, in nats?
# 6. Write a module (`nn.Module`) that applies `nn.Linear(64, 32)` and then a ReLU. How many
#    trainable parameters does it have?

# %%
import math

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 32)

    def forward(self, x):
        return self.linear(x).relu()


x, w = torch.zeros(8, 10, 64), torch.tensor(3.0, requires_grad=True)
print("1.", tuple((x @ torch.zeros(64, 32)).shape))
print("2.", tuple((x + torch.zeros(10, 1)).shape), "each of the 10 rows gets a number of its own")
print("3.", torch.tensor([0.0, 0.0, math.log(2)]).softmax(dim=0).tolist())
(w**2 * 2).backward()
print("4.", w.grad.item())
print("5.", round(-math.log(1 / 4), 2))
print("6.", sum(p.numel() for p in Layer().parameters()), "= 64 · 32 weights and 32 biases")

# %% [markdown]
# If you got five or six right, begin. If 1 or 2 gave you trouble, work through PyTorch's
# [introduction to
# tensors](https://docs.pytorch.org/tutorials/beginner/introyt/tensors_deeper_tutorial.html) first;
# if 3, 4 or 5 did, the chapters on softmax and backpropagation in any book on deep learning; if 6
# did, PyTorch's page on [how a network is
# written](https://docs.pytorch.org/tutorials/beginner/basics/buildmodel_tutorial.html). Each takes
# an evening at most.
#
# ## How to work with it
#
# - **Predict first.** Each chapter opens with a question. Write your answer down before you read
#   on; a wrong guess that you remember teaches more than a right explanation that you skim.
# - **Run the cells yourself**, from top to bottom, with Shift+Enter. Change a number and run a cell
#   again. “Restart Kernel and Run All Cells” in the Kernel menu gives you a clean start (it does
#   not undo your changes).
# - **Write the pieces.** An exercise is an unfinished function and a call to `check`. The check
#   tells you at once which properties hold. If your code behaves like a mistake that others have
#   made before you, the check says what to look at. If it does not know the mistake, it searches
#   your code for the place that is wrong, which takes a few seconds, or up to half a minute for a
#   large Python class.
# - **Keep them.** What passes its check is kept in the file `my_transformer.py` beside the
#   notebooks, and from then on the cells below it and the later chapters use your version:
#   `attention = mine("attention")`. Where you have no version yet, they use the course's, so you
#   can skip an exercise, come back to it, or begin in the
#   middle. The file is yours: read it, change it, run it
#   without the course.
#
# This is what a check looks like. The function should return the penalty by which beam search
# divides a translation's score, $((5 + |Y|)/6)^\alpha$, where $|Y|$ is the translation's length
# (beam search comes in chapter 12 and does not matter here). The version below forgets the
# exponent:

# %%
def length_penalty(length, alpha):
    return (5 + length) / 6


check(length_penalty, seed=1)

# %% [markdown]
# Read it from the top: the verdict, a hint about the mistake, and then one line for each property
# that was tested. The test inputs are different in each call, so there is no point in hard-coding
# the expected results; `seed=1` brings the same inputs back. A name like M125 is the mistake's
# number in the [list of mistakes](../docs/misconceptions.md). In a terminal, `transformer-lib
# misconceptions M125` says more about it.
#
# ## When you are stuck
#
# 1. Read the first line of the verdict again, and the first ✗. Make the smallest example that
#    fails, and print the shape after every step. Whatever your function prints during the check
#    appears at the end of the verdict, for the first case that failed.
# 2. Open the hint below the exercise.
# 3. `solution("attention")` shows one way and says why. You must have tried first, and the progress
#    list remembers that you have looked: reading a solution is no substitute for the exercise
#    unless you then close it and write the function yourself.
# 4. Go on. Everything after the exercise works with the course's version.
#
# **With a programming assistant.** It can write every exercise of this course, and then *it* has
# practiced. Let it explain an error message, ask it for a smaller case to work out by hand, have it
# quiz you; but write the answer yourself. In the top folder of your working copy (the one that
# `make lab` opened) there is a file `AGENTS.md`, which such programs look for: it asks them to
# teach and not to solve, to let `check` judge, and to read you the hint that `check` gives. Before
# you hand anything in, ask your instructor whether more or less than this is allowed.
#
# ## How long it takes
#
# ●○○ is one idea, ●●○ takes several steps, ●●● is an experiment or a part of a real system. The
# minutes in the table below are for somebody new to the subject. (Run commands that begin with
# `make`, here and in later chapters, in the project's folder, not in your working copy.)

# %%
Markdown(timetable())

# %% [markdown]
# The six assignments, after chapters 4, 7, 9, 12, 15 and 17, come on top of this and take about 22
# hours in all. At four hours per week the course fills a semester. A plan for eight weeks: chapters
# 1–2, 3–4, 5–6, 7–8, 9–10, 11–12, 13–14, 15–17. A long weekend is enough for chapters 1, 5, 7, 10
# and 11; the course provides what they use from the others. What instructors need is in
# `docs/teaching.md` and `docs/grading.md`.
#
# All exercises, with the purpose of each, are listed in [docs/exercises.md](../docs/exercises.md).
# Your own progress is here:

# %%
progress()

# %% [markdown]
# ## Notation
#
# The names are the ones used in the paper and in the code; the order of axes is always the same.
#
# | name | meaning | in the paper's base model |
# |---|---|---|
# | `batch` (batch_size) | number of sentences that are processed together | |
# | `src_len` | length in tokens of the longest source sentence in the batch | |
# | `tgt_len` | length in tokens of the longest target sentence | |
# | `d_model` | width: how many numbers a token's vector has | 512 |
# | `num_heads` (h) | attention heads of a sublayer | 8 |
# | `d_k` (= d_q) | width of a query or key of one head, d_model / h | 64 |
# | `d_v` | width of a value of one head, d_model / h | 64 |
# | `d_ff` | hidden width of the feed-forward network | 2048 |
# | `N` | layers of the encoder, and of the decoder | 6 |
# | `src_vocab_size`, `tgt_vocab_size` | pieces in the vocabulary of each language | 37,000, shared |
#
# | tensor | axes |
# |---|---|
# | tokens | (batch, length) |
# | states of a layer | (batch, length, d_model) |
# | queries, keys | (batch, heads, length, d_k) |
# | values | (batch, heads, length, d_v) |
# | attention weights | (batch, heads, queries, keys) |
# | masks | like the weights (in chapter 2: (batch, keys)), boolean; **True means “may attend”** |
#
# Four token numbers are special everywhere: `<pad>` = 0 pads the shorter sentences, `<unk>` = 1 is
# an unknown piece, `<s>` = 2 begins what the decoder reads, `</s>` = 3 ends every sentence.
#
# ## English and Chinese terms
#
# The course grew out of sources in both languages, and some readers know the terms in only one of
# them.
#
# | English | 中文 | | English | 中文 |
# |---|---|---|---|---|
# | attention | 注意力 | | layer normalization | 层归一化 |
# | self-attention | 自注意力 | | batch normalization | 批归一化 |
# | cross-attention | 交叉注意力 | | residual connection | 残差连接 |
# | multi-head attention | 多头注意力 | | feed-forward network | 前馈网络 |
# | query, key, value | 查询、键、值 | | encoder, decoder | 编码器、解码器 |
# | scaled dot-product | 缩放点积 | | sequence to sequence | 序列到序列 |
# | positional encoding | 位置编码 | | teacher forcing | 教师强制 |
# | embedding | 嵌入 | | label smoothing | 标签平滑 |
# | mask | 掩码 | | learning rate, warm-up | 学习率、预热 |
# | padding | 填充 | | greedy search | 贪心搜索 |
# | token, subword | 词元、子词 | | beam search | 束搜索 |
# | vocabulary | 词表 | | length penalty | 长度惩罚 |
# | softmax | softmax 函数 | | machine translation | 机器翻译 |
# | dropout | 随机失活 | | reference translation | 参考译文 |
#
# Go on with [chapter 1](01_a_translator_in_minutes.ipynb).
