/* A forked child: nothing of its parent's can be used there, nor harmed. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "nearside.h"

static ns_pool_t pool;
static ns_file_t file;
static ns_dir_t dir;
static ns_region_t region;
static ns_tx_t tx;
static const uint64_t *words;

static void every_call_is_refused(void)
{
    uint8_t bytes[8] = { 1 };
    ns_file_t other;
    ns_dir_t list;
    ns_tx_t begun;
    ns_region_t mapped;
    const void *at;
    ns_stat_t st;
    ns_dirent_t entry;

    assert(ns_open(pool, "/new", O_RDWR | O_CREAT, 0600, &other) == -EPERM);
    assert(ns_pread(file, bytes, 8, 0) == -EPERM);
    assert(ns_pwrite(file, bytes, 8, 0) == -EPERM);
    assert(ns_fsync(file) == -EPERM && ns_ftruncate(file, 0) == -EPERM);
    assert(ns_stat(pool, "/", &st) == -EPERM && ns_fstat(file, &st) == -EPERM);
    assert(ns_mkdir(pool, "/d", 0700) == -EPERM && ns_rmdir(pool, "/d") == -EPERM);
    assert(ns_unlink(pool, "/kept") == -EPERM);
    assert(ns_rename(pool, "/kept", "/lost") == -EPERM);
    assert(ns_opendir(pool, "/", &list) == -EPERM);
    assert(ns_readdir(dir, &entry) == -EPERM && ns_closedir(dir) == -EPERM);
    assert(ns_region_map(pool, file, 0, 4096, &mapped, &at) == -EPERM);
    assert(ns_tx_begin(pool, NS_TX_COMMITTED, &begun) == -EPERM);
    assert(ns_tx_write(tx, (void *)words, bytes, 8) == -EPERM);
    assert(ns_tx_read(tx, words, bytes, 8) == -EPERM);
    assert(ns_tx_commit(tx) == -EPERM && ns_tx_abort(tx) == -EPERM);
    assert(ns_region_unmap(region) == -EPERM);
    assert(ns_close(file) == -EPERM && ns_pool_close(pool) == -EPERM);
}

/* Its own pool is as good as any. */
static void a_pool_of_its_own(const char *at)
{
    ns_format_options options = { .slice_bytes = 32 << 20, .flags = NS_FORMAT_PROCESS };
    ns_pool_t own;
    ns_file_t new;

    assert(ns_pool_format(at, &options) == 0 && ns_pool_open(at, 0, &own) == 0);
    assert(ns_open(own, "/own", O_RDWR | O_CREAT, 0600, &new) == 0);
    assert(ns_pwrite(new, (const uint8_t *)"own", 3, 0) == 3);
    assert(ns_pread(file, (uint8_t *)at, 0, 0) == -EPERM);
    assert(ns_close(new) == 0 && ns_pool_close(own) == 0);
}

static void ends_well(pid_t child)
{
    int status;

    assert(child > 0 && waitpid(child, &status, 0) == child);
    assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    ns_format_options options = { .slice_bytes = 32 << 20, .flags = NS_FORMAT_PROCESS };
    uint64_t value = 5;
    char own[4096];
    uint8_t bytes[8];
    ns_file_t kept;
    ns_dirent_t entry;
    pid_t child;

    assert(argc == 2 || argc == 3);
    /* of a pool that is served: where there is room for another one */
    snprintf(own, sizeof(own), "%s-own", argv[argc - 1]);
    if (argc == 2)
        assert(ns_pool_format(argv[1], &options) == 0 && ns_pool_open(argv[1], 0, &pool) == 0);
    else
        assert(ns_pool_attach(argv[1], &pool) == 0);
    assert(ns_open(pool, "/kept", O_RDWR | O_CREAT, 0600, &kept) == 0 && ns_close(kept) == 0);
    assert(ns_open(pool, "/file", O_RDWR | O_CREAT, 0600, &file) == 0);
    assert(ns_unlink(pool, "/file") == 0);
    assert(ns_opendir(pool, "/", &dir) == 0);
    assert(ns_region_map(pool, file, 0, 1 << 20, &region, (const void **)&words) == 0);
    assert(words[0] == 0);
    assert(ns_tx_begin(pool, NS_TX_COMMITTED, &tx) == 0);
    assert(ns_tx_write(tx, (void *)words, &value, sizeof(value)) == 0);

    child = fork();
    if (child == 0) {
        alarm(300);
        every_call_is_refused();
        a_pool_of_its_own(own);
        exit(0);
    }
    ends_well(child);
    /* nothing was closed, ended or unmapped */
    assert(ns_readdir(dir, &entry) == 1 && strcmp(entry.name, "kept") == 0);
    assert(ns_readdir(dir, &entry) == 0 && ns_closedir(dir) == 0);
    assert(ns_tx_commit(tx) == 0 && words[0] == 5 && words[100000] == 0);
    assert(ns_pread(file, bytes, 8, 0) == 8 && memcmp(bytes, &value, 8) == 0);
    assert(ns_region_unmap(region) == 0 && ns_close(file) == 0);
    assert(ns_pool_close(pool) == 0);
    puts("fine");
    return 0;
}
