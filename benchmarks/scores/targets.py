"""What is wanted of each task, and what others publish."""

from typing import NamedTuple

from agents.scripts.config import Config

OBJECTIVES = {'clip': 'clip', 'kl_penalty': 'KL penalty'}

# Name: where it is published, and how its numbers were computed.
SOURCES = {
    'RL Baselines3 Zoo': (
        'https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md',
        'one trained agent, ± between its episodes',
    ),
    'OpenAI Baselines': (
        'https://docs.cleanrl.dev/rl-algorithms/ppo/',
        'measured by the authors of CleanRL; 3 seeds, ± between them',
    ),
    'Tianshou': (
        'https://github.com/thu-ml/tianshou/blob/master/examples/mujoco/README.md',
        'v3 of the tasks, of Reacher and pendulums v2; 10 seeds, ± between them, of each the '
        'maximum over training of the mean of 10 test episodes: to be compared with the maximum',
    ),
    'Sample Factory': (
        'https://github.com/alex-petrenko/sample-factory/blob/master/docs/'
        '09-environment-integrations/mujoco.md',
        'v4 of the tasks, 10 M steps, the best model of a run, 10 episodes',
    ),
}


class Target(NamedTuple):
    """What is wanted of a task.

    Attributes:
        task: Id of the environment without what stands before it, or first word
            of the config's name.
        family: Which tasks it stands among.
        steps: Steps after which it is wanted.
        score: Interquartile mean that is wanted, None if `words` say what is.
        published: Strongest published score.
        source: Key of `SOURCES`.
        words: What is wanted, if it is not a score.
    """

    task: str
    family: str
    steps: int
    score: float | None
    published: str = ''
    source: str = ''
    words: str = ''


CLASSIC, BOX2D, MUJOCO = 'Classic control', 'Box2D', 'MuJoCo'
MEMORY, ATARI, OTHERS = 'Memory', 'Atari', 'Others'
FAMILIES = (CLASSIC, BOX2D, MUJOCO, MEMORY, ATARI, OTHERS)
M = 1_000_000

TARGETS = (
    Target('CartPole-v1', CLASSIC, 100_000, 500.0, '500.0 ± 0.0', 'RL Baselines3 Zoo'),
    Target('Pendulum-v1', CLASSIC, 100_000, -170.0, '-172.2 ± 104.2', 'RL Baselines3 Zoo'),
    Target('Acrobot-v1', CLASSIC, 500_000, -80.0, '-73.5 ± 18.2 at 1 M', 'RL Baselines3 Zoo'),
    Target('Acrobot-v1', CLASSIC, 500_000, -80.0, '-81.8 ± 5.6 at 500 k', 'OpenAI Baselines'),
    Target(
        'MountainCarContinuous-v0',
        *(CLASSIC, 100_000, 90.0, '88.3 ± 2.6 at 20 k', 'RL Baselines3 Zoo'),
    ),
    Target('LunarLander-v3', BOX2D, M, 250.0, '242.1 ± 31.8 on v2', 'RL Baselines3 Zoo'),
    Target('HalfCheetah-v5', MUJOCO, M, 5800.0, '5,784 ± 1,244', 'Tianshou'),
    Target('Hopper-v5', MUJOCO, M, 2600.0, '2,609 ± 701', 'Tianshou'),
    Target('Walker2d-v5', MUJOCO, M, 3600.0, '3,589 ± 757', 'Tianshou'),
    Target('Ant-v5', MUJOCO, M, 3250.0, '3,258 ± 1,079', 'Tianshou'),
    Target('Humanoid-v5', MUJOCO, M, 800.0, '787 ± 194', 'Tianshou'),
    Target('Humanoid-v5', MUJOCO, 10 * M, 5000.0, '5,439 ± 1,314', 'Sample Factory'),
    Target(
        'Swimmer-v5',
        *(MUJOCO, M, 280.0, '281.6 ± 9.7, on v3, discount 0.9999', 'RL Baselines3 Zoo'),
    ),
    Target('Reacher-v5', MUJOCO, M, -4.0, '-4.1 ± 0.3', 'Tianshou'),
    Target('InvertedPendulum-v5', MUJOCO, M, 1000.0, '1,000 ± 0', 'Tianshou'),
    Target('InvertedDoublePendulum-v5', MUJOCO, M, 9230.0, '9,231 ± 270', 'Tianshou'),
    Target(
        *('recall', MEMORY, M, None),
        words='solved by a policy with memory; one without stays at chance',
    ),
    Target(
        *('pong', ATARI, 10 * M, None, '21.0 ± 0.1 at 10 M', 'RL Baselines3 Zoo'),
        words='clearly above -21, the score of random play',
    ),
)


def find(name: str, config: Config) -> list[Target]:
    """Return what is wanted of a config, after as many steps as it has.

    Args:
        name: Name of the config.
        config: What it trains.

    Returns:
        Targets that differ in what is published; none for a task that the table does not have.
    """
    task = config.env.rpartition(':')[2].rpartition('/')[2]
    found = [target for target in TARGETS if target.task in (task, name.partition('_')[0])]
    if not found:
        return []
    least = min(target.steps for target in found)
    steps = max(target.steps for target in found if target.steps <= max(least, config.steps))
    return [target for target in found if target.steps == steps]


def family(name: str, config: Config) -> str:
    """Return which tasks a config stands among.

    Args:
        name: Name of the config.
        config: What it trains.
    """
    return next((target.family for target in find(name, config)), OTHERS)
