import dataclasses

import pytest
import tensorflow as tf

from agents.scripts import checkpoints, configs, runs, train
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
    *[('index', damage) for damage in (cut, empty)],
]


@pytest.mark.parametrize(('suffix', 'damage'), DAMAGES)
def test_a_damaged_one_is_replaced_by_the_one_before_and_it_is_said(run, capsys, suffix, damage):
    save(run, 10)
    damage(checkpoints.folder(run) / f'{save(run, 20).rpartition("/")[2]}.{suffix}')
    assert restore(run) == ('step-10', 10)
    printed = capsys.readouterr().out
    assert printed.startswith(f'The checkpoint {checkpoints.folder(run) / "step-20"} is damaged')
    assert len(printed.splitlines()) == 1


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


def test_training_goes_on_from_the_one_before_a_damaged_one(tmp_path, capsys):
    flags = [f'--logdir={tmp_path}', '--config=debug', '--timestamp=a']
    assert train.main([*flags, '--steps=1024']) == 0
    whole = (tmp_path / 'a-debug' / 'metrics.jsonl').read_text().splitlines()
    cut(tmp_path / 'a-debug' / 'checkpoints' / 'step-1024.data-00000-of-00001')
    (tmp_path / 'a-debug' / 'checkpoints' / 'checkpoint').write_text('torn')
    capsys.readouterr()
    assert train.main(flags) == 0
    printed = capsys.readouterr().out
    assert 'step-1024 is damaged' in printed and 'Going on at step 512.' in printed
    again = (tmp_path / 'a-debug' / 'metrics.jsonl').read_text().splitlines()
    assert len(again) == len(whole)
    assert checkpoints.find_damage(tmp_path / 'a-debug' / 'checkpoints' / 'step-1024') is None


def test_the_best_stays_when_later_ones_are_worse(tmp_path, monkeypatch):
    from agents.scripts import trainer

    scores = iter([3.0, 7.0, 5.0])
    monkeypatch.setattr(
        trainer,
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
