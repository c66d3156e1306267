"""Use what a run has learned: its policy as a plain function of observations."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tensorflow as tf

from agents import algorithms
from agents.scripts import checkpoints, runs, saved_spaces
from agents.scripts.config import ALGORITHMS, Config
from agents.scripts.mistakes import UserError, import_object
from agents.tools import spaces
from agents.tools.transition import Nest

# What every algorithm does; see `algorithms.algorithm`.
VERBS = ('initial', 'perform', 'experience', 'update')


def load(
    run: str | pathlib.Path,
    checkpoint: str = checkpoints.NEWEST,
    stochastic: bool = False,
    seed: int = 0,
) -> 'Policy':
    """Load the policy of a run, without its environments.

    Args:
        run: Folder of the run.
        checkpoint: 'newest', 'best' or a name like 'step-1000'.
        stochastic: Whether to sample actions as in training; else the most likely one is taken.
        seed: Seed of the samples.

    Returns:
        A function from observations to actions.

    Raises:
        UserError: The folder is no run with such a checkpoint.
    """
    opened = runs.open_folder(str(run))
    pair = saved_spaces.load(opened)
    restored = restore(opened, runs.load_config(opened), *pair, checkpoint)
    return Policy(restored.algorithm, *pair, stochastic=stochastic, seed=seed)


class Restored(NamedTuple):
    """An algorithm as it was at a checkpoint.

    Attributes:
        algorithm: What acts.
        path: The checkpoint, without suffix.
        step: Steps trained before it.
        evaluations: Evaluations made before it.
    """

    algorithm: Any
    path: pathlib.Path
    step: int
    evaluations: int


def restore(
    run: runs.Run,
    config: Config,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    which: str = checkpoints.NEWEST,
) -> Restored:
    """Make the algorithm of a run and restore it.

    Args:
        run: The run.
        config: Its config.
        observation_space: Space of one environment's observations.
        action_space: Space of one environment's actions.
        which: 'newest', 'best' or a name like 'step-1000'.

    Raises:
        UserError: There is no such checkpoint, or it is damaged.
    """
    paths = checkpoints.find(run, which)
    algorithm = make_algorithm(config, observation_space, action_space)
    evaluations = tf.Variable(0, dtype=tf.int64)
    counters = tf.train.Checkpoint(evaluations=evaluations)
    path = checkpoints.restore(tf.train.Checkpoint(algorithm=algorithm, counters=counters), paths)
    return Restored(algorithm, path, checkpoints.step(path), int(evaluations.numpy()))


def make_algorithm(
    config: Config, observation_space: gymnasium.Space, action_space: gymnasium.Space
) -> Any:
    """Make the algorithm that a config names, with initial weights.

    Args:
        config: Names it, and has its numbers.
        observation_space: Space of one environment's observations.
        action_space: Space of one environment's actions.

    Raises:
        UserError: There is no such algorithm.
    """
    if config.algorithm in ALGORITHMS:
        constructor = getattr(algorithms, ALGORITHMS[config.algorithm])
    else:
        constructor = import_algorithm(config.algorithm)
    if ':' in config.network:
        import_object(config.network, 'network')  # So that a mistake is told like others.
    if config.decay_learning_rate:
        config = dataclasses.replace(config, decay_updates=config.updates)
    return constructor(observation_space, action_space, config.num_envs, config)


def import_algorithm(path: str) -> type:
    """Import a user's algorithm.

    Args:
        path: 'module:Class'.

    Raises:
        UserError: There is no such class, or it has not the verbs of an algorithm.
    """
    constructor = import_object(path, 'algorithm')
    # Nothing else is called, since configs also come with other people's runs.
    missing = [verb for verb in VERBS if not hasattr(constructor, verb)]
    if missing or not isinstance(constructor, type):
        raise UserError(
            f'The algorithm {path} must be a class with the verbs {", ".join(VERBS)}, got '
            f'{constructor!r}, which lacks {", ".join(missing) or "none, but is no class"}.'
        )
    return constructor


class Policy:
    """Maps observations to actions, with normalisation, scaling and recurrent state inside.

    Attributes:
        algorithm: What acts.
        observation_space: Space of one observation.
        action_space: Space of one action.
    """

    def __init__(
        self,
        algorithm: Any,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        stochastic: bool = False,
        seed: int = 0,
    ):
        """Take over an algorithm.

        Args:
            algorithm: What acts.
            observation_space: Space of one observation.
            action_space: Space of one action.
            stochastic: Whether to sample actions; else the most likely one is taken.
            seed: Seed of the samples.
        """
        self.observation_space = observation_space
        self.action_space = action_space
        self.algorithm = algorithm
        self._zeros = spaces.zeros(observation_space)
        self._act = _make_function(algorithm, observation_space, stochastic)
        self._seed = np.random.SeedSequence(seed).generate_state(2).astype(np.int32)
        self._calls = 0
        self.reset()

    def reset(self) -> None:
        """Begin new episodes: forget the recurrent state."""
        self._size: int | None = None
        self._carry: Nest = ()

    def __call__(self, obs: Nest, first: Any = None) -> Nest:
        """Choose actions.

        Args:
            obs: One observation as the space says, or a batch of them, nest [B, ...].
            first: Whether an episode begins with this observation, bool [] or [B]; matters to a
                policy with memory. By default only at the first call, and after `reset`.

        Returns:
            One action as the space says, or a batch of them, nest [B, ...].

        Raises:
            ValueError: The observation or `first` has another shape; or the number of rows changes
                within the episodes of a policy with memory.
            TypeError: The observation has another kind of numbers.
        """
        zeros = tf.nest.flatten(self._zeros)
        # A list is one array, where the space is.
        parts = tf.nest.flatten(obs) if tf.nest.is_nested(self._zeros) else [obs]
        leaves = [_check(x, zero) for x, zero in zip(parts, zeros, strict=True)]
        single = leaves[0].shape == zeros[0].shape
        if single:
            leaves = [leaf[None] for leaf in leaves]
        flags = self._begin(len(leaves[0]), first)
        seed = self._seed + np.array([0, self._calls], np.int32)
        self._calls += 1
        batch = tf.nest.pack_sequence_as(self._zeros, [tf.constant(leaf) for leaf in leaves])
        action, self._carry = self._act(batch, tf.constant(flags), self._carry, tf.constant(seed))
        return tf.nest.map_structure(lambda x: x.numpy()[0] if single else x.numpy(), action)

    def _begin(self, size: int, first: Any) -> np.ndarray:
        """Make the recurrent state of this many rows, if there is none; return where it begins."""
        begins = np.asarray(size != self._size if first is None else first, bool)
        if begins.shape not in ((), (size,)):
            raise ValueError(
                f'First must be one truth value, or one for each of {size} rows, '
                f'got shape={begins.shape}.'
            )
        flags = np.broadcast_to(begins, [size])
        if size == self._size:
            return flags
        if self._size is not None and tf.nest.flatten(self._carry):
            raise ValueError(
                f'Observations must have as many rows as before, {self._size}, got {size}, since '
                'the policy remembers each. Call reset() first.'
            )
        self._size, self._carry = size, self.algorithm.initial(size)
        return flags


def _make_function(
    algorithm: Any, observation_space: gymnasium.Space, stochastic: bool
) -> tf.types.experimental.ConcreteFunction:
    """Trace what acts on any number of rows: (obs, first, carry, seed) to (action, next carry)."""

    def act(obs: Nest, first: tf.Tensor, carry: Nest, seed: tf.Tensor) -> tuple[Nest, Nest]:
        action, _, carry = algorithm.perform(obs, first, carry, seed, training=stochastic)
        return action, carry

    def rows(x: Any) -> tf.TensorSpec:
        return tf.TensorSpec([None, *x.shape], x.dtype)

    obs = tf.nest.map_structure(rows, spaces.zeros(observation_space))
    carry = tf.nest.map_structure(lambda x: rows(x[0]), algorithm.initial(1))
    signature = [obs, tf.TensorSpec([None], tf.bool), carry, tf.TensorSpec([2], tf.int32)]
    # The concrete one: to find it among traces takes as long as to run it.
    return tf.function(act, autograph=False).get_concrete_function(*signature)


def _check(x: Any, zero: np.ndarray) -> np.ndarray:
    """Convert a part of an observation, alone or with rows in front, where nothing is lost."""
    array = np.asarray(x)
    if array.shape[array.ndim - zero.ndim :] != zero.shape or array.ndim - zero.ndim not in (0, 1):
        raise ValueError(
            f'Observation must have shape {zero.shape}, with one more dimension in front for a '
            f'batch, got shape={array.shape}.'
        )
    if not np.can_cast(array.dtype, zero.dtype, 'same_kind'):
        raise TypeError(f'Observation must have dtype {zero.dtype}, got dtype={array.dtype}.')
    return array.astype(zero.dtype, copy=False)
