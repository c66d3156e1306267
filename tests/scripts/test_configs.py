import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

from agents.parts import heads, trunks
from agents.scripts import config, configs
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError


def test_a_misspelt_field_is_a_type_error_from_python_itself():
    with pytest.raises(TypeError, match='lerning_rate'):
        Config(lerning_rate=1e-3)


def test_a_misspelt_config_answers_with_the_nearest_name():
    with pytest.raises(UserError, match=r"no config 'pendulun'\. Did you mean pendulum\?"):
        configs.get('pendulun')


@pytest.mark.parametrize('name', configs.TASKS)
def test_every_config_is_valid_and_made_by_the_function_of_its_name(name):
    assert configs.get(name) == getattr(configs, name)()


def test_every_field_has_one_line_of_help():
    for field in dataclasses.fields(Config):
        assert field.metadata['help'].endswith(('.', '…'))
        assert '\n' not in field.metadata['help']


def test_whole_updates_are_made_of_at_most_the_wanted_steps():
    # 1000 // (4 * 32) = 7.8 updates.
    assert Config(steps=1000, num_envs=4, horizon=32).updates == 7
    with pytest.raises(UserError, match=r'steps must be .* 128, got steps=127'):
        Config(steps=127, num_envs=4, horizon=32)


def test_numbers_are_converted_where_nothing_is_lost():
    config = Config(steps=1e6, discount=1, seed=np.int64(3), policy_layers=[8.0, 4])
    assert (config.steps, type(config.steps)) == (1_000_000, int)
    assert (config.discount, type(config.discount)) == (1.0, float)
    assert (config.seed, type(config.seed)) == (3, int)
    assert config.policy_layers == (8, 4)
    assert Config(value_layers=16).value_layers == (16,)


def test_no_score_to_stop_at_is_none_or_nan():
    assert Config(stop_at_score=None).stop_at_score is None
    assert Config(stop_at_score=math.nan).stop_at_score is None
    assert Config(stop_at_score=-200).stop_at_score == -200.0


@pytest.mark.parametrize(
    'name, value, message',
    [
        ('epochs', 1.5, 'epochs must be a whole number, got epochs=1.5'),
        ('epochs', True, 'epochs must be a whole number, got epochs=True'),
        ('epochs', math.inf, 'epochs must be a whole number, got epochs=inf'),
        ('epochs', 0, 'epochs must be at least 1, got epochs=0'),
        ('seed', -1, 'seed must be at least 0, got seed=-1'),
        ('num_workers', -2, 'num_workers must be at least -1, got num_workers=-2'),
        ('learning_rate', '1e-3', "learning_rate must be a number, got learning_rate='1e-3'"),
        ('learning_rate', 0, 'learning_rate must be above 0, got learning_rate=0.0'),
        ('learning_rate', math.nan, 'learning_rate must be finite, got learning_rate=nan'),
        ('discount', 1.01, r'discount must be in \[0, 1\], got discount=1.01'),
        ('kl_init_penalty', 0, r'kl_init_penalty must be in \[0.001, 1000\], got .*=0.0'),
        ('normalize_obs', 1, 'normalize_obs must be true or false, got normalize_obs=1'),
        ('policy_layers', (8, 0), r'policy_layers must be at least 1, got policy_layers=\(8, 0\)'),
        ('policy_layers', '64', "policy_layers must be a whole number, got policy_layers='64'"),
        ('env', 3, 'env must be text, got env=3'),
        ('env_kwargs', ['g'], r"env_kwargs must be a mapping .*, got env_kwargs=\['g'\]"),
        ('env_kwargs', {'g': object()}, 'env_kwargs must be plain data .*, got <object'),
        ('env_kwargs', {3: 4}, 'env_kwargs must have text as keys, got the key 3'),
        ('env_kwargs', {'g:9.8': None}, "env_kwargs must be .*, got 'g:9.8'. .* a space after"),
        ('wrappers', [{'A': {}, 'B': {}}], 'Wrappers must be Name or .*, got'),
        ('wrappers', [{'ActionRepeat': 4}], 'wrapper ActionRepeat must have named arguments'),
        ('wrappers', [3], 'Wrappers must be Name or .*, got 3'),
        ('objective', 'clop', 'objective must be one of clip, kl_penalty, got objective=.clop'),
        ('algorithm', 'pppo', "no algorithm 'pppo'. Did you mean ppo?"),
    ],
)
def test_a_value_that_cannot_be_says_its_name_and_itself(name, value, message):
    with pytest.raises(UserError, match=message):
        Config(**{name: value})


def test_nested_data_is_copied_into_what_a_file_can_hold():
    kwargs = {'sizes': (1, 2), 'deep': {'a': [None, True]}}
    config = Config(env_kwargs=kwargs)
    kwargs['deep']['a'].append(3)
    assert config.env_kwargs == {'sizes': [1, 2], 'deep': {'a': [None, True]}}


def test_wrappers_without_arguments_are_just_names():
    config = Config(wrappers=[{'A': None}, {'B': {}}, {'C': {'n': 1}}])
    assert config.wrappers == ('A', 'B', {'C': {'n': 1}})
    assert Config(wrappers='A').wrappers == ('A',)


def test_replacing_a_value_checks_it_as_well():
    with pytest.raises(UserError, match='got steps=-1'):
        dataclasses.replace(configs.debug(), steps=-1)


def test_command_lines_and_environments_are_read_without_tensorflow():
    code = (
        'import agents.scripts.environments, agents.scripts.train, sys; '
        'sys.exit("tensorflow" in sys.modules)'
    )
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0


def test_an_unknown_network_is_answered_by_the_nearest_one():
    with pytest.raises(UserError, match=r"no network 'natur'\. Did you mean nature\?"):
        Config(network='natur')
    assert Config(network='my_module:make').network == 'my_module:make'


def test_all_networks_and_distributions_can_be_named():
    assert config.NETWORKS == trunks.NETWORKS
    assert config._CHOICES['distribution'] == heads.DISTRIBUTIONS
