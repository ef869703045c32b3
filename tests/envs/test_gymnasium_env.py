"""Environments of Gymnasium that are not ours: what `collect` makes of their steps."""

from __future__ import annotations

import logging
import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import rlcpu
from rlcpu.envs import GymnasiumEnv
from rlcpu.envs.gymnasium.task import EnvironmentFailure
from rlcpu.policies import MLP, Scalar, Uniform
from tests.envs.gymnasium_cases import MODES, Book, OneArray, Plain, make_books

LENGTHS = [[3, 1, 5], [2], [7, 4]]


def policy_of(env: GymnasiumEnv, **options: Any) -> MLP:
    policy = MLP(env.single_observation_space, env.single_action_space, (8,), seed=1, **options)
    policy.parameters[:] = np.random.default_rng(0).normal(0.0, 0.3, policy.parameters.size)
    policy.observation_scale[:], policy.observation_limit = 1e-3, 0.4
    return policy


def episodes_of(book: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """Lengths and returns of the episodes that ended."""
    found, length, total = [], 0, 0.0
    for entry in book:
        length, total = length + 1, total + entry["reward"]
        if entry["terminated"] or entry["truncated"]:
            found.append((length, total))
            length, total = 0, 0.0
    return found


@settings(max_examples=40, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=4),
    calls=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    masked=st.booleans(),
)
def test_transitions_are_those_that_happened(
    mode: str, lengths: Any, calls: Any, masked: bool
) -> None:
    vector, books = make_books(lengths, mode, masked=masked)
    env = GymnasiumEnv(vector)
    env.reset(seed=3)
    found: list[list[dict[str, Any]]] = [[] for _ in books]
    ended: list[list[tuple[int, float]]] = [[] for _ in books]
    for num_steps in calls:
        rollout = rlcpu.collect(env, Uniform(), num_steps)
        columns = rollout.transitions()
        if masked:
            columns |= rollout.transitions(("action_mask", "next_action_mask"))
        for k in range(num_steps * len(books)):
            found[k % len(books)].append({name: column[k] for name, column in columns.items()})
        ends = rollout.final_indices[:, 1], rollout.episode_lengths, rollout.episode_returns
        for i, length, total in zip(*ends, strict=True):
            ended[i].append((length, total))
        for i, book in enumerate(books):
            after = book.book[len(found[i]) :]
            if after:  # kept for the next rollout
                np.testing.assert_array_equal(rollout.last_observations[i], after[0]["observation"])
    for i, book in enumerate(books):
        assert len(found[i]) == sum(calls)
        assert ended[i] == episodes_of(book.book[: sum(calls)])
        for ours, theirs in zip(found[i], book.book, strict=False):
            for name, value in theirs.items():
                np.testing.assert_array_equal(ours[name], value, err_msg=name)
        assert book.seeds[0] == books[0].seeds[0] + i
        if mode != "plain":  # no step is lost
            assert len(book.book) == sum(calls)


def test_observations_may_be_transposed() -> None:
    """Gymnasium's vectorised CartPole returns the transpose of its states."""
    vector: Any = gymnasium.make_vec(
        "CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point"
    )
    env = GymnasiumEnv(vector)
    observed, _ = env.reset(seed=1)
    assert not observed.flags.c_contiguous
    rollout = rlcpu.collect(env, Uniform(), 5)
    np.testing.assert_array_equal(rollout.observations[0], observed)
    reached = vector.unwrapped.state.T.astype(np.float32)
    np.testing.assert_array_equal(rollout.last_observations, reached)


def test_all_modes_are_one_run() -> None:
    def run(mode: str) -> dict[str, Any]:
        env = GymnasiumEnv(make_books(LENGTHS, mode)[0])
        env.reset(seed=5)
        rollout = rlcpu.collect(env, policy_of(env, value="separate"), 40)
        names = ("observations", "actions", "log_probs", "values", "rewards", "final_values")
        return {name: np.array(getattr(rollout, name)) for name in names}

    first = run("NextStep")
    for mode in ("SameStep", "Disabled"):
        for name, array in run(mode).items():
            np.testing.assert_array_equal(array, first[name], err_msg=f"{mode} {name}")


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("copied", [False, True])  # what the vector environment itself returns
def test_an_environment_may_write_all_observations_into_one_array(
    parts: bool, copied: bool
) -> None:
    def run(mode: str) -> Any:
        _, books = make_books(LENGTHS, "Disabled")
        makers = [lambda book=book: OneArray(book, parts) for book in books]
        vector = SyncVectorEnv(makers, copy=copied, autoreset_mode=AutoresetMode(mode))
        for env in (GymnasiumEnv(vector), GymnasiumEnv(vector)):  # agents may make a second one
            env.reset(seed=1)
        found = [[] for _ in books]
        for num_steps in (7, 1, 12):
            columns = rlcpu.collect(env, Uniform(), num_steps).transitions()
            for k in range(num_steps * len(books)):
                taken = {
                    name: columns[name]["here"][k] if parts else columns[name][k]
                    for name in ("observation", "next_observation")
                }
                found[k % len(books)].append(taken)
        return found, [book.book for book in books]

    for mode in ("SameStep", "NextStep", "Disabled"):
        found, books = run(mode)
        for ours, book in zip(found, books, strict=True):
            for column, entry in zip(ours, book, strict=True):
                for name, value in column.items():
                    np.testing.assert_array_equal(value, entry[name], err_msg=f"{mode} {name}")


@pytest.mark.parametrize("in_place", [True, False])
def test_last_observations_that_the_reset_overwrote_are_told_of(
    in_place: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Where they cannot be copied: in other processes and vector environments of others."""
    book = Book([3, 1, 4])
    one = OneArray(book) if in_place else book
    env = GymnasiumEnv(Plain(SyncVectorEnv([lambda: one], autoreset_mode=AutoresetMode.SAME_STEP)))
    with caplog.at_level(logging.WARNING, "rlcpu"):
        rlcpu.collect(env, Uniform(), 3 + 1 + 4 + 3 + 1 + 4 + 3 + 1 + 4 + 2)
        assert not caplog.records
        rlcpu.collect(env, Uniform(), 30)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == in_place
    assert all("last observation of each of the first 10 episodes is the first" in t for t in texts)


@pytest.mark.parametrize("value", ["separate", "shared"])
def test_the_network_says_what_it_says_of_the_same_observations(value: str) -> None:
    env = GymnasiumEnv(make_books(LENGTHS, "SameStep")[0])
    policy = policy_of(env, value=value)
    rollout = rlcpu.collect(env, policy, 50)
    seen = rollout.observations.reshape(-1, 2)
    logits = policy.outputs(seen).astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    taken = np.take_along_axis(log_probs, rollout.actions.reshape(-1, 1), 1)[:, 0]
    np.testing.assert_allclose(rollout.log_probs.ravel(), taken, atol=2e-6)
    np.testing.assert_array_equal(rollout.values.ravel(), policy.evaluate(seen))
    finals = rollout.final_values[tuple(rollout.final_indices.T)]
    cut = rollout.truncated[tuple(rollout.final_indices.T)]
    np.testing.assert_array_equal(
        finals, np.where(cut, policy.evaluate(rollout.final_observations), np.float32(0))
    )
    assert cut.any()
    assert not cut.all()
    greedy = rlcpu.collect(env, policy, 5, deterministic=True)
    assert not policy.deterministic
    np.testing.assert_array_equal(
        greedy.actions.ravel(), policy.outputs(greedy.observations.reshape(-1, 2)).argmax(axis=1)
    )


def test_actions_have_the_policy_s_probabilities_and_follow_from_the_seed() -> None:
    env = GymnasiumEnv(make_books([[50]] * 4, "SameStep")[0])
    policy = policy_of(env)
    policy.parameters[:] = 0.0
    policy.parameters[-3:] = np.log([0.2, 0.3, 0.5])

    def actions(seed: int, parts: tuple[int, ...]) -> Any:
        env.reset(seed=seed)
        return np.concatenate([rlcpu.collect(env, policy, n).actions for n in parts])

    drawn = actions(0, (1000,))
    counts = np.bincount(drawn.ravel(), minlength=3)
    expected = 4000 * np.array([0.2, 0.3, 0.5])
    assert ((counts - expected) ** 2 / expected).sum() < 13.8  # chi squared, 2 degrees, p = 0.001
    for i in range(3):  # streams of environments, and of steps, have nothing to do with each other
        assert abs(np.corrcoef(drawn[:, i], drawn[:, i + 1])[0, 1]) < 0.1
    assert abs(np.corrcoef(drawn[:-1, 0], drawn[1:, 0])[0, 1]) < 0.1
    np.testing.assert_array_equal(actions(0, (300, 1, 699)), drawn)
    assert (actions(1, (1000,)) != drawn).any()


@pytest.mark.parametrize("mode", ["NextStep", "plain"])
def test_simulate_counts_what_collect_records(mode: str) -> None:
    statistics = []
    for kind in ("collect", "simulate"):
        env = GymnasiumEnv(make_books(LENGTHS, mode)[0])
        env.reset(seed=1)
        if kind == "simulate":
            statistics.append(rlcpu.simulate(env, Uniform(), 100))
        else:
            rollout = rlcpu.collect(env, Uniform(), 100)
    found, returns = statistics[0], rollout.episode_returns
    assert (found.num_steps, found.num_episodes) == (300, len(returns))
    assert found.mean_return == pytest.approx(returns.mean())
    assert found.std_return == pytest.approx(returns.std())
    assert found.mean_length == pytest.approx(rollout.episode_lengths.mean())


def test_spaces_of_many_kinds() -> None:
    bounds = np.array([0.1, -2.0]), np.array([0.3, 5.0])
    for acting in (Box(*bounds, dtype=np.float64), Box(-1.0, 1.0, (2,)), MultiDiscrete([2, 5])):
        for observed in (Box(0, 255, (3,), np.uint8), Box(-9, 9, (2,), np.int64), Discrete(6)):
            env = GymnasiumEnv(
                make_books([[3]] * 2, "Disabled", observed=observed, acting=acting)[0]
            )
            rollout = rlcpu.collect(env, policy_of(env), 6)  # the book looks at every action
            assert rollout.actions.shape == (6, 2, 2)
            assert rollout.actions.dtype == (np.int64 if acting.dtype == np.int64 else np.float32)
            rlcpu.collect(env, Uniform(), 6)
            size = 6 if isinstance(observed, Discrete) else observed.shape[0]
            assert rollout.inputs.shape == (6, 2, size)
            if isinstance(observed, Discrete):
                np.testing.assert_array_equal(rollout.inputs.argmax(axis=-1), rollout.observations)


def test_policies_of_ones_own() -> None:
    env = GymnasiumEnv(make_books([[4]], "Disabled")[0])
    rollout = rlcpu.collect(env, Scalar(lambda x, params, u: (int(x[1]) % 3, x[1], 0.0)), 8)
    np.testing.assert_array_equal(rollout.actions[:, 0], [0, 1, 2, 0, 0, 1, 2, 0])
    np.testing.assert_array_equal(rollout.log_probs[:, 0], [0, 1, 2, 3, 0, 1, 2, 3])
    env = GymnasiumEnv(make_books([[4]], "Disabled", observed=Discrete(7))[0])
    rollout = rlcpu.collect(env, Scalar(lambda x, params, u: (x % 3, 0.0, 0.0)), 8)
    np.testing.assert_array_equal(rollout.actions, rollout.observations % 3)


def test_what_is_no_environment() -> None:
    with pytest.raises(TypeError, match=r"env=3: expected a gymnasium\.vector\.VectorEnv"):
        GymnasiumEnv(3)
    plain = Plain(SyncVectorEnv([lambda: Book([2])]))
    plain.metadata = {}
    with pytest.raises(ValueError, match="no autoreset_mode in its metadata"):
        GymnasiumEnv(plain)
    assert GymnasiumEnv(plain, autoreset_mode="NextStep").autoreset_mode is AutoresetMode.NEXT_STEP
    with pytest.raises(ValueError, match="autoreset_mode='never'"):
        GymnasiumEnv(plain, autoreset_mode="never")


class Faulty(Book):
    """Does something bad in its tenth step."""

    def __init__(self, number: int, fault: str = "") -> None:
        super().__init__([4], number)
        self.fault = fault

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, infos = super().step(action)
        if len(self.book) == 10 and self.fault == "raise":
            raise ZeroDivisionError("the wheel came off")
        if len(self.book) == 10 and self.fault == "reward":
            reward = math.nan
        if len(self.book) == 10 and self.fault == "observation":
            seen[1] = math.inf
        return seen, reward, terminated, truncated, infos


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        (
            "raise",
            EnvironmentFailure,
            r"environment 1 raised ZeroDivisionError\('the wheel .* in s",
        ),
        ("reward", FloatingPointError, "environment 1 has reward=nan in step 5 after the action"),
        ("observation", FloatingPointError, r"environment 1 has observation\[1\]=inf in step 5"),
    ],
)
def test_faults_are_named_and_can_be_gone_on_from(fault: str, error: Any, text: str) -> None:
    books = [Faulty(0), Faulty(1, fault), Faulty(2)]
    env = GymnasiumEnv(SyncVectorEnv([lambda book=book: book for book in books]))
    rlcpu.collect(env, Uniform(), 4)
    with pytest.raises(error, match=f"Faulty: {text}"):
        rlcpu.collect(env, Uniform(), 10)
    rollout = rlcpu.collect(env, Uniform(), 4)  # of new episodes
    np.testing.assert_array_equal(rollout.observations[0, :, 1], 0.0)
    assert rollout.episode_lengths.tolist() == [4, 4, 4]


@pytest.mark.filterwarnings("ignore")  # Gymnasium's, of what the other process printed
def test_an_environment_in_another_process_that_raises() -> None:
    env = GymnasiumEnv(AsyncVectorEnv([lambda: Faulty(0), lambda: Faulty(1, "raise")]))
    with pytest.raises(EnvironmentFailure, match="environment 1 raised ZeroDivisionError"):
        rlcpu.collect(env, Uniform(), 20)
    env.env.close(terminate=True)


def test_answers_of_another_shape_are_refused() -> None:
    env, _ = make_books([[2], [2]], "SameStep")
    step = env.step
    for change, text in (
        (
            lambda s, r, a, b, i: (s[:, :1], r, a, b, i),
            r"observations in step 0 have shape \(2, 1\)",
        ),
        (lambda s, r, a, b, i: (s, r[:1], a, b, i), r"step returned rewards of shape \(1,\)"),
        (
            lambda s, r, a, b, i: (s, r, a, b, {}),
            r'infos\["final_obs"\] lacks environment 0, whose',
        ),
    ):
        env.step = lambda actions, change=change: change(*step(actions))  # type: ignore[method-assign]
        with pytest.raises(ValueError, match=text):
            rlcpu.collect(GymnasiumEnv(env), Uniform(), 3)
    book = Book([3], observed=Discrete(6))
    book.look = lambda: book.moment * 3  # type: ignore[method-assign]
    with pytest.raises(
        ValueError, match="environment 0 has observation=6 in step 1: expected 0 to 5"
    ):
        rlcpu.collect(GymnasiumEnv(book), Uniform(), 3)


def test_a_policy_that_is_not_finite_is_named() -> None:
    env = GymnasiumEnv(Book([3]))
    policy = policy_of(env)
    policy.parameters[0] = np.nan
    with pytest.raises(FloatingPointError, match=r"policy\.parameters\[0\] is nan"):
        rlcpu.collect(env, policy, 3)


def test_environments_of_the_registry() -> None:
    gymnasium.register("Book-v3", lambda **options: Book([3], **options), max_episode_steps=2)
    try:
        made = rlcpu.make_vec("Book-v3", num_envs=3)
        assert isinstance(made, GymnasiumEnv)
        assert (made.num_envs, made.max_episode_steps) == (3, 2)
        assert repr(made) == "GymnasiumEnv(Book-v3, SyncVectorEnv, num_envs=3)"
        rollout = rlcpu.collect(made, Uniform(), 4)
        assert rollout.truncated[1].all()
        longer = rlcpu.make_vec("Book-v3", num_envs=1, max_episode_steps=9, acting=Discrete(5))
        assert longer.single_action_space == Discrete(5)
        assert rlcpu.collect(longer, Uniform(), 4).episode_lengths.tolist() == [3]
        with pytest.raises(TypeError, match="gravity"):
            rlcpu.make_vec("Book-v3", gravity=3)
        with pytest.raises(TypeError, match="autoreset_mode: Book-v3"):
            rlcpu.make_vec("Book-v3", autoreset_mode="SameStep")
    finally:
        del gymnasium.registry["Book-v3"]
    with pytest.raises(ValueError, match="did you mean 'CartPole-v1'"):
        rlcpu.make_vec("CartPole-v0")
    with pytest.raises(ValueError, match=r"environment='no_module_of_this_name:Env-v0'"):
        rlcpu.make_vec("no_module_of_this_name:Env-v0")


class Masked(Book):
    """Its infos hold whatever `told` returns of a moment."""

    def __init__(self, told: Any, **options: Any) -> None:
        super().__init__([4], **options)
        self.told = told

    def infos(self, over: bool = False) -> dict[str, Any]:
        return dict(self.told(self.moment))


def mask(*bits: Any) -> dict[str, Any]:
    return {"action_mask": np.array(bits, np.int8)}


@pytest.mark.parametrize("policy", ["network", "scalar", "uniform"])
def test_every_policy_heeds_action_masks(policy: str) -> None:
    def act(observation, params, uniforms, mask):
        return (0 if mask[0] else 2 if mask[2] else 1), 0.0, 0.0

    env = GymnasiumEnv(make_books([[3, 5], [4]], "SameStep", masked=True)[0])
    env.reset(seed=0)  # which tells of the masks
    assert env.dynamics.num_masked == 3
    chosen = {"network": policy_of(env), "scalar": Scalar(act), "uniform": Uniform()}[policy]
    rollout = rlcpu.collect(env, chosen, 60)  # the books look at every action
    masks = rollout.action_masks
    assert masks is not None
    assert masks.sum(axis=2).tolist() == [[2, 2]] * 60
    if policy == "network":
        logits = chosen.outputs(rollout.observations.reshape(-1, 2)).astype(np.float64)
        odds = np.exp(logits) * masks.reshape(-1, 3)
        taken = np.take_along_axis(odds, rollout.actions.reshape(-1, 1), 1)[:, 0]
        np.testing.assert_allclose(rollout.log_probs.ravel(), np.log(taken / odds.sum(axis=1)),
                                   atol=2e-6)  # fmt: skip
    else:
        picked = {
            (*m, a) for m, a in zip(masks.reshape(-1, 3), rollout.actions.ravel(), strict=True)
        }
        assert len(picked) == (6 if policy == "uniform" else 3)
    assert rlcpu.simulate(env, chosen, 30).num_episodes > 0


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (lambda t: mask(0, 1, 1) if t < 2 else {}, r"lacks environment 0.* in step 1"),
        (lambda t: mask(0, int(t != 1), 0), r"allows nothing in environment 0.* in step 0"),
        (lambda t: mask(0, 1), r"\[0\] is int8 of shape \(2,\).*\(3,\).* after its reset"),
        (lambda t: {"action_mask": np.ones(3)}, r"is float64 of shape \(3,\)"),
    ],
)
def test_masks_that_are_refused(told: Any, text: str) -> None:
    env = GymnasiumEnv(Masked(told))
    with pytest.raises(ValueError, match=rf'Masked: infos\["action_mask"\].*{text}'):
        rlcpu.collect(env, Uniform(), 5)


def test_masks_of_a_box_are_no_masks(caplog: pytest.LogCaptureFixture) -> None:
    env = GymnasiumEnv(Masked(lambda t: mask(1, 0), acting=Box(-1.0, 1.0, (1,))))
    rlcpu.collect(env, Uniform(), 5)
    assert env.dynamics.num_masked == 0
    assert 'infos["action_mask"] of Masked is not heeded' in caplog.text
