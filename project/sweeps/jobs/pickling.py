"""Pickling of task functions that cannot be imported, such as closures, with the file names of their code kept."""

import io
import types
from typing import Any

import cloudpickle


class _Pickler(cloudpickle.Pickler):
    """Keeps a code object's file name, which cloudpickle replaces, so that tracebacks show the source."""

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child()


def _reduce_code(code: types.CodeType) -> Any:
    make, arguments, *rest = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return (_with_file, (make, arguments, code.co_filename), *rest)


def _with_file(make: Any, arguments: tuple[Any, ...], file: str) -> types.CodeType:
    code: types.CodeType = make(*arguments)
    return code.replace(co_filename=file)


_Pickler.dispatch_table[types.CodeType] = _reduce_code


def dumps(value: Any) -> bytes:
    """Pickles by reference where that is possible, else by value."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()
