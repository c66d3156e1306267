"""What is trained: one function per task that returns its config.

Where a family of tasks has numbers in common, a function gives them. Sources: for MuJoCo the recipe
of Tianshou's examples (recomputed advantages, scaled returns, a falling learning rate), for Box2D
and classic control rl-baselines3-zoo, for Atari Schulman et al. 2017; then tuned here.
"""

from collections.abc import Callable
from typing import Any

from agents.scripts.config import Config
from agents.scripts.mistakes import UserError, nearest

# Classic control.


def pendulum() -> Config:
    """Swing a pendulum up and keep it there."""
    return Config(
        env='Pendulum-v1',
        steps=300_000,
        num_envs=16,
        horizon=200,
        objective='kl_penalty',
        discount=0.95,
        learning_rate=1e-3,
        decay_learning_rate=True,
        minibatch=64,
        eval_every=20_000,
        log_every=20_000,
    )


def cartpole() -> Config:
    """Balance a pole on a cart."""
    return Config(
        env='CartPole-v1',
        steps=200_000,
        num_envs=8,
        horizon=256,
        learning_rate=1e-3,
        decay_learning_rate=True,
        eval_every=20_000,
        log_every=10_000,
    )


def acrobot() -> Config:
    """Swing the lower of two links up to a line."""
    return Config(
        env='Acrobot-v1',
        steps=500_000,
        num_envs=16,
        horizon=256,
        learning_rate=1e-3,
        decay_learning_rate=True,
        gae_lambda=0.94,
    )


def mountaincar() -> Config:
    """Drive a weak car up a hill, by three actions."""
    return Config(
        env='MountainCar-v0',
        steps=1_000_000,
        num_envs=16,
        horizon=16,
        gae_lambda=0.98,
        epochs=4,
        minibatch=64,
        eval_every=100_000,
        log_every=50_000,
    )


def mountaincar_continuous() -> Config:
    """Drive a weak car up a hill, by its force."""
    return Config(
        env='MountainCarContinuous-v0',
        steps=100_000,
        num_envs=8,
        horizon=256,
        discount=0.9999,
        gae_lambda=0.9,
        init_std=3.0,
        eval_every=20_000,
        log_every=10_000,
    )


# Box2D.


def lunarlander() -> Config:
    """Land between two flags, by switching engines."""
    return _box2d(env='LunarLander-v3')


def lunarlander_continuous() -> Config:
    """Land between two flags, by the throttles of engines."""
    return _box2d(env='LunarLander-v3', env_kwargs={'continuous': True})


def bipedal() -> Config:
    """Walk on two legs over slightly uneven ground."""
    return _box2d(
        env='BipedalWalker-v3',
        num_envs=32,
        horizon=256,
        gae_lambda=0.95,
        entropy_coef=0.0,
        epochs=10,
        init_std=0.6,
    )


def _box2d(**changes: Any) -> Config:
    numbers: dict[str, Any] = {
        'steps': 1_000_000,
        'num_envs': 16,
        'horizon': 512,
        'discount': 0.999,
        'gae_lambda': 0.98,
        'entropy_coef': 0.01,
        'epochs': 4,
        'minibatch': 64,
        'decay_learning_rate': True,
        'eval_every': 100_000,
        'log_every': 50_000,
    }
    return Config(**{**numbers, **changes})


# MuJoCo.


def reacher() -> Config:
    """Bring the tip of an arm to a point."""
    return _mujoco(env='Reacher-v5')


def swimmer() -> Config:
    """Swim by bending three links; what pays comes late."""
    return _mujoco(
        env='Swimmer-v5',
        num_envs=4,
        horizon=1024,
        discount=0.9999,
        gae_lambda=0.98,
        learning_rate=6e-4,
    )


def hopper() -> Config:
    """Hop on one leg."""
    return _mujoco(env='Hopper-v5')


def cheetah() -> Config:
    """Run on two legs."""
    return _mujoco(env='HalfCheetah-v5')


def walker() -> Config:
    """Walk on two legs."""
    return _mujoco(env='Walker2d-v5')


def ant() -> Config:
    """Walk on four legs."""
    return _mujoco(env='Ant-v5')


def humanoid() -> Config:
    """Walk upright, with 17 joints."""
    return _mujoco(env='Humanoid-v5')


def inverted_pendulum() -> Config:
    """Balance a pole on a cart, by its force."""
    return _mujoco(env='InvertedPendulum-v5')


def inverted_double_pendulum() -> Config:
    """Balance a pole on a pole on a cart."""
    return _mujoco(env='InvertedDoublePendulum-v5')


def _mujoco(**changes: Any) -> Config:
    numbers: dict[str, Any] = {
        'steps': 1_000_000,
        'num_envs': 16,
        'horizon': 128,
        'learning_rate': 3e-4,
        'decay_learning_rate': True,
        'recompute_advantages': True,
        'init_std': 0.6,
        'value_coef': 0.25,
        'eval_envs': 8,
        'eval_every': 100_000,
        'log_every': 50_000,
    }
    return Config(**{**numbers, **changes})


# DeepMind Control, through Shimmy.


def dm_walker_walk() -> Config:
    """Walk on two legs; at most 1 for each step."""
    return _mujoco(env='shimmy:dm_control/walker-walk-v0')


def dm_cheetah_run() -> Config:
    """Run on two legs; at most 1 for each step."""
    return _mujoco(env='shimmy:dm_control/cheetah-run-v0')


# Atari.


def pong() -> Config:
    """Play Pong to 21."""
    return _atari(env='ale_py:PongNoFrameskip-v4')


def breakout() -> Config:
    """Break walls of bricks with a ball; for episodes of one life set terminal_on_life_loss."""
    return _atari(env='ale_py:BreakoutNoFrameskip-v4')


def _atari(**changes: Any) -> Config:
    numbers: dict[str, Any] = {
        # A step is one action, which lasts for 4 frames.
        'wrappers': (
            {'AtariPreprocessing': {'terminal_on_life_loss': False}},
            {'FrameStackObservation': {'stack_size': 4}},
        ),
        'network': 'nature',
        'share_layers': True,
        'activation': 'relu',
        'steps': 1_000_000,
        'num_envs': 8,
        'horizon': 128,
        'minibatch': 256,
        'epochs': 4,
        'clip_range': 0.1,
        'entropy_coef': 0.01,
        'learning_rate': 2.5e-4,
        'decay_learning_rate': True,
        'eval_envs': 8,
        'eval_every': 100_000,
        'final_eval_episodes': 24,
    }
    return Config(**{**numbers, **changes})


# Kinds of spaces; these tasks are in `agents.tasks`.


def recall() -> Config:
    """Remember a cue over several steps of noise; needs memory."""
    return _small(env='agents.tasks:Recall-v0', recurrent='gru', minibatch=128)


def target() -> Config:
    """Move a point to a target; observations are a Dict."""
    return _small(env='agents.tasks:Target-v0', discount=0.9)


def lock() -> Config:
    """Set three wheels at once; actions are MultiDiscrete."""
    return _small(env='agents.tasks:Lock-v0', discount=0.0)


def cards() -> Config:
    """Beat cards with the cards in the hand; actions are masked."""
    return _small(env='agents.tasks:Cards-v0', action_mask='action_mask')


def _small(**changes: Any) -> Config:
    numbers: dict[str, Any] = {
        'steps': 200_000,
        'num_envs': 16,
        'horizon': 128,
        'learning_rate': 1e-3,
        'decay_learning_rate': True,
        'eval_every': 20_000,
        'log_every': 20_000,
    }
    return Config(**{**numbers, **changes})


# None of these.


def debug() -> Config:
    """Go through everything in seconds; learns nothing."""
    return Config(
        env='CartPole-v1',
        steps=1024,
        num_envs=4,
        horizon=32,
        policy_layers=(16,),
        value_layers=(16,),
        epochs=2,
        minibatch=32,
        eval_every=512,
        eval_envs=4,
        final_eval_episodes=6,
        log_every=256,
        histograms_every=512,
        checkpoint_every=512,
        num_workers=0,
    )


TASKS: dict[str, Callable[[], Config]] = {
    function.__name__: function
    for function in (
        *(acrobot, cartpole, mountaincar, mountaincar_continuous, pendulum),
        *(bipedal, lunarlander, lunarlander_continuous),
        *(ant, cheetah, hopper, humanoid, inverted_double_pendulum, inverted_pendulum),
        *(reacher, swimmer, walker, dm_cheetah_run, dm_walker_walk),
        *(breakout, pong, cards, lock, recall, target, debug),
    )
}


def get(name: str) -> Config:
    """Return the config of this name.

    Args:
        name: Name of a function of this module.

    Raises:
        UserError: There is none of this name.
    """
    if name not in TASKS:
        raise UserError(f'There is no config {name!r}. {nearest(name, TASKS)}')
    return TASKS[name]()
