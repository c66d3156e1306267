import csv
import importlib.util
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import PIL.Image
import pytest

from agents.scripts import plot
from tests.scripts.test_scores import make_run

EVALUATIONS = [(100, 1.0, 5.0), (200, 2.0, 8.0), (300, 3.0, 9.0)]


def run_plot(tmp_path, *flags):
    return plot.main([f'--logdir={tmp_path / "runs"}', f'--outdir={tmp_path / "out"}', *flags])


def test_figures_and_tables_are_written(tmp_path, capsys):
    for seed in range(3):
        shifted = [(step, seconds, score + seed) for step, seconds, score in EVALUATIONS]
        make_run(tmp_path / 'runs', f'a{seed}', shifted, seed=seed, train=[(50, 1.0)])
    make_run(tmp_path / 'runs', 'b', EVALUATIONS[:1], final=False, env='Acrobot-v1')
    make_run(tmp_path / 'runs', 'c', [])
    assert run_plot(tmp_path) == 0
    names = {path.name for path in (tmp_path / 'out').iterdir()}
    assert names == {'scores.md', 'scores.csv'} | {
        f'{task}.{kind}' for task in ('CartPole-v1', 'Acrobot-v1') for kind in ('png', 'svg')
    }
    image = np.asarray(PIL.Image.open(tmp_path / 'out' / 'CartPole-v1.png').convert('RGB'))
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 10
    assert ET.parse(tmp_path / 'out' / 'CartPole-v1.svg').getroot().tag.endswith('svg')
    with (tmp_path / 'out' / 'scores.csv').open() as file:
        rows = {row['task']: row for row in csv.DictReader(file)}
    # Scores at the end 9, 10, 11: with three runs nothing is left out on either side.
    assert float(rows['CartPole-v1']['iqm']) == 10
    assert rows['Acrobot-v1']['low'] == ''
    printed = capsys.readouterr().out
    assert 'no evaluation yet: ' in printed and 'c-debug' in printed
    assert '| debug env=CartPole-v1 | CartPole-v1 | 3 | 300 |' in printed
    assert '| 10.00 | 9.00 … 11.00 | 10.00 ± 1.00 | 11.00 |' in printed
    # One run alone has no deviation.
    assert '| 1 (1 unfinished) | 100 | 5.00 |  | 5.00 | 5.00 |' in printed


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        ([], r'config.yaml.*must be in'),
        (['--outdir='], '--outdir must be given'),
        (['--nonsense=1'], 'no flag --nonsense'),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, capsys, flags, message):
    assert run_plot(tmp_path, *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('plot: error: ')
    assert re.search(message, line)


def test_a_folder_that_cannot_be_written_is_told(tmp_path, capsys):
    make_run(tmp_path / 'runs', 'a', EVALUATIONS)
    (tmp_path / 'out').write_text('a file')
    assert run_plot(tmp_path) == 2
    assert 'must be writable' in capsys.readouterr().err
    assert (tmp_path / 'out').read_text() == 'a file'


def test_a_config_of_another_version_is_told(tmp_path, capsys):
    path = make_run(tmp_path / 'runs', 'a', EVALUATIONS).folder / 'config.yaml'
    path.write_text(path.read_text() + 'no_longer_known: 1\n')
    assert run_plot(tmp_path) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert 'unknown field no_longer_known' in line and 'another version' in line


def test_runs_without_any_evaluation_are_an_error(tmp_path, capsys):
    make_run(tmp_path / 'runs', 'a', [])
    assert run_plot(tmp_path) == 2
    assert 'must have an evaluation' in capsys.readouterr().err


def test_the_command_does_not_import_tensorflow(tmp_path):
    make_run(tmp_path / 'runs', 'a', EVALUATIONS)
    code = (
        'import sys\nfrom agents.scripts import plot\n'
        f'assert plot.main(["--logdir={tmp_path}/runs", "--outdir={tmp_path}/out"]) == 0\n'
        'assert "tensorflow" not in sys.modules'
    )
    subprocess.run([sys.executable, '-c', code], check=True)


def test_repeats_of_a_seed_make_no_interval_and_are_named(tmp_path, capsys):
    made = [make_run(tmp_path / 'runs', stamp, EVALUATIONS) for stamp in 'abc']
    assert run_plot(tmp_path) == 0
    printed = capsys.readouterr().out
    for run in made[1:]:
        assert f'has its seed: {run.folder}\n' in printed
    assert '| debug | CartPole-v1 | 1 | 300 | 9.00 |  | 9.00 | 9.00 |' in printed


def test_help_lists_the_flags(capsys):
    assert plot.main(['--help']) == 0
    assert '--logdir=FOLDER' in capsys.readouterr().out


def test_real_runs_of_several_tasks_are_compared(tmp_path, capsys):
    from agents.scripts import train

    tasks = ['CartPole-v1', 'Pendulum-v1']
    if importlib.util.find_spec('mujoco'):
        tasks.append('InvertedPendulum-v5')
    for task in tasks:
        flags = ['--config=debug', f'--env={task}', '--steps=256', '--eval_every=128']
        assert train.main([*flags, f'--logdir={tmp_path / "runs"}']) == 0
    capsys.readouterr()
    assert run_plot(tmp_path) == 0
    printed = capsys.readouterr().out
    for task in tasks:
        assert f'| {task} | 1 |' in printed
        assert (tmp_path / 'out' / f'{task}.png').stat().st_size > 5000
