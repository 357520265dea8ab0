/*
 * The interface of vNVML (Chou et al., "Virtualize and Share Non-Volatile
 * Memory in User Space", MSST 2019), on a Nearside pool: the one that the
 * environment variable NEARSIDE_POOL names.
 *
 *   int *ptr = nv_allocate("/numbers", 1 << 20, 0644);
 *   int tid = nv_txbegin();
 *   int x = *ptr + 1;
 *   nv_write(tid, ptr, &x, sizeof(x));
 *   nv_commit(tid);
 *
 * The process attaches to the service of the pool, or has it for itself where
 * there is none. Loads from what was allocated are plain loads; nobody may store
 * there.
 * Calls that answer a number answer an errno as a negative one; any thread may
 * make them, and may have many transactions.
 */
#ifndef NV_H
#define NV_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Bits of the mode of nv_allocate, beside permission bits. Both are alike: all
 * threads see the same bytes, in every mapping of the file; what is committed is
 * in the file, and processes that open the pool later find it there. Where a
 * service has the pool (nearside serve) many processes map the file at a time,
 * as its permission bits let them, and see what any of them commits. NV_PRIVATE
 * makes no copy.
 */
#define NV_PRIVATE 0
#define NV_SHARED 0x10000

/*
 * Maps filesize bytes of a file of the pool as memory. The file is made if it
 * is missing, with the permission bits of mode, and as long as filesize at
 * least. NULL on an error, and errno says which.
 */
void *nv_allocate(const char *filepath, size_t filesize, int mode);

/* Begins a transaction; gives its number. */
int nv_txbegin(void);

/* Puts n bytes from src at dst, inside what was allocated, at the commit. */
int nv_write(int tid, void *dst, const void *src, size_t n);

/* Makes all that was written happen, in one step, durably. */
int nv_commit(int tid);

/* Ends a transaction: nothing of it happened. */
int nv_abort(int tid);

/* Unmaps what was allocated; the file stays. */
int nv_free(void *ptr);

#ifdef __cplusplus
}
#endif

#endif
