"""A user's program that calls every public function, for type checkers and as it is.

    python tests/typing_user.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import snowl_compat

if TYPE_CHECKING:
    from snowl_compat import (
        CriticRow,
        EngineConfigRow,
        HandoffRow,
        Payload,
        ToolPermissionRow,
    )


def main() -> float:
    records: list[dict[str, Any]] = [{"step_id": 0, "critic_outputs": [{"score": 0.5}]}]
    issues: list[snowl_compat.Issue] = []
    payload: Payload = snowl_compat.build_payload(
        records,
        engine=None,
        tool_registry=None,
        events=[],
        engine_config={"agent_name": "a"},
        tool_permissions=[],
        extended=True,
        strict=False,
        issues=issues,
    )
    config: EngineConfigRow = snowl_compat.engine_config({"agent_name": "a"})
    tools: list[ToolPermissionRow] = snowl_compat.tool_permissions([{"name": "t"}])
    verdicts: list[CriticRow] = snowl_compat.critic_traces(records, issues=issues)
    handoffs: list[HandoffRow] = snowl_compat.handoff_traces([], strict=True)
    text: str = snowl_compat.dumps(payload, indent=2)
    again: Payload = snowl_compat.load_payload(text)
    problems: list[snowl_compat.Issue] = snowl_compat.validate_payload(again)
    line: str = snowl_compat.export_json(records, extended=False, indent=None)
    value: Any = snowl_compat.to_json_value({1, 2}, issues=issues)
    schema: dict[str, Any] = snowl_compat.PAYLOAD_SCHEMA
    names: tuple[str, str] = (snowl_compat.SCHEMA_VERSION, snowl_compat.__version__)
    try:
        run: dict[str, Any] = snowl_compat.read_run("no such run")
        print(run)
    except snowl_compat.SnowlCompatError as error:
        place: tuple[str, str] = (error.path, error.message)
        print(*place)
    score = verdicts[0]["score"]
    steps: int = payload["step_count"] + len(handoffs) + len(problems) + len(tools)
    flags: list[dict[str, bool]] = [row["permissions"] for row in tools]
    print(config["agent_name"], steps, flags, line[:1], value, schema["type"], names)
    return 0.0 if score is None else score


if __name__ == "__main__":
    print(main())
