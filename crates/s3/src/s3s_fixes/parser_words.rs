//! What `s3s` says of values that it cannot read, in the words of Amazon S3.

use std::borrow::Cow;

/// Parameters and headers that are numbers.
const NUMBERS: [&str; 5] = ["max-buckets", "max-keys", "max-parts", "max-uploads", "part-number-marker"];

const COPY_SOURCE: &str = "x-amz-copy-source";

/// The beginning of an error's document, with its message in the words of Amazon S3.
///
/// Of numbers: floci-io/floci#3510. Of copies and of headers that are missing: versity/versitygw#1427 and its `s3err`.
pub(crate) fn in_words_of_s3(start: &str) -> String {
    let Some((before, (message, behind))) =
        start.split_once("<Message>").and_then(|(before, rest)| Some((before, rest.split_once("</Message>")?)))
    else {
        return start.to_owned();
    };
    match Words::of(message) {
        None => start.to_owned(),
        Some(Words { message, details }) => {
            let elements = details.iter().map(|(name, text)| format!("<{name}>{text}</{name}>"));
            format!("{before}<Message>{message}</Message>{behind}{}", elements.collect::<String>())
        }
    }
}

struct Words<'a> {
    message: Cow<'static, str>,
    details: Vec<(&'static str, &'a str)>,
}

impl<'a> Words<'a> {
    /// `None` when the message is not one of the parser of `s3s`. It is escaped, and so is what is taken from it.
    fn of(message: &'a str) -> Option<Self> {
        let told = |kind: &str| message.strip_prefix(kind)?.split_once(": ");
        if let Some((name, value)) = told("invalid query: ") {
            let details = vec![("ArgumentName", name), ("ArgumentValue", value)];
            return Some(Self { message: of_parameter(name), details });
        }
        if let Some((name, _)) = told("invalid header: ") {
            let mut details = vec![("ArgumentName", name)];
            if name == COPY_SOURCE {
                // As Amazon S3 has it.
                details.push(("ArgumentValue", name));
            }
            return Some(Self { message: of_header(name), details });
        }
        if let Some((name, _)) = told("invalid overridden header: ") {
            let message = format!("The response header {name} is not valid.").into();
            return Some(Self { message, details: Vec::new() });
        }
        let name = message.strip_prefix("missing header: ")?;
        let message = match name {
            "x-amz-decoded-content-length" => "You must provide the Content-Length HTTP header.".into(),
            name => format!("Missing required header for this request: {name}").into(),
        };
        Some(Self { message, details: Vec::new() })
    }
}

fn of_parameter(name: &str) -> Cow<'static, str> {
    match name {
        "partNumber" => "Part number must be an integer between 1 and 10000, inclusive".into(),
        name if NUMBERS.contains(&name) => format!("Provided {name} not an integer or within integer range").into(),
        name => format!("The query parameter {name} is not valid").into(),
    }
}

fn of_header(name: &str) -> Cow<'static, str> {
    match name {
        // localstack/localstack, `test_s3_copy_object_wrong_format`.
        COPY_SOURCE => "Invalid copy source object key".into(),
        name => format!("The header {name} is not valid").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(said: &str, expected: &str) {
        let document = |message: &str| format!("<Error><Code>InvalidArgument</Code><Message>{message}</Message>");
        assert_eq!(in_words_of_s3(&document(said)), document("").replace("</Message>", expected));
    }

    #[test]
    fn values_that_the_parser_refuses_are_told_as_s3_does() {
        check(
            "invalid query: max-keys: a&amp;b: c",
            "Provided max-keys not an integer or within integer range</Message>\
             <ArgumentName>max-keys</ArgumentName><ArgumentValue>a&amp;b: c</ArgumentValue>",
        );
        check(
            "invalid header: x-amz-copy-source: &quot;nonsense&quot;",
            "Invalid copy source object key</Message>\
             <ArgumentName>x-amz-copy-source</ArgumentName><ArgumentValue>x-amz-copy-source</ArgumentValue>",
        );
        check(
            "invalid overridden header: content-type: Some(&quot;a&quot;)",
            "The response header content-type is not valid.</Message>",
        );
        check("missing header: x-amz-trailer", "Missing required header for this request: x-amz-trailer</Message>");
        check("You must provide it", "You must provide it</Message>");
        assert_eq!(in_words_of_s3("<Error><Code>AccessDenied</Code>"), "<Error><Code>AccessDenied</Code>");
    }
}
