"""The native scan on S3, through hadoop-aws; only where Maven's registry answers."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from strandline.spark import session
from strandline.spark.s3 import hadoop_settings, s3_package
from strandline.tableformat.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import S3Bucket

REGISTRY = "https://repo1.maven.org/maven2/org/apache/hadoop/hadoop-aws/maven-metadata.xml"
SCRIPT = """
import sys
import s3fs, strandline, strandline.spark

url, endpoint = sys.argv[1:]
options = {"key": "canary-key", "secret": "canary-secret", "endpoint_url": endpoint,
           "client_kwargs": {"region_name": "us-east-1"}}
table = strandline.create_table(url, {"n": "int64"}, storage_options=options)
for first in (0, 10, 20):
    table.append([{"n": first + n} for n in range(10)])
spark = strandline.spark.session("s3a", s3=True, storage_options=options)
frame = spark.read.format("strandline").option("hiddenColumns", "true").load(url)
found = sorted(tuple(row) for row in frame.where("n >= 15").select("n", "_seq").collect())
assert found == [(n, n) for n in range(15, 30)], found
assert "canary" not in frame._jdf.queryExecution().toString()
spark.sql(f"CREATE TABLE ev USING strandline LOCATION '{url.replace('s3://', 's3a://')}'")
assert spark.sql("SELECT max(n) FROM ev").collect()[0][0] == 29

# A file that was not read yet: S3A keeps footers in memory.
store = s3fs.S3FileSystem(**options, use_listings_cache=False)
table.append([{"n": 30}])
place = url + "/" + table.files().column("path")[3].as_py()
data = bytearray(store.cat_file(place))
data[-30] ^= 1
store.pipe_file(place, bytes(data))
try:
    spark.read.format("strandline").load(url).where("n >= 15").count()
except Exception as error:
    assert "CorruptTable" in str(error) and "footer" in str(error), error
else:
    raise AssertionError("a flipped bit of a footer was not noticed")
"""


def test_settings_of_s3fs_in_hadoops_words() -> None:
    """[C10] Keys, endpoint and region are named as S3A names them."""
    options = {
        "key": "k",
        "secret": "s",
        "client_kwargs": {"endpoint_url": "http://127.0.0.1:1", "region_name": "eu-west-1"},
    }

    assert hadoop_settings(options) == {
        "fs.s3a.access.key": "k",
        "fs.s3a.secret.key": "s",
        "fs.s3a.endpoint": "http://127.0.0.1:1",
        "fs.s3a.endpoint.region": "eu-west-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }
    assert s3_package().startswith("org.apache.hadoop:hadoop-aws:3.")


def test_options_that_nobody_would_use_are_refused() -> None:
    """[C10] Storage options of a session that is not for S3 are not dropped in silence."""
    with pytest.raises(InvalidInput, match="s3=True"):
        session(storage_options={"key": "k"})


@pytest.mark.proof
@pytest.mark.spark
@pytest.mark.s3
def test_the_native_scan_reads_s3(s3_bucket: S3Bucket, tmp_path: Path) -> None:
    """[C11] [C10] [X4] A process of its own, because jars are chosen when the JVM starts."""
    try:
        urllib.request.urlopen(REGISTRY, timeout=10).close()
    except (urllib.error.URLError, TimeoutError):
        pytest.skip("Maven's registry does not answer")

    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, s3_bucket.url, s3_bucket.endpoint],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr[-3000:]
