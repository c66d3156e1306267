"""Gymnasium's vector environments, and engines with the same interface, as a batch."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from agents.tools import env_state, spaces
from agents.tools.batch import make_arrays
from agents.tools.batch_env import BatchEnv


class VectorBatchEnv(BatchEnv):
    """A vector environment with the interface of `BatchEnv`, in each of Gymnasium's reset modes.

    When an episode ends at step t, the modes differ in what follows:

    | mode      | `obs` of step t          | step t + 1                                         |
    |-----------|--------------------------|----------------------------------------------------|
    | same step | first of a new episode   | a real one                                         |
    | disabled  | the same: the rows that  | a real one                                         |
    |           | ended are reset at once  |                                                    |
    | next step | last of the old episode  | not valid: the action is ignored, the reward is 0, |
    |           |                          | no flag is set, `obs` is the first observation     |

    `next_obs` is the true last observation in all of them. In next-step mode, invalid rows are
    1 / (mean length of an episode + 1) of all: 5 % with episodes of 20 steps, 0.1 % with 1000.

    Gymnasium's own classes in same-step mode give a wrong last observation if an environment uses
    one buffer for all its observations. The other modes, and `BatchEnv`, do not.
    """

    def __init__(self, vector_env: VectorEnv) -> None:
        """Take over a vector environment.

        Args:
            vector_env: Vector environment, for example from `gymnasium.make_vec`. If its `reset`
                is annotated to take a list or array of seeds, each environment gets its own;
                otherwise all of them are folded into the one seed that it takes.

        Raises:
            TypeError: It is no vector environment, or batches cannot hold a space.
            ValueError: It does not say in `metadata['autoreset_mode']` when it resets.
        """
        if not isinstance(vector_env, VectorEnv):
            raise TypeError(
                f'Vector environment must be a gymnasium.vector.VectorEnv, got {vector_env!r}. '
                'Make one with gymnasium.make_vec, or put environments into a BatchEnv.'
            )
        self._adopt([VectorBatch(vector_env)])


class VectorBatch:
    """What a `VectorBatchEnv` is made of: it steps the vector environment."""

    failures = 0

    def __init__(self, vector_env: VectorEnv) -> None:
        """Take over a vector environment; see `VectorBatchEnv`."""
        pair = (vector_env.single_observation_space, vector_env.single_action_space)
        spaces.check_equal([pair])
        self.observation_space, self.action_space = pair
        self.num_envs = vector_env.num_envs
        self.first_index = 0
        self.arrays = make_arrays(*pair, self.num_envs)
        self._vector_env = vector_env
        self._mode = _autoreset_mode(vector_env)
        self._seed_form = _seed_form(vector_env)
        self._seeds: Sequence[Any] = ()
        self._action: Any = [None] * self.num_envs
        self._ended = np.zeros(self.num_envs, bool)
        self._call: tuple[str, str, tuple, dict] = ('', '', (), {})

    def reset_async(self, seeds: Sequence[int | None]) -> None:
        """Note the seeds, one for each environment, for `reset_wait`."""
        self._seeds = seeds

    def reset_wait(self) -> None:
        """Reset all environments; observations are in `arrays`."""
        self._action = [None] * self.num_envs
        self._ended = np.zeros(self.num_envs, bool)
        obs, _ = self._vector_env.reset(seed=self._native_seed())
        obs = self._check_obs(obs)
        spaces.check_finite('observation', obs, self._action, self.first_index)
        self.arrays = self.arrays._replace(obs=obs)

    def step_async(self, action: Any) -> None:
        """Copy actions, dtype of the space [B, ...], for `step_wait`."""
        self._action = spaces.copy(action)

    def step_wait(self) -> bool:
        """Step all environments; results are in `arrays`.

        Returns:
            Whether `arrays.last_obs` holds the last observation of any episode.
        """
        obs, reward, terminated, truncated, infos = self._vector_env.step(self._action)
        # Copied, since a reset below may write to their memory.
        reward = self._copy_rows('rewards', reward, np.float32)
        terminated = self._copy_rows('terminated flags', terminated, bool)
        truncated = self._copy_rows('truncated flags', truncated, bool)
        valid = np.ones(self.num_envs, bool)
        if self._mode is AutoresetMode.NEXT_STEP:
            valid = ~self._ended
            reward[self._ended] = 0
            terminated &= valid
            truncated &= valid
        self._ended = terminated | truncated
        restart = self._mode is not AutoresetMode.NEXT_STEP and bool(self._ended.any())
        if restart:
            obs = self._restart(obs, infos)
        obs = self._check_obs(obs)
        spaces.check_finite('observation', obs, self._action, self.first_index)
        spaces.check_finite('reward', reward, self._action, self.first_index)
        # Not copied: BatchEnv does, when it joins batches.
        self.arrays = self.arrays._replace(
            obs=obs, reward=reward, terminated=terminated, truncated=truncated, valid=valid
        )
        return restart

    def call_async(self, kind: str, name: str, args: tuple, kwargs: dict) -> None:
        """Note what to do with an attribute of each environment, for `call_wait`."""
        self._call = (kind, name, args, kwargs)

    def call_wait(self) -> tuple:
        """Do what `call_async` noted, which not all vector environments can."""
        kind, name, args, kwargs = self._call
        vector_env: Any = self._vector_env
        if kind in ('get_state', 'set_state'):
            raise env_state.Unsupported(
                f'{type(vector_env).__name__} keeps the state of its environments to itself. Take '
                '--engine=process for a run that must go on in the middle of episodes.'
            )
        if kind == 'set':
            vector_env.set_attr(name, [*args] * self.num_envs)
            return (None,) * self.num_envs
        if kind == 'get':
            return tuple(vector_env.get_attr(name))
        return tuple(vector_env.call(name, *args, **kwargs))

    @staticmethod
    def close_all(batches: 'Sequence[VectorBatch]', timeout: float) -> list[Exception]:
        """Close several vector environments and return what that raised."""
        del timeout  # Gymnasium's interface has none.
        errors: list[Exception] = []
        for batch in batches:
            try:
                batch._vector_env.close()
            except Exception as error:
                errors.append(error)
        return errors

    def _restart(self, obs: Any, infos: dict[str, Any]) -> Any:
        """Keep the last observations of ended episodes and return what to act on next."""
        last = infos.get('final_obs') if self._mode is AutoresetMode.SAME_STEP else obs
        if last is None:
            raise ValueError(
                "Vector environment must put last observations into infos['final_obs'] in mode "
                f'SameStep, got infos={sorted(infos)}. Use another autoreset mode.'
            )
        # Gymnasium gives an array of objects, None where no episode ended, and engines a plain one.
        for index in self._ended.nonzero()[0].tolist():
            row = spaces.check_row(
                self.observation_space, spaces.row(last, index), self.first_index + index
            )
            spaces.put(self.arrays.last_obs, index, row)
        spaces.check_finite(
            'observation', self.arrays.last_obs, self._action, self.first_index, self._ended
        )
        if self._mode is AutoresetMode.DISABLED:
            obs, _ = self._vector_env.reset(options={'reset_mask': self._ended})
        return obs

    def _native_seed(self) -> Any:
        """Put the seeds into the form that the vector environment takes."""
        if all(seed is None for seed in self._seeds):
            return None
        if 'list' in self._seed_form or 'Sequence' in self._seed_form:
            return list(self._seeds)
        if 'ndarray' in self._seed_form:
            return np.array(self._seeds) % 2**31  # Engines keep seeds in 32 bits with a sign.
        return int(np.random.SeedSequence(self._seeds).generate_state(1)[0])

    def _check_obs(self, obs: Any) -> Any:
        """Check number, shape and dtype of observations; may return the same array."""
        if isinstance(self.arrays.last_obs, np.ndarray):
            obs = np.asarray(obs)
        for _, array in spaces.parts(obs):
            if len(array) != self.num_envs:
                raise ValueError(
                    f'Observations must be one for each of {self.num_envs} environments, got '
                    f'{len(array)}. Let the vector environment step all at once.'
                )
        spaces.check_row(self.observation_space, spaces.row(obs, 0), self.first_index)
        return spaces.map_parts(
            lambda wanted, array: np.asarray(array).astype(wanted.dtype, copy=False),
            self.arrays.last_obs,
            obs,
        )

    def _copy_rows(self, what: str, values: Any, dtype: Any) -> np.ndarray:
        array = np.array(values, dtype)
        if array.shape != (self.num_envs,):
            raise ValueError(
                f'The {what} must have shape ({self.num_envs},), one for each environment, got '
                f'shape={array.shape}.'
            )
        return array


def _autoreset_mode(vector_env: VectorEnv) -> AutoresetMode:
    """Find out when a vector environment resets."""
    # First what instances say: ale-py writes the mode of the newest one into all metadata.
    mode = getattr(vector_env.unwrapped, 'autoreset_mode', None)
    mode = mode or vector_env.metadata.get('autoreset_mode')
    if mode is None:
        raise ValueError(
            "Vector environment must say in metadata['autoreset_mode'] when it resets, got "
            f'metadata={vector_env.metadata}. Set it to a gymnasium.vector.AutoresetMode.'
        )
    return AutoresetMode(mode)


def _seed_form(vector_env: VectorEnv) -> str:
    """Return the annotation of `reset`'s seed, which alone says what a vector environment takes."""
    parameter = inspect.signature(vector_env.unwrapped.reset).parameters.get('seed')
    return '' if parameter is None else str(parameter.annotation)
