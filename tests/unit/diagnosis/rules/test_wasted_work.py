"""wasted-work: what was looked at and is well is judged, what nobody could look at is not."""

from __future__ import annotations

import pytest

from tests.support.found import silence
from tests.support.recordings import Loop
from tests.support.rule_loops.compute import CHATS, TAUGHT, TOKENS, chats


@pytest.mark.parametrize(
    ("cause", "judged", "not_judged"),
    [
        ("wasted-padding", chats(padding=()), CHATS.but(setup={"inputs": TOKENS})),
        ("frozen-recomputed", TAUGHT.but(setup={"frozen": ()}), TAUGHT),
    ],
)
def test_nothing_found_is_judged_and_nothing_seen_is_not(cause: str, judged: Loop, not_judged: Loop) -> None:
    assert not silence(cause, judged) and silence(cause, not_judged)
