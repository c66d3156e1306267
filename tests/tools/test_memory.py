import numpy as np
import pytest
import tensorflow as tf

from agents.tools import memory


def test_what_the_system_says_is_free_is_plausible():
    assert 10 * 2**20 < memory.available() < 2**50


def test_the_limit_of_a_control_group_counts_less_what_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, '_CGROUP', tmp_path)
    free = memory.available()
    (tmp_path / 'memory.max').write_text('max\n')
    (tmp_path / 'memory.current').write_text('4096\n')
    assert memory.available() == pytest.approx(free, rel=0.2)
    (tmp_path / 'memory.max').write_text('10000\n')
    assert memory.available() == 10000 - 4096


def test_tensors_that_fit_pass_and_others_are_named(monkeypatch):
    monkeypatch.setattr(memory, 'available', lambda: 3 * 2**30)
    tensors = [np.zeros(2**10, np.float32), tf.TensorSpec([2**10, 3], tf.int32)]  # 16 KiB.
    memory.check(tensors, 3 * 2**16, 'All', 'Use less.')  # 3 GiB.
    with pytest.raises(MemoryError, match=r'All must fit .* least 4.0 GiB, and 3.0 .* Use less.'):
        memory.check(tensors, 4 * 2**16, 'All', 'Use less.')


def test_where_the_system_says_nothing_everything_passes(monkeypatch):
    monkeypatch.setattr(memory, 'available', lambda: None)
    memory.check([np.zeros(1)], 10**20, 'All', 'Use less.')
