import base64
import html.parser
import itertools
import re

import pytest

from agents.scripts import page

STATS = {
    'run': '/runs/a&b-<x>',
    'task': 'Task<b>-v0',
    'checkpoint': 'best/step-1200',
    'step': 1200,
    'training_score': 1234.5,
    'seeds': 'fresh seeds',
    'stochastic': False,
    'summary': {
        'score': -1500.125,
        'score_std': 2.5,
        'score_min': -1502.625,
        'score_max': -1497.625,
        'length': 6.5,
        'episodes': 2,
    },
    'episodes': [
        {'episode': 0, 'seed': 7, 'score': -1497.625, 'length': 4, 'end': 'terminated'},
        {'episode': 1, 'seed': 8, 'score': -1502.625, 'length': 9, 'end': 'truncated'},
    ],
}
CURVE = '<svg viewBox="0 0 9 9"><path d="M0 0L9 9"/></svg>'


class Reader(html.parser.HTMLParser):
    """Collects tags, attributes and text, and checks that tags are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self._open = [], [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ('meta',):
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append(data.strip())


@pytest.fixture
def text(tmp_path):
    videos = [tmp_path / f'{index}.mp4' for index in range(2)]
    for index, video in enumerate(videos):
        video.write_bytes(bytes([index, 255, 0]))
    config = {'env': 'Task<b>-v0', 'wrappers': '[{A: {b: "<i>"}}]'}
    return page.write(STATS, videos, '<?xml version="1.0"?>\n' + CURVE, config)


def test_videos_are_in_the_page(text):
    sources = [attributes['src'] for tag, attributes in Reader(text).tags if tag == 'video']
    head = 'data:video/mp4;base64,'
    assert [base64.b64decode(x.removeprefix(head)) for x in sources] == [
        b'\x00\xff\x00',
        b'\x01\xff\x00',
    ]


def test_nothing_is_loaded_from_elsewhere_and_no_script_runs(text):
    reader = Reader(text)
    assert 'script' not in {tag for tag, _ in reader.tags}
    assert not re.search(r'(https?:)?//', text)
    links = [value for _, x in reader.tags for name, value in x.items() if name in ('src', 'href')]
    assert links
    assert all(link.startswith('data:') for link in links)


def test_texts_are_escaped(text):
    reader = Reader(text)
    assert not {'i', 'x'} & {tag for tag, _ in reader.tags}
    assert reader.texts.count('Task<b>-v0') == 2  # The heading, and in the config.
    assert '/runs/a&b-<x>' in reader.texts
    assert '[{A: {b: "<i>"}}]' in reader.texts


def test_statistics_are_readable(text):
    texts = Reader(text).texts
    tiles = dict(itertools.pairwise(texts))
    # -1500.125 to two decimals is -1,500.12: the nearest even digit, as binary has it exactly.
    assert tiles['Mean score'] == '-1,500.12'
    assert tiles['Standard deviation'] == '2.50'
    assert tiles['Mean length'] == '6.5'
    assert '· score -1,497.62 · 4 steps, terminated' in texts
    assert texts[texts.index('8') : texts.index('8') + 4] == ['8', '-1,502.62', '9', 'truncated']
    assert (
        '1,200 steps trained · checkpoint best/step-1200 · scored 1,234.50 in training · '
        'most likely actions · fresh seeds'
    ) in texts


def test_the_curve_is_there_without_the_head_of_its_file(text):
    assert CURVE in text
    assert '<?xml' not in text


def test_light_and_dark_are_both_designed(text):
    assert '@media (prefers-color-scheme: dark)' in text
