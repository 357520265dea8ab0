/* LMDB: the array as records of 4 KiB by number, without syncs; a third argument maps its file
 * for writing, too. */
#include <lmdb.h>
#include "turns.h"

static MDB_env *env;
static MDB_dbi dbi;

static void check(int code)
{
    if (code != 0)
        fail(mdb_strerror(code));
}

static void put(MDB_txn *txn, uint64_t page, const unsigned char *data, size_t bytes)
{
    static unsigned char record[PAGE];
    MDB_val key = { sizeof(page), &page }, value = { PAGE, (void *)data }, old;

    if (bytes < PAGE) {
        check(mdb_get(txn, dbi, &key, &old));
        memcpy(record, old.mv_data, PAGE);
        memcpy(record, data, bytes);
        value.mv_data = record;
    }
    check(mdb_put(txn, dbi, &key, &value, 0));
}

static void write_one(uint64_t page, const unsigned char *data, size_t bytes)
{
    MDB_txn *txn;

    check(mdb_txn_begin(env, NULL, 0, &txn));
    put(txn, page, data, bytes);
    check(mdb_txn_commit(txn));
}

int main(int argc, char **argv)
{
    static const unsigned char filling[PAGE] = { 1 };
    uint64_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    unsigned flags = MDB_NOSUBDIR | MDB_NOSYNC | (argc > 3 ? MDB_WRITEMAP : 0);
    MDB_txn *txn;
    char name[32];
    int major, minor, patch;

    check(mdb_env_create(&env));
    /* a record of 4 KiB and its header take two pages */
    check(mdb_env_set_mapsize(env, 3 * bytes + (64 << 20)));
    check(mdb_env_open(env, argv[1], flags, 0600));
    check(mdb_txn_begin(env, NULL, 0, &txn));
    check(mdb_dbi_open(txn, NULL, MDB_CREATE | MDB_INTEGERKEY, &dbi));
    for (uint64_t page = 0; page < bytes / PAGE; page++)
        put(txn, page, filling, PAGE);
    check(mdb_txn_commit(txn));
    mdb_version(&major, &minor, &patch);
    snprintf(name, sizeof(name), "%d.%d.%d", major, minor, patch);
    serve(name, bytes / PAGE, write_one);
    mdb_env_close(env);
    return 0;
}
