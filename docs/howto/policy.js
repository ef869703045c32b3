// act(policy, observation) returns the action of what agent.export("policy.json") wrote.
// With memory it overwrites `state`, an array of policy.state_size zeros before an episode.
// Of NaN, and of a number that is no choice, the action is NaN, or choice -1.
const times = (n, f) => Array.from({ length: n }, (_, k) => f(k));
const clip = (x, low, high) => Math.min(Math.max(x, low), high);
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const mean = (x) => x.reduce((sum, each) => sum + each, 0) / x.length;
// Of each window the pixels inside of the image: where they begin in it, and in the window.
const windows = ({ height, width, channels, window, stride, padding }) => {
  const along = (size) => times(Math.floor((size + 2 * padding - window) / stride) + 1, (k) => k * stride - padding);
  const inside = (begin, size) => times(window, (k) => k).filter((k) => begin + k >= 0 && begin + k < size);
  return along(height).flatMap((top) => along(width).map((left) =>
    inside(top, height).flatMap((i) => inside(left, width).map((j) =>
      [((top + i) * width + left + j) * channels, (i * window + j) * channels]))));
};
const operations = {
  add: ([x, y]) => x.map((each, k) => each + y[k]),
  concatenate: (parts) => parts.flat(),
  dense: ([x], [weights, biases], _, size) =>
    biases.map((bias, k) => x.reduce((sum, each, i) => sum + each * weights[i * size + k], bias)),
  dueling: ([x], _, { streams }, size) => times(size, (k) => {
    const same = times(size / streams, (a) => x[a * streams + (k % streams)]);
    return x[k] - mean(same) + x[size + (k % streams)];
  }),
  elu: ([x]) => x.map((each) => (each < 0 ? Math.exp(each) - 1 : each)),
  embedding: ([x], [weights], { choices }, size) => {
    const choose = (each) => (each >= 0 && each < choices ? Math.trunc(each) : 0);
    const rows = x.map((each, i) => i * choices + choose(each));
    const zero = x.reduce((sum, each) => sum + (each - each), 0); // or NaN
    return times(size, (k) => rows.reduce((sum, row) => sum + weights[row * size + k], zero));
  },
  gru: ([x], [weights, biases], _, size, h) => {
    const products = operations.dense([h], [weights, biases], _, 3 * size);
    return times(size, (k) => {
      const [r, z] = [0, size].map((at) => sigmoid(x[at + k] + products[at + k]));
      const n = Math.tanh(x[2 * size + k] + r * products[2 * size + k]);
      return n + z * (h[k] - n);
    });
  },
  lstm: ([x], [weights], _, size, h) => {
    const gates = operations.dense([h.slice(0, size)], [weights, x], _, 4 * size);
    const gate = (number, k) => gates[number * size + k];
    const c = times(size, (k) =>
      sigmoid(gate(1, k)) * h[size + k] + sigmoid(gate(0, k)) * Math.tanh(gate(2, k)));
    return [...c.map((each, k) => sigmoid(gate(3, k)) * Math.tanh(each)), ...c];
  },
  min_gru: ([x], _, __, size, h) => h.map((each, k) => each + sigmoid(x[k]) * (x[size + k] - each)),
  layer_norm: ([x], [gains, shifts], { group }) => times(x.length / group, (g) => {
    const part = x.slice(g * group, (g + 1) * group), center = mean(part);
    const deviation = Math.sqrt(mean(part.map((each) => (each - center) ** 2)) + 1e-5);
    return part.map((each, k) => ((each - center) / deviation) * gains[k] + shifts[k]);
  }).flat(),
  channels_last: ([x], _, { channels }) => {
    const pixels = x.length / channels;
    return x.map((_, k) => x[(k % channels) * pixels + Math.floor(k / channels)]);
  },
  convolution: ([x], [weights, biases], sizes) => windows(sizes).map((inside) =>
    biases.map((bias, k) => inside.reduce((sum, [place, row]) => sum
      + times(sizes.channels, (c) => x[place + c] * weights[(row + c) * biases.length + k])
        .reduce((a, b) => a + b), bias))).flat(),
  means: ([x], _, { count }, size) => times(size, (k) => mean(x.slice(k * count, (k + 1) * count))),
  max_pool: ([x], _, sizes) => windows(sizes).map((inside) =>
    times(sizes.channels, (c) => Math.max(...inside.map(([place]) => x[place + c])))).flat(),
  relu: ([x]) => x.map((each) => Math.max(each, 0)),
  silu: ([x]) => x.map((each) => each / (1 + Math.exp(-each))),
  tanh: ([x]) => x.map(Math.tanh),
};

function outputs(policy, observation, state) {
  const { mean, scale } = policy.arrays;
  const isChoice = mean[observation] !== undefined;
  const seen = policy.shape.length ? observation : mean.map((_, k) => (isChoice ? Number(k === observation) : NaN));
  const values = [seen.map((x, k) => clip((x - mean[k]) * scale[k], -policy.clip, policy.clip))];
  for (const each of policy.statements) {
    const read = each.sources.map((k) => values[k]);
    const arrays = each.arrays.map((name) => policy.arrays[name]);
    const { state: begin, remembered } = each.options, h = state?.slice(begin, begin + remembered);
    const made = operations[each.operation](read, arrays, each.options, each.size, h);
    if (remembered) state.splice(begin, remembered, ...made); // it begins with the outputs
    values.push(made.slice(0, each.size));
  }
  return values.at(-1);
}

function act(policy, observation, allowed, state) {
  const isAllowed = (k, each) => !allowed || allowed[k] || Number.isNaN(each);
  const x = outputs(policy, observation, state).map((each, k) => (isAllowed(k, each) ? each : -Infinity));
  if (policy.choices.length) {
    let first = 0;
    const chosen = policy.choices.map((count) => {
      const group = x.slice(first, (first += count));
      return group.indexOf(Math.max(...group));
    });
    return policy.is_list ? chosen : chosen[0];
  }
  const squash = policy.is_squashed ? Math.tanh : (each) => each;
  return policy.center.map((center, k) =>
    clip(center + policy.half[k] * squash(x[k]), policy.low[k], policy.high[k]));
}
