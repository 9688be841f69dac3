// Asynchronous copies: TMA by tensor maps with swizzle and fill, bulk groups, cp.async.
#pragma once

#include "machine.h"

namespace emu {

enum Combine { PUT, ADD, MIN, MAX, AND, OR, XOR };
using Places = std::initializer_list<int>;  // of a box, fastest dimension first

// `blocks` are those of the cluster that receive the box; 0 is the thread's own.
void tma_load(unsigned to, const void* map, unsigned barrier, Places start, unsigned blocks);
void tma_load_windows(
    unsigned to, const void* map, unsigned barrier, Places start, Places taps, unsigned blocks);
void tma_store(const void* map, unsigned from, Places start, Combine how);
void bulk_commit();
void bulk_wait(size_t pending, bool read);

void copy_async(unsigned to, unsigned long long from, unsigned bytes, unsigned size);
void copy_arrive(unsigned barrier);

}  // namespace emu
