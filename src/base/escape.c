/* UTF-8 decoding, and escaping of untrusted text for a terminal. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

size_t rcvi_utf8_character(const char *bytes, size_t left, uint32_t *code) {
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    const unsigned char *at = (const unsigned char *)bytes;
    for (size_t more = 0; more < 4; more++) {
        if ((at[0] & forms[more].mask) != forms[more].lead) continue;
        if (more >= left) return 0;
        *code = at[0] & (uint32_t)(unsigned char)~forms[more].mask;
        for (size_t i = 1; i <= more; i++) {
            if ((at[i] & 0xc0) != 0x80) return 0;
            *code = *code << 6 | (at[i] & 0x3f);
        }
        bool is_one = *code >= forms[more].least && *code <= 0x10ffff && (*code < 0xd800 || *code > 0xdfff);
        return is_one ? more + 1 : 0;
    }
    return 0;
}

/* Control characters of ASCII and Latin-1, and invisible characters that change the direction or layout of text. Joiners, which some
 * scripts need, are not among them. */
static bool is_control(uint32_t code) {
    static const uint32_t ranges[][2] = {{0x00, 0x1f},     {0x7f, 0x9f},      {0x61c, 0x61c},   {0x200b, 0x200b},
                                         {0x200e, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f}, {0xfeff, 0xfeff},
                                         {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i][0] && code <= ranges[i][1]) return true;
    return false;
}

size_t rcv_escape(const char *bytes, size_t length, const char *keep, char *out, size_t room) {
    size_t needed = 0, written = 0;
    for (size_t at = 0, step; at < length; at += step) {
        char escaped[16];
        uint32_t code;
        step = rcvi_utf8_character(bytes + at, length - at, &code);
        bool as_is = step > 0 && (!is_control(code) || (code > 0 && code < 0x80 && keep && strchr(keep, (int)code)));
        if (step == 0) step = 1;
        size_t count = step;
        if (!as_is)
            count = (size_t)snprintf(escaped, sizeof escaped, step > 1 ? "\\u{%x}" : "\\x%02x",
                                     step > 1 ? (unsigned)code : (unsigned)(unsigned char)bytes[at]);
        if (written == needed && needed + count < room) {
            memcpy(out + written, as_is ? bytes + at : escaped, count);
            written += count;
        }
        needed += count;
    }
    if (room > 0) out[written] = '\0';
    return needed;
}
