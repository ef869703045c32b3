"""The table `paper`: the figures of "Optimizing Data Collection in Deep RL", on this CPU.

A row is one number of environments (Figure 6: of steps), all contenders interleaved in one process.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from asv_benches.peers.collect import (
    TORCH,
    collect_function,
    jax_collect,
    network_parameters,
    our_collect,
    torch_collect,
)
from asv_benches.peers.cpp import VARIANTS, cpp_cartpole
from asv_benches.peers.harness import Effort, Job, Measurement, Panel, explain
from asv_benches.peers.rows import Row
from asv_benches.peers.simulate import (
    gymnasium_step,
    gymnax_simulate,
    jax_simulate,
    our_simulate,
    our_step,
    start,
    torch_simulate,
)

IDS = ("CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1")
SIZES = (1, 16, 256, 4096, 2**16, 2**18)  # environments
STEPS = (1, 10, 100, 1000)  # of one call
BREAKDOWN_ENVS = 2**16  # Figure 5's number of environments
COUNTED_ENVS = 64  # Figure 6's; the counts do not depend on it
FUSED = 1000
PYTHON_ENVS = 4096  # above, one step of Python's environments takes longer than 0.1 s
PAIRS = {"2": ("rlcpu CartPole-v1", "jax CartPole"), "5": ("rlcpu", "jax")}  # of the same job
STATE_FACTORS, COMPUTE_FACTORS = (1, 4, 16), (1, 16)  # Figure 9
FACTOR_ENVS, FACTOR_STEPS = (256, 4096, 2**16), (1, 10, 1000)
GYM = "torch + SyncVectorEnv"

Makers = dict[str, Callable[[], Job]]


def rows() -> list[Row]:
    """All rows, in the order of the figures."""
    return [
        *(panel("2", "simulate, 100 steps a call", n, environments(n)) for n in SIZES),
        *(panel("4", "simulation and inference", n, collection(n)) for n in SIZES[:-1]),
        *(panel("5", f"{k:,} steps a call", k, breakdown(k)) for k in STEPS[:-1]),
        *(counted(k) for k in STEPS),
        *(panel("8", "simulation", n, fusion(n)) for n in SIZES),
        *(factors(state, compute) for compute in COMPUTE_FACTORS for state in STATE_FACTORS),
    ]


def panel(figure: str, job: str, size: int, contenders: Makers) -> Row:
    """One point of every curve."""
    what = f"Figure {figure}: {job}"
    if figure != "5":
        what += f", {size:,} env{'s' if size > 1 else ''}"
    measure = Panel(size, contenders, pair=PAIRS.get(figure, ()))
    return Row(f"figure-{figure}-{size}", what, "the best of the peers", measure, limit_s=120.0)


def environments(num_envs: int) -> Makers:
    """Figure 2: our environments; CartPole in JAX, and gymnax's, as the paper's simulators were."""
    return {
        **{f"rlcpu {env_id}": partial(our_simulate, num_envs, 100, env_id) for env_id in IDS},
        "jax CartPole": partial(jax_simulate, num_envs, 100),
        "gymnax CartPole": partial(gymnax_simulate, num_envs, 100),
    }


def collection(num_envs: int) -> Makers:
    """Figure 4: N environments, MLP 4-64-64, everything recorded; 1 step a call and 100."""
    contenders: Makers = {
        **{f"rlcpu, K={k}": partial(our_collect, num_envs, k, "relu") for k in (1, 100)},
        **{f"jax scan, K={k}": partial(jax_collect, num_envs, k, "relu") for k in (1, 100)},
        TORCH: partial(torch_collect, num_envs, 1, "relu"),
    }
    if num_envs <= PYTHON_ENVS:
        contenders[GYM] = partial(torch_collect, num_envs, 1, "relu", mode="sync")
    return contenders


def breakdown(num_steps: int) -> Makers:
    """Figure 5: the whole, its simulation alone, and a call that does next to nothing."""
    return {
        "rlcpu": partial(our_collect, BREAKDOWN_ENVS, num_steps, "relu"),
        "rlcpu simulation": partial(our_simulate, BREAKDOWN_ENVS, num_steps),
        "rlcpu call": partial(our_collect, 1, 1, "relu"),
        "jax": partial(jax_collect, BREAKDOWN_ENVS, num_steps, "relu"),
        "jax simulation": partial(jax_simulate, BREAKDOWN_ENVS, num_steps),
        "jax call": partial(jax_collect, 1, 1, "relu"),
    }


def fusion(num_envs: int) -> Makers:
    """Figure 8: simulation alone; `K=1` is `env.step`, with actions from outside."""
    cpp = partial(cpp_cartpole, VARIANTS["-ffast-math, 512 bits"], num_envs)
    contenders: Makers = {
        "rlcpu, K=1": partial(our_step, num_envs),
        **{f"rlcpu, K={k}": partial(our_simulate, num_envs, k) for k in (10, FUSED)},
        **{f"C++, K={k}": partial(cpp, k) for k in (1, FUSED)},
        "jax scan, K=1": partial(jax_simulate, num_envs, 1),
        "torch eager, any K": partial(torch_simulate, num_envs),
    }
    if num_envs <= BREAKDOWN_ENVS:  # above, one call takes 2 s
        contenders["jax scan, K=1000"] = partial(jax_simulate, num_envs, FUSED)
    if num_envs <= PYTHON_ENVS:
        contenders["SyncVectorEnv"] = partial(gymnasium_step, num_envs, "sync")
    return contenders


# ---------------------------------------------------------------- Figure 9: a heavier simulator


def factors(state: int, compute: int) -> Row:
    """What fusion is worth as the simulator grows, all sizes in one process."""
    contenders = {
        curve(envs, steps): partial(heavier_simulate, envs, steps, state, compute)
        for envs in FACTOR_ENVS
        for steps in FACTOR_STEPS
    }
    name, what = f"figure-9-{state}-{compute}", f"Figure 9: S={state}, C={compute}, simulation"
    return Row(name, what, "-", Panel(state, contenders), limit_s=180.0)


def curve(envs: int, steps: int) -> str:
    """Such as "rlcpu N=256 K=10"."""
    return f"rlcpu N={envs} K={steps}"


def heavier_simulate(num_envs: int, num_steps: int, state: int, compute: int) -> Job:
    """`rlcpu.simulate` of the heavier CartPole."""
    return our_simulate(num_envs, num_steps, heavier(state, compute))


def heavier(state_factor: int, compute_factor: int) -> Any:
    """CartPole with state factor S and compute factor C, as a user's environment is made.

    The state is S copies of CartPole's four numbers. A step takes the first copy C steps of the
    physics further and puts it behind the others: every number of the state is read and written,
    and the arithmetic does not depend on S. An episode ends when the copy that moved has fallen.

    Raises:
        ValueError: a factor is no power of two up to 64: functions are doubled, not looped over,
            because a loop inside a step does not vectorise.
    """
    from gymnasium.spaces import Box, Discrete

    from rlcpu.envs import Dynamics, cartpole

    for name, factor in (("state", state_factor), ("compute", compute_factor)):
        if factor not in (1, 2, 4, 8, 16, 32, 64):
            raise ValueError(f"{name}_factor={factor}: expected a power of two up to 64")
    step: Callable[..., Any] = cartpole.step
    reset: Callable[..., Any] = cartpole.reset
    for _ in range(compute_factor.bit_length() - 1):
        step = two_steps(step)
    for _ in range(state_factor.bit_length() - 1):
        reset = two_copies(reset)
    return Dynamics(
        id=f"CartPoleS{state_factor}C{compute_factor}-v0",
        step=step if state_factor == 1 else rotating(step),
        reset=reset,
        observation_space=Box(-np.inf, np.inf, (4 * state_factor,), np.float32),
        action_space=Discrete(2),
        params=cartpole.Params(),
        reset_draws=4,
        max_episode_steps=500,
    )


def two_steps(advance: Callable[..., Any]) -> Callable[..., Any]:
    def step(state, action, params):
        middle, _, fallen = advance(state, action, params)
        new, reward, fallen_later = advance(middle, action, params)
        return new, reward, fallen | fallen_later

    return step


def rotating(advance: Callable[..., Any]) -> Callable[..., Any]:
    def step(state, action, params):
        new, reward, fallen = advance(state[:4], action, params)
        return state[4:] + new, reward, fallen

    return step


def two_copies(reset: Callable[..., Any]) -> Callable[..., Any]:
    def both(uniforms, params):
        half = reset(uniforms, params)
        return half + half

    return both


# ---------------------------------------------------------------- Figure 6: counts, not times


class Counts(NamedTuple):
    """What one collection does.

    Attributes:
        calls: functions called in the interpreter, Python's and C's.
        kernels: pieces of compiled array code that were started.
    """

    calls: int
    kernels: int


def counted(num_steps: int) -> Row:
    """Calls from Python, and kernels started, by one collection of K steps."""
    what = f"Figure 6: kernels started, {num_steps:,} step{'s' if num_steps > 1 else ''} a call"
    count = partial(call_counts, num_steps)
    return Row(f"figure-6-{num_steps}", what, "jax scan", count, unit="calls")


def call_counts(num_steps: int, effort: Effort) -> Measurement:
    """Ours beside JAX; all counts in the details."""
    counts: dict[str, Counts] = {}
    missing: dict[str, str] = {}
    for label, count in COUNTERS.items():
        try:
            counts[label] = count(num_steps)
        except Exception as error:  # a peer may fail in any way; the figure says which
            missing[label] = ": ".join(explain(error))
    counted = {label: each._asdict() for label, each in counts.items()}
    details = {"size": num_steps, "counts": counted, "missing": missing}
    shown = (float(counts[k].kernels) if k in counts else "-" for k in ("rlcpu", "jax"))
    note = "; ".join(f"{label}: {text}" for label, text in missing.items())
    return Measurement(*shown, None, None, note, details)


def interpreter_calls(work: Callable[[], Any]) -> Counts:
    """Functions that `work` calls, and how many of them are numba's kernels.

    numba shows a kernel to a profiler as a frame whose globals are not those of a module.
    """
    seen: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        kernel = event == "call" and "__name__" not in frame.f_globals
        seen["kernel" if kernel else event] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    # One call of `work` itself, and one of `setprofile`.
    return Counts(seen["call"] + seen["c_call"] + seen["kernel"] - 2, seen["kernel"])


def count_ours(num_steps: int) -> Counts:
    """`rlcpu.collect`."""
    job = our_collect(COUNTED_ENVS, num_steps, "relu")
    job.call()
    return interpreter_calls(lambda: job.call())


def count_torch(num_steps: int) -> Counts:
    """The loop of torch and Gymnasium's NumPy; kernels are torch's operations alone."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operations(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            Operations.count += 1
            return func(*args, **(kwargs or {}))

    job = torch_collect(COUNTED_ENVS, num_steps, "relu", num_threads=1)
    job.call()
    calls = interpreter_calls(lambda: job.call()).calls
    with Operations():
        job.call()
    return Counts(calls, Operations.count)


def count_jax(num_steps: int) -> Counts:
    """One call of XLA's program; kernels as it lists them, those in the loop once a step."""
    job, counter = jax_collect(COUNTED_ENVS, num_steps, "relu"), np.uint32(1)
    job.call(counter)
    calls = interpreter_calls(lambda: (job.call(counter), job.finish())).calls
    function, parameters = collect_function(num_steps, "relu"), network_parameters()
    lanes, buffers = function(parameters, start(COUNTED_ENVS), None, counter)
    program = function.lower(parameters, lanes, buffers, counter).compile().as_text()
    return Counts(calls, xla_kernels(program, num_steps))


# Instructions of XLA that name or move values and start nothing.
PASSIVE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while"}
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = .*? ([a-z][\w-]*)\((?=[%)\w])")


def xla_kernels(program: str, num_steps: int) -> int:
    """Instructions that XLA runs one by one in a program with at most one loop."""
    kernels: Counter[str] = Counter()
    entry = body = here = ""
    for line in program.splitlines():
        if opened := COMPUTATION.match(line):
            here = opened[2]
            entry = here if opened[1] else entry
        elif (found := INSTRUCTION.match(line)) and found[1] not in PASSIVE:
            kernels[here] += 1
        if loop := re.search(r" while\(.*body=%?([\w.-]+)", line):
            body = loop[1]
    return kernels[entry] + num_steps * kernels[body]


COUNTERS = {"rlcpu": count_ours, "jax": count_jax, "torch": count_torch}


# ---------------------------------------------------------------- what the paper printed

Curves = Mapping[str, Mapping[float, float]]  # label, size, units of work per second


def plateau(one: str, other: str) -> Callable[[Curves], float]:
    """Ratio of two curves' best points."""
    return lambda curves: max(curves[one].values()) / max(curves[other].values())


def gain(many: str, one: str, limit: float = 2**20) -> Callable[[Curves], float]:
    """Mean ratio of two curves over the sizes up to `limit`."""

    def ratio(curves: Curves) -> float:
        sizes = [n for n in curves[many] if n in curves[one] and n <= limit]
        return sum(curves[many][n] / curves[one][n] for n in sizes) / len(sizes)

    return ratio


JAX, OURS = "jax scan, K=100", "rlcpu, K=100"
JAX_LONG, OURS_LONG = "jax scan, K=1000", "rlcpu, K=1000"
UP_TO, HERE = "up to 2^13 envs", "(CUDA in the paper, rlcpu here)"
# Figure, the ratio of what, the paper's on a GPU, the same from our curves of that figure.
CLAIMS: tuple[tuple[str, str, str, Callable[[Curves], float]], ...] = (
    ("4", "plateau of XLA over Gym's", "up to 1024x", plateau(JAX, GYM)),
    ("4", "plateau of rlcpu over Gym's", "-", plateau(OURS, GYM)),
    (
        "4",
        f"XLA, many steps a call over one, {UP_TO} (1000 in the paper, 100 here)",
        "53.8x",
        gain(JAX, "jax scan, K=1", 2**13),
    ),
    ("4", f"rlcpu, 100 steps a call over one, {UP_TO}", "-", gain(OURS, "rlcpu, K=1", 2**13)),
    ("4", f"XLA over PyTorch, {UP_TO}", "13.4x", gain(JAX, TORCH, 2**13)),
    ("4", f"rlcpu over PyTorch, {UP_TO}", "-", gain(OURS, TORCH, 2**13)),
    ("8", "XLA, 1000 steps a call over one", "83.3x", gain(JAX_LONG, "jax scan, K=1")),
    (
        "8",
        f"written by hand, 1000 fused steps over one {HERE}",
        "11.3x",
        gain(OURS_LONG, "rlcpu, K=1"),
    ),
    ("8", f"written by hand over XLA, 1000 steps {HERE}", "112.8x", gain(OURS_LONG, JAX_LONG)),
)


def claims(curves: Callable[[str], Curves]) -> list[tuple[str, str, str, str]]:
    """The paper's ratios beside ours; `curves` gives those of a figure."""

    def here(figure: str, ratio: Callable[[Curves], float]) -> str:
        try:
            return f"{ratio(curves(figure)):,.3g}x"
        except (KeyError, ZeroDivisionError):
            return "not measured"

    return [(figure, text, printed, here(figure, ratio)) for figure, text, printed, ratio in CLAIMS]
