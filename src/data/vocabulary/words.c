/* The table of words: concatenated bytes, and a hash table with open addressing (linear probing) that is at most half full. */
#include "data/internal.h"

#include <string.h>

static const uint64_t NUMBER = UINT32_MAX; /* mask of the lower half of a slot: number + 1 */

void rcvi_words_init(rcvi_words *words, rcv_context *context) { *words = (rcvi_words){.context = context}; }

void rcvi_words_free(rcvi_words *words) {
    if (!words->context) return;
    rcvi_free(words->context, words->bytes);
    rcvi_free(words->context, words->starts);
    rcvi_free(words->context, words->counts);
    rcvi_free(words->context, words->slots);
    rcvi_words_init(words, words->context);
}

const char *rcvi_words_at(const rcvi_words *words, int64_t number, size_t *length) {
    *length = 0;
    if (number < 0 || number >= words->size) return NULL;
    *length = (size_t)(words->starts[number + 1] - words->starts[number]) - 1;
    return words->bytes + words->starts[number];
}

int rcvi_words_compare(const rcvi_words *words, int64_t a, int64_t b) {
    size_t a_length, b_length;
    const char *a_bytes = rcvi_words_at(words, a, &a_length), *b_bytes = rcvi_words_at(words, b, &b_length);
    int order = memcmp(a_bytes, b_bytes, a_length < b_length ? a_length : b_length);
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static bool is_word(const rcvi_words *words, int64_t number, const char *word, size_t length) {
    size_t own;
    const char *bytes = rcvi_words_at(words, number, &own);
    return own == length && memcmp(bytes, word, length) == 0;
}

/* The slot of a word, or the empty slot for it. The hash table must be allocated. */
static size_t slot_of(const rcvi_words *words, uint32_t hash, const char *word, size_t length) {
    size_t mask = words->slot_count - 1, slot = hash & mask;
    while (words->slots[slot] != 0) {
        if (words->slots[slot] >> 32 == hash &&
            is_word(words, (int64_t)(words->slots[slot] & NUMBER) - 1, word, length))
            break;
        slot = (slot + 1) & mask;
    }
    return slot;
}

static uint32_t short_hash(const char *word, size_t length) {
    return (uint32_t)(rcvi_hash_chunk(0, word, length) >> 32);
}

int64_t rcvi_words_find(const rcvi_words *words, const char *word, size_t length) {
    if (words->size == 0) return -1;
    return (int64_t)(words->slots[slot_of(words, short_hash(word, length), word, length)] & NUMBER) - 1;
}

/* Doubles the hash table if one more word would fill more than half of it. */
static bool grow_table(rcvi_words *words) {
    if ((uint64_t)words->size < words->slot_count / 2) return true;
    size_t count = words->slot_count ? words->slot_count * 2 : 64, mask = count - 1;
    uint64_t *slots = rcvi_new(words->context, count, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < words->slot_count; i++) {
        if (words->slots[i] == 0) continue;
        size_t slot = words->slots[i] >> 32 & mask;
        while (slots[slot] != 0) slot = (slot + 1) & mask;
        slots[slot] = words->slots[i];
    }
    rcvi_free(words->context, words->slots);
    words->slots = slots;
    words->slot_count = count;
    return true;
}

static rcv_status add_word(rcvi_words *words, uint32_t hash, const char *word, size_t length) {
    if (words->size >= INT32_MAX)
        return rcvi_fail(RCV_UNSUPPORTED, "a vocabulary has at most %d words, and this one has more", INT32_MAX);
    size_t size = (size_t)words->size, used = words->size ? (size_t)words->starts[size] : 0;
    if (!rcvi_grow(words->context, &words->bytes, &words->bytes_capacity, used + length + 1, 1) ||
        !rcvi_grow(words->context, &words->starts, &words->start_capacity, size + 2, sizeof *words->starts) ||
        !rcvi_grow(words->context, &words->counts, &words->count_capacity, size + 1, sizeof *words->counts) ||
        !grow_table(words))
        return RCV_NO_MEMORY;
    memcpy(words->bytes + used, word, length);
    words->bytes[used + length] = '\0';
    words->starts[size + 1] = used + length + 1;
    words->counts[size] = 0;
    words->slots[slot_of(words, hash, word, length)] = (uint64_t)hash << 32 | (uint64_t)(size + 1);
    words->size++;
    return RCV_OK;
}

rcv_status rcvi_words_count(rcvi_words *words, const char *word, size_t length, int64_t count, int64_t *number) {
    uint32_t hash = short_hash(word, length);
    int64_t found = words->size ? (int64_t)(words->slots[slot_of(words, hash, word, length)] & NUMBER) - 1 : -1;
    if (found < 0) {
        RCVI_TRY(add_word(words, hash, word, length));
        found = words->size - 1;
    }
    words->counts[found] += count;
    if (number) *number = found;
    return RCV_OK;
}

/* Heapsort: moves heap[at] down to its position; the root is the last in the order. */
static void sift_down(const rcvi_words *words, rcvi_word_order *before, uint32_t *heap, size_t at, size_t size) {
    uint32_t moved = heap[at];
    for (size_t child = 2 * at + 1; child < size; at = child, child = 2 * at + 1) {
        if (child + 1 < size && before(words, heap[child], heap[child + 1])) child++;
        if (!before(words, moved, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

rcv_status rcvi_words_sort(const rcvi_words *from, rcvi_word_order *before, rcvi_words *to) {
    size_t size = (size_t)from->size;
    uint32_t *order = rcvi_new(from->context, size, sizeof *order);
    if (!order) return RCV_NO_MEMORY;
    for (size_t i = 0; i < size; i++) order[i] = (uint32_t)i;
    for (size_t i = size / 2; i-- > 0;) sift_down(from, before, order, i, size);
    for (size_t i = size; i-- > 1;) {
        uint32_t last = order[0];
        order[0] = order[i];
        order[i] = last;
        sift_down(from, before, order, 0, i);
    }
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < size && !status; i++) {
        size_t length;
        const char *word = rcvi_words_at(from, order[i], &length);
        status = rcvi_words_count(to, word, length, from->counts[order[i]], NULL);
    }
    rcvi_free(from->context, order);
    return status;
}
