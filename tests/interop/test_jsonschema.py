"""The real jsonschema package agrees with ``validate_payload``."""

import copy
import json
from pathlib import Path

import snowl_compat

TABLE = json.loads(
    (Path(__file__).parents[1] / "data" / "schema_cases.json").read_text(encoding="utf-8")
)


def payload_of(case):
    payload = copy.deepcopy(TABLE["payload"])
    for path, *value in case.get("edits", ()):
        place = payload
        for key in path[:-1]:
            place = place[key]
        if value:
            place[path[-1]] = value[0]
        else:
            del place[path[-1]]
    return case.get("payload", payload)


def test_validation_agrees_with_jsonschema(need):
    need("jsonschema")
    import jsonschema

    schema = snowl_compat.PAYLOAD_SCHEMA
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for case in TABLE["cases"]:
        payload = payload_of(case)
        assert validator.is_valid(payload) is not bool(case["errors"]), case["name"]
