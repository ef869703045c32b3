// CartPole as a C++ programmer would write it for speed: structure of arrays, the time loop inside blocks
// that stay in the first-level cache, automatic reset by select, a counter-based generator, OpenMP.
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace {

constexpr int kBlock = 512;  // lanes: 11 arrays of 2 KB
constexpr int kMaxEpisodeSteps = 500;

struct Lanes {
  float x[kBlock], x_dot[kBlock], theta[kBlock], theta_dot[kBlock];
  float episode_return[kBlock], return_sum[kBlock];
  int32_t steps[kBlock], episodes[kBlock], length_sum[kBlock];
  uint32_t key_low[kBlock], key_high[kBlock];
};

// The generator of rlcpu/kernels/random.py: `mix` makes two words per lane and step, number i of that
// step is the product of both after the addition of constants of its own.
struct Words {
  uint32_t a, b;
};

inline Words mix(uint32_t key_low, uint32_t key_high, uint32_t counter) {
  uint32_t a = key_low + counter * 0x9e3779b9u;
  a = (a ^ (a >> 16)) * 0x7feb352du;
  uint32_t b = key_high + a;
  b = (b ^ (b >> 15)) * 0x846ca68bu;
  a += b;
  a = (a ^ (a >> 16)) * 0x85ebca6bu;
  b += a;
  b = (b ^ (b >> 15)) * 0xc2b2ae35u;
  return {a | 1, b};
}

constexpr uint64_t splitmix64(uint64_t index) {
  uint64_t x = index + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <uint64_t index>
inline float uniform(Words words) {
  constexpr uint32_t k = splitmix64(index) & 0xfffffffe, l = splitmix64(index) >> 32;
  const uint32_t product = (words.a + k) * (words.b + l);
  return static_cast<float>(static_cast<int32_t>(product >> 8)) * 0x1p-24f;
}

template <uint64_t index>
inline float start(Words words) {
  return 0.1f * uniform<index>(words) - 0.05f;
}

// Polynomials for |x| <= pi/4, all that CartPole needs: no range reduction. std::sin and std::cos of one
// argument become one call of sincosf, which gcc 12 does not vectorise: 13 times slower.
inline float sine(float x) {
  const float z = x * x;
  return x + x * z * (-1.6666654611e-1f + z * (8.3321608736e-3f + z * -1.9515295891e-4f));
}

inline float cosine(float x) {
  const float z = x * x;
  const float tail = 4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f);
  return 1.0f - 0.5f * z + z * z * tail;
}

// One step of one lane.
inline void step(Lanes& s, int j, uint32_t counter) {
  const float total_mass = 1.1f, pole_mass_length = 0.05f, length = 0.5f, tau = 0.02f;
  const Words words = mix(s.key_low[j], s.key_high[j], counter);
  const float force = uniform<4>(words) < 0.5f ? -10.0f : 10.0f;
  const float theta_dot = s.theta_dot[j];
  const float sin = sine(s.theta[j]), cos = cosine(s.theta[j]);
  const float temp = (force + pole_mass_length * theta_dot * theta_dot * sin) * (1 / total_mass);
  const float theta_acc = (9.8f * sin - cos * temp) /
                          (length * (4.0f / 3.0f - (0.1f / total_mass) * cos * cos));
  const float x_acc = temp - (pole_mass_length / total_mass) * theta_acc * cos;
  const float x = s.x[j] + tau * s.x_dot[j], x_dot = s.x_dot[j] + tau * x_acc;
  const float theta = s.theta[j] + tau * theta_dot, new_theta_dot = theta_dot + tau * theta_acc;

  const int32_t steps = s.steps[j] + 1;
  const float episode_return = s.episode_return[j] + 1.0f;
  const bool done = (std::fabs(x) > 2.4f) | (std::fabs(theta) > 0.20943951f) |
                    (steps >= kMaxEpisodeSteps);
  s.x[j] = done ? start<0>(words) : x;
  s.x_dot[j] = done ? start<1>(words) : x_dot;
  s.theta[j] = done ? start<2>(words) : theta;
  s.theta_dot[j] = done ? start<3>(words) : new_theta_dot;
  const int32_t mask = -static_cast<int32_t>(done);  // as a select, gcc 12 makes a branch of it
  s.episodes[j] -= mask;
  s.length_sum[j] += steps & mask;
  s.return_sum[j] += done ? episode_return : 0.0f;
  s.steps[j] = done ? 0 : steps;
  s.episode_return[j] = done ? 0.0f : episode_return;
}

}  // namespace

// state: (4, num_envs) float32; steps: (num_envs,) int32; episode_return: (num_envs,) float32; all advanced
// by num_steps. keys: (2, num_envs) uint32. statistics: (3,) float64: the finished episodes, the sum of
// their returns, the sum of their lengths.
extern "C" void simulate(float* state, int32_t* steps, float* episode_return, const uint32_t* keys,
                         int64_t num_envs, int64_t num_steps, uint32_t counter, double* statistics) {
  double episodes = 0, returns = 0, lengths = 0;
#pragma omp parallel for schedule(static) reduction(+ : episodes, returns, lengths)
  for (int64_t begin = 0; begin < num_envs; begin += kBlock) {
    const int n = static_cast<int>(std::min<int64_t>(kBlock, num_envs - begin));
    Lanes s = {};
    float* rows[4] = {s.x, s.x_dot, s.theta, s.theta_dot};
    for (int i = 0; i < 4; ++i) std::copy_n(state + i * num_envs + begin, n, rows[i]);
    std::copy_n(steps + begin, n, s.steps);
    std::copy_n(episode_return + begin, n, s.episode_return);
    std::copy_n(keys + begin, n, s.key_low);
    std::copy_n(keys + num_envs + begin, n, s.key_high);
    for (uint32_t t = 0; t < num_steps; ++t) {
#pragma omp simd
      for (int j = 0; j < n; ++j) step(s, j, counter + t);
    }
    for (int i = 0; i < 4; ++i) std::copy_n(rows[i], n, state + i * num_envs + begin);
    std::copy_n(s.steps, n, steps + begin);
    std::copy_n(s.episode_return, n, episode_return + begin);
    for (int j = 0; j < n; ++j) {
      episodes += s.episodes[j];
      returns += s.return_sum[j];
      lengths += s.length_sum[j];
    }
  }
  statistics[0] = episodes;
  statistics[1] = returns;
  statistics[2] = lengths;
}
