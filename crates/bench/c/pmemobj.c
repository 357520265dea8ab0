/* PMDK's libpmemobj: an array in a pool, the bytes of each write added to its transaction. */
#include <libpmemobj.h>
#include "turns.h"

static PMEMobjpool *pool;
static unsigned char *array;

static void write_one(uint64_t page, const unsigned char *data, size_t bytes)
{
    unsigned char *to = array + page * PAGE;

    TX_BEGIN(pool) {
        pmemobj_tx_add_range_direct(to, bytes);
        memcpy(to, data, bytes);
    } TX_ONABORT {
        fail(pmemobj_errormsg());
    } TX_END
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    char name[64];

    pool = pmemobj_create(argv[1], "deck", bytes + bytes / 8 + (64 << 20), 0600);
    if (pool == NULL)
        fail(pmemobj_errormsg());
    array = pmemobj_direct(pmemobj_root(pool, bytes));
    if (array == NULL)
        fail(pmemobj_errormsg());
    pmemobj_memset_persist(pool, array, 1, bytes);
    snprintf(name, sizeof(name), "API %d.%d", PMEMOBJ_MAJOR_VERSION, PMEMOBJ_MINOR_VERSION);
    serve(name, bytes / PAGE, write_one);
    pmemobj_close(pool);
    return 0;
}
