// The machine's float32 peak: independent chains of fused multiply-adds on every core.
//
// Two FMA units with a latency of four or five cycles need ten chains in flight; twelve fit in the
// registers beside the two operands. gcc lowers the 16-lane vector to what the machine has.
#include <cstdint>

typedef float Vector __attribute__((vector_size(64)));

constexpr int kChains = 12;

// Runs `iterations` on each of `num_threads` threads: 2 * 16 * kChains operations an iteration.
extern "C" float fma_peak(int64_t iterations, int num_threads, float factor, float term) {
  float total = 0;
#pragma omp parallel num_threads(num_threads) reduction(+ : total)
  {
    const Vector a = Vector{} + factor, b = Vector{} + term;
    Vector chain[kChains];
    for (int i = 0; i < kChains; ++i) chain[i] = b * static_cast<float>(i);
    for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 12
      for (int i = 0; i < kChains; ++i) chain[i] = chain[i] * a + b;
    }
    for (int i = 0; i < kChains; ++i) total += chain[i][0];
  }
  return total;
}
