"""How long WMT14's preparation takes, and how much memory, at full size, over a bad line.

4.5 million made-up sentence pairs in archives of the official names and layout are served by a
server that breaks each download off, corrupts it and cuts it short; then all is prepared from them.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
import made_up_wmt14
from made_up_wmt14 import bad_server, served_from

from transformer_lib.data import PreparedData, make_batch, plan_batches, prepare, wmt14
from transformer_lib.data.preparation import describe
from transformer_lib.experiment.config import load_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="for archives and prepared data, about 8 GB")
    parser.add_argument("--text", type=Path, required=True, help="real text: docs/gpu.md lists it")
    arguments = parser.parse_args()
    archives = arguments.folder / "archives"
    if not archives.exists():
        # By another process: a fork begins with the memory that this one has.
        making = arguments.folder / "archives-in-the-making"
        command = [sys.executable, made_up_wmt14.__file__, arguments.text, making]
        subprocess.run(command, check=True)
        making.rename(archives)

    server = bad_server(archives)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    os.environ["TRANSFORMER_LIB_CACHE"] = str(arguments.folder / "cache")
    data = load_config("wmt14_base").data
    child = os.fork()  # a process of its own, whose memory is measured
    if child == 0:
        wmt14.TRAIN = tuple(served_from(archive, address) for archive in wmt14.TRAIN)
        wmt14.VALID = served_from(wmt14.VALID, address)
        wmt14.TEST = served_from(wmt14.TEST, address)
        print(describe(prepare(data).report), flush=True)
        os._exit(0)
    started = time.perf_counter()
    _, status, used = os.wait4(child, 0)
    seconds = time.perf_counter() - started
    if status:
        sys.exit("preparation failed")
    speed = batching_speed(prepare(data))
    print(
        json.dumps(
            {
                "cores": os.cpu_count(),
                "processor": platform.processor() or platform.machine(),
                "minutes": round(seconds / 60, 1),
                "peak_memory_gib": round(used.ru_maxrss / 2**20, 2),
                "requests": server.RequestHandlerClass.requests,
                "million_tokens_per_second_into_batches": round(speed / 1e6),
            }
        )
    )


def batching_speed(data: PreparedData, number: int = 200) -> float:
    """Source and target tokens that one core puts into batches of 25,000 in a second."""
    plan = plan_batches(data.train.src.lengths, data.train.tgt.lengths, 25_000, (1, 0))[:number]
    started = time.perf_counter()
    batches = [make_batch(data.train, indices) for indices in plan]
    seconds = time.perf_counter() - started
    return sum(batch.num_src_tokens + batch.num_tgt_tokens for batch in batches) / seconds


if __name__ == "__main__":
    main()
