"""Disks that are full, cannot be written, or go away under a run."""

import json
import shutil
import subprocess

import pytest

from agents.scripts import checkpoints, runs, train
from agents.scripts.trainer import Trainer

FLAGS = ['--config=debug', '--timestamp=a', '--checkpoint_every=128', '--log_every=128']


@pytest.fixture
def disk(tmp_path):
    """A disk of 1 MB of its own."""
    path = tmp_path / 'disk'
    path.mkdir()
    command = ['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', str(path)]
    if shutil.which('mount') is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip('only root may mount a disk')
    yield path
    subprocess.run(['umount', '-l', str(path)], check=True)


def remount(disk, options):
    subprocess.run(['mount', '-o', f'remount,{options}', str(disk)], check=True)


def fill(path):
    """Write until nothing more fits."""
    with pytest.raises(OSError, match='No space left'), (path / 'rubbish').open('wb', 0) as file:
        while True:
            file.write(bytes(1024))


def before_step(monkeypatch, step, action):
    """Do something in the middle of a training, once."""
    update = Trainer.update

    def disturbed(trainer):
        if trainer.step == step:
            action()
        update(trainer)

    monkeypatch.setattr(Trainer, 'update', disturbed)


def steps(run):
    return [json.loads(x)['step'] for x in (run.folder / 'metrics.jsonl').read_text().splitlines()]


def is_finished(run, capsys):
    """Whether a run can be resumed and has nothing left to do."""
    capsys.readouterr()
    code = train.main([*FLAGS, f'--logdir={run.logdir}'])
    return code == 0 and 'This run is finished already.' in capsys.readouterr().out


def test_a_folder_that_was_removed_is_made_anew(tmp_path, monkeypatch, capsys):
    run = runs.Run(tmp_path, 'a', 'debug')
    before_step(monkeypatch, 384, lambda: shutil.rmtree(run.folder))
    assert train.main([*FLAGS, f'--logdir={tmp_path}']) == 0
    assert 'was gone, with all that was in it, and is made anew.' in capsys.readouterr().out
    assert runs.load_config(run).steps == 1024
    assert checkpoints.step(checkpoints.find(run)[0]) == 1024
    assert steps(run)[0] == 512 and steps(run)[-1] == 1024
    assert list(run.folder.glob('train/events*'))
    assert is_finished(run, capsys)


def test_a_disk_that_went_away_and_came_back_has_everything_since(tmp_path, monkeypatch, capsys):
    run = runs.Run(tmp_path / 'disk', 'a', 'debug')
    away = tmp_path / 'away'

    def leave():
        run.logdir.rename(away)
        run.logdir.write_text('No folder can be made here.')

    def come_back():
        run.logdir.unlink()
        away.rename(run.logdir)

    before_step(monkeypatch, 384, leave)
    before_step(monkeypatch, 640, come_back)
    assert train.main([*FLAGS, f'--logdir={run.logdir}']) == 0
    assert 'is gone, and cannot be made anew: ' in capsys.readouterr().out
    assert [x for x in steps(run) if x > 384][:2] == [512, 512]  # Of training and of evaluation.
    assert is_finished(run, capsys)


def test_an_end_that_cannot_be_stored_is_an_error_and_can_be_made_up_for(disk, monkeypatch, capsys):
    run = runs.Run(disk, 'a', 'debug')
    before_step(monkeypatch, 384, lambda: fill(disk))
    assert train.main([*FLAGS, f'--logdir={disk}']) == 2
    printed = capsys.readouterr()
    assert 'The end of the run must be stored' in printed.err
    assert run.resume_command in printed.err
    assert 'metrics.jsonl cannot be written' in printed.out and 'Done.' not in printed.out
    assert [checkpoints.find_damage(path) for path in checkpoints.find(run)] == [None] * 3
    (disk / 'rubbish').unlink()
    monkeypatch.undo()
    assert train.main([*FLAGS, f'--logdir={disk}']) == 0
    assert steps(run) == sorted(steps(run)) and steps(run)[-1] == 1024
    assert is_finished(run, capsys)


def test_a_disk_that_cannot_be_written_is_told_at_once(disk, capsys):
    remount(disk, 'size=9m')
    assert train.main([*FLAGS, f'--logdir={disk}', '--steps=256']) == 0
    remount(disk, 'ro')
    assert train.main([*FLAGS, f'--logdir={disk}', '--steps=512']) == 2
    assert 'The run folder must be writable: ' in capsys.readouterr().err
    assert train.main([*FLAGS, f'--logdir={disk}', '--timestamp=b']) == 2
    assert 'The run folder cannot be made: ' in capsys.readouterr().err


def test_videos_that_do_not_fit_end_no_training(disk, monkeypatch, capsys):
    before_step(monkeypatch, 384, lambda: fill(disk))
    before_step(monkeypatch, 896, (disk / 'rubbish').unlink)
    assert train.main([*FLAGS, f'--logdir={disk}', '--video_every=512']) == 0
    assert 'No video of step 512: ' in capsys.readouterr().out
