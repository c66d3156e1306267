"""Updates that meet values that are not finite."""

import numpy as np
import pytest
import tensorflow as tf

from agents import tools
from agents.tools.in_graph_batch_env import InGraphBatchEnv
from tests.tools.fake_batch import FakeBatch, Recorder


class Failing(Recorder):
    """Fails in the updates with these numbers, counted from 1."""

    def __init__(self, updates):
        super().__init__()
        self.bad = updates
        self.count = tf.Variable(0)
        self.good = tf.Variable(0)  # Stands for the weights.

    def update(self, records, last_obs, carry, seed):
        metrics = super().update(records, last_obs, carry, seed)
        self.count.assign_add(1)
        bad = tf.reduce_any(self.count == tf.constant(self.bad))
        self.good.assign_add(1 - tf.cast(bad, tf.int32))
        loss = tf.where(bad, float('nan'), 0.5)
        failure = tf.where(bad, [2, 7, 1, 0], [0, 0, 0, 0])
        return {**metrics, 'loss': loss, 'failure': failure}


def make(bad, limit):
    algorithm = Failing(bad)
    env = InGraphBatchEnv(FakeBatch([2, 3]))
    return algorithm, tools.simulate(env, algorithm, 4, max_rolled_back=limit)


def test_a_run_goes_on_after_an_update_was_rolled_back_and_it_is_said(caplog):
    algorithm, simulation = make([2, 3, 5], 3)
    seeds, losses = [], []
    for _ in range(5):
        losses.append(simulation()['loss'])
        seeds.append(tuple(algorithm.given['seed'].tolist()))
    np.testing.assert_array_equal(losses, [0.5, np.nan, np.nan, 0.5, np.nan])
    assert (simulation.rolled_back, simulation.rolled_back_in_a_row) == (3, 1)
    assert len(set(seeds)) == 5
    assert (int(algorithm.good), int(simulation.iteration)) == (2, 5)
    lines = [x.getMessage() for x in caplog.records if x.name == 'agents.tools.simulation']
    assert [line[:32] for line in lines] == [
        f'Rolled back, {number} of at most 3 in a' for number in (1, 2, 1)
    ]
    assert 'The lung must be finite' in lines[1] and 'in update 3, minibatch 7, step 1' in lines[1]


def test_too_many_in_a_row_are_raised_with_the_last_metrics():
    algorithm, simulation = make([2, 3, 4, 5, 6], 3)
    simulation.run(3)
    match = (
        r'The lung must be finite.*in update 4, minibatch 7.*before this update\..*'
        r'rolled back in a row: 3\. Last metrics: answer=42, loss=nan'
    )
    with pytest.raises(FloatingPointError, match=match):
        simulation()
    assert int(algorithm.good) == 1
    # Whoever goes on has three tries again.
    simulation.run(2)
    assert simulation.rolled_back == 5


def test_the_limit_must_be_positive():
    with pytest.raises(ValueError, match='max_rolled_back=0'):
        make([], 0)
