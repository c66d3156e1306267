import dataclasses
import inspect
import json
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest

from agents.scripts.progress import Progress
from benchmarks import (
    __main__,
    acting,
    alone,
    chart,
    compiled,
    contest,
    peers,
    pool,
    report,
    scaling,
    solving,
    startup,
    stepping,
    tasks,
    training,
    updating,
)
from benchmarks.contest import Contender, Figures, Line, Options


def measured_by(values):
    """Measure by taking the function's next value, and write its name on a tape."""
    tape = []

    def measure(function, kwargs):
        tape.append(function)
        value = values[function].pop(0)
        if isinstance(value, Exception):
            raise value
        return value

    return tape, measure


def test_contenders_take_turns_and_the_figure_is_the_median():
    tape, measure = measured_by({'a': [1.0, 9.0, 2.0], 'b': [3.0, 5.0, 4.0]})
    a, b = contest.contest([[Contender('A', 'a')], [Contender('B', 'b')]], 3, measure=measure)
    assert tape == ['a', 'b'] * 3
    assert (a.name, a.median, b.median) == ('A', 2.0, 4.0)
    assert (a.spread, b.spread) == (4.0, 0.5)  # (9 - 1) / 2, (5 - 3) / 4


@pytest.mark.parametrize(('lower_is_better', 'best'), [(False, 'b'), (True, 'a')])
def test_the_best_way_of_a_side_goes_on_alone(lower_is_better, best):
    tape, measure = measured_by({'a': [1.0, 1.0], 'b': [3.0, 3.0]})
    side = [Contender('a', 'a'), Contender('b', 'b')]
    (figures,) = contest.contest([side], 2, lower_is_better, measure)
    assert figures.name == best
    assert tape == ['a', 'b', best]


def test_a_peer_that_is_not_installed_is_reported_as_missing():
    _, measure = measured_by({'a': [1.0, 1.0]})
    sides = [[Contender('A', 'a')], [Contender('B', 'b', needs='not_installed')]]
    ours, peer = contest.contest(sides, 2, measure=measure)
    line = Line('speed', 'steps/s', ours, peer, ratio_wanted=2.0)
    assert peer.problem == 'missing: pip install not_installed'
    assert (line.ratio, line.met, line.failed) == (None, None, False)
    assert '| B    | missing: pip install not_installed | —     | ≥ 2 ×' in report.table([line])


def test_a_contender_that_fails_is_reported_and_not_tried_again(capsys):
    error = RuntimeError('a reason')
    tape, measure = measured_by({'a': [1.0, 1.0], 'b': [error, error]})
    ours, peer = contest.contest([[Contender('A', 'a')], [Contender('B', 'b')]], 2, measure=measure)
    assert tape == ['a', 'b', 'a']
    assert Line('speed', 'steps/s', ours, peer).failed
    assert 'a reason' in capsys.readouterr().err


def test_the_ratio_says_how_many_times_better_this_project_is():
    low, high = Figures('low', [2.0]), Figures('high', [8.0])
    assert Line('', '', high, low).ratio == 4.0  # 8 / 2
    assert Line('', '', low, high, lower_is_better=True).ratio == 4.0
    assert Line('', '', low, high).ratio == 0.25


def test_a_wish_is_met_at_its_ratio_and_below_its_bound():
    two, eight = Figures('two', [2.0]), Figures('eight', [8.0])
    assert Line('', '', eight, two, ratio_wanted=4.0).met is True
    assert Line('', '', eight, two, ratio_wanted=4.1).met is False
    assert Line('', 's', two, below=2.1).met is True
    assert Line('', 's', two, below=2.0).met is False
    assert Line('', '', eight, two).met is None


def test_the_table_has_all_columns():
    ours, peer = Figures('agents', [30000.0, 31000.0, 29000.0]), Figures('other', [1250.0])
    line = Line('step', 'steps/s', ours, peer, ratio_wanted=10.0)
    names, rule, cells = [row.split('|')[1:-1] for row in report.table([line]).splitlines()]
    assert [name.strip() for name in names] == list(report.COLUMNS)
    assert {len(row) for row in (names, rule, cells)} == {8}
    # 30000 / 1250 = 24; (31000 - 29000) / 30000 = 6.7 %; one figure has no spread.
    words = ['step, steps/s', '30,000', 'other', '1,250', '24 ×', '≥ 10 ×', 'yes', '7% / —']
    assert [cell.strip() for cell in cells] == words


def test_the_report_names_machine_versions_and_conditions(tmp_path, monkeypatch, capsys):
    def speed(options):
        """Conditions of the measurement."""
        return [Line('speed', 'm/s', Figures('agents', [float(options.repeats)] * 2))]

    monkeypatch.setattr(__main__, 'ROWS', {'speed': speed})
    assert __main__.main(['--repeats=7', '--outdir', str(tmp_path)]) == 0
    text = (tmp_path / 'results.md').read_text(encoding='utf-8')
    assert capsys.readouterr().out.strip() == text.strip()
    for words in (
        '`python3 -m benchmarks speed --repeats 7`',
        f'{stepping.usable_cores()} usable cores',
        'tensorflow 2.',
        '| speed, m/s | 7 ',
        '**speed**: Conditions of the measurement.',
    ):
        assert words in text


def test_a_row_that_is_not_there_ends_with_those_that_are(capsys):
    with pytest.raises(SystemExit):
        __main__.main(['steping'])
    assert (
        "There is no row 'steping'. There are: stepping, acting, training"
        in capsys.readouterr().err
    )


def test_every_row_says_what_it_measures():
    assert all(function.__doc__ for function in __main__.ROWS.values())
    assert all(function.__name__ == name for name, function in __main__.ROWS.items())


def test_a_figure_comes_from_another_process_and_so_does_its_failure():
    assert alone.measure(startup.start_workers, {'num_envs': 2, 'num_workers': 1}) > 0
    with pytest.raises(RuntimeError, match=r'start_workers ended(.|\n)*got num_envs=0'):
        alone.measure(startup.start_workers, {'num_envs': 0, 'num_workers': 1})


def test_a_process_that_takes_too_long_is_ended():
    with pytest.raises(subprocess.TimeoutExpired):
        alone.measure(stepping.step_plainly, {'task': 'CartPole-v1', 'seconds': 1000.0}, timeout=1)


def test_importing_the_rows_imports_neither_tensorflow_nor_a_peer():
    code = (
        'import sys, benchmarks.__main__\n'
        "peers = {'torch', 'stable_baselines3', 'jax', 'gymnax', 'envpool'}\n"
        "print({'tensorflow', *peers} & {*sys.modules})"
    )
    result = subprocess.run(
        [sys.executable, '-c', code],
        env=alone.environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == 'set()'


def test_only_lines_with_the_score_of_an_evaluation_are_found(capsys):
    values = {'score': -700.5, 'score_std': 1.0, 'episodes': 16, 'cut': 0, 'steps_per_second': 1.0}
    for phase, found in (('train', False), ('eval', True)):
        Progress(1000).record(phase, 100, values)
        assert startup.is_score(capsys.readouterr().out) is found


@pytest.mark.parametrize('task', [tasks.CART_POLE, tasks.IMAGES])
def test_all_ways_to_step_two_environments_have_a_rate(task):
    assert stepping.step_ours(task, 2, 0.01) > 0
    for mode in ('sync', 'async'):
        assert stepping.step_peer('Gymnasium', task, 2, 0.01, mode) > 0
    assert stepping.step_plainly(task, 0.01) > 0
    assert stepping.step_plainly_together(task, 2, 0.01) > 0


def test_images_cost_nothing_and_episodes_of_them_end():
    env = tasks.make(tasks.IMAGES)
    obs, _ = env.reset(seed=0)
    steps = 0
    while True:
        other, _, terminated, truncated, _ = env.step(0)
        steps += 1
        assert other is obs and not terminated
        if truncated:
            break
    assert steps == 1000 and env.observation_space.contains(obs)


def test_random_actions_are_in_the_space():
    for task in (tasks.CART_POLE, tasks.PENDULUM):
        space = tasks.make(task).action_space
        actions = tasks.random_actions(space, 3, 50)
        assert actions.shape == (50, 3, *space.shape)
        assert all(space.contains(action) for row in actions for action in row)
        assert len(np.unique(actions)) > 1


def test_a_peer_with_a_process_for_each_environment_is_left_out_of_large_batches():
    def names(num_envs, task=tasks.CART_POLE):
        return [peer.name for peer in peers.contenders(stepping.step_peer, task, num_envs)]

    several = ['Gymnasium async', 'Gymnasium sync', 'SB3 SubprocVecEnv', 'SB3 DummyVecEnv']
    assert names(64) == [*several, 'EnvPool']
    assert names(65) == ['Gymnasium sync', 'SB3 DummyVecEnv', 'EnvPool']
    assert names(64, tasks.IMAGES) == several  # EnvPool has no such task.


@pytest.mark.parametrize(('seconds', 'count'), [(1000.0, 20), (1e-9, 1)])
def test_training_ends_after_20_updates_or_the_time(seconds, count):
    updates = []
    assert training.rate(lambda: updates.append(1), 100, seconds) > 0
    assert len(updates) == count


def fake_contest(seen):
    """Return a contest that measures nothing, and notes names and arguments of contenders."""

    def fake(sides, repeats, lower_is_better=False):
        seen.extend((repeats, contender) for side in sides for contender in side)
        return [Figures(side[0].name, [1.0]) for side in sides]

    return fake


@pytest.mark.parametrize(
    ('module', 'row', 'wanted'),
    [
        (stepping, 'stepping', {12.0, 1.3, 0.65, 5.0, 0.85, 3.0}),
        (acting, 'acting', {0.6, 0.9}),
        (training, 'training', {7.0, 3.0, 6.0, 8.0, 1.2}),
        (updating, 'updating', {10.0, 1.0}),
        (solving, 'solving', set()),
        (scaling, 'scaling', set()),
    ],
)
def test_rows_say_what_is_wanted_and_quick_ones_measure_less(monkeypatch, module, row, wanted):
    counts = []
    for options in (Options(5), Options(1, quick=True)):
        seen = []
        monkeypatch.setattr(module, 'contest', fake_contest(seen))
        lines = getattr(module, row)(options)
        assert all(json.dumps(contender.kwargs) for _, contender in seen)
        # Functions can be called with what they are given.
        for _, contender in seen:
            inspect.signature(contender.function).bind(**contender.kwargs)
        counts.append(len(seen))
        if not options.quick:
            assert {line.ratio_wanted for line in lines} - {None} == wanted
    assert 0 < counts[1] < counts[0] or row == 'acting'


def test_the_overhead_of_a_step_is_measured_in_microseconds():
    assert 1 < alone.measure(acting.overhead, {'seconds': 0.01}) < 1e6


def test_an_update_takes_milliseconds():
    assert updating.update_ours(2, 8, 4, 1, repeats=1) > 0


def test_more_environments_take_more_memory():
    assert 10 < scaling.memory(1, 1) < scaling.memory(4, 2) < 10_000
    assert scaling.start(2, 2) > 0
    assert scaling.steps_per_second(2, 1, 0.01) > 0


def test_an_evaluation_that_is_good_enough_is_found(capsys):
    values = {'score': -199.0, 'score_std': 1.0, 'episodes': 16, 'cut': 0, 'steps_per_second': 1.0}
    for phase, score, found in (
        ('train', -100.0, False),
        ('eval', -201.0, False),
        ('eval', -199.0, True),
    ):
        Progress(1000).record(phase, 100, {**values, 'score': score})
        assert solving.reached(-200.0)(capsys.readouterr().out) is found


def test_each_thing_that_was_measured_has_a_panel_of_its_contenders(tmp_path):
    ours, missing = Figures('agents', [4.0, 2.0, 3.0]), Figures('gone', problem='missing')
    one, two = Figures('one', [1.0]), Figures('two', [2.0])
    lines = [
        Line('speed', 'm/s', ours, one),
        Line('speed', 'm/s', ours, two),
        Line('speed', 'm/s', ours, missing),
        Line('alone', 'm', ours),
    ]
    assert chart.group(lines) == [('speed, m/s', [ours, one, two])]
    chart.draw(lines, tmp_path / 'bars.png')
    with PIL.Image.open(tmp_path / 'bars.png') as image:
        assert image.format == 'PNG' and image.width == 900


def test_data_holds_every_figure_and_the_verdict():
    def speed(options):
        """Conditions."""

    line = Line('speed', 'm/s', Figures('agents', [4.0, 2.0]), Figures('one', [1.0]), 2.5)
    data = json.loads(json.dumps(report.as_data(Options(2), {speed: [line]})))
    (row,) = data['lines']
    assert row['row'] == 'speed' and row['ours'] == {
        'name': 'agents',
        'values': [4.0, 2.0],
        'problem': '',
    }
    assert (row['ratio'], row['met'], data['options']['repeats']) == (3.0, True, 2)


def test_a_task_is_solved_by_the_mean_of_an_evaluation(capsys):
    values = {'score': 474.0, 'score_std': 1.0, 'episodes': 16, 'cut': 0, 'steps_per_second': 1.0}
    for phase, score, found in (
        ('train', 500.0, False),
        ('eval', 474.0, False),
        ('eval', 475.0, True),
    ):
        Progress(1000).record(phase, 100, {**values, 'score': score})
        assert compiled.solved(capsys.readouterr().out) is found


def test_seconds_of_training_end_at_the_evaluation_that_solves():
    records = [
        {'phase': 'train', 'step': 100, 'score': 1.0, 'steps_per_second': 50.0},
        {'phase': 'eval', 'step': 100, 'score': 474.0},
        {'phase': 'train', 'step': 300, 'score': 500.0, 'steps_per_second': 400.0},
        {'phase': 'eval', 'step': 300, 'score': 475.0},
        {'phase': 'train', 'step': 400, 'score': 500.0, 'steps_per_second': 1.0},
    ]
    lines = [json.dumps(record) for record in records]
    assert compiled.training_seconds(lines) == 2.5  # 100 / 50 + 200 / 400
    with pytest.raises(RuntimeError, match='ended before an evaluation'):
        compiled.training_seconds(lines[:3])


def test_rows_of_compiled_programs_say_what_is_wanted(monkeypatch):
    names = []

    def fake(sides, repeats, lower_is_better=False):
        names.extend(side[0].name for side in sides)
        return [Figures(side[0].name, [1.0]) for side in sides]

    monkeypatch.setattr(compiled, 'contest', fake)
    monkeypatch.setattr(pool, 'contest', fake)
    rows = (compiled.compiled_stepping, compiled.compiled_training, compiled.compiled_solve)
    lines = [line for row in (*rows, pool.envpool) for line in row(Options(1))]
    assert [line.ratio_wanted or line.below for line in lines] == [1, 0.85, 1, 1, 15, 20, 3, 0.9]
    assert {line.peer.name for line in lines if line.peer} <= set(names)


def test_a_compiled_run_has_a_rate():
    assert compiled.train_compiled(2, 4, 2, 1, steps=16) > 0


def test_adam_in_pure_jax_agrees_with_optax():
    pytest.importorskip('gymnax')
    import jax
    import optax

    from benchmarks import pure_jax

    ppo = pure_jax.PPO(num_envs=4, horizon=8, minibatches=1, epochs=1, updates=5)
    runner, steps = jax.jit(lambda key: ppo.collect(ppo.begin(key)))(jax.random.key(0))
    batch = jax.tree.map(lambda x: x.reshape(32, *x.shape[2:]), steps)
    # Large advantages, so that the gradient is clipped.
    batch = (
        batch,
        np.linspace(-9, 9, 32, dtype='float32'),
        np.linspace(0, 99, 32, dtype='float32'),
    )
    rate = optax.linear_schedule(pure_jax.LEARNING_RATE, 0.0, ppo.updates)
    adam = optax.chain(
        optax.clip_by_global_norm(pure_jax.GRADIENT), optax.adam(rate, eps=pure_jax.EPSILON)
    )
    learner = runner.learner
    params, memory = learner.params, adam.init(learner.params)
    for _ in range(3):
        gradient = jax.jit(jax.grad(pure_jax.losses, has_aux=True))(params, *batch)[0]
        change, memory = adam.update(gradient, memory)
        params = optax.apply_updates(params, change)
        learner, _ = jax.jit(ppo.descend)(learner, batch)
    for got, wanted in zip(jax.tree.leaves(learner.params), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


def test_ppo_in_pure_jax_learns_and_has_a_rate():
    pytest.importorskip('gymnax')
    import jax

    from benchmarks import pure_jax

    ppo = pure_jax.PPO(num_envs=16, horizon=128, minibatches=4, epochs=4, updates=40)
    _, (score, _) = jax.jit(ppo.run)(jax.random.key(0))
    assert score[0] < 40 < 100 < np.nanmean(score[-5:])  # 22 is random, 500 the most.
    assert min(pure_jax.measure_parts(dataclasses.replace(ppo, updates=2))) > 0
