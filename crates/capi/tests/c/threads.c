/* Several threads with many transactions each, through both headers. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include "nearside.h"
#include "nv.h"

#define THREADS 6
#define ROUNDS 300
#define ACCOUNTS 16
#define AT_ONCE 50

static ns_pool_t pool;
static uint64_t *accounts;
static long *counters;
/* a transaction that all threads try to end */
static ns_tx_t last;
static int ended;

/* Moves 1 from an account to another one; -EAGAIN: another thread was faster. */
static int moved(unsigned from, unsigned to)
{
    uint64_t less, more;
    ns_tx_t tx;
    int result;

    assert(ns_tx_begin(pool, NS_TX_SERIALISABLE, &tx) == 0);
    result = ns_tx_read(tx, &accounts[from], &less, sizeof(less));
    if (result == 0)
        result = ns_tx_read(tx, &accounts[to], &more, sizeof(more));
    if (result == 0) {
        less--;
        more++;
        assert(ns_tx_write(tx, &accounts[from], &less, sizeof(less)) == 0);
        assert(ns_tx_write(tx, &accounts[to], &more, sizeof(more)) == 0);
        return ns_tx_commit(tx);
    }
    assert(ns_tx_abort(tx) == 0);
    return result;
}

/* What all accounts hold at one moment; 0: there was none. */
static uint64_t sum(void)
{
    uint64_t values[ACCOUNTS], all = 0;
    ns_tx_t tx;
    int result;

    assert(ns_tx_begin(pool, NS_TX_SNAPSHOT, &tx) == 0);
    result = 0;
    for (int i = 0; i < ACCOUNTS && result == 0; i++)
        result = ns_tx_read(tx, &accounts[i], &values[i], sizeof(values[i]));
    assert(result == 0 || result == -EAGAIN);
    assert(ns_tx_abort(tx) == 0);
    for (int i = 0; i < ACCOUNTS && result == 0; i++)
        all += values[i];
    return all;
}

/* Many at once: every second one happens. */
static void many_at_once(long *mine)
{
    int tids[AT_ONCE];

    for (long i = 0; i < AT_ONCE; i++) {
        tids[i] = nv_txbegin();
        assert(tids[i] >= 0);
        for (long j = 0; j < i; j++)
            assert(tids[i] != tids[j]);
    }
    for (long i = 0; i < AT_ONCE; i++) {
        long next = mine[i] + 1;
        assert(nv_write(tids[i], &mine[i], &next, sizeof(next)) == 0);
    }
    for (long i = AT_ONCE - 1; i >= 0; i--)
        assert((i % 2 ? nv_commit(tids[i]) : nv_abort(tids[i])) == 0);
}

static void *run(void *number)
{
    unsigned state = 7 + (unsigned)(long)number;
    long *mine = counters + 512 * (long)number;

    for (int round = 0; round < ROUNDS; round++) {
        unsigned from, to;
        uint64_t all;
        int result;

        state = state * 1103515245 + 12345;
        from = (state >> 8) % ACCOUNTS;
        to = (from + 1 + (state >> 16) % (ACCOUNTS - 1)) % ACCOUNTS;
        while ((result = moved(from, to)) == -EAGAIN)
            ;
        assert(result == 0);
        all = sum();
        assert(all == 0 || all == ACCOUNTS * 1000000ull);
        if (round % 10 == 0)
            many_at_once(mine);
    }
    if (ns_tx_commit(last) == 0)
        __atomic_add_fetch(&ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

int main(int argc, char **argv)
{
    ns_format_options options = { .slice_bytes = 32 << 20, .flags = NS_FORMAT_PROCESS };
    pthread_t threads[THREADS];
    ns_region_t region;
    ns_file_t file;
    ns_tx_t tx;
    uint64_t start = 1000000, all = 0;

    assert(argc == 2 || argc == 3);
    if (argc == 2)
        assert(ns_pool_format(argv[1], &options) == 0 && ns_pool_open(argv[1], 0, &pool) == 0);
    else
        assert(ns_pool_attach(argv[1], &pool) == 0);
    assert(ns_open(pool, "/accounts", O_RDWR | O_CREAT, 0600, &file) == 0);
    assert(ns_region_map(pool, file, 0, 4096, &region, (const void **)&accounts) == 0);
    assert(ns_tx_begin(pool, NS_TX_COMMITTED, &tx) == 0);
    for (int i = 0; i < ACCOUNTS; i++)
        assert(ns_tx_write(tx, &accounts[i], &start, sizeof(start)) == 0);
    assert(ns_tx_commit(tx) == 0);
    assert(ns_tx_begin(pool, NS_TX_COMMITTED, &last) == 0);
    counters = nv_allocate("/counters", THREADS * 4096, 0600);
    assert(counters != NULL);
    for (long i = 0; i < THREADS; i++)
        assert(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++)
        assert(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < ACCOUNTS; i++)
        all += accounts[i];
    assert(all == ACCOUNTS * 1000000ull && sum() == all);
    assert(ended == 1 && ns_tx_commit(last) == -EINVAL);
    for (long i = 0; i < THREADS; i++)
        for (long j = 0; j < AT_ONCE; j++)
            assert(counters[512 * i + j] == (j % 2 ? ROUNDS / 10 : 0));
    assert(ns_region_unmap(region) == 0 && ns_close(file) == 0 && ns_pool_close(pool) == 0);
    puts("fine");
    return 0;
}
