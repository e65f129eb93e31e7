package forebay.clients;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The parameters of one call, under the names that client.py gives them. */
public record Request(JsonObject parameters) {
    /** Null where it is not given. */
    public String text(String name) {
        JsonElement value = parameters.get(name);
        return value == null || value.isJsonNull() ? null : value.getAsString();
    }

    /** Null where it is not given. */
    public Long number(String name) {
        JsonElement value = parameters.get(name);
        return value == null || value.isJsonNull() ? null : value.getAsLong();
    }

    public List<String> texts(String name) {
        List<String> texts = new ArrayList<>();
        parameters.getAsJsonArray(name).forEach(text -> texts.add(text.getAsString()));
        return texts;
    }

    public Map<String, String> map(String name) {
        Map<String, String> map = new LinkedHashMap<>();
        parameters.getAsJsonObject(name).entrySet().forEach(entry -> map.put(entry.getKey(), entry.getValue().getAsString()));
        return map;
    }

    public Path path(String name) {
        return Path.of(text(name));
    }

    public String bucket() {
        return text("bucket");
    }

    public String key() {
        return text("key");
    }
}
