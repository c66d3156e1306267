"""The verbs of a learning algorithm, in the order in which they happen."""

from typing import Any, Protocol

import tensorflow as tf

from agents.tools.transition import Nest, Transition


class Algorithm(Protocol):
    """What `simulate()` asks of an algorithm; all tensors, all inside one TensorFlow function.

    An algorithm is made by `Class(observation_space, action_space, num_envs, hyper)`. What must
    survive a restart is in its `tf.Variable`s; make it a `tf.Module`, and a checkpoint finds them.

        carry = initial(num_envs)
        for t in range(T):
            action, extras, carry = perform(obs, first, carry, seed, training=True)
            transition = <environments step>
            record = experience(transition, extras)        # kept, stacked to [T, B, ...]
        metrics = update(records, last_obs, carry_at_start, seed)
    """

    def initial(self, num_envs: int) -> Nest:
        """Return the recurrent state to begin with, nest [B, ...]; `()` for none."""
        ...

    def perform(
        self, obs: Nest, first: tf.Tensor, carry: Nest, seed: tf.Tensor, training: bool
    ) -> tuple[Nest, Nest, Nest]:
        """Choose actions.

        Args:
            obs: Observations to act on, nest [B, ...].
            first: The episode begins here: clear its carry, bool [B].
            carry: Recurrent state, nest [B, ...].
            seed: Seed of this step for stateless random operations, int32 [2].
            training: Whether to explore; otherwise the best action known.

        Returns:
            Actions as the action space says, what `experience` needs besides, and the next carry.
        """
        ...

    def experience(self, transition: Transition, extras: Nest) -> Nest:
        """Say what to keep of a step.

        Args:
            transition: The step that was made.
            extras: What `perform` gave for it.

        Returns:
            Record, nest [B, ...]; never a second copy of the observations.
        """
        ...

    def update(
        self, records: Nest, last_obs: Nest, carry: Nest, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Learn from what was collected.

        Args:
            records: What `experience` kept, nest [T, B, ...].
            last_obs: Observations after the last record, nest [B, ...]; the first ones of a new
                episode where one ended.
            carry: Recurrent state before the first record, nest [B, ...].
            seed: Seed of this update, int32 [2].

        Returns:
            Scalars to log, float32 []. An entry `failure`, int32 [4], reports an update that was
            undone: (1 + index into `failure_names` or 0 if all is well, minibatch, step t,
            environment). An entry `histograms` holds tensors by name, float32 [N], of which NaN is
            left out.
        """
        ...

    failure_names: Any
