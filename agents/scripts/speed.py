"""Measure how fast a config trains: python3 -m agents.scripts.speed SECONDS < CONFIG.

Reads a config as YAML and prints steps per second; in a process of its own, since threads are set
once.
"""

import sys
import time

from ruamel.yaml import YAML

from agents.scripts import environments, policies, quiet
from agents.scripts.config import Config

_WARM_UP = 2  # Updates; the first one compiles, and with running statistics only begins them.


def measure(config: Config, seconds: float) -> float:
    """Return steps per second of rollouts with their updates, after compilation.

    Args:
        config: What to train; evaluations and records are left out.
        seconds: How long to measure.

    Raises:
        UserError: What the config asks for is not there.
    """
    environments.check(config)
    quiet.import_tensorflow(config)
    from agents import tools

    env = environments.make_batch(config, config.num_envs)
    try:
        algorithm = policies.make_algorithm(config, env.observation_space, env.action_space)
        simulation = tools.simulate(env, algorithm, config.horizon, config.seed)
        for _ in range(_WARM_UP):
            simulation()
        before = int(simulation.steps)
        begin = time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < seconds:
            simulation()
        return (int(simulation.steps) - before) / elapsed
    finally:
        env.close()


def main() -> None:
    """Measure what standard input asks for."""
    config = Config(**YAML(typ='safe', pure=True).load(sys.stdin))
    print(measure(config, float(sys.argv[1])))


if __name__ == '__main__':
    main()
