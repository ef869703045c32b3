// The machine's limit for a tridiagonal solve: four arrays read, one written, on every core.
//
// A plain store reads its line first; a streaming store goes past the caches and does not.
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int kBytes = 64;
static inline void stream(double* x, const double* v) { _mm512_stream_pd(x, _mm512_load_pd(v)); }
static inline void stream(float* x, const float* v) { _mm512_stream_ps(x, _mm512_load_ps(v)); }
#elif defined(__AVX__)
constexpr int kBytes = 32;
static inline void stream(double* x, const double* v) { _mm256_stream_pd(x, _mm256_load_pd(v)); }
static inline void stream(float* x, const float* v) { _mm256_stream_ps(x, _mm256_load_ps(v)); }
#elif defined(__SSE2__)
constexpr int kBytes = 16;
static inline void stream(double* x, const double* v) { _mm_stream_pd(x, _mm_load_pd(v)); }
static inline void stream(float* x, const float* v) { _mm_stream_ps(x, _mm_load_ps(v)); }
#else  // no such stores: plain ones
constexpr int kBytes = 16;
template <typename T>
static inline void stream(T* x, const T* v) {
  for (size_t i = 0; i < kBytes / sizeof(T); ++i) x[i] = v[i];
}
#endif

// x = a + b + c + d, `size` numbers each; the arrays begin at multiples of 64 bytes.
template <typename T>
static void plain(const T* a, const T* b, const T* c, const T* d, T* __restrict x, int64_t size) {
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < size; ++i) x[i] = a[i] + b[i] + c[i] + d[i];
}

template <typename T>
static void streaming(const T* a, const T* b, const T* c, const T* d, T* __restrict x,
                      int64_t size) {
  constexpr int64_t kLanes = kBytes / sizeof(T);
  const int64_t blocks = size / kLanes;
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = block * kLanes;
      alignas(64) T v[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        v[i] = a[begin + i] + b[begin + i] + c[begin + i] + d[begin + i];
      }
      stream(x + begin, v);
    }
#if defined(__SSE2__)
    _mm_sfence();
#endif
  }
  for (int64_t i = blocks * kLanes; i < size; ++i) x[i] = a[i] + b[i] + c[i] + d[i];
}

extern "C" {
void plain_float64(const double* a, const double* b, const double* c, const double* d, double* x,
                   int64_t size) {
  plain(a, b, c, d, x, size);
}
void plain_float32(const float* a, const float* b, const float* c, const float* d, float* x,
                   int64_t size) {
  plain(a, b, c, d, x, size);
}
void streaming_float64(const double* a, const double* b, const double* c, const double* d,
                       double* x, int64_t size) {
  streaming(a, b, c, d, x, size);
}
void streaming_float32(const float* a, const float* b, const float* c, const float* d, float* x,
                       int64_t size) {
  streaming(a, b, c, d, x, size);
}
}
