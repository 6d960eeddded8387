"""Short calls to web services that answer when and what they like: bounded in time and in size."""

from mainstem.web._calls import Answer, WebError, call_web, check_address, check_authorities

__all__ = ["Answer", "WebError", "call_web", "check_address", "check_authorities"]
