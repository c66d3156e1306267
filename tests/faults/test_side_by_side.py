"""Trainings that run at the same time on one machine."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow  # Every one of them imports TensorFlow.
def test_ten_trainings_side_by_side_are_each_as_if_alone(tmp_path):
    command = [sys.executable, '-m', 'agents.scripts.train', '--config=debug', '--num_workers=2']
    start = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True}
    alone = subprocess.Popen([*command, f'--logdir={tmp_path}/alone'], **start)
    assert alone.wait() == 0, alone.stderr.read()
    processes = [
        subprocess.Popen([*command, f'--logdir={tmp_path}/together'], **start) for _ in range(10)
    ]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    (expected,) = (tmp_path / 'alone').iterdir()
    folders = list((tmp_path / 'together').iterdir())
    assert len(folders) == 10
    assert [metrics(folder) == metrics(expected) for folder in folders] == [True] * 10


def metrics(folder):
    rows = [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]
    return [{name: value for name, value in row.items() if 'second' not in name} for row in rows]
