"""How fast PPO trains, from the first observation to the updated weights."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks import peers, tasks
from benchmarks.contest import Contender, Line, Options, contest

LEARNING_RATE = 3e-4  # Of all sides; what each calls it stands where it is used.
LAYERS = (64, 64)


class Sizes(NamedTuple):
    """What is trained.

    Attributes:
        task: Name of the task.
        num_envs: Environments.
        horizon: Steps of each before an update.
        minibatch: Rows of a minibatch.
        epochs: Passes over the rows in an update.
    """

    task: str
    num_envs: int
    horizon: int
    minibatch: int
    epochs: int

    @property
    def steps(self) -> int:
        """Steps before an update."""
        return self.num_envs * self.horizon


# And what is wanted against Stable-Baselines3.
SIZES = (
    (Sizes(tasks.CART_POLE, 8, 256, 64, 10), 7.0),
    (Sizes(tasks.CART_POLE, 64, 128, 512, 4), 3.0),
    (Sizes(tasks.CHEETAH, 16, 128, 64, 10), 6.0),
    (Sizes(tasks.CHEETAH, 64, 128, 512, 4), 8.0),
    (Sizes(tasks.BREAKOUT, 8, 128, 256, 4), 1.2),
)


def training(options: Options) -> list[Line]:
    """PPO end to end, rollouts and updates, with the same numbers on all sides.

    Over 20 updates or fewer in about 5 s, after warm-up: the first two updates here (they compile),
    the first one there. Separate 64-64 tanh networks, clipped objective (0.2), Adam with learning
    rate 3e-4, discount 0.99, λ 0.95, gradient norm at most 0.5. Each side normalises as it does by
    default: here observations, rewards and advantages (over the batch), there advantages (over the
    minibatch) only. Each side in the faster of its arrangements, found in the first round: here
    environments in one worker per core or in the same process, with one inter-op thread of
    TensorFlow, as `train` sets it; Stable-Baselines3 and SBX (its PPO in JAX) on the CPU with
    DummyVecEnv or SubprocVecEnv, PyTorch with 1 or 2 threads; CleanRL's design
    (`benchmarks/cleanrl.py`) with Gymnasium's sync or async vector environment. Breakout: the
    convolutional network of Mnih et al. 2015, shared by policy and value, against
    Stable-Baselines3 only.
    """
    lines = []
    for sizes, wanted in SIZES[:3:2] if options.quick else SIZES:
        kwargs = {'sizes': sizes, 'seconds': 2.0 if options.quick else 5.0}
        sides = [_ours(kwargs), _stable_baselines3(kwargs)]
        if sizes.task != tasks.BREAKOUT:
            sides += [_sbx(kwargs), _cleanrl(kwargs)]
        ours, *others = contest(sides, options.repeats)
        task, num_envs, horizon, minibatch, epochs = sizes
        what = f'train {task}, {num_envs} × {horizon}, minibatch {minibatch}, {epochs} epochs'
        lines += [
            Line(what, 'steps/s', ours, peer, ratio_wanted=None if index else wanted)
            for index, peer in enumerate(others)
        ]
    return lines


def _ours(kwargs: dict[str, Any]) -> list[Contender]:
    return [
        Contender(f'agents ({where})', train_ours, {**kwargs, 'workers': workers})
        for where, workers in (('one worker per core', None), ('in process', 0))
    ]


def _stable_baselines3(kwargs: dict[str, Any]) -> list[Contender]:
    return [
        Contender(
            f'Stable-Baselines3 ({mode}VecEnv, {threads} thread{"s" * (threads > 1)})',
            train_stable_baselines3,
            {**kwargs, 'mode': mode, 'threads': threads},
            needs='stable_baselines3',
        )
        for mode in ('Dummy', 'Subproc')
        for threads in (1, 2)
    ]


def _sbx(kwargs: dict[str, Any]) -> list[Contender]:
    return [
        Contender(f'SBX ({mode}VecEnv)', train_sbx, {**kwargs, 'mode': mode}, needs='sbx')
        for mode in ('Dummy', 'Subproc')
    ]


def _cleanrl(kwargs: dict[str, Any]) -> list[Contender]:
    return [
        Contender(
            f"CleanRL's design ({mode}, {threads} thread{'s' * (threads > 1)})",
            train_cleanrl,
            {**kwargs, 'mode': mode, 'threads': threads},
            needs='torch',
        )
        for mode, threads in (('sync', 1), ('sync', 2), ('async', 1))
    ]


def train_ours(sizes: Sequence[Any], seconds: float, workers: int | None) -> float:
    sizes = Sizes(*sizes)
    env, simulation = make_ours(sizes, workers)
    # The first update only begins the statistics, the second one is the first that learns.
    for _ in range(2):
        simulation()
    result = rate(simulation, sizes.steps, seconds)
    env.close()
    return result


def make_ours(sizes: Sizes, workers: int | None) -> tuple[Any, Any]:
    """Return a batch of environments in the graph, and the simulation of PPO in it."""
    os.environ.setdefault('CUDA_VISIBLE_DEVICES', '-1')  # The peers train on the CPU as well.
    import tensorflow as tf

    from agents import algorithms, tools

    tf.config.threading.set_inter_op_parallelism_threads(1)
    hyper = algorithms.Hyperparameters(
        policy_layers=LAYERS,
        value_layers=LAYERS,
        activation='tanh',
        discount=0.99,
        gae_lambda=0.95,
        objective='clip',
        clip_range=0.2,
        entropy_coef=0.0,
        learning_rate=LEARNING_RATE,
        gradient_clip=0.5,
        epochs=sizes.epochs,
        minibatch=sizes.minibatch,
        **({'network': 'nature', 'share_layers': True} if sizes.task == tasks.BREAKOUT else {}),
    )
    batch = tools.make_batch_env(tasks.maker(sizes.task), sizes.num_envs, workers)
    env = tools.InGraphBatchEnv(batch)
    ppo = algorithms.PPO(env.observation_space, env.action_space, sizes.num_envs, hyper)
    return env, tools.simulate(env, ppo, sizes.horizon)


def train_stable_baselines3(sizes: Sequence[Any], seconds: float, mode: str, threads: int) -> float:
    peers.without_tensorflow()
    import stable_baselines3
    import torch

    torch.set_num_threads(threads)
    return _learn(stable_baselines3.PPO, Sizes(*sizes), mode, seconds)


def train_sbx(sizes: Sequence[Any], seconds: float, mode: str) -> float:
    peers.without_tensorflow()
    import sbx

    return _learn(sbx.PPO, Sizes(*sizes), mode, seconds)


def train_cleanrl(sizes: Sequence[Any], seconds: float, mode: str, threads: int) -> float:
    peers.without_tensorflow()
    import torch

    from benchmarks import cleanrl

    torch.set_num_threads(threads)
    sizes = Sizes(*sizes)
    env = peers.make_gymnasium(sizes.task, sizes.num_envs, mode)
    agent = cleanrl.Agent(env.single_observation_space, env.single_action_space)
    ppo = cleanrl.PPO(env, agent, sizes.horizon, sizes.minibatch, sizes.epochs)
    ppo.iterate()
    result = rate(ppo.iterate, sizes.steps, seconds)
    env.close()
    return result


def rate(update: Callable[[], object], steps: int, seconds: float) -> float:
    """Steps per second of updates with their rollouts.

    Args:
        update: Makes one.
        steps: Steps of one.
        seconds: After this time no other begins; there are 20 at most.
    """
    updates = elapsed = 0
    begin = time.perf_counter()
    while updates < 20 and elapsed < seconds:
        update()
        updates += 1
        elapsed = time.perf_counter() - begin
    return updates * steps / elapsed


def _learn(algorithm: Any, sizes: Sizes, mode: str, seconds: float) -> float:
    """Return the rate of a PPO with the interface of Stable-Baselines3."""
    env = peers.make_stable_baselines3(sizes.task, sizes.num_envs, mode)
    ppo = algorithm(
        # By default two hidden tanh layers of 64 for policy and value each, or convolutions shared.
        'CnnPolicy' if sizes.task == tasks.BREAKOUT else 'MlpPolicy',
        env,
        learning_rate=LEARNING_RATE,
        n_steps=sizes.horizon,
        batch_size=sizes.minibatch,
        n_epochs=sizes.epochs,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.0,
        max_grad_norm=0.5,
        seed=0,
        device='cpu',
    )
    ppo.learn(sizes.steps)
    result = rate(lambda: ppo.learn(sizes.steps, reset_num_timesteps=False), sizes.steps, seconds)
    env.close()
    return result
