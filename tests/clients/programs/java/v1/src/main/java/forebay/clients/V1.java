package forebay.clients;

import com.amazonaws.AmazonServiceException;
import com.amazonaws.HttpMethod;
import com.amazonaws.client.builder.AwsClientBuilder.EndpointConfiguration;
import com.amazonaws.services.s3.AmazonS3;
import com.amazonaws.services.s3.AmazonS3ClientBuilder;
import com.amazonaws.services.s3.model.CompleteMultipartUploadRequest;
import com.amazonaws.services.s3.model.DeleteObjectsRequest;
import com.amazonaws.services.s3.model.GetObjectRequest;
import com.amazonaws.services.s3.model.GetObjectTaggingRequest;
import com.amazonaws.services.s3.model.InitiateMultipartUploadRequest;
import com.amazonaws.services.s3.model.ListObjectsV2Request;
import com.amazonaws.services.s3.model.ListObjectsV2Result;
import com.amazonaws.services.s3.model.ListPartsRequest;
import com.amazonaws.services.s3.model.ObjectMetadata;
import com.amazonaws.services.s3.model.ObjectTagging;
import com.amazonaws.services.s3.model.PartETag;
import com.amazonaws.services.s3.model.PartSummary;
import com.amazonaws.services.s3.model.PutObjectRequest;
import com.amazonaws.services.s3.model.S3ObjectSummary;
import com.amazonaws.services.s3.model.SetObjectTaggingRequest;
import com.amazonaws.services.s3.model.Tag;
import com.amazonaws.services.s3.model.UploadPartRequest;
import com.amazonaws.services.s3.transfer.TransferManager;
import com.amazonaws.services.s3.transfer.TransferManagerBuilder;
import com.amazonaws.util.VersionInfoUtils;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The AWS SDK for Java 1 and its TransferManager. */
public final class V1 extends Program {
    private final AmazonS3 s3 =
            AmazonS3ClientBuilder.standard().withEndpointConfiguration(new EndpointConfiguration(ENDPOINT, REGION)).build();
    private final TransferManager manager = TransferManagerBuilder.standard().withS3Client(s3).build();

    public static void main(String[] arguments) throws Exception {
        new V1().run();
    }

    @Override
    protected int statusOf(Exception error) {
        return error instanceof AmazonServiceException refused ? refused.getStatusCode() : 0;
    }

    @Override
    protected Object call(String name, Request request) throws Exception {
        String bucket = request.bucket();
        String key = request.key();
        switch (name) {
            case "version" -> {
                return VersionInfoUtils.getVersion();
            }
            case "put" -> {
                ObjectMetadata metadata = new ObjectMetadata();
                if (request.text("content_type") != null) {
                    metadata.setContentType(request.text("content_type"));
                }
                if (request.text("content_encoding") != null) {
                    metadata.setContentEncoding(request.text("content_encoding"));
                }
                metadata.setUserMetadata(request.map("metadata"));
                s3.putObject(new PutObjectRequest(bucket, key, request.path("body").toFile()).withMetadata(metadata));
            }
            case "get" -> s3.getObject(new GetObjectRequest(bucket, key), request.path("into").toFile());
            case "get_range" -> {
                GetObjectRequest range = new GetObjectRequest(bucket, key);
                Long last = request.number("last");
                if (last == null) {
                    range.setRange(request.number("first"));
                } else {
                    range.setRange(request.number("first"), last);
                }
                s3.getObject(range, request.path("into").toFile());
            }
            case "head" -> {
                ObjectMetadata head = s3.getObjectMetadata(bucket, key);
                return new Head(head.getContentLength(), head.getContentType(), head.getContentEncoding(), head.getUserMetadata());
            }
            case "delete" -> s3.deleteObject(bucket, key);
            case "copy" -> manager.copy(bucket, key, bucket, request.text("to")).waitForCompletion();
            case "rename" -> {
                manager.copy(bucket, key, bucket, request.text("to")).waitForCompletion();
                s3.deleteObject(bucket, key);
            }
            case "put_if_absent" -> {
                PutObjectRequest put = new PutObjectRequest(bucket, key, request.path("body").toFile());
                put.setIfNoneMatch("*");
                s3.putObject(put);
            }
            case "put_if_match" -> {
                PutObjectRequest put = new PutObjectRequest(bucket, key, request.path("body").toFile());
                put.setIfMatch(request.text("etag"));
                s3.putObject(put);
            }
            case "put_tags" -> {
                List<Tag> tags = new ArrayList<>();
                request.map("tags").forEach((tag, value) -> tags.add(new Tag(tag, value)));
                s3.setObjectTagging(new SetObjectTaggingRequest(bucket, key, new ObjectTagging(tags)));
            }
            case "get_tags" -> {
                List<Tag> tags = s3.getObjectTagging(new GetObjectTaggingRequest(bucket, key)).getTagSet();
                return tags.stream().collect(Collectors.toMap(Tag::getKey, Tag::getValue));
            }
            case "list" -> {
                return list(new ListObjectsV2Request()
                        .withBucketName(bucket)
                        .withPrefix(request.text("prefix"))
                        .withDelimiter(request.text("delimiter")));
            }
            case "delete_many" -> deleteMany(bucket, request.texts("keys"));
            case "delete_prefix" -> deletePrefix(bucket, request.text("prefix"));
            case "upload" -> manager.upload(bucket, key, request.path("path").toFile()).waitForCompletion();
            case "download" -> manager.download(bucket, key, request.path("path").toFile()).waitForCompletion();
            case "upload_tree" -> manager
                    .uploadDirectory(bucket, request.text("prefix"), request.path("directory").toFile(), true)
                    .waitForCompletion();
            case "download_tree" -> downloadTree(bucket, request.text("prefix"), request.path("directory"));
            case "create_upload" -> {
                return s3.initiateMultipartUpload(new InitiateMultipartUploadRequest(bucket, key)).getUploadId();
            }
            case "upload_part" -> s3.uploadPart(new UploadPartRequest()
                    .withBucketName(bucket)
                    .withKey(key)
                    .withUploadId(request.text("upload"))
                    .withPartNumber(request.number("number").intValue())
                    .withFile(request.path("body").toFile())
                    .withPartSize(Files.size(request.path("body"))));
            case "list_parts" -> {
                List<PartSummary> parts = s3.listParts(new ListPartsRequest(bucket, key, request.text("upload"))).getParts();
                return parts.stream().collect(Collectors.toMap(PartSummary::getPartNumber, PartSummary::getETag));
            }
            case "complete_upload" -> {
                Map<Integer, String> parts = new TreeMap<>();
                request.map("parts").forEach((number, etag) -> parts.put(Integer.valueOf(number), etag));
                List<PartETag> listed = new ArrayList<>();
                parts.forEach((number, etag) -> listed.add(new PartETag(number, etag)));
                s3.completeMultipartUpload(new CompleteMultipartUploadRequest(bucket, key, request.text("upload"), listed));
            }
            case "presign_get" -> {
                return s3.generatePresignedUrl(bucket, key, inAnHour(), HttpMethod.GET).toString();
            }
            case "presign_put" -> {
                return s3.generatePresignedUrl(bucket, key, inAnHour(), HttpMethod.PUT).toString();
            }
            default -> throw new UnsupportedOperationException(name);
        }
        return null;
    }

    private List<List<String>> list(ListObjectsV2Request request) {
        List<String> keys = new ArrayList<>();
        List<String> prefixes = new ArrayList<>();
        ListObjectsV2Result page;
        do {
            page = s3.listObjectsV2(request);
            page.getObjectSummaries().forEach(item -> keys.add(item.getKey()));
            prefixes.addAll(page.getCommonPrefixes());
            request.setContinuationToken(page.getNextContinuationToken());
        } while (page.isTruncated());
        return List.of(keys, prefixes);
    }

    private void deletePrefix(String bucket, String prefix) {
        ListObjectsV2Request request = new ListObjectsV2Request().withBucketName(bucket).withPrefix(prefix);
        ListObjectsV2Result page;
        do {
            page = s3.listObjectsV2(request);
            deleteMany(bucket, page.getObjectSummaries().stream().map(S3ObjectSummary::getKey).toList());
            request.setContinuationToken(page.getNextContinuationToken());
        } while (page.isTruncated());
    }

    private void deleteMany(String bucket, List<String> keys) {
        s3.deleteObjects(new DeleteObjectsRequest(bucket).withKeys(keys.toArray(String[]::new)));
    }

    /** The manager makes the directories of the prefix too: takes out what lies below them. */
    private void downloadTree(String bucket, String prefix, Path directory) throws Exception {
        Path whole = Files.createTempDirectory(directory.getParent(), "whole");
        manager.downloadDirectory(bucket, prefix, whole.toFile()).waitForCompletion();
        try (Stream<Path> children = Files.list(whole.resolve(prefix))) {
            for (Path child : children.toList()) {
                Files.move(child, directory.resolve(child.getFileName()));
            }
        }
    }

    private static Date inAnHour() {
        return Date.from(Instant.now().plus(Duration.ofHours(1)));
    }
}
