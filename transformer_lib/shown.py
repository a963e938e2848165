"""Text that others wrote, made safe for a terminal, a page and a table. The one place for it."""

import unicodedata

HIDDEN_KINDS = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
"""Unicode's control and format characters, surrogates, private ones, odd ends of lines."""
FORMULA = tuple("=+-@\t\r") + tuple("\uff1d\uff0b\uff0d\uff20")  # and the same in full width


def plain(text: str, most: int | None = None) -> str:
    """The text with every character that cannot be seen as itself written as an escape.

    Escape sequences of terminals, marks that turn the direction of writing, characters without a
    width and halves of characters come out as ``\\x1b``, ``\\u202e`` and so on. Tabs, ends of lines
    and the joiner of emoji stay.

    Args:
        most: how many characters to keep; what was cut is said.
    """
    if most is not None and len(text) > most:
        text = f"{text[:most]} … ({len(text) - most:,} more characters)"
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def one_line(text: str, most: int = 400) -> str:
    """The same in one line."""
    return " ".join(plain(text, most).split())


def _visible(character: str) -> str:
    if character in "\n\t\u200c\u200d" or unicodedata.category(character) not in HIDDEN_KINDS:
        return character
    return character.encode("unicode_escape").decode()


def table_cell(text: str) -> str:
    """For a CSV file: one line, and nothing that a spreadsheet takes for a formula.

    As OWASP recommends, such a text begins with an apostrophe
    (https://owasp.org/www-community/attacks/CSV_Injection).
    """
    text = one_line(text)
    return f"'{text}" if text.startswith(FORMULA) else text
