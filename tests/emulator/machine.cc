// Fibers, the order in which warps run, what they meet at, their registers.
#include "machine.h"

#include <sys/resource.h>

#include <algorithm>
#include <set>

namespace emu {

Machine* machine = nullptr;

unsigned draw(unsigned below) {
  machine->random = machine->random * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned)(machine->random >> 33) % below;
}

void yield() { swapcontext(&self().context, &machine->scheduler); }

void post(std::function<void()> happen) {
  if (machine->timing == Timing::EARLY) {
    happen();
    return;
  }
  unsigned most = draw(8) ? 3 : 40;
  machine->events.push_back({machine->round + (long)draw(most), std::move(happen)});
}

// --- threads --------------------------------------------------------------------------------------

void meet(Meeting& meeting, int threads, const char* what, unsigned which, bool wait) {
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
  if (wait) until([&] { return meeting.generation != generation; }, what, which);
}

void meet_warp() { meet(self().warp->meeting, 32, "the warp"); }

void meet_block() {
  int threads = (int)(machine->fibers.size() / machine->blocks.size());
  meet(self().block->named[0], threads, "the block");
}

void meet_cluster() { meet(machine->cluster, (int)machine->fibers.size(), "the cluster"); }

void meet_named(unsigned id, int threads, bool wait) {
  if (id >= 16 || threads % 32 || threads <= 0)
    throw std::out_of_range("no barrier " + std::to_string(id) + " of " + std::to_string(threads));
  meet(self().block->named[id], threads, "the named barrier", id, wait);
}

// PTX ISA, "setmaxnreg": a warp gives registers to its block's pool, or takes them and waits until
// the pool has them.
void set_registers(int count, bool more) {
  Warp& warp = *self().warp;
  Block& block = *self().block;
  meet_warp();
  if (self().lane == 0) {
    if (count % 8 || count < 24 || count > 256)
      throw std::out_of_range("setmaxnreg to " + std::to_string(count));
    if (more ? count < warp.registers : count > warp.registers)
      throw std::logic_error("setmaxnreg." + std::string(more ? "inc" : "dec") + " to " +
          std::to_string(count) + " of a warp that holds " + std::to_string(warp.registers));
    int asked = 32 * (count - warp.registers);
    until([&] { return block.spare >= asked; }, "registers a thread", count);
    block.spare -= asked;
    warp.registers = count;
    warp.asked.push_back(count);
  }
  meet_warp();
}

// Registers a thread at the launch: what ptxas builds a kernel of these bounds with.
static int registers_at_launch(const Shape& shape) {
  return std::min(248, REGISTER_FILE / (shape.threads * shape.blocks) / 8 * 8);
}

// "The setmaxnreg must be executed by all warps in a warpgroup": the same ones, in order.
static void check_registers() {
  auto& warps = machine->warps;
  size_t each = warps.size() / machine->blocks.size();
  for (size_t i = 0; i < warps.size(); ++i) {
    size_t first = i / each * each + i % each / 4 * 4;
    if (warps[i]->asked != warps[first]->asked)
      throw std::logic_error("warps of a warpgroup have executed different setmaxnregs");
    if (!warps[i]->asked.empty() && first + 4 > i / each * each + each)
      throw std::logic_error("setmaxnreg in a warpgroup of fewer than four warps");
  }
}

// --- running --------------------------------------------------------------------------------------

static void finish(Fiber& me) {
  if (!me.stores.empty()) throw std::logic_error("a bulk store was never committed");
  for (auto& group : me.store_groups)
    for (auto& store : group)
      if (!store->read) throw std::logic_error("ends before its bulk stores have read");
  for (auto& copy : me.copies)
    if (!copy->landed) throw std::logic_error("ends with cp.async in flight");
}

static void run_fiber() {
  Fiber& me = self();
  try {
    machine->entry();
    finish(me);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "thread %u: %s\n", me.thread.x, error.what());
    std::exit(3);
  }
  me.done = true;
  --me.block->running;
  ++machine->progress;
  swapcontext(&me.context, &machine->scheduler);
}

static void happen(size_t which) {
  auto event = std::move(machine->events[which]);
  machine->events.erase(machine->events.begin() + which);
  event.happen();
  ++machine->progress;
}

// What the warps wait for, a line each.
static std::string waits() {
  std::set<std::string> lines;
  for (auto& fiber : machine->fibers) {
    if (fiber->done || !*fiber->waits || !std::strcmp(fiber->waits, "the warp")) continue;
    std::string line = "\n  block " + std::to_string(fiber->block->rank) + ", warp ";
    line += std::to_string(fiber->thread.x / 32) + ": waits for " + fiber->waits;
    lines.insert(line + (fiber->which ? " " + std::to_string(fiber->which) : ""));
  }
  std::string text;
  for (auto& line : lines) text += line;
  return text;
}

// Runs one cluster to its end, its warps in a random order. Throws Stuck when no thread can go on.
static void run_cluster() {
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
        if (fiber->ready && !fiber->ready(fiber->condition)) continue;
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
    if (live && idle > 3) throw Stuck("no thread can go on" + waits());
  }
  while (!m.events.empty()) happen(m.events.size() - 1);
}

static void add_block(Machine& here, Index index, int rank, const Shape& shape) {
  here.blocks.push_back(std::make_unique<Block>());
  Block* block = here.blocks.back().get();
  block->shared.assign(shape.shared + 16, 0xFF);  // NaN in every floating type
  block->fetched = block->shared;
  block->rank = rank;
  block->running = shape.threads;
  block->index = index;
  for (int t = 0; t < shape.threads; ++t) {
    if (t % 32 == 0) {
      here.warps.push_back(std::make_unique<Warp>());
      here.warps.back()->registers = registers_at_launch(shape);
    }
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

void launch(std::function<void()> entry, Index grid, Shape shape, unsigned seed) {
  const rlimit most{120, 120};  // seconds of this process: threads may spin without getting stuck
  setrlimit(RLIMIT_CPU, &most);
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; x += shape.cluster) {
        Machine here;
        machine = &here;
        here.random = seed * 2654435761u + 1;
        here.timing = (Timing)(seed % 3);
        here.entry = entry;
        here.grid = grid;
        for (int rank = 0; rank < shape.cluster; ++rank)
          add_block(here, {x + rank, y, z}, rank, shape);
        run_cluster();
        check_registers();
        for (auto& group : here.groups)
          if (!group->flights.empty()) throw Stuck("products that were never waited for");
        for (auto& block : here.blocks)
          for (auto& each : block->barriers)
            if (each.second.bytes) throw Stuck("bytes owed at the end");
        machine = nullptr;
      }
}

}  // namespace emu
