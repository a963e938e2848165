"""Thirty pairs of translations, and what a language model said that did not know whose they were.

Chapter 13 shows the pairs. Who is A and what was said stand here, so that a reader can judge
without having seen either.
"""

SENTENCES = (
    0, 30, 58, 87, 122, 154, 178, 213, 248, 289, 317, 340, 367, 401, 441,
    481, 521, 557, 595, 627, 663, 700, 734, 769, 807, 830, 856, 893, 930, 963,
)  # fmt: skip
"""Of the bundled test set: at regular distances among those that both systems translate
differently."""

RNN_IS_A = "100011110101110011100000001010"
"""Drawn by lot: 1 where A is the RNN's translation and B the Transformer's, 0 the other way."""

FIRST = "==AA====BBAB==AA==AA==AA=A===="
"""The model's verdicts: A is better, B is better, or neither."""

EXCHANGED = "==BB===AAABA==BB==BBA=BBBB===="
"""Its verdicts in a new conversation, in which each A was B and each B was A."""
