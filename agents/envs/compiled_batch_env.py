"""A batch of environments that are tensor programs, behind the door of all batches in the graph."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agents.envs import checking, random
from agents.envs.environment import Environment
from agents.tools.in_graph_batch_env import EnvState, InGraphBatchEnv, LastStep
from agents.tools.transition import Nest, Transition

_RESET, _STEPS = 0, 1  # Streams of random numbers; step t has the number _STEPS + t.


class Inner(NamedTuple):
    """What travels from step to step besides observations.

    Attributes:
        state: The environment's own, nest [B, ...].
        key: Seed of each environment; all others are made of it, int32 [B, 2].
        count: Steps since `reset`, int32 [].
    """

    state: Nest
    key: tf.Tensor
    count: tf.Tensor


class CompiledBatchEnv(InGraphBatchEnv):
    """Holds everything about the environments in variables, so that a checkpoint has it as well.

    Attributes:
        inner: The environments' own state, nest of variables.
        can_compile: Whether XLA compiles them.
    """

    def __init__(self, environment: Environment, num_envs: int, jit_compile: bool = True):
        """Put environments into the graph.

        Args:
            environment: What they are.
            num_envs: How many of them, B.
            jit_compile: Whether XLA compiles them, with the rollout and the update around them;
                else TensorFlow runs their operations one by one.

        Raises:
            TypeError: Batches cannot hold a space.
            ValueError: A shape, a dtype or a structure is not what the contract says, or XLA cannot
                compile an operation.
            MemoryError: There are more environments than memory holds.
        """
        checking.check(environment, num_envs, jit_compile)
        tf.Module.__init__(self, name='compiled_batch_env')
        self.can_compile = jit_compile
        self.begun = tf.Variable(False, trainable=False, name='begun')
        self._environment = environment
        self._make_variables(environment.observation_space, environment.action_space, num_envs)
        state, _ = environment.reset(tf.zeros([num_envs, 2], tf.int32))
        inner = Inner(state, tf.zeros([num_envs, 2], tf.int32), tf.zeros([], tf.int32))
        self.inner = tf.nest.map_structure(lambda x: tf.Variable(x, trainable=False), inner)

    @property
    def ready(self) -> bool:
        """Whether the environments were reset; from a checkpoint as well."""
        return bool(self.begun)

    def reset(self, seed: int | Sequence[int] | tf.Tensor | None = None) -> Nest:
        """Begin a new episode in every environment; see `InGraphBatchEnv.reset`."""
        if seed is None:
            key = random.fold_in(self.inner.key, self.inner.count)[0]
        else:
            key = self._keys(seed)
        state, obs = self._environment.reset(random.fold_in(key, _RESET)[0])
        inner = Inner(state, key, tf.zeros([], tf.int32))
        self.assign(EnvState(obs, tf.ones_like(self.first), inner))
        self.reward.assign(tf.zeros_like(self.reward))
        self.terminated.assign(tf.zeros_like(self.terminated))
        self.truncated.assign(tf.zeros_like(self.truncated))
        self.begun.assign(True)
        return obs

    def state(self) -> EnvState:
        """Read what a loop needs from the variables."""
        inner = tf.nest.map_structure(lambda variable: variable.read_value(), self.inner)
        return super().state()._replace(inner=inner)

    def advance(self, state: EnvState, action: Nest) -> tuple[EnvState, Transition]:
        """Step every environment once, and reset those whose episode ended."""
        environment, inner = self._environment, state.inner
        step_seed, reset_seed = random.fold_in(inner.key, _STEPS + inner.count, 2)
        stepped, next_obs, reward, terminated, truncated = environment.step(
            inner.state, action, step_seed
        )
        ended = terminated | truncated
        # Most steps of few environments end no episode, and a reset may cost more than a step.
        begun, first_obs = tf.cond(
            tf.reduce_any(ended),
            lambda: environment.reset(reset_seed),
            lambda: (stepped, next_obs),
        )
        next_inner = Inner(_choose(ended, begun, stepped), inner.key, inner.count + 1)
        next_state = EnvState(_choose(ended, first_obs, next_obs), ended, next_inner)
        transition = Transition(
            obs=state.obs,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_obs=next_obs,
            first=state.first,
            valid=tf.ones_like(ended),
        )
        return next_state, transition

    def assign(self, state: EnvState, last: LastStep | Transition | None = None) -> None:
        """Store where a loop has arrived."""
        super().assign(state, last)
        tf.nest.map_structure(lambda variable, x: variable.assign(x), self.inner, state.inner)

    @contextlib.contextmanager
    def own_errors(self, grace: float = 0.0) -> Iterator[None]:
        """Do nothing: a tensor program raises nothing of its own."""
        yield

    def close(self) -> None:
        """Do nothing: there are no processes."""

    def _keys(self, seed: Any) -> tf.Tensor:
        """Make one key for each environment of one seed, or of a seed for each."""
        if isinstance(seed, int):
            seed = np.random.SeedSequence(seed).generate_state(self.num_envs)
        return tf.bitcast(tf.cast(seed, tf.int64), tf.int32)


def _choose(ended: tf.Tensor, begun: Nest, stepped: Nest) -> Nest:
    """Take rows of the new episodes where the old ones ended."""

    def rows(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.reshape(ended, [-1] + [1] * (new.shape.rank - 1)), new, old)

    return tf.nest.map_structure(rows, begun, stepped)
