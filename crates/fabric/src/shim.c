/*
 * What this project calls of libfabric, most of which is inline functions. One endpoint of type
 * FI_EP_RDM, with its own domain and completion queue, which one thread uses at a time; messages
 * come from and go to places of one piece of memory. Errors are negative numbers of libfabric's, or
 * NO_LIBRARY. The library is loaded when it is first wanted: with it come a dozen others, which
 * programs that go by no fabric need not have.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

struct nearside_fabric {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr *mr;
    void *desc;
    fi_addr_t peer;
    int wait_fd;
    char *memory;
    size_t count;
    struct fi_context2 contexts[];
};

struct nearside_done {
    uint32_t index;
    uint32_t failed;
    uint64_t bytes;
};

/*
 * libfabric takes these from the environment when it is first asked for anything; here nobody else
 * runs. Without shared receive contexts ofi_rxm over verbs posts receives to connections that it
 * has closed, and ends the process, where the other side goes while a message of it is here
 * (libfabric's issue 11828, seen with 1.17). The sizes are for one other side, not for hundreds.
 * What whoever started the program has set stays. A library that comes with libfabric (of
 * libinfinipath) sets handlers of signals when it is loaded, unless it is told not to.
 */
__attribute__((constructor)) static void choose(void)
{
    setenv("FI_UNIVERSE_SIZE", "16", 0);
    setenv("FI_OFI_RXM_USE_SRX", "1", 0);
    setenv("FI_OFI_RXM_MSG_RX_SIZE", "64", 0);
    setenv("FI_OFI_RXM_MSG_TX_SIZE", "32", 0);
    setenv("IPATH_NO_BACKTRACE", "1", 0);
}

#define NO_LIBRARY (-1000000)

static struct {
    uint32_t (*version)(void);
    int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *,
                   struct fi_info **);
    struct fi_info *(*dupinfo)(const struct fi_info *);
    void (*freeinfo)(struct fi_info *);
    int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
    const char *(*strerror)(int);
} library;
static char why_not[256];
static int was_loaded;

/* Who loads and looks for providers has this: handlers of signals are set meanwhile. */
static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;

static void load(void)
{
    void *it = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void **into;
    } all[] = {
        {"fi_version", (void **)&library.version},   {"fi_getinfo", (void **)&library.getinfo},
        {"fi_dupinfo", (void **)&library.dupinfo},   {"fi_freeinfo", (void **)&library.freeinfo},
        {"fi_fabric", (void **)&library.fabric},     {"fi_strerror", (void **)&library.strerror},
    };
    uint32_t version;

    for (size_t at = 0; it && at < sizeof all / sizeof *all; at++)
        if (!(*all[at].into = dlsym(it, all[at].name)))
            it = NULL;
    if (!it) {
        const char *said = dlerror();

        snprintf(why_not, sizeof why_not, "%s", said ? said : "libfabric.so.1 is none");
        return;
    }
    /* the newest of each function has the structures of that release's headers */
    version = library.version();
    if (FI_MAJOR(version) != FI_MAJOR_VERSION || FI_MINOR(version) != FI_MINOR_VERSION)
        snprintf(why_not, sizeof why_not, "libfabric %u.%u is here, and this was built for %u.%u",
                 FI_MAJOR(version), FI_MINOR(version), FI_MAJOR_VERSION, FI_MINOR_VERSION);
}

/* Libraries and providers set handlers of their own when they are first looked for: this process
 * has its own. */
static const int signals[] = {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGTERM, SIGINT, SIGABRT};
#define SIGNALS (sizeof signals / sizeof *signals)

static int find(const char *provider, const char *node, size_t message, size_t receives,
                size_t sends, struct fi_info **info)
{
    struct fi_info *hints = library.dupinfo(NULL);
    int found;

    if (!hints)
        return -FI_ENOMEM;
    hints->ep_attr->type = FI_EP_RDM;
    hints->ep_attr->max_msg_size = message;
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->tx_attr->size = sends;
    hints->rx_attr->size = receives;
    hints->fabric_attr->prov_name = strdup(provider);
    found = library.getinfo(FI_VERSION(1, 14), node, NULL,
                            node ? FI_SOURCE | FI_NUMERICHOST : 0, hints, info);
    library.freeinfo(hints);
    return found;
}

/* The same, once the library is there. */
static int load_and_find(const char *provider, const char *node, size_t message, size_t receives,
                         size_t sends, struct fi_info **info)
{
    struct sigaction kept[SIGNALS];
    int found = NO_LIBRARY;

    pthread_mutex_lock(&alone);
    for (size_t at = 0; at < SIGNALS; at++)
        sigaction(signals[at], NULL, &kept[at]);
    if (!was_loaded)
        load();
    was_loaded = 1;
    if (!*why_not)
        found = find(provider, node, message, receives, sends, info);
    for (size_t at = 0; at < SIGNALS; at++)
        sigaction(signals[at], &kept[at], NULL);
    pthread_mutex_unlock(&alone);
    return found;
}

/* What was asked for is what there is, or it is of no use. */
static int check(const struct fi_info *info, size_t message)
{
    if (info->ep_attr->type != FI_EP_RDM || !(info->caps & FI_MSG) ||
        info->ep_attr->max_msg_size < message || info->ep_attr->msg_prefix_size ||
        !(info->tx_attr->msg_order & FI_ORDER_SAS) || !(info->rx_attr->msg_order & FI_ORDER_SAS))
        return -FI_EOPNOTSUPP;
    return 0;
}

/* Other than 0: the endpoint is still there, and may use its memory. */
int nearside_fabric_close(struct nearside_fabric *it)
{
    int failed = it->ep ? fi_close(&it->ep->fid) : 0;

    if (failed)
        return failed;
    if (it->mr)
        fi_close(&it->mr->fid);
    if (it->cq)
        fi_close(&it->cq->fid);
    if (it->av)
        fi_close(&it->av->fid);
    if (it->domain)
        fi_close(&it->domain->fid);
    if (it->fabric)
        fi_close(&it->fabric->fid);
    if (it->info)
        library.freeinfo(it->info);
    free(it);
    return 0;
}

/* A completion queue with a descriptor to wait at; wait_fd is -1 where the provider has none. */
static int open_queue(struct nearside_fabric *it)
{
    struct fi_cq_attr attr = {.size = it->count, .format = FI_CQ_FORMAT_MSG};
    int failed;

    attr.wait_obj = FI_WAIT_FD;
    it->wait_fd = -1;
    failed = fi_cq_open(it->domain, &attr, &it->cq, NULL);
    if (!failed && !fi_control(&it->cq->fid, FI_GETWAIT, &it->wait_fd))
        return 0;
    it->wait_fd = -1;
    if (!failed)
        fi_close(&it->cq->fid);
    it->cq = NULL;
    attr.wait_obj = FI_WAIT_NONE;
    return fi_cq_open(it->domain, &attr, &it->cq, NULL);
}

static int enable(struct nearside_fabric *it, size_t bytes)
{
    struct fi_av_attr av = {.type = FI_AV_UNSPEC, .count = 1};
    int mode = it->info->domain_attr->mr_mode;
    int failed;

    if ((failed = library.fabric(it->info->fabric_attr, &it->fabric, NULL)) ||
        (failed = fi_domain(it->fabric, it->info, &it->domain, NULL)) ||
        (failed = fi_av_open(it->domain, &av, &it->av, NULL)) || (failed = open_queue(it)) ||
        (failed = fi_endpoint(it->domain, it->info, &it->ep, NULL)) ||
        (failed = fi_ep_bind(it->ep, &it->av->fid, 0)) ||
        (failed = fi_ep_bind(it->ep, &it->cq->fid, FI_TRANSMIT | FI_RECV)) ||
        (failed = fi_enable(it->ep)))
        return failed;
    if (!(mode & FI_MR_LOCAL))
        return 0;
    failed = fi_mr_reg(it->domain, it->memory, bytes, FI_SEND | FI_RECV, 0, 0, 0, &it->mr, NULL);
    if (!failed && mode & FI_MR_ENDPOINT && !(failed = fi_mr_bind(it->mr, &it->ep->fid, 0)))
        failed = fi_mr_enable(it->mr);
    if (!failed)
        it->desc = fi_mr_desc(it->mr);
    return failed;
}

int nearside_fabric_open(const char *provider, const char *node, char *memory, size_t message,
                         size_t receives, size_t sends, struct nearside_fabric **out)
{
    size_t count = receives + sends;
    struct nearside_fabric *it = calloc(1, sizeof *it + count * sizeof *it->contexts);
    int failed;

    if (!it)
        return -FI_ENOMEM;
    it->memory = memory;
    it->count = count;
    it->wait_fd = -1;
    if ((failed = load_and_find(provider, node, message, receives, sends, &it->info)) ||
        (failed = check(it->info, message)) || (failed = enable(it, count * message))) {
        (void)nearside_fabric_close(it);
        return failed;
    }
    *out = it;
    return 0;
}

const char *nearside_fabric_provider(const struct nearside_fabric *it)
{
    return it->info->fabric_attr->prov_name;
}

int nearside_fabric_name(struct nearside_fabric *it, void *name, size_t *bytes)
{
    return fi_getname(&it->ep->fid, name, bytes);
}

int nearside_fabric_meet(struct nearside_fabric *it, const void *name)
{
    int added = fi_av_insert(it->av, name, 1, &it->peer, 0, NULL);

    return added == 1 ? 0 : added < 0 ? added : -FI_EINVAL;
}

/* The length of names, where it is fixed; 0: they end with a zero. */
size_t nearside_fabric_name_bytes(const struct nearside_fabric *it)
{
    return it->info->addr_format == FI_ADDR_STR ? 0 : it->info->src_addrlen;
}

ssize_t nearside_fabric_receive(struct nearside_fabric *it, uint32_t index, size_t message)
{
    return fi_recv(it->ep, it->memory + index * message, message, it->desc, FI_ADDR_UNSPEC,
                   &it->contexts[index]);
}

ssize_t nearside_fabric_send(struct nearside_fabric *it, uint32_t index, size_t message,
                             size_t bytes)
{
    return fi_send(it->ep, it->memory + index * message, bytes, it->desc, it->peer,
                   &it->contexts[index]);
}

/* Takes what is done, one at a time: 1, 0 where nothing is, or an error. */
int nearside_fabric_poll(struct nearside_fabric *it, struct nearside_done *done)
{
    struct fi_cq_msg_entry entry;
    struct fi_cq_err_entry error = {0};
    void *context;
    ssize_t read = fi_cq_read(it->cq, &entry, 1);

    done->failed = 0;
    if (read == 1) {
        context = entry.op_context;
        done->bytes = entry.len;
    } else if (read == -FI_EAGAIN) {
        return 0;
    } else if (read == -FI_EAVAIL) {
        read = fi_cq_readerr(it->cq, &error, 0);
        if (read != 1)
            return read == -FI_EAGAIN ? 0 : read < 0 ? (int)read : -FI_EOTHER;
        context = error.op_context;
        done->failed = error.err ? (uint32_t)error.err : FI_EOTHER;
        done->bytes = 0;
    } else {
        return read < 0 ? (int)read : -FI_EOTHER;
    }
    if ((char *)context < (char *)it->contexts ||
        (char *)context >= (char *)(it->contexts + it->count))
        return done->failed ? -(int)done->failed : -FI_EOTHER;
    done->index = (uint32_t)((struct fi_context2 *)context - it->contexts);
    return 1;
}

int nearside_fabric_wait_fd(const struct nearside_fabric *it)
{
    return it->wait_fd;
}

/* Whether the descriptor will tell of what comes from now on. */
int nearside_fabric_may_wait(struct nearside_fabric *it)
{
    struct fid *fids[] = {&it->cq->fid};

    return fi_trywait(it->fabric, fids, 1) == 0;
}

const char *nearside_fabric_words(int number)
{
    if (number == NO_LIBRARY)
        return why_not;
    return library.strerror(number < 0 ? -number : number);
}
