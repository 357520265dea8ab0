/* What the programs of the deck's peers have in common. Each makes its array, says "ready NAME",
 * and answers each line "BYTES COUNT" with the nanoseconds that COUNT transactions took, each of
 * which writes BYTES bytes to the next 4 KiB of the array. */
#include "peer.h"

enum { PAGE = 4096, SOURCES_BYTES = 128 << 10 };

/* The sources change from write to write, as those of the other sides do. */
static void serve(const char *name, uint64_t pages,
                  void (*write_one)(uint64_t page, const unsigned char *data, size_t bytes))
{
    static unsigned char sources[SOURCES_BYTES + PAGE];
    uint64_t page = 0, count, start;
    size_t bytes, at = 0;

    for (size_t i = 0; i < sizeof(sources); i++)
        sources[i] = (unsigned char)(i ^ (i >> 8) * 31);
    printf("ready %s\n", name);
    fflush(stdout);
    while (scanf("%zu %" SCNu64, &bytes, &count) == 2) {
        if (bytes > PAGE)
            fail("more than a page");
        start = now();
        for (uint64_t i = 0; i < count; i++) {
            write_one(page, sources + at, bytes);
            page = page + 1 == pages ? 0 : page + 1;
            at = (at + bytes) % SOURCES_BYTES;
        }
        printf("%" PRIu64 "\n", now() - start);
        fflush(stdout);
    }
}
