"""Plays episodes of a trained policy and films them."""

import contextlib
import functools
import pathlib
import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from agents import tools
from agents.scripts import environments, signals, videos
from agents.scripts.config import Config
from agents.tools.batch_env import BatchEnv
from agents.tools.evaluation import Episodes
from agents.tools.transition import Nest, StepResult

# What seeds are spawned for: 'visualize' in ASCII, which neither training nor evaluation uses.
_VISUALIZE = int.from_bytes(b'visualize', 'big')


def play_seed(seed: int, other: int | None, episode: int) -> int:
    """Fold the seed of an episode to show.

    Args:
        seed: Seed of the run.
        other: Number that stands for other episodes, or None.
        episode: Number of the episode.
    """
    numbers = (episode,) if other is None else (other, episode)
    sequence = np.random.SeedSequence(seed, spawn_key=(_VISUALIZE, *numbers))
    return int(sequence.generate_state(1)[0])


def play(
    config: Config,
    algorithm: Any,
    seeds: Sequence[int],
    num_envs: int,
    folder: pathlib.Path,
    recorded: Collection[int] | None = None,
) -> Episodes:
    """Play one episode from each seed, and write films of them, as in an evaluation otherwise.

    Args:
        config: Says which task, made with render_mode='rgb_array', and in how many processes.
        algorithm: What acts.
        seeds: Seed of each episode, [N], all different.
        num_envs: Environments that play at once.
        folder: Where to write <seed>.mp4 and <seed>.png.
        recorded: Seeds of the episodes to film; None for all.

    Returns:
        Scores, lengths and how the episodes ended, [N].

    Raises:
        OSError: A film cannot be written.
        Exception: What an environment raised.
    """
    wanted = frozenset(seeds if recorded is None else recorded)
    film = functools.partial(videos.Recorder, folder=folder, seeds=wanted)
    # The last round may have more environments than episodes are left.
    padded = [*seeds, *(max(seeds) + 1 + i for i in range(-len(seeds) % num_envs))]
    rounds = []
    with contextlib.ExitStack() as stack:
        batch_env = environments.make_host_batch(config, num_envs, film)
        stack.callback(batch_env.close)
        bar = stack.enter_context(
            tqdm.tqdm(unit=' steps', leave=False, disable=not sys.stderr.isatty())
        )
        env: Any = tools.InGraphBatchEnv(_Counted(batch_env, bar))  # type: ignore[arg-type]
        evaluation = tools.evaluate(env, algorithm, config.max_eval_steps or None)
        for start in range(0, len(padded), num_envs):
            bar.set_description_str(f'{start} of {len(seeds)} episodes')
            with signals.deferred():
                rounds.append(evaluation(padded[start : start + num_envs]))
        batch_env.call('end')
    return Episodes(*(np.concatenate(x)[: len(seeds)] for x in zip(*rounds, strict=True)))


class Sampling(tf.Module):
    """Acts as in training, also where the most likely action is asked for."""

    def __init__(self, algorithm: Any, seed: int):
        """Take over an algorithm.

        Args:
            algorithm: What acts.
            seed: Seed of the actions.
        """
        super().__init__(name='sampling')
        self.initial = algorithm.initial
        self._algorithm = algorithm
        self._seed = np.random.SeedSequence(seed).generate_state(1).astype(np.int32)[0]
        self._calls = tf.Variable(0, trainable=False)

    def perform(
        self, obs: Nest, first: tf.Tensor, carry: Nest, seed: tf.Tensor, training: bool
    ) -> tuple[Nest, Nest, Nest]:
        """Sample actions; see `Algorithm.perform`."""
        del seed, training  # Those of an evaluation, which needs none.
        pair = tf.stack([self._seed, self._calls.assign_add(1)])
        return self._algorithm.perform(obs, first, carry, pair, training=True)


class _Counted:
    """A batch of environments whose steps move a bar."""

    def __init__(self, batch_env: BatchEnv, bar: tqdm.tqdm):
        self._batch_env = batch_env
        self._bar = bar

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch_env, name)

    def step(self, action: Any) -> StepResult:
        result = self._batch_env.step(action)
        self._bar.update(self._batch_env.num_envs)
        return result
