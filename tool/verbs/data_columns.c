#include "data_columns.h"

#include "tool.h"
#include "training/number_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LISTED = 40, NAME_COLUMNS = 24, MOST_SEQUENCES = 1024 };
static const int64_t MOST_NUMBERS = 1 << 22; /* read at once, unless one sequence has more */

/* ---- features ---- */

/* The names that the data has for its features; x0, x1, ... where it has none. */
static void name_features(const rcv_data *data, column_statistics *c) {
    const char *list = rcv_data_feature_names(data);
    size_t given = list[0] != '\0';
    for (const char *at = list; *at != '\0'; at++) {
        given += *at == ',';
    }
    for (size_t i = 0; i < c->feature_count; i++) {
        const size_t length = strcspn(list, ",");
        c->features[i].name = given == c->feature_count ? text_of("%.*s", (int)length, list) : text_of("x%zu", i);
        list += length + (list[length] == ',');
    }
}

/* x: [count * features] of one time step. Means are sums for now. */
static void add_step(column_statistics *c, const float *x) {
    for (size_t f = 0; f < c->feature_count; f++) {
        feature_statistics *own = &c->features[f];
        const double value = (double)x[f];
        if (isnan(value)) {
            own->missing++;
            continue;
        }
        own->least = own->values == 0 || value < own->least ? value : own->least;
        own->most = own->values == 0 || value > own->most ? value : own->most;
        own->mean += value;
        own->values++;
    }
}

/* As many sequences from `from` on as fit; how many is stored. */
static rcv_status read_part(const rcv_data *data, int64_t from, column_statistics *c, int64_t *count) {
    const int64_t left = rcv_data_sequences(data) - from, features = (int64_t)c->feature_count;
    int64_t most = left < MOST_SEQUENCES ? left : MOST_SEQUENCES, steps = 1;
    int64_t *lengths = need((size_t)most, sizeof *lengths);
    rcv_status status = rcv_data_read(data, from, most, lengths, NULL, NULL, 0);
    for (*count = 0; *count < most && status == RCV_OK; ++*count) {
        const int64_t longer = lengths[*count] > steps ? lengths[*count] : steps;
        if (*count > 0 && longer * (*count + 1) > MOST_NUMBERS / features) {
            break;
        }
        steps = longer;
    }
    float *x = need((size_t)(steps * *count * features), sizeof *x);
    if (status == RCV_OK) {
        status = rcv_data_read(data, from, *count, lengths, x, NULL, steps * *count * features);
    }
    for (int64_t i = 0; i < *count && status == RCV_OK; i++) {
        for (int64_t t = 0; t < lengths[i]; t++) {
            add_step(c, x + (t * *count + i) * features);
        }
    }
    free(x);
    free(lengths);
    return status;
}

rcv_status columns_compute(const rcv_data *data, column_statistics *c) {
    const rcv_data_kind kind = rcv_data_get_kind(data);
    rcv_status status = RCV_OK;
    *c = (column_statistics){.feature_count = (size_t)rcv_data_features(data)};
    c->features = need(c->feature_count, sizeof *c->features);
    name_features(data, c);
    for (int64_t from = 0, count = 0; c->feature_count > 0 && from < rcv_data_sequences(data) && status == RCV_OK;
         from += count) {
        status = read_part(data, from, c, &count);
    }
    for (size_t f = 0; f < c->feature_count; f++) {
        feature_statistics *own = &c->features[f];
        own->mean = own->values > 0 ? own->mean / (double)own->values : NAN;
        own->least = own->values > 0 ? own->least : NAN;
        own->most = own->values > 0 ? own->most : NAN;
    }
    if (status == RCV_OK && (kind == RCV_DATA_CLASSES || kind == RCV_DATA_STEP_CLASSES)) {
        c->class_count = (size_t)rcv_data_outputs(data);
        c->class_counts = need(c->class_count, sizeof *c->class_counts);
        status = rcv_data_count_classes(data, c->class_counts);
    }
    return status;
}

void columns_free(column_statistics *c) {
    for (size_t i = 0; i < c->feature_count; i++) {
        free(c->features[i].name);
    }
    free(c->features);
    free(c->class_counts);
    *c = (column_statistics){0};
}

/* ---- printing ---- */

/* A name that fits its column of the table. */
static void print_name(const char *name) {
    char *safe = safe_text(name, strlen(name), NULL);
    printf("%-*.*s", NAME_COLUMNS, NAME_COLUMNS, safe);
    free(safe);
}

static void print_rest(size_t count) {
    if (count > MOST_LISTED) {
        printf("and %zu more; --json has all of them\n", count - MOST_LISTED);
    }
}

static void print_features(const column_statistics *c) {
    printf("\n%-*s%14s%14s%14s%12s\n", NAME_COLUMNS, "feature", "least", "mean", "most", "missing");
    for (size_t i = 0; i < c->feature_count && i < MOST_LISTED; i++) {
        const feature_statistics *own = &c->features[i];
        print_name(own->name);
        printf("%14.6g%14.6g%14.6g%12s\n", own->least, own->mean, own->most, count_text(own->missing).text);
    }
    print_rest(c->feature_count);
}

static void print_classes(const column_statistics *c, const rcv_data *data) {
    int64_t all = 0;
    for (size_t i = 0; i < c->class_count; i++) {
        all += c->class_counts[i];
    }
    printf("\n%-*s%14s%14s\n", NAME_COLUMNS, "class", "count", "share");
    for (size_t i = 0; i < c->class_count && i < MOST_LISTED; i++) {
        print_name(rcv_data_class_name(data, (int64_t)i, NULL));
        printf("%14s%13.1f%%\n", count_text(c->class_counts[i]).text,
               all > 0 ? 100 * (double)c->class_counts[i] / (double)all : 0);
    }
    print_rest(c->class_count);
}

void columns_print(const column_statistics *c, const rcv_data *data) {
    if (c->feature_count > 0) {
        print_features(c);
    }
    if (c->class_count > 0) {
        print_classes(c, data);
    }
}

void columns_add_json(const column_statistics *c, const rcv_data *data, json_t *all) {
    json_t *features = json_array(), *counts = json_object();
    for (size_t i = 0; i < c->feature_count; i++) {
        const feature_statistics *own = &c->features[i];
        json_array_append_new(features, json_pack("{s:o, s:o, s:o, s:o, s:I}", "name", text(own->name), "least",
                                                  number(own->least), "mean", number(own->mean), "most",
                                                  number(own->most), "missing", (json_int_t)own->missing));
    }
    for (size_t i = 0; i < c->class_count; i++) {
        json_object_set_new(counts, rcv_data_class_name(data, (int64_t)i, NULL), json_integer(c->class_counts[i]));
    }
    if (c->feature_count > 0) {
        json_object_set(all, "columns", features);
    }
    if (c->class_count > 0) {
        json_object_set(all, "class_counts", counts);
    }
    json_decref(features);
    json_decref(counts);
}
