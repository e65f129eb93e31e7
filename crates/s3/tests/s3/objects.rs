//! Objects, listings and uploads through Amazon's own client.

use crate::support::{BUCKET, code, start, status};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{
    ChecksumAlgorithm, ChecksumMode, CompletedMultipartUpload, CompletedPart, Delete, EncodingType, MetadataDirective,
    ObjectAttributes, ObjectIdentifier, Tag, Tagging,
};

fn body(text: &str) -> ByteStream {
    ByteStream::from(text.as_bytes().to_vec())
}

#[tokio::test]
async fn an_object_comes_back_as_it_was_put() {
    let endpoint = start().await;
    let client = endpoint.root();
    let put = client
        .put_object()
        .bucket(BUCKET)
        .key("dir/a b+é%2F")
        .body(body("hello"))
        .content_type("text/plain")
        .cache_control("no-cache")
        .content_encoding("gzip")
        .metadata("plain", "value")
        .metadata("foreign", "größe")
        .tagging("a=1&b=2")
        .send()
        .await
        .expect("put");
    assert_eq!(put.e_tag(), Some("\"5d41402abc4b2a76b9719d911017c592\""));
    let get = client
        .get_object()
        .bucket(BUCKET)
        .key("dir/a b+é%2F")
        .checksum_mode(ChecksumMode::Enabled)
        .send()
        .await
        .expect("get");
    assert_eq!(
        (get.content_type(), get.cache_control(), get.content_encoding()),
        (Some("text/plain"), Some("no-cache"), Some("gzip"))
    );
    assert_eq!((get.content_length(), get.tag_count(), get.e_tag()), (Some(5), Some(2), put.e_tag()));
    assert_eq!(get.metadata().and_then(|m| m.get("plain")).map(String::as_str), Some("value"));
    assert_eq!(get.metadata().and_then(|m| m.get("foreign")).map(String::as_str), Some("=?UTF-8?B?Z3LDtsOfZQ==?="));
    assert!(get.checksum_crc32().is_some(), "the SDK sends a CRC32 and gets it back");
    assert_eq!(get.body.collect().await.expect("body").into_bytes(), "hello");
}

/// Only new buckets may not have it: one in the under store may be older than the rule.
#[tokio::test]
async fn a_bucket_of_a_reserved_name_is_looked_for() {
    let endpoint = start().await;
    let (client, name) = (endpoint.root(), "xn--absent");
    assert_eq!(status(&client.head_bucket().bucket(name).send().await), 404);
    assert_eq!(code(&client.list_objects_v2().bucket(name).send().await), "NoSuchBucket");
    assert_eq!(code(&client.get_object().bucket(name).key("key").send().await), "NoSuchBucket");
    let made = client.create_bucket().bucket(name).send().await;
    assert_eq!((status(&made), code(&made).as_str()), (400, "InvalidBucketName"));
}

#[tokio::test]
async fn every_checksum_algorithm_is_verified_and_returned() {
    let endpoint = start().await;
    let client = endpoint.root();
    for algorithm in [
        ChecksumAlgorithm::Crc32,
        ChecksumAlgorithm::Crc32C,
        ChecksumAlgorithm::Crc64Nvme,
        ChecksumAlgorithm::Sha1,
        ChecksumAlgorithm::Sha256,
    ] {
        let put = client
            .put_object()
            .bucket(BUCKET)
            .key("c")
            .checksum_algorithm(algorithm.clone())
            .body(body("123456789"))
            .send()
            .await;
        assert_eq!(status(&put), 200, "{algorithm}: {put:?}");
        let get =
            client.get_object().bucket(BUCKET).key("c").checksum_mode(ChecksumMode::Enabled).send().await.expect("get");
        let values = [
            get.checksum_crc32(),
            get.checksum_crc32_c(),
            get.checksum_crc64_nvme(),
            get.checksum_sha1(),
            get.checksum_sha256(),
        ];
        assert_eq!(values.iter().flatten().count(), 1, "{algorithm}: {values:?}");
        assert_eq!(get.body.collect().await.expect("body").into_bytes(), "123456789");
    }
    let wrong = client.put_object().bucket(BUCKET).key("w").checksum_crc32("AAAAAA==").body(body("x")).send().await;
    assert_eq!((status(&wrong), code(&wrong)), (400, "BadDigest".to_owned()));
    let wrong = client
        .put_object()
        .bucket(BUCKET)
        .key("w")
        .content_md5("XUFAKrxLKna5cZ2REBfFkg==")
        .body(body("x"))
        .send()
        .await;
    assert_eq!((status(&wrong), code(&wrong)), (400, "BadDigest".to_owned()));
    assert_eq!(status(&client.head_object().bucket(BUCKET).key("w").send().await), 404);
}

#[tokio::test]
async fn ranges_and_conditions_hold() {
    let endpoint = start().await;
    let client = endpoint.root();
    client.put_object().bucket(BUCKET).key("r").body(body("0123456789")).send().await.expect("put");
    for (range, content_range, text) in [
        ("bytes=0-3", "bytes 0-3/10", "0123"),
        ("bytes=8-", "bytes 8-9/10", "89"),
        ("bytes=-3", "bytes 7-9/10", "789"),
        ("bytes=5-100", "bytes 5-9/10", "56789"),
    ] {
        let get = client.get_object().bucket(BUCKET).key("r").range(range).send().await.expect(range);
        assert_eq!(get.content_range(), Some(content_range));
        assert_eq!(get.body.collect().await.expect("body").into_bytes(), text);
        let head = client.head_object().bucket(BUCKET).key("r").range(range).send().await.expect(range);
        assert_eq!(head.content_range(), Some(content_range));
    }
    // Amazon S3 does not do several ranges in one request, and ignores what is no range.
    for range in ["bytes=0-1,3-4", "bytes=x"] {
        let get = client.get_object().bucket(BUCKET).key("r").range(range).send().await.expect(range);
        assert_eq!((get.content_length(), get.content_range()), (Some(10), None), "{range}");
    }
    for range in ["bytes=10-", "bytes=-0"] {
        let get = client.get_object().bucket(BUCKET).key("r").range(range).send().await;
        assert_eq!((status(&get), code(&get)), (416, "InvalidRange".to_owned()), "{range}");
    }
    let tag = "\"781e5e245d69b566979b86e28d23f2c7\"";
    let get = |f: &dyn Fn(aws_sdk_s3::operation::get_object::builders::GetObjectFluentBuilder) -> _| {
        f(client.get_object().bucket(BUCKET).key("r"))
    };
    for (request, expected) in [
        (get(&|r| r.if_match(tag)), 200),
        (get(&|r| r.if_match("\"other\"")), 412),
        (get(&|r| r.if_match(format!("\"other\", {tag}"))), 200),
        (get(&|r| r.if_none_match(tag)), 304),
        (get(&|r| r.if_none_match("\"other\"")), 200),
        (get(&|r| r.if_none_match("*")), 304),
    ] {
        assert_eq!(status(&request.send().await), expected);
    }
    let again = client.put_object().bucket(BUCKET).key("r").if_none_match("*").body(body("x")).send().await;
    assert_eq!((status(&again), code(&again)), (412, "PreconditionFailed".to_owned()));
    let other = client.put_object().bucket(BUCKET).key("r").if_match("\"other\"").body(body("x")).send().await;
    assert_eq!(status(&other), 412);
    assert_eq!(status(&client.put_object().bucket(BUCKET).key("r").if_match(tag).body(body("y")).send().await), 200);
}

#[tokio::test]
async fn copies_and_deletes_ask_for_rights_on_every_key() {
    let endpoint = start().await;
    let (root, guest) = (endpoint.root(), endpoint.guest());
    for key in ["shared/a", "own/a", "private/a"] {
        root.put_object().bucket(BUCKET).key(key).metadata("m", "1").body(body(key)).send().await.expect("put");
    }
    let copy = |source: &str, target: &str| {
        guest.copy_object().bucket(BUCKET).key(target).copy_source(format!("{BUCKET}/{source}")).send()
    };
    assert_eq!(status(&copy("shared/a", "own/copy").await), 200);
    assert_eq!(status(&copy("private/a", "own/stolen").await), 403);
    assert_eq!(status(&copy("shared/a", "shared/b").await), 403);
    let head = root.head_object().bucket(BUCKET).key("own/copy").send().await.expect("head");
    assert_eq!(head.metadata().and_then(|m| m.get("m")).map(String::as_str), Some("1"));
    let same = root.copy_object().bucket(BUCKET).key("own/a").copy_source("bucket/own/a").send().await;
    assert_eq!(code(&same), "InvalidRequest");
    let replace = root
        .copy_object()
        .bucket(BUCKET)
        .key("own/a")
        .copy_source("bucket/own/a")
        .metadata_directive(MetadataDirective::Replace)
        .metadata("n", "2");
    assert_eq!(status(&replace.send().await), 200);

    let keys =
        ["own/copy", "private/a", "own/absent"].map(|key| ObjectIdentifier::builder().key(key).build().expect("key"));
    let delete = Delete::builder().set_objects(Some(keys.to_vec())).build().expect("delete");
    let outcome = guest.delete_objects().bucket(BUCKET).delete(delete).send().await.expect("delete");
    let deleted: Vec<_> = outcome.deleted().iter().filter_map(|d| d.key()).collect();
    assert_eq!(deleted, ["own/copy", "own/absent"]);
    assert_eq!(outcome.errors()[0].code(), Some("AccessDenied"));
    assert_eq!(status(&root.head_object().bucket(BUCKET).key("own/copy").send().await), 404);
    assert_eq!(status(&root.head_object().bucket(BUCKET).key("private/a").send().await), 200);

    assert_eq!(status(&guest.list_objects_v2().bucket(BUCKET).prefix("shared/").send().await), 200);
    assert_eq!(status(&guest.list_objects_v2().bucket(BUCKET).send().await), 403);
    assert_eq!(status(&guest.head_object().bucket(BUCKET).key("shared/absent").send().await), 404);
    assert_eq!(status(&guest.get_object().bucket(BUCKET).key("own/a").send().await), 403);
}

#[tokio::test]
async fn listings_page_without_gaps() {
    let endpoint = start().await;
    let client = endpoint.root();
    let keys = ["a", "b/1", "b/2", "c d", "d/1", "é"];
    for key in keys {
        client.put_object().bucket(BUCKET).key(key).body(body("x")).send().await.expect("put");
    }
    let (mut seen, mut token) = (Vec::new(), None);
    loop {
        let page = client
            .list_objects_v2()
            .bucket(BUCKET)
            .max_keys(2)
            .set_continuation_token(token)
            .send()
            .await
            .expect("list");
        seen.extend(page.contents().iter().filter_map(|object| object.key().map(str::to_owned)));
        token = page.next_continuation_token().map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    assert_eq!(seen, keys);
    let page = client.list_objects_v2().bucket(BUCKET).delimiter("/").send().await.expect("list");
    let prefixes: Vec<_> = page.common_prefixes().iter().filter_map(|prefix| prefix.prefix()).collect();
    assert_eq!((prefixes, page.key_count()), (vec!["b/", "d/"], Some(5)));
    let page = client
        .list_objects()
        .bucket(BUCKET)
        .marker("b/1")
        .max_keys(1)
        .encoding_type(EncodingType::Url)
        .send()
        .await
        .expect("v1");
    assert_eq!((page.contents()[0].key(), page.is_truncated()), (Some("b/2"), Some(true)));
    let page = client
        .list_objects_v2()
        .bucket(BUCKET)
        .prefix("c")
        .encoding_type(EncodingType::Url)
        .fetch_owner(true)
        .send()
        .await;
    let page = page.expect("encoded");
    assert_eq!(page.contents()[0].key(), Some("c%20d"));
    assert_eq!(page.contents()[0].owner().and_then(|owner| owner.id()).map(str::len), Some(64));
    let none = client.list_objects_v2().bucket(BUCKET).max_keys(0).send().await.expect("none");
    assert_eq!((none.key_count(), none.is_truncated()), (Some(0), Some(false)));
    let forged =
        client.list_objects_v2().bucket(BUCKET).continuation_token("Zm9yZ2VkIHRva2VuIHRoYXQgaXMgbG9uZw").send().await;
    assert_eq!((status(&forged), code(&forged)), (400, "InvalidArgument".to_owned()));
    let versions = client.list_object_versions().bucket(BUCKET).send().await.expect("versions");
    assert!(
        versions.versions().len() == 6
            && versions.versions().iter().all(|v| v.version_id() == Some("null") && v.is_latest() == Some(true))
    );
    assert_eq!(code(&client.list_objects_v2().bucket("absent-bucket").send().await), "NoSuchBucket");
}

#[tokio::test]
async fn multipart_uploads_go_their_whole_way() {
    let endpoint = start().await;
    let client = endpoint.root();
    let create =
        client.create_multipart_upload().bucket(BUCKET).key("m").metadata("a", "b").send().await.expect("create");
    let id = create.upload_id().expect("id");
    let parts: Vec<Vec<u8>> = vec![vec![b'a'; 5 << 20], vec![b'b'; 5 << 20]];
    let mut done = Vec::new();
    for (number, part) in (1..).zip(&parts) {
        let put = client
            .upload_part()
            .bucket(BUCKET)
            .key("m")
            .upload_id(id)
            .part_number(number)
            .body(part.clone().into())
            .send();
        let put = put.await.expect("part");
        done.push(
            CompletedPart::builder()
                .part_number(number)
                .set_e_tag(put.e_tag)
                .set_checksum_crc32(put.checksum_crc32)
                .build(),
        );
    }
    client.put_object().bucket(BUCKET).key("source").body(body("0123456789")).send().await.expect("put");
    let copy = client.upload_part_copy().bucket(BUCKET).key("m").upload_id(id).part_number(3);
    let copied = copy.copy_source("bucket/source").copy_source_range("bytes=2-4").send().await.expect("copy");
    let result = copied.copy_part_result().expect("result");
    let third = CompletedPart::builder().part_number(3).e_tag(result.e_tag().expect("tag"));
    done.push(third.set_checksum_crc32(result.checksum_crc32.clone()).build());
    let listed = client.list_parts().bucket(BUCKET).key("m").upload_id(id).max_parts(2).send().await.expect("parts");
    assert_eq!(
        (listed.parts().len(), listed.is_truncated(), listed.next_part_number_marker()),
        (2, Some(true), Some("2"))
    );
    let uploads = client.list_multipart_uploads().bucket(BUCKET).send().await.expect("uploads");
    assert_eq!(uploads.uploads()[0].upload_id(), Some(id));
    let complete = client.complete_multipart_upload().bucket(BUCKET).key("m").upload_id(id);
    let complete =
        complete.multipart_upload(CompletedMultipartUpload::builder().set_parts(Some(done)).build()).send().await;
    let complete = complete.expect("complete");
    assert!(complete.e_tag().expect("tag").ends_with("-3\""));
    let get = client.get_object().bucket(BUCKET).key("m").send().await.expect("get");
    assert_eq!(get.metadata().and_then(|m| m.get("a")).map(String::as_str), Some("b"));
    let bytes = get.body.collect().await.expect("body").into_bytes();
    assert!(bytes == [parts.concat(), b"234".to_vec()].concat());
    let part = client.get_object().bucket(BUCKET).key("m").part_number(2).send().await.expect("part");
    assert_eq!(
        (part.parts_count(), part.content_length(), part.content_range()),
        (Some(3), Some(5 << 20), Some("bytes 5242880-10485759/10485763"))
    );
    let attributes = client.get_object_attributes().bucket(BUCKET).key("m");
    let attributes =
        attributes.object_attributes(ObjectAttributes::ObjectParts).object_attributes(ObjectAttributes::ObjectSize);
    let attributes = attributes.send().await.expect("attributes");
    assert_eq!(attributes.object_size(), Some(10_485_763));
    assert_eq!(attributes.object_parts().and_then(|parts| parts.total_parts_count()), Some(3));

    let id =
        client.create_multipart_upload().bucket(BUCKET).key("x").send().await.expect("create").upload_id.expect("id");
    assert_eq!(status(&client.abort_multipart_upload().bucket(BUCKET).key("x").upload_id(&id).send().await), 200);
    let late = client.upload_part().bucket(BUCKET).key("x").upload_id(&id).part_number(1).body(body("x")).send().await;
    assert_eq!((status(&late), code(&late)), (404, "NoSuchUpload".to_owned()));
}

#[tokio::test]
async fn tags_are_read_replaced_and_removed() {
    let endpoint = start().await;
    let client = endpoint.root();
    client.put_object().bucket(BUCKET).key("t").body(body("x")).send().await.expect("put");
    let tag = Tag::builder().key("a").value("1").build().expect("tag");
    let tagging = Tagging::builder().tag_set(tag.clone()).build().expect("tagging");
    client.put_object_tagging().bucket(BUCKET).key("t").tagging(tagging).send().await.expect("set");
    assert_eq!(client.get_object_tagging().bucket(BUCKET).key("t").send().await.expect("get").tag_set(), [tag]);
    client.delete_object_tagging().bucket(BUCKET).key("t").send().await.expect("delete");
    assert!(client.get_object_tagging().bucket(BUCKET).key("t").send().await.expect("get").tag_set().is_empty());
    let absent = client.get_object_tagging().bucket(BUCKET).key("absent").send().await;
    assert_eq!(code(&absent), "NoSuchKey");
}

#[tokio::test]
async fn what_the_cache_does_not_do_is_not_implemented() {
    let endpoint = start().await;
    let client = endpoint.root();
    client.put_object().bucket(BUCKET).key("k").body(body("x")).send().await.expect("put");
    assert_eq!(code(&client.get_bucket_versioning().bucket(BUCKET).send().await), "NotImplemented");
    assert_eq!(status(&client.get_object().bucket(BUCKET).key("k").version_id("null").send().await), 200);
    let public = client.put_object().bucket(BUCKET).key("k").acl("public-read".into()).body(body("y")).send().await;
    assert_eq!(code(&public), "AccessControlListNotSupported");
    let buckets = client.list_buckets().send().await.expect("buckets");
    assert_eq!(buckets.buckets().iter().filter_map(|bucket| bucket.name()).collect::<Vec<_>>(), [BUCKET]);
    assert_eq!(status(&client.head_bucket().bucket(BUCKET).send().await), 200);
    assert_eq!(status(&client.head_bucket().bucket("absent-bucket").send().await), 404);
    assert_eq!(status(&client.create_bucket().bucket(BUCKET).send().await), 200);
    assert_eq!(status(&client.get_bucket_location().bucket(BUCKET).send().await), 200);
}
