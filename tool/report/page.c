/* What all pages share: a file written whole or not at all, their head, sections and cards.
 *
 * A page is collected in a temporary file and not in a stream of memory (open_memstream): that one does not tell of bytes that it lost for
 * lack of memory. */
#include "report/drawing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool page_open(page *page, const char *path) {
    *page = (struct page){.path = path, .file = tmpfile()};
    if (page->file == NULL) {
        say("no temporary file for the page %s: %s", path, strerror(errno));
    }
    return page->file != NULL;
}

/* What was written; NULL: not all of it is there. */
static char *take_text(FILE *file, size_t *length) {
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
    char *text = take_text(page->file, &length);
    if (text == NULL) {
        say("cannot write the page %s: no memory, or no room for temporary files", page->path);
    }
    const bool good = text != NULL && save_file(page->path, text, length);
    fclose(page->file);
    free(text);
    return good;
}

void begin_page(FILE *out, const char *what, const char *title) {
    fprintf(out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
            "<meta name=\"color-scheme\" content=\"light dark\"><title>%s: ",
            what);
    put_text(out, title);
    fprintf(out, "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n%s</style></head>\n<body><main>\n<h1>",
            report_style);
    put_text(out, title);
    fprintf(out, "</h1>\n<p class=\"soft\">");
}

void put_section(FILE *out, const char *id, const char *title, const char *about) {
    fprintf(out, "<section id=\"%s\"><h2>%s</h2>\n<p class=\"soft\">", id, title);
    put_text(out, about);
    fprintf(out, "</p>\n");
}

void put_card(FILE *out, const char *value, const char *meaning) {
    fprintf(out, "<div class=\"card\"><b>");
    put_text(out, value);
    fprintf(out, "</b><span>");
    put_text(out, meaning);
    fprintf(out, "</span></div>\n");
}
