// The machine of the host emulation: threads of a cluster as fibers, asynchronous work as events.
//
// Shared addresses count from SHARED, so that address 0 is never valid; every block has its own.
// Asynchronous work happens at any legal time: `Timing` says which. Shared memory has two views, as
// the proxies of PTX have: threads write the generic one, and what they wrote reaches the one that
// TMA and wgmma read when they execute fence.proxy.async.
//
// Headers declare; the sources are compiled once for all programs (`library.cc`).
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
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
constexpr int REGISTER_FILE = 65536;        // of a multiprocessor, in words of 4 bytes

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

using Ranges = std::vector<std::pair<unsigned, unsigned>>;  // of shared memory: start, bytes

struct MBarrier {  // arrivals and bytes that the current phase still waits for
  int arrivals = 0, pending = 0;
  long bytes = 0;
  int phase = 0;
  struct Fiber* maker = nullptr;  // until it executes fence.mbarrier_init
  // What copies by threads wrote that have arrived in this phase, and in the one before.
  std::shared_ptr<Ranges> copied, told;
};

struct Block {
  std::vector<unsigned char> shared;   // as threads see it
  std::vector<unsigned char> fetched;  // as the async proxy sees it
  std::map<unsigned, MBarrier> barriers;
  Meeting named[16];
  Index index;
  int rank = 0, running = 0;
  int spare = 0;  // registers that no warp holds: PTX ISA, "setmaxnreg", the pool of the block
};

struct Warp {
  Meeting meeting;
  unsigned long long slots[32] = {};
  std::vector<unsigned> words[32];
  int registers = 0;       // a thread
  std::vector<int> asked;  // by setmaxnreg, in order
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

struct Arrival {  // that copies make when they are done
  MBarrier* barrier;
  int due = 0;
  Ranges ranges;
};

struct Copy {  // a cp.async in flight
  unsigned start, bytes;
  bool landed = false;
  std::vector<std::shared_ptr<Arrival>> tells;
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
  const char* waits = "";  // for what, and which
  unsigned which = 0;
  bool (*ready)(void*) = nullptr;  // whether `condition`, which it waits for, holds
  void* condition = nullptr;
  long issued = 0;
  std::vector<long> committed;  // products issued when each group was closed
  std::vector<std::shared_ptr<Store>> stores;
  std::vector<std::vector<std::shared_ptr<Store>>> store_groups;
  std::vector<std::shared_ptr<Copy>> copies;  // that no arrival stands for
  Ranges written;  // bytes the async proxy need not see yet
  std::vector<std::shared_ptr<Ranges>> told;  // those of others that it was told of
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

struct Shape {  // of a launch: `blocks` are those a multiprocessor is to hold, of __launch_bounds__
  int threads, shared, cluster, blocks;
};

extern Machine* machine;

inline Fiber& self() { return *machine->current; }

unsigned draw(unsigned below);
void yield();
// Lets asynchronous work happen from now on.
void post(std::function<void()> happen);
void launch(std::function<void()> entry, Index grid, Shape shape, unsigned seed);

// Waits; what for is said when no thread can go on. The scheduler asks for the condition, since a
// change of fibers takes a hundred times as long.
template <class Condition>
inline void until(Condition condition, const char* what, unsigned which = 0) {
  if (!condition()) {
    Fiber& me = self();
    me.waits = what;
    me.which = which;
    me.condition = &condition;
    me.ready = [](void* asked) -> bool { return (*(Condition*)asked)(); };
    yield();
    me.ready = nullptr;
    me.waits = "";
  }
  ++machine->progress;
}

// --- threads --------------------------------------------------------------------------------------

void meet(Meeting& meeting, int threads, const char* what, unsigned which = 0, bool wait = true);
void meet_warp();
void meet_block();
void meet_cluster();
void meet_named(unsigned id, int threads, bool wait);
void set_registers(int count, bool more);

// --- shared memory --------------------------------------------------------------------------------

void check(unsigned address, unsigned bytes, const Block& owner);
// What threads read and write.
unsigned char* at(unsigned address, unsigned bytes);
// What TMA and wgmma read.
unsigned char* fetched(unsigned address, unsigned bytes, Block& owner);
// A write by the async proxy: every thread that waits for it sees it.
void deliver(unsigned address, const void* from, unsigned bytes, Block& owner);
void shared_write(unsigned address, const void* from, unsigned bytes);
void fence_proxy_async();

// --- mbarriers ------------------------------------------------------------------------------------

MBarrier& barrier(Block* block, unsigned address);
// One that others than its thread use: TMA, and other blocks.
MBarrier& published(Block* block, unsigned address);
void init_barrier(unsigned address, unsigned arrivals);
void fence_barrier_init();
void arrive(unsigned address);
void arrive_at(unsigned address, unsigned block);
// One arrival for copies that wrote `ranges`.
void arrive_with(MBarrier& b, const Ranges& ranges);
void arrive_expecting(unsigned address, unsigned bytes);
void wait_for_phase(unsigned address, unsigned phase);
// The copy engine has moved bytes.
void complete(MBarrier& b, long bytes);

}  // namespace emu
