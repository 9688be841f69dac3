extern "C" __global__ void __launch_bounds__(384, 1)
matmul(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map, const int K) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 shared = shared_address(memory);
  if (threadIdx.x == 352) {
    prefetch_map(&a_map);
    prefetch_map(&b_map);
    prefetch_map(&c_map);
  }
  if (threadIdx.x == 0) {
    #pragma unroll
    for (int slot = 0; slot < 3; ++slot) barrier_init(shared + A_B_14_FILLED + slot * 8, 1);
    #pragma unroll
    for (int slot = 0; slot < 3; ++slot) barrier_init(shared + A_B_14_FREED + slot * 8, 2);
    fence_barrier_init();
  }
  block_sync();
  const u32 warp = threadIdx.x / 32;
  if (warp < 4) {
    role_load(shared, K, &a_map, &b_map);
  } else {
    role_mma(shared, K, &c_map);
  }
}
