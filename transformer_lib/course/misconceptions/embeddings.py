"""Mistakes in embeddings and in the output projection that shares their table (section 3.4)."""

import math

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.model.positional_encoding import sinusoidal_positions


@misconception(
    "M10",
    "embed",
    title="divided by √d_model",
    source="the illustrated doc, whose comment says “divide” above code that multiplies",
    effect="At d_model = 512 an embedding is 512 times smaller than it should be, and positions "
    "swamp it.",
    hint="Your embeddings are far too small. Should a tied table, whose numbers are about "
    "1/√d_model, be made larger or smaller?",
)
def divided(tokens, table):
    return table[tokens] / math.sqrt(table.size(1))


@misconception(
    "M26",
    "embed",
    title="not scaled by √d_model",
    source="common",
    effect="At d_model = 512 embeddings have the size 0.04 beside positions of size 0.7.",
    hint="You look the right rows up. What does section 3.4 of the paper do with them?",
)
def unscaled_embedding(tokens, table):
    return table[tokens]


@misconception(
    "M164",
    "output_logits",
    title="logits with a scale of their own",
    source="a plausible slip: the embedding's factor √d_model for the output projection too",
    effect="At d_model = 512 logits are 23 times too large, and the first loss with them.",
    hint="Your logits are too large, the more so the wider the model. Which use of the shared "
    "table does section 3.4 scale?",
)
def logits_with_a_scale_of_their_own(states, table):
    return states @ table.T * math.sqrt(table.size(1))


@misconception(
    "M79",
    "embed",
    title="multiplied by d_model instead of its root",
    source="a plausible slip",
    effect="At d_model = 512 embeddings are 22 times too large, and positions are lost in them.",
    hint="Your embeddings are too large. Which function of d_model does section 3.4 multiply by?",
)
def scaled_by_d_model(tokens, table):
    return table[tokens] * table.size(1)


@misconception(
    "M80",
    "embed",
    title="scaled by the size of the vocabulary",
    source="a plausible slip: the wrong one of the table's two sizes",
    effect="The factor changes with the tokenizer.",
    hint="Your factor depends on the number of rows in the table. Which of its two sizes is "
    "d_model?",
)
def scaled_by_vocabulary(tokens, table):
    return table[tokens] * math.sqrt(table.size(0))


@misconception(
    "M81",
    "output_logits",
    title="probabilities for logits",
    source="common: a softmax at the end of the model, and another one in the loss",
    effect="The loss cannot fall below ln(1 + (V−1)/e), and gradients are tiny.",
    hint="Your numbers add up to 1. Does the loss that comes after them expect that?",
)
def probabilities(states, table):
    return (states @ table.T).softmax(dim=-1)


@misconception(
    "M82",
    "embed_with_positions",
    title="positions scaled like the embeddings",
    source="common: (embedding + position)·√d_model",
    effect="Positions of size √d_model·0.7 swamp the embeddings.",
    hint="Your positions are too large. What is multiplied by √d_model: the token alone, or the "
    "sum?",
)
def positions_scaled_too(tokens, table, positions, dropout):
    x = (table[tokens] + positions[: tokens.size(1)]) * math.sqrt(table.size(1))
    return dropout(x)


@misconception(
    "M83",
    "embed_with_positions",
    title="dropout before the positions",
    source="a plausible slip",
    effect="Positions are never dropped; section 5.4 drops the sums.",
    hint="Some channels of yours hold the position and nothing else. To what does the paper apply "
    "dropout?",
)
def dropout_before_positions(tokens, table, positions, dropout):
    return dropout(table[tokens] * math.sqrt(table.size(1))) + positions[: tokens.size(1)]


@misconception(
    "M84",
    "embed_with_positions",
    title="positions along the batch",
    source="common where code for (length, batch) meets data in (batch, length)",
    effect="All tokens of a sentence get the same position: its number in the batch.",
    hint="All tokens of a sentence get the same position in your code. Which axis of the tokens "
    "counts positions?",
)
def positions_along_the_batch(tokens, table, positions, dropout):
    x = table[tokens] * math.sqrt(table.size(1))
    return dropout(x + positions[: tokens.size(0), None])


@also("M26", "embed_with_positions")
def unscaled_with_positions(tokens, table, positions, dropout):
    return dropout(table[tokens] + positions[: tokens.size(1)])


@also("M10", "embed_with_positions")
def divided_with_positions(tokens, table, positions, dropout):
    return dropout(table[tokens] / math.sqrt(table.size(1)) + positions[: tokens.size(1)])


@misconception(
    "M226",
    "embed_with_positions",
    title="the position looked up by the token",
    source="an answer in a trial of the checks: positions[tokens]",
    effect="Every occurrence of a word gets the same vector, so the model has no positions at all.",
    hint="The same word gets the same position wherever it stands. With what do you index the "
    "table of positions?",
)
def position_of_the_token(tokens, table, positions, dropout):
    x = table[tokens] * math.sqrt(table.size(1))
    return dropout(x + positions[tokens % len(positions)])


@misconception(
    "M249",
    "embed_with_positions",
    title="dropout on each part of the sum",
    source="a plausible slip",
    effect="A channel loses its word or its position, seldom both: not the dropout of the paper.",
    hint="Your dropout sees words and positions apart. To what does section 5.4 apply it?",
)
def dropout_on_each(tokens, table, positions, dropout):
    x = table[tokens] * math.sqrt(table.size(1))
    return dropout(x) + dropout(positions[: tokens.size(1)].expand_as(x))


@misconception(
    "M296",
    "embed",
    title="the paper's width written into the code",
    source="a model in a student's role: √512, whatever the table",
    effect="Right for the base model, and wrong for every other width.",
    hint="Your factor is √512 for every table. How wide is this one?",
)
def scaled_for_the_base_model(tokens, table):
    return table[tokens] * math.sqrt(512)


@misconception(
    "M295",
    "embed_with_positions",
    title="a table of positions of one's own",
    source="a model in a student's role: the sinusoids computed anew, `positions` not used",
    effect="Learned positions are never used, and get no gradient.",
    hint="`positions` does not influence your result. Which rows of it belong to the sentence?",
)
def own_table_of_positions(tokens, table, positions, dropout):
    own = sinusoidal_positions(tokens.size(1), table.size(1))
    return dropout(table[tokens] * math.sqrt(table.size(1)) + own)


@misconception(
    "M831",
    "embed_with_positions",
    title="the last rows of the table instead of the first",
    source="an answer in a trial of the checks: positions[-length:]",
    effect="The first token's position depends on how long the table is.",
    hint="Your positions are those at the end of the table. Which row belongs to the first token?",
)
def last_rows(tokens, table, positions, dropout):
    x = table[tokens] * math.sqrt(table.size(1))
    return dropout(x + positions[-tokens.size(1) :])
