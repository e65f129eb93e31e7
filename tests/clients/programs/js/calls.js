// The calls of the scenarios, as a user of the AWS SDK for JavaScript writes them.

import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { pipeline } from "node:stream/promises";

import * as s3 from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { createPresignedPost } from "@aws-sdk/s3-presigned-post";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";

const TREE_FILES_AT_ONCE = 8;

// Keys and region are in the environment; an address as endpoint makes it path style.
const client = new s3.S3Client({ endpoint: process.env.FOREBAY_ENDPOINT });

export function version() {
  return createRequire(import.meta.url)("@aws-sdk/client-s3/package.json").version;
}

export async function put({ bucket, key, body, content_type, content_encoding, metadata }) {
  const more = { ContentType: content_type ?? undefined, ContentEncoding: content_encoding ?? undefined, Metadata: metadata };
  await client.send(new s3.PutObjectCommand({ Bucket: bucket, Key: key, Body: await readFile(body), ...more }));
}

export async function get({ bucket, key, into, range }) {
  const { Body } = await client.send(new s3.GetObjectCommand({ Bucket: bucket, Key: key, Range: range }));
  await writeFile(into, await Body.transformToByteArray());
}

export async function get_range({ first, last, ...object }) {
  await get({ ...object, range: `bytes=${first}-${last ?? ""}` });
}

export async function get_suffix({ length, ...object }) {
  await get({ ...object, range: `bytes=-${length}` });
}

export async function head({ bucket, key }) {
  const found = await client.send(new s3.HeadObjectCommand({ Bucket: bucket, Key: key }));
  return {
    size: found.ContentLength,
    content_type: found.ContentType,
    content_encoding: found.ContentEncoding,
    metadata: found.Metadata,
  };
}

async function remove({ bucket, key }) {
  await client.send(new s3.DeleteObjectCommand({ Bucket: bucket, Key: key }));
}
export { remove as delete };

export async function copy({ bucket, key, to }) {
  const source = encodeURIComponent(`${bucket}/${key}`);
  await client.send(new s3.CopyObjectCommand({ Bucket: bucket, Key: to, CopySource: source }));
}

export async function rename({ bucket, key, to }) {
  await copy({ bucket, key, to });
  await remove({ bucket, key });
}

export async function put_if_absent({ bucket, key, body }) {
  await client.send(new s3.PutObjectCommand({ Bucket: bucket, Key: key, Body: await readFile(body), IfNoneMatch: "*" }));
}

export async function put_if_match({ bucket, key, body, etag }) {
  await client.send(new s3.PutObjectCommand({ Bucket: bucket, Key: key, Body: await readFile(body), IfMatch: etag }));
}

export async function put_tags({ bucket, key, tags }) {
  const TagSet = Object.entries(tags).map(([Key, Value]) => ({ Key, Value }));
  await client.send(new s3.PutObjectTaggingCommand({ Bucket: bucket, Key: key, Tagging: { TagSet } }));
}

export async function get_tags({ bucket, key }) {
  const { TagSet } = await client.send(new s3.GetObjectTaggingCommand({ Bucket: bucket, Key: key }));
  return Object.fromEntries(TagSet.map(({ Key, Value }) => [Key, Value]));
}

function pages(bucket, prefix, delimiter) {
  return s3.paginateListObjectsV2({ client }, { Bucket: bucket, Prefix: prefix, Delimiter: delimiter ?? undefined });
}

export async function list({ bucket, prefix, delimiter }) {
  const keys = [];
  const prefixes = [];
  for await (const page of pages(bucket, prefix, delimiter)) {
    keys.push(...(page.Contents ?? []).map(({ Key }) => Key));
    prefixes.push(...(page.CommonPrefixes ?? []).map(({ Prefix }) => Prefix));
  }
  return [keys, prefixes];
}

export async function delete_many({ bucket, keys }) {
  const Objects = keys.map((Key) => ({ Key }));
  const { Errors } = await client.send(new s3.DeleteObjectsCommand({ Bucket: bucket, Delete: { Objects } }));
  if (Errors?.length) throw new Error(JSON.stringify(Errors));
}

export async function delete_prefix({ bucket, prefix }) {
  for await (const { Contents } of pages(bucket, prefix)) {
    await delete_many({ bucket, keys: Contents.map(({ Key }) => Key) });
  }
}

export async function upload({ bucket, key, path: source }) {
  await new Upload({ client, params: { Bucket: bucket, Key: key, Body: createReadStream(source) } }).done();
}

// lib-storage manages uploads alone: a download is one request, whose body is piped into a file.
export async function download({ bucket, key, path: target }) {
  const { Body } = await client.send(new s3.GetObjectCommand({ Bucket: bucket, Key: key }));
  await pipeline(Body, createWriteStream(target));
}

export async function upload_tree({ directory, bucket, prefix }) {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name));
  await severalAtOnce(files, (file) => upload({ bucket, key: prefix + path.relative(directory, file), path: file }));
}

export async function download_tree({ bucket, prefix, directory }) {
  const [keys] = await list({ bucket, prefix });
  await severalAtOnce(keys, async (key) => {
    const target = path.join(directory, key.slice(prefix.length));
    await mkdir(path.dirname(target), { recursive: true });
    await download({ bucket, key, path: target });
  });
}

// Workers take from one iterator until it's empty.
async function severalAtOnce(items, work) {
  const left = items.values();
  const worker = async () => {
    for (const item of left) await work(item);
  };
  await Promise.all(Array.from({ length: TREE_FILES_AT_ONCE }, worker));
}

export async function create_upload({ bucket, key }) {
  return (await client.send(new s3.CreateMultipartUploadCommand({ Bucket: bucket, Key: key }))).UploadId;
}

export async function upload_part({ bucket, key, upload: id, number, body }) {
  const part = { Bucket: bucket, Key: key, UploadId: id, PartNumber: number, Body: await readFile(body) };
  await client.send(new s3.UploadPartCommand(part));
}

export async function list_parts({ bucket, key, upload: id }) {
  const { Parts } = await client.send(new s3.ListPartsCommand({ Bucket: bucket, Key: key, UploadId: id }));
  return Object.fromEntries((Parts ?? []).map(({ PartNumber, ETag }) => [PartNumber, ETag]));
}

export async function complete_upload({ bucket, key, upload: id, parts }) {
  const Parts = Object.entries(parts).map(([number, ETag]) => ({ PartNumber: Number(number), ETag }));
  const upload = { Bucket: bucket, Key: key, UploadId: id, MultipartUpload: { Parts } };
  await client.send(new s3.CompleteMultipartUploadCommand(upload));
}

export function presign_get({ bucket, key }) {
  return getSignedUrl(client, new s3.GetObjectCommand({ Bucket: bucket, Key: key }));
}

export function presign_put({ bucket, key }) {
  return getSignedUrl(client, new s3.PutObjectCommand({ Bucket: bucket, Key: key }));
}

export async function post_form({ bucket, key }) {
  const { url, fields } = await createPresignedPost(client, { Bucket: bucket, Key: key });
  return [url, fields];
}
