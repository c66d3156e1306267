import dataclasses
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from agents.scripts import checkpoints, configs, runs, summaries, train
from agents.scripts.mistakes import UserError


@pytest.fixture
def run(tmp_path):
    return runs.create(str(tmp_path), 'debug', configs.debug())


def make(value):
    return tf.train.Checkpoint(x=tf.Variable(value), y=tf.Variable(tf.zeros(1000)))


def save(run, step, best=False):
    """A checkpoint that holds the number of its step."""
    folder = checkpoints.folder(run, best)
    return make(float(step)).write(str(folder / f'step-{step}'))


def restore(run, which='newest'):
    checkpoint = make(0.0)
    path = checkpoints.restore(checkpoint, checkpoints.find(run, which))
    return path.name, float(checkpoint.x)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b'')


def remove(path):
    path.unlink()


def test_the_newest_is_the_one_with_the_most_steps(run):
    for step in (90, 1000, 200):
        save(run, step)
    assert restore(run) == ('step-1000', 1000)


def test_one_can_be_named_and_the_best_is_kept_apart(run):
    save(run, 10)
    save(run, 20)
    save(run, 5, best=True)
    assert restore(run, 'step-10') == ('step-10', 10)
    assert restore(run, 'best') == ('step-5', 5)
    assert restore(run, 'step-5') == ('step-5', 5)
    assert restore(run) == ('step-20', 20)


DAMAGES = [
    *[('data-00000-of-00001', damage) for damage in (cut, flip, empty, remove)],
    *[('index', damage) for damage in (cut, flip, empty)],
]


@pytest.mark.parametrize(('suffix', 'damage'), DAMAGES)
def test_a_damaged_one_is_replaced_by_the_one_before_and_it_is_said(run, capsys, suffix, damage):
    save(run, 10)
    damage(checkpoints.folder(run) / f'{save(run, 20).rpartition("/")[2]}.{suffix}')
    assert restore(run) == ('step-10', 10)
    printed = capsys.readouterr().out
    assert printed.startswith(f'The checkpoint {checkpoints.folder(run) / "step-20"} is damaged')
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize('suffix', ['index', 'data-00000-of-00001'])
def test_a_bit_that_flipped_is_noticed_or_changes_nothing(run, suffix):
    path = pathlib.Path(save(run, 10))
    file = path.with_name(f'step-10.{suffix}')
    whole = file.read_bytes()
    noticed = 0
    for position in np.linspace(0, len(whole) - 1, 25).astype(int):
        data = bytearray(whole)
        data[position] ^= 1
        file.write_bytes(data)
        if checkpoints.find_damage(path) is None:  # In bytes that nobody uses.
            checkpoint = make(0.0)
            checkpoint.read(str(path)).assert_consumed()
            assert checkpoint.x == 10 and not checkpoint.y.numpy().any()
        else:
            noticed += 1
    assert noticed == 25 if suffix.startswith('data') else noticed >= 12
    file.write_bytes(whole)
    assert checkpoints.find_damage(path) is None


@pytest.mark.parametrize('text', ['', 'torn'])
def test_the_state_file_of_tensorflow_is_not_asked(run, capsys, text):
    save(run, 10)
    save(run, 20)
    (checkpoints.folder(run) / 'checkpoint').write_text(text)
    assert restore(run) == ('step-20', 20)
    assert capsys.readouterr().out == ''


def test_a_checkpoint_that_was_never_finished_does_not_count(run):
    save(run, 10)
    save(run, 20)
    (checkpoints.folder(run) / 'step-20.index').unlink()  # It is written last.
    assert restore(run) == ('step-10', 10)


@pytest.mark.parametrize(
    ('objects', 'message'),
    [
        ({'x': tf.zeros(2)}, 'must fit the config.* incompatible tensor with shape'),
        ({'x': 0.0, 'z': 0.0}, 'must fit the config.*step-10 does not'),
    ],
)
def test_a_checkpoint_of_another_algorithm_is_an_error(run, objects, message):
    save(run, 10)
    variables = {name: tf.Variable(value) for name, value in objects.items()}
    with pytest.raises(UserError, match=message):
        checkpoints.restore(tf.train.Checkpoint(**variables), checkpoints.find(run))


def test_a_damaged_one_that_was_named_is_an_error(run):
    save(run, 10)
    cut(checkpoints.folder(run) / f'{save(run, 20).rpartition("/")[2]}.index')
    with pytest.raises(UserError, match='must be whole, but it is damaged'):
        restore(run, 'step-20')


def test_only_damaged_ones_are_an_error(run):
    for step in (10, 20):
        cut(checkpoints.folder(run) / f'{save(run, step).rpartition("/")[2]}.index')
    with pytest.raises(UserError, match='must be whole, but all are damaged'):
        restore(run)


def test_without_a_checkpoint_the_error_says_how_to_train(run):
    for which in ('newest', 'best', 'step-1'):
        with pytest.raises(UserError, match=r'must have a checkpoint.*agents\.scripts\.train'):
            checkpoints.find(run, which)


def test_names_that_are_not_there_are_told_with_those_that_are(run):
    save(run, 10)
    with pytest.raises(UserError, match=r'must be newest, best, step-10, got checkpoint=nonsense'):
        checkpoints.find(run, 'nonsense')
    with pytest.raises(UserError, match='kept at the first evaluation'):
        checkpoints.find(run, 'best')


@pytest.mark.parametrize('text', ['', 'torn'])
def test_training_goes_on_from_the_one_before_a_damaged_one(tmp_path, capsys, text):
    flags = [f'--logdir={tmp_path}', '--config=debug', '--timestamp=a']
    assert train.main([*flags, '--steps=1024']) == 0
    whole = (tmp_path / 'a-debug' / 'metrics.jsonl').read_text().splitlines()
    cut(tmp_path / 'a-debug' / 'checkpoints' / 'step-1024.data-00000-of-00001')
    (tmp_path / 'a-debug' / 'checkpoints' / 'checkpoint').write_text(text)
    capsys.readouterr()
    assert train.main(flags) == 0
    printed = capsys.readouterr().out
    assert 'step-1024 is damaged' in printed and 'Going on at step 512.' in printed
    again = (tmp_path / 'a-debug' / 'metrics.jsonl').read_text().splitlines()
    assert len(again) == len(whole)
    assert checkpoints.find_damage(tmp_path / 'a-debug' / 'checkpoints' / 'step-1024') is None
    # Longer, and still no more than five are kept.
    assert train.main([*flags, '--steps=2048', '--checkpoint_every=128']) == 0
    kept = [path.stem for path in (tmp_path / 'a-debug' / 'checkpoints').glob('*.index')]
    assert len(kept) == 5


def test_the_best_stays_when_later_ones_are_worse(tmp_path, monkeypatch):
    scores = iter([3.0, 7.0, 5.0])
    monkeypatch.setattr(
        summaries,
        'summarize',
        lambda *_: (
            dict.fromkeys(('score', 'score_std', 'cut'), 0.0)
            | {'score': next(scores), 'episodes': 1}
        ),
    )
    config = dataclasses.replace(configs.debug(), eval_every=256, steps=512)
    run = runs.create(str(tmp_path), 'debug', config)
    assert list(train.train(config, run)) == [3.0, 7.0]
    (best,) = checkpoints.find(run, 'best')
    assert best.name == 'step-512'
    longer = dataclasses.replace(config, steps=768)
    assert list(train.train(longer, run)) == [5.0]
    (best,) = checkpoints.find(run, 'best')
    assert best.name == 'step-512'
