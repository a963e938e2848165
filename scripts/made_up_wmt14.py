"""Archives with the names, layout and sizes of WMT14's, made of other text, and a bad server.

The text is real sentences put together anew, with words that occur nowhere else (half of one word,
half of another): so cleaning and learning a vocabulary have as much to do as with the original.
"""

import argparse
import gzip
import io
import random
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tqdm import tqdm

from transformer_lib.data import wmt14
from transformer_lib.data.cleaning import Pair
from transformer_lib.data.wmt14 import Archive
from transformer_lib.files import read_lines


def made_up_pairs(pairs: Sequence[Pair], count: int, seed: int) -> Iterator[Pair]:
    """``count`` pairs of two or three sentences each; a few are empty or copies, as on the web."""
    rng = random.Random(seed)
    draw, chance = rng.random, len(pairs)
    last = pairs[0]
    for _ in range(count):
        luck = draw()
        if luck < 0.005:
            yield "", last[1]
        elif luck < 0.03:
            yield last
        else:
            drawn = [pairs[int(draw() * chance)] for _ in range(2 + int(draw() * 1.6))]
            source, target = (" ".join(side) for side in zip(*drawn, strict=True))
            if luck < 0.5:
                source, target = _with_new_word(source, draw), _with_new_word(target, draw)
            last = (source, target)
            yield last


def _with_new_word(sentence: str, draw) -> str:
    words = sentence.split(" ")
    place = int(draw() * len(words))
    front, back = words[place], words[int(draw() * len(words))]
    words[place] = front[: 1 + int(draw() * 9)] + back[int(draw() * 6) :].lower()
    return " ".join(words)


def write_archive(path: Path, archive: Archive, pairs: Sequence[Pair], seed: int) -> None:
    """An archive of that name with its two files, and others that nobody asked for."""
    sides: tuple[list[str], list[str]] = ([], [])
    made = made_up_pairs(pairs, archive.sentences, seed)
    for pair in tqdm(made, total=archive.sentences, desc=path.name, leave=False, disable=None):
        for side, text in zip(sides, pair, strict=True):
            side.append(text)
    write_texts(path, archive, sides)


def write_texts(path: Path, archive: Archive, sides: tuple[Sequence[str], Sequence[str]]) -> None:
    """The same with these sentences."""
    with (
        gzip.open(path, "wb", compresslevel=1) as stream,
        tarfile.open(fileobj=stream, mode="w|", bufsize=2**20) as tar,
    ):
        for name, side in zip((archive.source, archive.target), sides, strict=True):
            text = _sgm(side) if name.endswith(".sgm") else "".join(f"{x}\n" for x in side)
            other = name.replace("de-en", "fr-en").replace("2013", "2012")
            for member in (other, name) if other != name else (name,):
                info = tarfile.TarInfo(member)
                content = text.encode()
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def _sgm(sentences: Sequence[str]) -> str:
    escaped = (s.replace("&", "&amp;").replace("<", "&lt;") for s in sentences)
    segments = "".join(f'<seg id="{n}">{s}</seg>\n' for n, s in enumerate(escaped, start=1))
    return f'<srcset setid="made-up" srclang="any">\n<doc docid="1">\n<p>\n{segments}</p>\n</doc>\n'


class BadHandler(BaseHTTPRequestHandler):
    """Serves ``folder``, with ranges, and fails in three ways before it does it right.

    The first request for a file breaks off half-way; the second one is answered as asked, but with
    zeros in it; the third one ends too early and says that this is all.
    """

    folder: Path
    requests: dict[str, int]

    def do_GET(self) -> None:
        name = Path(self.path).name
        path = self.folder / name
        if not path.is_file():
            self.send_error(404)
            return
        number = self.requests[name] = self.requests.get(name, 0) + 1
        size = path.stat().st_size
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if number == 3:
            size = size * 2 // 3
        if start >= size:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(size - start))
        self.end_headers()
        end = (size + start) // 2 if number == 1 else size
        wrong = (size + start) // 2 if number == 2 else None
        with path.open("rb") as file:
            file.seek(start)
            while start < end and (block := file.read(min(2**20, end - start))):
                if wrong is not None and start <= wrong < start + len(block):
                    at = wrong - start
                    block = block[:at] + bytes(len(block[at : at + 64])) + block[at + 64 :]
                self.wfile.write(block)
                start += len(block)

    def log_message(self, *_) -> None:
        pass


def bad_server(folder: Path) -> ThreadingHTTPServer:
    """A server on a free port of this machine, not yet serving."""
    handler = type("Handler", (BadHandler,), {"folder": folder, "requests": {}})
    return ThreadingHTTPServer(("127.0.0.1", 0), handler)


def served_from(archive: Archive, address: str) -> Archive:
    """The same archive with its URL at this address."""
    return replace(archive, url=f"{address}/{archive.name}", checksum="")


def real_pairs(shared: Path) -> list[Pair]:
    """All sentence pairs of the folder with real text."""
    pairs = [tuple(line.split("\t")[:2]) for line in read_lines(shared / "tatoeba" / "deu.tsv.gz")]
    for english in sorted(shared.glob("*/*.en.gz")):
        german = english.with_name(english.name.replace(".en.gz", ".de.gz"))
        pairs += zip(read_lines(english), read_lines(german), strict=True)
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=Path, help="folder with tatoeba, multi30k and newstest")
    parser.add_argument("out", type=Path, help="folder for the archives")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    pairs = real_pairs(arguments.shared)
    for seed, archive in enumerate((*wmt14.TRAIN, wmt14.VALID, wmt14.TEST)):
        write_archive(arguments.out / archive.name, archive, pairs, seed)


if __name__ == "__main__":
    main()
