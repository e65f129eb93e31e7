package forebay.clients;

import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletionException;
import java.util.stream.Collectors;
import software.amazon.awssdk.awscore.exception.AwsServiceException;
import software.amazon.awssdk.core.util.VersionInfo;
import software.amazon.awssdk.services.s3.S3AsyncClient;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.CommonPrefix;
import software.amazon.awssdk.services.s3.model.CompletedPart;
import software.amazon.awssdk.services.s3.model.DeleteObjectsResponse;
import software.amazon.awssdk.services.s3.model.HeadObjectResponse;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Response;
import software.amazon.awssdk.services.s3.model.ObjectIdentifier;
import software.amazon.awssdk.services.s3.model.Part;
import software.amazon.awssdk.services.s3.model.S3Object;
import software.amazon.awssdk.services.s3.model.Tag;
import software.amazon.awssdk.services.s3.paginators.ListObjectsV2Iterable;
import software.amazon.awssdk.services.s3.presigner.S3Presigner;
import software.amazon.awssdk.transfer.s3.S3TransferManager;
import software.amazon.awssdk.transfer.s3.model.CompletedDirectoryDownload;
import software.amazon.awssdk.transfer.s3.model.CompletedDirectoryUpload;

/** The AWS SDK for Java 2, and its transfer manager over the AWS common runtime. */
public final class V2 extends Program {
    private static final URI SERVER = URI.create(ENDPOINT);
    private static final Duration HOUR = Duration.ofHours(1);

    private final S3Client s3 = S3Client.builder().endpointOverride(SERVER).build();
    private final S3TransferManager manager =
            S3TransferManager.builder().s3Client(S3AsyncClient.crtBuilder().endpointOverride(SERVER).build()).build();
    private final S3Presigner presigner = S3Presigner.builder().endpointOverride(SERVER).build();

    public static void main(String[] arguments) throws Exception {
        new V2().run();
    }

    @Override
    protected int statusOf(Exception error) {
        Throwable cause = error instanceof CompletionException ? error.getCause() : error;
        return cause instanceof AwsServiceException refused ? refused.statusCode() : 0;
    }

    @Override
    protected Object call(String name, Request request) {
        String bucket = request.bucket();
        String key = request.key();
        switch (name) {
            case "version" -> {
                return VersionInfo.SDK_VERSION;
            }
            case "put" -> s3.putObject(
                    put -> put.bucket(bucket)
                            .key(key)
                            .contentType(request.text("content_type"))
                            .contentEncoding(request.text("content_encoding"))
                            .metadata(request.map("metadata")),
                    request.path("body"));
            case "get" -> s3.getObject(get -> get.bucket(bucket).key(key), request.path("into"));
            case "get_range" -> {
                Long last = request.number("last");
                getRange(request, request.number("first") + "-" + (last == null ? "" : last));
            }
            case "get_suffix" -> getRange(request, "-" + request.number("length"));
            case "head" -> {
                HeadObjectResponse head = s3.headObject(wanted -> wanted.bucket(bucket).key(key));
                return new Head(head.contentLength(), head.contentType(), head.contentEncoding(), head.metadata());
            }
            case "delete" -> s3.deleteObject(delete -> delete.bucket(bucket).key(key));
            case "copy" -> copy(request);
            case "rename" -> {
                copy(request);
                s3.deleteObject(delete -> delete.bucket(bucket).key(key));
            }
            case "put_if_absent" -> s3.putObject(put -> put.bucket(bucket).key(key).ifNoneMatch("*"), request.path("body"));
            case "put_if_match" ->
                s3.putObject(put -> put.bucket(bucket).key(key).ifMatch(request.text("etag")), request.path("body"));
            case "put_tags" -> {
                List<Tag> tags = new ArrayList<>();
                request.map("tags").forEach((tag, value) -> tags.add(Tag.builder().key(tag).value(value).build()));
                s3.putObjectTagging(put -> put.bucket(bucket).key(key).tagging(tagging -> tagging.tagSet(tags)));
            }
            case "get_tags" -> {
                List<Tag> tags = s3.getObjectTagging(get -> get.bucket(bucket).key(key)).tagSet();
                return tags.stream().collect(Collectors.toMap(Tag::key, Tag::value));
            }
            case "list" -> {
                ListObjectsV2Iterable pages = s3.listObjectsV2Paginator(
                        list -> list.bucket(bucket).prefix(request.text("prefix")).delimiter(request.text("delimiter")));
                List<String> keys = pages.contents().stream().map(S3Object::key).toList();
                return List.of(keys, pages.commonPrefixes().stream().map(CommonPrefix::prefix).toList());
            }
            case "delete_many" -> deleteMany(bucket, request.texts("keys"));
            case "delete_prefix" -> {
                for (ListObjectsV2Response page : s3.listObjectsV2Paginator(list -> list.bucket(bucket).prefix(request.text("prefix")))) {
                    deleteMany(bucket, page.contents().stream().map(S3Object::key).toList());
                }
            }
            case "upload" -> manager
                    .uploadFile(upload -> upload.putObjectRequest(put -> put.bucket(bucket).key(key)).source(request.path("path")))
                    .completionFuture()
                    .join();
            case "download" -> manager
                    .downloadFile(
                            download -> download.getObjectRequest(get -> get.bucket(bucket).key(key)).destination(request.path("path")))
                    .completionFuture()
                    .join();
            case "upload_tree" -> uploadTree(request.path("directory"), bucket, request.text("prefix"));
            case "download_tree" -> downloadTree(bucket, request.text("prefix"), request.path("directory"));
            case "create_upload" -> {
                return s3.createMultipartUpload(create -> create.bucket(bucket).key(key)).uploadId();
            }
            case "upload_part" -> s3.uploadPart(
                    part -> part.bucket(bucket)
                            .key(key)
                            .uploadId(request.text("upload"))
                            .partNumber(request.number("number").intValue()),
                    request.path("body"));
            case "list_parts" -> {
                return s3.listPartsPaginator(list -> list.bucket(bucket).key(key).uploadId(request.text("upload"))).parts().stream()
                        .collect(Collectors.toMap(Part::partNumber, Part::eTag));
            }
            case "complete_upload" -> {
                Map<Integer, String> parts = new TreeMap<>();
                request.map("parts").forEach((number, etag) -> parts.put(Integer.valueOf(number), etag));
                List<CompletedPart> listed = new ArrayList<>();
                parts.forEach((number, etag) -> listed.add(CompletedPart.builder().partNumber(number).eTag(etag).build()));
                s3.completeMultipartUpload(complete -> complete.bucket(bucket)
                        .key(key)
                        .uploadId(request.text("upload"))
                        .multipartUpload(upload -> upload.parts(listed)));
            }
            case "presign_get" -> {
                return presigner
                        .presignGetObject(signed -> signed.signatureDuration(HOUR).getObjectRequest(get -> get.bucket(bucket).key(key)))
                        .url()
                        .toString();
            }
            case "presign_put" -> {
                return presigner
                        .presignPutObject(signed -> signed.signatureDuration(HOUR).putObjectRequest(put -> put.bucket(bucket).key(key)))
                        .url()
                        .toString();
            }
            default -> throw new UnsupportedOperationException(name);
        }
        return null;
    }

    private void getRange(Request request, String range) {
        s3.getObject(get -> get.bucket(request.bucket()).key(request.key()).range("bytes=" + range), request.path("into"));
    }

    private void copy(Request request) {
        manager.copy(wanted -> wanted.copyObjectRequest(copy -> copy.sourceBucket(request.bucket())
                        .sourceKey(request.key())
                        .destinationBucket(request.bucket())
                        .destinationKey(request.text("to"))))
                .completionFuture()
                .join();
    }

    private void deleteMany(String bucket, List<String> keys) {
        List<ObjectIdentifier> objects = keys.stream().map(key -> ObjectIdentifier.builder().key(key).build()).toList();
        DeleteObjectsResponse answer = s3.deleteObjects(delete -> delete.bucket(bucket).delete(batch -> batch.objects(objects)));
        refuse(answer.errors());
    }

    private void uploadTree(Path directory, String bucket, String prefix) {
        CompletedDirectoryUpload done = manager.uploadDirectory(upload -> upload.source(directory).bucket(bucket).s3Prefix(prefix))
                .completionFuture()
                .join();
        refuse(done.failedTransfers());
    }

    private void downloadTree(String bucket, String prefix, Path directory) {
        CompletedDirectoryDownload done = manager.downloadDirectory(download -> download.bucket(bucket)
                        .listObjectsV2RequestTransformer(list -> list.prefix(prefix))
                        .destination(directory))
                .completionFuture()
                .join();
        refuse(done.failedTransfers());
    }

    /** Calls that do many things tell in their results what failed. */
    private static void refuse(List<?> failed) {
        if (!failed.isEmpty()) {
            throw new IllegalStateException(failed.toString());
        }
    }
}
