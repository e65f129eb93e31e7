package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// awsClient is the AWS SDK for Go v2 with its transfer manager. Keys and region come from the environment.
type awsClient struct {
	s3       *s3.Client
	presign  *s3.PresignClient
	transfer *transfermanager.Client
}

func newAWS(ctx context.Context, endpoint string) (client, error) {
	settings, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return client{}, err
	}
	api := s3.NewFromConfig(settings, func(options *s3.Options) {
		options.BaseEndpoint = aws.String(endpoint)
		options.UsePathStyle = true
	})
	c := awsClient{api, s3.NewPresignClient(api), transfermanager.New(api)}
	calls := map[string]func(context.Context, request) (any, error){
		"version":         c.version,
		"put":             c.put,
		"get":             c.get,
		"get_range":       c.getRange,
		"get_suffix":      c.getSuffix,
		"head":            c.head,
		"delete":          c.delete,
		"copy":            c.copy,
		"rename":          c.rename,
		"put_if_absent":   c.putIfAbsent,
		"put_if_match":    c.putIfMatch,
		"put_tags":        c.putTags,
		"get_tags":        c.getTags,
		"list":            c.list,
		"delete_many":     c.deleteMany,
		"delete_prefix":   c.deletePrefix,
		"upload":          c.upload,
		"download":        c.download,
		"upload_tree":     c.uploadTree,
		"download_tree":   c.downloadTree,
		"create_upload":   c.createUpload,
		"upload_part":     c.uploadPart,
		"list_parts":      c.listParts,
		"complete_upload": c.completeUpload,
		"presign_get":     c.presignGet,
		"presign_put":     c.presignPut,
		"post_form":       c.postForm,
	}
	return client{calls, awsStatus}, nil
}

func awsStatus(err error) int {
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}

func (c awsClient) version(context.Context, request) (any, error) {
	return moduleVersion("github.com/aws/aws-sdk-go-v2/service/s3")
}

// putInput puts a body without conditions; what the request does not say is not sent.
func putInput(r request) *s3.PutObjectInput {
	input := &s3.PutObjectInput{Bucket: &r.Bucket, Key: &r.Key, Body: r.content, Metadata: r.Metadata}
	if r.ContentType != "" {
		input.ContentType = &r.ContentType
	}
	if r.ContentEncoding != "" {
		input.ContentEncoding = &r.ContentEncoding
	}
	return input
}

func (c awsClient) put(ctx context.Context, r request) (any, error) {
	_, err := c.s3.PutObject(ctx, putInput(r))
	return nil, err
}

func (c awsClient) putIfAbsent(ctx context.Context, r request) (any, error) {
	input := putInput(r)
	input.IfNoneMatch = aws.String("*")
	_, err := c.s3.PutObject(ctx, input)
	return nil, err
}

func (c awsClient) putIfMatch(ctx context.Context, r request) (any, error) {
	input := putInput(r)
	input.IfMatch = &r.ETag
	_, err := c.s3.PutObject(ctx, input)
	return nil, err
}

// getObject reads a range, or all where it is nil.
func (c awsClient) getObject(ctx context.Context, r request, wanted *string) (any, error) {
	output, err := c.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &r.Bucket, Key: &r.Key, Range: wanted})
	if err != nil {
		return nil, err
	}
	return nil, r.write(output.Body)
}

func (c awsClient) get(ctx context.Context, r request) (any, error) {
	return c.getObject(ctx, r, nil)
}

func (c awsClient) getRange(ctx context.Context, r request) (any, error) {
	if r.Last == nil {
		return c.getObject(ctx, r, aws.String(fmt.Sprintf("bytes=%d-", r.First)))
	}
	return c.getObject(ctx, r, aws.String(fmt.Sprintf("bytes=%d-%d", r.First, *r.Last)))
}

func (c awsClient) getSuffix(ctx context.Context, r request) (any, error) {
	return c.getObject(ctx, r, aws.String(fmt.Sprintf("bytes=-%d", r.Length)))
}

func (c awsClient) head(ctx context.Context, r request) (any, error) {
	output, err := c.s3.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &r.Bucket, Key: &r.Key})
	if err != nil {
		return nil, err
	}
	return head{
		Size:            aws.ToInt64(output.ContentLength),
		ContentType:     aws.ToString(output.ContentType),
		ContentEncoding: aws.ToString(output.ContentEncoding),
		Metadata:        output.Metadata,
	}, nil
}

func (c awsClient) delete(ctx context.Context, r request) (any, error) {
	_, err := c.s3.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &r.Bucket, Key: &r.Key})
	return nil, err
}

func (c awsClient) copy(ctx context.Context, r request) (any, error) {
	source := url.QueryEscape(r.Bucket + "/" + r.Key)
	_, err := c.s3.CopyObject(ctx, &s3.CopyObjectInput{Bucket: &r.Bucket, Key: &r.To, CopySource: &source})
	return nil, err
}

func (c awsClient) rename(ctx context.Context, r request) (any, error) {
	if _, err := c.copy(ctx, r); err != nil {
		return nil, err
	}
	return c.delete(ctx, r)
}

func (c awsClient) putTags(ctx context.Context, r request) (any, error) {
	var tags []types.Tag
	for name, value := range r.Tags {
		tags = append(tags, types.Tag{Key: aws.String(name), Value: aws.String(value)})
	}
	input := &s3.PutObjectTaggingInput{Bucket: &r.Bucket, Key: &r.Key, Tagging: &types.Tagging{TagSet: tags}}
	_, err := c.s3.PutObjectTagging(ctx, input)
	return nil, err
}

func (c awsClient) getTags(ctx context.Context, r request) (any, error) {
	output, err := c.s3.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: &r.Bucket, Key: &r.Key})
	if err != nil {
		return nil, err
	}
	tags := map[string]string{}
	for _, tag := range output.TagSet {
		tags[*tag.Key] = *tag.Value
	}
	return tags, nil
}

func (c awsClient) list(ctx context.Context, r request) (any, error) {
	input := &s3.ListObjectsV2Input{Bucket: &r.Bucket, Prefix: &r.Prefix}
	if r.Delimiter != "" {
		input.Delimiter = &r.Delimiter
	}
	keys, prefixes := []string{}, []string{}
	for pages := s3.NewListObjectsV2Paginator(c.s3, input); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, object := range page.Contents {
			keys = append(keys, *object.Key)
		}
		for _, prefix := range page.CommonPrefixes {
			prefixes = append(prefixes, *prefix.Prefix)
		}
	}
	return []any{keys, prefixes}, nil
}

func (c awsClient) deleteObjects(ctx context.Context, bucket string, objects []types.ObjectIdentifier) error {
	output, err := c.s3.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &bucket, Delete: &types.Delete{Objects: objects}})
	if err != nil {
		return err
	}
	if len(output.Deleted) != len(objects) {
		return fmt.Errorf("%d of %d deleted; %v", len(output.Deleted), len(objects), output.Errors)
	}
	return nil
}

func (c awsClient) deleteMany(ctx context.Context, r request) (any, error) {
	var objects []types.ObjectIdentifier
	for _, key := range r.Keys {
		objects = append(objects, types.ObjectIdentifier{Key: aws.String(key)})
	}
	return nil, c.deleteObjects(ctx, r.Bucket, objects)
}

func (c awsClient) deletePrefix(ctx context.Context, r request) (any, error) {
	input := &s3.ListObjectsV2Input{Bucket: &r.Bucket, Prefix: &r.Prefix}
	for pages := s3.NewListObjectsV2Paginator(c.s3, input); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		var objects []types.ObjectIdentifier
		for _, object := range page.Contents {
			objects = append(objects, types.ObjectIdentifier{Key: object.Key})
		}
		if err := c.deleteObjects(ctx, r.Bucket, objects); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (c awsClient) upload(ctx context.Context, r request) (any, error) {
	file, err := os.Open(r.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	_, err = c.transfer.UploadObject(ctx, &transfermanager.UploadObjectInput{Bucket: &r.Bucket, Key: &r.Key, Body: file})
	return nil, err
}

func (c awsClient) download(ctx context.Context, r request) (any, error) {
	file, err := os.Create(r.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	_, err = c.transfer.DownloadObject(ctx, &transfermanager.DownloadObjectInput{Bucket: &r.Bucket, Key: &r.Key, WriterAt: file})
	return nil, err
}

func (c awsClient) uploadTree(ctx context.Context, r request) (any, error) {
	// UploadDirectory puts a slash between the prefix and the names.
	prefix := strings.TrimSuffix(r.Prefix, "/")
	_, err := c.transfer.UploadDirectory(ctx, &transfermanager.UploadDirectoryInput{
		Bucket: &r.Bucket, Source: &r.Directory, KeyPrefix: &prefix, Recursive: aws.Bool(true),
	})
	return nil, err
}

func (c awsClient) downloadTree(ctx context.Context, r request) (any, error) {
	_, err := c.transfer.DownloadDirectory(ctx, &transfermanager.DownloadDirectoryInput{
		Bucket: &r.Bucket, Destination: &r.Directory, KeyPrefix: &r.Prefix,
	})
	return nil, err
}

func (c awsClient) createUpload(ctx context.Context, r request) (any, error) {
	output, err := c.s3.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &r.Bucket, Key: &r.Key})
	if err != nil {
		return nil, err
	}
	return output.UploadId, nil
}

func (c awsClient) uploadPart(ctx context.Context, r request) (any, error) {
	_, err := c.s3.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &r.Bucket, Key: &r.Key, UploadId: &r.Upload, PartNumber: &r.Number, Body: r.content,
	})
	return nil, err
}

func (c awsClient) listParts(ctx context.Context, r request) (any, error) {
	input := &s3.ListPartsInput{Bucket: &r.Bucket, Key: &r.Key, UploadId: &r.Upload}
	parts := map[int32]types.CompletedPart{}
	for pages := s3.NewListPartsPaginator(c.s3, input); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, part := range page.Parts {
			parts[*part.PartNumber] = types.CompletedPart{PartNumber: part.PartNumber, ETag: part.ETag}
		}
	}
	return parts, nil
}

func (c awsClient) completeUpload(ctx context.Context, r request) (any, error) {
	parts, err := inOrder[types.CompletedPart](r.Parts)
	if err != nil {
		return nil, err
	}
	_, err = c.s3.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &r.Bucket, Key: &r.Key, UploadId: &r.Upload, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	return nil, err
}

func (c awsClient) presignGet(ctx context.Context, r request) (any, error) {
	signed, err := c.presign.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: &r.Bucket, Key: &r.Key})
	if err != nil {
		return nil, err
	}
	return signed.URL, nil
}

func (c awsClient) presignPut(ctx context.Context, r request) (any, error) {
	signed, err := c.presign.PresignPutObject(ctx, &s3.PutObjectInput{Bucket: &r.Bucket, Key: &r.Key})
	if err != nil {
		return nil, err
	}
	return signed.URL, nil
}

func (c awsClient) postForm(ctx context.Context, r request) (any, error) {
	signed, err := c.presign.PresignPostObject(ctx, &s3.PutObjectInput{Bucket: &r.Bucket, Key: &r.Key})
	if err != nil {
		return nil, err
	}
	return []any{signed.URL, signed.Values}, nil
}
