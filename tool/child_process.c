/* A child process that is connected by two pipes. */
#include "child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void execute(const char *const *arguments, const int in[2], const int out[2]) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    const int ends[] = {in[0], in[1], out[0], out[1], null};
    for (size_t i = 0; i < COUNT(ends); i++) {
        if (ends[i] > STDERR_FILENO) {
            close(ends[i]);
        }
    }
    signal(SIGPIPE, SIG_DFL);
    execvp(arguments[0], (char *const *)arguments);
    _exit(127);
}

bool child_start(child *child, const char *const *arguments) {
    int in[2], out[2];
    *child = (struct child){.id = 0, .in = -1, .out = -1};
    if (pipe(in) != 0) {
        return false;
    }
    if (pipe(out) != 0) {
        close(in[0]);
        close(in[1]);
        return false;
    }
    fcntl(in[1], F_SETFD, FD_CLOEXEC);
    fcntl(out[0], F_SETFD, FD_CLOEXEC);
    const pid_t id = fork();
    if (id == 0) {
        execute(arguments, in, out);
    }
    close(in[0]);
    close(out[1]);
    if (id < 0) {
        close(in[1]);
        close(out[0]);
        return false;
    }
    *child = (struct child){.id = id, .in = in[1], .out = out[0]};
    return true;
}

bool child_write(child *child, const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return child->id != 0 && length > 0 && write(child->in, line, (size_t)length) == length;
}

bool child_read(child *child, char *line, size_t room, double seconds) {
    const double end = now() + seconds;
    size_t length = 0;
    while (child->id != 0 && stop_signal() == 0 && now() < end) {
        struct pollfd answer = {.fd = child->out, .events = POLLIN};
        if (poll(&answer, 1, 200) <= 0) {
            continue;
        }
        char byte;
        const ssize_t got = read(child->out, &byte, 1);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        if (got == 1 && byte == '\n') {
            line[length] = '\0';
            return true;
        }
        if (got == 1 && length + 1 < room) {
            line[length++] = byte;
        }
    }
    return false;
}

/* Ends the child without waiting for a call that is running. */
void child_end(child *child) {
    if (child->id == 0) {
        return;
    }
    close(child->in);
    close(child->out);
    kill(child->id, SIGTERM);
    while (waitpid(child->id, NULL, 0) < 0 && errno == EINTR) {
    }
    child->id = 0;
}
