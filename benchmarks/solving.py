"""How long it takes from a command to a good score."""

import sys
from collections.abc import Callable

from benchmarks import peers, startup
from benchmarks.contest import Contender, Line, Options, contest

# Task: config of this project, score to reach.
TASKS = {'CartPole-v1': ('cartpole', 475.0), 'Pendulum-v1': ('pendulum', -200.0)}
# Steps after which the peer gives up.
MOST_STEPS = 400_000


def solving(options: Options) -> list[Line]:
    """Seconds from a command to the first evaluation whose mean score is good.

    CartPole-v1: 475, Pendulum-v1: -200. Imports, compilation and evaluations included. Here
    `train` with the config of the task, whose settings say how often and over how many episodes it
    evaluates; and for CartPole `--engine=tensorflow`. There Stable-Baselines3's PPO with the
    hyper-parameters that RL Baselines3 Zoo publishes as tuned, evaluated by its EvalCallback over
    16 episodes every 5,000 steps.
    """
    lines = []
    for task in list(TASKS)[:1] if options.quick else TASKS:
        config, score = TASKS[task]
        flags = [f'--config={config}', f'--stop_at_score={score}']
        peer = Contender(
            'Stable-Baselines3, tuned', solve_stable_baselines3, {'task': task}, 'stable_baselines3'
        )
        sides = [[Contender('agents', solve, {'flags': flags, 'score': score})], [peer]]
        if config == 'cartpole':
            given = {'flags': [*flags, '--engine=tensorflow'], 'score': score}
            sides.append([Contender('agents, engine=tensorflow', solve, given)])
        ours, other, *compiled = contest(sides, options.repeats, lower_is_better=True)
        what = f'from the command to {score:g} on {task}'
        for figures, name in ((ours, what), *((x, f'{what}, tensorflow') for x in compiled)):
            lines.append(Line(name, 's', figures, other, lower_is_better=True))
    return lines


def solve(flags: list[str], score: float) -> float:
    command = [sys.executable, '-m', 'agents.scripts.train', *flags]
    return startup.run_until(command, reached(score))


def reached(score: float) -> Callable[[str], bool]:
    """Return what tells whether a line is that of an evaluation with this mean score."""

    def is_it(line: str) -> bool:
        words = line.split()
        return 'eval' in words and float(words[words.index('score') + 1].replace(',', '')) >= score

    return is_it


def solve_stable_baselines3(task: str) -> float:
    command = [sys.executable, '-m', 'benchmarks.solving', task]
    return startup.run_until(command, lambda line: line.startswith('Solved'))


def train_stable_baselines3(task: str) -> None:
    """Train until the score is reached, then say so."""
    peers.without_tensorflow()
    import stable_baselines3
    from stable_baselines3.common import callbacks, env_util

    # Published in rl-baselines3-zoo, hyperparams/ppo.yml.
    num_envs, numbers = {
        'CartPole-v1': (
            8,
            {
                'n_steps': 32,
                'batch_size': 256,
                'gae_lambda': 0.8,
                'gamma': 0.98,
                'n_epochs': 20,
                'ent_coef': 0.0,
                'learning_rate': lambda left: left * 0.001,
                'clip_range': lambda left: left * 0.2,
            },
        ),
        'Pendulum-v1': (
            4,
            {
                'n_steps': 1024,
                'gae_lambda': 0.95,
                'gamma': 0.9,
                'n_epochs': 10,
                'ent_coef': 0.0,
                'learning_rate': 1e-3,
                'clip_range': 0.2,
                'use_sde': True,
                'sde_sample_freq': 4,
            },
        ),
    }[task]
    steps = 100_000  # That the schedules are tuned for.
    stop = callbacks.StopTrainingOnRewardThreshold(TASKS[task][1])
    evaluate = callbacks.EvalCallback(
        env_util.make_vec_env(task, 1, seed=1000),
        callback_on_new_best=stop,
        n_eval_episodes=16,
        eval_freq=5000 // num_envs,
        verbose=0,
    )
    env = env_util.make_vec_env(task, num_envs, seed=0)
    ppo = stable_baselines3.PPO('MlpPolicy', env, device='cpu', seed=0, **numbers)
    while evaluate.best_mean_reward < TASKS[task][1]:
        if ppo.num_timesteps >= MOST_STEPS:
            sys.exit(f'Got no further than {evaluate.best_mean_reward}.')
        ppo.learn(steps, evaluate)
    print('Solved', flush=True)


if __name__ == '__main__':
    train_stable_baselines3(sys.argv[1])
