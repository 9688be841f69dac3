__device__ __forceinline__ void role_mma(const u32 shared, const int K, const TensorMap* c_map) {
  const u32 thread = threadIdx.x - 128;
  const u32 lane = thread % 32;
  const u32 warp = thread / 32;
  const u32 warpgroup = uniform(thread / 128);
  take_registers<232>();
  const int pid_m = (int)blockIdx.x;
  const int pid_n = (int)blockIdx.y;
  const int m = pid_m * 128u;
  const int n = pid_n * 256u;
  float acc[128];
  int slot = 0;
  int phase = 0;
  int iteration = 0;
  int oldest = 0;
  #pragma unroll
  for (int r = 0; r < 128; ++r) {
    acc[r] = 0.0f;
  }
  #pragma unroll
  for (int r = 0; r < 128; ++r) {
    pin(acc[r]);
  }
  #pragma unroll 1
  for (int k = 0; k < K; k += 64) {
    barrier_wait(shared + A_B_14_FILLED + slot * 8, phase);
    const u32 a = shared + A + slot * A_SLOT;
    const u32 b = shared + B + slot * B_SLOT;
    wgmma_fence();
    const bool more = iteration > 0;
    const u64 a_operand = descriptor<1>(a + warpgroup * 8192, 16, 1024);
    const u64 b_operand = descriptor<1>(b, 8192, 1024);
    #pragma unroll
    for (int step = 0; step < 4; ++step) {
      wgmma_m64n256k16_f32_bf16_bf16_tb(acc, descriptor_at(a_operand, step * 32), descriptor_at(b_operand, step * 2048), more || step > 0);
    }
    wgmma_commit();
    wgmma_wait<1>();
    int oldest_out;
    if (more) {
      if (thread % 128 == 0) {
        barrier_arrive(shared + A_B_14_FREED + oldest * 8);
      }
      const int oldest_then_next = oldest + 1u;
      const bool oldest_then_wraps = oldest_then_next == 3;
      const int oldest_then = oldest_then_wraps ? 0 : oldest_then_next;
      oldest_out = oldest_then;
    } else {
      oldest_out = oldest;
    }
    const int slot_out_next = slot + 1u;
    const bool slot_out_wraps = slot_out_next == 3;
    const int slot_out = slot_out_wraps ? 0 : slot_out_next;
    const int phase_out_flip = phase ^ 1;
    const int phase_out = slot_out_wraps ? phase_out_flip : phase;
    const int iteration_out = iteration + 1u;
    slot = slot_out;
    phase = phase_out;
    iteration = iteration_out;
    oldest = oldest_out;
  }
