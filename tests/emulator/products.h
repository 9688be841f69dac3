// Tensor cores by the definition of their fragments, matrices of ldmatrix and stmatrix, shuffles.
#pragma once

#include "machine.h"
#include "numbers.h"

namespace emu {

struct Product {  // one wgmma: m64
  int n, k;
  Type d, a, b;
  bool registers, transposed_a, transposed_b;
};

struct Operands {  // of one thread; A in registers or by a descriptor
  void* d;
  const unsigned* a;
  unsigned long long a_desc, b_desc;
  bool accumulate;
};

void wgmma(const Product& product, const Operands& operands);
inline void wgmma(
    const Product& product, void* d, const unsigned* a, unsigned long long b, bool accumulate) {
  wgmma(product, {d, a, 0, b, accumulate});
}
inline void wgmma(
    const Product& product, void* d, unsigned long long a, unsigned long long b, bool accumulate) {
  wgmma(product, {d, nullptr, a, b, accumulate});
}
void wgmma_fence();
void wgmma_commit();
// Waits for all but the newest groups, and hands their accumulators out.
void wgmma_wait(size_t pending);

struct Fragments {  // one mma.sync: m16 n8; the first `a_words` of its words are operand A
  int k;
  Type d, a, b;
  int a_words;
};

void mma(const Fragments& fragments, void* d, std::initializer_list<unsigned> words);
void matrices(
    unsigned address, std::initializer_list<unsigned*> words, bool transposed, bool store);
unsigned long long shuffle(unsigned long long value, int lane, unsigned mask);

}  // namespace emu
