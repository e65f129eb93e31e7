"""The AWS SDK for Java 1, whose last version many tools have built in."""

from adapters.java_program import JavaProgram


class JavaV1(JavaProgram):
    name = "AWS SDK for Java v1"
    main = "java-v1", "forebay.clients.V1"
    lacks = {
        "get_suffix": "`setRange` requires the first byte",
        "put_with_unicode_metadata": "replaces characters outside Latin-1 with `?`, but signs the UTF-8 text",
        "post_form": "no call for it",
    }
