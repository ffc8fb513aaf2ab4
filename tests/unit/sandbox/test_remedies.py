"""Remedies: each refusal of the kernel names the switch that causes it."""

from __future__ import annotations

import errno

import pytest

from mulligan.sandbox import remedies


@pytest.mark.parametrize(
    ("switch", "value", "word"),
    [
        ("user/max_user_namespaces", "0", "user.max_user_namespaces"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
        ("none", "", "container"),
    ],
)
def test_refused_namespaces_name_the_switch(monkeypatch: pytest.MonkeyPatch, switch: str, value: str, word: str) -> None:
    """The first switch that explains the refusal is named; without any, the container's policy is."""
    monkeypatch.setattr(remedies, "read_switch", lambda name: value if name == switch else None)
    assert word in remedies.remedy_for("userns", errno.EPERM)
    assert word in remedies.userns_remedy()


def test_other_refusals_have_remedies_too() -> None:
    """Overlay, ptrace and used-up resources each have theirs; whatever else leads to doctor."""
    assert "MULLIGAN_HOME" in remedies.remedy_for("overlay", errno.EINVAL)
    assert "memfd_noexec" in remedies.remedy_for("handoff", errno.EACCES)
    assert "yama" in remedies.remedy_for("ptrace", errno.EPERM)
    assert "resource" in remedies.remedy_for("launch", errno.ENOMEM)
    assert "doctor" in remedies.remedy_for("whatever", errno.EIO)
