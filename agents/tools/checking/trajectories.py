"""Plays an environment with given actions, alone or in a batch, moment by moment."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from agents.tools import spaces
from agents.tools.batch_env import BatchEnv
from agents.tools.checking import values


class Moment(NamedTuple):
    """What an environment returned, from `reset` or from `step`.

    Attributes:
        where: When that was, such as 'step 3'.
        obs: Observation, as it came: the environment may write to it again.
        reward: Reward, None from reset.
        terminated: Flag, None from reset.
        truncated: Flag, None from reset.
    """

    where: str
    obs: Any
    reward: Any = None
    terminated: Any = None
    truncated: Any = None

    def difference(self, other: 'Moment', cast: bool) -> str | None:
        """Describe the first difference to what another run returned at the same time."""
        if self.where != other.where:
            return f'there is {other.where} instead of {self.where}'
        for what in ('obs', 'reward', 'terminated', 'truncated'):
            wanted, got = getattr(self, what), getattr(other, what)
            name = 'observation' if what == 'obs' else what
            if got is not wanted and (text := values.difference(wanted, got, name, cast)):
                return f'at {self.where}, {text}'
        return None


def play(env: gymnasium.Env, actions: Sequence[Any], seed: int) -> Iterator[Moment]:
    """Reset an environment once with a seed, and step it; episodes that end follow each other.

    Args:
        env: Environment.
        actions: Action of each step.
        seed: Seed of the first reset.

    Raises:
        TypeError: The environment returns no tuple of the right length.
    """
    obs, _ = _unpack('reset', env.reset(seed=seed), '(obs, info)', 2)
    yield Moment('reset', obs)
    for step, action in enumerate(actions):
        form = '(obs, reward, terminated, truncated, info)'
        # A copy, since an environment may write to its action.
        *fields, _ = _unpack('step', env.step(copy_action(action)), form, 5)
        yield Moment(f'step {step}', *fields)
        if fields[2] or fields[3]:
            obs, _ = _unpack('reset', env.reset(), '(obs, info)', 2)
            yield Moment(f'reset after step {step}', obs)


def play_batch(batch: BatchEnv, actions: Sequence[Any], seed: int, row: int) -> Iterator[Moment]:
    """Play all environments of a batch and show what one of them returns, as `play` would.

    Args:
        batch: Environments.
        actions: Action of each step of this one; the others take them from another step on.
        seed: Seed of this one; the others have others.
        row: Which one.
    """
    shifts = [index - row for index in range(batch.num_envs)]
    obs = batch.reset([seed + shift % batch.num_envs for shift in shifts])
    yield Moment('reset', spaces.row(obs, row))
    for step in range(len(actions)):
        chosen = [actions[(step + 7 * shift) % len(actions)] for shift in shifts]
        result = batch.step(spaces.map_parts(lambda *parts: np.stack(parts), *chosen))
        ends = result.terminated[row], result.truncated[row]
        yield Moment(f'step {step}', spaces.row(result.next_obs, row), result.reward[row], *ends)
        if any(ends):
            yield Moment(f'reset after step {step}', spaces.row(result.obs, row))


def copy_action(action: Any) -> Any:
    """Copy an action, so that what an environment writes to it is lost."""
    if isinstance(action, dict | tuple):
        return copy.deepcopy(action)
    return action.copy() if isinstance(action, np.ndarray) else action


def _unpack(method: str, result: Any, form: str, length: int) -> Any:
    if not isinstance(result, tuple) or len(result) != length:
        got = f'{len(result)} values' if isinstance(result, tuple) else type(result).__name__
        raise TypeError(f'{method} must return {form}, got {got}')
    return result
