"""How long WMT14's preparation takes, and how much memory, at full size, over a bad line.

4.5 million made-up sentence pairs in archives of the official names and layout are served by a
server that breaks each download off, corrupts it and cuts it short; then all is prepared from them.
"""

import argparse
import json
import os
import platform
import resource
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from made_up_wmt14 import bad_server, real_pairs, served_from, write_archive

from transformer_lib.data import prepare, wmt14
from transformer_lib.data.preparation import describe
from transformer_lib.experiment.config import load_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="for archives and prepared data, about 8 GB")
    parser.add_argument("--text", type=Path, default=Path("../shared/data"), help="real text")
    arguments = parser.parse_args()
    archives = arguments.folder / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    pairs = real_pairs(arguments.text)
    for seed, archive in enumerate((*wmt14.TRAIN, wmt14.VALID, wmt14.TEST)):
        if not (archives / archive.name).exists():
            write_archive(archives / archive.name, archive, pairs, seed)
    del pairs

    server = bad_server(archives)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    child = os.fork()  # a process of its own, whose memory is measured
    if child == 0:
        wmt14.TRAIN = tuple(served_from(archive, address) for archive in wmt14.TRAIN)
        wmt14.VALID = served_from(wmt14.VALID, address)
        wmt14.TEST = served_from(wmt14.TEST, address)
        os.environ["TRANSFORMER_LIB_CACHE"] = str(arguments.folder / "cache")
        prepared = prepare(load_config("wmt14_base").data)
        print(describe(prepared.report), flush=True)
        os._exit(0)
    started = time.perf_counter()
    _, status = os.waitpid(child, 0)
    seconds = time.perf_counter() - started
    if status:
        sys.exit("preparation failed")
    print(
        json.dumps(
            {
                "cores": os.cpu_count(),
                "processor": platform.processor() or platform.machine(),
                "minutes": round(seconds / 60, 1),
                "peak_memory_gib": round(
                    resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20, 2
                ),
                "requests": server.RequestHandlerClass.requests,
            }
        )
    )


if __name__ == "__main__":
    main()
