"""How ``peers.py`` talks to an engine in a process and an environment of its own.

A driver is started with a model and a JSON object of options. Then one JSON object per line each
way. Out, first: ``{"engine": name, "load_s": seconds}``. In:
``{"prompts": [[ids]], "num_output_tokens": n, "is_cached": bool}``; out for each:
``{"wall_s": seconds, "num_output_tokens": total}``. The end of standard input ends the process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

Generate = Callable[[list[list[int]], int], int]
Load = Callable[[str, Mapping[str, Any]], tuple[str, Generate]]


def drive(load: Load) -> None:
    """Load an engine and run the batches that come in, until there are no more.

    Args:
        load: Makes the engine from a model and options; gives its name and a function that
            continues all prompts at once, greedily and past the end-of-sequence token, and returns
            how many tokens came out.
    """
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the engine prints goes to standard error
    start_s = time.perf_counter()
    engine, generate = load(os.path.expanduser(sys.argv[1]), json.loads(sys.argv[2]))
    load_s = time.perf_counter() - start_s
    generate([[5, 6, 7, 8] * 4], 8)
    print(json.dumps({"engine": engine, "load_s": round(load_s, 3)}), file=replies)
    for line in sys.stdin:
        batch = json.loads(line)
        if batch["is_cached"]:  # the prefix cache then has the prompts, and decoding is timed alone
            generate(batch["prompts"], 1)
        start_s = time.perf_counter()
        num_output_tokens = generate(batch["prompts"], batch["num_output_tokens"])
        wall_s = time.perf_counter() - start_s
        reply = {"wall_s": wall_s, "num_output_tokens": num_output_tokens}
        print(json.dumps(reply), file=replies)
