package forebay.clients;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** A client that answers one JSON object a line, as client.py's Program asks. */
public abstract class Program {
    protected static final String ENDPOINT = System.getenv("FOREBAY_ENDPOINT");
    protected static final String REGION = System.getenv("AWS_REGION");

    /** Makes one call; returns what becomes its "result". */
    protected abstract Object call(String name, Request request) throws Exception;

    /** The HTTP status with which the server refused a call, or 0 for any other error. */
    protected abstract int statusOf(Exception error);

    protected void run() throws Exception {
        // What a library prints must not get between the answers.
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Gson gson = new Gson();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(gson.toJson(answer(JsonParser.parseString(line).getAsJsonObject())));
        }
        System.exit(0);
    }

    private Map<String, Object> answer(JsonObject parameters) {
        try {
            Object result = call(parameters.get("call").getAsString(), new Request(parameters));
            return result == null ? Map.of() : Map.of("result", result);
        } catch (Exception error) {
            error.printStackTrace();
            String kind = switch (statusOf(error)) {
                case 404 -> "missing";
                case 412 -> "precondition";
                case 403 -> "denied";
                default -> "other";
            };
            return Map.of("refused", kind, "detail", String.valueOf(error));
        }
    }

    /** A Head of client.py. What is null is left out. */
    protected record Head(long size, String content_type, String content_encoding, Map<String, String> metadata) {}
}
