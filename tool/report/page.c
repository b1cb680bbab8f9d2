/* The parts of every page: the file, the head, sections and cards.
 *
 * A page is collected in a temporary file and not with open_memstream, which does not report bytes that are lost for lack of memory. */
#include "report/drawing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool page_open(page *page, const char *path) {
    *page = (struct page){.path = path, .file = tmpfile()};
    if (page->file == NULL) {
        say("cannot create a temporary file for the page %s: %s", path, strerror(errno));
    }
    return page->file != NULL;
}

/* The contents of the file, for free(); NULL: it could not be written or read whole. */
static char *read_back(FILE *file, size_t *length) {
    const long end = fflush(file) == 0 && !ferror(file) ? ftell(file) : -1;
    char *text = end > 0 ? malloc((size_t)end) : NULL;
    rewind(file);
    if (text != NULL && fread(text, 1, (size_t)end, file) != (size_t)end) {
        free(text);
        text = NULL;
    }
    *length = text != NULL ? (size_t)end : 0;
    return text;
}

bool page_close(page *page) {
    size_t length = 0;
    fprintf(page->file, "</main></body></html>\n");
    char *text = read_back(page->file, &length);
    if (text == NULL) {
        say("cannot write the page %s: no memory, or no space for temporary files", page->path);
    }
    const bool good = text != NULL && save_file(page->path, text, length);
    fclose(page->file);
    free(text);
    return good;
}

void begin_page(FILE *out, const char *what, const char *title, const char *head) {
    fprintf(out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
            "<meta name=\"color-scheme\" content=\"light dark\"><title>%s: ",
            what);
    put_text(out, title);
    fprintf(out, "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n%s</style>%s</head>\n<body><main>\n<h1>",
            report_style, head != NULL ? head : "");
    put_text(out, title);
    fprintf(out, "</h1>\n<p class=\"soft\">");
}

void put_section(FILE *out, const char *id, const char *title, const char *about) {
    fprintf(out, "<section id=\"%s\"><h2>%s</h2>\n", id, title);
    if (about[0] != '\0') {
        fprintf(out, "<p class=\"soft\">");
        put_text(out, about);
        fprintf(out, "</p>\n");
    }
}

void put_card(FILE *out, const char *value, const char *meaning) {
    fprintf(out, "<div class=\"card\"><b>");
    put_text(out, value);
    fprintf(out, "</b><span>");
    put_text(out, meaning);
    fprintf(out, "</span></div>\n");
}
