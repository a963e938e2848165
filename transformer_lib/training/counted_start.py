"""A start from counts: tables that know, before the first step, which words translate which.

Pieces that occur in the same sentence pairs more often than by chance have a high pointwise mutual
information, PMI(s, t) = log p(s, t) / (p(s)·p(t)). Its best factors of d_model channels, by a
truncated SVD, give rows for both tables whose products are these numbers (Levy and Goldberg 2014,
for words of one language). Cross-attention starts with the identity as W^V and W^O: so the residual
connection carries the mean of the source's rows to the output, where they make the words probable
that translate them, in no order yet.
"""

import warnings

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lib.data.store import PairStore, TokenStore
from transformer_lib.model.multi_head import MultiHeadAttention
from transformer_lib.model.transformer import Transformer
from transformer_lib.randomness import seeded

MAX_PAIRS = 200_000  # enough to know the common words
COUNTED = 0.9  # of a row's length; the rest of it stays random


def start_from_counts(model: Transformer, pairs: PairStore, seed: int) -> None:
    """Set the tables, one for each language, and the cross-attentions of a fresh ``model``."""
    width = model.config.d_model
    tables = {
        "source": model.src_embedding.embed_tokens.weight,
        "target": model.tgt_embedding.embed_tokens.weight,
        "output": model.output_weight,  # which may be the target's table
    }
    with seeded(seed), torch.no_grad():
        src_rows, tgt_rows = _factors(pairs, len(tables["output"]), width)
        # Rotated at random, or the largest factors would meet the fastest sinusoids.
        turned = torch.linalg.qr(torch.randn(width, width))[0]
        for name, table in tables.items():
            rows = (src_rows if name == "source" else tgt_rows) @ turned
            random = torch.randn(table.shape) * width**-0.5
            table.copy_(COUNTED * rows + (1.0 - COUNTED**2) ** 0.5 * random)
        for layer in model.decoder.layers:
            attention = layer.cross_attention
            assert isinstance(attention, MultiHeadAttention)
            assert isinstance(attention.out_proj, nn.Linear)
            attention.qkv_proj.weight[2 * width :] = torch.eye(width)
            attention.out_proj.weight.copy_(torch.eye(width) / len(model.decoder.layers))


def _factors(
    pairs: PairStore, vocab_size: int, width: int
) -> tuple[Float[Tensor, "vocab_size width"], Float[Tensor, "vocab_size width"]]:
    """Rows of length 1 (or 0) for each piece as source and as target."""
    information = pointwise_mutual_information(pairs, vocab_size)
    rank = min(width, vocab_size)
    left, strength, right = torch.svd_lowrank(information, q=rank, niter=2)
    sides = []
    for side in (left, right):
        rows = torch.zeros(vocab_size, width)
        rows[:, :rank] = side * strength.sqrt()
        sides.append(F.normalize(rows, dim=1))
    return sides[0], sides[1]


def pointwise_mutual_information(
    pairs: PairStore, vocab_size: int
) -> Float[Tensor, "vocab_size vocab_size"]:
    """Of each piece as source with each as target, sparse; where negative or never seen, 0.

    PMI is largest for what is rare, where it is known least: so it is multiplied by n / (n + 1),
    where n is the number of pairs with both pieces.
    """
    chosen = np.arange(0, len(pairs), -(-len(pairs) // MAX_PAIRS))  # from all parts of the text
    number = len(chosen)
    src, tgt = (_presence(side, chosen, vocab_size) for side in (pairs.src, pairs.tgt))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        together = torch.sparse.mm(src.t(), tgt).coalesce()
    s, t = together.indices()
    src_counts, tgt_counts = (side.sum(dim=0).to_dense() for side in (src, tgt))
    n = together.values()
    information = (n * number / (src_counts[s] * tgt_counts[t])).log() * n / (n + 1)
    positive = information > 0
    return _sparse(together.indices()[:, positive], information[positive], vocab_size, vocab_size)


def _presence(
    side: TokenStore, chosen: np.ndarray, vocab_size: int
) -> Float[Tensor, "pairs vocab_size"]:
    """Sparse: 1 where a piece occurs in one of the chosen sentences, however often."""
    number = len(chosen)
    sentences = np.repeat(np.arange(number), side.lengths[chosen])
    tokens = np.concatenate([side[number] for number in chosen]).astype(np.int64)
    places = np.unique(sentences * vocab_size + tokens)
    indices = torch.from_numpy(np.stack([places // vocab_size, places % vocab_size]))
    return _sparse(indices, torch.ones(len(places)), number, vocab_size)


def _sparse(indices: Tensor, values: Tensor, rows: int, columns: int) -> Tensor:
    return torch.sparse_coo_tensor(
        indices, values, (rows, columns), is_coalesced=True, check_invariants=True
    )
