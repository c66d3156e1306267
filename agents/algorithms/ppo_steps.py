"""The gradient steps of an update: epochs of shuffled minibatches, each one small step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from agents.algorithms import losses
from agents.algorithms.hyperparameters import Hyperparameters
from agents.parts import minibatches, networks, recurrent
from agents.parts.distributions import Distribution, rebuild
from agents.parts.keras_backend import import_keras
from agents.parts.networks import Policy, Value

keras = import_keras()


class Rows(NamedTuple):
    """Steps to learn from, [N, ...] with N = T · B, or a minibatch of them.

    With memory they are sequences of L steps: the steps of one follow each other.

    Attributes:
        obs: Standardised observations, nest [N, ...].
        sample: What the policy sampled, nest [N, ...].
        old_policy: Parameters of the distribution that was sampled from, nest [N, ...].
        old_log_prob: Its log probability of the sample, float32 [N].
        old_value: Value before the update, float32 [N].
        advantage: Advantage, float32 [N].
        return_: Target of the value, float32 [N].
        index: Which row, t · B + b, int32 [N].
        first: Where episodes begin, bool [N]; () without memory.
        start: State of the memory before each sequence, nest [N / L, U]; () without memory.
    """

    obs: Any
    sample: Any
    old_policy: Any
    old_log_prob: tf.Tensor
    old_value: tf.Tensor
    advantage: tf.Tensor
    return_: tf.Tensor
    index: tf.Tensor
    first: Any = ()
    start: Any = ()


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

    def means(self) -> dict[str, tf.Tensor]:
        """Return the metrics as means over the minibatches that were done, NaN if none was."""
        count = tf.cast(self.count, tf.float32)
        return {name: total / count for name, total in self.sums.items()}


class GradientSteps(tf.Module):
    """Improves a policy and its value by many small steps, and adapts what keeps them small."""

    failure_names = ('policy loss', 'value loss', 'entropy', 'gradient')

    def __init__(self, policy: Policy, value: Value, num_envs: int, hyper: Hyperparameters):
        """Make the optimizer.

        Args:
            policy: Policy to improve.
            value: Value network to improve.
            num_envs: Environments in a row of records, for reports.
            hyper: The numbers to learn with.
        """
        super().__init__(name='gradient_steps')
        self._policy, self._value, self._num_envs, self._hyper = policy, value, num_envs, hyper
        self._memory = policy.memory
        self._weights = policy.weights + value.weights
        self.optimizer = keras.optimizers.Adam(hyper.learning_rate, epsilon=hyper.adam_epsilon)
        self.optimizer.build(self._weights)
        self.penalty = tf.Variable(hyper.kl_init_penalty, trainable=False, name='penalty')
        self._step = self.update_step
        if hyper.compile == 'minibatch':
            self._step = tf.function(self.update_step, autograph=False, jit_compile=True)

    @property
    def state(self) -> list[tf.Variable]:
        """Everything that the steps change; restoring it undoes them."""
        variables = self._weights + self.optimizer.variables
        return [*(variable.value for variable in variables), self.penalty]

    def run(
        self, rows: Rows, valid: tf.Tensor, advantages: Callable, seed: tf.Tensor, learns: Any
    ) -> Progress:
        """Go over all rows `epochs` times, each time in another order.

        Args:
            rows: Steps to learn from.
            valid: Which of them are real, bool [N].
            advantages: Computes `old_value`, `advantage` and `return_` anew.
            seed: Seed of the orders, int32 [2].
            learns: Whether to take any step at all, bool [].

        Returns:
            How it went.
        """
        hyper = self._hyper
        size = min(hyper.minibatch, valid.shape[0])
        seeds = tf.random.stateless_uniform(
            [hyper.epochs, 2], seed, None, None, tf.int32, alg='philox'
        )

        def epoch(number: Any, progress: Progress) -> Any:
            current = rows._replace(**advantages()) if hyper.recompute_advantages else rows
            # Not seeds[number]: XLA would take what leads to a slice for a constant.
            shuffled = self._shuffle(current, valid, size, tf.gather(seeds, number))

            def minibatch(index: Any, progress: Progress) -> Any:
                return index + 1, self._step(*self._take(shuffled, index, size), progress)

            count = minibatches.num_minibatches(valid.shape[0], size)
            return number + 1, _loop_while_going(minibatch, count, progress)

        names = ['policy_loss', 'value_loss', 'entropy', 'gradient_norm']
        names += ['clip_fraction'] if hyper.objective == 'clip' else []
        start = Progress(
            count=tf.constant(0),
            go_on=tf.convert_to_tensor(learns),
            failure=tf.zeros([4], tf.int32),
            sums={name: tf.zeros([]) for name in names},
        )
        return _loop_while_going(epoch, hyper.epochs, start)

    def _shuffle(
        self, rows: Rows, valid: tf.Tensor, size: int, seed: tf.Tensor
    ) -> tuple[Rows, tf.Tensor]:
        """Shuffle steps, or with memory whole sequences, which get an axis: [S, L, ...]."""
        if self._memory is None:
            return minibatches.shuffle_and_pad(rows, valid, size, seed)
        length = self._hyper.sequence_length
        steps, valid = recurrent.split((rows._replace(start=()), valid), length)
        sequences = steps._replace(start=rows.start)
        whole = tf.ones([valid.shape[0]], tf.bool)
        (sequences, valid), real = minibatches.shuffle_and_pad(
            (sequences, valid), whole, size // length, seed
        )
        return sequences, valid & real[:, tf.newaxis]

    def _take(
        self, shuffled: tuple[Rows, tf.Tensor], index: Any, size: int
    ) -> tuple[Rows, tf.Tensor]:
        """Return one minibatch of what `_shuffle` returned."""
        if self._memory is None:
            return minibatches.take(shuffled, index, size)
        size //= self._hyper.sequence_length
        sequences, valid = minibatches.take(shuffled, index, size)
        steps, valid = recurrent.join((sequences._replace(start=()), valid))
        return steps._replace(start=sequences.start), valid

    def update_step(self, rows: Rows, valid: tf.Tensor, progress: Progress) -> Progress:
        """Take one gradient step: one forward pass, losses, gradients, optimizer.

        Args:
            rows: Minibatch, [M, ...].
            valid: Which rows are real, bool [M].
            progress: How it went so far.

        Returns:
            How it went, this step included.
        """
        hyper = self._hyper
        weights = [weight.value for weight in self._weights]
        with tf.GradientTape() as tape:
            terms, kl, metrics = self._losses(rows, valid)
            means = {name: losses.masked_mean(term, valid) for name, term in terms.items()}
            if hyper.objective == 'kl_penalty':
                means['policy_loss'] += losses.kl_penalty(kl, self.penalty) + losses.kl_cutoff(
                    kl, hyper.kl_target, hyper.kl_cutoff_factor, hyper.kl_cutoff_coef
                )
            loss = means['policy_loss'] + hyper.value_coef * means['value_loss']
            loss -= hyper.entropy_coef * means['entropy']
        gradients = tape.gradient(loss, weights)
        norm = tf.linalg.global_norm(gradients)
        if hyper.gradient_clip:
            scale = hyper.gradient_clip / tf.maximum(norm, hyper.gradient_clip)
            gradients = [gradient * scale for gradient in gradients]
        self.optimizer.apply(gradients, self._weights)
        metrics.update(means, gradient_norm=norm)
        failure = self._find_failure(rows, valid, terms, [*means.values(), norm], progress.count)
        go_on = progress.go_on & tf.equal(failure[0], 0)
        if hyper.early_stop_kl:
            go_on &= kl <= hyper.early_stop_kl
        sums = {name: total + metrics[name] for name, total in progress.sums.items()}
        return Progress(progress.count + 1, go_on, failure, sums)

    def kl(self, rows: Rows) -> tf.Tensor:
        """Return the KL divergence from the policy that acted to the present one, float32 [N]."""
        return _kl(rows, self.distribution(rows))

    def distribution(self, rows: Rows) -> Distribution:
        """Return the distributions of the present policy."""
        return self._policy(rows.obs, self._recall(rows))

    def _recall(self, rows: Rows) -> tf.Tensor | None:
        """Let the memory take in sequences from their true states; its output, float32 [M, U]."""
        if self._memory is None:
            return None
        features = self._policy.features(rows.obs)
        length = self._hyper.sequence_length
        features, first = map(_swap_axes, recurrent.split((features, rows.first), length))
        outputs, _ = self._memory.unroll(features, first, rows.start)
        return recurrent.join(_swap_axes(outputs))

    def adapt_penalty(self, kl: tf.Tensor, progress: Progress) -> None:
        """Adapt the weight of the KL divergence to what an update did, if it did anything.

        Args:
            kl: Mean KL over all rows after the last step, nats, float32 [].
            progress: How the update went.
        """
        if self._hyper.objective == 'kl_penalty':
            adapted = losses.adapt_penalty(self.penalty, kl, self._hyper.kl_target)
            self.penalty.assign(tf.where(progress.count > 0, adapted, self.penalty))

    def _losses(
        self, rows: Rows, valid: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, dict[str, tf.Tensor]]:
        """Return losses of each row, float32 [M] each, the mean KL if it is used, and metrics."""
        hyper = self._hyper
        features = self._recall(rows)
        policy, value = networks.evaluate(self._policy, self._value, rows.obs, features)
        log_prob = policy.log_prob(rows.sample)
        advantage = rows.advantage
        if hyper.normalize_advantages == 'minibatch':
            advantage = losses.standardize(advantage, valid)
        metrics, kl = {}, tf.zeros([])
        if hyper.objective == 'kl_penalty' or hyper.early_stop_kl:
            kl = losses.masked_mean(_kl(rows, policy), valid)
        if hyper.objective == 'clip':
            ratio = (log_prob, rows.old_log_prob)
            policy_loss = losses.clipped_surrogate(*ratio, advantage, hyper.clip_range)
            clipped = losses.clip_fraction(*ratio, hyper.clip_range)
            metrics['clip_fraction'] = losses.masked_mean(clipped, valid)
        else:
            policy_loss = losses.surrogate(log_prob, rows.old_log_prob, advantage)
        value_loss = losses.value_loss(value, rows.return_, rows.old_value, hyper.value_clip_range)
        terms = {'policy_loss': policy_loss, 'value_loss': value_loss, 'entropy': policy.entropy()}
        return terms, kl, metrics

    def _find_failure(
        self, rows: Rows, valid: tf.Tensor, terms: dict, means: list, count: tf.Tensor
    ) -> tf.Tensor:
        """Say which of the means is not finite, and the first row that made it so, int32 [4]."""
        finite = tf.math.is_finite(tf.stack(means))
        which = tf.argmin(tf.cast(finite, tf.int32), output_type=tf.int32)
        bad = tf.reduce_any(~tf.math.is_finite(tf.stack([*terms.values()])), 0) & valid
        row = tf.gather(rows.index, tf.argmax(tf.cast(bad, tf.int32)))
        place = tf.stack([row // self._num_envs, row % self._num_envs])
        place = tf.where(tf.reduce_any(bad), place, -1)
        failure = tf.concat([[which + 1, count], place], 0)
        return tf.where(tf.reduce_all(finite), tf.zeros_like(failure), failure)


def _swap_axes(x: tf.Tensor) -> tf.Tensor:
    """Swap time and sequences."""
    return tf.transpose(x, [1, 0, *range(2, len(x.shape))])


def _kl(rows: Rows, policy: Distribution) -> tf.Tensor:
    return rebuild(policy, rows.old_policy).kl(policy)


def _loop_while_going(body: Callable, count: int, progress: Progress) -> Progress:
    """Run `body(index, progress)` for `count` indices, as long as the progress says to go on."""
    _, progress = tf.while_loop(
        lambda index, progress: (index < count) & progress.go_on,
        body,
        (tf.constant(0), progress),
        maximum_iterations=count,
    )
    return progress
