"""MountainCarContinuous-v0: the car of MountainCar-v0 with any thrust, which costs fuel."""

from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents.envs import mountain_car
from agents.envs.environment import Environment
from agents.envs.mountain_car import State

GOAL_POSITION = 0.45
POWER = 0.0015  # Change of speed per step at full thrust.


def make(goal_velocity: float = 0.0, max_episode_steps: int = 999) -> Environment:
    """Make the environment.

    Args:
        goal_velocity: Speed that the car must have at the goal, per step.
        max_episode_steps: Time limit, steps.

    Returns:
        The environment; agrees with Gymnasium's.

    Source:
        As `mountain_car`; thrust, goal and reward are Gymnasium's.
    """

    def step(state: State, action: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        del seed  # Nothing is random but the start.
        wanted = action[:, 0]
        state = mountain_car.drive(state, POWER * tf.clip_by_value(wanted, -1.0, 1.0))
        terminated = (state.position >= GOAL_POSITION) & (state.speed >= goal_velocity)
        # The fuel is for what was asked for, also beyond full thrust.
        reward = tf.where(terminated, 100.0, 0.0) - 0.1 * wanted**2
        truncated = state.steps >= max_episode_steps
        return state, mountain_car.observe(state), reward, terminated, truncated

    return Environment(
        mountain_car.reset,
        step,
        mountain_car.observation_space(),
        gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
        'MountainCarContinuous-v0',
    )
