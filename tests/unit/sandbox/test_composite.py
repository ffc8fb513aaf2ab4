"""Covers of a stack: what is folded and what is not, and composites that are missing, damaged or of another boot."""

from __future__ import annotations

import random
from pathlib import Path

from mulligan.errors import DiskFullError
from mulligan.model.ids import LayerId
from mulligan.sandbox import composite
from mulligan.sandbox.blocks import COMPOSITE, Skyline
from mulligan.sandbox.layer import LayerStore


def grown(make, count: int, heavy: tuple[int, ...] = ()) -> tuple[LayerId, ...]:
    """So many layers of one small file each; some have many megabytes. Their ids, which tell the blocks, are always the same."""
    told = random.Random(36)
    return tuple(
        make.layer(
            (f"/f{n % 7}", bytes(5 << 20) if n in heavy else b"%d" % n), layer=LayerId(f"{told.getrandbits(64):016x}")
        ).id
        for n in range(count)
    )


def test_a_short_history_is_not_folded(layers, make):
    """Up to some forty lowers are cheaper than a copy."""
    ids = grown(make, composite.EASY)
    assert layers.composites.cover(ids) == list(ids)


def test_a_long_history_is_folded_and_reads_the_same(layers, make):
    """Every file of the state is the one that the last of the layers has."""
    ids = grown(make, 90)
    cover = layers.composites.cover(ids)
    assert len(cover) < composite.EASY
    for n in range(83, 90):
        holder = next(one for one in reversed(cover) if (layers.path(one) / f"f{n % 7}").exists())
        assert (layers.path(holder) / f"f{n % 7}").read_bytes() == b"%d" % n


def test_a_heavy_layer_stays_a_lower_of_its_own(layers, make):
    """Megabytes are not copied as long as the count of lowers allows; the light layers around them are folded."""
    ids = grown(make, 60, heavy=(20, 21))
    cover = layers.composites.cover(ids)
    assert ids[20] in cover
    assert ids[21] in cover
    assert len(cover) < composite.EASY
    made = sum(layers.disk_bytes(one) for one in cover if one.startswith(COMPOSITE))
    assert made < 1 << 20


def test_too_many_heavy_layers_are_folded_after_all(layers, make, monkeypatch):
    """The bound on lowers goes before the bytes."""
    monkeypatch.setattr(composite, "LIGHT", (100, 100))
    monkeypatch.setattr(composite, "COMFORT", 30)
    ids = grown(make, 90)
    assert len(layers.composites.cover(ids)) <= 30


def test_a_composite_of_another_boot_or_cut_short_is_made_again(layers, make):
    """What a crash may have left without its bytes is never mounted."""
    ids = grown(make, 60)
    made = [one for one in layers.composites.cover(ids) if one.startswith(COMPOSITE)]
    held = {path: path.read_bytes() for one in made for path in layers.path(one).iterdir()}
    for damage in ("", "another-boot 1 0\n", "forever 12"):
        for one in made:
            (layers.root / one / "about").write_text(damage)
        for path in held:
            path.write_bytes(b"")
        again = LayerStore(layers.root)
        assert [one for one in again.composites.cover(ids) if one.startswith(COMPOSITE)] == made
        assert {path: path.read_bytes() for path in held} == held
        again.settle()


def test_without_space_the_parts_stand_in(layers, make, monkeypatch):
    """A disk that is too full for a cache does not stop a history that the kernel can stack without."""
    ids = grown(make, 60)

    def full(*_args: object, **_more: object) -> None:
        raise DiskFullError("no space")

    monkeypatch.setattr(layers.composites, "fold", full)
    assert layers.composites.cover(ids) == list(ids)


def test_two_that_make_the_same_composite_agree(layers, make):
    """The second one finds the name taken, and leaves nothing of its own."""
    ids = grown(make, 60)
    cover = layers.composites.cover(ids)
    first = next(one for one in cover if one.startswith(COMPOSITE))
    block = next(b for e in Skyline().extended(ids).elements() for b in e.walk() if b.id == first)
    layers.composites.fold(block.layers, first)
    layers.settle()
    assert not [one for one in Path(layers.root).iterdir() if one.name.startswith(".")]
    assert layers.composites.cover(ids) == cover


def test_a_composite_that_goes_away_is_made_again(layers, make):
    """Another process may have removed it since it was last looked at."""
    ids = grown(make, 60)
    cover = layers.composites.cover(ids)
    for one in cover:
        if one.startswith(COMPOSITE):
            layers.remove(one)
    assert layers.composites.cover(ids) == cover


def test_the_blocks_of_a_sequence_do_not_depend_on_what_was_asked_before(layers):
    """After rollbacks, branches and repairs the blocks are those of the sequence alone."""
    told = random.Random(3)
    ids = tuple(LayerId(f"{told.getrandbits(64):016x}") for _ in range(900))
    other = (*ids[:500], LayerId("other"), *ids[501:])
    empty = (*ids[:130], LayerId("empty-1"), *ids[130:300])
    for sequence in (ids, ids[:450], ids[:127], other, ids[:128], ids, other[:700], empty, ids[:1], (), ids[:899]):
        expected = Skyline().extended([one for one in sequence if not one.startswith("empty-")])
        found = layers.composites.skyline(sequence)
        assert [block.id for block in found.elements()] == [block.id for block in expected.elements()]
