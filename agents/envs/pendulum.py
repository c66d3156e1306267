"""Pendulum-v1: swing a pendulum up with a weak motor and hold it there."""

import math
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tensorflow as tf

from agents.envs import random
from agents.envs.environment import Environment

MASS, LENGTH = 1.0, 1.0  # Of a rod that hangs from its end, kg and m.
TIME_STEP = 0.05  # s.
MAX_SPEED = 8.0  # rad/s.
MAX_TORQUE = 2.0  # N m.


class State(NamedTuple):
    """Pendulum and clock.

    Attributes:
        angle: From upright, not wrapped, rad, float32 [B].
        speed: Of the angle, rad/s, float32 [B].
        steps: Steps since the episode began, int32 [B].
    """

    angle: tf.Tensor
    speed: tf.Tensor
    steps: tf.Tensor


def make(g: float = 10.0, max_episode_steps: int = 200) -> Environment:
    """Make the environment.

    Args:
        g: Gravity, m/s².
        max_episode_steps: Time limit, steps.

    Returns:
        The environment; agrees with Gymnasium's.

    Source:
        A rod with the moment of inertia m l² / 3 about its end; the cost is Gymnasium's.
    """

    def reset(seed: tf.Tensor) -> tuple[State, tf.Tensor]:
        angle, speed = tf.unstack(random.uniform(seed, [2], -1.0, 1.0), axis=1)
        state = State(math.pi * angle, speed, tf.zeros_like(seed[:, 0]))
        return state, _observe(state)

    def step(state: State, action: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        del seed  # Nothing is random but the start.
        torque = tf.clip_by_value(action[:, 0], -MAX_TORQUE, MAX_TORQUE)
        wrapped = tf.math.floormod(state.angle + math.pi, 2 * math.pi) - math.pi
        # What the state before the step costs, not the one that follows.
        cost = wrapped**2 + 0.1 * state.speed**2 + 0.001 * torque**2
        gravity = 3 * g / (2 * LENGTH) * tf.sin(state.angle)
        speed = state.speed + (gravity + 3 / (MASS * LENGTH**2) * torque) * TIME_STEP
        speed = tf.clip_by_value(speed, -MAX_SPEED, MAX_SPEED)
        state = State(state.angle + speed * TIME_STEP, speed, state.steps + 1)
        never = tf.zeros_like(state.steps, tf.bool)
        return state, _observe(state), -cost, never, state.steps >= max_episode_steps

    high = np.array([1, 1, MAX_SPEED], np.float32)
    return Environment(
        reset,
        step,
        gymnasium.spaces.Box(-high, high, dtype=np.float32),
        gymnasium.spaces.Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32),
        'Pendulum-v1',
    )


def _observe(state: State) -> tf.Tensor:
    return tf.stack([tf.cos(state.angle), tf.sin(state.angle), state.speed], 1)
