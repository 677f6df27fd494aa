"""From docstrings to the description of a tool and of its parameters."""

from __future__ import annotations

import pytest

from qitos_min.core.tool_schema import docstring_parts

GOOGLE = """Fetch text.

    Follows redirects.

    Args:
        path (str): where; example: "3:5"
        ref (dict[str, (int)], optional): the ref,
            continued on a second line: with a colon

            and a third
        ratio: between 0 and 1
        **extra: more

    Returns:
        str: the text.
        path: not a parameter
    """
NUMPY = """Fetch text.

    Parameters
    ----------
    path : str
        Where it is:
        on disk.
    ref, ratio : int, optional
        Two at once.
    plain

    Returns
    -------
    str
        the text
    """
FIELDS = """Fetch text.

    :param path: where
        it is
    :param int ref: the ref
    :type ref: int
    :param ratio:
    :returns: the text
    """
DOCSTRINGS = [
    (None, "", {}),
    ("One line.", "One line.", {}),
    (
        "A.\n\nSome note: here.\nArgs are: fine",
        "A.\n\nSome note: here.\nArgs are: fine",
        {},
    ),
    (
        GOOGLE,  # T8: smolagents #1073, #724
        "Fetch text.\n\nFollows redirects.",
        {
            "path": 'where; example: "3:5"',
            "ref": "the ref, continued on a second line: with a colon and a third",
            "ratio": "between 0 and 1",
            "extra": "more",
        },
    ),
    (
        NUMPY,
        "Fetch text.",
        {
            "path": "Where it is: on disk.",
            "ref": "Two at once.",
            "ratio": "Two at once.",
        },
    ),
    (FIELDS, "Fetch text.", {"path": "where it is", "ref": "the ref"}),
    ("Args:\n    x: only this", "", {"x": "only this"}),
    (
        "Args:\n        x: a\n        y: b\n\n    Returns:\n        c: d",
        "",
        {"x": "a", "y": "b"},
    ),
    ("A.\n\nRaises:\n    ValueError: when x: y", "A.", {}),
]


@pytest.mark.parametrize("text, description, notes", DOCSTRINGS)
def test_each_docstring_style_is_read(text, description, notes):
    assert docstring_parts(text) == (description, notes)
