"""The peers of the GPU table: torch, jax, CuPy and torchrl on the same device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from asv_benches.peers.cuda_timing import Figure, Sizes


class MissingError(Exception):
    """A peer is not installed, or not for CUDA."""


def compare(
    figure: Figure, peer: str, make: Callable[[Any], Callable[[], Any]], job: Any, sizes: Sizes
) -> None:
    """Adds our speed-up over a peer to a figure, or why there is none to its note.

    Args:
        figure: ours, per call of the same work.
        peer: its name.
        make: job -> call, which waits until the device has finished.
        job: the work.
        sizes: how long to measure.
    """
    assert figure.seconds is not None
    try:
        seconds = _median_seconds(make(job), sizes)
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        figure.note = f"{figure.note} {peer}: {type(error).__name__}: {reason}.".strip()
        return
    figure.ratios[peer] = seconds / figure.seconds


def _median_seconds(call: Callable[[], Any], sizes: Sizes) -> float:
    call()
    call()
    seconds: list[float] = []
    while len(seconds) < sizes.rounds or (sum(seconds) < sizes.burst_s and len(seconds) < 1000):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds))


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingError("torch is not installed") from error
    if not torch.cuda.is_available():
        raise MissingError("torch is not built for CUDA")
    return torch


def _jax() -> Any:
    # Else it takes three quarters of the memory, and the other rows have to share the rest.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
    except ModuleNotFoundError as error:
        raise MissingError("jax is not installed") from error
    if jax.default_backend() != "gpu":
        raise MissingError("jax has no GPU backend")
    return jax


def torch_simulate(shape: tuple[int, int]) -> Callable[[], None]:
    """CartPole as tensor operations, one kernel after the other."""
    torch = _torch()
    from asv_benches.peers.torch_simulate import TorchSimulate

    num_envs, num_steps = shape
    with torch.device("cuda"):
        peer = TorchSimulate(num_envs)
        peer.setup()

    def call() -> None:
        with torch.device("cuda"):
            peer.run(range(num_steps))
        torch.cuda.synchronize()

    return call


def jax_simulate(shape: tuple[int, int]) -> Callable[[], None]:
    """One `lax.scan` in one `jit`."""
    _jax()
    from asv_benches.peers.jax_simulate import JaxSimulate

    peer, rng = JaxSimulate(*shape), np.random.default_rng(0)
    peer.setup()
    return lambda: peer.run(peer.inputs(rng, 1))


def torch_collect(shape: tuple[int, int]) -> Callable[[], None]:
    """The loop that is not fused: two networks, a categorical draw, the physics, the records."""
    torch = _torch()
    from asv_benches.peers.torch_simulate import TorchSimulate

    num_envs, num_steps = shape

    def network(outputs: int) -> Any:
        layers = [torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64)]
        return torch.nn.Sequential(*layers, torch.nn.Tanh(), torch.nn.Linear(64, outputs))

    with torch.device("cuda"):
        peer = TorchSimulate(num_envs)
        peer.setup()
        policy, critic = network(2), network(1)
        observations = torch.empty(num_steps, num_envs, 4)
        records = torch.empty(3, num_steps, num_envs)
        actions = torch.empty(num_steps, num_envs, dtype=torch.int64)

    def call() -> None:
        with torch.device("cuda"), torch.inference_mode():
            for t in range(num_steps):
                seen = torch.stack(peer._lanes[:4], dim=1)
                log_probs = torch.log_softmax(policy(seen), 1)
                chosen = torch.multinomial(log_probs.exp(), 1)
                observations[t], actions[t] = seen, chosen[:, 0]
                records[0, t] = log_probs.gather(1, chosen)[:, 0]
                records[1, t] = critic(seen)[:, 0]
                peer._lanes = peer.advance(peer._lanes)
                records[2, t] = 1.0
        torch.cuda.synchronize()

    return call


def cupy_solve(problem: tuple[list[np.ndarray], str]) -> Callable[[], None]:
    """cuSPARSE's batched solver; it wants the systems in rows, and overwrites the right sides."""
    try:
        import cupy
        from cupy_backends.cuda.libs import cusparse
    except ImportError as error:
        raise MissingError("cupy is not installed") from error
    host, layout = problem
    lower, diagonal, upper, rhs = (
        cupy.asarray(np.ascontiguousarray(each.T if layout == "interleaved" else each))
        for each in host
    )
    count, size = rhs.shape
    lower[:, 0], upper[:, -1] = 0, 0
    letter = "D" if rhs.dtype == np.float64 else "S"
    handle = cupy.cuda.device.get_cusparse_handle()
    ask = getattr(cusparse, f"{letter.lower()}gtsv2StridedBatch_bufferSizeExt")
    solve = getattr(cusparse, f"{letter.lower()}gtsv2StridedBatch")
    pointers = [each.data.ptr for each in (lower, diagonal, upper)]
    solution = rhs.copy()
    buffer = cupy.empty(ask(handle, size, *pointers, solution.data.ptr, count, size), cupy.uint8)

    def call() -> None:
        solution[...] = rhs
        solve(handle, size, *pointers, solution.data.ptr, count, size, buffer.data.ptr)
        cupy.cuda.runtime.deviceSynchronize()

    return call


def jax_solve(problem: tuple[list[np.ndarray], str]) -> Callable[[], None]:
    """`jax.lax.linalg.tridiagonal_solve`, with the systems in rows."""
    jax = _jax()
    host, layout = problem
    if host[0].dtype == np.float64:
        jax.config.update("jax_enable_x64", True)
    arrays = [jax.numpy.asarray(each.T if layout == "interleaved" else each) for each in host]
    solve = jax.jit(jax.lax.linalg.tridiagonal_solve)
    arrays[3] = arrays[3][..., None]
    return lambda: jax.block_until_ready(solve(*arrays))


def torchrl_tree(problem: tuple[int, int, bool]) -> Callable[[], None]:
    """torchrl's CUDA sum tree."""
    torch = _torch()
    try:
        from torchrl._torchrl import SumSegmentTreeFp32
    except ImportError as error:
        raise MissingError("torchrl is not installed") from error
    leaves, batch, sampled = problem
    tree = SumSegmentTreeFp32(leaves, torch.device("cuda"))
    tree[torch.arange(leaves, device="cuda")] = torch.rand(leaves, device="cuda")
    indices = torch.randint(0, leaves, (batch,), device="cuda")
    priorities = torch.rand(batch, device="cuda")

    def call() -> None:
        if sampled:
            tree.scan_lower_bound(torch.rand(batch, device="cuda") * tree.query(0, leaves))
        else:
            tree[indices] = priorities
        torch.cuda.synchronize()

    return call
