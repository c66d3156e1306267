"""Many environments as one, in this process and in others."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np

from agents.tools import interrupts, spaces
from agents.tools.batch import Batch
from agents.tools.local_batch import LocalBatch
from agents.tools.transition import Nest, StepResult


class BatchEnv:
    """Many environments that are stepped together, each in the place where it was put.

    An episode that ends is followed by the next one in the same step, so that every step of every
    environment is a real one. How environments are spread over processes changes nothing in what
    they return: environment i gets the i-th seed, and results come in order.

    All arrays that it returns are fresh; none is written again.
    """

    _closed = False

    def __init__(self, envs: Iterable['gymnasium.Env | BatchEnv']) -> None:
        """Join environments and batches of environments.

        The batches become parts of this one, which closes them; do not use them on their own any
        more.

        Args:
            envs: Environments of this process, `ExternalProcess`es and `BatchEnv`s, in any order.

        Raises:
            TypeError: Something else is among them, or batches cannot hold a space.
            ValueError: There are none, one is there twice, or they have different spaces.
        """
        envs = list(envs)
        if not envs:
            raise ValueError('Environments of a batch must be at least one, got an empty list.')
        self._adopt(_join(envs))
        for what in ('observation_space', 'action_space'):
            self._check_equal(what)

    @property
    def observation_space(self) -> gymnasium.Space:
        """Observation space of one environment."""
        return self._batches[0].observation_space

    @property
    def action_space(self) -> gymnasium.Space:
        """Action space of one environment."""
        return self._batches[0].action_space

    @property
    def num_envs(self) -> int:
        """Number of environments B."""
        return self._bounds[-1][1]

    @property
    def first_index(self) -> int:
        """Number of the first environment in error messages, 0 unless set."""
        return self._batches[0].first_index

    @first_index.setter
    def first_index(self, value: int) -> None:
        for batch, (start, _) in zip(self._batches, self._bounds, strict=True):
            batch.first_index = value + start

    @property
    def worker_failures(self) -> int:
        """How often worker processes failed and were started anew."""
        return sum(batch.failures for batch in self._batches)

    def reset(self, seed: int | Sequence[int | None] | None = None) -> Nest:
        """Begin a new episode in every environment.

        Args:
            seed: One seed for the batch, from which each environment gets one of its own; or a list
                of them, one for each environment; or None to go on with the environments' own
                random generators.

        Returns:
            First observations, nest [B, ...].

        Raises:
            ValueError: The list has another length than the batch.
            FloatingPointError: An observation is not finite.
        """
        self.reset_async(seed)
        return self.reset_wait()

    def step(self, action: Any) -> StepResult:
        """Step every environment once.

        Args:
            action: Action for each environment, nest [B, ...].

        Returns:
            Observations to act on next, rewards, flags, and the true next observations.

        Raises:
            ValueError: An action has the wrong shape, is not finite, or is not in its Discrete
                space.
            TypeError: Actions have a dtype that the space cannot hold.
            RuntimeError: The batch was not reset, not since the last error, or it is closed.
            FloatingPointError: An observation or reward is not finite.
            Exception: What an environment raised; the lowest number first if several did.
        """
        self.step_async(action)
        return self.step_wait()

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple:
        """Call a method of every environment.

        Args:
            name: Method of the environment or of one of its wrappers.
            *args: Positional arguments.
            **kwargs: Named arguments.

        Returns:
            One result for each environment.
        """
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def get_attr(self, name: str) -> tuple:
        """Return an attribute of every environment.

        Args:
            name: Attribute of the environment or of one of its wrappers.

        Returns:
            One value for each environment.

        Raises:
            AttributeError: There is no such attribute.
        """
        self._call_async('get', name)
        return self.call_wait()

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute of every environment to the same value.

        Args:
            name: Attribute; it is set where it exists, else on the outermost wrapper.
            value: Value for all environments.
        """
        self._call_async('set', name, (value,))
        self.call_wait()

    def get_state(self) -> tuple:
        """Return the complete state of every environment, for `set_state`.

        When it is first asked for, two more environments are made to see whether one of them does
        the same as the other, bit for bit, once it has its state.

        Returns:
            One for each environment: plain data for `packing.pack`.

        Raises:
            Unsupported: An environment or wrapper is not known and lacks the methods
                `get_state()` and `set_state(state)`, see `env_state`.
            RuntimeError: The batch was not reset, or not since the last error.
        """
        if not self._ready:
            raise RuntimeError('Batch must be reset before it has a state. Call reset().')
        self._call_async('get_state', '')
        return self.call_wait()

    def set_state(self, states: Sequence[Any]) -> None:
        """Let every environment go on from where another one was; no reset is needed.

        Args:
            states: What `get_state` returned, from environments made in the same way and whatever
                processes they were in.

        Raises:
            Unsupported: As for `get_state`.
            ValueError: There is not one for each environment, or it is of another environment.
        """
        if len(states) != self.num_envs:
            raise ValueError(
                f'States must be one for each of {self.num_envs} environments, got {len(states)}.'
            )
        self._begin('call_wait')
        self._ready = False
        parts = [(states[start:stop],) for start, stop in self._bounds]
        self._scatter('call_async', [('set_state', '', part, {}) for part in parts])
        self.call_wait()
        self._ready = True

    def render(self) -> tuple:
        """Render every environment and return one result for each."""
        return self.call('render')

    def close(self, timeout: float = 5.0) -> None:
        """Close all environments and end their processes; does nothing the second time.

        Args:
            timeout: How long the environments of other processes may take in seconds, before these
                are ended.

        Raises:
            Exception: The first that closing an environment raised, after all of them were closed.
        """
        if self._closed:
            return
        self._closed = True
        self._ready = False
        errors = close_all(self._batches, timeout)
        if errors:
            raise errors[0]

    def reset_async(self, seed: int | Sequence[int | None] | None = None) -> None:
        """Begin to reset; see `reset`."""
        seeds = self._expand(seed)
        self._begin('reset_wait')
        self._ready = False
        self._scatter('reset_async', [(seeds[start:stop],) for start, stop in self._bounds])

    def reset_wait(self) -> Nest:
        """Finish `reset_async`."""
        self._finish('reset_wait')
        self._gather('reset_wait')
        obs = spaces.concatenate([batch.arrays.obs for batch in self._batches])
        self._ready = True
        return obs

    def step_async(self, action: Any) -> None:
        """Begin to step; see `step`."""
        if not self._ready:
            self._begin('')
            raise RuntimeError(
                'Batch must be reset before it is stepped, and again after an error. Call reset().'
            )
        action = spaces.check_actions(self.action_space, action, self.num_envs)
        self._begin('step_wait')
        self._ready = False  # Until all went well.
        parts = [(spaces.part(action, start, stop),) for start, stop in self._bounds]
        self._scatter('step_async', parts)

    def step_wait(self) -> StepResult:
        """Finish `step_async`."""
        self._finish('step_wait')
        ended = self._gather('step_wait')
        arrays = [batch.arrays for batch in self._batches]
        obs = next_obs = spaces.concatenate([x.obs for x in arrays])
        reward = np.concatenate([x.reward for x in arrays])
        terminated = np.concatenate([x.terminated for x in arrays])
        truncated = np.concatenate([x.truncated for x in arrays])
        valid = np.concatenate([x.valid for x in arrays])
        if any(ended):
            next_obs = spaces.copy(obs)
            for x, (start, stop) in itertools.compress(
                zip(arrays, self._bounds, strict=True), ended
            ):
                part = spaces.part(next_obs, start, stop)
                spaces.replace_rows(part, x.terminated | x.truncated, x.last_obs)
        self._ready = True
        return StepResult(obs, reward, terminated, truncated, next_obs, valid)

    def call_async(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Begin to call a method of every environment; see `call`."""
        self._call_async('call', name, args, kwargs)

    def call_wait(self) -> tuple:
        """Finish `call_async`."""
        self._finish('call_wait')
        return tuple(result for results in self._gather('call_wait') for result in results)

    def __enter__(self) -> 'BatchEnv':
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _adopt(self, batches: Sequence[Batch]) -> None:
        """Begin to use batches of environments as parts of this one."""
        self._batches = list(batches)
        stops = np.cumsum([0, *(batch.num_envs for batch in batches)]).tolist()
        self._bounds: list[tuple[int, int]] = list(itertools.pairwise(stops))
        self._ready = False
        self._waits_for = ''
        self.first_index = 0

    def _call_async(
        self, kind: str, name: str, args: tuple = (), kwargs: dict | None = None
    ) -> None:
        self._begin('call_wait')
        self._scatter('call_async', [(kind, name, args, kwargs or {})] * len(self._batches))

    def _begin(self, waits_for: str) -> None:
        if self._closed:
            raise RuntimeError('Batch must not be used after it was closed. Make a new one.')
        if self._waits_for:
            raise RuntimeError(
                f'Batch must finish one thing before the next. Call {self._waits_for}().'
            )
        self._waits_for = waits_for

    def _finish(self, waits_for: str) -> None:
        if self._waits_for != waits_for:
            begin = waits_for.replace('wait', 'async')
            raise RuntimeError(f'Batch must begin before it can finish. Call {begin}() first.')
        self._waits_for = ''

    def _scatter(self, begin: str, arguments: Sequence[tuple]) -> None:
        """Let all batches begin before any is waited for."""
        try:
            for batch, values in zip(self._batches, arguments, strict=True):
                getattr(batch, begin)(*values)
        except BaseException:
            # Replies of those that did begin are dropped before the next command.
            self._waits_for = ''
            raise

    def _gather(self, wait: str) -> list[Any]:
        """Wait for all batches, also when one raises; then raise the first error."""
        results, errors = [], []
        for batch in self._batches:
            try:
                results.append(getattr(batch, wait)())
            except interrupts.Interrupted:
                raise  # No time for the others; their replies are dropped before the next command.
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def _expand(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        """Turn a seed of the batch into seeds of its environments."""
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return np.random.SeedSequence(int(seed)).generate_state(self.num_envs).tolist()
        seeds = [None if x is None else int(x) for x in seed]
        if len(seeds) != self.num_envs:
            raise ValueError(
                f'Seeds must be one for each of {self.num_envs} environments, got {len(seeds)}.'
            )
        return seeds

    def _check_equal(self, what: str) -> None:
        """Check that all parts have the same space."""
        first = getattr(self, what)
        for batch in self._batches:
            space = getattr(batch, what)
            if space != first:
                raise ValueError(
                    f'{what.capitalize().replace("_", " ")} must be the same for all environments '
                    f'of a batch, got {space} at index {batch.first_index} and {first} at index 0.'
                )


def _join(envs: Sequence[Any]) -> list[Batch]:
    """Make batches of neighbouring environments of this process, and keep batches."""
    if len({id(env) for env in envs}) < len(envs):
        raise ValueError('Environments of a batch must be different ones, got one of them twice.')
    batches: list[Batch] = []
    first_index = 0
    for local, group in itertools.groupby(envs, lambda env: not isinstance(env, BatchEnv)):
        members = list(group)
        for offset, env in enumerate(members):
            if local and not isinstance(env, gymnasium.Env):
                raise TypeError(
                    'Environments of a batch must be gymnasium.Env, ExternalProcess or BatchEnv, '
                    f'got {env!r} at index {first_index + offset}.'
                )
        if local:
            found: list[Batch] = [LocalBatch(members, first_index=first_index)]
        else:
            found = [batch for env in members for batch in env._batches]
        batches += found
        first_index += sum(batch.num_envs for batch in found)
    return batches


def close_all(batches: Sequence[Batch], timeout: float) -> list[Exception]:
    """Close batches of all kinds, those of a kind side by side, and return what that raised."""
    errors: list[Exception] = []
    kinds: list[Any] = list(dict.fromkeys(map(type, batches)))
    for kind in kinds:
        errors += kind.close_all([batch for batch in batches if type(batch) is kind], timeout)
    return errors
