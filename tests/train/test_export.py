"""Exported policies say what `predict` says: in C, ONNX, NumPy, JavaScript and PyTorch."""

from __future__ import annotations

import ctypes
import functools
import json
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu import nn
from rlcpu.envs.tasks.minatar import breakout
from rlcpu.policies import NetworkPolicy
from rlcpu.train import DQN, PPO, PQN, QRDQN, SAC, TD3
from tests.envs.masked import SIEVE, TIC_TAC_TOE
from tests.envs.samples import LEVERS

Array = np.ndarray
PAGES = Path(__file__).parents[2] / "docs" / "howto"
CC, NODE = shutil.which("cc") or shutil.which("gcc"), shutil.which("node")
CXX = shutil.which("c++") or shutil.which("g++")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ("-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-pedantic")


def graph(outputs: int) -> Any:
    """Every layer there is, joined in every way."""
    wide = nn.Dense(12) >> nn.LayerNorm() >> nn.Elu()
    parts = nn.Concatenate(nn.Dense(5) >> nn.Tanh(), nn.Embedding(7, choices=3) >> nn.Silu())
    sums = nn.Sum(nn.Dense(12), nn.Dense(12) >> nn.Relu())
    return parts >> nn.Residual(wide) >> sums >> nn.Dense(outputs)


def image(outputs: int) -> Any:
    """Layers for images, of which an observation of four numbers is one."""
    seen = nn.Image(2, 2, 1) >> nn.Convolution(5, 3, padding=1)
    seen = seen >> nn.LayerNorm(each_pixel=True) >> nn.MaxPool(2, stride=1, padding=1)
    return seen >> nn.Residual(nn.Relu() >> nn.Convolution(5, 1)) >> nn.Dense(outputs)


def on_planes() -> PPO:
    """An agent that plays a game by a convolution."""
    agent = PPO("MinAtar/Breakout-v1", num_envs=2)
    spaces = agent.env.single_observation_space, agent.env.single_action_space
    seen = nn.Planes(4, 10, 10) >> nn.Convolution(16, 3, stride=2) >> nn.Relu()
    policy = NetworkPolicy(*spaces, nn.Network(400, seen >> nn.Dense(spaces[1].n + 1)), "shared")
    return PPO("MinAtar/Breakout-v1", num_envs=2, policy=policy)


def by_network(layers: Any) -> PPO:
    """An agent by this network."""
    networks = nn.Network(4, layers), nn.Network(4, nn.Dense(1))
    policy = NetworkPolicy(Box(-1.0, 1.0, (4,)), Discrete(2), *networks)
    return PPO("CartPole-v1", num_envs=2, policy=policy)


CASES: dict[str, Callable[[], Any]] = {
    "choices": lambda: PPO("CartPole-v1", num_envs=2),
    "bounded": lambda: PPO("Pendulum-v1", num_envs=2, value="shared", activation="relu"),
    "scaled": lambda: PPO("Pendulum-v1", num_envs=2, scale_actions=True),
    "several": lambda: PPO(LEVERS, num_envs=2),
    "masked": lambda: PPO(TIC_TAC_TOE, num_envs=2),
    "several masked": lambda: PPO(SIEVE, num_envs=2),
    "masked values": lambda: DQN(TIC_TAC_TOE, num_envs=2),
    "choice seen": lambda: PPO("FrozenLake-v1", num_envs=2),
    "dueling": lambda: DQN("CartPole-v1", num_envs=2, dueling=True),
    "quantiles": lambda: QRDQN("CartPole-v1", num_envs=2, num_quantiles=5, dueling=True),
    "planes": lambda: PQN("MinAtar/Breakout-v1", num_envs=2, network="mlp"),
    "squashed": lambda: SAC("Pendulum-v1", num_envs=2, hidden=(16,)),
    "noisy": lambda: TD3("MountainCarContinuous-v0", num_envs=2, hidden=(16, 16)),
    "graph": lambda: by_network(graph(2)),
    "convolution": on_planes,
    "image": lambda: by_network(image(2)),
}
#: Numbers of an observation from which on most are zeros here, and the policy sees them as they
#: are: a dense layer then goes over the others alone.
WIDE = 400


@functools.cache
def agent_of(name: str) -> Any:
    """An agent with numbers of its own in all arrays."""
    agent = CASES[name]()
    rng = np.random.default_rng(1)
    policy = agent.policy
    is_wide = policy.observation_mean.size >= WIDE
    for array in () if is_wide else (policy.observation_mean, policy.observation_scale):
        array += rng.uniform(0.1, 0.6, array.shape).astype(np.float32)
    if name not in ("planes", "convolution", "image", "dueling"):
        policy.observation_limit = 1.5
    for network in policy.networks().values():
        network.parameters += rng.normal(0, 0.1, network.parameters.shape).astype(np.float32)
    return agent


def observations_of(agent: Any, count: int = 40) -> tuple[Array, Array | None]:
    """Observations, and action masks or None."""
    rng = np.random.default_rng(2)
    shape, dynamics = agent.policy.observation_shape, agent.env.dynamics
    seen: Array = rng.normal(0, 3, (count, *shape)).astype(np.float32)
    if not shape:
        seen = rng.integers(dynamics.observation_size, size=count)
    elif seen[0].size >= WIDE:
        seen[rng.random(seen.shape) < 0.95] = 0.0
    if not dynamics.num_masked:
        return seen, None
    masks, begin = rng.random((count, dynamics.num_masked)) < 0.3, 0
    for size in dynamics.choices or (dynamics.num_actions,):
        masks[np.arange(count), begin + rng.integers(size, size=count)] = True
        begin += size
    return seen, masks


def check(agent: Any, outputs: Any, actions: Any) -> None:
    """Compare with what the agent says: outputs to 1e-6 of the largest of them."""
    seen, masks = observations_of(agent)
    expected = agent.policy.outputs(seen)[:, : agent.policy.head.size]
    np.testing.assert_allclose(outputs, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    predicted = agent.predict(seen, action_masks=masks)
    assert np.shape(actions) == predicted.shape
    if predicted.dtype.kind == "f":
        np.testing.assert_allclose(actions, predicted, rtol=1e-6, atol=2e-6)
    else:
        np.testing.assert_array_equal(actions, predicted)


@pytest.fixture(params=CASES, scope="module")
def agent(request: pytest.FixtureRequest) -> Any:
    return agent_of(request.param)


# ---------------------------------------------------------------- C


def compile_c(path: Path, out: Path, *options: str, is_cpp: bool = False) -> None:
    """Compile a file as C99, or as C++; a warning is an error."""
    compiler, language = (CXX, ("-x", "c++")) if is_cpp else (CC, ("-std=c99",))
    if compiler is None:
        pytest.skip(f"needs a compiler of {'C++' if is_cpp else 'C'}")
    command = [compiler, *FLAGS, *options, *language, str(path), "-lm", "-o", str(out)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def place(array: Array, dtype: Any) -> Any:
    """The address of an array, and the array, which has to live as long."""
    array = np.ascontiguousarray(array, dtype)
    return ctypes.c_void_p(array.ctypes.data), array


def compiled(agent: Any, folder: Path, is_cpp: bool = False) -> Callable[..., tuple[Array, Any]]:
    """Outputs and action of an observation, a mask and a state, which is overwritten, by C."""
    agent.export(folder / "my-policy.c")
    compile_c(folder / "my-policy.c", folder / "policy.so", "-shared", "-fPIC", is_cpp=is_cpp)
    library, head = ctypes.CDLL(str(folder / "policy.so")), agent.policy.head
    library.my_policy_check.restype = ctypes.c_float
    assert library.my_policy_check() < 2e-6

    def act(row: Array, mask: Array | None = None, state: Array | None = None) -> tuple[Array, Any]:
        observation = place(row, np.float32)
        made = np.full(head.size, np.nan, np.float32)
        copied = [] if state is None else [place(state.copy(), np.float32)]
        arguments = [observation, *copied, place(made, np.float32)]
        library.my_policy_outputs(*(address for address, _ in arguments))
        arguments = [observation]
        arguments += [] if state is None else [place(state, np.float32)]
        arguments += [] if mask is None else [place(mask, np.uint8)]
        if not head.is_list:
            return made, library.my_policy_act(*(address for address, _ in arguments))
        count, dtype = len(head.choices) or head.size, np.int32 if head.choices else np.float32
        action = np.zeros(count, dtype)
        arguments.append(place(action, dtype))
        library.my_policy_act(*(address for address, _ in arguments))
        return made, action

    return act


@pytest.mark.parametrize("is_cpp", [False, True], ids=["C", "C++"])
def test_c(agent: Any, is_cpp: bool, tmp_path: Path) -> None:
    act = compiled(agent, tmp_path, is_cpp)
    seen, masks = observations_of(agent)
    made = [act(row, None if masks is None else masks[k]) for k, row in enumerate(seen)]
    check(agent, [outputs for outputs, _ in made], np.array([action for _, action in made]))


@pytest.mark.parametrize("name", ["choices", "several", "masked", "several masked", "squashed"])
def test_c_as_a_program(name: str, tmp_path: Path) -> None:
    agent = agent_of(name)
    agent.export(tmp_path / "policy.c")
    compile_c(tmp_path / "policy.c", tmp_path / "policy", "-DPOLICY_MAIN", is_cpp=True)
    compile_c(tmp_path / "policy.c", tmp_path / "policy", "-DPOLICY_MAIN")
    program = str(tmp_path / "policy")
    assert float(subprocess.check_output([program, "--check"])) < 1e-6
    seen, masks = observations_of(agent)
    lines = [" ".join(map(repr, row.ravel().tolist())) for row in seen]
    if masks is not None:
        mask_lines = (" ".join(map(str, mask.astype(int))) for mask in masks)
        lines = [f"{line}\n{mask}" for line, mask in zip(lines, mask_lines, strict=True)]
    printed = subprocess.check_output([program], input="\n".join(lines), text=True)
    actions = np.array([line.split() for line in printed.splitlines()], float)
    expected = agent.predict(seen, action_masks=masks).reshape(len(seen), -1)
    np.testing.assert_allclose(actions, expected, rtol=1e-6, atol=2e-6)


def with_nan(agent: Any) -> tuple[Array, Array | None]:
    """Observations with NaN among their numbers, each in another place, and action masks."""
    seen, masks = observations_of(agent)
    rows = seen.reshape(len(seen), -1)
    # Convolutions of stride 2 leave out the last row and column of ten.
    rows[np.arange(len(rows)), np.arange(len(rows)) % min(rows.shape[1], 9)] = np.nan
    return seen, masks


def check_nan(agent: Any, outputs: Any, actions: Any) -> None:
    """NaN has come through: all outputs and real numbers are NaN, and choices none there is."""
    assert np.isnan(np.array(outputs, float)).all()
    actions = np.array(actions, float)
    assert (actions == -1).all() if agent.policy.head.choices else np.isnan(actions).all()


def test_nan_in_c(agent: Any, tmp_path: Path) -> None:
    """It makes no action that looks like others, and no choice that does not exist does."""
    act = compiled(agent, tmp_path)
    if not agent.policy.observation_shape:
        made = [act(np.array([choice])) for choice in (np.nan, -1.0, 16.0, np.inf)]
    else:
        seen, masks = with_nan(agent)
        made = [act(row, None if masks is None else masks[k]) for k, row in enumerate(seen)]
    check_nan(agent, *zip(*made, strict=True))


# ---------------------------------------------------------------- files of arrays


def session_of(agent: Any, path: Path) -> Any:
    """ONNX Runtime's session of an agent's policy."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    agent.export(path)
    onnx.checker.check_model(onnx.load(str(path)), full_check=True)
    return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_onnx(agent: Any, tmp_path: Path) -> None:
    session = session_of(agent, tmp_path / "policy.onnx")
    seen, masks = observations_of(agent)
    feed = {"observation": seen, **({} if masks is None else {"allowed": masks})}
    actions, outputs = session.run(["action", "outputs"], feed)
    check(agent, outputs, actions)
    if agent.policy.observation_shape:
        seen, _ = with_nan(agent)
        actions, outputs = session.run(["action", "outputs"], {**feed, "observation": seen})
        check_nan(agent, outputs, actions)


def shown(name: str) -> dict[str, Any]:
    """What a program that the page shows defines."""
    page = (PAGES / "deploy.md").read_text("utf-8")
    pattern = rf"^```python\n# {name}\.py\n(.*?)^```$"
    (source,) = re.findall(pattern, page, re.DOTALL | re.MULTILINE)
    module = types.ModuleType(name)
    exec(source, vars(module))
    return vars(module)


def test_npz(agent: Any, tmp_path: Path) -> None:
    agent.export(tmp_path / "policy.npz")
    policy = shown("reader")["Policy"](tmp_path / "policy.npz")
    seen, masks = observations_of(agent)
    outputs = policy.outputs(seen)[:, : agent.policy.head.size]
    check(agent, outputs, policy.act(seen, True if masks is None else masks))
    probed = policy.outputs(policy.arrays["probe"][None])[0, : agent.policy.head.size]
    np.testing.assert_allclose(probed, policy.arrays["expected"], rtol=1e-5, atol=1e-6)
    if agent.policy.observation_shape:
        seen, masks = with_nan(agent)
        allowed = True if masks is None else masks
        check_nan(agent, policy.outputs(seen), policy.act(seen, allowed))


def run_node(script: str, given: Any) -> Any:
    """What a script of JavaScript prints as JSON, with `given` in front of it."""
    if NODE is None:
        pytest.skip("needs node")
    source = f"const given = {json.dumps(given)};\n{script}"
    printed = subprocess.run([NODE], input=source, capture_output=True, text=True, check=False)
    assert printed.returncode == 0, printed.stderr
    return json.loads(printed.stdout)


def test_json(agent: Any, tmp_path: Path) -> None:
    agent.export(tmp_path / "policy.json")
    seen, masks = observations_of(agent)
    script = (PAGES / "policy.js").read_text("utf-8")
    script += f"""
        const policy = {(tmp_path / "policy.json").read_text()};
        const all = given.seen.map((x, k) => [
            outputs(policy, x).slice(0, given.size), act(policy, x, given.masks?.[k])]);
        const nan = (x, k) => x.map ? x.with(k % Math.min(x.length, 9), NaN) : NaN;
        const nothing = given.seen.map(nan).map((x, k) => [
            outputs(policy, x), act(policy, x, given.masks?.[k])]);
        console.log(JSON.stringify([all, nothing]));
    """
    rows = seen.reshape(len(seen), *([-1] if agent.policy.observation_shape else [])).tolist()
    given = {"seen": rows, "masks": None if masks is None else masks.tolist()}
    made, nothing = run_node(script, {**given, "size": agent.policy.head.size})
    check(agent, [outputs for outputs, _ in made], np.array([action for _, action in made]))
    check_nan(agent, *zip(*nothing, strict=True))  # JSON has null for NaN


# ---------------------------------------------------------------- memory


def remembering(space: Any) -> Any:
    """All layers that remember."""
    return nn.Dense(6) >> nn.Lstm(5) >> nn.Residual(nn.MinGru(5)) >> nn.Gru(7) >> nn.Elu()


def remembering_images(space: Any) -> Any:
    """A convolution in front of what remembers."""
    return nn.Planes(*space.shape) >> nn.Convolution(4, 3, stride=2) >> nn.Relu() >> nn.Gru(6)


REMEMBERING: dict[str, Callable[[], Any]] = {
    "all layers": lambda: PPO(
        "CartPole-v1", num_envs=2, num_steps=4, network=remembering, value="shared"
    ),
    "values": lambda: DQN(TIC_TAC_TOE, num_envs=2, network="mingru", hidden=(16,), dueling=True),
    "images": lambda: PPO(
        "MinAtar/Breakout-v1", num_envs=2, num_steps=4, network=remembering_images
    ),
}


def act_in_order(agent: Any, seen: Array, masks: Array | None, starts: Array) -> Any:
    """What an agent says of observations one after the other: outputs and actions."""
    state, outputs, actions = agent.initial_state(1), [], []
    for k, row in enumerate(seen):
        mask = None if masks is None else masks[k]
        made, _ = agent.policy.outputs(row[None], state, starts[k : k + 1])
        action, after = agent.predict(
            row, action_masks=mask, state=state[0], starts=starts[k : k + 1]
        )
        state = after[None]
        outputs.append(made[0, : agent.policy.head.size])
        actions.append(action)
    return np.array(outputs), np.array(actions)


def test_a_program_of_floats_with_memory(tmp_path: Path) -> None:
    """It hands the state on, and prints a number a line for each observation."""
    agent = PPO("PendulumNoVel-v1", seed=0, num_envs=2, hidden=(8,))
    agent.export(tmp_path / "policy.c")
    compile_c(tmp_path / "policy.c", tmp_path / "policy", "-DPOLICY_MAIN")
    program = str(tmp_path / "policy")
    assert float(subprocess.check_output([program, "--check"])) < 2e-6
    rows = "1 0.6 0.8 0.0\n0 0.6 0.8 0.0\n1 0.6 0.8 0.0\n"
    first, second, again = map(
        float, subprocess.check_output([program], input=rows, text=True).split()
    )
    assert first == again != second


@pytest.mark.parametrize("name", REMEMBERING)
def test_memory(name: str, tmp_path: Path) -> None:
    """In every format, through two episodes; the program reads where they begin."""
    agent = REMEMBERING[name]()
    for network in agent.policy.networks().values():
        noise = np.random.default_rng(1).normal(0, 0.2, network.parameters.shape)
        network.parameters += noise.astype(np.float32)
    seen, masks = observations_of(agent)
    starts = np.arange(len(seen)) % 25 == 0
    outputs, actions = act_in_order(agent, seen, masks, starts)
    near: dict[str, Any] = {"rtol": 1e-5, "atol": 2e-6 * np.abs(outputs).max()}
    for ending in ("c", "npz", "json", "onnx"):
        agent.export(tmp_path / f"policy.{ending}")
    policy = shown("reader")["Policy"](tmp_path / "policy.npz")
    state = np.zeros((1, policy.state_size))
    for k, row in enumerate(seen):
        state[starts[k]] = 0.0
        chosen = policy.act(row[None], True if masks is None else masks[k], state)
        assert chosen[0] == actions[k]
    state[:] = 0.0
    for probe, expected in zip(policy.arrays["probe"], policy.arrays["expected"], strict=True):
        made = policy.outputs(probe[None], state)[0, : agent.policy.head.size]
        np.testing.assert_allclose(made, expected, **near)

    act, remembered = compiled(agent, tmp_path, is_cpp=True), np.zeros(policy.state_size, "f")
    for k, row in enumerate(seen):
        remembered[:] = 0.0 if starts[k] else remembered
        made, action = act(row, None if masks is None else masks[k], remembered)
        assert action == actions[k]
        np.testing.assert_allclose(made, outputs[k], **near)
    mask = None if masks is None else masks[0]
    check_nan(agent, *act(np.full_like(seen[0], np.nan), mask, remembered))
    check_nan(agent, *act(seen[0], mask, remembered))  # what is remembered is NaN

    compile_c(tmp_path / "policy.c", tmp_path / "policy", "-DPOLICY_MAIN")
    program = str(tmp_path / "policy")
    assert float(subprocess.check_output([program, "--check"])) < 2e-6
    shape = len(seen), -1
    numbers = np.hstack([starts[:, None], seen.reshape(shape)]).astype(np.float32).tolist()
    allowed = np.zeros((len(seen), 0)) if masks is None else masks
    lines = [
        f"{' '.join(map(repr, row))} {' '.join(map(str, mask.astype(int)))}"
        for row, mask in zip(numbers, allowed, strict=True)
    ]
    printed = subprocess.check_output([program], input="\n".join(lines), text=True)
    assert list(map(int, printed.split())) == actions.tolist()

    script = (PAGES / "policy.js").read_text("utf-8")
    script += f"""
        const policy = {(tmp_path / "policy.json").read_text()};
        let state = [];
        console.log(JSON.stringify(given.seen.map((x, k) => {{
            if (given.starts[k]) state = Array(policy.state_size).fill(0);
            return act(policy, x, given.masks?.[k], state);
        }})));
    """
    given = {"seen": seen.reshape(len(seen), -1).tolist(), "starts": starts.tolist()}
    given["masks"] = None if masks is None else masks.tolist()
    if NODE is not None:
        assert run_node(script, given) == actions.tolist()

    runtime = pytest.importorskip("onnxruntime")
    path = str(tmp_path / "policy.onnx")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    memory = np.zeros((1, policy.state_size), np.float32)
    for k, row in enumerate(seen):
        feed = {"observation": row[None], "state": memory * (not starts[k])}
        feed |= {} if masks is None else {"allowed": masks[k : k + 1]}
        chosen, made, memory = session.run(["action", "outputs", "next_state"], feed)
        assert chosen[0] == actions[k]
        np.testing.assert_allclose(made[0], outputs[k], **near)


# ---------------------------------------------------------------- PyTorch


def test_torch(agent: Any) -> None:
    torch = pytest.importorskip("torch")
    from rlcpu.adapters.torch import to_torch

    module = to_torch(agent.policy)
    seen, masks = (None if x is None else torch.from_numpy(x) for x in observations_of(agent))
    with torch.no_grad():
        outputs = module(seen)[0][..., : agent.policy.head.size]
        check(agent, outputs.numpy(), module.act(seen, masks).numpy())
        if agent.policy.observation_shape:
            broken = torch.from_numpy(with_nan(agent)[0])
            check_nan(agent, module(broken)[0].numpy(), module.act(broken, masks).numpy())
        before = agent.policy.outputs(observations_of(agent)[0])
        parameters = list(module.policy.parameters())
        for tensor in parameters:
            tensor.add_(0.125)
        after = agent.policy.outputs(observations_of(agent)[0])
        for tensor in parameters:
            tensor.sub_(0.125)
    network = agent.policy.networks()["policy"]
    assert sum(tensor.numel() for tensor in parameters) == network.parameters.size
    assert np.abs(after - before).max() > 0.01


# ---------------------------------------------------------------- what else the page shows


def scripts(*names: str) -> str:
    """Scripts of the page, one after the other."""
    return "\n".join((PAGES / f"{name}.js").read_text("utf-8") for name in names)


def test_the_page_balances_the_same_pole() -> None:
    """The page's steps are those of the environment, and its policy balances for a minute."""
    env = rlcpu.make_vec("CartPole-v1", 8, dtype="float64")
    env.reset(seed=0)
    states, actions = np.array(env.state), np.arange(8) % 2
    env.step(actions)
    script = scripts("policy", "cartpole_policy", "cartpole")
    script += """
        let state = given.states[0], steps = 0, isOver = false;
        while (steps < 3000 && !isOver) {
            [state, , isOver] = cartpole.step(state, act(cartpolePolicy, state)), steps += 1;
        }
        const after = given.states.map((each, k) => cartpole.step(each, given.actions[k])[0]);
        console.log(JSON.stringify([after, steps]));
    """
    given = {"states": states.tolist(), "actions": actions.tolist()}
    after, steps = run_node(script, given)
    np.testing.assert_allclose(after, env.state, rtol=1e-12, atol=1e-15)
    assert steps == 3000


def test_the_page_plays_the_same_breakout() -> None:
    """Its policy plays as long as the environment's functions do, and sees the same all the time.

    Chances decide where an episode begins and whether an action sticks to the one before.
    """
    chances = np.random.default_rng(0).random(3000)
    script = scripts("policy", "breakout_policy", "breakout")
    script += """
        let state = breakout.reset(0);
        console.log(JSON.stringify(given.map((chance, k) => {
            const seen = breakout.observe(state);
            const action = k < 600 ? k % 3 : act(breakoutPolicy, seen); // losing at first
            const [after, reward, isLost] = breakout.step(state, action, chance);
            state = isLost ? breakout.reset(Number(chance >= 0.5)) : after;
            return [seen.flatMap((x, place) => (x ? place : [])), action, reward, isLost];
        })));
    """
    params, lost = breakout.Params(), []
    state = breakout.reset(Chance(0), params)
    for chance, (seen, action, *expected) in zip(
        chances, run_node(script, chances.tolist()), strict=True
    ):
        planes = enumerate(breakout.observe(state, params))
        places = [100 * k + cell for k, plane in planes for cell in range(100) if plane.test(cell)]
        assert seen == places
        state, reward, is_lost = breakout.step(state, action, params, Chance(chance))
        assert [reward, is_lost] == expected
        state = breakout.reset(Chance(chance >= 0.5), params) if is_lost else state
        lost.append(is_lost)
    assert sum(lost[:600]) > 30
    assert sum(lost[600:]) < 30


class Chance(NamedTuple):
    """A source of random numbers that gives one of them alone."""

    number: float

    def uniform(self, k: int) -> float:
        return self.number

    def integers(self, k: int, bound: int) -> int:
        return int(self.number)


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_plays_both(tmp_path: Path) -> None:
    """After half a minute of a browser's clock the pole stands, and bricks were broken.

    Frames follow a timer, for the clock that runs ahead makes none.
    """
    names = re.findall(r'<script src="\.\./(\w+)\.js">', (PAGES / "deploy.md").read_text("utf-8"))
    (tmp_path / "page.html").write_text(
        '<meta charset="utf-8"><div id="cartpole"></div><div id="breakout"></div><script>'
        "requestAnimationFrame = (show) => setTimeout(() => show(performance.now()), 16)</script>"
        + "".join(f'<script src="{PAGES / name}.js"></script>' for name in names)
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=30000"]
    command = [str(BROWSER), *options, f"--user-data-dir={tmp_path}/user", "--dump-dom"]
    page = subprocess.check_output(
        [*command, str(tmp_path / "page.html")], text=True, timeout=120, stderr=subprocess.DEVNULL
    )
    (seconds,) = re.findall(r"s upright, longest ([0-9.]+) s", page)
    (most,) = re.findall(r"Bricks broken: \d+, most (\d+)", page)
    assert float(seconds) > 5
    assert int(most) > 3


def test_the_node_of_ros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It publishes what the policy says; modules of this test stand in the place of ROS."""
    agent = agent_of("choices")
    agent.export(tmp_path / "policy.npz")
    sent: list[float] = []

    class Node:
        def __init__(self, name: str) -> None:
            assert name == "balance"

        def create_publisher(self, kind: Any, topic: str, depth: int) -> Any:
            return types.SimpleNamespace(publish=lambda message: sent.append(message.data))

        def create_subscription(self, kind: Any, topic: str, call: Any, depth: int) -> None:
            self.call = call

    def message(**fields: Any) -> Any:
        return types.SimpleNamespace(**fields)

    for name, fields in {
        "rclpy": {},
        "rclpy.node": {"Node": Node},
        "sensor_msgs.msg": {"JointState": message},
        "std_msgs.msg": {"Float64": message},
        "reader": {"Policy": shown("reader")["Policy"]},
    }.items():
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        vars(sys.modules[name]).update(fields)
    monkeypatch.chdir(tmp_path)
    node, (seen, _) = shown("balance_node")["Balance"](), observations_of(agent)
    for x, speed, angle, turning in seen:
        node.call(message(position=[x, angle], velocity=[speed, turning]))
    assert set(sent) == {-10.0, 10.0}
    np.testing.assert_array_equal(np.array(sent) > 0, agent.predict(seen) == 1)


# ---------------------------------------------------------------- what is refused


def test_unknown_endings_and_layers_are_refused(tmp_path: Path) -> None:
    agent = agent_of("choices")
    with pytest.raises(
        ValueError, match=r"policy\.txt.*expected a name with \.c, \.json, \.npz or"
    ):
        agent.export(tmp_path / "policy.txt")

    def cubed(x):
        return x * x * x

    odd = by_network(nn.Dense(8) >> nn.Activation(cubed) >> nn.Dense(2))
    for name in ("policy.c", "policy.onnx", "policy.npz"):
        with pytest.raises(ValueError, match="the layer 'cubed' cannot be exported"):
            odd.export(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
