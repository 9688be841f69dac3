// The device of the host emulation: threads of a cluster as fibers, and by their definition what
// the wrappers of generated code do. Copies by TMA land late; shared memory starts as garbage.
//
// Shared addresses count from SHARED, so that address 0 is never valid; every block has its own.
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
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

struct Stuck : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

struct Meeting {  // a barrier of threads: named, or of a warp
  int arrived = 0;
  long generation = 0;
};

struct MBarrier {
  int arrivals = 0, pending = 0;
  long bytes = 0;
  int phase = 0;
};

struct Block {
  std::vector<unsigned char> shared;
  std::map<unsigned, MBarrier> barriers;
  Meeting named[16];
  Index index;
  int rank = 0;
};

struct Warp {
  Meeting meeting;
  unsigned long long slots[32] = {};
  std::vector<unsigned> words[32];
};

struct Group {  // a warpgroup: what its threads hand to a wgmma
  Meeting meeting;
  void* d[128] = {};
  const unsigned* a[128] = {};
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Block* block = nullptr;
  Warp* warp = nullptr;
  Group* group = nullptr;
  Index thread;
  int lane = 0;
  bool done = false;
};

struct Pending {  // a copy in flight
  int delay;
  std::function<void()> land;
};

struct Machine {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Pending> pending;
  ucontext_t scheduler;
  Fiber* current = nullptr;
  std::function<void()> entry;
  long progress = 0;
  unsigned long long random = 1;
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

inline void meet(Meeting& meeting, int threads, bool wait = true) {
  long generation = meeting.generation;
  ++machine->progress;
  if (++meeting.arrived == threads) {
    meeting.arrived = 0;
    ++meeting.generation;
    return;
  }
  if (wait) until([&] { return meeting.generation != generation; });
}

inline unsigned char* at(unsigned address, unsigned bytes, Block* block = nullptr) {
  Block& owner = block ? *block : *self().block;
  if (address < SHARED || address + bytes > SHARED + owner.shared.size())
    throw std::out_of_range("shared address " + std::to_string(address));
  if (address % bytes && bytes <= 16)
    throw std::out_of_range("misaligned shared address " + std::to_string(address));
  return owner.shared.data() + (address - SHARED);
}

inline MBarrier& barrier(Block* block, unsigned address) {
  auto found = block->barriers.find(address);
  if (found == block->barriers.end()) throw std::out_of_range("no barrier there");
  return found->second;
}

inline void settle(MBarrier& b) {
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

inline void run_fiber() {
  try {
    machine->entry();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "thread %u: %s\n", self().thread.x, error.what());
    std::exit(3);
  }
  self().done = true;
  ++machine->progress;
  swapcontext(&self().context, &machine->scheduler);
}

// Runs one cluster to its end. Throws Stuck when no thread can go on.
inline void run_cluster(int threads) {
  Machine& m = *machine;
  size_t live = m.fibers.size();
  int idle = 0;
  while (live) {
    long before = m.progress;
    live = 0;
    for (auto& fiber : m.fibers) {
      if (fiber->done) continue;
      ++live;
      m.current = fiber.get();
      swapcontext(&m.scheduler, &fiber->context);
    }
    for (size_t i = 0; i < m.pending.size();) {
      if (m.pending[i].delay-- > 0) {
        ++i;
        continue;
      }
      m.pending[i].land();
      m.pending.erase(m.pending.begin() + i);
      ++m.progress;
    }
    idle = m.progress == before && m.pending.empty() ? idle + 1 : 0;
    if (live && idle > 2) throw Stuck("no thread can go on");
  }
  if (!m.pending.empty()) throw Stuck("copies in flight at the end");
}

inline void launch(
    std::function<void()> entry, Index grid, int threads, int shared, int cluster, unsigned seed) {
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; x += cluster) {
        Machine here;
        machine = &here;
        here.random = seed * 2654435761u + 1;
        here.entry = entry;
        here.grid = grid;
        for (int rank = 0; rank < cluster; ++rank) {
          here.blocks.push_back(std::make_unique<Block>());
          Block* block = here.blocks.back().get();
          block->shared.assign(shared + 16, 0xFF);  // NaN in every floating type
          block->rank = rank;
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
        for (auto& block : here.blocks)
          for (auto& each : block->barriers)
            if (each.second.bytes) throw Stuck("bytes owed at the end");
        machine = nullptr;
      }
}

// --- numbers ------------------------------------------------------------------------------------

template <class To, class From>
inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline float from_bf16(unsigned short x) { return bits<float>((unsigned)x << 16); }
inline unsigned short to_bf16(float x) {
  unsigned u = bits<unsigned>(x);
  if (std::isnan(x)) return 0x7FFF;
  return (unsigned short)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}
inline float from_f16(unsigned short x) { return (float)bits<_Float16>(x); }
inline unsigned short to_f16(float x) { return bits<unsigned short>((_Float16)x); }

inline float from_f8(unsigned char x, int exponent_bits, int mantissa_bits) {
  int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = x >> mantissa_bits & ((1 << exponent_bits) - 1);
  int mantissa = x & ((1 << mantissa_bits) - 1);
  float sign = x & 0x80 ? -1.0f : 1.0f;
  int top = (1 << exponent_bits) - 1;
  if (exponent_bits == 5 && exponent == top) return mantissa ? NAN : sign * INFINITY;
  if (exponent_bits == 4 && exponent == top && mantissa == 7) return NAN;
  if (!exponent) return sign * std::ldexp((float)mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1.0f + (float)mantissa / (1 << mantissa_bits), exponent - bias);
}

inline unsigned char to_f8(float x, int exponent_bits, int mantissa_bits) {
  if (std::isnan(x)) return 0x7F;
  unsigned char sign = std::signbit(x) ? 0x80 : 0;
  float size = std::fabs(x);
  int last = exponent_bits == 4 ? 0x7E : 0x7B;  // the largest finite value: saturate
  int best = last;
  for (int code = 0; code <= last; ++code) {
    float low = from_f8((unsigned char)code, exponent_bits, mantissa_bits);
    if (size < low) {
      best = code;
      break;
    }
    if (size == low) return sign | (unsigned char)code;
  }
  if (best == 0) return sign;
  float high = from_f8((unsigned char)best, exponent_bits, mantissa_bits);
  float low = from_f8((unsigned char)(best - 1), exponent_bits, mantissa_bits);
  if (size >= high) return sign | (unsigned char)best;
  bool up = size - low > high - size || (size - low == high - size && best % 2 == 0);
  return sign | (unsigned char)(up ? best : best - 1);
}

enum Type { F16, BF16, TF32, E4M3, E5M2, S8, U8, F32, S32 };

inline int width(Type type) { return type <= BF16 ? 2 : type == TF32 || type >= F32 ? 4 : 1; }

inline double read(const unsigned char* p, Type type) {
  unsigned short half;
  unsigned word;
  switch (type) {
    case F16: std::memcpy(&half, p, 2); return from_f16(half);
    case BF16: std::memcpy(&half, p, 2); return from_bf16(half);
    case TF32: std::memcpy(&word, p, 4); return bits<float>(word & 0xFFFFE000u);
    case E4M3: return from_f8(*p, 4, 3);
    case E5M2: return from_f8(*p, 5, 2);
    case S8: return (signed char)*p;
    default: return *p;
  }
}

// --- tensor maps --------------------------------------------------------------------------------

struct Map {  // what the test writes into a TensorMap: fastest dimension first
  unsigned char* base;
  long long extents[5];
  long long strides[5];  // bytes
  int box[5];
  unsigned char rank, element, swizzle_shift, padding_nan;
};

inline unsigned swizzle(const Map& map, unsigned offset) {
  // Swizzle modes of the driver API: 16-byte chunk bits exclusive-ored with row bits.
  unsigned mask = map.swizzle_shift ? (1u << map.swizzle_shift) - 16 : 0;
  return offset ^ (offset >> 3 & mask);
}

template <class Visit>
inline void boxed(const Map& map, const int* start, Visit visit) {
  int index[5] = {};
  unsigned offset = 0;
  long count = 1;
  for (int d = 0; d < map.rank; ++d) count *= map.box[d];
  for (long i = 0; i < count; ++i, offset += map.element) {
    long long address = 0;
    bool inside = true;
    for (int d = 0; d < map.rank; ++d) {
      long long where = (long long)start[d] + index[d];
      inside = inside && where >= 0 && where < map.extents[d];
      address += where * map.strides[d];
    }
    visit(offset, inside ? map.base + address : nullptr);
    for (int d = 0; d < map.rank && ++index[d] == map.box[d]; ++d) index[d] = 0;
  }
}

inline void tma_load(
    unsigned to, const void* source, unsigned address, std::vector<int> start, unsigned blocks) {
  const Map map = *(const Map*)source;
  Block* mine = self().block;
  long bytes = map.element;
  for (int d = 0; d < map.rank; ++d) bytes *= map.box[d];
  for (auto& block : machine->blocks) {
    if (blocks ? !(blocks >> block->rank & 1) : block.get() != mine) continue;
    Block* target = block.get();
    machine->pending.push_back({(int)draw(4), [=] {
      unsigned low = to & 1023;  // the swizzle looks at the address
      boxed(map, start.data(), [&](unsigned offset, unsigned char* from) {
        unsigned place = to - low + swizzle(map, low + offset);
        unsigned char* p = at(place, map.element, target);
        if (from) std::memcpy(p, from, map.element);
        else std::memset(p, map.padding_nan ? 0xFF : 0, map.element);  // NaN in every float type
      });
      MBarrier& b = barrier(target, address);
      b.bytes -= bytes;
      settle(b);
    }});
  }
}

enum Combine { PUT, ADD, MIN, MAX };

inline void tma_store(const void* target, unsigned from, std::vector<int> start, Combine how) {
  const Map& map = *(const Map*)target;
  unsigned low = from & 1023;
  boxed(map, start.data(), [&](unsigned offset, unsigned char* to) {
    if (!to) return;
    unsigned char* p = at(from - low + swizzle(map, low + offset), map.element);
    if (how == PUT) {
      std::memcpy(to, p, map.element);
      return;
    }
    float old, value;  // combinations are tested on fp32 alone
    std::memcpy(&old, to, 4);
    std::memcpy(&value, p, 4);
    value = how == ADD ? old + value : how == MIN ? std::fmin(old, value) : std::fmax(old, value);
    std::memcpy(to, &value, 4);
  });
}

// --- tensor cores -------------------------------------------------------------------------------

// Reads an operand through its descriptor (PTX ISA, "Strides"): 32 bytes of K from the address.
inline double element(unsigned long long desc, int mn, int k, Type type, bool transposed) {
  unsigned address = (unsigned)(desc & 0x3FFF) << 4;
  unsigned leading = (unsigned)(desc >> 16 & 0x3FFF) << 4;
  unsigned stride = (unsigned)(desc >> 32 & 0x3FFF) << 4;
  int mode = (int)(desc >> 62);
  if (mode == 0) throw std::logic_error("a descriptor without swizzle");
  unsigned span = 256u >> mode;  // 128, 64, 32 bytes
  unsigned size = width(type);
  unsigned raw = address;
  if (transposed) {
    unsigned per = span / size;
    raw += mn / per * leading + k / 8 * stride + k % 8 * span + mn % per * size;
  } else {
    raw += mn / 8 * stride + mn % 8 * span + k * size;
  }
  return read(at(raw ^ (raw >> 3 & (span - 16)), size), type);
}

struct Product {
  int n, k;
  Type d, a, b;
  bool registers, transposed_a, transposed_b;
};

template <class D, class A>
inline void wgmma(const Product& p, D* d, A a, unsigned long long b, int accumulate) {
  Fiber& me = self();
  Group& group = *me.group;
  int t = me.thread.x % 128;
  group.d[t] = d;
  if constexpr (std::is_pointer_v<A>) group.a[t] = (const unsigned*)a;
  meet(group.meeting, 128);
  if (t == 0) {
    std::vector<double> left(64 * p.k), right(p.k * p.n);
    int packed = 4 / width(p.a);
    for (int row = 0; row < 64; ++row)
      for (int k = 0; k < p.k; ++k) {
        if constexpr (std::is_pointer_v<A>) {
          // Register i of lane l: row l/4 + 8(i%2), columns packed*(l%4) + .. + 4*packed*(i/2).
          int quad = k / (4 * packed), column = k % (4 * packed);
          int thread = row / 16 * 32 + row % 8 * 4 + column / packed;
          int word = row % 16 / 8 + 2 * quad;
          const unsigned char* p_word = (const unsigned char*)&group.a[thread][word];
          left[row * p.k + k] = read(p_word + column % packed * width(p.a), p.a);
        } else {
          left[row * p.k + k] = element(a, row, k, p.a, p.transposed_a);
        }
      }
    for (int k = 0; k < p.k; ++k)
      for (int n = 0; n < p.n; ++n) right[k * p.n + n] = element(b, n, k, p.b, p.transposed_b);
    for (int thread = 0; thread < 128; ++thread)
      for (int i = 0; i < p.n / 2; ++i) {
        int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2);
        int column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
        double sum = 0;
        for (int k = 0; k < p.k; ++k) sum += left[row * p.k + k] * right[k * p.n + column];
        if constexpr (std::is_same_v<D, unsigned>) {
          unsigned short* half = (unsigned short*)group.d[thread] + i;
          *half = to_f16((float)(sum + (accumulate ? from_f16(*half) : 0)));
        } else {
          D* place = (D*)group.d[thread] + i;
          *place = (D)(sum + (accumulate ? (double)*place : 0));
        }
      }
  }
  meet(group.meeting, 128);
}

// mma.sync of m16 n8: fragments of "Matrix Fragments for mma.m16n8k*".
template <class D>
inline void mma(int k, Type a_type, Type b_type, D* d, std::vector<unsigned> words, int a_words) {
  Warp& warp = *self().warp;
  auto& given = warp.words;
  given[self().lane] = words;
  meet(warp.meeting, 32);
  int lane = self().lane, packed = 4 / width(a_type);
  for (int i = 0; i < 4; ++i) {
    int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
    double sum = 0;
    for (int at_k = 0; at_k < k; ++at_k) {
      int quad = at_k / (4 * packed), inside = at_k % (4 * packed);
      int a_lane = row % 8 * 4 + inside / packed, b_lane = column * 4 + inside / packed;
      const unsigned char* a =
          (const unsigned char*)&given[a_lane][row / 8 + 2 * quad] + inside % packed * width(a_type);
      const unsigned char* b =
          (const unsigned char*)&given[b_lane][a_words + quad] + inside % packed * width(b_type);
      sum += read(a, a_type) * read(b, b_type);
    }
    d[i] = (D)(d[i] + sum);
  }
  meet(warp.meeting, 32);
}

// stmatrix and ldmatrix: lane l addresses row l % 8 of matrix l / 8.
template <bool STORE>
inline void matrices(unsigned address, std::vector<unsigned*> words, bool transposed) {
  Warp& warp = *self().warp;
  int lane = self().lane;
  warp.slots[lane] = address;
  meet(warp.meeting, 32);
  for (size_t m = 0; m < words.size(); ++m)
    for (int half = 0; half < 2; ++half) {
      int row = transposed ? 2 * (lane % 4) + half : lane / 4;
      int column = transposed ? lane / 4 : 2 * (lane % 4) + half;
      unsigned start = (unsigned)warp.slots[m * 8 + row];
      if (start % 16) throw std::out_of_range("misaligned matrix row");
      unsigned short* p = (unsigned short*)at(start + column * 2, 2);
      unsigned short* mine = (unsigned short*)words[m] + half;
      if (STORE) *p = *mine;
      else *mine = *p;
    }
  meet(warp.meeting, 32);
}

template <class T>
inline T shuffle(T value, int lane) {
  Warp& warp = *self().warp;
  static_assert(sizeof(T) <= 8);
  std::memcpy(&warp.slots[self().lane], &value, sizeof value);
  meet(warp.meeting, 32);
  T got;
  std::memcpy(&got, &warp.slots[lane & 31], sizeof got);
  meet(warp.meeting, 32);
  return got;
}

}  // namespace emu

// --- what generated code calls without a wrapper ------------------------------------------------

#define threadIdx (emu::self().thread)
#define blockIdx (emu::self().block->index)
#define gridDim (emu::machine->grid)

template <class T>
inline T __shfl_xor_sync(unsigned, T value, int mask) {
  return emu::shuffle(value, emu::self().lane ^ mask);
}
template <class T>
inline T __shfl_sync(unsigned, T value, int lane) {
  return emu::shuffle(value, lane);
}
inline float __uint_as_float(unsigned x) { return emu::bits<float>(x); }
inline float __int_as_float(int x) { return emu::bits<float>(x); }
inline unsigned __float_as_uint(float x) { return emu::bits<unsigned>(x); }
inline int __float_as_int(float x) { return emu::bits<int>(x); }
inline double __longlong_as_double(long long x) { return emu::bits<double>(x); }
inline long long __double_as_longlong(double x) { return emu::bits<long long>(x); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return (unsigned)((unsigned long long)x * y >> 32);
}
inline long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline void __trap() { throw std::logic_error("trap"); }
using std::max;
using std::min;
