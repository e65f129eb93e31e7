//! Names in requests: a domain or a region that no request can hold would never match one.

/// RFC 1035: of a label, and of a whole name as text.
const LABEL_BYTES_MAX: usize = 63;
const NAME_BYTES_MAX: usize = 253;

/// Nothing, or a host name. A port may follow, as in a `Host` header, and counts for nothing.
pub(super) fn check_domain(text: &str) -> Result<(), String> {
    let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    // A last label of digits makes an IP address of it, and those have no subdomains.
    let is_address = name.rsplit('.').next().is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    let is_name = name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label) && !is_address;
    if text.is_empty() || is_name && is_port {
        Ok(())
    } else {
        Err("must be a host name such as \"s3.example.com\"".into())
    }
}

fn is_label(label: &str) -> bool {
    let fits = (1..=LABEL_BYTES_MAX).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-');
    fits && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Nothing, or a name that can be a part of keys and file names.
pub(super) fn check_name(text: &str) -> Result<(), String> {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if is_word && text.len() <= 64 { Ok(()) } else { Err("must have 1 to 64 letters, digits, '-', '_' and '.'".into()) }
}

/// Nothing, or what Amazon calls an account.
pub(super) fn check_account_id(text: &str) -> Result<(), String> {
    let fits = text.is_empty() || text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { Ok(()) } else { Err("must have 12 digits, such as \"111122223333\"".into()) }
}

/// Regions are a part of signatures, between slashes.
pub(super) fn check_region(text: &str) -> Result<(), String> {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if is_word && !text.is_empty() { Ok(()) } else { Err("must be a region such as \"us-east-1\"".into()) }
}

/// The rule of the users file: slashes and commas would end the key inside a signature.
pub(super) fn check_access_key(text: &str) -> Result<(), String> {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+=@".contains(&byte));
    let fits = text.is_empty() || (3..=128).contains(&text.len()) && is_word;
    if fits { Ok(()) } else { Err("must have 3 to 128 letters, digits or any of -_.+=@".into()) }
}
