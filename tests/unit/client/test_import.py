"""What a program loads that imports the client: a task of Spark does so each time."""

from __future__ import annotations

import subprocess
import sys


def test_the_client_is_imported_without_what_few_ways_to_sign_in_need() -> None:
    few = {"scramp", "mainstem.web", "mainstem.client.token_endpoint", "cryptography", "jwt"}
    code = f"import sys, mainstem.client; print(sorted({few!r} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == "[]"
