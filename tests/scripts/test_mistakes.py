import sys

import pytest

from agents.scripts import mistakes
from agents.scripts.mistakes import UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [path for path in sys.path if path])
    return tmp_path


def test_nearest_names_come_best_first_whatever_their_case():
    known = ['Pendulum-v1', 'CartPole-v1', 'Acrobot-v1']
    assert mistakes.nearest('pendulm-v1', known) == 'Did you mean Pendulum-v1?'
    assert mistakes.nearest('cart', ['chart', 'CARD']) == 'Did you mean chart or CARD?'


def test_without_a_similar_name_a_few_are_listed_and_many_are_not():
    assert mistakes.nearest('xyz', ['b', 'a']) == 'There is a, b.'
    assert mistakes.nearest('xyz', map(str, range(100))) == 'Nothing has a similar name.'


def test_objects_are_imported_from_the_working_directory(folder):
    (folder / 'mistakes_mine.py').write_text('class Thing:\n    pass\n')
    assert mistakes.import_object('mistakes_mine:Thing', 'wrapper').__name__ == 'Thing'
    with pytest.raises(UserError, match=r'mistakes_mine has no Thin\. Did you mean Thing\?'):
        mistakes.import_object('mistakes_mine:Thin', 'wrapper')


@pytest.mark.parametrize('path', ['Thing', 'module:', ':Thing'])
def test_objects_are_written_as_module_and_name(path):
    with pytest.raises(UserError, match=f"wrapper must be written as module:name, got '{path}'"):
        mistakes.import_object(path, 'wrapper')


@pytest.mark.parametrize('name', ['mistakes_none', 'mistakes_none.sub', 'json.none'])
def test_a_module_that_is_missing_is_a_mistake_of_the_user(folder, name):
    with pytest.raises(UserError, match=f'module of the task must be importable, got {name}'):
        mistakes.import_module(name, 'the task')


def test_a_module_that_fails_keeps_its_own_exception(folder):
    (folder / 'mistakes_broken.py').write_text('import no_such_module\n')
    with pytest.raises(ModuleNotFoundError, match='no_such_module'):
        mistakes.import_module('mistakes_broken', 'the task')


@pytest.mark.parametrize(
    ('text', 'line'),
    [
        ('No space left', 'No space left.'),
        ('It is full.\nAt all.', 'It is full.'),
        (
            '{{function_node __wrapped__SaveV2_dtypes_3}} a/b; No space left [Op:SaveV2]',
            'a/b; No space left.',
        ),
    ],
)
def test_what_an_error_says_is_one_sentence(text, line):
    assert mistakes.first_line(OSError(text)) == line
