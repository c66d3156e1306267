"""MountainCar-v0: drive an underpowered car out of a valley, with three levels of thrust."""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tensorflow as tf

from agents.envs import random
from agents.envs.environment import Environment

MIN_POSITION, MAX_POSITION = -1.2, 0.6
MAX_SPEED = 0.07  # Per step.
GOAL_POSITION = 0.5
THRUST = 0.001
GRAVITY = 0.0025


class State(NamedTuple):
    """Car and clock.

    Attributes:
        position: Along the valley, in the units of the source, float32 [B].
        speed: Change of the position per step, float32 [B].
        steps: Steps since the episode began, int32 [B].
    """

    position: tf.Tensor
    speed: tf.Tensor
    steps: tf.Tensor


def make(goal_velocity: float = 0.0, max_episode_steps: int = 200) -> Environment:
    """Make the environment.

    Args:
        goal_velocity: Speed that the car must have at the goal, per step.
        max_episode_steps: Time limit, steps.

    Returns:
        The environment; agrees with Gymnasium's.

    Source:
        Moore 1990, "Efficient Memory-based Learning for Robot Control"; equations as in Sutton and
        Barto, "Reinforcement Learning: An Introduction", example 10.1.
    """

    def step(state: State, action: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        del seed  # Nothing is random but the start.
        thrust = THRUST * (tf.cast(action, tf.float32) - 1)
        state = drive(state, thrust)
        terminated = (state.position >= GOAL_POSITION) & (state.speed >= goal_velocity)
        reward = -tf.ones_like(state.position)
        return state, observe(state), reward, terminated, state.steps >= max_episode_steps

    return Environment(
        reset, step, observation_space(), gymnasium.spaces.Discrete(3), 'MountainCar-v0'
    )


def reset(seed: tf.Tensor) -> tuple[State, tf.Tensor]:
    """Stand somewhere at the bottom of the valley."""
    position = random.uniform(seed, [], -0.6, -0.4)
    state = State(position, tf.zeros_like(position), tf.zeros_like(seed[:, 0]))
    return state, observe(state)


def drive(state: State, thrust: tf.Tensor) -> State:
    """Move by one step; a wall stands on the left."""
    speed = state.speed + thrust - GRAVITY * tf.cos(3 * state.position)
    speed = tf.clip_by_value(speed, -MAX_SPEED, MAX_SPEED)
    position = tf.clip_by_value(state.position + speed, MIN_POSITION, MAX_POSITION)
    at_wall = position <= np.float32(MIN_POSITION)
    return State(position, tf.where(at_wall & (speed < 0), 0.0, speed), state.steps + 1)


def observe(state: State) -> tf.Tensor:
    """Return position and speed, float32 [B, 2]."""
    return tf.stack([state.position, state.speed], 1)


def observation_space() -> gymnasium.spaces.Box:
    """Return the space of position and speed."""
    low = np.array([MIN_POSITION, -MAX_SPEED], np.float32)
    return gymnasium.spaces.Box(low, np.array([MAX_POSITION, MAX_SPEED], np.float32))
