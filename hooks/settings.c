// SPDX-License-Identifier: Apache-2.0
/*
 * Calls, beside fcntl(), that change how long others wait for a descriptor. The runtime remembers
 * the settings of each descriptor, and asks the kernel again after any change: the descriptor may
 * have copies.
 */
#include "internal.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

HOOKS_OF(settings);

HOOK(int, ioctl, (int fd, unsigned long request, void *arg), (fd, request, arg),
     syscall(SYS_ioctl, fd, request, arg))
{
    int result = real_ioctl(fd, request, arg);
    if (request == FIONBIO) {
        aco_i_tell_change(fd);
    }
    return result;
}

/* Each option has two numbers, since times have two sizes where addresses have 32 bits. */
static int is_timeout(int level, int option)
{
    return level == SOL_SOCKET &&
           (option == SO_RCVTIMEO || option == SO_SNDTIMEO || (option >= 66 && option <= 67));
}

static int is_low_water(int level, int option, const void *value, socklen_t sz)
{
    int mark = 0;
    if (level == SOL_SOCKET && option == SO_RCVLOWAT && value != NULL && sz >= sizeof(mark)) {
        memcpy(&mark, value, sizeof(mark));
    }
    return mark != 0 && mark != 1; /* 0 means 1 */
}

#if defined(SYS_setsockopt)
#define SETSOCKOPT(...) syscall(SYS_setsockopt, __VA_ARGS__)
#else
#define SETSOCKOPT(...) refuse(ENOSYS)
#endif

HOOK(int, setsockopt, (int fd, int level, int option, const void *value, socklen_t sz),
     (fd, level, option, value, sz), SETSOCKOPT(fd, level, option, value, sz))
{
    int result = real_setsockopt(fd, level, option, value, sz);
    if (is_timeout(level, option)) {
        aco_i_tell_change(fd);
    } else if (result == 0 && is_low_water(level, option, value, sz)) {
        aco_i_tell_low_water();
    }
    return result;
}
