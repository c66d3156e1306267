"""How fast EnvPool's environments step in the graph."""

import time
from typing import Any

import numpy as np

from benchmarks.contest import Contender, Line, Options, contest

TASK, NUM_ENVS = 'HalfCheetah-v5', 64


def envpool(options: Options) -> list[Line]:
    """64 × HalfCheetah-v5 of EnvPool, random actions, stepped in the graph and from plain Python.

    Here in the loop of `simulate`, with an algorithm that only draws actions; there `step` of
    EnvPool's Gymnasium interface in a Python loop, with actions that were drawn beforehand.
    """
    seconds = 1.0 if options.quick else 4.0
    sides = [
        [Contender(name, function, {'seconds': seconds}, needs='envpool')]
        for name, function in (('agents', step_in_graph), ('EnvPool in Python', step_in_python))
    ]
    ours, peer = contest(sides, options.repeats)
    what = f'step {NUM_ENVS} × {TASK}, envpool'
    return [Line(what, 'steps/s', ours, peer, ratio_wanted=0.9)]


class Random:
    """Draws actions and learns nothing."""

    def __init__(self, size: tuple[int, ...]):
        self._size = size

    def initial(self, num_envs: int) -> Any:
        return ()

    def perform(self, obs: Any, first: Any, carry: Any, seed: Any, training: bool) -> Any:
        import tensorflow as tf

        action = tf.random.stateless_uniform(self._size, seed, -1.0, 1.0, tf.float64, alg='philox')
        return action, (), carry

    def experience(self, transition: Any, extras: Any) -> Any:
        return transition.reward

    def update(self, records: Any, last_obs: Any, carry: Any, seed: Any) -> dict[str, Any]:
        return {}


def step_in_graph(seconds: float) -> float:
    from agents import tools
    from agents.envs.envpool_batch import make_envpool

    env = tools.InGraphBatchEnv(make_envpool(TASK, NUM_ENVS))
    simulation = tools.simulate(env, Random((NUM_ENVS, *env.action_space.shape)), horizon=256)
    simulation()
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        simulation()
    result = (int(simulation.steps) - 256 * NUM_ENVS) / (time.perf_counter() - begin)
    env.close()
    return result


def step_in_python(seconds: float) -> float:
    import envpool

    env = envpool.make(TASK, 'gymnasium', num_envs=NUM_ENVS)
    actions = np.random.default_rng(0).uniform(-1, 1, (256, NUM_ENVS, *env.action_space.shape))
    env.reset()
    env.step(actions[0])
    begin = time.perf_counter()
    calls = 0
    while time.perf_counter() - begin < seconds:
        for action in actions:
            env.step(action)
        calls += len(actions)
    return calls * NUM_ENVS / (time.perf_counter() - begin)
