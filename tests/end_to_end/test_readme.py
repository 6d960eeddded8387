"""What the README shows is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mainstem.testing import GatewayProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADDRESS = "127.0.0.1:9490"
WAREHOUSE = "./warehouse"


@pytest.mark.spark
def test_the_readmes_example_produces_queries_and_streams(
    spark: SparkSession, repo_root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = _python_example(repo_root / "README.md")
    assert ADDRESS in code
    assert WAREHOUSE in code
    names: dict[str, object] = {}
    with GatewayProcess(tmp_path / "warehouse") as gateway:
        code = code.replace(ADDRESS, gateway.address).replace(WAREHOUSE, str(gateway.warehouse))
        exec(compile(code, "README.md", "exec"), names)
        query = names["query"]
        try:
            query.processAllAvailable()  # type: ignore[attr-defined]
            assert query.exception() is None  # type: ignore[attr-defined]
        finally:
            query.stop()  # type: ignore[attr-defined]
            spark.sql("DROP TABLE IF EXISTS orders")
            spark.catalog.dropTempView("orders")
    shown = capfd.readouterr().out
    assert re.search(r"alice *\| *\{\"total\": 9\.5\} *\| *\d *\| *0 *\|", shown)


def _python_example(readme: Path) -> str:
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text(), flags=re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])
