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


def make_histories(tmp_path, *scored, **fields):
    return [
        scores.read(make_run(tmp_path, f'r{i}', evaluations, final, **fields))
        for i, (evaluations, final) in enumerate(scored)
    ]


def test_the_interquartile_mean_leaves_out_a_quarter_on_each_side():
    # Of 1 … 8 the outer two on each side go: (3 + 4 + 5 + 6) / 4 = 4.5; 100 for 8 changes nothing.
    values = np.array([1, 2, 3, 4, 5, 6, 7, 100.0])[:, None]
    assert scores.summarize(values).middle.tolist() == [4.5]


def test_equal_scores_have_an_interval_of_no_width():
    summary = scores.summarize(np.full([5, 2], 7.0))
    assert [x.tolist() for x in summary] == [[7, 7]] * 3


def test_the_interval_of_three_runs_is_that_of_all_their_draws():
    # Three runs drawn from 0, 0, 3 have the mean 0, 1, 2, 3 with 8, 12, 6, 1 chances of 27. 0 is
    # more than 2.5 %; up to 2 it is 26/27 = 96.3 %, less than 97.5 %, so the upper end is 3.
    summary = scores.summarize(np.array([[0.0], [0.0], [3.0]]))
    assert [x.tolist() for x in summary] == [[1], [0], [3]]


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


def test_a_half_written_last_line_is_left_out(tmp_path):
    run = make_run(tmp_path, 'a', [(10, 1.0, 5.0)], final=False)
    path = run.folder / 'metrics.jsonl'
    whole = path.read_text()
    path.write_text(whole + '{"step": 20, "phase": "ev')
    history = scores.read(run)
    assert history.evaluation.step.tolist() == [10]
    assert not history.finished


@pytest.mark.parametrize(
    'damaged',
    [
        b'nonsense',
        b'',
        b'\xff\xfe\x00',
        b'[1, 2]',
        b'{"step": 20, "phase": "eval"}',
        b'{"step": "20", "phase": "eval", "score": 1.0, "seconds": 1.0}',
        b'{"step": 20, "phase": "eval", "score": "much", "seconds": 1.0}',
    ],
)
def test_a_damaged_line_before_the_last_is_named(tmp_path, damaged):
    run = make_run(tmp_path, 'a', [(10, 1.0, 5.0)])
    path = run.folder / 'metrics.jsonl'
    path.write_bytes(path.read_bytes() + damaged + b'\n' + path.read_bytes())
    with pytest.raises(UserError, match=r'got line 2 of .*metrics\.jsonl'):
        scores.read(run)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    run = make_run(tmp_path, 'a', [])
    (run.folder / 'metrics.jsonl').unlink()
    (run.folder / 'metrics.jsonl').mkdir()
    with pytest.raises(UserError, match=r'must be readable: .*metrics\.jsonl'):
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


def test_steps_tell_runs_apart_where_the_learning_rate_falls_over_them(tmp_path):
    def labels(folder, decay):
        made = [
            make_run(folder, f'{i}', [(10, 1.0, 5.0)], steps=n, decay_learning_rate=decay)
            for i, n in enumerate((512, 1024))
        ]
        return [group.label for group in scores.group([scores.read(run) for run in made])]

    assert labels(tmp_path / 'constant', False) == ['debug']
    assert labels(tmp_path / 'falling', True) == ['debug steps=1024', 'debug steps=512']


def test_decaying_runs_are_told_apart_from_others_of_their_name(tmp_path):
    made = [
        make_run(tmp_path, f'{decay}', [(10, 1.0, 5.0)], steps=512, decay_learning_rate=decay)
        for decay in (False, True)
    ]
    assert [group.label for group in scores.group([scores.read(run) for run in made])] == [
        'debug decay_learning_rate=false',
        'debug decay_learning_rate=true steps=512',
    ]


def test_of_runs_with_one_seed_the_one_that_got_furthest_is_no_repeat(tmp_path):
    one, two = [(10, 1.0, 5.0)], [(10, 1.0, 5.0), (20, 2.0, 6.0)]
    made = [
        make_run(tmp_path, 'a', one, seed=0),
        make_run(tmp_path, 'b', two, seed=0),
        make_run(tmp_path, 'c', two, seed=0),
        make_run(tmp_path, 'd', one, seed=1),
        make_run(tmp_path, 'e', one, seed=0, learning_rate=0.5),
    ]
    # b and c got equally far: the first by name stays.
    assert scores.find_repeats([scores.read(run) for run in made]) == {made[0], made[2]}


def test_runs_are_found_below_a_folder_and_as_the_folder_itself(tmp_path):
    run = make_run(tmp_path / 'deep' / 'er', 'a', [])
    assert scores.find(str(tmp_path)) == [run]
    assert scores.find(str(run.folder)) == [run]
    (tmp_path / 'config.yaml').write_text('of: another program')
    assert scores.find(str(tmp_path)) == [run]
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


ONE_SHORTER = (
    ([(10, 1.0, 0.0), (20, 2.0, 10.0), (30, 3.0, 20.0)], True),
    ([(10, 1.0, 4.0), (20, 2.0, 6.0)], True),
)


def test_a_run_that_stopped_at_a_score_counts_on_with_its_last_score(tmp_path):
    histories = make_histories(tmp_path, *ONE_SHORTER, stop_at_score=6.0)
    points, values = scores.align(histories, 'step')
    assert points.tolist() == [10, 20, 30]
    assert values.tolist() == [[0, 10, 20], [4, 6, 6]]


def test_a_run_of_fewer_steps_has_no_score_at_later_ones_but_at_later_times(tmp_path):
    histories = make_histories(tmp_path, *ONE_SHORTER)
    assert scores.align(histories, 'step')[0].tolist() == [10, 20]
    points, values = scores.align(histories, 'seconds')
    assert points.tolist() == [1, 2, 3]
    assert values.tolist() == [[0, 10, 20], [4, 6, 6]]


def test_runs_that_never_overlap_have_no_points_in_common(tmp_path):
    histories = make_histories(
        tmp_path, ([(10, 1.0, 5.0), (20, 2.0, 6.0)], False), ([(10, 50.0, 9.0)], False)
    )
    points, values = scores.align(histories, 'seconds')
    assert points.shape == (0,) and values.shape == (2, 0)
    assert scores.summarize(values).middle.shape == (0,)


def test_many_points_become_an_even_grid(tmp_path):
    # Scores rise by 1 a step, so that the grid from 1 to 399 has its points as scores.
    rising = [(step, 1.0, float(step)) for step in range(1, 400)]
    points, values = scores.align(make_histories(tmp_path, (rising, True)), 'step')
    np.testing.assert_allclose(points, 1 + 2 * np.arange(200))
    np.testing.assert_allclose(values, points[None])


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
    assert (row['iqm'], row['mean'], row['best']) == (5, 5, 9)
    # Of the sample 4, 6 it is √((1² + 1²) / (2 - 1)).
    np.testing.assert_allclose(row['std'], np.sqrt(2))
    assert np.isnan(row['low']) and np.isnan(row['steps_per_second'])
