# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # MuJoCo: the physics in C, everything around it compiled
#
# Todorov et al. (2012, *MuJoCo: a physics engine for model-based control*) wrote the simulator
# that most continuous control is studied on. Its step is a few microseconds of C; what a training
# loop puts around it, in Python, takes longer: an action goes in, rewards and observations are
# computed with NumPy, an episode is reset. Here these are plain Python functions of one
# simulation, compiled into one function that MuJoCo's own threads call, policy included.
#
# This notebook looks at what is left of the physics' own speed, checks that nothing but time has
# changed, gives every simulation a body of its own, and trains a model of one's own. All figures
# are measured here, by the cells above them.

# %%
import logging
import time

import gymnasium
import matplotlib.pyplot as plt
import mujoco
import numpy as np

import rlcpu
from rlcpu.envs.mujoco import MuJoCoDynamics
from rlcpu.kernels.machine.threads import show_config

plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3})
plt.rcParams["figure.constrained_layout.use"] = True
logging.getLogger("rlcpu.mujoco").setLevel("ERROR")  # it warns of Gymnasium's own models
settings = show_config()
print({k: settings[k] for k in ("cpu", "threads", "numba", "gymnasium")}, mujoco.__version__)


def seconds(call, budget=0.3):
    """Of all cores: the least of the calls that fit into `budget`, after one that may compile."""
    call()
    best, end = np.inf, time.process_time() + budget
    while best == np.inf or time.process_time() < end:
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


# %% [markdown]
# ## How fast
#
# HalfCheetah-v5, 64 of them: Gymnasium's loop over environments, one step of ours with actions
# from outside, and 16 steps a call with a network of two layers of 64 that chooses the actions.

# %%
TASK, NUM_ENVS = "HalfCheetah-v5", 64


def stepping(env):
    """A function that takes one step of all environments."""
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = env.action_space.sample()
    return lambda: env.step(actions)


env = rlcpu.make_vec(TASK, NUM_ENVS)
env.reset(seed=0)
policy = rlcpu.policies.MLP(env.single_observation_space, env.single_action_space, seed=0)
rollout = rlcpu.collect(env, policy, 16)
theirs = gymnasium.make_vec(TASK, NUM_ENVS, vectorization_mode="sync")
took = {
    "SyncVectorEnv": seconds(stepping(theirs)) / NUM_ENVS,
    "env.step": seconds(stepping(rlcpu.make_vec(TASK, NUM_ENVS))) / NUM_ENVS,
    "collect, with a policy": seconds(lambda: rlcpu.collect(env, policy, 16, out=rollout))
    / (16 * NUM_ENVS),
}

# %% [markdown]
# The physics alone is a loop over `mj_step` in C: no environment takes less. The time is that of
# all cores together; divided by their number it is what passes on a machine that does nothing else.

# %%
model, frame_skip = env.dynamics.model, env.dynamics.frame_skip
data, controls = mujoco.MjData(model), np.random.default_rng(0).uniform(-1, 1, (500, 6))


def simulate():
    mujoco.mj_resetData(model, data)
    for control in controls:
        data.ctrl[:] = control
        mujoco.mj_step(model, data, frame_skip)


took["physics alone"] = seconds(simulate) / len(controls)

figure, axes = plt.subplots(figsize=(7, 2.6))
axes.barh(list(took), [1e6 * s for s in took.values()], color=["C7", "C0", "C0", "C2"])
axes.set_xlabel(f"CPU time of a step of {TASK} (microseconds)")
axes.invert_yaxis()
plt.show()

# %% [markdown]
# ## The same numbers
#
# In float64 an environment returns Gymnasium's observations and rewards bit for bit, from the
# same state and actions. Three hundred steps, and the largest difference in any of them:

# %%
ours = rlcpu.make_vec(TASK, 1, dtype="float64")
ours.reset(seed=0)
other = gymnasium.make(TASK).unwrapped
other.reset(seed=0)
nq, nv = model.nq, model.nv
other.set_state(ours.state[0, 1 : 1 + nq], ours.state[0, 1 + nq : 1 + nq + nv])
rng, largest = np.random.default_rng(0), 0.0
for _ in range(300):
    action = rng.uniform(-1, 1, 6).astype(np.float32)
    seen, reward, *_ = ours.step(action[None])
    expected, paid, *_ = other.step(action)
    largest = max(largest, np.abs(seen[0] - expected).max(), abs(reward[0] - paid))
print("largest difference:", largest)

# %% [markdown]
# ## A body for each simulation
#
# Any real number of the model may differ from simulation to simulation. Sixty-four hoppers fall
# from the same height, under gravities from the Moon's to Jupiter's; what MuJoCo derives from
# such numbers is derived for each.

# %%
gravity = np.zeros((NUM_ENVS, 3))
gravity[:, 2] = -np.linspace(1.6, 24.8, NUM_ENVS)
options = {"terminate_when_unhealthy": False, "reset_noise_scale": 0.0, "gravity": gravity}
hoppers = rlcpu.make_vec("Hopper-v5", NUM_ENVS, dtype="float64", **options)
hoppers.reset(seed=0)
heights = []
for _ in range(60):
    heights.append(hoppers.step(np.zeros((NUM_ENVS, 3), np.float32))[0][:, 0])

figure, axes = plt.subplots()
times = np.arange(1, 61) * hoppers.dynamics.dt
colours = plt.cm.viridis(np.linspace(0, 1, NUM_ENVS))
for k in range(0, NUM_ENVS, 7):
    label = f"{-gravity[k, 2]:.1f} m/s²"
    axes.plot(times, np.array(heights)[:, k], color=colours[k], label=label)
axes.set(xlabel="seconds", ylabel="height of the torso (m)", title="Hoppers without control")
axes.legend(fontsize="small", ncols=2)
plt.show()

# %% [markdown]
# ## A model of one's own
#
# A model and a few functions of one simulation: a cart that has to balance a pole. `randomize`
# draws the mass of the pole anew at each reset, from 20 to 420 g: the policy has to work for all
# of them.

# %%
CART = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <light pos="0 0 3"/>
    <geom type="plane" size="3 3 .1" pos="0 0 -.7" rgba=".8 .85 .9 1"/>
    <body name="cart">
      <joint name="slide" type="slide" axis="1 0 0" range="-2 2" limited="true" damping="0.05"/>
      <geom type="box" size="0.15 0.1 0.08" mass="1" rgba=".2 .4 .7 1"/>
      <body name="pole">
        <joint name="hinge" type="hinge" axis="0 1 0" damping="0.002"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.03" mass="0.1" rgba=".9 .5 .2 1"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="slide" gear="10" ctrllimited="true" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""


def randomize(rng, model, params):
    model.body_mass[2] *= 0.2 + 4.0 * rng.uniform(0)


def reset(data, uniforms, params):
    data.qpos[0] = 0.4 * uniforms[0] - 0.2
    data.qpos[1] = 0.2 * uniforms[1] - 0.1


def observe(data, observation, params):
    for k in range(2):
        observation[k] = data.qpos[k]
        observation[2 + k] = data.qvel[k]


def reward(data, action, before, after, params):
    return 1.0 - 0.1 * abs(data.qpos[0])


def terminated(data, params):
    return abs(data.qpos[1]) > 0.2


balance = MuJoCoDynamics(
    id="Balance-v0",
    xml=CART,
    frame_skip=2,
    fields=("qpos", "qvel"),
    randomize=randomize,
    randomized=("body_mass",),
    reset=reset,
    reset_draws=2,
    observe=observe,
    observation_size=4,
    reward=reward,
    terminated=terminated,
    max_episode_steps=500,
    reward_threshold=480.0,
)
rlcpu.register(balance)
agent = rlcpu.train.PPO("Balance-v0", seed=0)
history = agent.learn(400_000, target_return=480.0)
print(f"{history.steps:,} steps, mean return {history.episode_return:.0f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
steps, returns = np.array(history.curve).T
axes[0].plot(steps / 1000, returns)
axes[0].set(xlabel="thousand steps", ylabel="mean return of the last 100 episodes")
shown = rlcpu.make_vec("Balance-v0", 1, render_mode="rgb_array")
observation, _ = shown.reset(seed=1)
for _ in range(40):
    observation = shown.step(agent.predict(observation))[0]
axes[1].imshow(shown.render()[0])
axes[1].set_axis_off()
shown.close()
plt.show()
