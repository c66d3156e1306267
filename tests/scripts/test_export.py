import pathlib
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

import agents
from agents.algorithms import PPO, Hyperparameters
from agents.parts.normalize import StreamingNormalize
from agents.scripts import export, exporting, policies, train
from agents.scripts.mistakes import UserError
from tests.scripts.export_tasks import FAR

UNBOUNDED = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)


# Actions that are rescaled, and some that are bounded on one side or on none.
LOW, HIGH = '[-2, -.inf, 0.5, -.inf, -1e6]', '[3, .inf, .inf, 0.1, 3e6]'
TASKS = {
    'discrete': ['--env=CartPole-v1'],
    'scaled': ['--env=Pendulum-v1'],
    'partly': [
        '--env=tests.scripts.export_tasks:ExportNoise-v0',
        f'--env_kwargs={{low: {LOW}, high: {HIGH}, dtype: float32}}',
    ],
}
in_every_format = pytest.mark.parametrize('kind', export.FORMATS)
for name in ('onnxruntime', 'tf2onnx', 'ai_edge_litert'):
    pytest.importorskip(name)


def make_run(logdir, *flags):
    fixed = ['--config=debug', '--timestamp=a', f'--logdir={logdir}']
    # Outputs that are not almost 0, so that differences show.
    quick = ['--init_output_factor=1', '--steps=256', '--checkpoint_every=128', '--compile=off']
    assert train.main([*fixed, *quick, *flags]) == 0
    return logdir / 'a-debug'


@pytest.fixture(scope='module')
def make(tmp_path_factory):
    """Function of the name of a task that trains on it, once."""
    made = {}

    def get(task):
        if task not in made:
            wrapper = '--wrappers=tests.scripts.export_tasks:Shift'
            made[task] = make_run(tmp_path_factory.mktemp(task), *TASKS[task], wrapper)
        return made[task]

    return get


def run_export(folder, outdir, kind, *flags):
    return export.main([f'--logdir={folder}', f'--outdir={outdir}', f'--format={kind}', *flags])


def run_command(folder, outdir, kind):
    """Export in a process of its own, since converters write to the terminal past Python."""
    flags = [f'--logdir={folder}', f'--outdir={outdir}', f'--format={kind}']
    command = [sys.executable, '-m', 'agents.scripts.export', *flags]
    root = pathlib.Path(__file__).parents[2]
    return subprocess.run(command, check=False, cwd=root, capture_output=True, text=True)


def act_elsewhere(snippet, obs, folder):
    """Run a snippet on batches of different sizes in a process without this package."""
    np.save(folder / 'obs.npy', obs)
    code = f"""
import sys, numpy
every = numpy.load('obs.npy')
actions = []
for obs in (every[:1], every[1:]):
{snippet.replace(chr(10), chr(10) + '    ').join(['    ', ''])}
    actions.append(action)
assert 'agents' not in sys.modules
assert ('tensorflow' in sys.modules) == {'tensorflow' in snippet}
numpy.save('action.npy', numpy.concatenate(actions))
"""
    subprocess.run([sys.executable, '-c', code], cwd=folder, check=True)
    return np.load(folder / 'action.npy')


def check_export(folder, outdir, kind, capsys, far=0.0, scale=1.0):
    capsys.readouterr()
    assert run_export(folder, outdir, kind) == 0
    captured = capsys.readouterr()
    target = outdir / export.FORMATS[kind].file
    assert captured.out.startswith(f'{target}: ')
    assert [path.name for path in outdir.iterdir()] == [target.name]
    policy = agents.load(folder)
    space = policy.observation_space
    obs = far + np.random.default_rng(0).normal(size=(65, *space.shape))
    obs = obs.astype(space.dtype)
    actions = act_elsewhere(captured.out.partition('\n\n')[2].strip(), obs, outdir)
    assert actions.dtype == policy.action_space.dtype
    wanted = policy(obs)
    assert len(np.unique(wanted)) > 1
    np.testing.assert_allclose(actions / scale, wanted / scale, atol=1e-6)


@in_every_format
@pytest.mark.parametrize('task', TASKS)
def test_the_printed_snippet_acts_like_the_policy(make, tmp_path, capsys, kind, task):
    scale = np.array([1, 1, 1, 1, 2e6]) if task == 'partly' else 1.0
    check_export(make(task), tmp_path, kind, capsys, far=FAR, scale=scale)


@in_every_format
def test_observations_of_float64_are_taken_as_they_are(tmp_path_factory, tmp_path, capsys, kind):
    pytest.importorskip('mujoco')
    folder = make_run(tmp_path_factory.mktemp('mujoco'), '--env=InvertedPendulum-v5')
    assert agents.load(folder).observation_space.dtype == np.float64
    check_export(folder, tmp_path, kind, capsys)


@in_every_format
def test_what_is_printed_says_what_goes_in_and_comes_out(make, tmp_path, capsys, kind):
    capsys.readouterr()
    assert run_export(make('discrete'), tmp_path, kind) == 0
    printed = capsys.readouterr().out
    assert 'bytes. All 800 actions are equal.\n' in printed
    assert 'Inputs: obs float32 [rows, 4]. Outputs: action int64 [rows].\n' in printed


NESTED = gymnasium.spaces.Dict(
    arm=gymnasium.spaces.Tuple([gymnasium.spaces.Box(-9, 9, (2,)), gymnasium.spaces.Discrete(3)]),
    on=gymnasium.spaces.MultiBinary(2),
)


def nested_policy(observation_space=NESTED, action_space=NESTED):
    hyper = Hyperparameters(policy_layers=(4,), value_layers=(4,), init_output_factor=1.0)
    algorithm = PPO(observation_space, action_space, 1, hyper)
    return policies.Policy(algorithm, observation_space, action_space)


@in_every_format
def test_parts_of_spaces_have_names_of_their_own(tmp_path, kind):
    policy = nested_policy()
    exported = exporting.write(policy, kind, tmp_path / 'file')
    assert sorted(exported.inputs) == ['obs_arm_0', 'obs_arm_1', 'obs_on']
    assert sorted(exported.outputs) == ['action_arm_0', 'action_arm_1', 'action_on']
    random = np.random.default_rng(0)
    obs = {
        'on': random.integers(0, 2, (5, 2)).astype(np.int8),
        'arm': (random.normal(size=(5, 2)).astype(np.float32), random.integers(0, 3, 5)),
    }
    result = export.compare(policy, exported, obs, np.ones(5, bool))
    assert result.startswith('Largest difference in 10 actions: ')
    action = exported(obs, np.ones(5, bool))
    assert {x.tobytes() for x in (action['arm'][1], action['on'])} == {
        x.tobytes() for x in (policy(obs)['arm'][1], policy(obs)['on'])
    }
    run = exported._run
    wrong = np.full(5, 7)
    exported._run = lambda inputs: run(inputs) | {'action_arm_1': wrong[: len(inputs['obs_on'])]}
    with pytest.raises(UserError, match='10 of 10 actions differ, action 0 by'):
        export.compare(policy, exported, obs, np.ones(5, bool))


def test_parts_that_would_have_one_name_are_refused():
    assert exporting.names('obs', {'a': 0, 'b': (1, 2)}) == {
        'a': 'obs_a',
        'b': ('obs_b_0', 'obs_b_1'),
    }
    with pytest.raises(UserError, match=r"names that differ .*got \['a b'\], \['a_b'\]"):
        exporting.names('obs', {'a b': 0, 'a_b': 1})


class Remembering(tf.Module):
    """Acts by the sum of the observations of the episode."""

    def initial(self, num_envs):
        return {'sum': tf.zeros([num_envs, 2]), 'steps': tf.zeros([num_envs], tf.int32)}

    def perform(self, obs, first, carry, seed, training):
        total = tf.where(first[:, None], 0.0, carry['sum']) + obs
        steps = tf.where(first, 0, carry['steps']) + 1
        return total, (), {'sum': total, 'steps': steps}


@in_every_format
def test_a_policy_with_memory_takes_and_returns_it(tmp_path, kind):
    policy = policies.Policy(Remembering(), UNBOUNDED, UNBOUNDED)
    exported = exporting.write(policy, kind, tmp_path / 'file')
    assert list(exported.inputs) == ['obs', 'first', 'carry_0', 'carry_1']
    assert sorted(exported.outputs) == ['action', 'next_carry_0', 'next_carry_1']
    obs = np.float32([[1, 2]])
    assert exported(obs, np.array([True])).tolist() == [[1, 2]]
    assert exported(obs, np.array([False])).tolist() == [[2, 4]]
    assert exported(obs, np.array([True])).tolist() == [[1, 2]]
    exported.reset(2)
    both = np.float32([[1, 2], [3, 4]])
    assert exported(both, np.array([True, True])).tolist() == [[1, 2], [3, 4]]
    assert exported(both, np.array([True, False])).tolist() == [[1, 2], [6, 8]]


def test_memory_that_is_not_cleared_where_episodes_begin_is_noticed(tmp_path):
    policy = policies.Policy(Remembering(), UNBOUNDED, UNBOUNDED)
    exported = exporting.write(policy, 'savedmodel', tmp_path / 'file')
    obs, first = np.ones((4, 2), np.float32), np.array([True, False, True, False])
    # Alone 1, 2, 1, 2; as the first ones of 4 rows 1, 1, 1, 1.
    assert export.compare(policy, exported, obs, first) == (
        'Largest difference in 8 actions: 0.0e+00.'
    )
    run = exported._run
    exported._run = lambda inputs: run(inputs | {'first': np.zeros_like(inputs['first'])})
    # Actions 2 and 3 are then 3 and 4 instead of 1 and 2.
    with pytest.raises(UserError, match='2 of 8 actions differ, action 2 by 2'):
        export.compare(policy, exported, obs, first)


def test_one_discrete_action_that_differs_is_too_much():
    class First(tf.Module):
        def initial(self, num_envs):
            return ()

        def perform(self, obs, first, carry, seed, training):
            return tf.cast(obs[:, 0], tf.int64), (), ()

    policy = policies.Policy(First(), UNBOUNDED, gymnasium.spaces.Discrete(9))

    class Wrong:
        def reset(self, rows):
            pass

        def __call__(self, obs, first):
            return np.where(obs[:, 0] == 3, 4, obs[:, 0]).astype(np.int64)

    obs = np.float32([[0, 0], [1, 0], [2, 0], [3, 0], [4, 0]])
    # Once alone, and once in the batch.
    with pytest.raises(UserError, match='2 of 10 actions differ, action 3 by 1'):
        export.compare(policy, Wrong(), obs, np.ones(5, bool))
    assert export.compare(policy, Wrong(), obs[:3], np.ones(3, bool)) == 'All 6 actions are equal.'


@pytest.mark.parametrize(
    ('bounds', 'offset', 'good'),
    [
        ((-2, 2), 1.9e-4, True),
        ((-2, 2), 2.1e-4, False),  # 1e-4 of half the range, which is 2.
        ((-1e6, 1e6), 90, True),
        ((-1e6, 1e6), 110, False),
        ((-0.1, 0.1), 9e-5, True),
        ((-0.1, 0.1), 1.1e-4, False),
        ((-np.inf, np.inf), 1.1e-4, False),
    ],
)
def test_a_difference_is_measured_in_the_range_of_the_action(bounds, offset, good):
    class Zero(tf.Module):
        def initial(self, num_envs):
            return ()

        def perform(self, obs, first, carry, seed, training):
            return obs[:, :1] * 0.0, (), ()

    class Off:
        def reset(self, rows):
            pass

        def __call__(self, obs, first):
            return np.full((len(obs), 1), offset, np.float32)

    space = gymnasium.spaces.Box(*bounds, (1,), np.float32)
    policy = policies.Policy(Zero(), UNBOUNDED, space)
    rows = np.zeros((3, 2), np.float32), np.ones(3, bool)
    if good:
        assert 'Largest difference in 6 actions' in export.compare(policy, Off(), *rows)
    else:
        with pytest.raises(UserError, match='6 of 6 actions differ, action 0 by'):
            export.compare(policy, Off(), *rows)


def test_frozen_statistics_keep_digits_near_a_large_mean():
    normalize = StreamingNormalize([1], clip=0.0)
    # Numbers around a mean that float32 cannot hold: its steps are 0.0625 there.
    data = 1e6 + 0.03 + np.linspace(-1, 1, 101)[:, None]
    normalize.update(tf.constant(data), tf.ones([101], tf.bool))
    x = tf.constant(data[::10], tf.float32)
    wanted = normalize.transform(x).numpy()
    normalize.freeze()
    np.testing.assert_allclose(normalize.transform(x).numpy(), wanted, atol=1e-6)


@pytest.fixture
def wrong(monkeypatch):
    """What is written returns NaN."""
    write = exporting.write

    def write_wrong(*args):
        exported = write(*args)
        run = exported._run
        exported._run = lambda inputs: {x: y * np.float32('nan') for x, y in run(inputs).items()}
        return exported

    monkeypatch.setattr(exporting, 'write', write_wrong)


@pytest.mark.parametrize('kind', ['savedmodel', 'onnx'])
def test_what_acts_differently_does_not_replace_what_is_there(make, tmp_path, capsys, kind, wrong):
    former = tmp_path / export.FORMATS[kind].file
    former.write_text('former')
    assert run_export(make('scaled'), tmp_path, kind) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert '800 of 800 actions differ, action 0 by nan' in line
    assert list(tmp_path.iterdir()) == [former] and former.read_text() == 'former'


def test_a_former_folder_is_replaced_as_a_whole(make, tmp_path):
    former = tmp_path / 'savedmodel'
    former.mkdir()
    (former / 'stale').write_text('')
    assert run_export(make('scaled'), tmp_path, 'savedmodel') == 0
    assert not (former / 'stale').exists() and (former / 'saved_model.pb').exists()
    assert list(tmp_path.iterdir()) == [former]


def test_actions_that_a_format_cannot_compute_are_told_in_one_line(tmp_path_factory, tmp_path):
    logdir = tmp_path_factory.mktemp('double')
    kwargs = '--env_kwargs={low: [-2], high: [3], dtype: float64}'
    folder = make_run(logdir, '--env=tests.scripts.export_tasks:ExportNoise-v0', kwargs)
    result = run_command(folder, tmp_path, 'tflite')
    assert result.returncode == 2 and result.stdout == ''
    (line,) = result.stderr.splitlines()
    assert "operations that tflite has: ConverterError: 'tf.Mul' op is neither" in line
    assert 'no float64' in line and '--format=savedmodel' in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('kind', ['onnx', 'tflite'])
def test_nothing_but_the_result_is_printed(make, tmp_path, kind):
    result = run_command(make('discrete'), tmp_path, kind)
    assert result.stderr == '' and result.returncode == 0
    first, second, empty, *snippet = result.stdout.splitlines()
    assert first.startswith(str(tmp_path)) and second.startswith('Inputs: ') and empty == ''
    assert len(snippet) == 3


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        (['--format=pdf'], "must be savedmodel or onnx or tflite, got 'pdf'"),
        (['--format='], '--format must be given'),
        (['--checkpoint=step-7'], 'must be newest, best, step-256 or step-128, got'),
        (['--logdir=/nowhere'], 'must be there'),
        (['--outdir=/proc/nowhere'], 'must be a folder that can be written'),
        (['--outdir=/dev/null'], 'must be a folder that can be written'),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, make, capsys, flags, message):
    folder = make('discrete')
    capsys.readouterr()
    given = [f'--logdir={folder}', f'--outdir={tmp_path}', '--format=savedmodel', *flags]
    assert export.main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('export: error: ') and message in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ('kind', 'module'),
    [('onnx', 'tf2onnx'), ('onnx', 'onnxruntime'), ('tflite', 'ai_edge_litert')],
)
def test_a_missing_converter_is_told_with_the_extra(tmp_path, capsys, monkeypatch, kind, module):
    find = export.importlib.util.find_spec
    monkeypatch.setattr(
        export.importlib.util, 'find_spec', lambda name: None if name == module else find(name)
    )
    assert run_export('x', tmp_path / 'out', kind) == 2
    message = f"needs {module}. Install it: pip install 'batch-agents[{kind}]'"
    assert message in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()
