"""Hadoop's s3a, through org.apache.hadoop.fs.FileSystem."""

from adapters.java_program import JavaProgram


class S3a(JavaProgram):
    name = "Hadoop s3a"
    main = "java-s3a", "forebay.clients.S3a"
    lacks = {
        "put_with_metadata": "its content-type option sets user metadata of that name (3.5.0)",
        "put_with_unicode_metadata": "its SDK replaces characters outside Latin-1 with `?`, but signs the UTF-8 text",
        "put_with_encoding": "its configuration sets one content encoding for all files of a FileSystem",
        "overwrite_while_reading": "a read fails when the object has changed since open(): it sends If-Match with the ETag from open()",
        "copy": "FileSystem copies only through the client",
        "put_tags": "a FileSystem has no tags",
        "get_tags": "a FileSystem has no tags",
        "list_parts": "no call for it",
        "presign_get": "no call for it",
        "presign_put": "no call for it",
        "post_form": "no call for it",
    }
    unnameable = {
        "double slash": "Path collapses them",
        "trailing slash": "Path drops it",
        "dots": "Path resolves them",
    }
