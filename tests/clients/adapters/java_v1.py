"""The AWS SDK for Java 1, whose last version many tools have built in."""

from adapters.java_program import JavaProgram


class JavaV1(JavaProgram):
    name = "AWS SDK for Java v1"
    main = "java-v1", "forebay.clients.V1"
    lacks = {
        "get_suffix": "`setRange` wants the first byte",
        "put_with_unicode_metadata": "sends `?` for what is not in Latin-1, and signs UTF-8",
        "post_form": "no call for it",
    }
