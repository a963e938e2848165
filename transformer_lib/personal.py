"""A number for each student, from which tasks take their data, so that copied results show."""

import hashlib
import unicodedata


def personal_number(student: str, cohort: str) -> int:
    """A number of six digits, the same whenever it is asked for.

    Args:
        student: the name by which the course lists the student; capitals do not count, nor does
            how an accent is stored (macOS takes names of folders apart).
        cohort: the course and its year, so that last year's figures are not this year's.
    """
    text = unicodedata.normalize("NFC", f"{cohort.strip()}\n{student.strip().casefold()}")
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return 100_000 + int.from_bytes(digest[:8], "big") % 900_000
