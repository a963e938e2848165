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
# # 9 · Residuals, and where the norm goes
#
# $x + f(x)$ is the smallest idea in the Transformer, and hardly any deep network is trained without
# it. Where the norm is placed looks like a detail, but it can decide whether training starts at
# all. By the end you can
#
# - write the forms that are found in practice, and say which of them is a bug,
# - find out by experiment which form somebody else's block has,
# - say which of them needs a warm-up, and measure from which depth on,
# - say what the final norm is for, and which forms need none,
# - rescue a stack of 32 layers that does not train.
#
# Reading takes about forty minutes, running the cells about one.
#
# **Predict first.** Four encoders of sixteen layers differ in where the norm is placed (and
# pre-norm has one more, at the end). Each is trained twice: with a learning rate that starts low
# (warm-up) and with one that starts at its full value. Which of the eight models will not learn?

# %%
import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, check_experiment, mine, solution
from transformer_lib.course.results import (
    mean_and_spread,
    over_seeds,
    standard_errors_apart,
    variants,
)
from transformer_lib.model import (
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    SinusoidalPositions,
)
from transformer_lib.plots.measurements import bars, lines
from transformer_lib.plots.notebook import show
from transformer_lib.course.figures.residual_forms import ALTERNATIVE, residual_forms

# %% [markdown]
# ## Why x + f(x)
#
# A layer computes something and passes it on. With twenty layers in a row, what the first one knew
# reaches the last one only through the eighteen in between, and the gradient has to travel back the
# same way. A **residual connection** ([He et al. 2015](https://arxiv.org/abs/1512.03385)) lets a
# layer *add* to what it was given instead of replacing it, and the derivative of $x + f(x)$ is $1 +
# f'(x)$: whatever $f$ does, the 1 is there.
#
# How much of the gradient arrives at the bottom of a stack of random layers, with residual
# connections and without? The **gain** is how much longer a layer's matrix makes a vector, before
# the tanh:

# %%
def gradient_at_the_bottom(residual, gain, layers, d=64, draws=20):
    """Norm of the gradient of one output with respect to the input; the median of 20 draws.

    ``gain`` is how much longer a layer's matrix makes a vector, before the tanh.
    """
    torch.manual_seed(0)
    norms = []
    for _ in range(draws):
        y = x = torch.randn(1, d, requires_grad=True)
        for _ in range(layers):
            f = torch.tanh(nn.functional.linear(y, torch.randn(d, d) * gain * d**-0.5))
            y = y + f if residual else f
        norms.append(torch.autograd.grad(y[0, 0], x)[0].norm())
    return torch.stack(norms).median().item()

# %%
DEPTHS = (1, 2, 4, 8, 16, 32)
arriving = {
    f"{name}, gain {gain}": (
        DEPTHS,
        [gradient_at_the_bottom(residual, gain, depth) for depth in DEPTHS],
    )
    for name, residual in {"f(x)": False, "x + f(x)": True}.items()
    for gain in (0.5, 1.0, 3.0)
}
show(
    lines(
        arriving,
        ("layers", "gradient that reaches the input"),
        logarithmic="xy",
    ),
    "Gradient that reaches the input over the number of layers, for three gains: without residual "
    "connections it vanishes, shrinks or grows by factors of a thousand and more; with them it "
    "arrives with all three, and grows.",
)
for name, (_, values) in arriving.items():
    print(f"{name:18} after 32 layers {values[-1]:.0e}")

# %% [markdown]
# Without residual connections, everything depends on the size of the weights: with a gain of one
# half, nothing is left of the gradient after 32 layers; with a gain of 3, it is thousands of times
# too large; only a gain near 1 lets it through. With residual connections the gradient does not
# vanish with any of the three gains: what each layer adds comes on top of the 1. The gradient then
# grows with the depth, and the larger the weights, the faster; norms keep that in check. (A
# vanishing gradient was not the only reason for residual connections. He et al. found that deep
# plain networks train worse than shallow ones even *with* batch norm and well-chosen weights.)
#
# ## Where the norm goes
#
# Every sublayer $f$ (attention, or the feed-forward network of chapter 10: two linear layers with a
# ReLU between them, applied to each position alone) is wrapped in such a connection, together with
# a layer norm. Where does the norm go? The paper writes $\text{LayerNorm}(x + \text{Sublayer}(x))$.
# The authors' program did so at first and later changed its default. The Annotated Transformer has
# the later form, and its readers have asked about it again and again (issues
# [1](https://github.com/harvardnlp/annotated-transformer/issues/1),
# [13](https://github.com/harvardnlp/annotated-transformer/issues/13),
# [92](https://github.com/harvardnlp/annotated-transformer/issues/92),
# [100](https://github.com/harvardnlp/annotated-transformer/issues/100) and
# [110](https://github.com/harvardnlp/annotated-transformer/issues/110)). In practice you meet these
# forms:

# %%
show(residual_forms(), ALTERNATIVE)

# %% [markdown]
# - **Post-norm**, the paper's: add, then normalize the sum. Every path from the bottom to the top
#   goes through every norm.
# - **Pre-norm**, the later default of the authors' program, and the form of most large language
#   models since GPT-2, Llama among them (BERT still has post-norm): normalize the input of $f$. The
#   path around $f$ (green) is free: from the first layer to the last, all that happens to $x$ is
#   addition.
# - **Norm on the branch**: normalize what $f$ returns. The path around is free as well. Swin v2
#   ([Liu et al. 2022](https://arxiv.org/abs/2111.09883)) and OLMo 2
#   ([2024](https://arxiv.org/abs/2501.00656)) have it; Gemma 2
#   ([2024](https://arxiv.org/abs/2408.00118)) normalizes before *and* after $f$, a form known as a
#   **sandwich**.
# - **A bug**, “added back”: normalize first, and then use the normalized $x$ for both paths (`x =
#   norm(x)`, then `x + f(x)`). It looks like pre-norm. The path around is not free: it goes through
#   the norm, just as in post-norm. (Some programs, Megatron-LM for one, have it as an option; it is
#   a bug only where pre-norm was meant.)
#
# So, to answer those readers: the paper's text has the first form, most code since then has the
# second, and both are correct. They differ in whether there is a free path (the green line), and
# the rest of this chapter shows what it does.
#
# In each of the exercises `sublayer`, `norm` and `dropout` are functions of one tensor, and dropout
# is applied to the sublayer's output (section 5.4 of the paper; in training, **dropout** sets some
# numbers, chosen at random, to zero, for reasons that chapter 11 gives). What passes its `check` is
# kept in `my_transformer.py` beside this notebook. After a first try, `solution("post_norm")` in a
# cell of its own shows one way.
#
# ### Post-norm
#
# ●○○ · 5 minutes · the paper's sublayer
#
# As in the paper: the residual connection, then the norm.

# %%
def post_norm(x, sublayer, norm, dropout):
    ...  # your code


check(post_norm)

# %% [markdown]
# <details><summary>Hint</summary>
#
# From the inside out: sublayer, dropout, sum, norm.
#
# </details>

# %% [markdown]
# ### Pre-norm
#
# ●○○ · 5 minutes · the sublayer of most models since
#
# The norm comes before the sublayer, and nothing comes after the residual connection.

# %%
def pre_norm(x, sublayer, norm, dropout):
    ...  # your code


check(pre_norm)

# %% [markdown]
# <details><summary>Hint</summary>
#
# What is added back: `x`, or `norm(x)`?
#
# </details>

# %% [markdown]
# ### Norm on the branch
#
# ●○○ · 5 minutes · the sublayer of Swin v2 and OLMo 2
#
# The norm comes last on the branch, after dropout and before the residual connection.

# %%
def branch_norm(x, sublayer, norm, dropout):
    ...  # your code


check(branch_norm)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The path around the branch is free.
#
# </details>

# %% [markdown]
# ### Which form is it?
#
# ●●○ · 30 minutes · tell what somebody else's program does
#
# `block(x, sublayer)` is a residual block with freshly created norms of its own (scale 1, shift 0).
# You cannot see its code, but you may call it with any `x`, (batch, length, d_model), and with any
# `sublayer` that you like. Return the form that it has: `"post-norm"`, `"pre-norm"`, `"norm on the
# branch"`, `"sandwich"` or `"added back"`.

# %%
def which_form(block, d_model):
    ...  # your code


check(which_form)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A sublayer can record what it is given. And what comes out of the block if the sublayer returns
# zeros? If it returns the same output, twice as large?
#
# </details>

# %% [markdown]
# Here are your functions, wrapped as the library's layers expect them; the fourth form is the bug:

# %%
post_norm, pre_norm, branch_norm = mine("post_norm"), mine("pre_norm"), mine("branch_norm")
which_form = mine("which_form")


def added_back(x, sublayer, norm, dropout):
    x = norm(x)
    return x + dropout(sublayer(x))


FORMS = {"post": post_norm, "pre": pre_norm, "branch": branch_norm, "added back": added_back}


class Residual(nn.Module):
    """A residual connection of one of these forms, without dropout."""

    def __init__(self, form, d_model):
        super().__init__()
        self.form, self.norm = form, LayerNorm(d_model)

    def forward(self, x, sublayer):
        return FORMS[self.form](x, sublayer, self.norm, lambda y: y)


for form in FORMS:
    print(f"{form:11} is recognized as {which_form(Residual(form, 8), 8)}")

# %% [markdown]
# ## At the start
#
# We build a deep encoder of each form. Its task is the game of chapter 4: say which token came
# three places earlier. First, before any training: how much of the input is still there after each
# layer? We measure the cosine between a token's vector at the bottom and the vector at the same
# position higher up.

# %%
VOCABULARY, LENGTH, BACK, D = 20, 12, 3, 32


class Deep(nn.Module):
    """Embedding, a deep encoder, an output projection."""

    def __init__(self, form, layers=16, final_norm=None):
        super().__init__()
        self.embedding = Embedding(VOCABULARY, D, SinusoidalPositions(D), dropout=0.0)

        parts = [
            EncoderLayer(
                MultiHeadAttention(D, 2), FeedForward(D, 2 * D), lambda: Residual(form, D)
            )
            for _ in range(layers)
        ]
        final_norm = form == "pre" if final_norm is None else final_norm
        self.encoder = Encoder(parts, LayerNorm(D) if final_norm else nn.Identity())
        self.output = nn.Linear(D, VOCABULARY)

    def forward(self, tokens):
        return self.output(self.encoder(self.embedding(tokens), None))

# %% [markdown]
# What enters the first layer, and what leaves each layer:

# %%
@torch.no_grad()
def states(model, tokens):
    """One tensor more than there are layers."""
    xs = [model.embedding(tokens)]
    for layer in model.encoder.layers:
        xs.append(layer(xs[-1], None))
    return xs


def over_six_seeds(measure, *arguments):
    """For each layer the mean of what is measured in six new models."""
    found = []
    for seed in range(6):
        torch.manual_seed(seed)
        found.append(measure(Deep(*arguments), torch.randint(VOCABULARY, (64, LENGTH))))
    return torch.tensor(found).mean(dim=0).tolist()

# %%
def of_the_input(model, tokens):
    """Mean cosine between what enters the stack and what leaves each layer."""
    xs = states(model, tokens)
    return [nn.functional.cosine_similarity(xs[0], x, dim=-1).mean().item() for x in xs]


remaining = {form: (range(17), over_six_seeds(of_the_input, form)) for form in FORMS}
show(
    lines(remaining, ("layers", "cosine with the input (6 seeds)")),
    "Cosine with the input over 16 layers: it falls slowly with pre-norm, and far more with "
    "post-norm, with the bug and with the norm on the branch.",
)
print({form: round(values[-1], 2) for form, (_, values) in remaining.items()})

# %% [markdown]
# The curves of post-norm and of the bug lie close together (the bug *is* post-norm, with each norm
# moved from the end of one sublayer to the beginning of the next), and at the top little of the
# input is left. Each norm shrinks what came before to make room for what the branch has added, 32
# times over: twice in each of the sixteen layers. With pre-norm the input stays; more and more is
# added to it. With the norm on the branch the cosine falls as well, although the path around is
# free: each of the 32 branches adds a vector whose numbers have size 1, while pre-norm's branches
# add smaller ones.
#
# And how does the gradient depend on the depth of the layer? A fifth curve is the norm on the
# branch with one more norm at the very end, as pre-norm has it:

# %%
def gradients(model, tokens):
    """Norm of the gradient of each layer's last matrix, at the start."""
    logits = model(tokens)[:, BACK:]
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, :-BACK].flatten()).backward()
    return [layer.feed_forward.output.weight.grad.norm().item() for layer in model.encoder.layers]


by_layer = {form: over_six_seeds(gradients, form) for form in FORMS}
by_layer["branch, final norm"] = over_six_seeds(gradients, "branch", 16, True)
show(
    lines(
        {form: (range(1, 17), norms) for form, norms in by_layer.items()},
        ("layer", "norm of the gradient (6 seeds)"),
        logarithmic="y",
    ),
    "Gradient norm by layer at the start: about even with post-norm and the bug, falling a little "
    "with pre-norm; with the norm on the branch it falls from more than ten times as much.",
)

for form, norms in by_layer.items():
    ends = f"bottom layer {norms[0]:.2f}, top layer {norms[-1]:.2f}"
    print(f"{form:18} {ends}, top / bottom {norms[-1] / norms[0]:.1f}")

# %% [markdown]
# With post-norm the gradient is a little larger at the top layer than at the bottom one, with
# pre-norm a little smaller ([Xiong et al. 2020](https://arxiv.org/abs/2002.04745) derive how each
# depends on the layer's place and on the number of layers). That alone would not be a catastrophe.
# Adam, which divides by the size of the gradient (chapter 11), evens such differences out.
#
# The norm on the branch has by far the largest gradient: without a norm at the end its output grows
# with the depth, and so do its logits. With one more norm at the end, most of the excess is gone.
#
# ## Training
#
# Now for the opening question. We train for 150 steps with Adam; the learning rate has its full
# value from the first step on, or reaches it after 75 steps (**warm-up**). A model that knows
# nothing has a loss of ln 20 ≈ 3.0.

# %%
def fit(model, warmup, steps=150, learning_rate=4e-3):
    """The mean loss of the last twenty steps."""
    optimizer = torch.optim.Adam(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.98), fused=True
    )
    losses = []
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = learning_rate * min(1.0, step / warmup)
        tokens = torch.randint(VOCABULARY, (32, LENGTH))
        logits = model(tokens)[:, BACK:]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, :-BACK].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
collapsed = Deep("post")
print(f"post-norm, no warm-up: loss {fit(collapsed, warmup=1):.2f}")
tokens = torch.randint(VOCABULARY, (64, LENGTH))
outputs = states(collapsed, tokens)[-1].flatten(0, 1)
assert outputs.std(dim=0).max() < 0.1, (
    "not as on our machines: restart the kernel and run all cells"
)
print("output for three different tokens, the first four numbers:")
print(outputs[:3, :4])

# %% [markdown]
# This model has learned nothing: whatever goes in, the same vector comes out. Was that bad luck,
# and does it happen with all forms? Here are all eight models, each from six random initializations
# (measured in advance by `make results`; if you change `fit`, your machine measures them anew).
# Next to the loss is the share of the output that still depends on the token:

# %%
def train(form, warmup, final_norm, seed):
    torch.manual_seed(seed)
    model = Deep(form, final_norm=final_norm)
    loss = fit(model, warmup)
    outputs = states(model, torch.randint(VOCABULARY, (64, LENGTH)))[-1].flatten(0, 1)
    varies = (outputs - outputs.mean(dim=0)).square().mean() / outputs.square().mean()
    return {"loss": loss, "share that depends on the token": varies.item()}


WARMUPS = {"no warm-up": 1, "warm-up": 75}
cases = {
    f"{form}, {name}": (form, warmup, form == "pre")
    for form in FORMS
    for name, warmup in WARMUPS.items()
}
by_place = over_seeds(train, cases, "09_places_of_the_norm", seeds=6)
mean_and_spread(by_place)

# %% [markdown]
# The same, run by run:

# %%
by_place.pivot(index="case", columns="seed").loc[list(cases)].round(2)

# %%
loss = by_place.groupby("case")["loss"].agg(["mean", "std", "min", "max"])
rows = {name: loss.loc[[f"{form}, {name}" for form in FORMS]] for name in WARMUPS}
show(
    bars(
        {name: row["mean"] for name, row in rows.items()},
        list(FORMS),
        ("place of the norm", "loss after 150 steps (mean ± std, 6 seeds)"),
        {name: row["std"] for name, row in rows.items()},
    ),
    "Loss of the four forms with and without warm-up: post-norm and the bug learn only with "
    "warm-up, the other two with and without.",
)
assert loss.loc["post, no warm-up", "min"] > 2.9, (
    "not as on our machines: restart the kernel and run all cells"
)
assert loss.loc["pre, no warm-up", "max"] < 2.5, (
    "not as on our machines: restart the kernel and run all cells"
)
assert loss.loc["post, warm-up", "max"] < loss.loc["post, no warm-up", "min"] - 0.2, (
    "not as on our machines: restart the kernel and run all cells"
)

# %% [markdown]
# That is the catastrophe: without a warm-up, post-norm and the bug do not learn. What happened in
# the first steps? For post-norm we measure three things, over three seeds: how much of the output
# depends on the token; how large the branches are, compared with what they are added to; and how
# much of the output of the upper half of the branches depends on the token:

# %%
def varying(x):
    """The share of some vectors that differs from their mean."""
    x = x.flatten(0, -2)
    return ((x - x.mean(dim=0)).square().sum() / x.square().sum()).item()


@torch.no_grad()
def branches(model, tokens):
    """Of the output, of the sizes of the branches, of what the upper branches return."""
    seen = []
    residuals = [m for m in model.modules() if isinstance(m, Residual)]
    parts = [p for m in model.encoder.layers for p in (m.self_attention, m.feed_forward)]
    inputs = [m.register_forward_pre_hook(lambda m, x: seen.append(x[0])) for m in residuals]
    outputs = [m.register_forward_hook(lambda m, x, f: seen.append(f)) for m in parts]
    output = states(model, tokens)[-1]
    for hook in (*inputs, *outputs):
        hook.remove()
    ratios = [(f.norm() / x.norm()).item() for x, f in zip(seen[::2], seen[1::2])]
    upper = [varying(f) for f in seen[1::2][len(ratios) // 2 :]]
    return varying(output), sum(ratios) / len(ratios), sum(upper) / len(upper)

# %% tags=["nbval-ignore-output"]
rows = []
for steps in range(4):
    found = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = Deep("post")
        fit(model, warmup=1, steps=steps)
        found.append(branches(model, torch.randint(VOCABULARY, (64, LENGTH))))
    rows.append([steps, *torch.tensor(found).mean(dim=0).tolist()])
columns = ["steps", "output that varies", "size of f(x) / size of x", "upper branches that vary"]
assert rows[3][1] < 0.02, "not as on our machines: restart the kernel and run all cells"
pd.DataFrame(rows, columns=columns).set_index("steps").round(3)

# %% [markdown]
# After a single step the upper branches return nearly the same vector for every token. A branch is,
# on average, only a third as large as what it is added to; but to make room for it, each norm
# shrinks what was there before, and with it everything that distinguishes the tokens, 32 times
# over. In five of the six runs with post-norm, and in four of the six with the bug, the same vector
# comes out whatever goes in. At this learning rate such a model does not recover in 150 steps.
# Pre-norm took steps of the same size, but on its free path nothing shrinks the input.
#
# With warm-up post-norm learns: its first steps are small. So two of the eight do not learn:
# post-norm and its double, the bug, both without warm-up. The norm on the branch (here without the
# norm at the very end that Swin v2 and OLMo 2 have) learns with warm-up and without, and is no
# better than post-norm with warm-up. Pre-norm learns either way. (Is it better off without warm-up?
# The mean loss is lower without, and so is the loss of five of the six seeds; but the difference is
# less than twice its standard error. That is not enough for such a claim.)
#
# ### From which depth on?
#
# Sixteen layers are a lot; the paper has six on each side. Here is the same training, without
# warm-up, at other depths and other rates:

# %%
depths = (2, 4, 6, 8, 12, 16)


def train_at(form, layers, rate, seed):
    torch.manual_seed(seed)
    return {"loss": fit(Deep(form, layers), warmup=1, learning_rate=rate)}


curves = {"post-norm, rate 0.001": ("post", 1e-3), "post-norm, rate 0.004": ("post", 4e-3)}
curves |= {"post-norm, rate 0.01": ("post", 1e-2), "pre-norm, rate 0.004": ("pre", 4e-3)}
depth_cases = {
    f"{name}, {n} layers": (form, n, rate) for name, (form, rate) in curves.items() for n in depths
}
by_depth = over_seeds(train_at, depth_cases, "09_depth", seeds=6)

# %%
means = by_depth.groupby("case")["loss"].agg(["mean", "min", "max"])
show(
    lines(
        {
            name: (depths, means.loc[[f"{name}, {n} layers" for n in depths], "mean"])
            for name in curves
        },
        ("layers", "loss after 150 steps (6 seeds)"),
    ),
    "Loss without warm-up over the number of layers: at a rate of 0.004 post-norm learns at few "
    "layers and not at all at sixteen, at 0.01 it fails from fewer on; pre-norm learns at all "
    "depths.",
)
means.loc[[case for case in depth_cases if "0.004" in case]].round(2)

# %% [markdown]
# At a rate of 0.004, up to six layers, post-norm does nearly as well as pre-norm, without any
# warm-up. At eight layers the result begins to depend on the seed, and at twelve the best of the
# six seeds has a loss of 2.86: the change is sudden. With a higher rate the collapse comes at fewer
# layers; with a lower one, training is slower, and nothing collapses within this range. Pre-norm
# learns at every depth, though sixteen layers do worse than two after these 150 steps. The game
# needs only a single layer, and a deep stack takes longer to train. What depth is good for shows
# only on harder tasks.
#
# The paper has both: post-norm, and a schedule that warms up for 4,000 steps (chapter 11). Combine
# post-norm with a schedule without warm-up, and from some depth on you may meet this collapse; at
# which depth it begins depends on the rate. ([Xiong et al. 2020](https://arxiv.org/abs/2002.04745)
# trained six layers on each side without a warm-up, and the translations were of little use.)
#
# ## What the final norm is for
#
# With pre-norm nothing is ever normalized on the free path. Each layer adds something, the numbers
# grow with the depth, and so do the scores that the output projection computes from them. One norm
# after the last layer brings the numbers to the same size at every depth:

# %%
rows = []
for layers in (4, 16, 64):
    sizes = []
    for final_norm in (False, True):
        torch.manual_seed(0)
        model = Deep("pre", layers, final_norm)
        with torch.no_grad():
            out = model.encoder(model.embedding(torch.randint(VOCABULARY, (64, LENGTH))), None)
        sizes.append(f"{out.square().mean().sqrt():.1f}")
    rows.append([layers, *sizes])
columns = ["layers", "pre-norm: root mean square at the top", "with a final norm"]
pd.DataFrame(rows, columns=columns).set_index("layers")

# %% [markdown]
# Does our small game need it?

# %%
ends = {"pre, with a final norm": ("pre", 1, True), "without": ("pre", 1, False)}
by_final_norm = over_seeds(train, ends, "09_final_norm", seeds=6)
assert by_final_norm["loss"].max() < 2.9, (
    "not as on our machines: restart the kernel and run all cells"
)
losses = by_final_norm[["case", "seed", "loss"]]
apart = standard_errors_apart(losses, *ends)["loss"]
print(f"with minus without, in standard errors: {apart:.1f}")
mean_and_spread(losses)

# %% [markdown]
# No: without it the mean loss is even lower, though by less than two standard errors. The final
# norm is there so that the numbers at the top have the same size at every depth; GPT-2, T5 and
# Llama have it. Post-norm ends in a norm anyway and needs no other; the forms whose free path
# reaches the end usually have one.
#
# ## A stack of 32
#
# Is post-norm hopeless at depth? [Wang et al. 2022](https://arxiv.org/abs/2203.00555) trained a
# thousand layers of it, with a warm-up and with two changes. First, each sublayer returns
# $\text{LN}(\alpha x + f(x))$ with $\alpha > 1$, so that each norm shrinks what came before less;
# they call this **DeepNorm**. Second, some matrices start out smaller, by a factor $\beta$: those
# of the feed-forward network, and in attention the projections of the values and of the output. For
# an encoder of N layers, $\alpha = (2N)^{1/4}$ and $\beta = (8N)^{-1/4}$.
#
# ### Make it train
#
# ●●● · 45 minutes · an experiment: what rescues a deep post-norm stack?
#
# Train `Deep` with 32 layers, once with DeepNorm and once with plain post-norm, for 150 steps at a
# rate of 0.004 without warm-up, with at least three seeds each. The table `runs` has the columns
# `case` (`"DeepNorm"` or `"post-norm"`), `seed` and `loss`, the mean of the last twenty steps. What
# do your numbers allow you to conclude: does DeepNorm have `"more"` loss, `"less"`, or are the two
# `"not told apart"`? (The section “Reading backwards” of chapter 2 has a rule for that.)

# %%
runs = ...  # your table
conclusion = ...  # "more", "less" or "not told apart"


check_experiment("deep_norm", runs, conclusion)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Write a class like `Residual` with α in it. In each layer of `Deep("post", 32)`, replace
# `self_attention_residual` and `feed_forward_residual` with instances of it. Under
# `torch.no_grad()`, `weight.mul_(beta)` makes a matrix smaller. The matrices are the weights of
# `feed_forward.hidden`, `feed_forward.output` and `self_attention.out_proj`, and the last third of
# the rows of `self_attention.qkv_proj`: its rows belong to the queries, the keys and the values, in
# this order.
#
# </details>

# %% [markdown]
# Is one of the two changes enough by itself? (The next cell shows one way to do the exercise, so do
# yours first.)

# %%
class Scaled(nn.Module):
    """LayerNorm(α·x + f(x))."""

    def __init__(self, alpha):
        super().__init__()
        self.alpha, self.norm = alpha, LayerNorm(D)

    def forward(self, x, sublayer):
        return self.norm(self.alpha * x + sublayer(x))


def train_scaled(alpha, beta, seed):
    torch.manual_seed(seed)
    model = Deep("post", 32)
    for layer in model.encoder.layers:
        layer.self_attention_residual, layer.feed_forward_residual = Scaled(alpha), Scaled(alpha)
        network, attention = layer.feed_forward, layer.self_attention
        smaller = [part.weight for part in (network.hidden, network.output, attention.out_proj)]
        with torch.no_grad():
            for weight in (*smaller, attention.qkv_proj.weight[-D:]):
                weight.mul_(beta)
    return {"loss": fit(model, warmup=1)}

# %%
alpha, beta = 64**0.25, 256**-0.25
changes = {"both": (alpha, beta), "α alone": (alpha, 1.0), "β alone": (1.0, beta)}
by_change = over_seeds(train_scaled, changes, "09_deep_norm")
assert by_change.groupby("case")["loss"].max()["both"] < 1.0, (
    "not as on our machines: restart the kernel and run all cells"
)
for name, (a, b) in {**changes, "neither": (1.0, 1.0)}.items():
    print(f"2β²/α², added up over 64 sublayers, {name}: {64 * 2 * b**2 / a**2:.0f}")
by_change.pivot(index="case", columns="seed", values="loss").loc[list(changes)].round(2)

# %% [markdown]
# It is not. With both changes every seed learns the game. With α alone the best seed ends at 1.6,
# with β alone at 1.7, and the others between 2.5 and 3.0, where ln 20 = 3.0 is guessing. Wang et
# al. estimate how much a training step changes the output, and arrive at the sum printed above,
# with two sublayers per layer. With both changes this sum is 1 at any depth; with one of them, or
# neither, it grows with the depth.
#
# ## Which one translates best?
#
# All this was about getting started. Once started, which form translates best? Here is the small
# Transformer of this course, with two layers on each side, after 2,000 steps with a long warm-up,
# three seeds for each form:

# %%
places = variants("post-norm", "as it is").replace("as it is", "pre-norm")
apart = standard_errors_apart(places, "post-norm", "pre-norm").round(1).to_dict()
print("post-norm minus pre-norm, in standard errors:", apart)
mean_and_spread(places)

# %% [markdown]
# By the rule of two standard errors, BLEU does not tell the two forms apart. The loss does, but not
# in the direction that you might expect: with two layers and a warm-up, the paper's post-norm is a
# little *better*. So in this setting the free path comes at a price.
#
# ## Common mistakes
#
# **The bug that looks like pre-norm.** It has been in this chapter from the beginning: `x =
# norm(x)`, and then `x + f(x)`. At sixteen layers without a warm-up it does not learn; with a
# warm-up it does, and nobody notices. An experiment from `which_form` reveals it at any depth: with
# a sublayer that returns zeros, does `x` come out as it went in?

# %%
x = 5.0 + torch.randn(1, 2, 8)
for form in FORMS:
    out = Residual(form, 8)(x, torch.zeros_like)
    print(f"{form:11} mean in {x.mean():.1f}, mean out {out.mean():.1f}")

# %% [markdown]
# **Dropout on the sum.** The paper's section 5.4 applies dropout to the sublayer's output. Applied
# to $x + f(x)$, it also drops parts of the free path, once in each sublayer, so that less and less
# of what entered the stack gets through, and hardly anything in a deep stack:

# %%
torch.manual_seed(0)
x = torch.ones(1, 1, 10_000)
for layers in (2, 12, 32):
    kept = x
    for _ in range(layers):
        kept = nn.functional.dropout(kept, 0.1)
    print(f"after {layers:2} sublayers: {(kept > 0).float().mean():.0%} of the channels are left")

# %% [markdown]
# Other mistakes with residual connections are in the [list of
# mistakes](../docs/misconceptions.md).
#
# ## Summary
#
# 1. x + f(x) leaves the gradient a path along which it is multiplied by 1.
# 2. Post-norm normalizes the sum, pre-norm the input of f; a path from bottom to top without a
#    norm exists where every norm is on the branch: before f, after it, or both.
# 3. Deep post-norm without warm-up collapses: every input gives the same output. The depth at which
#    this begins depends on the learning rate. Pre-norm never collapses here.
# 4. Adding the normalized input back looks like pre-norm and behaves like post-norm.
# 5. Pre-norm's numbers grow with the depth, and one norm at the very end corrects this. A small
#    model manages without it.
#
# Now you can do **assignment 3**, on norms and residual connections.
#
# **In the paper:** sections 3.1, 5.3 and 5.4. **Read on:** Xiong et al. 2020, “On Layer
# Normalization in the Transformer Architecture”; Liu et al. 2020, “Understanding the Difficulty of
# Training Transformers”.
#
# **Next:** [10 · The whole model](10_the_whole_model.ipynb)
