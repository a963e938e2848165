"""How well the leaderboard's entries translate what their training text has already said.

Only English sentences are held out for the test. Where the reference is in the training text all
the same, as the translation of another English sentence, an entry may have learned it, or find it.
"""

from itertools import compress
from pathlib import Path
from statistics import fmean

from transformer_lib.data.config import DataConfig
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.preparation import training_pairs
from transformer_lib.files import read_lines
from transformer_lib.metrics.bleu import bleu

TRACK = Path(__file__).parent.parent / "leaderboard" / "tatoeba-3min"


def main() -> None:
    known = {german for _, german in training_pairs(DataConfig())}
    references = [german[0] for german in load_corpus(DataConfig()).test.references]
    parts = {
        "in the training text": [reference in known for reference in references],
        "not in it": [reference not in known for reference in references],
    }
    for name, chosen in parts.items():
        print(f"{sum(chosen)} of {len(references):,} references are {name}")
    for folder in sorted(path for path in TRACK.iterdir() if path.is_dir()):
        seeds = [list(read_lines(path)) for path in sorted((folder / "outputs").iterdir())]
        for name, chosen in parts.items():
            right = [[reference] for reference in compress(references, chosen)]
            scores = [bleu(list(compress(texts, chosen)), right).score for texts in seeds]
            print(f"{folder.name:10} {name:21} BLEU {fmean(scores):.1f}", end="  ")
            print(*(f"{score:.1f}" for score in scores))


if __name__ == "__main__":
    main()
