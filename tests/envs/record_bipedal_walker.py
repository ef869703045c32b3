"""Writes what Gymnasium's BipedalWalker does with Box2D, as a program: `python -m` this module.

It wants `pip install gymnasium[box2d]`, which the tests do not: they read bipedal_walker.json.

Episodes begin with a step without torques, since ours begin after it. In that step Box2D pulls the
legs to their joints, from which they are 0.2 m away. What comes of it hangs on the torques, and on
how often Box2D iterates: without torques, or with 200 iterations in place of 60, the heuristic's
mean return is twice as high.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import rlcpu
from rlcpu.policies import MLP

PATH = Path(__file__).with_name("bipedal_walker.json")
UNIT = 1.0 / 30.0
HALF = 17.0 * UNIT  # m, from the middle of a part of a leg to its ends
PIN = 8.0 * UNIT  # m, from the hull's origin down to the hips
STEP = 14.0 * UNIT
EPISODES = {
    "nothing": 200,
    "random": 600,
    "heuristic": 400,
    "trained": 100,
    "random, hardcore": 400,
    "heuristic, hardcore": 300,
}
SHARES = (5, 25, 50, 75, 95)  # %, of the quantiles
MADE = (
    "Gymnasium with Box2D 2.3.10: episodes of seeds 0, 1, ... after a step without torques, with "
    "numpy's default_rng(1).uniform(-1, 1, 4), zeros, BipedalWalkerHeuristics of "
    "gymnasium.envs.box2d.bipedal_walker, and the network of `policy`, which "
    "PPO('BipedalWalker-v3', hidden=(32, 32), seed=0).learn(5_000_000) made; quantiles at SHARES. "
    "Steps: drawn from episodes of Gymnasium's; fields are those of State, after one step those in "
    "the order of AFTER."
)
AFTER = ("x", "y", "angle", "vx", "vy", "spin", "joints", "speeds", "lowers", "offsets")


def make_policy(name: str, rng: np.random.Generator) -> Any:
    """(observation) -> action, for one episode."""
    if name == "random":
        return lambda seen: rng.uniform(-1.0, 1.0, 4)
    if name == "nothing":
        return lambda seen: np.zeros(4)
    if name == "trained":
        policy = trained()
        return lambda seen: np.clip(policy.outputs(seen[None])[0], -1.0, 1.0)
    from gymnasium.envs.box2d.bipedal_walker import BipedalWalkerHeuristics

    walk = BipedalWalkerHeuristics()
    return lambda seen: np.clip(walk.step_heuristic(seen), -1.0, 1.0)


@functools.cache
def trained() -> MLP:
    """The network that was trained on ours; its actions are the means."""
    env = rlcpu.make_vec("BipedalWalker-v3", 1)
    policy = MLP(env.single_observation_space, env.single_action_space, (32, 32))
    for name, values in json.loads(PATH.read_text())["policy"].items():
        getattr(policy, name)[:] = values
    return policy


def state_of(env: Any) -> dict[str, Any]:
    """What our State holds of Box2D's bodies."""
    hull, (x, y) = env.hull, env.hull.position
    pin = x + PIN * math.sin(hull.angle), y - PIN * math.cos(hull.angle)
    lowers, offsets = [], []
    for upper, lower in (env.legs[:2], env.legs[2:]):
        knee = [pin[0] + 2.0 * HALF * math.sin(upper.angle)]
        knee += [pin[1] - 2.0 * HALF * math.cos(upper.angle)]
        lowers += [lower.linearVelocity.x, lower.linearVelocity.y]
        offsets += [lower.worldCenter.x - HALF * math.sin(lower.angle) - knee[0]]
        offsets += [lower.worldCenter.y + HALF * math.cos(lower.angle) - knee[1]]
    base = min(max(math.floor(x / STEP) - 8, 2), 179)
    velocity = hull.linearVelocity
    return {
        "x": x,
        "y": y,
        "angle": hull.angle,
        "vx": velocity.x,
        "vy": velocity.y,
        "spin": hull.angularVelocity,
        "joints": [joint.angle for joint in env.joints],
        "speeds": [joint.speed for joint in env.joints],
        "impulses": [joint.GetMotorTorque(50.0) / 50.0 for joint in env.joints],
        "lowers": lowers,
        "offsets": offsets,
        "base": float(base),
        "nodes": [float(height) for height in env.terrain_y[base : base + 21]],
    }


def flat(fields: dict[str, Any]) -> list[float]:
    """Those of AFTER as numbers."""
    return np.concatenate([np.ravel(fields[name]) for name in AFTER]).tolist()


def record_steps(policy: str, episodes: int, count: int) -> list[dict[str, Any]]:
    """Steps drawn from episodes."""
    env, rng = gymnasium.make("BipedalWalker-v3"), np.random.default_rng(1)
    steps: list[dict[str, Any]] = []
    for seed in range(episodes):
        seen, _ = env.reset(seed=seed)
        act = make_policy(policy, rng)
        for k in range(400):
            before, action = state_of(env.unwrapped), act(seen).astype(np.float32)
            lidar = seen[14:].tolist()
            seen, _, terminated, truncated, _ = env.step(action)
            if k > 2:
                after = flat(state_of(env.unwrapped))
                steps.append({**before, "action": action.tolist(), "lidar": lidar, "after": after})
            if terminated or truncated:
                break
    chosen = rng.choice(len(steps), count, replace=False)
    return [steps[k] for k in sorted(chosen)]


def run_episodes(policy: str, episodes: int, hardcore: bool) -> np.ndarray:
    """Return, length, last place and whether the walker fell, (4, episodes)."""
    limit = 2001 if hardcore else 1601
    env = gymnasium.make("BipedalWalker-v3", hardcore=hardcore, max_episode_steps=limit)
    rng, found = np.random.default_rng(1), []
    for seed in range(episodes):
        env.reset(seed=seed)
        seen, *_ = env.step(np.zeros(4, np.float32))
        act, total, length, ends = make_policy(policy, rng), 0.0, 0, False
        while not ends:
            seen, reward, terminated, truncated, _ = env.step(act(seen).astype(np.float32))
            total, length, ends = total + float(reward), length + 1, terminated or truncated
        fell = terminated and reward == -100.0
        found.append((total, length, env.unwrapped.hull.position.x, fell))
    return np.array(found).T


def record_returns(policy: str, episodes: int, hardcore: bool) -> dict[str, Any]:
    """Returns, lengths and places of episodes."""
    returns, lengths, ways, fallen = run_episodes(policy, episodes, hardcore)
    quantiles = [
        np.percentile(values, SHARES).round(1).tolist() for values in (returns, lengths, ways)
    ]
    named = dict(zip(("returns", "lengths", "ways"), quantiles, strict=True))
    numbers = {"mean": round(returns.mean(), 1), "deviation": round(returns.std(), 1)}
    return {"episodes": episodes, **numbers, **named, "fallen": round(fallen.mean(), 3)}


def rounded(value: Any) -> Any:
    """To five places."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return round(value, 5)


def main() -> None:
    """Steps, and with the word `returns` also returns, which take half an hour."""
    before = json.loads(PATH.read_text())
    returns = before["returns"]
    if "returns" in sys.argv:
        for name, episodes in EPISODES.items():
            policy, _, hardcore = name.partition(", ")
            returns[name] = record_returns(policy, episodes, bool(hardcore))
    steps = record_steps("heuristic", 12, 60) + record_steps("random", 12, 60)
    lines = ",\n".join(json.dumps(rounded(step)) for step in steps)
    head = json.dumps({"made": MADE, "returns": returns, "policy": before["policy"]})
    PATH.write_text(f'{head[:-1]},\n"steps": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
