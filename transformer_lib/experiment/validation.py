"""What a run measures of its model while it trains: loss per token and greedy BLEU."""

from collections.abc import Sequence

import torch

from transformer_lib.data.batching import Batch, shift_right
from transformer_lib.data.preparation import PreparedData
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.decoding.translation import DecodingConfig, translate
from transformer_lib.device import autocast, choose_dtype
from transformer_lib.metrics.bleu import bleu
from transformer_lib.model.seq2seq import Seq2Seq, evaluating
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.loss import output_loss
from transformer_lib.vocabulary import EOS

BATCH = 50  # sentences


def validate(model: Seq2Seq, data: PreparedData, config: TrainingConfig) -> dict[str, float]:
    """``loss``, the mean −log p of a target token in nats, and ``bleu``, of greedy translations.

    Both are of the first ``config.validation_sentences`` of the validation set.
    """
    count = min(config.validation_sentences, len(data.valid))
    sources = data.valid.sources[:count]
    references = data.valid.references[:count]
    hypotheses = translate(model, data.tokenizer, sources, DecodingConfig(beam_size=1))
    loss = reference_loss(model, data, config, sources, [several[0] for several in references])
    return {"loss": loss, "bleu": bleu(hypotheses, references).score}


@torch.no_grad()
def reference_loss(
    model: Seq2Seq,
    data: PreparedData,
    config: TrainingConfig,
    sources: Sequence[str],
    targets: Sequence[str],
) -> float:
    """The mean −log p, in nats, of the targets' tokens, given the sources and the tokens before."""
    device = model.output_weight.device
    dtype = choose_dtype(device, config.precision)
    encode = data.tokenizer.encode
    total, tokens = 0.0, 0
    for start in range(0, len(sources), BATCH):
        src, labels = (
            pad_sequences([[*sentence, EOS] for sentence in encode(side[start : start + BATCH])])
            for side in (sources, targets)
        )
        batch = Batch(src, shift_right(labels), labels).to(device)
        with evaluating(model), autocast(device, dtype):
            states = model.decode(batch.tgt_input, model.encode(batch.src))
            loss = output_loss(states, model.output_weight, batch.labels)
        total, tokens = total + loss.nll.item(), tokens + loss.tokens
    return total / tokens
