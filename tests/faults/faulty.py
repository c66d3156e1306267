"""Environments that fail once, and ways to find out about processes."""

import os
import pathlib
import time

import psutil

from tests.tools import fakes


class Faulty(fakes.Walk):
    """Gets into trouble in a step or reset, once for each time that the file `fuse` is there."""

    def __init__(self, fuse, trouble='raise', where='step'):
        super().__init__()
        self.fuse, self.trouble, self.where = str(fuse), trouble, where
        self.seeds = []

    def step(self, action):
        self.burn('step')
        return super().step(action)

    def reset(self, *, seed=None, options=None):
        self.burn('reset')
        self.seeds.append(seed)
        return super().reset(seed=seed)

    def burn(self, where):
        if where == self.where and os.path.exists(self.fuse):
            os.unlink(self.fuse)
            getattr(fakes.Trouble, f'do_{self.trouble}')(self)


def make_all(folder, num_envs, trouble='raise', where='step'):
    """Return functions that make environments; the fuse of environment i is folder / str(i)."""
    return [
        lambda i=i: Faulty(pathlib.Path(folder) / str(i), trouble, where) for i in range(num_envs)
    ]


def until(condition, seconds=20.0):
    """Wait until a condition holds; fail if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, 'It took too long.'
        time.sleep(0.01)


def pids(env):
    """Return the processes of a batch."""
    return [batch.worker.pid for batch in env._batches]


def gone(pid):
    """Whether a process has ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
