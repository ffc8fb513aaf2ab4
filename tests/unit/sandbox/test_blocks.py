"""Blocks of a sequence of layers: few cover it, and a change in the middle makes few new ones."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.model.ids import LayerId
from mulligan.sandbox.blocks import Block, Skyline, build_run, composite_id


def layers(count: int, seed: int = 1) -> list[LayerId]:
    """Ids of layers, as random as real ones."""
    told = random.Random(seed)
    return [LayerId(f"{told.getrandbits(64):016x}") for _ in range(count)]


def names(sequence: list[LayerId]) -> set[LayerId]:
    """All blocks of a sequence that are more than a layer."""
    return {block.id for element in Skyline().extended(sequence).elements() for block in element.walk()}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1500), st.integers(0, 1500), st.integers(0, 99))
def test_the_blocks_are_those_of_the_sequence_however_it_grew(first: int, then: int, seed: int) -> None:
    """A skyline that is extended equals that of the whole, and its blocks hold every layer once, in order."""
    sequence = layers(first + then, seed)
    grown = Skyline().extended(sequence[:first]).extended(sequence[first:])
    whole = Skyline().extended(sequence)
    assert [block.id for block in grown.elements()] == [block.id for block in whole.elements()]
    assert [layer for block in grown.elements() for layer in block.layers] == sequence


def test_ten_thousand_layers_are_covered_by_few_blocks_at_every_length() -> None:
    """However long the sequence, fewer than a hundred blocks cover it, and as a rule some thirty."""
    skyline, counts = Skyline(), []
    for layer in layers(10_000):
        skyline = skyline.extended([layer])
        counts.append(len(skyline.elements()))
    assert max(counts) < 100
    assert sum(counts) / len(counts) < 45


def test_a_change_in_the_middle_makes_few_new_blocks() -> None:
    """A layer replaced, dropped or inserted changes the blocks that hold it, and next to none besides."""
    sequence = layers(10_000)
    before = names(sequence)
    other = LayerId("0123456789abcdef")
    for at in range(40, 9_900, 1300):
        for changed in ([other], [], [sequence[at], other]):
            new = names([*sequence[:at], *changed, *sequence[at + 1 :]]) - before
            assert len(new) <= 8, (at, len(changed))


def test_a_name_tells_the_layers_and_their_order_alone() -> None:
    """A run has one name whichever way it is cut, and another one in another order."""
    a, b, c = (Block(one, (one,)) for one in layers(3))
    assert build_run([build_run([a, b]), c]).id == build_run([a, build_run([b, c])]).id == composite_id((a.id, b.id, c.id))
    assert build_run([a, b]).id != build_run([b, a]).id
    assert build_run([a]) is a
