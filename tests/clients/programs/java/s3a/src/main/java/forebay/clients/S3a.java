package forebay.clients;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.FSBuilder;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.hadoop.fs.s3a.UnknownStoreException;
import org.apache.hadoop.util.VersionInfo;

/** Hadoop's s3a, as the FileSystem that its users see. */
public final class S3a extends Program {
    private final Configuration configuration = new Configuration();

    private S3a() {
        configuration.set("fs.s3a.endpoint", ENDPOINT);
        configuration.set("fs.s3a.endpoint.region", REGION);
        configuration.set("fs.s3a.path.style.access", "true");
        configuration.set("fs.s3a.access.key", System.getenv("AWS_ACCESS_KEY_ID"));
        configuration.set("fs.s3a.secret.key", System.getenv("AWS_SECRET_ACCESS_KEY"));
    }

    public static void main(String[] arguments) throws Exception {
        new S3a().run();
    }

    @Override
    protected int statusOf(Exception error) {
        if (error instanceof FileNotFoundException || error instanceof UnknownStoreException) {
            return 404;
        }
        if (error instanceof FileAlreadyExistsException || error instanceof RemoteFileChangedException) {
            return 412;
        }
        return error instanceof AccessDeniedException ? 403 : 0;
    }

    @Override
    protected Object call(String name, Request request) throws Exception {
        if (name.equals("version")) {
            return VersionInfo.getVersion();
        }
        FileSystem files = FileSystem.get(URI.create("s3a://" + request.bucket()), configuration);
        Path path = pathOf(files, request.key());
        switch (name) {
            case "put" -> write(files.createFile(path).overwrite(true), request);
            case "get" -> read(files, request, 0, Long.MAX_VALUE);
            case "get_range" -> {
                long first = request.number("first");
                Long last = request.number("last");
                read(files, request, first, last == null ? Long.MAX_VALUE : last - first + 1);
            }
            case "get_suffix" -> {
                long length = request.number("length");
                read(files, request, files.getFileStatus(path).getLen() - length, length);
            }
            case "head" -> {
                FileStatus status = files.getFileStatus(path);
                Map<String, byte[]> headers = files.getXAttrs(path);
                return new Head(status.getLen(), header(headers, "Content-Type"), header(headers, "Content-Encoding"), null);
            }
            case "delete" -> confirm(path, files.delete(path, false));
            case "rename" -> confirm(path, files.rename(path, pathOf(files, request.text("to"))));
            case "put_if_absent" -> write(files.createFile(path).overwrite(false), request);
            case "put_if_match" -> write(
                    files.createFile(path)
                            .overwrite(true)
                            .must(CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE_ETAG, request.text("etag")),
                    request);
            case "list" -> {
                return list(files, pathOf(files, request.text("prefix")), request.text("delimiter") == null);
            }
            case "delete_many" -> deleteMany(files, request.texts("keys"));
            case "delete_prefix" -> {
                Path prefix = pathOf(files, request.text("prefix"));
                confirm(prefix, files.delete(prefix, true));
            }
            case "upload" -> files.copyFromLocalFile(new Path(request.text("path")), path);
            case "download" -> files.copyToLocalFile(path, new Path(request.text("path")));
            case "upload_tree" ->
                files.copyFromLocalFile(new Path(request.text("directory")), pathOf(files, request.text("prefix")));
            case "download_tree" -> {
                for (FileStatus child : files.listStatus(pathOf(files, request.text("prefix")))) {
                    files.copyToLocalFile(child.getPath(), new Path(request.text("directory")));
                }
            }
            default -> throw new UnsupportedOperationException(name);
        }
        return null;
    }

    /** The root for a key that is null or empty. */
    private static Path pathOf(FileSystem files, String key) {
        URI bucket = files.getUri();
        return new Path(bucket.getScheme(), bucket.getAuthority(), "/" + (key == null ? "" : key));
    }

    private static String keyOf(FileStatus status) {
        return status.getPath().toUri().getPath().substring(1) + (status.isDirectory() ? "/" : "");
    }

    private static String header(Map<String, byte[]> headers, String name) {
        byte[] value = headers.get("header." + name);
        return value == null ? null : new String(value, StandardCharsets.UTF_8);
    }

    private static void confirm(Path path, boolean done) throws IOException {
        if (!done) {
            throw new PathIOException(path.toString(), "not done");
        }
    }

    private static void write(FSBuilder<? extends OutputStream, ?> file, Request request) throws IOException {
        try (OutputStream out = file.build()) {
            Files.copy(request.path("body"), out);
        }
    }

    /** Reads at most `length` bytes from an offset on. */
    private static void read(FileSystem files, Request request, long offset, long length) throws IOException {
        try (FSDataInputStream in = files.open(pathOf(files, request.key()));
                OutputStream out = Files.newOutputStream(request.path("into"))) {
            in.seek(offset);
            if (length == Long.MAX_VALUE) {
                in.transferTo(out);
            } else {
                byte[] bytes = new byte[(int) length];
                in.readFully(bytes);
                out.write(bytes);
            }
        }
    }

    private static List<List<String>> list(FileSystem files, Path directory, boolean recursive) throws IOException {
        List<String> keys = new ArrayList<>();
        List<String> prefixes = new ArrayList<>();
        RemoteIterator<? extends FileStatus> found =
                recursive ? files.listFiles(directory, true) : files.listStatusIterator(directory);
        while (found.hasNext()) {
            FileStatus status = found.next();
            (status.isDirectory() ? prefixes : keys).add(keyOf(status));
        }
        return List.of(keys, prefixes);
    }

    private static void deleteMany(FileSystem files, List<String> keys) throws IOException {
        List<Path> paths = keys.stream().map(key -> pathOf(files, key)).toList();
        try (BulkDelete bulk = files.createBulkDelete(pathOf(files, null))) {
            for (int from = 0; from < paths.size(); from += bulk.pageSize()) {
                List<Path> page = paths.subList(from, Math.min(from + bulk.pageSize(), paths.size()));
                List<Map.Entry<Path, String>> failed = bulk.bulkDelete(page);
                confirm(page.get(0), failed.isEmpty());
            }
        }
    }
}
