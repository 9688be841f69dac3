"""The hopper dialect: the last word on concurrency.

Every barrier, arrive (and by whom), fence, commit, wait, election and staging buffer is an
operation here; code generation adds none. Tensors carry a register layout (the encoding of their
type) over the warps of the role that computes them; tile operations on such tensors stay tile
operations.

Who executes. A role's body is executed by all its threads in step, tile by tile. `by` says which of
them perform an operation: "thread" (the single thread of an enclosing `OneThread`), "warp" (one
elected thread of each warp), "warpgroup" (one elected thread of each warpgroup), "role" (one thread
of the role) or "all" (every thread). The elected thread of a warpgroup is its thread 0, always the
same one: bulk groups belong to the thread that committed them.
"""

from __future__ import annotations

from xdsl.ir import Dialect

from tawa.ir.hopper.barriers import Arrive, Expect, NamedBarrier, Turn, Wait
from tawa.ir.hopper.copies import (
    BulkCommit,
    BulkWait,
    CopyAsync,
    CopyAsyncArrive,
    TmaLoad,
    TmaStore,
)
from tawa.ir.hopper.products import FmaDot, Mma, Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait
from tawa.ir.hopper.registers import CarryIn, Columns, ConvertLayout, Pick, Pin, Uninitialized
from tawa.ir.hopper.setup import (
    PROGRAMS as PROGRAMS,
)
from tawa.ir.hopper.setup import (
    Barriers,
    BlockId,
    BlockSync,
    ClusterRank,
    ClusterSync,
    Counter,
    FenceBarrierInit,
    GridExtent,
    GridWait,
    InitBarriers,
    LaunchDependents,
    NextProgram,
    NumBlocks,
    OneThread,
    PrefetchMap,
    Role,
    SetRegisters,
    Shared,
    TensorMap,
)
from tawa.ir.hopper.shared import (
    ProxyFence,
    ReshapeView,
    SharedGather,
    SharedLoad,
    SharedStore,
    SharedTranspose,
    SliceView,
    Slot,
    TransposeView,
)
from tawa.ir.types import (
    BarriersType,
    BufferType,
    LayoutAttr,
    SharedLayoutAttr,
    TensorMapType,
    ViewType,
)

Hopper = Dialect(
    "hopper",
    [
        TensorMap,
        Shared,
        Barriers,
        InitBarriers,
        FenceBarrierInit,
        PrefetchMap,
        BlockSync,
        ClusterSync,
        GridWait,
        LaunchDependents,
        Role,
        SetRegisters,
        OneThread,
        BlockId,
        NumBlocks,
        ClusterRank,
        GridExtent,
        Counter,
        NextProgram,
        Wait,
        Arrive,
        Expect,
        Slot,
        TransposeView,
        SliceView,
        ReshapeView,
        SharedLoad,
        SharedGather,
        SharedStore,
        SharedTranspose,
        ProxyFence,
        NamedBarrier,
        Turn,
        TmaLoad,
        TmaStore,
        BulkCommit,
        BulkWait,
        CopyAsync,
        CopyAsyncArrive,
        WgmmaFence,
        Wgmma,
        WgmmaCommit,
        WgmmaWait,
        Mma,
        FmaDot,
        ConvertLayout,
        CarryIn,
        Columns,
        Pick,
        Uninitialized,
        Pin,
    ],
    [
        LayoutAttr,
        SharedLayoutAttr,
        BufferType,
        ViewType,
        BarriersType,
        TensorMapType,
    ],
)
