/* The least that serves page faults of a program: a thread that copies a page of memory to where
 * one is missing. Argument: bytes. An order "SHARED STRIDE" touches one page of every STRIDE, in
 * an order that nobody can guess, in fresh memory that the kernel shares or not, and is answered
 * with the nanoseconds that it took, and the number of touches. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "peer.h"

enum { PAGE = 4096 };

static int faults;
static unsigned char *source, *volatile target;

static int open_faults(void)
{
    int device, made = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

    if (made < 0)
        made = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (made < 0 && (device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC)) >= 0)
        made = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
    return made;
}

static void *serve_faults(void *unused)
{
    struct uffd_msg message;

    while (read(faults, &message, sizeof(message)) == sizeof(message)) {
        uint64_t page = message.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
        struct uffdio_copy copy = {
            .dst = page,
            .src = (uint64_t)source + (page - (uint64_t)target),
            .len = PAGE,
        };
        if (ioctl(faults, UFFDIO_COPY, &copy) != 0)
            fail("UFFDIO_COPY");
    }
    return unused;
}

/* The order of the touches: 0 to count - 1, each once. */
static void shuffle(uint32_t *order, uint32_t count)
{
    static uint64_t dice = 0x9E3779B97F4A7C15;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t other;

        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        other = (uint32_t)(dice % (i + 1));
        order[i] = order[other];
        order[other] = i;
    }
}

static void *fresh(size_t bytes, int shared)
{
    int object = shared ? memfd_create("peer", MFD_CLOEXEC) : -1;
    struct uffdio_register registered = { .mode = UFFDIO_REGISTER_MODE_MISSING };
    void *memory;

    if (shared && ftruncate(object, (off_t)bytes) != 0)
        fail("ftruncate");
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, object, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    if (shared)
        close(object);
    registered.range.start = (uint64_t)memory;
    registered.range.len = bytes;
    if (ioctl(faults, UFFDIO_REGISTER, &registered) != 0)
        fail("UFFDIO_REGISTER");
    return memory;
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_MISSING_SHMEM };
    uint32_t *order = calloc(bytes / PAGE, sizeof(*order));
    unsigned sum = 0;
    pthread_t thread;
    size_t stride;
    int shared;

    source = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    faults = open_faults();
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) != 0)
        fail("userfaultfd");
    if (source == MAP_FAILED || order == NULL)
        fail("no memory");
    memset(source, 1, bytes);
    if (pthread_create(&thread, NULL, serve_faults, NULL) != 0)
        fail("pthread_create");
    printf("ready userfaultfd\n");
    fflush(stdout);
    while (scanf("%d %zu", &shared, &stride) == 2 && stride > 0) {
        uint32_t count = (uint32_t)(bytes / PAGE / stride);
        uint64_t start;

        target = fresh(bytes, shared);
        shuffle(order, count);
        start = now();
        for (uint32_t i = 0; i < count; i++)
            sum += *(volatile unsigned char *)(target + order[i] * stride * PAGE);
        printf("%" PRIu64 " %" PRIu32 "\n", now() - start, count);
        fflush(stdout);
        munmap(target, bytes);
    }
    return sum == 0;
}
