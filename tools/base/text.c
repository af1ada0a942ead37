/* base/text.c: text that grows.
 */
#include "base/text.h"

#include <stdlib.h> /* realloc */

void cli_text_put(const char *data, size_t size, void *text)
{
    cli_text *to = (cli_text *)text;
    if (to->failed) {
        return;
    }
    if (to->size + size + 1 > to->capacity) {
        const size_t capacity = (to->size + size) * 2 + 256;
        char *moved = (char *)realloc(to->data, capacity);
        if (moved == NULL) {
            to->failed = true;
            return;
        }
        to->data = moved;
        to->capacity = capacity;
    }
    memcpy(to->data + to->size, data, size);
    to->size += size;
    to->data[to->size] = '\0';
}

void cli_text_free(cli_text *text)
{
    free(text->data);
    memset(text, 0, sizeof *text);
}
