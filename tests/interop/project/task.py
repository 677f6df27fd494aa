"""One sample for each way a trial can go."""

from snowl import EnvSpec, Task

WAYS = ("right", "wrong", "steps", "crash", "tool crash", "cancelled", "awkward")
SAMPLES = [{"id": way, "input": way, "metadata": {"target": "42"}} for way in WAYS]

task = Task("ways", EnvSpec("local"), lambda: iter(SAMPLES))
