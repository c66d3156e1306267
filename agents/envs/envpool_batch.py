"""EnvPool's environments, which C++ threads step, as a batch."""

import difflib
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from agents.envs.vector_env import VectorBatchEnv
from agents.tools import spaces
from agents.tools.transition import Nest


def make_envpool(
    task: str,
    num_envs: int,
    seed: int | Sequence[int] = 0,
    num_threads: int | None = None,
    **kwargs: Any,
) -> VectorBatchEnv:
    """Make a batch of an EnvPool task.

    EnvPool resets in the step after the one in which an episode ended. That row is not valid, which
    costs 1 / (mean length of an episode + 1) of all steps. An episode that the world ends in the
    very step in which its time is up counts as truncated only: EnvPool tells no more.

    EnvPool fixes seeds when it makes its environments, so a `reset` with seeds makes them anew. For
    64 environments this takes a millisecond for classic control, 0.1 s for MuJoCo and 3 s for
    Atari. A `reset` without seeds goes on with the environments' own random generators.

    Args:
        task: Name of the task in EnvPool, such as 'HalfCheetah-v5'.
        num_envs: Number of environments, at least 1.
        seed: Seed or seeds of the first `reset`, unless it is given others; EnvPool uses 31 bits.
        num_threads: Number of threads that step; None for EnvPool's choice, one for each core.
        **kwargs: Further options of the task, such as `max_episode_steps`.

    Returns:
        Batch of the environments.

    Raises:
        ModuleNotFoundError: EnvPool is not installed.
        ValueError: EnvPool has no such task, or there are no environments.
        TypeError: The task has no such option, or batches cannot hold a space.
    """
    envpool = _import()
    tasks = envpool.list_all_envs()
    if task not in tasks:
        near = ' or '.join(difflib.get_close_matches(task, tasks)) or 'a name of list_all_envs()'
        raise ValueError(f'The task must be one that EnvPool has, got task={task!r}. Try {near}.')
    if num_envs < 1:
        raise ValueError(f'Environments must be at least one, got num_envs={num_envs}.')
    options = {'num_envs': num_envs, 'batch_size': num_envs, 'num_threads': num_threads or 0}
    return _PoolBatchEnv(_Pool(envpool, task, {**kwargs, **options}), seed)


class _PoolBatchEnv(VectorBatchEnv):
    """A batch that has seeds for its first reset."""

    def __init__(self, pool: '_Pool', seed: int | Sequence[int]) -> None:
        super().__init__(pool)
        self._first_seed: int | Sequence[int] | None = seed

    def reset_async(self, seed: int | Sequence[int | None] | None = None) -> None:
        """Begin to reset; see `reset`."""
        super().reset_async(self._first_seed if seed is None else seed)
        self._first_seed = None


class _Pool(VectorEnv):
    """An EnvPool that takes seeds, with its rows in the order of the environments."""

    autoreset_mode = AutoresetMode.NEXT_STEP

    def __init__(self, envpool: Any, task: str, options: dict[str, Any]) -> None:
        spec = envpool.make_spec(task, **options)
        self.num_envs = options['num_envs']
        self.single_observation_space = spec.gymnasium_observation_space
        self.single_action_space = spec.gymnasium_action_space
        self._envpool, self._task, self._options = envpool, task, options
        self._pool: Any = None  # Made by the first reset, which knows the seeds.

    def reset(  # type: ignore[override]
        self, *, seed: list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Nest, dict[str, Any]]:
        """Begin new episodes; in new environments, if there are seeds."""
        del options
        if seed is not None:
            self._pool = None  # Its threads end before others begin.
            self._pool = self._envpool.make_gymnasium(
                self._task, seed=[value % 2**31 for value in seed], **self._options
            )
        obs, info = self._pool.reset()
        (obs,) = _in_order(info['env_id'], obs)
        return obs, info

    def step(self, actions: Any) -> tuple[Nest, Any, Any, Any, dict[str, Any]]:
        """Step all environments, or reset those whose episode had ended."""
        *arrays, info = self._pool.step(actions)
        obs, reward, terminated, truncated = _in_order(info['env_id'], *arrays)
        return obs, reward, terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """Free the environments and end their threads, which EnvPool's own `close` does not."""
        del kwargs
        self._pool = None


def _in_order(ids: np.ndarray, *batches: Nest) -> Sequence[Nest]:
    """Sort rows by the numbers of their environments, as they mostly are."""
    if np.array_equal(ids, np.arange(len(ids))):
        return batches
    order = np.argsort(ids)
    return [spaces.map_parts(lambda array: array[order], batch) for batch in batches]


def _import() -> Any:
    """Import EnvPool, a heavy package that few need."""
    try:
        return importlib.import_module('envpool')
    except ModuleNotFoundError as error:
        if error.name != 'envpool':
            raise
        raise ModuleNotFoundError(
            "EnvPool must be installed for its tasks. Run pip install 'batch-agents[envpool]'.",
            name='envpool',
        ) from None
