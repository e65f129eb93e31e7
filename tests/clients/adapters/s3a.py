"""Hadoop's s3a, through org.apache.hadoop.fs.FileSystem."""

from adapters.java_program import JavaProgram


class S3a(JavaProgram):
    name = "Hadoop s3a"
    main = "java-s3a", "forebay.clients.S3a"
    lacks = {
        "put_with_metadata": "its option for a content type makes metadata of that name (3.5.0)",
        "put_with_unicode_metadata": "its SDK sends `?` for what is not in Latin-1, and signs UTF-8",
        "put_with_encoding": "one content encoding for all files of a FileSystem, by its configuration",
        "overwrite_while_reading": "a read fails when the object has changed since open(): If-Match with the ETag seen then",
        "copy": "FileSystem copies through the client alone",
        "put_tags": "a FileSystem has no tags",
        "get_tags": "a FileSystem has no tags",
        "list_parts": "no call for it",
        "presign_get": "no call for it",
        "presign_put": "no call for it",
        "post_form": "no call for it",
    }
    unnameable = {
        "double slash": "Path makes one of them",
        "trailing slash": "Path drops it",
        "dots": "Path resolves them",
    }
