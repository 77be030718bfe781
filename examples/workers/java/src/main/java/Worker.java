import java.net.URI;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.resps.StreamEntry;
import redis.clients.jedis.util.JedisURIHelper;

/**
 * A plain worker in Jedis: reads, works, acknowledges, and finishes what it held when it ended.
 * What it must and should do is in docs/reference/protocol.md. handle stands for your work.
 */
public final class Worker {
  static final Map<String, String> ENV = System.getenv();
  static final String STREAM = ENV.get("PELOPS_STREAM");
  static final String GROUP = ENV.get("PELOPS_GROUP");
  static final String CONSUMER = ENV.get("PELOPS_CONSUMER");
  static final StreamEntryID START = new StreamEntryID(0, 0);
  static final StreamEntryID NEW = StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY;
  static volatile boolean ending;

  static void handle(StreamEntryID id, Map<String, String> fields) throws InterruptedException {
    Thread.sleep(Long.parseLong(fields.getOrDefault("work_ms", "0")));
    System.out.println("done " + id);
  }

  /** Reads once and works what came; where to read next: the own history first, then new ones. */
  static StreamEntryID work(JedisPooled server, StreamEntryID position) {
    var limits = XReadGroupParams.xReadGroupParams().count(100).block(2000);
    var answer = server.xreadGroup(GROUP, CONSUMER, limits, Map.of(STREAM, position));
    List<StreamEntry> entries = answer == null || answer.isEmpty() ? List.of() : answer.get(0).getValue();
    for (StreamEntry entry : entries) {
      try {
        if (entry.getFields() != null) { // else its body is gone
          handle(entry.getID(), entry.getFields());
        }
      } catch (Exception error) { // it stays pending, and is tried again after the idle limit
        System.err.println("failed " + entry.getID() + " " + error);
        continue;
      }
      server.xack(STREAM, GROUP, entry.getID());
      if (ending) {
        break;
      }
    }
    return position == NEW || entries.isEmpty() ? NEW : entries.get(entries.size() - 1).getID();
  }

  static JedisPooled connect() {
    URI url = URI.create(ENV.get("PELOPS_REDIS_URL"));
    String user = JedisURIHelper.getUser(url);
    String password = JedisURIHelper.getPassword(url);
    var config = DefaultJedisClientConfig.builder()
        .user(user != null ? user : ENV.get("PELOPS_REDIS_USERNAME"))
        .password(password != null ? password : ENV.get("PELOPS_REDIS_PASSWORD"))
        .database(JedisURIHelper.getDBIndex(url))
        .ssl(JedisURIHelper.isRedisSSLScheme(url))
        .blockingSocketTimeoutMillis(10_000)
        .build();
    return new JedisPooled(JedisURIHelper.getHostAndPort(url), config);
  }

  public static void main(String[] args) throws InterruptedException {
    Thread main = Thread.currentThread();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      ending = true;
      try {
        main.join();
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
      }
    }));
    JedisPooled server = connect();
    StreamEntryID position = START;
    while (!ending) {
      try {
        position = work(server, position);
      } catch (JedisException error) {
        System.err.println("waiting: " + error.getMessage());
        Thread.sleep(1000);
        position = START;
      }
    }
  }
}
