/* nv.h where it is used wrongly, and by several threads. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "nv.h"

#define THREADS 4
#define ROUNDS 2000

static long *counters;

static void *count(void *own)
{
    long *mine = counters + 512 * (long)own;
    for (int round = 0; round < ROUNDS; round++) {
        int tid = nv_txbegin(), other = nv_txbegin();
        long next = *mine + 1, never = -1;
        assert(tid >= 0 && other >= 0 && tid != other);
        assert(nv_write(other, mine, &never, sizeof(never)) == 0);
        assert(nv_write(tid, mine, &next, sizeof(next)) == 0);
        assert(nv_abort(other) == 0);
        assert(nv_commit(tid) == 0);
        assert(*mine == next);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    long value = 7, *page;
    int tid;

    assert(nv_allocate("/none/file", 4096, 0600) == NULL && errno == ENOENT);
    assert(nv_allocate("/file", 4096, 1 << 20) == NULL && errno == EINVAL);
    assert(nv_allocate("/refused", 0, 0600) == NULL && errno == EINVAL);
    assert(nv_allocate("/refused", (size_t)1 << 62, 0600) == NULL && errno != 0);
    assert(nv_allocate("/", 4096, 0600) == NULL && errno == EISDIR);
    assert(nv_allocate(NULL, 4096, 0600) == NULL && errno == EFAULT);
    page = nv_allocate("/file", 10000, 0600 | NV_SHARED);
    assert(page != NULL);
    tid = nv_txbegin();
    assert(nv_write(tid, &value, &value, sizeof(value)) == -EFAULT);
    assert(nv_write(tid, NULL, &value, sizeof(value)) == -EFAULT);
    assert(nv_write(tid, page, NULL, 8) == -EFAULT);
    assert(nv_write(tid, (char *)page + 9999, &value, 2) == -EFAULT);
    assert(nv_write(tid, (char *)page - 4, &value, 8) == -EFAULT);
    /* any byte will do */
    assert(nv_write(tid, (char *)page + 4093, &value, sizeof(value)) == 0);
    assert(nv_write(tid + 1, page, &value, sizeof(value)) == -EINVAL);
    assert(nv_write(-1, page, &value, sizeof(value)) == -EINVAL);
    assert(nv_commit(tid) == 0);
    assert(nv_commit(tid) == -EINVAL && nv_abort(tid) == -EINVAL);
    assert(memcmp((char *)page + 4093, &value, sizeof(value)) == 0);

    counters = nv_allocate("/counters", THREADS * 4096, 0);
    assert(counters != NULL);
    for (long i = 0; i < THREADS; i++)
        assert(pthread_create(&threads[i], NULL, count, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++)
        assert(pthread_join(threads[i], NULL) == 0);
    for (long i = 0; i < THREADS; i++)
        assert(counters[512 * i] == ROUNDS);

    /* a forked child has no pool, and harms nobody */
    pid_t child = fork();
    if (child == 0)
        _exit(nv_txbegin() == -EPERM && nv_free(page) == -EPERM ? 0 : 1);
    int status;
    assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    assert(WEXITSTATUS(status) == 0);

    /* pages that were not there yet are still brought */
    long *more = nv_allocate("/more", 1 << 20, 0600);
    tid = nv_txbegin();
    assert(nv_write(tid, more + 50000, &value, sizeof(value)) == 0);
    assert(nv_commit(tid) == 0);
    child = fork();
    if (child == 0)
        _exit(nv_free(more) == -EPERM ? 0 : 1);
    assert(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 0);
    assert(more[50000] == value && more[90000] == 0);

    tid = nv_txbegin();
    assert(nv_free((char *)page + 8) == -EINVAL);
    assert(nv_free(page) == 0 && nv_free(page) == -EINVAL);
    assert(nv_write(tid, page, &value, sizeof(value)) == -EFAULT);
    assert(nv_abort(tid) == 0);
    puts("fine");
    return 0;
}
