"""Exercises on greedy and beam search and on the key-value cache."""

from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.course.assembled import Transformer
from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.sandboxed.given import Speaker
from transformer_lib.decoding.search import length_penalty
from transformer_lib.model.masks import padding_mask
from transformer_lib.randomness import seeded
from transformer_lib.vocabulary import BOS, EOS, PAD, UNK


def _greedy_cases(random: torch.Generator) -> dict[str, Case]:
    def model(length: int, ends: bool = True) -> Speaker:
        sentence = torch.randint(4, 15, (length,), generator=random).tolist()
        noise = torch.randn(15, generator=random)
        return Speaker.saying([*sentence, EOS] if ends else sentence, noise)

    return {
        "values": Case(model(6), 20),
        "an empty translation": Case(model(0), 20),
        "a model that does not stop": Case(model(60, ends=False), 12),
        "special pieces": Case(
            Speaker.saying([5, UNK, PAD, 7, EOS], torch.randn(15, generator=random)), 20
        ),
    }


@exercise("decoding", _greedy_cases, outputs=("the translation",))
def greedy_decode(
    next_logits: Callable[[list[int]], Float[Tensor, " vocab_size"]], max_len: int
) -> list[int]:
    """The likeliest token again and again, after ``<s>`` until ``</s>`` or ``max_len`` tokens."""
    tokens = [BOS]
    for _ in range(max_len):
        token = int(next_logits(tokens).argmax())
        if token == EOS:
            break
        tokens.append(token)
    return tokens[1:]


def _penalty_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        # 5 + length is no multiple of 6: a division that rounds down shows.
        "values": Case(6 * int(torch.randint(1, 5, (), generator=random)) + 3, 0.6),
        "no penalty": Case(12, 0.0),
    }


exercise("decoding", _penalty_cases, tolerance=1e-6)(length_penalty)


def _choice_cases(random: torch.Generator) -> dict[str, Case]:
    def draw(count: int) -> tuple[Tensor, Tensor]:
        lengths = torch.randperm(2 * count, generator=random)[:count] + 3
        return lengths, torch.rand(count, generator=random)

    def any_quality(count: int, alpha: float) -> Case:
        lengths, quality = draw(count)
        return Case((-(lengths + 1) * (0.25 + quality / 2)).tolist(), lengths.tolist(), alpha)

    def close_call(count: int, alpha: float) -> Case:
        """One of middle length is best by a little; with another penalty a long or a short one."""
        lengths, quality = draw(count)
        rank = lengths.argsort().argsort()
        quality += ((rank < count // 4) | (rank >= count - count // 4)).float()
        penalty = ((5.0 + lengths) / 6.0) ** alpha
        return Case((-penalty * (2.0 + quality / 20)).tolist(), lengths.tolist(), alpha)

    return {
        "values": any_quality(8, 0.6),
        "a close call": close_call(12, 0.6),
        "another α": close_call(15, 1.5),
        "one hypothesis": any_quality(1, 0.6),
    }


@exercise("decoding", _choice_cases, outputs=("the number of the best",))
def best_hypothesis(log_p: list[float], lengths: list[int], alpha: float) -> int:
    """The number of the hypothesis with the highest log-probability / length penalty."""
    return max(range(len(log_p)), key=lambda i: log_p[i] / length_penalty(lengths[i], alpha))


def _continuation_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(hypotheses: int, vocab_size: int) -> tuple[Tensor, Tensor]:
        scores = -3 * torch.rand(hypotheses, generator=random)
        return scores, torch.randn(hypotheses, vocab_size, generator=random).log_softmax(dim=-1)

    scores, log_p = arguments(3, 9)
    return {
        "values": Case(*arguments(3, 9), 3),
        "the first step": Case(*arguments(1, 9), 4),
        "fewer pieces than hypotheses": Case(*arguments(4, 3), 4),
        "long hypotheses": Case(scores - 120.0, log_p, 3),
    }


@exercise("decoding", _continuation_cases, outputs=("scores", "hypotheses", "tokens"))
def best_continuations(
    scores: Float[Tensor, " hypotheses"],
    log_p: Float[Tensor, "hypotheses vocab_size"],
    beam_size: int,
) -> tuple[Float[Tensor, " beam"], Int[Tensor, " beam"], Int[Tensor, " beam"]]:
    """The best ``beam_size`` of all hypotheses, each with one more token; the best one first."""
    best, index = (scores[:, None] + log_p).flatten().topk(beam_size)
    return best, index // log_p.size(1), index % log_p.size(1)


def _cache_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, cached: int, new: int) -> tuple[Tensor, Tensor]:
        return (
            torch.randn(batch, 2, cached, 3, generator=random),
            torch.randn(batch, 2, new, 3, generator=random),
        )

    return {
        "values": Case(*arguments(2, 4, 1)),
        "several at once": Case(*arguments(2, 3, 3)),
        "a batch of one": Case(*arguments(1, 1, 1)),
    }


@exercise("decoding", _cache_cases)
def append_to_cache(
    cached: Float[Tensor, "batch heads length d_k"], new: Float[Tensor, "batch heads new d_k"]
) -> Float[Tensor, "batch heads all d_k"]:
    """The keys (or values) of all positions so far, the new ones last."""
    return torch.cat([cached, new], dim=2)


# ---- A whole search ----


class _Chain:
    """ln p of the next token, from the last token, the place and a little of everything before.

    Raises:
        RuntimeError: it was asked more often than any search needs.
    """

    def __init__(self, vocab_size: int, places: int, random: torch.Generator):
        self.table = 2.0 * torch.randn(places, vocab_size, vocab_size, generator=random)
        self.past = torch.randn(7, vocab_size, generator=random)
        self.calls = 0

    def __call__(self, prefixes: list[list[int]]) -> Float[Tensor, "prefixes vocab_size"]:
        self.calls += 1
        if self.calls > 200:
            raise RuntimeError("the model has been asked 200 times and is tired")
        if any(isinstance(token, list | tuple) for prefix in prefixes for token in prefix):
            raise TypeError("a prefix is a list of tokens, and there is a list in it")
        rows = [
            self.table[(len(prefix) - 1) % len(self.table), prefix[-1]] + self.past[sum(prefix) % 7]
            for prefix in prefixes
        ]
        logits = torch.stack(rows)
        logits[:, [PAD, BOS]] = -torch.inf
        return logits.log_softmax(dim=-1)


def _beam_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(_Chain(9, 12, random), 3, 0.6, 12),
        "a beam of one": Case(_Chain(8, 10, random), 1, 0.6, 10),
        "no length penalty": Case(_Chain(8, 10, random), 4, 0.0, 10),
        "a large α": Case(_Chain(8, 9, random), 8, 2.0, 9),
        "another large α": Case(_Chain(9, 9, random), 12, 1.5, 9),
        "a limit that is reached": Case(_Chain(9, 5, random), 3, 0.6, 3),
        "wider than the vocabulary": Case(_Chain(6, 5, random), 9, 1.0, 5),
        "wider than all there is": Case(_Chain(6, 3, random), 40, 1.0, 3),
    }


@exercise("decoding", _beam_cases, outputs=("the finished hypotheses",))
def beam_search(
    next_log_p: Callable[[list[list[int]]], Float[Tensor, "prefixes vocab_size"]],
    beam_size: int,
    alpha: float,
    max_len: int,
) -> list[list[int]]:
    """The finished hypotheses, the best one first, without ``<s>`` and ``</s>``."""
    beam: list[tuple[list[int], float]] = [([BOS], 0.0)]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, max_len + 1):
        log_p = next_log_p([tokens for tokens, _ in beam])
        if length == max_len:
            log_p[:, [token for token in range(log_p.size(1)) if token != EOS]] = -torch.inf
        totals = torch.tensor([total for _, total in beam])[:, None] + log_p
        best = totals.flatten().topk(min(2 * beam_size, totals.numel()))
        parents, beam = beam, []
        for rank, (total, index) in enumerate(zip(*map(Tensor.tolist, best), strict=True)):
            tokens, token = parents[index // log_p.size(1)][0], index % log_p.size(1)
            if total == -torch.inf:
                break
            if token == EOS and rank < beam_size:
                finished.append((total / length_penalty(length, alpha), tokens[1:]))
            elif token != EOS and len(beam) < beam_size:
                beam.append(([*tokens, token], total))
        if len(finished) >= beam_size or not beam:
            break
    finished.sort(key=lambda hypothesis: -hypothesis[0])
    return [tokens for _, tokens in finished[:beam_size]]


def _nucleus_cases(random: torch.Generator) -> dict[str, Case]:
    def probabilities(rows: int, vocab_size: int, sharp: float) -> Tensor:
        return (sharp * torch.randn(rows, vocab_size, generator=random)).softmax(dim=-1)

    sure = torch.full((2, 6), 0.02)
    sure[0, 4] = sure[1, 1] = 0.9
    halves = torch.tensor([[0.125, 0.5, 0.0625, 0.25, 0.0625], [0.25, 0.0625, 0.5, 0.0625, 0.125]])
    return {
        "values": Case(probabilities(3, 12, 1.5), 0.8),
        "one token is enough": Case(sure, 0.5),
        "nearly all": Case(probabilities(2, 8, 0.5), 0.999),
        "one row": Case(probabilities(1, 10, 2.0), 0.6),
        "p is reached exactly": Case(halves, 0.75),
        "equals at the border": Case(torch.tensor([[0.1, 0.2, 0.4, 0.2, 0.1]]), 0.5),
        "p is 1, and the sum a little less": Case(_rounded_down(random), 1.0),
    }


def _rounded_down(random: torch.Generator) -> Float[Tensor, "1 vocab_size"]:
    """Probabilities that add up to less than 1, for they are rounded."""
    while True:
        probabilities = (0.5 * torch.randn(1, 9, generator=random)).softmax(dim=-1)
        if probabilities.sort(dim=-1, descending=True).values.cumsum(dim=-1)[0, -1] < 1.0:
            return probabilities


def _use_nucleus(answer: Callable[[Tensor, float], Tensor]) -> Callable[[Tensor, float], Tensor]:
    """Of equally likely tokens any may be kept: what comes out is then put in order."""

    @wraps(answer)
    def use(
        probabilities: Float[Tensor, "batch vocab_size"], p: float
    ) -> Float[Tensor, "batch vocab_size"]:
        found = answer(probabilities, p)
        equals = any(len(row.unique()) < len(row) for row in probabilities)
        if not equals or not isinstance(found, Tensor):
            return found
        return found.sort(dim=-1, descending=True).values

    return use


@exercise("decoding", _nucleus_cases, tolerance=1e-5, use=_use_nucleus)
def nucleus(
    probabilities: Float[Tensor, "batch vocab_size"], p: float
) -> Float[Tensor, "batch vocab_size"]:
    """The fewest of the likeliest tokens that have p together (Holtzman et al. 2020)."""
    likeliest, tokens = probabilities.sort(dim=-1, descending=True)
    before = likeliest.cumsum(dim=-1) - likeliest
    kept = likeliest.masked_fill(before >= p, 0.0)
    kept = torch.zeros_like(probabilities).scatter(-1, tokens, kept)
    return kept / kept.sum(dim=-1, keepdim=True)


# ---- From text to text ----


def _words(text: str) -> list[str]:
    return text.split()


SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
PIECES = [  # the first merges of the bundled German text, then letters
    *SPECIAL,
    *_words("ch en er in st ▁d ich om ▁T ▁Tom ein ▁I ie ▁w ▁g ▁Ich ▁i ▁h ▁s en. as ▁ist an ▁m ir"),
    *_words(
        "▁n ▁W te au ▁ge ▁ha t. ▁D ▁b ▁ein ar icht ▁S es ▁k ▁E un ▁nicht ei ▁B zu ach ern ▁gern"
    ),
    *"!.?ABCDEFGHIJKLMNOPRSTUVWZabcdefghijklmnopqrstuvwyz▁",
]
WORDS = _words("leichtes gestritten geschnitten gescheitert verwirrten schien Schwester genau")


def _text(count: int, random: torch.Generator) -> str:
    return " ".join(WORDS[i] for i in torch.randint(len(WORDS), (count,), generator=random))


def _text_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(f"gerne {_text(3, random)}.", PIECES),
        "a word": Case(_text(1, random), PIECES),
        "unknown letters": Case(f"ich könnte ÖÄ 日本 Öl {_text(1, random)}", PIECES),
        "capital letters": Case("ICH BIN Tom", PIECES),
        "the same pair twice": Case("aaa abab", [*SPECIAL, "aa", "ba", "▁a", *"▁ab"]),
        "spaces at both ends, and two": Case("  nicht  ich ", PIECES),
        "nothing": Case("", PIECES),
        "a piece of an unknown letter": Case("xq q", [*SPECIAL, "xq", *"▁q"]),
        "a piece across a space": Case("a a b", [*SPECIAL, "a▁", *"▁ab"]),
    }


@exercise("decoding", _text_cases, outputs=("the tokens",))
def encode_text(text: str, pieces: list[str]) -> list[int]:
    """As SentencePiece cuts a text: pairs are joined in the order in which the pieces stand."""
    numbers = {piece: number for number, piece in enumerate(pieces)}
    symbols = list("▁".join(["", *text.split()]))
    while True:
        pairs = [one + other for one, other in pairwise(symbols)]
        known = [pair for pair in pairs if pair in numbers]
        if not known:
            break
        at = pairs.index(min(known, key=lambda pair: numbers[pair]))
        symbols[at : at + 2] = [pairs[at]]
    tokens = [numbers.get(symbol, UNK) for symbol in symbols]
    before = [None, *tokens]  # unknown letters side by side are one token
    return [t for t, last in zip(tokens, before, strict=False) if (t, last) != (UNK, UNK)]


def _translate_cases(random: torch.Generator) -> dict[str, Case]:
    def case(words: int, shows: str, says_unknown: bool = False) -> Case:
        while True:
            seed = int(torch.randint(1_000_000, (), generator=random))
            text = _text(words, random)
            source, model = encode_text(text, PIECES), _translator(PIECES, seed, says_unknown)
            # Most draws show nothing, and for most a search that breaks off soon tells so.
            soon = shows == "no end" or _is_shown(shows, source, model, limit=12)
            if soon and _is_shown(shows, source, model):
                return Case(text, PIECES, seed, says_unknown)

    return {
        "values": case(3, "a space in front"),
        "a word": case(1, "the source's end"),
        "another model": case(2, "the source's end"),
        "one that does not end": case(2, "no end"),
        "one that says <unk>": case(1, "<unk>", says_unknown=True),
        "another that says <unk>": case(2, "<unk>", says_unknown=True),
    }


def _is_shown(what: str, source: list[int], model: Transformer, limit: int = 50) -> bool:
    """Whether the translation is short, or has no end, and a mistake with it shows."""
    tokens = _best([*source, EOS], model, limit)
    said = _as_text(tokens, PIECES)
    if " ".join(said.split()) != said.removeprefix(" "):
        return False  # has other spaces, which may be taken away or not
    if what == "no end":
        return len(tokens) > 50
    if len(tokens) > 12:
        return False
    if what == "the source's end":
        return tokens != _best(source, model, limit)
    return UNK in tokens if what == "<unk>" else said.startswith(" ")


def _translator(pieces: list[str], seed: int, says_unknown: bool) -> Transformer:
    with seeded(seed):
        model = Transformer(len(pieces), 16, 24, 2, 1, 1.0).train()  # drops everything
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        with torch.no_grad():  # an end is likely enough at every place but the first
            end = model.embed_tokens.weight[EOS].clone()
            model.embed_tokens.weight[BOS] = -end
            model.embed_tokens.weight[PAD] = 1.1 * end  # likely, too, and never to be said
            if says_unknown:
                model.embed_tokens.weight[UNK] = 1.2 * end
            model.decoder_norm.weight.fill_(0.8)
            model.decoder_norm.bias.copy_(2.0 * end / end.square().sum())
    return model


def _use_translate(answer: Callable[..., Any]) -> Callable[..., Any]:
    def use(text: str, pieces: list[str], seed: int, says_unknown: bool) -> str:
        return answer(text, _translator(pieces, seed, says_unknown), pieces)

    return use


@exercise("decoding", _translate_cases, outputs=("the translation",), use=_use_translate)
def translate(text: str, model: Transformer, pieces: list[str]) -> str:
    """Beam search with beam 4 and α = 0.6, dropout off; the pieces of the best, as text."""
    source = [*encode_text(text, pieces), EOS]
    return _as_text(_best(source, model), pieces).strip()


def _as_text(tokens: list[int], pieces: list[str]) -> str:
    return "".join(pieces[token] for token in tokens).replace("▁", " ")


def _best(source: list[int], model: Transformer, limit: int = 50) -> list[int]:
    model.eval()
    src = torch.tensor([source])
    with torch.no_grad():
        memory = model.encode(src)

        def next_log_p(prefixes: list[list[int]]) -> Float[Tensor, "prefixes vocab_size"]:
            rows = len(prefixes)
            mask = padding_mask(src).expand(rows, -1, -1, -1)
            logits = model.decode(torch.tensor(prefixes), memory.expand(rows, -1, -1), mask)[:, -1]
            log_p = logits.log_softmax(dim=-1)
            log_p[:, [PAD, BOS]] = -torch.inf
            return log_p

        return beam_search(next_log_p, 4, 0.6, src.size(1) + limit)[0]
