import math
import sys

from agents.scripts.progress import Progress

TRAIN = {'score': -12.345, 'steps_per_second': 1234.6}
EVAL = {'score': 20.0, 'score_std': 1.5, 'episodes': 8, 'cut': 0}


def test_without_a_terminal_there_are_plain_lines(capsys):
    progress = Progress(1000)
    progress.begin(0, finished=False)
    progress.advance(100, 1.0, 0.5)
    progress.record('train', 100, TRAIN)
    progress.record('eval', 100, EVAL)
    progress.record('eval', 100, {**EVAL, 'cut': 2})
    progress.close()
    out, err = capsys.readouterr()
    assert [' '.join(line.split()) for line in out.splitlines()] == [
        'step 100 train score -12.35 1,235 steps/s',
        'step 100 eval score 20.00 ± 1.50 over 8 episodes',
        'step 100 eval score 20.00 ± 1.50 over 8 episodes, 2 of them cut',
    ]
    assert err == ''


def test_on_a_terminal_the_bar_stands_for_training(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, 'isatty', lambda: True)
    progress = Progress(1000)
    progress.begin(500, finished=False)
    progress.advance(600, 3.25, 0.5)
    progress.record('train', 600, TRAIN)
    progress.record('eval', 600, EVAL)
    progress.close()
    out, err = capsys.readouterr()
    assert [line.split()[:3] for line in out.splitlines()] == [
        ['Going', 'on', 'at'],
        ['step', '600', 'eval'],
    ]
    assert '600/1.00k' in err
    assert 'score=3.25' in err


def test_a_quiet_one_shows_nothing(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, 'isatty', lambda: True)
    progress = Progress(1000, quiet=True)
    progress.begin(500, finished=False)
    progress.advance(600, math.nan, 0.5)
    progress.record('eval', 600, EVAL)
    progress.say('word')
    progress.close()
    assert capsys.readouterr() == ('', '')


def test_the_summary_counts_speed_without_the_first_update(capsys):
    progress = Progress(1000)
    progress.begin(0, finished=False)
    assert progress.summary() == [('Steps', '0')]
    progress.advance(100, 1.0, 10.0)
    progress.advance(200, 1.0, 1.0)
    progress.advance(300, 1.0, 3.0)
    progress.scores(1.0, 2.5, 200)
    # (100 + 100) / (1 + 3) = 50.
    assert progress.summary() == [
        ('Steps', '300, 50 per second'),
        ('Last score', '1.00'),
        ('Best score', '2.50 at step 200'),
    ]
