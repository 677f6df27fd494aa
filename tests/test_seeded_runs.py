"""What 200 runs by chance leave behind is the same as ever, byte for byte.

Whoever changes on purpose what runs record or what their messages say looks at the
difference that ``python tests/seeded_runs.py SEED`` shows, and then writes the golden
files again: ``python tests/seeded_runs.py``.
"""

import pytest
import seeded_runs
from seeded_runs import DATA, SEEDS, SHOWN

AGAIN = "if that is meant, write the golden files with: python tests/seeded_runs.py"


@pytest.fixture(scope="module")
def texts():
    return seeded_runs.all_texts()


def test_each_run_leaves_what_it_left_before(texts):
    lines = (DATA / "digests.txt").read_text(encoding="ascii").splitlines()
    golden = {int(seed): digest for seed, digest in map(str.split, lines)}
    assert list(golden) == list(SEEDS)
    changed = [seed for seed in SEEDS if seeded_runs.digest(texts[seed]) != golden[seed]]
    assert changed == [], AGAIN


@pytest.mark.parametrize("seed", SHOWN)
def test_the_payload_is_the_golden_one(texts, seed):
    golden = (DATA / f"payload_{seed}.json").read_bytes().decode("utf-8")
    assert seeded_runs.payload_in(texts[seed]) == golden, AGAIN


def test_the_runs_meet_what_runs_can_meet(texts):
    """All kinds of events, ends of a run and of a call, critics and handoffs are there."""
    whole = "\n".join(texts.values())
    words = (
        *("HANDOFF_END", "DELEGATE_END", "DECIDE_ERROR", "ACT_ERROR", "RECOVER", "model_output"),
        *("budget_steps", "critic_stop", "env_terminal", "final", "success", "retry"),
        *("unrecoverable_error", "approval_required", "invalid_tool_result", "own_code"),
        *("tool_execution_failed", "tool_not_found", "invalid_argument_type", "batch_stopped"),
        *("hook_error", "$unserializable", "$cycle", "output_converted"),
    )
    assert [word for word in words if f'"{word}"' not in whole] == []
