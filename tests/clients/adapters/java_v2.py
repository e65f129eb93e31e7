"""The AWS SDK for Java 2, with its transfer manager over the AWS common runtime."""

from adapters.java_program import JavaProgram


class JavaV2(JavaProgram):
    name = "AWS SDK for Java v2"
    main = "java-v2", "forebay.clients.V2"
    lacks = {
        "put_with_unicode_metadata": "replaces characters outside Latin-1 with `?`, but signs the UTF-8 text",
        "post_form": "no call for it",
    }
