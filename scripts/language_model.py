"""Train the small language model that comes with the course, and store it: ``make trained``."""

import math
import random
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import trange

from transformer_lib.course import trained
from transformer_lib.course.assembled import LanguageModel
from transformer_lib.course.checks.topics.language_models import blocks
from transformer_lib.course.trained import LANGUAGE_MODEL, load_trained
from transformer_lib.data.config import DataConfig
from transformer_lib.data.preparation import single_sentences
from transformer_lib.training.checkpoint import save_model
from transformer_lib.vocabulary import EOS

STEPS, WARMUP, PEAK = 4000, 300, 3e-3
BATCH, LENGTH, DROPOUT = 16, 64, 0.1


def text() -> Tensor:
    """The English and the German sentences of the training set, each once, mixed."""
    tokenizer = load_trained("transformer").tokenizer
    sentences, _ = single_sentences(DataConfig())
    random.Random(0).shuffle(sentences)
    rows = tokenizer.encode(sentences)
    return torch.tensor([EOS, *(token for row in rows for token in (*row, EOS))])


def main() -> None:
    torch.manual_seed(0)
    inputs, labels = blocks(text(), LENGTH)
    model = LanguageModel(*LANGUAGE_MODEL, dropout=DROPOUT)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    order = torch.randperm(len(inputs)).split(BATCH)
    steps = trange(1, STEPS + 1)
    for step in steps:
        batch = order[step % len(order)]  # of each order the first one comes last
        if step % len(order) == 0:
            order = torch.randperm(len(inputs)).split(BATCH)
        optimizer.param_groups[0]["lr"] = PEAK * min(
            step / WARMUP, (1 + math.cos(math.pi * step / STEPS)) / 2
        )
        logits = model(inputs[batch]).flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, labels[batch].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            steps.set_description(f"loss {loss.item():.3f}")
    folder = Path(trained.__file__).parent / "language_model"
    folder.mkdir(exist_ok=True)
    weights = {name: p.detach().half() for name, p in model.named_parameters()}
    save_model(folder / "model.safetensors", weights)
    print(f"{folder}: {sum(f.stat().st_size for f in folder.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
