// Number formats of the device, converted as PTX defines it.
#pragma once

#include <cmath>
#include <cstring>

namespace emu {

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

}  // namespace emu
