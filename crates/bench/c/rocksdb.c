/* RocksDB: records by number in a database of its own, every write synced. Arguments: directory,
 * records, bytes of a record, bytes of the block cache, clients, whether files are read past the
 * page cache. It loads all records, unsynced and in batches, and says what that took.
 *
 * An order "WRITES MILLISECONDS SEED" has each client read and write records for so long, so many
 * writes of a hundred operations; records are wanted as YCSB wants them, a few of them most. It is
 * answered with the operations and the nanoseconds. Of what is read all is checked. */
#include <math.h>
#include <pthread.h>
#include <rocksdb/c.h>
#include <stdbool.h>
#include "peer.h"

enum { BATCH = 128, CLIENTS_MAX = 64 };
/* of YCSB's choice */
static const double SKEW = 0.99;

static rocksdb_t *db;
static uint64_t records;
static size_t record_bytes;
static double zeta_all, zeta_two;

struct client {
    pthread_t thread;
    uint64_t dice, operations, end;
    unsigned writes;
    unsigned char *value;
};

static void check(char *error)
{
    if (error != NULL)
        fail(error);
}

static uint64_t roll(uint64_t *dice)
{
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    return *dice;
}

static uint64_t scattered(uint64_t number)
{
    number ^= number >> 31;
    number *= 0x7FB5D329728EA185;
    number ^= number >> 27;
    number *= 0x81DADEF4BC2DD44D;
    return number ^ number >> 33;
}

/* Gray and others, Quickly generating billion-record synthetic databases, 1994. */
static uint64_t wanted(uint64_t *dice)
{
    double alpha = 1 / (1 - SKEW), n = (double)records;
    double eta = (1 - pow(2 / n, 1 - SKEW)) / (1 - zeta_two / zeta_all);
    double u = (double)(roll(dice) >> 11) / (double)(1ULL << 53), uz = u * zeta_all;
    uint64_t rank;

    if (uz < 1)
        rank = 0;
    else if (uz < 1 + pow(0.5, SKEW))
        rank = 1;
    else
        rank = (uint64_t)(n * pow(eta * u - eta + 1, alpha));
    return scattered(rank) % records;
}

static void key_of(uint64_t record, unsigned char key[8])
{
    for (int i = 0; i < 8; i++)
        key[i] = (unsigned char)(record >> (56 - 8 * i));
}

/* A value that nothing can be left out of; its first bytes say whose it is. */
static void make_value(unsigned char *value, uint64_t record, uint64_t *dice)
{
    for (size_t at = 0; at + 8 <= record_bytes; at += 8) {
        uint64_t word = at == 0 ? record : roll(dice);
        memcpy(value + at, &word, 8);
    }
}

static void load(unsigned char *value)
{
    rocksdb_writeoptions_t *options = rocksdb_writeoptions_create();
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    uint64_t dice = 88172645463325252;
    unsigned char key[8];
    char *error = NULL;

    for (uint64_t record = 0; record < records; record++) {
        key_of(record, key);
        make_value(value, record, &dice);
        rocksdb_writebatch_put(batch, (char *)key, 8, (char *)value, record_bytes);
        if (rocksdb_writebatch_count(batch) == BATCH || record + 1 == records) {
            rocksdb_write(db, options, batch, &error);
            check(error);
            rocksdb_writebatch_clear(batch);
        }
    }
    rocksdb_flush(db, flush, &error);
    check(error);
    rocksdb_flushoptions_destroy(flush);
    rocksdb_writebatch_destroy(batch);
    rocksdb_writeoptions_destroy(options);
}

static void read_one(rocksdb_readoptions_t *options, uint64_t record)
{
    unsigned char key[8];
    char *error = NULL, *value;
    uint64_t found;
    size_t bytes;

    key_of(record, key);
    value = rocksdb_get(db, options, (char *)key, 8, &bytes, &error);
    check(error);
    if (value == NULL || bytes != record_bytes)
        fail("a record is not there");
    memcpy(&found, value, 8);
    if (found != record)
        fail("a record is another one");
    free(value);
}

static void *work(void *of)
{
    struct client *client = of;
    rocksdb_writeoptions_t *synced = rocksdb_writeoptions_create();
    rocksdb_readoptions_t *options = rocksdb_readoptions_create();
    unsigned char key[8];
    char *error = NULL;

    rocksdb_writeoptions_set_sync(synced, 1);
    while (now() < client->end) {
        uint64_t record = wanted(&client->dice);

        if (roll(&client->dice) % 100 < client->writes) {
            key_of(record, key);
            make_value(client->value, record, &client->dice);
            rocksdb_put(db, synced, (char *)key, 8, (char *)client->value, record_bytes, &error);
            check(error);
        } else {
            read_one(options, record);
        }
        client->operations++;
    }
    rocksdb_writeoptions_destroy(synced);
    rocksdb_readoptions_destroy(options);
    return NULL;
}

static rocksdb_options_t *options_of(size_t cache_bytes, bool is_direct)
{
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();

    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_set_write_buffer_size(options, 16 << 20);
    rocksdb_options_set_target_file_size_base(options, 16 << 20);
    rocksdb_options_set_max_background_jobs(options, 2);
    rocksdb_options_set_use_direct_reads(options, is_direct);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, is_direct);
    rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(cache_bytes));
    rocksdb_block_based_options_set_filter_policy(table,
                                                  rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_options_set_block_based_table_factory(options, table);
    return options;
}

/* It writes its version into its log, and tells it nobody in C. */
static void find_version(const char *dir, char version[32])
{
    char path[4096], line[512];
    FILE *log;

    snprintf(path, sizeof(path), "%s/LOG", dir);
    strcpy(version, "unknown");
    log = fopen(path, "r");
    while (log != NULL && fgets(line, sizeof(line), log) != NULL) {
        const char *found = strstr(line, "RocksDB version: ");
        if (found != NULL) {
            sscanf(found, "RocksDB version: %31s", version);
            break;
        }
    }
    if (log != NULL)
        fclose(log);
}

static void serve(struct client *clients, unsigned count)
{
    uint64_t milliseconds, seed;
    unsigned writes;

    while (scanf("%u %" SCNu64 " %" SCNu64, &writes, &milliseconds, &seed) == 3) {
        uint64_t start = now(), operations = 0;

        for (unsigned i = 0; i < count; i++) {
            clients[i].operations = 0;
            clients[i].writes = writes;
            clients[i].end = start + milliseconds * 1000000;
            clients[i].dice = scattered(seed * CLIENTS_MAX + i + 1) | 1;
            if (pthread_create(&clients[i].thread, NULL, work, &clients[i]) != 0)
                fail("pthread_create");
        }
        for (unsigned i = 0; i < count; i++) {
            pthread_join(clients[i].thread, NULL);
            operations += clients[i].operations;
        }
        printf("%" PRIu64 " %" PRIu64 "\n", operations, now() - start);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static struct client clients[CLIENTS_MAX];
    char *error = NULL, version[32];
    unsigned count;
    uint64_t start;

    if (argc < 7)
        fail("DIR RECORDS BYTES CACHE CLIENTS DIRECT");
    records = strtoull(argv[2], NULL, 10);
    record_bytes = strtoull(argv[3], NULL, 10);
    count = (unsigned)strtoul(argv[5], NULL, 10);
    if (records < 2 || record_bytes < 8 || count == 0 || count > CLIENTS_MAX)
        fail("no such load");
    for (unsigned i = 0; i < count; i++)
        if ((clients[i].value = calloc(1, record_bytes)) == NULL)
            fail("no memory");
    for (uint64_t rank = 1; rank <= records; rank++)
        zeta_all += 1 / pow((double)rank, SKEW);
    zeta_two = 1 + 1 / pow(2, SKEW);
    db = rocksdb_open(options_of(strtoull(argv[4], NULL, 10), argv[6][0] == '1'), argv[1], &error);
    check(error);
    start = now();
    load(clients[0].value);
    find_version(argv[1], version);
    printf("ready RocksDB %s %" PRIu64 "\n", version, now() - start);
    fflush(stdout);
    serve(clients, count);
    rocksdb_close(db);
    return 0;
}
