"""Command line flags from dataclasses: every field is a flag, checked by its type."""

import contextlib
import dataclasses
import io
import typing
from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from agents.scripts.config import annotations, convert
from agents.scripts.mistakes import UserError, nearest

_BOOLS = {'true': True, '1': True, 'yes': True, 'false': False, '0': False, 'no': False}


def parse(argv: Sequence[str], *classes: type) -> dict[str, Any]:
    """Read flags such as `--learning_rate=3e-4` or `--learning-rate 3e-4`.

    Names are never abbreviated. A truth value is written `--flag`, `--noflag` or `--flag=false`, a
    tuple `--flag=64,64`, a mapping as YAML, `--flag='{name: value}'`.

    Args:
        argv: Command line without the program's name.
        *classes: Dataclasses; each of their fields is a flag.

    Returns:
        Values by name of the field, only of the flags that were given; `help` is True if asked for.

    Raises:
        UserError: A flag is unknown, lacks its value, or its value is of another type.
    """
    kinds = {name: kind for cls in classes for name, kind in annotations(cls).items()}
    given: dict[str, Any] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word in ('-h', '--help'):
            given['help'] = True
            continue
        if not word.startswith('--') or word == '--':
            raise UserError(f'Flags must be written --name=value, got {word!r}.')
        written, equals, text = word[2:].partition('=')
        name, negated = _resolve(written, kinds)
        if kinds[name] is bool and not equals:
            given[name] = not negated
            continue
        if negated:
            raise UserError(f'--{written} takes no value, got {word!r}.')
        if not equals:
            if not rest or rest[0].startswith('--'):
                raise UserError(f'--{name} must have a value: --{name}=VALUE.')
            text = rest.pop(0)
        given[name] = _value(name, text, kinds[name])
    return given


def describe(usage: str, *instances: Any) -> str:
    """Write the text of `--help`.

    Args:
        usage: What comes first.
        *instances: Dataclasses whose fields are the flags; their values are shown as defaults.
    """
    lines = [usage.rstrip(), '']
    for instance in instances:
        lines.append(f'{type(instance).__name__}:')
        for field in dataclasses.fields(instance):
            flag = f'  --{field.name}={to_text(getattr(instance, field.name))}'
            separator = '\n' + ' ' * 36 if len(flag) > 35 else ' ' * (36 - len(flag))
            lines.append(f'{flag}{separator}{field.metadata["help"]}')
        lines.append('')
    return '\n'.join(lines)


def to_text(value: Any) -> str:
    """Write a value as `parse` reads it."""
    if value is None:
        return 'none'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, tuple) and not any(isinstance(item, dict) for item in value):
        return ','.join(map(str, value))
    stream = io.StringIO()
    yaml = YAML(typ='safe', pure=True)
    yaml.default_flow_style = True
    yaml.width = 10_000
    yaml.dump(list(value) if isinstance(value, tuple) else value, stream)
    return stream.getvalue().strip()


def _resolve(written: str, kinds: dict[str, Any]) -> tuple[str, bool]:
    """Find the field that a flag means, and whether a `no` stands before it."""
    name = written.replace('-', '_')
    if name in kinds:
        return name, False
    positive = name.removeprefix('no').removeprefix('_')
    if name.startswith('no') and kinds.get(positive) is bool:
        return positive, True
    hint = nearest(f'--{name}', [f'--{known}' for known in [*kinds, 'help']])
    raise UserError(f'There is no flag --{written}. {hint} --help shows all flags.')


def _value(name: str, text: str, kind: Any) -> Any:
    """Read the text of a flag as its type."""
    if kind is str:
        return text
    if kind is bool:
        if text.lower() not in _BOOLS:
            raise UserError(f'{name} must be true or false, got {name}={text!r}.')
        return _BOOLS[text.lower()]
    origin = typing.get_origin(kind)
    if origin is dict:
        return convert(name, _yaml(name, text) or {}, kind)
    if origin is tuple:
        bare = not text.lstrip().startswith('[')
        return convert(name, _yaml(name, f'[{text}]' if bare else text), kind)
    if text.lower() in ('none', 'null', 'nan') and kind not in (int, float):
        return None
    # Exact for whole numbers of any size; 1e6 is one of them as well.
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return convert(name, number(text), kind)
    return convert(name, text, kind)


def _yaml(name: str, text: str) -> Any:
    try:
        return YAML(typ='safe', pure=True).load(text)
    except YAMLError as error:
        problem = getattr(error, 'problem', None) or 'it cannot be read'
        raise UserError(
            f'{name} must be written as YAML, got {name}={text!r}: {problem}.'
        ) from None
