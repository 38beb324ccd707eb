"""Brings model data from the local cloud's own S3 into a folder."""

import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cpu_serving.aws.endpoints import ContainerFailed


class ObjectStore:
    """S3 through ``client()``, a boto3 client that is made when it is first needed."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def fetch_archive(self, uri: str, folder: Path) -> None:
        """Unpack the ``.tar.gz`` at ``uri``; a member that points outside of the folder is refused."""
        folder.mkdir(parents=True, exist_ok=True)
        archive = folder.with_name("model.tar.gz")
        bucket, key = split_uri(uri)
        self._download(bucket, key, archive)
        try:
            with tarfile.open(archive, "r:gz") as opened:
                opened.extractall(folder, filter="data")
        except (tarfile.TarError, OSError, EOFError) as error:
            raise ContainerFailed(f"{uri} could not be unpacked: {error}") from error
        finally:
            archive.unlink(missing_ok=True)

    def fetch_prefix(self, uri: str, folder: Path) -> None:
        """Copy every object below ``uri``."""
        bucket, prefix = split_uri(uri)
        prefix = prefix if prefix.endswith("/") or not prefix else prefix + "/"
        folder.mkdir(parents=True, exist_ok=True)
        keys = self._keys(bucket, prefix)
        if not keys:
            raise ContainerFailed(f"nothing at {uri}: upload the model's files there")
        for key in keys:
            path = (folder / key.removeprefix(prefix)).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise ContainerFailed(f"s3://{bucket}/{key} would be written outside of the model's folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._download(bucket, key, path)

    def _keys(self, bucket: str, prefix: str) -> list[str]:
        from botocore.exceptions import ClientError

        try:
            pages = self._client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            keys = [str(item["Key"]) for found in pages for item in found.get("Contents", [])]
        except ClientError as error:
            raise ContainerFailed(f"s3://{bucket}/{prefix}: {error.response['Error']['Message']}") from error
        return [key for key in keys if not key.endswith("/")]

    def _download(self, bucket: str, key: str, path: Path) -> None:
        from botocore.exceptions import ClientError

        try:
            body = self._client().get_object(Bucket=bucket, Key=key)["Body"].read()
        except ClientError as error:
            raise ContainerFailed(f"s3://{bucket}/{key}: {error.response['Error']['Message']}") from error
        path.write_bytes(body)


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of ``s3://bucket/key``."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise ContainerFailed(f"{uri} is not an address in S3")
    return parts.netloc, parts.path.lstrip("/")


def fetch_model_data(store: ObjectStore, container: Mapping[str, Any], folder: Path) -> None:
    """Fill ``folder``, which stands for /opt/ml/model, as a ContainerDefinition says."""
    folder.mkdir(parents=True, exist_ok=True)
    if container.get("ModelDataUrl"):
        store.fetch_archive(container["ModelDataUrl"], folder)
        return
    source = container.get("ModelDataSource", {}).get("S3DataSource")
    if source is None:
        return
    if source["CompressionType"] == "None" and source["S3DataType"] == "S3Prefix":
        store.fetch_prefix(source["S3Uri"], folder)
    elif source["CompressionType"] == "Gzip" and source["S3DataType"] == "S3Object":
        store.fetch_archive(source["S3Uri"], folder)
    else:
        kind = f"{source['S3DataType']} with CompressionType {source['CompressionType']}"
        raise ContainerFailed(f"the local cloud takes S3Prefix uncompressed or S3Object with Gzip, not {kind}")
