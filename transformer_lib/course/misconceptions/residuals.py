"""Mistakes around the residual connection, in the feed-forward network and in the layers.

What is right about them is in :mod:`transformer_lib.model.residual` and beside the exercises.
"""

import torch
import torch.nn.functional as F

from transformer_lib.course.misconceptions.bank import also, misconception


@misconception(
    "M9",
    "post_norm",
    title="no dropout on the sublayer's output",
    source="Kyubyong/transformer",
    effect="The model overfits small data sooner.",
    hint="Your result is right but for dropout. To which tensor does section 5.4 apply it?",
)
def post_norm_without_dropout(x, sublayer, norm, dropout):
    return norm(x + sublayer(x))


@also("M9", "pre_norm")
def pre_norm_without_dropout(x, sublayer, norm, dropout):
    return x + sublayer(norm(x))


@misconception(
    "M31",
    "pre_norm",
    title="the normalized input is added back",
    source="a public Transformer project: y = LN(x); y + f(y)",
    effect="Every sublayer normalizes the residual stream anew: the identity path, for which one "
    "chooses pre-norm, is lost.",
    hint="What you add the branch to is not x. Follow x itself from the input to the sum: does "
    "anything happen to it on the way?",
)
def normalized_input_added(x, sublayer, norm, dropout):
    x = norm(x)
    return x + dropout(sublayer(x))


@misconception(
    "M85",
    "post_norm",
    title="pre-norm and post-norm confused",
    source="common: the paper's text says LayerNorm(x + Sublayer(x)), much code does the other",
    effect="The same weights give another model; deep post-norm needs warm-up, pre-norm does not.",
    hint="Your norm is at the other one of the two places. Is the sum normalized, or what goes "
    "into the sublayer?",
)
@misconception(
    "M168",
    "branch_norm",
    title="pre-norm for the norm on the branch",
    source="a plausible slip: the norm before the sublayer",
    effect="The branch grows as the sublayer's weights do; normalizing it was the point.",
    hint="What you add to x has any size. Is the sublayer's input normalized, or its output?",
)
def pre_norm_for_another(x, sublayer, norm, dropout):
    return x + dropout(sublayer(norm(x)))


@also("M85", "pre_norm")
@misconception(
    "M167",
    "branch_norm",
    title="post-norm for the norm on the branch",
    source="a plausible slip: x and the branch are added before the norm",
    effect="The sum is normalized as well: no path leads past the norm.",
    hint="Your whole result is normalized, but x is to pass untouched. What does the norm act on?",
)
def post_norm_for_another(x, sublayer, norm, dropout):
    return norm(x + dropout(sublayer(x)))


@misconception(
    "M173",
    "pre_norm",
    title="the norm on the branch for pre-norm",
    source="the lecture's “adjusted” form, where it is meant: x + LN(f(x))",
    effect="Every branch adds a vector of the same size, however little the sublayer has to say.",
    hint="The norm in your code acts on what the sublayer returns. On what does it act in the "
    "formula?",
)
@misconception(
    "M86",
    "post_norm",
    title="the branch is normalized, not the sum",
    source="the lecture's “adjusted” form, where it is meant: x + LN(f(x))",
    effect="The sum grows from layer to layer.",
    hint="Your result is not normalized. What does the outermost operation of the formula act on?",
)
def branch_norm_for_another(x, sublayer, norm, dropout):
    return x + norm(dropout(sublayer(x)))


@misconception(
    "M169",
    "branch_norm",
    title="dropout after the branch's norm",
    source="a plausible slip",
    effect="What reaches the sum is no longer normalized.",
    hint="Dropped channels of yours are exactly those of x. Which of the two comes first on the "
    "branch, the norm or dropout?",
)
def dropout_after_the_norm(x, sublayer, norm, dropout):
    return x + dropout(norm(sublayer(x)))


@also("M69", "branch_norm")
def branch_norm_in_place(x, sublayer, norm, dropout):
    x += norm(dropout(sublayer(x)))
    return x


@misconception(
    "M87",
    "post_norm",
    title="dropout on the sum",
    source="a plausible slip",
    effect="The identity path is dropped as well: in six layers a channel survives 12 times 0.9.",
    hint="Some channels of the sum are dropped in your code. Should x itself ever be dropped?",
)
def dropout_on_the_sum(x, sublayer, norm, dropout):
    return norm(dropout(x + sublayer(x)))


@also("M87", "pre_norm")
def pre_norm_dropout_on_the_sum(x, sublayer, norm, dropout):
    return dropout(x + sublayer(norm(x)))


@misconception(
    "M88",
    "post_norm",
    title="nothing is added back",
    source="a plausible slip",
    effect="Deep stacks do not train: the gradient has to pass every sublayer.",
    hint="Your result does not depend on x except through the sublayer. What makes a connection "
    "residual?",
)
@also("M88", "branch_norm")
def normalized_branch_alone(x, sublayer, norm, dropout):
    return norm(dropout(sublayer(x)))


@also("M88", "pre_norm")
def pre_norm_without_residual(x, sublayer, norm, dropout):
    return dropout(sublayer(norm(x)))


@also("M69", "post_norm")
def post_norm_in_place(x, sublayer, norm, dropout):
    x += dropout(sublayer(x))
    return norm(x)


@also("M69", "pre_norm")
def pre_norm_in_place(x, sublayer, norm, dropout):
    x += dropout(sublayer(norm(x)))
    return x


@misconception(
    "M89",
    "feed_forward",
    title="no ReLU",
    source="a plausible slip",
    effect="Two matrix products are one: the sublayer is linear, at twice the price.",
    hint="Your function is linear in x. What stands between the two products?",
)
def linear_feed_forward(x, w1, b1, w2, b2):
    return (x @ w1 + b1) @ w2 + b2


@misconception(
    "M90",
    "feed_forward",
    title="a ReLU at the end too",
    source="a plausible slip: the activation of every layer in an MLP",
    effect="The sublayer can only add, never take away.",
    hint="No number of your result is negative. After which of the two products is the ReLU?",
)
def relu_at_the_end(x, w1, b1, w2, b2):
    return F.relu(F.relu(x @ w1 + b1) @ w2 + b2)


@misconception(
    "M91",
    "feed_forward",
    title="the ReLU before the first product",
    source="a plausible slip",
    effect="The negative half of x is lost, and the two products are one.",
    hint="The negative numbers of x do not matter in your code. Where is max(0, ·) in "
    "the paper's equation (2)?",
)
def relu_on_the_input(x, w1, b1, w2, b2):
    return (F.relu(x) @ w1 + b1) @ w2 + b2


@misconception(
    "M92",
    "feed_forward",
    title="GELU for ReLU",
    source="common in code after BERT",
    effect="Nearly the same, but not the paper's, and not with the paper's weights.",
    hint="You are close, but not equal, where the hidden numbers are small. Which function does "
    "the paper's equation (2) name?",
)
def gelu(x, w1, b1, w2, b2):
    return F.gelu(x @ w1 + b1) @ w2 + b2


@misconception(
    "M93",
    "feed_forward",
    title="the biases are missing",
    source="a plausible slip",
    effect="Every hidden unit's threshold is zero.",
    hint="Two of the arguments do not influence your result. Which?",
)
def without_biases(x, w1, b1, w2, b2):
    return F.relu(x @ w1) @ w2


@misconception(
    "M237",
    "feed_forward",
    title="the first bias comes after the ReLU",
    source="a plausible slip",
    effect="Every hidden unit's threshold is zero, and b1 acts like a part of b2.",
    hint="To what do you add b1: to what goes into the ReLU, or to what comes out of it?",
)
def bias_after_relu(x, w1, b1, w2, b2):
    return (torch.relu(x @ w1) + b1) @ w2 + b2


@misconception(
    "M238",
    "feed_forward",
    title="x is added to the result",
    source="common: the residual connection written into the sublayer",
    effect="The layer around it adds x once more.",
    hint="Your result has x in it once too often. Who adds the residual connection, the network or "
    "the layer around it?",
)
def with_residual(x, w1, b1, w2, b2):
    return x + torch.relu(x @ w1 + b1) @ w2 + b2


@misconception(
    "M239",
    "feed_forward",
    title="the negative numbers are kept",
    source="a plausible slip: clamp(max=0), or masked_fill(h > 0, 0)",
    effect="The network is another one, but not a worse one: w1 and b1 with the opposite sign.",
    hint="Your hidden numbers are all negative or zero. What does a ReLU let through?",
)
def negative_part(x, w1, b1, w2, b2):
    return (x @ w1 + b1).clamp(max=0) @ w2 + b2


@misconception(
    "M94",
    "encoder_layer",
    title="the mask is not handed on",
    source="a plausible slip",
    effect="Padding is attended to: a sentence's result depends on its neighbors in the batch.",
    hint="The mask does not influence your result. To whom does it have to be passed?",
)
def encoder_without_mask(x, mask, self_attention, feed_forward, norm1, norm2):
    x = norm1(x + self_attention(x, x, None))
    return norm2(x + feed_forward(x))


@misconception(
    "M95",
    "encoder_layer",
    title="both sublayers read the layer's input",
    source="a plausible slip: a variable that was not reassigned",
    effect="The feed-forward network never sees what attention found.",
    hint="Your feed-forward network does not see the result of the attention. What is its input?",
)
def sublayers_in_parallel(x, mask, self_attention, feed_forward, norm1, norm2):
    looked = norm1(x + self_attention(x, x, mask))
    return norm2(looked + feed_forward(x))


@misconception(
    "M96",
    "encoder_layer",
    title="one norm for both sublayers",
    source="common in short listings",
    effect="The second norm's scale and shift are never trained, the first one's serve two "
    "masters.",
    hint="One of the two norms does not influence your result. How many does a layer have?",
)
def one_norm_for_both(x, mask, self_attention, feed_forward, norm1, norm2):
    x = norm1(x + self_attention(x, x, mask))
    return norm1(x + feed_forward(x))


@also("M88", "encoder_layer")
def encoder_without_residual(x, mask, self_attention, feed_forward, norm1, norm2):
    return norm2(feed_forward(norm1(self_attention(x, x, mask))))


@misconception(
    "M97",
    "encoder_layer",
    title="feed-forward before attention",
    source="a plausible slip",
    effect="Another model: the last layer's feed-forward work is missing after its attention.",
    hint="Both sublayers are there. Which comes first in figure 1?",
)
def feed_forward_first(x, mask, self_attention, feed_forward, norm1, norm2):
    x = norm1(x + feed_forward(x))
    return norm2(x + self_attention(x, x, mask))


@misconception(
    "M98",
    "decoder_layer",
    title="the two masks change places",
    source="common",
    effect="With unequal lengths an error; with equal ones the decoder sees the future.",
    hint="Each of your two attentions gets the other one's mask. What does each mask describe?",
)
def masks_swapped(x, memory, tgt_mask, memory_mask, attention, cross, feed_forward, norms):
    x = norms[0](x + attention(x, x, memory_mask))
    x = norms[1](x + cross(x, memory, tgt_mask))
    return norms[2](x + feed_forward(x))


@misconception(
    "M99",
    "decoder_layer",
    title="the target's mask for the memory too",
    source="common: one mask argument for all attentions",
    effect="Target position i sees only the first i source tokens.",
    hint="Your cross-attention hides parts of the source that it should show. Which of the two "
    "masks describes the memory?",
)
def tgt_mask_for_memory(x, memory, tgt_mask, memory_mask, attention, cross, feed_forward, norms):
    x = norms[0](x + attention(x, x, tgt_mask))
    x = norms[1](x + cross(x, memory, tgt_mask))
    return norms[2](x + feed_forward(x))


@misconception(
    "M100",
    "decoder_layer",
    title="no causal mask in the decoder",
    source="a plausible slip",
    effect="Each position sees the token that it should predict.",
    hint="Change the last target token, and your first position changes. What keeps the decoder "
    "from looking ahead?",
)
def decoder_without_mask(x, memory, tgt_mask, memory_mask, attention, cross, feed_forward, norms):
    x = norms[0](x + attention(x, x, None))
    x = norms[1](x + cross(x, memory, memory_mask))
    return norms[2](x + feed_forward(x))


@also("M73", "decoder_layer")
def decoder_without_memory(x, memory, tgt_mask, memory_mask, attention, cross, feed_forward, norms):
    x = norms[0](x + attention(x, x, tgt_mask))
    x = norms[1](x + cross(x, x, memory_mask))
    return norms[2](x + feed_forward(x))


@misconception(
    "M101",
    "decoder_layer",
    title="cross-attention before self-attention",
    source="a plausible slip",
    effect="The question to the source is asked before the decoder knows what it has said.",
    hint="All three sublayers are there. In which order does figure 1 have them?",
)
def cross_first(x, memory, tgt_mask, memory_mask, attention, cross, feed_forward, norms):
    x = norms[0](x + cross(x, memory, memory_mask))
    x = norms[1](x + attention(x, x, tgt_mask))
    return norms[2](x + feed_forward(x))


@misconception(
    "M102",
    "decoder_layer",
    title="no cross-attention",
    source="a plausible slip: the encoder's layer used again",
    effect="A language model of the target: it never reads the source.",
    hint="Change the memory, and your result stays the same. Which sublayer does an encoder layer "
    "not have?",
)
def without_cross_attention(
    x, memory, tgt_mask, memory_mask, attention, cross, feed_forward, norms
):
    x = norms[0](x + attention(x, x, tgt_mask))
    return norms[2](x + feed_forward(x))


def _seen(block, d_model):
    """Whether the way around is free, whether the sublayer gets something normalized."""
    x = 1.0 + 3.0 * torch.randn(1, 4, d_model)
    given = []

    def nothing(y):
        given.append(y)
        return torch.zeros_like(y)

    free = torch.allclose(block(x, nothing), x, atol=1e-4)
    return free, not torch.allclose(given[0], x, atol=1e-4)


@misconception(
    "M377",
    "which_form",
    title="only the way around is looked at",
    source="a plausible slip: one experiment for five forms",
    effect="Everything with a free way counts as pre-norm, everything else as post-norm.",
    hint="Your test tells the forms with a free way from those without. What does the sublayer get "
    "to see?",
)
def only_the_way_around(block, d_model):
    return "pre-norm" if _seen(block, d_model)[0] else "post-norm"


@misconception(
    "M378",
    "which_form",
    title="only what the sublayer gets is looked at",
    source="a plausible slip: norm first means pre-norm",
    effect="The bug that adds the normalized input back passes for pre-norm.",
    hint="Your test asks what the sublayer gets. What comes out if the sublayer returns nothing?",
)
def only_what_is_given(block, d_model):
    return "pre-norm" if _seen(block, d_model)[1] else "post-norm"


@misconception(
    "M379",
    "which_form",
    title="the sandwich passes for pre-norm",
    source="a plausible slip: two experiments for five forms",
    effect="A norm behind the sublayer stays unnoticed.",
    hint="Four of the five are right. What happens to the output of the sublayer on its way: does "
    "it matter how large it is?",
)
def two_experiments(block, d_model):
    free, normalized = _seen(block, d_model)
    if free:
        return "pre-norm" if normalized else "norm on the branch"
    return "added back" if normalized else "post-norm"


@misconception(
    "M380",
    "which_form",
    title="post-norm and the bug are not told apart",
    source="a plausible slip: a way that is not free is post-norm",
    effect="The bug passes for the paper's form.",
    hint="Two forms have no free way. In one of them the sublayer sees x itself. In the other?",
)
def bug_for_post_norm(block, d_model):
    free, normalized = _seen(block, d_model)
    if not free:
        return "post-norm"
    if not normalized:
        return "norm on the branch"
    x = torch.ones(1, 1, d_model).cumsum(dim=-1)
    small, large = (block(x, lambda y, k=k: k * x.square()) for k in (1.0, 2.0))
    return "sandwich" if torch.allclose(small, large, atol=1e-3) else "pre-norm"


@misconception(
    "M528",
    "which_form",
    title="a norm is known by the other deviation",
    source="an answer in a trial of the checks: std() with n − 1, and a narrow tolerance",
    effect="A norm is found in very wide blocks only.",
    hint="You find a standard deviation of 1 in wide blocks only. By n or by n − 1: what "
    "does a layer norm divide by, and what does std()?",
)
def known_by_the_other_deviation(block, d_model):
    def normalized(y):
        return bool(((y.std(dim=-1) - 1).abs() < 1e-3).all())

    x, output, given = 5 * torch.randn(2, 3, d_model), 7 * torch.randn(2, 3, d_model), []

    def sublayer(y):
        given.append(y)
        return output

    result = block(x, sublayer)
    if normalized(result):
        return "post-norm"
    before, after = normalized(given[0]), normalized(result - x)
    if after:
        return "sandwich" if before else "norm on the branch"
    free = torch.allclose(result - output, x, atol=1e-4)
    return "pre-norm" if before and free else "added back"


@misconception(
    "M592",
    "branch_norm",
    title="the branch is added to itself",
    source="an answer in a trial of the checks: x = sublayer(x), and x is gone",
    effect="Nothing passes around the sublayer: there is no residual connection.",
    hint="You add the output of the norm to the branch, not to x. Where is x overwritten?",
)
def branch_added_to_itself(x, sublayer, norm, dropout):
    branch = dropout(sublayer(x))
    return branch + norm(branch)


@misconception(
    "M593",
    "which_form",
    title="tried with a sublayer that changes nothing",
    source="an answer in a trial of the checks: the identity as a probe",
    effect="In pre-norm it returns what the norm has made, so pre-norm passes for a sandwich.",
    hint="Pre-norm counts as a sandwich in yours. If your sublayer returns what it is given, its "
    "output is normalized already: how could one tell whether a second norm follows?",
)
def identity_as_probe(block, d_model):
    free, normalized = _seen(block, d_model)
    if not free:
        return "added back" if normalized else "post-norm"
    if not normalized:
        return "norm on the branch"
    x = 7.0 + 3.0 * torch.randn(2, 5, d_model)
    variance = (block(x, lambda y: y) - x).var(dim=-1, correction=0)
    return "sandwich" if torch.allclose(variance, torch.ones(2, 5), atol=0.01) else "pre-norm"
