"""Every config builds and learns, for two updates."""

import dataclasses
import importlib.util
import json

import pytest

from agents.scripts import configs, environments, runs, train

SMALL = {
    'steps': 128,
    'num_envs': 4,
    'horizon': 16,
    'epochs': 1,
    'minibatch': 32,
    'num_workers': 1,
    'eval_every': 0,
    'eval_envs': 2,
    'final_eval_episodes': 2,
    'max_eval_steps': 10,
    'log_every': 64,
    'compile': 'off',
}


@pytest.mark.parametrize('name', [name for name in configs.TASKS if name != 'debug'])
def test_a_config_builds_and_makes_two_updates(tmp_path, name):
    config = dataclasses.replace(configs.get(name), **SMALL)
    for source, modules in environments._EXTRAS.values():
        missing = [x for x in modules if importlib.util.find_spec(x) is None]
        if missing and config.env.startswith(source):
            pytest.skip(f'{missing[0]} is not installed')
    train.check(config)
    run = runs.create(str(tmp_path), name, config)
    (score,) = train.train(config, run)
    lines = (run.folder / 'metrics.jsonl').read_text().splitlines()
    *_, learned, evaluated = [json.loads(line) for line in lines]
    assert learned['step'] == 128 and learned['minibatches'] == 2  # 64 rows by 32.
    assert evaluated['score'] == score
