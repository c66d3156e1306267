"""How fast batches of environments step with the policy in the loop."""

import time
from typing import Any

from benchmarks import peers, stepping, tasks, training
from benchmarks.contest import Contender, Line, Options, contest

NUM_ENVS, HORIZON = 64, 128
# What is wanted, of the rate of stepping alone.
WANTED = {tasks.CART_POLE: 0.6, tasks.CHEETAH: 0.9}


def acting(options: Options) -> list[Line]:
    """64 environments with the policy in the loop, without updates, and what the loop costs.

    Here `simulate` with PPO's policy and an update that does nothing, in one worker per core; there
    `collect_rollouts` of Stable-Baselines3's PPO, and rollouts of CleanRL's design
    (`benchmarks/cleanrl.py`). Separate 64-64 tanh networks. The first line of a task compares with
    the rate of stepping alone, random actions drawn beforehand. The overhead is the time of a step
    of 64 environments that do nothing and are no processes, policy included.
    """
    seconds = 0.5 if options.quick else 2.0
    lines = []
    for task in WANTED:
        kwargs = {'task': task, 'num_envs': NUM_ENVS, 'seconds': seconds}
        alone = Contender('stepping alone', stepping.step_ours, kwargs)
        sides = [
            [Contender('agents', act, kwargs)],
            [alone],
            [
                Contender(f'Stable-Baselines3 ({mode}VecEnv)', act_stable_baselines3, given, needs)
                for mode in ('Dummy', 'Subproc')
                for given, needs in (({**kwargs, 'mode': mode}, 'stable_baselines3'),)
            ],
            [
                Contender(
                    f"CleanRL's design ({mode})", act_cleanrl, {**kwargs, 'mode': mode}, 'torch'
                )
                for mode in ('sync', 'async')
            ],
        ]
        ours, *others = contest(sides, options.repeats)
        for index, peer in enumerate(others):
            wanted = None if index else WANTED[task]
            lines.append(Line(f'act {NUM_ENVS} × {task}', 'steps/s', ours, peer, wanted))
    side = [Contender('agents', overhead, {'seconds': seconds})]
    (micros,) = contest([side], options.repeats, lower_is_better=True)
    what = f'a step of {NUM_ENVS} environments that do nothing'
    return [*lines, Line(what, 'µs', micros, below=150.0, lower_is_better=True)]


def act(task: str, num_envs: int, seconds: float) -> float:
    env, simulation = training.make_ours(training.Sizes(task, num_envs, HORIZON, 64, 1), None)
    _freeze(simulation)
    simulation()
    calls, elapsed = _repeat(simulation, seconds)
    env.close()
    return calls * HORIZON * num_envs / elapsed


def overhead(seconds: float) -> float:
    """Microseconds of a batched step of environments that do nothing."""
    import numpy as np
    import tensorflow as tf

    from agents import algorithms, tools
    from agents.tools.transition import StepResult

    tf.config.threading.set_inter_op_parallelism_threads(1)
    space = tasks.make(tasks.CART_POLE)
    obs, zeros = np.zeros((NUM_ENVS, 4), np.float32), np.zeros(NUM_ENVS, np.float32)
    flags, valid = np.zeros(NUM_ENVS, bool), np.ones(NUM_ENVS, bool)

    class Nothing:
        observation_space, action_space = space.observation_space, space.action_space
        num_envs, worker_failures = NUM_ENVS, 0

        def reset(self, seed: Any = None) -> Any:
            return obs

        def step(self, action: Any) -> StepResult:
            return StepResult(obs, zeros, flags, flags, obs, valid)

    env = tools.InGraphBatchEnv(Nothing())
    ppo = algorithms.PPO(env.observation_space, env.action_space, NUM_ENVS)
    simulation = tools.simulate(env, ppo, HORIZON)
    _freeze(simulation)
    simulation()
    calls, elapsed = _repeat(simulation, seconds)
    return elapsed / (calls * HORIZON) * 1e6


def act_stable_baselines3(task: str, num_envs: int, seconds: float, mode: str) -> float:
    peers.without_tensorflow()
    import stable_baselines3
    from stable_baselines3.common.callbacks import CallbackList

    env = peers.make_stable_baselines3(task, num_envs, mode)
    ppo = stable_baselines3.PPO('MlpPolicy', env, n_steps=HORIZON, seed=0, device='cpu')
    _, callback = ppo._setup_learn(HORIZON * num_envs, CallbackList([]))

    def collect() -> None:
        ppo.collect_rollouts(ppo.env, callback, ppo.rollout_buffer, HORIZON)

    collect()
    calls, elapsed = _repeat(collect, seconds)
    env.close()
    return calls * HORIZON * num_envs / elapsed


def act_cleanrl(task: str, num_envs: int, seconds: float, mode: str) -> float:
    peers.without_tensorflow()
    from benchmarks import cleanrl

    env = peers.make_gymnasium(task, num_envs, mode)
    agent = cleanrl.Agent(env.single_observation_space, env.single_action_space)
    ppo = cleanrl.PPO(env, agent, HORIZON, 64, 1)
    ppo.collect()
    calls, elapsed = _repeat(ppo.collect, seconds)
    env.close()
    return calls * HORIZON * num_envs / elapsed


def _freeze(simulation: Any) -> None:
    """Let updates do nothing, so that only acting is measured."""
    simulation._algorithm.update = lambda *_: {}


def _repeat(function: Any, seconds: float) -> tuple[int, float]:
    calls, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        function()
        calls += 1
    return calls, elapsed
