"""Arguments and flags that several commands share, and streams they write to."""

from __future__ import annotations

from typing import Annotated

import typer

MODEL_HELP = (
    "Alias (smollm2-135m), path of a .gguf file, folder in Hugging Face format, or Hugging Face id."
)

ModelArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", envvar="CHAIRLIFT_MODEL", show_envvar=False, help=MODEL_HELP),
]

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        envvar="CHAIRLIFT_MODEL",
        show_envvar=False,
        help=MODEL_HELP,
    ),
]

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")]
