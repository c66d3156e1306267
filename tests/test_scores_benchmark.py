import dataclasses
import math
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from agents.scripts import configs
from agents.scripts.mistakes import UserError
from benchmarks import alone, intervals
from benchmarks.scores import __main__ as scores
from benchmarks.scores import entries, page, picture, tables, targets, training
from benchmarks.scores.tables import Key, Row

FEW_STEPS = ('steps=16384', 'eval_every=8192', 'checkpoint_every=0', 'histograms_every=0')


def make_row(name='cartpole', objective='clip', seed=0, digest=None, **values):
    if digest is None:
        digest = tables.digest(training.make_config(name, objective), {})
    env = configs.TASKS[name]().env if name in configs.TASKS else 'Task-v0'
    row = Row(config=name, env=env, objective=objective, seed=seed, flags='', digest=digest)
    return dataclasses.replace(row, **values)


def finished(score, **values):
    numbers = {'steps': 100_000, 'score': score, 'std': 1.0, 'maximum': score + 10.0}
    return make_row(**{**numbers, 'seconds': 90.0, 'steps_per_second': 2000.0, **values})


def add(folder, row, points=((50_000, 1.0), (100_000, 2.0))):
    config = training.make_config(row.config, row.objective)
    tables.add(folder, row, () if row.problem else points, config)


def job_that_runs(code, monkeypatch):
    command = [sys.executable, '-c', code]
    monkeypatch.setattr(training.Job, 'command', lambda *args: command)
    return training.Job(Key('debug', 'clip', 0, 'digest'), configs.get('debug'))


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end():
    assert intervals.interquartile_mean([-900.0, 1.0, 3.0, 900.0]) == 2.0
    np.testing.assert_array_equal(intervals.interquartile_mean(np.eye(4), axis=0), np.zeros(4))


def test_the_interval_holds_95_percent_of_what_could_have_been_drawn():
    # Means of three drawn from 0, 0, 1: 0 in 8 of 27 cases, 1 in 1 of 27, both over 2.5 %.
    assert intervals.interval([0.0, 0.0, 1.0]) == (0.0, 1.0)
    # Of five, the middle three count: with k ones, 0, 0, 1 / 3, 2 / 3, 1, 1. At least three ones
    # are drawn in 5.8 % of the cases, at least four in 0.7 %.
    assert intervals.interval([0.0, 0.0, 0.0, 0.0, 1.0]) == (0.0, pytest.approx(2 / 3))
    assert intervals.interval([5.0] * 3) == (5.0, 5.0)


def test_fewer_than_three_runs_have_no_interval():
    assert all(map(math.isnan, intervals.interval([1.0, 2.0])))


def test_every_config_has_seed_0_before_any_has_seed_1():
    jobs = training.plan(['pendulum', 'cartpole'], ['clip', 'kl_penalty'], 2, [], {})
    assert [job.key[:3] for job in jobs] == [
        ('pendulum', 'clip', 0),
        ('pendulum', 'kl_penalty', 0),
        ('cartpole', 'clip', 0),
        ('cartpole', 'kl_penalty', 0),
        ('pendulum', 'clip', 1),
        ('pendulum', 'kl_penalty', 1),
        ('cartpole', 'clip', 1),
        ('cartpole', 'kl_penalty', 1),
    ]
    assert len({job.name for job in jobs[:4]}) == 4
    assert all(job.config.seed == job.key.seed for job in jobs)
    assert all(job.config.objective == job.key.objective for job in jobs)


def test_changed_settings_are_written_in_one_way_and_make_another_run():
    (job,) = training.plan(['debug'], ['clip'], 1, ['num-envs=2', 'nodecay_learning_rate'], {})
    (plain,) = training.plan(['debug'], ['clip'], 1, [], {})
    assert job.config.num_envs == 2 and job.name != plain.name
    assert job.changes == ('decay_learning_rate=false', 'num_envs=2')
    with pytest.raises(UserError, match='seed must be given by --seeds'):
        training.plan(['debug'], ['clip'], 1, ['seed=3'], {})


def test_the_digest_is_of_what_changes_a_score():
    config = configs.get('cartpole')
    digest = tables.digest(config, {})
    assert tables.digest(dataclasses.replace(config, seed=3, num_workers=1), {}) == digest
    assert tables.digest(dataclasses.replace(config, epochs=3), {}) != digest


def test_measured_settings_keep_their_digest_when_a_field_is_added():
    config = configs.get('cartpole')
    earlier = tables.settings(config)
    del earlier['gradient_clip']
    assert tables.digest(config, {'earlier': earlier}) == 'earlier'
    changed = dataclasses.replace(config, gradient_clip=config.gradient_clip + 1)
    assert tables.digest(changed, {'earlier': earlier}) != 'earlier'


def test_tables_are_read_as_they_were_written(tmp_path):
    good = finished(1 / 3, machine='a processor, 2 cores', flags="env_kwargs='{g: 1}'")
    bad = make_row(seed=1, problem='exit code 1: "no",\nreally')
    for row in (bad, good):
        add(tmp_path, row, [(512, 0.5), (1024, 1.25)])
    assert list(map(repr, tables.read_rows(tmp_path))) == [repr(good), repr(bad)]
    ((key, points),) = tables.read_curves(tmp_path).items()
    assert key == good.key
    np.testing.assert_array_equal(points, [[512, 0.5], [1024, 1.25]])
    config = training.make_config('cartpole', 'clip')
    assert tables.read_known(tmp_path) == {good.digest: tables.settings(config)}


def test_a_run_takes_the_place_of_an_earlier_try(tmp_path):
    for row in (make_row(problem='no memory'), finished(3.0)):
        add(tmp_path, row)
    assert tables.read_rows(tmp_path) == [finished(3.0)]


def test_long_curves_lose_points_but_not_their_ends():
    points = np.stack([np.arange(500.0), np.arange(500.0)], 1)
    thinned = tables.thin(points)
    assert len(thinned) == tables.MOST_POINTS
    assert (thinned[0, 0], thinned[-1, 0]) == (0, 499)


def test_a_target_is_that_of_the_most_steps_that_are_trained():
    humanoid = dataclasses.replace(configs.get('cheetah'), env='Humanoid-v5')
    for steps, score in ((500_000, 800), (1_000_000, 800), (10_000_000, 5000)):
        (target,) = targets.find('humanoid', dataclasses.replace(humanoid, steps=steps))
        assert target.score == score
    pong = dataclasses.replace(humanoid, env='ale_py:ALE/Pong-v5')
    assert targets.family('pong', pong) == targets.ATARI
    assert targets.family('my_own', dataclasses.replace(humanoid, env='a:Own-v0')) == targets.OTHERS
    assert all(x.source in targets.SOURCES for x in targets.TARGETS if x.published)


def test_runs_are_averaged_at_the_steps_that_all_have():
    curves = [np.array([[1, 2], [2, 4], [3, 9]]), np.array([[1, 4], [3, 1]])]
    np.testing.assert_array_equal(picture.mean(curves), [[1, 3], [3, 5]])


def cells(text, *begin):
    rows = [[x.strip() for x in line.split('|')[1:-1]] for line in text.splitlines()]
    (row,) = [row for row in rows if tuple(row[: len(begin)]) == begin]
    return row[len(begin) :]


def test_the_page_has_both_objectives_beside_each_other(tmp_path):
    folder = tmp_path / 'results'
    for seed, score in enumerate((100.0, 250.0, 350.0, 900.0)):
        add(folder, finished(score, seed=seed, commit='0.1.0 abc'))
    add(folder, finished(500.0, objective='kl_penalty'))
    page.write(tmp_path)
    text = (tmp_path / 'results.md').read_text()
    # The middle two of four: 300; mean 400, deviations -300, -150, -50, 500: √(365,000 / 3).
    low, high = (page.number(x) for x in intervals.interval([100.0, 250.0, 350.0, 900.0]))
    row = cells(text, 'cartpole', 'CartPole-v1')
    steps = configs.get('cartpole').steps
    assert row[:4] == [f'{steps:,}', '1.5', f'300.0 [{low}, {high}]', '500.0 (1 seed)']
    assert row[4].startswith('≥ 500.0') and row[5].startswith('KL penalty')
    assert row[6] == '500.0 ± 0.0, RL Baselines3 Zoo'
    interval = f'{low} … {high}'
    row = ['4', '300.0', interval, '400.0 ± 348.8', '410.0', '100,000', '1.5', '2,000']
    assert cells(text, 'cartpole', 'clip') == row
    row = ['1', '500.0', '—', '500.0', '510.0', '100,000', '1.5', '2,000']
    assert cells(text, 'cartpole', 'KL penalty') == row
    assert cells(text, 'pendulum', 'Pendulum-v1')[2:4] == ['not yet measured'] * 2
    assert '![Learning curves: Classic control](results/classic-control.png)' in text
    assert (folder / 'classic-control.png').stat().st_size > 10_000
    assert '--configs=cartpole --seeds=4' in text and 'commits: 0.1.0 abc.' in text
    assert 'Failed' not in text and 'left out, as' not in text


def test_a_score_that_is_not_reached_is_marked(tmp_path):
    add(tmp_path / 'results', finished(499.0))
    page.write(tmp_path)
    assert cells((tmp_path / 'results.md').read_text(), 'cartpole', 'CartPole-v1')[5] == '**no**'


def test_rows_of_other_settings_are_left_out_and_counted(tmp_path):
    folder = tmp_path / 'results'
    add(folder, finished(500.0))
    earlier = {**tables.settings(training.make_config('cartpole', 'clip')), 'epochs': 1}
    config = dataclasses.replace(training.make_config('cartpole', 'clip'), epochs=1)
    assert tables.settings(config) == earlier
    tables.add(folder, finished(7.0, digest=tables.digest(config, {})), [(1, 7.0)], config)
    found, stale = entries.read(folder)
    (entry,) = [entry for entry in found if entry.name == 'cartpole']
    assert [row.score for row in entry.rows['clip']] == [500.0]
    assert [row.score for row in stale] == [7.0]
    page.write(tmp_path)
    text = (tmp_path / 'results.md').read_text()
    assert 'left out, as the configs (cartpole) have other settings by now: 1.' in text


def test_a_run_whose_files_are_damaged_is_recorded_and_the_others_go_on(tmp_path, monkeypatch):
    jobs = training.plan(['debug'], ['clip'], 2, [], {})
    run = tmp_path / f'{jobs[0].name}-debug'
    run.mkdir()
    (run / 'metrics.jsonl').write_text('{}\n')
    monkeypatch.setattr(training, 'train', lambda *args: False)  # The time is up.
    assert scores.measure(jobs, tmp_path, tmp_path, 60) is True
    (row,) = tables.read_rows(tmp_path)
    assert row.seed == 0 and 'got line 1 of' in row.problem


def test_time_that_is_up_ends_a_training_by_a_signal(tmp_path, monkeypatch):
    job = job_that_runs('import time; time.sleep(600)', monkeypatch)
    begin = time.monotonic()
    assert training.train(job, tmp_path, begin + 0.2) is False
    assert time.monotonic() - begin < 60


def test_a_training_that_fails_says_why(tmp_path, monkeypatch):
    job = job_that_runs('import sys; print("something"); sys.exit("no room")', monkeypatch)
    with pytest.raises(RuntimeError, match='^exit code 1: no room$'):
        training.train(job, tmp_path, time.monotonic() + 60)


def test_runs_that_fail_are_recorded_and_the_others_go_on(tmp_path, capsys):
    flags = ['--configs=debug', '--objectives=clip', '--seeds=2', f'--outdir={tmp_path}']
    flags += [f'--logdir={tmp_path}/logdir', '--set', 'env=NoSuchTask-v0']
    assert scores.main(flags) == 1
    rows = tables.read_rows(tmp_path / 'results')
    assert [row.seed for row in rows] == [0, 1]
    assert all('exit code 2: train: error:' in row.problem for row in rows)
    assert all('NoSuchTask' in row.problem and math.isnan(row.score) for row in rows)
    text = (tmp_path / 'results.md').read_text()
    assert '## Failed runs' in text and '2 failed' in text
    assert '2 runs are left, 2 of them failed now.' in capsys.readouterr().out


@pytest.mark.parametrize('flag', ['--configs=cartpool', '--objectives=clop', '--set=epochs=0'])
def test_mistakes_end_it_before_anything_is_trained(flag, tmp_path, capsys):
    assert scores.main([f'--logdir={tmp_path}/logdir', f'--outdir={tmp_path}', flag]) == 2
    assert 'scores: error:' in capsys.readouterr().err
    assert not (tmp_path / 'logdir').exists()


def test_a_run_that_was_stopped_goes_on_and_is_then_not_run_again(tmp_path, capsys):
    flags = ['--configs=debug', '--objectives=clip', '--seeds=1', f'--outdir={tmp_path}']
    flags += [f'--logdir={tmp_path}/logdir', '--set', *FEW_STEPS]
    command = [sys.executable, '-m', 'benchmarks.scores', *flags]
    with subprocess.Popen(command, env=alone.environ(), stdout=subprocess.PIPE, text=True) as first:
        while not any((tmp_path / 'logdir').glob('*/metrics.jsonl')):
            assert first.poll() is None
            time.sleep(0.01)
        first.send_signal(signal.SIGTERM)
        output, _ = first.communicate()
    assert first.returncode == 128 + signal.SIGTERM
    assert 'The same command goes on.' in output
    assert not (tmp_path / 'results').exists()
    assert scores.main(flags) == 0
    (path,) = (tmp_path / 'logdir').glob('*.txt')
    assert 'Going on at step' in path.read_text()
    (row,) = tables.read_rows(tmp_path / 'results')
    assert (row.steps, row.problem) == (16_384, '')
    assert 8 < row.score <= row.maximum <= 500 and row.seconds > 0
    assert row.flags == 'eval_every=8192 steps=16384'
    ((_, points),) = tables.read_curves(tmp_path / 'results').items()
    assert points[:, 0].tolist() == [8192, 16_384]
    capsys.readouterr()
    assert scores.main(flags) == 0
    assert '1 of 1 runs are measured.' in capsys.readouterr().out
    assert f'debug {row.flags}' in (tmp_path / 'results.md').read_text()
