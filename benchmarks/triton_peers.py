"""Triton's side of the GEMM benchmark: our own sources through Triton, all its variants and tiles.

`triton_pointers` and `triton_persistent` run the shipped kernels unmodified; `triton_specialized`
is the form Triton's own warp specialization needs. Each is timed with every tile size, flattened
or not, stored whole or in halves, and the best counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

from harness import Call, Case, Inputs, Missing, empty_inputs
from peers import Offer, persistent, tile_of, triton_tiles


class TritonPeer:
    """What Triton's kernels have in common: how a launch is bound, warmed, and may fail."""

    name = "triton"

    def failures(self) -> tuple[type[Exception], ...]:
        from triton.compiler.errors import CompilationError
        from triton.runtime.errors import OutOfResources, PTXASError

        return (CompilationError, OutOfResources, PTXASError, RuntimeError)

    def stand_ins(self, case: Case) -> Any:
        return empty_inputs(case)

    def launch(self, case: Case, variant: Any, inputs: Inputs) -> tuple[Any, Any, Any, Any]:
        """Return kernel, grid, arguments, options."""
        raise NotImplementedError

    def variants(self, case: Case) -> Iterator[tuple[str, Any]]:
        raise NotImplementedError

    def offers(self, case: Case) -> Iterator[Offer]:
        for label, variant in self.variants(case):

            def bind(inputs: Inputs, variant: Any = variant) -> Call:
                kernel, grid, arguments, options = self.launch(case, variant, inputs)
                ready = kernel[grid]
                ready(*arguments, **options)  # compiles; a failure shows here
                return lambda: ready(*arguments, **options)

            def warm(inputs: Inputs, variant: Any = variant) -> None:
                kernel, grid, arguments, options = self.launch(case, variant, inputs)
                kernel.warmup(*arguments, grid=grid, **options)

            yield Offer(label, bind, warm)


class TritonPointers(TritonPeer):
    """tawa.kernels.gemm.matmul_pointers through Triton."""

    name = "triton_pointers"

    def variants(self, case: Case) -> Iterator[tuple[str, Any]]:
        if case.batch > 1:
            raise Missing("the pointer kernel takes no batch")
        for tile in triton_tiles(case):
            yield "x".join(map(str, tile)), tile

    def launch(self, case: Case, variant: Any, inputs: Inputs) -> tuple[Any, Any, Any, Any]:
        from tawa.kernels.gemm import matmul_pointers
        from twin import twin

        rows, columns, depth, stages, warps = variant
        b = inputs.b if case.b_rows else inputs.b.t()
        strides = (*inputs.a.stride(), *b.stride(), *inputs.c.stride())
        options = tile_of(rows, columns, depth) | {"GROUP_M": 8}
        arguments = (inputs.a, b, inputs.c, case.m, case.n, case.k, *strides)
        grid = (ceil(case.m / rows) * ceil(case.n / columns),)
        return (
            twin(matmul_pointers),
            grid,
            arguments,
            options | {"num_stages": stages, "num_warps": warps},
        )


class TritonPersistent(TritonPeer):
    """tawa.kernels.gemm.matmul_persistent through Triton."""

    name = "triton_persistent"

    def variants(self, case: Case) -> Iterator[tuple[str, Any]]:
        if case.batch > 1 or case.b_rows or case.a_columns:
            raise Missing("the persistent kernel takes a dense A, and a dense B stored [N, K]")
        for tile in triton_tiles(case):
            for parts in (1, 2):
                for flatten in (True, False):
                    label = "x".join(map(str, tile)) + f" parts={parts} flatten={flatten}"
                    yield label, (tile, parts, flatten)

    def launch(self, case: Case, variant: Any, inputs: Inputs) -> tuple[Any, Any, Any, Any]:
        from triton.tools.tensor_descriptor import TensorDescriptor

        from tawa.kernels.gemm import matmul_persistent
        from twin import twin

        tile, parts, flatten = variant
        values = tile_of(*tile) | {"GROUP_M": 8, "SUBTILES": parts}
        grid, arguments, options = persistent(case, values, inputs, TensorDescriptor.from_tensor)
        hints = {"FLATTEN": flatten, "num_stages": tile[3], "num_warps": tile[4]}
        return twin(matmul_persistent), grid, arguments, options | hints


class TritonSpecialized(TritonPeer):
    """Triton's own warp specialization: persistent and plain, descriptors made on the device."""

    name = "triton_specialized"

    def variants(self, case: Case) -> Iterator[tuple[str, Any]]:
        if case.m < 128 or case.batch > 1 or case.b_rows or case.a_columns:
            raise Missing("Triton's warp specialization takes 128 rows, dense A and B [N, K]")
        depth = 128 if case.dtype in ("e4m3", "e5m2") else 64
        for rows, columns, stages in ((128, 256, 3), (128, 128, 4), (128, 128, 3), (256, 128, 3)):
            for walk in (True, False):
                label = f"{rows}x{columns}x{depth}x{stages}" + (" persistent" if walk else "")
                yield label, (rows, columns, depth, stages, walk)

    def launch(self, case: Case, variant: Any, inputs: Inputs) -> tuple[Any, Any, Any, Any]:
        import torch
        import triton

        from tawa.kernels.gemm import matmul_device_descriptors
        from triton_variants import persistent_specialized
        from twin import twin

        triton.set_allocator(
            lambda size, align, stream: torch.empty(size, device="cuda", dtype=torch.int8)
        )
        rows, columns, depth, stages, walk = variant
        tiles = (ceil(case.m / rows), ceil(case.n / columns))
        arguments = (inputs.a, inputs.b, inputs.c, case.m, case.n, case.k)
        options = tile_of(rows, columns, depth) | {"num_stages": stages, "num_warps": 4}
        if not walk:
            plain = {"TRANS_B": True, "WARP_SPECIALIZE": True}
            return twin(matmul_device_descriptors), tiles, arguments, options | plain
        programs = min(132, tiles[0] * tiles[1])
        extra = {"GROUP_M": 8, "PROGRAMS": programs}
        return persistent_specialized, (programs,), arguments, options | extra


class TritonBatched(TritonPeer):
    """tawa.kernels.gemm.matmul_batched through Triton."""

    name = "triton_batched"

    def variants(self, case: Case) -> Iterator[tuple[str, Any]]:
        if case.batch == 1:
            raise Missing("for batches only")
        for tile in triton_tiles(case):
            yield "x".join(map(str, tile)), tile

    def launch(self, case: Case, variant: Any, inputs: Inputs) -> tuple[Any, Any, Any, Any]:
        from triton.tools.tensor_descriptor import TensorDescriptor

        from tawa.kernels.gemm import matmul_batched
        from twin import twin

        rows, columns, depth, stages, warps = variant
        describe = TensorDescriptor.from_tensor
        b_block = [1, depth, columns] if case.b_rows else [1, columns, depth]
        arguments = (
            describe(inputs.a, [1, rows, depth]),
            describe(inputs.b, b_block),
            describe(inputs.c, [1, rows, columns]),
            case.k,
        )
        grid = (ceil(case.m / rows), ceil(case.n / columns), case.batch)
        options = tile_of(rows, columns, depth) | {"TRANS_B": not case.b_rows}
        hints = {"num_stages": stages, "num_warps": warps}
        return twin(matmul_batched), grid, arguments, options | hints
