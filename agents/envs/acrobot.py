"""Acrobot-v1: swing the tip of two linked rods up by a motor in the joint between them."""

import math
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tensorflow as tf

from agents.envs import random
from agents.envs.environment import Environment

# Both rods: mass 1 kg, length 1 m, centre of mass in the middle, moment of inertia 1 kg m². Masses,
# lengths and moments of 1 are left out of the equations.
CENTER = 0.5  # m.
GRAVITY = 9.8  # m/s².
TIME_STEP = 0.2  # s.
MAX_SPEEDS = (4 * math.pi, 9 * math.pi)  # rad/s.


class State(NamedTuple):
    """Rods and clock.

    Attributes:
        angles: Of the first rod from hanging down, and of the second from the first, rad in
            [-π, π], float32 [B, 2].
        speeds: Of the angles, rad/s, float32 [B, 2].
        steps: Steps since the episode began, int32 [B].
    """

    angles: tf.Tensor
    speeds: tf.Tensor
    steps: tf.Tensor


def make(max_episode_steps: int = 500) -> Environment:
    """Make the environment.

    Args:
        max_episode_steps: Time limit, steps.

    Returns:
        The environment; agrees with Gymnasium's.

    Source:
        Sutton 1996, "Generalization in Reinforcement Learning: Successful Examples Using Sparse
        Coarse Coding"; equations as in Sutton and Barto, "Reinforcement Learning: An Introduction".
    """

    def reset(seed: tf.Tensor) -> tuple[State, tf.Tensor]:
        angles, speeds = tf.unstack(random.uniform(seed, [2, 2], -0.1, 0.1), axis=1)
        state = State(angles, speeds, tf.zeros_like(seed[:, 0]))
        return state, _observe(state)

    def step(state: State, action: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        del seed  # Nothing is random but the start.
        torque = tf.cast(action, tf.float32) - 1
        angles, speeds = _integrate(state.angles, state.speeds, torque)
        angles = tf.math.floormod(angles + math.pi, 2 * math.pi) - math.pi
        bounds = tf.constant(MAX_SPEEDS)
        state = State(angles, tf.clip_by_value(speeds, -bounds, bounds), state.steps + 1)
        # How far the tip is above the upper joint, m.
        height = -tf.cos(angles[:, 0]) - tf.cos(angles[:, 0] + angles[:, 1])
        terminated = height > 1
        reward = tf.where(terminated, 0.0, -1.0)
        return state, _observe(state), reward, terminated, state.steps >= max_episode_steps

    high = np.array([1, 1, 1, 1, *MAX_SPEEDS], np.float32)
    observation_space = gymnasium.spaces.Box(-high, high, dtype=np.float32)
    return Environment(reset, step, observation_space, gymnasium.spaces.Discrete(3), 'Acrobot-v1')


def _integrate(
    angles: tf.Tensor, speeds: tf.Tensor, torque: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Go on for one step of time by the classical Runge-Kutta method of fourth order."""
    half = TIME_STEP / 2
    speeds1, rates1 = speeds, _accelerate(angles, speeds, torque)
    speeds2 = speeds + half * rates1
    rates2 = _accelerate(angles + half * speeds1, speeds2, torque)
    speeds3 = speeds + half * rates2
    rates3 = _accelerate(angles + half * speeds2, speeds3, torque)
    speeds4 = speeds + TIME_STEP * rates3
    rates4 = _accelerate(angles + TIME_STEP * speeds3, speeds4, torque)
    sixth = TIME_STEP / 6
    angles += sixth * (speeds1 + 2 * speeds2 + 2 * speeds3 + speeds4)
    return angles, speeds + sixth * (rates1 + 2 * rates2 + 2 * rates3 + rates4)


def _accelerate(angles: tf.Tensor, speeds: tf.Tensor, torque: tf.Tensor) -> tf.Tensor:
    """Return the change of the speeds, rad/s², float32 [B, 2]."""
    angle1, angle2 = tf.unstack(angles, axis=1)
    speed1, speed2 = tf.unstack(speeds, axis=1)
    sine, cosine = tf.sin(angle2), tf.cos(angle2)
    d1 = 2 * CENTER**2 + 1 + 2 * CENTER * cosine + 2
    d2 = CENTER**2 + CENTER * cosine + 1
    phi2 = CENTER * GRAVITY * tf.sin(angle1 + angle2)
    phi1 = (
        -CENTER * speed2**2 * sine
        - 2 * CENTER * speed1 * speed2 * sine
        + (CENTER + 1) * GRAVITY * tf.sin(angle1)
        + phi2
    )
    rate2 = torque + d2 / d1 * phi1 - CENTER * speed1**2 * sine - phi2
    rate2 /= CENTER**2 + 1 - d2**2 / d1
    return tf.stack([-(d2 * rate2 + phi1) / d1, rate2], 1)


def _observe(state: State) -> tf.Tensor:
    cosine, sine = tf.cos(state.angles), tf.sin(state.angles)
    both = tf.stack([cosine, sine], 2)
    return tf.concat([both[:, 0], both[:, 1], state.speeds], 1)
