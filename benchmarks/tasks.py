"""The tasks that are measured, and random actions for them."""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

CART_POLE, PENDULUM = 'CartPole-v1', 'Pendulum-v1'
CHEETAH, HUMANOID = 'HalfCheetah-v5', 'Humanoid-v5'
IMAGES, BREAKOUT = 'images of 84×84×4 bytes', 'Breakout'
TASKS = (CART_POLE, PENDULUM, CHEETAH, HUMANOID, IMAGES, BREAKOUT)

# What EnvPool calls them; it has no synthetic one.
IN_ENVPOOL = {**{name: name for name in TASKS}, BREAKOUT: 'Breakout-v5', IMAGES: ''}

# Modules that a task needs besides this project's dependencies.
NEEDS = {CHEETAH: 'mujoco', HUMANOID: 'mujoco', BREAKOUT: 'ale_py'}


class Images(gymnasium.Env):
    """Shows an image that costs nothing to make, so that its transport is what is measured."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    _LENGTH = 1000

    def __init__(self) -> None:
        self._image = np.zeros((84, 84, 4), np.uint8)
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._time = 0
        return self._image, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._time += 1
        return self._image, 0.0, False, self._time >= self._LENGTH, {}


def make(task: str) -> gymnasium.Env:
    """Make one environment of a task, as its users do.

    Breakout has the usual preprocessing: 84×84 grey pixels, 4 frames a step, of which the last 4
    are stacked.
    """
    if task == IMAGES:
        return Images()
    if task == BREAKOUT:
        import ale_py

        gymnasium.register_envs(ale_py)
        env = gymnasium.make('BreakoutNoFrameskip-v4')
        env = gymnasium.wrappers.AtariPreprocessing(env)
        return gymnasium.wrappers.FrameStackObservation(env, 4)
    return gymnasium.make(task)


def maker(task: str) -> Callable[[], gymnasium.Env]:
    """Return what makes one environment."""
    return functools.partial(make, task)


def random_actions(space: gymnasium.Space, num_envs: int, count: int = 1000) -> np.ndarray:
    """Draw actions of one environment's space, [count, B, ...]."""
    rng = np.random.default_rng(0)
    size = (count, num_envs, *space.shape)
    if isinstance(space, gymnasium.spaces.Discrete):
        return rng.integers(space.n, size=size)
    return rng.uniform(space.low, space.high, size).astype(space.dtype)
