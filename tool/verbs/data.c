/* recurve data stats: the sizes of a training file, the lengths of its sequences, and lengths to pad them to. */
#include "json.h"
#include "paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, BAR = 50 }; /* of the histogram */

static const char *const levels[] = {"word", "byte", "character", "piece", NULL};
static const char *const kinds[] = {"stream", "lines", "classes", "values", NULL};

/* Lengths to which sequences are padded, and the cost of the padding. */
typedef struct {
    const char *name;
    int64_t bounds[RCV_MOST_BUCKETS];
    size_t count;
    double ratio; /* padded / ideal */
} buckets;

enum { WAYS = 3 };

typedef struct {
    const char *what, *path, *cache, *lengths, *json, *vocabulary;
    int level, kind;
    int64_t most;  /* maximum of automatic buckets; 0: none */
    buckets given; /* count 0: none were given */
} arguments;

typedef struct {
    rcv_data *data;
    int64_t *counts; /* [longest + 1], NULL for a stream */
    buckets ways[WAYS];
    size_t way_count;
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

static parsed parse(arguments *arguments, int argc, char **argv) {
    static const char *const whats[] = {"stats", NULL};
    const operand operands[] = {
        {"stats", "the word stats", &arguments->what},
        {"FILE", "a text, or examples, one a line", &arguments->path},
    };
    option options[] = {
        {"level", OPTION_CHOICE, &arguments->level, .value = "LEVEL", .help = "tokens: word, byte, character or piece",
         .choices = levels},
        {"vocabulary", OPTION_TEXT, &arguments->vocabulary, .value = "FILE",
         .help = "words, characters, or a tokenizer.json, which sets the level; else of the text"},
        {"kind", OPTION_CHOICE, &arguments->kind, .value = "KIND", .help = "stream, lines, classes or values",
         .choices = kinds},
        {"buckets", OPTION_TEXT, &arguments->lengths, .value = "HOW",
         .help = "none, lengths such as 10,20,40, auto, or auto:K"},
        {"cache", OPTION_TEXT, &arguments->cache, .value = "FOLDER", .help = "where tokens are cached"},
        {"json", OPTION_TEXT, &arguments->json, .value = "FILE", .help = "write all results as JSON"},
    };
    const option_group group = {"Options", options, COUNT(options)};
    const command command = {.verb = "data",
                             .summary = "Shows statistics of a training file: tokens, lengths of sequences, buckets",
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .choices = whats,
                             .groups = &group,
                             .group_count = 1};
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

static rcv_status compute_statistics(rcv_context *context, const arguments *arguments, statistics *s) {
    rcv_vocabulary *vocabulary = NULL;
    rcv_data_options options = RCV_INIT(rcv_data_options, .level = (rcv_level)arguments->level,
                                        .kind = (rcv_data_kind)arguments->kind, .cache = arguments->cache);
    rcv_status status = RCV_OK;
    if (arguments->vocabulary != NULL) {
        status = rcv_vocabulary_load(context, arguments->vocabulary, &vocabulary);
    }
    if (vocabulary != NULL) {
        options.vocabulary = vocabulary;
        options.level = rcv_vocabulary_level(vocabulary);
    }
    if (status == RCV_OK) {
        status = rcv_data_open(context, arguments->path, &options, &s->data);
    }
    rcv_vocabulary_free(vocabulary);
    if (status != RCV_OK || options.kind == RCV_DATA_STREAM) {
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
        {rcv_data_get_kind(data) == RCV_DATA_CLASSES ? "classes" : "values", rcv_data_outputs(data), !text},
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

static json_t *statistics_json(const statistics *s) {
    const char *names[SIZES];
    int64_t values[SIZES];
    const size_t count = list_sizes(s, names, values);
    json_t *all =
        json_pack("{s:s, s:s}", "level", levels[rcv_data_level(s->data)], "kind", kinds[rcv_data_get_kind(s->data)]);
    for (size_t i = 0; i < count; i++) {
        json_object_set_new(all, names[i], json_integer(values[i]));
    }
    if (s->counts != NULL) {
        json_object_set_new(all, "lengths", lengths_json(s));
        json_object_set_new(all, "buckets", ways_json(s));
    }
    return all;
}

int verb_data(int argc, char **argv) {
    arguments arguments = {.lengths = "auto"};
    const parsed next = parse(&arguments, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    paths paths = {0};
    paths_add(&paths, PATH_READ, "FILE", arguments.path);
    paths_add(&paths, PATH_READ, "--vocabulary", arguments.vocabulary);
    paths_add(&paths, PATH_FOLDER, "--cache", arguments.cache);
    paths_add(&paths, PATH_WRITTEN, "--json", arguments.json);
    if (!paths_are_apart(&paths) || (arguments.json != NULL && !output_is_free(arguments.json, OUTPUT_JSON))) {
        return EXIT_FAILED;
    }
    rcv_context *context = NULL;
    statistics s = {0};
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = compute_statistics(context, &arguments, &s);
    }
    int result = status == RCV_OK ? EXIT_DONE : fail(status);
    if (status == RCV_OK) {
        print_statistics(&s);
        if (arguments.json != NULL && !save_json(arguments.json, statistics_json(&s))) {
            result = EXIT_FAILED;
        }
    }
    free(s.counts);
    rcv_data_free(s.data);
    rcv_context_free(context);
    return result;
}
