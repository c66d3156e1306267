"""Proximal policy optimisation: clipped ratio, or adaptive penalty on the KL divergence."""

import math
from typing import NamedTuple

import gymnasium
import tensorflow as tf

from agents.algorithms import losses
from agents.algorithms.hyperparameters import Hyperparameters
from agents.algorithms.ppo_steps import GradientSteps, Rows
from agents.parts import actions, minibatches, networks, recurrent, returns
from agents.parts.normalize import StreamingNormalize, make_normalizer
from agents.tools import spaces
from agents.tools.transition import Nest, Transition

_OBJECTIVES = ('clip', 'kl_penalty')
_COMPILE = ('auto', 'update', 'minibatch', 'off')
_HISTOGRAM_SIZE = 16384  # Numbers at most.
_NORMALIZE_ADVANTAGES = ('batch', 'minibatch', 'off')


class Record(NamedTuple):
    """What is kept of a step.

    Attributes:
        obs: Observation that was acted on, as the environment gave it, nest [T, B, ...].
        sample: What the policy sampled, before rescaling and clipping, nest [T, B, ...].
        reward: Reward as the environment gave it, float32 [T, B].
        terminated: The world ended, bool [T, B].
        truncated: The episode was cut, bool [T, B].
        bootstrap: Value of the last observation where an episode was cut, else 0, float32 [T, B].
        valid: A real step happened, bool [T, B].
        first: An episode began with the observation, bool [T, B]; () without memory.
    """

    obs: Nest
    sample: Nest
    reward: tf.Tensor
    terminated: tf.Tensor
    truncated: tf.Tensor
    bootstrap: tf.Tensor
    valid: tf.Tensor
    first: Nest = ()


class Remembered(NamedTuple):
    """What a policy with memory hands on from choosing an action to keeping the step.

    Attributes:
        sample: What the policy sampled, nest [B, ...].
        state: State of the memory after the observation, nest [B, U].
    """

    sample: Nest
    state: Nest


class PPO(tf.Module):
    """Collects with the current policy, then improves it by many small steps that stay near it.

    Source: Schulman et al., Proximal Policy Optimization Algorithms, arXiv 1707.06347; the penalty
    with cutoff: Hafner et al., TensorFlow Agents, arXiv 1709.02878.
    """

    failure_names = GradientSteps.failure_names

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        num_envs: int,
        hyper: Hyperparameters | None = None,
    ):
        """Make networks, optimizer and statistics.

        Args:
            observation_space: Space of one environment's observations.
            action_space: Space of one environment's actions.
            num_envs: Number of environments that are trained on.
            hyper: The numbers to learn with.

        Raises:
            ValueError: A choice among names is none of them.
            TypeError: A kind of space is not supported.
        """
        super().__init__(name='ppo')
        self._hyper = hyper = hyper or Hyperparameters()
        _check_choice('objective', hyper.objective, _OBJECTIVES)
        _check_choice('compile', hyper.compile, _COMPILE)
        _check_choice('normalize_advantages', hyper.normalize_advantages, _NORMALIZE_ADVANTAGES)
        self._action_space = action_space
        self.policy, self.value = networks.build(observation_space, action_space, hyper)
        self.memory = self.policy.memory
        self.steps = GradientSteps(self.policy, self.value, num_envs, hyper)
        self.normalize_obs = self.normalize_reward = None
        if hyper.normalize_obs:
            self.normalize_obs = make_normalizer(
                observation_space, hyper.obs_clip, hyper.action_mask
            )
        if hyper.normalize_rewards:
            self.normalize_reward = StreamingNormalize((), center=False, clip=hyper.reward_clip)
        self.running_return = tf.Variable(tf.zeros([num_envs]), trainable=False)
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, name='updates')
        whole = hyper.compile == 'update'
        if hyper.compile == 'auto':
            whole = networks.compiles_well(self.policy, self.value)
        self.can_compile = whole
        self._update = tf.function(self._learn, autograph=False, jit_compile=whole)

    # The verbs.

    def initial(self, num_envs: int) -> Nest:
        """Return the recurrent state to begin with; `()` without memory."""
        return () if self.memory is None else self.memory.initial(num_envs)

    def perform(
        self, obs: Nest, first: tf.Tensor, carry: Nest, seed: tf.Tensor, training: bool
    ) -> tuple[Nest, Nest, Nest]:
        """Sample actions in training, take the most likely ones otherwise."""
        obs, features = self._standardize(obs), None
        if self.memory is not None:
            features, carry = self.memory.step(self.policy.features(obs), first, carry)
        policy = self.policy(obs, features)
        sample = policy.sample(seed) if training else policy.mode()
        action = actions.to_environment(sample, self._action_space, self._hyper.distribution)
        extras = sample if self.memory is None else Remembered(sample, carry)
        return action, extras, carry

    def experience(self, transition: Transition, extras: Nest) -> Record:
        """Keep the step, and the value of the last observation where an episode was cut."""
        remembered = Remembered(extras, ()) if self.memory is None else extras
        cut = transition.truncated & ~transition.terminated & transition.valid

        def last_value() -> tf.Tensor:
            obs, features = self._standardize(transition.next_obs), None
            if self.memory is not None:
                seen, no = self.policy.features(obs), tf.zeros_like(cut)
                features, _ = self.memory.step(seen, no, remembered.state)
            return tf.where(cut, self.value(obs, features), 0.0)

        bootstrap = tf.cond(
            tf.reduce_any(cut), last_value, lambda: tf.zeros_like(transition.reward)
        )
        return Record(
            obs=transition.obs,
            sample=remembered.sample,
            reward=transition.reward,
            terminated=transition.terminated,
            truncated=transition.truncated,
            bootstrap=bootstrap,
            valid=transition.valid,
            first=() if self.memory is None else transition.first,
        )

    def update(
        self, records: Record, last_obs: Nest, carry: Nest, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Improve policy and value; the first update of a run only begins the statistics.

        Raises:
            ValueError: Memory is trained on sequences that do not fit the rollout or minibatches.
        """
        for name, size in (
            ('horizon', records.valid.shape[0]),
            ('minibatch', self._hyper.minibatch),
        ):
            if self.memory is not None and size % self._hyper.sequence_length:
                raise ValueError(
                    f'The {name} must be a multiple of '
                    f'sequence_length={self._hyper.sequence_length}, got {name}={size}.'
                )
        return self._update(records, last_obs, carry, seed)

    # The update.

    def _learn(
        self, records: Record, last_obs: Nest, carry: Nest, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Prepare rows, take steps, adapt penalty and statistics; undo everything at a failure."""
        before = [variable.read_value() for variable in self.steps.state]
        learning_rate = self._decay_learning_rate()
        reward, running_return = self._scale_rewards(records)
        obs = self._standardize(records.obs)
        everything = tf.nest.map_structure(
            lambda x, last: tf.concat([x, last[None]], 0), obs, self._standardize(last_obs)
        )

        def advantages() -> dict[str, tf.Tensor]:
            features, _ = self._recall(records, everything, carry)
            return self._advantages(records, everything, reward, features)

        valid = self._to_rows(records.valid)
        features, states = self._recall(records, everything, carry)
        begin = self._advantages(records, everything, reward, features)
        rows = self._rows(records, obs, features, states, begin)
        # The first rollout only begins the statistics: it acted on unscaled observations.
        has_statistics = self.normalize_obs is not None or self.normalize_reward is not None
        learns = self.updates > 0 if has_statistics else True
        progress = self.steps.run(rows, valid, advantages, seed, learns)
        kl = losses.masked_mean(self.steps.kl(rows), valid)
        self.steps.adapt_penalty(kl, progress)
        ok = tf.equal(progress.failure[0], 0)
        for variable, value in zip(self.steps.state, before, strict=True):
            variable.assign(tf.where(ok, variable.read_value(), value))
        self._update_statistics(records, running_return, ok)
        metrics = progress.means()
        explained = losses.explained_variance(rows.old_value, rows.return_, valid)
        metrics['kl'] = tf.where(progress.count > 0, kl, float('nan'))
        metrics.update(explained_variance=explained, learning_rate=learning_rate)
        metrics.update(minibatches=progress.count, failure=progress.failure)
        metrics['histograms'] = _histograms(rows, valid)
        if self._hyper.objective == 'kl_penalty':
            metrics['penalty'] = self.steps.penalty.read_value()
        if _log_stds(rows.old_policy):
            metrics['action_std'] = self._action_std(rows, valid)
        return metrics

    def _recall(self, records: Record, obs: Nest, carry: Nest) -> tuple[tf.Tensor | None, Nest]:
        """Let the memory take in a rollout again, [T + 1, B, ...].

        Returns:
            Its output, float32 [T + 1, B, U], and its state before each step, nest [T + 1, B, U];
            (None, ()) without memory.
        """
        if self.memory is None:
            return None, ()
        time, num_envs = records.reward.shape
        ended = records.terminated | records.truncated | ~records.valid
        first = tf.concat([records.first, ended[-1:]], 0)
        seen = tf.reshape(self.policy.features(_flatten(obs)), [time + 1, num_envs, -1])
        return self.memory.unroll(seen, first, carry)

    def _to_rows(self, nest: Nest) -> Nest:
        """Merge time and environments in the order of rows, [T, B, ...] to [N, ...]."""
        if self.memory is None:
            return _flatten(nest)
        return recurrent.to_sequences(nest, self._hyper.sequence_length)

    def _action_std(self, rows: Rows, valid: tf.Tensor) -> tf.Tensor:
        """Return the mean deviation of continuous actions, of one row if all have the same."""
        if not self._hyper.state_dependent_std and self.memory is None:
            some = tf.nest.map_structure(lambda x: x[:1], rows.obs)
            stds = [tf.exp(x) for x in _log_stds(self.policy(some).params())]
            return tf.reduce_mean(stds[0] if len(stds) == 1 else tf.concat(stds, -1))
        stds = [tf.exp(x) for x in _log_stds(self.steps.distribution(rows).params())]
        return losses.masked_mean(tf.reduce_mean(tf.concat(stds, -1), -1), valid)

    def _rows(
        self,
        records: Record,
        obs: Nest,
        features: tf.Tensor | None,
        states: Nest,
        advantages: dict[str, tf.Tensor],
    ) -> Rows:
        """Flatten [T, B, ...] to [N, ...] and evaluate the policy before the update on all rows.

        Weights and statistics are still those that acted, so nothing of it had to be recorded.
        """
        valid = self._to_rows(records.valid)
        obs, sample = self._to_rows(obs), self._to_rows(records.sample)
        index = tf.range(valid.shape[0])
        first, start = (), ()
        if features is not None:
            features = self._to_rows(features[:-1])
            index = self._to_rows(tf.reshape(index, records.valid.shape))
            first = self._to_rows(records.first)
            every = self._hyper.sequence_length
            start = tf.nest.map_structure(lambda x: _flatten(x[:-1:every]), states)
        policy = self.policy(obs, features)
        rows = Rows(
            obs=obs,
            sample=sample,
            old_policy=policy.params(),
            old_log_prob=policy.log_prob(sample),
            index=index,
            first=first,
            **advantages,
        )
        # What stands in invalid rows may be anything, but zeros cannot spread.
        return minibatches.zero_invalid(rows, valid)._replace(start=start)

    def _advantages(
        self, records: Record, obs: Nest, reward: tf.Tensor, features: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Compute value, advantage and return of every row, each [N].

        row           t         t + 1
        obs           o(t)      o(t+1)      V(o(t+1)) follows row t, but for two cases:
        ended at t    bootstrap             the episode's own last observation follows, if it
                                            was cut, and nothing, if the world ended;
        not valid               t + 1       o(t+1) is real, for it was acted on, but the
                                            advantage is cut between t and t + 1.
        """
        time, num_envs = records.reward.shape
        features = None if features is None else _flatten(features)
        values = tf.reshape(self.value(_flatten(obs), features), [time + 1, num_envs])
        ended = records.terminated | records.truncated
        next_value = tf.where(ended, records.bootstrap, values[1:])
        next_valid = tf.concat([records.valid[1:], tf.ones_like(records.valid[:1])], 0)
        reward, value, next_value = minibatches.zero_invalid(
            (reward, values[:-1], next_value), records.valid
        )
        advantage = returns.lambda_advantage(
            reward,
            value,
            next_value,
            records.valid & next_valid & ~ended,
            self._hyper.discount,
            self._hyper.gae_lambda,
        )
        value, advantage = self._to_rows(value), self._to_rows(advantage)
        return_ = advantage + value
        if self._hyper.normalize_advantages == 'batch':
            advantage = losses.standardize(advantage, self._to_rows(records.valid))
        return {'old_value': value, 'advantage': advantage, 'return_': return_}

    # What changes once an update.

    def _decay_learning_rate(self) -> tf.Tensor:
        """Set the learning rate of this update."""
        rate = tf.constant(self._hyper.learning_rate)
        if self._hyper.decay_updates:
            done = tf.cast(self.updates, tf.float32) / self._hyper.decay_updates
            rate *= tf.maximum(1.0 - done, 0.0)
        self.steps.optimizer.learning_rate.assign(rate)
        return rate

    def _scale_rewards(self, records: Record) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Scale rewards by the statistics so far; compute the returns that the next ones need."""
        if self.normalize_reward is None:
            return records.reward, None
        reward = minibatches.zero_invalid(records.reward, records.valid)
        ended = records.terminated | records.truncated | ~records.valid
        running, last = returns.running_return(
            reward, ended, self.running_return, self._hyper.discount
        )
        self.running_return.assign(last)
        return self.normalize_reward.transform(reward), running

    def _update_statistics(
        self, records: Record, running_return: tf.Tensor | None, ok: tf.Tensor
    ) -> None:
        """Take in what was seen since the last update, all at once."""
        valid = _flatten(records.valid) & ok
        if self.normalize_obs is not None:
            self.normalize_obs.update(_flatten(records.obs), valid)
        if self.normalize_reward is not None:
            self.normalize_reward.update(_flatten(running_return), valid)
        self.updates.assign_add(1)

    def _standardize(self, obs: Nest) -> Nest:
        return obs if self.normalize_obs is None else self.normalize_obs.transform(obs)


def _flatten(nest: Nest) -> Nest:
    """Merge time and environments, [T, B, ...] to [T · B, ...]."""
    return tf.nest.map_structure(
        lambda x: tf.reshape(x, [x.shape[0] * x.shape[1], *x.shape[2:]]), nest
    )


def _log_stds(params: Nest) -> list[tf.Tensor]:
    """Find the logarithms of deviations among the parameters of a distribution."""
    return [x for path, x in spaces.parts(params) if path.endswith("['log_std']")]


def _histograms(rows: Rows, valid: tf.Tensor) -> dict[str, tf.Tensor]:
    """Take some thousands of numbers of each; NaN stands in rows that are not valid."""
    result = {}
    for name, x in (
        *((f'action{path}', x) for path, x in spaces.parts(rows.sample)),
        *((f'normalized_obs{path}', x) for path, x in spaces.parts(rows.obs)),
        ('value', rows.old_value),
        ('advantage', rows.advantage),
    ):
        every = -(-math.prod(x.shape) // _HISTOGRAM_SIZE)
        some = tf.cast(tf.reshape(x[::every], [-1, math.prod(x.shape[1:])]), tf.float32)
        some = tf.where(valid[::every, None], some, float('nan'))
        result[name] = tf.reshape(some, [-1])
    return result


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f'The {name} must be one of {", ".join(choices)}, got {name}={value!r}.')
