package main

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/tags"
	"golang.org/x/sync/errgroup"
)

// transfers is how many files of a directory go at once: minio-go moves one for each call.
const transfers = 8

// minioClient is minio-go. Keys come from the environment; the client asks the server for the region.
type minioClient struct {
	*minio.Client
	core minio.Core
}

func newMinio(_ context.Context, endpoint string) (client, error) {
	server, err := url.Parse(endpoint)
	if err != nil {
		return client{}, err
	}
	api, err := minio.New(server.Host, &minio.Options{Creds: credentials.NewEnvAWS(), Secure: server.Scheme == "https"})
	if err != nil {
		return client{}, err
	}
	c := minioClient{api, minio.Core{Client: api}}
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
	return client{calls, func(err error) int { return minio.ToErrorResponse(err).StatusCode }}, nil
}

func (c minioClient) version(context.Context, request) (any, error) {
	return moduleVersion("github.com/minio/minio-go/v7")
}

func (c minioClient) putObject(ctx context.Context, r request, options minio.PutObjectOptions) (any, error) {
	about, err := r.content.Stat()
	if err != nil {
		return nil, err
	}
	_, err = c.PutObject(ctx, r.Bucket, r.Key, r.content, about.Size(), options)
	return nil, err
}

func (c minioClient) put(ctx context.Context, r request) (any, error) {
	return c.putObject(ctx, r, minio.PutObjectOptions{
		ContentType: r.ContentType, ContentEncoding: r.ContentEncoding, UserMetadata: r.Metadata,
	})
}

func (c minioClient) putIfAbsent(ctx context.Context, r request) (any, error) {
	var options minio.PutObjectOptions
	options.SetMatchETagExcept("*")
	return c.putObject(ctx, r, options)
}

func (c minioClient) putIfMatch(ctx context.Context, r request) (any, error) {
	var options minio.PutObjectOptions
	options.SetMatchETag(strings.Trim(r.ETag, `"`))
	return c.putObject(ctx, r, options)
}

func (c minioClient) getObject(ctx context.Context, r request, options minio.GetObjectOptions) (any, error) {
	object, err := c.GetObject(ctx, r.Bucket, r.Key, options)
	if err != nil {
		return nil, err
	}
	return nil, r.write(object)
}

func (c minioClient) get(ctx context.Context, r request) (any, error) {
	return c.getObject(ctx, r, minio.GetObjectOptions{})
}

func (c minioClient) getRange(ctx context.Context, r request) (any, error) {
	var last int64 // 0 is the end of the object, for a range that does not start at 0
	if r.Last != nil {
		last = *r.Last
	}
	var options minio.GetObjectOptions
	if err := options.SetRange(r.First, last); err != nil {
		return nil, err
	}
	return c.getObject(ctx, r, options)
}

func (c minioClient) getSuffix(ctx context.Context, r request) (any, error) {
	var options minio.GetObjectOptions
	if err := options.SetRange(0, -r.Length); err != nil {
		return nil, err
	}
	return c.getObject(ctx, r, options)
}

func (c minioClient) head(ctx context.Context, r request) (any, error) {
	about, err := c.StatObject(ctx, r.Bucket, r.Key, minio.StatObjectOptions{})
	if err != nil {
		return nil, err
	}
	metadata := map[string]string{}
	for name, value := range about.UserMetadata {
		// The client tells names as HTTP headers are written.
		metadata[strings.ToLower(name)] = value
	}
	return head{about.Size, about.ContentType, about.Metadata.Get("Content-Encoding"), metadata}, nil
}

func (c minioClient) delete(ctx context.Context, r request) (any, error) {
	return nil, c.RemoveObject(ctx, r.Bucket, r.Key, minio.RemoveObjectOptions{})
}

func (c minioClient) copy(ctx context.Context, r request) (any, error) {
	from, to := minio.CopySrcOptions{Bucket: r.Bucket, Object: r.Key}, minio.CopyDestOptions{Bucket: r.Bucket, Object: r.To}
	_, err := c.CopyObject(ctx, to, from)
	return nil, err
}

func (c minioClient) rename(ctx context.Context, r request) (any, error) {
	if _, err := c.copy(ctx, r); err != nil {
		return nil, err
	}
	return c.delete(ctx, r)
}

func (c minioClient) putTags(ctx context.Context, r request) (any, error) {
	object, err := tags.MapToObjectTags(r.Tags)
	if err != nil {
		return nil, err
	}
	return nil, c.PutObjectTagging(ctx, r.Bucket, r.Key, object, minio.PutObjectTaggingOptions{})
}

func (c minioClient) getTags(ctx context.Context, r request) (any, error) {
	object, err := c.GetObjectTagging(ctx, r.Bucket, r.Key, minio.GetObjectTaggingOptions{})
	if err != nil {
		return nil, err
	}
	return object.ToMap(), nil
}

func (c minioClient) list(ctx context.Context, r request) (any, error) {
	keys, prefixes := []string{}, []string{}
	options := minio.ListObjectsOptions{Prefix: r.Prefix, Recursive: r.Delimiter == ""}
	for object := range c.ListObjectsIter(ctx, r.Bucket, options) {
		switch {
		case object.Err != nil:
			return nil, object.Err
		case object.ETag == "":
			// A common prefix comes as an object that has a name alone.
			prefixes = append(prefixes, object.Key)
		default:
			keys = append(keys, object.Key)
		}
	}
	return []any{keys, prefixes}, nil
}

func (c minioClient) removeObjects(ctx context.Context, bucket string, objects iter.Seq[minio.ObjectInfo]) error {
	results, err := c.RemoveObjectsWithIter(ctx, bucket, objects, minio.RemoveObjectsOptions{})
	if err != nil {
		return err
	}
	for result := range results {
		if result.Err != nil {
			return fmt.Errorf("%s: %w", result.ObjectName, result.Err)
		}
	}
	return nil
}

func (c minioClient) deleteMany(ctx context.Context, r request) (any, error) {
	var objects []minio.ObjectInfo
	for _, key := range r.Keys {
		objects = append(objects, minio.ObjectInfo{Key: key})
	}
	return nil, c.removeObjects(ctx, r.Bucket, slices.Values(objects))
}

func (c minioClient) deletePrefix(ctx context.Context, r request) (any, error) {
	listed := c.ListObjectsIter(ctx, r.Bucket, minio.ListObjectsOptions{Prefix: r.Prefix, Recursive: true})
	return nil, c.removeObjects(ctx, r.Bucket, listed)
}

func (c minioClient) upload(ctx context.Context, r request) (any, error) {
	_, err := c.FPutObject(ctx, r.Bucket, r.Key, r.Path, minio.PutObjectOptions{})
	return nil, err
}

func (c minioClient) download(ctx context.Context, r request) (any, error) {
	return nil, c.FGetObject(ctx, r.Bucket, r.Key, r.Path, minio.GetObjectOptions{})
}

func (c minioClient) uploadTree(ctx context.Context, r request) (any, error) {
	files, running := errgroup.WithContext(ctx)
	files.SetLimit(transfers)
	err := fs.WalkDir(os.DirFS(r.Directory), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files.Go(func() error {
				path := filepath.Join(r.Directory, name)
				_, err := c.FPutObject(running, r.Bucket, r.Prefix+name, path, minio.PutObjectOptions{})
				return err
			})
		}
		return err
	})
	if sent := files.Wait(); sent != nil {
		return nil, sent
	}
	return nil, err
}

func (c minioClient) downloadTree(ctx context.Context, r request) (any, error) {
	files, running := errgroup.WithContext(ctx)
	files.SetLimit(transfers)
	for object := range c.ListObjectsIter(ctx, r.Bucket, minio.ListObjectsOptions{Prefix: r.Prefix, Recursive: true}) {
		files.Go(func() error {
			if object.Err != nil {
				return object.Err
			}
			path := filepath.Join(r.Directory, strings.TrimPrefix(object.Key, r.Prefix))
			return c.FGetObject(running, r.Bucket, object.Key, path, minio.GetObjectOptions{})
		})
	}
	return nil, files.Wait()
}

func (c minioClient) createUpload(ctx context.Context, r request) (any, error) {
	return c.core.NewMultipartUpload(ctx, r.Bucket, r.Key, minio.PutObjectOptions{})
}

func (c minioClient) uploadPart(ctx context.Context, r request) (any, error) {
	about, err := r.content.Stat()
	if err != nil {
		return nil, err
	}
	options := minio.PutObjectPartOptions{}
	_, err = c.core.PutObjectPart(ctx, r.Bucket, r.Key, r.Upload, int(r.Number), r.content, about.Size(), options)
	return nil, err
}

func (c minioClient) listParts(ctx context.Context, r request) (any, error) {
	parts := map[int]minio.CompletePart{}
	for marker, more := 0, true; more; {
		page, err := c.core.ListObjectParts(ctx, r.Bucket, r.Key, r.Upload, marker, 1000)
		if err != nil {
			return nil, err
		}
		for _, part := range page.ObjectParts {
			parts[part.PartNumber] = minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag}
		}
		marker, more = page.NextPartNumberMarker, page.IsTruncated
	}
	return parts, nil
}

func (c minioClient) completeUpload(ctx context.Context, r request) (any, error) {
	parts, err := inOrder[minio.CompletePart](r.Parts)
	if err != nil {
		return nil, err
	}
	_, err = c.core.CompleteMultipartUpload(ctx, r.Bucket, r.Key, r.Upload, parts, minio.PutObjectOptions{})
	return nil, err
}

func (c minioClient) presignGet(ctx context.Context, r request) (any, error) {
	signed, err := c.PresignedGetObject(ctx, r.Bucket, r.Key, time.Hour, nil)
	if err != nil {
		return nil, err
	}
	return signed.String(), nil
}

func (c minioClient) presignPut(ctx context.Context, r request) (any, error) {
	signed, err := c.PresignedPutObject(ctx, r.Bucket, r.Key, time.Hour)
	if err != nil {
		return nil, err
	}
	return signed.String(), nil
}

func (c minioClient) postForm(ctx context.Context, r request) (any, error) {
	policy := minio.NewPostPolicy()
	if err := policy.SetBucket(r.Bucket); err != nil {
		return nil, err
	}
	if err := policy.SetKey(r.Key); err != nil {
		return nil, err
	}
	if err := policy.SetExpires(time.Now().UTC().Add(time.Hour)); err != nil {
		return nil, err
	}
	form, fields, err := c.PresignedPostPolicy(ctx, policy)
	if err != nil {
		return nil, err
	}
	return []any{form.String(), fields}, nil
}
