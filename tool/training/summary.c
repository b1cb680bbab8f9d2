#include "training/summary.h"

#include "tool.h"
#include "training/loss_text.h"
#include "training/progress.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- an entry ---- */

enum { LABEL_COLUMNS = 10, WIDEST = 100 };

/* Words from LABEL_COLUMNS on; what follows the first line is indented. */
static void put_wrapped(const char *text) {
    const size_t columns = terminal_columns();
    const size_t most = columns > WIDEST ? WIDEST : columns > 2 * LABEL_COLUMNS ? columns : 2 * LABEL_COLUMNS;
    size_t column = LABEL_COLUMNS;
    while (*text != '\0') {
        const size_t length = strcspn(text, " ");
        if (column > LABEL_COLUMNS && column + 1 + length >= most) {
            fprintf(stderr, "\n%*s", LABEL_COLUMNS, "");
            column = LABEL_COLUMNS;
        } else if (column > LABEL_COLUMNS) {
            fputc(' ', stderr);
            column++;
        }
        fprintf(stderr, "%.*s", (int)length, text);
        column += length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', stderr);
}

void put_entry(const char *label, const char *format, ...) {
    char text[2048];
    va_list arguments;
    if (is_quiet()) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char *safe = safe_text(text, strlen(text), NULL);
    const bool is_bold = use_color(stderr);
    fprintf(stderr, "%s%-*s%s", is_bold ? "\033[1m" : "", LABEL_COLUMNS, label, is_bold ? "\033[0m" : "");
    put_wrapped(safe);
    free(safe);
}

/* Appends to a text that is for free(). */
static char *joined(char *text, const char *separator, char *more) {
    char *longer = text_of("%s%s%s", text, text[0] != '\0' ? separator : "", more);
    free(text);
    free(more);
    return longer;
}

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

/* ---- the data ---- */

static char *amount_of(const rcv_data *data) {
    const rcv_data_kind kind = rcv_data_get_kind(data);
    const number_text tokens = count_text(rcv_data_tokens(data)), sequences = count_text(rcv_data_sequences(data)),
                      longest = count_text(rcv_data_longest(data));
    if (kind == RCV_DATA_STREAM) {
        return text_of("%s %s", tokens.text, token_name(data));
    }
    if (kind == RCV_DATA_LINES) {
        return text_of("%s %s in %s lines", tokens.text, token_name(data), sequences.text);
    }
    return text_of("%s sequence%s of up to %s steps", sequences.text, plural(rcv_data_sequences(data)), longest.text);
}

/* A part: its file, or its share of the data; and how much, where it is open already. */
static char *part_of(const data_files *files, const rcv_settings *settings, int part, const char *name) {
    const char *given = rcv_settings_get(settings, name);
    const char *from = files->paths[part] != NULL ? files->paths[part] : given;
    if (files->data[part] == NULL) {
        return text_of("%s", from);
    }
    char *amount = amount_of(files->data[part]), *text = text_of("%s (%s)", amount, from);
    free(amount);
    return text;
}

void summarise_data(const data_files *files, const rcv_settings *settings) {
    const rcv_data *train = files->data[PART_TRAIN];
    const bool has_words = rcv_data_vocabulary(train) != NULL && rcv_data_level(train) != RCV_LEVEL_BYTE;
    const int64_t words = has_words ? rcv_vocabulary_size(rcv_data_vocabulary(train)) : 0;
    char *vocabulary = has_words ? text_of("; vocabulary of %s", count_text(words).text) : text_of("%s", "");
    put_entry("data", "%s: %s%s", files->paths[PART_TRAIN], rcv_data_description(train), vocabulary);
    free(vocabulary);
    if (files->recognised != NULL) {
        put_entry("", "%s", files->recognised);
    }
    if (files->data[PART_VALID] != NULL) {
        char *valid = part_of(files, settings, PART_VALID, "valid");
        put_entry("validate", "%s", valid);
        free(valid);
    }
    if (data_files_has_test(files)) {
        char *test = part_of(files, settings, PART_TEST, "test");
        put_entry("test", "%s, at the end", test);
        free(test);
    }
}

/* ---- the model ---- */

char *shape_text(const rcv_net *net) {
    const rcv_net_options *options = rcv_net_get_options(net);
    const number_text layers = count_text(options->layers), hidden = count_text(options->hidden);
    return text_of("%s%s layer%s of %s", layers.text, options->bidirectional ? " bidirectional" : "",
                   plural(options->layers), hidden.text);
}

void summarise_model(const rcv_learner *learner, const rcv_settings *settings) {
    char *shape = shape_text(rcv_learner_net(learner));
    put_entry("model", "%s, %s, %s parameters", rcv_settings_get(settings, "cell"), shape,
              count_text(rcv_learner_parameter_elements(learner)).text);
    free(shape);
}

/* ---- the run ---- */

void summarise_machine(const rcv_settings *settings, const char *output, const char *log) {
    const char *device = rcv_settings_get(settings, "device"), *threads = rcv_settings_get(settings, "threads");
    const char *dtype = rcv_settings_get(settings, "dtype");
    const bool on_cpu = strcmp(device, "cpu") == 0;
    char *count = !on_cpu                     ? text_of("%s", "")
                  : strcmp(threads, "0") == 0 ? text_of(", a thread for each core")
                                              : text_of(", %s thread%s", threads, strcmp(threads, "1") == 0 ? "" : "s");
    put_entry("device", "%s%s, %s", device, count, dtype);
    put_entry("output", "%s, log %s", output, log);
    free(count);
}

static int64_t integer_of(const rcv_settings *settings, const char *name) {
    const char *value = rcv_settings_get(settings, name);
    return value != NULL ? strtoll(value, NULL, 10) : 0;
}

char *limits_text(const rcv_settings *settings, int64_t updates) {
    int64_t epochs = integer_of(settings, "epochs");
    const int64_t steps = integer_of(settings, "steps"), patience = integer_of(settings, "patience");
    const double seconds = strtod(rcv_settings_get(settings, "seconds"), NULL);
    char *text = text_of("%s", "");
    if (epochs == 0 && seconds <= 0 && !rcv_settings_given(settings, "steps")) {
        epochs = 1; /* as the trainer has it */
    }
    if (epochs > 0) {
        text = joined(text, ", or ", text_of("%s epoch%s", count_text(epochs).text, plural(epochs)));
    }
    if (epochs > 1 && updates > 0 && epochs < INT64_MAX / updates) {
        text = joined(text, "", text_of(" (%s updates)", count_text(epochs * updates).text));
    }
    if (steps > 0 || (epochs == 0 && seconds <= 0)) {
        text = joined(text, ", or ", text_of("%s update%s", count_text(steps).text, plural(steps)));
    }
    if (seconds > 0) {
        text = joined(text, ", or ", text_of("%s", duration_text(seconds).text));
    }
    if (patience > 0) {
        text = joined(text, ", or until ",
                      text_of("%s validation%s without a better loss", count_text(patience).text, plural(patience)));
    }
    return text;
}

void summarise_training(const rcv_settings *settings, int64_t batches, int64_t step) {
    const int64_t each = integer_of(settings, "accumulate");
    const int64_t updates = each > 0 ? batches / each + (batches % each != 0) : batches;
    char *limits = limits_text(settings, updates);
    char *from = step > 0 ? text_of(", continued after update %s", count_text(step).text) : text_of("%s", "");
    put_entry("training", "%s; %s update%s an epoch%s", limits, count_text(updates).text, plural(updates), from);
    free(from);
    free(limits);
}
