/* recurve data stats: the sizes of a training file, its columns and classes, the lengths of its sequences, and lengths to pad them to. */
#include "columnar/columnar.h"
#include "data_columns.h"
#include "json.h"
#include "paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, BAR = 50 }; /* of the histogram */

/* Settings of a training run that say how the file is read. */
static const char *const reading[] = {"format",   "level", "kind",    "features", "target",
                                      "sequence", "time",  "horizon", "missing",  "vocabulary"};

/* Lengths to which sequences are padded, and the cost of the padding. */
typedef struct {
    const char *name;
    int64_t bounds[RCV_MOST_BUCKETS];
    size_t count;
    double ratio; /* padded / ideal */
} buckets;

enum { WAYS = 3 };

typedef struct {
    const char *what, *path, *cache, *lengths, *json;
    rcv_settings *settings; /* of `reading` */
    int64_t most;           /* maximum of automatic buckets; 0: none */
    buckets given;          /* count 0: none were given */
} arguments;

typedef struct {
    rcv_data *data;
    int64_t *counts; /* [longest + 1], NULL for a stream */
    buckets ways[WAYS];
    size_t way_count;
    column_statistics columns;
} statistics;

/* ---- arguments ---- */

/* lengths = number { "," number }, increasing */
static bool parse_lengths(const char *text, buckets *given) {
    *given = (buckets){.name = "given"};
    for (const char *at = text; given->count < RCV_MOST_BUCKETS;) {
        char *end;
        errno = 0;
        const long long length = strtoll(at, &end, 10);
        const int64_t before = given->count > 0 ? given->bounds[given->count - 1] : 0;
        if (end == at || errno != 0 || length <= before) {
            return false;
        }
        given->bounds[given->count++] = length;
        if (*end == '\0') {
            return true;
        }
        if (*end != ',') {
            return false;
        }
        at = end + 1;
    }
    return false;
}

/* buckets = "none" | "auto" [ ":" K ] | lengths */
static bool parse_buckets(arguments *arguments) {
    const char *text = arguments->lengths;
    arguments->most = 0;
    if (strcmp(text, "none") == 0) {
        return true;
    }
    if (strcmp(text, "auto") == 0) {
        arguments->most = RCV_AUTO_BUCKETS;
        return true;
    }
    if (strncmp(text, "auto:", 5) == 0) {
        char *end;
        arguments->most = strtol(text + 5, &end, 10);
        return *end == '\0' && arguments->most >= 1 && arguments->most <= RCV_MOST_BUCKETS;
    }
    return parse_lengths(text, &arguments->given);
}

/* The setting of this name as an option of this verb. */
static option setting_option(rcv_settings *settings, const char *name) {
    size_t i = 0;
    while (strcmp(rcv_setting_at(i)->name, name) != 0) {
        i++;
    }
    return (option){.name = name,
                    .type = OPTION_SETTING,
                    .destination = settings,
                    .value = rcv_setting_at(i)->value,
                    .help = rcv_setting_at(i)->help};
}

static parsed parse(arguments *arguments, int argc, char **argv) {
    static const char *const whats[] = {"stats", NULL};
    const operand operands[] = {
        {"stats", "the word stats", &arguments->what},
        {"FILE", "a text, or a table, JSON lines or arrays as for training", &arguments->path},
    };
    option settings[COUNT(reading)];
    option options[] = {
        {"buckets", OPTION_TEXT, &arguments->lengths, .value = "HOW",
         .help = "none, lengths such as 10,20,40, auto, or auto:K"},
        {"cache", OPTION_TEXT, &arguments->cache, .value = "FOLDER", .help = "where what is read is cached"},
        {"json", OPTION_TEXT, &arguments->json, .value = "FILE", .help = "write all results as JSON"},
    };
    for (size_t i = 0; i < COUNT(reading); i++) {
        settings[i] = setting_option(arguments->settings, reading[i]);
    }
    const option_group groups[] = {{"How the file is read, as in training", settings, COUNT(settings)},
                                   {"Options", options, COUNT(options)}};
    const command command = {.verb = "data",
                             .summary =
                                 "Shows statistics of a training file: columns, classes, tokens, lengths of sequences",
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .choices = whats,
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next;
    }
    if (!parse_buckets(arguments)) {
        say("--buckets must be none, increasing lengths such as 10,20,40, or auto:K with K in 1..%d, not '%.60s'",
            RCV_MOST_BUCKETS, arguments->lengths);
        return PARSED_WRONG;
    }
    return PARSED_GO;
}

/* ---- numbers ---- */

static rcv_status find_buckets(const arguments *arguments, statistics *s) {
    buckets *way = s->ways;
    *way++ = (buckets){.name = "none", .bounds = {rcv_data_longest(s->data)}, .count = 1};
    if (arguments->given.count > 0) {
        *way++ = arguments->given;
    }
    for (int greedy = 0; greedy < 2 && arguments->most > 0; greedy++, way++) {
        way->name = greedy ? "greedy" : "best";
        const rcv_status status =
            rcv_data_buckets(s->data, (size_t)arguments->most, greedy != 0, way->bounds, &way->count);
        if (status != RCV_OK) {
            return status;
        }
    }
    s->way_count = (size_t)(way - s->ways);
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < s->way_count && status == RCV_OK; i++) {
        status = rcv_data_padding(s->data, s->ways[i].bounds, s->ways[i].count, &s->ways[i].ratio);
    }
    return status;
}

/* Reads the file as a training run does, but sequences are not cut into pieces, and missing features are counted. */
static rcv_status open_data(rcv_context *context, const arguments *arguments, const char *path, statistics *s) {
    rcv_data *parts[RCV_DATA_PARTS];
    char *sentence = NULL;
    const rcv_training_files files = RCV_INIT(rcv_training_files, .paths = {path});
    rcv_status status = rcv_settings_set(arguments->settings, "length", "16777216");
    if (status == RCV_OK && !rcv_settings_given(arguments->settings, "missing")) {
        status = rcv_settings_set(arguments->settings, "missing", "previous");
    }
    if (status == RCV_OK && arguments->cache != NULL) {
        status = rcv_settings_set(arguments->settings, "cache", arguments->cache);
    }
    if (status == RCV_OK) {
        status = rcv_training_data_open(context, arguments->settings, &files, parts, &sentence);
    }
    if (status == RCV_OK) {
        s->data = parts[RCV_TRAIN];
    }
    if (sentence != NULL) {
        note("%s", sentence);
    }
    rcv_text_free(context, sentence);
    return status;
}

static rcv_status compute_statistics(rcv_context *context, const arguments *arguments, const char *path,
                                     statistics *s) {
    rcv_status status = open_data(context, arguments, path, s);
    if (status == RCV_OK) {
        status = columns_compute(s->data, &s->columns);
    }
    if (status != RCV_OK || rcv_data_get_kind(s->data) == RCV_DATA_STREAM) {
        return status;
    }
    s->counts = need((size_t)rcv_data_longest(s->data) + 1, sizeof *s->counts);
    status = rcv_data_lengths(s->data, s->counts);
    return status == RCV_OK ? find_buckets(arguments, s) : status;
}

/* ---- printing ---- */

static void print_histogram(const statistics *s) {
    const int64_t longest = rcv_data_longest(s->data), width = (longest + ROWS - 1) / ROWS;
    int64_t sums[ROWS] = {0}, most = 1;
    for (int64_t i = 1; i <= longest; i++) {
        int64_t *sum = &sums[(i - 1) / width];
        *sum += s->counts[i];
        most = *sum > most ? *sum : most;
    }
    printf("\n%-15s %12s\n", "length", "sequences");
    for (int64_t row = 0; row * width < longest; row++) {
        const int64_t first = row * width + 1, end = first + width - 1, last = end < longest ? end : longest;
        char bar[BAR + 1] = "";
        memset(bar, '#', (size_t)((double)sums[row] / (double)most * BAR));
        printf("%6lld ..%6lld %12lld  %s\n", (long long)first, (long long)last, (long long)sums[row], bar);
    }
}

static void print_ways(const statistics *s) {
    printf("\n%-8s %14s  %s\n", "buckets", "padded/ideal", "lengths");
    for (size_t i = 0; i < s->way_count; i++) {
        const buckets *way = &s->ways[i];
        printf("%-8s %14.4f ", way->name, way->ratio);
        for (size_t k = 0; k < way->count; k++) {
            printf("%s%lld", k > 0 ? "," : " ", (long long)way->bounds[k]);
        }
        printf("\n");
    }
}

/* The sizes with their names; how many. */
static size_t list_sizes(const statistics *s, const char **names, int64_t *values) {
    const rcv_data *data = s->data;
    const bool tokens = rcv_data_vocabulary(data) != NULL, text = rcv_data_get_kind(data) <= RCV_DATA_LINES;
    const struct {
        const char *name;
        int64_t value;
        bool wanted;
    } all[] = {
        {tokens ? "tokens" : "steps", rcv_data_tokens(data), true},
        {"vocabulary", tokens ? rcv_vocabulary_size(rcv_data_vocabulary(data)) : 0, tokens},
        {"sequences", rcv_data_sequences(data), true},
        {"longest", rcv_data_longest(data), true},
        {"features", rcv_data_features(data), !tokens},
        {s->columns.class_count > 0 ? "classes" : "values", rcv_data_outputs(data), !text},
    };
    size_t count = 0;
    for (size_t i = 0; i < COUNT(all); i++) {
        if (all[i].wanted) {
            names[count] = all[i].name;
            values[count++] = all[i].value;
        }
    }
    return count;
}

enum { SIZES = 6 };

static void print_statistics(const statistics *s) {
    const char *names[SIZES];
    int64_t values[SIZES];
    const size_t count = list_sizes(s, names, values);
    for (size_t i = 0; i < count; i++) {
        printf("%-11s %lld\n", names[i], (long long)values[i]);
    }
    columns_print(&s->columns, s->data);
    if (s->counts != NULL) {
        print_histogram(s);
        print_ways(s);
    }
}

/* ---- JSON ---- */

static json_t *ways_json(const statistics *s) {
    json_t *all = json_array();
    for (size_t i = 0; i < s->way_count; i++) {
        json_t *bounds = json_array();
        for (size_t k = 0; k < s->ways[i].count; k++) {
            json_array_append_new(bounds, json_integer(s->ways[i].bounds[k]));
        }
        json_array_append_new(all, json_pack("{s:s, s:f, s:o}", "name", s->ways[i].name, "padded_to_ideal",
                                             s->ways[i].ratio, "lengths", bounds));
    }
    return all;
}

/* {"1": 5, ...}: the number of sequences of each length */
static json_t *lengths_json(const statistics *s) {
    json_t *all = json_object();
    for (int64_t i = 1; i <= rcv_data_longest(s->data); i++) {
        char name[32];
        snprintf(name, sizeof name, "%lld", (long long)i);
        if (s->counts[i] > 0) {
            json_object_set_new(all, name, json_integer(s->counts[i]));
        }
    }
    return all;
}

static json_t *statistics_json(const statistics *s, const rcv_settings *settings) {
    const char *names[SIZES];
    int64_t values[SIZES];
    const size_t count = list_sizes(s, names, values);
    json_t *all = json_pack("{s:s, s:s, s:s}", "level", rcv_settings_get(settings, "level"), "kind",
                            rcv_settings_get(settings, "kind"), "description", rcv_data_description(s->data));
    for (size_t i = 0; i < count; i++) {
        json_object_set_new(all, names[i], json_integer(values[i]));
    }
    columns_add_json(&s->columns, s->data, all);
    if (s->counts != NULL) {
        json_object_set_new(all, "lengths", lengths_json(s));
        json_object_set_new(all, "buckets", ways_json(s));
    }
    return all;
}

static int show(rcv_context *context, const arguments *arguments, const char *path) {
    statistics s = {0};
    const rcv_status status = compute_statistics(context, arguments, path, &s);
    int result = status == RCV_OK ? EXIT_DONE : fail(status);
    if (status == RCV_OK) {
        print_statistics(&s);
        if (arguments->json != NULL && !save_json(arguments->json, statistics_json(&s, arguments->settings))) {
            result = EXIT_FAILED;
        }
    }
    free(s.counts);
    columns_free(&s.columns);
    rcv_data_free(s.data);
    return result;
}

static int check_and_show(rcv_context *context, const arguments *arguments) {
    paths paths = {0};
    paths_add(&paths, PATH_READ, "FILE", arguments->path);
    paths_add(&paths, PATH_READ, "--vocabulary", rcv_settings_get(arguments->settings, "vocabulary"));
    paths_add(&paths, PATH_FOLDER, "--cache", arguments->cache);
    paths_add(&paths, PATH_WRITTEN, "--json", arguments->json);
    if (!paths_are_apart(&paths) || (arguments->json != NULL && !output_is_free(arguments->json, OUTPUT_JSON))) {
        return EXIT_FAILED;
    }
    char *path = text_of("%s", arguments->path);
    const int result = columnar_convert(&path) ? show(context, arguments, path) : EXIT_FAILED;
    free(path);
    return result;
}

int verb_data(int argc, char **argv) {
    arguments arguments = {.lengths = "auto"};
    rcv_context *context = NULL;
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_settings_new(context, &arguments.settings);
    }
    int result = status == RCV_OK ? EXIT_USAGE : fail(status);
    if (status == RCV_OK) {
        const parsed next = parse(&arguments, argc, argv);
        result = next == PARSED_HELP    ? EXIT_DONE
                 : next == PARSED_WRONG ? EXIT_USAGE
                                        : check_and_show(context, &arguments);
    }
    rcv_settings_free(arguments.settings);
    rcv_context_free(context);
    return result;
}
