"""Pictures in files, as SVG or PNG."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from chairlift.errors import ConfigError

SvgOption = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Draw the result, as SVG.")
]
PngOption = Annotated[
    Path | None,
    typer.Option(
        "--png", metavar="FILE", help="Draw the result, as PNG (needs chairlift[plot] installed)."
    ),
]
_PIXELS_PER_UNIT = 2


def write_drawing(drawing: str, svg: Path | None, png: Path | None) -> None:
    """Write an SVG document into a file as it is, and into another one as a PNG image.

    Raises:
        ConfigError: A PNG is wanted and there is nothing to make it with.
    """
    if svg is not None:
        svg.write_text(drawing, encoding="utf-8")
    if png is not None:
        png.write_bytes(_png(drawing))


def check_can_draw(png: Path | None) -> None:
    """Say so before the work is done if a PNG could not be written after it.

    Raises:
        ConfigError: As :func:`write_drawing`.
    """
    if png is not None:
        _png('<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>')


def _png(drawing: str) -> bytes:
    try:
        resvg = importlib.import_module("resvg_py")
    except ImportError:
        raise ConfigError(
            "a PNG needs the package resvg-py: pip install 'chairlift[plot]', or use --svg"
        ) from None
    return bytes(resvg.svg_to_bytes(svg_string=drawing, zoom=_PIXELS_PER_UNIT))
