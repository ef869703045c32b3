"""Calls from Python, and kernels started, by one collection of K steps: the paper's Figure 6."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from asv_benches.peers.duel import Measurement
from asv_benches.peers.isolate import explain
from asv_benches.peers.jax_collect import JaxCollect
from asv_benches.peers.jax_simulate import start
from asv_benches.peers.ours import Collect
from asv_benches.peers.timing import Effort
from asv_benches.peers.torch_collect import TorchCollect

NUM_ENVS = 64  # the counts do not depend on it
# Instructions of XLA that name or move values and start nothing.
PASSIVE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while"}
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = .*? ([a-z][\w-]*)\((?=[%)\w])")


class Counts(NamedTuple):
    """What one collection does.

    Attributes:
        calls: functions called in the interpreter, Python's and C's.
        kernels: pieces of compiled array code that were started.
    """

    calls: int
    kernels: int


@dataclass
class CallCounts:
    """Counts of everyone, for one number of steps; not timed.

    Attributes:
        num_steps: K.
    """

    num_steps: int

    def __call__(self, effort: Effort) -> Measurement:
        """Ours beside JAX; all counts in the details."""
        counts: dict[str, Counts] = {}
        missing: dict[str, str] = {}
        for label, count in COUNTERS.items():
            try:
                counts[label] = count(self.num_steps)
            except Exception as error:  # a peer may fail in any way; the figure says which
                missing[label] = ": ".join(explain(error))
        details = {
            "size": self.num_steps,
            "counts": {label: each._asdict() for label, each in counts.items()},
            "missing": missing,
        }
        shown = (float(counts[k].kernels) if k in counts else "-" for k in ("rlcpu", "jax"))
        note = "; ".join(f"{label}: {text}" for label, text in missing.items())
        return Measurement(*shown, None, None, note, details)


def interpreter_calls(work: Callable[[], Any]) -> tuple[int, int]:
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
    return seen["call"] + seen["c_call"] + seen["kernel"] - 2, seen["kernel"]


def count_ours(num_steps: int) -> Counts:
    """`rlcpu.collect`."""
    mine = Collect(NUM_ENVS, num_steps, "relu")
    mine.setup()
    mine.run([0])
    return Counts(*interpreter_calls(lambda: mine.run([0])))


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

    peer = TorchCollect("torch", NUM_ENVS, num_steps, "relu", 1, tuned=True)
    peer.setup()
    peer.run([0])
    calls, _ = interpreter_calls(lambda: peer.run([0]))
    with Operations():
        peer.run([0])
    return Counts(calls, Operations.count)


def count_jax(num_steps: int) -> Counts:
    """One call of XLA's program; kernels as it lists them, those in the loop once a step."""
    peer = JaxCollect(NUM_ENVS, num_steps, "relu")
    peer.setup()
    counters = [np.uint32(1)]
    peer.run(counters)
    calls, _ = interpreter_calls(lambda: peer.run(counters))
    arguments = peer._parameters, start(NUM_ENVS), peer._buffers, counters[0]
    return Counts(
        calls, xla_kernels(peer._function.lower(*arguments).compile().as_text(), num_steps)
    )


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


COUNTERS: dict[str, Callable[[int], Counts]] = {
    "rlcpu": count_ours,
    "jax": count_jax,
    "torch": count_torch,
}
