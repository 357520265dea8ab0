/* Every call of nearside.h, rightly and wrongly. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "nearside.h"

static void files(ns_pool_t pool)
{
    ns_file_t file, gone;
    ns_stat_t st;
    char buffer[16] = "";

    assert(ns_mkdir(pool, "/dir", 0750) == 0);
    assert(ns_mkdir(pool, "/dir", 0750) == -EEXIST);
    assert(ns_mkdir(pool, "/dir/bits", 07731) == 0);
    assert(ns_stat(pool, "/dir/bits", &st) == 0 && st.mode == (S_IFDIR | 01731));
    assert(ns_rmdir(pool, "/dir/bits") == 0);
    assert(ns_open(pool, "/dir/none", O_RDONLY, 0, &file) == -ENOENT);
    assert(ns_open(pool, "/dir/a", O_RDWR | O_CREAT | O_EXCL, 0640, &file) == 0);
    assert(ns_open(pool, "/dir/a", O_RDWR | O_CREAT | O_EXCL, 0640, &gone) == -EEXIST);
    assert(ns_open(pool, "/dir/a", O_RDWR | O_DIRECTORY, 0, &gone) == -EINVAL);
    assert(ns_open(pool, NULL, O_RDWR, 0, &gone) == -EFAULT);
    assert(ns_open(pool, "/dir/a", O_RDWR, 0, NULL) == -EFAULT);
    assert(ns_pwrite(file, (const uint8_t *)"hello", 5, 3) == 5);
    assert(ns_pread(file, (uint8_t *)buffer, sizeof(buffer), 0) == 8);
    assert(memcmp(buffer, "\0\0\0hello", 8) == 0);
    assert(ns_pread(file, (uint8_t *)buffer, 4, 100) == 0);
    assert(ns_pread(file, NULL, 4, 0) == -EFAULT);
    assert(ns_pwrite(file, NULL, 0, 0) == 0);
    assert(ns_fsync(file) == 0);
    assert(ns_fstat(file, &st) == 0 && st.size == 8 && st.links == 1);
    assert(st.mode == (S_IFREG | 0640));
    assert(ns_ftruncate(file, 4) == 0 && ns_stat(pool, "/dir/a", &st) == 0 && st.size == 4);
    assert(ns_ftruncate(file, UINT64_MAX) == -EFBIG);
    assert(ns_stat(pool, "/dir", &st) == 0 && st.mode == (S_IFDIR | 0750));
    assert(ns_rename(pool, "/dir/a", "/b") == 0);
    assert(ns_stat(pool, "/dir/a", &st) == -ENOENT);
    assert(ns_unlink(pool, "/dir") == -EISDIR);
    assert(ns_unlink(pool, "/b") == 0 && ns_unlink(pool, "/b") == -ENOENT);
    /* open, it can still be used */
    assert(ns_pread(file, (uint8_t *)buffer, 4, 0) == 4);
    assert(ns_close(file) == 0);
    assert(ns_close(file) == -EBADF && ns_fsync(file) == -EBADF);
    assert(ns_pread(file, (uint8_t *)buffer, 4, 0) == -EBADF);
    assert(ns_open(pool, "/dir", O_RDONLY, 0, &gone) == -EISDIR);
    assert(ns_open(pool + 1, "/x", O_RDWR | O_CREAT, 0600, &gone) == -EBADF);
}

static void lists(ns_pool_t pool)
{
    ns_dir_t dir;
    ns_dirent_t entry;
    int seen = 0;

    for (int i = 0; i < 100; i++) {
        char name[32];
        ns_file_t file;
        snprintf(name, sizeof(name), "/dir/file%d", i);
        assert(ns_open(pool, name, O_WRONLY | O_CREAT, 0600, &file) == 0);
        assert(ns_close(file) == 0);
    }
    assert(ns_opendir(pool, "/nowhere", &dir) == -ENOENT);
    assert(ns_opendir(pool, "/dir", &dir) == 0);
    while (ns_readdir(dir, &entry) == 1) {
        assert(strncmp(entry.name, "file", 4) == 0 && !entry.is_dir);
        assert(strlen(entry.name) == entry.name_len);
        seen++;
    }
    assert(seen == 100 && ns_readdir(dir, &entry) == 0);
    assert(ns_closedir(dir) == 0 && ns_readdir(dir, &entry) == -EBADF);
    assert(ns_rmdir(pool, "/dir") == -ENOTEMPTY);
}

/* Bytes of a region are written over its own file as they were; none is read to there. */
static void own_bytes(ns_pool_t pool, ns_file_t file, const uint64_t *words)
{
    static uint64_t many[100000];
    const uint8_t *bytes = (const uint8_t *)words;
    ns_file_t log;
    ns_tx_t tx;

    for (uint64_t i = 0; i < 100000; i++)
        many[i] = i * i;
    assert(ns_pwrite(file, (const uint8_t *)many, sizeof(many), 0) == sizeof(many));
    /* pages that nobody loaded from so far, too */
    assert(ns_pwrite(file, bytes, sizeof(many), 80) == sizeof(many));
    for (uint64_t i = 0; i < 100000; i++)
        assert(words[i + 10] == i * i);
    assert(ns_open(pool, "/log", O_RDWR | O_CREAT, 0600, &log) == 0);
    assert(ns_pwrite(log, bytes + 80, 8000, 0) == 8000);
    assert(ns_pread(log, (uint8_t *)many, 8000, 0) == 8000 && many[999] == 999 * 999);
    assert(ns_tx_begin(pool, NS_TX_COMMITTED, &tx) == 0);
    assert(ns_tx_write(tx, (void *)words, &words[12], 16) == 0 && ns_tx_commit(tx) == 0);
    assert(words[0] == 4 && words[1] == 9);
    assert(ns_pread(file, (uint8_t *)&words[5], 100, 0) == -EFAULT);
    for (uint32_t isolation = NS_TX_COMMITTED; isolation <= NS_TX_SERIALISABLE; isolation++) {
        assert(ns_tx_begin(pool, isolation, &tx) == 0);
        assert(ns_tx_read(tx, words, (void *)&words[5], 8) == -EFAULT);
        assert(ns_tx_abort(tx) == 0);
    }
    assert(ns_close(log) == 0 && ns_unlink(pool, "/log") == 0);
}

static void regions(ns_pool_t pool)
{
    ns_file_t file, reader;
    ns_region_t region, other;
    ns_tx_t tx, second;
    const uint64_t *words, *shown;
    uint64_t value = 42, seen = 0;

    assert(ns_open(pool, "/words", O_RDWR | O_CREAT, 0600, &file) == 0);
    assert(ns_region_map(pool, file, 0, 0, &region, (const void **)&words) == -EINVAL);
    assert(ns_region_map(pool, file, 1, 8, &region, (const void **)&words) == -EINVAL);
    assert(ns_region_map(pool, file, 0, UINT64_MAX, &region, (const void **)&words) == -EINVAL);
    assert(ns_region_map(pool, file, 0, 1 << 20, &region, (const void **)&words) == 0);
    assert(words[0] == 0);
    assert(ns_tx_begin(pool, NS_TX_COMMITTED, &tx) == 0);
    assert(ns_tx_begin(pool, 17, &second) == -EINVAL);
    assert(ns_tx_write(tx, (void *)&words[3], &value, sizeof(value)) == 0);
    assert(ns_tx_read(tx, &words[3], &seen, sizeof(seen)) == 0 && seen == 42);
    assert(words[3] == 0);
    assert(ns_tx_write(tx, &seen, &value, sizeof(value)) == -EFAULT);
    assert(ns_tx_commit(tx) == 0 && words[3] == 42);
    assert(ns_tx_commit(tx) == -EINVAL && ns_tx_abort(tx) == -EINVAL);
    assert(ns_tx_write(tx, (void *)words, &value, sizeof(value)) == -EINVAL);

    /* two that read what the other one writes */
    assert(ns_tx_begin(pool, NS_TX_SERIALISABLE, &tx) == 0);
    assert(ns_tx_begin(pool, NS_TX_SERIALISABLE, &second) == 0);
    assert(ns_tx_read(tx, &words[3], &seen, sizeof(seen)) == 0);
    assert(ns_tx_read(second, &words[3], &seen, sizeof(seen)) == 0);
    value = 43;
    assert(ns_tx_write(tx, (void *)&words[3], &value, sizeof(value)) == 0);
    assert(ns_tx_write(second, (void *)&words[3], &value, sizeof(value)) == 0);
    assert(ns_tx_commit(tx) == 0 && ns_tx_commit(second) == -EAGAIN);
    assert(strstr(ns_strerror(-EAGAIN), "another transaction") != NULL);

    /* a write through the file is seen in the region */
    value = 44;
    assert(ns_pwrite(file, (const uint8_t *)&value, sizeof(value), 24) == 8);
    assert(words[3] == 44);
    assert(ns_open(pool, "/words", O_RDONLY, 0, &reader) == 0);
    assert(ns_region_map(pool, reader, 0, 4096, &other, (const void **)&shown) == 0);
    assert(shown[3] == 44);
    assert(ns_tx_begin(pool, NS_TX_COMMITTED, &tx) == 0);
    assert(ns_tx_write(tx, (void *)&shown[3], &value, sizeof(value)) == -EBADF);
    assert(ns_tx_abort(tx) == 0);
    assert(ns_region_unmap(other) == 0 && ns_region_unmap(other) == -EBADF);
    own_bytes(pool, file, words);
    assert(ns_region_unmap(region) == 0);
    assert(ns_close(reader) == 0 && ns_close(file) == 0);
}

/* A pool of two slices, one of them elsewhere, above two devices. */
static void tiered(const char *beside)
{
    char dir[512], slice[512], first[512], second[512];
    static unsigned char data[1 << 20], seen[1 << 20];
    ns_part slices[2] = { { slice, 16 << 20 }, { 0 } };
    ns_part devices[2] = { { first, 32 << 20 }, { second, 32 << 20 } };
    ns_format_options options = { 0 };
    ns_open_options how = { 0 };
    ns_pool_t pool;
    ns_file_t file;

    snprintf(dir, sizeof(dir), "%s.tiered", beside);
    snprintf(slice, sizeof(slice), "%s.slice", beside);
    snprintf(first, sizeof(first), "%s.first", beside);
    snprintf(second, sizeof(second), "%s.second", beside);
    options.flags = NS_FORMAT_PROCESS;
    options.slices = 2;
    options.slice_bytes = 16 << 20;
    options.slice_parts = slices;
    options.devices = 2;
    assert(ns_pool_format(dir, &options) == -EFAULT);
    options.device_parts = devices;
    assert(ns_pool_format(dir, &options) == 0);

    how.write_back_percent = 91;
    assert(ns_pool_open_with(dir, &how, &pool) == -EINVAL);
    how.write_back_percent = 50;
    how.memory_bytes = 32 << 20;
    how.tier_cache_bytes = 8 << 20;
    how.region_bytes = 8 << 20;
    assert(ns_pool_open_with(dir, &how, &pool) == 0);
    assert(ns_open(pool, "/large", O_RDWR | O_CREAT, 0600, &file) == 0);
    /* more than the slices hold */
    for (int piece = 0; piece < 48; piece++) {
        memset(data, piece + 1, sizeof(data));
        assert(ns_pwrite(file, data, sizeof(data), (uint64_t)piece << 20) == sizeof(data));
    }
    for (int piece = 0; piece < 48; piece++) {
        memset(data, piece + 1, sizeof(data));
        assert(ns_pread(file, seen, sizeof(seen), (uint64_t)piece << 20) == sizeof(seen));
        assert(memcmp(data, seen, sizeof(seen)) == 0);
    }
    assert(ns_close(file) == 0 && ns_pool_close(pool) == 0);
    assert(ns_pool_open_with(dir, NULL, &pool) == 0 && ns_pool_close(pool) == 0);

    /* what is another pool's is taken only by who says so */
    strcat(dir, "2");
    assert(ns_pool_format(dir, &options) == -EEXIST);
    slices[0] = (ns_part){ 0 };
    assert(ns_pool_format(dir, &options) == -EEXIST);
    options.flags |= NS_FORMAT_FORCE;
    assert(ns_pool_format(dir, &options) == 0);
    assert(ns_pool_open(dir, 0, &pool) == 0 && ns_pool_close(pool) == 0);
}

int main(int argc, char **argv)
{
    ns_pool_t pool, again;
    ns_format_options options = { 0 };

    if (argc == 3) {
        /* somebody serves it, here or on a network */
        assert(ns_pool_open(argv[1], 0, &pool) == (argv[1][0] == '/' ? -EBUSY : -ENOENT));
        assert(ns_pool_attach("/no/such/pool", &pool) == -ECONNREFUSED);
        assert(ns_pool_attach(argv[1], NULL) == -EFAULT);
        assert(ns_pool_attach(argv[1], &pool) == 0);
        files(pool);
        lists(pool);
        regions(pool);
        assert(ns_pool_close(pool) == 0 && ns_pool_close(pool) == -EBADF);
        puts("fine");
        return 0;
    }
    assert(argc == 2);
    options.slice_bytes = 32 << 20;
    options.flags = 99;
    assert(ns_pool_format(argv[1], &options) == -EINVAL);
    options.flags = NS_FORMAT_PROCESS;
    assert(ns_pool_format(argv[1], &options) == 0);
    assert(ns_pool_format(argv[1], &options) == -EEXIST);
    assert(ns_pool_open("/no/such/pool", 0, &pool) == -ENOENT);
    assert(ns_pool_open(argv[1], 8, &pool) == -EINVAL);
    assert(ns_pool_open(argv[1], 0, &pool) == 0);
    assert(ns_pool_open(argv[1], 0, &again) == -EBUSY);
    files(pool);
    lists(pool);
    regions(pool);
    assert(ns_pool_close(pool) == 0 && ns_pool_close(pool) == -EBADF);
    assert(ns_pool_open(argv[1], NS_OPEN_READ_ONLY, &pool) == 0);
    ns_file_t file;
    assert(ns_open(pool, "/new", O_RDWR | O_CREAT, 0600, &file) == -EROFS);
    assert(ns_pool_close(pool) == 0);
    tiered(argv[1]);
    puts("fine");
    return 0;
}
