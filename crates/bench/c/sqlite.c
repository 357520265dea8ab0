/* SQLite: the array as records of 4 KiB by number, with a write-ahead log and without syncs. */
#include <sqlite3.h>
#include "turns.h"

static sqlite3 *db;
static sqlite3_stmt *update;

static void check(int code)
{
    if (code != SQLITE_OK && code != SQLITE_DONE && code != SQLITE_ROW)
        fail(sqlite3_errmsg(db));
}

static void run(const char *sql)
{
    check(sqlite3_exec(db, sql, NULL, NULL, NULL));
}

static void put(sqlite3_stmt *statement, uint64_t page, const unsigned char *data)
{
    check(sqlite3_bind_blob(statement, 1, data, PAGE, SQLITE_STATIC));
    check(sqlite3_bind_int64(statement, 2, (sqlite3_int64)page));
    check(sqlite3_step(statement));
    check(sqlite3_reset(statement));
}

/* Outside BEGIN and COMMIT each statement, and each blob from open to close, is a transaction. */
static void write_one(uint64_t page, const unsigned char *data, size_t bytes)
{
    sqlite3_blob *blob;

    if (bytes == PAGE) {
        put(update, page, data);
        return;
    }
    check(sqlite3_blob_open(db, "main", "record", "data", (sqlite3_int64)page, 1, &blob));
    check(sqlite3_blob_write(blob, data, (int)bytes, 0));
    check(sqlite3_blob_close(blob));
}

int main(int argc, char **argv)
{
    static const unsigned char filling[PAGE] = { 1 };
    uint64_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    sqlite3_stmt *insert;

    check(sqlite3_open(argv[1], &db));
    run("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF");
    run("CREATE TABLE record (number INTEGER PRIMARY KEY, data BLOB); BEGIN");
    check(sqlite3_prepare_v2(db, "INSERT INTO record (data, number) VALUES (?1, ?2)", -1, &insert,
                             NULL));
    for (uint64_t page = 0; page < bytes / PAGE; page++)
        put(insert, page, filling);
    check(sqlite3_finalize(insert));
    run("COMMIT");
    check(sqlite3_prepare_v2(db, "UPDATE record SET data = ?1 WHERE number = ?2", -1, &update,
                             NULL));
    serve(sqlite3_libversion(), bytes / PAGE, write_one);
    check(sqlite3_finalize(update));
    return sqlite3_close(db);
}
