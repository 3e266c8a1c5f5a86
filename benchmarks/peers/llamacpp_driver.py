"""llama.cpp's server, for ``peers.py``; runs in its own environment with the xllamacpp package.

The server is the only door of llama.cpp that batches continuously; requests go to it over HTTP, one
connection each. The model is a .gguf file. Options: ``slots`` (requests at once), ``context``
(tokens in all slots together), and ``prefix_caching``, off if not given.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import xllamacpp
from driver import Generate, drive

NUM_SLOTS, CONTEXT_TOKENS = 64, 16_384
PORT = 8491


def load(model: str, options: Mapping[str, Any]) -> tuple[str, Generate]:
    """Start the server in this process, on all CPUs that it may use."""
    num_threads = len(os.sched_getaffinity(0))
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_parallel = options.get("slots", NUM_SLOTS)
    params.n_ctx = options.get("context", CONTEXT_TOKENS)
    params.kv_unified = True
    params.cpuparams.n_threads = num_threads
    params.cpuparams_batch.n_threads = num_threads
    params.n_batch, params.n_ubatch = 2048, 512
    params.port = PORT
    server = xllamacpp.Server(params)
    is_cached = options.get("prefix_caching", False)

    def complete(prompt: list[int], num_output_tokens: int) -> int:
        body = {
            "prompt": prompt,
            "max_tokens": num_output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": is_cached,
        }
        # Asked for its address each time: the server lives as long as somebody holds it.
        address = urlsplit(server.listening_address)
        connection = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return int(answer["usage"]["completion_tokens"])

    def generate(prompts: list[list[int]], num_output_tokens: int) -> int:
        with ThreadPoolExecutor(len(prompts)) as pool:
            return sum(pool.map(complete, prompts, [num_output_tokens] * len(prompts)))

    return f"llama.cpp (xllamacpp {version('xllamacpp')})", generate


if __name__ == "__main__":
    drive(load)
    os._exit(0)  # the server's threads do not end by themselves
