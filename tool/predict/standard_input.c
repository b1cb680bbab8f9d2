/* Predictions for standard input, as its lines come.
 *
 * What is waiting is cut into units: a line, or the rows of a sequence of a table. The units are written into a temporary file, which the library reads as any
 * other. Where it refuses the file, the units are tried in halves, until the one that is wrong is found; so all before it have their answers. */
#include "predict.h"
#include "records.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    predictor *predictor;
    char *folder, *path; /* of the temporary file */
    rcv_file_format format;
    char *header; /* the first line of a table; else NULL */
    size_t header_length;
    char separator; /* of a table whose sequences are several rows; else 0 */
    int64_t column; /* of the sequence's name */
    series series;
    bool is_series; /* time steps are predicted as they come */
    record_reader reader;
    size_t *units; /* records at which units begin, and the end of the last one */
    size_t unit_count;
    bool has_failed; /* a line was wrong, and --keep-going */
} input;

/* ---- the temporary file ---- */

static bool make_folder(input *in) {
    const char *where = getenv("TMPDIR");
    in->folder = text_of("%s/recurve-XXXXXX", where != NULL && where[0] != '\0' ? where : "/tmp");
    if (mkdtemp(in->folder) == NULL) {
        say("cannot create the temporary folder %s: %s", in->folder, strerror(errno));
        free(in->folder);
        in->folder = NULL;
        return false;
    }
    in->path = text_of("%s/input", in->folder);
    return true;
}

static void remove_folder(input *in) {
    DIR *folder = in->folder != NULL ? opendir(in->folder) : NULL;
    for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char *path = text_of("%s/%s", in->folder, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)unlink(path);
        }
        free(path);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    if (in->folder != NULL) {
        (void)rmdir(in->folder);
    }
    free(in->folder);
    free(in->path);
}

static bool write_file(const input *in, const char *bytes, size_t length) {
    FILE *file = fopen(in->path, "wb");
    bool good =
        file != NULL && fwrite(in->header != NULL ? in->header : "", 1, in->header_length, file) == in->header_length;
    good = good && fwrite(bytes, 1, length, file) == length;
    good = file != NULL && fclose(file) == 0 && good;
    if (!good) {
        say("cannot write the temporary file %s: %s", in->path, strerror(errno));
    }
    return good;
}

/* ---- messages ---- */

char *message_about(const char *path, const char *name, int64_t first, int64_t offset, int64_t *line) {
    const char *message = rcv_message(), *found = strstr(message, path);
    *line = 0;
    if (found == NULL) {
        return text_of("%s: %s", name, message);
    }
    const char *rest = found + strlen(path), *number = strstr(rest, "line ");
    const size_t digits = number != NULL ? strspn(number + 5, "0123456789") : 0;
    if (digits == 0) {
        return text_of("%.*s%s%s", (int)(found - message), message, name, rest);
    }
    *line = strtoll(number + 5, NULL, 10);
    return text_of("%.*s%s%.*s%lld%s", (int)(found - message), message, name, (int)(number + 5 - rest), rest,
                   (long long)(*line >= first ? *line + offset : *line), number + 5 + digits);
}

/* ---- units ---- */

static int64_t first_line(const input *in, size_t unit) { return in->reader.records[in->units[unit]].line; }

static char *sequence_of(const input *in, size_t index) {
    const size_t begin = in->reader.records[index].begin;
    return records_field(in->reader.buffer + begin, records_end(&in->reader, index) - begin, in->separator,
                         (size_t)in->column);
}

/* Finds the units that are whole. Of a table's last sequence more rows may come, unless the input has ended. */
static void find_units(input *in) {
    const record_reader *r = &in->reader;
    free(in->units);
    in->units = need(r->count + 1, sizeof *in->units);
    in->unit_count = 0;
    char *current = NULL;
    for (size_t i = 0; i < r->count; i++) {
        char *next = in->separator != 0 ? sequence_of(in, i) : NULL;
        if (current == NULL || next == NULL || strcmp(current, next) != 0) {
            in->units[in->unit_count++] = i;
        }
        free(current);
        current = next;
    }
    free(current);
    if (in->separator != 0 && !r->has_ended && in->unit_count > 0) {
        in->unit_count--;
    } else {
        in->units[in->unit_count] = r->count;
    }
}

static rcv_status predict(input *in, const rcv_data *data) {
    predictor *p = in->predictor;
    return in->is_series ? predict_series(p, &in->series, data)
           : p->is_text  ? predict_texts(p, data)
                         : predict_sequences(p, data);
}

/* A unit was refused. False if the work ends. */
static bool report(input *in, size_t unit) {
    predictor *p = in->predictor;
    int64_t line = 0;
    const int64_t begin = first_line(in, unit);
    const int64_t first = in->header != NULL ? 2 : 1; /* its line in the temporary file */
    char *message = message_about(in->path, "standard input", first, begin - first, &line);
    const bool is_of_header = in->header != NULL && line < 2, goes_on = p->arguments->keep_going && !is_of_header;
    if (line == 0 && !is_of_header) { /* the message names no line */
        char *longer = text_of("line %lld of %s", (long long)begin, message);
        free(message);
        message = longer;
    }
    predictor_clear_progress(p);
    say("%s", message);
    if (goes_on) {
        rows_write_error(p, p->is_text ? begin : p->first, message);
        p->first++;
        in->has_failed = true;
    }
    free(message);
    return goes_on;
}

typedef enum { UNITS_DONE, UNITS_FAILED, UNITS_STOPPED } units_outcome;

static units_outcome predict_units(input *in, size_t from, size_t count);

/* The library refused these units: the parts of them that are good are predicted, in order. */
static units_outcome predict_parts(input *in, size_t from, size_t count) {
    if (count == 1) {
        return report(in, from) ? UNITS_DONE : UNITS_FAILED;
    }
    const units_outcome first = predict_units(in, from, count / 2);
    return first == UNITS_DONE ? predict_units(in, from + count / 2, count - count / 2) : first;
}

static units_outcome predict_units(input *in, size_t from, size_t count) {
    predictor *p = in->predictor;
    const size_t begin = in->reader.records[in->units[from]].begin, last = in->units[from + count];
    const size_t end = last < in->reader.count ? in->reader.records[last].begin : in->reader.scanned;
    const rcv_data_options options =
        RCV_INIT(rcv_data_options, .cache = in->folder, .format = in->format, .unlabelled = true);
    rcv_data *data = NULL;
    if (!write_file(in, in->reader.buffer + begin, end - begin)) {
        return UNITS_STOPPED;
    }
    if (rcv_learner_open_data(p->learner, in->path, &options, &data) != RCV_OK) {
        return predict_parts(in, from, count);
    }
    rows_write_header(p);
    const rcv_status status = predict(in, data);
    const int64_t sequences = rcv_data_sequences(data);
    rcv_data_free(data);
    if (status != RCV_OK) {
        predictor_clear_progress(p);
        if (status != RCV_STOPPED || stop_signal() != 0) {
            (void)fail(status);
        }
        return UNITS_STOPPED;
    }
    p->first += sequences;
    return output_file_flush(p->results.file) ? UNITS_DONE : UNITS_STOPPED;
}

/* ---- what the input is ---- */

static bool begins_with(const record_reader *r, const char *bytes, size_t length) {
    return r->length >= length && memcmp(r->buffer, bytes, length) == 0;
}

static bool is_binary(const record_reader *r) {
    return begins_with(r, "\x93NUMPY", 6) || begins_with(r, "PK\3\4", 4) ||
           (r->length > 8 && r->buffer[7] == 0 && r->buffer[8] == '{');
}

/* Digits, signs, points, exponents, and what stands between numbers. */
static bool is_numbers(const char *line, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (strchr("0123456789+-.eE, \t\r\n", line[i]) == NULL || line[i] == '\0') {
            return false;
        }
    }
    return true;
}

static size_t count_byte(const char *text, size_t length, char byte) {
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        count += text[i] == byte;
    }
    return count;
}

static rcv_file_format recognise(const input *in) {
    const record_reader *r = &in->reader;
    const size_t length = records_end(r, 0);
    const size_t bom = begins_with(r, "\xef\xbb\xbf", 3) ? 3 : 0;
    if (in->predictor->arguments->data_format != RCV_FORMAT_AUTO) {
        return (rcv_file_format)in->predictor->arguments->data_format;
    }
    if (in->predictor->is_text) {
        return RCV_FORMAT_TEXT;
    }
    const char *line = r->buffer + r->records[0].begin;
    if (line[strspn(line, " \t")] == '{') {
        return RCV_FORMAT_JSON_LINES;
    }
    if (is_numbers(r->buffer + bom, length - bom)) {
        return RCV_FORMAT_NUMBERS;
    }
    const size_t tabs = count_byte(r->buffer, length, '\t');
    return tabs > count_byte(r->buffer, length, ',') && tabs > count_byte(r->buffer, length, ';') ? RCV_FORMAT_TSV
                                                                                                  : RCV_FORMAT_CSV;
}

/* Of a table: the first line is the header, and the sequence's column is found in it. */
static bool read_header(input *in) {
    record_reader *r = &in->reader;
    const size_t begin = r->records[0].begin;
    in->header_length = records_end(r, 0) - begin;
    in->header = need(in->header_length + 2, 1);
    memcpy(in->header, r->buffer + begin, in->header_length);
    if (in->header[in->header_length - 1] != '\n') {
        in->header[in->header_length++] = '\n';
    }
    records_drop(r, 1);
    const char *name = rcv_learner_groups_rows(in->predictor->learner) ? in->predictor->sequence : NULL;
    for (const char *separator = "\t,;"; *separator != '\0' && name != NULL; separator++) {
        in->column = records_find_field(in->header, in->header_length, *separator, name);
        if (in->column >= 0) {
            in->separator = *separator;
            return true;
        }
    }
    if (name != NULL) {
        say("standard input: line 1 has no column '%s', which says to which sequence a row belongs", name);
    }
    return name == NULL;
}

/* The input as a whole, where it cannot be predicted part by part. */
static int predict_whole(input *in) {
    record_reader *r = &in->reader;
    FILE *file = fopen(in->path, "wb");
    bool good = file != NULL;
    for (size_t got = 1; good && got > 0;) {
        good = fwrite(r->buffer, 1, r->length, file) == r->length;
        r->length = r->scanned = r->searched = r->count = 0;
        char part[1 << 14];
        const ssize_t more = r->has_ended ? 0 : read(STDIN_FILENO, part, sizeof part);
        got = more > 0 ? (size_t)more : 0;
        good = good && more >= 0 && fwrite(part, 1, got, file) == got && stop_signal() == 0;
    }
    good = file != NULL && fclose(file) == 0 && good;
    if (!good && stop_signal() == 0) {
        say("cannot copy standard input to %s: %s", in->path, strerror(errno));
    }
    return good                 ? predict_file(in->predictor, in->path, "standard input")
           : stop_signal() != 0 ? stop_status()
                                : EXIT_FAILED;
}

/* ---- the work ---- */

static int predict_lines(input *in) {
    record_reader *r = &in->reader;
    units_outcome outcome = UNITS_DONE;
    while (outcome == UNITS_DONE && (r->count > 0 || !r->has_ended)) {
        find_units(in);
        if (in->unit_count > 0) {
            outcome = predict_units(in, 0, in->unit_count);
            records_drop(r, in->units[in->unit_count]);
        }
        if (outcome == UNITS_DONE && !r->has_ended && !records_read(r, r->count)) {
            return stop_signal() != 0 ? stop_status() : EXIT_FAILED;
        }
    }
    if (outcome == UNITS_DONE) {
        rows_write_header(in->predictor);
    }
    if (outcome == UNITS_DONE && in->predictor->is_text) {
        predict_texts_end(in->predictor);
    }
    if (outcome == UNITS_STOPPED) { /* nobody reads the answers any more, or it was said what is wrong */
        return stop_signal() != 0                            ? stop_status()
               : in->predictor->results.file->error == EPIPE ? EXIT_DONE
                                                             : EXIT_FAILED;
    }
    return outcome == UNITS_FAILED || in->has_failed ? EXIT_FAILED : EXIT_DONE;
}

/* Are time steps predicted as they come? A network that also reads backwards needs the whole sequence. */
static bool can_stream(const predictor *p) {
    return p->is_steps && !p->is_text && !p->arguments->last &&
           !rcv_net_get_options(rcv_learner_net(p->learner))->bidirectional;
}

static int predict_input(input *in) {
    predictor *p = in->predictor;
    record_reader *r = &in->reader;
    r->keeps_blank = p->is_text;
    if (!records_read(r, 0)) {
        return stop_signal() != 0 ? stop_status() : EXIT_FAILED;
    }
    if (r->count == 0) {
        say("standard input is empty: give data, a line for each %s", p->is_text ? "text" : "sequence");
        return EXIT_FAILED;
    }
    in->format = recognise(in);
    const bool is_table = in->format == RCV_FORMAT_CSV || in->format == RCV_FORMAT_TSV;
    const bool is_array = in->format >= RCV_FORMAT_NPY || (in->format != RCV_FORMAT_TEXT && is_binary(r));
    const bool is_series = p->is_steps && !p->is_text;
    if (is_array || (is_series && !can_stream(p) && is_table && p->sequence == NULL) ||
        (is_series && p->sequence != NULL && !is_table)) {
        return predict_whole(in);
    }
    in->is_series = can_stream(p) && is_table;
    if (is_table) {
        records_join_quoted(r);
    }
    if (is_table && !read_header(in)) {
        return EXIT_FAILED;
    }
    in->separator = in->is_series ? 0 : in->separator;
    return predict_lines(in);
}

int predict_standard_input(predictor *p) {
    input in = {.predictor = p};
    const int code = make_folder(&in) ? predict_input(&in) : EXIT_FAILED;
    series_close(&in.series);
    records_free(&in.reader);
    remove_folder(&in);
    free(in.header);
    free(in.units);
    return code;
}
