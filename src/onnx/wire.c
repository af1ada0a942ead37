/* wire.c: reading and writing protobuf's wire format. >>wire
 *
 * Called by: read, write. Calls: nothing. Encoding: protobuf.dev/programming-guides/encoding.
 * Does: check every length against the bytes that are left before it is used.
 * Does not: know messages; see schema.
 *
 * Writing goes from the last byte to the first: when a message's length prefix is due, its bytes
 * are already there. So one pass measures, one writes, neither remembers sizes of sub-messages.
 */
#include "onnx_private.h"

SBIT__FN bool sbit__wire_varint(const unsigned char **p, const unsigned char *end, uint64_t *value)
{
    const unsigned char *q = *p;
    uint64_t result = 0;
    for (unsigned shift = 0; shift < 70 && q < end; shift += 7) {
        const uint64_t octet = *q++;
        if (shift == 63 && octet > 1) {
            return false;
        }
        result |= (octet & 0x7f) << shift;
        if (octet < 0x80) {
            *p = q;
            *value = result;
            return true;
        }
    }
    return false;
}

SBIT__FN uint32_t sbit__wire_load32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

SBIT__FN uint64_t sbit__wire_load64(const unsigned char *p)
{
    return (uint64_t)sbit__wire_load32(p) | (uint64_t)sbit__wire_load32(p + 4) << 32;
}

static const char *sbit__wire_skip_group(const unsigned char *p, const unsigned char *end,
                                         uint32_t depth, sbit__wire_item *group)
{
    if (depth == 0) {
        return "groups are nested too deeply";
    }
    while (p < end) {
        sbit__wire_item item;
        const char *problem = sbit__wire_next(p, end, depth - 1, &item);
        p = item.end;
        if (problem != NULL) {
            group->end = p;
            return problem;
        }
        if (item.wire == SBIT__WIRE_GROUP_END) {
            group->end = p;
            return item.number == group->number ? NULL : "the end of another group stands here";
        }
    }
    group->end = p;
    return "the group has no end";
}

static const char *sbit__wire_payload(const unsigned char *p, const unsigned char *end,
                                      uint32_t depth, sbit__wire_item *item)
{
    uint64_t length = 0;
    switch (item->wire) {
    case SBIT__WIRE_VARINT:
        if (!sbit__wire_varint(&p, end, &item->value)) {
            return "the varint is cut off or longer than 10 bytes";
        }
        break;
    case SBIT__WIRE_FIXED64:
    case SBIT__WIRE_FIXED32: {
        const size_t size = item->wire == SBIT__WIRE_FIXED64 ? 8 : 4;
        if ((size_t)(end - p) < size) {
            return "the fixed-size value is cut off";
        }
        item->value = size == 8 ? sbit__wire_load64(p) : sbit__wire_load32(p);
        p += size;
        break;
    }
    case SBIT__WIRE_LENGTH:
        if (!sbit__wire_varint(&p, end, &length)) {
            return "the length is cut off or longer than 10 bytes";
        }
        if (length > (uint64_t)(end - p)) {
            return "the length exceeds the bytes that are left";
        }
        item->data = p;
        item->size = (size_t)length;
        p += item->size;
        break;
    case SBIT__WIRE_GROUP_START:
        return sbit__wire_skip_group(p, end, depth, item);
    case SBIT__WIRE_GROUP_END:
        break;
    default:
        return "wire types 6 and 7 do not exist";
    }
    item->end = p;
    return NULL;
}

SBIT__FN const char *sbit__wire_next(const unsigned char *p, const unsigned char *end,
                                     uint32_t depth, sbit__wire_item *item)
{
    uint64_t tag = 0;
    item->start = p;
    item->end = p;
    item->data = NULL;
    item->size = 0;
    item->value = 0;
    item->number = 0;
    item->wire = 0;
    if (!sbit__wire_varint(&p, end, &tag)) {
        return "the tag is cut off or longer than 10 bytes";
    }
    if (tag >> 3 == 0 || tag > UINT32_MAX) {
        return "the field number is not between 1 and 536870911";
    }
    item->end = p;
    item->number = (uint32_t)(tag >> 3);
    item->wire = (uint32_t)(tag & 7);
    return sbit__wire_payload(p, end, depth, item);
}

SBIT__FN bool sbit__wire_count_varints(const unsigned char *p, size_t size, size_t *count)
{
    size_t ends = 0;
    for (size_t i = 0; i < size; i++) {
        ends += p[i] < 0x80 ? 1 : 0;
    }
    *count = ends;
    return size == 0 || p[size - 1] < 0x80;
}

/* ---- writing, backwards ---- */

SBIT__FN void sbit__wire_put_bytes(sbit__wire_out *out, const void *data, size_t size)
{
    out->total += size;
    if (out->begin != NULL && size != 0) {
        SPARSEBIT_ASSERT((size_t)(out->p - out->begin) >= size);
        out->p -= size;
        memcpy(out->p, data, size);
    }
}

SBIT__FN void sbit__wire_put_varint(sbit__wire_out *out, uint64_t value)
{
    unsigned char bytes[10];
    size_t size = 0;
    for (; value >= 0x80; value >>= 7) {
        bytes[size++] = (unsigned char)(value | 0x80);
    }
    bytes[size++] = (unsigned char)value;
    sbit__wire_put_bytes(out, bytes, size);
}

SBIT__FN void sbit__wire_put_fixed32(sbit__wire_out *out, uint32_t value)
{
    unsigned char bytes[4];
    for (unsigned i = 0; i < 4; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    sbit__wire_put_bytes(out, bytes, sizeof(bytes));
}

SBIT__FN void sbit__wire_put_fixed64(sbit__wire_out *out, uint64_t value)
{
    sbit__wire_put_fixed32(out, (uint32_t)(value >> 32));
    sbit__wire_put_fixed32(out, (uint32_t)value);
}

SBIT__FN void sbit__wire_put_tag(sbit__wire_out *out, uint32_t number, uint32_t wire)
{
    sbit__wire_put_varint(out, (uint64_t)number << 3 | wire);
}
