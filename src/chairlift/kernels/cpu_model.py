"""A decoder model on the CPU: weights, KV cache and the forward step, all in the C++ kernels.

Knows nothing about requests, sampling or files. One instance serves one caller at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from chairlift import _native
from chairlift.errors import KernelInputError, ModelLoadError
from chairlift.kernels.isa import current_isa
from chairlift.model_spec import ModelSpec, TensorType, WeightTensor, expected_weights

CpuDtype = Literal["float32", "bfloat16"]
CpuQuantization = Literal["none", "int8"]
KvCacheDtype = Literal["auto", "float32", "bfloat16", "int8"]


@dataclass(frozen=True, slots=True)
class FlatBatch:
    """All tokens of one step end to end, without padding. All arrays are C-contiguous.

    Attributes:
        token_ids: [num_tokens] int32.
        positions: Position of each token in its sequence. [num_tokens] int32.
        query_start_loc: Where each sequence's tokens start, and their number in all at the end.
            [num_seqs + 1] int32.
        seq_lens: Tokens of each sequence, those of this step included; the sequence's tokens of
            this step are its last ones. [num_seqs] int32.
        block_tables: KV blocks of each sequence in order. [num_seqs, max_blocks] int32; what is
            behind a sequence's last used block is never read.
        slot_mapping: Where each token's K and V go: block * block_size + offset.
            [num_tokens] int64.
    """

    token_ids: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    query_start_loc: npt.NDArray[np.int32]
    seq_lens: npt.NDArray[np.int32]
    block_tables: npt.NDArray[np.int32]
    slot_mapping: npt.NDArray[np.int64]


class CpuModel:
    """One model's packed weights, activation buffers and KV cache, and a team of threads.

    Load it with ``set_weight`` for every tensor and ``finish_loading``, give it a KV cache with
    ``allocate_kv``, then alternate ``forward`` and ``compute_logits``. The instruction set is
    ``isa.current_isa()`` at construction. Both calls release the GIL.

    The results of a token depend on its sequence, the weights, the dtypes and the instruction set
    only: bit for bit the same in any batch, chunking, block size and number of threads.

    Args:
        spec: Shapes and switches.
        dtype: Weights and the inputs of matrix products; sums are float32 in both.
        quantization: ``int8``: matrices and their inputs in int8 instead (docs/quantization.md).
        kv_cache_dtype: What K and V are kept as; ``"auto"``: ``dtype``. int8 has a scale for each
            token and head.
        num_threads: Members of the team, the calling thread included.
        max_num_batched_tokens: Most tokens of one ``forward``; sizes the activation buffers.
        kept_types: Tensors to keep as they are in a GGUF file, see
            :func:`~chairlift.kernels.file_formats.types_to_keep`; bfloat16 only. The results are
            those of bfloat16, bit for bit.

    Raises:
        KernelInputError: A number is out of its range, or a tensor cannot be kept.
        ConfigError: ``CHAIRLIFT_ISA`` names a level that cannot run here.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        dtype: CpuDtype,
        quantization: CpuQuantization = "none",
        kv_cache_dtype: KvCacheDtype = "auto",
        num_threads: int,
        max_num_batched_tokens: int,
        kept_types: Mapping[str, TensorType] | None = None,
    ) -> None:
        current_isa()  # raises before anything is made
        self._missing = {name for name, _ in expected_weights(spec)}
        with _kernel_errors():
            self._model = _native.Model(
                _native_shape(spec),
                dtype,
                quantization,
                kv_cache_dtype,
                num_threads,
                max_num_batched_tokens,
                {name: kept.value for name, kept in (kept_types or {}).items()},
            )

    def set_weight(self, tensor: WeightTensor) -> None:
        """Dequantise, convert and pack one tensor; its bytes are not needed afterwards.

        Raises:
            KernelInputError: The model has no such tensor, or its shape or size is another.
        """
        with _kernel_errors():
            self._model.set_weight(
                tensor.name,
                tensor.tensor_type.value,
                list(tensor.shape),
                tensor.data,
                tensor.interleaved_heads,
            )
        self._missing.discard(tensor.name)

    def finish_loading(self) -> None:
        """Check that every weight has been set.

        Raises:
            ModelLoadError: Some are missing; they are named.
        """
        if self._missing:
            names = sorted(self._missing)
            shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            raise ModelLoadError(f"the model lacks {len(names)} weights: {shown}")

    def weight_parts(self) -> list[npt.NDArray[np.uint8]]:
        """The memory of all weights as the kernels keep them, not copied; not to be changed.

        Their number and sizes depend on the spec, the dtype and the instruction set only.
        """
        return self._model.weight_parts()

    def restore_weights(self, fill: Callable[[list[npt.NDArray[np.uint8]]], bool]) -> bool:
        """Load all weights at once from a copy of another model's :meth:`weight_parts`.

        Args:
            fill: Writes the parts, and says whether it could. If not, they are zero again.

        Returns:
            What ``fill`` says.
        """
        parts = self._model.weight_parts()
        if fill(parts):
            self._missing.clear()
            return True
        for part in parts:
            part.fill(0)
        return False

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """Give the model a KV cache of ``num_blocks * block_size`` token slots; replaces any other.

        The memory becomes real as it is written. A swap space must be allocated anew.

        Raises:
            KernelInputError: A number is out of its range.
            MemoryError: The address space cannot be had.
        """
        with _kernel_errors():
            self._model.allocate_kv(num_blocks, block_size)

    def kv_bytes_per_block(self, block_size: int) -> int:
        """Bytes of one block of ``block_size`` tokens in all layers."""
        with _kernel_errors():
            return self._model.kv_bytes_per_block(block_size)

    def allocate_swap(self, num_blocks: int, path: str = "") -> None:
        """Give the KV cache a second tier of ``num_blocks`` slots; replaces any other.

        Args:
            num_blocks: Slots; each holds one block of all layers.
            path: A file to be made for it, whose space is reserved at once and whose name is gone
                again when this returns; empty: memory, which becomes real as it is written.

        Raises:
            KernelInputError: A number is out of its range, or there is no KV cache yet.
            OSError: The file exists, cannot be made, or has no space; or there is no memory.
        """
        with _kernel_errors():
            self._model.allocate_swap(num_blocks, path)

    def swap_out(self, blocks: npt.NDArray[np.int32], slots: npt.NDArray[np.int32]) -> None:
        """Copy ``blocks[i]`` of the KV cache into ``slots[i]`` of the swap space.

        Releases the GIL; the team shares the work.

        Args:
            blocks: [num_blocks] int32.
            slots: As many, none twice. [num_blocks] int32.

        Raises:
            KernelInputError: An id is out of range, the lists do not fit together, or there is no
                swap space; nothing has been copied then.
        """
        with _kernel_errors():
            self._model.swap_out(blocks, slots)

    def swap_in(self, slots: npt.NDArray[np.int32], blocks: npt.NDArray[np.int32]) -> None:
        """Copy ``slots[i]`` of the swap space into ``blocks[i]`` of the KV cache.

        Releases the GIL; the team shares the work. The slots keep what they hold.

        Args:
            slots: [num_blocks] int32.
            blocks: As many, none twice. [num_blocks] int32.

        Raises:
            KernelInputError: An id is out of range, the lists do not fit together, or there is no
                swap space; nothing has been copied then.
        """
        with _kernel_errors():
            self._model.swap_in(slots, blocks)

    def forward(self, batch: FlatBatch) -> None:
        """Compute all layers for a batch, leaving its K and V in the cache.

        The hidden states of its tokens stay in the model until the next ``forward``.

        Raises:
            KernelInputError: An array has another dtype, shape or layout than ``FlatBatch`` says,
                or a value is out of range; nothing has been changed then.
        """
        if self._missing:
            self.finish_loading()
        with _kernel_errors():
            self._model.forward(
                batch.token_ids,
                batch.positions,
                batch.query_start_loc,
                batch.seq_lens,
                batch.block_tables,
                batch.slot_mapping,
            )

    def compute_logits(self, rows: npt.NDArray[np.int32], out: npt.NDArray[np.float32]) -> None:
        """Apply the final norm and the output head to some tokens of the last ``forward``.

        Args:
            rows: Indices of tokens in that batch, in any order. [num_rows] int32.
            out: Logits, written in full. [num_rows, vocab_size] float32, C-contiguous.

        Raises:
            KernelInputError: A row that batch did not have, or another dtype or shape.
        """
        with _kernel_errors():
            self._model.compute_logits(rows, out)

    @property
    def weight_bytes(self) -> int:
        """Memory of the packed matrices; a tied embedding counts once."""
        return self._model.weight_bytes

    @property
    def buffer_bytes(self) -> int:
        """Memory of the activations of the largest batch, and of the kernels' own scratch."""
        return self._model.buffer_bytes

    @property
    def team(self) -> _native.ThreadTeam:
        """The threads themselves, for work between two calls; they live as long as the model."""
        return self._model.team

    @property
    def num_threads(self) -> int:
        """Members of the team, the calling thread included."""
        return self._model.num_threads

    @property
    def isa(self) -> str:
        """Instruction set level this model uses."""
        return self._model.isa

    def timers(self) -> dict[str, float]:
        """Seconds per phase of ``forward`` and ``compute_logits`` since the last reset.

        Phases: embed, norm, qkv, rope, attention, quantise, o, gate_up, down, head, and barrier,
        which is how long the first member waited for the others.
        """
        return {phase: ns * 1e-9 for phase, ns in self._model.timers().items()}

    def reset_timers(self) -> None:
        """Set all phase timers to zero."""
        self._model.reset_timers()


def extension_path() -> Path:
    """File of the compiled kernels, by which one build of them is told from another."""
    return Path(_native.__file__)


def _native_shape(spec: ModelSpec) -> _native.ModelShape:
    return _native.ModelShape(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_layers=spec.num_layers,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        rms_norm_eps=spec.rms_norm_eps,
        rope_inv_freq=list(spec.rope_inv_freq),
        rope_attention_factor=spec.rope_attention_factor,
        sliding_windows=list(spec.sliding_windows) or [0] * spec.num_layers,
        attention_bias=spec.attention_bias,
        attention_output_bias=spec.attention_output_bias,
        qk_norm=spec.qk_norm,
        tie_word_embeddings=spec.tie_word_embeddings,
    )


@contextmanager
def _kernel_errors() -> Iterator[None]:
    """Turn the extension's errors about arguments into KernelInputError."""
    try:
        yield
    except ValueError as error:
        raise KernelInputError(str(error)) from None
    except TypeError as error:
        # nanobind's list of signatures follows the first line and helps nobody.
        raise KernelInputError(
            f"an argument has the wrong type, dtype, number of dimensions or layout: {error}"
        ) from None
