//! The policy of a POST form: what is wrong with one that is none, in the words of Amazon S3, and what `s3s` does not
//! read.
//!
//! Sources: versity/versitygw, `PostObject_invalid_policy_document`; toniopelo/modbox#10 (the value of a condition),
//! dwilkie/carrierwave_direct#2 (an expiration), tpyo/amazon-s3-php-class#53 (no JSON); localstack/localstack,
//! `test_post_object_policy_validation_size` and `test_post_object_policy_conditions_validation_eq`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use s3s::dto::{Timestamp, TimestampFormat};
use serde_json::Value;

const RANGE: &str = "content-length-range";

/// What is wrong with a policy. `None`: `s3s` reads it, or says itself what it can't read.
pub(crate) fn fault(policy: &str) -> Option<String> {
    if policy.is_empty() {
        return Some("Expecting '{' but found End-of-Input".to_owned());
    }
    let Ok(text) = STANDARD.decode(policy) else { return Some("invalid Base64 encoding.".to_owned()) };
    let Ok(Value::Object(policy)) = serde_json::from_slice(&text) else { return Some(invalid_json()) };
    if let Some(name) = policy.keys().find(|name| !matches!(name.as_str(), "expiration" | "conditions")) {
        return Some(format!("Unexpected: '{}'", name.to_lowercase()));
    }
    let expiration = match policy.get("expiration") {
        None => return Some("Policy missing expiration.".to_owned()),
        Some(Value::String(expiration)) => expiration,
        Some(_) => return Some(invalid_json()),
    };
    if Timestamp::parse(TimestampFormat::DateTime, expiration).is_err() {
        return Some(format!("Invalid 'expiration' value: '{expiration}'"));
    }
    match policy.get("conditions") {
        None => Some("Policy missing conditions.".to_owned()),
        Some(Value::Array(conditions)) => conditions.iter().find_map(fault_of_condition),
        Some(_) => Some("Invalid 'conditions' value: must be a List.".to_owned()),
    }
}

fn invalid_json() -> String {
    "Invalid JSON.".to_owned()
}

fn fault_of_condition(condition: &Value) -> Option<String> {
    match condition {
        Value::Object(exact) if exact.len() != 1 => {
            Some("Invalid Simple-Condition: Simple-Conditions must have exactly one property specified.".to_owned())
        }
        Value::Object(exact) => match exact.values().next() {
            Some(Value::String(_)) => None,
            Some(Value::Null) => Some(invalid_json()),
            _ => Some("Invalid Simple-Condition: value must be a string.".to_owned()),
        },
        Value::Array(words) => fault_of_words(words),
        _ => Some("Invalid condition test: must be a List or Object.".to_owned()),
    }
}

fn fault_of_words(words: &[Value]) -> Option<String> {
    let Some(operation) = words.first() else {
        return Some("Invalid Condition: missing operation identifier.".to_owned());
    };
    let Some(operation) = operation.as_str() else { return Some(invalid_json()) };
    let is_known = ["eq", "starts-with", RANGE].iter().any(|known| operation.eq_ignore_ascii_case(known));
    match words {
        _ if !is_known => Some(format!("Invalid Condition: unknown operation '{operation}'.")),
        [_, first, second] if operation.eq_ignore_ascii_case(RANGE) => {
            // A text that is no number fails like a size that is not met.
            let are_sizes = [first, second].iter().all(|size| size.is_string() || size_of(size).is_some());
            (!are_sizes).then(invalid_json)
        }
        [_, Value::String(_), Value::String(_)] => None,
        [_, _, _] => Some(invalid_json()),
        _ => Some(format!("Invalid {operation}: wrong number of arguments.")),
    }
}

fn size_of(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// A condition that no form can meet, in an otherwise valid policy, as Amazon S3 repeats it: one that names no field
/// because it lacks the `$`, or a range of sizes that are not numbers.
pub(crate) fn impossible(policy: &str) -> Option<String> {
    let policy = read(policy)?;
    let mut conditions = policy.get("conditions")?.as_array()?.iter().filter_map(Value::as_array);
    let is_impossible = |words: &&Vec<Value>| {
        let [operation, first, second] = words.as_slice() else { return false };
        match operation.as_str() {
            Some(operation) if operation.eq_ignore_ascii_case(RANGE) => {
                size_of(first).is_none() || size_of(second).is_none()
            }
            _ => first.as_str().is_some_and(|field| !field.starts_with('$')),
        }
    };
    let text = |word: &Value| match word {
        Value::String(_) => word.to_string(),
        other => Value::from(other.to_string()).to_string(),
    };
    let words = conditions.find(is_impossible)?.iter().map(text).collect::<Vec<_>>();
    Some(format!("[{}]", words.join(", ")))
}

/// Whether a policy without a fault has a condition on the bucket.
pub(crate) fn names_bucket(policy: &str) -> bool {
    let names = |condition: &Value| match condition {
        Value::Object(exact) => exact.keys().any(|name| name.eq_ignore_ascii_case("bucket")),
        Value::Array(words) => {
            words.get(1).and_then(Value::as_str).is_some_and(|word| word.eq_ignore_ascii_case("$bucket"))
        }
        _ => false,
    };
    read(policy).is_some_and(|policy| policy["conditions"].as_array().is_some_and(|all| all.iter().any(names)))
}

/// The same policy with a range of sizes in numbers, which `s3s` does not read in strings. `None` when it has none so.
pub(crate) fn with_numbers(policy: &str) -> Option<String> {
    let mut policy = read(policy)?;
    let mut is_changed = false;
    for condition in policy.get_mut("conditions")?.as_array_mut()? {
        let Some([operation, sizes @ ..]) = condition.as_array_mut().map(Vec::as_mut_slice) else { continue };
        if !operation.as_str().is_some_and(|operation| operation.eq_ignore_ascii_case(RANGE)) {
            continue;
        }
        for size in sizes.iter_mut().filter(|size| size.is_string()) {
            if let Some(bytes) = size_of(size) {
                *size = Value::from(bytes);
                is_changed = true;
            }
        }
    }
    is_changed.then(|| STANDARD.encode(policy.to_string()))
}

fn read(policy: &str) -> Option<Value> {
    serde_json::from_slice(&STANDARD.decode(policy).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(policy: &str, fault: Option<&str>) {
        assert_eq!(super::fault(&STANDARD.encode(policy)).as_deref(), fault, "{policy}");
    }

    fn with(conditions: &str) -> String {
        format!(r#"{{"expiration": "2030-01-01T00:00:00Z", "conditions": {conditions}}}"#)
    }

    #[test]
    fn a_policy_is_told_what_is_wrong_with_it() {
        check("no policy", Some("Invalid JSON."));
        check("[]", Some("Invalid JSON."));
        check(r#"{"conditions": []}"#, Some("Policy missing expiration."));
        check(r#"{"conditions": [], "expiration": true}"#, Some("Invalid JSON."));
        check(r#"{"conditions": [], "expiration": "now"}"#, Some("Invalid 'expiration' value: 'now'"));
        check(r#"{"expiration": "2030-01-01T00:00:00Z"}"#, Some("Policy missing conditions."));
        check(r#"{"Statement": [], "expiration": "2030-01-01T00:00:00Z"}"#, Some("Unexpected: 'statement'"));
        check(&with("true"), Some("Invalid 'conditions' value: must be a List."));
        check(&with("[true]"), Some("Invalid condition test: must be a List or Object."));
        check(&with("[[]]"), Some("Invalid Condition: missing operation identifier."));
        check(&with(r#"[["ne", "$key", "a"]]"#), Some("Invalid Condition: unknown operation 'ne'."));
        check(&with(r#"[["eq", "$key"]]"#), Some("Invalid eq: wrong number of arguments."));
        check(&with(r#"[["eq", "$key", true]]"#), Some("Invalid JSON."));
        check(&with(r#"[["content-length-range", 0, 512.5]]"#), Some("Invalid JSON."));
        check(&with(r#"[{"key": 1}]"#), Some("Invalid Simple-Condition: value must be a string."));
        check(&with(r#"[{"key": null}]"#), Some("Invalid JSON."));
        let one = "Invalid Simple-Condition: Simple-Conditions must have exactly one property specified.";
        check(&with("[{}]"), Some(one));
        check(&with(r#"[{"key": "a", "acl": "private"}]"#), Some(one));
        let good = r#"[{"bucket": "b"}, ["StArTs-WiTh", "$key", ""], ["content-length-range", "5", 10]]"#;
        check(&with(good), None);
        assert_eq!(super::fault("").as_deref(), Some("Expecting '{' but found End-of-Input"));
        assert_eq!(super::fault("?").as_deref(), Some("invalid Base64 encoding."));
    }

    #[test]
    fn a_condition_that_no_form_meets_is_repeated() {
        let found = |conditions: &str| impossible(&STANDARD.encode(with(conditions)));
        assert_eq!(found(r#"[{"bucket": "b"}, ["eq", "$key", "a"], ["content-length-range", "5", 10]]"#), None);
        for (condition, told) in [
            (r#"["eq","key","a\"b"]"#, r#"["eq", "key", "a\"b"]"#),
            (r#"["content-length-range","test",10]"#, r#"["content-length-range", "test", "10"]"#),
        ] {
            assert_eq!(fault(&STANDARD.encode(with(&format!("[{condition}]")))), None);
            assert_eq!(found(&format!("[{{\"bucket\": \"b\"}}, {condition}]")).as_deref(), Some(told));
        }
    }

    #[test]
    fn sizes_in_strings_become_numbers() {
        let changed = |conditions: &str| {
            let changed = with_numbers(&STANDARD.encode(with(conditions)))?;
            read(&changed).map(|policy| policy["conditions"].to_string())
        };
        let range = r#"[["content-length-range","5",10],{"bucket":"5"},["eq","$key","7"]]"#;
        assert_eq!(changed(range).as_deref(), Some(&*range.replace(r#""5",10"#, "5,10")));
        assert_eq!(changed(r#"[["content-length-range",5,10]]"#), None);
        assert_eq!(changed(r#"[["content-length-range","a","b"]]"#), None);
    }

    #[test]
    fn a_policy_is_for_a_bucket() {
        let names = |conditions: &str| names_bucket(&STANDARD.encode(with(conditions)));
        assert!(names(r#"[{"bucket": "b"}, ["starts-with", "$key", ""]]"#));
        assert!(names(r#"[["eq", "$Bucket", "b"]]"#));
        for without in ["[]", r#"[{"key": "bucket"}]"#, r#"[["eq", "$key", "$bucket"]]"#] {
            assert!(!names(without), "{without}");
        }
    }
}
