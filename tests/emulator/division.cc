// Integer division that traps on a CPU: by zero, and of the least number by -1.
//
// A GPU goes on with some number. Here it is the oracle's: 0 with the dividend as remainder, and the
// dividend with remainder 0. Other CPUs do not trap, or end with the sentence below.
#include <csignal>
#include <cstdint>
#include <cstring>
#include <unistd.h>

#if defined(__x86_64__) && defined(__linux__)
#include <ucontext.h>
#endif

namespace emu {

#if defined(__x86_64__) && defined(__linux__)

// div or idiv (Intel SDM, "Instruction Format"): its length, the bytes of its operands, its divisor.
struct Division {
  int length = 0, width = 4;
  int64_t divisor = 0;
};

static greg_t& numbered(greg_t* registers, int number) {
  static const int places[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI,
      REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return registers[places[number]];
}

static Division decode(greg_t* registers) {
  auto start = (const unsigned char*)registers[REG_RIP], at = start;
  Division found;
  int rex = 0;
  if (*at == 0x66) found.width = 2, ++at;
  if ((*at & 0xf0) == 0x40) rex = *at++;
  if (rex & 8) found.width = 8;
  if (*at == 0xf6) found.width = 1;
  else if (*at != 0xf7) return found;
  int form = *++at, mode = form >> 6, base = form & 7;
  if ((form >> 3 & 7) < 6) return found;
  ++at;
  const void* place;
  if (mode == 3) {
    bool high = found.width == 1 && !rex && base >= 4;  // AH and the like
    int number = high ? base - 4 : base | (rex & 1) << 3;
    place = (const char*)&numbered(registers, number) + high;
  } else {
    int64_t address = 0;
    bool direct = mode == 0 && base == 5;  // relative to what follows
    if (base == 4) {
      int scaled = *at++, index = (scaled >> 3 & 7) | (rex & 2) << 2;
      base = scaled & 7;
      if (index != 4) address += numbered(registers, index) << (scaled >> 6);
      if (mode == 0 && base == 5) mode = 2;
      else address += numbered(registers, base | (rex & 1) << 3);
    } else if (!direct) {
      address += numbered(registers, base | (rex & 1) << 3);
    }
    if (mode == 1) address += (int8_t)*at++;
    if (mode == 2 || direct) {
      int32_t more;
      std::memcpy(&more, at, 4);
      address += more;
      at += 4;
    }
    if (direct) address += (int64_t)at;
    place = (const void*)address;
  }
  std::memcpy(&found.divisor, place, found.width);
  found.length = int(at - start);
  return found;
}

static void put(greg_t& target, uint64_t value, int width) {
  if (width == 4) target = uint32_t(value);  // the upper half is cleared
  else std::memcpy(&target, &value, width);
}

static bool go_on(void* context) {
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  Division found = decode(registers);
  if (!found.length) return false;
  uint64_t dividend = registers[REG_RAX];
  uint64_t quotient = found.divisor ? dividend : 0, remainder = found.divisor ? 0 : dividend;
  put(registers[REG_RAX], quotient, found.width);
  if (found.width == 1) std::memcpy((char*)&registers[REG_RAX] + 1, &remainder, 1);
  else put(registers[REG_RDX], remainder, found.width);
  registers[REG_RIP] += found.length;
  return true;
}

#else

static bool go_on(void*) { return false; }

#endif

static void divided(int, siginfo_t*, void* context) {
  static const char sentence[] = "an integer is divided by zero, which this CPU does not go on from\n";
  if (go_on(context)) return;
  (void)!write(2, sentence, sizeof sentence - 1);
  _exit(3);
}

static const int division = [] {
  struct sigaction action = {};
  action.sa_sigaction = divided;
  action.sa_flags = SA_SIGINFO;
  return sigaction(SIGFPE, &action, nullptr);
}();

}  // namespace emu
