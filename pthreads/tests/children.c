// SPDX-License-Identifier: Apache-2.0
/* Child processes of a thread begin with its mask of signals: prints what each way gives them. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMAND "grep SigBlk /proc/self/status"

extern char **environ;

static char *words[] = {(char *)"sh", (char *)"-c", (char *)COMMAND, NULL};

static void finish(const char *way, pid_t pid)
{
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    puts(way);
    fflush(stdout);
}

static int shell_fd(void)
{
    return open("/bin/sh", O_RDONLY | O_CLOEXEC);
}

static void execute(int way)
{
    switch (way) {
    case 0:
        execve("/bin/sh", words, environ);
        break;
    case 1:
        execv("/bin/sh", words);
        break;
    case 2:
        execvp("sh", words);
        break;
    case 3:
        execvpe("sh", words, environ);
        break;
    case 4:
        fexecve(shell_fd(), words, environ);
        break;
    case 5:
        execl("/bin/sh", "sh", "-c", COMMAND, (char *)NULL);
        break;
    case 6:
        execlp("sh", "sh", "-c", COMMAND, (char *)NULL);
        break;
    case 7:
        execle("/bin/sh", "sh", "-c", COMMAND, (char *)NULL, environ);
        break;
    default:
        break;
    }
    _exit(1);
}

static void print_masks(void)
{
    pid_t pid;
    char line[100];
    for (volatile int way = 0; way < 8; way++) { /* vfork() returns twice */
        pid = fork();
        if (pid == 0) {
            execute(way);
        }
        finish("fork", pid);
        pid = vfork();
        if (pid == 0) {
            execute(way);
        }
        finish("vfork", pid);
    }
    CHECK(execl("/no/such", "such", (char *)NULL) == -1);
    CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ) == 0);
    finish("posix_spawn", pid);
    CHECK(posix_spawnp(&pid, "sh", NULL, NULL, words, environ) == 0);
    finish("posix_spawnp", pid);
    CHECK(system(COMMAND) == 0);
    FILE *stream = popen(COMMAND, "r");
    CHECK(stream != NULL && fgets(line, sizeof(line), stream) != NULL);
    CHECK(pclose(stream) == 0);
    printf("%spopen\n", line);
    fflush(stdout);
}

static volatile sig_atomic_t ct_handled;

static void handle(int number)
{
    ct_handled = ct_handled + (number == SIGUSR1);
}

/* A child goes on as a process of one thread. */
static void signal_a_child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t set;
        CHECK(raise(SIGUSR1) == 0 && ct_handled == 1);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
        CHECK(kill(getpid(), SIGUSR1) == 0 && ct_handled == 1);
        CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0 && ct_handled == 2);
        _exit(0);
    }
    finish("signals of a child", pid);
    pid = fork();
    if (pid == 0) {
        pause();
    }
    int status;
    CHECK(kill(pid, SIGTERM) == 0 && waitpid(pid, &status, 0) == pid &&
          WTERMSIG(status) == SIGTERM);
}

static void *has_children(void *arg)
{
    sigset_t set;
    print_masks();
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK(pthread_sigmask(SIG_SETMASK, &set, NULL) == 0);
    print_masks();
    CHECK(signal(SIGUSR1, handle) != SIG_ERR);
    signal_a_child();
    return arg;
}

int main(void)
{
    result_of(start(has_children, NULL));
    return 0;
}
