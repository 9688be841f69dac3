// Tensor cores, as products.h declares them.
#include "products.h"

namespace emu {

// Reads an operand through its descriptor (PTX ISA, "Strides"): 32 bytes of K from the address.
static double element(unsigned long long desc, int mn, int k, Type type, bool transposed, Block& block) {
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
  return read(fetched(raw ^ (raw >> 3 & (span - 16)), size, block), type);
}

// Operand A of m64: register i of lane l holds row l/4 + 8(i%2) of its warp's 16, columns
// packed*(l%4) + .. + 4*packed*(i/2) (PTX ISA, "Register Fragments").
static double register_element(const unsigned* const* a, int row, int k, Type type) {
  int packed = 4 / width(type), quad = k / (4 * packed), column = k % (4 * packed);
  int thread = row / 16 * 32 + row % 8 * 4 + column / packed;
  const unsigned* word = &a[thread][row % 16 / 8 + 2 * quad];
  return read((const unsigned char*)word + column % packed * width(type), type);
}

// Adds to the i-th value of a fragment, or replaces it.
static void add_to(void* d, int i, Type type, double sum, bool accumulate) {
  switch (type) {
    case F16: {
      unsigned short* half = (unsigned short*)d + i;
      *half = to_f16((float)(sum + (accumulate ? from_f16(*half) : 0)));
      return;
    }
    case S32: {
      int* place = (int*)d + i;
      long long exact = (long long)sum + (accumulate ? *place : 0);
      *place = (int)(unsigned)exact;  // without .satfinite they wrap
      return;
    }
    default: {
      float* place = (float*)d + i;
      *place = (float)(sum + (accumulate ? *place : 0));
    }
  }
}

// One product of a warpgroup: its accumulators are words of `values`, of thread t from t * words.
static void multiply(
    const Product& p, const Operands& o, unsigned* values, size_t words,
    const unsigned* const* registers, Block& block) {
  std::vector<double> left(64 * p.k), right(p.n * p.k);
  for (int row = 0; row < 64; ++row)
    for (int k = 0; k < p.k; ++k)
      left[row * p.k + k] = p.registers
          ? register_element(registers, row, k, p.a)
          : element(o.a_desc, row, k, p.a, p.transposed_a, block);
  for (int n = 0; n < p.n; ++n)
    for (int k = 0; k < p.k; ++k)
      right[n * p.k + k] = element(o.b_desc, n, k, p.b, p.transposed_b, block);
  for (int thread = 0; thread < 128; ++thread)
    for (int i = 0; i < p.n / 2; ++i) {
      int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2);
      int column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
      double sum = 0;
      for (int k = 0; k < p.k; ++k) sum += left[row * p.k + k] * right[column * p.k + k];
      add_to(values + thread * words, i, p.d, sum, o.accumulate);
    }
}

constexpr int POISON = 0xFF;  // NaN in every floating type

// The accumulators at d: in flight already, or taken from the registers, which are poisoned.
static Flight& take_off(Group& group, size_t words) {
  for (auto& flight : group.flights)
    if (flight->d[0] == group.d[0]) return *flight;
  group.flights.push_back(std::make_unique<Flight>());
  Flight& flight = *group.flights.back();
  flight.words = words;
  flight.values.resize(128 * words);
  for (int t = 0; t < 128; ++t) {
    flight.d[t] = group.d[t];
    std::memcpy(&flight.values[t * words], group.d[t], 4 * words);
    std::memset(group.d[t], POISON, 4 * words);
  }
  return flight;
}

static void compute_oldest(Group& group) {
  auto product = std::move(group.products.front());
  group.products.pop_front();
  product();
  ++group.computed;
}

void wgmma(const Product& p, const Operands& o) {
  Fiber& me = self();
  Group& group = *me.group;
  int t = me.thread.x % 128;
  if (!me.fenced) throw std::logic_error("wgmma before any wgmma.fence");
  group.d[t] = o.d;
  group.a[t] = o.a;
  meet(group.meeting, 128, "the warpgroup");
  if (t == 0) {
    size_t words = p.d == F16 ? p.n / 4 : p.n / 2;
    Flight* flight = &take_off(group, words);
    flight->last = ++group.issued;
    std::vector<const unsigned*> registers(group.a, group.a + 128);
    Block* block = me.block;
    group.products.push_back([=] {
      multiply(p, o, flight->values.data(), words, registers.data(), *block);
    });
    post([&group] { compute_oldest(group); });
  }
  ++me.issued;
  meet(group.meeting, 128, "the warpgroup");
}

void wgmma_fence() { self().fenced = true; }

void wgmma_commit() { self().committed.push_back(self().issued); }

// Waits for all but the newest groups, and hands their accumulators out.
void wgmma_wait(size_t pending) {
  Fiber& me = self();
  Group& group = *me.group;
  size_t groups = me.committed.size();
  long last = groups > pending ? me.committed[groups - 1 - pending] : 0;
  until([&] { return group.computed >= last; }, "products");
  int t = me.thread.x % 128;
  for (auto flight = group.flights.begin(); flight != group.flights.end();) {
    Flight& f = **flight;
    if (f.last <= last && !f.given[t]) {
      const unsigned char* held = (const unsigned char*)f.d[t];
      for (size_t i = 0; i < 4 * f.words; ++i)
        if (held[i] != POISON) throw std::logic_error("registers of a wgmma in flight were written");
      std::memcpy(f.d[t], &f.values[t * f.words], 4 * f.words);
      f.given[t] = true;
    }
    bool everybody = true;
    for (bool given : f.given) everybody = everybody && given;
    flight = everybody ? group.flights.erase(flight) : flight + 1;
  }
}

// mma.sync of m16 n8: fragments of "Matrix Fragments for mma.m16n8k*".
void mma(const Fragments& f, void* d, std::initializer_list<unsigned> words) {
  Warp& warp = *self().warp;
  auto& given = warp.words;
  given[self().lane] = words;
  meet_warp();
  int lane = self().lane, packed = 4 / width(f.a);
  for (int i = 0; i < 4; ++i) {
    int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
    double sum = 0;
    for (int k = 0; k < f.k; ++k) {
      int quad = k / (4 * packed), inside = k % (4 * packed);
      int a_lane = row % 8 * 4 + inside / packed, b_lane = column * 4 + inside / packed;
      const unsigned char* a =
          (const unsigned char*)&given[a_lane][row / 8 + 2 * quad] + inside % packed * width(f.a);
      const unsigned char* b =
          (const unsigned char*)&given[b_lane][f.a_words + quad] + inside % packed * width(f.b);
      sum += read(a, f.a) * read(b, f.b);
    }
    add_to(d, i, f.d, sum, true);
  }
  meet_warp();
}

// stmatrix and ldmatrix: lane l addresses row l % 8 of matrix l / 8.
void matrices(
    unsigned address, std::initializer_list<unsigned*> words, bool transposed, bool store) {
  Warp& warp = *self().warp;
  int lane = self().lane, m = 0;
  warp.slots[lane] = address;
  meet_warp();
  for (unsigned* word : words) {
    for (int half = 0; half < 2; ++half) {
      int row = transposed ? 2 * (lane % 4) + half : lane / 4;
      int column = transposed ? lane / 4 : 2 * (lane % 4) + half;
      unsigned start = (unsigned)warp.slots[m * 8 + row];
      if (start % 16) throw std::out_of_range("misaligned matrix row");
      unsigned short* mine = (unsigned short*)word + half;
      if (store) shared_write(start + column * 2, mine, 2);
      else std::memcpy(mine, at(start + column * 2, 2), 2);
    }
    ++m;
  }
  meet_warp();
}

// What a thread hands to a shuffle, and what the lane that it names handed.
unsigned long long shuffle(unsigned long long value, int lane, unsigned mask) {
  if (mask != 0xFFFFFFFF) throw std::logic_error("a shuffle of a part of the warp");
  Warp& warp = *self().warp;
  warp.slots[self().lane] = value;
  meet_warp();
  unsigned long long got = warp.slots[lane & 31];
  meet_warp();
  return got;
}

}  // namespace emu
