"""The loops of integer products consist of the instructions they were written for."""

from __future__ import annotations

import bisect
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest

from chairlift.kernels.cpu_model import extension_path

pytestmark = [
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86-64 only"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed"),
]

_LINE = re.compile(r"^\s*([0-9a-f]+):\t(.*)$")
_JUMP = re.compile(r"^j\w+\s+([0-9a-f]+)")
_SPILL = re.compile(r"^v?mov\w+\s+%[xyz]mm\d+,.*\(%r[sb]p")
_PRODUCT = re.compile(r"v?pmaddwd|vpdpbusd|tdpb")
_MAX_LOOP_BYTES = 1 << 13


@dataclass(frozen=True)
class Loop:
    """Instructions of an innermost loop."""

    instructions: tuple[str, ...]

    def count(self, pattern: str) -> int:
        return sum(re.search(pattern, text) is not None for text in self.instructions)

    def spills(self) -> list[str]:
        return [text for text in self.instructions if _SPILL.match(text)]


@pytest.fixture(scope="module")
def loops() -> list[Loop]:
    """Every innermost loop of the extension that multiplies integers."""
    done = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(extension_path())],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [match.groups() for match in map(_LINE.match, done.stdout.splitlines()) if match]
    addresses = [int(address, 16) for address, _ in lines]
    spans = []
    for end, (_, text) in enumerate(lines):
        jump = _JUMP.match(text)
        if jump and 0 <= addresses[end] - int(jump[1], 16) < _MAX_LOOP_BYTES:
            spans.append((bisect.bisect_left(addresses, int(jump[1], 16)), end))
    spans.sort(key=lambda span: (span[0], -span[1]))
    found = []
    for (first, last), following in zip(spans, [*spans[1:], (len(lines), 0)], strict=True):
        body = tuple(text for _, text in lines[first : last + 1])
        is_innermost = following[0] > last or following[1] > last
        if is_innermost and any(_PRODUCT.match(text) for text in body):
            found.append(Loop(body))
    return found


def loops_with(loops: list[Loop], pattern: str) -> list[Loop]:
    found = [loop for loop in loops if loop.count(pattern)]
    assert found, f"no loop uses {pattern}"
    return found


def test_avx512_with_vnni_multiplies_bytes_in_registers(loops: list[Loop]) -> None:
    products = loops_with(loops, r"vpdpbusds?\s.*%zmm")
    # Two vectors of features for each of up to 14 rows, whose sums stay in registers.
    assert {2 * rows for rows in range(1, 15)} <= {p.count("vpdpbusd") for p in products}
    for loop in products:
        assert loop.spills() == []


@pytest.mark.parametrize("register", ["ymm", "zmm"])
def test_levels_without_vnni_multiply_pairs_of_16_bits_in_registers(
    loops: list[Loop], register: str
) -> None:
    most_rows = 6 if register == "ymm" else 14
    products = rf"vpmaddwd\s.*%{register}"
    sums = [
        loop
        for loop in loops_with(loops, products)
        if loop.count(products) == loop.count("vpaddd") and len(loop.instructions) < 200
    ]
    # Two vectors of features, each in even and odd bytes, for every row.
    assert {4 * rows for rows in range(1, most_rows + 1)} <= {loop.count(products) for loop in sums}
    for loop in sums:
        # One compiler more or less may not find a register for one of the 56 sums of 14 rows.
        assert 8 * len(loop.spills()) <= loop.count(products)


def test_the_portable_level_multiplies_pairs_of_16_bits(loops: list[Loop]) -> None:
    assert max(loop.count(r"pmaddwd\s.*%xmm") for loop in loops_with(loops, r"^pmaddwd")) > 1


def test_amx_multiplies_tiles_of_bytes(loops: list[Loop]) -> None:
    steps = loops_with(loops, "tdpbssd")
    assert any(loop.count("tdpbssd") == loop.count("tileloadd") == 4 for loop in steps)
