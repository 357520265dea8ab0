/* vNVML's example, as its authors print it, with what surrounds it. */
#include <stdio.h>
#include <stdlib.h>
#include "nv.h"

int main(void)
{
    const char *filepath = "/deck";
    size_t filesize = 1 << 20;
    int mode = 0644 | NV_PRIVATE;
    int *ptr, tid, x, y;

    ptr = nv_allocate(filepath, filesize, mode);
    if (ptr == NULL) {
        perror("nv_allocate");
        return 1;
    }
    tid = nv_txbegin();               /* TX starts */
    x = *ptr;                         /* read */
    y = *(ptr + sizeof(x));           /* read */
    printf("%d %d\n", x, y);
    x = 1;
    y = 2;
    nv_write(tid, ptr, &x, sizeof(x));               /* write */
    nv_write(tid, ptr + sizeof(x), &y, sizeof(y));   /* write */
    nv_commit(tid);                   /* TX commits */
    printf("%d %d\n", *ptr, *(ptr + sizeof(x)));
    return 0;
}
