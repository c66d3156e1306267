"""Advantage actor-critic: the short template for an algorithm of your own."""

from typing import NamedTuple

import gymnasium
import tensorflow as tf

from agents.algorithms import losses
from agents.algorithms.hyperparameters import Hyperparameters
from agents.parts import actions, minibatches, networks, returns
from agents.parts.keras_backend import import_keras
from agents.tools.transition import Nest, Transition

keras = import_keras()


class Record(NamedTuple):
    """What is kept of a step, [T, B, ...]; `bootstrap` is the value after an episode was cut."""

    obs: Nest
    sample: Nest
    reward: tf.Tensor
    ended: tf.Tensor
    bootstrap: tf.Tensor
    valid: tf.Tensor


class ActorCritic(tf.Module):
    """Takes one gradient step on everything that was collected since the last one.

    Copy this file, change it, and train it by `--algorithm=my_module:MyClass`.

    Source: Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, arXiv 1602.01783,
    in its synchronous form.
    """

    failure_names = ('loss',)

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        num_envs: int,
        hyper: Hyperparameters | None = None,
    ):
        """Make networks and optimizer.

        Raises:
            ValueError: The hyperparameters ask for memory.
        """
        super().__init__(name='actor_critic')
        self._hyper = hyper = hyper or Hyperparameters()
        if hyper.recurrent != 'none':
            raise ValueError(f'ActorCritic has no memory, got recurrent={hyper.recurrent}.')
        self._action_space = action_space
        self.policy, self.value = networks.build(observation_space, action_space, hyper)
        self._weights = self.policy.weights + self.value.weights
        self.optimizer = keras.optimizers.Adam(hyper.learning_rate, epsilon=hyper.adam_epsilon)
        self.optimizer.build(self._weights)

    def initial(self, num_envs: int) -> Nest:
        """Return the recurrent state to begin with: none."""
        return ()

    def perform(
        self, obs: Nest, first: tf.Tensor, carry: Nest, seed: tf.Tensor, training: bool
    ) -> tuple[Nest, Nest, Nest]:
        """Sample actions in training, take the most likely ones otherwise."""
        policy = self.policy(obs)
        sample = policy.sample(seed) if training else policy.mode()
        action = actions.to_environment(sample, self._action_space, self._hyper.distribution)
        return action, sample, carry

    def experience(self, transition: Transition, extras: Nest) -> Record:
        """Keep the step, and the value of the last observation where an episode was cut."""
        cut = transition.truncated & ~transition.terminated & transition.valid
        bootstrap = tf.cond(
            tf.reduce_any(cut),
            lambda: tf.where(cut, self.value(transition.next_obs), 0.0),
            lambda: tf.zeros_like(transition.reward),
        )
        ended = transition.terminated | transition.truncated
        return Record(transition.obs, extras, transition.reward, ended, bootstrap, transition.valid)

    def update(
        self, records: Record, last_obs: Nest, carry: Nest, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Climb the policy gradient, and regress the value to the return, once."""
        # Whatever stands in invalid rows: 0 times NaN would be NaN. But an episode that such a row
        # cuts is bootstrapped with its observation.
        records = minibatches.zero_invalid(records, records.valid)._replace(obs=records.obs)
        time, num_envs = records.reward.shape
        obs, sample, valid = tf.nest.map_structure(
            lambda x: tf.reshape(x, [time * num_envs, *x.shape[2:]]),
            (records.obs, records.sample, records.valid),
        )
        with tf.GradientTape() as tape:
            policy, value = networks.evaluate(self.policy, self.value, obs)
            advantage = self._advantage(records, value, self.value(last_obs))
            policy_loss = -losses.masked_mean(policy.log_prob(sample) * advantage, valid)
            value_loss = losses.masked_mean(
                losses.value_loss(value, advantage + tf.stop_gradient(value), value, 0.0), valid
            )
            entropy = losses.masked_mean(policy.entropy(), valid)
            hyper = self._hyper
            loss = policy_loss + hyper.value_coef * value_loss - hyper.entropy_coef * entropy
        gradients = tape.gradient(loss, [weight.value for weight in self._weights])
        gradients, norm = tf.clip_by_global_norm(gradients, hyper.gradient_clip or 1e30)
        bad = ~(tf.math.is_finite(loss) & tf.math.is_finite(norm))
        tf.cond(bad, lambda: None, lambda: self.optimizer.apply(gradients, self._weights))
        return {
            'policy_loss': policy_loss,
            'value_loss': value_loss,
            'entropy': entropy,
            'gradient_norm': norm,
            'failure': tf.where(bad, tf.constant([1, 0, -1, -1]), tf.zeros([4], tf.int32)),
        }

    def _advantage(self, records: Record, value: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        """Estimate the advantage of every row, [T · B]."""
        value = tf.stop_gradient(tf.reshape(value, records.reward.shape))
        following = tf.concat([value[1:], tf.stop_gradient(last)[None]], 0)
        next_valid = tf.concat([records.valid[1:], tf.ones_like(records.valid[:1])], 0)
        advantage = returns.lambda_advantage(
            records.reward,
            value,
            tf.where(records.ended, records.bootstrap, following),
            ~records.ended & records.valid & next_valid,
            self._hyper.discount,
            self._hyper.gae_lambda,
        )
        return tf.reshape(advantage, [-1])
