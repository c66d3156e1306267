"""Steps environments one after another, into arrays that are made once."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from agents.tools import env_state, mujoco_steps, spaces
from agents.tools.batch import Arrays, make_arrays


class LocalBatch:
    """Environments of this process, stepped one after another.

    The one place where environments are stepped: a `BatchEnv` uses it for the environments in its
    own process, and a worker process uses it on shared memory. An environment whose episode ended
    is reset in the same step, without a seed, so that its own random generator goes on.

    Attributes:
        constructors: Functions that made the environments, without which their state is not given.
    """

    failures = 0

    def __init__(
        self, envs: Sequence[gymnasium.Env], arrays: Arrays | None = None, first_index: int = 0
    ) -> None:
        """Take over environments.

        Args:
            envs: Environments with the same spaces.
            arrays: Memory to use, made here by default.
            first_index: Number of the first environment, for error messages.

        Raises:
            TypeError: A space is of a kind that batches cannot hold.
            ValueError: The environments have different spaces.
        """
        pairs = [(env.observation_space, env.action_space) for env in envs]
        spaces.check_equal(pairs, first_index)
        self.observation_space, self.action_space = pairs[0]
        self.num_envs = len(envs)
        self.first_index = first_index
        self.arrays = arrays or make_arrays(*pairs[0], self.num_envs)
        self._envs = list(envs)
        self._actions: list[Any] = [None] * self.num_envs
        self._seeds: Sequence[int | None] = ()
        self._call: tuple[str, str, tuple, dict] = ('', '', (), {})
        self._ready = False
        self.constructors: Sequence[Callable[[], gymnasium.Env]] = ()
        self._last_seeds: list[int | None] = [None] * self.num_envs
        self._proved = False
        self._together: mujoco_steps.MujocoSteps | None = None
        self._steps_alone = 0  # Until the search for a faster way; 0 for never.

    def reset_async(self, seeds: Sequence[int | None]) -> None:
        """Note the seeds, one for each environment, for `reset_wait`."""
        self._seeds = seeds

    def reset_wait(self) -> None:
        """Reset all environments; observations are in `arrays`."""
        self._ready = False
        if any(seed is not None for seed in self._seeds):
            self._last_seeds = list(self._seeds)
        index = 0
        try:
            for index, (env, seed) in enumerate(zip(self._envs, self._seeds, strict=True)):
                obs, _ = env.reset(seed=seed)
                row = spaces.check_row(self.observation_space, obs, self.first_index + index)
                spaces.put(self.arrays.obs, index, row)
        except BaseException as error:
            error.add_note(self._place(index, 'reset'))
            raise
        spaces.check_finite('observation', self.arrays.obs, self._actions, self.first_index)
        self._begin()

    def step_async(self, action: Any) -> None:
        """Copy actions, dtype of the space [B, ...], for `step_wait`."""
        self._actions = spaces.rows(self.action_space, action)

    def step_wait(self) -> bool:
        """Step all environments; results are in `arrays`.

        Returns:
            Whether any episode ended.

        Raises:
            RuntimeError: The batch was not reset, or not since the last error.
        """
        if not self._ready:
            raise RuntimeError(
                'Batch must be reset before it is stepped, and again after an error. Call reset().'
            )
        _, obs, last_obs, rewards, terminations, truncations, valid = self.arrays
        terminations.fill(False)
        truncations.fill(False)
        valid.fill(True)
        self._ready = False
        any_ended = self._step_together() if self._together else self._step_one_by_one()
        # Here and not in BatchEnv, so that workers share the work.
        about = self._actions, self.first_index
        if any_ended:
            spaces.check_finite('observation', last_obs, *about, terminations | truncations)
        spaces.check_finite('observation', obs, *about)
        spaces.check_finite('reward', rewards, *about)
        self._ready = True
        if self._steps_alone > 0:
            self._look_for_speed()
        return any_ended

    def _step_one_by_one(self) -> bool:
        """Step each environment and return whether any episode ended."""
        obs = self.arrays.obs
        nested = not isinstance(obs, np.ndarray)
        shape, dtype = ((), None) if nested else (obs.shape[1:], obs.dtype)
        any_ended, index = False, 0
        collected: list[Any] = []
        # This loop decides how fast cheap environments are: one call, four tests and one
        # assignment for each.
        try:
            for index, (env, action) in enumerate(zip(self._envs, self._actions, strict=True)):
                row, reward, terminated, truncated, _ = env.step(action)
                collected.append(reward if type(reward) is float else _scalar(reward))
                if terminated or truncated:
                    row = self._restart(index, row, terminated, truncated)
                    any_ended = True
                if getattr(row, 'shape', None) != shape or row.dtype is not dtype:
                    row = spaces.check_row(self.observation_space, row, self.first_index + index)
                    if nested:
                        spaces.put(obs, index, row)
                        continue
                obs[index] = row
            self.arrays.reward[:] = collected
        except BaseException as error:
            error.add_note(self._place(index, 'step'))
            raise
        return any_ended

    def _step_together(self) -> bool:
        """Do what `_step_one_by_one` does, faster."""
        assert self._together
        try:
            (obs, reward, terminated), truncated = self._together.step(self._actions)
            self.arrays.obs[:] = obs
            self.arrays.reward[:] = reward
            ended = np.flatnonzero(terminated | truncated).tolist()
            for self._together.index in ended:
                index = self._together.index
                row = self._restart(index, obs[index], terminated[index], truncated[index])
                self.arrays.obs[index] = row
        except BaseException as error:
            error.add_note(self._place(self._together.index, 'step'))
            raise
        return bool(ended)

    def _begin(self) -> None:
        """Be ready to step; whether that can be done faster is seen after some steps."""
        self._together, self._steps_alone = None, mujoco_steps.WARM_UP
        self._ready = True

    def _look_for_speed(self) -> None:
        self._steps_alone -= 1
        # Whoever made environments himself may change them at any time.
        if not self._steps_alone and self.constructors:
            self._together = mujoco_steps.find(self._envs)

    def call_async(
        self, kind: str, name: str, args: tuple = (), kwargs: dict | None = None
    ) -> None:
        """Note what to do with an attribute, for `call_wait`.

        Args:
            kind: 'call', 'get', 'set', 'get_state' or 'set_state'.
            name: Attribute of the environment or of one of its wrappers.
            args: Positional arguments of the call, or the one value to set, or all states.
            kwargs: Named arguments of the call.
        """
        self._call = (kind, name, args, kwargs or {})

    def call_wait(self) -> tuple:
        """Do what `call_async` noted with every environment and return the results."""
        kind, name, args, kwargs = self._call
        if kind == 'get_state':
            return self._get_state()
        if kind == 'set_state':
            return self._set_state(*args)
        # From now on, nobody knows what they are.
        self._together, self._steps_alone = None, 0
        results: list[Any] = []
        try:
            for env in self._envs:
                if kind == 'set':
                    results.append(env.set_wrapper_attr(name, *args))
                else:
                    value = env.get_wrapper_attr(name)
                    results.append(value(*args, **kwargs) if kind == 'call' else value)
        except BaseException as error:
            error.add_note(self._place(len(results), f'{kind} {name!r}'))
            raise
        return tuple(results)

    def close(self) -> list[Exception]:
        """Close all environments and return what they raised."""
        errors: list[Exception] = []
        envs, self._envs, self._ready = self._envs, [], False
        for index, env in enumerate(envs):
            try:
                env.close()
            except Exception as error:
                error.add_note(self._place(index, 'close'))
                errors.append(error)
        return errors

    @staticmethod
    def close_all(batches: 'Sequence[LocalBatch]', timeout: float) -> list[Exception]:
        """Close several batches and return what their environments raised."""
        del timeout  # Environments of this process cannot be stopped from outside.
        return [error for batch in batches for error in batch.close()]

    def _get_state(self) -> tuple:
        """Return state, last seed and number of restarts of each environment."""
        self._prove()
        states = [env_state.get_state(env) for env in self._envs]
        return tuple(
            {'env': state, 'seed': seed, 'restarts': 0}
            for state, seed in zip(states, self._last_seeds, strict=True)
        )

    def _set_state(self, states: Sequence[dict[str, Any]]) -> tuple:
        self._prove()
        self._ready = False
        for env, state in zip(self._envs, states, strict=True):
            env.reset(
                seed=0
            )  # What a first reset makes may be needed; the state replaces the rest.
            env_state.set_state(env, state['env'])
        self._last_seeds = [state['seed'] for state in states]
        self._begin()
        return (None,) * self.num_envs

    def _prove(self) -> None:
        """Check once that an environment with the state of another one does the same."""
        if not self._proved:
            if not self.constructors:
                raise env_state.Unsupported(
                    'Environments must be made by make_batch_env, for others to be made like them.'
                )
            env_state.prove(self.constructors[0])
            self._proved = True

    def _restart(self, index: int, obs: Any, terminated: Any, truncated: Any) -> Any:
        """Keep the last observation of an episode and return the first one of the next."""
        self.arrays.terminated[index] = bool(terminated)
        self.arrays.truncated[index] = bool(truncated)
        # Copied before the reset, since environments may use one buffer for all their observations.
        row = spaces.check_row(self.observation_space, obs, self.first_index + index)
        spaces.put(self.arrays.last_obs, index, row)
        return self._envs[index].reset()[0]

    def _place(self, index: int, doing: str) -> str:
        action = self._actions[index] if index < len(self._actions) else None
        return (
            f'Raised by environment {self.first_index + index} in {doing}, last action: {action!r}.'
        )


def _scalar(reward: Any) -> float:
    """Turn what is no float into one: NumPy's numbers, and arrays with one element."""
    return float(reward.item() if isinstance(reward, np.ndarray) else reward)
