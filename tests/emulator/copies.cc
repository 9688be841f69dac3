// Asynchronous copies, as copies.h declares them.
#include "copies.h"

#include <algorithm>

#include "numbers.h"

namespace emu {

struct Map {  // what the test writes into a TensorMap: fastest dimension first
  unsigned char* base;
  long long extents[5];
  long long strides[5];  // bytes
  int box[5];
  unsigned char rank, element, swizzle_shift, padding_nan, type;
  // Of windows, by spatial axis: the step; box[2 + axis] has the corners, the lower in 16 bits.
  unsigned char steps[3];
};

static unsigned swizzle(const Map& map, unsigned offset) {
  // Swizzle modes of the driver API: 16-byte chunk bits exclusive-ored with row bits.
  unsigned mask = map.swizzle_shift ? (1u << map.swizzle_shift) - 16 : 0;
  return offset ^ (offset >> 3 & mask);
}

static bool of_windows(const Map& map) { return map.steps[0]; }

static long box_bytes(const Map& map) {
  long bytes = map.element;
  for (int d = 0; d < (of_windows(map) ? 2 : map.rank); ++d) bytes *= map.box[d];
  return bytes;
}

template <class Visit>
static void boxed(const Map& map, const int* start, Visit visit) {
  int index[5] = {};
  unsigned offset = 0;
  long count = box_bytes(map) / map.element;
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

// PTX ISA, "Im2col mode": from the first pixel on, by steps of each axis; behind the upper corner
// an axis begins at its lower corner again and the next one goes a step, the images' in the end.
template <class Visit>
static void seen(const Map& map, std::vector<int> at, const std::vector<int>& taps, Visit visit) {
  unsigned offset = 0;
  const int images = map.rank - 1;
  for (int pixel = 0; pixel < map.box[1]; ++pixel) {
    for (int c = 0; c < map.box[0]; ++c, offset += map.element) {
      long long address = (long long)(at[0] + c) * map.strides[0];
      bool inside = at[0] + c >= 0 && at[0] + c < map.extents[0];
      for (int d = 1; d < map.rank; ++d) {
        long long where = at[d] + (d < images ? taps[d - 1] : 0);
        inside = inside && where >= 0 && where < map.extents[d];
        address += where * map.strides[d];
      }
      visit(offset, inside ? map.base + address : nullptr);
    }
    int d = 1;
    for (; d < images; ++d) {
      at[d] += map.steps[d - 1];
      if (at[d] < map.extents[d] + (map.box[1 + d] >> 16)) break;
      at[d] = (short)(map.box[1 + d] & 0xFFFF);
    }
    if (d == images) ++at[d];
  }
}

static void check_start(const Map& map, int column) {
  // Not in PTX; an H200 stops with an illegal instruction.
  if ((long)column * map.element % 16)
    throw std::out_of_range("a box of TMA begins at a multiple of 16 bytes");
}

template <class Boxed>
static void load(
    unsigned to, const Map& map, unsigned address, int column, unsigned blocks, Boxed boxed) {
  if (to % 128) throw std::out_of_range("TMA writes from a multiple of 128 bytes on");
  check_start(map, column);
  for (auto& block : machine->blocks) {
    if (blocks ? !(blocks >> block->rank & 1) : block.get() != self().block) continue;
    Block* target = block.get();
    published(target, address);  // it must be there now
    post([=] {
      unsigned low = to & 1023;  // the swizzle looks at the address
      unsigned char fill[8] = {};
      for (int i = 0; i < 8 && map.padding_nan; ++i) fill[i] = i % 2 ? 0x7F : 0xF7;  // as an H200
      boxed([&](unsigned offset, unsigned char* from) {
        unsigned place = to - low + swizzle(map, low + offset);
        deliver(place, from ? from : fill, map.element, *target);
      });
      complete(barrier(target, address), box_bytes(map));
    });
  }
}

void tma_load(unsigned to, const void* source, unsigned address, Places places, unsigned blocks) {
  const Map map = *(const Map*)source;
  if (of_windows(map)) throw std::logic_error("a box of tiles through a map of windows");
  std::vector<int> start(places);
  load(to, map, address, start[0], blocks, [=](auto visit) { boxed(map, start.data(), visit); });
}

void tma_load_windows(
    unsigned to, const void* source, unsigned address, Places places, Places offsets,
    unsigned blocks) {
  const Map map = *(const Map*)source;
  if (!of_windows(map)) throw std::logic_error("windows through a map of tiles");
  std::vector<int> start(places), taps(offsets);
  const int most = map.rank == 3 ? 65535 : map.rank == 4 ? 255 : 31;
  for (int tap : taps)
    if (tap < 0 || tap > most) throw std::out_of_range("the place of a tap in its window");
  load(to, map, address, start[0], blocks, [=](auto visit) { seen(map, start, taps, visit); });
}

template <class T>
static void combine_as(unsigned char* to, const unsigned char* from, Combine how) {
  T old, value;
  std::memcpy(&old, to, sizeof old);
  std::memcpy(&value, from, sizeof value);
  value = how == ADD ? (T)(old + value) : how == MIN ? std::min(old, value) : std::max(old, value);
  std::memcpy(to, &value, sizeof value);
}

template <class Read, class Write>
static void combine_halves(
    unsigned char* to, const unsigned char* from, Combine how, Read read, Write write) {
  unsigned short old, value;
  std::memcpy(&old, to, 2);
  std::memcpy(&value, from, 2);
  float x = read(old), y = read(value);
  value = write(how == ADD ? x + y : how == MIN ? std::fmin(x, y) : std::fmax(x, y));
  std::memcpy(to, &value, 2);
}

// One element of a bulk reduction, of the type of the tensor map.
static void combine(const Map& map, unsigned char* to, const unsigned char* from, Combine how) {
  if (how == PUT) {
    std::memcpy(to, from, map.element);
    return;
  }
  if (how == AND || how == OR || how == XOR) {
    for (int i = 0; i < map.element; ++i)
      to[i] = how == AND ? to[i] & from[i] : how == OR ? to[i] | from[i] : to[i] ^ from[i];
    return;
  }
  switch (map.type) {
    case 'h': return combine_halves(to, from, how, from_f16, to_f16);
    case 'b': return combine_halves(to, from, how, from_bf16, to_bf16);
    case 'f': return combine_as<float>(to, from, how);
    case 'd': return combine_as<double>(to, from, how);
    case 'i': return combine_as<int>(to, from, how);
    case 'I': return combine_as<unsigned>(to, from, how);
    case 'q': return combine_as<long long>(to, from, how);
    case 'Q': return combine_as<unsigned long long>(to, from, how);
    default: throw std::logic_error("no bulk reduction of this type");
  }
}

void tma_store(const void* target, unsigned from, Places places, Combine how) {
  Map map = *(const Map*)target;
  // What lies outside is left out in pieces of 16 bytes: a row is written to the end of its last.
  const long long bytes = map.extents[0] * map.element;
  map.extents[0] = (bytes + 15) / 16 * 16 / map.element;
  if (from % 128) throw std::out_of_range("TMA reads from a multiple of 128 bytes on");
  std::vector<int> start(places);
  check_start(map, start[0]);
  Block* block = self().block;
  auto store = std::make_shared<Store>();
  self().stores.push_back(store);
  post([=] {
    unsigned low = from & 1023;
    auto data = std::make_shared<std::vector<unsigned char>>(box_bytes(map));
    for (unsigned offset = 0; offset < data->size(); offset += map.element) {
      unsigned place = from - low + swizzle(map, low + offset);
      std::memcpy(data->data() + offset, fetched(place, map.element, *block), map.element);
    }
    store->read = true;
    post([=] {
      boxed(map, start.data(), [&](unsigned offset, unsigned char* to) {
        if (to) combine(map, to, data->data() + offset, how);
      });
      store->written = true;
    });
  });
}

void bulk_commit() {
  self().store_groups.push_back(std::move(self().stores));
  self().stores.clear();
}

void bulk_wait(size_t pending, bool read) {
  auto& groups = self().store_groups;
  size_t due = groups.size() > pending ? groups.size() - pending : 0;
  until([&] {
    for (size_t i = 0; i < due; ++i)
      for (auto& store : groups[i])
        if (!(read ? store->read : store->written)) return false;
    return true;
  }, "bulk stores");
  if (!read) groups.erase(groups.begin(), groups.begin() + due);
}

// --- cp.async -----------------------------------------------------------------------------------

static void post_if_done(std::shared_ptr<Arrival> arrival) {
  if (!--arrival->due) post([=] { arrive_with(*arrival->barrier, arrival->ranges); });
}

void copy_async(unsigned to, unsigned long long from, unsigned bytes, unsigned size) {
  if (bytes > size) throw std::logic_error("cp.async of more bytes than its size");
  if (bytes && from % size) throw std::out_of_range("misaligned source of cp.async");
  Fiber* me = &self();
  check(to, size, *me->block);
  auto copy = std::make_shared<Copy>(Copy{to - SHARED, size});
  me->copies.push_back(copy);
  post([=] {
    unsigned char data[16] = {};
    if (bytes) std::memcpy(data, (const void*)from, bytes);
    std::memcpy(me->block->shared.data() + copy->start, data, size);
    copy->landed = true;
    for (auto& told : copy->tells) post_if_done(told);
    copy->tells.clear();
  });
}

void copy_arrive(unsigned address) {
  auto arrival = std::make_shared<Arrival>(Arrival{&barrier(self().block, address)});
  for (auto& copy : self().copies) {
    arrival->ranges.push_back({copy->start, copy->bytes});
    if (copy->landed) continue;
    ++arrival->due;
    copy->tells.push_back(arrival);
  }
  self().copies.clear();
  ++arrival->due;
  post_if_done(arrival);
}

}  // namespace emu
