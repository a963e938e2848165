"""Mistakes in putting the whole model together. The right answer is beside the exercise."""

from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.model.masks import causal_mask, padding_mask


def _encode(x, layers, mask):
    for layer in layers:
        x = layer(x, mask)
    return x


def _decode(x, layers, memory, tgt_mask, src_mask):
    for layer in layers:
        x = layer(x, memory, tgt_mask, src_mask)
    return x


@misconception(
    "M156",
    "transformer",
    title="decoder layer n looks at encoder layer n",
    source="common: figures that draw arrows between layers of the same height",
    effect="The lower decoder layers see sources that are not yet read to the end.",
    hint="With one layer your model is right, with more it is not. Which layer's output is the "
    "memory?",
)
def layers_side_by_side(src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w):
    src_mask, tgt_mask = padding_mask(src), causal_mask(tgt_input.size(1))
    memory, x = src_embed(src), tgt_embed(tgt_input)
    for encoder_layer, decoder_layer in zip(encoder_layers, decoder_layers, strict=True):
        memory = encoder_layer(memory, src_mask)
        x = decoder_layer(x, memory, tgt_mask, src_mask)
    return x @ w.T


@misconception(
    "M157",
    "transformer",
    title="every layer reads the embeddings",
    source="a plausible slip: the loop's result is not fed back",
    effect="Only the last layer of each stack has any influence.",
    hint="With one layer your model is right. With more, what does the second layer read?",
)
def layers_not_chained(src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w):
    src_mask, tgt_mask = padding_mask(src), causal_mask(tgt_input.size(1))
    memory = _encode(src_embed(src), encoder_layers[-1:], src_mask)
    return _decode(tgt_embed(tgt_input), decoder_layers[-1:], memory, tgt_mask, src_mask) @ w.T


@misconception(
    "M158",
    "transformer",
    title="one layer, used again and again",
    source="a plausible slip: [layer] * N instead of N layers",
    effect="All layers share their weights: the model has a fraction of its parameters.",
    hint="With one layer your model is right. With more, are they all used?",
)
def first_layer_repeated(src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w):
    src_mask, tgt_mask = padding_mask(src), causal_mask(tgt_input.size(1))
    memory = _encode(src_embed(src), encoder_layers[:1] * len(encoder_layers), src_mask)
    layers = decoder_layers[:1] * len(decoder_layers)
    return _decode(tgt_embed(tgt_input), layers, memory, tgt_mask, src_mask) @ w.T


@misconception(
    "M159",
    "transformer",
    title="the embeddings are the memory",
    source="a plausible slip: the encoder's result is thrown away",
    effect="The decoder sees words without their context.",
    hint="The encoder's layers have no influence on your result. What does the decoder look at?",
)
def encoder_skipped(src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w):
    src_mask, tgt_mask = padding_mask(src), causal_mask(tgt_input.size(1))
    return _decode(tgt_embed(tgt_input), decoder_layers, src_embed(src), tgt_mask, src_mask) @ w.T


@misconception(
    "M160",
    "transformer",
    title="the target goes through the source's embedding",
    source="a plausible slip: one name for both",
    effect="Nothing fails while the vocabularies are equally large.",
    hint="One of the two embeddings has no influence on your result. Which?",
)
def one_embedding(src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w):
    src_mask, tgt_mask = padding_mask(src), causal_mask(tgt_input.size(1))
    memory = _encode(src_embed(src), encoder_layers, src_mask)
    return _decode(src_embed(tgt_input), decoder_layers, memory, tgt_mask, src_mask) @ w.T


@also("M81", "transformer")
def probabilities(src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w):
    src_mask, tgt_mask = padding_mask(src), causal_mask(tgt_input.size(1))
    memory = _encode(src_embed(src), encoder_layers, src_mask)
    x = _decode(tgt_embed(tgt_input), decoder_layers, memory, tgt_mask, src_mask)
    return (x @ w.T).softmax(dim=-1)


@also("M100", "transformer")
def future_seen(src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w):
    src_mask, tgt_mask = padding_mask(src), causal_mask(tgt_input.size(1)) | True
    memory = _encode(src_embed(src), encoder_layers, src_mask)
    return _decode(tgt_embed(tgt_input), decoder_layers, memory, tgt_mask, src_mask) @ w.T


@misconception(
    "M161",
    "transformer",
    title="padding is masked in the encoder only",
    source="common: the memory's mask is forgotten in cross-attention",
    effect="A sentence's translation depends on how far its neighbors in the batch are padded.",
    hint="Your result is right without padding. Where is the source's mask needed a second time?",
)
def memory_not_masked(src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w):
    src_mask, tgt_mask = padding_mask(src), causal_mask(tgt_input.size(1))
    memory = _encode(src_embed(src), encoder_layers, src_mask)
    return _decode(tgt_embed(tgt_input), decoder_layers, memory, tgt_mask, src_mask | True) @ w.T


@misconception(
    "M162",
    "transformer",
    title="padding is masked in the decoder only",
    source="a plausible slip",
    effect="A sentence's memory depends on how far its neighbors in the batch are padded.",
    hint="Your result is right without padding. Does the encoder know which positions are padding?",
)
def source_not_masked(src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w):
    src_mask, tgt_mask = padding_mask(src), causal_mask(tgt_input.size(1))
    memory = _encode(src_embed(src), encoder_layers, src_mask | True)
    return _decode(tgt_embed(tgt_input), decoder_layers, memory, tgt_mask, src_mask) @ w.T


@misconception(
    "M240",
    "transformer",
    title="the memory's mask is made from the target",
    source="common: one padding mask for the whole decoder",
    effect="An error where source and target differ in length, else wrong keys are hidden.",
    hint="Cross-attention looks at the source. Of which tokens does your mask for it tell?",
)
def memory_mask_of_the_target(
    src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w
):
    tgt_mask = padding_mask(tgt_input) & causal_mask(tgt_input.size(1))
    memory = _encode(src_embed(src), encoder_layers, padding_mask(src))
    mask = padding_mask(tgt_input)
    return _decode(tgt_embed(tgt_input), decoder_layers, memory, tgt_mask, mask) @ w.T


@misconception(
    "M163",
    "transformer",
    title="logits of the last position only",
    source="code for decoding used for training",
    effect="Training has one label a sentence instead of one a token.",
    hint="Your result lacks an axis. For which positions does teacher forcing need logits?",
)
def last_position_only(src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w):
    src_mask, tgt_mask = padding_mask(src), causal_mask(tgt_input.size(1))
    memory = _encode(src_embed(src), encoder_layers, src_mask)
    return _decode(tgt_embed(tgt_input), decoder_layers, memory, tgt_mask, src_mask)[:, -1] @ w.T


@also("M14", "transformer")
def both_masks_turned_round(
    src, tgt_input, src_embed, tgt_embed, encoder_layers, decoder_layers, w
):
    src_mask, tgt_mask = ~padding_mask(src), ~causal_mask(tgt_input.size(1))
    memory = _encode(src_embed(src), encoder_layers, src_mask)
    return _decode(tgt_embed(tgt_input), decoder_layers, memory, tgt_mask, src_mask) @ w.T
