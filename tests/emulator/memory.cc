// Shared memory in its two views, and mbarriers.
#include "machine.h"

namespace emu {

void check(unsigned address, unsigned bytes, const Block& owner) {
  if (address < SHARED || address + bytes > SHARED + owner.shared.size())
    throw std::out_of_range("shared address " + std::to_string(address));
  if (address % bytes && bytes <= 16)
    throw std::out_of_range("misaligned shared address " + std::to_string(address));
}

unsigned char* at(unsigned address, unsigned bytes) {
  check(address, bytes, *self().block);
  return self().block->shared.data() + (address - SHARED);
}

unsigned char* fetched(unsigned address, unsigned bytes, Block& owner) {
  check(address, bytes, owner);
  return owner.fetched.data() + (address - SHARED);
}

void deliver(unsigned address, const void* from, unsigned bytes, Block& owner) {
  check(address, bytes, owner);
  std::memcpy(owner.fetched.data() + (address - SHARED), from, bytes);
  std::memcpy(owner.shared.data() + (address - SHARED), from, bytes);
}

void shared_write(unsigned address, const void* from, unsigned bytes) {
  std::memcpy(at(address, bytes), from, bytes);
  self().written.push_back({address - SHARED, bytes});
}

void fence_proxy_async() {
  Block& block = *self().block;
  for (auto [start, bytes] : self().written)
    std::memcpy(block.fetched.data() + start, block.shared.data() + start, bytes);
  self().written.clear();
  for (auto& ranges : self().told) {
    for (auto [start, bytes] : *ranges)
      std::memcpy(block.fetched.data() + start, block.shared.data() + start, bytes);
    ranges->clear();
  }
  self().told.clear();
}

// --- mbarriers ------------------------------------------------------------------------------------

MBarrier& barrier(Block* block, unsigned address) {
  auto found = block->barriers.find(address);
  if (found == block->barriers.end()) throw std::out_of_range("no barrier there");
  return found->second;
}

MBarrier& published(Block* block, unsigned address) {
  MBarrier& found = barrier(block, address);
  if (found.maker) throw std::logic_error("a barrier is used before fence.mbarrier_init");
  return found;
}

void init_barrier(unsigned address, unsigned arrivals) {
  check(address, 8, *self().block);
  if (!arrivals || arrivals > MOST_BYTES)  // PTX ISA, "mbarrier", range of the arrival count
    throw std::out_of_range("a barrier of " + std::to_string(arrivals) + " arrivals");
  self().block->barriers[address] = {(int)arrivals, (int)arrivals, 0, 0, &self()};
}

void fence_barrier_init() {
  for (auto& each : self().block->barriers)
    if (each.second.maker == &self()) each.second.maker = nullptr;
}

static void settle(MBarrier& b) {
  if (b.bytes > MOST_BYTES || b.bytes < -MOST_BYTES)
    throw std::out_of_range("more bytes than an mbarrier counts");
  if (b.pending || b.bytes) return;
  b.phase ^= 1;
  b.pending = b.arrivals;
  b.told = std::move(b.copied);
  b.copied = nullptr;
  ++machine->progress;
}

static void arrive(MBarrier& b) {
  if (!b.pending) throw std::logic_error("one arrival too many");
  --b.pending;
  settle(b);
}

void arrive(unsigned address) { arrive(barrier(self().block, address)); }

void arrive_with(MBarrier& b, const Ranges& ranges) {
  if (!b.copied) b.copied = std::make_shared<Ranges>();
  b.copied->insert(b.copied->end(), ranges.begin(), ranges.end());
  arrive(b);
}

void arrive_at(unsigned address, unsigned block) {
  if (block >= machine->blocks.size()) throw std::out_of_range("no such block in the cluster");
  arrive(published(machine->blocks[block].get(), address));
}

void arrive_expecting(unsigned address, unsigned bytes) {
  MBarrier& b = barrier(self().block, address);
  b.bytes += bytes;
  arrive(b);
}

void wait_for_phase(unsigned address, unsigned phase) {
  MBarrier& b = barrier(self().block, address);
  until([&] { return b.phase != (int)phase; }, "the mbarrier at", address - SHARED);
  if (b.told) self().told.push_back(b.told);
}

void complete(MBarrier& b, long bytes) {
  b.bytes -= bytes;
  settle(b);
}

}  // namespace emu
