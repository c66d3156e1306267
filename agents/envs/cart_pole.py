"""CartPole-v1: keep a pole upright on a cart that is pushed left or right."""

import math
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tensorflow as tf

from agents.envs import random
from agents.envs.environment import Environment

GRAVITY = 9.8  # m/s².
CART_MASS, POLE_MASS = 1.0, 0.1  # kg.
HALF_LENGTH = 0.5  # From the hinge to the middle of the pole, m.
FORCE = 10.0  # Of a push, N.
TIME_STEP = 0.02  # s.
MAX_POSITION = 2.4  # Where the track ends, m.
MAX_ANGLE = 12 * math.pi / 180  # Where the pole counts as fallen, rad.


class State(NamedTuple):
    """Cart, pole and clock.

    Attributes:
        physics: Position, m, speed, m/s, angle, rad, angular speed, rad/s, float32 [B, 4].
        steps: Steps since the episode began, int32 [B].
    """

    physics: tf.Tensor
    steps: tf.Tensor


def make(max_episode_steps: int = 500) -> Environment:
    """Make the environment.

    Args:
        max_episode_steps: Time limit, steps.

    Returns:
        The environment; agrees with Gymnasium's.

    Source:
        Barto, Sutton, Anderson 1983, "Neuronlike adaptive elements that can solve difficult
        learning control problems"; equations by Florian 2005, "Correct equations for the dynamics
        of the cart-pole system", without friction.
    """

    def reset(seed: tf.Tensor) -> tuple[State, tf.Tensor]:
        physics = random.uniform(seed, [4], -0.05, 0.05)
        return State(physics, tf.zeros_like(seed[:, 0])), physics

    def step(state: State, action: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        del seed  # Nothing is random but the start.
        physics = _move(state.physics, tf.where(tf.equal(action, 1), FORCE, -FORCE))
        steps = state.steps + 1
        terminated = (tf.abs(physics[:, 0]) > MAX_POSITION) | (tf.abs(physics[:, 2]) > MAX_ANGLE)
        truncated = steps >= max_episode_steps
        return State(physics, steps), physics, tf.ones_like(physics[:, 0]), terminated, truncated

    high = np.array([2 * MAX_POSITION, np.inf, 2 * MAX_ANGLE, np.inf], np.float32)
    return Environment(
        reset,
        step,
        gymnasium.spaces.Box(-high, high, dtype=np.float32),
        gymnasium.spaces.Discrete(2),
        'CartPole-v1',
    )


def _move(physics: tf.Tensor, force: tf.Tensor) -> tf.Tensor:
    """Integrate over one step of time by Euler's method, positions with the old speeds."""
    x, speed, angle, turning = tf.unstack(physics, axis=1)
    sine, cosine = tf.sin(angle), tf.cos(angle)
    total = CART_MASS + POLE_MASS
    push = (force + POLE_MASS * HALF_LENGTH * turning**2 * sine) / total
    inertia = HALF_LENGTH * (4 / 3 - POLE_MASS * cosine**2 / total)
    turning_rate = (GRAVITY * sine - cosine * push) / inertia
    acceleration = push - POLE_MASS * HALF_LENGTH * turning_rate * cosine / total
    rates = tf.stack([speed, acceleration, turning, turning_rate], 1)
    return tf.stack([x, speed, angle, turning], 1) + TIME_STEP * rates
