"""Mistakes in attention as an LSTM asks for it. What is right stands beside the exercises."""

import torch

from transformer_lib.course.misconceptions.bank import also, misconception


def _luong(query, memory, weight):
    return query @ weight @ memory.transpose(1, 2)


def _bahdanau(query, memory, w_query, w_memory, v):
    return torch.tanh((query @ w_query)[:, :, None] + (memory @ w_memory)[:, None]) @ v


def _look(scores, memory, mask):
    weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
    return weights @ memory, weights


@also("M38", "luong_attention")
def luong_without_mask(query, memory, weight, mask):
    return _look(_luong(query, memory, weight), memory, mask | True)


@also("M38", "bahdanau_attention")
def bahdanau_without_mask(query, memory, w_query, w_memory, v, mask):
    return _look(_bahdanau(query, memory, w_query, w_memory, v), memory, mask | True)


@also("M14", "luong_attention")
def luong_mask_inverted(query, memory, weight, mask):
    return _look(_luong(query, memory, weight), memory, ~mask)


@also("M14", "bahdanau_attention")
def bahdanau_mask_inverted(query, memory, w_query, w_memory, v, mask):
    return _look(_bahdanau(query, memory, w_query, w_memory, v), memory, ~mask)


@also("M36", "luong_attention")
def luong_masked_after_softmax(query, memory, weight, mask):
    weights = _luong(query, memory, weight).softmax(dim=-1) * mask[:, None]
    return weights @ memory, weights


@also("M36", "bahdanau_attention")
def bahdanau_masked_after_softmax(query, memory, w_query, w_memory, v, mask):
    weights = _bahdanau(query, memory, w_query, w_memory, v).softmax(dim=-1) * mask[:, None]
    return weights @ memory, weights


def _renormalized(scores, memory, mask):
    weights = scores.softmax(dim=-1) * mask[:, None]
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ memory, weights


@also("M248", "luong_attention")
def luong_renormalized(query, memory, weight, mask):
    return _renormalized(_luong(query, memory, weight), memory, mask)


@also("M248", "bahdanau_attention")
def bahdanau_renormalized(query, memory, w_query, w_memory, v, mask):
    return _renormalized(_bahdanau(query, memory, w_query, w_memory, v), memory, mask)


@also("M37", "luong_attention")
def luong_masked_with_zero(query, memory, weight, mask):
    weights = (_luong(query, memory, weight) * mask[:, None]).softmax(dim=-1)
    return weights @ memory, weights


@misconception(
    "M146",
    "luong_attention",
    title="W on the other side",
    source="a plausible slip: sᵀ·W·h for hᵀ·W·s",
    effect="The same shapes and another score; a trained W no longer fits.",
    hint="With W = 1 your scores would be right. Which of the two vectors does the formula "
    "multiply with W first?",
)
def luong_transposed(query, memory, weight, mask):
    return _look(_luong(query, memory, weight.T), memory, mask)


@misconception(
    "M147",
    "luong_attention",
    title="W is left out",
    source="Luong's other score, “dot”, where it is meant",
    effect="Queries and memory must already live in one space; W is never trained.",
    hint="Change W, and your result stays the same. What stands between h and s in the formula?",
)
def luong_dot(query, memory, weight, mask):
    return _look(query @ memory.transpose(1, 2), memory, mask)


@misconception(
    "M148",
    "luong_attention",
    title="divided by √d_model",
    source="a habit from the Transformer; many libraries do so, Luong et al. did not",
    effect="All weights are flatter than those of the paper.",
    hint="Your weights are too even, and the more so the wider the model. What does this paper "
    "divide the scores by?",
)
def luong_scaled(query, memory, weight, mask):
    return _look(_luong(query, memory, weight) / query.size(-1) ** 0.5, memory, mask)


@also("M42", "luong_attention")
def luong_scores_returned(query, memory, weight, mask):
    scores = _luong(query, memory, weight).masked_fill(~mask[:, None], -torch.inf)
    return scores.softmax(dim=-1) @ memory, scores


@also("M42", "bahdanau_attention")
def bahdanau_scores_returned(query, memory, w_query, w_memory, v, mask):
    scores = _bahdanau(query, memory, w_query, w_memory, v)
    scores = scores.masked_fill(~mask[:, None], -torch.inf)
    return scores.softmax(dim=-1) @ memory, scores


@also("M17", "bahdanau_attention")
def bahdanau_softmax_over_queries(query, memory, w_query, w_memory, v, mask):
    scores = _bahdanau(query, memory, w_query, w_memory, v)
    weights = scores.softmax(dim=1).masked_fill(~mask[:, None], 0.0)
    return weights @ memory, weights


@misconception(
    "M149",
    "bahdanau_attention",
    title="no tanh",
    source="a plausible slip",
    effect="The score falls apart into one part for the query and one for the memory, and softmax "
    "cancels the first: every query looks at the same places.",
    hint="All your queries have the same weights. What, between the sum and v, keeps the two parts "
    "from coming apart again?",
)
def bahdanau_linear(query, memory, w_query, w_memory, v, mask):
    scores = (query @ w_query @ v)[:, :, None] + (memory @ w_memory @ v)[:, None]
    return _look(scores, memory, mask)


@misconception(
    "M150",
    "bahdanau_attention",
    title="a product of the two projections for their sum",
    source="a plausible slip: multiplicative and additive attention confused",
    effect="A score of another family under the same name.",
    hint="Are the two projections added or multiplied in Bahdanau's formula?",
)
def bahdanau_multiplied(query, memory, w_query, w_memory, v, mask):
    hidden = torch.tanh((query @ w_query)[:, :, None] * (memory @ w_memory)[:, None])
    return _look(hidden @ v, memory, mask)


@misconception(
    "M151",
    "bahdanau_attention",
    title="tanh on each projection alone",
    source="a plausible slip",
    effect="As without any tanh: softmax cancels the query's part.",
    hint="All your queries have the same weights. Is tanh taken of the two projections or of their "
    "sum?",
)
def bahdanau_tanh_apart(query, memory, w_query, w_memory, v, mask):
    scores = (torch.tanh(query @ w_query) @ v)[:, :, None]
    return _look(scores + (torch.tanh(memory @ w_memory) @ v)[:, None], memory, mask)


@misconception(
    "M152",
    "bahdanau_attention",
    title="the two matrices change places",
    source="a plausible slip: both have the same shape",
    effect="Nothing fails; a trained model gives nonsense.",
    hint="Swap the two matrices in the call, and your result would be right. Which one belongs to "
    "the query?",
)
def bahdanau_matrices_swapped(query, memory, w_query, w_memory, v, mask):
    return _look(_bahdanau(query, memory, w_memory, w_query, v), memory, mask)


@misconception(
    "M153",
    "attentional_state",
    title="state and context change places",
    source="common: papers and libraries put either first",
    effect="A trained W no longer fits.",
    hint="Your two halves are in the other order. Which one stands first in Luong's [c; h]?",
)
def state_first(state, context, weight):
    return torch.tanh(torch.cat([state, context], dim=-1) @ weight.T)


@misconception(
    "M154",
    "attentional_state",
    title="added instead of concatenated",
    source="a plausible slip",
    effect="W has twice as many columns as are used.",
    hint="W has columns for both vectors. Do you give it both?",
)
def state_plus_context(state, context, weight):
    return torch.tanh((context + state) @ weight[:, : state.size(-1)].T)


@misconception(
    "M155",
    "attentional_state",
    title="no tanh at the end",
    source="a plausible slip",
    effect="The states that are fed to the output projection have no bound.",
    hint="Some of your numbers are above 1. What keeps them between −1 and 1 in the formula?",
)
def state_unbounded(state, context, weight):
    return torch.cat([context, state], dim=-1) @ weight.T


@misconception(
    "M250",
    "bahdanau_attention",
    title="v inside the tanh",
    source="a plausible slip",
    effect="All scores lie between −1 and 1, so no key can have much more weight than another.",
    hint="Your scores lie between -1 and 1. What comes first in vᵀ·tanh(…), and what is a score?",
)
def v_inside_the_tanh(query, memory, w_query, w_memory, v, mask):
    scores = torch.tanh((query @ w_query @ v)[:, :, None] + (memory @ w_memory @ v)[:, None])
    return _look(scores, memory, mask)
