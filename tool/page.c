/* What all pages share: a file written whole or not at all, their head, sections and cards. */
#define _XOPEN_SOURCE 700 /* open_memstream */

#include "report.h"

#include <stdlib.h>

bool page_open(page *page, const char *path) {
    *page = (struct page){.path = path};
    page->file = open_memstream(&page->text, &page->length);
    if (page->file == NULL) {
        say("no memory for the page %s", path);
    }
    return page->file != NULL;
}

bool page_close(page *page) {
    fprintf(page->file, "</main></body></html>\n");
    bool good = !ferror(page->file);
    good = fclose(page->file) == 0 && good;
    if (!good) {
        say("no memory for the page %s", page->path);
    }
    good = good && save_file(page->path, page->text, page->length);
    free(page->text);
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
