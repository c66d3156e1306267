import random
import subprocess
import sys
import time

import psutil
import pytest

from benchmarks import kills
from benchmarks.alone import environ

PARENT = """
import time
from agents import tools
from benchmarks import tasks
batch = tools.make_batch_env(tasks.maker(tasks.CART_POLE), 2, 2)
print('ready', flush=True)
time.sleep(60)
"""


def test_only_workers_are_killed():
    process = subprocess.Popen(
        [sys.executable, '-c', PARENT], stdout=subprocess.PIPE, env=environ()
    )
    try:
        assert process.stdout.readline() == b'ready\n'
        before = psutil.Process(process.pid).children()
        assert kills.kill_one(process.pid, random.Random(0))
        for _ in range(100):
            gone = [x for x in before if not x.is_running() or x.status() == 'zombie']
            if gone:
                break
            time.sleep(0.05)
        assert len(gone) == 1
    finally:
        process.kill()
        process.communicate()


def test_there_may_be_nothing_to_kill():
    process = subprocess.Popen([sys.executable, '-c', ''])
    process.wait()
    assert not kills.kill_one(process.pid, random.Random(0))


def test_a_training_that_fails_says_why(tmp_path):
    with pytest.raises(RuntimeError, match='There is no config'):
        kills.train(tmp_path, 'nothing', seed=0, every=0)
