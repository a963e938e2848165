"""Greedy and beam search over any model that can ``init_state`` and ``decode_step``."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer_lib.errors import UserError
from transformer_lib.model.seq2seq import Seq2Seq
from transformer_lib.vocabulary import BOS, EOS, PAD

NEVER_SAID = (PAD, BOS)
NOT_FINITE = "the model's outputs are not finite (NaN); its training has failed"


@dataclass(frozen=True)
class Hypothesis:
    """A translation without ``</s>``, its log-probability, and that divided by the penalty."""

    tokens: list[int] = field(hash=False)
    log_p: float
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """((5 + |Y|)/6)^α (Wu et al. 2016, equation 14), |Y| counted with its ``</s>``."""
    return ((5.0 + length) / 6.0) ** alpha


@torch.inference_mode()
def greedy_search(
    model: Seq2Seq, src: Int[Tensor, "batch src_len"], max_extra: int = 50
) -> list[list[int]]:
    """The likeliest token at every step, until ``</s>`` or source length + ``max_extra`` tokens.

    Works on the whole batch, with a model in evaluation mode (``model.eval()``): in training mode
    dropout would act. Finished sentences are dropped once they are a quarter of the batch,
    since dropping copies the caches of the others.

    Raises:
        ValueError: max_extra is negative.
        UserError: the model's logits are not finite.
    """
    _check_max_extra(max_extra)
    if len(src) == 0:
        return []
    limits = (src != PAD).sum(dim=1) + max_extra
    state = model.init_state(model.encode(src))
    tokens = src.new_full((len(src),), BOS)
    sentences = torch.arange(len(src), device=src.device)  # the sentence of each row
    finished = torch.zeros(len(src), dtype=torch.bool, device=src.device)
    are_finite = torch.ones((), dtype=torch.bool, device=src.device)
    outputs = src.new_full((len(src), int(limits.max())), EOS)
    for length in range(1, outputs.size(1) + 1):
        logits = model.decode_step(tokens, state)
        _forbid_never_said(logits)
        highest, tokens = logits.max(dim=-1)
        are_finite &= highest.isfinite().all()
        tokens = tokens.masked_fill(length >= limits[sentences], EOS)
        outputs[sentences, length - 1] = tokens
        finished |= tokens == EOS
        going_on = (~finished).nonzero()[:, 0]
        if len(going_on) == 0:
            break
        if len(going_on) <= 0.75 * len(tokens):
            state.select(going_on, going_on)
            tokens, sentences = tokens[going_on], sentences[going_on]
            finished = finished[going_on]
    if not are_finite:
        raise UserError(NOT_FINITE)
    return [_until_end(row) for row in outputs.tolist()]


def _until_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(EOS)] if EOS in tokens else tokens


@torch.inference_mode()
def beam_search(
    model: Seq2Seq,
    src: Int[Tensor, "batch src_len"],
    beam_size: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
) -> list[list[Hypothesis]]:
    """For each sentence its best finished hypotheses, at most ``beam_size``, the best one first.

    At every step the ``beam_size`` likeliest prefixes go on (of a model in evaluation mode). One
    that ends in ``</s>`` is finished; a sentence is done when ``beam_size`` of them are. At source
    length + ``max_extra`` tokens only ``</s>`` may follow. Finished hypotheses compare by
    log-probability / length penalty.

    Raises:
        ValueError: beam_size is below 1, or max_extra negative.
        UserError: the model's logits are not finite.
    """
    if beam_size < 1:
        raise ValueError(f"beam_size={beam_size} is below 1; choose 1 (greedy) or more")
    _check_max_extra(max_extra)
    if len(src) == 0:
        return []
    finished: list[list[Hypothesis]] = [[] for _ in range(len(src))]
    sentences = list(range(len(src)))  # those that still go on, `width` rows each
    limits = ((src != PAD).sum(dim=1) + max_extra).clamp(min=1)  # room for </s>
    state = model.init_state(model.encode(src))
    prefixes = src.new_full((len(src), 1, 1), BOS)  # (sentence, width, length)
    scores = torch.zeros(len(src), 1, device=src.device)
    are_finite = torch.ones((), dtype=torch.bool, device=src.device)
    for length in range(1, int(limits.max()) + 1):
        logits = model.decode_step(prefixes[:, :, -1].flatten(), state).unflatten(0, scores.shape)
        must_end = limits[sentences] <= length
        candidates, origins, tokens = _best_candidates(scores, logits, must_end, beam_size)
        are_finite &= ~candidates[:, 0].isnan().any()  # NaN comes first

        ended = (tokens == EOS) & (candidates > -torch.inf)
        ended_rows, ranks = ended[:, :beam_size].nonzero(as_tuple=True)
        ended_prefixes = prefixes[ended_rows, origins[ended_rows, ranks], 1:]
        totals = candidates[ended_rows, ranks].tolist()
        for row, prefix, total in zip(
            ended_rows.tolist(), ended_prefixes.tolist(), totals, strict=True
        ):
            score = total / length_penalty(length, alpha)
            finished[sentences[row]].append(Hypothesis(prefix, total, score))

        scores, kept = candidates.masked_fill(tokens == EOS, -torch.inf).topk(
            min(beam_size, candidates.size(1))
        )
        alive = scores[:, 0] > -torch.inf
        rows = [
            row
            for row, (sentence, is_alive) in enumerate(zip(sentences, alive.tolist(), strict=True))
            if is_alive and len(finished[sentence]) < beam_size
        ]
        if not rows:
            break
        going_on = torch.tensor(rows, device=src.device)
        scores = scores[going_on]
        origins, tokens = (x[going_on].gather(1, kept[going_on]) for x in (origins, tokens))
        prefixes = torch.cat([prefixes[going_on[:, None], origins], tokens[:, :, None]], dim=2)
        state.select(
            (going_on[:, None] * logits.size(1) + origins).flatten(),
            going_on if len(rows) < len(sentences) else None,
        )
        sentences = [sentences[row] for row in rows]
    if not are_finite or not all(finished):
        raise UserError(NOT_FINITE)
    return [sorted(hypotheses, key=lambda h: -h.score)[:beam_size] for hypotheses in finished]


def _best_candidates(
    scores: Float[Tensor, "sentences width"],
    logits: Float[Tensor, "sentences width vocab_size"],
    must_end: Bool[Tensor, " sentences"],
    beam_size: int,
) -> tuple[
    Float[Tensor, "sentences candidates"],
    Int[Tensor, "sentences candidates"],
    Int[Tensor, "sentences candidates"],
]:
    """Score, row of origin and token of the best continuations, the best first.

    Twice the beam, because at most half of them can be an ``</s>``.
    """
    log_p = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    _forbid_never_said(log_p)
    if must_end.any():
        end = log_p[must_end, :, EOS]
        log_p[must_end] = -torch.inf
        log_p[must_end, :, EOS] = end
    few = min(2 * beam_size, log_p.size(-1))
    of_row, tokens = log_p.topk(few)  # the best of a sentence are among the best of its rows
    continued = (of_row + scores[:, :, None]).flatten(1)
    best, index = continued.topk(min(2 * beam_size, continued.size(1)))
    return best, index // few, tokens.flatten(1).gather(1, index)


def _forbid_never_said(logits: Float[Tensor, "*rows vocab_size"]) -> None:
    for token in NEVER_SAID:
        logits[..., token] = -torch.inf


def pad_sequences(sequences: Sequence[Sequence[int]]) -> Int[Tensor, "batch length"]:
    """One row per sequence, padded at the end."""
    longest = max(len(sequence) for sequence in sequences)
    return torch.tensor([[*s, *[PAD] * (longest - len(s))] for s in sequences])


def _check_max_extra(max_extra: int) -> None:
    if max_extra < 0:
        raise ValueError(f"max_extra={max_extra} is negative; choose 0 or more")
