"""The calls of client.Client, as a user of s3fs writes them."""

import importlib.metadata
import os
import pathlib

import pyarrow.parquet
import s3fs

fs = s3fs.S3FileSystem(endpoint_url=os.environ["FOREBAY_ENDPOINT"])


def version():
    return importlib.metadata.version("s3fs")


def put(bucket, key, body, content_type, content_encoding, metadata):
    given = {"ContentType": content_type, "ContentEncoding": content_encoding, "Metadata": metadata}
    fs.pipe_file(f"{bucket}/{key}", pathlib.Path(body).read_bytes(), **{name: value for name, value in given.items() if value})


def put_if_absent(bucket, key, body):
    fs.pipe_file(f"{bucket}/{key}", pathlib.Path(body).read_bytes(), mode="create")


def put_if_match(bucket, key, body, etag):
    try:
        fs.pipe_file(f"{bucket}/{key}", pathlib.Path(body).read_bytes(), IfMatch=etag)
    except OSError as error:
        # s3fs has an error of its own for If-None-Match alone.
        if error.__cause__.response["Error"]["Code"] == "PreconditionFailed":
            raise FileExistsError from error
        raise


def get(bucket, key, into):
    pathlib.Path(into).write_bytes(fs.cat_file(f"{bucket}/{key}"))


def get_range(bucket, key, first, last, into):
    pathlib.Path(into).write_bytes(fs.cat_file(f"{bucket}/{key}", start=first, end=None if last is None else last + 1))


def get_suffix(bucket, key, length, into):
    pathlib.Path(into).write_bytes(fs.cat_file(f"{bucket}/{key}", start=-length))


def head(bucket, key):
    info = fs.info(f"{bucket}/{key}")
    more = fs.call_s3("head_object", Bucket=bucket, Key=key)
    return {
        "size": info["size"],
        "content_type": more.get("ContentType"),
        "content_encoding": more.get("ContentEncoding"),
        "metadata": more["Metadata"],
    }


def delete(bucket, key):
    fs.rm_file(f"{bucket}/{key}")


def copy(bucket, key, to):
    fs.cp_file(f"{bucket}/{key}", f"{bucket}/{to}")


def rename(bucket, key, to):
    fs.mv(f"{bucket}/{key}", f"{bucket}/{to}")


def put_tags(bucket, key, tags):
    fs.put_tags(f"{bucket}/{key}", tags)


def get_tags(bucket, key):
    return fs.get_tags(f"{bucket}/{key}")


def list(bucket, prefix, delimiter):
    """Directories come without their slash."""
    if delimiter is None:
        return [path.removeprefix(f"{bucket}/") for path in fs.find(f"{bucket}/{prefix}")], []
    listed = fs.ls(f"{bucket}/{prefix}", detail=True)
    keys = [item["name"].removeprefix(f"{bucket}/") for item in listed if item["type"] == "file"]
    return keys, [f"{item['name'].removeprefix(f'{bucket}/')}/" for item in listed if item["type"] == "directory"]


def delete_many(bucket, keys):
    fs.rm([f"{bucket}/{key}" for key in keys])


def delete_prefix(bucket, prefix):
    fs.rm(f"{bucket}/{prefix}", recursive=True)


def upload(bucket, key, path):
    fs.put_file(path, f"{bucket}/{key}")


def download(bucket, key, path):
    fs.get_file(f"{bucket}/{key}", path)


def upload_tree(directory, bucket, prefix):
    fs.put(f"{directory}/", f"{bucket}/{prefix}", recursive=True)


def download_tree(bucket, prefix, directory):
    fs.get(f"{bucket}/{prefix}", f"{directory}/", recursive=True)


def presign_get(bucket, key):
    return fs.sign(f"{bucket}/{key}", expiration=3600)


def presign_put(bucket, key):
    return fs.url(f"{bucket}/{key}", client_method="put_object")


def write_table(path, file, row_group):
    """Writes the table of a local Parquet file."""
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(path), file, row_group_size=row_group, filesystem=fs)


def write_partitioned(path, directory, column):
    pyarrow.parquet.write_to_dataset(pyarrow.parquet.read_table(path), directory, partition_cols=[column], filesystem=fs)


def read_table(names, columns, rows, into):
    """Reads some columns and rows of one file, of several, or of a directory, into a local Parquet file."""
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(names, columns=columns, filters=rows, filesystem=fs), into)


def read_glob(pattern, columns, rows, into):
    read_table(fs.glob(pattern), columns, rows, into)
