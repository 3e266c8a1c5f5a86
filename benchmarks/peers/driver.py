"""How ``peers.py`` talks to an engine in a process and an environment of its own.

One JSON object per line each way. In: ``{"prompts": [[ids]], "num_output_tokens": n}``.
Out, first: ``{"engine": name, "load_s": seconds}``; then for each batch
``{"wall_s": seconds, "num_output_tokens": total}``. The end of standard input ends the process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

Generate = Callable[[list[list[int]], int], int]


def drive(load: Callable[[], tuple[str, Generate]]) -> None:
    """Load an engine and run the batches that come in, until there are no more.

    Args:
        load: Makes the engine; gives its name and a function that continues all prompts at once,
            greedily and past the end-of-sequence token, and returns how many tokens came out.
    """
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the engine prints goes to standard error
    start_s = time.perf_counter()
    engine, generate = load()
    load_s = time.perf_counter() - start_s
    generate([[5, 6, 7, 8] * 4], 8)
    print(json.dumps({"engine": engine, "load_s": round(load_s, 3)}), file=replies)
    for line in sys.stdin:
        batch = json.loads(line)
        start_s = time.perf_counter()
        num_output_tokens = generate(batch["prompts"], batch["num_output_tokens"])
        wall_s = time.perf_counter() - start_s
        reply = {"wall_s": wall_s, "num_output_tokens": num_output_tokens}
        print(json.dumps(reply), file=replies)
