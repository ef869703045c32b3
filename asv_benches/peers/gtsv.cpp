// LAPACK's ?gtsv, one call a system, the systems divided among all cores.
//
// gtsv is the routine's address in the library that SciPy brings along: it overwrites what it is
// given, so the matrix goes through `scratch`, 3 * n numbers a thread, and the right-hand side
// through the solution.
#include <omp.h>

#include <algorithm>
#include <cstdint>

template <typename T>
using Gtsv = void (*)(int* n, int* nrhs, T* lower, T* diagonal, T* upper, T* x, int* ldb,
                      int* info);

// Arrays (batch, n), row-major. Returns the number of systems that LAPACK calls singular.
template <typename T>
static int64_t solve(Gtsv<T> gtsv, const T* lower, const T* diagonal, const T* upper, const T* rhs,
                     T* x, T* scratch, int64_t batch, int n) {
  int64_t failed = 0;
#pragma omp parallel reduction(+ : failed)
  {
    T* l = scratch + static_cast<int64_t>(3) * n * omp_get_thread_num();
    T* d = l + n;
    T* u = d + n;
#pragma omp for schedule(static)
    for (int64_t s = 0; s < batch; ++s) {
      const int64_t o = s * n;
      std::copy(lower + o + 1, lower + o + n, l);
      std::copy(diagonal + o, diagonal + o + n, d);
      std::copy(upper + o, upper + o + n - 1, u);
      std::copy(rhs + o, rhs + o + n, x + o);
      int size = n, one = 1, info = 0;
      gtsv(&size, &one, l, d, u, x + o, &size, &info);
      failed += info != 0;
    }
  }
  return failed;
}

extern "C" {
int64_t solve_float64(Gtsv<double> gtsv, const double* lower, const double* diagonal,
                      const double* upper, const double* rhs, double* x, double* scratch,
                      int64_t batch, int n) {
  return solve(gtsv, lower, diagonal, upper, rhs, x, scratch, batch, n);
}
int64_t solve_float32(Gtsv<float> gtsv, const float* lower, const float* diagonal,
                      const float* upper, const float* rhs, float* x, float* scratch,
                      int64_t batch, int n) {
  return solve(gtsv, lower, diagonal, upper, rhs, x, scratch, batch, n);
}
}
