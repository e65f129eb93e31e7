//! A model of what was acknowledged, and of what may have happened besides.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use aws_sdk_s3::Client;
use aws_sdk_s3::operation::get_object::GetObjectError;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use forebay_env::random::SeededRandom;
use futures::{StreamExt, TryStreamExt};

/// One write of a key. Its bytes follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    pub number: u64,
    pub size: usize,
}

impl Content {
    /// Begins with the key and the number, so that a mix-up shows where it comes from.
    pub fn bytes(self, key: &str) -> Bytes {
        let mut text = String::new();
        let _ = writeln!(text, "{key} {} {}", self.number, self.size);
        let mut bytes = text.into_bytes();
        let rest = self.size.saturating_sub(bytes.len());
        bytes.extend(SeededRandom::new(self.number).bytes(rest));
        bytes.truncate(self.size);
        bytes.into()
    }
}

/// What is known of one key. `None` is "absent".
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The last operation that was acknowledged.
    pub acknowledged: Option<Content>,
    /// Operations behind it that got no answer, or an error: each may have happened.
    pub unknown: Vec<Option<Content>>,
}

/// The keys of one writer: nobody else writes them, so their operations have an order.
#[derive(Debug, Default)]
pub struct Ledger {
    pub keys: BTreeMap<String, Known>,
    pub operations: u64,
    number: u64,
}

impl Ledger {
    /// Numbers of contents begin behind `number`, so that no two writers make the same one.
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    fn next(&mut self, size: usize) -> Content {
        self.number += 1;
        Content { number: self.number, size }
    }

    fn done<E>(&mut self, key: &str, content: Option<Content>, answer: &Result<(), E>) {
        let known = self.keys.entry(key.to_owned()).or_default();
        if answer.is_ok() {
            *known = Known { acknowledged: content, unknown: Vec::new() };
            self.operations += 1;
        } else {
            known.unknown.push(content);
        }
    }

    /// Whether the server acknowledged.
    pub async fn put(&mut self, client: &Client, bucket: &str, key: &str, size: usize) -> bool {
        let content = self.next(size);
        let body = ByteStream::from(content.bytes(key));
        let answer = client.put_object().bucket(bucket).key(key).body(body).send().await.map(drop);
        self.done(key, Some(content), &answer);
        answer.is_ok()
    }

    pub async fn delete(&mut self, client: &Client, bucket: &str, key: &str) -> bool {
        let answer = client.delete_object().bucket(bucket).key(key).send().await.map(drop);
        self.done(key, None, &answer);
        answer.is_ok()
    }

    /// In parts of 5 MiB and a rest.
    pub async fn put_in_parts(&mut self, client: &Client, bucket: &str, key: &str, size: usize) -> bool {
        let content = self.next(size);
        let answer = upload(client, bucket, key, content.bytes(key)).await;
        self.done(key, Some(content), &answer);
        answer.is_ok()
    }

    /// Reads a key, checks it against what is known, and learns which of the unknown operations happened.
    ///
    /// # Panics
    /// When it is something else.
    pub async fn check(&mut self, client: &Client, bucket: &str, key: &str) {
        let found = read(client, bucket, key).await.unwrap_or_else(|error| panic!("{key} can't be read: {error}"));
        let known = self.keys.entry(key.to_owned()).or_default();
        let candidates = std::iter::once(known.acknowledged).chain(known.unknown.iter().copied());
        let is_found = |content: &Option<Content>| match (&found, content) {
            (None, None) => true,
            (Some(bytes), Some(content)) => bytes.len() == content.size && *bytes == content.bytes(key),
            (None, Some(_)) | (Some(_), None) => false,
        };
        match candidates.into_iter().find(is_found) {
            Some(content) => *known = Known { acknowledged: content, unknown: Vec::new() },
            None => {
                let start = found
                    .map(|bytes| (bytes.len(), String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned()));
                panic!("{key} is {start:?} and must be {known:?}");
            }
        }
    }

    /// Checks all keys.
    pub async fn check_all(&mut self, client: &Client, bucket: &str) {
        let keys: Vec<String> = self.keys.keys().cloned().collect();
        for key in keys {
            self.check(client, bucket, &key).await;
        }
    }

    /// What must be there, when nothing is unknown.
    pub fn present(&self) -> BTreeMap<String, Content> {
        assert!(self.keys.values().all(|known| known.unknown.is_empty()), "some operations are unknown");
        self.keys.iter().filter_map(|(key, known)| Some((key.clone(), known.acknowledged?))).collect()
    }
}

async fn upload(client: &Client, bucket: &str, key: &str, bytes: Bytes) -> Result<(), String> {
    let begun =
        client.create_multipart_upload().bucket(bucket).key(key).send().await.map_err(|error| error.to_string())?;
    let id = begun.upload_id().ok_or("no upload id")?;
    let mut parts = Vec::new();
    for (number, start) in (1..).zip((0..bytes.len()).step_by(5 << 20)) {
        let part = bytes.slice(start..bytes.len().min(start + (5 << 20)));
        let request = client.upload_part().bucket(bucket).key(key).upload_id(id).part_number(number);
        let sent = request.body(part.into()).send().await.map_err(|error| error.to_string())?;
        let part =
            CompletedPart::builder().part_number(number).set_e_tag(sent.e_tag).set_checksum_crc32(sent.checksum_crc32);
        parts.push(part.build());
    }
    let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
    let request = client.complete_multipart_upload().bucket(bucket).key(key).upload_id(id).multipart_upload(parts);
    request.send().await.map(drop).map_err(|error| error.to_string())
}

/// `None` when the key is absent.
pub async fn read(client: &Client, bucket: &str, key: &str) -> Result<Option<Bytes>, String> {
    match client.get_object().bucket(bucket).key(key).send().await {
        Ok(found) => found.body.collect().await.map(|body| Some(body.into_bytes())).map_err(|error| error.to_string()),
        Err(error) if matches!(error.as_service_error(), Some(GetObjectError::NoSuchKey(_))) => Ok(None),
        Err(error) => Err(format!("{error:?}")),
    }
}

/// Every key and its size, by pages.
pub async fn list(client: &Client, bucket: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut pages = client.list_objects_v2().bucket(bucket).into_paginator().send();
    while let Some(page) = pages.next().await {
        for object in page.expect("a page of the list").contents() {
            let key = object.key().expect("a key").to_owned();
            let before = found.insert(key.clone(), object.size().expect("a size") as usize);
            assert!(before.is_none(), "{key} is listed twice");
        }
    }
    found
}

/// Checks that a bucket holds the model: the list, and every byte.
pub async fn check_bucket(client: &Client, bucket: &str, model: &BTreeMap<String, Content>) {
    let listed = list(client, bucket).await;
    let expected: BTreeMap<_, _> = model.iter().map(|(key, content)| (key.clone(), content.size)).collect();
    check_maps(&listed, &expected);
    let client = Arc::new(client.clone());
    let reads = model.iter().map(|(key, content)| {
        let client = Arc::clone(&client);
        async move {
            let found = read(&client, bucket, key).await?;
            if found.as_deref() == Some(&content.bytes(key)[..]) {
                Ok(())
            } else {
                Err(format!("{key} is not {content:?}"))
            }
        }
    });
    let checked: Result<Vec<()>, String> = futures::stream::iter(reads).buffer_unordered(16).try_collect().await;
    checked.unwrap_or_else(|problem| panic!("{problem}"));
}

/// Checks that a directory holds the model as plain files, and nothing else.
pub fn check_directory(directory: &Path, model: &BTreeMap<String, Content>) {
    let mut found = BTreeMap::new();
    walk(directory, "", &mut |key, path| {
        let bytes = std::fs::read(path).expect("a file of the under store");
        if let Some(content) = model.get(&key) {
            assert!(bytes == content.bytes(&key), "{key} is not {content:?}: {} bytes", bytes.len());
        }
        found.insert(key, bytes.len());
    });
    let expected: BTreeMap<_, _> = model.iter().map(|(key, content)| (key.clone(), content.size)).collect();
    check_maps(&found, &expected);
}

fn check_maps(found: &BTreeMap<String, usize>, expected: &BTreeMap<String, usize>) {
    let missing: Vec<_> = expected.iter().filter(|(key, size)| found.get(*key) != Some(size)).take(5).collect();
    let surplus: Vec<_> = found.iter().filter(|(key, size)| expected.get(*key) != Some(size)).take(5).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing: {missing:?}, too many: {surplus:?}");
}

/// Calls `each` with the key and the path of every object; what begins with `.forebay` is not one.
pub fn walk(directory: &Path, prefix: &str, each: &mut impl FnMut(String, &Path)) {
    for entry in std::fs::read_dir(directory).expect("a directory of the under store") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        if name.starts_with(".forebay") {
            continue;
        }
        let key = format!("{prefix}{name}");
        if entry.file_type().expect("a type").is_dir() {
            walk(&entry.path(), &format!("{key}/"), each);
        } else {
            each(key, &entry.path());
        }
    }
}
