/* The mode of nv_allocate: permission bits, NV_PRIVATE and NV_SHARED, and nothing else. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "nv.h"

static void refused(const char *name, int mode)
{
    errno = 0;
    assert(nv_allocate(name, 4096, mode) == NULL && errno == EINVAL);
}

int main(void)
{
    char *one, *other;
    int tid;

    assert(nv_allocate("/private", 4096, 0640 | NV_PRIVATE) != NULL);
    assert(nv_allocate("/shared", 4096, 0604 | NV_SHARED) != NULL);
    assert(nv_allocate("/set-id", 4096, 04711 | NV_SHARED) != NULL);
    assert(nv_allocate("/plain", 4096, 0) != NULL);
    assert(nv_allocate("/plain-shared", 4096, NV_SHARED) != NULL);
    /* one that is there keeps its bits, and its length */
    one = nv_allocate("/private", 100, 0777 | NV_SHARED);
    other = nv_allocate("/private", 8192, 0);
    assert(one != NULL && other != NULL && one != other);
    tid = nv_txbegin();
    assert(nv_write(tid, one + 50, "both", 4) == 0 && nv_commit(tid) == 0);
    assert(memcmp(other + 50, "both", 4) == 0);
    assert(nv_free(one) == 0 && memcmp(other + 50, "both", 4) == 0 && nv_free(other) == 0);
    for (int bit = 12; bit < 32; bit++)
        if (1u << bit != NV_SHARED)
            refused("/wrong", (int)(0600 | 1u << bit));
    refused("/wrong", -1);
    refused("/wrong", S_IFREG | 0600);
    assert(nv_allocate("/private", (size_t)-1, 0600) == NULL && errno != 0);
    puts("fine");
    return 0;
}
