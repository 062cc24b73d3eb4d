"""Read the files in which the server keeps records: streams and tokens."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ballcast.core.errors import InputError
from ballcast.core.files import read_json

Row = TypeVar("Row", bound=BaseModel)


def read_rows(path: Path, what: str, model: type[Row]) -> list[Row]:
    """Read a JSON file with a list of records.

    Args:
        path: of the file.
        what: the name of its records, for errors.
        model: of a record; unknown keys and wrong types are errors.

    Returns:
        The records.

    Raises:
        InputError: the file is not one of such records.
    """
    rows = read_json(path, what)
    if not isinstance(rows, list):
        raise InputError(f"{path}: is not a file of {what}; delete it, and add them again")
    try:
        return [model.model_validate(row, strict=True) for row in rows]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        fault = f"{place}: {first['msg']}" if place else first["msg"]
        raise InputError(f"{path}: {fault}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
