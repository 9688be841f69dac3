// FlashAttention-3's forward kernels behind one C function, without torch: f16, head_dim 64 and 128.
//
// Arrays are (batch, length, heads, head_dim), row-major; lse is (batch, heads, length) of float32.
// What is not here, `build.sh` turns off by the switches of its own setup.py: the kernels that run
// are those of `flash_attn_func`, which asks for no split and no packed heads at these sizes.
#include <cuda_runtime.h>

#include "flash.h"
#include "flash_fwd_launch_template.h"

// `counter` is 4 bytes of the device, by which causal tiles are handed out. Returns 1 for a head_dim
// that was not built.
extern "C" int fa3_forward(void *q, void *k, void *v, void *out, float *lse, int *counter, int batch,
                           int length, int heads, int dim, int causal, float scale, int sms,
                           cudaStream_t stream) {
    Flash_fwd_params params = {};
    params.q_ptr = q, params.k_ptr = k, params.v_ptr = v, params.o_ptr = out;
    params.softmax_lse_ptr = lse;
    int64_t const row = int64_t(heads) * dim, image = row * length;
    params.q_row_stride = params.k_row_stride = params.v_row_stride = params.o_row_stride = row;
    params.q_head_stride = params.k_head_stride = params.v_head_stride = params.o_head_stride = dim;
    params.q_batch_stride = params.k_batch_stride = params.v_batch_stride = image;
    params.o_batch_stride = image;
    params.v_dim_stride = 1;
    params.b = params.b_k = batch, params.h = params.h_k = heads;
    params.seqlen_q = params.seqlen_k = length;
    params.seqlen_q_rounded = params.seqlen_k_rounded = (length + 127) / 128 * 128;
    params.d = params.d_rounded = params.dv = params.dv_rounded = dim;
    params.scale_softmax = scale;
    params.is_causal = causal;
    params.window_size_left = params.window_size_right = length - 1;
    if (causal) { params.window_size_right = 0; }
    params.p_dropout = params.rp_dropout = 1.f, params.p_dropout_in_uint8_t = 255;
    params.num_splits = 1;
    params.arch = 90, params.num_sm = sms;
    if (causal) {
        cudaMemsetAsync(counter, 0, sizeof(int), stream);
        params.tile_count_semaphore = counter;
    }
    using f16 = cutlass::half_t;
    switch (dim) {
        case 64: run_mha_fwd_<90, f16, 64, 64, false, false, false, false>(params, stream); return 0;
        case 128: run_mha_fwd_<90, f16, 128, 128, false, false, false, false>(params, stream); return 0;
        default: return 1;
    }
}
