"""What the answers of object storage services mean: done, not done, or nobody can tell."""

from __future__ import annotations

import pytest

from mainstem.delta_log.store.cloud_errors import Meaning, cloud_failure


def _answer(status: int, code: str = "", message: str = "m") -> str:
    body = f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return (
        "Generic S3 error: Error performing PUT http://127.0.0.1:1/b/x in 3ms - Server returned "
        f"non-2xx status code: {status} Some Reason: {body if code else ''}\n\n"
        "Debug source:\nGeneric { store: secret }"
    )


def _error(kind: str, text: str) -> Exception:
    error: Exception = type(kind, (Exception,), {})(text)
    return error


@pytest.mark.parametrize(
    ("error", "meaning", "name"),
    [
        (FileNotFoundError(_answer(404, "NoSuchKey")), Meaning.NOT_FOUND, "NoSuchKey"),
        (FileNotFoundError("Object at location x not found"), Meaning.NOT_FOUND, "connection"),
        (FileNotFoundError(_answer(404, "NoSuchBucket")), Meaning.REFUSED, "NoSuchBucket"),
        (
            _error("AlreadyExistsError", _answer(412, "PreconditionFailed")),
            Meaning.EXISTS,
            "PreconditionFailed",
        ),
        (
            _error("AlreadyExistsError", _answer(409, "ConditionalRequestConflict")),
            Meaning.UNKNOWN,
            "ConditionalRequestConflict",
        ),
        (
            _error("PermissionDeniedError", _answer(403, "AccessDenied")),
            Meaning.REFUSED,
            "AccessDenied",
        ),
        (_error("UnauthenticatedError", _answer(401)), Meaning.REFUSED, "HTTP_401"),
        (_error("GenericError", _answer(400, "EntityTooLarge")), Meaning.REFUSED, "EntityTooLarge"),
        (
            _error("GenericError", _answer(416, "InvalidRange")),
            Meaning.PAST_THE_END,
            "InvalidRange",
        ),
        (_error("GenericError", "Received non-partial response"), Meaning.NO_RANGE, "connection"),
        (_error("GenericError", _answer(500, "InternalError")), Meaning.UNKNOWN, "InternalError"),
        (_error("GenericError", _answer(503, "SlowDown")), Meaning.UNKNOWN, "SlowDown"),
        (_error("GenericError", _answer(429)), Meaning.UNKNOWN, "HTTP_429"),
        (
            _error("GenericError", "HTTP error: error sending request"),
            Meaning.UNKNOWN,
            "connection",
        ),
        (_error("GenericError", "HTTP error: operation timed out"), Meaning.UNKNOWN, "timeout"),
    ],
)
def test_an_answer_says_what_became_of_the_call(
    error: Exception, meaning: Meaning, name: str
) -> None:
    failure = cloud_failure(error)
    assert (failure.meaning, failure.name) == (meaning, name)


def test_the_text_is_one_line_with_the_services_words_and_without_the_librarys_insides() -> None:
    text = cloud_failure(_error("GenericError", _answer(503, "SlowDown", "Reduce\n rate"))).text
    assert text.endswith("503 Some Reason: SlowDown, Reduce rate")
    assert "Debug" not in text
    assert "<" not in text
    assert "\n" not in text


def test_a_signature_in_a_url_is_not_repeated() -> None:
    error = _error("GenericError", "Error performing GET https://a.blob/x?sig=SECRET&se=1 in 3ms")
    assert cloud_failure(error).text == "Error performing GET https://a.blob/x in 3ms"
