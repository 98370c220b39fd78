"""The judge catches each kind of false verdict, and leaves the truthful ones alone: fabricated writes and ledgers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from invsvc_async import Verdict
from invsvc_async.reconcile.history import Evidence, Reading
from invsvc_async.simulator import Entry
from tests.soak.judge import KINDS, Truth, judge
from tests.soak.records import Heard, Run, Sent, Sibling

pytestmark = pytest.mark.untraced

START = {"jrn": {"name": "start"}, "wh": {"status": "active", "description": "start"}}


class Story:
    """Writes, their requests and verdicts, and a ledger, told event by event."""

    def __init__(self):
        self.siblings, self.entries = [], []

    def write(
        self, key="w1", operation="journeys.update", thing="jrn", place=0, **wanted
    ):
        """Add a write, with one run that began at 0."""
        wanted = None if operation.endswith("delete") else wanted or {"name": "a"}
        sibling = Sibling(key, operation, thing, wanted, (1, place))
        sibling.runs.append(Run("live", "a0", 0.0))
        self.siblings.append(sibling)
        return sibling

    def send(self, sibling, at, applied=None, target=None, run=None):
        """Add a request that arrives at once, and has its effect at *applied*."""
        run = run or sibling.runs[-1]
        name = f"{sibling.key}@{run.client}#{len(self.entries)}"
        sibling.sent.append(Sent(run, at, opened=at, name=name))
        self.entries.append(
            Entry(
                number=len(self.entries),
                operation=sibling.operation,
                path_id=sibling.thing,
                body=sibling.wanted,
                received_at=at,
                applied_at=applied,
                target=None if applied is None else target or sibling.thing,
                sender=name,
            )
        )

    def rival(self, at, operation="journeys.update", thing="jrn", **body):
        """Change the thing as somebody else."""
        fields = {
            "operation": operation,
            "path_id": thing,
            "target": thing,
            "body": body,
        }
        self.entries.append(
            Entry(number=0, received_at=at, applied_at=at, by="other", **fields)
        )

    def hear(
        self,
        sibling,
        verdict,
        at,
        value_id=None,
        read=None,
        run=None,
        before=(),
        baseline=None,
        **reason,
    ):
        """
        Add a verdict, resting on a read at *read* if there is one; there were others *before*.

        *baseline* is the state before the write in its intent.
        """
        outcome = None
        if read is not None or reason:
            words = reason.pop("words", "")
            looks = (*before, read) if read is not None else before
            outcome = SimpleNamespace(
                verdict=verdict,
                history=tuple(
                    Reading(started=each, ended=each + 0.1, status=200)
                    for each in looks
                ),
                evidence=Evidence(read_at=read, **{"basis": "equal", **reason}),
                value=None if value_id is None else {"id": value_id},
                message=words,
                error=None,
                started_as=SimpleNamespace(operation=sibling.operation),
                intent=SimpleNamespace(baseline=baseline),
            )
        sibling.heard.append(
            Heard(verdict, at, run or sibling.runs[-1], value_id, outcome)
        )

    def faults(self, lag=0.0):
        """Return the kinds of faults that the judge finds, where reads may lag by *lag* s."""
        found = judge(self.siblings, Truth(self.entries, START, self.siblings, lag=lag))
        assert {fault.kind for fault in found} <= set(KINDS)
        return [fault.kind for fault in found]


@pytest.fixture
def story():
    return Story()


def test_truthful_verdicts(story):
    """Each verdict that the ledger bears out is left alone."""
    applied, absent, refused = (story.write(key) for key in ("w1", "w2", "w3"))
    story.send(applied, 1.0, applied=1.0)
    story.send(absent, 2.0)
    story.send(refused, 3.0)
    story.hear(applied, Verdict.APPLIED, 1.1)
    story.hear(absent, Verdict.NOT_APPLIED, 20.0)
    story.hear(refused, Verdict.REFUSED, 20.0)
    assert story.faults() == []


def test_applied_without_an_effect(story):
    """APPLIED needs an effect of the write's own, or a read that showed the thing as it was wanted."""
    story.send(write := story.write(), 1.0)
    story.hear(write, Verdict.APPLIED, 20.0, read=19.0)
    assert story.faults() == ["applied, without an effect"]


def test_false_verdict_that_is_heard_again(story):
    """A false verdict that a journal gives again is one fault."""
    story.send(write := story.write(), 1.0)
    story.hear(write, Verdict.APPLIED, 20.0)
    story.hear(write, Verdict.APPLIED, 30.0)
    assert story.faults() == ["applied, without an effect"]


@pytest.mark.parametrize("lag", [2.0, 3.5, 30.0])
@pytest.mark.parametrize("held_until", [0.5, 22.0])
def test_applied_by_a_read_that_lags(story, lag, held_until):
    """What a read that lags may have shown counts, if it is not from before the send."""
    story.rival(0.1, name="a")
    story.rival(held_until, name="rival")
    story.send(write := story.write(), 1.0)
    story.hear(write, Verdict.APPLIED, 30.0, read=25.0)
    true = held_until == 22.0 and lag > 3.0
    assert story.faults(lag) == ([] if true else ["applied, without an effect"])


@pytest.mark.parametrize(
    ("read", "kinds"), [(19.0, []), (25.0, ["applied, without an effect"])]
)
def test_applied_as_the_state_holds(story, read, kinds):
    """Without an effect, the state must have been as wanted during the very read that the verdict rests on."""
    story.send(write := story.write(), 1.0)
    story.rival(10.0, name="a")
    story.rival(22.0, name="rival")
    story.hear(write, Verdict.APPLIED, 30.0, read=read)
    assert story.faults() == kinds


def test_applied_by_a_read_that_it_does_not_rest_on(story):
    """That an earlier read showed the thing as wanted does not bear a verdict out that rests on another one."""
    story.send(write := story.write(), 1.0)
    story.rival(10.0, name="a")
    story.rival(22.0, name="rival")
    story.hear(write, Verdict.APPLIED, 30.0, read=25.0, before=(19.0,))
    assert story.faults() == ["applied, without an effect"]


def test_applied_by_a_later_effect(story):
    """An effect that lands after APPLIED was heard is not what it rests on."""
    story.send(write := story.write(), 1.0, applied=30.0)
    story.hear(write, Verdict.APPLIED, 20.0, read=19.0)
    assert story.faults() == ["applied, by a later effect"]


def test_applied_without_a_history(story):
    """A verdict that comes out of a journal has no reads: any time since the write began counts."""
    # killed before its first byte left, so that it was never sent
    write = story.write()
    story.rival(10.0, name="a")
    story.rival(12.0, name="rival")
    write.runs.append(Run("recover", "a1", 20.0))
    story.hear(write, Verdict.APPLIED, 30.0)
    assert story.faults() == []


def test_create_that_took_another_webhook(story):
    """A create that is given the webhook of an equal one is false, whether or not it had an effect."""
    one = story.write("w1", "webhooks.create", "url one", url="u")
    two = story.write("w2", "webhooks.create", "url one", url="u")
    story.send(one, 1.0, applied=1.0, target="wh_1")
    story.send(two, 2.0, applied=2.0, target="wh_2")
    story.hear(one, Verdict.APPLIED, 5.0, value_id="wh_1")
    story.hear(two, Verdict.APPLIED, 5.0, value_id="wh_1")
    assert story.faults() == ["applied, by another's effect"]


def test_create_without_an_effect(story):
    """An equal webhook of a rival's does not make a create true."""
    story.send(write := story.write("w1", "webhooks.create", "url one", url="u"), 1.0)
    story.hear(write, Verdict.APPLIED, 5.0)
    assert story.faults() == ["applied, without an effect"]


@pytest.mark.parametrize("verdict", [Verdict.NOT_APPLIED, Verdict.REFUSED])
@pytest.mark.parametrize("landed", [2.0, 40.0])
def test_no_with_an_effect(story, verdict, landed):
    """A no is false if an effect was there, or lands later."""
    story.send(write := story.write(), 1.0, applied=landed)
    story.hear(write, verdict, 20.0)
    assert story.faults() == ["not applied, with an effect"]


def test_no_before_a_resume(story):
    """What a run does that was begun after the no was heard does not make it false."""
    story.send(write := story.write(), 1.0)
    story.hear(write, Verdict.NOT_APPLIED, 20.0)
    write.runs.append(Run("resume", "a0", 21.0))
    story.send(write, 22.0, applied=22.0)
    story.hear(write, Verdict.APPLIED, 22.1)
    assert story.faults() == []


@pytest.mark.parametrize(
    ("rival", "kinds"), [(5.0, []), (0.5, ["superseded, by nobody else"])]
)
def test_superseded(story, rival, kinds):
    """SUPERSEDED needs a rival's change after the first send; a sibling's does not count."""
    write, sibling = story.write("w1"), story.write("w2", place=1)
    story.send(write, 1.0)
    story.send(sibling, 3.0, applied=3.0)
    story.rival(rival, name="rival")
    story.hear(write, Verdict.SUPERSEDED, 20.0)
    story.hear(sibling, Verdict.APPLIED, 20.0)
    assert story.faults() == kinds


def test_superseded_of_another_thing(story):
    """A rival's change of another thing is none."""
    story.send(write := story.write(), 1.0)
    story.rival(5.0, thing="jrn_2", name="rival")
    story.hear(write, Verdict.SUPERSEDED, 20.0)
    assert story.faults() == ["superseded, by nobody else"]


def test_superseded_beside_a_resume_elsewhere(story):
    """A client cannot know what another one resumes beside it: that counts as a stranger's act."""
    write, other = story.write("w1"), story.write("w2")
    story.send(write, 1.0)
    other.runs.append(Run("resume", "b0", 0.5, beside=True))
    story.send(other, 3.0, applied=3.0)
    story.hear(write, Verdict.SUPERSEDED, 20.0)
    story.hear(other, Verdict.APPLIED, 20.0)
    assert story.faults() == []


def test_duplicate(story):
    """Two effects of one write are one too many, even if the verdict is right."""
    write = story.write("w1", "webhooks.create", "url one", url="u")
    story.send(write, 1.0, applied=1.0, target="wh_1")
    story.send(write, 17.0, applied=17.0, target="wh_2")
    story.hear(write, Verdict.APPLIED, 18.0, value_id="wh_2")
    assert story.faults() == ["duplicate"]


def test_lost(story):
    """A write that arrived, and of which nobody heard a verdict, is lost; one that never arrived is not."""
    story.send(story.write("w1"), 1.0)
    story.write("w2")
    assert story.faults() == ["lost"]


@pytest.mark.parametrize(("landed", "kinds"), [(3.0, []), (9.0, ["order"])])
def test_order(story, landed, kinds):
    """Of two writes awaited one after the other, the older one's effect must not land after the newer one's."""
    older, newer = story.write("w1"), story.write("w2", place=1)
    story.send(older, 1.0, applied=landed)
    story.send(newer, 4.0, applied=4.0)
    story.hear(older, Verdict.UNKNOWN, 3.5)
    story.hear(newer, Verdict.APPLIED, 4.1)
    assert story.faults() == kinds


@pytest.mark.parametrize(("landed", "kinds"), [(12.0, []), (20.0, ["order"])])
def test_order_beside_a_resume_elsewhere(story, landed, kinds):
    """Another client that resumes the older one may send as long as its proof lasts, and no longer."""
    older, newer = story.write("w1"), story.write("w2", place=1)
    story.send(newer, 4.0, applied=4.0)
    older.runs.append(Run("resume", "b0", 3.0, beside=True))
    story.send(older, landed, applied=landed)
    story.hear(older, Verdict.APPLIED, landed + 1)
    story.hear(newer, Verdict.APPLIED, 4.1)
    assert story.faults() == kinds


def test_contradiction(story):
    """A settling that says the opposite of the await is a fault, even where each could be true by itself."""
    story.send(write := story.write(), 1.0)
    story.rival(10.0, name="a")
    story.hear(write, Verdict.NOT_APPLIED, 5.0)
    write.runs.append(Run("settle", "b0", 11.0))
    story.hear(write, Verdict.APPLIED, 12.0, read=11.0)
    assert story.faults() == ["contradiction"]


def test_unasked(story):
    """An effect that no write of the soak sent is named."""
    stranger = story.write("w9")
    story.send(stranger, 1.0, applied=1.0)
    story.siblings.clear()
    assert story.faults() == ["unasked"]


def test_raised(story):
    """An error where a verdict was due is a fault."""
    write = story.write()
    write.raised.append("Traceback …\nValueError: not in deque")
    assert story.faults() == ["raised"]


def test_delete(story):
    """A delete without an effect of its own is true if the webhook was gone when it was read, and false otherwise."""
    gone, there = (
        story.write(key, "webhooks.delete", thing)
        for key, thing in (("w1", "wh"), ("w2", "wh_2"))
    )
    story.send(gone, 1.0)
    story.send(there, 1.0)
    story.rival(3.0, "webhooks.delete", "wh")
    story.rival(3.0, "webhooks.update", "wh_2", description="rival")
    story.hear(gone, Verdict.APPLIED, 20.0, read=19.0)
    story.hear(there, Verdict.APPLIED, 20.0, read=19.0)
    assert story.faults() == ["applied, without an effect"]


@pytest.mark.parametrize(
    ("newer", "kinds"), [(5.0, []), (12.0, ["false reason"]), (None, ["false reason"])]
)
def test_overtaken(story, newer, kinds):
    """A write is told as overtaken only if a newer one had arrived."""
    older = story.write()
    story.hear(older, Verdict.NOT_APPLIED, 10.0, basis="never sent", cause="overtaken")
    other = story.write("w2", place=1, name="b")
    if newer is not None:
        story.send(other, newer, applied=newer)
    story.hear(other, Verdict.APPLIED if newer else Verdict.NOT_APPLIED, 20.0)
    assert story.faults() == kinds


def test_overtaken_by_an_older_one(story):
    """The write before is none that overtakes."""
    older, newer = story.write(), story.write("w2", place=1, name="b")
    newer.runs[0].began = 1.0
    story.send(older, 2.0, applied=2.0)
    story.hear(older, Verdict.APPLIED, 2.1)
    story.hear(newer, Verdict.NOT_APPLIED, 10.0, basis="never sent", cause="overtaken")
    assert story.faults() == ["false reason"]


def test_never_sent(story):
    """A write of which a request has arrived was sent."""
    story.send(write := story.write(), 1.0)
    story.hear(
        write, Verdict.NOT_APPLIED, 10.0, basis="never sent", cause="client closed"
    )
    assert story.faults() == ["false reason"]


@pytest.mark.parametrize("own", [True, False])
def test_words_about_somebody_else(story, own):
    """An unknown write whose message blames somebody else needs somebody else."""
    story.send(write := story.write(), 1.0, applied=1.0)
    if not own:
        story.rival(2.0, name="rival")
    words = "somebody else changed the journey after the write was sent"
    story.hear(
        write, Verdict.UNKNOWN, 20.0, basis="none", cause="changed since", words=words
    )
    assert story.faults() == (["false reason"] if own else [])


def test_applied_in_part(story):
    """A part of an update is no effect that makes it applied; it may be repeated, and is then no duplicate."""
    write = story.write(name="a", description="b")
    story.send(write, 1.0, applied=1.0)
    part = story.entries[-1]
    part.stored, part.fields = "in part", {"name": "a"}
    story.hear(write, Verdict.UNKNOWN, 20.0, basis="none", cause="in part")
    assert story.faults() == []
    story.hear(write, Verdict.APPLIED, 30.0, read=29.0)
    assert story.faults() == ["applied, in part"]
    story.send(write, 40.0, applied=40.0)
    assert story.faults() == ["applied, in part"], "the second effect is no duplicate"
    story.send(write, 50.0, applied=50.0)
    assert story.faults() == ["duplicate", "applied, in part"]


def test_told_as_in_part(story):
    """A write that was stored whole is not told as stored in part."""
    story.send(write := story.write(), 1.0, applied=1.0)
    story.hear(write, Verdict.UNKNOWN, 20.0, basis="none", cause="in part")
    assert story.faults() == ["false reason"]


@pytest.mark.parametrize("cause", ["in part", "other words"])
@pytest.mark.parametrize(
    ("baseline", "kinds"),
    [
        ({"name": "older", "status": "draft"}, []),
        ({"name": "start"}, ["false reason"]),
        ({"status": "draft"}, ["false reason"]),
        (None, ["false reason"]),
    ],
)
def test_told_as_stored_by_what_stood_there(story, cause, baseline, kinds):
    """What an earlier write left counts if the program took another state for the one before its own."""
    story.rival(-50.0, name="start")
    story.send(write := story.write(), 2.0)
    told = {"basis": "none", "cause": cause, "baseline": baseline}
    story.hear(write, Verdict.UNKNOWN, 20.0, **told)
    assert story.faults() == kinds


@pytest.mark.parametrize(
    ("named", "kinds"),
    [((), ["false reason"]), (("wh_9",), ["false reason"]), (("wh_2",), [])],
)
def test_duplicates_that_are_named(story, named, kinds):
    """The further effects of a create are named, and none else; that there are any is a fault of its own."""
    write = story.write(
        operation="webhooks.create", thing="url one", url="https://one.example/in"
    )
    story.send(write, 1.0, applied=1.0, target="wh_1")
    story.send(write, 2.0, applied=2.0, target="wh_2")
    duplicates = tuple({"id": each} for each in named)
    story.hear(
        write,
        Verdict.APPLIED,
        20.0,
        "wh_1",
        read=19.0,
        basis="match",
        duplicates=duplicates,
    )
    assert story.faults() == ["duplicate", *kinds]
