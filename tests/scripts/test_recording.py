import json
import math

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.scripts import configs, recording, runs


@pytest.fixture
def run(tmp_path):
    return runs.create(str(tmp_path), 'debug', configs.debug())


def lines(run):
    return [json.loads(line) for line in (run.folder / 'metrics.jsonl').read_text().splitlines()]


def events(run, phase):
    accumulator = EventAccumulator(str(run.folder / phase), size_guidance={'tensors': 0})
    return accumulator.Reload()


def test_a_record_is_a_line_of_json_as_soon_as_it_is_written(run):
    recorder = recording.Recorder(run)
    recorder.counters.assign(seconds=1.5)
    recorder.record('train', 128, {'score': math.nan, 'loss': 0.25})
    assert lines(run) == [
        {'step': 128, 'phase': 'train', 'score': None, 'loss': 0.25, 'seconds': 1.5}
    ]
    recorder.record('eval', 128, {'score': 2.0, 'final': False})
    assert lines(run)[1]['final'] is False
    recorder.close()


def test_tensorboard_has_scalars_over_steps_and_the_config(run):
    recorder = recording.Recorder(run)
    recorder.record('train', 128, {'score': math.nan, 'loss': 0.25})
    recorder.record('eval', 256, {'score': 2.0, 'final': True})
    recorder.histograms(256, {'policy/kernel': np.array([0.0, math.nan, 3.0])})
    recorder.close()
    train, evaluation = events(run, 'train'), events(run, 'eval')
    assert sorted(train.Tags()['tensors']) == ['config', 'loss', 'policy/kernel']
    assert evaluation.Tags()['tensors'] == ['score']
    (event,) = evaluation.Tensors('score')
    assert (event.step, tf.make_ndarray(event.tensor_proto)) == (256, 2.0)
    (event,) = train.Tensors('config')
    assert b'\n| num_envs | 4 | Environments to train on' in event.tensor_proto.string_val[0]
    (event,) = train.Tensors('policy/kernel')
    # Rows of left edge, right edge, count: what is no number counts nowhere.
    buckets = tf.make_ndarray(event.tensor_proto)
    assert (buckets[:, 2].sum(), buckets[0, 0], buckets[-1, 1]) == (2, 0, 3)


def test_counters_and_state_come_back_from_the_newest_checkpoint(run):
    state = tf.Variable(1.0)
    first = recording.Recorder(run, algorithm=tf.train.Checkpoint(state=state))
    assert first.restored is None
    state.assign(5.0)
    first.counters.assign(evaluations=3, best_score=-1.5)
    first.save(256)
    state.assign(7.0)
    restored = tf.Variable(0.0)
    second = recording.Recorder(run, algorithm=tf.train.Checkpoint(state=restored))
    assert second.restored == 'step-256'
    assert restored.numpy() == 5.0
    assert (second.counters['evaluations'], second.counters['best_score']) == (3, -1.5)
    assert math.isnan(second.counters['score'])


def test_five_checkpoints_are_kept(run):
    recorder = recording.Recorder(run)
    for step in range(7):
        recorder.save(step)
    names = {path.stem for path in (run.folder / 'checkpoints').glob('*.index')}
    assert names == {'step-2', 'step-3', 'step-4', 'step-5', 'step-6'}


def test_lines_after_the_restored_checkpoint_are_dropped_at_the_next_record(run):
    crashed = recording.Recorder(run)
    crashed.record('train', 1, {'score': 1.0})
    crashed.record('eval', 1, {'score': 2.0})
    crashed.save(1)
    crashed.record('eval', 1, {'score': 3.0})
    crashed.record('train', 2, {'score': 4.0})
    with (run.folder / 'metrics.jsonl').open('a') as file:
        file.write('{"step": 3, "pha')  # Cut off in the middle.
    resumed = recording.Recorder(run)
    before = (run.folder / 'metrics.jsonl').read_text()
    assert before.endswith('"pha')  # Looking at a run changes nothing.
    resumed.record('train', 2, {'score': 5.0})
    assert [line['score'] for line in lines(run)] == [1.0, 2.0, 5.0]
    assert resumed.counters['records'] == 3
    resumed.close()
    crashed.close()


def test_without_a_run_there_are_only_counters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorder = recording.Recorder(None, algorithm=tf.Module())
    recorder.record('train', 1, {'score': 1.0})
    recorder.histograms(1, {'x': np.zeros(3)})
    recorder.save(1)
    recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_weights_are_found_in_networks_and_among_the_algorithms_own_variables():
    class Network(tf.Module):
        weights = [tf.Variable([1.0], name='kernel')]

    class Mine(tf.Module):
        def __init__(self):
            super().__init__()
            self.policy = Network()
            self.log_std = tf.Variable(0.0)
            self.count = tf.Variable(0, trainable=False)

    found = recording.weights(Mine())
    assert sorted(found) == ['log_std', 'policy/0_kernel:0']


def test_a_checkpoint_of_a_former_version_is_restored_without_a_continuation(run):
    state = tf.Variable(5.0)
    counters = recording.Counters()
    counters.assign(evaluations=3)
    older = tf.train.Checkpoint(counters=counters, algorithm=tf.train.Checkpoint(state=state))
    older.write(str(run.folder / 'checkpoints' / 'step-256'))
    restored = tf.Variable(0.0)
    recorder = recording.Recorder(run, algorithm=tf.train.Checkpoint(state=restored))
    assert (recorder.restored, recorder.continuation) == ('step-256', b'')
    assert (restored.numpy(), recorder.counters['evaluations']) == (5.0, 3)
    recorder.save(512, continuation=b'abc')
    again = recording.Recorder(run, algorithm=tf.train.Checkpoint(state=restored))
    assert (again.restored, again.continuation) == ('step-512', b'abc')
