// SPDX-License-Identifier: Apache-2.0
/* Prints text without malloc(), and without stdio unless into a stream: in signal handlers, too. */
#include "base/self.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void aco_i_flush(aco_i_text_t *text)
{
    const char *bytes = text->bytes;
    if (text->stream != NULL) {
        fwrite(bytes, 1, text->sz, text->stream);
        text->sz = 0;
    }
    text->sz = text->error != 0 ? 0 : text->sz;
    while (text->sz != 0) {
        ssize_t ct = aco_i_libc.write(text->fd, bytes, text->sz);
        if (ct < 0 && errno != EINTR) {
            text->sz = 0;
            text->error = errno;
        } else if (ct > 0) {
            bytes += ct;
            text->sz -= (size_t)ct;
        }
    }
}

void aco_i_put_some(aco_i_text_t *text, const char *bytes, size_t sz)
{
    while (sz != 0) {
        size_t room = sizeof(text->bytes) - text->sz, ct = sz < room ? sz : room;
        memcpy(text->bytes + text->sz, bytes, ct);
        text->sz += ct;
        bytes += ct;
        sz -= ct;
        if (text->sz == sizeof(text->bytes)) {
            aco_i_flush(text);
        }
    }
}

void aco_i_put(aco_i_text_t *text, const char *string)
{
    aco_i_put_some(text, string, strlen(string));
}

size_t aco_i_escape(char *to, const char *bytes, size_t sz)
{
    char *at = to;
    for (size_t i = 0; i < sz && bytes[i] != '\0'; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '"' || c == '\\') {
            *at++ = '\\';
            *at++ = (char)c;
        } else if (c < ' ' || c == 0x7f) {
            *at++ = '\\';
            *at++ = 'x';
            *at++ = "0123456789abcdef"[c >> 4];
            *at++ = "0123456789abcdef"[c & 15];
        } else {
            *at++ = (char)c;
        }
    }
    *at = '\0';
    return (size_t)(at - to);
}

void aco_i_put_number(aco_i_text_t *text, uint64_t number, unsigned base)
{
    char digits[24], *first = digits + sizeof(digits);
    do {
        *--first = "0123456789abcdef"[number % base];
        number /= base;
    } while (number != 0);
    aco_i_put_some(text, first, (size_t)(digits + sizeof(digits) - first));
}

void aco_i_put_time(aco_i_text_t *text, int64_t ns)
{
    uint64_t ms = (uint64_t)(ns < 0 ? 0 : ns) / 1000000;
    char decimals[4] = {'.', (char)('0' + ms / 100 % 10), (char)('0' + ms / 10 % 10),
                        (char)('0' + ms % 10)};
    aco_i_put_number(text, ms / 1000, 10);
    aco_i_put_some(text, decimals, sizeof(decimals));
}
