"""Mistakes in rebuilding models that came after the paper: SwiGLU, a layer of Llama, GPT-2."""

import math
from itertools import combinations

import torch
from torch.nn import functional as F

from transformer_lib.course.checks.topics.norms import rms_norm
from transformer_lib.course.checks.topics.positions import rotary
from transformer_lib.course.checks.topics.wild import EPS, swiglu
from transformer_lib.course.misconceptions.bank import also, misconception


@misconception(
    "M723",
    "swiglu",
    title="the other branch passes SiLU",
    source="a plausible slip: gate and up exchanged",
    effect="Runs, and with weights of another program everything is wrong.",
    hint="Both branches have the same shape. Which of them is the gate, that passes SiLU?",
)
def other_branch(x, gate, up, down):
    return (x @ gate.T * F.silu(x @ up.T)) @ down.T


@misconception(
    "M724",
    "swiglu",
    title="a sigmoid for SiLU",
    source="another variant: GLU (Dauphin et al. 2016)",
    effect="The gate stays between 0 and 1.",
    hint="Your gate lies between 0 and 1. What is the sigmoid multiplied by in SiLU?",
)
def sigmoid_gate(x, gate, up, down):
    return ((x @ gate.T).sigmoid() * (x @ up.T)) @ down.T


@misconception(
    "M725",
    "swiglu",
    title="the branches are added",
    source="a plausible slip: + for ⊙",
    effect="No gate: a network with two matrices side by side.",
    hint="Where the gate is 0, nothing should come through. Are your branches multiplied?",
)
def branches_added(x, gate, up, down):
    return (F.silu(x @ gate.T) + x @ up.T) @ down.T


@misconception(
    "M726",
    "swiglu",
    title="GELU for SiLU",
    source="another variant: GEGLU (Shazeer 2020), as in T5 v1.1 and Gemma",
    effect="Near the right numbers, and wrong in every layer.",
    hint="Your numbers are near the right ones. Which function is the Swi in SwiGLU?",
)
def gelu_gate(x, gate, up, down):
    return (F.gelu(x @ gate.T) * (x @ up.T)) @ down.T


@misconception(
    "M727",
    "swiglu",
    title="ReLU for SiLU",
    source="another variant: ReGLU (Shazeer 2020)",
    effect="Half of the gates are shut.",
    hint="Half of your gates are exactly 0. Which function is the Swi in SwiGLU?",
)
def relu_gate(x, gate, up, down):
    return ((x @ gate.T).relu() * (x @ up.T)) @ down.T


@misconception(
    "M728",
    "swiglu",
    title="SiLU after the product",
    source="a plausible slip: a bracket",
    effect="Both branches are inside.",
    hint="In yours the product of both branches passes SiLU. Which of the two should?",
)
def silu_of_the_product(x, gate, up, down):
    return F.silu(x @ gate.T * (x @ up.T)) @ down.T


@misconception(
    "M729",
    "swiglu",
    title="SiLU once more, at the end",
    source="a plausible slip",
    effect="The sublayer adds nothing that is much below zero.",
    hint="Your results are hardly ever negative. What comes after the last matrix?",
)
def silu_at_the_end(x, gate, up, down):
    return F.silu((F.silu(x @ gate.T) * (x @ up.T)) @ down.T)


@misconception(
    "M754",
    "swiglu",
    title="the sigmoid with an exponential of its own",
    source="an answer in a trial of the checks: z / (1 + exp(−z))",
    effect="Below about −88 the exponential is infinite in single precision. The result is right "
    "and its gradient NaN.",
    hint="Your results are right, and where a gate is shut fast its gradient is NaN. Which number "
    "becomes infinite there?",
)
def exponential_of_its_own(x, gate, up, down):
    z = x @ gate.T
    return (z / (1 + (-z).exp()) * (x @ up.T)) @ down.T


def _mixed(
    x, router, gate, up, down, k,
    weighed=lambda scores, chosen: chosen.softmax(dim=-1), largest=True, expert=swiglu,
    on_input=False, routed=lambda x: x, in_order=False, how_many=lambda k, experts: k,
):  # fmt: skip
    """As it should be, but for what is switched."""
    scores = routed(x) @ router.T
    best, chosen = scores.topk(how_many(k, len(router)), dim=-1, largest=largest)
    weights = weighed(scores, best)
    if in_order:
        chosen = chosen.sort(dim=-1).values
    out = torch.zeros_like(x)
    for number in range(len(router)):
        weight = (weights * (chosen == number)).sum(dim=-1, keepdim=True)
        if on_input:
            out = out + expert(weight * x, gate[number], up[number], down[number])
        else:
            out = out + weight * expert(x, gate[number], up[number], down[number])
    return out


@misconception(
    "M813",
    "mixture_of_experts",
    title="a softmax over all experts, of which k are kept",
    source="another variant: Switch Transformer (Fedus et al. 2021), GShard without its division",
    effect="The weights of a token add up to less than 1: the sublayer adds less the less sure its "
    "router is.",
    hint="With all experts you are right. With fewer, do the weights of the chosen ones add up "
    "to 1?",
)
def softmax_over_all(x, router, gate, up, down, k):
    def weighed(scores, best):
        return scores.softmax(dim=-1).topk(k, dim=-1).values

    return _mixed(x, router, gate, up, down, k, weighed)


@misconception(
    "M814",
    "mixture_of_experts",
    title="the chosen experts count alike",
    source="a plausible slip: a mean over the k",
    effect="The router learns nothing: no gradient reaches it.",
    hint="Your router decides who is asked, and not how much each one counts.",
)
def count_alike(x, router, gate, up, down, k):
    return _mixed(x, router, gate, up, down, k, lambda _, best: torch.full_like(best, 1 / k))


@misconception(
    "M815",
    "mixture_of_experts",
    title="a sigmoid of each score",
    source="another variant: DeepSeek-V3 (2024), which then divides by the sum",
    effect="The weights of a token add up to anything between 0 and k.",
    hint="Your weights do not add up to 1. Which function makes shares of k scores?",
)
def sigmoid_weights(x, router, gate, up, down, k):
    return _mixed(x, router, gate, up, down, k, lambda _, best: best.sigmoid())


@misconception(
    "M816",
    "mixture_of_experts",
    title="every expert is asked",
    source="a plausible slip: the softmax over all, and no top-k (Jacobs et al. 1991)",
    effect="Right where k is all; the computing that was to be saved is done.",
    hint="With all experts you are right. What becomes of the experts that are not among the k "
    "best?",
)
def all_are_asked(x, router, gate, up, down, k):
    return _mixed(x, router, gate, up, down, k, how_many=lambda k, experts: experts)


@misconception(
    "M817",
    "mixture_of_experts",
    title="only the best expert",
    source="a plausible slip: argmax for topk(k)",
    effect="Right where k is 1.",
    hint="With k = 1 you are right. How many experts answer for each token?",
)
def only_the_best(x, router, gate, up, down, k):
    return _mixed(x, router, gate, up, down, k, how_many=lambda k, experts: 1)


@misconception(
    "M818",
    "mixture_of_experts",
    title="one choice for a whole sequence",
    source="a plausible slip: the router reads the mean over the positions",
    effect="A token's result depends on all others, the future and the padding included.",
    hint="With one token you are right. Who chooses the experts: each token, or all together?",
)
def one_choice_for_all(x, router, gate, up, down, k):
    def routed(x):
        return x.mean(dim=1, keepdim=True).expand_as(x)

    return _mixed(x, router, gate, up, down, k, routed=routed)


@misconception(
    "M819",
    "mixture_of_experts",
    title="the worst experts are chosen",
    source="a plausible slip: largest=False, or the first k of a rising sort",
    effect="The router learns to give its best experts low scores.",
    hint="With all experts you are right. Which end of the sorted scores do you take?",
)
def worst_are_chosen(x, router, gate, up, down, k):
    return _mixed(x, router, gate, up, down, k, largest=False)


@misconception(
    "M820",
    "mixture_of_experts",
    title="weights in another order than the experts",
    source="a plausible slip: the chosen numbers are sorted, their weights are not",
    effect="The larger weight goes to the expert with the lower number.",
    hint="With k = 1 you are right. Does each weight still belong to its expert?",
)
def other_order(x, router, gate, up, down, k):
    return _mixed(x, router, gate, up, down, k, in_order=True)


@misconception(
    "M821",
    "mixture_of_experts",
    title="the input is weighed, not the output",
    source="a plausible slip: expert(weight · x)",
    effect="An expert is no linear function: with half of the input it says something else than "
    "half.",
    hint="With k = 1 you are right. What is multiplied by the weight: what goes into an expert, or "
    "what comes out?",
)
def input_weighed(x, router, gate, up, down, k):
    return _mixed(x, router, gate, up, down, k, on_input=True)


@misconception(
    "M822",
    "mixture_of_experts",
    title="the weights are a softmax over the tokens",
    source="a plausible slip: the wrong axis",
    effect="Tokens compete with each other; in training, they look into the future.",
    hint="Over which axis do your weights add up to 1?",
)
def softmax_over_tokens(x, router, gate, up, down, k):
    return _mixed(x, router, gate, up, down, k, lambda _, best: best.softmax(dim=1))


@misconception(
    "M823",
    "mixture_of_experts",
    title="each answer replaces the one before",
    source="an answer in a trial of the checks: = for +=",
    effect="Of the k experts of a token only the last one is heard.",
    hint="With k = 1 you are right. With more, what becomes of a token's first answer when the "
    "second one comes?",
)
def only_the_last_answer(x, router, gate, up, down, k):
    scores, chosen = (x @ router.T).topk(k, dim=-1)
    out = torch.zeros_like(x)
    for number in range(len(router)):
        asked = chosen == number
        weight = (scores.softmax(dim=-1) * asked).sum(dim=-1, keepdim=True)
        answer = weight * swiglu(x, gate[number], up[number], down[number])
        out = torch.where(asked.any(dim=-1, keepdim=True), answer, out)
    return out


@misconception(
    "M824",
    "mixture_of_experts",
    title="always two experts",
    source="an answer in a trial of the checks: topk(2), as in Mixtral",
    effect="Right where k is 2.",
    hint="With k = 2 you are right. Where does your code look at k?",
)
def always_two(x, router, gate, up, down, k):
    return _mixed(x, router, gate, up, down, k, how_many=lambda k, experts: min(2, experts))


@also("M723", "mixture_of_experts")
def other_branch_of_each(x, router, gate, up, down, k):
    return _mixed(x, router, gate, up, down, k, expert=other_branch)


def _turned(query, key, value, position):
    return rotary(query, position), rotary(key, position), value


def _by_neighbors(part, heads):
    return part.repeat_interleave(heads // part.size(1), dim=1)


def _block(
    x, weights, position, num_heads,
    turned=_turned, shared=_by_neighbors, gated=swiglu, diagonal=0, norm=rms_norm, roots=1,
    from_the_norm=False, parallel=False, eps=EPS, blocked=-math.inf, masked_after=False,
):  # fmt: skip
    """As it should be, but for what is switched."""
    length, d_k = x.size(1), x.size(-1) // num_heads
    came_in, y = x, norm(x, weights["attention_norm"], eps)
    parts = [
        (y @ weights[name].T).unflatten(-1, (-1, d_k)).transpose(1, 2)
        for name in ("wq", "wk", "wv")
    ]
    query, key, value = turned(*parts, position)
    key, value = (shared(part, num_heads) for part in (key, value))
    scores = query @ key.mT / math.sqrt(d_k) ** roots
    seen = torch.ones(length, length, dtype=torch.bool).tril(diagonal)
    if masked_after:
        shares = scores.softmax(dim=-1) * seen
    else:
        shares = scores.masked_fill(~seen, blocked).softmax(dim=-1)
    attended = shares @ value
    x = (y if from_the_norm else x) + attended.transpose(1, 2).flatten(2) @ weights["wo"].T
    y = norm(came_in if parallel else x, weights["ffn_norm"], eps)
    return (y if from_the_norm else x) + gated(y, weights["w1"], weights["w3"], weights["w2"])


def _all_turned(query, key, value, position):
    return tuple(rotary(part, position) for part in (query, key, value))


def _one_after_another(part, heads):
    return part.repeat(1, heads // part.size(1), 1, 1)


FAULTS = {
    "turned": _all_turned,
    "shared": _one_after_another,
    "gated": other_branch,
    "diagonal": 1,
}
"""Of the program that is to be mended."""


def _left(x, weights, position, num_heads, *mended):
    faults = {name: fault for name, fault in FAULTS.items() if name not in mended}
    return _block(x, weights, position, num_heads, **faults)


@misconception(
    "M730",
    "mended_block",
    title="nothing is mended",
    source="the program as it was found",
    effect="All four faults are in it.",
    hint="All four faults are still in it. Compare part by part: which parts have you written "
    "yourself, in other chapters?",
)
def nothing_mended(x, weights, position, num_heads):
    return _left(x, weights, position, num_heads)


@misconception(
    "M731",
    "mended_block",
    title="values are rotated, too",
    source="a plausible slip: one loop for query, key and value",
    effect="What is read at a place depends on its position in the text, and not on distances.",
    hint="Your result changes if all positions move by the same number. Which parts of attention "
    "should know about positions?",
)
def values_rotated(x, weights, position, num_heads):
    return _left(x, weights, position, num_heads, "shared", "gated", "diagonal")


@misconception(
    "M732",
    "mended_block",
    title="repeat for repeat_interleave",
    source="a plausible slip in grouped queries: head i gets group i modulo the groups",
    effect="With several groups most heads read keys and values of another group.",
    hint="With one group, and with as many groups as heads, you are right. Which heads share the "
    "first group?",
)
def repeated_in_turn(x, weights, position, num_heads):
    return _left(x, weights, position, num_heads, "turned", "gated", "diagonal")


@misconception(
    "M733",
    "mended_block",
    title="SiLU in the wrong branch",
    source="a plausible slip: w1 and w3 exchanged",
    effect="Runs, and with published weights everything is wrong.",
    hint="What is left is in the feed-forward network. Which of w1 and w3 is the gate?",
)
def gate_exchanged(x, weights, position, num_heads):
    return _left(x, weights, position, num_heads, "turned", "shared", "diagonal")


@misconception(
    "M734",
    "mended_block",
    title="one token of the future is seen",
    source="a plausible slip: tril(1)",
    effect="In training the loss falls as never before: the next token is in the input.",
    hint="Change the last token: does an earlier output change? What does the 1 in tril do?",
)
def one_token_ahead(x, weights, position, num_heads):
    return _left(x, weights, position, num_heads, "turned", "shared", "gated")


_IN_WORDS = {
    "turned": "values rotated",
    "shared": "groups in turn",
    "gated": "SiLU in the other branch",
    "diagonal": "one token of the future",
}


def _some_are_left(number, faults):
    @misconception(
        f"M{number}",
        "mended_block",
        title=f"not all is mended: {', '.join(_IN_WORDS[fault] for fault in faults)}",
        source="the program, half mended",
        effect=f"{len(faults)} of its four faults are still in it.",
        hint=f"{4 - len(faults)} of the four faults {'is' if len(faults) == 3 else 'are'} mended, "
        f"{len(faults)} are still there: one of them is in "
        f"{'the feed-forward network' if 'gated' in faults else 'attention'}. Mend one at a time "
        "and check again.",
    )
    def half_mended(x, weights, position, num_heads):
        return _left(x, weights, position, num_heads, *(FAULTS.keys() - faults))


for _number, _faults in enumerate((*combinations(FAULTS, 2), *combinations(FAULTS, 3)), start=801):
    _some_are_left(_number, _faults)


@misconception(
    "M811",
    "mended_block",
    title="places in x for positions",
    source="an answer in a trial of the checks: rotary by arange(length)",
    effect="Right for a text without gaps, wherever it begins, because rotary positions are "
    "relative.",
    hint="You never use position. Rotary positions are relative, so a text without gaps does not "
    "show it: try the positions 0, 1 and 10.",
)
def places_for_positions(x, weights, position, num_heads):
    return _block(x, weights, torch.arange(x.size(1)), num_heads)


@misconception(
    "M812",
    "mended_block",
    title="a smaller ε in the norms",
    source="an answer in a trial of the checks: 10⁻⁶, as in other models of this family",
    effect="Where the numbers of a token are near zero, its norm comes out too large.",
    hint="Where the numbers in x are near zero, you are off. What do your norms add to the mean "
    "square?",
)
def smaller_epsilon(x, weights, position, num_heads):
    return _block(x, weights, position, num_heads, eps=1e-6)


@misconception(
    "M825",
    "mended_block",
    title="only the keys are grouped anew",
    source="an answer in a trial of the checks: repeat_interleave in one of two lines",
    effect="A head compares with the keys of its own group, and reads the values of another one.",
    hint="With one group, and with as many groups as heads, you are right. Which of the two "
    "matrices that a group shares have you mended?",
)
def keys_alone_grouped(x, weights, position, num_heads):
    def turned(query, key, value, position):
        query, key, value = _turned(query, key, value, position)
        return query, _by_neighbors(key, num_heads), value

    return _block(x, weights, position, num_heads, turned=turned, shared=_one_after_another)


@also("M36", "mended_block")
def masked_after_the_softmax(x, weights, position, num_heads):
    return _block(x, weights, position, num_heads, masked_after=True)


@also("M432", "mended_block")
def blocked_with_a_number(x, weights, position, num_heads):
    return _block(x, weights, position, num_heads, blocked=-30.0)


@also("M31", "mended_block")
def normalized_added_back(x, weights, position, num_heads):
    return _block(x, weights, position, num_heads, from_the_norm=True)


@misconception(
    "M735",
    "mended_block",
    title="layer norm for RMSNorm",
    source="a plausible slip while mending",
    effect="The mean is taken off, which these weights do not expect.",
    hint="Your norm takes the mean off. What does RMSNorm divide by, and what does it leave?",
)
def mean_taken_off(x, weights, position, num_heads):
    def norm(y, scale, eps):
        return F.layer_norm(y, scale.shape, scale, None, eps)

    return _block(x, weights, position, num_heads, norm=norm)


@misconception(
    "M736",
    "mended_block",
    title="no rotation at all",
    source="a plausible slip while mending: the whole loop is deleted",
    effect="The order of the tokens before a position has no influence.",
    hint="Exchange two early tokens: the later outputs stay the same. Which parts are to be "
    "rotated?",
)
def nothing_rotated(x, weights, position, num_heads):
    return _block(
        x, weights, position, num_heads, turned=lambda query, key, value, _: (query, key, value)
    )


@misconception(
    "M737",
    "mended_block",
    title="nothing of its own is seen",
    source="a plausible slip while mending: tril(-1)",
    effect="A token cannot look at itself, and the first one at nothing: NaN.",
    hint="The first token sees nothing. Up to which diagonal may a token look?",
)
def itself_not_seen(x, weights, position, num_heads):
    return _block(x, weights, position, num_heads, diagonal=-1)


@misconception(
    "M738",
    "mended_block",
    title="scores are not divided by the root of d_k",
    source="a plausible slip while mending",
    effect="Attention is sharper than the weights expect.",
    hint="With one token you are right. What are the scores divided by?",
)
def scores_not_scaled(x, weights, position, num_heads):
    return _block(x, weights, position, num_heads, roots=0)


@misconception(
    "M771",
    "mended_block",
    title="both sublayers read the input of the layer",
    source="an answer in a trial of the checks: attention and feed-forward network in parallel, "
    "as in GPT-J",
    effect="The feed-forward network does not see what attention has brought.",
    hint="What does the feed-forward network read: what came into the layer, or what attention "
    "has been added to?",
)
def in_parallel(x, weights, position, num_heads):
    return _block(x, weights, position, num_heads, parallel=True)


@misconception(
    "M772",
    "mended_block",
    title="the whole width rotated, not each head",
    source="an answer in a trial of the checks: rotary() before the heads are split",
    effect="Each head has frequencies of its own, some only slow ones.",
    hint="The first token is right. How many channels has what you rotate: those of a head, or of "
    "all?",
)
def whole_width_rotated(x, weights, position, num_heads):
    def turned(query, key, value, position):
        def whole(part):
            joint = rotary(part.transpose(1, 2).flatten(2), position)
            return joint.unflatten(-1, (part.size(1), -1)).transpose(1, 2)

        return whole(query), whole(key), value

    return _block(x, weights, position, num_heads, turned=turned)


@misconception(
    "M773",
    "mended_block",
    title="scores divided by the root of d_k twice",
    source="an answer in a trial of the checks: by hand, and by PyTorch's function",
    effect="Attention is more even than the weights expect.",
    hint="With one token you are right. PyTorch's function divides the scores: do you divide "
    "them, too?",
)
def scaled_twice(x, weights, position, num_heads):
    return _block(x, weights, position, num_heads, roots=2)


def _thirds(joint, heads):
    return [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in joint.chunk(3, dim=-1)]


def _gpt2(
    tokens, weights, num_heads,
    split=_thirds, activation=lambda x: F.gelu(x, approximate="tanh"), causal=True, scale=None,
    positions=True, embedding_scale=1.0, final_norm=True, transposed=False, bias=True,
    post_norm=False, from_the_norm=False, parallel=False, norms=("ln_1", "ln_2"),
    order=int, blocked=None,
):  # fmt: skip
    """As it should be, but for what is switched."""

    def norm(x, name):
        gain, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return F.layer_norm(x, gain.shape, gain, shift, EPS)

    def linear(x, name):
        matrix = weights[f"{name}.weight"]
        square = matrix.size(0) == matrix.size(1)
        result = x @ (matrix.T if transposed and square else matrix)
        return result + weights[f"{name}.bias"] if bias else result

    def attend(x, layer):
        query, key, value = split(linear(x, f"{layer}.attn.c_attn"), num_heads)
        if blocked is None:
            out = F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale)
        else:
            scores = query @ key.mT / math.sqrt(query.size(-1))
            future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            out = scores.masked_fill(future, blocked).softmax(dim=-1) @ value
        return linear(out.transpose(1, 2).flatten(2), f"{layer}.attn.c_proj")

    def think(x, layer):
        return linear(activation(linear(x, f"{layer}.mlp.c_fc")), f"{layer}.mlp.c_proj")

    x = embedding_scale * weights["wte.weight"][tokens]
    if positions:
        x = x + weights["wpe.weight"][: tokens.size(1)]
    numbers = [name.split(".")[1] for name in weights if name.endswith("ln_1.weight")]
    for number in sorted(numbers, key=order):
        layer, came_in = f"h.{number}", x
        for sublayer, name in zip((attend, think), norms, strict=True):
            if post_norm:
                x = norm(x + sublayer(x, layer), f"{layer}.{name}")
                continue
            y = norm(came_in if parallel else x, f"{layer}.{name}")
            x = (y if from_the_norm else x) + sublayer(y, layer)
    return (norm(x, "ln_f") if final_norm else x) @ weights["wte.weight"].T


@misconception(
    "M739",
    "gpt2_logits",
    title="square matrices transposed",
    source="common: GPT-2 stores (d_in, d_out), nn.Linear (d_out, d_in)",
    effect="Of the four matrices of a layer one is square, and takes the wrong way without an "
    "error.",
    hint="Three of the four matrices would give an error the other way round. Which one would not?",
)
def square_transposed(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, transposed=True)


@misconception(
    "M740",
    "gpt2_logits",
    title="the exact GELU",
    source="common: nn.GELU() for the approximation that GPT-2 was trained with",
    effect="Differences in the fourth digit, in every layer.",
    hint="You are right to about three digits. Which of its two forms of GELU was GPT-2 trained "
    "with?",
)
def exact_gelu(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, activation=F.gelu)


@misconception(
    "M741",
    "gpt2_logits",
    title="ReLU for GELU",
    source="a plausible slip: the paper's activation",
    effect="Small negative numbers become zero.",
    hint="With which function does the feed-forward network of GPT-2 bend?",
)
def relu(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, activation=F.relu)


@misconception(
    "M742",
    "gpt2_logits",
    title="no causal mask",
    source="a plausible slip",
    effect="Each token sees those that it should predict.",
    hint="With one token you are right. Change the last token: which logits change?",
)
def without_a_mask(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, causal=False)


@misconception(
    "M743",
    "gpt2_logits",
    title="post-norm",
    source="a plausible slip: the paper's form, which is GPT-1's as well",
    effect="Everything is wrong from the first layer on.",
    hint="In your layers the norm comes after the sum. Where does GPT-2 have it?",
)
def post_norm(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, post_norm=True)


@misconception(
    "M744",
    "gpt2_logits",
    title="no norm at the end",
    source="a plausible slip: ln_f is forgotten",
    effect="Logits are too large or too small by far.",
    hint="Which weights of the dictionary have you not used? Where do they belong?",
)
def without_the_last_norm(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, final_norm=False)


@misconception(
    "M745",
    "gpt2_logits",
    title="embeddings times the root of d_model",
    source="a plausible slip: the paper's factor",
    effect="Positions count too little.",
    hint="Does GPT-2 multiply its embeddings by anything?",
)
def scaled_embeddings(tokens, weights, num_heads):
    factor = math.sqrt(weights["wte.weight"].size(1))
    return _gpt2(tokens, weights, num_heads, embedding_scale=factor)


@misconception(
    "M746",
    "gpt2_logits",
    title="no positions",
    source="a plausible slip: wpe is forgotten",
    effect="The model knows the order by the mask alone.",
    hint="Which weights of the dictionary have you not used?",
)
def without_positions(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, positions=False)


@misconception(
    "M747",
    "gpt2_logits",
    title="no biases",
    source="a plausible slip: Llama's form",
    effect="Everything is a little off.",
    hint="Which weights of the dictionary have you not used?",
)
def without_biases(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, bias=False)


@misconception(
    "M748",
    "gpt2_logits",
    title="heads first, then thirds",
    source="a plausible slip: the layout of GPT-NeoX and BLOOM, query, key and value of each head",
    effect="With one head right, with several nearly everything wrong.",
    hint="With one head you are right. The first third of c_attn's output are the queries of all "
    "heads: what do you take for them?",
)
def heads_first(tokens, weights, num_heads):
    def split(joint, heads):
        return joint.unflatten(-1, (heads, -1)).transpose(1, 2).chunk(3, dim=-1)

    return _gpt2(tokens, weights, num_heads, split=split)


@misconception(
    "M749",
    "gpt2_logits",
    title="keys before queries",
    source="a plausible slip: k, q, v",
    effect="Rows and columns of the scores are exchanged.",
    hint="With one token you are right. In which order are the three thirds of c_attn?",
)
def keys_first(tokens, weights, num_heads):
    def split(joint, heads):
        key, query, value = _thirds(joint, heads)
        return query, key, value

    return _gpt2(tokens, weights, num_heads, split=split)


@misconception(
    "M750",
    "gpt2_logits",
    title="heads split without the transpose",
    source="a plausible slip: view(batch, heads, length, d_k)",
    effect="A head gets channels of several positions.",
    hint="With one head you are right. Are the heads behind the positions in memory, or before "
    "them?",
)
def split_without_transpose(tokens, weights, num_heads):
    def split(joint, heads):
        batch, length, _ = joint.shape
        return [part.reshape(batch, heads, length, -1) for part in joint.chunk(3, dim=-1)]

    return _gpt2(tokens, weights, num_heads, split=split)


@misconception(
    "M751",
    "gpt2_logits",
    title="scores are not divided by the root of d_k",
    source="a plausible slip",
    effect="Attention is sharper than the weights expect.",
    hint="With one token you are right. What are the scores divided by?",
)
def unscaled_scores(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, scale=1.0)


@misconception(
    "M752",
    "gpt2_logits",
    title="the norms of a layer exchanged",
    source="a plausible slip: ln_2 before attention",
    effect="Everything is a little off.",
    hint="Which norm comes first in a layer, ln_1 or ln_2?",
)
def norms_exchanged(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, norms=("ln_2", "ln_1"))


@also("M432", "gpt2_logits")
def gpt2_blocked_with_a_number(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, blocked=-20.0)


@also("M31", "gpt2_logits")
def gpt2_from_the_norm(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, from_the_norm=True)


@also("M771", "gpt2_logits")
def gpt2_in_parallel(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, parallel=True)


@misconception(
    "M753",
    "gpt2_logits",
    title="probabilities for logits",
    source="a plausible slip: a softmax at the end",
    effect="Whoever takes the softmax of it once more gets nearly uniform probabilities.",
    hint="Your rows add up to 1. Are probabilities asked for?",
)
def probabilities(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads).softmax(dim=-1)


@misconception(
    "M755",
    "gpt2_logits",
    title="the layers in the order of their names",
    source="an answer in a trial of the checks: sorted() of texts",
    effect="h.10 comes before h.2: right for small models, wrong for all that were published.",
    hint="With up to ten layers you are right. Which comes first for you, h.10 or h.2?",
)
def layers_by_name(tokens, weights, num_heads):
    return _gpt2(tokens, weights, num_heads, order=str)


@misconception(
    "M798",
    "swiglu",
    title="the sigmoid of 1.702·z",
    source="an answer in a trial of the checks: the “quick GELU” of CLIP",
    effect="A few percent off wherever the gate is neither open nor shut.",
    hint="Your gate opens and shuts too fast. Which multiple of z does SiLU put into the sigmoid?",
)
def quick_gelu(x, gate, up, down):
    gated = x @ gate.T
    return (gated * torch.sigmoid(1.702 * gated) * (x @ up.T)) @ down.T


@misconception(
    "M799",
    "mended_block",
    title="positions of queries compared with places of keys",
    source="an answer in a trial of the checks: position[:, None] >= arange(length)",
    effect="In the middle of a text, everything may be seen, the future as well.",
    hint="From position 0 on you are right. In the middle of a text, what do you compare a query's "
    "position with: the keys' positions, or their places in x?",
)
def positions_and_places(x, weights, position, num_heads):
    return _block(x, weights, position, num_heads, diagonal=int(position[0]))
