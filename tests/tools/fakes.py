"""Small environments whose behaviour is known, or goes wrong on purpose."""

import ctypes
import os
import signal
import sys
import threading
import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Counting(gymnasium.Env):
    """Shows [episode, step] and ends episodes after `length` steps; reward 10 * episode + step."""

    def __init__(self, length=3, truncate=False):
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = Discrete(2)
        self.length = length
        self.truncate = truncate
        self.episode = self.time = 0
        self.buffer = np.zeros(2, np.float32)  # The same for all observations, as in many engines.

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.time = 0
        self.buffer[:] = self.episode, self.time
        return self.buffer, {}

    def step(self, action):
        self.time += 1
        self.buffer[:] = self.episode, self.time
        ended = self.time >= self.length
        reward = 10 * self.episode + self.time
        return self.buffer, reward, ended and not self.truncate, ended and self.truncate, {}


class Constant(gymnasium.Env):
    """Gives the same observation and reward for ever, whatever their types."""

    def __init__(self, obs=None, reward=1.0, observation_space=None, action_space=None):
        self.observation_space = observation_space or Box(-1, 1, (2,), np.float32)
        self.action_space = action_space or Discrete(2)
        self.obs = np.zeros(2, np.float32) if obs is None else obs
        self.first_obs = self.observation_space.sample()
        self.reward = reward
        self.actions = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.first_obs, {}

    def step(self, action):
        self.actions.append(action)
        return self.obs, self.reward, False, False, {}


class Walk(gymnasium.Env):
    """Random walk that depends on seed and action; episodes end at random, in both ways."""

    SPACES = {
        'float32': Box(-np.inf, np.inf, (3,), np.float32),
        'float64': Box(-np.inf, np.inf, (2, 2), np.float64),
        'image': Box(0, 255, (4, 5, 3), np.uint8),
        'discrete': Discrete(7, start=2),
    }

    def __init__(self, kind='float32', action_space=None):
        self.observation_space = self.SPACES[kind]
        self.action_space = action_space or Discrete(3)
        self.position = np.zeros(self.observation_space.shape)
        self.buffer = np.zeros(self.observation_space.shape, self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.normal(size=self.buffer.shape)
        return self.observe(), {}

    def step(self, action):
        self.position = (
            self.position + np.sum(action) + self.np_random.normal(size=self.buffer.shape)
        )
        end = self.np_random.uniform()
        reward = float(np.sum(self.position))
        return self.observe(), reward, bool(end < 0.1), bool(0.05 < end < 0.2), {}

    def observe(self):
        value = self.position
        if isinstance(self.observation_space, Discrete):
            return 2 + int(abs(value) * 5) % 7
        if self.buffer.dtype == np.uint8:
            value = np.abs(value * 20) % 256
        self.buffer[...] = value
        return self.buffer


class Special(Exception):
    """An exception that pickle cannot rebuild from its arguments."""

    def __init__(self, code, detail):
        super().__init__(f'special {code}: {detail}')
        self.code = code


class Unpicklable(Exception):
    """An exception that holds what cannot be sent."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class Trouble(Counting):
    """Gets into the kind of trouble that its attribute names, in a step, reset or close."""

    def __init__(self, trouble='', where='step'):
        super().__init__(length=5)
        self.trouble = trouble
        self.where = where

    def step(self, action):
        self.get_into('step')
        return super().step(action)

    def reset(self, *, seed=None, options=None):
        self.get_into('reset')
        return super().reset(seed=seed)

    def close(self):
        self.get_into('close')

    def get_into(self, where):
        if where == self.where and self.trouble:
            getattr(self, f'do_{self.trouble}')()

    def do_raise(self):
        raise ZeroDivisionError('one over nothing')

    def do_special(self):
        raise Special(7, 'of its own')

    def do_unpicklable(self):
        raise Unpicklable('cannot travel')

    def do_system_exit(self):
        sys.exit(4)

    def do_exit(self):
        os._exit(3)

    def do_segfault(self):
        ctypes.string_at(0)

    def do_kill(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def do_hang(self):
        time.sleep(1000)

    def do_hang_in_c(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        time.sleep(1000)

    def do_wait(self):
        """Continue as soon as the file `self.gate` exists."""
        while not os.path.exists(self.gate):
            time.sleep(0.001)

    def crash(self):
        raise KeyError('in a call')

    def pid(self):
        return os.getpid()

    def modules(self):
        return sorted(sys.modules)

    def environ(self, *names):
        return [os.environ.get(name) for name in names]

    def double(self, value, plus=0):
        return 2 * value + plus

    def lock(self):
        return threading.Lock()

    def render(self):
        return f'frame {self.episode} {self.time}'
