"""Mistakes in what a user asked for: told in one line, without a traceback."""

import difflib
import importlib
import os
import re
import sys
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """What a user asked for cannot be done; the message is all that they need."""


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, as a sentence.

    Args:
        error: The error; what TensorFlow adds about its operations is left out.
    """
    line = str(getattr(error, 'message', error)).partition('\n')[0]
    text = re.sub(r'\{\{.*?\}\} *| *\[Op:\w*\]', '', line)
    return text if text.endswith('.') else f'{text}.'


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which of the known names were probably meant.

    Args:
        name: What was asked for.
        known: What there is.

    Returns:
        A sentence to append to an error: the nearest names, or all of a few.
    """
    spelling = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), spelling, n=3, cutoff=0.6)
    if close:
        return f'Did you mean {" or ".join(spelling[other] for other in close)}?'
    if 0 < len(spelling) <= 12:
        return f'There is {", ".join(sorted(spelling.values()))}.'
    return 'Nothing has a similar name.'


def import_module(name: str, what: str) -> Any:
    """Import a user's module, also from the working directory.

    An exception raised inside the module is the user's own and keeps its traceback.

    Args:
        name: Dotted name of the module.
        what: What it was needed for, as the subject of the error.

    Raises:
        UserError: There is no such module.
    """
    # A console script, unlike `python3 -m`, does not look in the working directory.
    if not {'', os.getcwd()} & set(sys.path):
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only if it is this module that is missing, not one that it imports.
        if error.name is None or not f'{name}.'.startswith(f'{error.name}.'):
            raise
        raise UserError(
            f'The module of {what} must be importable, got {name}, which is neither installed '
            f'nor in {os.getcwd()}.'
        ) from None


def import_object(path: str, what: str) -> Any:
    """Import 'module:name'.

    Args:
        path: Dotted name of a module, a colon, and a name in it.
        what: What it was needed for, as the subject of the error.

    Raises:
        UserError: There is no such module, or no such name in it.
    """
    module_name, _, name = path.partition(':')
    if not module_name or not name:
        raise UserError(f'The {what} must be written as module:name, got {path!r}.')
    module = import_module(module_name, f'the {what}')
    if not hasattr(module, name):
        names = [other for other in vars(module) if not other.startswith('_')]
        raise UserError(f'The module {module_name} has no {name}. {nearest(name, names)}')
    return getattr(module, name)
