"""What is taken for the answer of a connection, and what is not."""

from __future__ import annotations

from pelops.redis_core.replies.wire import limit_of
from pelops.worker.server.streamed_connection import Replies


async def test_an_unexpected_reply_ends_the_connection() -> None:
    replies = Replies()
    replies.bound(limit_of("PING"))
    answered = replies.expect(1, 0.0, 5.0)
    replies.data_received(b"+PONG\r\n")
    answer = await answered
    replies.data_received(b"+MORE\r\n")
    assert len(answer) == 1
    assert replies.is_over
    replies.rest()


async def test_the_next_answer_begins_with_its_own_replies() -> None:
    replies = Replies()
    for word in (b"ONE", b"TWO"):
        replies.bound(limit_of("PING"))
        answered = replies.expect(2, 0.0, 5.0)
        replies.data_received(b"+%b\r\n" % word * 2)
        assert await answered == [word, word]
        replies.rest()
    assert not replies.is_over
