/* The floor: takes records and sends them on as they are, block by block. No decoding, no model, no encoding.
 *
 *   relay LIBRDKAFKA BOOTSTRAP SOURCE SINK GROUP BATCH MAX_WAIT_MS LINGER_MS HEADERS
 *
 * Uses the librdkafka that confluent-kafka brings, loaded at run time, so that it needs no headers: what it calls is
 * declared here, as librdkafka's documentation says. Delivery is that of the loop written by hand: errors only are
 * reported, and once a second everything is flushed and, if nothing failed, the offsets are committed.
 * HEADERS 1: records carry headers, which are sent on too; then messages are produced one by one.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;

typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} rd_kafka_message_t;

enum { CONSUMER = 1, PRODUCER = 0 };
enum { ERR_QUEUE_FULL = -184, ERR_NO_OFFSET = -168 };
enum { MSG_COPY = 2 };
enum { VT_END = 0, VT_RKT = 2, VT_VALUE = 4, VT_KEY = 5, VT_MSGFLAGS = 7, VT_HEADERS = 10 };
#define PARTITIONER "murmur2_random" /* as in job.py */
enum { UNASSIGNED = -1, LARGEST_BATCH = 10000 };

static struct {
    rd_kafka_conf_t *(*conf_new)(void);
    int (*conf_set)(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
    void (*conf_set_dr_msg_cb)(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
    rd_kafka_t *(*new_)(int, rd_kafka_conf_t *, char *, size_t);
    int (*poll_set_consumer)(rd_kafka_t *);
    rd_kafka_topic_partition_list_t *(*list_new)(int);
    void *(*list_add)(rd_kafka_topic_partition_list_t *, const char *, int32_t);
    void (*list_destroy)(rd_kafka_topic_partition_list_t *);
    int (*subscribe)(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
    rd_kafka_queue_t *(*queue_get_consumer)(rd_kafka_t *);
    void (*queue_destroy)(rd_kafka_queue_t *);
    ssize_t (*consume_batch_queue)(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
    void (*message_destroy)(rd_kafka_message_t *);
    int (*message_headers)(const rd_kafka_message_t *, rd_kafka_headers_t **);
    rd_kafka_headers_t *(*headers_copy)(const rd_kafka_headers_t *);
    void (*headers_destroy)(rd_kafka_headers_t *);
    rd_kafka_topic_t *(*topic_new)(rd_kafka_t *, const char *, void *);
    void (*topic_destroy)(rd_kafka_topic_t *);
    int (*produce_batch)(rd_kafka_topic_t *, int32_t, int, rd_kafka_message_t *, int);
    int (*producev)(rd_kafka_t *, ...);
    int (*poll)(rd_kafka_t *, int);
    int (*flush)(rd_kafka_t *, int);
    int (*commit)(rd_kafka_t *, const rd_kafka_topic_partition_list_t *, int);
    int (*consumer_close)(rd_kafka_t *);
    void (*destroy)(rd_kafka_t *);
    const char *(*err2name)(int);
} rd;

static volatile sig_atomic_t stopped;
static int lost;

static void die(const char *what, const char *why) {
    fprintf(stderr, "relay: %s: %s\n", what, why);
    exit(1);
}

static void load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) die(path, dlerror());
#define LOAD(field, name)                                     \
    do {                                                      \
        *(void **)&rd.field = dlsym(library, "rd_kafka_" name); \
        if (!rd.field) die(path, "has no rd_kafka_" name);     \
    } while (0)
    LOAD(conf_new, "conf_new");
    LOAD(conf_set, "conf_set");
    LOAD(conf_set_dr_msg_cb, "conf_set_dr_msg_cb");
    LOAD(new_, "new");
    LOAD(poll_set_consumer, "poll_set_consumer");
    LOAD(list_new, "topic_partition_list_new");
    LOAD(list_add, "topic_partition_list_add");
    LOAD(list_destroy, "topic_partition_list_destroy");
    LOAD(subscribe, "subscribe");
    LOAD(queue_get_consumer, "queue_get_consumer");
    LOAD(queue_destroy, "queue_destroy");
    LOAD(consume_batch_queue, "consume_batch_queue");
    LOAD(message_destroy, "message_destroy");
    LOAD(message_headers, "message_headers");
    LOAD(headers_copy, "headers_copy");
    LOAD(headers_destroy, "headers_destroy");
    LOAD(topic_new, "topic_new");
    LOAD(topic_destroy, "topic_destroy");
    LOAD(produce_batch, "produce_batch");
    LOAD(producev, "producev");
    LOAD(poll, "poll");
    LOAD(flush, "flush");
    LOAD(commit, "commit");
    LOAD(consumer_close, "consumer_close");
    LOAD(destroy, "destroy");
    LOAD(err2name, "err2name");
#undef LOAD
}

static void stop(int number) {
    (void)number;
    stopped = 1;
}

static void report(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) lost = message->err;
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd.conf_set(conf, name, value, why, sizeof why)) die(name, why);
}

static rd_kafka_t *client(int kind, rd_kafka_conf_t *conf) {
    char why[512];
    rd_kafka_t *made = rd.new_(kind, conf, why, sizeof why);
    if (!made) die("client", why);
    return made;
}

/* So many microseconds of waiting help nobody: the queue is emptied by another thread. */
static void wait_for_room(rd_kafka_t *producer) { rd.poll(producer, 10); }

static void send_block(rd_kafka_t *producer, rd_kafka_topic_t *topic, rd_kafka_message_t **taken, int count) {
    static rd_kafka_message_t block[LARGEST_BATCH];
    for (int at = 0; at < count; at++) {
        memset(&block[at], 0, sizeof block[at]);
        block[at].payload = taken[at]->payload;
        block[at].len = taken[at]->len;
        block[at].key = taken[at]->key;
        block[at].key_len = taken[at]->key_len;
    }
    while (count) {
        rd.produce_batch(topic, UNASSIGNED, MSG_COPY, block, count);
        int left = 0;
        for (int at = 0; at < count; at++) {
            if (!block[at].err) continue;
            if (block[at].err != ERR_QUEUE_FULL) die("produce", rd.err2name(block[at].err));
            block[at].err = 0;
            block[left++] = block[at];
        }
        count = left;
        if (count) wait_for_room(producer);
    }
}

static void send_with_headers(rd_kafka_t *producer, rd_kafka_topic_t *topic, rd_kafka_message_t *message) {
    rd_kafka_headers_t *given = NULL, *headers = NULL;
    if (!rd.message_headers(message, &given)) headers = rd.headers_copy(given);
    for (;;) {
        int error = headers ? rd.producev(producer, VT_RKT, topic, VT_VALUE, message->payload, message->len, VT_KEY,
                                          message->key, message->key_len, VT_HEADERS, headers, VT_MSGFLAGS, MSG_COPY,
                                          VT_END)
                            : rd.producev(producer, VT_RKT, topic, VT_VALUE, message->payload, message->len, VT_KEY,
                                          message->key, message->key_len, VT_MSGFLAGS, MSG_COPY, VT_END);
        if (!error) return;
        if (error != ERR_QUEUE_FULL) die("produce", rd.err2name(error));
        wait_for_room(producer);
    }
}

static void commit(rd_kafka_t *consumer, rd_kafka_t *producer) {
    int error = rd.flush(producer, 30000);
    if (error || lost) die("records were lost", rd.err2name(error ? error : lost));
    error = rd.commit(consumer, NULL, 0);
    if (error && error != ERR_NO_OFFSET) die("commit", rd.err2name(error));
}

int main(int count, char **arguments) {
    if (count != 10) die("usage", "LIBRDKAFKA BOOTSTRAP SOURCE SINK GROUP BATCH MAX_WAIT_MS LINGER_MS HEADERS");
    load(arguments[1]);
    signal(SIGTERM, stop);
    int batch = atoi(arguments[6]), max_wait = atoi(arguments[7]), with_headers = atoi(arguments[9]);
    if (batch < 1 || batch > LARGEST_BATCH) die("BATCH", "must be from 1 to 10000");

    rd_kafka_conf_t *conf = rd.conf_new();
    set(conf, "bootstrap.servers", arguments[2]);
    set(conf, "group.id", arguments[5]);
    set(conf, "auto.offset.reset", "earliest");
    set(conf, "enable.auto.commit", "false");
    set(conf, "fetch.queue.backoff.ms", "5");
    rd_kafka_t *consumer = client(CONSUMER, conf);
    rd.poll_set_consumer(consumer);

    conf = rd.conf_new();
    set(conf, "bootstrap.servers", arguments[2]);
    set(conf, "linger.ms", arguments[8]);
    set(conf, "enable.idempotence", "true");
    set(conf, "partitioner", PARTITIONER);
    set(conf, "delivery.report.only.error", "true");
    rd.conf_set_dr_msg_cb(conf, report);
    rd_kafka_t *producer = client(PRODUCER, conf);
    rd_kafka_topic_t *topic = rd.topic_new(producer, arguments[4], NULL);

    rd_kafka_topic_partition_list_t *topics = rd.list_new(1);
    rd.list_add(topics, arguments[3], UNASSIGNED);
    int error = rd.subscribe(consumer, topics);
    if (error) die("subscribe", rd.err2name(error));
    rd.list_destroy(topics);
    rd_kafka_queue_t *queue = rd.queue_get_consumer(consumer);

    static rd_kafka_message_t *taken[LARGEST_BATCH];
    int first = 1, dirty = 0;
    double next_commit = seconds(CLOCK_MONOTONIC) + 1.0;
    while (!stopped) {
        ssize_t got = rd.consume_batch_queue(queue, 100, taken, 1);
        if (got > 0 && batch > 1) {
            ssize_t more = rd.consume_batch_queue(queue, max_wait, taken + 1, (size_t)(batch - 1));
            got += more > 0 ? more : 0;
        }
        int records = 0;
        for (ssize_t at = 0; at < got; at++) {
            if (taken[at]->err)
                rd.message_destroy(taken[at]);
            else
                taken[records++] = taken[at];
        }
        if (records) {
            if (first) {
                first = 0;
                printf("{\"first\": %.6f, \"cpu\": %.6f}\n", seconds(CLOCK_REALTIME), seconds(CLOCK_PROCESS_CPUTIME_ID));
                fflush(stdout);
            }
            if (with_headers)
                for (int at = 0; at < records; at++) send_with_headers(producer, topic, taken[at]);
            else
                send_block(producer, topic, taken, records);
            for (int at = 0; at < records; at++) rd.message_destroy(taken[at]);
            dirty = 1;
        }
        rd.poll(producer, 0);
        if (dirty && seconds(CLOCK_MONOTONIC) >= next_commit) {
            commit(consumer, producer);
            next_commit = seconds(CLOCK_MONOTONIC) + 1.0;
            dirty = 0;
        }
    }
    commit(consumer, producer);
    rd.queue_destroy(queue);
    rd.consumer_close(consumer);
    rd.topic_destroy(topic);
    rd.destroy(consumer);
    rd.destroy(producer);
    return 0;
}
