"""Outputs that are longer than their tool said: cut for models, kept in a store."""

from __future__ import annotations

import hashlib

import pytest

from qitos_min.core.artifact import ArtifactContractError
from qitos_min.core.tool import ToolMeta
from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.core.tool_result import ToolResult
from tool_results import MARK, ref, result_of


def registry_of(func, **meta):
    return ToolRegistry().register(func, name="t", meta=ToolMeta(**meta))


@pytest.mark.parametrize(
    "output, limit, shown, omitted",
    [
        ("abcdef", 4, "ab...[TRUNCATED]ef", {"chars": 2}),
        ("abcd", 4, None, {}),
        ([1, 2, 3], 2, "[...[TRUNCATED]]", {"chars": 7}),
        (None, 0, None, {}),
    ],
)
def test_only_what_a_model_is_shown_is_cut(output, limit, shown, omitted):
    result = result_of(registry_of(lambda: output, result_max_chars=limit), "t")
    assert result.output == output
    assert (result.model_output, result.omitted) == (shown, omitted)
    assert result.truncated is bool(omitted)
    result.to_dict()


class Shelf:
    """An artifact store of one shelf."""

    resolver_key = "shelf"

    def __init__(self, most=10**6):
        self.most, self.bodies = most, {}

    def put(self, ref, body):
        if len(body) > self.most:
            raise ArtifactContractError("artifact_store_limit", "too long")
        self.bodies[ref] = body


class Room:
    """An environment with a store."""

    def __init__(self, shelf):
        self.artifact_store = shelf


LONG = [
    ("abcdef", "ab...[TRUNCATED]ef", "text/plain", b"abcdef", 2),
    ([1, 2, 3], "[1...[TRUNCATED]3]", "application/json", b"[1, 2, 3]", 5),
    ("\u5bd2" * 5, MARK.join(["\u5bd2" * 2] * 2), "text/plain", ("\u5bd2" * 5).encode(), 1),
]


@pytest.mark.parametrize("output, kept, media_type, body, cut", LONG)
@pytest.mark.parametrize("where", ["artifact_resolver", "env"])
def test_an_output_over_the_limit_goes_to_the_store(
    output, kept, media_type, body, cut, where
):
    shelf = Shelf()
    context = {where: shelf if where == "artifact_resolver" else Room(shelf)}
    result = result_of(registry_of(lambda: output, result_max_chars=4), "t", context)
    ((kept_ref, stored),) = shelf.bodies.items()
    assert (stored, kept_ref.sha256) == (body, hashlib.sha256(body).hexdigest())
    assert (kept_ref.byte_length, kept_ref.media_type) == (len(body), media_type)
    assert (result.output, result.artifact_refs) == (kept, (kept_ref,))
    assert result.to_model_dict()["model_output"] == kept
    assert (result.truncated, result.complete) == (True, False)
    assert result.omitted == {"chars": cut}
    assert ToolResult.from_dict(result.to_dict()) == result


def test_the_store_gets_what_is_too_long_and_nothing_else():
    shelf = Shelf()
    context = {"artifact_resolver": shelf}
    for limit, output in ((None, "abcdef"), (4, "abcd"), (4, None), (4, "")):
        result = result_of(registry_of(lambda: output, result_max_chars=limit), "t", context)
        assert (result.output, result.artifact_refs) == (output, ())
    assert shelf.bodies == {}
    own = ToolResult(output="abcdef", model_output="short", artifact_refs=[ref()])
    result = result_of(registry_of(lambda: own, result_max_chars=5), "t", context)
    assert [r.artifact_id[:6] for r in result.artifact_refs] == ["a1", "output"]
    assert (result.output, result.model_output) == ("abc" + MARK + "ef", "short")


def test_an_output_that_the_store_refuses_stays_whole():
    context = {"artifact_resolver": Shelf(most=5)}
    result = result_of(registry_of(lambda: "abcdef", result_max_chars=4), "t", context)
    assert (result.status, result.output, result.complete) == ("success", "abcdef", True)
    assert result.model_output == "ab" + MARK + "ef"
    assert result.metadata == {
        "artifact_error": "ArtifactContractError: artifact_store_limit: too long"
    }
