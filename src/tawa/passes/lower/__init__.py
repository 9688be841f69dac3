"""Purpose: lower aref IR (or the tile IR of an ordinary kernel) to hopper IR.

Before -> after: ``tests/data/gemm.aref.mlir`` -> ``tests/data/gemm.hopper.mlir``: arefs become
rings of shared memory and mbarriers, dots become wgmma (or mma.sync, or fma), tensors get register
layouts, descriptor accesses become TMA, and every wait, arrive, fence and election stands in the
text. `tawa.passes.pipeline.LOWER` lists the steps.
Requires: a valid kernel and its plan. Ensures: hopper IR with offsets and launch attributes.
Declines when: an instruction or a hint of the plan does not fit; each case is returned by name.
Raises `OverBudget`, `PlanError`, `DescriptorError`, `ShapeUnsupported`.
"""
