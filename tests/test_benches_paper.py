"""Contenders of the table `paper`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches.peers import paper_calls  # noqa: E402

PROGRAM = """HloModule jit_collect, is_scheduled=true

%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %a = f32[4]{0} add(%p, %p)
}

%body.1 (state: (s32[], f32[4])) -> (s32[], f32[4]) {
  %state = (s32[], f32[4]{0}) parameter(0)
  %x = f32[4]{0} get-tuple-element(%state), index=1
  %f = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused
  %d = f32[4]{0} dot(%f, %f), lhs_contracting_dims={0}
  ROOT %t = (s32[], f32[4]{0}) tuple(%d)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x.1 = f32[4]{0} parameter(0)
  %c = f32[4]{0} copy(%x.1)
  %w = (s32[], f32[4]{0}) while(%c), condition=%end, body=%body.1
  ROOT %r = f32[4]{0} get-tuple-element(%w), index=1
}
"""


def test_xla_starts_the_loops_kernels_in_every_step():
    assert paper_calls.xla_kernels(PROGRAM, 1) == 3
    assert paper_calls.xla_kernels(PROGRAM, 10) == 21


def test_interpreter_calls_are_counted():
    def work() -> int:
        return max(len("abc"), 2)

    assert paper_calls.interpreter_calls(work) == (2, 0)


def test_our_kernels_do_not_depend_on_the_number_of_steps():
    few, many = (paper_calls.count_ours(num_steps) for num_steps in (1, 50))
    assert few == many
    assert few.kernels <= 3


def test_a_missing_peer_is_named(monkeypatch):
    def absent(num_steps: int) -> paper_calls.Counts:
        raise ModuleNotFoundError("no jax")

    counters = {"rlcpu": lambda num_steps: paper_calls.Counts(5, 1), "jax": absent}
    monkeypatch.setattr(paper_calls, "COUNTERS", counters)
    measurement = paper_calls.CallCounts(4)(None)  # type: ignore[arg-type]
    assert (measurement.ours, measurement.peer) == (1.0, "-")
    assert measurement.note == "jax: not installed: no jax"


def test_torchs_cartpole_is_cartpole():
    torch = pytest.importorskip("torch")
    from asv_benches.peers.torch_simulate import TorchSimulate
    from rlcpu.envs.cartpole import DYNAMICS

    peer = TorchSimulate(64)
    peer.setup()
    before = np.array(peer._lanes[:4], np.float64)
    random = torch.random.get_rng_state()
    actions = (torch.rand(64) < 0.5).numpy()
    torch.random.set_rng_state(random)
    peer.run([0])
    for lane in range(64):
        state = tuple(before[:, lane])
        new, _, terminated = DYNAMICS.step(state, int(actions[lane]), DYNAMICS.params)
        assert not terminated
        after = [row[lane].item() for row in peer._lanes[:4]]
        np.testing.assert_allclose(after, new, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("state_factor", "compute_factor"), [(1, 1), (2, 1), (1, 4), (4, 2)])
def test_heavier_cartpoles_take_turns(state_factor, compute_factor):
    from asv_benches.peers.factors import make_dynamics
    from rlcpu.envs.cartpole import DYNAMICS

    heavy = make_dynamics(state_factor, compute_factor)
    state = heavy.reset((0.1, 0.2, 0.8, 0.6), heavy.params)
    copies = [state[:4]] * state_factor
    assert state == sum(copies, ())
    for number in range(3 * state_factor):
        action = number % 2
        state, reward, terminated = heavy.step(state, action, heavy.params)
        moved = copies.pop(0)
        for _ in range(compute_factor):
            moved, _, fallen = DYNAMICS.step(moved, action, DYNAMICS.params)
        copies.append(moved)
        assert state == sum(copies, ())
        assert (reward, terminated) == (1.0, fallen)


def test_factors_are_powers_of_two():
    from asv_benches.peers.factors import make_dynamics

    with pytest.raises(ValueError, match="compute_factor=3: expected one of"):
        make_dynamics(1, 3)
