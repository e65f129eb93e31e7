//! The calls of the tests, as a user of `aws-sdk-s3` writes them.

use std::path::Path;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{BuildError, DisplayErrorContext, SdkError};
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::{ByteStream, Length};
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart, Delete, ObjectIdentifier, Tag, Tagging};
use futures::{StreamExt, TryStreamExt, stream};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::files::{files_below, make_room_for, several_at_once};
use crate::protocol::{Answer, Refusal, Request};

/// What users take from the examples of AWS and of the transfer managers of its other SDKs: this one has none.
const PART_BYTES: u64 = 8 << 20;
const PARTS_AT_ONCE: usize = 8;

pub(crate) struct Sdk {
    client: Client,
}

impl<E: std::error::Error + 'static> From<SdkError<E, HttpResponse>> for Refusal {
    fn from(error: SdkError<E, HttpResponse>) -> Self {
        let detail = DisplayErrorContext(&error).to_string();
        match error.raw_response() {
            Some(response) => Self::of_status(response.status().as_u16(), detail),
            None => Self::new("error", detail),
        }
    }
}

impl From<BuildError> for Refusal {
    fn from(error: BuildError) -> Self {
        Self::error(error)
    }
}

impl Sdk {
    /// Keys and region come from the environment; an address as endpoint makes it path style.
    pub(crate) async fn connect(endpoint: String) -> Self {
        let config = aws_config::defaults(BehaviorVersion::latest()).endpoint_url(endpoint).load().await;
        Self { client: Client::new(&config) }
    }

    pub(crate) async fn answer(&self, request: Request) -> Answer {
        match request.call.as_str() {
            "version" => Ok(json!(aws_sdk_s3::meta::PKG_VERSION)),
            "put" => self.put(request).await,
            "get" => self.get(request, None).await,
            "get_range" => {
                let last = request.last.map(|last| last.to_string()).unwrap_or_default();
                let range = format!("bytes={}-{last}", request.first);
                self.get(request, Some(range)).await
            }
            "get_suffix" => {
                let range = format!("bytes=-{}", request.length);
                self.get(request, Some(range)).await
            }
            "head" => self.head(request).await,
            "delete" => self.delete(&request.bucket, &request.key).await,
            "copy" => self.copy(&request).await,
            "rename" => {
                self.copy(&request).await?;
                self.delete(&request.bucket, &request.key).await
            }
            "put_if_absent" => self.put_if_absent(request).await,
            "put_if_match" => self.put_if_match(request).await,
            "put_tags" => self.put_tags(request).await,
            "get_tags" => self.get_tags(request).await,
            "list" => self.list(request).await,
            "delete_many" => self.delete_many(&request.bucket, request.keys).await,
            "delete_prefix" => self.delete_prefix(request).await,
            "upload" => self.upload(&request.bucket, &request.key, Path::new(&request.path)).await,
            "download" => self.download(&request.bucket, &request.key, Path::new(&request.path)).await,
            "upload_tree" => self.upload_tree(request).await,
            "download_tree" => self.download_tree(request).await,
            "create_upload" => Ok(json!(self.create_upload(&request.bucket, &request.key).await?)),
            "upload_part" => self.upload_part(request).await,
            "list_parts" => self.list_parts(request).await,
            "complete_upload" => self.complete_upload(request).await,
            "presign_get" => self.presign_get(request).await,
            "presign_put" => self.presign_put(request).await,
            other => Err(Refusal::new("error", format!("no call {other}"))),
        }
    }

    async fn put(&self, request: Request) -> Answer {
        let body = file_body(&request.body).await?;
        let put = self.client.put_object().bucket(request.bucket).key(request.key).body(body);
        let put = put.set_content_type(request.content_type).set_content_encoding(request.content_encoding);
        put.set_metadata(Some(request.metadata.into_iter().collect())).send().await?;
        Ok(Value::Null)
    }

    async fn get(&self, request: Request, range: Option<String>) -> Answer {
        let got = self.client.get_object().bucket(request.bucket).key(request.key).set_range(range).send().await?;
        save(got, Path::new(&request.into)).await
    }

    async fn head(&self, request: Request) -> Answer {
        let head = self.client.head_object().bucket(request.bucket).key(request.key).send().await?;
        Ok(json!({
            "size": head.content_length(),
            "content_type": head.content_type(),
            "content_encoding": head.content_encoding(),
            "metadata": head.metadata(),
        }))
    }

    async fn delete(&self, bucket: &str, key: &str) -> Answer {
        self.client.delete_object().bucket(bucket).key(key).send().await?;
        Ok(Value::Null)
    }

    async fn copy(&self, request: &Request) -> Answer {
        let source = format!("{}/{}", request.bucket, request.key);
        let source = utf8_percent_encode(&source, NON_ALPHANUMERIC).to_string();
        self.client.copy_object().bucket(&request.bucket).key(&request.to).copy_source(source).send().await?;
        Ok(Value::Null)
    }

    async fn put_if_absent(&self, request: Request) -> Answer {
        let body = file_body(&request.body).await?;
        self.client.put_object().bucket(request.bucket).key(request.key).body(body).if_none_match("*").send().await?;
        Ok(Value::Null)
    }

    async fn put_if_match(&self, request: Request) -> Answer {
        let body = file_body(&request.body).await?;
        self.client
            .put_object()
            .bucket(request.bucket)
            .key(request.key)
            .body(body)
            .if_match(request.etag)
            .send()
            .await?;
        Ok(Value::Null)
    }

    async fn put_tags(&self, request: Request) -> Answer {
        let tags: Result<_, _> =
            request.tags.iter().map(|(name, value)| Tag::builder().key(name).value(value).build()).collect();
        let tagging = Tagging::builder().set_tag_set(Some(tags?)).build()?;
        self.client.put_object_tagging().bucket(request.bucket).key(request.key).tagging(tagging).send().await?;
        Ok(Value::Null)
    }

    async fn get_tags(&self, request: Request) -> Answer {
        let tagging = self.client.get_object_tagging().bucket(request.bucket).key(request.key).send().await?;
        Ok(tagging.tag_set().iter().map(|tag| (tag.key().to_owned(), json!(tag.value()))).collect::<Map<_, _>>().into())
    }

    async fn list(&self, request: Request) -> Answer {
        let list = self
            .client
            .list_objects_v2()
            .bucket(request.bucket)
            .prefix(request.prefix)
            .set_delimiter(request.delimiter);
        let mut pages = list.into_paginator().send();
        let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
        while let Some(page) = pages.try_next().await? {
            keys.extend(page.contents().iter().filter_map(|object| object.key().map(str::to_owned)));
            prefixes.extend(page.common_prefixes().iter().filter_map(|prefix| prefix.prefix().map(str::to_owned)));
        }
        Ok(json!([keys, prefixes]))
    }

    async fn delete_many(&self, bucket: &str, keys: Vec<String>) -> Answer {
        let objects: Result<_, _> = keys.into_iter().map(|key| ObjectIdentifier::builder().key(key).build()).collect();
        let delete = Delete::builder().set_objects(Some(objects?)).build()?;
        let deleted = self.client.delete_objects().bucket(bucket).delete(delete).send().await?;
        match deleted.errors() {
            [] => Ok(Value::Null),
            errors => Err(Refusal::new("error", format!("{errors:?}"))),
        }
    }

    async fn delete_prefix(&self, request: Request) -> Answer {
        let mut pages =
            self.client.list_objects_v2().bucket(&request.bucket).prefix(request.prefix).into_paginator().send();
        while let Some(page) = pages.try_next().await? {
            let keys = page.contents().iter().filter_map(|object| object.key().map(str::to_owned)).collect();
            self.delete_many(&request.bucket, keys).await?;
        }
        Ok(Value::Null)
    }

    async fn upload(&self, bucket: &str, key: &str, path: &Path) -> Answer {
        let size = tokio::fs::metadata(path).await?.len();
        if size <= PART_BYTES {
            self.client.put_object().bucket(bucket).key(key).body(file_body(path).await?).send().await?;
            return Ok(Value::Null);
        }
        let id = self.create_upload(bucket, key).await?;
        let parts: Vec<CompletedPart> = stream::iter(0..size.div_ceil(PART_BYTES))
            .map(|index| self.upload_slice(bucket, key, &id, path, index, size))
            .buffered(PARTS_AT_ONCE)
            .try_collect()
            .await?;
        self.complete(bucket, key, &id, parts).await
    }

    /// Uploads one of the parts of a file.
    async fn upload_slice(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        path: &Path,
        index: u64,
        size: u64,
    ) -> Result<CompletedPart, Refusal> {
        let offset = index * PART_BYTES;
        let length = Length::Exact(PART_BYTES.min(size - offset));
        let body =
            ByteStream::read_from().path(path).offset(offset).length(length).build().await.map_err(Refusal::error)?;
        let number = i32::try_from(index + 1).expect("an upload has at most 10,000 parts");
        let part = self
            .client
            .upload_part()
            .bucket(bucket)
            .key(key)
            .upload_id(id)
            .part_number(number)
            .body(body)
            .send()
            .await?;
        Ok(CompletedPart::builder().part_number(number).set_e_tag(part.e_tag).build())
    }

    async fn complete(&self, bucket: &str, key: &str, id: &str, parts: Vec<CompletedPart>) -> Answer {
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let complete = self.client.complete_multipart_upload().bucket(bucket).key(key).upload_id(id);
        complete.multipart_upload(parts).send().await?;
        Ok(Value::Null)
    }

    async fn download(&self, bucket: &str, key: &str, path: &Path) -> Answer {
        save(self.client.get_object().bucket(bucket).key(key).send().await?, path).await
    }

    async fn upload_tree(&self, request: Request) -> Answer {
        let files = files_below(Path::new(&request.directory))?;
        several_at_once(files, async |(name, path)| {
            self.upload(&request.bucket, &format!("{}{name}", request.prefix), &path).await.map(drop)
        })
        .await?;
        Ok(Value::Null)
    }

    async fn download_tree(&self, request: Request) -> Answer {
        let mut pages =
            self.client.list_objects_v2().bucket(&request.bucket).prefix(&request.prefix).into_paginator().send();
        while let Some(page) = pages.try_next().await? {
            let keys = page.contents().iter().filter_map(|object| object.key()).collect();
            several_at_once(keys, async |key: &str| {
                let path = Path::new(&request.directory).join(&key[request.prefix.len()..]);
                make_room_for(&path)?;
                self.download(&request.bucket, key, &path).await.map(drop)
            })
            .await?;
        }
        Ok(Value::Null)
    }

    async fn create_upload(&self, bucket: &str, key: &str) -> Result<String, Refusal> {
        let upload = self.client.create_multipart_upload().bucket(bucket).key(key).send().await?;
        upload.upload_id.ok_or_else(|| Refusal::new("error", "an upload without an id"))
    }

    async fn upload_part(&self, request: Request) -> Answer {
        let body = file_body(&request.body).await?;
        let part = self.client.upload_part().bucket(request.bucket).key(request.key).upload_id(request.upload);
        part.part_number(request.number).body(body).send().await?;
        Ok(Value::Null)
    }

    async fn list_parts(&self, request: Request) -> Answer {
        let list = self.client.list_parts().bucket(request.bucket).key(request.key).upload_id(request.upload);
        let parts = list.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await?;
        let named = parts.iter().filter_map(|part| Some((part.part_number()?.to_string(), json!(part.e_tag()?))));
        Ok(named.collect::<Map<_, _>>().into())
    }

    async fn complete_upload(&self, request: Request) -> Answer {
        let mut parts = Vec::new();
        for (number, etag) in request.parts {
            let number = number.parse().map_err(Refusal::error)?;
            parts.push(CompletedPart::builder().part_number(number).e_tag(etag).build());
        }
        parts.sort_by_key(CompletedPart::part_number);
        self.complete(&request.bucket, &request.key, &request.upload, parts).await
    }

    async fn presign_get(&self, request: Request) -> Answer {
        let signed = self.client.get_object().bucket(request.bucket).key(request.key).presigned(an_hour()).await?;
        Ok(json!(signed.uri()))
    }

    async fn presign_put(&self, request: Request) -> Answer {
        let signed = self.client.put_object().bucket(request.bucket).key(request.key).presigned(an_hour()).await?;
        Ok(json!(signed.uri()))
    }
}

fn an_hour() -> PresigningConfig {
    PresigningConfig::expires_in(Duration::from_hours(1)).expect("an hour is below the maximum of a week")
}

async fn file_body(path: impl AsRef<Path>) -> Result<ByteStream, Refusal> {
    ByteStream::from_path(path).await.map_err(Refusal::error)
}

async fn save(got: GetObjectOutput, path: &Path) -> Answer {
    let mut file = File::create(path).await?;
    tokio::io::copy(&mut got.body.into_async_read(), &mut file).await?;
    file.flush().await?;
    Ok(Value::Null)
}
