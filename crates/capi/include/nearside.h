/* Nearside: files and transactional memory on persistent memory. See docs/guide.md. */

#ifndef NEARSIDE_H
#define NEARSIDE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 Of `ns_format_options`: what is written survives a killed process, not a power cut.
 */
#define NS_FORMAT_PROCESS 1

/*
 Of `ns_format_options`: slices and devices may have been another pool's, which then is lost.
 */
#define NS_FORMAT_FORCE 2

/*
 Of `ns_pool_open` and `ns_open_options`: nothing is changed, not even by recovery.
 */
#define NS_OPEN_READ_ONLY 1

/*
 Of `ns_tx_begin`: reads see what is committed.
 */
#define NS_TX_COMMITTED 0

/*
 All reads are of one moment; and what it writes, nobody else wrote since then.
 */
#define NS_TX_SNAPSHOT 1

/*
 It is as if no other transaction had happened meanwhile.
 */
#define NS_TX_SERIALISABLE 2

/*
 A pool that is open.
 */
typedef uint64_t ns_pool_t;

/*
 A directory that is being listed.
 */
typedef uint64_t ns_dir_t;

/*
 An entry of a directory.
 */
typedef struct {
    /*
     Number of the inode.
     */
    uint64_t ino;
    /*
     1 for a directory, 0 for anything else.
     */
    uint8_t is_dir;
    /*
     Bytes of the name.
     */
    uint8_t name_len;
    /*
     The name, and a 0 behind it.
     */
    char name[256];
} ns_dirent_t;

/*
 A file that is open.
 */
typedef uint64_t ns_file_t;

/*
 What is known of a file.
 */
typedef struct {
    /*
     Number of the inode.
     */
    uint64_t ino;
    /*
     Bytes.
     */
    uint64_t size;
    /*
     Blocks of 512 bytes that it takes.
     */
    uint64_t blocks;
    /*
     Time of the last change of the content, seconds since 1970.
     */
    int64_t mtime_s;
    /*
     The rest of it, nanoseconds.
     */
    uint32_t mtime_ns;
    /*
     What it is, and its permission bits, as in `stat(2)`.
     */
    uint32_t mode;
    /*
     Names.
     */
    uint32_t links;
    /*
     Owner.
     */
    uint32_t uid;
    /*
     Group.
     */
    uint32_t gid;
    /*
     0.
     */
    uint32_t reserved;
} ns_stat_t;

/*
 A file or device that a pool is made of.
 */
typedef struct {
    /*
     Where it is; null: a file in the pool's directory.
     */
    const char *path;
    /*
     Its size, bytes; 0: that which it has.
     */
    uint64_t bytes;
} ns_part;

/*
 How a pool is made. What is 0 or null is chosen by itself.
 */
typedef struct {
    /*
     Slices; 0: one.
     */
    uint32_t slices;
    /*
     `NS_FORMAT_PROCESS` and `NS_FORMAT_FORCE`, or 0.
     */
    uint32_t flags;
    /*
     Bytes of each slice that does not say its own; 0: 1 GiB.
     */
    uint64_t slice_bytes;
    /*
     Where each of the slices is; null: they are files in the pool's directory.
     */
    const ns_part *slice_parts;
    /*
     Files and block devices of the capacity tier, so many as `devices` says.
     */
    const ns_part *device_parts;
    /*
     Devices of the capacity tier; 0: there is no such tier.
     */
    uint32_t devices;
} ns_format_options;

/*
 How a pool is opened. What is 0 is chosen by itself.
 */
typedef struct {
    /*
     `NS_OPEN_READ_ONLY`, or 0.
     */
    uint32_t flags;
    /*
     The share of a slice, in percent, above which its blocks are written back to the capacity
     tier, 1 to 90; 0: 30.
     */
    uint32_t write_back_percent;
    /*
     DRAM that caches may use, bytes; 0: 1 GiB.
     */
    uint64_t memory_bytes;
    /*
     DRAM for blocks of the capacity tier, bytes for each node; 0: a quarter of the former for
     all.
     */
    uint64_t tier_cache_bytes;
    /*
     DRAM for pages of regions, bytes; 0: 1 GiB. Where it is not 0, all that serves regions is
     there when the pool is open, and else with the first region or transaction.
     */
    uint64_t region_bytes;
} ns_open_options;

/*
 A file, or a part of one, that is mapped as memory.
 */
typedef uint64_t ns_region_t;

/*
 A transaction that has not ended.
 */
typedef uint64_t ns_tx_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Begins to list a directory.

 # Safety
 `name` is a string that ends; `dir` has room for a number.
 */
int ns_opendir(ns_pool_t in_pool, const char *name, ns_dir_t *dir);

/*
 The next entry: 1, or 0 where there is none any more. `.` and `..` are not listed.

 # Safety
 `entry` has room for an entry.
 */
int ns_readdir(ns_dir_t dir,
               ns_dirent_t *entry);

/*
 Ends a listing.
 */
int ns_closedir(ns_dir_t dir);

/*
 Opens a file, with the flags of `open(2)`; `mode` is for a new one.

 # Safety
 `name` is a string that ends; `file` has room for a number.
 */
int ns_open(ns_pool_t in_pool,
            const char *name,
            int open_flags,
            uint32_t mode,
            ns_file_t *file);

/*
 Closes a file.
 */
int ns_close(ns_file_t file);

/*
 Reads at `offset`; gives the bytes read, fewer than asked for only at the end.

 # Safety
 `buffer` has room for `len` bytes.
 */
ptrdiff_t ns_pread(ns_file_t from,
                   uint8_t *buffer,
                   size_t len,
                   uint64_t offset);

/*
 Writes at `offset`, up to 2 MiB atomically; gives the bytes written.

 # Safety
 There are `len` bytes at `data`.
 */
ptrdiff_t ns_pwrite(ns_file_t to,
                    const uint8_t *data,
                    size_t len,
                    uint64_t offset);

/*
 What was written before is durable when this returns (elsewhere than in the `sync` domain it was
 already).
 */
int ns_fsync(ns_file_t of);

/*
 The file ends at `size`.
 */
int ns_ftruncate(ns_file_t of, uint64_t size);

/*
 What is known of the file of this name; symbolic links are followed.

 # Safety
 `name` is a string that ends; `to` has room for a stat.
 */
int ns_stat(ns_pool_t in_pool, const char *name, ns_stat_t *to);

/*
 What is known of a file that is open.

 # Safety
 `to` has room for a stat.
 */
int ns_fstat(ns_file_t of, ns_stat_t *to);

/*
 Makes a directory. No umask applies; set-id bits of `mode` are ignored, as by mkdir(2).

 # Safety
 `name` is a string that ends.
 */
int ns_mkdir(ns_pool_t in_pool,
             const char *name,
             uint32_t mode);

/*
 Removes a file's name.

 # Safety
 `name` is a string that ends.
 */
int ns_unlink(ns_pool_t in_pool, const char *name);

/*
 Removes an empty directory.

 # Safety
 `name` is a string that ends.
 */
int ns_rmdir(ns_pool_t in_pool, const char *name);

/*
 Renames, in one atomic step.

 # Safety
 `from` and `to` are strings that end.
 */
int ns_rename(ns_pool_t in_pool, const char *from, const char *to);

/*
 Makes an empty pool in a directory, which is made if it is missing. `options` may be null.

 # Safety
 `dir` is a string that ends; `options` is null or points to options, whose parts are as many as
 they say.
 */
int ns_pool_format(const char *dir,
                   const ns_format_options *options);

/*
 Opens the pool in a directory, exclusively, and recovers it if it was not closed. `flags` is
 `NS_OPEN_READ_ONLY`, or 0.

 # Safety
 `dir` is a string that ends; `pool` has room for a number.
 */
int ns_pool_open(const char *dir,
                 uint32_t flags,
                 ns_pool_t *pool);

/*
 The same with more options, which may be null.

 # Safety
 `dir` is a string that ends; `options` is null or points to options; `pool` has room for a
 number.
 */
int ns_pool_open_with(const char *dir,
                      const ns_open_options *options,
                      ns_pool_t *pool);

/*
 Attaches to the service that owns the pool in the directory `place`, or that listens at the
 socket `place`: the same calls ask the service. What may be done is what this process's user and
 groups may. `near://HOST[:PORT]` is one on another machine: this process shows it credentials,
 those that `NEARSIDE_CREDENTIALS` names or that are in `~/.config/nearside/credentials` or
 `/etc/nearside/credentials`, and may do what they may. `near+insecure://HOST[:PORT]` is one
 that encrypts nothing and asks nobody who it is.

 # Safety
 `place` is a string that ends; `pool` has room for a number.
 */
int ns_pool_attach(const char *place,
                   ns_pool_t *pool);

/*
 Checkpoints and closes a pool. What is open of it is closed first by the caller: others can open
 the pool only then. A pool that is not closed loses nothing.
 */
int ns_pool_close(ns_pool_t pool);

/*
 Maps `bytes` bytes of a file from `offset` on, a multiple of 4096, as memory to load from; gives
 where they are. Nobody may store there: that ends the process.

 # Safety
 `region` and `address` have room for one each.
 */
int ns_region_map(ns_pool_t in_pool,
                  ns_file_t of,
                  uint64_t offset,
                  uint64_t bytes,
                  ns_region_t *region,
                  const void **address);

/*
 Unmaps a region. Transactions that wrote to it still commit.
 */
int ns_region_unmap(ns_region_t region);

/*
 Begins a transaction, for one thread at a time; a thread may have many.

 # Safety
 `tx` has room for a number.
 */
int ns_tx_begin(ns_pool_t in_pool, uint32_t isolation, ns_tx_t *tx);

/*
 Puts `len` bytes from `data` at an address inside a region when the transaction commits.

 # Safety
 There are `len` bytes at `data`.
 */
int ns_tx_write(ns_tx_t tx,
                void *address,
                const void *data,
                size_t len);

/*
 Reads `len` bytes at an address inside a region into `buffer`, with what the transaction wrote
 there.

 # Safety
 `buffer` has room for `len` bytes.
 */
int ns_tx_read(ns_tx_t tx,
               const void *address,
               void *buffer,
               size_t len);

/*
 Makes all that was written happen, in one step, durably; the transaction ends. -EAGAIN: another
 one was faster, and this one did not happen.
 */
int ns_tx_commit(ns_tx_t tx);

/*
 Ends a transaction: nothing of it happened.
 */
int ns_tx_abort(ns_tx_t tx);

/*
 What went wrong, in words: of an answer below 0. The string is never freed.
 */
const char *ns_strerror(int answer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NEARSIDE_H */
