"""The models that the benchmark compares with: torch.nn.Transformer, and Hugging Face's Marian.

Both have the sizes of the course's model, tied embeddings and post-norm. Marian can take over the
course's weights, so that both decode the same translations.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationConfig, MarianMTModel

from transformer_lib.data import Batch
from transformer_lib.model import TransformerConfig, sinusoidal_positions
from transformer_lib.model.masks import causal_mask
from transformer_lib.vocabulary import BOS, EOS, PAD


class TorchModel(nn.Module):
    """What one builds around ``torch.nn.Transformer``: embeddings, positions, output projection.

    Args:
        attention_dropout: ``nn.Transformer`` also drops attention weights; neither the paper nor
            the other two models do. ``False`` switches that off.
    """

    def __init__(self, config: TransformerConfig, vocab_size: int, attention_dropout: bool = True):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.scale = math.sqrt(config.d_model)
        self.register_buffer("positions", sinusoidal_positions(512, config.d_model))
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_encoder_layers,
            config.num_decoder_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        if not attention_dropout:
            for module in self.modules():
                if isinstance(module, nn.MultiheadAttention):
                    module.dropout = 0.0

    def forward(self, batch: Batch) -> Tensor:
        """Logits of each next token."""
        padding = batch.src == PAD
        states = self.transformer(
            self._embed(batch.src),
            self._embed(batch.tgt_input),
            tgt_mask=~causal_mask(batch.tgt_input.size(1), batch.src.device)[0, 0],
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.linear(states, self.embedding.weight)

    def _embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * self.scale + self.positions[: tokens.size(1)])


class MarianModel(nn.Module):
    """A ``MarianMTModel`` that takes our batches."""

    def __init__(self, marian: MarianMTModel):
        super().__init__()
        self.marian = marian

    def forward(self, batch: Batch) -> Tensor:
        """Logits of each next token."""
        return self.marian(
            input_ids=batch.src,
            attention_mask=batch.src != PAD,
            decoder_input_ids=batch.tgt_input,
            use_cache=False,
        ).logits

    @torch.inference_mode()
    def translate(self, src: Tensor, beam_size: int, max_extra: int) -> list[list[int]]:
        """Its own ``generate``, cached as it is by default."""
        output = self.marian.generate(
            src,
            attention_mask=src != PAD,
            generation_config=GenerationConfig(
                num_beams=beam_size,
                length_penalty=0.6 if beam_size > 1 else 1.0,
                early_stopping=beam_size > 1,
                max_new_tokens=src.size(1) + max_extra,
                do_sample=False,
                pad_token_id=PAD,
                bos_token_id=BOS,
                eos_token_id=EOS,
                decoder_start_token_id=BOS,
                bad_words_ids=[[PAD], [BOS]],
            ),
        )
        rows = [row[1:] for row in output.tolist()]
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]
