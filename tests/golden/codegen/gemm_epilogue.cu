  wgmma_wait<0>();
  #pragma unroll
  for (int r = 0; r < 128; ++r) {
    pin(acc[r]);
  }
  const bool any = iteration > 0;
  if (any) {
    if (thread % 128 == 0) {
      barrier_arrive(shared + A_B_14_FREED + oldest * 8);
    }
  }
  u32 c[64];
  #pragma unroll
  for (int r = 0; r < 128; r += 2) {
    c[r / 2] = pack_bf16(acc[r], acc[r + 1]);
  }
  if (thread % 128 == 0) {
    bulk_wait_read<0>();
  }
  named_sync_of_group<128>(1 + warpgroup);
  const u32 c_tile = shared + C;
  const u32 place = c_tile + swizzled<112>(lane % 16 * 128 + lane / 16 * 16 + warp * 2048);
  #pragma unroll
  for (int part = 0; part < 16; ++part) {
    stmatrix_x4((place ^ (part % 4 * 32)) + part / 4 * 16384, c[part * 4], c[part * 4 + 1], c[part * 4 + 2], c[part * 4 + 3]);
  }
  fence_proxy_async();
  named_sync_of_group<128>(1 + warpgroup);
  if (thread % 128 == 0) {
    #pragma unroll
    for (int box = 0; box < 4; ++box) {
      tma_store_2d_evict_first(c_map, c_tile + warpgroup * 8192 + box * 16384, n + box * 64, m + warpgroup * 64);
    }
  }
  if (thread % 128 == 0) {
    bulk_commit();
  }
  if (thread % 128 == 0) {
    bulk_wait<0>();
  }
}
