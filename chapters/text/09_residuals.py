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
# $x + f(x)$ is the smallest idea in the Transformer, and without it no deep one can be trained.
# Where the norm is placed looks like a detail. It decides whether training starts at all.
# By the end you can
#
# - write the four forms that are found in practice, and say which of them is a bug,
# - predict from one picture which of them needs a warm-up,
# - say what the final norm is for, and when there must be one.
#
# Reading takes about thirty minutes, computing about one.
#
# **Predict first.** Four encoders of sixteen layers differ only in the place of the norm. Each is
# trained with a learning rate that starts low (warm-up) and with one that starts at its full
# height. Which of the eight will not learn?

# %%
import pandas as pd
import torch
from torch import nn

from transformer_lib.checks import check, solution
from transformer_lib.course.results import mean_and_spread, over_seeds
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.model import (
    BranchNorm,
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    SinusoidalPositions,
)
from transformer_lib.plots.measurements import bars, lines
from transformer_lib.plots.notebook import show
from transformer_lib.course.figures.residual_forms import ALTERNATIVE, residual_forms

# %% [markdown]
# ## Why x + f(x)
#
# A layer computes something and passes it on. Twenty layers in a row: what the first one knew
# reaches the last one only through nineteen others, and the gradient takes the same way back. A
# **residual connection** ([He et al. 2015](https://arxiv.org/abs/1512.03385)) lets a layer *add* to
# what it was given instead of replacing it. The derivative of $x + f(x)$ is $1 + f'(x)$: whatever
# $f$ does, the 1 is there.

# %%
def gradient_at_the_bottom(residual, gain, layers, d=64):
    """Norm of the gradient of one output by the input, through a stack of random layers.

    ``gain`` is how much longer a layer makes a short vector, before the tanh.
    """
    torch.manual_seed(0)
    x = torch.randn(1, d, requires_grad=True)
    y = x
    for _ in range(layers):
        f = torch.tanh(nn.functional.linear(y, torch.randn(d, d) * gain * d**-0.5))
        y = y + f if residual else f
    (gradient,) = torch.autograd.grad(y[0, 0], x)
    return gradient.norm().item()

# %%
DEPTHS = (1, 2, 4, 8, 16, 32)
arriving = {
    f"{name}, gain {gain}": (
        DEPTHS,
        [gradient_at_the_bottom(residual, gain, depth) for depth in DEPTHS],
    )
    for name, residual in {"f(x)": False, "x + f(x)": True}.items()
    for gain in (0.5, 1.0, 1.5)
}
show(
    lines(
        arriving,
        ("layers", "gradient that reaches the input"),
        logarithmic="xy",
    ),
    "Gradient that reaches the input over the number of layers, for three gains: without residual "
    "connections it vanishes, shrinks or grows, with them it hardly depends on the gain.",
)
for name, (_, values) in arriving.items():
    print(f"{name:18} after 32 layers {values[-1]:.0e}")

# %% [markdown]
# Without residual connections everything depends on the size of the weights: with a gain of one
# half nothing is left of the gradient after 32 layers, and only a gain chosen with care lets it
# through. With residual connections it arrives with all three, some times larger than at the
# beginning: what is added in each layer comes on top of the 1. (A vanishing gradient was not the
# only reason for them. He et al. found that deep plain networks *with* well chosen weights train
# worse than shallow ones, too.)
#
# ## Four places for one norm
#
# Every sublayer $f$, attention or feed-forward, is wrapped in such a connection, together with a
# layer norm. Where? The paper writes $\text{LayerNorm}(x + \text{Sublayer}(x))$; the code that came
# with it does something else; The Annotated Transformer has been asked about it in several bug
# reports. In practice one meets these:

# %%
show(residual_forms(), ALTERNATIVE)

# %% [markdown]
# - **Post-norm**, the paper's: add, then normalize the sum. Every way from the bottom to the top
#   goes through every norm.
# - **Pre-norm**, what the authors' own program and nearly all models since use: normalize what $f$
#   gets to see. The way around (green) is free: from the first layer to the last, nothing is done
#   to $x$ but adding.
# - **Norm on the branch**: normalize what $f$ has said. The way around is free as well.
# - **A bug**, found in a public project: normalize first, and then use the normalized $x$ for both
#   ways (`x = norm(x)`, then `x + f(x)`). It looks like pre-norm. The way around is not free: it
#   goes through the norm, just as in post-norm.
#
# So the answer to the bug reports: the paper's text says the first one, most code does the
# second one, both are right, and what matters is whether the green line is there.
#
# The library has the first three; the fourth one we write here:

# %%
class AddedBack(nn.Module):
    """The bug: what is added back is the normalized input."""

    def __init__(self, norm, dropout):
        super().__init__()
        self.norm = norm

    def forward(self, x, sublayer):
        x = self.norm(x)
        return x + sublayer(x)


FORMS = {"post": PostNorm, "pre": PreNorm, "branch": BranchNorm, "added back": AddedBack}
torch.manual_seed(0)
x = torch.randn(1, 2, 4)
post, pre = PostNorm(LayerNorm(4), 0.0), PreNorm(LayerNorm(4), 0.0)
torch.testing.assert_close(post(x, torch.tanh), LayerNorm(4)(x + torch.tanh(x)))
torch.testing.assert_close(pre(x, torch.tanh), x + torch.tanh(LayerNorm(4)(x)))
print("the formulas are what the library computes")

# %% [markdown]
# ## At the start
#
# A deep encoder of each kind. Its task is the game of chapter 4: say which token stood three places
# before. First, before any training: how much of what went in is still there after each layer? We
# measure the cosine between the vector of a token at the bottom and the one in its place further
# up.

# %%
VOCABULARY, LENGTH, BACK, D = 20, 12, 3, 32


class Deep(nn.Module):
    """Embedding, a deep encoder, an output projection."""

    def __init__(self, form, layers=16, final_norm=None):
        super().__init__()
        self.embedding = Embedding(VOCABULARY, D, SinusoidalPositions(D), dropout=0.0)

        def residual():
            return FORMS[form](LayerNorm(D), dropout=0.0)

        parts = [
            EncoderLayer(MultiHeadAttention(D, 2), FeedForward(D, 2 * D), residual)
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

# %%
def of_the_input(model):
    """Mean cosine between what enters the stack and what leaves each layer."""
    torch.manual_seed(1)
    xs = states(model, torch.randint(VOCABULARY, (64, LENGTH)))
    return [nn.functional.cosine_similarity(xs[0], x, dim=-1).mean().item() for x in xs]


remaining = {}
for form in FORMS:
    torch.manual_seed(0)
    remaining[form] = (range(17), of_the_input(Deep(form)))
show(
    lines(remaining, ("layers", "cosine with the input")),
    "Cosine with the input over 16 layers: with post-norm and with the bug it falls to 0.2, with "
    "pre-norm to 0.6, with the norm on the branch to 0.3.",
)
print({form: round(values[-1], 1) for form, (_, values) in remaining.items()})

# %% [markdown]
# Post-norm and the bug lie on one another, and they have nearly lost the input at the top. Each
# norm shrinks what came before to make room for what the branch has added, 32 times over. With
# pre-norm the input stays; it is only joined by more and more.
#
# And the gradient, by depth?

# %%
def gradients(form):
    """Norm of the gradient of each layer's last matrix, at the start."""
    torch.manual_seed(0)
    model = Deep(form)
    tokens = torch.randint(VOCABULARY, (64, LENGTH))
    logits = model(tokens)[:, BACK:]
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, :-BACK].flatten()).backward()
    return [layer.feed_forward.output.weight.grad.norm().item() for layer in model.encoder.layers]


show(
    lines(
        {form: (range(1, 17), gradients(form)) for form in FORMS},
        ("layer", "norm of the gradient"),
        logarithmic="y",
    ),
    "Gradient norm by layer at the start: with post-norm and the bug it rises from the bottom to "
    "the top, with pre-norm it is even, with the norm on the branch it is ten times larger.",
)

# %% [markdown]
# With post-norm the top layers get more than twice the gradient of the lower ones; with pre-norm
# all layers get about the same ([Xiong et al. 2020](https://arxiv.org/abs/2002.04745) derive it).
# That alone would not be a catastrophe. Adam evens such differences out.
#
# The norm on the branch has a large gradient for another reason: without a norm at the end its
# output grows with the depth, and so do its logits.
#
# ## Training
#
# Now the opening question. 150 steps of Adam; the learning rate is at its full height from the
# first step on, or reaches it after 75 (**warm-up**). A model that knows nothing has a loss of ln
# 20 = 3.0.

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
# It has learned nothing, and whatever goes in, the same vector comes out. Is it so for all forms,
# and was it bad luck? All eight, each from five different random weights (measured before, by
# `make results`; change `fit`, and your machine measures). Beside the loss stands the share of the
# output that still depends on the token:

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
runs = over_seeds(train, cases, "09_places_of_the_norm")
mean_and_spread(runs)

# %%
loss = runs.groupby("case")["loss"].agg(["mean", "std", "min", "max"])
rows = {name: loss.loc[[f"{form}, {name}" for form in FORMS]] for name in WARMUPS}
show(
    bars(
        {name: row["mean"] for name, row in rows.items()},
        list(FORMS),
        ("place of the norm", "loss after 150 steps (five seeds)"),
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
# That is the catastrophe. The first, too large steps have made the branches so large that the norms
# drowned out the input. Whatever goes in, the same vector comes out. Such a model cannot learn any
# more, for nothing that it sees makes a difference. Pre-norm took the same steps, and its free way
# saved it.
#
# With warm-up post-norm learns: small steps at first, until the branches know what they are there
# for. So two of the eight do not learn, post-norm without warm-up and the bug, its double, without
# warm-up. Pre-norm learns either way, and which way is better is hidden by the spread.
#
# The paper has both: post-norm, and a schedule that warms up for 4,000 steps (chapter 11). With the
# paper's norm and another schedule a deep stack can meet this collapse; at which depth, depends on
# the rate ([Xiong et al. 2020](https://arxiv.org/abs/2002.04745) saw the base model's six layers
# fail).
#
# ## What the final norm is for
#
# With pre-norm nothing is ever normalized on the free way. Each layer adds something, the numbers
# grow with the depth, and so do the scores that the output projection makes of them. One norm after
# the last layer makes them the same for every depth:

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
pd.DataFrame(rows, columns=["layers", "pre-norm, numbers at the top", "with a final norm"])

# %% [markdown]
# Does our small game need it?

# %%
runs = over_seeds(train, {"pre, without a final norm": ("pre", 1, False)}, "09_final_norm")
losses = runs["loss"]
print(f"with a final norm:    {loss['mean']['pre, no warm-up']:.2f}")
print(f"without a final norm: {losses.mean():.2f} ± {losses.std():.2f}")
assert losses.max() < 2.9, "not as on our machines: restart the kernel and run all cells"

# %% [markdown]
# No: without it the mean is even lower, by less than the seeds differ. The final norm is there so
# that the numbers do not grow with the depth, and all known pre-norm models have it. Post-norm ends
# in a norm anyway and needs no other.
#
# ## And in the end?
#
# All this was about getting started. Which form translates best once it has? The small Transformer
# of this course, two layers each, 2,500 steps with a long warm-up
# (`transformer-lib train course_transformer --set training.steps=2500 --set model.norm=post`), once
# each, BLEU on the test set with all references:
#
# | place of the norm | BLEU |
# |---|---|
# | post | 49.4 |
# | pre | 49.8 |
# | branch | 42.6 |
#
# With two layers and a warm-up, post-norm and pre-norm are equally good: the place of the norm
# decides whether a *deep* model gets started, not what it can do. The norm on the branch lags
# behind after equal training, with no norm at its end and a learning rate that was chosen for
# pre-norm. One run each: differences below a point mean nothing.
#
# ## Common mistakes
#
# They all have the right shape. What `check` knows:

# %%
for exercise in ("post_norm", "pre_norm", "branch_norm"):
    for mistake in wrong_answers(exercise):
        print(f"{exercise:12}{mistake.id:5}{mistake.title}")

# %% [markdown]
# ## Your turn
#
# What passes its `check` is kept in `my_transformer.py` beside this notebook. After a first try,
# `solution("post_norm")` in a cell of its own shows one way.
#
# In each exercise `sublayer`, `norm` and `dropout` are functions of one tensor. Dropout is applied
# to the output of the sublayer (section 5.4).
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
#
# ### Pre-norm
#
# ●○○ · 5 minutes · the sublayer of most models since
#
# The norm before the sublayer; nothing comes after the residual connection.

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
#
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
# The way around the branch is free.
#
# </details>
#
# ## Summary
#
# 1. x + f(x) leaves the gradient a way on which nothing is multiplied.
# 2. Post-norm normalizes the sum, pre-norm what f gets to see; a way from bottom to top without a
#    norm exists only with pre-norm and with the norm on the branch.
# 3. Deep post-norm without warm-up collapses: every input gives the same output. Pre-norm does not.
# 4. Adding the normalized input back looks like pre-norm and behaves like post-norm.
# 5. Pre-norm wants one more norm at the very end, for its numbers grow with the depth.
#
# **In the paper:** sections 3.1, 5.3 and 5.4. **Read on:** Xiong et al. 2020, “On Layer
# Normalization in the Transformer Architecture”; Liu et al. 2020, “Understanding the Difficulty of
# Training Transformers”.
#
# **Next:** [10 · The whole model](10_the_whole_model.ipynb)
