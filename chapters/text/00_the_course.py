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
# translation model of a few simple parts. Nearly every large language model since then is made of
# the same parts. In this course you build all of them, train them, break them, and judge the
# result.
#
# You need Python, a first course on neural networks, and a laptop. No GPU, and no network once the
# course is installed.
#
# ## The map
#
# An arrow leads from a chapter to one that needs it. Colours: green is the first view of the whole,
# blue are the ideas, orange is the model, pink is what you do with it.

# %%
from transformer_lib.checks import EXERCISES, check
from transformer_lib.course.figures.course_map import ALTERNATIVE, course_map
from transformer_lib.plots.notebook import show

show(course_map(), ALTERNATIVE)

# %% [markdown]
# ## How to work with it
#
# - **Predict first.** Each chapter opens with a question. Write your answer down before you read
#   on; a wrong guess that you remember teaches more than a right explanation that you skim.
# - **Run the cells yourself**, from top to bottom, with Shift+Enter. Change a number and run a cell
#   again: nothing breaks. “Restart Kernel and Run All Cells” in the menu Kernel brings you back.
# - **Write the pieces.** Under *your turn* is an unfinished function and a call of `check`. The
#   check says at once which properties hold. If your code behaves like a mistake that others have
#   made before you, it says what to look at. Hint and solution are folded away below the cell.
# - **Use what you wrote.** Every piece that you build is also in `transformer_lib`, which the later
#   chapters import. Read it: it is short.
#
# This is what a check looks like. The function should return the penalty by which beam search
# divides a translation's score, $((5 + |Y|)/6)^\alpha$; it forgets the exponent:

# %%
def length_penalty(length, alpha):
    return (5 + length) / 6


check(length_penalty, seed=1)

# %% [markdown]
# Read it from the top: the verdict, what the mistake looks like, and then one line for each
# property that was tried. The numbers that are tried are new in each call, so there is no point in
# writing the expected ones into the code; `seed=1` brings the same numbers again.

# %%
print(len(EXERCISES), "pieces can be checked:")
for topic in dict.fromkeys(exercise.topic for exercise in EXERCISES.values()):
    names = [name for name, exercise in EXERCISES.items() if exercise.topic == topic]
    print(f"{topic:22}{', '.join(names)}")

# %% [markdown]
# ## Notation
#
# The names are those of the paper and of the code; the order of axes is always the same.
#
# | name | meaning | in the paper's base model |
# |---|---|---|
# | `batch` (batch_size) | sentences that are computed together | |
# | `src_len` | tokens of the longest source sentence of the batch | |
# | `tgt_len` | tokens of the longest target sentence | |
# | `d_model` | width: numbers in the vector of a token | 512 |
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
# | queries, keys, values | (batch, heads, length, d_k) |
# | attention weights | (batch, heads, queries, keys) |
# | masks | as the weights, boolean; **True means: may attend** |
#
# Four token numbers are special everywhere: `<pad>` = 0 fills shorter sentences up, `<unk>` = 1 is
# an unknown piece, `<s>` = 2 begins a sentence, `</s>` = 3 ends it.
#
# ## English and Chinese terms
#
# The course grew out of sources in both languages.
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
# | softmax | 归一化指数函数 | | machine translation | 机器翻译 |
# | dropout | 随机失活 | | reference translation | 参考译文 |
#
# Go on with [chapter 1](01_a_translator_in_minutes.ipynb).
