"""What answers showed: the last state of each thing, the ids that creates were given, and the last lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.reconcile.compare import is_time
from invsvc_async.writes.things import LastState, Listed, UrlIds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Raw

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.kinds import WriteKind
    from invsvc_async.writes.things import Records

IDS_OF_A_URL = 512
MOST_TEAMS = 1000  # whose last list is kept


class Shown:
    """
    What the answers of one client showed.

    ``is_of_one_mode`` is whether all answers are of one data mode. If they are not, nothing is kept, because
    a later read may show other data.
    """

    def __init__(self, records: Records, *, is_of_one_mode: bool) -> None:
        self._records = records
        self._is_of_one_mode = is_of_one_mode
        self._lists: dict[tuple[str, str | None], Listed] = {}
        self._lengths: dict[str, dict[str, int]] = {}  # by what is read, and by field

    def learn_state(
        self,
        team: str | None,
        line: str,
        shown: Wire | Raw,
        started: float,
        ended: float,
        *,
        stamp: int | None = None,
        weight: int = 0,
        written: bool = False,
    ) -> None:
        """
        Keep the state of the thing in *line*, from the answer to a request from *started* to *ended*.

        *written*: the request was a write of this client. A read that overlaps with the answer that is kept
        is ignored, because it is unknown which state is the later one; and so is one that began while an
        earlier write could still have an effect.
        """
        if not self._is_of_one_mode:
            return
        thing = self._records.of(line)
        last = thing.last
        if last is not None and started < last.ended and not written:
            return
        if thing.closed_until and not written and started < thing.opens_at(None):
            return
        self._records.keep_state(thing, LastState(shown, ended, stamp, weight, team))

    def last_state(self, team: str | None, line: str) -> LastState | None:
        """
        Return the last known state of the thing in *line*, also if another name of the *team* was given.

        That another team does not have it says nothing.
        """
        last = self._records.known(line).last
        if last is None or last.team == team:
            return last
        if last.shown == {}:
            return None
        return last

    def forget_state(self, line: str) -> None:
        """Forget the state of the thing in *line*, because an open write may have changed it."""
        self._records.forget_state(self._records.known(line))

    def learn_created(
        self,
        line: str,
        webhook_id: str,
        created_at: Wire,
    ) -> None:
        """Keep the id that an answer gave to an untagged create, and its time of creation (server ms)."""
        if not self._is_of_one_mode:
            return
        thing = self._records.of(line)
        known = thing.ids or self._records.other_urls
        ids = (
            *known.ids,
            (webhook_id, int(created_at) if is_time(created_at) else None),
        )
        made = UrlIds(ids, known.forgotten_until)
        if len(ids) > IDS_OF_A_URL:
            made = made.shortened(IDS_OF_A_URL // 2)
        self._records.keep_ids(thing, made)

    def ids(self, line: str) -> UrlIds:
        """Return the ids from answers to the creates of *line*."""
        return self._records.known(line).ids or self._records.other_urls

    def learn_lengths(self, kind: WriteKind, items: Iterable[Wire]) -> None:
        """Keep the lengths of the texts that a read of things of this *kind* has shown (wire form)."""
        known = self._lengths.setdefault(kind.thing.name, {})
        for name, most in kind.thing.kept_in(items).items():
            if most > known.get(name, 0):
                known[name] = most

    def longest_texts(self, kind: WriteKind) -> dict[str, int]:
        """Return, by field, the characters of the longest plain text that reads of this *kind* showed."""
        return dict(self._lengths.get(kind.thing.name, {}))

    def learn_list(
        self,
        read: str,
        team: str | None,
        items: list[Wire],
    ) -> None:
        """Keep the last list (wire form) that the operation *read* has shown of the *team*."""
        if not self._is_of_one_mode:
            return
        self._lists.pop((read, team), None)
        self._lists[read, team] = Listed(len(items), items)
        if len(self._lists) > MOST_TEAMS:
            del self._lists[next(iter(self._lists))]

    def last_list(self, read: str, team: str | None) -> Listed | None:
        """Return the last list that the operation *read* has shown of the *team*."""
        return self._lists.get((read, team))
