__device__ __forceinline__ void role_load(const u32 shared, const int K, const TensorMap* a_map, const TensorMap* b_map) {
  const u32 thread = threadIdx.x;
  const u32 warp = thread / 32;
  give_registers<40>();
  if (warp == 0 && elect_one()) {
    const int pid_m = (int)blockIdx.x;
    const int pid_n = (int)blockIdx.y;
    const int m = pid_m * 128u;
    const int n = pid_n * 256u;
    int slot = 0;
    int phase = 1;
    #pragma unroll 1
    for (int k = 0; k < K; k += 64) {
      barrier_wait(shared + A_B_14_FREED + slot * 8, phase);
      barrier_expect(shared + A_B_14_FILLED + slot * 8, 49152);
      const u32 a = shared + A + slot * A_SLOT;
      tma_load_2d(a, a_map, shared + A_B_14_FILLED + slot * 8, k, m);
      const u32 b = shared + B + slot * B_SLOT;
      #pragma unroll
      for (int box = 0; box < 4; ++box) {
        tma_load_2d(b + box * 8192, b_map, shared + A_B_14_FILLED + slot * 8, n + box * 64, k);
      }
      const int slot_out_next = slot + 1u;
      const bool slot_out_wraps = slot_out_next == 3;
      const int slot_out = slot_out_wraps ? 0 : slot_out_next;
      const int phase_out_flip = phase ^ 1;
      const int phase_out = slot_out_wraps ? phase_out_flip : phase;
      slot = slot_out;
      phase = phase_out;
    }
  }
}
