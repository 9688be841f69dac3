// What generated code calls without a wrapper.
#pragma once

#include "copies.h"
#include "products.h"

#define threadIdx (emu::self().thread)
#define blockIdx (emu::self().block->index)
#define gridDim (emu::machine->grid)

namespace emu {

template <class T>
inline T shuffled(T value, int lane, unsigned mask) {
  static_assert(sizeof(T) <= 8);
  unsigned long long word = 0;
  std::memcpy(&word, &value, sizeof value);
  word = shuffle(word, lane, mask);
  std::memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace emu

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return emu::shuffled(value, emu::self().lane ^ lanes, mask);
}
template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane) {
  return emu::shuffled(value, lane, mask);
}
inline int __any_sync(unsigned mask, bool value) {
  int any = 0;
  for (int lane = 0; lane < 32; ++lane) any |= __shfl_sync(mask, (int)value, lane);
  return any;
}
inline unsigned __ballot_sync(unsigned mask, bool value) {
  unsigned votes = 0;
  for (int lane = 0; lane < 32; ++lane) votes |= __shfl_sync(mask, (unsigned)value, lane) << lane;
  return votes;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline float __uint_as_float(unsigned x) { return emu::bits<float>(x); }
inline float __int_as_float(int x) { return emu::bits<float>(x); }
inline unsigned __float_as_uint(float x) { return emu::bits<unsigned>(x); }
inline int __float_as_int(float x) { return emu::bits<int>(x); }
inline double __longlong_as_double(long long x) { return emu::bits<double>(x); }
inline long long __double_as_longlong(double x) { return emu::bits<long long>(x); }
// Towards zero, saturated; of NaN 0, or the highest bit where either type has 64 bits (PTX, "cvt").
template <class T, class F>
inline T __to_integer(F x) {
  constexpr int bits = sizeof(T) * 8;
  constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  if (x != x) return sizeof(T) == 8 || sizeof(F) == 8 ? (T)(1ull << (bits - 1)) : 0;
  const F end = std::ldexp((F)1, std::is_signed_v<T> ? bits - 1 : bits);
  if (x >= end) return most;
  return x <= (F)least ? least : (T)x;
}
inline int __float2int_rz(float x) { return __to_integer<int>(x); }
inline unsigned __float2uint_rz(float x) { return __to_integer<unsigned>(x); }
inline long long __float2ll_rz(float x) { return __to_integer<long long>(x); }
inline unsigned long long __float2ull_rz(float x) { return __to_integer<unsigned long long>(x); }
inline int __double2int_rz(double x) { return __to_integer<int>(x); }
inline unsigned __double2uint_rz(double x) { return __to_integer<unsigned>(x); }
inline long long __double2ll_rz(double x) { return __to_integer<long long>(x); }
inline unsigned long long __double2ull_rz(double x) { return __to_integer<unsigned long long>(x); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __exp10f(float a) { return std::pow(10.0f, a); }
inline float __sinf(float a) { return std::sin(a); }
inline float __cosf(float a) { return std::cos(a); }
inline float __tanf(float a) { return std::tan(a); }
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
// Of narrow and wide integers: the usual conversions, as the overloads of the device have it.
template <class A, class B>
using Mixed = std::enable_if_t<!std::is_same_v<A, B> && std::is_integral_v<A> && std::is_integral_v<B>,
                               std::common_type_t<A, B>>;
template <class A, class B>
inline Mixed<A, B> max(A a, B b) { return a > (Mixed<A, B>)b ? a : b; }
template <class A, class B>
inline Mixed<A, B> min(A a, B b) { return a < (Mixed<A, B>)b ? a : b; }
