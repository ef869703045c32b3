"""What users of stable-baselines3 and CleanRL write, and what to write here.

The words are those of their documentation, of rl-baselines3-zoo, and what else people try. They are
answered where Python, or a list of names, would say no more than that there is no such name.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar

_Method = TypeVar("_Method", bound=Callable[..., Any])

_LEARNING_RATE = ("learning_rate",)
_LINEAR = ('learning_rate_schedule="linear"',)
_STEPS = ("total_steps",)
#: Our names for those of others. Of several, one is meant that there is at the place: an agent's
#: settings, or a method's arguments. What follows a name says how it is written.
NAMES: dict[str, tuple[str, ...]] = {
    # settings of rollouts and updates
    "n_envs": ("num_envs",),
    "n_steps": ("n_step", "num_steps", "total_steps"),
    "nsteps": ("num_steps",),
    "rollout_length": ("num_steps",),
    "n_epochs": ("num_epochs", "num_updates"),
    "epochs": ("num_epochs", "num_updates"),
    "noptepochs": ("num_epochs",),
    "update_epochs": ("num_epochs",),
    "batch_size": ("minibatch_size",),
    "minibatch_size": ("batch_size",),
    "num_minibatches": ("minibatch_size (num_envs * num_steps / num_minibatches)",),
    "nminibatches": ("minibatch_size (num_envs * num_steps / nminibatches)",),
    "train_freq": ("num_steps",),
    "train_frequency": ("num_steps",),
    "gradient_steps": ("num_updates", "num_epochs"),
    "n_jobs": ("num_threads",),
    "random_state": ("seed",),
    # the optimiser
    "lr": _LEARNING_RATE,
    "policy_lr": _LEARNING_RATE,
    "actor_lr": _LEARNING_RATE,
    "critic_lr": _LEARNING_RATE,
    "q_lr": _LEARNING_RATE,
    "anneal_lr": _LINEAR,
    "lr_schedule": _LINEAR,
    "max_grad_norm": ("max_gradient_norm",),
    "grad_clip": ("max_gradient_norm",),
    # losses
    "clip": ("clip_range",),
    "clip_coef": ("clip_range",),
    "clip_ratio": ("clip_range",),
    "clip_param": ("clip_range",),
    "eps_clip": ("clip_range",),
    "clip_range_vf": ("clip_range_value",),
    "vf_clip_param": ("clip_range_value",),
    "discount": ("gamma",),
    "discount_factor": ("gamma",),
    "gae_lambda": ("lambda_",),
    "lam": ("lambda_",),
    "vf_coef": ("value_coefficient",),
    "ent_coef": ("entropy_coefficient", "temperature, with learn_temperature=False where it stays"),
    "entropy_coef": ("entropy_coefficient", "temperature"),
    "alpha": ("temperature",),
    "autotune": ("learn_temperature",),
    "norm_adv": ("normalize_advantages",),
    "normalize_advantage": ("normalize_advantages",),
    "norm_obs": ("normalize_observations",),
    "clip_obs": ("clip_observations",),
    "norm_reward": ("normalize_rewards",),
    "normalize": ("normalize_observations and normalize_rewards",),
    # networks
    "policy": ('network="mlp", "conv" or "lstm"',),
    "net_arch": ("hidden",),
    "hidden_size": ("hidden",),
    "hidden_sizes": ("hidden",),
    "policy_kwargs": ("hidden and activation",),
    "activation_fn": ("activation",),
    "features_extractor_class": ("network",),
    # replay and exploring
    "buffer_size": ("capacity",),
    "memory_size": ("capacity",),
    "replay_buffer_class": ("buffer",),
    "replay_buffer_kwargs": ("buffer",),
    "prioritized_replay": ('replay="prioritized"',),
    "goal_selection_strategy": ("hindsight_goal",),
    "n_sampled_goal": ("hindsight_ratio, n / (n + 1)",),
    "start_steps": ("learning_starts",),
    "polyak": ("tau (1 - polyak)",),
    "double_q": ("double",),
    "target_update_interval": ("target_period",),
    "target_network_frequency": ("target_period",),
    "epsilon": ("exploration_initial and exploration_final",),
    "start_e": ("exploration_initial",),
    "eps_start": ("exploration_initial",),
    "exploration_initial_eps": ("exploration_initial",),
    "end_e": ("exploration_final",),
    "eps_end": ("exploration_final",),
    "exploration_final_eps": ("exploration_final",),
    "exploration_fraction": ("exploration_steps",),
    "eps_decay": ("exploration_steps",),
    "action_noise": ("exploration_noise",),
    "target_policy_noise": ("target_noise",),
    "policy_noise": ("target_noise",),
    "noise_clip": ("target_noise_clip",),
    "policy_freq": ("policy_delay",),
    "policy_frequency": ("policy_delay",),
    # arguments of `learn`, `evaluate` and `predict`
    "total_timesteps": _STEPS,
    "n_timesteps": _STEPS,
    "num_timesteps": _STEPS,
    "timesteps": _STEPS,
    "steps": _STEPS,
    "progress_bar": ("progress",),
    "callbacks": ("callback",),
    "eval_freq": ("evaluations, how many of them",),
    "n_evaluations": ("evaluations",),
    "best_model_save_path": ("keep_best",),
    "max_no_improvement_evals": ("patience",),
    "save_freq": ("save_every",),
    "checkpoint_freq": ("save_every",),
    "save_path": ("save_to",),
    "verbose": ("progress",),
    "n_eval_episodes": ("num_episodes",),
    "n_episodes": ("num_episodes",),
    "obs": ("observations",),
    "observation": ("observations",),
    "mask": ("action_masks",),
    "episode_start": ("starts",),
}

_LEAVE_OUT = "leave it out"
_ON_CPU = f"agents learn on the CPU, {_LEAVE_OUT}"
_LEARN = "write agent.learn(total_steps)"
_EVALUATE = "write agent.evaluate(num_episodes=100)"
_EVALUATIONS = "write agent.learn(..., evaluations=20), how many there are on the way"
_EVAL_ENV = "write agent.learn(..., evaluations=rlcpu.train.Evaluations(20, env=env))"
_KEEP_BEST = 'write agent.learn(..., evaluations=20, keep_best="best.npz")'
_PATIENCE = "write agent.learn(..., evaluations=20, patience=5)"
_SAVE_EVERY = 'write agent.learn(..., save_to="agent-{steps}.npz", save_every=100_000)'
_CALLBACK = "write agent.learn(..., callback=function): it is called after every rollout"
_TENSORBOARD = "write agent.learn(..., callback=rlcpu.train.TensorBoard(folder))"
_NO_SDE = f"there is no state-dependent exploration, {_LEAVE_OUT}"
_NORMALISE = "write normalize_observations=True and normalize_rewards=True, settings of every agent"
_VECTOR = "write rlcpu.make_vec(id, num_envs)"
_SAVES_BUFFER = "write agent.save(path) and load(path): the file has the buffer too"
#: What has another form here, or none.
ANSWERS: dict[str, str] = {
    # policies by name
    "MlpPolicy": f'network="mlp" is the default, {_LEAVE_OUT}',
    "CnnPolicy": 'write network="conv"',
    "MultiInputPolicy": f"each part of a Dict gets its network, {_LEAVE_OUT}",
    "MlpLstmPolicy": 'write network="lstm"',
    "CnnLstmPolicy": 'write network="lstm"',
    # arguments of agents and of `learn`
    "total_timesteps": _LEARN,
    "n_timesteps": _LEARN,
    "verbose": "write agent.learn(..., progress=True)",
    "progress_bar": "write agent.learn(..., progress=True)",
    "callback": "write agent.learn(..., callback=function)",
    "log_interval": _CALLBACK,
    "tensorboard_log": _TENSORBOARD,
    "tb_log_name": _TENSORBOARD,
    "reset_num_timesteps": f"agent.steps always goes on, {_LEAVE_OUT}",
    "create_eval_env": _EVALUATIONS,
    "eval_env": _EVAL_ENV,
    "eval_freq": _EVALUATIONS,
    "n_eval_episodes": "write agent.learn(..., evaluations=rlcpu.train.Evaluations(20, "
    "num_episodes=50))",
    "eval_log_path": "write agent.history.to_csv(path): it has the evaluations too",
    "log_path": "write agent.history.to_csv(path): it has the evaluations too",
    "best_model_save_path": _KEEP_BEST,
    "max_no_improvement_evals": _PATIENCE,
    "save_freq": _SAVE_EVERY,
    "save_path": _SAVE_EVERY,
    "name_prefix": _SAVE_EVERY,
    "save_model": _SAVE_EVERY,
    "device": _ON_CPU,
    "cuda": _ON_CPU,
    "clip_vloss": "write clip_range_value=0.2, which is clip_range there",
    "use_sde": _NO_SDE,
    "sde_sample_freq": _NO_SDE,
    "ortho_init": f"weights are orthogonal at first, {_LEAVE_OUT}",
    "optimizer": f"the optimiser is Adam, {_LEAVE_OUT}",
    "optimizer_class": f"the optimiser is Adam, {_LEAVE_OUT}",
    "action_noise": f"the policy draws actions itself, {_LEAVE_OUT}",
    "policy_frequency": f"every update learns the policy, {_LEAVE_OUT}",
    "rollout_buffer_class": f"there is one kind of rollout, {_LEAVE_OUT}",
    "env_id": "the environment is the first argument",
    "stats_window_size": f"means are those of 100 episodes, {_LEAVE_OUT}",
    "monitor_wrapper": f"episodes are always counted, {_LEAVE_OUT}",
    "optimize_memory_usage": f"there is one form of the buffer, {_LEAVE_OUT}",
    "torch_deterministic": f"a run is a function of its seed, {_LEAVE_OUT}",
    "custom_objects": "the function that made the layers is network=",
    "track": _CALLBACK,
    "capture_video": "write rlcpu eval FILE --video film.gif",
    # arguments of environments
    "seed": "write env.reset(seed=0)",
    "vec_env_cls": f"there is one class, {_LEAVE_OUT}",
    "env_kwargs": "write parameters as arguments, such as gravity=1.6",
    # attributes of agents
    "fit": _LEARN,
    "train": _LEARN,
    "evaluate_policy": _EVALUATE,
    "num_timesteps": "write agent.steps",
    "num_envs": "write agent.env.num_envs",
    "n_envs": "write agent.env.num_envs",
    "get_env": "write agent.env",
    "set_env": "an agent keeps agent.env; load(path, env=env) goes on in others",
    "observation_space": "write agent.env.single_observation_space",
    "action_space": "write agent.env.single_action_space",
    "logger": "agent.history has all numbers",
    "set_logger": _TENSORBOARD,
    "replay_buffer": "write agent.buffer",
    "save_replay_buffer": _SAVES_BUFFER,
    "load_replay_buffer": _SAVES_BUFFER,
    "get_parameters": "write agent.policy.state(), arrays by name",
    "set_parameters": "write to the arrays of agent.policy.state()",
    # names of modules
    "A2C": "PPO takes the same environments",
    "TRPO": "PPO takes the same environments",
    "RecurrentPPO": 'write PPO(env, network="lstm"); all agents take it',
    "MaskablePPO": "write PPO(env): agents heed an environment's action masks",
    "HerReplayBuffer": 'write replay="hindsight", or rlcpu.replay.HindsightReplayBuffer',
    "VecNormalize": _NORMALISE,
    "VecFrameStack": "write rlcpu.envs.transforms.stack_observations",
    "Monitor": "episodes are always counted: agent.history, rollout.episode_returns",
    "make_vec_env": _VECTOR,
    "DummyVecEnv": _VECTOR,
    "SubprocVecEnv": _VECTOR,
    "check_env": "write rlcpu.envs.check(id)",
    "BaseCallback": _CALLBACK,
    "CallbackList": "write agent.learn(..., callback=[first, second])",
    "CheckpointCallback": _SAVE_EVERY,
    "EvalCallback": _KEEP_BEST,
    "StopTrainingOnNoModelImprovement": _PATIENCE,
    "StopTrainingOnRewardThreshold": "write agent.learn(..., target_return=...)",
}
#: Options of the command line, for those of others.
OPTIONS: dict[str, str] = {
    "env": "the environment comes first, without --env",
    "env_id": "the environment comes first, without --env-id",
    "n": "write --steps N",
    "timesteps": "write --steps N",
    "n_timesteps": "write --steps N",
    "total_steps": "write --steps N",
    "total_timesteps": "write --steps N",
    "n_envs": "write --num-envs N",
    "n_jobs": "write --threads N",
    "num_threads": "write --threads N",
    "n_episodes": "write --episodes N",
    "n_eval_episodes": "write --episodes N, or --eval-episodes N of evaluations on the way",
    "env_kwargs": "write --param NAME=VALUE",
    "hyperparams": "write --set NAME=VALUE",
    "log_folder": "write --save FILE",
    "save_path": "write --save FILE",
    "tensorboard_log": "write --tensorboard FOLDER",
    "capture_video": "write --video FILE.gif",
    "render": "write --video FILE.gif",
    "track": "write --tensorboard FOLDER, or --csv FILE",
    "verbose": "a bar is shown on a terminal, leave it out",
    "eval_freq": "write --evaluations N, how many there are on the way",
    "best_model_save_path": "write --keep-best FILE",
    "max_no_improvement_evals": "write --patience N",
    "save_freq": "write --save-every N",
    "save_model": "write --save FILE",
}
#: Commands, for those of others.
COMMANDS = {
    "enjoy": "eval", "evaluate": "eval", "test": "eval", "play": "eval",
    "run": "train", "learn": "train", "fit": "train",
}  # fmt: skip


def hint_at(name: str, names: Collection[str]) -> str:
    """Return what to write in the place of an unknown name, or "".

    Args:
        name: what was written.
        names: those that there are.
    """
    for ours in NAMES.get(name, ()):
        if re.split(r"\W", ours, maxsplit=1)[0] in names:
            return f"did you mean {ours}?"
    if name in ANSWERS:
        return ANSWERS[name]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else ""


def describe_unknown(
    name: str, names: Collection[str], owner: str = "PPO", kind: str = "setting"
) -> str:
    """Return the message for a name that is none of `names`, with what to write.

    Args:
        name: what was written.
        names: those that there are.
        owner: what has them.
        kind: a noun for them.
    """
    hint = hint_at(name, names) or f"expected one of {', '.join(names)}"
    return f"{name}: {owner} has no such {kind}; {hint}"


def answered(method: _Method) -> _Method:
    """Return a method that says what to write where arguments have names that it does not have.

    So it does where there are more arguments without names than it takes. A TypeError of Python
    says neither.
    """
    parameters = list(inspect.signature(method).parameters.values())[1:]  # but `self`, or `cls`
    kinds = inspect.Parameter
    takes_all = any(each.kind is kinds.VAR_KEYWORD for each in parameters)
    names = [each.name for each in parameters]
    placed = [each.name for each in parameters if each.kind is kinds.POSITIONAL_OR_KEYWORD]

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) - 1 > len(placed) or not (takes_all or kwargs.keys() <= set(names)):
            owner = args[0].__name__ if isinstance(args[0], type) else type(args[0]).__name__
            if method.__name__ != "__init__":
                owner = f"{owner}.{method.__name__}"
            unknown = [name for name in kwargs if name not in names and not takes_all]
            if unknown:
                raise TypeError(describe_unknown(unknown[0], names, owner, "argument"))
            words = [each for each in args[1:] if isinstance(each, str) and each in ANSWERS]
            hints = [f"{each!r}: {ANSWERS[each]}" for each in words] or ["name the others"]
            raise TypeError(f"{owner} takes {', '.join(placed)} alone without a name; {hints[0]}")
        return method(*args, **kwargs)

    wrapped: Any = call
    return wrapped
