"""PPO as one program in plain JAX on gymnax's CartPole: an opponent for compiled training.

The design is PureJaxRL's (Lu et al. 2022, "Discovered Policy Optimisation"): the whole run is one
jitted function, in which rollouts, advantages, epochs and minibatches are nested scans.

python3 -m benchmarks.pure_jax prints steps per second, and what a rollout and an update take.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp

DISCOUNT, GAE_LAMBDA, CLIP = 0.99, 0.95, 0.2
ENTROPY, VALUE, GRADIENT = 0.01, 0.5, 0.5
LEARNING_RATE, DECAY, DECAY_SQUARE, EPSILON = 2.5e-4, 0.9, 0.999, 1e-5
WIDTH = 64


class Step(NamedTuple):
    """What is kept of a step, each [T, B, ...]."""

    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array
    score: jax.Array  # Of the episode so far.


class Learner(NamedTuple):
    """Weights, what Adam remembers of them, and its steps so far."""

    params: Any
    mean: Any
    square: Any
    count: jax.Array


class Runner(NamedTuple):
    """What travels from iteration to iteration."""

    learner: Learner
    env: Any
    obs: jax.Array
    score: jax.Array
    key: jax.Array


@dataclasses.dataclass(frozen=True)
class PPO:
    """Parts of the program.

    Attributes:
        num_envs: Environments.
        horizon: Steps of each before an update.
        minibatches: How many in an epoch.
        epochs: Passes over the steps in an update.
        updates: Updates over which the learning rate falls to 0.
    """

    num_envs: int
    horizon: int
    minibatches: int
    epochs: int
    updates: int

    def begin(self, key: jax.Array) -> Runner:
        key, weights, start = jax.random.split(key, 3)
        env, env_params = gymnax.make('CartPole-v1')
        keys = jax.random.split(start, self.num_envs)
        obs, state = jax.vmap(env.reset, (0, None))(keys, env_params)
        params = make_weights(weights, obs.shape[-1], env.action_space(env_params).n)
        zeros = jax.tree.map(jnp.zeros_like, params)
        return Runner(
            Learner(params, zeros, zeros, jnp.int32(0)), state, obs, jnp.zeros(self.num_envs), key
        )

    def collect(self, runner: Runner) -> tuple[Runner, Step]:
        """Act in all environments, which reset themselves."""
        env, env_params = gymnax.make('CartPole-v1')
        advance = jax.vmap(env.step, (0, 0, 0, None))

        def step(runner: Runner, _: None) -> tuple[Runner, Step]:
            key, act, move = jax.random.split(runner.key, 3)
            log_probs, value = evaluate(runner.learner.params, runner.obs)
            action = jax.random.categorical(act, log_probs)
            keys = jax.random.split(move, self.num_envs)
            obs, state, reward, *flags, _ = advance(keys, runner.env, action, env_params)
            done, score = jnp.logical_or(*flags), runner.score + reward
            log_prob = pick(log_probs, action)
            kept = Step(runner.obs, action, log_prob, value, reward, done, score)
            score = jnp.where(done, 0.0, score)
            return runner._replace(env=state, obs=obs, score=score, key=key), kept

        return jax.lax.scan(step, runner, None, self.horizon)

    def improve(self, runner: Runner, steps: Step) -> tuple[Runner, Any]:
        """Make the gradient steps of all epochs; returns means of the losses as well."""
        advantage = advantages(steps, evaluate(runner.learner.params, runner.obs)[1])
        rows = self.horizon * self.num_envs
        batch = (steps, advantage, advantage + steps.value)
        batch = jax.tree.map(lambda x: x.reshape(rows, *x.shape[2:]), batch)

        def epoch(learner: Learner, key: jax.Array) -> tuple[Learner, Any]:
            order = jax.random.permutation(key, rows)
            parts = jax.tree.map(
                lambda x: x[order].reshape(self.minibatches, -1, *x.shape[1:]), batch
            )
            return jax.lax.scan(self.descend, learner, parts)

        key, *keys = jax.random.split(runner.key, self.epochs + 1)
        learner, metrics = jax.lax.scan(epoch, runner.learner, jnp.stack(keys))
        return runner._replace(learner=learner, key=key), jax.tree.map(jnp.mean, metrics)

    def descend(self, learner: Learner, batch: tuple) -> tuple[Learner, Any]:
        """Make one gradient step of Adam on a minibatch."""
        gradient, metrics = jax.grad(losses, has_aux=True)(learner.params, *batch)
        norm = jnp.sqrt(sum((x**2).sum() for x in jax.tree.leaves(gradient)))
        gradient = jax.tree.map(lambda x: x * GRADIENT / jnp.maximum(norm, GRADIENT), gradient)
        mean = decay(DECAY, learner.mean, gradient)
        square = decay(DECAY_SQUARE, learner.square, jax.tree.map(jnp.square, gradient))
        count = learner.count + 1
        done = learner.count // (self.minibatches * self.epochs) / self.updates
        rate = LEARNING_RATE * (1.0 - done) / (1.0 - DECAY**count)
        correct = 1.0 - DECAY_SQUARE**count
        params = jax.tree.map(
            lambda x, m, s: x - rate * m / (jnp.sqrt(s / correct) + EPSILON),
            *(learner.params, mean, square),
        )
        return Learner(params, mean, square, count), metrics

    def iterate(self, runner: Runner) -> tuple[Runner, Any]:
        """Collect and improve; returns the mean score of the episodes that ended, and losses."""
        runner, steps = self.collect(runner)
        runner, metrics = self.improve(runner, steps)
        return runner, (jnp.mean(steps.score, where=steps.done), metrics)

    def run(self, key: jax.Array) -> tuple[Runner, Any]:
        return repeat(self.iterate, self.begin(key), self.updates)


def make_weights(key: jax.Array, inputs: int, actions: int) -> dict[str, list]:
    """Make a policy and a value network of two hidden layers each."""

    def layers(key: jax.Array, outputs: int, scale: float) -> list:
        sizes = [(inputs, WIDTH, 2**0.5), (WIDTH, WIDTH, 2**0.5), (WIDTH, outputs, scale)]
        keys = jax.random.split(key, len(sizes))
        make = jax.nn.initializers.orthogonal
        return [
            (make(gain)(k, (n, m)), jnp.zeros(m))
            for k, (n, m, gain) in zip(keys, sizes, strict=True)
        ]

    policy, value = jax.random.split(key)
    return {'policy': layers(policy, actions, 0.01), 'value': layers(value, 1, 1.0)}


def evaluate(params: dict, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return log probabilities of all actions, and the value."""

    def apply(layers: list, x: jax.Array) -> jax.Array:
        *hidden, (kernel, bias) = layers
        for weight, shift in hidden:
            x = jnp.tanh(x @ weight + shift)
        return x @ kernel + bias

    return jax.nn.log_softmax(apply(params['policy'], obs)), apply(params['value'], obs)[..., 0]


def pick(log_probs: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.take_along_axis(log_probs, action[..., None], -1)[..., 0]


def losses(params: dict, batch: Step, advantage: jax.Array, target: jax.Array) -> tuple:
    """Clipped surrogate, clipped value loss and entropy of a minibatch."""
    log_probs, value = evaluate(params, batch.obs)
    clipped = batch.value + jnp.clip(value - batch.value, -CLIP, CLIP)
    value_loss = 0.5 * jnp.maximum((value - target) ** 2, (clipped - target) ** 2).mean()
    ratio = jnp.exp(pick(log_probs, batch.action) - batch.log_prob)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    bounded = jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage
    policy_loss = -jnp.minimum(ratio * advantage, bounded).mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    return policy_loss + VALUE * value_loss - ENTROPY * entropy, (policy_loss, value_loss, entropy)


def advantages(steps: Step, last_value: jax.Array) -> jax.Array:
    def back(carry: tuple, step: Step) -> tuple:
        advantage, next_value = carry
        goes_on = 1.0 - step.done
        delta = step.reward + DISCOUNT * next_value * goes_on - step.value
        advantage = delta + DISCOUNT * GAE_LAMBDA * goes_on * advantage
        return (advantage, step.value), advantage

    start = (jnp.zeros_like(last_value), last_value)
    return jax.lax.scan(back, start, steps, reverse=True, unroll=16)[1]


def decay(rate: float, old: Any, new: Any) -> Any:
    return jax.tree.map(lambda x, y: rate * x + (1.0 - rate) * y, old, new)


def repeat(function: Callable[[Runner], tuple], runner: Runner, times: int) -> tuple:
    return jax.lax.scan(lambda runner, _: function(runner), runner, None, times)


def measure(num_envs: int, horizon: int, minibatches: int, epochs: int, steps: int) -> float:
    """Return steps per second of a run that is compiled before.

    Args:
        num_envs: Environments.
        horizon: Steps of each before an update.
        minibatches: How many in an epoch.
        epochs: Passes over the steps in an update.
        steps: Steps to train.
    """
    updates = max(1, steps // (num_envs * horizon))
    ppo = PPO(num_envs, horizon, minibatches, epochs, updates)
    return updates * num_envs * horizon / seconds(jax.jit(ppo.run), jax.random.key(0))


def measure_parts(ppo: PPO) -> tuple[float, float]:
    """Return the seconds of a rollout and of an update, each repeated without the other."""
    runner = jax.jit(ppo.begin)(jax.random.key(0))
    runner, steps = jax.jit(ppo.collect)(runner)

    @jax.jit
    def collect(runner: Runner) -> Any:
        return repeat(lambda runner: (ppo.collect(runner)[0], None), runner, ppo.updates)

    @jax.jit
    def improve(runner: Runner, steps: Step) -> Any:
        return repeat(lambda runner: ppo.improve(runner, steps), runner, ppo.updates)

    return seconds(collect, runner) / ppo.updates, seconds(improve, runner, steps) / ppo.updates


def seconds(function: Callable, *args: Any) -> float:
    """Return how long a function takes that has been called before."""
    jax.block_until_ready(function(*args))
    begin = time.perf_counter()
    jax.block_until_ready(function(*args))
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(prog='python3 -m benchmarks.pure_jax', description=__doc__)
    sizes = {'num_envs': 64, 'horizon': 128, 'minibatches': 16, 'epochs': 4, 'steps': 1_000_000}
    for name, default in sizes.items():
        parser.add_argument(f'--{name}', type=int, default=default, help=f'By default {default}.')
    args = parser.parse_args()
    print(f'{measure(**vars(args)):,.0f} steps/s')
    updates = max(1, args.steps // (args.num_envs * args.horizon))
    ppo = PPO(args.num_envs, args.horizon, args.minibatches, args.epochs, updates)
    rollout, update = measure_parts(ppo)
    each = update / (args.minibatches * args.epochs)
    print(f'rollout {rollout * 1e3:.2f} ms, update {update * 1e3:.2f} ms')
    print(f'{each * 1e6:.1f} µs per minibatch, with its part of shuffling and advantages')


if __name__ == '__main__':
    main()
