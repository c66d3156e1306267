"""Measure in a fresh process, so that no thread pool, allocator or import disturbs another.

python3 -m benchmarks.alone MODULE:FUNCTION KWARGS calls the function with keyword arguments in
JSON and prints what it returns as the last line.
"""

import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]


def environ() -> dict[str, str]:
    """Return an environment in which Python finds this checkout, from any working directory."""
    paths = [str(ROOT), os.environ.get('PYTHONPATH', '')]
    return {
        'TF_CPP_MIN_LOG_LEVEL': '2',
        **os.environ,
        'PYTHONPATH': os.pathsep.join(filter(None, paths)),
    }


def measure(function: Callable[..., float], kwargs: dict[str, Any], timeout: float = 300) -> float:
    """Call a module's function in a process of its own and return its figure.

    Args:
        function: Function of an importable module.
        kwargs: Keyword arguments that JSON can hold.
        timeout: Longest time in seconds.

    Raises:
        RuntimeError: The process fails; its standard error is the message.
        subprocess.TimeoutExpired: It takes too long.
    """
    name = f'{function.__module__}:{function.__name__}'
    command = [sys.executable, '-m', 'benchmarks.alone', name, json.dumps(kwargs)]
    # Files, for a pipe would stay open in what the process leaves behind.
    with tempfile.TemporaryFile('w+') as output, tempfile.TemporaryFile('w+') as errors:
        process = subprocess.Popen(
            command, env=environ(), stdout=output, stderr=errors, start_new_session=True
        )
        try:
            code = process.wait(timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # With its environments' processes.
            process.wait()
            raise
        output.seek(0)
        errors.seek(0)
        if code:
            raise RuntimeError(f'{name} ended with exit code {code}.\n{errors.read()}')
        return float(json.loads(output.read().splitlines()[-1]))


def main(name: str, kwargs: str) -> None:
    module, function = name.split(':')
    value = getattr(importlib.import_module(module), function)(**json.loads(kwargs))
    print(f'\n{json.dumps(value)}')


if __name__ == '__main__':
    main(*sys.argv[1:])
