"""What is stored comes back equal, and a blob of another version is refused."""

from __future__ import annotations

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import StoreError
from mulligan.history import codec
from mulligan.model import events, footprint, layer
from mulligan.model.action import Action, LaunchContext, Outcome
from mulligan.model.ids import guest_path

# Text from a guest is any bytes without NUL, decoded with surrogates for what is not UTF-8.
TEXT = st.binary(max_size=12).map(lambda raw: guest_path(raw.replace(b"\0", b"?")))
PATHS = st.frozensets(TEXT.map(lambda text: f"/{text}"), max_size=5)
ENV = st.dictionaries(TEXT, TEXT, max_size=4)
COUNT = st.integers(0, 2**63 - 1)
BLOB = st.binary(max_size=20)

LAUNCHES = st.builds(LaunchContext, env=ENV, cwd=TEXT)
ACTIONS = st.builds(
    Action,
    id=st.integers(1, 9999).map(lambda n: f"a{n}"),
    kind=st.sampled_from(["run", "patch"]),
    argv=st.lists(TEXT, max_size=3).map(tuple),
    shell=st.none() | TEXT,
    cwd=st.none() | TEXT,
    env=ENV,
    stdin=BLOB,
    timeout_s=st.none() | st.floats(0, 1e6),
    labels=st.lists(TEXT, max_size=3).map(tuple),
    reads=st.lists(TEXT, max_size=3).map(tuple),
    writes=st.lists(TEXT, max_size=3).map(tuple),
    patch_path=st.none() | TEXT,
)
OUTCOMES = st.builds(
    Outcome,
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.sampled_from(["SIGKILL", "SIGTERM"]),
    stdout=BLOB,
    stderr=BLOB,
    stdout_truncated=st.booleans(),
    stderr_truncated=st.booleans(),
    timed_out=st.booleans(),
    oom_killed=st.booleans(),
    started_ns=COUNT,
    ended_ns=COUNT,
    duration_ms=st.floats(0, 1e9),
    user_ms=st.floats(0, 1e9),
    system_ms=st.floats(0, 1e9),
    max_rss_kib=COUNT,
    killed_at_end=st.lists(TEXT, max_size=3).map(tuple),
)
CONNECTS = st.builds(
    events.Connect,
    op=st.sampled_from(["connect", "bind", "send"]),
    family=st.sampled_from(["inet", "unix-abstract", "16"]),
    address=TEXT,
    port=st.integers(0, 65535),
    errno=st.integers(0, 133),
)
FOOTPRINTS = st.builds(
    footprint.Footprint,
    **dict.fromkeys(codec._PATH_SETS, PATHS),
    connected=st.lists(CONNECTS, max_size=3).map(tuple),
    launch_env=ENV,
    launch_cwd=TEXT,
    declared_reads=st.lists(TEXT, max_size=3).map(tuple),
    declared_writes=st.lists(TEXT, max_size=3).map(tuple),
    principal=st.sampled_from(typing.get_args(footprint.Principal)),
    incomplete_because=st.lists(TEXT, max_size=3).map(tuple),
)
ENTRIES = st.builds(
    layer.Entry,
    kind=st.sampled_from(typing.get_args(layer.NodeKind)),
    mode=st.integers(0, 0o7777),
    uid=COUNT,
    gid=COUNT,
    size=COUNT,
    mtime_ns=st.integers(-(2**63), 2**63 - 1),
    target=TEXT,
    rdev=COUNT,
    xattrs=st.lists(st.tuples(BLOB, BLOB), max_size=3).map(tuple),
    links=st.lists(TEXT, max_size=3).map(tuple),
    **dict.fromkeys(codec._FLAGS, st.booleans()),
)
MANIFESTS = st.builds(
    layer.Manifest, entries=st.dictionaries(TEXT.map(lambda text: f"/{text}"), ENTRIES, max_size=5), removed=PATHS
)
SETTINGS = st.dictionaries(
    TEXT,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(ACTIONS, LAUNCHES, LAUNCHES, OUTCOMES, FOOTPRINTS)
def test_a_record_survives_storing(action, launch, handoff, outcome, facts):
    """A record comes back equal in every field, whatever bytes its paths, arguments and variables hold."""
    blob = codec.encode_body(action, launch, handoff, outcome, facts)
    assert codec.decode_body(blob, outcome.stdout, outcome.stderr) == (action, launch, handoff, outcome, facts)


@given(MANIFESTS)
def test_a_manifest_survives_storing(manifest):
    """A manifest comes back equal, flags and link groups included."""
    assert codec.decode_manifest(codec.encode_manifest(manifest)) == manifest


@given(SETTINGS, LAUNCHES, BLOB)
def test_settings_launches_and_streams_survive_storing(settings, launch, data):
    """A session's settings and launch context, and an action's output, come back equal."""
    assert codec.decode_settings(codec.encode_settings(settings)) == settings
    assert codec.decode_launch(codec.encode_launch(launch)) == launch
    assert codec.decode_stream(codec.encode_stream(data)) == data


def test_no_field_of_the_model_is_forgotten():
    """Every field of Footprint and Entry is one that the codec stores: a new field must be given a place."""
    stored = {*codec._PATH_SETS, *codec._Footprint.__struct_fields__} - {"paths"}
    assert stored == set(footprint.Footprint.__dataclass_fields__)
    assert {*codec._FLAGS, *codec._Entry.__struct_fields__} - {"flags"} == set(layer.Entry.__dataclass_fields__)
    assert set(codec._Action.__struct_fields__) == set(Action.__dataclass_fields__)
    streams = {"stdout", "stderr"}
    assert {*codec._Outcome.__struct_fields__} | streams == set(Outcome.__dataclass_fields__)


def test_a_blob_of_another_format_is_refused():
    """The version is looked at before anything else, and the sentence names both versions."""
    blob = bytes((codec.VERSION + 1,)) + codec.encode_launch(LaunchContext())[1:]
    with pytest.raises(StoreError, match="format 2, and this Mulligan reads format 1"):
        codec.decode_launch(blob)


@pytest.mark.parametrize("damage", [b"", b"\x01", b"\x01garbage", codec.encode_settings({"a": 1})])
def test_a_damaged_blob_is_a_store_error(damage):
    """Whatever is wrong with a blob, the store says so instead of passing zlib's or MessagePack's error on."""
    with pytest.raises(StoreError):
        codec.decode_manifest(damage)
