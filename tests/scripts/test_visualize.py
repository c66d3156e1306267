import dataclasses
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

import agents
from agents.scripts import (
    player,
    policies,
    runs,
    saved_spaces,
    summaries,
    train,
    trainer,
    visualize,
)
from agents.scripts.mistakes import UserError

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser')


def make_run(folder, *flags):
    given = ['--config=debug', '--timestamp=a', f'--logdir={folder}', '--compile=off', *flags]
    assert train.main(given) == 0
    return runs.open_folder(str(folder / 'a-debug'))


@pytest.fixture(scope='module')
def cart_pole(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp('cart_pole'))


@pytest.fixture(scope='module')
def pendulum(tmp_path_factory):
    """A task with a time limit, and actions that are repeated."""
    folder = tmp_path_factory.mktemp('pendulum')
    return make_run(folder, '--env=Pendulum-v1', '--wrappers={ActionRepeat: {amount: 2}}')


@pytest.fixture(scope='module')
def shown(cart_pole, tmp_path_factory):
    folder = tmp_path_factory.mktemp('shown') / 'deep' / 'folder'
    assert show(cart_pole, folder, '--num_episodes=3', '--num_envs=2') == 0
    return folder


def show(run, folder, *flags):
    return visualize.main([f'--logdir={run.folder}', f'--outdir={folder}', *flags])


def stats_of(folder):
    return json.loads((folder / 'stats.json').read_text())


def read(path):
    reader = imageio_ffmpeg.read_frames(str(path))
    meta = next(reader)
    width, height = meta['size']
    frames = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]
    return meta, np.stack(frames)


def replay(run, env, seed):
    """Play an episode with the loaded policy and nothing else: score and length."""
    policy = agents.load(run.folder)
    obs, _ = env.reset(seed=seed)
    rewards = []
    while True:
        obs, reward, terminated, truncated, _ = env.step(policy(obs))
        rewards.append(np.float32(reward))
        if terminated or truncated:
            return np.sum(rewards, dtype=np.float32), len(rewards)


def test_each_episode_has_its_files(shown):
    expected = [f'episode-{index}.{suffix}' for index in range(3) for suffix in ('mp4', 'png')]
    assert sorted(x.name for x in shown.iterdir()) == [*expected, 'index.html', 'stats.json']


def test_statistics_are_those_of_an_independent_replay(cart_pole, shown):
    stats = stats_of(shown)
    env = gymnasium.make('CartPole-v1')
    for episode in stats['episodes']:
        score, length = replay(cart_pole, env, episode['seed'])
        assert (episode['score'], episode['length']) == (score, length)
        assert episode['end'] == 'terminated'
    scores = np.array([episode['score'] for episode in stats['episodes']])
    summary = stats['summary']
    assert summary['score'] == pytest.approx(scores.mean(), rel=1e-12)
    assert summary['score_std'] == pytest.approx(scores.std(), rel=1e-12)
    assert (summary['score_min'], summary['score_max']) == (scores.min(), scores.max())
    assert stats['run'] == str(cart_pole.folder)
    assert (stats['task'], stats['step']) == ('CartPole-v1', 1024)
    assert stats['checkpoint'] == 'step-1024'


def test_videos_show_every_step(shown):
    for index, episode in enumerate(stats_of(shown)['episodes']):
        meta, frames = read(shown / f'episode-{index}.mp4')
        # CartPole is 600 x 400 at 50 frames per second; one more frame than steps.
        assert (meta['size'], meta['fps'], meta['codec']) == ((600, 400), 50, 'h264')
        assert len(frames) == episode['length'] + 1
        assert meta['duration'] == pytest.approx(len(frames) / 50, abs=0.03)
        assert frames.mean() > 200  # White, but for cart and pole.
        moved = np.abs(frames[0].astype(int) - frames[-1]) > 50
        assert 100 < moved.sum() < moved.size / 4
        columns = min(4, len(frames))
        assert Image.open(shown / f'episode-{index}.png').width == columns * 328 + 8


def test_inner_frames_of_repeated_actions_are_filmed(pendulum, tmp_path, capsys):
    assert show(pendulum, tmp_path, '--num_episodes=1', '--checkpoint=best') == 0
    stats = stats_of(tmp_path)
    (episode,) = stats['episodes']
    # 200 steps of the pendulum in 100 actions.
    assert (episode['length'], episode['end']) == (100, 'truncated')
    meta, frames = read(tmp_path / 'episode-0.mp4')
    assert (len(frames), meta['fps']) == (201, 30)
    records = map(json.loads, (pendulum.folder / 'metrics.jsonl').read_text().splitlines())
    best = max(x['score'] for x in records if x['phase'] == 'eval')
    assert stats['training_score'] == best
    assert stats['checkpoint'].startswith('best/step-')
    assert stats['seeds'] == 'fresh seeds, of neither training nor evaluation'
    assert re.search(
        rf'Mean score {episode["score"]:,.2f} ± 0.00 of best/step-', capsys.readouterr().out
    )


def test_a_robot_is_filmed(tmp_path):
    pytest.importorskip('mujoco')
    run = make_run(tmp_path, '--env=InvertedPendulum-v5')
    assert show(run, tmp_path / 'out', '--num_episodes=2', '--num_envs=2') == 0
    for index, episode in enumerate(stats_of(tmp_path / 'out')['episodes']):
        meta, frames = read(tmp_path / 'out' / f'episode-{index}.mp4')
        # 480 x 480 at 25 frames per second, as the task says.
        assert (meta['size'], meta['fps']) == ((480, 480), 25)
        assert len(frames) == episode['length'] + 1
        assert frames.std() > 5
        assert (np.abs(frames[0].astype(int) - frames[-1]) > 30).sum() > 100


def test_an_evaluation_of_the_training_is_played_again_exactly(cart_pole, tmp_path):
    config = visualize.to_play(runs.load_config(cart_pole), env_processes=False)
    restored = policies.restore(cart_pole, config, *saved_spaces.load(cart_pole))
    count, number = config.final_eval_episodes, restored.evaluations - 1
    seeds = [trainer.eval_seed(config.seed, number, index) for index in range(count)]
    config = dataclasses.replace(config, num_workers=0)
    episodes = player.play(
        config, restored.algorithm, seeds, config.eval_envs, tmp_path, recorded=seeds[3:5]
    )
    record = json.loads((cart_pole.folder / 'metrics.jsonl').read_text().splitlines()[-1])
    summary = summaries.summarize(*episodes)
    assert record['final']
    assert {name: record[name] for name in summary} == summary
    assert sorted(int(path.stem) for path in tmp_path.glob('*.mp4')) == sorted(seeds[3:5])


def test_seeds_are_fresh_and_differ_by_the_flag():
    evaluated = {trainer.eval_seed(0, number, i) for number in range(20) for i in range(20)}
    shown = {player.play_seed(0, other, i) for other in (None, 0, 1) for i in range(20)}
    assert len(evaluated) == 400
    assert len(shown) == 60
    assert not evaluated & shown
    assert player.play_seed(0, None, 3) != player.play_seed(1, None, 3)


def test_processes_change_no_result_and_sampling_does(cart_pole, shown, tmp_path):
    flags = ['--num_episodes=3', '--num_envs=3']
    assert show(cart_pole, tmp_path / 'a', *flags, '--env_processes') == 0
    assert show(cart_pole, tmp_path / 'b', *flags, '--stochastic') == 0
    assert show(cart_pole, tmp_path / 'c', *flags, '--stochastic') == 0
    usual, spread, sampled, again = (
        stats_of(folder)['episodes'] for folder in (shown, *(tmp_path / x for x in 'abc'))
    )
    assert usual == spread
    assert sampled == again
    assert [x['score'] for x in usual] != [x['score'] for x in sampled]


def test_complete_results_replace_earlier_ones(cart_pole, tmp_path):
    for name in ('episode-0.mp4', 'episode-7.png', 'stats.json', 'notes.txt', 'episode-x.mp4'):
        (tmp_path / name).write_text('old')
    assert show(cart_pole, tmp_path, '--num_episodes=1', '--seed=3') == 0
    assert {x.name for x in tmp_path.iterdir()} == {
        *('episode-0.mp4', 'episode-0.png', 'index.html', 'stats.json'),
        *('notes.txt', 'episode-x.mp4'),  # Not from here.
    }
    assert len(stats_of(tmp_path)['episodes']) == 1


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--outdir=o'], '--logdir must be given'),
        (['--logdir={run}'], '--outdir must be given'),
        (['--logdir={run}/none', '--outdir=o'], 'folder of a run must be there'),
        (['--logdir={run}/..', '--outdir=o'], 'must hold a config.yaml'),
        (['--logdir={run}', '--outdir={run}/config.yaml'], 'outdir must be a folder that can be'),
        (['--logdir={run}', '--outdir=/proc/x'], 'outdir must be a folder that can be written'),
        (['--logdir={run}', '--outdir=o', '--checkpoint=step-7'], 'got checkpoint=step-7'),
        (['--logdir={run}', '--outdir=o', '--num_episodes=0'], 'got num_episodes=0'),
        (['--logdir={run}', '--outdir=o', '--seed=-1'], 'seed must be at least 0'),
        (['--logdir={run}', '--outdir=o', '--steps=3'], 'no flag --steps'),
    ],
)
def test_mistakes_are_told_in_a_line_and_change_nothing(
    cart_pole, tmp_path, monkeypatch, capsys, flags, message
):
    monkeypatch.chdir(tmp_path)
    before = sorted(cart_pole.folder.rglob('*'))
    assert visualize.main([flag.format(run=cart_pole.folder) for flag in flags]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count('\n') == 1
    assert list(tmp_path.iterdir()) == []
    assert sorted(cart_pole.folder.rglob('*')) == before


def test_a_run_without_a_checkpoint_is_told(cart_pole, tmp_path, capsys):
    shutil.copytree(cart_pole.folder, tmp_path / 'b-debug')
    shutil.rmtree(tmp_path / 'b-debug' / 'checkpoints')
    run = runs.open_folder(str(tmp_path / 'b-debug'))
    assert show(run, tmp_path / 'out') == 2
    assert 'must have a checkpoint' in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('code', [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_in_a_line_and_changes_nothing(
    shown, cart_pole, tmp_path, monkeypatch, capsys, code
):
    def play(*arguments):
        raise OSError(code, os.strerror(code), 'episode.mp4')

    shutil.copytree(shown, tmp_path / 'out')
    before = {path.name: path.read_bytes() for path in (tmp_path / 'out').iterdir()}
    monkeypatch.setattr(player, 'play', play)
    assert show(cart_pole, tmp_path / 'out') == 2
    assert re.fullmatch(r'visualize: error: .*episode.mp4.*\n', capsys.readouterr().err)
    assert {path.name: path.read_bytes() for path in (tmp_path / 'out').iterdir()} == before


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_half_done(cart_pole, shown, tmp_path, signum):
    shutil.copytree(shown, tmp_path / 'out')
    before = {path.name: path.read_bytes() for path in (tmp_path / 'out').iterdir()}
    flags = [f'--logdir={cart_pole.folder}', f'--outdir={tmp_path / "out"}', '--num_episodes=9999']
    # Its own group, so that the whole of it is asked to stop, as a terminal does.
    process = subprocess.Popen(
        [sys.executable, '-m', 'agents.scripts.visualize', *flags],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list((tmp_path / 'out').glob('.visualize-*/*.png')):
        assert process.poll() is None
    os.killpg(process.pid, signum)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signum, err
    assert 'Stopped before everything was written.' in err
    assert {path.name: path.read_bytes() for path in (tmp_path / 'out').iterdir()} == before


def test_a_folder_that_was_made_in_vain_is_removed(tmp_path):
    with pytest.raises(OverflowError), visualize.replacing(str(tmp_path / 'out')) as folder:
        (folder / 'half').write_text('half')
        raise OverflowError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / 'file').touch()
    with (
        pytest.raises(UserError, match='Not a directory'),
        visualize.replacing(str(tmp_path / 'file' / 'out')),
    ):
        pass


@pytest.mark.parametrize('there', [False, True])
def test_a_log_of_mujoco_is_removed_unless_it_was_there(tmp_path, monkeypatch, there):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / 'MUJOCO_LOG.TXT'
    if there:
        log.write_text('mine')

    def play(arguments):
        with log.open('a') as file:
            file.write('a warning')
        raise UserError('enough')

    monkeypatch.setattr(visualize, 'visualize', play)
    assert visualize.main(['--logdir=r', '--outdir=o']) == 2
    assert log.exists() == there


def test_help_shows_the_flags(capsys):
    assert visualize.main(['--help']) == 0
    out = capsys.readouterr().out
    assert all(f'--{x.name}=' in out for x in dataclasses.fields(visualize.Arguments))


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason='there is no chromium')
def test_a_browser_plays_the_page(shown, tmp_path):
    report = """
    <script>addEventListener('load', () => setTimeout(() => { document.title = JSON.stringify(
      [...document.querySelectorAll('video')].map(x => [x.readyState, x.videoWidth, x.duration]))
    }, 2000))</script>"""
    file = tmp_path / 'index.html'
    file.write_text((shown / 'index.html').read_text() + report)
    command = [CHROMIUM, '--headless', '--no-sandbox', '--disable-gpu', '--no-first-run']
    command += ['--disable-background-networking', '--disable-component-update', '--disable-sync']
    command += [f'--user-data-dir={tmp_path / "profile"}', '--virtual-time-budget=5000']
    dom = subprocess.run(
        [*command, '--dump-dom', file.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    loaded = json.loads(re.search('<title>(.*?)</title>', dom)[1])
    lengths = [episode['length'] for episode in stats_of(shown)['episodes']]
    assert len(loaded) == 3
    for (state, width, duration), length in zip(loaded, lengths, strict=True):
        assert state >= 2  # There is a frame to show.
        assert width == 600
        assert duration == pytest.approx((length + 1) / 50, abs=0.05)
