import subprocess
import sys

CODE = """
import os, sys
from agents.scripts import quiet
try:
    with quiet.notes():
        os.write(2, b'WARNING: All log messages before absl::InitializeLog() are here\\n')
        os.write(2, b'I0000 00:00:1.5  77 port.cc:153] a note\\n')
        os.write(2, b'E0000 00:00:1.5  77 port.cc:153] an error\\n')
        print('a warning', file=sys.stderr)
        sys.exit('the end')
finally:
    print('afterwards', file=sys.stderr)
"""


def test_notes_are_held_back_and_everything_else_comes_out():
    run = subprocess.run([sys.executable, '-c', CODE], capture_output=True, text=True)
    error = 'E0000 00:00:1.5  77 port.cc:153] an error'
    assert run.stderr.splitlines() == [error, 'a warning', 'afterwards', 'the end']
    assert run.returncode == 1
