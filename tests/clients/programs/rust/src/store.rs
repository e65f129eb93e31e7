//! The calls of the tests, as a user of `object_store` writes them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::buffered::BufWriter;
use object_store::path::Path as Key;
use object_store::signer::Signer;
use object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    UpdateVersion,
};
use serde_json::{Map, Value, json};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::files::{files_below, make_room_for, several_at_once};
use crate::protocol::{Answer, Refusal, Request};

const URL_LIFETIME: Duration = Duration::from_hours(1);

/// A store for each bucket that was asked for.
pub(crate) struct Stores {
    endpoint: String,
    by_bucket: RefCell<HashMap<String, Arc<AmazonS3>>>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NotFound { .. } => "missing",
            Error::AlreadyExists { .. } | Error::Precondition { .. } => "precondition",
            Error::PermissionDenied { .. } => "denied",
            _ => "error",
        };
        Self::new(kind, format!("{error:?}"))
    }
}

impl Stores {
    pub(crate) fn new(endpoint: String) -> Self {
        Self { endpoint, by_bucket: RefCell::default() }
    }

    /// Keys and region come from the environment.
    fn of(&self, bucket: &str) -> Result<Arc<AmazonS3>, Error> {
        if let Some(store) = self.by_bucket.borrow().get(bucket) {
            return Ok(Arc::clone(store));
        }
        let builder = AmazonS3Builder::from_env().with_endpoint(&self.endpoint).with_allow_http(true);
        let store = Arc::new(builder.with_bucket_name(bucket).build()?);
        self.by_bucket.borrow_mut().insert(bucket.to_owned(), Arc::clone(&store));
        Ok(store)
    }

    pub(crate) async fn answer(&self, request: Request) -> Answer {
        let store = self.of(&request.bucket)?;
        match request.call.as_str() {
            "put" => put(&store, &request, put_options(&request)).await,
            "put_if_absent" => put(&store, &request, PutMode::Create.into()).await,
            "put_if_match" => {
                let version = UpdateVersion { e_tag: Some(request.etag.clone()), version: None };
                put(&store, &request, PutMode::Update(version).into()).await
            }
            "get" => save(store.get(&key(&request.key)?).await?, Path::new(&request.into)).await,
            "get_range" => get_range(&store, &request).await,
            "get_suffix" => {
                let options = GetOptions::new().with_range(Some(GetRange::Suffix(request.length)));
                save(store.get_opts(&key(&request.key)?, options).await?, Path::new(&request.into)).await
            }
            "head" => head(&store, &request).await,
            "delete" => Ok(json!(store.delete(&key(&request.key)?).await?)),
            "copy" => Ok(json!(store.copy(&key(&request.key)?, &key(&request.to)?).await?)),
            "rename" => Ok(json!(store.rename(&key(&request.key)?, &key(&request.to)?).await?)),
            "list" if request.delimiter.is_some() => list_one_level(&store, &request).await,
            "list" => {
                let keys = store.list(Some(&key(&request.prefix)?)).map_ok(|object| object.location.to_string());
                Ok(json!([keys.try_collect::<Vec<_>>().await?, []]))
            }
            "delete_many" => {
                let keys = request.keys.iter().map(|name| key(name)).collect::<Vec<_>>();
                delete_all(&store, stream::iter(keys).boxed()).await
            }
            "delete_prefix" => {
                let keys = store.list(Some(&key(&request.prefix)?)).map_ok(|object| object.location);
                delete_all(&store, keys.boxed()).await
            }
            "upload" => upload(&store, key(&request.key)?, Path::new(&request.path)).await,
            "download" => save(store.get(&key(&request.key)?).await?, Path::new(&request.path)).await,
            "upload_tree" => upload_tree(&store, &request).await,
            "download_tree" => download_tree(&store, &request).await,
            "presign_get" => {
                Ok(json!(store.signed_url(Method::GET, &key(&request.key)?, URL_LIFETIME).await?.as_str()))
            }
            "presign_put" => {
                Ok(json!(store.signed_url(Method::PUT, &key(&request.key)?, URL_LIFETIME).await?.as_str()))
            }
            other => Err(Refusal::new("error", format!("no call {other}"))),
        }
    }
}

/// A name as it is, where `Key::from` would encode it.
fn key(name: &str) -> Result<Key, Error> {
    Ok(Key::parse(name)?)
}

fn put_options(request: &Request) -> PutOptions {
    let mut attributes = Attributes::new();
    if let Some(content_type) = &request.content_type {
        attributes.insert(Attribute::ContentType, content_type.clone().into());
    }
    if let Some(content_encoding) = &request.content_encoding {
        attributes.insert(Attribute::ContentEncoding, content_encoding.clone().into());
    }
    for (name, value) in &request.metadata {
        attributes.insert(Attribute::Metadata(name.clone().into()), value.clone().into());
    }
    attributes.into()
}

async fn put(store: &AmazonS3, request: &Request, options: PutOptions) -> Answer {
    let body = tokio::fs::read(&request.body).await?;
    store.put_opts(&key(&request.key)?, body.into(), options).await?;
    Ok(Value::Null)
}

async fn get_range(store: &AmazonS3, request: &Request) -> Answer {
    let location = key(&request.key)?;
    if let Some(last) = request.last {
        let bytes = store.get_range(&location, request.first..last + 1).await?;
        tokio::fs::write(&request.into, bytes).await?;
        return Ok(Value::Null);
    }
    let options = GetOptions::new().with_range(Some(GetRange::Offset(request.first)));
    save(store.get_opts(&location, options).await?, Path::new(&request.into)).await
}

/// What `head` doesn't tell, attributes, comes with a get of the head alone.
async fn head(store: &AmazonS3, request: &Request) -> Answer {
    let found = store.get_opts(&key(&request.key)?, GetOptions::new().with_head(true)).await?;
    let attribute = |name| found.attributes.get(&name).map(|value| value.as_ref());
    let metadata = found.attributes.iter().filter_map(|(name, value)| match name {
        Attribute::Metadata(name) => Some((name.to_string(), json!(value.as_ref()))),
        _ => None,
    });
    Ok(json!({
        "size": found.meta.size,
        "content_type": attribute(Attribute::ContentType),
        "content_encoding": attribute(Attribute::ContentEncoding),
        "metadata": metadata.collect::<Map<_, _>>(),
    }))
}

/// Common prefixes lose their slash in a `Key`.
async fn list_one_level(store: &AmazonS3, request: &Request) -> Answer {
    let level = store.list_with_delimiter(Some(&key(&request.prefix)?)).await?;
    let keys: Vec<_> = level.objects.iter().map(|object| object.location.as_ref()).collect();
    let prefixes: Vec<_> = level.common_prefixes.iter().map(|prefix| format!("{prefix}/")).collect();
    Ok(json!([keys, prefixes]))
}

async fn delete_all(store: &AmazonS3, keys: stream::BoxStream<'static, Result<Key, Error>>) -> Answer {
    store.delete_stream(keys).try_for_each(async |_| Ok(())).await?;
    Ok(Value::Null)
}

async fn upload(store: &Arc<AmazonS3>, to: Key, path: &Path) -> Answer {
    let mut file = File::open(path).await?;
    let mut writer = BufWriter::new(Arc::<AmazonS3>::clone(store), to);
    tokio::io::copy(&mut file, &mut writer).await?;
    writer.shutdown().await?;
    Ok(Value::Null)
}

async fn save(got: GetResult, path: &Path) -> Answer {
    let mut file = File::create(path).await?;
    let mut body = got.into_stream();
    while let Some(bytes) = body.try_next().await? {
        file.write_all(&bytes).await?;
    }
    file.flush().await?;
    Ok(Value::Null)
}

async fn upload_tree(store: &Arc<AmazonS3>, request: &Request) -> Answer {
    let files = files_below(Path::new(&request.directory))?;
    several_at_once(files, async |(name, path)| {
        upload(store, key(&format!("{}{name}", request.prefix))?, &path).await.map(drop)
    })
    .await?;
    Ok(Value::Null)
}

async fn download_tree(store: &AmazonS3, request: &Request) -> Answer {
    let objects: Vec<_> = store.list(Some(&key(&request.prefix)?)).try_collect().await?;
    several_at_once(objects, async |object| {
        let path = Path::new(&request.directory).join(&object.location.as_ref()[request.prefix.len()..]);
        make_room_for(&path)?;
        save(store.get(&object.location).await?, &path).await.map(drop)
    })
    .await?;
    Ok(Value::Null)
}
