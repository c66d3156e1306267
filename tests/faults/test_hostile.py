"""Files and words of strangers: they are refused, or are data, and nothing else happens."""

import contextlib
import pathlib
import string
import tempfile

import gymnasium
import hypothesis
import numpy as np
import psutil
import pytest
from hypothesis import strategies
from hypothesis.extra import numpy as arrays

import agents
from agents.scripts import flags, page, runs, saved_spaces, scores, train
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError
from agents.tools import make_batch_env, packing
from tests.tools import fakes

# The same examples in each run; a busy machine is no failure.
FUZZ = hypothesis.settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
NAMES = strategies.sampled_from(sorted(Config.__dataclass_fields__))
PLAIN = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.text(max_size=20),
    lambda inner: (
        strategies.lists(inner, max_size=3)
        | strategies.dictionaries(strategies.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def a_run(folder):
    """Return a run folder with a valid config."""
    return runs.create(str(folder), 'debug', Config(env='CartPole-v1', steps=10_000), 'a')


def in_file(text, read):
    """Let something read a file with this text or these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / 'file'
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(path)


# Parsers: they return data, or one kind of error.


@FUZZ
@hypothesis.given(strategies.binary(max_size=200))
def test_packed_data_is_data_or_refused(data):
    with contextlib.suppress(ValueError):
        packing.unpack(data)


@FUZZ
@hypothesis.given(
    PLAIN | arrays.arrays(arrays.scalar_dtypes(), arrays.array_shapes(max_dims=2)),
    strategies.integers(0, 10**6),
    strategies.binary(min_size=1, max_size=4),
)
def test_packed_data_that_was_changed_is_data_or_refused(value, at, change):
    try:
        data = bytearray(packing.pack(value))
    except TypeError:  # Kinds of arrays that are not packed, such as dates.
        return
    at %= len(data)
    data[at : at + len(change)] = change
    with contextlib.suppress(ValueError):
        packing.unpack(bytes(data))


@FUZZ
@hypothesis.given(strategies.text(max_size=100) | strategies.binary(max_size=100))
def test_yaml_is_a_mapping_or_refused(text):
    with contextlib.suppress(UserError):
        assert isinstance(in_file(text, runs.read_yaml), dict)


@FUZZ
@hypothesis.given(strategies.text(max_size=100) | strategies.binary(max_size=100))
def test_records_are_records_or_refused(text):
    try:
        for record in in_file(text, lambda path: list(scores.read_lines(path))):
            assert {'phase', 'step', 'score'} <= record.keys()
    except UserError:
        pass


@FUZZ
@hypothesis.given(NAMES, PLAIN)
def test_a_config_takes_a_value_or_refuses_it(name, value):
    try:
        Config(**{'env': 'CartPole-v1', 'steps': 10**6, name: value})
    except UserError as error:
        assert name in str(error).lower() or 'steps' in str(error)


@FUZZ
@hypothesis.given(
    strategies.lists(
        strategies.text(string.printable, max_size=12)
        | strategies.builds('--{}={}'.format, NAMES, strategies.text(max_size=8)),
        max_size=4,
    )
)
def test_flags_are_fields_or_refused(argv):
    try:
        given = flags.parse(argv, train.Arguments, Config)
    except UserError:
        return
    known = {*train.Arguments.__dataclass_fields__, *Config.__dataclass_fields__, 'help'}
    assert set(given) <= known


@FUZZ
@hypothesis.given(strategies.dictionaries(strategies.sampled_from(['kind', 'n', 'shape']), PLAIN))
def test_saved_spaces_are_spaces_or_refused(data):
    with tempfile.TemporaryDirectory() as folder:
        run = a_run(folder)
        text = runs.to_yaml({'observation_space': data, 'action_space': data})
        (run.folder / 'spaces.yaml').write_text(text)
        with pytest.raises(UserError, match='must describe two spaces|plain YAML'):
            saved_spaces.load(run)


# Run folders of strangers run nothing.


@pytest.mark.parametrize(
    'text',
    [
        '!!python/object/apply:os.system ["touch touched"]',
        'env: !!python/object/apply:os.system ["touch touched"]',
        'env: !!python/name:os.system',
        '&a [*a]',
    ],
)
def test_yaml_makes_no_objects(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    run = a_run(tmp_path)
    (run.folder / 'config.yaml').write_text(text)
    with pytest.raises(UserError):
        runs.load_config(run)
    assert not (tmp_path / 'touched').exists()


HARM = "import pathlib\n\n\ndef touch(*args, **kwargs):\n    pathlib.Path('touched').touch()\n"


@pytest.mark.parametrize(
    'fields',
    [
        {'engine': 'tensorflow', 'env': 'os:system', 'env_kwargs': {'command': 'touch touched'}},
        {'engine': 'jax', 'env': 'hostile_harm:touch'},
        {'algorithm': 'hostile_harm:touch'},
        {'wrappers': ['hostile_harm:touch']},
        {'wrappers': [{'subprocess:Popen': {'shell': True}}]},
    ],
)
def test_a_config_calls_no_function_but_those_that_it_is_for(tmp_path, monkeypatch, fields):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'hostile_harm.py').write_text(HARM)
    run = a_run(tmp_path)
    plain = {'env': 'CartPole-v1', 'steps': 10_000, **fields}
    runs.save_config(run, Config(**plain))
    assert train.main([f'--logdir={tmp_path}', '--timestamp=a']) == 2
    assert not (tmp_path / 'touched').exists()


def test_loading_the_policy_of_a_stranger_calls_no_function(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'hostile_harm.py').write_text(HARM)
    flags_ = [f'--logdir={tmp_path}', '--timestamp=a', '--compile=off', '--eval_every=0']
    assert train.main(['--config=debug', '--steps=256', *flags_]) == 0
    path = tmp_path / 'a-debug' / 'config.yaml'
    path.write_text(path.read_text().replace('algorithm: ppo', 'algorithm: hostile_harm:touch'))
    with pytest.raises(UserError, match='must be a class with the verbs'):
        agents.load(tmp_path / 'a-debug')
    assert not (tmp_path / 'touched').exists()


def test_pages_show_texts_as_texts():
    word = '<script>alert(1)</script>'
    cells = page._row([word, '&'], 'td')
    assert word not in cells and '&lt;script&gt;' in cells and '&amp;' in cells


@pytest.mark.parametrize('name', ['network', 'distribution', 'objective', 'activation', 'init'])
def test_names_are_looked_up_in_tables(name):
    box = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    with pytest.raises(
        ValueError, match="(one of|no network) .*'__import__'|no network '__import__'"
    ):
        config = Config(env='CartPole-v1', steps=10_000, **{name: '__import__'})
        agents.algorithms.PPO(box, box, 1, config)


def test_shared_memory_has_no_name_and_pipes_no_port():
    before = set(pathlib.Path('/dev/shm').iterdir())
    with make_batch_env(fakes.Walk, 2, 2) as env:
        env.reset(seed=0)
        assert set(pathlib.Path('/dev/shm').iterdir()) == before
        for batch in env._batches:
            assert not psutil.Process(batch.worker.pid).net_connections()
