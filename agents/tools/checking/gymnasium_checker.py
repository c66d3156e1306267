"""Runs Gymnasium's own checker on an environment as batches use it."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.utils import env_checker

from agents.tools.checking.measurements import Unfit

# What Gymnasium recommends to those who do not scale observations and actions, as training here
# does; and that there are wrappers, which are to be checked, too.
_NO_MATTER = (
    'probably too low',
    'probably too high',
    'symmetric and normalized',
    'different from the unwrapped',
)


def run(make: Callable[[], gymnasium.Env]) -> str:
    """Run the checker.

    Args:
        make: Function that makes the environment, of which warnings are collected as well.

    Returns:
        What was warned of, one line for each that matters.

    Raises:
        Unfit: It found a fault.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        try:
            # For rendering and closing it would make others, without wrappers of the user's.
            env_checker.check_env(_AsInBatch(make()), skip_render_check=True, skip_close_check=True)
        except (AssertionError, gymnasium.error.Error) as error:
            raise Unfit(_plain(str(error))) from None
    texts = dict.fromkeys(_plain(str(warning.message)) for warning in caught)
    told = [text for text in texts if not any(words in text for words in _NO_MATTER)]
    return ''.join(f'\nNote: {text}' for text in told)


class _AsInBatch(gymnasium.Wrapper):
    """Copies observations and drops infos: a batch does, so that these may be used again."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        obs, info = self.env.reset(seed=seed, options=options)
        return copy.deepcopy(obs), {} if isinstance(info, dict) else info

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        info = {} if isinstance(info, dict) else info
        return copy.deepcopy(obs), reward, terminated, truncated, info


def _plain(text: str) -> str:
    """Take the colours and the label out of a message of Gymnasium's."""
    text = text.removeprefix('\x1b[33m').removesuffix('\x1b[0m').removeprefix('WARN: ')
    return ' '.join(text.split()).removesuffix('.')
