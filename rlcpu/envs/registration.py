"""The environments by name, for `rlcpu.make_vec` and for Gymnasium."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import gymnasium

from rlcpu.envs.contract import names, registry
from rlcpu.envs.contract.names import find

if TYPE_CHECKING:
    from rlcpu.envs.contract.dynamics import Dynamics
    from rlcpu.envs.engine.scalar_env import ScalarEnv
    from rlcpu.envs.engine.vector_env import VectorEnv

# Each family adds its environments to the registry, which lists them in this order.
from rlcpu.envs.tasks import classic_control  # noqa: F401  # isort: skip
from rlcpu.envs.tasks import box2d, minatar, minigrid, mujoco, toy_text  # noqa: F401  # isort: skip
from rlcpu.envs.tasks import craftax, goals, no_velocity, popgym, t_maze  # noqa: F401  # isort: skip


def _find_foreign(id: str) -> Dynamics:
    from rlcpu.envs.gymnasium.task import find_task

    return find_task(id)


names.find_foreign = _find_foreign


def register(dynamics: Dynamics) -> None:
    """Make an environment known by its id, here and to Gymnasium (as "rlcpu/<id>").

    Gymnasium's ids have one slash: "MinAtar/Breakout-v1" is "rlcpu/MinAtar-Breakout-v1" there.
    Registering an id of one's own again replaces the environment.

    Args:
        dynamics: the environment.

    Raises:
        TypeError: it is no `Dynamics`.
        ValueError: the id belongs to an environment of this library.
    """
    from rlcpu.envs.contract.dynamics import Dynamics

    if not isinstance(dynamics, Dynamics):
        raise TypeError(f"dynamics={dynamics!r}: expected a Dynamics")
    family = registry.families.get(dynamics.id)
    if family and (family.package or registry.lookup(dynamics.id) is not dynamics):
        raise ValueError(f"id={dynamics.id!r} is an environment of rlcpu: choose another id")
    _register_with_gymnasium(dynamics.id, dynamics)
    registry.made[dynamics.id] = dynamics


def _register_with_gymnasium(id: str, limits: registry.Limits | Dynamics) -> None:
    """Register an environment in Gymnasium's registry, in the place of an older one of our `id`."""
    name = gymnasium_id(id)
    gymnasium.registry.pop(name, None)
    gymnasium.register(
        name,
        entry_point=f"{__name__}:make_scalar",
        vector_entry_point=f"{__name__}:make_vec",
        max_episode_steps=limits.max_episode_steps,
        reward_threshold=limits.reward_threshold,
        kwargs={"environment": id},
    )


def gymnasium_id(id: str) -> str:
    """Return Gymnasium's id of an environment of ours."""
    return f"rlcpu/{id.replace('/', '-')}"


def register_built_in() -> None:
    """Register the environments of this library with Gymnasium."""
    for id, family in registry.families.items():
        _register_with_gymnasium(id, family.limits[id])


def registered() -> list[str]:
    """Return the ids of all environments of this library and its users that `make_vec` makes here.

    Those of MuJoCo are among them if the package is installed.

    Example:
        >>> "MinAtar/Breakout-v1" in registered()
        True
    """
    return registry.installed_ids()


def registered_by_users() -> list[str]:
    """Return those ids whose environments are not of this library."""
    return [id for id in registry.all_ids() if id not in registry.families]


def make_vec(
    environment: str | Dynamics, num_envs: int = 1, device: str = "cpu", **options: Any
) -> VectorEnv:
    """Make N copies of an environment that step together.

    Args:
        environment: id, such as "CartPole-v1", or a `Dynamics`.
        num_envs: number of copies.
        device: "cpu", or "cuda" for an NVIDIA GPU: see `VectorEnv`.
        **options: `dtype`, `planes`, `autoreset_mode`, `max_episode_steps`, `num_threads` and
            `render_mode` of `VectorEnv`; every other name is a parameter of the environment, such
            as `gravity`: a number, or an array (num_envs,) of one for each environment.

    Returns:
        The vector environment, before its first reset. Its `spec` makes the same again, if the
        environment is a registered one.

    Raises:
        TypeError, ValueError: for a bad argument, with its name and value.
        rlcpu.cuda.CudaUnavailableError: there is no such device, with what to install.

    Example:
        >>> env = make_vec("CartPole-v1", num_envs=2, gravity=1.6)
        >>> env.reset(seed=0)[0].shape
        (2, 4)
    """
    from rlcpu.envs.engine.vector_env import VectorEnv
    from rlcpu.envs.gymnasium.env import make
    from rlcpu.envs.gymnasium.task import GymnasiumTask

    settings, params = _split(options)
    dynamics = find(environment)
    if isinstance(dynamics, GymnasiumTask):
        return make(dynamics.with_params(**params), num_envs, **settings)
    changed = dynamics.with_params(**params) if params else dynamics
    env = VectorEnv(changed, num_envs, device=device, **settings)
    if registry.made.get(dynamics.id) is dynamics:
        env.spec = copy.deepcopy(gymnasium.spec(gymnasium_id(dynamics.id)))
        env.spec.kwargs.update(_plain_options(env, options), num_envs=env.num_envs)
    return env


def _plain_options(env: VectorEnv, options: dict[str, Any]) -> dict[str, Any]:
    """Return options of `make_vec` as plain numbers and names, which a spec can write as JSON."""
    plain = {**options, **{name: values.tolist() for name, values in env.dynamics.varied.items()}}
    if "dtype" in options:
        plain["dtype"] = env.dtype.name
    if "autoreset_mode" in options:
        plain["autoreset_mode"] = env.autoreset_mode.value
    return plain if env.device == "cpu" else {**plain, "device": env.device}


def make_scalar(environment: str, **options: Any) -> ScalarEnv:
    """Make the environment of `gymnasium.make("rlcpu/...")`; options are those of `make_vec`."""
    from rlcpu.envs.engine.scalar_env import ScalarEnv

    settings, params = _split(options)
    dynamics = find(environment).with_params(**params)
    return ScalarEnv(dynamics, **settings)


#: Gymnasium reads here whether to wrap the environment for render modes that end in "_list".
make_scalar.metadata = {"render_modes": ["human", "rgb_array"]}  # type: ignore[attr-defined]


def _split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return options in two dicts: settings of the vector environment, and parameters."""
    names = ("dtype", "planes", "autoreset_mode", "max_episode_steps", "num_threads", "render_mode")
    settings = {k: v for k, v in options.items() if k in names}
    return settings, {k: v for k, v in options.items() if k not in names}
