"""Mistakes in the modules of which the whole model is assembled."""

import copy

import torch
from torch import nn

from transformer_lib.course.assembled import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Transformer,
    pre_norm,
)
from transformer_lib.course.misconceptions.bank import also, misconception
from transformer_lib.model.masks import causal_mask, padding_mask
from transformer_lib.model.multi_head import merge_heads, split_heads
from transformer_lib.model.scaled_dot_product import attention


@also("M89", "FeedForward")
class NoReLU(FeedForward):
    def forward(self, x):
        return self.output(self.hidden(x))


@also("M90", "FeedForward")
class ReLUAtTheEnd(FeedForward):
    def forward(self, x):
        return self.output(self.hidden(x).relu()).relu()


@also("M92", "FeedForward")
class GELU(FeedForward):
    def forward(self, x):
        return self.output(nn.functional.gelu(self.hidden(x)))


@also("M238", "FeedForward")
class WithItsResidual(FeedForward):
    def forward(self, x):
        return x + self.output(self.hidden(x).relu())


@also("M93", "FeedForward")
class WithoutBiases(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.hidden = nn.Linear(d_model, d_ff, bias=False)
        self.output = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        return self.output(self.hidden(x).relu())


def _heads(self, x, memory, mask, divisor=1.0):
    """The output of attention, not yet merged."""
    query = split_heads(self.q_proj(x), self.num_heads)
    key, value = (split_heads(part(memory), self.num_heads) for part in (self.k_proj, self.v_proj))
    return attention(query / divisor, key, value, mask)[0]


@also("M8", "MultiHeadAttention")
class NoOutputProjection(MultiHeadAttention):
    def forward(self, x, memory, mask):
        return merge_heads(_heads(self, x, memory, mask))


@also("M20", "MultiHeadAttention")
class MergedByView(MultiHeadAttention):
    def forward(self, x, memory, mask):
        return self.out_proj(_heads(self, x, memory, mask).reshape(x.shape))


@also("M38", "MultiHeadAttention")
class MaskIgnored(MultiHeadAttention):
    def forward(self, x, memory, mask):
        return super().forward(x, memory, None)


@also("M73", "MultiHeadAttention")
class SelfAttentionOnly(MultiHeadAttention):
    def forward(self, x, memory, mask):
        if x.size(1) != memory.size(1):
            mask = None  # else an error, which says it too
        return super().forward(x, x, mask)


@also("M304", "MultiHeadAttention")
class OneHead(MultiHeadAttention):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, 1)


@misconception(
    "M312",
    "EncoderLayer",
    title="post-norm where pre-norm was meant",
    source="common: the paper's text, with the weights of a program that has pre-norm",
    effect="Weights that were trained with pre-norm give nonsense, without an error.",
    hint="Your layer normalizes sums. Where does pre-norm, of chapter 9, have its norm?",
)
class PostNormLayer(EncoderLayer):
    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.self_attention(x, x, mask)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


@also("M94", "EncoderLayer")
class MaskNotHandedOn(EncoderLayer):
    def forward(self, x, mask):
        return super().forward(x, torch.ones_like(mask))


@also("M95", "EncoderLayer")
class BothReadTheInput(EncoderLayer):
    def forward(self, x, mask):
        y = self.norm1(x)
        attended = self.dropout(self.self_attention(y, y, mask))
        return x + attended + self.dropout(self.feed_forward(self.norm2(x)))


@also("M96", "EncoderLayer")
class OneNorm(EncoderLayer):
    def forward(self, x, mask):
        x = pre_norm(x, lambda y: self.self_attention(y, y, mask), self.norm1, self.dropout)
        return pre_norm(x, self.feed_forward, self.norm1, self.dropout)


@also("M9", "EncoderLayer")
class NoDropout(EncoderLayer):
    def forward(self, x, mask):
        x = x + self.self_attention(self.norm1(x), self.norm1(x), mask)
        return x + self.feed_forward(self.norm2(x))


@misconception(
    "M313",
    "EncoderLayer",
    title="only the queries are normalized",
    source="a plausible slip: attention(norm(x), x, mask)",
    effect="Keys and values grow with the depth, since pre-norm leaves the sums as they are.",
    hint="The first argument of your self-attention is normalized. And its memory?",
)
class OnlyQueriesNormalized(EncoderLayer):
    def forward(self, x, mask):
        x = pre_norm(x, lambda y: self.self_attention(y, x, mask), self.norm1, self.dropout)
        return pre_norm(x, self.feed_forward, self.norm2, self.dropout)


def _third(self, x):
    return pre_norm(x, self.feed_forward, self.norm3, self.dropout)


@also("M312", "DecoderLayer")
class PostNormDecoderLayer(DecoderLayer):
    def forward(self, x, memory, tgt_mask, memory_mask):
        x = self.norm1(x + self.dropout(self.self_attention(x, x, tgt_mask)))
        x = self.norm2(x + self.dropout(self.cross_attention(x, memory, memory_mask)))
        return self.norm3(x + self.dropout(self.feed_forward(x)))


@also("M98", "DecoderLayer")
class MasksExchanged(DecoderLayer):
    def forward(self, x, memory, tgt_mask, memory_mask):
        if x.size(1) != memory.size(1):
            tgt_mask, memory_mask = memory_mask[..., :1] | True, tgt_mask[..., :1] | True
        return super().forward(x, memory, memory_mask, tgt_mask)


@also("M100", "DecoderLayer")
class FutureSeen(DecoderLayer):
    def forward(self, x, memory, tgt_mask, memory_mask):
        return super().forward(x, memory, tgt_mask | True, memory_mask)


@also("M101", "DecoderLayer")
class CrossAttentionFirst(DecoderLayer):
    def forward(self, x, memory, tgt_mask, memory_mask):
        def look(y):
            return self.cross_attention(y, memory, memory_mask)

        x = pre_norm(x, look, self.norm1, self.dropout)
        x = pre_norm(x, lambda y: self.self_attention(y, y, tgt_mask), self.norm2, self.dropout)
        return _third(self, x)


@also("M102", "DecoderLayer")
class NoCrossAttention(DecoderLayer):
    def forward(self, x, memory, tgt_mask, memory_mask):
        x = pre_norm(x, lambda y: self.self_attention(y, y, tgt_mask), self.norm1, self.dropout)
        return _third(self, x)


@misconception(
    "M314",
    "DecoderLayer",
    title="the memory is normalized once more",
    source="a plausible slip: norm(memory) beside norm(x)",
    effect="A norm whose scale was learned for the decoder's states is applied to the encoder's.",
    hint="Your cross-attention normalizes the memory. The encoder's final norm has done that.",
)
class MemoryNormalized(DecoderLayer):
    def forward(self, x, memory, tgt_mask, memory_mask):
        return super().forward(x, self.norm2(memory), tgt_mask, memory_mask)


@also("M100", "Transformer")
class SeesTheFuture(Transformer):
    def decode(self, tgt_input, memory, memory_mask):
        x, mask = self.embed(tgt_input), causal_mask(tgt_input.size(1)) | True
        for layer in self.decoder_layers:
            x = layer(x, memory, mask, memory_mask)
        return self.decoder_norm(x) @ self.embed_tokens.weight.T


@also("M81", "Transformer")
class ReturnsProbabilities(Transformer):
    def decode(self, tgt_input, memory, memory_mask):
        return super().decode(tgt_input, memory, memory_mask).softmax(dim=-1)


@also("M162", "Transformer")
class SourceNotMasked(Transformer):
    def encode(self, src):
        x, mask = self.embed(src), padding_mask(src) | True
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return self.encoder_norm(x)


@also("M161", "Transformer")
class MemoryNotMasked(Transformer):
    def decode(self, tgt_input, memory, memory_mask):
        return super().decode(tgt_input, memory, memory_mask | True)


@misconception(
    "M315",
    "Transformer",
    title="the final norms are left out",
    source="common: pre-norm layers in a model that was written for post-norm",
    effect="Output grows with the depth, and weights that were trained with the norms do not fit.",
    hint="Your output grows with the number of layers. What does pre-norm want after the last one?",
)
class NoFinalNorms(Transformer):
    def __init__(self, *sizes):
        super().__init__(*sizes)

    def encode(self, src):
        x, mask = self.embed(src), padding_mask(src)
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return x

    def decode(self, tgt_input, memory, memory_mask):
        x, mask = self.embed(tgt_input), causal_mask(tgt_input.size(1))
        for layer in self.decoder_layers:
            x = layer(x, memory, mask, memory_mask)
        return x @ self.embed_tokens.weight.T


@misconception(
    "M835",
    "Transformer",
    title="the encoder's last norm is left out",
    source="an answer in a trial of the checks; pre-norm wants one after each stack",
    effect="The memory grows with the number of layers, and weights of others do not fit.",
    hint="What encode returns is wrong, and your decoder is right. What comes after the last "
    "encoder layer?",
)
class NoEncoderNorm(NoFinalNorms):
    decode = Transformer.decode


@misconception(
    "M836",
    "Transformer",
    title="the decoder's last norm is left out",
    source="an answer in a trial of the checks; pre-norm wants one after each stack",
    effect="The logits grow with the number of layers.",
    hint="Your memory is right, and the logits are not. What comes between the last decoder layer "
    "and the table?",
)
class NoDecoderNorm(NoFinalNorms):
    encode = Transformer.encode


@misconception(
    "M837",
    "Transformer",
    title="the memory is normed in decode, not in encode",
    source="an answer in a trial of the checks",
    effect="Forward is right; decode norms a memory of somebody else's once more.",
    hint="Together your encode and decode are right, and each alone is not. Which of the two is to "
    "apply `encoder_norm`?",
)
class MemoryNormedInDecode(NoFinalNorms):
    def decode(self, tgt_input, memory, memory_mask):
        return Transformer.decode(self, tgt_input, self.encoder_norm(memory), memory_mask)


@also("M26", "Transformer")
class EmbeddingNotScaled(Transformer):
    def embed(self, tokens):
        root = self.embed_tokens.embedding_dim**0.5
        positions = super().embed(tokens) - self.embed_tokens(tokens) * root
        return self.dropout(self.embed_tokens(tokens) + positions)


@misconception(
    "M316",
    "Transformer",
    title="the table starts at a standard deviation of 1",
    source="common: nn.Embedding as it comes",
    effect="The logits of a new model have size √d_model, and its first loss is far above ln V.",
    hint="Everything is right but the random numbers of the table at the start. How large are they "
    "in `nn.Embedding`, and how large in chapter 3?",
)
class TableTooLarge(Transformer):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        nn.init.normal_(self.embed_tokens.weight, std=1.0)


@misconception(
    "M317",
    "Transformer",
    title="no dropout on the embeddings",
    source="common: section 5.4 of the paper names two places, one is forgotten",
    effect="A little less regularization; nothing fails.",
    hint="Your layers drop, and something is left where all is dropped. What else does section 5.4 "
    "name, beside the output of each sublayer?",
)
class EmbeddingNotDropped(Transformer):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.dropout = nn.Dropout(0.0)


def _chunks(state, part):
    """An entry for each third of every fused matrix; the other entries under their new names."""
    names = {
        "encoder.layers": "encoder_layers",
        "decoder.layers": "decoder_layers",
        "encoder.final_norm": "encoder_norm",
        "decoder.final_norm": "decoder_norm",
        "self_attention_residual.norm": "norm1",
        "cross_attention_residual.norm": "norm2",
    }
    found = {"embed_tokens.weight": state["tgt_embedding.embed_tokens.weight"]}
    for name, tensor in state.items():
        if not name.startswith(("encoder.", "decoder.")):
            continue
        last = "norm2" if name.startswith("encoder") else "norm3"
        for old, new in {**names, "feed_forward_residual.norm": last}.items():
            name = name.replace(old, new)
        if "qkv_proj" in name:
            for number, which in enumerate("qkv"):
                found[name.replace("qkv", which)] = part(tensor, number)
        else:
            found[name] = tensor
    return found


@misconception(
    "M318",
    "convert",
    title="the rows of the fused matrix dealt out in turn",
    source="a plausible slip: a slice with a step of three",
    effect="Each projection is made of thirds of all three; an error only where shapes differ.",
    hint="Your matrices for queries, keys and values have each a third of all three. Do the rows "
    "of the fused one take turns, or do those of one projection follow one another?",
)
def every_third_row(state):
    return _chunks(state, lambda tensor, number: tensor[number::3])


@misconception(
    "M319",
    "convert",
    title="matrices transposed that are already right",
    source="common: code for a program that computes x @ weight",
    effect="With square matrices nothing fails, and the output is nonsense.",
    hint="Both models compute `x @ weight.T`, as `nn.Linear` does. Which of yours are transposed?",
)
def transposed(state):
    return _chunks(state, lambda tensor, number: tensor.chunk(3)[number].mT)


@misconception(
    "M320",
    "convert",
    title="queries, keys and values in another order",
    source="a plausible slip",
    effect="Queries and keys change places: every token looks the wrong way.",
    hint="Your three projections are the right ones in another order. In which order does "
    "the course's matrix hold them?",
)
def another_order(state):
    return _chunks(state, lambda tensor, number: tensor.chunk(3)[(1, 0, 2)[number]])


def _count(
    vocab_size, d_model, d_ff, num_layers, biases=1, norms=1, tables=1, cross=1, last=2, wide=False
):
    attention_layer = 4 * (d_model * d_model + biases * d_model)
    feed_forward = 2 * d_model * d_ff + biases * (d_ff + (d_ff if wide else d_model))
    layers = (2 + cross) * attention_layer + 2 * feed_forward + norms * 5 * 2 * d_model
    return tables * vocab_size * d_model + num_layers * layers + norms * last * 2 * d_model


@misconception(
    "M321",
    "count_parameters",
    title="the biases are not counted",
    source="common: formulas such as 12 d² per layer",
    effect="About a tenth of a percent too few in the base model.",
    hint="What is missing is a multiple of the width in each layer. What else does `nn.Linear` "
    "hold beside its matrix?",
)
def without_biases(vocab_size, d_model, d_ff, num_layers):
    return _count(vocab_size, d_model, d_ff, num_layers, biases=0)


@misconception(
    "M322",
    "count_parameters",
    title="the norms are not counted",
    source="common: formulas such as 12 d² per layer",
    effect="Nearly nothing; a comparison with somebody else's count fails all the same.",
    hint="What is missing is 2 · d_model for each of something. How many norms are there?",
)
def without_norms(vocab_size, d_model, d_ff, num_layers):
    return _count(vocab_size, d_model, d_ff, num_layers, norms=0)


@misconception(
    "M323",
    "count_parameters",
    title="the table counted once per use",
    source="common: tied weights forgotten",
    effect="The base model seems to have 101 million parameters instead of 63.",
    hint="Your count has a multiple of vocab_size · d_model too much. How many tables are there?",
)
def three_tables(vocab_size, d_model, d_ff, num_layers):
    return _count(vocab_size, d_model, d_ff, num_layers, tables=3)


@misconception(
    "M324",
    "count_parameters",
    title="the decoder without its cross-attention",
    source="common: twice the encoder",
    effect="The base model seems to have six million parameters too few.",
    hint="4 · d_model² and some are missing per layer. How many attentions does a decoder layer "
    "have?",
)
def no_cross_attention(vocab_size, d_model, d_ff, num_layers):
    # A layer without the attention has no norm for it either.
    whole = _count(vocab_size, d_model, d_ff, num_layers, cross=0)
    return whole - num_layers * 2 * d_model


@misconception(
    "M325",
    "count_parameters",
    title="the final norms are not counted",
    source="a plausible slip",
    effect="A thousand or two too few.",
    hint="Two norms of 2 · d_model numbers are missing. What follows the last layers?",
)
def without_final_norms(vocab_size, d_model, d_ff, num_layers):
    return _count(vocab_size, d_model, d_ff, num_layers, last=0)


@misconception(
    "M439",
    "convert",
    title="the given dictionary is emptied",
    source="a plausible slip: state.pop(name)",
    effect="A second use of the same weights finds nothing.",
    hint="Your result is right, and the dictionary that you were given has lost entries.",
)
def emptied(state):
    found = _chunks(state, lambda tensor, number: tensor.chunk(3)[number])
    state.clear()
    return found


@misconception(
    "M468",
    "FeedForward",
    title="the first bias after the maximum",
    source="an answer in a trial of the checks: max(0, x·W₁) + b₁",
    effect="The bias can no longer decide which units are on.",
    hint="Your hidden units are max(0, x·W₁) + b₁. What is the maximum taken of in the formula?",
)
class BiasAfterTheMaximum(FeedForward):
    def forward(self, x):
        hidden = (x @ self.hidden.weight.T).relu() + self.hidden.bias
        return self.output(hidden)


@misconception(
    "M469",
    "EncoderLayer",
    title="the layer's input is added twice, the attention's result never",
    source="answers in a trial of the checks: one `residual = x` for both sublayers",
    effect="What attention has found reaches the next layer only through the feed-forward network.",
    hint="Behind the feed-forward network you add the layer's input. What has x become in the "
    "meantime?",
)
class InputAddedTwice(EncoderLayer):
    def forward(self, x, mask):
        y = self.norm1(x)
        attended = x + self.dropout(self.self_attention(y, y, mask))
        return x + self.dropout(self.feed_forward(self.norm2(attended)))


@misconception(
    "M470",
    "EncoderLayer",
    title="copies of the parts are stored",
    source="The Annotated Transformer's `clones`, where the parts should be shared with the caller",
    effect="Weights that are loaded or trained in the parts do not reach the layer.",
    hint="Your layer computes the right thing with copies. Are `layer.norm1` and the norm that was "
    "handed in one and the same module?",
)
class CopiedParts(EncoderLayer):
    def __init__(self, *parts):
        super().__init__(*(copy.deepcopy(part) for part in parts))


@misconception(
    "M471",
    "DecoderLayer",
    title="the first memory is kept",
    source="an answer in a trial of the checks: a cache that nobody empties",
    effect="Every later sentence is translated from the first source.",
    hint="Called with another memory, your layer still looks at the first one.",
)
class FirstMemoryKept(DecoderLayer):
    kept = None

    def forward(self, x, memory, tgt_mask, memory_mask):
        self.kept = self.kept or (memory, memory_mask)
        return super().forward(x, self.kept[0], tgt_mask, self.kept[1])


@misconception(
    "M472",
    "Transformer",
    title="decode takes the mask of the last source",
    source="an answer in a trial of the checks: encode keeps its mask for decode",
    effect="Right after encode of the same sentences, and wrong for any other memory.",
    hint="Your decode is right straight after encode of the same source. Does it use the mask that "
    "it is given?",
)
class MaskOfTheLastSource(Transformer):
    def encode(self, src):
        self.last = padding_mask(src)
        return super().encode(src)

    def decode(self, tgt_input, memory, memory_mask):
        return super().decode(tgt_input, memory, self.last)


@misconception(
    "M473",
    "convert",
    title="the norms of a decoder layer are numbered as in the encoder",
    source="answers in a trial of the checks: the feed-forward network's norm is norm2 everywhere",
    effect="All shapes fit, and the decoder's output is nonsense.",
    hint="In your decoder norm2 and norm3 are exchanged. How many sublayers come before its "
    "feed-forward network?",
)
def norms_of_the_decoder_exchanged(state):
    found = _chunks(state, lambda tensor, number: tensor.chunk(3)[number])
    exchanged = {"norm2": "norm3", "norm3": "norm2"}

    def other(name):
        parts = name.split(".")
        if parts[0] != "decoder_layers":
            return name
        return ".".join(exchanged.get(part, part) for part in parts)

    return {other(name): tensor for name, tensor in found.items()}


@misconception(
    "M474",
    "convert",
    title="keys, values, queries",
    source="an answer in a trial of the checks: keys and values first, as they belong together",
    effect="Every projection is another one; all shapes fit.",
    hint="You cut the fused matrix into keys, values and queries. In which order are they stored?",
)
def keys_values_queries(state):
    return _chunks(state, lambda tensor, number: tensor.chunk(3)[(2, 0, 1)[number]])


@misconception(
    "M475",
    "count_parameters",
    title="a decoder layer with two norms",
    source="answers in a trial of the checks: both kinds of layers counted alike",
    effect="Too few by 2 · d_model for each decoder layer.",
    hint="You are short of 2 · d_model for each layer. How many sublayers does a decoder layer "
    "have, and how many norms?",
)
def two_norms_in_the_decoder(vocab_size, d_model, d_ff, num_layers):
    return _count(vocab_size, d_model, d_ff, num_layers) - num_layers * 2 * d_model


@misconception(
    "M517",
    "Transformer",
    title="the final norm after every layer",
    source="an answer in a trial of the checks: inside the loop over the layers",
    effect="The residual path is normalized again and again: no way around is left.",
    hint="Your final norms are inside the loops. With one layer you are right: after which of "
    "several do they stand?",
)
class FinalNormsInTheLoops(Transformer):
    def __init__(self, *sizes):
        super().__init__(*sizes)

    def encode(self, src):
        x, mask = self.embed(src), padding_mask(src)
        for layer in self.encoder_layers:
            x = self.encoder_norm(layer(x, mask))
        return x

    def decode(self, tgt_input, memory, memory_mask):
        x, mask = self.embed(tgt_input), causal_mask(tgt_input.size(1))
        for layer in self.decoder_layers:
            x = self.decoder_norm(layer(x, memory, mask, memory_mask))
        return x @ self.embed_tokens.weight.T


@misconception(
    "M533",
    "count_parameters",
    title="both biases of the feed-forward network are d_ff wide",
    source="an answer in a trial of the checks: 2 · (d_model · d_ff + d_ff)",
    effect="A few thousand too many in each layer.",
    hint="You are right where d_ff is as wide as d_model. How wide is the bias of the second of "
    "the two matrices?",
)
def two_wide_biases(vocab_size, d_model, d_ff, num_layers):
    return _count(vocab_size, d_model, d_ff, num_layers, wide=True)


@misconception(
    "M534",
    "count_parameters",
    title="the layers shared out between the stacks",
    source="an answer in a trial of the checks: num_layers // 2 for each",
    effect="Half a model.",
    hint="You count half as many layers as there are. Does `Transformer` give num_layers to both "
    "stacks together, or to each?",
)
def layers_of_both_together(vocab_size, d_model, d_ff, num_layers):
    return _count(vocab_size, d_model, d_ff, num_layers // 2)


@misconception(
    "M541",
    "MultiHeadAttention",
    title="divided by √d_k twice",
    source="an answer in a trial of the checks: before `attention`, and in it",
    effect="Weights that are too even.",
    hint="Your scores are √d_k times too small. What does `attention` do with them by itself?",
)
class ScaledTwice(MultiHeadAttention):
    def forward(self, x, memory, mask):
        root = (x.size(-1) / self.num_heads) ** 0.5
        return self.out_proj(merge_heads(_heads(self, x, memory, mask, root)))


@misconception(
    "M542",
    "MultiHeadAttention",
    title="as many heads as a head is wide",
    source="an answer in a trial of the checks: split_heads(…, d_k)",
    effect="No error, since d_k · h is h · d_k.",
    hint="You have d_k heads of width h. Which of the two does `split_heads` ask for?",
)
class AsManyHeadsAsWide(MultiHeadAttention):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, d_model // num_heads)


@also("M582", "MultiHeadAttention")
class OneMaskForAllHeads(MultiHeadAttention):
    def forward(self, x, memory, mask):
        return super().forward(x, memory, None if mask is None else mask[:, :1])


@also("M91", "FeedForward")
class ReLUInFront(FeedForward):
    def forward(self, x):
        return self.output(self.hidden(x.relu()))


@misconception(
    "M629",
    "count_parameters",
    title="attention without biases",
    source="an answer in a trial of the checks: 4 · d², as in the paper's formulas",
    effect="About 0.06 percent too few in the base model.",
    hint="What is missing is 4 · d_model for each attention. What do its four `nn.Linear` hold "
    "besides their matrices?",
)
def attention_without_biases(vocab_size, d_model, d_ff, num_layers):
    biases = num_layers * 3 * 4 * d_model
    return _count(vocab_size, d_model, d_ff, num_layers) - biases


@also("M785", "MultiHeadAttention")
class ValuesFromKeys(MultiHeadAttention):
    def forward(self, x, memory, mask):
        query, keys = self.q_proj(x), self.k_proj(memory)
        query, key, value = (
            split_heads(part, self.num_heads) for part in (query, keys, self.v_proj(keys))
        )
        return self.out_proj(merge_heads(attention(query, key, value, mask)[0]))
