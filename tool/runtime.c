/* Signals that ask to stop, the clock, and allocation that ends the tool when it fails. */
#include "tool.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The signal that asked to stop, or 0. */
static volatile sig_atomic_t asked;

static void ask_to_stop(int number) { asked = number; }

int stop_signal(void) { return asked; }

int stop_status(void) { return asked != 0 ? 128 + asked : EXIT_DONE; }

/* A handler is removed once it has run, except for SIGHUP: when a terminal closes, both the system and the shell send it. A signal that is
 * ignored at the start stays ignored, such as SIGHUP under nohup. */
void stop_on_signals(void) {
    const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        struct sigaction action = {.sa_handler = ask_to_stop}, before;
        action.sa_flags = numbers[i] == SIGHUP ? 0 : (int)SA_RESETHAND;
        sigemptyset(&action.sa_mask);
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(numbers[i], &action, NULL);
        }
    }
}

double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void give_up(size_t bytes) {
    hold_messages(false);
    say("no memory for %zu bytes", bytes);
    exit(EXIT_FAILED);
}

void *need(size_t count, size_t size) {
    void *memory = calloc(count > 0 ? count : 1, size > 0 ? size : 1);
    if (memory == NULL) {
        give_up(count * size);
    }
    return memory;
}

char *text_of(const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    char *text = need((size_t)(length > 0 ? length : 0) + 1, 1);
    vsnprintf(text, (size_t)(length > 0 ? length : 0) + 1, format, again);
    va_end(again);
    va_end(arguments);
    return text;
}
