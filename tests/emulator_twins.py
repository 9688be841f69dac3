"""Twins of the device functions: what each wrapper of generated text does on the host.

`hosted` rewrites a text: bodies with asm become calls of `emulator/*.h`, the rest stays.
"""

from __future__ import annotations

import re

from tawa.codegen import CudaSource
from tawa.codegen.wrappers.core import PRELUDE

TYPES = {
    "f16": "F16", "bf16": "BF16", "f32": "TF32", "f8e4m3": "E4M3", "f8e5m2": "E5M2", "i8": "S8",
    "u8": "U8",
}  # fmt: skip
SUMS = {"f32": "F32", "f16": "F16", "i32": "S32"}
LETTERS = {"e4m3": "4, 3", "e5m2": "5, 2"}

FIXED = {
    "shared_address": "return emu::SHARED;",
    "barrier_init": "emu::init_barrier(barrier, arrivals);",
    "fence_barrier_init": "emu::fence_barrier_init();",
    "barrier_expect": "emu::arrive_expecting(barrier, bytes);",
    "barrier_wait": "emu::wait_for_phase(barrier, phase);",
    "barrier_arrive": "emu::arrive(barrier);",
    "barrier_arrive_cluster": "emu::arrive_at(barrier, block);",
    "block_sync": "emu::meet_block();",
    "warp_sync": "emu::meet_warp();",
    "elect_one": "emu::meet_warp(); return emu::self().lane == 21;",  # the manual names none
    "cluster_sync": "emu::meet_cluster();",
    "cluster_sync_relaxed": "emu::meet_cluster();",
    "cluster_rank": "return emu::self().block->rank;",
    "named_sync": "emu::meet_named(id, threads, true);",
    "named_arrive": "emu::meet_named(id, threads, false);",
    "named_sync_of_group": "emu::meet_named(id, threads, true);",
    "named_arrive_of_group": "emu::meet_named(id, threads, false);",
    "take_registers": "emu::set_registers(count, true);",
    "give_registers": "emu::set_registers(count, false);",
    "exp2_approx": "return std::exp2(x);",
    "log2_approx": "return std::log2(x);",
    "sqrt_approx": "return std::sqrt(x);",
    "divide_full": "return x / y;",
    "min_nan": "return std::isnan(x) || std::isnan(y) ? NAN : std::fmin(x, y);",
    "max_nan": "return std::isnan(x) || std::isnan(y) ? NAN : std::fmax(x, y);",
    "permute_bytes": (
        "u64 both = (u64)high << 32 | low; u32 made = 0; "
        "for (int i = 0; i < 4; ++i) "
        "made |= (u32)(both >> (selector >> 4 * i & 7) * 8 & 0xFF) << 8 * i; return made;"
    ),
    "policy_evict_first": "return 0;",
    "policy_evict_last": "return 0;",
    "fence_proxy_async": "emu::fence_proxy_async();",
    "wgmma_fence": "emu::wgmma_fence();",
    "wgmma_commit": "emu::wgmma_commit();",
    "wgmma_wait": "emu::wgmma_wait(pending);",
    "bulk_commit": "emu::bulk_commit();",
    "bulk_wait": "emu::bulk_wait(pending, false);",
    "bulk_wait_read": "emu::bulk_wait(pending, true);",
    "copy_arrive": "emu::copy_arrive(barrier);",
}
NOTHING = ("pin", "prefetch_map", "grid_wait", "launch_dependents")


def twin(name: str, parameters: list[str]) -> str:
    """The host body of a wrapper, from its name."""
    if name in FIXED:
        return FIXED[name]
    arguments = [parameter.split()[-1].lstrip("*&") for parameter in parameters]
    places = ", ".join(item for item in arguments if re.fullmatch(r"x\d", item))
    if found := re.fullmatch(r"wgmma_m64n(\d+)k(\d+)_(\w+?)(_registers)?(_ta)?(_tb)?", name):
        n, k, kinds = found[1], found[2], found[3].split("_")
        d, a, b = kinds
        flags = ", ".join(str(int(found[i] is not None)) for i in (4, 5, 6))
        product = f"{n}, {k}, emu::{SUMS[d]}, emu::{TYPES[a]}, emu::{TYPES[b]}, {flags}"
        return f"emu::wgmma({{{product}}}, d, a, b, accumulate);"
    if name.startswith(NOTHING):
        return ""
    if found := re.fullmatch(r"mma_m16n8k(\d+)_(\w+?)_(\w+?)_(\w+?)", name):
        words = ", ".join(item for item in arguments if item != "d")
        count = sum(item.startswith("a") for item in arguments)
        kinds = f"emu::{SUMS[found[2]]}, emu::{TYPES[found[3]]}, emu::{TYPES[found[4]]}"
        return f"emu::mma({{{found[1]}, {kinds}, {count}}}, d, {{{words}}});"
    if name.startswith("tma_load_windows"):
        mask = "blocks" if "multicast" in name else "0"
        taps = ", ".join(item for item in arguments if re.fullmatch(r"tap\d", item))
        return f"emu::tma_load_windows(to, map, barrier, {{{places}}}, {{{taps}}}, {mask});"
    if name.startswith("tma_load"):
        mask = "blocks" if "multicast" in name else "0"
        return f"emu::tma_load(to, map, barrier, {{{places}}}, {mask});"
    if name.startswith("tma_"):
        kinds = ("add", "min", "max", "and", "or", "xor")
        how = next((k.upper() for k in kinds if f"reduce_{k}_" in name), "PUT")
        return f"emu::tma_store(map, from, {{{places}}}, emu::{how});"
    if found := re.fullmatch(r"(st|ld)matrix_x\d(_trans)?", name):
        words = ", ".join(f"&{item}" for item in arguments if item.startswith("m"))
        flags = f"{int(found[2] is not None)}, {int(found[1] == 'st')}"
        return f"emu::matrices(row, {{{words}}}, {flags});"
    return memory_twin(name)


def memory_twin(name: str) -> str:
    """The host body of a load, store, atomic, copy or conversion."""
    if found := re.fullmatch(r"shared_(load|store)_(\w+?)x(\d)", name):
        size = f"{found[3]} * sizeof({found[2]})"
        if found[1] == "load":
            return f"std::memcpy(to, emu::at(address, {size}), {size});"
        return f"emu::shared_write(address, from, {size});"
    if found := re.fullmatch(r"shared_(load|store)_b(\d+)", name):
        kind, size = f"u{found[2]}", int(found[2]) // 8
        if found[1] == "load":
            return f"return *({kind}*)emu::at(address, {size});"
        return f"{kind} word = ({kind})value; emu::shared_write(address, &word, {size});"
    if found := re.fullmatch(r"global_(load|store)_(u32|int|float|u64|i64|double)x(\d)\w*", name):
        size = f"{found[3]} * sizeof({found[2]})"
        check = f'if (address % ({size})) throw std::out_of_range("misaligned"); '
        move = "to, (void*)address" if found[1] == "load" else "(void*)address, from"
        return f"{check}std::memcpy({move}, {size});"
    if found := re.fullmatch(r"global_(load|store)_b(\d+)\w*", name):
        pointer = f"*(u{found[2]}*)address"
        return f"return {pointer};" if found[1] == "load" else f"{pointer} = (u{found[2]})value;"
    if found := re.fullmatch(r"copy_async_(\d+)", name):
        return f"emu::copy_async(to, from, bytes, {found[1]});"
    if found := re.fullmatch(r"atomic_(add|min|max|and|or|xor|exchange)_(\w+?)_(\w+)", name):
        if found[2] in ("f16", "bf16") and found[1] != "exchange":
            return atomic_of_halves(found[1], found[2])
        if found[2] in ("f32", "f64") and found[1] in ("min", "max"):
            return atomic_extremum(found[1], found[2])
        signs = {"add": "old + value", "and": "old & value", "or": "old | value",
                 "xor": "old ^ value", "exchange": "value", "min": "min(old, value)",
                 "max": "max(old, value)"}  # fmt: skip
        return (
            f"auto* p = (decltype(value)*)address; auto old = *p; *p = {signs[found[1]]}; "
            "return old;"
        )
    if found := re.fullmatch(r"reduce_add_(f32|f16|bf16)x(\d)_\w+", name):
        return reduction_of(found[1], int(found[2]))
    if re.fullmatch(r"fence_(cta|gpu|sys)", name):
        return ""
    if name.startswith("compare_exchange"):
        return (
            "auto* p = (decltype(value)*)address; auto old = *p; "
            "if (old == expected) *p = value; return old;"
        )
    if name == "next_program":
        return (
            "static u32 counters[4096]; u32 old = counters[counter]; "
            "counters[counter] = old >= (u32)programs - 1 ? 0 : old + 1; return old + gridDim.x;"
        )
    return conversion_twin(name)


def atomic_of_halves(function: str, kind: str) -> str:
    """The host body of an atomic on a float of 16 bits."""
    x, y = f"emu::from_{kind}(old)", f"emu::from_{kind}(value)"
    combined = {"add": f"{x} + {y}", "min": f"std::fmin({x}, {y})", "max": f"std::fmax({x}, {y})"}
    result = f"emu::to_{kind}({combined[function]})"
    return f"auto* p = (u16*)address; u16 old = *p; *p = {result}; return old;"


def atomic_extremum(function: str, kind: str) -> str:
    """The host body of a minimum or maximum in memory: bits in the order of IEEE's totalOrder."""
    whole, bits = ("int", 32) if kind == "f32" else ("i64", 64)
    order = f"[]({whole} x) {{ return x < 0 ? x ^ ({whole})((u{bits})-1 >> 1) : x; }}"
    sign = "<" if function == "min" else ">"
    return (
        f"auto* p = (decltype(value)*)address; auto old = *p; auto order = {order}; {whole} a, b; "
        "std::memcpy(&a, &value, sizeof a); std::memcpy(&b, &old, sizeof b); "
        f"if (order(a) {sign} order(b)) *p = value; return old;"
    )


def reduction_of(kind: str, words: int) -> str:
    """The host body of a vector of additions to memory."""
    check = f'if (address % {4 * words}) throw std::out_of_range("misaligned"); '
    if kind == "f32":
        return f"{check}for (int i = 0; i < {words}; ++i) ((float*)address)[i] += from[i];"
    one = f"emu::to_{kind}(emu::from_{kind}(p[i]) + emu::from_{kind}(((u16*)from)[i]))"
    return f"{check}auto* p = (u16*)address; for (int i = 0; i < {2 * words}; ++i) p[i] = {one};"


def conversion_twin(name: str) -> str:
    """The host body of a conversion between floats."""
    if found := re.fullmatch(r"(bf16|f16)_to_float", name):
        return f"return emu::from_{found[1]}(x);"
    if found := re.fullmatch(r"float_to_(bf16|f16)", name):
        return f"return emu::to_{found[1]}(x);"
    if found := re.fullmatch(r"f8(e4m3|e5m2)_to_float", name):
        return f"return emu::from_f8(x, {LETTERS[found[1]]});"
    if found := re.fullmatch(r"(add|sub|mul)_(bf16|f16)x2", name):
        sign = {"add": "+", "sub": "-", "mul": "*"}[found[1]]
        one = "emu::to_{0}(emu::from_{0}((u16)(x{1})) {2} emu::from_{0}((u16)(y{1})))"
        low, high = one.format(found[2], "", sign), one.format(found[2], " >> 16", sign)
        return f"return {low} | (u32){high} << 16;"
    if found := re.fullmatch(r"pack_(bf16|f16)", name):
        return f"return emu::to_{found[1]}(x0) | (u32)emu::to_{found[1]}(x1) << 16;"
    if found := re.fullmatch(r"pack_f8(e4m3|e5m2)", name):
        kind = LETTERS[found[1]]
        return f"return emu::to_f8(x0, {kind}) | (u32)emu::to_f8(x1, {kind}) << 8;"
    raise KeyError(f"the emulator has no twin of {name}")


DEFINITION = re.compile(r"__device__ __forceinline__ (.+?\b(\w+)\((.*?)\)) \{\n(.*)\n\}", re.DOTALL)


def hosted(source: CudaSource) -> str:
    """The text with every wrapper that holds asm replaced by its twin."""
    parts: list[str] = []
    for part in source.text.split("\n\n"):
        found = DEFINITION.search(part)
        if found is None or found[2].startswith("role_"):
            parts.append("" if part.strip() == PRELUDE.strip() else part)
            continue
        name, parameters = found[2], [item for item in found[3].split(", ") if item]
        if "asm" in found[4] or name in FIXED:
            head = part[: found.start(4)]
            parts.append(f"{head}  {twin(name, parameters)}\n}}")
        else:
            parts.append(part)
    return "\n\n".join(parts)
