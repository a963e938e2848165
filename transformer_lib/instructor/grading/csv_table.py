"""Tables that instructors bring: CSV as spreadsheets, Canvas or Moodle write it."""

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

from transformer_lib.errors import UserError

# A first line for Excel, which says what separates the columns and does not belong to the table.
SEPARATOR = re.compile(r"""["']?sep=(.)["']?[,;\t]*\n""", re.IGNORECASE)


@dataclass(frozen=True)
class Table:
    """A table's columns, in lower case, and its rows that have anything in them, by line."""

    columns: list[str]
    rows: list[tuple[int, dict[str, str]]]


def read_table(path: Path) -> Table:
    """Read a file in UTF-8 whose first line names its columns.

    Commas, semicolons or tabs separate them: what is most frequent in that line, or what a line
    ``sep=;`` above it says.

    Raises:
        UserError: it cannot be read, or two of its columns have the same name.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text; save it as “CSV UTF-8”") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    said = SEPARATOR.match(text)
    start = said.end() if said else 0
    separator = said[1] if said else max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text[start:], newline=""), delimiter=separator, strict=True)
    above = text.count("\n", 0, start)
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        columns = [name.strip().lower() for name in next(reader, [])]
        for values in reader:
            cells = (*map(str.strip, values), *[""] * len(columns))
            if any(cells):
                rows.append((above + reader.line_num, dict(zip(columns, cells, strict=False))))
    except csv.Error as error:
        raise UserError(f"{path}, line {above + reader.line_num}: {error}") from error
    if twice := sorted({name for name in columns if name and columns.count(name) > 1}):
        raise UserError(f"{path} has two columns {twice[0]}")
    return Table(columns, rows)
