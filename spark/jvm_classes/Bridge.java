package strandline.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.function.BiFunction;

/** The one way back into Python, where tables are opened and scans are planned. */
public final class Bridge {
  static final ObjectMapper JSON = new ObjectMapper();
  private static volatile BiFunction python;

  private Bridge() {}

  /** Called by Python: a function of a JSON request and an object, giving a status byte and an answer. */
  public static void connect(BiFunction function) {
    python = function;
  }

  static ObjectNode request(String operation) {
    ObjectNode made = JSON.createObjectNode();
    made.put("operation", operation);
    return made;
  }

  static JsonNode ask(ObjectNode request, Object payload) {
    try {
      return JSON.readTree(text(call(request, payload)));
    } catch (java.io.IOException error) {
      throw new IllegalStateException("strandline: an answer from Python is no JSON", error);
    }
  }

  /** The answer without its status byte; what Python refused becomes an error with its message. */
  static byte[] call(ObjectNode request, Object payload) {
    BiFunction function = python;
    if (function == null) {
      throw new IllegalStateException(
          "strandline: call strandline.spark.enable(spark) in the Python process of this session");
    }
    byte[] answer = (byte[]) function.apply(request.toString(), payload);
    if (answer[0] != 0) {
      throw new IllegalArgumentException(text(answer));
    }
    return answer;
  }

  private static String text(byte[] answer) {
    return new String(answer, 1, answer.length - 1, StandardCharsets.UTF_8);
  }
}
