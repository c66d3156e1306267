"""Proximal policy optimisation: clipped ratio, or adaptive penalty on the KL divergence."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import tensorflow as tf

from agents.algorithms import losses
from agents.algorithms.hyperparameters import Hyperparameters
from agents.parts import actions, minibatches, networks, returns
from agents.parts.keras_backend import import_keras
from agents.parts.normalize import StreamingNormalize
from agents.tools.transition import Nest, Transition

keras = import_keras()

_OBJECTIVES = ('clip', 'kl_penalty')
_COMPILE = ('auto', 'update', 'minibatch', 'off')
_NORMALIZE_ADVANTAGES = ('batch', 'minibatch', 'off')


class Record(NamedTuple):
    """What is kept of a step.

    Attributes:
        obs: Observation that was acted on, as the environment gave it, nest [T, B, ...].
        sample: What the policy sampled, before rescaling and clipping, [T, B, ...].
        reward: Reward as the environment gave it, float32 [T, B].
        terminated: The world ended, bool [T, B].
        truncated: The episode was cut, bool [T, B].
        bootstrap: Value of the last observation where an episode was cut, else 0, float32 [T, B].
        valid: A real step happened, bool [T, B].
    """

    obs: Nest
    sample: tf.Tensor
    reward: tf.Tensor
    terminated: tf.Tensor
    truncated: tf.Tensor
    bootstrap: tf.Tensor
    valid: tf.Tensor


class Batch(NamedTuple):
    """Rows to learn from, [N, ...] with N = T · B, or a minibatch of them.

    Attributes:
        obs: Standardised observations, [N, ...].
        sample: What the policy sampled, [N, ...].
        old_policy: Parameters of the distribution that was sampled from, dict of [N, ...].
        old_log_prob: Its log-probability of the sample, float32 [N].
        old_value: Value before the update, float32 [N].
        advantage: Advantage, float32 [N].
        return_: Target of the value, float32 [N].
        index: Which row, t · B + b, int32 [N].
    """

    obs: Any
    sample: tf.Tensor
    old_policy: dict[str, tf.Tensor]
    old_log_prob: tf.Tensor
    old_value: tf.Tensor
    advantage: tf.Tensor
    return_: tf.Tensor
    index: tf.Tensor


class Progress(NamedTuple):
    """What travels through the loop over minibatches.

    Attributes:
        count: Minibatches done, int32 [].
        go_on: Neither a failure nor an early stop so far, bool [].
        failure: See `Algorithm.update`, int32 [4].
        sums: Sums of metrics over the minibatches, dict of float32 [].
    """

    count: tf.Tensor
    go_on: tf.Tensor
    failure: tf.Tensor
    sums: dict[str, tf.Tensor]


class PPO(tf.Module):
    """Collects with the current policy, then improves it by many small steps that stay near it.

    Source: Schulman et al., Proximal Policy Optimization Algorithms, arXiv 1707.06347; the penalty
    with cutoff: Hafner et al., TensorFlow Agents, arXiv 1709.02878.
    """

    failure_names = ('policy loss', 'value loss', 'entropy', 'gradient')

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
        self.policy, self.value = networks.feed_forward(observation_space, action_space, hyper)
        self.optimizer = keras.optimizers.Adam(hyper.learning_rate, epsilon=hyper.adam_epsilon)
        self.optimizer.build(self._weights)
        self.normalize_obs = self.normalize_reward = None
        if hyper.normalize_obs and isinstance(observation_space, gymnasium.spaces.Box):
            self.normalize_obs = StreamingNormalize(observation_space.shape, clip=hyper.obs_clip)
        if hyper.normalize_rewards:
            self.normalize_reward = StreamingNormalize((), center=False, clip=hyper.reward_clip)
        self.running_return = tf.Variable(tf.zeros([num_envs]), trainable=False)
        self.penalty = tf.Variable(hyper.kl_init_penalty, trainable=False, name='penalty')
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, name='updates')
        whole = hyper.compile in ('auto', 'update')
        self._update = tf.function(self._learn, autograph=False, jit_compile=whole)
        self._step = self._update_step
        if hyper.compile == 'minibatch':
            self._step = tf.function(self._update_step, autograph=False, jit_compile=True)

    @property
    def _weights(self) -> list:
        return self.policy.weights + self.value.weights

    # The verbs.

    def initial(self, num_envs: int) -> Nest:
        """Return the recurrent state to begin with: none."""
        return ()

    def perform(
        self, obs: Nest, first: tf.Tensor, carry: Nest, seed: tf.Tensor, training: bool
    ) -> tuple[Nest, Nest, Nest]:
        """Sample actions in training, take the most likely ones otherwise."""
        policy = self.policy(self._standardize(obs))
        sample = policy.sample(seed) if training else policy.mode()
        return actions.to_environment(sample, self._action_space), sample, carry

    def experience(self, transition: Transition, extras: Nest) -> Record:
        """Keep the step, and the value of the last observation where an episode was cut."""
        cut = transition.truncated & ~transition.terminated & transition.valid
        bootstrap = tf.cond(
            tf.reduce_any(cut),
            lambda: tf.where(cut, self.value(self._standardize(transition.next_obs)), 0.0),
            lambda: tf.zeros_like(transition.reward),
        )
        return Record(
            obs=transition.obs,
            sample=extras,
            reward=transition.reward,
            terminated=transition.terminated,
            truncated=transition.truncated,
            bootstrap=bootstrap,
            valid=transition.valid,
        )

    def update(
        self, records: Record, last_obs: Nest, carry: Nest, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Improve policy and value; the first update of a run only begins the statistics."""
        return self._update(records, last_obs, seed)

    # The update.

    def _learn(self, records: Record, last_obs: Nest, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Prepare rows, take steps, adapt penalty and statistics; undo everything at a failure."""
        state = [*(v.value for v in self._weights + self.optimizer.variables), self.penalty]
        before = [variable.read_value() for variable in state]
        learning_rate = self._decay_learning_rate()
        reward, running_return = self._scale_rewards(records)
        obs = self._standardize(records.obs)
        everything = tf.concat([obs, self._standardize(last_obs)[None]], 0)

        def advantages() -> dict[str, tf.Tensor]:
            return self._advantages(records, everything, reward)

        valid = _flatten(records.valid)
        rows = self._rows(records, obs, advantages())
        progress = self._run_epochs(rows, valid, advantages, seed)
        kl = losses.masked_mean(self._kl(rows), valid)
        self._adapt_penalty(kl, progress)
        ok = tf.equal(progress.failure[0], 0)
        for variable, value in zip(state, before, strict=True):
            variable.assign(tf.where(ok, variable.read_value(), value))
        self._update_statistics(records, running_return, ok)
        metrics = {
            name: total / tf.cast(tf.maximum(progress.count, 1), tf.float32)
            for name, total in progress.sums.items()
        }
        explained = losses.explained_variance(rows.old_value, rows.return_, valid)
        metrics.update(kl=kl, explained_variance=explained, learning_rate=learning_rate)
        metrics.update(minibatches=progress.count, failure=progress.failure)
        if self._hyper.objective == 'kl_penalty':
            metrics['penalty'] = self.penalty.read_value()
        if 'log_std' in rows.old_policy:
            metrics['action_std'] = tf.reduce_mean(tf.exp(self.policy(rows.obs[:1]).log_std))
        return metrics

    def _rows(self, records: Record, obs: tf.Tensor, advantages: dict[str, tf.Tensor]) -> Batch:
        """Flatten [T, B, ...] to [N, ...] and evaluate the policy before the update on all rows.

        Weights and statistics are still those that acted, so nothing of it had to be recorded.
        """
        valid = _flatten(records.valid)
        policy = self.policy(_flatten(obs))
        sample = _flatten(records.sample)
        rows = Batch(
            obs=_flatten(obs),
            sample=sample,
            old_policy=policy.params(),
            old_log_prob=policy.log_prob(sample),
            index=tf.range(valid.shape[0]),
            **advantages,
        )
        # What stands in invalid rows may be anything, but zeros cannot spread.
        return minibatches.zero_invalid(rows, valid)

    def _advantages(
        self, records: Record, obs: tf.Tensor, reward: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Compute value, advantage and return of every row, each [N].

        row           t         t + 1
        obs           o(t)      o(t+1)      V(o(t+1)) follows row t, but for two cases:
        ended at t    bootstrap             the episode's own last observation follows, if it
                                            was cut, and nothing, if the world ended;
        not valid               t + 1       o(t+1) is real, for it was acted on, but the
                                            advantage is cut between t and t + 1.
        """
        values = tf.reshape(self.value(_flatten(obs)), obs.shape[:2])
        ended = records.terminated | records.truncated
        next_value = tf.where(ended, records.bootstrap, values[1:])
        next_valid = tf.concat([records.valid[1:], tf.ones_like(records.valid[:1])], 0)
        value = values[:-1]
        advantage = returns.lambda_advantage(
            *minibatches.zero_invalid((reward, value, next_value), records.valid),
            records.valid & next_valid & ~ended,
            self._hyper.discount,
            self._hyper.gae_lambda,
        )
        value, advantage = _flatten(value), _flatten(advantage)
        return_ = advantage + value
        if self._hyper.normalize_advantages == 'batch':
            advantage = losses.standardize(advantage, _flatten(records.valid))
        return {'old_value': value, 'advantage': advantage, 'return_': return_}

    def _run_epochs(
        self, rows: Batch, valid: tf.Tensor, advantages: Callable, seed: tf.Tensor
    ) -> Progress:
        """Go over all rows `epochs` times, each time in another order."""
        hyper = self._hyper
        size = min(hyper.minibatch, valid.shape[0])
        seeds = tf.random.stateless_uniform(
            [hyper.epochs, 2], seed, None, None, tf.int32, alg='philox'
        )

        def epoch(number: Any, progress: Progress) -> Any:
            current = rows._replace(**advantages()) if hyper.recompute_advantages else rows
            shuffled, shuffled_valid = minibatches.shuffle_and_pad(
                current, valid, size, tf.gather(seeds, number)
            )

            def minibatch(index: Any, progress: Progress) -> Any:
                part, part_valid = minibatches.take((shuffled, shuffled_valid), index, size)
                return index + 1, self._step(part, part_valid, progress)

            count = shuffled_valid.shape[0] // size
            return number + 1, _loop_while_going(minibatch, count, progress)

        # The first rollout only begins the statistics: it acted on unscaled observations.
        learns = self.updates > 0 if self._has_statistics else tf.constant(True)
        names = [*self.failure_names[:3], 'gradient norm']
        names += ['clip fraction'] if hyper.objective == 'clip' else []
        start = Progress(
            count=tf.constant(0),
            go_on=learns,
            failure=tf.zeros([4], tf.int32),
            sums={name.replace(' ', '_'): tf.zeros([]) for name in names},
        )
        return _loop_while_going(epoch, hyper.epochs, start)

    def _update_step(self, batch: Batch, valid: tf.Tensor, progress: Progress) -> Progress:
        """Take one gradient step on a minibatch: one forward pass, losses, gradients, optimizer."""
        hyper = self._hyper
        weights = [weight.value for weight in self._weights]
        with tf.GradientTape() as tape:
            terms, kl, metrics = self._losses(batch, valid)
            means = {name: losses.masked_mean(term, valid) for name, term in terms.items()}
            penalty = tf.zeros([])
            if hyper.objective == 'kl_penalty':
                penalty = losses.kl_penalty(kl, self.penalty) + losses.kl_cutoff(
                    kl, hyper.kl_target, hyper.kl_cutoff_factor, hyper.kl_cutoff_coef
                )
            means['policy_loss'] += penalty
            loss = (
                means['policy_loss']
                + hyper.value_coef * means['value_loss']
                - hyper.entropy_coef * means['entropy']
            )
        gradients = tape.gradient(loss, weights)
        norm = tf.linalg.global_norm(gradients)
        if hyper.gradient_clip:
            scale = hyper.gradient_clip / tf.maximum(norm, hyper.gradient_clip)
            gradients = [gradient * scale for gradient in gradients]
        self.optimizer.apply(gradients, self._weights)
        metrics = {**means, **metrics, 'gradient_norm': norm}
        failure = self._find_failure(batch, valid, terms, [*means.values(), norm], progress.count)
        go_on = tf.equal(failure[0], 0)
        if hyper.early_stop_kl:
            go_on &= kl <= hyper.early_stop_kl
        sums = {name: total + metrics[name] for name, total in progress.sums.items()}
        return Progress(progress.count + 1, progress.go_on & go_on, failure, sums)

    def _losses(
        self, batch: Batch, valid: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, dict[str, tf.Tensor]]:
        """Return the losses of each row, each [M], the mean KL, and metrics."""
        hyper = self._hyper
        policy = self.policy(batch.obs)
        log_prob = policy.log_prob(batch.sample)
        advantage = batch.advantage
        if hyper.normalize_advantages == 'minibatch':
            advantage = losses.standardize(advantage, valid)
        old_policy = type(policy)(**batch.old_policy)
        metrics, kl = {}, tf.zeros([])
        if hyper.objective == 'kl_penalty' or hyper.early_stop_kl:
            kl = losses.masked_mean(old_policy.kl(policy), valid)
        if hyper.objective == 'clip':
            policy_loss = losses.clipped_surrogate(
                log_prob, batch.old_log_prob, advantage, hyper.clip_range
            )
            clipped = losses.clip_fraction(log_prob, batch.old_log_prob, hyper.clip_range)
            metrics['clip_fraction'] = losses.masked_mean(clipped, valid)
        else:
            policy_loss = losses.surrogate(log_prob, batch.old_log_prob, advantage)
        value_loss = losses.value_loss(
            self.value(batch.obs), batch.return_, batch.old_value, hyper.value_clip_range
        )
        terms = {'policy_loss': policy_loss, 'value_loss': value_loss, 'entropy': policy.entropy()}
        return terms, kl, metrics

    def _find_failure(
        self, batch: Batch, valid: tf.Tensor, terms: dict, means: list, count: tf.Tensor
    ) -> tf.Tensor:
        """Say which of the means is not finite, and the first row that made it so, int32 [4]."""
        finite = tf.math.is_finite(tf.stack(means))
        which = tf.argmin(tf.cast(finite, tf.int32), output_type=tf.int32)
        bad = tf.reduce_any(~tf.math.is_finite(tf.stack([*terms.values()])), 0) & valid
        # Not batch.index[…]: XLA would take what leads to a slice for constant, and compile each time.
        row = tf.gather(batch.index, tf.argmax(tf.cast(bad, tf.int32)))
        num_envs = self.running_return.shape[0]
        place = tf.where(tf.reduce_any(bad), tf.stack([row // num_envs, row % num_envs]), -1)
        failure = tf.concat([[which + 1, count], place], 0)
        return tf.where(tf.reduce_all(finite), tf.zeros_like(failure), failure)

    def _kl(self, rows: Batch) -> tf.Tensor:
        """KL divergence from the policy that acted to the present one, float32 [N]."""
        policy = self.policy(rows.obs)
        return type(policy)(**rows.old_policy).kl(policy)

    # What changes once an update.

    def _decay_learning_rate(self) -> tf.Tensor:
        """Set the learning rate of this update."""
        rate = tf.constant(self._hyper.learning_rate)
        if self._hyper.decay_updates:
            done = tf.cast(self.updates, tf.float32) / self._hyper.decay_updates
            rate *= tf.maximum(1.0 - done, 0.0)
        self.optimizer.learning_rate.assign(rate)
        return rate

    def _adapt_penalty(self, kl: tf.Tensor, progress: Progress) -> None:
        """Adapt the weight of the KL divergence, if anything was learned."""
        if self._hyper.objective == 'kl_penalty':
            adapted = losses.adapt_penalty(self.penalty, kl, self._hyper.kl_target)
            self.penalty.assign(tf.where(progress.count > 0, adapted, self.penalty))

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

    @property
    def _has_statistics(self) -> bool:
        return self.normalize_obs is not None or self.normalize_reward is not None

    def _standardize(self, obs: tf.Tensor) -> tf.Tensor:
        return obs if self.normalize_obs is None else self.normalize_obs.transform(obs)


def _loop_while_going(body: Callable, count: int, progress: Progress) -> Progress:
    """Run `body(index, progress)` for `count` indices, as long as the progress says to go on."""
    _, progress = tf.while_loop(
        lambda index, progress: (index < count) & progress.go_on,
        body,
        (tf.constant(0), progress),
        maximum_iterations=count,
    )
    return progress


def _flatten(x: tf.Tensor) -> tf.Tensor:
    """Merge time and environments, [T, B, ...] to [T · B, ...]."""
    return tf.reshape(x, [x.shape[0] * x.shape[1], *x.shape[2:]])


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f'The {name} must be one of {", ".join(choices)}, got {name}={value!r}.')
