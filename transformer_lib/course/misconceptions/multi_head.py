"""Mistakes in multi-head attention.

What is right about it is in :class:`transformer_lib.model.multi_head.MultiHeadAttention`; here each
projection is a plain matrix, x·W.
"""

import torch

from transformer_lib.course.misconceptions.attention import zeroed_scores
from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.model.multi_head import merge_heads, split_heads
from transformer_lib.model.scaled_dot_product import attention


def _heads(x, memory, w_q, w_k, w_v, num_heads, mask, scale=1.0, attend=attention):
    query, key, value = (split_heads(x, num_heads) for x in (x @ w_q, memory @ w_k, memory @ w_v))
    return attend(query * scale, key, value, mask)[0]


@misconception(
    "M8",
    "multi_head_attention",
    title="no output projection",
    source="Kyubyong/transformer",
    effect="The heads stay side by side: within the sublayer no channel of one head reaches "
    "another.",
    hint="Everything is right up to the last step. What does the paper do with the concatenated "
    "heads?",
)
def without_output_projection(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    return merge_heads(_heads(x, memory, w_q, w_k, w_v, num_heads, mask))


class _Heads:
    """Keeps its matrices under one name and looks for them under another."""

    def __init__(self, *matrices):
        self.linear = matrices


@misconception(
    "M3",
    "multi_head_attention",
    title="stored as `linear`, used as `linears`",
    source="the lecture's listing, which never ran",
    effect="An AttributeError in the first call.",
    hint="The name that your code looks for does not exist, but a similar one may. Compare the "
    "line "
    "in which you store it with the one in which you use it.",
)
def another_name(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    parts = _Heads(w_q, w_k, w_v, w_o)
    query, key, value = (split_heads(x @ w, num_heads) for w in parts.linears[:3])  # type: ignore[attr-defined]
    return merge_heads(attention(query, key, value, mask)[0]) @ parts.linears[3]  # type: ignore[attr-defined]


@misconception(
    "M19",
    "split_heads",
    title="heads split without the transpose",
    source="common: view(batch, heads, length, d_k)",
    effect="The shape is right, but a “head” holds pieces of several positions.",
    hint="The shape is right, but what head 0 sees is not what its channels of each position hold. "
    "In which order do the numbers lie in memory when you view them?",
)
def split_by_view(x, num_heads):
    batch, length, d_model = x.shape
    return x.reshape(batch, num_heads, length, d_model // num_heads)


@misconception(
    "M20",
    "merge_heads",
    title="heads merged without the transpose back",
    source="common: reshape(batch, length, d_model) of (batch, heads, length, d_k)",
    effect="The shape is right, but a position holds pieces of several positions.",
    hint="The shape is right, but position 0 has numbers from other positions. Where must the axis "
    "of the heads be before it can be joined with d_k?",
)
def merge_by_reshape(heads):
    batch, num_heads, length, d_k = heads.shape
    return heads.reshape(batch, length, num_heads * d_k)


@also("M19", "multi_head_attention")
def attention_of_viewed_heads(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    query, key, value = (split_by_view(x, num_heads) for x in (x @ w_q, memory @ w_k, memory @ w_v))
    return merge_heads(attention(query, key, value, mask)[0]) @ w_o


@also("M20", "multi_head_attention")
def attention_merged_by_reshape(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    return merge_by_reshape(_heads(x, memory, w_q, w_k, w_v, num_heads, mask)) @ w_o


@also("M18", "multi_head_attention")
def heads_scaled_by_d_model(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    heads = _heads(x, memory, w_q, w_k, w_v, num_heads, mask, scale=num_heads**-0.5)
    return merge_heads(heads) @ w_o


@also("M38", "multi_head_attention")
def heads_without_mask(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    return merge_heads(_heads(x, memory, w_q, w_k, w_v, num_heads, None)) @ w_o


@misconception(
    "M71",
    "split_heads",
    title="every head takes every h-th channel",
    source="a plausible slip: view(batch, length, d_k, heads)",
    effect="A model can be trained so, but not with the weights of one that was trained otherwise.",
    hint="Your head 0 has channels from all over d_model. Which channels belong to head 0?",
)
def channels_dealt_out(x, num_heads):
    batch, length, d_model = x.shape
    return x.view(batch, length, d_model // num_heads, num_heads).permute(0, 3, 1, 2)


@also("M71", "merge_heads")
def channels_collected(heads):
    return heads.permute(0, 2, 3, 1).flatten(2)


@misconception(
    "M72",
    "split_heads",
    title="heads moved to the batch axis",
    source="Kyubyong/transformer, where it is meant: row h·N + n",
    effect="A mask with one row for each sentence no longer fits its row.",
    hint="You return three axes. Where is the axis of the heads?",
)
def heads_in_the_batch(x, num_heads):
    return torch.cat(x.chunk(num_heads, dim=-1))


@misconception(
    "M73",
    "multi_head_attention",
    title="keys and values from the queries' side",
    source="a plausible slip: self-attention copied for cross-attention",
    effect="The decoder never sees the source sentence; with equal lengths nothing fails.",
    hint="Change the memory, and your result stays the same. Whose keys and values are looked at?",
)
def memory_ignored(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    return merge_heads(_heads(x, x, w_q, w_k, w_v, num_heads, mask)) @ w_o


@misconception(
    "M74",
    "multi_head_attention",
    title="queries from the memory's side",
    source="a plausible slip: queries and keys confused in cross-attention",
    effect="The result has as many positions as the memory.",
    hint="Your result has a position for each position of the memory. Which side "
    "asks, and which is asked?",
)
def sides_swapped(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    mask = None if mask is None or mask.size(2) == 1 else mask.transpose(-2, -1)
    return merge_heads(_heads(memory, x, w_q, w_k, w_v, num_heads, mask)) @ w_o


@misconception(
    "M75",
    "multi_head_attention",
    title="values projected like keys",
    source="a plausible slip: a name copied twice",
    effect="W^V is never trained.",
    hint="One of the four matrices does not influence your result. Which?",
)
def keys_for_values(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    return merge_heads(_heads(x, memory, w_q, w_k, w_k, num_heads, mask)) @ w_o


@misconception(
    "M76",
    "query_key_value",
    title="the fused matrix read in the order key, query, value",
    source="a plausible slip: NiuTensor's variable is called kqv, though its program fills it with "
    "query, key, value",
    effect="Queries and keys change places: a model that is trained so learns all the same, but "
    "weights from elsewhere give other numbers.",
    hint="Your third part is right, the first two are not. In which order do the parts lie?",
)
def key_query_value(x, weight):
    key, query, value = (x @ weight.T).chunk(3, dim=-1)
    return query, key, value


@misconception(
    "M77",
    "query_key_value",
    title="every third channel instead of thirds",
    source="a plausible slip: view(…, d_model, 3)",
    effect="Query, key and value are mixed channel by channel.",
    hint="The shapes are right, but your query holds channels of all three. Do its channels lie "
    "side by side or three apart?",
)
def every_third_channel(x, weight):
    return (x @ weight.T).unflatten(-1, (-1, 3)).unbind(-1)


@misconception(
    "M78",
    "query_key_value",
    title="split along the positions",
    source="a plausible slip: chunk(3) with a wrong axis",
    effect="The first third of the sentence asks, the last one answers.",
    hint="Your parts have too few positions. Which axis did you split?",
)
def split_positions(x, weight):
    return (x @ weight.T).chunk(3, dim=1)


@misconception(
    "M227",
    "query_key_value",
    title="the weights of a linear layer not transposed",
    source="an answer in a trial of the checks: x @ W where nn.Linear has x @ Wᵀ",
    effect="The shapes fit, since each part is square, and every number is wrong.",
    hint="nn.Linear keeps its weight as (out, in). With what does it multiply its input?",
)
def not_transposed(x, weight):
    return tuple(x @ part for part in weight.chunk(3))


@misconception(
    "M245",
    "multi_head_attention",
    title="heads split and merged without the transpose",
    source="common: reshape there and back",
    effect="Parts of neighboring words are taken for heads, and the loss still falls.",
    hint="With one head your result would be right. What does a plain reshape put into head 0: "
    "the first channels of every position, or all channels of the first positions?",
)
def reshaped_there_and_back(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    query, key, value = (split_by_view(x, num_heads) for x in (x @ w_q, memory @ w_k, memory @ w_v))
    return merge_by_reshape(attention(query, key, value, mask)[0]) @ w_o


@misconception(
    "M246",
    "multi_head_attention",
    title="matrices applied transposed",
    source="common: F.linear(x, w) is x @ w.T",
    effect="Weights from elsewhere give other numbers; one's own are learned transposed.",
    hint="Your projections are x·Wᵀ. How does nn.Linear store its matrix, and how is it given "
    "here?",
)
def projected_as_by_linear(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    return merge_heads(_heads(x, memory, w_q.T, w_k.T, w_v.T, num_heads, mask)) @ w_o.T


@misconception(
    "M263",
    "grouped_query_attention",
    title="groups repeated as a whole instead of head by head",
    source="common: repeat for repeat_interleave",
    effect="Query heads get the keys of another group; weights of a trained model give nonsense.",
    hint="Every query head gets keys, but those of another group. Which query heads belong to "
    "group 0: the first ones, or every second one? `repeat` and `repeat_interleave` differ.",
)
def groups_in_turn(query, key, value):
    members = query.size(1) // key.size(1)
    key, value = (x.repeat(1, members, 1, 1) for x in (key, value))
    return attention(query, key, value)[0]


@misconception(
    "M264",
    "grouped_query_attention",
    title="every query head gets the first group",
    source="a plausible slip: multi-query attention, whatever the number of groups",
    effect="All but the first group of keys and values are never used.",
    hint="All query heads look at the keys of the first group. Which of them belong to the others?",
)
def first_group_for_all(query, key, value):
    return attention(query, key[:, :1], value[:, :1])[0]


@misconception(
    "M265",
    "grouped_query_attention",
    title="the keys are repeated, the values are mixed up",
    source="a plausible slip: two lines that should be alike",
    effect="Each head mixes the values of a group other than the one it looked at.",
    hint="Your weights are right, and the values that they mix are those of other groups.",
)
def values_in_turn(query, key, value):
    members = query.size(1) // key.size(1)
    key, value = key.repeat_interleave(members, dim=1), value.repeat(1, members, 1, 1)
    return attention(query, key, value)[0]


def _unfused(weight, num_heads, layout, transposed=True, by_head=True):
    if layout == "columns":
        weight = weight.T
    if layout == "heads" and by_head:
        weight = weight.unflatten(0, (num_heads, 3, -1)).transpose(0, 1).flatten(0, 2)
    return tuple(part.T if transposed else part for part in weight.chunk(3))


@misconception(
    "M266",
    "unfuse",
    title="the stored matrices are returned untransposed",
    source="common: nn.Linear stores (out, in) and computes x @ W.T",
    effect="The parts are square, so nothing complains, and every number is wrong.",
    hint="What you return would be right for x @ W.T. In which direction does each of the three "
    "programs store its matrix, and how is it used here?",
)
def parts_not_transposed(weight, num_heads, layout):
    return _unfused(weight, num_heads, layout, transposed=False)


@misconception(
    "M267",
    "unfuse",
    title="the layout head by head is read like the one by rows",
    source="common: weights of GPT-NeoX read as if they were PyTorch's",
    effect="With more than one head, queries, keys and values get parts of one another.",
    hint="Where the layout is head by head you cut the rows into three thirds. What comes after "
    "the query rows of head 0: those of head 1, or the key rows of head 0?",
)
def heads_read_as_rows(weight, num_heads, layout):
    return _unfused(weight, num_heads, layout, by_head=False)


@misconception(
    "M268",
    "unfuse",
    title="the columns of the second layout are taken for rows",
    source="common: GPT-2's Conv1D, whose weight is (in, out)",
    effect="Cutting (d, 3d) along its first axis gives parts of the wrong shape, or an error.",
    hint="One program stores (in, out) instead of (out, in). Along which axis do the three parts "
    "lie there?",
)
def columns_cut_as_rows(weight, num_heads, layout):
    if layout == "columns":
        return tuple(part.T for part in weight.chunk(3))
    return _unfused(weight, num_heads, layout)


@misconception(
    "M303",
    "multi_head_attention",
    title="output and weights passed on together",
    source="a model in a student's role: attention returns two things",
    effect="An AttributeError of a tuple in the first call.",
    hint="`attention` returns two things, the output and the weights, and you pass both on.",
)
def pair_passed_on(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    query, key, value = (
        split_heads(x @ w, num_heads) for x, w in ((x, w_q), (memory, w_k), (memory, w_v))
    )
    return merge_heads(attention(query, key, value, mask)) @ w_o  # type: ignore[arg-type]


@misconception(
    "M304",
    "multi_head_attention",
    title="one head of the full width",
    source="a model in a student's role: the heads forgotten",
    effect="One mixture per query, however many heads were asked for.",
    hint="`num_heads` does not influence your result. Where are the heads split?",
)
def one_wide_head(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    return merge_heads(_heads(x, memory, w_q, w_k, w_v, 1, mask)) @ w_o


@misconception(
    "M308",
    "unfuse",
    title="every third row",
    source="a model in a student's role: weight[i::3]",
    effect="Each of the three gets rows of all three.",
    hint="You take every third row for one of the three. Do they come in turn, or one block after "
    "the other?",
)
def every_third_row(weight, num_heads, layout):
    if layout == "columns":
        weight = weight.T
    return tuple(weight[i::3].T for i in range(3))


@misconception(
    "M486",
    "grouped_query_attention",
    title="the queries of a group are averaged",
    source="an answer in a trial of the checks",
    effect="All heads of a group return the same, so most of them are for nothing.",
    hint="The heads of a group return the same in yours. Keys and values are shared: are queries?",
)
def queries_averaged(query, key, value):
    members = query.size(1) // key.size(1)
    together = query.unflatten(1, (-1, members)).mean(dim=2)
    return attention(together, key, value)[0].repeat_interleave(members, dim=1)


@misconception(
    "M546",
    "merge_heads",
    title="sentences joined instead of heads",
    source="an answer in a trial of the checks: torch.cat over a loop through the tensor",
    effect="The batch is gone, and each head is a sentence.",
    hint="A loop over a tensor goes along its first axis, and so does list(). Which axis of yours "
    "is that?",
)
def sentences_joined(heads):
    return torch.cat(list(heads), dim=-1)


@also("M37", "multi_head_attention")
def heads_with_scores_set_to_zero(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    heads = _heads(x, memory, w_q, w_k, w_v, num_heads, mask, attend=zeroed_scores)
    return merge_heads(heads) @ w_o


@misconception(
    "M582",
    "multi_head_attention",
    title="all heads follow the first one's mask",
    source="an answer in a trial of the checks: mask[:, 0] in a loop over heads",
    effect="Nothing as long as all heads share one mask; otherwise they see what they must not.",
    hint="Each of your heads follows the mask of the first head. How long may its second axis be?",
)
def mask_of_the_first_head(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    first = None if mask is None else mask[:, :1]
    return merge_heads(_heads(x, memory, w_q, w_k, w_v, num_heads, first)) @ w_o


@misconception(
    "M583",
    "grouped_query_attention",
    title="divided by √d_v",
    source="an answer in a trial of the checks: the width read off the values",
    effect="Nothing where keys and values are equally wide, as in the paper.",
    hint="You divide the scores by the square root of the width of the values. Which vectors "
    "meet in the dot product?",
)
def scaled_by_values(query, key, value):
    members = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(members, dim=1) for x in (key, value))
    return (query @ key.mT / value.size(-1) ** 0.5).softmax(dim=-1) @ value


@misconception(
    "M584",
    "query_key_value",
    title="three parts by reshape, batch first",
    source="an answer in a trial of the checks: reshape(3, batch, length, d_model)",
    effect="Query, key and value hold numbers of all three, from other words.",
    hint="The numbers are right, but in the wrong tensors. Along which axis are the three side "
    "by side, and in what order does reshape read?",
)
def parts_by_reshape(x, weight):
    query, key, value = (x @ weight.T).reshape(3, *x.shape)
    return query, key, value


@misconception(
    "M585",
    "merge_heads",
    title="merged with the length in front",
    source="an answer in a trial of the checks: fairseq's order (length, batch · heads, d_k)",
    effect="With more than one sentence, words of different sentences change places.",
    hint="After your transpose the first axis is the length. What does view (or reshape) then "
    "take to be a sentence?",
)
def merged_length_first(heads):
    batch, num_heads, length, d_k = heads.shape
    joined = heads.flatten(0, 1).transpose(0, 1)
    return joined.reshape(batch, length, num_heads * d_k)


@misconception(
    "M615",
    "unfuse",
    title="columns taken apart by reshape",
    source="an answer in a trial of the checks: reshape(3, d, d) of a matrix of 3·d columns",
    effect="The matrix of GPT-2 is cut across its rows, so each part holds numbers of all three.",
    hint="In the layout by columns the three stand side by side in each row. What does reshape "
    "read first: a row, or a third of it?",
)
def columns_by_reshape(weight, num_heads, layout):
    if layout == "columns":
        return tuple(weight.reshape(3, len(weight), -1))
    return _unfused(weight, num_heads, layout)


@misconception(
    "M616",
    "unfuse",
    title="every third row within a head",
    source="an answer in a trial of the checks: reshape(heads, d_k, 3, d) for (heads, 3, d_k, d)",
    effect="Query, key and value of a head are mixed, though their shapes are right.",
    hint="In this layout the rows of a head are first its query, then its key, then its value. "
    "Do they alternate in yours?",
)
def taking_turns_within_a_head(weight, num_heads, layout):
    if layout == "heads":
        rows = weight.unflatten(0, (num_heads, -1, 3)).permute(2, 0, 1, 3)
        return tuple(part.flatten(0, 1).T for part in rows)
    return _unfused(weight, num_heads, layout)


@misconception(
    "M785",
    "multi_head_attention",
    title="values made from the keys",
    source="an answer in a trial of the checks: memory = k_proj(memory), and then v_proj(memory)",
    effect="W^V multiplies what W^K has made of the memory: two matrices in a row.",
    hint="From what are your values made: from the memory as it came in, or from what has become "
    "of it?",
)
def values_from_keys(x, memory, w_q, w_k, w_v, w_o, num_heads, mask):
    return merge_heads(_heads(x, memory, w_q, w_k, w_k @ w_v, num_heads, mask)) @ w_o
