import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

import agents
from agents.parts.normalize import StreamingNormalize
from agents.scripts import export, exporting, policies, train

SNIPPETS = {
    'savedmodel': """
import tensorflow as tf
act = tf.saved_model.load('savedmodel').signatures['serving_default']
action = act(obs=tf.constant(obs))['action'].numpy()
""",
    'onnx': """
import onnxruntime
session = onnxruntime.InferenceSession('policy.onnx')
(action,) = session.run(['action'], {'obs': obs})
""",
    'tflite': """
from ai_edge_litert.interpreter import Interpreter
act = Interpreter('policy.tflite').get_signature_runner()
action = act(obs=obs)['action']
""",
}
in_every_format = pytest.mark.parametrize('kind', SNIPPETS)


@pytest.fixture(scope='module', params=['CartPole-v1', 'Pendulum-v1', 'InvertedPendulum-v5'])
def folder(request, tmp_path_factory):
    if request.param.startswith('Inverted'):
        pytest.importorskip('mujoco')
    logdir = tmp_path_factory.mktemp('logdir')
    flags = ['--config=debug', f'--env={request.param}', '--timestamp=a', f'--logdir={logdir}']
    assert train.main(flags) == 0
    return logdir / 'a-debug'


@in_every_format
def test_a_file_acts_like_the_policy_without_this_package(folder, tmp_path, capsys, kind):
    assert export.main([f'--logdir={folder}', f'--outdir={tmp_path}', f'--format={kind}']) == 0
    name = {'savedmodel': 'savedmodel'}.get(kind, f'policy.{kind}')
    assert f'{tmp_path / name}: ' in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == [name]
    policy = agents.load(folder)
    obs = np.random.default_rng(0).normal(size=(1, *policy.observation_space.shape))
    np.save(tmp_path / 'obs.npy', obs.astype(policy.observation_space.dtype))
    code = f"""
import sys, numpy
obs = numpy.load('obs.npy')
{SNIPPETS[kind]}
assert 'agents' not in sys.modules
numpy.save('action.npy', action)
"""
    subprocess.run([sys.executable, '-c', code], cwd=tmp_path, check=True)
    action = np.load(tmp_path / 'action.npy')
    assert action.dtype == policy.action_space.dtype
    np.testing.assert_allclose(action, policy(obs), atol=1e-6)


class Remembering(tf.Module):
    """Acts by the sum of the observations of the episode."""

    def initial(self, num_envs):
        return {'sum': tf.zeros([num_envs, 2])}

    def perform(self, obs, first, carry, seed, training):
        total = tf.where(first[:, None], 0.0, carry['sum']) + obs
        return total, (), {'sum': total}


@in_every_format
def test_a_policy_with_memory_takes_and_returns_it(tmp_path, kind):
    box = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    policy = policies.Policy(Remembering(), box, box)
    exported = exporting.write(policy, kind, tmp_path / 'file')
    obs = np.float32([[1, 2]])
    assert exported(obs, np.array([True])).tolist() == [[1, 2]]
    assert exported(obs, np.array([False])).tolist() == [[2, 4]]
    assert exported(obs, np.array([True])).tolist() == [[1, 2]]


def test_frozen_statistics_keep_digits_near_a_large_mean():
    normalize = StreamingNormalize([1], clip=0.0)
    # Numbers around a mean that float32 cannot hold: its steps are 0.0625 there.
    data = 1e6 + 0.03 + np.linspace(-1, 1, 101)[:, None]
    normalize.update(tf.constant(data), tf.ones([101], tf.bool))
    x = tf.constant(data[::10], tf.float32)
    wanted = normalize.transform(x).numpy()
    normalize.freeze()
    np.testing.assert_allclose(normalize.transform(x).numpy(), wanted, atol=1e-6)


def test_a_file_that_acts_differently_is_not_kept(tmp_path, folder, capsys, monkeypatch):
    write = exporting.write

    def write_wrong(*args):
        exported = write(*args)
        return lambda obs, first: exported(obs, first) * np.float32('nan')

    monkeypatch.setattr(exporting, 'write', write_wrong)
    assert export.main([f'--logdir={folder}', f'--outdir={tmp_path}', '--format=onnx']) == 2
    assert 'action 0 differs by nan' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        (['--format=pdf'], "must be savedmodel or onnx or tflite, got 'pdf'"),
        (['--format='], '--format must be given'),
        (['--checkpoint=step-7'], 'must be newest, best, step-1024 or step-512, got'),
        (['--logdir=/nowhere'], 'must be there'),
        (['--outdir=/proc/nowhere'], 'must be a folder that can be written'),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, folder, capsys, flags, message):
    if 'CartPole' not in (folder / 'config.yaml').read_text():
        pytest.skip('once is enough')
    given = [f'--logdir={folder}', f'--outdir={tmp_path}', '--format=savedmodel', *flags]
    assert export.main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('export: error: ') and message in line
    assert not list(tmp_path.iterdir())


def test_a_missing_converter_is_told_with_the_extra(tmp_path, capsys, monkeypatch):
    find = export.importlib.util.find_spec
    monkeypatch.setattr(
        export.importlib.util, 'find_spec', lambda name: None if name == 'tf2onnx' else find(name)
    )
    assert export.main(['--logdir=x', f'--outdir={tmp_path}', '--format=onnx']) == 2
    assert "needs tf2onnx. Install it: pip install 'batch-agents[onnx]'" in capsys.readouterr().err
