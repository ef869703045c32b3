"""What SAC, TD3 and DDPG have in common: an actor of bounded real numbers, and its critics.

An update is two stages. The critics learn the value of the transitions that were stored,

    y = r + discount * (min_k Q'_k(s', a') - alpha * log pi(a'|s')),     a' ~ pi(.|s')
    loss = mean(weight * sum_k (Q_k(s, a) - y)**2 / 2)

then the actor learns from the critics, through the actions that it would take,

    loss = mean(alpha * log pi(a|s) - Q(s, a)),     a ~ pi(.|s), reparametrised

where primes are targets. SAC and TD3 differ in `Rules`: how actions are drawn, and in alpha, which
is 0 for TD3. Networks are 0, the actor, and from 1 on the critics; they see actions as numbers in
[-1, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.dynamics import Dynamics
from rlcpu.kernels.compile import inline, specialise, tuple_of
from rlcpu.kernels.random import mix, uniforms
from rlcpu.nn.duals import slopes_of, value_of, variables
from rlcpu.nn.heads import exponential, fill, standard_normal
from rlcpu.nn.network import WIDTH_IN, WIDTH_OUT, Network, network_of
from rlcpu.nn.passes import BY_INPUTS, OVERWRITTEN, make_passes
from rlcpu.nn.transitions import see
from rlcpu.train.off_policy import OffPolicyConfig

u32 = np.uint32


class Coefficients(NamedTuple):
    """Numbers that the gradients read.

    Attributes:
        critics: how many there are.
        least: 1 if the actor learns from the least of their values, 0 if from the first's.
        noise, noise_clip: deviation of the noise of the next action, and its bound (TD3).
        target_entropy: of a policy, in nats (SAC).
        rate: learning rate of the temperature (SAC).
    """

    critics: float = 2.0
    least: float = 1.0
    noise: float = 0.0
    noise_clip: float = 0.0
    target_entropy: float = 0.0
    rate: float = 0.0


class Rules(NamedTuple):
    """Scalar functions of one number of an action; networks give a mean and a log-deviation.

    Attributes:
        draw: (mean, log_std, noise) -> (action, log_prob), of the actor that learns.
        draw_next: (mean, log_std, noise, coefficients) -> (action, log_prob), of the next state.
        per_number: outputs of the actor for each number: 2, or 1 without a log-deviation.
    """

    draw: Callable[..., Any]
    draw_next: Callable[..., Any]
    per_number: int


class Sample(NamedTuple):
    """What the critics' loss reads of a transition, beside its value."""

    target: float
    weight: float


def soft_bootstrap(
    reward: float, discount: float, terminated: bool, value: float, log_prob: float, alpha: float
) -> float:
    """y: what the value of a transition is to be; Haarnoja et al. 2018, equations 3 and 8."""
    return reward if terminated else reward + discount * (value - alpha * log_prob)


def squared(numbers: Any, sample: Any, weights: Any) -> tuple[float, Any]:
    """Half the squared temporal difference of one critic, and that as a statistic.

    Args:
        numbers: Q(s, a).
        sample: `target` and importance `weight`.
        weights: none.
    """
    error = numbers[0] - sample.target
    return 0.5 * sample.weight * (error * error), (error,)


def actor_loss(value: float, log_prob: float, alpha: float) -> float:
    """What the actor minimises: alpha * log pi - Q."""
    return alpha * log_prob - value


# ---------------------------------------------------------------- gradients


def _make_tools(dtype: type) -> tuple[Callable[..., Any], ...]:
    """`noise_of(chunk, i, k, numbers, stream, settings)`, `join` and `act_on`."""
    normal, draw = specialise(standard_normal, dtype), uniforms(2, 0, np.float32)

    @inline
    def noise_of(chunk, i, k, numbers, stream, settings):
        a, b = mix(settings.key_low, settings.key_high, u32(chunk.update))
        pair = mix(a, b, u32(((chunk.begin + i) * numbers + k) * 2 + stream))
        first, second = draw(pair[0], pair[1])
        return normal(first, second)

    @inline
    def join(inputs, width, rows, first, size, numbers, count):
        for i in range(count):
            for k in range(numbers):
                inputs[i * width + size + k] = rows[first + k, i]

    @inline
    def taken(rows, first, chunk, batch, numbers):
        for i in range(chunk.size):
            for k in range(numbers):
                action = batch.actions[(chunk.begin + i) * numbers + k]
                half = batch.half[k]
                rows[first + k, i] = (action - batch.center[k]) / half if half > 0 else half

    return noise_of, join, taken


def make_critics(dtype: type, rules: Rules) -> Callable[..., None]:
    """The gradient of the critics; see `rlcpu.nn.stages`.

    Rows of scratch are y, log-probabilities, and a row for each number of an action.
    """
    forward, backward = make_passes(dtype)
    noise_of, join, taken = _make_tools(dtype)
    coefficients_of = tuple_of(Coefficients, len(Coefficients._fields))
    draw, target_of = specialise(rules.draw_next, dtype), specialise(soft_bootstrap, dtype)
    loss_of, exp = specialise(squared, dtype), specialise(exponential, dtype)
    zero, per_number = dtype(0), rules.per_number
    zeros = (zero,)

    def critics_gradient(part):
        chunk, gradients, sums, frame = part.chunk, part.gradients, part.sums, part.frame
        learnt, layout, batch, settings = frame.learnt, frame.layout, frame.batch, frame.settings
        worker, space = part.worker, frame.space
        count, size, numbers = chunk.size, batch.mean.size, batch.center.size
        coefficients, passes = coefficients_of(settings.coefficients), settings.passes
        critics, alpha = np.int64(coefficients.critics), exp(dtype(learnt.extra[0]))
        rows, cells = space.rows[worker], space.cells[worker, 0]
        # a' ~ pi(.|s'), by the target of the actor where it has one
        actor = network_of(learnt, layout, max(layout.targets[0], 0))
        wide, width = actor.table[0, WIDTH_IN], actor.table[layout.layers[0] - 1, WIDTH_OUT]
        see(cells, wide, batch.next_observations, chunk, batch)
        outputs = cells[forward(passes, actor, cells, count, False) :]
        for i in range(count):
            total = zero
            for k in range(numbers):
                log_std = outputs[i * width + numbers + k] if per_number == 2 else zero
                noise = noise_of(chunk, i, k, numbers, 0, settings)
                mean = outputs[i * width + k]
                action, log_prob = draw(mean, log_std, noise, coefficients)
                rows[2 + k, i] = action if batch.half[k] > zero else zero
                total += log_prob if batch.half[k] > zero else zero
            rows[1, i] = total
        # y = r + discount * (min_k Q'_k(s', a') - alpha * log pi(a'|s'))
        for critic in range(1, critics + 1):
            target = network_of(learnt, layout, layout.targets[critic])
            wide = target.table[0, WIDTH_IN]
            width = target.table[layout.layers[critic] - 1, WIDTH_OUT]
            see(cells, wide, batch.next_observations, chunk, batch)
            join(cells, wide, rows, 2, size, numbers, count)
            outputs = cells[forward(passes, target, cells, count, False) :]
            for i in range(count):
                value = outputs[i * width]
                rows[0, i] = value if critic == 1 or value < rows[0, i] else rows[0, i]
        for i in range(count):
            k = chunk.begin + i
            rows[0, i] = target_of(
                batch.rewards[k], batch.discounts[k], batch.terminated[k], rows[0, i], rows[1, i],
                alpha,
            )  # fmt: skip
            batch.errors[k] = zero
        # sum_k (Q_k(s, a) - y)**2 / 2
        taken(rows, 2, chunk, batch, numbers)
        for critic in range(1, critics + 1):
            online = network_of(learnt, layout, critic)
            wide = online.table[0, WIDTH_IN]
            width = online.table[layout.layers[critic] - 1, WIDTH_OUT]
            see(cells, wide, batch.observations, chunk, batch)
            join(cells, wide, rows, 2, size, numbers, count)
            outputs = cells[forward(passes, online, cells, count, False) :]
            for i in range(count):
                k, value = chunk.begin + i, outputs[i * width]
                sample = Sample(rows[0, i], batch.weights[k])
                loss, statistics = loss_of(variables((value,)), sample, coefficients)
                batch.errors[k] += abs(value_of(statistics[0])) / dtype(critics)
                sums[0] += value_of(loss)
                sums[1] += value / dtype(critics)
                fill(outputs[i * width : (i + 1) * width], zero)
                outputs[i * width] = slopes_of(loss, zeros)[0] * chunk.share
            begin, end = layout.begins[critic], layout.begins[critic + 1]
            own, slopes = gradients[begin:end], space.slopes[worker]
            backward(passes, online, cells, slopes, own, count, False, OVERWRITTEN)

    return critics_gradient


def make_actor(dtype: type, rules: Rules) -> Callable[..., None]:
    """The gradient of the actor; see `rlcpu.nn.stages`.

    Rows of scratch are log-probabilities, the critic whose value counts, and for each number of an
    action a row of actions and one of derivatives of -Q by them.
    """
    forward, backward = make_passes(dtype)
    noise_of, join, _ = _make_tools(dtype)
    coefficients_of = tuple_of(Coefficients, len(Coefficients._fields))
    draw, exp = specialise(rules.draw, dtype), specialise(exponential, dtype)
    loss_of = specialise(actor_loss, dtype)
    zero, per_number = dtype(0), rules.per_number
    zeros = (zero, zero)

    @inline
    def slopes_by(value, log_prob, alpha):
        value, log_prob = variables((value, log_prob))
        return slopes_of(loss_of(value, log_prob, alpha), zeros)

    @inline
    def draw_slopes(mean, log_std, noise, by_action, by_log_prob):
        mean, log_std = variables((mean, log_std))
        action, log_prob = draw(mean, log_std, noise)
        of_action, of_log_prob = slopes_of(action, zeros), slopes_of(log_prob, zeros)
        by_mean = by_action * of_action[0] + by_log_prob * of_log_prob[0]
        return by_mean, by_action * of_action[1] + by_log_prob * of_log_prob[1]

    def actor_gradient(part):
        chunk, gradients, sums, frame = part.chunk, part.gradients, part.sums, part.frame
        learnt, layout, batch, settings = frame.learnt, frame.layout, frame.batch, frame.settings
        worker, space = part.worker, frame.space
        count, size, numbers = chunk.size, batch.mean.size, batch.center.size
        coefficients, passes = coefficients_of(settings.coefficients), settings.passes
        alpha, rows = exp(dtype(learnt.extra[0])), space.rows[worker]
        critics = np.int64(coefficients.critics) if coefficients.least > zero else 1
        actor, cells = network_of(learnt, layout, 0), space.cells[worker, 0]
        wide, width = actor.table[0, WIDTH_IN], actor.table[layout.layers[0] - 1, WIDTH_OUT]
        see(cells, wide, batch.observations, chunk, batch)
        means = cells[forward(passes, actor, cells, count, False) :]
        for i in range(count):
            total = zero
            for k in range(numbers):
                log_std = means[i * width + numbers + k] if per_number == 2 else zero
                noise = noise_of(chunk, i, k, numbers, 1, settings)
                action, log_prob = draw(means[i * width + k], log_std, noise)
                rows[2 + k, i] = action if batch.half[k] > zero else zero
                total += log_prob if batch.half[k] > zero else zero
            rows[0, i] = total
        # The least of Q_k(s, a), and which it is: rows[2 + numbers] holds it for a while.
        place = 0
        for critic in range(1, critics + 1):
            online, units = network_of(learnt, layout, critic), space.cells[worker, critic]
            thin, depth = online.table[0, WIDTH_IN], layout.layers[critic] - 1
            see(units, thin, batch.observations, chunk, batch)
            join(units, thin, rows, 2, size, numbers, count)
            place = forward(passes, online, units, count, False)
            values, step = units[place:], online.table[depth, WIDTH_OUT]
            for i in range(count):
                value = values[i * step]
                if critic == 1 or value < rows[2 + numbers, i]:
                    rows[2 + numbers, i], rows[1, i] = value, dtype(critic)
        for i in range(count):
            sums[0] += loss_of(rows[2 + numbers, i], rows[0, i], alpha)
            sums[1] += rows[0, i]
            for k in range(numbers):
                rows[2 + numbers + k, i] = zero
        # Derivatives of the loss by the actions, through the critic that counts.
        for critic in range(1, critics + 1):
            online, units = network_of(learnt, layout, critic), space.cells[worker, critic]
            thin, step = (
                online.table[0, WIDTH_IN],
                online.table[layout.layers[critic] - 1, WIDTH_OUT],
            )
            values = units[place:]
            for i in range(count):
                by_value, _ = slopes_by(values[i * step], rows[0, i], alpha)
                chosen = rows[1, i] == dtype(critic)
                fill(values[i * step : (i + 1) * step], zero)
                values[i * step] = by_value if chosen else zero
            begin, end = layout.begins[critic], layout.begins[critic + 1]
            own, slopes = gradients[begin:end], space.slopes[worker]
            backward(passes, online, units, slopes, own, count, False, BY_INPUTS)
            for i in range(count):
                for k in range(numbers):
                    rows[2 + numbers + k, i] += units[i * thin + size + k]
        # Through the actions to the actor's outputs.
        for i in range(count):
            _, by_log_prob = slopes_by(zero, rows[0, i], alpha)
            for k in range(numbers):
                log_std = means[i * width + numbers + k] if per_number == 2 else zero
                noise = noise_of(chunk, i, k, numbers, 1, settings)
                by_mean, by_log_std = draw_slopes(
                    means[i * width + k], log_std, noise, rows[2 + numbers + k, i], by_log_prob
                )
                share = chunk.share if batch.half[k] > zero else zero
                means[i * width + k] = by_mean * share
                if per_number == 2:
                    means[i * width + numbers + k] = by_log_std * share
            for k in range(per_number * numbers, width):
                means[i * width + k] = zero
        own, slopes = gradients[: layout.begins[1]], space.slopes[worker]
        backward(passes, actor, cells, slopes, own, count, False, OVERWRITTEN)

    return actor_gradient


def make_critic_networks(
    dynamics: Dynamics, config: OffPolicyConfig, count: int, seed: int
) -> list[Network]:
    """Critics of observation and action, each with weights of its own."""
    inputs = dynamics.observation_size + dynamics.action_size
    sizes = (inputs, *config.hidden, 1)
    return [Network(sizes, config.activation, seed=seed + k) for k in range(count)]
