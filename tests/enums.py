"""Enumerations that the tests of schemas and typed values share."""

import enum


class Mode(str, enum.Enum):
    FAST = "fast"
    SLOW = "slow"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(enum.Enum):
    POINT = (0, 0)
    LINE = (0, 1)
