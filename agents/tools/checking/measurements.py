"""What takes many steps: an episode at its time limit, growth of memory, speed."""

import itertools
import math
import time
from collections.abc import Sequence
from typing import Any

import gymnasium

from agents.tools.checking import memory_growth
from agents.tools.checking.trajectories import copy_action

_RESET_EVERY = 100  # Steps at most, so that resets are measured, too.


class Unfit(Exception):
    """What a check found wrong."""


class NotChecked(Exception):
    """Why a check could not be made."""


def find_end(
    env: gymnasium.Env, actions: Sequence[Any], seed: int, seconds: float, limit: int
) -> str:
    """Look for an episode that lasts as long as it may.

    Args:
        env: Environment.
        actions: Random actions.
        seed: Seed of the first episode.
        seconds: How long to look.
        limit: Steps after which its task says that an episode is cut.

    Returns:
        What was seen.

    Raises:
        Unfit: An episode at the limit was not cut.
        NotChecked: None was that long.
    """
    end = time.perf_counter() + seconds
    longest = 0
    for episode in itertools.count():
        env.reset(seed=seed + episode)
        for step in range(1, limit + 1):
            # Random actions seldom last long; the same one again and again sometimes does.
            action = actions[(step if episode % 2 == 0 else episode) % len(actions)]
            _, _, terminated, truncated, _ = env.step(copy_action(action))
            if truncated:
                return f'an episode was cut after {count(step, "step")}'
            if terminated or time.perf_counter() > end:
                break
        longest = max(longest, step)
        if step == limit:
            how = 'is terminated' if terminated else 'goes on'
            raise Unfit(f'after {limit:,} steps an episode {how}, with truncated=False')
        if time.perf_counter() > end:
            break
    raise NotChecked(f'no random episode reached {limit:,} steps, the longest had {longest:,}')


def find_growth(env: gymnasium.Env, actions: Sequence[Any], seconds: float) -> str:
    """Play many episodes and watch the memory of this process.

    Args:
        env: Environment.
        actions: Random actions.
        seconds: How long.

    Returns:
        What was seen.

    Raises:
        Unfit: Memory grows.
        NotChecked: The system does not tell.
    """

    def play() -> int:
        env.reset()
        steps = 0
        for action in actions[:_RESET_EVERY]:
            _, _, terminated, truncated, _ = env.step(copy_action(action))
            steps += 1
            if terminated or truncated:
                break
        return steps

    growth = memory_growth.measure(play, seconds)
    if growth is None:
        raise NotChecked('this system does not tell how much there is')
    if growth.slope:
        total = growth.slope * growth.steps / 1e6
        raise Unfit(f'{growth.slope:,.0f} bytes a step, {total:,.1f} MB in {growth.steps:,} steps')
    least = count(math.ceil(growth.least), 'byte')
    return f'{growth.steps:,} steps; {least} lost in each would show'


def measure_speed(env: gymnasium.Env, actions: Sequence[Any], seconds: float) -> str:
    """Measure how long steps and resets take.

    Args:
        env: Environment.
        actions: Random actions.
        seconds: How long to measure.
    """
    steps, resets, stepping, resetting = 0, 0, 0.0, 0.0
    end = time.perf_counter() + seconds
    ended = True
    while not (steps and resets) or time.perf_counter() < end:
        start = time.perf_counter()
        if ended or steps >= _RESET_EVERY * resets:
            env.reset()
            resetting += time.perf_counter() - start
            resets, ended = resets + 1, False
        else:
            _, _, *flags, _ = env.step(copy_action(actions[steps % len(actions)]))
            stepping += time.perf_counter() - start
            steps, ended = steps + 1, any(flags)
    reset = resetting / resets
    time_ = f'{1e3 * reset:,.3g} ms' if reset > 1e-3 else f'{1e6 * reset:,.3g} µs'
    return f'{steps / stepping:,.0f} steps/s; {time_} for a reset'


def count(number: int, what: str) -> str:
    """Write a number of things."""
    return f'{number:,} {what}{"" if number == 1 else "s"}'
