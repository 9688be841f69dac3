// The machine of the host emulation: threads of a cluster as fibers, asynchronous work as events.
//
// Shared addresses count from SHARED, so that address 0 is never valid; every block has its own.
// Asynchronous work happens at any legal time: `Timing` says which. Shared memory has two views, as
// the proxies of PTX have: threads write the generic one, and what they wrote reaches the one that
// TMA and wgmma read when they execute fence.proxy.async.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(threads, blocks)
#define __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace emu {

constexpr unsigned SHARED = 1024;
constexpr long MOST_BYTES = (1 << 20) - 1;  // PTX ISA, "mbarrier", range of the tx-count

struct Stuck : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

struct Meeting {  // a barrier of threads: named, or of a warp
  int arrived = 0, expected = 0;
  long generation = 0;
};

struct MBarrier {  // arrivals and bytes that the current phase still waits for
  int arrivals = 0, pending = 0;
  long bytes = 0;
  int phase = 0;
};

struct Block {
  std::vector<unsigned char> shared;   // as threads see it
  std::vector<unsigned char> fetched;  // as the async proxy sees it
  std::map<unsigned, MBarrier> barriers;
  Meeting named[16];
  Index index;
  int rank = 0, running = 0;
};

struct Warp {
  Meeting meeting;
  unsigned long long slots[32] = {};
  std::vector<unsigned> words[32];
};

struct Flight {  // accumulators that products in flight own: the registers themselves are poisoned
  void* d[128];
  size_t words;
  std::vector<unsigned> values;  // of thread t from t * words
  long last = 0;                 // the number of the last product
  std::vector<bool> given = std::vector<bool>(128);
};

struct Group {  // a warpgroup: what its threads hand to a wgmma, and its products in order
  Meeting meeting;
  void* d[128] = {};
  const unsigned* a[128] = {};
  std::deque<std::function<void()>> products;
  std::vector<std::unique_ptr<Flight>> flights;
  long issued = 0, computed = 0;
};

struct Store {  // a bulk store in flight
  bool read = false, written = false;
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Block* block = nullptr;
  Warp* warp = nullptr;
  Group* group = nullptr;
  Index thread;
  int lane = 0;
  bool done = false, fenced = false;
  long issued = 0;
  std::vector<long> committed;  // products issued when each group was closed
  std::vector<std::shared_ptr<Store>> stores;
  std::vector<std::vector<std::shared_ptr<Store>>> store_groups;
  std::vector<std::shared_ptr<bool>> copies;
  std::vector<std::vector<std::shared_ptr<bool>>> copy_groups;
  std::vector<std::pair<unsigned, unsigned>> written;  // bytes the async proxy need not see yet
};

enum class Timing { RANDOM, LATE, EARLY };

struct Event {  // asynchronous work in flight
  long due;
  std::function<void()> happen;
};

struct Machine {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Event> events;
  ucontext_t scheduler;
  Fiber* current = nullptr;
  std::function<void()> entry;
  long progress = 0, round = 0;
  unsigned long long random = 1;
  Timing timing = Timing::RANDOM;
  Meeting cluster;
  Index grid;
};

inline Machine* machine = nullptr;

inline unsigned draw(unsigned below) {
  machine->random = machine->random * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned)(machine->random >> 33) % below;
}

inline Fiber& self() { return *machine->current; }

inline void yield() { swapcontext(&self().context, &machine->scheduler); }

template <class Condition>
inline void until(Condition condition) {
  while (!condition()) yield();
  ++machine->progress;
}

// Lets asynchronous work happen from now on.
inline void post(std::function<void()> happen) {
  if (machine->timing == Timing::EARLY) {
    happen();
    return;
  }
  unsigned most = draw(8) ? 3 : 40;
  machine->events.push_back({machine->round + (long)draw(most), std::move(happen)});
}

inline void meet(Meeting& meeting, int threads, bool wait = true) {
  if (meeting.arrived && meeting.expected != threads)
    throw std::logic_error("a barrier is used with different numbers of threads");
  meeting.expected = threads;
  long generation = meeting.generation;
  ++machine->progress;
  if (++meeting.arrived == threads) {
    meeting.arrived = 0;
    ++meeting.generation;
    return;
  }
  if (wait) until([&] { return meeting.generation != generation; });
}

// --- shared memory ------------------------------------------------------------------------------

inline void check(unsigned address, unsigned bytes, const Block& owner) {
  if (address < SHARED || address + bytes > SHARED + owner.shared.size())
    throw std::out_of_range("shared address " + std::to_string(address));
  if (address % bytes && bytes <= 16)
    throw std::out_of_range("misaligned shared address " + std::to_string(address));
}

// What threads read and write.
inline unsigned char* at(unsigned address, unsigned bytes) {
  check(address, bytes, *self().block);
  return self().block->shared.data() + (address - SHARED);
}

// What TMA and wgmma read.
inline unsigned char* fetched(unsigned address, unsigned bytes, Block& owner) {
  check(address, bytes, owner);
  return owner.fetched.data() + (address - SHARED);
}

// A write by the async proxy: every thread that waits for it sees it.
inline void deliver(unsigned address, const void* from, unsigned bytes, Block& owner) {
  check(address, bytes, owner);
  std::memcpy(owner.fetched.data() + (address - SHARED), from, bytes);
  std::memcpy(owner.shared.data() + (address - SHARED), from, bytes);
}

inline void write_by(Fiber& fiber, unsigned address, const void* from, unsigned bytes) {
  check(address, bytes, *fiber.block);
  std::memcpy(fiber.block->shared.data() + (address - SHARED), from, bytes);
  fiber.written.push_back({address - SHARED, bytes});
}

inline void shared_write(unsigned address, const void* from, unsigned bytes) {
  write_by(self(), address, from, bytes);
}

inline void fence_proxy_async() {
  Block& block = *self().block;
  for (auto [start, bytes] : self().written)
    std::memcpy(block.fetched.data() + start, block.shared.data() + start, bytes);
  self().written.clear();
}

// --- mbarriers ----------------------------------------------------------------------------------

inline MBarrier& barrier(Block* block, unsigned address) {
  auto found = block->barriers.find(address);
  if (found == block->barriers.end()) throw std::out_of_range("no barrier there");
  return found->second;
}

inline void settle(MBarrier& b) {
  if (b.bytes > MOST_BYTES || b.bytes < -MOST_BYTES)
    throw std::out_of_range("more bytes than an mbarrier counts");
  if (b.pending || b.bytes) return;
  b.phase ^= 1;
  b.pending = b.arrivals;
  ++machine->progress;
}

inline void arrive(MBarrier& b) {
  if (!b.pending) throw std::logic_error("one arrival too many");
  --b.pending;
  settle(b);
}

inline void arrive_expecting(MBarrier& b, unsigned bytes) {
  b.bytes += bytes;
  arrive(b);
}

// The copy engine has moved bytes.
inline void complete(MBarrier& b, long bytes) {
  b.bytes -= bytes;
  settle(b);
}

// --- running ------------------------------------------------------------------------------------

inline void run_fiber() {
  Fiber& me = self();
  try {
    machine->entry();
    if (!me.stores.empty()) throw std::logic_error("a bulk store was never committed");
    for (auto& group : me.store_groups)
      for (auto& store : group)
        if (!store->read) throw std::logic_error("ends before its bulk stores have read");
    for (auto& group : me.copy_groups)
      for (auto& landed : group)
        if (!*landed) throw std::logic_error("ends with cp.async in flight");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "thread %u: %s\n", me.thread.x, error.what());
    std::exit(3);
  }
  me.done = true;
  --me.block->running;
  ++machine->progress;
  swapcontext(&me.context, &machine->scheduler);
}

inline void happen(size_t which) {
  auto event = std::move(machine->events[which]);
  machine->events.erase(machine->events.begin() + which);
  event.happen();
  ++machine->progress;
}

// Runs one cluster to its end, its warps in a random order. Throws Stuck when no thread can go on.
inline void run_cluster(int threads) {
  Machine& m = *machine;
  size_t warps = (m.fibers.size() + 31) / 32, live = m.fibers.size();
  std::vector<size_t> order(warps);
  for (size_t i = 0; i < warps; ++i) order[i] = i;
  int idle = 0;
  while (live) {
    long before = m.progress;
    bool skips = idle == 0;
    ++m.round;
    live = 0;
    for (size_t i = warps; i > 1; --i) std::swap(order[i - 1], order[draw((unsigned)i)]);
    for (size_t warp : order) {
      bool skipped = skips && draw(4) == 0;
      for (size_t i = 32 * warp; i < m.fibers.size() && i < 32 * (warp + 1); ++i) {
        Fiber* fiber = m.fibers[i].get();
        if (fiber->done) continue;
        ++live;
        if (skipped) continue;
        m.current = fiber;
        swapcontext(&m.scheduler, &fiber->context);
      }
    }
    if (m.timing == Timing::RANDOM) {
      for (size_t i = 0; i < m.events.size();) {
        if (m.events[i].due > m.round) ++i;
        else happen(i);
      }
    }
    bool still = m.progress == before;
    if (still && m.timing == Timing::LATE && !m.events.empty() && !skips) {
      happen(draw((unsigned)m.events.size()));
      continue;
    }
    idle = still && (m.events.empty() || m.timing == Timing::LATE) ? idle + 1 : 0;
    if (live && idle > 3) throw Stuck("no thread can go on");
  }
  while (!m.events.empty()) happen(m.events.size() - 1);
}

inline void launch(
    std::function<void()> entry, Index grid, int threads, int shared, int cluster, unsigned seed) {
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; x += cluster) {
        Machine here;
        machine = &here;
        here.random = seed * 2654435761u + 1;
        here.timing = (Timing)(seed % 3);
        here.entry = entry;
        here.grid = grid;
        for (int rank = 0; rank < cluster; ++rank) {
          here.blocks.push_back(std::make_unique<Block>());
          Block* block = here.blocks.back().get();
          block->shared.assign(shared + 16, 0xFF);  // NaN in every floating type
          block->fetched = block->shared;
          block->rank = rank;
          block->running = threads;
          block->index = {x + rank, y, z};
          for (int t = 0; t < threads; ++t) {
            if (t % 32 == 0) here.warps.push_back(std::make_unique<Warp>());
            if (t % 128 == 0) here.groups.push_back(std::make_unique<Group>());
            here.fibers.push_back(std::make_unique<Fiber>());
            Fiber& fiber = *here.fibers.back();
            fiber.block = block;
            fiber.warp = here.warps.back().get();
            fiber.group = here.groups.back().get();
            fiber.thread.x = t;
            fiber.lane = t % 32;
            constexpr size_t STACK = 1 << 16;
            fiber.stack.reset(new char[STACK]);
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.get();
            fiber.context.uc_stack.ss_size = STACK;
            fiber.context.uc_link = &here.scheduler;
            makecontext(&fiber.context, run_fiber, 0);
          }
        }
        run_cluster(threads);
        for (auto& group : here.groups)
          if (!group->flights.empty()) throw Stuck("products that were never waited for");
        for (auto& block : here.blocks)
          for (auto& each : block->barriers)
            if (each.second.bytes) throw Stuck("bytes owed at the end");
        machine = nullptr;
      }
}

}  // namespace emu
