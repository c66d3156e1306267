import dataclasses
import json
import subprocess
import sys
import time

import pytest

from agents.scripts import configs, runs
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError

STRANGE = dataclasses.replace(
    configs.debug(),
    env='ünï: #code',
    env_kwargs={'a': {'b': [1, 'off', None, 1e-300]}, 'c': '1e5', 'd': 'two\nlines', 'e': ''},
    wrappers=('A', {'m:B': {'n': 4, 'xs': []}}),
    policy_layers=(),
    stop_at_score=-0.1,
    learning_rate=1 / 3,
    seed=2**70,
    compile='off',
)


@pytest.fixture
def run(tmp_path):
    return runs.create(str(tmp_path), 'debug', configs.debug())


def edit(run, old, new):
    path = run.folder / 'config.yaml'
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize('config', [*(make() for make in configs.TASKS.values()), STRANGE])
def test_every_field_survives_the_file(run, config):
    runs.save_config(run, config)
    loaded = runs.load_config(run)
    for field in dataclasses.fields(Config):
        value = getattr(loaded, field.name)
        assert value == getattr(config, field.name), field.name
        assert type(value) is type(getattr(config, field.name)), field.name


def test_the_file_explains_every_field(run):
    lines = (run.folder / 'config.yaml').read_text().splitlines()
    for field in dataclasses.fields(Config):
        index = lines.index(f'# {field.metadata["help"]}')
        assert lines[index + 1].startswith(f'{field.name}:')


def test_code_in_the_file_is_refused_and_not_run(run, tmp_path):
    target = tmp_path / 'pwned'
    edit(run, 'seed: 0', f"seed: !!python/object/apply:pathlib.Path.touch ['{target}']")
    with pytest.raises(UserError, match='must be plain YAML'):
        runs.load_config(run)
    edit(run, 'python/object/apply:pathlib.Path.touch', 'python/name:os.system')
    with pytest.raises(UserError, match='must be plain YAML'):
        runs.load_config(run)
    assert not target.exists()


@pytest.mark.parametrize(
    'old, new, message',
    [
        ('discount: 0.99\n', '', 'config.yaml lacks the field discount'),
        ('discount: 0.99\n', 'discont: 0.99\n', 'unknown field discont. Did you mean discount'),
        ('discount: 0.99\n', 'discount: 2\n', r'config.yaml: discount must be in \[0, 1\]'),
        ('discount: 0.99\n', 'discount: {\n', 'must be plain YAML'),
        ('discount: 0.99\n', 'seed: 1\n', 'must be plain YAML'),  # Twice.
    ],
)
def test_a_file_with_other_fields_is_an_error(run, old, new, message):
    edit(run, old, new)
    with pytest.raises(UserError, match=message):
        runs.load_config(run)


def test_a_file_that_is_none_or_no_mapping_is_an_error(run):
    (run.folder / 'config.yaml').write_text('[1, 2]')
    with pytest.raises(UserError, match='must hold names and values'):
        runs.load_config(run)
    (run.folder / 'config.yaml').unlink()
    with pytest.raises(UserError, match=r'must be readable: .*config.yaml'):
        runs.load_config(run)


def test_saving_leaves_no_other_file(run):
    runs.save_config(run, STRANGE)
    assert [path.name for path in run.folder.iterdir()] == ['config.yaml']


def test_runs_that_begin_in_the_same_second_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(time, 'strftime', lambda form: '20300102T030405')
    made = [runs.create(str(tmp_path), 'debug', configs.debug()) for _ in range(3)]
    assert [run.folder.name for run in made] == [
        '20300102T030405-debug',
        '20300102T030405-2-debug',
        '20300102T030405-3-debug',
    ]
    # Each is found by its own timestamp, also when the first one is asked for without its name.
    for run in made:
        assert runs.find(str(tmp_path), run.timestamp) == run


def test_the_timestamp_of_a_folder_is_the_time(run):
    assert time.strptime(run.timestamp, '%Y%m%dT%H%M%S')
    assert run.folder.name == f'{run.timestamp}-debug'


def test_a_folder_that_is_there_is_not_taken_again(run):
    with pytest.raises(UserError, match=r'run folder cannot be made: .*exists'):
        runs.create(str(run.logdir), 'debug', configs.debug(), run.timestamp)


def test_a_place_where_no_folder_can_be_made_is_an_error(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(UserError, match=r'run folder cannot be made: .*file'):
        runs.create(str(tmp_path / 'file' / 'logs'), 'debug', configs.debug())
    with pytest.raises(UserError, match=r'run folder cannot be made: .*file'):
        runs.create(str(tmp_path / 'file'), 'debug', configs.debug())


@pytest.mark.parametrize('timestamp', ['../x', 'a/b', '..', '/tmp'])
def test_a_timestamp_leads_nowhere_else(tmp_path, timestamp):
    with pytest.raises(UserError, match='--timestamp must be a name without folders'):
        runs.find(str(tmp_path), timestamp)
    with pytest.raises(UserError, match='--timestamp must be a name without folders'):
        runs.create(str(tmp_path), 'debug', configs.debug(), timestamp)


def test_runs_are_found_by_timestamp_and_name(tmp_path):
    base = str(tmp_path)
    first = runs.create(base, 'debug', configs.debug(), 'a')
    assert runs.find(base, 'a') == runs.find(base, 'a', 'debug') == first
    assert runs.find(base, 'b') is None
    assert runs.find(str(tmp_path / 'none'), 'a') is None
    with pytest.raises(UserError, match='config of the run a must be debug, got --config=cartpole'):
        runs.find(base, 'a', 'cartpole')
    second = runs.create(base, 'cartpole', configs.cartpole(), 'a')
    assert runs.find(base, 'a', 'cartpole') == second
    with pytest.raises(UserError, match='config of the run a must be cartpole or debug'):
        runs.find(base, 'a')


def test_what_is_computed_cannot_change_and_how_long_can():
    saved = configs.debug()
    changed = runs.change(saved, {'steps': 2048, 'eval_every': 1, 'num_workers': 2, 'epochs': 2})
    assert changed == dataclasses.replace(saved, steps=2048, eval_every=1, num_workers=2)
    with pytest.raises(UserError, match=r'epochs cannot .* got --epochs=3 where the run has 2'):
        runs.change(saved, {'epochs': 3})
    with pytest.raises(UserError, match=r'--policy_layers=8,8 where the run has 16'):
        runs.change(saved, {'policy_layers': (8, 8)})


def test_the_resume_command_is_quoted(tmp_path):
    run = runs.Run(tmp_path / 'my logs', 'a b', 'debug')
    assert run.resume_command == (
        f"python3 -m agents.scripts.train --logdir='{tmp_path}/my logs' --timestamp='a b' "
        '--config=debug'
    )


def test_a_run_is_written_by_one_process(run):
    code = f"""
import pathlib
from agents.scripts import runs
with runs.Run(pathlib.Path({str(run.logdir)!r}), {run.timestamp!r}, 'debug').lock():
    print('locked')
"""
    command = [sys.executable, '-c', code]
    with run.lock():
        other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 'Another process is training the run' in other.stderr
    other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert other.stdout == 'locked\n'


def test_a_failed_write_leaves_the_former_file(tmp_path):
    path = tmp_path / 'data.json'
    runs.write_atomically(path, json.dumps([1]))
    with pytest.raises(TypeError):
        runs.write_atomically(path, 3)
    assert path.read_text() == '[1]'


def test_a_run_is_opened_by_its_folder(run):
    assert runs.open_folder(str(run.folder)) == run


def test_a_run_is_opened_under_another_name(run):
    renamed = run.folder.rename(run.logdir / 'mine')
    assert runs.open_folder(str(renamed)).folder == renamed


def test_a_folder_that_is_not_there_cannot_be_opened(tmp_path):
    with pytest.raises(UserError, match="must be there, got '.*nowhere'"):
        runs.open_folder(str(tmp_path / 'nowhere'))


def test_the_folder_of_all_runs_is_no_run_and_the_newest_one_is_named(run):
    with pytest.raises(UserError, match=f'must hold a config.yaml.*such as {run.folder}'):
        runs.open_folder(str(run.logdir))


def test_a_missing_field_is_named_with_the_line_to_add(run):
    path = run.folder / 'config.yaml'
    lines = path.read_text().splitlines(True)
    path.write_text(''.join(line for line in lines if not line.startswith('horizon:')))
    with pytest.raises(UserError, match='lacks the field horizon.*add "horizon: 128"'):
        runs.load_config(run)
