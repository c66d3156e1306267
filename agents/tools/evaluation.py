"""Evaluation: exactly one episode in every environment, with the best action known."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from agents.tools.in_graph_batch_env import EnvState, InGraphBatchEnv
from agents.tools.transition import Nest

if TYPE_CHECKING:
    from agents.algorithms.algorithm import Algorithm


class Episodes(NamedTuple):
    """One episode of every environment.

    Attributes:
        score: Undiscounted sum of rewards, float32 [B].
        length: Steps, int32 [B].
        terminated: The world ended, bool [B].
        truncated: The environment cut the episode, bool [B].
        cut: The evaluation's own limit cut the episode, bool [B].
    """

    score: np.ndarray
    length: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    cut: np.ndarray


def evaluate(
    env: InGraphBatchEnv, algorithm: 'Algorithm', max_steps: int | None = None
) -> 'Evaluation':
    """Make the operation that plays one episode in every environment.

    Counting the first episodes to finish would favour short ones; one each does not.

    Args:
        env: Batch of environments in the graph, not the one that is trained on.
        algorithm: What acts in them, without learning.
        max_steps: Where to cut episodes that do not end, in steps; None for nowhere.

    Returns:
        The operation, called with one seed per environment.
    """
    return Evaluation(env, algorithm, max_steps)


class Evaluation(tf.Module):
    """The operation that `evaluate()` returns.

    Attributes:
        traces: How often TensorFlow has traced the operation; stays 1.
    """

    def __init__(self, env: InGraphBatchEnv, algorithm: 'Algorithm', max_steps: int | None):
        super().__init__(name='evaluation')
        self._env = env
        self._algorithm = algorithm
        self._max_steps = max_steps
        compiled = env.can_compile and getattr(algorithm, 'can_compile', False)
        self._run = tf.function(self._play, autograph=False, jit_compile=compiled)

    @property
    def traces(self) -> int:
        """How often TensorFlow has traced the operation."""
        return self._run.experimental_get_tracing_count()

    def __call__(self, seeds: Sequence[int]) -> Episodes:
        """Play one episode in every environment.

        Args:
            seeds: Seed of each environment's episode, [B].

        Returns:
            Scores, lengths and how the episodes ended.

        Raises:
            ValueError: The number of seeds is not the number of environments.
            Exception: Whatever an environment raised, as its own type.
        """
        if len(seeds) != self._env.num_envs:
            raise ValueError(
                f'The seeds must be one per environment, got {len(seeds)} seeds for '
                f'{self._env.num_envs} environments.'
            )
        with self._env.own_errors():
            episodes = self._run(tf.constant(np.asarray(seeds, np.int64)))
        return Episodes(*(value.numpy() for value in episodes))

    def _play(self, seeds: tf.Tensor) -> Episodes:
        """Step until every environment has ended an episode, in the graph."""
        self._env.reset(seeds)
        num_envs = self._env.num_envs
        none = tf.zeros([num_envs], tf.bool)
        start = Episodes(
            tf.zeros([num_envs]), tf.zeros([num_envs], tf.int32), none, none, tf.ones_like(none)
        )

        def body(t: Any, state: EnvState, carry: Nest, episodes: Episodes) -> Any:
            # Nothing random is asked for, but the seed must be there: any will do.
            action, _, carry = self._algorithm.perform(
                state.obs, state.first, carry, tf.zeros([2], tf.int32), training=False
            )
            state, transition = self._env.advance(state, action)
            counts = episodes.cut & transition.valid
            # An episode whose environment failed is played anew, from the start.
            lost = episodes.cut & ~transition.valid
            episodes = Episodes(
                score=tf.where(
                    lost, 0.0, episodes.score + tf.where(counts, transition.reward, 0.0)
                ),
                length=tf.where(lost, 0, episodes.length + tf.cast(counts, tf.int32)),
                terminated=episodes.terminated | (counts & transition.terminated),
                truncated=episodes.truncated | (counts & transition.truncated),
                cut=episodes.cut & ~(counts & (transition.terminated | transition.truncated)),
            )
            return t + 1, state, carry, episodes

        _, _, _, episodes = tf.while_loop(
            lambda _t, _state, _carry, episodes: tf.reduce_any(episodes.cut),
            body,
            (tf.constant(0), self._env.state(), self._algorithm.initial(num_envs), start),
            maximum_iterations=self._max_steps,
        )
        return episodes
