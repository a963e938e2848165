"""Mistakes in attention as an LSTM asks for it. The right answers are beside the exercises."""

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
    "multiply with W, and does your product transpose W, as F.linear does?",
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


def _gates(x, h, w, u, b):
    return (x @ w.T + h @ u.T + b).chunk(4, dim=-1)


@misconception(
    "M269",
    "lstm_step",
    title="the gates in the order of the formulas, not of the matrix",
    source="common: i, f, o, g, as the equations are printed, for PyTorch's i, f, g, o",
    effect="The gate of the output and the candidate change places; weights from elsewhere are "
    "misread, and one's own are learned in another order.",
    hint="Two of the four blocks change places: in which order does PyTorch keep the gates?",
)
def gates_in_another_order(x, h, c, w, u, b):
    i, f, o, g = _gates(x, h, w, u, b)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


@misconception(
    "M270",
    "lstm_step",
    title="a sigmoid on the candidate, too",
    source="common: one activation for all four blocks",
    effect="What is let in is never negative, so that the cell can only grow.",
    hint="Three of the four blocks are gates, between 0 and 1. The fourth is what is let in: which "
    "function keeps it between −1 and 1?",
)
def sigmoid_everywhere(x, h, c, w, u, b):
    i, f, g, o = (part.sigmoid() for part in _gates(x, h, w, u, b))
    c = f * c + i * g
    return o * c.tanh(), c


@misconception(
    "M271",
    "lstm_step",
    title="the output without tanh of the cell",
    source="a plausible slip",
    effect="The state grows with the cell, without a bound.",
    hint="Your c is right and your h is not. What happens to the cell before the output gate?",
)
def cell_shown_as_it_is(x, h, c, w, u, b):
    i, f, g, o = _gates(x, h, w, u, b)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c, c


@misconception(
    "M272",
    "lstm_step",
    title="the output from the old cell",
    source="a plausible slip",
    effect="What is read now shows one step late.",
    hint="Your h is computed from the cell that came in. Which cell does the output gate show?",
)
def old_cell_shown(x, h, c, w, u, b):
    i, f, g, o = _gates(x, h, w, u, b)
    return o.sigmoid() * c.tanh(), f.sigmoid() * c + i.sigmoid() * g.tanh()


def _read(src, embed, step, width):
    h = c = torch.zeros(len(src), width)
    for x in embed(src).unbind(dim=1):
        h, c = step(x, h, c)
    return h, c


def _write(tgt_input, embed, step, w_out, h, c, late=False):
    states = [h]
    for y in embed(tgt_input).unbind(dim=1):
        h, c = step(y, h, c)
        states.append(h)
    return torch.stack(states[:-1] if late else states[1:], dim=1) @ w_out


@misconception(
    "M273",
    "seq2seq",
    title="the decoder begins with zeros",
    source="common: two networks side by side, of which the second never hears of the first",
    effect="A language model of the target: it translates every source alike.",
    hint="Your logits do not depend on the source. What does the decoder get from the encoder?",
)
def decoder_from_zeros(src, tgt_input, embed, encoder_step, decoder_step, w_out):
    zeros = torch.zeros(len(src), w_out.size(0))
    return _write(tgt_input, embed, decoder_step, w_out, zeros, zeros)


@misconception(
    "M274",
    "seq2seq",
    title="the decoder gets the state, but not the cell",
    source="common: an LSTM treated like a plain RNN",
    effect="What the encoder kept for later in its cell is lost at the border.",
    hint="An LSTM has two vectors, h and c. Which of them reaches your decoder?",
)
def cell_left_behind(src, tgt_input, embed, encoder_step, decoder_step, w_out):
    h, c = _read(src, embed, encoder_step, w_out.size(0))
    return _write(tgt_input, embed, decoder_step, w_out, h, torch.zeros_like(c))


@misconception(
    "M275",
    "seq2seq",
    title="one step for both",
    source="a plausible slip",
    effect="Reading and writing share their weights, and one of the two steps is never trained.",
    hint="One of the two steps is never called. Who writes the target?",
)
def one_step_for_both(src, tgt_input, embed, encoder_step, decoder_step, w_out):
    h, c = _read(src, embed, encoder_step, w_out.size(0))
    return _write(tgt_input, embed, encoder_step, w_out, h, c)


@misconception(
    "M276",
    "seq2seq",
    title="the state of the encoder at every step of the decoder",
    source="a plausible slip: h and c not carried on in the second loop",
    effect="Each word knows the source and the word before it, and nothing of the rest.",
    hint="Each of your logits depends on one target token only. What does the decoder's second "
    "step begin with?",
)
def state_not_carried_on(src, tgt_input, embed, encoder_step, decoder_step, w_out):
    h, c = _read(src, embed, encoder_step, w_out.size(0))
    states = [decoder_step(y, h, c)[0] for y in embed(tgt_input).unbind(dim=1)]
    return torch.stack(states, dim=1) @ w_out


@misconception(
    "M300",
    "lstm_step",
    title="the rows of the four blocks taken in turn",
    source="a model in a student's role: view(batch, d_h, 4) for chunk(4)",
    effect="Each gate gets a mixture of all four; weights from elsewhere are misread.",
    hint="You take every fourth row for a gate. The four blocks are one below the other: which "
    "rows belong to the first?",
)
def rows_in_turn(x, h, c, w, u, b):
    i, f, g, o = (x @ w.T + h @ u.T + b).unflatten(-1, (-1, 4)).unbind(dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


@misconception(
    "M301",
    "seq2seq",
    title="the decoder reads its own output",
    source="a model in a student's role: decoding for training",
    effect="While it is wrong it learns from wrong beginnings, and it cannot be computed at once.",
    hint="From the second token on your decoder reads what it has just said. What is `tgt_input` "
    "for?",
)
def own_output_read(src, tgt_input, embed, encoder_step, decoder_step, w_out):
    h, c = _read(src, embed, encoder_step, w_out.size(0))
    token, logits = tgt_input[:, :1], []
    for _ in range(tgt_input.size(1)):
        h, c = decoder_step(embed(token)[:, 0], h, c)
        logits.append(h @ w_out)
        token = logits[-1].argmax(dim=-1, keepdim=True)
    return torch.stack(logits, dim=1)


@misconception(
    "M506",
    "lstm_step",
    title="a sigmoid that overflows",
    source="answers in a trial of the checks: eˣ/(1 + eˣ), and tanh from two exponentials",
    effect="NaN once a number is above 88, where float32 has no exponential any more.",
    hint="Large inputs make NaN of yours: e⁸⁹ is more than a float32 holds, and ∞/∞ is no number. "
    "Which functions of torch know how to avoid that?",
)
def sigmoid_overflows(x, h, c, w, u, b):
    def sigmoid(y):
        return y.exp() / (1 + y.exp())

    i, f, g, o = (x @ w.T + h @ u.T + b).chunk(4, dim=1)
    c = sigmoid(f) * c + sigmoid(i) * g.tanh()
    return sigmoid(o) * c.tanh(), c


@misconception(
    "M523",
    "seq2seq",
    title="steps and sentences mixed up",
    source="an answer in a trial of the checks: torch.cat of the steps, then view(batch, length)",
    effect="Logits end up in the rows of other sentences; a batch of one looks right.",
    hint="Your logits are the right ones, in other places. One step gives a row of each sentence: "
    "in what order do you join the rows, and in what order are they read afterwards?",
)
def steps_and_sentences_mixed_up(src, tgt_input, embed, encoder_step, decoder_step, w_out):
    h, c = _read(src, embed, encoder_step, w_out.size(0))
    logits = _write(tgt_input, embed, decoder_step, w_out, h, c)
    return logits.transpose(0, 1).reshape(logits.shape)


@misconception(
    "M524",
    "seq2seq",
    title="the logits of the state before the step",
    source="an answer in a trial of the checks: kept before the word is read",
    effect="The word that was last said has no influence on the next one.",
    hint="Your first logits are made from the encoder's state alone. Which word does the "
    "decoder read before it says the first?",
)
def state_before_the_step(src, tgt_input, embed, encoder_step, decoder_step, w_out):
    h, c = _read(src, embed, encoder_step, w_out.size(0))
    return _write(tgt_input, embed, decoder_step, w_out, h, c, late=True)


@misconception(
    "M587",
    "bahdanau_attention",
    title="the memory is multiplied by the mask",
    source="an answer in a trial of the checks, after the Masking layer of Keras, which sets "
    "hidden steps to zero",
    effect="Hidden positions still get a share of the weights; the context becomes too small.",
    hint="Where the mask is False, your vectors are zero, but their scores are not −∞. How much "
    "weight is left for them?",
)
def bahdanau_memory_masked(query, memory, w_query, w_memory, v, mask):
    memory = memory * mask[:, :, None]
    return _look(_bahdanau(query, memory, w_query, w_memory, v), memory, mask | True)


@also("M587", "luong_attention")
def luong_memory_masked(query, memory, weight, mask):
    memory = memory * mask[:, :, None]
    return _look(_luong(query, memory, weight), memory, mask | True)


@misconception(
    "M588",
    "attentional_state",
    title="W cut in two across its rows",
    source="an answer in a trial of the checks: reshape(2, d, d) for two halves of the columns",
    effect="The context meets the upper rows of W and the state the lower ones, each with its "
    "left and right half taken for two rows.",
    hint="Context and state meet the left and the right columns of W. Which numbers does your "
    "reshape put into each part?",
)
def weight_cut_by_reshape(state, context, weight):
    of_context, of_state = weight.reshape(2, len(weight), -1)
    return torch.tanh(context @ of_context.T + state @ of_state.T)


@misconception(
    "M589",
    "lstm_step",
    title="a piecewise linear sigmoid",
    source="hard_sigmoid, the default of recurrent_activation in the LSTM of Keras before "
    "version 2.3",
    effect="Gates open and close completely, and there they have no gradient.",
    hint="Your gates reach 0 and 1. Does the sigmoid?",
)
def hard_sigmoid(x, h, c, w, u, b):
    i, f, g, o = (x @ w.T + h @ u.T + b).chunk(4, dim=1)
    i, f, o = ((0.2 * gate + 0.5).clamp(0.0, 1.0) for gate in (i, f, o))
    c = f * c + i * g.tanh()
    return o * c.tanh(), c


@misconception(
    "M842",
    "lstm_step",
    title="the cell forgets what it lets in",
    source="an answer in a trial of the checks: 1 − i for f, as in a GRU or a coupled LSTM",
    effect="The gate f has no influence, and the cell cannot keep and add at once.",
    hint="One of the four parts of your product is never used. What decides how much of c stays?",
)
def coupled_gates(x, h, c, w, u, b):
    i, _, g, o = (x @ w.T + h @ u.T + b).chunk(4, dim=1)
    i = i.sigmoid()
    c = (1 - i) * c + i * g.tanh()
    return o.sigmoid() * c.tanh(), c


@misconception(
    "M590",
    "seq2seq",
    title="the decoder keeps its c, but not its h",
    source="an answer in a trial of the checks: the new h under another name, the new c kept",
    effect="Every step of the decoder begins with the h that the encoder has left.",
    hint="The first step of your decoder is right. Which h does the second one begin with?",
)
def cell_alone_carried_on(src, tgt_input, embed, encoder_step, decoder_step, w_out):
    h, c = _read(src, embed, encoder_step, w_out.size(0))
    states = []
    for y in embed(tgt_input).unbind(dim=1):
        state, c = decoder_step(y, h, c)
        states.append(state)
    return torch.stack(states, dim=1) @ w_out


@misconception(
    "M635",
    "bahdanau_attention",
    title="the context is made of projected vectors",
    source="an answer in a trial of the checks: memory = memory @ w_memory, and memory is gone",
    effect="The context is as wide as the hidden layer, and holds what was meant for the scores.",
    hint="Your weights are right. Which vectors do they weight: those of the encoder, or what "
    "w_memory has made of them?",
)
def context_of_projections(query, memory, w_query, w_memory, v, mask):
    scores = _bahdanau(query, memory, w_query, w_memory, v)
    return _look(scores, memory @ w_memory, mask)
