import dataclasses

import pytest

from agents.scripts import configs, flags
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError


def parse(*argv):
    return flags.parse(argv, Config)


def test_only_flags_that_were_given_are_returned():
    assert parse() == {}
    assert parse('--epochs=10') == {'epochs': 10}  # Also where the value is the default.


def test_hyphens_and_separate_values_mean_the_same():
    expected = {'learning_rate': 3e-4}
    assert parse('--learning_rate=3e-4') == expected
    assert parse('--learning-rate=3e-4') == expected
    assert parse('--learning-rate', '3e-4') == expected


def test_the_last_of_equal_flags_counts():
    assert parse('--seed=1', '--seed=2') == {'seed': 2}


@pytest.mark.parametrize(
    'argv, value',
    [
        (['--normalize_obs'], True),
        (['--nonormalize_obs'], False),
        (['--no-normalize-obs'], False),
        (['--no_normalize_obs'], False),
        (['--normalize_obs=false'], False),
        (['--normalize-obs=True'], True),
        (['--normalize_obs=0'], False),
    ],
)
def test_truth_values_are_written_in_many_ways(argv, value):
    assert parse(*argv) == {'normalize_obs': value}


def test_a_truth_value_does_not_swallow_the_next_word():
    assert parse('--normalize_obs', '--seed', '3') == {'normalize_obs': True, 'seed': 3}


@pytest.mark.parametrize(
    'argv, expected',
    [
        (['--steps=1e6'], {'steps': 1_000_000}),
        (['--steps=1_000'], {'steps': 1000}),
        (['--seed=123456789012345678901'], {'seed': 123456789012345678901}),
        (['--num_workers=-1'], {'num_workers': -1}),
        (['--stop_at_score', '-1.5e2'], {'stop_at_score': -150.0}),
        (['--stop_at_score=none'], {'stop_at_score': None}),
        (['--discount=1'], {'discount': 1.0}),
        (['--env=a b=c'], {'env': 'a b=c'}),
        (['--env='], {'env': ''}),
        (['--policy_layers=64,32'], {'policy_layers': (64, 32)}),
        (['--policy_layers=[64, 32]'], {'policy_layers': (64, 32)}),
        (['--policy_layers=64'], {'policy_layers': (64,)}),
        (['--policy_layers='], {'policy_layers': ()}),
        (['--env_kwargs={g: 9.8}'], {'env_kwargs': {'g': 9.8}}),
        (['--env_kwargs=g: 9.8'], {'env_kwargs': {'g': 9.8}}),
        (['--env_kwargs={"g":9.8,"b":[true,null]}'], {'env_kwargs': {'g': 9.8, 'b': [True, None]}}),
        (['--env_kwargs='], {'env_kwargs': {}}),
        (['--wrappers=A,B'], {'wrappers': ('A', 'B')}),
        (['--wrappers=A: {n: 4}'], {'wrappers': ({'A': {'n': 4}},)}),
        (['--wrappers=[A: {n: 4}, m:B]'], {'wrappers': ({'A': {'n': 4}}, 'm:B')}),
    ],
)
def test_values_are_read_by_the_type_of_their_field(argv, expected):
    assert parse(*argv) == expected


@pytest.mark.parametrize(
    'argv, message',
    [
        (['--lerning_rate=1'], r'no flag --lerning_rate\. Did you mean --learning_rate'),
        (['--lerning-rate=1'], r'no flag --lerning-rate\. Did you mean --learning_rate'),
        (['--learn=1'], 'no flag --learn'),  # Not an abbreviation.
        (['--noseed'], 'no flag --noseed. Did you mean --seed'),
        (['--seed'], '--seed must have a value'),
        (['--seed', '--epochs=1'], '--seed must have a value'),
        (['--nonormalize_obs=true'], '--nonormalize_obs takes no value'),
        (['--normalize_obs=maybe'], "normalize_obs must be true or false, got .*'maybe'"),
        (['--steps=1.5'], "steps must be a whole number, got steps='1.5'"),
        (['--steps=many'], "steps must be a whole number, got steps='many'"),
        (['--discount=none'], "discount must be a number, got discount='none'"),
        (['--policy_layers=64,x'], "policy_layers must be a whole number, got policy_layers='x'"),
        (['--env_kwargs={'], 'env_kwargs must be written as YAML'),
        (['--env_kwargs=3'], 'env_kwargs must be a mapping .*, got env_kwargs=3'),
        (['--env_kwargs=!!python/object/apply:os.getcwd []'], 'env_kwargs must be written as YAML'),
        (['train'], "Flags must be written --name=value, got 'train'"),
        (['-s=3'], "Flags must be written --name=value, got '-s=3'"),
        (['--'], "Flags must be written --name=value, got '--'"),
    ],
)
def test_a_mistake_is_told_by_name_and_value(argv, message):
    with pytest.raises(UserError, match=message):
        parse(*argv)


def test_help_lists_every_field_with_its_help_and_default():
    text = flags.describe('Usage.', configs.pendulum())
    assert text.startswith('Usage.\n')
    for field in dataclasses.fields(Config):
        assert f'  --{field.name}=' in text
        assert field.metadata['help'] in text
    assert '--env=Pendulum-v1 ' in text
    assert '--policy_layers=64,64 ' in text
    assert '--stop_at_score=none ' in text
    assert max(map(len, text.splitlines())) < 120


@pytest.mark.parametrize('word', ['-h', '--help'])
def test_help_is_a_flag(word):
    assert parse('--seed=1', word) == {'seed': 1, 'help': True}


def test_every_field_is_read_back_as_it_is_written():
    config = dataclasses.replace(
        configs.debug(),
        env_kwargs={'a': {'b': [1, 'x: y', None]}},
        wrappers=('A', {'B': {'n': 4}}),
        stop_at_score=-1.5,
        learning_rate=1e-5,
    )
    argv = [
        f'--{field.name}={flags.to_text(getattr(config, field.name))}'
        for field in dataclasses.fields(config)
    ]
    assert Config(**parse(*argv)) == config
