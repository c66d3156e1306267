"""Tasks whose steps depend on more than an episode; no TensorFlow, for worker processes."""

import pathlib

import gymnasium
import numpy as np


class Drift(gymnasium.Env):
    """Goes at random; how far, and when it ends, depends on all steps that it ever made."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.total, self.place = 0, np.zeros(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2)
        return self.place.astype(np.float32), {}

    def step(self, action):
        self.total += 1
        self.place = self.place + action + self.np_random.normal(size=2) / self.total
        return self.place.astype(np.float32), float(self.place[0]), self.total % 37 == 0, False, {}


class Keeping(Drift):
    """Gives its state away."""

    def get_state(self):
        return {'total': self.total, 'place': self.place}

    def set_state(self, state):
        self.total, self.place = state['total'], state['place']


class Forgetting(Keeping):
    """Forgets one thing that its steps depend on."""

    def get_state(self):
        return {'place': self.place}

    def set_state(self, state):
        self.place = state['place']


class Breaking(Keeping):
    """Fails in a step whenever there is a file `fuse`."""

    def __init__(self, folder):
        super().__init__()
        self.fuse = pathlib.Path(folder) / 'fuse'

    def step(self, action):
        if self.fuse.exists():
            self.fuse.unlink()
            raise ZeroDivisionError('broken')
        return super().step(action)
