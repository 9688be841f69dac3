#!/usr/bin/env bash
# Builds the peers that have no package for torch at hand, as libraries that `native_peers.py` loads:
#   build.sh FLASH_ATTENTION CUTLASS OUT [fa3] [half_t] [bfloat16_t]
# FLASH_ATTENTION is a checkout of github.com/Dao-AILab/flash-attention with its submodule
# csrc/cutlass, CUTLASS one of github.com/NVIDIA/cutlass (headers alone are read). Needs nvcc 12.3 or
# later; one processor takes three to four minutes for each. Set TAWA_PEERS=OUT afterwards.
set -eu
flash=$1 cutlass=$2 out=$3; shift 3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
build() {
    nvcc -shared -Xcompiler -fPIC -gencode arch=compute_90a,code=sm_90a -O3 -std=c++17 -w -DNDEBUG \
        --expt-relaxed-constexpr "$@" -I "$(dirname "$(command -v nvcc)")/../include/cccl"
}
[ $# -gt 0 ] || set -- fa3 half_t
for what in "$@"; do
    case $what in
    fa3)  # the flags of its setup.py; what its calls here never reach is left out
        off=(); for each in BACKWARD PAGEDKV SPLIT APPENDKV LOCAL SOFTCAP PACKGQA VARLEN SM8x; do
            off+=("-DFLASHATTENTION_DISABLE_$each"); done
        build --use_fast_math -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED -DCUTLASS_ENABLE_GDC_FOR_SM90 \
            "${off[@]}" -I "$flash/hopper" -I "$flash/csrc/cutlass/include" -o "$out/libfa3.so" \
            "$here/fa3.cu" ;;
    *)
        build "-DELEMENT=cutlass::$what" -I "$cutlass/include" -I "$cutlass/tools/util/include" \
            -o "$out/libcutlass_conv_$what.so" "$here/cutlass_conv.cu" ;;
    esac
done
