"""Artifact references and the folder that keeps their bodies."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest

from qitos_min.core.artifact import (
    ARTIFACT_REF_SCHEMA_VERSION,
    ArtifactContractError,
    ArtifactRef,
)
from qitos_min.kit.artifact import FileArtifactStore, ResolvedArtifact

BODY = b"line one\r\nline two\x00\xff"
OTHER_BODIES = {
    "empty": b"",
    "longer": BODY + b"\n",
    "shorter": BODY[:-1],
    "other": bytes(len(BODY)),
}
SECRET = "fake-value-never-shown"


def ref(body: bytes = BODY, **values: Any) -> ArtifactRef:
    given = {
        "artifact_id": "report:1",
        "resolver_key": FileArtifactStore.resolver_key,
        "sha256": hashlib.sha256(body).hexdigest(),
        "media_type": "application/octet-stream",
        "byte_length": len(body),
    }
    return ArtifactRef(**{**given, **values})


FULL = ref(
    encoding="utf-8",
    sensitivity="restricted",
    provenance_digest="f" * 64,
    model_summary="A report \u5bd2",
    required=False,
)

RECORD = {
    "artifact_id": "report:1",
    "resolver_key": "file-artifact-store",
    "sha256": hashlib.sha256(BODY).hexdigest(),
    "media_type": "application/octet-stream",
    "byte_length": 20,
    "encoding": "binary",
    "sensitivity": "internal",
    "provenance_digest": None,
    "model_summary": None,
    "required": True,
    "schema_version": "qitos.artifact_ref/v1",
}


def test_a_reference_writes_its_11_fields_in_order() -> None:
    assert list(ref().to_dict().items()) == list(RECORD.items())
    assert [item.name for item in fields(ArtifactRef)] == list(RECORD)


@pytest.mark.parametrize("given", [ref(), FULL])
def test_a_reference_round_trips_exactly(given: ArtifactRef) -> None:
    text = json.dumps(given.to_dict(), ensure_ascii=False, allow_nan=False)
    assert ArtifactRef.from_dict(json.loads(text)) == given


def test_a_reference_is_frozen_and_hashable() -> None:
    with pytest.raises(FrozenInstanceError):
        ref().sha256 = "0" * 64  # type: ignore[misc]
    assert len({ref(), ref(), FULL}) == 2


def test_a_model_learns_what_a_body_is_and_not_where_it_lies() -> None:
    assert FULL.to_model_projection() == {
        "artifact_id": "report:1",
        "media_type": "application/octet-stream",
        "byte_length": 20,
        "model_summary": "A report \u5bd2",
    }


# Code, field and value, in the order in which the checks are made.
FAULTS: list[tuple[str, str, Any]] = [
    ("unsupported_artifact_schema", "schema_version", "qitos.artifact_ref/v2"),
    ("unsupported_artifact_schema", "schema_version", None),
    *(
        ("invalid_artifact_reference", name, value)
        for name in ("artifact_id", "resolver_key", "encoding")
        for value in ("", ".a", "a b", "a/b", "a\n", "\u00e9", "a" * 257, None, 5, [])
    ),
    *(
        ("invalid_artifact_reference", "media_type", value)
        for value in ("text", "text/", "/plain", "text/plain; charset=x", "a/b/c", None)
    ),
    *(("invalid_artifact_reference", "required", value) for value in (1, None, "true")),
    *(
        ("invalid_artifact_digest", "sha256", value)
        for value in ("0" * 63, "A" * 64, "g" * 64, "0" * 64 + "\n", None, b"0" * 64)
    ),
    ("invalid_artifact_digest", "provenance_digest", "0" * 63),
    ("invalid_artifact_digest", "provenance_digest", ""),
    *(
        ("invalid_artifact_size", "byte_length", value)
        for value in (-1, 1.0, True, None, "3", 10**5000)
    ),
    *(
        ("invalid_artifact_sensitivity", "sensitivity", value)
        for value in ("Public", "", None, ["public"])
    ),
    *(
        ("unsafe_model_projection", "model_summary", value)
        for value in ("", " \n", "x" * 1025, 5, "\ud800")
    ),
]


@pytest.mark.parametrize(
    ("code", "name", "value"),
    FAULTS,
    ids=[f"{name}-{type(value).__name__}" for _, name, value in FAULTS],
)
def test_each_fault_has_its_code(code: str, name: str, value: Any) -> None:
    for build in (
        lambda: replace(FULL, **{name: value}),
        lambda: ArtifactRef.from_dict({**FULL.to_dict(), name: value}),
    ):
        with pytest.raises(ArtifactContractError) as caught:
            build()
        assert caught.value.code == code
        assert str(caught.value).startswith(f"{code}: {name} must be ")


def test_of_two_faults_the_one_checked_first_is_told() -> None:
    for index, (code, name, value) in enumerate(FAULTS):
        for _, other, later in FAULTS[index + 1 :]:
            if name == other:
                continue
            with pytest.raises(ArtifactContractError) as caught:
                replace(FULL, **{name: value, other: later})
            assert caught.value.code == code, (name, value, other, later)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("artifact_id", "A"),
        ("artifact_id", "9._:@+-" + "z" * 249),
        ("media_type", "application/vnd.api+json"),
        ("byte_length", 0),
        ("provenance_digest", None),
        ("model_summary", "x" * 1024),
    ],
)
def test_values_at_the_border_are_accepted(name: str, value: Any) -> None:
    assert getattr(replace(FULL, **{name: value}), name) == value


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (None, "invalid_artifact_reference: expected a mapping, got NoneType"),
        ([RECORD], "invalid_artifact_reference: expected a mapping, got list"),
        (
            {},
            "unsupported_artifact_schema: "
            f"schema_version must be {ARTIFACT_REF_SCHEMA_VERSION}",
        ),
        (
            {name: value for name, value in RECORD.items() if name != "required"},
            "invalid_artifact_reference: expected exactly the 11 keys of the contract, "
            "missing: required, unknown: 0",
        ),
        (
            {**RECORD, SECRET: 1},
            "invalid_artifact_reference: expected exactly the 11 keys of the contract, "
            "missing: none, unknown: 1",
        ),
        (
            {**RECORD, "sensitivity": SECRET},
            "invalid_artifact_sensitivity: sensitivity must be public, internal, "
            "confidential or restricted, got a value of type str",
        ),
    ],
)
def test_a_record_is_read_strictly(record: Any, text: str) -> None:
    with pytest.raises(ArtifactContractError) as caught:
        ArtifactRef.from_dict(record)
    assert str(caught.value) == text


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(ArtifactContractError) as caught:
        call()
    return caught.value.code


@pytest.mark.parametrize(
    "body", [b"", BODY, bytes(range(256)) * 5000], ids=["empty", "small", "large"]
)
def test_what_was_put_is_resolved(tmp_path: Path, body: bytes) -> None:
    store = FileArtifactStore(tmp_path / "new" / "store")
    given = ref(body)
    assert store.put(given, body) == given
    assert store.resolve(given) == ResolvedArtifact(reference=given, body=body)
    another_store_on_it = FileArtifactStore(str(tmp_path / "new" / "store"))
    assert another_store_on_it.resolve(given).body == body


def test_making_a_store_writes_nothing(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path / "store")
    assert not store.probe(ref())
    assert list(tmp_path.iterdir()) == []


def test_one_file_holds_equal_bodies(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path)
    one, other = ref(artifact_id="one"), ref(artifact_id="other", media_type="a/b")
    store.put(one, BODY)
    written = files(tmp_path)[0].stat().st_mtime_ns
    store.put(other, BODY)
    assert [path.name for path in files(tmp_path)] == [one.sha256]
    assert files(tmp_path)[0].stat().st_mtime_ns == written
    assert store.resolve(other).body == BODY


@pytest.mark.parametrize("body", OTHER_BODIES.values(), ids=OTHER_BODIES)
def test_a_body_that_is_not_the_described_one_is_not_stored(
    tmp_path: Path, body: bytes
) -> None:
    store = FileArtifactStore(tmp_path)
    assert code_of(lambda: store.put(ref(), body)) == "artifact_integrity_mismatch"
    assert files(tmp_path) == []


@pytest.mark.parametrize("body", OTHER_BODIES.values(), ids=OTHER_BODIES)
def test_a_body_spoiled_on_disk_is_never_given_out_and_can_be_put_again(
    tmp_path: Path, body: bytes
) -> None:
    store = FileArtifactStore(tmp_path)
    store.put(ref(), BODY)
    files(tmp_path)[0].write_bytes(body)
    assert code_of(lambda: store.resolve(ref())) == "artifact_integrity_mismatch"
    assert not store.probe(ref())
    store.put(ref(), BODY)
    assert store.resolve(ref()).body == BODY


def test_a_missing_body_is_an_error_where_it_is_required(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path)
    assert code_of(lambda: store.resolve(ref())) == "missing_required_artifact"
    optional = ref(required=False)
    assert store.resolve(optional) == ResolvedArtifact(optional, None)


def test_the_limit_holds_in_both_directions(tmp_path: Path) -> None:
    body = b"x" * 11
    store = FileArtifactStore(tmp_path, max_artifact_bytes=10)
    store.put(ref(body[:10]), body[:10])
    assert code_of(lambda: store.put(ref(body), body)) == "artifact_store_limit"
    FileArtifactStore(tmp_path).put(ref(body), body)
    assert code_of(lambda: store.resolve(ref(body))) == "artifact_store_limit"


def test_the_default_limit_is_16_mebibytes(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path)
    assert store.max_artifact_bytes == 16 * 1024 * 1024
    with pytest.raises(ArtifactContractError) as caught:
        store.resolve(ref(byte_length=16 * 1024 * 1024 + 1))
    assert str(caught.value) == (
        "artifact_store_limit: artifact report:1 has 16777217 bytes, "
        "more than 16777216"
    )


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, None, "9"])
def test_a_limit_must_be_a_positive_int(limit: Any) -> None:
    with pytest.raises(ValueError) as caught:
        FileArtifactStore("unused", max_artifact_bytes=limit)
    assert str(caught.value) == f"max_artifact_bytes must be an int of at least 1, got {limit!r}"


@pytest.mark.skipif(os.name != "posix", reason="POSIX file system")
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda p: p.symlink_to("x")])
def test_only_a_regular_file_is_a_body(tmp_path: Path, make: Any) -> None:
    # To open a pipe that nobody writes to would wait for ever.
    store = FileArtifactStore(tmp_path)
    store.put(ref(), BODY)
    (path,) = files(tmp_path)
    path.rename(path.with_name("x"))
    make(path)
    assert code_of(lambda: store.resolve(ref())) == "artifact_store_unavailable"
    assert not store.probe(ref())


def test_references_of_another_kind_of_store_are_refused(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path)
    foreign = ref(resolver_key="bucket")
    for call in (lambda: store.put(foreign, BODY), lambda: store.resolve(foreign)):
        assert code_of(call) == "invalid_artifact_reference"


def test_probe_tells_whether_the_store_can_be_used(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path / "store")
    assert store.probe()
    assert files(tmp_path) == []
    assert not store.probe(ref())
    store.put(ref(), BODY)
    assert store.probe(ref())


def test_a_folder_that_cannot_be_written_is_told_without_its_path(
    tmp_path: Path,
) -> None:
    # A file where the folder should be refuses everyone, also an administrator.
    (tmp_path / "taken").write_bytes(b"")
    store = FileArtifactStore(tmp_path / "taken" / "store")
    assert not store.probe()
    with pytest.raises(ArtifactContractError) as caught:
        store.put(ref(), BODY)
    assert caught.value.code == "artifact_store_unavailable"
    assert "artifact report:1 cannot be stored, " in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_a_read_only_folder_takes_nothing_and_still_gives(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path)
    store.put(ref(), BODY)
    tmp_path.chmod(0o555)
    try:
        try:
            (tmp_path / "try").touch()
        except PermissionError:
            pass
        else:
            pytest.skip("this user or system writes to read-only folders")
        assert not store.probe()
        assert store.resolve(ref()).body == BODY
        assert store.put(ref(), BODY) == ref()
        other = ref(b"other")
        call = lambda: store.put(other, b"other")  # noqa: E731
        assert code_of(call) == "artifact_store_unavailable"
    finally:
        tmp_path.chmod(0o755)


def test_a_write_that_fails_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    given = ref()
    # A folder in the place of the file makes the last step of writing fail.
    (tmp_path / given.sha256[:2] / given.sha256).mkdir(parents=True)
    store = FileArtifactStore(tmp_path)
    assert code_of(lambda: store.put(given, BODY)) == "artifact_store_unavailable"
    assert files(tmp_path) == []


def test_threads_that_store_the_same_bodies_do_not_disturb_each_other(
    tmp_path: Path,
) -> None:
    bodies = [bytes([number]) * 200_000 for number in range(4)]
    start = threading.Barrier(4)
    failures: list[BaseException] = []

    def work() -> None:
        store = FileArtifactStore(tmp_path)
        start.wait()
        try:
            for body in bodies * 3:
                assert store.resolve(store.put(ref(body), body)).body == body
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(files(tmp_path)) == len(bodies)
