"""How fast PPO trains, from the first observation to the updated weights."""

import os
import time
from collections.abc import Callable

from benchmarks.contest import Contender, Line, Options, contest

TASK = 'CartPole-v1'
NUM_ENVS = 8
HORIZON = 256
# Of both sides; what each calls them stands where it is used.
LEARNING_RATE = 3e-4
EPOCHS = 10
MINIBATCH = 64
LAYERS = (64, 64)


def training(options: Options) -> list[Line]:
    """PPO on CartPole-v1, 8 environments × 256 steps, 10 epochs of minibatches of 64.

    End to end, rollouts and updates, over 20 of them or fewer in about 10 s, after warm-up: the
    first two updates here (they compile), the first one there. Same on both sides: separate 64-64
    tanh networks, clipped objective (0.2), Adam with learning rate 3e-4, discount 0.99, λ 0.95,
    gradient norm at most 0.5. Each side normalises as it does by default: here observations,
    rewards and advantages (over the batch), there advantages (over the minibatch) only. Each side
    in the faster of its arrangements, found in the first round: here environments in one worker per
    core or in the same process, with one inter-op thread of TensorFlow, as the README advises;
    there, on the CPU, DummyVecEnv and SubprocVecEnv with 1 and 2 threads of PyTorch.
    """
    seconds = 2.0 if options.quick else 10.0
    ours = [
        Contender(f'agents ({where})', train_ours, {'seconds': seconds, 'workers': workers})
        for where, workers in (('one worker per core', None), ('in process', 0))
    ]
    peers = [
        Contender(
            f'Stable-Baselines3 ({vec_env}, {threads} thread{"s" * (threads > 1)})',
            train_stable_baselines3,
            {'seconds': seconds, 'vec_env': vec_env, 'threads': threads},
            needs='stable_baselines3',
        )
        for vec_env in ('DummyVecEnv', 'SubprocVecEnv')
        for threads in (1, 2)
    ]
    figures, peer = contest([ours, peers], options.repeats)
    return [Line(f'train PPO on {TASK}', 'steps/s', figures, peer, ratio_wanted=5.0)]


def train_ours(seconds: float, workers: int | None) -> float:
    os.environ.setdefault('CUDA_VISIBLE_DEVICES', '-1')  # The peer trains on the CPU as well.
    import gymnasium
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
        epochs=EPOCHS,
        minibatch=MINIBATCH,
    )
    batch = tools.make_batch_env(lambda: gymnasium.make(TASK), NUM_ENVS, workers)
    env = tools.InGraphBatchEnv(batch)
    ppo = algorithms.PPO(env.observation_space, env.action_space, NUM_ENVS, hyper)
    simulation = tools.simulate(env, ppo, horizon=HORIZON)
    # The first update only begins the statistics, the second one is the first that learns.
    for _ in range(2):
        simulation()
    result = rate(simulation, seconds)
    env.close()
    return result


def train_stable_baselines3(seconds: float, vec_env: str, threads: int) -> float:
    import stable_baselines3
    import torch
    from stable_baselines3.common import env_util
    from stable_baselines3.common import vec_env as vec_envs

    torch.set_num_threads(threads)
    # Forked, for else each process imports PyTorch, which takes long but is not what is measured.
    kwargs = {'start_method': 'fork'} if vec_env == 'SubprocVecEnv' else {}
    env = env_util.make_vec_env(
        TASK, NUM_ENVS, seed=0, vec_env_cls=getattr(vec_envs, vec_env), vec_env_kwargs=kwargs
    )
    ppo = stable_baselines3.PPO(
        'MlpPolicy',
        env,
        learning_rate=LEARNING_RATE,
        n_steps=HORIZON,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.0,
        max_grad_norm=0.5,
        policy_kwargs={'net_arch': {'pi': list(LAYERS), 'vf': list(LAYERS)}},  # Tanh by default.
        seed=0,
        device='cpu',
    )
    ppo.learn(HORIZON * NUM_ENVS)
    result = rate(lambda: ppo.learn(HORIZON * NUM_ENVS, reset_num_timesteps=False), seconds)
    env.close()
    return result


def rate(update: Callable[[], object], seconds: float) -> float:
    """Steps per second of updates with their rollouts.

    Args:
        update: Makes one.
        seconds: After this time no other begins; there are 20 at most.
    """
    updates = elapsed = 0
    begin = time.perf_counter()
    while updates < 20 and elapsed < seconds:
        update()
        updates += 1
        elapsed = time.perf_counter() - begin
    return updates * HORIZON * NUM_ENVS / elapsed
