/* Messages on standard error, the text of a file, and the command line as text. */
#include "tool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The last message while messages are held, or NULL. */
static char *held;
static bool holding;

void hold_messages(bool hold) {
    holding = hold;
    free(held);
    held = NULL;
}

const char *held_message(void) { return held; }

char *safe_text(const char *bytes, size_t length, const char *keep) {
    const size_t needed = rcv_escape(bytes, length, keep, NULL, 0) + 1;
    char *text = need(needed, 1);
    rcv_escape(bytes, length, keep, text, needed);
    return text;
}

/* On the stack, not by need(), which calls say() when there is no memory. */
static void print_message(bool is_error, const char *format, va_list arguments) {
    char text[4096], safe[4 * sizeof text];
    vsnprintf(text, sizeof text, format, arguments);
    rcv_escape(text, strlen(text), NULL, safe, sizeof safe);
    const bool is_red = is_error && use_color(stderr);
    if (holding) {
        free(held);
        held = malloc(strlen(safe) + 1);
        if (held != NULL) {
            strcpy(held, safe);
        }
    } else {
        fprintf(stderr, "%srecurve:%s %s\n", is_red ? "\033[1;31m" : "", is_red ? "\033[0m" : "", safe);
    }
}

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_message(true, format, arguments);
    va_end(arguments);
}

void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!is_quiet()) {
        print_message(false, format, arguments);
    }
    va_end(arguments);
}

void say_result(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_message(false, format, arguments);
    va_end(arguments);
}

int fail(rcv_status status) {
    const char *message = rcv_message();
    if (status == RCV_SYNTAX && !holding) {
        const size_t length = strlen(message);
        fprintf(stderr, "%s%s", message, length > 0 && message[length - 1] == '\n' ? "" : "\n");
    } else {
        say("%s", message);
    }
    return status == RCV_STOPPED && stop_signal() != 0 ? stop_status() : EXIT_FAILED;
}

/* The size of a regular, readable, non-empty file; else -1 after saying what is wrong. */
static int64_t text_size(FILE *file, const char *path) {
    struct stat info;
    if (fstat(fileno(file), &info) != 0) {
        say("cannot read %s: %s", path, strerror(errno));
    } else if (S_ISDIR(info.st_mode)) {
        say("%s is a directory; give a text file", path);
    } else if (!S_ISREG(info.st_mode)) {
        say("%s is not a regular file; copy the text into a regular file", path);
    } else if (info.st_size == 0) {
        say("%s is empty; a text needs at least one byte", path);
    } else if (info.st_size > LIMIT_TEXT) {
        say("%s has %lld bytes, more than 2 GiB; split it into parts", path, (long long)info.st_size);
    } else {
        return info.st_size;
    }
    return -1;
}

char *read_text(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        say("cannot open %s: %s", path, strerror(errno));
        return NULL;
    }
    const int64_t size = text_size(file, path);
    char *text = NULL;
    if (size > 0) {
        text = malloc((size_t)size);
        if (text == NULL) {
            say("no memory for the %lld bytes of %s", (long long)size, path);
        } else if (fread(text, 1, (size_t)size, file) != (size_t)size) {
            say("cannot read all of %s: %s", path,
                ferror(file) ? strerror(errno) : "it became shorter while it was read");
            free(text);
            text = NULL;
        } else {
            *bytes = (size_t)size;
        }
    }
    fclose(file);
    return text;
}

char *command_line(int argc, char **argv) {
    char *line = text_of("recurve");
    for (int i = 0; i < argc; i++) {
        const bool plain = argv[i][strcspn(argv[i], " ()'\"\\$&|;<>*?")] == '\0' && argv[i][0] != '\0';
        char *longer = text_of(plain ? "%s %s" : "%s '%s'", line, argv[i]);
        free(line);
        line = longer;
    }
    return line;
}
