import dataclasses
import json

import numpy as np
import pytest

from agents.scripts import configs, runs, scores
from agents.scripts.mistakes import UserError


def make_run(logdir, stamp, evaluations, final=True, train=(), **fields):
    """A run folder with (step, seconds, score) of evaluations."""
    config = dataclasses.replace(configs.get('debug'), **fields)
    run = runs.create(str(logdir), 'debug', config, stamp)
    records = [
        {'step': step, 'phase': 'train', 'score': score, 'seconds': 1, 'steps_per_second': 50}
        for step, score in train
    ]
    for step, seconds, score in evaluations:
        last = final and (step, seconds, score) == evaluations[-1]
        records.append(
            {'step': step, 'phase': 'eval', 'score': score, 'score_std': 2.0}
            | {'seconds': seconds, 'final': last}
        )
    text = ''.join(f'{json.dumps(record)}\n' for record in records)
    (run.folder / 'metrics.jsonl').write_text(text)
    return run


def make_histories(tmp_path, *scored):
    return [
        scores.read(make_run(tmp_path, f'r{i}', evaluations, final))
        for i, (evaluations, final) in enumerate(scored)
    ]


def test_the_interquartile_mean_leaves_out_a_quarter_on_each_side():
    # Of 1 … 8 the outer two on each side go: (3 + 4 + 5 + 6) / 4 = 4.5; 100 for 8 changes nothing.
    values = np.array([1, 2, 3, 4, 5, 6, 7, 100.0])[:, None]
    assert scores.summarize(values).middle.tolist() == [4.5]


def test_equal_scores_have_an_interval_of_no_width():
    summary = scores.summarize(np.full([5, 2], 7.0))
    assert [x.tolist() for x in summary] == [[7, 7]] * 3


def test_the_interval_holds_the_middle_and_is_the_same_every_time():
    values = np.random.default_rng(0).normal(size=[10, 3])
    first, second = scores.summarize(values), scores.summarize(values)
    assert (first.low < first.middle).all() and (first.middle < first.high).all()
    np.testing.assert_array_equal(first, second)


def test_a_bootstrap_of_the_mean_has_the_known_width():
    # Of 40 numbers the IQM is nearly normal with a standard error of about 1.08 / √40 = 0.17 for
    # normal numbers of deviation 1, so a 95 % interval is about 4 · 0.17 = 0.67 wide.
    values = np.random.default_rng(1).normal(size=[40, 30])
    summary = scores.summarize(values)
    assert 0.55 < (summary.high - summary.low).mean() < 0.8


def test_two_runs_have_no_interval():
    summary = scores.summarize(np.array([[1.0], [3.0]]))
    assert summary.middle.tolist() == [2]
    assert np.isnan(summary.low).all() and np.isnan(summary.high).all()


def test_a_run_is_read_with_the_last_evaluation_of_a_step(tmp_path):
    evaluations = [(10, 1.0, 5.0), (20, 2.0, 6.0), (20, 3.0, 7.0)]
    run = make_run(tmp_path, 'a', evaluations, train=[(5, 1.0), (10, None), (15, 3.0)])
    history = scores.read(run)
    assert history.evaluation.step.tolist() == [10, 20]
    assert history.evaluation.score.tolist() == [5, 7]
    assert history.evaluation.seconds.tolist() == [1, 3]
    assert history.train.step.tolist() == [5, 15]  # No episode ended before step 10.
    assert history.finished
    assert history.speed == 50


def test_a_half_written_last_line_is_left_out_but_a_damaged_one_is_an_error(tmp_path):
    run = make_run(tmp_path, 'a', [(10, 1.0, 5.0)], final=False)
    path = run.folder / 'metrics.jsonl'
    whole = path.read_text()
    path.write_text(whole + '{"step": 20, "phase": "ev')
    history = scores.read(run)
    assert history.evaluation.step.tolist() == [10]
    assert not history.finished
    path.write_text(whole + 'nonsense\n' + whole)
    with pytest.raises(UserError, match=r'got line 2 of .*metrics\.jsonl'):
        scores.read(run)


def test_runs_that_differ_by_seed_only_are_a_group(tmp_path):
    one = [(10, 1.0, 5.0)]
    made = [
        make_run(tmp_path, 'a', one, seed=0),
        make_run(tmp_path, 'b', one, seed=1, num_workers=2),
        make_run(tmp_path, 'c', one, learning_rate=0.5),
    ]
    groups = scores.group([scores.read(run) for run in made])
    rate = configs.get('debug').learning_rate
    assert {group.label: len(group.histories) for group in groups} == {
        'debug learning_rate=0.5': 1,
        f'debug learning_rate={rate}': 2,
    }


def test_runs_are_found_below_a_folder_and_as_the_folder_itself(tmp_path):
    run = make_run(tmp_path / 'deep' / 'er', 'a', [])
    assert scores.find(str(tmp_path)) == [run]
    assert scores.find(str(run.folder)) == [run]
    with pytest.raises(UserError, match='config.yaml.*must be in .*nothing'):
        scores.find(str(tmp_path / 'nothing'))


def test_curves_end_where_a_run_that_goes_on_has_come_to(tmp_path):
    histories = make_histories(
        tmp_path,
        ([(10, 1.0, 0.0), (20, 2.0, 10.0), (30, 3.0, 20.0)], True),
        ([(10, 1.0, 4.0), (20, 2.0, 6.0)], False),
    )
    points, values = scores.align(histories, 'step')
    assert points.tolist() == [10, 20]
    assert values.tolist() == [[0, 10], [4, 6]]


def test_a_finished_run_counts_on_with_its_last_score(tmp_path):
    histories = make_histories(
        tmp_path,
        ([(10, 1.0, 0.0), (20, 2.0, 10.0), (30, 3.0, 20.0)], True),
        ([(10, 1.0, 4.0), (20, 2.0, 6.0)], True),
    )
    points, values = scores.align(histories, 'step')
    assert points.tolist() == [10, 20, 30]
    assert values.tolist() == [[0, 10, 20], [4, 6, 6]]


def test_wall_times_are_interpolated_to_common_points(tmp_path):
    histories = make_histories(
        tmp_path,
        ([(10, 1.0, 0.0), (20, 3.0, 20.0)], True),
        ([(10, 2.0, 4.0), (20, 4.0, 8.0)], True),
    )
    points, values = scores.align(histories, 'seconds')
    assert points.tolist() == [2, 3, 4]
    assert values.tolist() == [[10, 20, 20], [4, 6, 8]]


def test_the_table_has_the_last_scores(tmp_path):
    histories = make_histories(
        tmp_path,
        ([(10, 60.0, 9.0), (20, 120.0, 4.0)], True),
        ([(10, 60.0, 3.0), (20, 120.0, 6.0)], False),
    )
    (row,) = scores.tabulate(scores.group(histories))
    assert row['group'] == 'debug' and row['task'] == 'CartPole-v1'
    assert (row['runs'], row['unfinished'], row['steps'], row['seconds']) == (2, 1, 20, 120)
    assert (row['iqm'], row['mean'], row['std'], row['best']) == (5, 5, 1, 9)
    assert np.isnan(row['low']) and np.isnan(row['steps_per_second'])
