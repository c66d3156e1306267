import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).parent.parent / 'README.md'


def snippets(language):
    return re.findall(rf'```{language}\n(.*?)```', README.read_text(), re.DOTALL)


def test_the_snippet_in_python_runs_as_written():
    (code,) = snippets('python')
    run = subprocess.run(
        [sys.executable, '-c', code], check=True, capture_output=True, text=True, timeout=120
    )
    scores = re.findall(r'score (-?[\d.]+), \d+ steps/s', run.stdout)
    assert len(scores) == 10
    assert all(-2000 < float(score) < 0 for score in scores)


def test_the_snippet_in_python_runs_in_a_notebook():
    nbclient = __import__('nbclient')
    nbformat = __import__('nbformat')
    (code,) = snippets('python')
    cells = [nbformat.v4.new_code_cell(part) for part in code.split('\n\n')]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name='python3').execute()
    output = ''.join(x['text'] for x in cells[-1]['outputs'] if x['output_type'] == 'stream')
    assert len(re.findall(r'score -?[\d.]+', output)) == 10


def test_the_first_commands_are_the_documented_ones():
    first, second = snippets('')[0].strip().splitlines()
    assert first.startswith('pip install -e . && python3 -m agents.scripts.train')
    assert second == "pip install -e '.[dev]' && pytest"


def test_every_training_command_is_understood():
    import shlex

    from agents.scripts import configs, flags, train

    commands = ''.join(snippets('')[1:2]).replace('\\\n', ' ').strip().splitlines()
    assert len(commands) == 5
    for command in commands:
        arguments = shlex.split(command)
        assert arguments[:3] == ['python3', '-m', 'agents.scripts.train']
        given = flags.parse(arguments[3:], train.Arguments, configs.Config)
        assert given['config'] in configs.TASKS
        fields = {name for name in given if name not in ('config', 'logdir')}
        configs.Config(**{name: given[name] for name in fields})
