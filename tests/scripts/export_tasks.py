"""Tasks to export policies of; apart from the tests, since this must not import TensorFlow."""

import gymnasium
import numpy as np

# Float32 has steps of 0.0625 here: statistics of float32 would be off by some percent.
FAR = 1e6


class Shift(gymnasium.ObservationWrapper):
    """Observations around numbers that are large against their deviation."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(
            -np.inf, np.inf, env.observation_space.shape, np.float32
        )

    def observation(self, obs):
        return (obs + FAR).astype(np.float32)


class Noise(gymnasium.Env):
    """Takes actions of any space and shows random numbers."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, low, high, dtype):
        low, high = np.array(low, dtype), np.array(high, dtype)
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.dtype(dtype).type)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=3).astype(np.float32), {}

    def step(self, action):
        return self.reset()[0], 0.0, self.np_random.uniform() < 0.1, False, {}


gymnasium.register('ExportNoise-v0', Noise)
